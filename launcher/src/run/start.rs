//! A run from its start to its end: with a session if one can be made, otherwise untracked.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::process::ExitCode;
use std::rc::Rc;

use gpu_track_collector::model::attached::Attached;
use gpu_track_collector::model::config::{Layer, Message};
use gpu_track_collector::model::io_calls::IoCalls;
use gpu_track_collector::model::run_end::CommandExit;
use gpu_track_collector::{KnownToParent, OutputLock, ProcRoot, clock};
use rustix::process::{getpid, set_child_subreaper};

use crate::attach::Attachment;
use crate::attach::ready_fd::ReadyFd;
use crate::cli::{HeldTrackingFile, Options, UsageError};
use crate::collector_process::Collector;
use crate::containers::Containers;
use crate::nodes::{self, AgentPlace, NodeRun, RankLock};
use crate::process::main_process::MainProcess;
use crate::process::reap;
use crate::process::signals::{self, SignalSet};
use crate::process::spawn::{self, Environment, InheritedState, SpawnError};
use crate::run::session::{Session, StartError};
use crate::run::started::{Started, Subject};
use crate::run::supervise::{Account, Supervisor};
use crate::run::tracked::Tracked;
use crate::run::untracked::{self, Untracked};
use crate::run::{config, not_executed};
use crate::shim_on_disk::preload::Preload;
use crate::{console, name};

/// What the launcher changes of its own process for a run, and how that was before.
struct ProcessState {
    /// The signals that are blocked.
    signals: SignalSet,
    inherited: InheritedState,
}

impl ProcessState {
    /// Blocks the signals that the launcher takes one by one.
    fn replace() -> Self {
        let signals = signals::all_but_faults();
        Self { signals, inherited: InheritedState::replace(&signals) }
    }
}

/// What a run holds until its end. Where the launcher has to become the command, it is dropped before.
pub(crate) struct Held {
    /// The locks of the report's files.
    pub(crate) locks: Rc<[Option<OutputLock>]>,
    /// The files of `--tf`, `--trace-gpu` and `--events`.
    pub(crate) tracking: Vec<HeldTrackingFile>,
    /// The part of the run that is on other nodes.
    pub(crate) nodes: Option<NodeRun>,
    /// The place of an agent among the other nodes.
    pub(crate) agent: Option<AgentPlace>,
    /// The lock that this rank shares with others.
    pub(crate) ranks: Option<RankLock>,
    /// The process to attach to, in place of a command.
    pub(crate) attachment: Option<Attachment>,
    /// The descriptor on which another program learns that the run has begun.
    pub(crate) ready_fd: Option<ReadyFd>,
}

/// Runs the command to its end, or tracks the process to attach to. Returns the exit status, unless the launcher has to end by the signal
/// that ended the command.
pub(crate) fn run(options: &Options, mut held: Held) -> ExitCode {
    // Before signals are blocked: a file system that does not answer must not keep a signal from ending the launcher.
    let preload = options.discovery.uses(Layer::Preload).then(Preload::new).transpose();
    let state = ProcessState::replace();
    let locks = Rc::clone(&held.locks);
    let ranks = held.ranks.as_ref().map(RankLock::descriptor);
    let session =
        preload.map_err(StartError::from).and_then(|preload| Session::new(options, preload, locks, ranks));
    let (attachment, ready_fd) = (held.attachment.take(), held.ready_fd.take());
    // For the report of a run that can't attach: `attach` takes the attachment.
    let named = attachment.as_ref().map(|attachment| (attachment.named(), attachment.args.clone()));
    let started = session.and_then(|session| match attachment {
        Some(attachment) => attach(options, session, attachment, ready_fd),
        None => start(options, session, &state, &mut held.nodes),
    });
    match started {
        Ok((account, started)) => supervise(options, account, started, &state, held),
        Err(StartError::Spawn(SpawnError::Exec(error))) => {
            command_not_executed(options, &state, held, &error)
        }
        Err(error) => match named {
            Some(process) => not_attached(options, process, &error),
            None => run_untracked(options, &state, held, &error),
        },
    }
}

/// Supervises a started run to its end, with the reports of all nodes and ranks. Returns the exit status, unless the launcher has to
/// end by the signal that ended the command.
fn supervise<A: Account>(
    options: &Options,
    account: A,
    started: Started,
    state: &ProcessState,
    held: Held,
) -> ExitCode {
    let signals = state.signals;
    let mut supervisor = Supervisor::new(account, started, options, signals);
    let ended = supervisor.run();
    let is_reported = supervisor.account.is_reported_by_collector();
    let nodes = supervisor.account.take_nodes();
    drop(supervisor);
    let Held { locks, tracking, agent, ranks, .. } = held;
    // From here on, another run may write to the report's files, also while this one waits for other nodes.
    drop(locks);
    if let Some(nodes) = nodes {
        nodes.conclude(options, &tracking, signals);
    }
    drop(tracking);
    if let Some(agent) = agent {
        agent.conclude(options);
    }
    // A collector that has written its report has made that of all ranks, too.
    if let Some(ranks) = ranks.filter(|_| !is_reported) {
        ranks.conclude(options);
    }
    // Everything is dropped by now: a signal may end this process here.
    match ended {
        // The status of an attached process is for its parent. The launcher's own status says whether it was tracked.
        Ok(_) if options.command.attach.is_some() && !is_reported => ExitCode::FAILURE,
        Ok(status) => options.exit_manner.end(status),
        Err(error) => {
            console::message(format_args!(
                "cannot wait for signals: {error}; gpu-track-run ends, and the report follows at the command's end"
            ));
            ExitCode::FAILURE
        }
    }
}

/// Starts the collector and the command, which does not wait for the collector to be ready. `nodes` is left alone on an error.
fn start(
    options: &Options,
    mut session: Session,
    state: &ProcessState,
    nodes: &mut Option<NodeRun>,
) -> Result<(Tracked, Started), StartError> {
    let mut env = session.environment(&options.command.words);
    if let Some(nodes) = nodes {
        for (name, value) in nodes.begin(session.segment(), &options.command.words, state.inherited) {
            spawn::set(&mut env, name, value);
        }
    }
    let mut containers = Containers::prepare(&mut session, &mut env);
    session.subscribe(options);
    // Before the collector starts: its configuration says what came of the command's cgroup.
    let cgroup_procs = session.cgroup_procs();
    let mut collector = session.start_collector().inspect_err(|_| session.clean_up())?;
    match spawn(options, env, state, cgroup_procs.as_ref()) {
        Ok(started) => {
            containers.serve(session.directory());
            let main = match started.subject {
                Subject::Command(main) => Some(main),
                Subject::Input(_) | Subject::Attached { .. } => None,
            };
            Ok((Tracked::new(session, collector, containers, nodes.take(), main, options), started))
        }
        Err(error) => {
            cancel(&session, &mut collector);
            Err(error.into())
        }
    }
}

/// Ends the collector of a session in which nothing has run, without a report, and removes the session's files.
fn cancel(session: &Session, collector: &mut Collector) {
    collector.messages.send(&Message::Cancelled);
    collector.messages.flush_all();
    session.wake_collector();
    reap::wait_for(collector.pid);
    session.clean_up();
}

/// Attaches to a process that runs, and starts the collector. Then says on `ready_fd` that the run has begun.
fn attach(
    options: &Options,
    mut session: Session,
    attachment: Attachment,
    ready_fd: Option<ReadyFd>,
) -> Result<(Tracked, Started), StartError> {
    session.subscribe(options);
    let attached = session.attach(&attachment).inspect_err(|_| session.clean_up())?;
    let mut collector = session.start_collector().inspect_err(|_| session.clean_up())?;
    let words = attachment.args.iter().map(OsString::from).collect();
    // This starts a thread. A fork beside a thread copies locks that the thread may hold. That does no harm here: collectors, enders and
    // runners of `--on-alert`, which are forked from now on, take no lock before their exec.
    let has_ended = attachment.watch().map_err(|error| {
        cancel(&session, &mut collector);
        StartError::Watch(error)
    })?;
    if let Some(ready_fd) = ready_fd {
        ready_fd.tell(session.variables());
    }
    let started = Started {
        subject: Subject::Attached { pid: attached.pid, has_ended },
        words,
        at_ns: attached.before.at_ns,
        children_before: reap::usage_of(libc::RUSAGE_CHILDREN),
        early_signals: Vec::new(),
    };
    Ok((Tracked::new(session, collector, Containers::default(), None, None, options), started))
}

/// Says why the run could not attach to its process, on stderr and in the report's files. Otherwise a report of an earlier run
/// there would be taken for this run's. `process`: the process to attach to, and its arguments. Returns the exit status.
fn not_attached(options: &Options, process: (Attached, Vec<String>), error: &StartError) -> ExitCode {
    console::error(format_args!("--attach: {error}"));
    let why = format!("The process could not be attached to: {error}.");
    report_without_figures(options, None, Some(process), why);
    match error {
        // The process ended after the command line was read. If it had ended before, `--attach` would have been refused as an error
        // of usage. The exit status is the same in both cases.
        StartError::NotAttached(_) => ExitCode::from(UsageError::status(name::is_this_gpu_tracker())),
        _ => ExitCode::FAILURE,
    }
}

/// Makes the launcher a subreaper, if that layer is on, and starts the command. If the command can't be started, this launcher is
/// no subreaper. `cgroup_procs`: the file by which the command moves into a cgroup of its own. Without a command (an agent), starts to
/// watch the input, whose end is the run's. Requests to end that came before the command's fork are taken, for the caller to hand on.
fn spawn(
    options: &Options,
    env: Environment,
    state: &ProcessState,
    cgroup_procs: Option<&File>,
) -> Result<Started, SpawnError> {
    if options.discovery.uses(Layer::Subreaper) {
        // If it fails, the other layers still find orphans.
        set_child_subreaper(Some(getpid())).ok();
    }
    // What helpers have used so far, such as collectors that could not work.
    let children_before = reap::usage_of(libc::RUSAGE_CHILDREN);
    let words = &options.command.words;
    if words.is_empty() {
        let subject = Subject::Input(nodes::watch_input(options.diagnosis.agent.as_ref()));
        return Ok(Started {
            subject,
            words: Vec::new(),
            at_ns: clock::monotonic_ns(),
            children_before,
            early_signals: Vec::new(),
        });
    }
    let early_signals = signals::take_requests();
    let at_ns = clock::monotonic_ns();
    let spawned = spawn::spawn(options.command.program(), env, &state.inherited, cgroup_procs);
    // This process may become the command, and exec keeps the attribute of a subreaper.
    if spawned.is_err() {
        set_child_subreaper(None).ok();
    }
    let subject = Subject::Command(MainProcess { pid: spawned? });
    Ok(Started { subject, words: words.clone(), at_ns, children_before, early_signals })
}

/// Runs the command without a session, because of `error`: tracking must not keep a command from running. The launcher reports what a
/// parent knows of its child. If no process can be created, the launcher becomes the command.
fn run_untracked(options: &Options, state: &ProcessState, mut held: Held, error: &StartError) -> ExitCode {
    if let Some(nodes) = held.nodes.take() {
        nodes.discard(state.signals);
    }
    // An agent's stderr is that of the MPI launcher.
    if options.diagnosis.agent.is_none() {
        console::message(format_args!("the command runs untracked: {error}"));
    }
    let account = Untracked::new(options, error.to_string());
    // In place of an earlier run's report, until this run ends.
    account.write_without_figures(None);
    let no_process = match spawn(options, std::env::vars_os().collect(), state, None) {
        Ok(started) => return supervise(options, account, started, state, held),
        Err(SpawnError::Exec(error)) => return command_not_executed(options, state, held, &error),
        Err(SpawnError::NoProcess(error)) => error,
    };
    say_that_no_process_can_be_made(&account, &no_process);
    drop(held);
    // A signal that the attempt raised (SIGXFSZ under a file size limit) must not reach the command.
    signals::discard_pending(&state.signals);
    not_executed(options, &spawn::become_command(options.command.program(), &state.inherited))
}

/// Becomes the command, because no process can be made for the launcher. Returns only if that fails, with the exit status.
pub(crate) fn become_command(options: &Options, error: &io::Error) -> ExitCode {
    console::message(format_args!("the command runs untracked: {error}"));
    say_that_no_process_can_be_made(&Untracked::new(options, error.to_string()), error);
    let state = ProcessState::replace();
    not_executed(options, &spawn::become_command(options.command.program(), &state.inherited))
}

/// Says on stderr and in the report's files that this process becomes the command.
fn say_that_no_process_can_be_made(account: &Untracked, error: &io::Error) {
    let why = format!("there is no report of it: cannot create a process: {error}");
    console::message(&why);
    account.write_without_figures(Some(format!("gpu-track-run became the command, and {why}.")));
}

/// Ends a run whose command can't be executed, because of `error`. Other nodes end their part, and the other ranks still get the
/// report of all.
fn command_not_executed(options: &Options, state: &ProcessState, held: Held, error: &io::Error) -> ExitCode {
    if let Some(nodes) = held.nodes {
        nodes.discard(state.signals);
    }
    let status = not_executed(options, error);
    if let Some(ranks) = held.ranks {
        ranks.conclude(options);
    }
    status
}

/// Says why the command can't be executed, on stderr and in the report's files. Returns the exit status, which is that of a shell:
/// 127 for a command that is not found, 126 for one that cannot be executed.
pub(crate) fn not_executed(options: &Options, error: &io::Error) -> ExitCode {
    let words = &options.command.words;
    let program = words.first().map(|program| program.to_string_lossy()).unwrap_or_default();
    let hint = not_executed::hint(words, error, std::env::var_os("PATH").as_deref());
    let why = hint.as_ref().map_or_else(|| error.to_string(), |hint| format!("{error}: {hint}"));
    console::error(options.exit_manner.cannot_run(&program, error, hint.as_deref()));
    let status = if error.kind() == io::ErrorKind::NotFound { 127 } else { 126 };
    // As wait4(2) would give it.
    let wait_status = i32::from(status) << 8;
    report_without_figures(options, Some(wait_status), None, format!("The command could not be run: {why}."));
    options.exit_manner.not_executed(status)
}

/// Writes a report without figures to the report's files, with the warning `why`. Otherwise a report of an earlier run there would be
/// taken for this run's. `status`: the command's wait status. `process`: the process to attach to, and its arguments.
fn report_without_figures(
    options: &Options,
    status: Option<i32>,
    process: Option<(Attached, Vec<String>)>,
    why: String,
) {
    let root = ProcRoot::default();
    let mut config = config::from_options(options, &root);
    let runs_on = process
        .as_ref()
        .is_some_and(|(process, _)| root.stat(process.pid).is_some_and(|stat| !stat.is_over()));
    if let Some((process, args)) = process {
        (config.attached, config.command) = (Some(process), args);
    }
    config.report.warnings.push(why);
    let mut known = KnownToParent::default();
    known.tell(Message::Ended(CommandExit {
        status,
        runs_on,
        is_wait_interrupted: false,
        at_ns: clock::monotonic_ns(),
        children_cpu_us: 0,
        helper_calls: IoCalls::default(),
    }));
    untracked::report_to_files(&config, &known);
}

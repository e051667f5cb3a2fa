//! Running a command: with its session if one can be made, otherwise untracked.

use std::fs::File;
use std::io;
use std::process::ExitCode;
use std::rc::Rc;

use gpu_track_collector::{Attached, KnownToParent, Layer, Message, OutputLock, ProcRoot, TreeMember, clock};
use rustix::process::{child_subreaper, getpid, set_child_subreaper};

use crate::attach::Attachment;
use crate::cli::{HeldTrackingFile, Options, UsageError};
use crate::collector::Collector;
use crate::main_process::MainProcess;
use crate::nodes::{self, NodeRun, RankLock};
use crate::preload::Preload;
use crate::ready_fd::ReadyFd;
use crate::session::{Session, SessionError};
use crate::signals::SignalSet;
use crate::spawn::{self, Environment, InheritedState, SpawnError};
use crate::started::{Started, Subject};
use crate::supervise::{Account, Supervisor};
use crate::tracked::Tracked;
use crate::untracked::Untracked;
use crate::{config, console, name, not_executed, reap, signals, untracked};

/// The launcher's state while it supervises a command, and before.
struct Ready {
    signals: SignalSet,
    inherited: InheritedState,
    was_subreaper: bool,
}

impl Ready {
    /// Whether orphans of processes from before the run become this process's children.
    fn is_reaper(&self) -> bool {
        self.was_subreaper || std::process::id() == 1
    }
}

/// What a run holds until its end, and the command that it may become must not.
pub(crate) struct Held {
    /// The locks of the report's files.
    pub(crate) locks: Rc<[Option<OutputLock>]>,
    /// The tracking files.
    pub(crate) tracking: Vec<HeldTrackingFile>,
    /// The run on other nodes, too.
    pub(crate) nodes: Option<NodeRun>,
    /// The lock that this rank shares with others.
    pub(crate) ranks: Option<RankLock>,
    /// The process to attach to, in place of a command.
    pub(crate) attachment: Option<Attachment>,
    /// The descriptor on which another program learns that the run has begun.
    pub(crate) ready_fd: Option<ReadyFd>,
}

/// Runs the command to its end, and ends as it ended.
pub(crate) fn run(options: &Options, mut held: Held) -> ExitCode {
    // Before signals are blocked: a file system that does not answer must not keep a signal from ending the launcher.
    let preload = options.discovery.uses(Layer::Preload).then(Preload::new).transpose();
    let signals = signals::all_but_faults();
    let ready = Ready {
        inherited: InheritedState::replace(&signals),
        signals,
        was_subreaper: child_subreaper().ok().flatten().is_some(),
    };
    let locks = Rc::clone(&held.locks);
    let ranks = held.ranks.as_ref().map(RankLock::descriptor);
    let session =
        preload.map_err(SessionError::from).and_then(|preload| Session::new(options, preload, locks, ranks));
    let (attachment, ready_fd) = (held.attachment.take(), held.ready_fd.take());
    let named = attachment.as_ref().map(|attachment| (attachment.named(), attachment.args.clone()));
    let started = session.and_then(|session| match attachment {
        Some(attachment) => attach(options, session, attachment, ready_fd),
        None => start(options, session, &ready, held.nodes.as_mut()),
    });
    match started {
        Ok((account, started)) => supervise(options, account, started, ready, held),
        Err(SessionError::Spawn(SpawnError::Exec(error))) => {
            command_not_executed(options, ready, held, &error)
        }
        Err(error) => match named {
            Some(process) => not_attached(options, process, &error),
            None => run_untracked(options, ready, held, &error),
        },
    }
}

/// Supervises a started command to its end, and ends as it ended.
fn supervise<A: Account>(
    options: &Options,
    account: A,
    started: Started,
    ready: Ready,
    held: Held,
) -> ExitCode {
    let signals = ready.signals;
    let mut supervisor = Supervisor::new(account, started, options, signals);
    let ended = supervisor.run();
    let is_reported = supervisor.is_reported_by_collector();
    drop(supervisor);
    let Held { locks, tracking, nodes, ranks, .. } = held;
    drop(locks);
    if let Some(nodes) = nodes {
        nodes.conclude(options, &tracking, signals);
    }
    drop(tracking);
    // Else the collector has made the report of all ranks.
    if let Some(ranks) = ranks.filter(|_| !is_reported) {
        ranks.conclude(options);
    }
    // A signal may end this process below.
    match ended {
        // That of an attached process is its parent's: the own one says whether it was tracked.
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

/// Starts the collector and the command. The command does not wait for the collector to be ready, but for the agents that
/// Slurm starts.
fn start(
    options: &Options,
    mut session: Session,
    ready: &Ready,
    nodes: Option<&mut NodeRun>,
) -> Result<(Tracked, Started), SessionError> {
    let mut env = session.environment();
    if let Some(nodes) = nodes {
        env.extend(nodes.start_agents(session.segment_path(), ready.inherited, ready.is_reaper()));
    }
    // Only now: what started agents is no part of the run, and the connector would report it as a descendant.
    session.subscribe(options);
    let cgroup_procs = session.cgroup_procs();
    let mut collector = session.start_collector().inspect_err(|_| session.clean_up())?;
    match spawn(options, env, ready, cgroup_procs.as_ref()) {
        Ok(started) => {
            let main = match started.subject {
                Subject::Command(main) => Some(main),
                Subject::Input(_) | Subject::Attached { .. } => None,
            };
            Ok((Tracked::new(session, collector, main, options), started))
        }
        Err(error) => {
            cancel(&session, &mut collector);
            Err(error.into())
        }
    }
}

/// Ends a session in which nothing has run.
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
) -> Result<(Tracked, Started), SessionError> {
    session.subscribe(options);
    let attached = session.attach(&attachment).inspect_err(|_| session.clean_up())?;
    let mut collector = session.start_collector().inspect_err(|_| session.clean_up())?;
    // A thread: started last, when nothing is forked any more but collectors that replace a killed one.
    let has_ended = attachment.watch().map_err(|error| {
        cancel(&session, &mut collector);
        SessionError::Watch(error)
    })?;
    if let Some(ready_fd) = ready_fd {
        ready_fd.tell(session.variables());
    }
    let started = Started {
        subject: Subject::Attached { pid: attached.pid, has_ended },
        at_ns: attached.before.at_ns,
        children_before: reap::usage_of(libc::RUSAGE_CHILDREN),
        early_signals: Vec::new(),
        strangers: Vec::new(),
    };
    Ok((Tracked::new(session, collector, None, options), started))
}

/// Says why the run could not attach to its process, also in the report's files: that of an earlier run there would be taken for
/// this run's. `process`: what it was to attach to, and its arguments.
fn not_attached(options: &Options, process: (Attached, Vec<String>), error: &SessionError) -> ExitCode {
    console::error(format_args!("--attach: {error}"));
    let why = format!("The process could not be attached to: {error}.");
    report_without_figures(options, None, Some(process), why);
    match error {
        // It has ended since the command line was read, which would have said so, too.
        SessionError::NotAttached(_) => ExitCode::from(UsageError::status(name::is_this_gpu_tracker())),
        _ => ExitCode::FAILURE,
    }
}

/// Starts the command. `cgroup_procs`: the file by which it moves into a cgroup of its own. Without a command, waits for what
/// ends the run.
fn spawn(
    options: &Options,
    env: Environment,
    ready: &Ready,
    cgroup_procs: Option<&File>,
) -> Result<Started, SpawnError> {
    if options.discovery.uses(Layer::Subreaper) {
        // If it fails, the other layers still find orphans.
        set_child_subreaper(Some(getpid())).ok();
    }
    // Of collectors that could not work, and from before this program's exec.
    let children_before = reap::usage_of(libc::RUSAGE_CHILDREN);
    let words = &options.command.words;
    if words.is_empty() {
        let subject = Subject::Input(nodes::watch_input(options.diagnosis.agent.as_ref()));
        return Ok(Started {
            subject,
            at_ns: clock::monotonic_ns(),
            children_before,
            early_signals: Vec::new(),
            strangers: Vec::new(),
        });
    }
    let strangers = strangers(options);
    let early_signals = signals::take_requests();
    let at_ns = clock::monotonic_ns();
    let spawned = spawn::spawn(words, env, &ready.inherited, cgroup_procs);
    // This process may become the command, and exec keeps the attribute.
    if spawned.is_err() && !ready.was_subreaper {
        set_child_subreaper(None).ok();
    }
    let subject = Subject::Command(MainProcess { pid: spawned? });
    Ok(Started { subject, at_ns, children_before, early_signals, strangers })
}

/// Gives the children that this process has before the command, so that no limit ends them: those of the program that it was (a shell's
/// background jobs before its `exec`), the collector, what starts agents. None without limits, which alone ask for them.
fn strangers(options: &Options) -> Vec<TreeMember> {
    if options.tracking.limits.list.is_empty() {
        return Vec::new();
    }
    let root = ProcRoot::default();
    let children = root.children(std::process::id(), 1);
    children.into_iter().filter_map(|pid| TreeMember::of(&root, pid)).collect()
}

/// Runs the command without a session, because of this error: tracking must not keep it from running. The launcher reports
/// what a parent knows. Where it can't even have a child, it becomes the command.
fn run_untracked(options: &Options, ready: Ready, held: Held, error: &SessionError) -> ExitCode {
    // An agent's stderr is that of the MPI launcher.
    if options.diagnosis.agent.is_none() {
        console::message(format_args!("the command runs untracked: {error}"));
    }
    let account = Untracked::new(options, error.to_string());
    account.write_files(None);
    match spawn(options, std::env::vars_os().collect(), &ready, None) {
        Ok(started) => return supervise(options, account, started, ready, held),
        Err(SpawnError::Exec(error)) => return command_not_executed(options, ready, held, &error),
        Err(SpawnError::NoProcess(error)) => {
            let why = format!("there is no report of it: cannot create a process: {error}");
            console::message(&why);
            account.write_files(Some(format!("gpu-track-run became the command, and {why}.")));
        }
    }
    drop(held);
    // A signal that the attempt raised (SIGXFSZ under a file size limit) must not reach the command.
    signals::discard_pending(&ready.signals);
    not_executed(options, &spawn::become_command(&options.command.words, &ready.inherited))
}

/// Ends a run whose command can't be executed, because of this error.
fn command_not_executed(options: &Options, ready: Ready, held: Held, error: &io::Error) -> ExitCode {
    if let Some(nodes) = held.nodes {
        nodes.discard(ready.signals);
    }
    let status = not_executed(options, error);
    if let Some(ranks) = held.ranks {
        ranks.conclude(options);
    }
    status
}

/// Says why the command can't be executed, writes reports that say so, and ends. The exit status is that of a shell: 127 for a
/// command that is not found, 126 for one that cannot be executed.
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

/// Writes a report without figures to the report's files. The report of an earlier run there would be taken for this run's.
/// `status`: the command's wait status. `process`: what the run was to attach to in place of a command, and its arguments.
fn report_without_figures(
    options: &Options,
    status: Option<i32>,
    process: Option<(Attached, Vec<String>)>,
    why: String,
) {
    let root = ProcRoot::default();
    let mut config = config::of(options, &root);
    let runs_on = process
        .as_ref()
        .is_some_and(|(process, _)| root.stat(process.pid).is_some_and(|stat| !stat.is_over()));
    if let Some((process, args)) = process {
        (config.attached, config.command) = (Some(process), args);
    }
    config.report.warnings.push(why);
    let mut known = KnownToParent::default();
    known.tell(Message::Ended {
        status,
        runs_on,
        is_wait_interrupted: false,
        monotonic_ns: clock::monotonic_ns(),
        children_cpu_us: 0,
    });
    untracked::report_to_files(&config, &known);
}

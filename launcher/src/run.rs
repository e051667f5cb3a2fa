//! Running a command: with its session if one can be made, otherwise untracked.

use std::fmt::Display;
use std::io;
use std::process::ExitCode;

use gpu_track_collector::write_report;
use gpu_track_collector::{
    Layer, Message, OutputLock, ProcRoot, ReportTarget, clock, format, render, untracked,
};
use rustix::process::{child_subreaper, getpid, set_child_subreaper};

use crate::cli::{HeldTrackingFile, Options};
use crate::preload::Preload;
use crate::session::{Session, SessionError};
use crate::spawn::{self, InheritedState, SpawnError};
use crate::supervise::{Started, Supervisor};
use crate::{config, console, not_executed, reap, signals};

/// Runs the command to its end, and ends as it ended. The locks are those of the report's files; the tracking file is
/// held until the end.
pub(crate) fn run(
    options: &Options,
    output_locks: Vec<Option<OutputLock>>,
    tracking: Option<HeldTrackingFile>,
) -> ExitCode {
    let children_before = reap::usage_of(libc::RUSAGE_CHILDREN);
    // Before signals are blocked: a file system that does not answer must not keep a signal from ending the launcher.
    let preload = options.discovery.uses(Layer::Preload).then(Preload::new).transpose();
    let signals = signals::all_but_faults();
    let inherited = InheritedState::replace(&signals);
    let session =
        preload.map_err(SessionError::from).and_then(|preload| Session::new(options, preload, output_locks));
    let started = match session.and_then(|session| start(options, session, &inherited)) {
        Ok(started) => started,
        Err(SessionError::Spawn(SpawnError::Exec(error))) => return not_executed(options, &error),
        Err(error) => {
            // This process may become the command.
            drop(tracking);
            return run_untracked(options, &inherited, error);
        }
    };
    let ended = Supervisor::new(started, options, signals, &children_before).run();
    // A signal may end this process below.
    drop(tracking);
    match ended {
        Ok(status) => options.exit_manner.end(status),
        Err(error) => {
            console::message(format_args!(
                "cannot wait for signals: {error}; gpu-track-run ends, and the report follows at the command's end"
            ));
            ExitCode::FAILURE
        }
    }
}

/// Starts the collector and the command. The command does not wait for the collector to be ready.
fn start(
    options: &Options,
    mut session: Session,
    inherited: &InheritedState,
) -> Result<Started, SessionError> {
    let env = session.environment();
    let cgroup_procs = session.cgroup_procs();
    let mut collector = session.start_collector().inspect_err(|_| session.clean_up())?;
    let was_subreaper = child_subreaper().ok().flatten().is_some();
    if options.discovery.uses(Layer::Subreaper) {
        // If it fails, the other layers still find orphans.
        set_child_subreaper(Some(getpid())).ok();
    }
    let started_ns = clock::monotonic_ns();
    match spawn::spawn(&options.command.words, env, inherited, cgroup_procs.as_ref()) {
        Ok(main_pid) => Ok(Started { session, collector, main_pid, started_ns }),
        Err(error) => {
            collector.messages.send(&Message::Cancelled);
            collector.messages.flush_all();
            session.wake_collector();
            reap::wait_for(collector.pid);
            session.clean_up();
            // This process may become the command, and exec keeps the attribute.
            if !was_subreaper {
                set_child_subreaper(None).ok();
            }
            Err(error.into())
        }
    }
}

/// Tracking must not keep the command from running: without a session, this process becomes the command.
fn run_untracked(options: &Options, inherited: &InheritedState, error: impl Display) -> ExitCode {
    console::message(format_args!("the command runs untracked and without a report: {error}"));
    report_untracked(
        options,
        None,
        format!("The command runs untracked, and nothing is known of it: {error}."),
    );
    // A signal that the attempt raised (SIGXFSZ under a file size limit) must not reach the command.
    signals::discard_pending(&signals::all_but_faults());
    not_executed(options, &spawn::become_command(&options.command.words, inherited))
}

/// The exit status is that of a shell: 127 for a command that is not found, 126 for one that cannot be executed.
fn not_executed(options: &Options, error: &io::Error) -> ExitCode {
    let words = &options.command.words;
    let program = words.first().map(|program| program.to_string_lossy()).unwrap_or_default();
    let hint = not_executed::hint(words, error, std::env::var_os("PATH").as_deref());
    let why = hint.as_ref().map_or_else(|| error.to_string(), |hint| format!("{error}: {hint}"));
    console::error(options.exit_manner.cannot_run(&program, error, hint.as_deref()));
    let status = if error.kind() == io::ErrorKind::NotFound { 127 } else { 126 };
    report_untracked(options, Some(status), format!("The command could not be run: {why}."));
    options.exit_manner.not_executed(status)
}

/// Writes a report without figures to the report's files. The report of an earlier run there would be taken for this run's.
fn report_untracked(options: &Options, exit_code: Option<u8>, why: String) {
    let has_reason =
        |target: &ReportTarget| target.output.file().is_some() && format::is_complete(&target.format);
    if !options.report.targets.iter().any(has_reason) {
        return;
    }
    let mut config = config::of(options, &ProcRoot::default());
    config.report.warnings.push(why);
    let report = untracked(&config, exit_code.map(|code| i32::from(code) << 8));
    for target in config.report.targets.iter().filter(|target| has_reason(target)) {
        let output = &target.output;
        if let Err(error) = write_report(output, &render(&report, target, config.report.style)) {
            console::message(format_args!("cannot write the report to {output}: {error}"));
        }
    }
}

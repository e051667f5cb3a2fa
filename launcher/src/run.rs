//! Running a command: with its session if one can be made, otherwise untracked.

use std::fmt::Display;
use std::io;
use std::process::ExitCode;

use gpu_track_collector::{Message, clock};
use rustix::process::{child_subreaper, getpid, set_child_subreaper};

use crate::cli::Options;
use crate::session::{Session, SessionError};
use crate::spawn::{self, InheritedState, SpawnError};
use crate::supervise::{Started, Supervisor};
use crate::{console, exit, reap, signals};

/// Runs the command to its end, and ends as it ended.
pub(crate) fn run(options: &Options) -> ExitCode {
    let children_before = reap::usage_of(libc::RUSAGE_CHILDREN);
    let signals = signals::all_but_faults();
    let inherited = InheritedState::replace(&signals);
    let started = match start(options, &inherited) {
        Ok(started) => started,
        Err(SessionError::Spawn(SpawnError::Exec(error))) => return not_executed(options, &error),
        Err(error) => return run_untracked(options, &inherited, error),
    };
    match Supervisor::new(started, options, signals, &children_before).run() {
        Ok(status) if options.style.as_gpu_tracker => exit::as_gpu_tracker(status),
        Ok(status) => exit::as_command(status),
        Err(error) => {
            console::message(format_args!(
                "cannot wait for signals: {error}; gpu-track-run ends, and the report follows at the command's end"
            ));
            ExitCode::FAILURE
        }
    }
}

/// Starts the collector and the command. The command does not wait for the collector to be ready.
fn start(options: &Options, inherited: &InheritedState) -> Result<Started, SessionError> {
    let mut session = Session::new(options)?;
    let env = session.environment(options.command.first());
    let cgroup_procs = session.cgroup_procs();
    let mut collector = session.start_collector().inspect_err(|_| session.clean_up())?;
    let was_subreaper = child_subreaper().ok().flatten().is_some();
    if options.layers.subreaper {
        // If it fails, the other layers still find orphans.
        set_child_subreaper(Some(getpid())).ok();
    }
    let started_ns = clock::monotonic_ns();
    match spawn::spawn(&options.command, env, inherited, cgroup_procs.as_ref()) {
        Ok(main_pid) => Ok(Started { session, collector, main_pid, started_ns }),
        Err(error) => {
            // If this fails, the collector has ended already.
            let _ = collector.send(&Message::Cancelled);
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
    // A signal that the attempt raised (SIGXFSZ under a file size limit) must not reach the command.
    signals::discard_pending(&signals::all_but_faults());
    not_executed(options, &spawn::become_command(&options.command, inherited))
}

/// The exit status is that of a shell: 127 for a command that is not found, 126 for one that cannot be executed.
fn not_executed(options: &Options, error: &io::Error) -> ExitCode {
    let program = options.command.first().map(|program| program.to_string_lossy()).unwrap_or_default();
    console::message(format_args!("cannot run '{program}': {error}"));
    if options.style.as_gpu_tracker {
        return ExitCode::FAILURE;
    }
    ExitCode::from(if error.kind() == io::ErrorKind::NotFound { 127 } else { 126 })
}

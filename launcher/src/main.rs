//! `gpu-track-run`: runs a command and reports what its whole process tree used.
//!
//! Three processes: this launcher (parent of the command, subreaper, forwards signals, reaps, ends as the command
//! ended), the collector (the same executable again, see [`tracking::COLLECTOR_NAME`]), and the command.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "this is the program that talks to people")]

mod cli;
mod docs;
mod early;
mod elf32;
mod gpus;
mod reap;
mod recover;
mod shim_file;
mod signals;
mod spawn;
mod supervise;
mod tracking;

use std::ffi::OsString;
use std::io::Write;
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitCode, ExitStatus};

use gpu_track_collector::model::config::Message;
use gpu_track_collector::session::Inheritance;
use gpu_track_collector::sys::clock;

use crate::cli::{Options, Refusal, Request};
use crate::spawn::World;
use crate::supervise::Supervisor;
use crate::tracking::{COLLECTOR_NAME, Session};

fn main() -> ExitCode {
    let args: Vec<OsString> = std::env::args_os().collect();
    let fd = |arg: &OsString| arg.to_str().and_then(|fd| fd.parse().ok());
    if let [name, pipe, segment, state, connector, segment_path, state_path] = args.as_slice()
        && name == COLLECTOR_NAME
        && let (Some(pipe), Some(segment), Some(state)) = (fd(pipe), fd(segment), fd(state))
    {
        // SAFETY: the launcher opened these descriptors for us, and nobody else in this process uses them.
        let owned = |fd| unsafe { OwnedFd::from_raw_fd(fd) };
        let [pipe, segment, state] = [pipe, segment, state].map(owned);
        let connector = fd(connector).map(owned);
        let (segment_path, state_path) = (segment_path.into(), state_path.into());
        collect(Inheritance { pipe, segment, state, connector, segment_path, state_path });
    }
    if let [name, config] = args.as_slice()
        && name == gpus::LISTER_NAME
    {
        gpus::serve(config);
    }
    match cli::parse(args.into_iter()) {
        Ok(Request::Print(text)) => print(&text),
        Ok(Request::Gpus(config, format)) => gpus::print(&config.in_this_environment(), format),
        Ok(Request::Recover(recovery)) => recover::recover(&recovery).unwrap_or_else(refuse),
        Ok(Request::Run(mut options)) => {
            options.gpu = options.gpu.in_this_environment();
            check_gpus(&options).map_or_else(refuse, |()| run(&options))
        }
        Err(refusal) => refuse(refusal),
    }
}

/// GPUs that were asked for have to be there; without such a wish no driver is asked.
fn check_gpus(options: &Options) -> Result<(), Refusal> {
    if options.gpu.uuids.is_none() {
        return Ok(());
    }
    // Without an answer no GPU is known.
    options.check_gpus(&gpus::ask(&options.gpu).unwrap_or_default())
}

fn refuse(refusal: Refusal) -> ExitCode {
    say(&refusal.to_string());
    ExitCode::from(Refusal::STATUS)
}

/// A line on stderr, if it can be written: `eprintln!` would panic where it can't, and the command would not run.
fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// Whoever reads may stop reading (`--help | head`).
fn print(text: &str) -> ExitCode {
    let _ = std::io::stdout().write_all(text.as_bytes());
    ExitCode::SUCCESS
}

/// The collector's life.
fn collect(inheritance: Inheritance) -> ! {
    // It ends by itself when the command has ended. What a batch system or a user sends to all processes at the end
    // of a job must not cost the report.
    for signal in [
        libc::SIGHUP,
        libc::SIGINT,
        libc::SIGQUIT,
        libc::SIGTERM,
        libc::SIGPIPE,
        libc::SIGALRM,
        libc::SIGUSR1,
        libc::SIGUSR2,
        libc::SIGXCPU,
        libc::SIGXFSZ,
    ] {
        signals::set_ignored(signal, true);
    }
    rustix::thread::set_name(c"gpu-track-coll").ok();
    match gpu_track_collector::session::serve(inheritance) {
        Ok(()) => gpus::leave(0),
        Err(error) => {
            say(&format!("gpu-track-run: {error}"));
            gpus::leave(1)
        }
    }
}

fn run(options: &Options) -> ExitCode {
    let children_before = tracking::children_usage();
    let sigchld_ignored = signals::is_ignored(libc::SIGCHLD);
    let signals = signals::all();
    let world = World { mask: signals::block(&signals), sigchld_ignored };
    // With SIGCHLD ignored the kernel would reap the command before we can.
    signals::set_ignored(libc::SIGCHLD, false);

    let mut session = match Session::new(options) {
        Ok(session) => session,
        Err(error) => return untracked(options, &world, &error.into()),
    };
    let env = session.environment(options.command.first());
    let entrance = session.cgroup_entrance();
    // Before the command, but nobody waits for it to be ready.
    let mut collector = match session.start_collector() {
        Ok(collector) => collector,
        Err(error) => {
            session.clean_up();
            return untracked(options, &world, &error.into());
        }
    };
    // It survives exec: where we become the command after all, that must not have changed.
    let was_subreaper = rustix::process::child_subreaper().ok().flatten().is_some();
    if options.layers.subreaper {
        // Without it, orphans are found by the other layers.
        rustix::process::set_child_subreaper(Some(rustix::process::getpid())).ok();
    }
    let started_ns = clock::monotonic_ns();
    let main_pid = match spawn::spawn(&options.command, &env, &world, entrance.as_ref()) {
        Ok(Ok(pid)) => pid,
        failed => {
            // Where it is gone already, there is nobody to tell.
            let _ = collector.send(&Message::Cancelled);
            session.wake_collector();
            reap::wait_for(collector.pid);
            session.clean_up();
            return match failed {
                Ok(Err(failed)) => not_executed(options, &failed),
                Err(error) => {
                    if !was_subreaper {
                        rustix::process::set_child_subreaper(None).ok();
                    }
                    untracked(options, &world, &anyhow::anyhow!("cannot make a process for it: {error}"))
                }
                Ok(Ok(_)) => ExitCode::FAILURE,
            };
        }
    };
    let supervisor =
        Supervisor::new(session, collector, main_pid, started_ns, options, signals, children_before);
    match supervisor.run() {
        Ok(status) => end_as(status),
        Err(error) => {
            say(&format!("gpu-track-run: cannot wait for signals: {error}"));
            ExitCode::FAILURE
        }
    }
}

/// Tracking fails open: the command runs all the same.
fn untracked(options: &Options, world: &World, error: &anyhow::Error) -> ExitCode {
    say(&format!("gpu-track-run: the command runs untracked: {error}"));
    // What our own attempt raised (SIGXFSZ under a file size limit) is not the command's.
    signals::discard_pending(&signals::all());
    not_executed(options, &spawn::become_command(&options.command, world))
}

fn not_executed(options: &Options, failed: &spawn::ExecFailed) -> ExitCode {
    let program = options.command.first().map(|program| program.to_string_lossy()).unwrap_or_default();
    say(&format!("gpu-track-run: cannot run '{program}': {}", failed.source));
    ExitCode::from(u8::try_from(failed.status()).unwrap_or(126))
}

/// End as the command ended.
fn end_as(status: ExitStatus) -> ExitCode {
    match (status.code(), status.signal()) {
        (Some(code), _) => ExitCode::from(u8::try_from(code & 0xff).unwrap_or(u8::MAX)),
        (None, Some(signal)) => signals::die_by(signal),
        (None, None) => ExitCode::FAILURE,
    }
}

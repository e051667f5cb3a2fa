//! The agent: on another node, a launcher whose command is the daemon of an MPI launcher; in a step of Slurm, one without a
//! command, which lasts as long as the step has input.
//!
//! It is silent, and where it can't do its work, it becomes the daemon.

use std::io;
use std::process::ExitCode;
use std::thread;

use rustix::process::{Signal, getpid, kill_process};

use super::directory::{CheckedIn, NodeDirectory};
use super::{json_in, slurm_step};
use crate::cli::{AgentSpec, Options};
use crate::keep;
use crate::signals;
use crate::spawn::{self, InheritedState};

/// Makes an ordinary launcher the agent that its command line asks for: its report goes into the directory of the nodes. Where
/// there can be no report of this agent, this process becomes the daemon, or it ends with the status that this gives.
///
/// # Errors
/// If it can't become the daemon: why not. There is nothing else that it could do.
pub(crate) fn prepare(options: &mut Options) -> io::Result<Option<ExitCode>> {
    let Some(spec) = options.diagnosis.agent.clone() else { return Ok(None) };
    options.tracking.disable_logs = true;
    options.report.style.quiet = true;
    options.report.keep = None;
    // The segment is there: this is the launcher's own node, or another agent's.
    let is_tracked = spec.segment.as_ref().is_some_and(|segment| segment.exists());
    let place = if is_tracked { None } else { place(&spec) };
    let Some(CheckedIn { file, part }) = place else {
        if options.command.words.is_empty() {
            slurm_step::say_ready();
            return Ok(Some(ExitCode::SUCCESS));
        }
        let inherited = InheritedState::replace(&signals::all_but_faults());
        return Err(spawn::become_command(&options.command.words, &inherited));
    };
    options.report.targets = vec![json_in(&file)];
    options.report.node_part = Some(part);
    Ok(None)
}

/// Finds the place of this node's report: in the directory that the nodes share, or in this user's own on this node.
fn place(spec: &AgentSpec) -> Option<CheckedIn> {
    let check_in = |directory: NodeDirectory| directory.check_in(true);
    let shared = NodeDirectory::open(&spec.directory, spec.id).and_then(check_in);
    let local = |_| {
        let state = keep::place(&keep::own_variable).ok_or(io::ErrorKind::NotFound)?.directory;
        let name = spec.directory.file_name().ok_or(io::ErrorKind::NotFound)?;
        NodeDirectory::local(&state.join("nodes").join(name)).and_then(check_in)
    };
    shared.or_else(local).ok()
}

/// Says that the node is tracked, and has this agent asked to end when its standard input ends.
pub(crate) fn await_end() {
    slurm_step::say_ready();
    let ask = || {
        // It can't fail: this process is its own.
        let _ = kill_process(getpid(), Signal::TERM);
    };
    let wait = move || {
        // An error is an end, too.
        let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
        ask();
    };
    // Without a thread it would never learn of the end.
    if thread::Builder::new().spawn(wait).is_err() {
        ask();
    }
}

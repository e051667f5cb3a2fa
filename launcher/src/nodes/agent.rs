//! The agent: on a node that an MPI launcher reaches, a launcher whose command is the MPI launcher's daemon.
//!
//! It is silent, and where it can't do its work, it becomes the daemon.

use std::io;

use super::directory::{CheckedIn, NodeDirectory};
use super::json_in;
use crate::cli::{AgentSpec, Options};
use crate::keep;
use crate::signals;
use crate::spawn::{self, InheritedState};

/// Makes an ordinary launcher the agent that its command line asks for: its report goes into the directory of the nodes. Where
/// there can be no report of this agent, this process becomes the daemon.
///
/// # Errors
/// If it can't become the daemon: why not. There is nothing else that it could do.
pub(crate) fn prepare(options: &mut Options) -> io::Result<()> {
    let Some(spec) = options.diagnosis.agent.clone() else { return Ok(()) };
    options.tracking.disable_logs = true;
    options.report.style.quiet = true;
    options.report.keep = None;
    // The segment is there: this is the launcher's own node, or another agent's.
    let is_tracked = spec.segment.as_ref().is_some_and(|segment| segment.exists());
    let place = if is_tracked { None } else { place(&spec) };
    let Some(CheckedIn { file, part }) = place else {
        let inherited = InheritedState::replace(&signals::all_but_faults());
        return Err(spawn::become_command(&options.command.words, &inherited));
    };
    options.report.targets = vec![json_in(&file)];
    options.report.node_part = Some(part);
    Ok(())
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

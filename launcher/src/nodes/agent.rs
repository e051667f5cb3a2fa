//! The agent: on another node, a launcher whose command is the daemon of an MPI launcher; in a step of Slurm, one without a
//! command, which lasts as long as the step has input.
//!
//! It is silent, and where it can't do its work, it becomes the daemon.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::directory::{CheckedIn, NodeDirectory};
use super::{json_in, slurm_step, state_directory};
use crate::cli::{AgentSpec, Options};
use crate::end_watch;
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
    let has_command = !options.command.words.is_empty();
    // The segment is there: this is the launcher's own node, or another agent's.
    let is_tracked = spec.segment.as_ref().is_some_and(|segment| is_own_file(segment));
    let is_late = !has_command && is_input_over();
    let place = if is_tracked || is_late { None } else { place(&spec) };
    let Some((CheckedIn { file, part }, is_left)) = place else {
        if !has_command {
            slurm_step::say_ready(None);
            return Ok(Some(ExitCode::SUCCESS));
        }
        let inherited = InheritedState::replace(&signals::all_but_faults());
        return Err(spawn::become_command(&options.command.words, &inherited));
    };
    options.report.targets = vec![json_in(&file)];
    options.diagnosis.agent = Some(AgentSpec { left: is_left.then_some(file), ..spec });
    options.report.node_part = Some(part);
    Ok(None)
}

/// Whether this is a file of this user's. What another user puts there must not keep the node from being tracked.
fn is_own_file(path: &Path) -> bool {
    let found = fs::symlink_metadata(path);
    found.is_ok_and(|found| found.is_file() && found.uid() == rustix::process::geteuid().as_raw())
}

/// Finds the place of this node's report: in the directory that the nodes share, or in this user's own on this node. Gives it with
/// whether it is that one.
fn place(spec: &AgentSpec) -> Option<(CheckedIn, bool)> {
    let check_in = |directory: NodeDirectory| directory.check_in(true);
    if let Ok(shared) = NodeDirectory::open(&spec.directory, spec.id).and_then(check_in) {
        return Some((shared, false));
    }
    let local = state_directory()?.join(spec.directory.file_name()?);
    Some((NodeDirectory::local(&local).and_then(check_in).ok()?, true))
}

/// Says that the node is tracked, and where its report is if that stays on it (`spec`). Watches the standard input. The result
/// becomes true when that has ended, and then a SIGCHLD wakes this process.
pub(crate) fn watch_input(spec: Option<&AgentSpec>) -> Arc<AtomicBool> {
    slurm_step::say_ready(spec.and_then(|spec| spec.left.as_deref()));
    let watch = end_watch::start(|| {
        // An error is an end, too.
        let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
    });
    // Without a thread it would never learn of the end.
    watch.unwrap_or_else(|_| Arc::new(AtomicBool::new(true)))
}

/// Whether the standard input has ended: Slurm has started this agent too late.
fn is_input_over() -> bool {
    let stdin = io::stdin();
    let mut fds = [PollFd::new(&stdin, PollFlags::IN)];
    poll(&mut fds, Some(&Timespec::default())).is_ok() && fds[0].revents().contains(PollFlags::HUP)
}

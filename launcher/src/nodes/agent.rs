//! The agent: a launcher on another node. Its command is the daemon of an MPI launcher, or what ssh starts. In a batch job it
//! has no command, and lasts as long as it has input.
//!
//! The agent writes nothing to stderr. If it can't do its work, it becomes the daemon.

use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::directory::{CheckedIn, NodeDirectory};
use super::report_note::AgentPlace;
use super::{check_links_to, json_in, state_directory, step};
use crate::cli::{AgentSpec, Options};
use crate::companion::gpu_list;
use crate::process::spawn::{self, InheritedState};
use crate::process::{end_watch, signals};
use crate::trusted;

/// What becomes of this process.
pub(crate) enum Prepared {
    /// It goes on as a launcher: an agent with its place in the directory of the nodes' reports, if it has one, or no agent.
    Goes(Option<AgentPlace>),
    /// It has to end with this status.
    Ends(ExitCode),
}

/// Prepares the options of an agent. It is silent, and tracks the GPUs of `--guuids` that its node has. Its report goes into the
/// directory of the nodes. Does nothing in a launcher that is no agent. If this agent is not needed or can have no report, this
/// process becomes the daemon. Without a daemon, it says that it is ready, and has to end.
///
/// # Errors
/// If this process can't become the daemon.
pub(crate) fn prepare(options: &mut Options) -> io::Result<Prepared> {
    let Some(spec) = options.diagnosis.agent.clone() else { return Ok(Prepared::Goes(None)) };
    options.tracking.disable_logs = true;
    options.report.style.quiet = true;
    options.report.keep = None;
    if spec.host.is_some()
        && let Some(shell) = options.command.words.first_mut()
        && let Some(name) = Path::new(shell).file_name().map(OsStr::to_owned)
    {
        // Messages of the shell begin with its name, which sshd gives it without a directory.
        options.command.behind = Some(std::mem::replace(shell, name));
    }
    let has_command = !options.command.words.is_empty();
    // If the segment is there, the launcher or another agent tracks this node.
    let is_tracked = spec.segment.as_ref().is_some_and(|segment| trusted::is_own_file(segment));
    let is_late = !has_command && is_input_over();
    let checked_in = if is_tracked || is_late { None } else { check_in(&spec) };
    let Some((CheckedIn { file, part }, place, stays_here)) = checked_in else {
        if !has_command {
            // The launcher waits for the tasks of all nodes, also for those that track nothing.
            step::say_ready(None);
            return Ok(Prepared::Ends(ExitCode::SUCCESS));
        }
        // `become_command` undoes this, and what Rust's runtime has changed: the daemon gets the signal state that was inherited.
        let inherited = InheritedState::replace(&signals::all_but_faults());
        return Err(spawn::become_command(options.command.program(), &inherited));
    };
    options.gpu.uuids = gpu_list::selected_here(&options.gpu);
    options.report.targets = vec![json_in(&file)];
    options.diagnosis.agent = Some(AgentSpec { left: stays_here.then_some(file), ..spec });
    options.report.node_part = Some(part);
    Ok(Prepared::Goes(place))
}

/// Makes the file of this node's report: in the directory that the nodes share, where the agent gets a place, or else in this user's state
/// directory on this node. The last value is true for the state directory: then the report is left on this node. `None`: neither is
/// possible.
fn check_in(spec: &AgentSpec) -> Option<(CheckedIn, Option<AgentPlace>, bool)> {
    let (is_agent, host) = (true, spec.host.as_deref());
    if let Ok(directory) = NodeDirectory::open(&spec.directory, spec.id)
        && let Ok(checked_in) = directory.check_in(is_agent, host)
    {
        let place = directory.member().map(|lock| AgentPlace { directory, lock });
        return Some((checked_in, place, false));
    }
    let local = state_directory()?.join(spec.directory.file_name()?);
    check_links_to(&local).ok()?;
    let checked_in = NodeDirectory::local(&local).and_then(|directory| directory.check_in(is_agent, host));
    Some((checked_in.ok()?, None, true))
}

/// Says on stdout that the node is tracked, and where its report is if that stays on the node (`spec`). Then watches the standard
/// input in a thread. Returns a flag that becomes true when the input has ended; a SIGCHLD wakes this process then.
pub(crate) fn watch_input(spec: Option<&AgentSpec>) -> Arc<AtomicBool> {
    step::say_ready(spec.and_then(|spec| spec.left.as_deref()));
    let watch = end_watch::start(|| {
        // A read error counts as the end.
        let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
    });
    // Without a thread, the end would never be seen. So the run ends at once.
    watch.unwrap_or_else(|_| Arc::new(AtomicBool::new(true)))
}

/// Whether the standard input is a pipe that has ended: it was started too late.
fn is_input_over() -> bool {
    let stdin = io::stdin();
    let mut fds = [PollFd::new(&stdin, PollFlags::IN)];
    poll(&mut fds, Some(&Timespec::default())).is_ok() && fds[0].revents().contains(PollFlags::HUP)
}

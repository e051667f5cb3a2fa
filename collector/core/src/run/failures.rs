//! The processes that did not succeed, as many as are needed to say what ended the command.

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};

use super::crashes::Crashes;
use super::tree::ProcessSummary;
use crate::model::report::Exit;

/// How many ended processes are kept of each kind: the last ones.
const KEPT: usize = 4;

/// Failed processes of a run. Its size does not depend on how many there are.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Failures {
    /// The command's first process.
    pub main: Option<ProcessSummary>,
    /// By the signal that ended them.
    pub by_signal: BTreeMap<i32, Killed>,
    /// The one that came closest to its limit of address space.
    pub near_address_space: Option<ProcessSummary>,
    /// Runs of `timeout` that ended their command, the last ones.
    pub timed_out: VecDeque<ProcessSummary>,
    /// Those that crashed.
    pub crashes: Crashes,
}

/// Processes that one signal ended.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Killed {
    /// How many there were.
    pub count: u64,
    /// The last ones to end.
    pub last: VecDeque<ProcessSummary>,
    /// The one of the largest peak RSS.
    pub largest: Option<ProcessSummary>,
}

impl Failures {
    /// Takes in a finalized process. One that succeeded changes nothing.
    pub(crate) fn add(&mut self, process: &ProcessSummary) {
        let exit = process.exit;
        if exit.signal.is_none() && exit.code.is_none_or(|code| code == 0) {
            return;
        }
        self.crashes.add(process);
        if process.ids.is_main {
            self.main = Some(process.clone());
        }
        if let Some(signal) = exit.signal {
            self.by_signal.entry(signal).or_default().add(process);
        }
        // A process that a signal from outside ended did not fail for want of memory.
        let is_own_failure =
            matches!(exit.signal, None | Some(libc::SIGABRT | libc::SIGBUS | libc::SIGSEGV | libc::SIGTRAP));
        let closest = self.near_address_space.as_ref().map_or(0.0, ProcessSummary::address_space_used);
        if is_own_failure && process.address_space_used() > closest {
            self.near_address_space = Some(process.clone());
        }
        if is_timed_out(process) {
            push(&mut self.timed_out, process);
        }
    }

    /// Gives the processes that this signal ended. `None`: there are none.
    pub(crate) fn of_signal(&self, signal: i32) -> Option<&Killed> {
        self.by_signal.get(&signal)
    }
}

impl Killed {
    /// Counts a process that the signal ended, and keeps it if it is the largest of them.
    fn add(&mut self, process: &ProcessSummary) {
        self.count += 1;
        push(&mut self.last, process);
        if self
            .largest
            .as_ref()
            .is_none_or(|other| other.memory.peak_rss_bytes < process.memory.peak_rss_bytes)
        {
            self.largest = Some(process.clone());
        }
    }
}

/// Whether it is a `timeout` of coreutils that may have reached its limit. It then exits with 124, or with 137 after it had
/// to send SIGKILL. `timeout -s KILL` sends that to itself, too.
fn is_timed_out(process: &ProcessSummary) -> bool {
    let Exit { code, signal } = process.exit;
    &*process.name.command == "timeout" && (matches!(code, Some(124 | 137)) || signal == Some(libc::SIGKILL))
}

/// Adds a process to a list of the last [`KEPT`] ones.
fn push(list: &mut VecDeque<ProcessSummary>, process: &ProcessSummary) {
    if list.len() >= KEPT {
        list.pop_front();
    }
    list.push_back(process.clone());
}

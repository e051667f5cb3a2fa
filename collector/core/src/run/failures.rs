//! The processes that did not succeed, as many as are needed to say what ended the command.

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};

use super::crashes::Crashes;
use super::push_last;
use super::tree::ProcessSummary;
use crate::model::report::Exit;

/// How many ended processes are kept of each kind: the last ones.
const MAX_KEPT: usize = 4;

/// Failed processes of a run. The size of this state is bounded, however many there are.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Failures {
    /// The command's first process, if it failed.
    pub main: Option<ProcessSummary>,
    /// Processes by the signal that ended them.
    pub by_signal: BTreeMap<i32, Killed>,
    /// The process that came closest to its limit of address space.
    pub near_address_space: Option<ProcessSummary>,
    /// The last processes of `timeout` (coreutils) that may have ended their command.
    pub timed_out: VecDeque<ProcessSummary>,
    /// Processes that crashed.
    pub crashes: Crashes,
}

/// Processes that one signal ended.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Killed {
    /// How many there were.
    pub count: u64,
    /// The last ones to end.
    pub last: VecDeque<ProcessSummary>,
    /// The process with the largest peak RSS.
    pub largest: Option<ProcessSummary>,
}

impl Failures {
    /// Takes in a finalized process: counts it if it crashed, and keeps it if it may show what ended the command. A process
    /// that succeeded, or whose exit is unknown, changes nothing.
    pub(crate) fn add_if_failed(&mut self, process: &ProcessSummary) {
        let exit = process.exit;
        if exit.signal.is_none() && exit.code.is_none_or(|code| code == 0) {
            return;
        }
        self.crashes.add_if_crashed(process);
        if process.ids.is_main {
            self.main = Some(process.clone());
        }
        if let Some(signal) = exit.signal {
            self.by_signal.entry(signal).or_default().add(process);
        }
        // A process whose allocation fails exits, or ends by one of these signals. Other signals come from outside.
        let is_own_failure =
            matches!(exit.signal, None | Some(libc::SIGABRT | libc::SIGBUS | libc::SIGSEGV | libc::SIGTRAP));
        let closest = self.near_address_space.as_ref().map_or(0.0, ProcessSummary::address_space_used);
        if is_own_failure && process.address_space_used() > closest {
            self.near_address_space = Some(process.clone());
        }
        if is_timed_out(process) {
            push_last(&mut self.timed_out, process.clone(), MAX_KEPT);
        }
    }
}

impl Killed {
    /// Counts a process that the signal ended. Keeps it as one of the last, and as the largest if its peak RSS is largest.
    fn add(&mut self, process: &ProcessSummary) {
        self.count += 1;
        push_last(&mut self.last, process.clone(), MAX_KEPT);
        let peak_bytes = process.memory.peak_rss_bytes;
        if self.largest.as_ref().is_none_or(|other| other.memory.peak_rss_bytes < peak_bytes) {
            self.largest = Some(process.clone());
        }
    }
}

/// Whether it is a `timeout` of coreutils that may have reached its limit. Then it exits with 124, or with 137 if it had to send
/// SIGKILL. `timeout -s KILL` sends SIGKILL to itself, too.
fn is_timed_out(process: &ProcessSummary) -> bool {
    let Exit { code, signal } = process.exit;
    &*process.name.command == "timeout" && (matches!(code, Some(124 | 137)) || signal == Some(libc::SIGKILL))
}

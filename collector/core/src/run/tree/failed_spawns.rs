//! Children of posix_spawn that could not exec. A SPAWN_FAILED record counts such a child, and the connector or /proc may report
//! it, too: it is counted once, whichever comes first.
//!
//! The kernel wakes the parent that waits for the child before it sends the child's exit event. So the parent's record can be
//! older than that event, and a sample can find the child gone before the event is read.

use serde::{Deserialize, Serialize};

use super::process::Process;
use super::tolerance::Tolerance;
use super::{Parent, ProcessId, Tree};
use crate::run::push_last;

/// A SPAWN_FAILED record whose child is not known as yet, if it ever will be.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct FailedSpawn {
    pub parent: ProcessId,
    /// When the record was written, CLOCK_MONOTONIC nanoseconds: the child was reaped by then.
    pub at_ns: u64,
}

/// Wait status of a child of posix_spawn that could not exec.
const COULD_NOT_EXEC: i32 = 127 << 8;

impl FailedSpawn {
    /// Whether this process may be the spawn's child. Then no record is about it, it began before this one was written, and no sample
    /// saw it later. It has not exec'd, and it ended with status 127, as far as that is known.
    fn may_be_of(&self, process: &Process) -> bool {
        is_unrecorded_child(process, self.parent)
            && process.lifetime.start_ns <= self.at_ns
            && process.observed.at_ns <= self.at_ns
            && process.program.unreported_exec.is_none()
            && process.end.kernel_exit.is_none_or(|exit| exit.status == COULD_NOT_EXEC)
    }
}

/// Whether a process is a child of that parent, and no record is about it: only the connector or /proc has reported it.
fn is_unrecorded_child(process: &Process, parent: ProcessId) -> bool {
    process.ancestry.parent == Parent::Known(parent)
        && !process.program.has_record
        && process.end.reaped.is_none()
}

impl Tree {
    /// Counts a posix_spawn of `parent` that made a child which could not exec. The record is of `at_ns` (CLOCK_MONOTONIC
    /// nanoseconds). If the tree has the child already, forgets the child, so that it counts once. Else the record is kept until
    /// the child is reported, unless the parent is not known.
    pub(super) fn spawn_failed(&mut self, parent: Option<ProcessId>, at_ns: u64) {
        self.counts.created += 1;
        self.counts.failed_spawns += 1;
        let Some(parent) = parent else { return };
        let is_child = |id: &ProcessId| {
            self.processes.get(id).is_some_and(|process| is_unrecorded_child(process, parent))
        };
        if let Some(child) = self.by_state.could_not_exec.iter().rev().copied().find(is_child) {
            self.forget(child);
            return;
        }
        let unmatched = &mut self.by_state.failed_spawns;
        push_last(unmatched, FailedSpawn { parent, at_ns }, Tolerance::MOST_FAILED_SPAWNS);
    }

    /// Checks the wait status with which a process ended, by the connector. If the process could not exec, and a SPAWN_FAILED
    /// record has counted it already, forgets the process. Without such a record, lists the process for one that may come.
    pub(super) fn note_failed_exec(&mut self, id: ProcessId, status: i32) {
        if status == COULD_NOT_EXEC && !self.forget_failed_spawn(id) {
            self.by_state.could_not_exec.insert(id);
        }
    }

    /// If a SPAWN_FAILED record has counted a process, forgets both. Returns whether there was such a record.
    pub(super) fn forget_failed_spawn(&mut self, id: ProcessId) -> bool {
        let Some(process) = self.processes.get(&id) else { return false };
        let unmatched = &mut self.by_state.failed_spawns;
        let Some(at) = unmatched.iter().position(|spawn| spawn.may_be_of(process)) else { return false };
        unmatched.remove(at);
        self.forget(id);
        true
    }
}

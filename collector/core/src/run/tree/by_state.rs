//! Which processes of the tree are in which state.

use std::collections::{BTreeSet, VecDeque};

use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use super::failed_spawns::FailedSpawn;
use crate::model::ids::{Key, ProcessId};
use crate::model::observation::ChildSeen;

/// Lists of the processes in a state, so that nothing has to look at all processes. None of them is finalized.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct ByState {
    /// By pid, oldest first. A process of another pid namespace has an entry for each of its two pids that is known.
    pub by_pid: FxHashMap<Key, Vec<ProcessId>>,
    /// Oldest first, so in the order of their ids.
    pub alive: Vec<ProcessId>,
    /// Ended, in the order in which their ends were applied.
    pub ended: Vec<ProcessId>,
    /// Found dead, and not ended yet: their EXIT or REAPED record may still come.
    pub seen_dead: BTreeSet<ProcessId>,
    /// Their parent is not known, or not yet.
    pub unparented: BTreeSet<ProcessId>,
    /// In other pid namespaces, each with the inode of its namespace.
    pub inner: BTreeSet<(u32, ProcessId)>,
    /// Only the process connector has reported them.
    pub known_by_kernel_alone: BTreeSet<ProcessId>,
    /// The connector reported an exit status of 127.
    pub could_not_exec: BTreeSet<ProcessId>,
    /// Failed spawns whose child is not known, oldest first.
    pub failed_spawns: VecDeque<FailedSpawn>,
    /// In the collector's pid namespace, new, and known by records only.
    pub unproven: BTreeSet<ProcessId>,
    /// Their program has not written a record, and its /proc files have not been read.
    pub unreported: BTreeSet<ProcessId>,
    /// Alive and young, and their program has not written a record.
    pub young: BTreeSet<ProcessId>,
    /// Their program was read and may still write a START record.
    pub unconfirmed: BTreeSet<ProcessId>,
    /// The connector reported their end, and what is left of them was not read.
    pub kernel_ends: BTreeSet<ProcessId>,
    /// Children that /proc showed before the records and events up to then were applied. They are not in the tree.
    pub found_ahead: Vec<ChildSeen>,
}

//! What the tree keeps beside the processes: which of them are in which state, and counts.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use crate::model::ids::{Key, ProcessId};
use crate::model::observation::ChildSeen;

/// Processes by state. Processes that are not finalized only.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Lists {
    /// By pid, oldest first.
    pub index: FxHashMap<Key, Vec<ProcessId>>,
    /// Oldest first, so in the order of their ids.
    pub alive: Vec<ProcessId>,
    pub ended: Vec<ProcessId>,
    /// Found dead; EXIT or REAPED may still come.
    pub seen_dead: BTreeSet<ProcessId>,
    /// Their record names a parent that is not known yet.
    pub unparented: BTreeSet<ProcessId>,
    /// In other pid namespaces, by namespace.
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
    /// Their program was read and may still write a START record, in the order of the readings.
    pub unconfirmed: VecDeque<ProcessId>,
    /// The connector reported their end, and what is left of them was not read.
    pub kernel_ends: BTreeSet<ProcessId>,
    /// /proc showed them when records and events up to then were not applied yet.
    pub found_ahead: Vec<ChildSeen>,
}

/// A SPAWN_FAILED record whose child is not known as yet, if it ever will be.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct FailedSpawn {
    pub parent: ProcessId,
    /// When the record was written, CLOCK_MONOTONIC nanoseconds: the child was reaped by then.
    pub at_ns: u64,
}

/// Counts over the whole run.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub struct Counts {
    /// Processes that ever existed, as far as known.
    pub created: u64,
    /// Children of posix_spawn that could not exec. They are in `created`, and have no figures of their own.
    pub failed_spawns: u64,
    /// Processes that the kernel reaped by itself: because their parent ignores SIGCHLD, or because it killed them with
    /// the init of their pid namespace. No process's sums include what they used.
    pub autoreaped: u64,
    /// Joined processes without a REAPED record. Where the connector reported all processes of the tree, a service (`srun`)
    /// started them with the command's environment, and the launcher's sums do not include them.
    pub joined_unreaped: u64,
    /// Orphans that the launcher had not reaped when they were finalized: its sums do not include them.
    pub unreaped_orphans: u64,
    /// Of `autoreaped`: killed with the init of their pid namespace, and their usage is unknown.
    pub killed_with_namespace: u64,
    /// Execs of uninstrumented programs, as far as the connector or a sample reported them.
    pub uninstrumented_programs: u64,
}

/// A finalized process: a late record may still be about it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Finalized {
    pub key: Key,
    pub id: ProcessId,
    pub command: Arc<str>,
    pub awaits_reaping: bool,
    pub finalized_ns: u64,
}

//! Counts of processes over the whole run.

use serde::{Deserialize, Serialize};

/// Counts over the whole run.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub struct Counts {
    /// Processes that ever existed, as far as known.
    pub created: u64,
    /// Children of posix_spawn that could not exec. They are in `created`, and have no figures of their own.
    pub failed_spawns: u64,
    /// Processes of gpu-track itself. They are not in `created`.
    pub helpers: u64,
    /// CPU time of the processes in `helpers` that were reaped, microseconds: the launcher's sums include it.
    pub helpers_reaped_cpu_us: u64,
    /// Processes that the kernel reaped by itself: because their parent ignores SIGCHLD, or because it killed them with
    /// the init of their pid namespace. No process's sums include what they used.
    pub autoreaped: u64,
    /// Processes that carry the run's session, are not known to descend from the command, and have no REAPED record. If the connector
    /// saw every fork, a service outside of the tree started them (slurmstepd, asked by srun). What wait4 tells the launcher does not
    /// include what they used.
    pub joined_unreaped: u64,
    /// CPU time of the processes in `joined_unreaped` and of the children that they waited for, as far as known, microseconds.
    pub joined_unreaped_cpu_us: u64,
    /// Orphans that the launcher had not reaped when they were finalized. The launcher's sums do not include them.
    pub unreaped_orphans: u64,
    /// Processes in `autoreaped` that were killed with the init of their pid namespace, and whose usage is unknown.
    pub killed_with_namespace: u64,
    /// Execs of uninstrumented programs, as far as the connector or a sample reported them.
    pub uninstrumented_programs: u64,
}

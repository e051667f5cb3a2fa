//! Numbers that the kernel counts up with each new pid. By these the tree finds which pid inside another pid namespace belongs to
//! a process that the kernel reported by its pid in the collector's.

use serde::{Deserialize, Serialize};

/// A fork in another pid namespace whose pid there is unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForkNumber {
    /// Inode of the pid namespace.
    pub pid_ns: u32,
    /// Its number among the forks there.
    pub number: u64,
}

/// The forks in a pid namespace.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub(super) struct Forks {
    /// How many the kernel reported.
    pub count: u64,
    /// The pid there that became known last, and its number among the forks.
    pub last_known: (u32, u64),
    /// When a process last ended there without being killed, CLOCK_MONOTONIC nanoseconds; 0: none has.
    pub last_unkilled_end_ns: u64,
}

impl Forks {
    /// The pid of the fork with this number, if no thread took a pid between that fork and the last known one. Pids ascend by 1
    /// with each fork.
    pub(super) fn expected_pid(&self, number: u64) -> i64 {
        let (pid, number_of_pid) = self.last_known;
        i64::from(pid) + (number.cast_signed() - number_of_pid.cast_signed())
    }
}

/// A pid of the collector's namespace, and the inode of its pidfd. The kernel (pidfs) gives each new pid the next inode number,
/// so pid and inode rise alike until the pids wrap around.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct PidNumber {
    pub pid: u32,
    pub inode: u64,
}

impl PidNumber {
    /// The pid in the collector's namespace of the process whose pidfd has this inode. `None`: the result is no pid, since
    /// pids have wrapped around between the two.
    pub(super) fn pid_of(self, inode: u64) -> Option<u32> {
        let ahead = inode.wrapping_sub(self.inode).cast_signed();
        i64::from(self.pid).checked_add(ahead)?.try_into().ok()
    }
}

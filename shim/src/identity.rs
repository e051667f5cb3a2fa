//! Which process this is: its pid namespace, and the inode of a pidfd of it.

use core::sync::atomic::Ordering::Relaxed;

use gpu_track_abi::layout::FLAG_PIDFS;

use crate::{state, sys};

/// Find out in which pid namespace the process is, if it `may_have_moved` there, and the inode of a pidfd of it: under
/// pidfs that is never used twice in one boot. Elsewhere than at home it tells /proc's name for it from its own; at home,
/// where the collector sees the same pids, it is not worth its price (35 us: more than all else that a fork child does),
/// and 0. It is 0, too, where no session says that there is pidfs, and under valgrind.
pub fn identify(pid: u32, may_have_moved: bool) -> u64 {
    if is_at_home() {
        return 0;
    }
    let (mut pidfd_inode, mut pid_namespace) = (0, 0);
    if !state::UNDER_VALGRIND.load(Relaxed)
        && state::sessions().any(|header| header.flags & FLAG_PIDFS != 0)
        && let Some(pidfd) = sys::pidfd_open(pid)
    {
        pidfd_inode = sys::fstat(pidfd).map_or(0, |s| s.st_ino);
        if may_have_moved {
            pid_namespace = sys::pid_namespace_of(pidfd);
        }
        sys::close(pidfd);
    }
    if may_have_moved {
        // A pidfd tells it at a tenth of the price of /proc.
        let pid_namespace = if pid_namespace == 0 { sys::pid_namespace() } else { pid_namespace };
        state::PID_NAMESPACE.store(pid_namespace, Relaxed);
    }
    pidfd_inode
}

/// Whether it is in the pid namespace of a session's launcher.
fn is_at_home() -> bool {
    let pid_namespace = state::PID_NAMESPACE.load(Relaxed);
    pid_namespace != 0 && state::sessions().any(|header| header.launcher_pid_ns == pid_namespace)
}

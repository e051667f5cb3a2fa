//! Which process this is: the inode of its pid namespace, and the inode of a pidfd.

use core::sync::atomic::Ordering::Relaxed;

use gpu_track_abi::layout::FLAG_PIDFS;

use crate::{state, sys};

/// The inode of a pidfd of the process. If the pid namespace `may_have_changed`, stores its inode in
/// [`state::PID_NAMESPACE`].
///
/// Under pidfs (Linux 6.9) the inode of a pidfd is unique until the next boot. It identifies a process whose pid means another
/// process in the collector's pid namespace. If the process is known to be in the launcher's pid namespace, the inode is not needed.
/// Then 0 is returned and nothing is stored, since opening a pidfd costs 35 us, more than all else that a fork child does. The
/// result is also 0 without pidfs and under valgrind.
pub(crate) fn identify(pid: u32, may_have_changed: bool) -> u64 {
    if is_in_launchers_pid_namespace() {
        return 0;
    }
    let (mut pidfd_inode, mut pid_namespace) = (0, 0);
    if !state::IS_UNDER_VALGRIND.load(Relaxed)
        && state::sessions().any(|header| header.flags & FLAG_PIDFS != 0)
        && let Some(pidfd) = sys::pidfd_open(pid)
    {
        pidfd_inode = sys::fstat(pidfd).map_or(0, |s| s.st_ino);
        if may_have_changed {
            pid_namespace = sys::pid_namespace_of(pidfd);
        }
        sys::close(pidfd);
    }
    if may_have_changed {
        // /proc is asked only if the pidfd did not tell the namespace, since that costs ten times as much.
        let pid_namespace = if pid_namespace == 0 { sys::pid_namespace() } else { pid_namespace };
        state::PID_NAMESPACE.store(pid_namespace, Relaxed);
    }
    pidfd_inode
}

/// Whether the process is known to be in the pid namespace of a session's launcher.
fn is_in_launchers_pid_namespace() -> bool {
    let pid_namespace = state::PID_NAMESPACE.load(Relaxed);
    pid_namespace != 0 && state::sessions().any(|header| header.launcher_pid_ns == pid_namespace)
}

//! Questions about a process that its pid or pidfd answers: whether it exists, which process it is, how much CPU time it has used.

use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::LazyLock;

use rustix::process::{Pid, PidfdFlags};

/// Whether no process has this pid any more. A zombie still has its pid.
pub fn is_gone(pid: u32) -> bool {
    as_pid(pid).is_none_or(|pid| rustix::process::test_kill_process(pid) == Err(rustix::io::Errno::SRCH))
}

/// The inode of a pidfd of this process. No other process has the same one until the next boot. `None`: the process is gone,
/// or the kernel has no pidfs (before Linux 6.9).
pub fn inode(pid: u32) -> Option<u64> {
    static HAS_PIDFS: LazyLock<bool> = LazyLock::new(has_pidfs);
    if *HAS_PIDFS { inode_of(&open(pid)?) } else { None }
}

/// The inode of an open pidfd.
pub(crate) fn inode_of(fd: &OwnedFd) -> Option<u64> {
    Some(rustix::fs::fstat(fd).ok()?.st_ino)
}

/// Opens a pidfd of the process that has this pid now. `None`: there is no such process, or the kernel has no pidfds.
pub fn open(pid: u32) -> Option<OwnedFd> {
    rustix::process::pidfd_open(as_pid(pid)?, PidfdFlags::empty()).ok()
}

/// Reads the wait status of a reaped process from its pidfd. Since Linux 6.15 the kernel keeps it while a pidfd is open
/// (PIDFD_INFO_EXIT). `None`: the process is not reaped yet, or the kernel is older.
pub(crate) fn exit_status(fd: &OwnedFd) -> Option<i32> {
    /// First version of `struct pidfd_info` (linux/pidfd.h). Later versions only append fields.
    #[repr(C)]
    #[derive(Default)]
    struct Info {
        mask: u64,
        cgroup: u64,
        ids: [u32; 11],
        exit_code: i32,
    }
    const PIDFD_INFO_EXIT: u64 = 1 << 3;
    // _IOWR(0xFF, 11, struct pidfd_info)
    const PIDFD_GET_INFO: u32 = 3 << 30 | (size_of::<Info>() as u32) << 16 | 0xFF << 8 | 11;
    let mut info = Info { mask: PIDFD_INFO_EXIT, ..Info::default() };
    // SAFETY: the kernel writes at most the size encoded in the request, which is the size of `info`.
    let result = unsafe { libc::ioctl(fd.as_raw_fd(), PIDFD_GET_INFO.into(), &raw mut info) };
    (result == 0 && info.mask & PIDFD_INFO_EXIT != 0).then_some(info.exit_code)
}

/// Whether the kernel has pidfs. Without pidfs all pidfds have one inode.
pub fn has_pidfs() -> bool {
    const PID_FS_MAGIC: i64 = 0x5049_4446;
    let own = rustix::process::pidfd_open(rustix::process::getpid(), PidfdFlags::empty());
    own.ok().and_then(|fd| rustix::fs::fstatfs(&fd).ok()).is_some_and(|fs| fs.f_type == PID_FS_MAGIC)
}

/// Reads the CPU time of a process and all its threads, ended ones included, nanoseconds. `None`: the process is gone.
///
/// Reads the process's CPU-time clock (clock_getcpuclockid(3)), which needs no permission. A zombie has it until it is
/// reaped.
pub fn cpu_clock_ns(pid: u32) -> Option<u64> {
    // CPUCLOCK_SCHED of a process, encoded as glibc's clock_getcpuclockid does.
    let clock = (!i32::try_from(pid).ok()? << 3) | 2;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` lives through the call.
    let result = unsafe { libc::clock_gettime(clock, &raw mut time) };
    if result != 0 {
        return None;
    }
    u64::try_from(time.tv_sec)
        .ok()?
        .checked_mul(1_000_000_000)?
        .checked_add(u64::try_from(time.tv_nsec).ok()?)
}

/// Whether two processes share their address space (vfork, CLONE_VM), by kcmp(2).
///
/// False if kcmp is refused, as for other users' processes, or if the kernel lacks CONFIG_KCMP.
pub(crate) fn shares_memory(a: u32, b: u32) -> bool {
    const KCMP_VM: libc::c_int = 1;
    // KCMP_VM does not use the last two arguments, and the result 0 means that the memory is the same.
    // SAFETY: the call takes integers only.
    unsafe { libc::syscall(libc::SYS_kcmp, a, b, KCMP_VM, 0, 0) == 0 }
}

/// Converts a pid. `None`: no process can have it.
pub(crate) fn as_pid(pid: u32) -> Option<Pid> {
    Pid::from_raw(i32::try_from(pid).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_cpu_clock_advances() {
        let pid = std::process::id();
        let before = cpu_clock_ns(pid).unwrap();
        let mut after = before;
        while after < before + 5_000_000 {
            after = cpu_clock_ns(pid).unwrap();
        }
    }

    #[test]
    fn reaped_child_is_gone_and_zombie_is_not() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = child.id();
        assert!(!is_gone(pid));
        if has_pidfs() {
            assert_ne!(inode(pid), inode(std::process::id()));
        }
        child.wait().unwrap();
        assert!(is_gone(pid));
        assert_eq!(cpu_clock_ns(pid), None);
    }
}

//! Reaping children, with the resource usage that the kernel reports for each.

use std::mem::MaybeUninit;

use gpu_track_abi::record::{Event, Usage};
use gpu_track_collector::MOST_SPLIT_RSS_KIB;
use gpu_track_collector::pidfd::cpu_clock_ns;

/// A child that ended or stopped. An ended child is reaped only when this is dropped, so its pid stays in use while its
/// REAPED record is written. A process that finds the pid gone finds the record too.
#[derive(Debug)]
pub(crate) struct ChildChange {
    pub(crate) pid: u32,
    /// As wait4(2) gives it.
    pub(crate) status: i32,
    /// Usage of the child and of all children that it waited for.
    pub(crate) usage: Usage,
}

impl ChildChange {
    /// Makes the REAPED record of an ended child. Its `reaper_max_rss_kib` is an upper limit of the peak that the child inherited
    /// by fork. On kernels with per-thread RSS counters (`has_split_rss`), getrusage(2) can give too low a peak, by what a thread has
    /// not added yet. So that much is added.
    pub(crate) fn record(&self, has_split_rss: bool) -> Event {
        let uncounted_kib = if has_split_rss { MOST_SPLIT_RSS_KIB } else { 0 };
        Event::Reaped {
            child: self.pid,
            status: self.status,
            reaper_max_rss_kib: usage_of(libc::RUSAGE_SELF).max_rss_kib + uncounted_kib,
            usage: self.usage,
            // A process without the shim does not report its own CPU time, and `usage` includes that of its children.
            clock_ns: cpu_clock_ns(self.pid).unwrap_or(0),
        }
    }
}

impl Drop for ChildChange {
    fn drop(&mut self) {
        if !libc::WIFSTOPPED(self.status) {
            wait_for(self.pid);
        }
    }
}

/// Finds the next child that ended or stopped; `None` if there is none now.
pub(crate) fn next() -> Option<ChildChange> {
    // A stop is asked for without WNOWAIT, so that it is returned only once.
    waitid(libc::WEXITED | libc::WNOWAIT).or_else(|| waitid(libc::WSTOPPED))
}

/// Calls waitid(2) for any child, without waiting. The system call gives the rusage, which the libc function does not. `None`: no
/// child has changed its state as `options` say.
fn waitid(options: i32) -> Option<ChildChange> {
    let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    let options = options | libc::WNOHANG;
    // SAFETY: both are ours and valid for the call. Zeroed is valid for them, too, and the call fills them in.
    let (result, info, usage) = unsafe {
        let (info_at, usage_at) = (info.as_mut_ptr(), usage.as_mut_ptr());
        let result = libc::syscall(libc::SYS_waitid, libc::P_ALL, 0, info_at, options, usage_at);
        (result, info.assume_init(), usage.assume_init())
    };
    // SAFETY: waitid fills in the fields of SIGCHLD.
    let (pid, value) = unsafe { (info.si_pid(), info.si_status()) };
    // If no child has changed, all fields stay zero.
    (result == 0 && pid > 0).then(|| ChildChange {
        pid: pid.cast_unsigned(),
        status: wait_status(info.si_code, value),
        usage: from_rusage(&usage),
    })
}

/// The wait4(2) status for the si_code and si_status of waitid(2).
fn wait_status(code: i32, value: i32) -> i32 {
    // What WCOREDUMP and WIFSTOPPED look for.
    const CORE: i32 = 0x80;
    const STOPPED: i32 = 0x7f;
    match code {
        libc::CLD_EXITED => (value & 0xff) << 8,
        libc::CLD_KILLED => value,
        libc::CLD_DUMPED => value | CORE,
        _ => value << 8 | STOPPED,
    }
}

/// Whether a child whose stop was taken has gone on since, and may have stopped again.
pub(crate) fn has_gone_on(pid: u32) -> bool {
    let has = |options: i32| {
        // SAFETY: zeroed is a valid siginfo_t, which is ours. It stays zero if the child has not changed so.
        unsafe {
            let mut info: libc::siginfo_t = std::mem::zeroed();
            let result = libc::waitid(libc::P_PID, pid, &raw mut info, options | libc::WNOHANG);
            result == 0 && info.si_pid() != 0
        }
    };
    // The stop is left for `next`.
    has(libc::WCONTINUED) || has(libc::WSTOPPED | libc::WNOWAIT)
}

/// Waits for a child and discards its status.
pub(crate) fn wait_for(pid: u32) {
    // SAFETY: no status is asked for.
    unsafe { libc::waitpid(pid.cast_signed(), std::ptr::null_mut(), 0) };
}

/// Whether this process has a child that it has not reaped.
pub(crate) fn has_children() -> bool {
    let options = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    // SAFETY: zeroed is a valid siginfo_t, which is ours; only ECHILD matters.
    unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        libc::waitid(libc::P_ALL, 0, &raw mut info, options) == 0
    }
}

/// Reads the usage of `who`, RUSAGE_SELF or RUSAGE_CHILDREN, by getrusage(2).
pub(crate) fn usage_of(who: i32) -> Usage {
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the call fills in the struct; zeroed is valid where it fails.
    unsafe {
        libc::getrusage(who, usage.as_mut_ptr());
        from_rusage(&usage.assume_init())
    }
}

/// Converts the kernel's struct rusage.
fn from_rusage(usage: &libc::rusage) -> Usage {
    let count = |n: libc::c_long| u64::try_from(n).unwrap_or(0);
    let time = |t: libc::timeval| count(t.tv_sec) * 1_000_000 + count(t.tv_usec);
    Usage {
        user_us: time(usage.ru_utime),
        system_us: time(usage.ru_stime),
        max_rss_kib: count(usage.ru_maxrss),
        minor_faults: count(usage.ru_minflt),
        major_faults: count(usage.ru_majflt),
        voluntary_switches: count(usage.ru_nvcsw),
        involuntary_switches: count(usage.ru_nivcsw),
        input_blocks: count(usage.ru_inblock),
        output_blocks: count(usage.ru_oublock),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waitid_results_become_wait4_statuses() {
        assert!(
            libc::WIFEXITED(wait_status(libc::CLD_EXITED, 7))
                && libc::WEXITSTATUS(wait_status(libc::CLD_EXITED, 7)) == 7
        );
        let killed = wait_status(libc::CLD_KILLED, libc::SIGTERM);
        assert!(libc::WIFSIGNALED(killed) && !libc::WCOREDUMP(killed));
        assert_eq!(libc::WTERMSIG(killed), libc::SIGTERM);
        let dumped = wait_status(libc::CLD_DUMPED, libc::SIGABRT);
        assert!(libc::WIFSIGNALED(dumped) && libc::WCOREDUMP(dumped));
        let stopped = wait_status(libc::CLD_STOPPED, libc::SIGTSTP);
        assert!(libc::WIFSTOPPED(stopped) && libc::WSTOPSIG(stopped) == libc::SIGTSTP);
    }
}

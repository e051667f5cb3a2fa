//! Reaping with the kernel's account of what the child used.

use std::mem::MaybeUninit;

use gpu_track_abi::record::Usage;

/// A child that changed its state. One that ended keeps its pid until this is dropped: whatever is to be said of it is
/// said before it is gone, so who finds it gone need not wait for that.
#[derive(Debug)]
pub struct Changed {
    /// Its pid.
    pub pid: u32,
    /// Its wait status: ended, or stopped.
    pub status: i32,
    /// What it and its waited-for children used.
    pub usage: Usage,
}

impl Drop for Changed {
    fn drop(&mut self) {
        if !libc::WIFSTOPPED(self.status) {
            wait_for(self.pid);
        }
    }
}

/// The next child that ended or stopped; `None` if there is none now.
pub fn next() -> Option<Changed> {
    // A stop is over once it is told.
    waitid(libc::WEXITED | libc::WNOWAIT).or_else(|| waitid(libc::WSTOPPED))
}

/// waitid(2) for any child, with the rusage that the libc function does not have.
fn waitid(options: i32) -> Option<Changed> {
    let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    let options = options | libc::WNOHANG;
    // SAFETY: both are ours and valid for the call. Zeroed is valid for them, too, and the call fills them in.
    let (result, info, usage) = unsafe {
        let (of_child, used) = (info.as_mut_ptr(), usage.as_mut_ptr());
        let result = libc::syscall(libc::SYS_waitid, libc::P_ALL, 0, of_child, options, used);
        (result, info.assume_init(), usage.assume_init())
    };
    // SAFETY: what waitid fills in is what SIGCHLD has.
    let (pid, value) = unsafe { (info.si_pid(), info.si_status()) };
    // Without a child to tell of, all stays zero.
    (result == 0 && pid > 0).then(|| Changed {
        pid: pid.cast_unsigned(),
        status: wait_status(info.si_code, value),
        usage: from_rusage(&usage),
    })
}

/// The status that wait4(2) gives for what waitid(2) says.
fn wait_status(code: i32, value: i32) -> i32 {
    const CORE: i32 = 0x80;
    const STOPPED: i32 = 0x7f;
    match code {
        libc::CLD_EXITED => (value & 0xff) << 8,
        libc::CLD_KILLED => value,
        libc::CLD_DUMPED => value | CORE,
        _ => value << 8 | STOPPED,
    }
}

/// Wait for a child whose end has no more meaning.
pub fn wait_for(pid: u32) {
    // SAFETY: a child of ours; nothing is asked for.
    unsafe { libc::waitpid(pid.cast_signed(), std::ptr::null_mut(), 0) };
}

/// getrusage(2).
pub fn usage_of(who: i32) -> Usage {
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the call fills in what it is given; zeroed is valid where it fails.
    unsafe {
        libc::getrusage(who, usage.as_mut_ptr());
        from_rusage(&usage.assume_init())
    }
}

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
    fn what_waitid_says_is_what_wait4_says() {
        let of = wait_status;
        assert!(libc::WIFEXITED(of(libc::CLD_EXITED, 7)) && libc::WEXITSTATUS(of(libc::CLD_EXITED, 7)) == 7);
        let killed = of(libc::CLD_KILLED, libc::SIGTERM);
        assert!(libc::WIFSIGNALED(killed) && !libc::WCOREDUMP(killed));
        assert_eq!(libc::WTERMSIG(killed), libc::SIGTERM);
        let dumped = of(libc::CLD_DUMPED, libc::SIGABRT);
        assert!(libc::WIFSIGNALED(dumped) && libc::WCOREDUMP(dumped));
        let stopped = of(libc::CLD_STOPPED, libc::SIGTSTP);
        assert!(libc::WIFSTOPPED(stopped) && libc::WSTOPSIG(stopped) == libc::SIGTSTP);
    }
}

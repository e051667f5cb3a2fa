//! Reaping with the kernel's account of what the child used.

use std::mem::MaybeUninit;

use gpu_track_abi::record::Usage;

/// A child that changed its state.
#[derive(Debug, Clone, Copy)]
pub struct Reaped {
    /// Its pid.
    pub pid: u32,
    /// Its wait status: ended, or stopped.
    pub status: i32,
    /// What it and its waited-for children used.
    pub usage: Usage,
}

/// The next child that ended or stopped; `None` if there is none now.
pub fn next() -> Option<Reaped> {
    let mut status = 0;
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    loop {
        // SAFETY: both are ours and valid for the call.
        let pid =
            unsafe { libc::wait4(-1, &raw mut status, libc::WNOHANG | libc::WUNTRACED, usage.as_mut_ptr()) };
        if pid > 0 {
            // SAFETY: zeroed is a valid rusage, and the call filled it in.
            let usage = from_rusage(&unsafe { usage.assume_init() });
            return Some(Reaped { pid: pid.cast_unsigned(), status, usage });
        }
        if pid == 0 || std::io::Error::last_os_error().kind() != std::io::ErrorKind::Interrupted {
            return None;
        }
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

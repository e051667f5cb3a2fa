//! Scheduling on a machine that has more runnable processes than cores.
//!
//! Beside a fork bomb of thousands, each process gets some milliseconds of CPU time a second. The event ring can fill up before
//! the collector gets its next turn.

/// Requests short time slices for the calling thread and the threads that it starts.
///
/// Under EEVDF (custom slices since Linux 6.12) a thread with a short slice runs earlier while its share of the CPU
/// stays the same. Root also gets a larger share, by a lower nice value.
pub(crate) fn prefer_short_slices() {
    const SHORTEST_SLICE_NS: u64 = 100_000;
    const NICE: i32 = -10;
    let mut attr = libc::sched_attr {
        size: size_of::<libc::sched_attr>() as u32,
        sched_policy: libc::SCHED_OTHER.cast_unsigned(),
        sched_flags: 0,
        sched_nice: 0,
        sched_priority: 0,
        sched_runtime: SHORTEST_SLICE_NS,
        sched_deadline: 0,
        sched_period: 0,
    };
    // The kernel refuses the whole request if this user may not have the nice value. The present one is always permitted.
    let present = rustix::process::getpriority_process(None).unwrap_or(0);
    for nice in [NICE, present] {
        attr.sched_nice = nice;
        // SAFETY: the kernel reads `size` bytes of the structure. If the call fails, nothing has changed.
        if unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attr, 0) } == 0 {
            return;
        }
    }
    // No request was accepted. An inherited real-time policy is given up all the same.
    let ordinary = libc::sched_param { sched_priority: 0 };
    // SAFETY: the parameter lives through the call.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_OTHER, &raw const ordinary) };
}

/// Lets the calling thread run before all ordinary processes (SCHED_FIFO). If that is not permitted, requests short slices.
///
/// For threads that do little work at a time. What they start does not inherit SCHED_FIFO, but short slices. Makes system calls only,
/// because it is called between fork and exec.
pub fn prefer_at_once() {
    let lowest = libc::sched_param { sched_priority: 1 };
    // SAFETY: the parameter lives through the call; if the call fails, nothing has changed.
    let result = unsafe {
        libc::sched_setscheduler(0, libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, &raw const lowest)
    };
    if result != 0 {
        prefer_short_slices();
    }
}

//! Getting a turn on a machine that has more runnable processes than cores: a fork bomb of thousands leaves each only
//! milliseconds of CPU time a second, and the event ring fills in a tenth of that.

/// For this thread and those that it starts: a short slice makes the turn come early (EEVDF, Linux 6.12) at no cost to
/// anybody, since the share of the CPU stays the same. Root may ask for a larger share, too.
pub fn prefer_short_slices() {
    #[repr(C)]
    struct SchedAttr {
        size: u32,
        policy: u32,
        flags: u64,
        nice: i32,
        priority: u32,
        runtime_ns: u64,
        deadline_ns: u64,
        period_ns: u64,
    }
    const SHORTEST_SLICE_NS: u64 = 100_000;
    const NICE: i32 = -10;
    let mut attr = SchedAttr {
        size: size_of::<SchedAttr>() as u32,
        policy: libc::SCHED_OTHER.cast_unsigned(),
        flags: 0,
        nice: NICE,
        priority: 0,
        runtime_ns: SHORTEST_SLICE_NS,
        deadline_ns: 0,
        period_ns: 0,
    };
    for nice in [NICE, 0] {
        attr.nice = nice;
        // SAFETY: the kernel reads `size` bytes of a structure that is laid out as sched_setattr(2) says. Where it
        // refuses, nothing has changed.
        if unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attr, 0) } == 0 {
            return;
        }
    }
    // At least not before all others, should we have been started so.
    let ordinary = libc::sched_param { sched_priority: 0 };
    // SAFETY: the parameter is ours.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_OTHER, &raw const ordinary) };
}

/// For this thread, which must do very little at a time: before all ordinary processes where root lets us, else early.
/// Plain system calls.
pub fn prefer_at_once() {
    let lowest = libc::sched_param { sched_priority: 1 };
    // SAFETY: the parameter is ours; where it is refused nothing has changed.
    let result = unsafe {
        libc::sched_setscheduler(0, libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, &raw const lowest)
    };
    if result != 0 {
        prefer_short_slices();
    }
}

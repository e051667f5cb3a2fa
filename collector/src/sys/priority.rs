//! Scheduling on a machine that has more runnable processes than cores.
//!
//! A fork bomb of thousands leaves each process milliseconds of CPU time a second; the event ring fills in a tenth of
//! that time.

/// Requests short time slices for the calling thread and the threads that it starts.
///
/// Under EEVDF (custom slices since Linux 6.12) a thread with a short slice runs earlier while its share of the CPU
/// stays the same. Root also gets a larger share, by a lower nice value.
pub(crate) fn prefer_short_slices() {
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
        // SAFETY: the kernel reads `size` bytes of a structure that is laid out as sched_setattr(2) says. If the call
        // fails, nothing has changed.
        if unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attr, 0) } == 0 {
            return;
        }
    }
    // Without sched_setattr, at least leave a real-time policy that was inherited.
    let ordinary = libc::sched_param { sched_priority: 0 };
    // SAFETY: the parameter lives through the call.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_OTHER, &raw const ordinary) };
}

/// Runs the calling thread before all ordinary processes if permitted (SCHED_FIFO), else with short slices.
///
/// For threads that do little work at a time. Makes system calls only: it is called between fork and exec.
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

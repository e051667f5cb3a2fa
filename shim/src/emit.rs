//! From an event to a record in each session's ring.

use core::slice;
use core::sync::atomic::{
    AtomicU64,
    Ordering::{Relaxed, Release},
};

use gpu_track_abi::layout::{HEADER_SIZE, Header, RING_SIZE, STATE_OPEN};
use gpu_track_abi::record::{Event, Origin, RECORD_WORDS, Usage};
use gpu_track_abi::ring::{Push, Ring};

use crate::{next, overflow, state, sys};

/// The origin of a record of `pid`, now.
pub fn origin(pid: u32) -> Origin {
    let monotonic_ns = next::clock_ns(libc::CLOCK_MONOTONIC);
    Origin { pid, pid_ns: pid_namespace_of(pid), parent: 0, monotonic_ns, flags: 0 }
}

/// The same for what a process writes once in its life, when system calls are safe.
pub fn origin_once(pid: u32, parent: u32) -> Origin {
    let monotonic_ns = sys::clock_ns(libc::CLOCK_MONOTONIC);
    Origin { pid, pid_ns: pid_namespace_of(pid), parent, monotonic_ns, flags: 0 }
}

/// The pid namespace of the caller, whose pid this is. What a clone system call by hand made knows of itself what its
/// parent knew, and is the first process of another one if its pid is 1.
fn pid_namespace_of(pid: u32) -> u32 {
    if pid == 1 && state::PID.load(Relaxed) != 1 && state::may_call() {
        return sys::pid_namespace();
    }
    state::PID_NAMESPACE.load(Relaxed)
}

/// Write `event` to every open session without one of the header flags in `unless`.
pub fn emit(origin: &Origin, event: &Event, unless: u32) {
    // Where it is: a copy would be libc's memcpy, which takes a fork child a page fault.
    let mut record = [0; RECORD_WORDS];
    event.encode_into(origin, &mut record);
    for header in state::sessions() {
        // A closed session has its report; late records would only fill its memory.
        if header.state.load(Relaxed) != STATE_OPEN || header.flags & unless != 0 {
            continue;
        }
        let Some(ring) = ring(header) else { continue };
        match ring.push(&record) {
            Push::Stored => {}
            Push::StoredWake => {
                // SYNC POINT: a reader that sees it rung sees the record.
                header.doorbell.fetch_add(1, Release);
                if state::may_call() {
                    sys::futex_wake(&header.doorbell);
                }
            }
            Push::Full if overflow::append(header, &record) => {}
            Push::Full => ring.count_drop(),
        }
    }
}

fn ring(header: &Header) -> Option<Ring<'_, RECORD_WORDS>> {
    // SAFETY: TRACKED_SIZE bytes from the header are mapped for good; the ring lies behind the header page and is
    // made of atomics only.
    let words = unsafe {
        let start = core::ptr::from_ref(header).cast::<u8>().add(HEADER_SIZE).cast::<AtomicU64>();
        slice::from_raw_parts(start, RING_SIZE / size_of::<AtomicU64>())
    };
    Ring::new(&header.head.0, &header.tail.0, &header.dropped.0, words)
}

/// The kernel's rusage in the contract's words.
pub fn usage(from: &libc::rusage) -> Usage {
    let us = |t: libc::timeval| t.tv_sec as u64 * 1_000_000 + t.tv_usec as u64;
    Usage {
        user_us: us(from.ru_utime),
        system_us: us(from.ru_stime),
        max_rss_kib: from.ru_maxrss as u64,
        minor_faults: from.ru_minflt as u64,
        major_faults: from.ru_majflt as u64,
        voluntary_switches: from.ru_nvcsw as u64,
        involuntary_switches: from.ru_nivcsw as u64,
        input_blocks: from.ru_inblock as u64,
        output_blocks: from.ru_oublock as u64,
    }
}

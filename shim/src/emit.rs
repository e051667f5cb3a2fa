//! Writes an event as a record into the ring of each session.

use core::slice;
use core::sync::atomic::{
    AtomicU64,
    Ordering::{Relaxed, Release},
};

use gpu_track_abi::layout::{HEADER_SIZE, Header, RING_SIZE};
use gpu_track_abi::record::{Event, Origin, RECORD_WORDS, Usage};
use gpu_track_abi::ring::{Push, Ring};

use crate::{next, overflow, state, sys};

/// The origin of a record that process `pid` writes now. The parent's pid is 0: only START, FORK and EXIT name a parent.
pub(crate) fn origin(pid: u32) -> Origin {
    let monotonic_ns = next::clock_ns(libc::CLOCK_MONOTONIC);
    Origin { pid, pid_ns: pid_namespace_of(pid), parent: 0, monotonic_ns, flags: 0 }
}

/// The origin of a record that a process writes only once, with the parent's pid. For a single reading of the clock, a system
/// call is cheaper than the vDSO (see [`sys::clock_ns`]). The caller has checked that system calls are allowed.
pub(crate) fn origin_by_syscall(pid: u32, parent: u32) -> Origin {
    let monotonic_ns = sys::clock_ns(libc::CLOCK_MONOTONIC);
    Origin { pid, pid_ns: pid_namespace_of(pid), parent, monotonic_ns, flags: 0 }
}

/// The inode of the pid namespace of the caller, whose pid is `pid`; 0: not known. The child of a raw clone system call runs no fork
/// handler, so it has its parent's state. If the pid of such a child is 1, it is the first process of a new pid namespace. Then the
/// kernel is asked, if that is allowed.
fn pid_namespace_of(pid: u32) -> u32 {
    if pid == 1 && state::PID.load(Relaxed) != 1 {
        return if state::may_call_kernel() { sys::pid_namespace() } else { 0 };
    }
    state::PID_NAMESPACE.load(Relaxed)
}

/// `unless` of [`emit`] for a record that every open session gets.
pub(crate) const TO_ALL: u32 = 0;

/// Writes `event` to every open session whose header has none of the flags in `unless`. A record wakes the collector if it makes a
/// quarter of the ring used, or if the collector rests, unless system calls are forbidden. Where the ring is full, the record is
/// appended after the segment, or counted as dropped.
pub(crate) fn emit(origin: &Origin, event: &Event, unless: u32) {
    // Encoded in place: a copy would call libc's memcpy, which costs a fork child a page fault.
    let mut record = [0; RECORD_WORDS];
    event.encode_into(origin, &mut record);
    for header in state::sessions() {
        if header.flags & unless == 0 {
            push(header, &record);
        }
    }
}

/// Writes `event` to one session: see [`emit`].
pub(crate) fn emit_to(header: &Header, origin: &Origin, event: &Event) {
    let mut record = [0; RECORD_WORDS];
    event.encode_into(origin, &mut record);
    push(header, &record);
}

/// Writes a record to a session, if that is open. Never inlined, so that the ring's code is there once, with its capacity as a constant.
#[inline(never)]
fn push(header: &Header, record: &[u32; RECORD_WORDS]) {
    // The report of a closed session is written already, so more records would only use memory.
    if !header.is_open() {
        return;
    }
    let Some(ring) = ring(header) else { return };
    match ring.push(record) {
        Push::Stored if !header.end_rest() => {}
        Push::Stored | Push::StoredWake => {
            // SYNC POINT: a reader that sees the new doorbell value sees the record.
            header.doorbell.fetch_add(1, Release);
            if state::may_call_kernel() {
                sys::futex_wake(&header.doorbell);
            }
        }
        Push::Full if overflow::append(header, record) => {}
        Push::Full => ring.count_drop(),
    }
}

/// The ring of a mapped segment. Never `None`: its capacity is a power of two.
fn ring(header: &Header) -> Option<Ring<'_, RECORD_WORDS>> {
    // SAFETY: TRACKED_SIZE bytes from the header on stay mapped. The ring follows the header page and consists of
    // atomics only.
    let words = unsafe {
        let start = core::ptr::from_ref(header).cast::<u8>().add(HEADER_SIZE).cast::<AtomicU64>();
        slice::from_raw_parts(start, RING_SIZE / size_of::<AtomicU64>())
    };
    Ring::new(&header.head.0, &header.tail.0, &header.dropped.0, words)
}

/// Converts the kernel's rusage to the usage in a record.
pub(crate) fn usage(from: &libc::rusage) -> Usage {
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

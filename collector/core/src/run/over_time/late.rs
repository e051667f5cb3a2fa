//! Late usage: what a sample shows of the time before its own. Records can come late, so the intervals (lives and memory of processes)
//! of a sample can begin before it.

use super::axis::Stretch;
use crate::model::groups::Groups;
use crate::run::sampling::Sample;
use crate::run::tree::LiveInterval;

/// RAM or CPU time that was used before the time of the sample that shows it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LateUse {
    /// When it was used.
    pub time: Stretch,
    /// Footprints, byte-seconds.
    pub byte_s: Groups<f64>,
    /// CPU time, nanoseconds.
    pub cpu_ns: Groups<f64>,
}

/// What the intervals of a sample tell of the time before its window.
pub(in crate::run) fn late_uses(sample: &Sample) -> Vec<LateUse> {
    let parts = sample.intervals.iter().flat_map(|one| [ram(one, sample.from_ns), cpu(one, sample.from_ns)]);
    parts.flatten().collect()
}

/// The part of an interval's RAM over time that is before `until_ns`, CLOCK_MONOTONIC nanoseconds. `None`: there is none,
/// or the interval's end is known only roughly, so how long the memory was held is unknown.
fn ram(interval: &LiveInterval, until_ns: u64) -> Option<LateUse> {
    if interval.is_end_rough || interval.memory.added_bytes == 0 {
        return None;
    }
    let time = before(interval.likely_start_ns, interval.end_ns, until_ns)?;
    let byte_s = |bytes: u64| bytes as f64 * time.length_s();
    let mut groups = Groups { combined: byte_s(interval.memory.added_bytes), ..Groups::default() };
    *groups.part_mut(interval.is_main) = byte_s(interval.memory.added_to_part_bytes(interval.is_main));
    Some(LateUse { time, byte_s: groups, cpu_ns: Groups::default() })
}

/// The part of an interval's CPU time that was used before `until_ns`, CLOCK_MONOTONIC nanoseconds. The CPU time counts as
/// used evenly since it was last counted. It is negative if more had been counted than was used. `None`: there is none.
fn cpu(interval: &LiveInterval, until_ns: u64) -> Option<LateUse> {
    let time = before(interval.counted_at_ns, interval.end_ns, until_ns).filter(|_| interval.cpu_ns != 0)?;
    let all = Stretch { start_ns: interval.counted_at_ns, end_ns: interval.end_ns };
    let before_ns = interval.cpu_ns as f64 * time.length_s() / all.length_s();
    let mut cpu_ns = Groups::default();
    cpu_ns.add(interval.is_main, before_ns, |sum, ns| sum + ns);
    Some(LateUse { time, byte_s: Groups::default(), cpu_ns })
}

/// The part of the time from `start_ns` to `end_ns` that is before `until_ns`. `None`: there is none.
fn before(start_ns: u64, end_ns: u64, until_ns: u64) -> Option<Stretch> {
    let end_ns = end_ns.min(until_ns);
    (start_ns < end_ns).then_some(Stretch { start_ns, end_ns })
}

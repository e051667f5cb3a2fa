//! What a sample tells of the time before it: processes that no sample saw, and records that come late.

use super::axis::Stretch;
use crate::model::groups::Groups;
use crate::run::sampling::Sample;
use crate::run::tree::LiveInterval;

/// RAM or CPU time that was used before the sample that tells it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LateUse {
    /// When it was used.
    pub time: Stretch,
    /// Footprints, byte-seconds.
    pub byte_s: Groups<f64>,
    /// CPU time, nanoseconds.
    pub cpu_ns: Groups<f64>,
}

/// Gives what the intervals of a sample tell of the time before its window.
pub(in crate::run) fn late_uses(sample: &Sample) -> Vec<LateUse> {
    let parts =
        sample.intervals.iter().flat_map(|life| [ram(life, sample.from_ns), cpu(life, sample.from_ns)]);
    parts.flatten().collect()
}

/// Gives the part of an interval's RAM over time that is before `until_ns`, CLOCK_MONOTONIC nanoseconds. `None`: there is none, or
/// the interval's end is known only roughly, so how long the memory was held is not known.
fn ram(life: &LiveInterval, until_ns: u64) -> Option<LateUse> {
    if life.is_end_rough || life.memory.added_bytes == 0 {
        return None;
    }
    let time = before(life.likely_start_ns, life.end_ns, until_ns)?;
    let byte_s = |bytes: u64| bytes as f64 * time.length_s();
    let mut groups = Groups { combined: byte_s(life.memory.added_bytes), ..Groups::default() };
    *groups.part_mut(life.is_main) = byte_s(life.memory.added_to_part_bytes(life.is_main));
    Some(LateUse { time, byte_s: groups, cpu_ns: Groups::default() })
}

/// Gives the part of an interval's CPU time that was used before `until_ns`, CLOCK_MONOTONIC nanoseconds. The interval's CPU time
/// counts as used evenly since it was last counted. It is negative if more had been counted than was used. `None`: there is none.
fn cpu(life: &LiveInterval, until_ns: u64) -> Option<LateUse> {
    let time = before(life.counted_at_ns, life.end_ns, until_ns).filter(|_| life.cpu_ns != 0)?;
    let all = Stretch { start_ns: life.counted_at_ns, end_ns: life.end_ns };
    let mut cpu_ns = Groups::default();
    cpu_ns.add(life.is_main, life.cpu_ns as f64 * time.length_s() / all.length_s(), |sum, ns| sum + ns);
    Some(LateUse { time, byte_s: Groups::default(), cpu_ns })
}

/// Gives the part of a time before `until_ns`. `None`: there is none.
fn before(start_ns: u64, end_ns: u64, until_ns: u64) -> Option<Stretch> {
    let end_ns = end_ns.min(until_ns);
    (start_ns < end_ns).then_some(Stretch { start_ns, end_ns })
}

//! How long at least one thread was ready to run in the time between two readings, and how long at least one computed.

use serde::{Deserialize, Serialize};

use super::Stretch;
use crate::model::observation::ThreadStates;

/// The cores that the run may use, of late.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct CoresMoment {
    /// How many are online; 0: not known.
    pub count: u32,
    /// The part of them that others than the run had, from 0 to 1.
    pub others_part: f64,
}

/// A time that is known within bounds, by a part of them that readings tell.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Bounded {
    /// How much more than the lower bounds readings saw, nanoseconds. Older readings count less.
    seen_ns: f64,
    /// How far the bounds were apart, nanoseconds. Older ones count less.
    room_ns: f64,
}

/// The part of a stretch in which threads were ready.
#[derive(Debug, Clone, Copy)]
pub(super) struct ReadyTime {
    /// Length of the stretch, nanoseconds.
    pub length_ns: u64,
    /// CPU time in it, nanoseconds.
    pub cpu_ns: u64,
    /// At least one thread was ready, nanoseconds.
    pub ready_ns: u64,
    /// At least one had a core, nanoseconds.
    pub computing_ns: u64,
}

impl ReadyTime {
    /// Finds it by the kernel's clocks. Where they leave it open, `bounded` decides by what readings saw; `is_ready`: this one saw a ready
    /// thread.
    pub(super) fn new(
        stretch: &Stretch,
        reading: &ThreadStates,
        is_ready: bool,
        cores: CoresMoment,
        bounded: &mut Bounded,
    ) -> Self {
        let length_ns = stretch.length_ns;
        let cpu_ns: u64 = stretch.cpu_ns.iter().map(|(_, ns)| ns).sum();
        // The run can't have computed on more cores at once than there are, or than its threads may use. That counts where some threads
        // were not read. Processes that ended may have used other cores.
        let on_all_cores_ns = cpu_ns.checked_div(u64::from(cores.count)).unwrap_or(0);
        let alive_cpu_ns = cpu_ns.saturating_sub(stretch.ended_cpu_ns);
        let on_own_cores_ns = alive_cpu_ns.checked_div(u64::from(reading.cores)).unwrap_or(0);
        let on_all_cores_ns = on_all_cores_ns.max(on_own_cores_ns);
        let longest_ran_ns = reading.longest_ran_ns.max(stretch.longest_ended_ns).min(cpu_ns);
        let longest_ran_ns = longest_ran_ns.max(on_all_cores_ns).min(length_ns);
        let longest_ready_ns = reading.longest_ready_ns.max(longest_ran_ns).min(length_ns);
        let waited_ns = reading.times.waited_ns;
        let most_ready_ns = cpu_ns.saturating_add(waited_ns).clamp(longest_ready_ns, length_ns);
        // A reading misses processes that live shorter than it takes. They mostly run one after another.
        let are_short = stretch.ended_cpu_ns > cpu_ns / 2;
        let ready_ns = if are_short {
            most_ready_ns
        } else {
            bounded.time(longest_ready_ns, most_ready_ns, length_ns, is_ready)
        };
        let most_ns = cpu_ns.clamp(longest_ran_ns, ready_ns.max(longest_ran_ns));
        let computing_ns =
            computing_ns(most_ns, longest_ran_ns, ready_ns, (cpu_ns, waited_ns), cores.others_part);
        Self { length_ns, cpu_ns, ready_ns, computing_ns: computing_ns.min(ready_ns) }
    }
}

impl Bounded {
    /// The time within these bounds, nanoseconds, in a stretch of `length_ns`; `is_seen`: its end was within that time.
    fn time(&mut self, low_ns: u64, high_ns: u64, length_ns: u64, is_seen: bool) -> u64 {
        /// Bounds that are nearer than this part of the time decide alone.
        const NEAR: u64 = 100;
        /// How much an older reading counts.
        const DECAY: f64 = 0.97;
        let room_ns = high_ns.saturating_sub(low_ns);
        if room_ns <= length_ns / NEAR {
            return high_ns;
        }
        let seen_ns = if is_seen { length_ns as f64 } else { 0.0 };
        self.seen_ns = self.seen_ns * DECAY + seen_ns - low_ns as f64;
        self.room_ns = self.room_ns * DECAY + room_ns as f64;
        let part = (self.seen_ns / self.room_ns).clamp(0.0, 1.0);
        low_ns + (room_ns as f64 * part) as u64
    }
}

/// How long at least one thread had a core, nanoseconds, of a time in which at least one was ready: `ready_ns`. It is `most_ns` if they run one
/// after another, as where they have few cores for themselves. Where others have cores, they take turns with others, each by itself:
/// then all wait at once for some of the time. `times_ns`: how long all threads ran, and how long they waited.
fn computing_ns(most_ns: u64, least_ns: u64, ready_ns: u64, times_ns: (u64, u64), others_part: f64) -> u64 {
    /// With this part of the cores, others are in the way of each thread.
    const MANY: f64 = 0.25;
    let (ran_ns, waited_ns) = times_ns;
    let in_the_way = (others_part / MANY).min(1.0);
    if ready_ns == 0 || waited_ns == 0 || in_the_way == 0.0 {
        return most_ns;
    }
    let all_ns = ran_ns.saturating_add(waited_ns) as f64;
    // How many threads are ready on average, and how likely each has a core.
    let (threads, has_core) = (all_ns / ready_ns as f64, ran_ns as f64 / all_ns);
    let by_itself_ns = ready_ns as f64 * (1.0 - (1.0 - has_core).powf(threads.max(1.0)));
    let by_itself_ns = by_itself_ns.clamp(least_ns.min(most_ns) as f64, most_ns as f64);
    (most_ns as f64 + (by_itself_ns - most_ns as f64) * in_the_way) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::observation::TaskTimes;

    // Requirement: SLOW-1
    #[test]
    fn threads_that_are_bound_to_one_core_compute_one_after_another() {
        // Two threads share a core, each with 50 of 100 ms. Strangers have the other core.
        let computing_of = |cores: u32| {
            let reading = ThreadStates {
                times: TaskTimes { ran_ns: 100, waited_ns: 100 },
                longest_ran_ns: 50,
                longest_ready_ns: 100,
                cores,
                ..ThreadStates::default()
            };
            let stretch = Stretch { length_ns: 100, cpu_ns: vec![("cc1".into(), 100)], ..Stretch::default() };
            let moment = CoresMoment { count: 2, others_part: 0.5 };
            ReadyTime::new(&stretch, &reading, true, moment, &mut Bounded::default()).computing_ns
        };
        assert_eq!([computing_of(1), computing_of(2), computing_of(0)], [100, 75, 75]);
    }

    #[test]
    fn threads_that_share_cores_with_others_wait_at_the_same_time() {
        // Two threads, each of which had a core for half of the time and waited for the other half.
        let of = |others_part| computing_ns(100, 50, 100, (100, 100), others_part);
        assert_eq!([of(0.0), of(0.125), of(0.5)], [100, 87, 75]);
        // One thread: nothing is left open.
        assert_eq!(computing_ns(50, 50, 100, (50, 50), 0.5), 50);
        assert_eq!(computing_ns(100, 100, 100, (200, 0), 0.5), 100);
    }
}

//! Whether memory (the tree's RAM, or that on a GPU) rises all the time. This is a fact of the run so far, not a verdict about the
//! program.
//!
//! The run is cut into stretches of equal length, and the smallest footprint of each stretch is kept. The last half of the run is cut
//! into 8 equal windows. RAM grows if the minimum rises from each window to the next, and from the first to the last by enough. A
//! program that has filled its caches stays level, and one that works in rounds comes back to the same minimum.

use serde::{Deserialize, Serialize};

/// At this number of minima, neighbouring stretches are joined in pairs.
const MAX_MINIMA: usize = 128;
/// Length of the first stretches, nanoseconds.
const FIRST_WIDTH_NS: u64 = 1_000_000_000;
/// Number of windows over the last half of the run.
const WINDOWS: usize = 8;
/// A run shorter than this, nanoseconds, is not judged: most programs read their data and fill their caches in this time.
const SHORTEST_RUN_NS: u64 = 120_000_000_000;
/// A smaller rise over the windows is no growth, bytes.
const LEAST_RISE_BYTES: u64 = 64_000_000;
/// A rise by a smaller part of what the run may use is no growth.
const LEAST_PART: f64 = 0.05;

/// Minima of the footprint over the run.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Growth {
    /// Length of a stretch, nanoseconds; 0: nothing was added yet.
    width_ns: u64,
    /// Start of the first stretch, CLOCK_MONOTONIC nanoseconds.
    begin_ns: u64,
    /// The smallest footprint of each stretch that is over, bytes.
    minima: Vec<u64>,
    /// The smallest footprint of the stretch that has begun, bytes. `None`: it has no sample yet.
    open: Option<u64>,
}

/// By how much RAM rises.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Rise {
    /// Begin of the first of the windows over which it rises, CLOCK_MONOTONIC nanoseconds.
    pub since_ns: u64,
    /// Mean rate from the first window to the last, bytes a second.
    pub bytes_per_s: f64,
}

impl Growth {
    /// Adds a footprint at `at_ns`, of a run that began at `start_ns`, both CLOCK_MONOTONIC nanoseconds. The times must not go back.
    pub(super) fn add(&mut self, start_ns: u64, at_ns: u64, bytes: u64) {
        if self.width_ns == 0 {
            (self.width_ns, self.begin_ns) = (FIRST_WIDTH_NS, start_ns);
        }
        // After a long gap without samples, many stretches are over at once. They become wider, so there are never more than
        // [`MAX_MINIMA`].
        while at_ns.saturating_sub(self.end_ns()) >= self.width_ns {
            // A stretch without a sample gets the minimum of the stretch before.
            let minimum = self.open.take().or(self.minima.last().copied()).unwrap_or(bytes);
            self.minima.push(minimum);
            if self.minima.len() == MAX_MINIMA {
                self.minima = self.minima.chunks(2).filter_map(|two| two.iter().min().copied()).collect();
                self.width_ns = self.width_ns.saturating_mul(2);
            }
        }
        self.open = Some(self.open.map_or(bytes, |open| open.min(bytes)));
    }

    /// The end of the last stretch that is over.
    fn end_ns(&self) -> u64 {
        self.begin_ns.saturating_add(self.width_ns.saturating_mul(self.minima.len() as u64))
    }

    /// How fast RAM rises, and since when. `usable_bytes`: what the run may use. `None`: RAM does not rise all the time, or
    /// the run is too short.
    pub(super) fn rise(&self, usable_bytes: Option<u64>) -> Option<Rise> {
        let count = self.minima.len();
        if self.width_ns.saturating_mul(count as u64) < SHORTEST_RUN_NS {
            return None;
        }
        // Stretches in a window, rounded up: all windows together are at least half of the run.
        let in_window = count.div_ceil(2 * WINDOWS);
        // This is never below 0: a run that is long enough has half of [`MAX_MINIMA`] stretches or more.
        let first_stretch = count.checked_sub(in_window * WINDOWS)?;
        let windows = self.minima.get(first_stretch..)?.chunks(in_window);
        let windows: Vec<u64> = windows.filter_map(|window| window.iter().min().copied()).collect();
        let (from, to) = (*windows.first()?, *windows.last()?);
        let least_part = usable_bytes.map_or(0, |usable| (usable as f64 * LEAST_PART) as u64);
        let does_rise = windows.is_sorted_by(|before, after| before < after);
        if !does_rise || to - from < least_part.max(LEAST_RISE_BYTES) {
            return None;
        }
        let between_ns = self.width_ns.saturating_mul((in_window * (WINDOWS - 1)) as u64);
        Some(Rise {
            since_ns: self.begin_ns.saturating_add(self.width_ns.saturating_mul(first_stretch as u64)),
            bytes_per_s: (to - from) as f64 / (between_ns as f64 / 1e9),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;
    const MB: f64 = 1e6;

    /// Whether growth is seen at each second of a run that has this footprint, MB, at each second.
    fn seen(seconds: u64, usable_mb: Option<u64>, megabytes: impl Fn(f64) -> f64) -> Vec<Option<Rise>> {
        let mut growth = Growth::default();
        let at = |s: u64| {
            growth.add(100 * S, (100 + s) * S, (megabytes(s as f64) * MB) as u64);
            growth.rise(usable_mb.map(|mb| mb * 1_000_000))
        };
        (0..seconds).map(at).collect()
    }

    // Requirement: ALERT-6
    #[test]
    fn steady_rise_is_seen_with_its_rate_and_its_beginning() {
        for (seconds, rate) in [(200, 2.0), (7200, 0.5), (86_400, 0.01)] {
            let rises = seen(seconds, Some(1000), |s| 100.0 + rate * s);
            let last = rises.last().unwrap().unwrap();
            assert!((last.bytes_per_s / MB / rate - 1.0).abs() < 0.01, "{rate}: {last:?}");
            let half = (last.since_ns - 100 * S) as f64 / S as f64 / seconds as f64;
            assert!((0.3..=0.5).contains(&half), "{seconds}: from {half} of the run on");
            assert!(rises[..119].iter().all(Option::is_none));
        }
    }

    // Requirement: ALERT-6
    #[test]
    fn rise_is_seen_through_rounds_of_work_that_come_and_go() {
        let rises = seen(3600, Some(8000), |s| 100.0 + s + 500.0 * (s / 7.0).sin().abs());
        assert!(rises.last().unwrap().is_some());
    }

    // Requirement: ALERT-6
    #[test]
    fn caches_that_fill_and_rounds_that_come_back_are_no_growth() {
        type Footprint = fn(f64) -> f64;
        let programs: [(&str, Footprint); 7] = [
            ("fills at once and stays", |s| 100.0 + 400.0 * (s / 60.0).min(1.0)),
            ("trembles", |s| 500.0 + 100.0 * (s * 12.9898).sin()),
            ("saw tooth of a garbage collector", |s| 300.0 + 10.0 * (s % 40.0)),
            ("rises by little", |s| 300.0 + 0.001 * s),
            ("steps at the start of each of three phases", |s| 100.0 * (1.0 + (s / 1300.0).floor())),
            ("falls", |s| 4000.0 - s),
            ("fills a cache ever more slowly", |s| 100.0 + 60.0 * (1.0 - (-s / 200.0).exp())),
        ];
        for (what, footprint) in programs {
            let rises = seen(3900, Some(16_000), footprint);
            assert!(rises.iter().all(Option::is_none), "{what}: {:?}", rises.iter().flatten().next());
        }
    }

    // Requirement: ALERT-6
    #[test]
    fn less_than_a_part_of_what_may_be_used_is_no_growth() {
        let last = |usable_mb| *seen(3600, usable_mb, |s| 100.0 + 0.2 * s).last().unwrap();
        assert!(last(Some(4000)).is_some() && last(None).is_some());
        assert_eq!(last(Some(64_000)), None);
    }

    #[test]
    fn gap_of_a_day_without_samples_is_bridged_and_the_minima_stay_few() {
        let mut growth = Growth::default();
        for s in [0, 1, 2, 86_400, 86_401] {
            growth.add(0, s * S, 500_000_000 + s);
        }
        assert!(growth.minima.len() < MAX_MINIMA);
        assert_eq!(growth.rise(None), None);
    }
}

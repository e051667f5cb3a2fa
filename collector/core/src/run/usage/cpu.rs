//! CPU utilisation: CPU time of all processes, ended ones included, over the length of a window.

use serde::{Deserialize, Serialize};

use super::busy_cores::BusyCores;
use crate::model::groups::Groups;
use crate::model::tree_sample::larger;
use crate::run::sampling::Sample;

/// Shortest window of a maximum: in a shorter one, the resolution of clock ticks dominates.
pub(crate) const SHORTEST_WINDOW_NS: u64 = 100_000_000;

/// A window may be shorter than planned by one part in this many: samples can come a little early.
const EARLY_PART: u64 = 20;

/// CPU utilisation by the tree and by the machine. Percentages are of one core.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct CpuUsage {
    /// Planned length of a window, nanoseconds.
    window_ns: u64,
    /// Cores of the machine.
    cores: u32,
    /// When the open window began, CLOCK_MONOTONIC nanoseconds.
    open_since_ns: u64,
    /// CPU time of the open window, nanoseconds. `combined` lacks that of `Sample::intervals`:
    /// [`Self::open_percent`] adds up the parts.
    open_cpu_ns: Groups<f64>,
    /// Utilisation by the tree in the last window that closed.
    last_percent: Groups<Option<f64>>,
    /// Largest utilisation by the tree in a window.
    pub(crate) max_percent: Groups<Option<f64>>,
    /// How many cores the tree kept busy, and for how long.
    pub(crate) busy: BusyCores,
    /// The machine's first and last reading.
    system: Option<SystemSpan>,
    /// Largest utilisation of the machine between two readings.
    max_system_percent: Option<f64>,
}

/// The first and the last reading of the machine: when, CLOCK_MONOTONIC nanoseconds, and busy ticks.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct SystemSpan {
    first: (u64, u64),
    last: (u64, u64),
}

impl CpuUsage {
    /// Makes windows of at least the sampling interval, nanoseconds, from `start_ns` (CLOCK_MONOTONIC) on. `cores`: those of the
    /// machine, which bound what is possible.
    pub fn new(interval_ns: u64, cores: u32, start_ns: u64) -> Self {
        Self {
            window_ns: interval_ns.max(SHORTEST_WINDOW_NS),
            cores,
            open_since_ns: start_ns,
            ..Self::default()
        }
    }

    /// Takes in a sample: adds its CPU time to the open window, and closes the window if it is long enough. Returns the utilisation
    /// in the window that the sample completes, percent; `None`: it completes none.
    pub(crate) fn add(&mut self, sample: &Sample) -> Groups<Option<f64>> {
        self.open_cpu_ns = self.open_cpu_ns.with(sample.cpu_ns, |open, ns| open + ns as f64);
        for interval in &sample.intervals {
            // An interval has the CPU time of an ended process that no sample counted. It counts as used evenly since the last count, and
            // the part from before this window opened is left out.
            let span_ns = interval.end_ns.saturating_sub(interval.counted_at_ns);
            let inside_ns = interval.end_ns.saturating_sub(interval.counted_at_ns.max(self.open_since_ns));
            let part = if span_ns == 0 { 1.0 } else { inside_ns as f64 / span_ns as f64 };
            *self.open_cpu_ns.part_mut(interval.is_main) += interval.cpu_ns as f64 * part;
        }
        // A tick that comes a little early still closes its window.
        let early_ns = self.window_ns / EARLY_PART;
        let length_ns = sample.at_ns.saturating_sub(self.open_since_ns);
        if length_ns + early_ns >= self.window_ns {
            return self.close(sample.at_ns);
        }
        Groups::default()
    }

    /// Whether a process and its children can have used this much CPU time (microseconds) in a run of this age (nanoseconds). A
    /// record that claims more is not true. Twice the counted cores are allowed, as cores may have been added since.
    pub(crate) fn is_possible(&self, cpu_us: u64, age_ns: u64) -> bool {
        /// The kernel's clocks and sums may be ahead of the run's, but by much less than this.
        const SLACK_US: u64 = 1_000_000;
        let longest_us = (age_ns / 1000).saturating_add(SLACK_US);
        let most_cores = 2 * u64::from(self.cores);
        cpu_us <= longest_us.saturating_mul(most_cores)
    }

    /// Ends the last window with the run, at `end_ns`. That window is incomplete, and counts only if there was no complete one.
    /// Returns its utilisation, percent; `None`: it does not count.
    pub(crate) fn finish(&mut self, end_ns: u64) -> Groups<Option<f64>> {
        if self.max_percent.combined.is_some() {
            return Groups::default();
        }
        self.close(end_ns)
    }

    /// Closes the open window, and opens the next one. The utilisation of the closed one becomes `last_percent`, and counts for the
    /// maximum and the histogram. Returns it, percent; `None`: the window has no length, and stays open.
    fn close(&mut self, at_ns: u64) -> Groups<Option<f64>> {
        let length_ns = at_ns.saturating_sub(self.open_since_ns);
        if length_ns == 0 {
            return Groups::default();
        }
        self.last_percent = self.open_percent(length_ns).map(Some);
        self.max_percent = self.max_percent.with(self.last_percent, larger);
        // An interval's CPU time is negative if earlier windows have counted too much for its process.
        let used_ns = (self.open_cpu_ns.main + self.open_cpu_ns.descendants).max(0.0);
        self.busy.add((used_ns / length_ns as f64).min(self.possible_percent() / 100.0), length_ns);
        self.open_cpu_ns = Groups::default();
        self.open_since_ns = at_ns;
        self.last_percent
    }

    /// The utilisation in the open window, which is `length_ns` long, percent, from 0 to what is possible. The clocks of a
    /// sample are read one after another, which can add up to a little more than that. Intervals with negative CPU time can lead
    /// below 0.
    fn open_percent(&self, length_ns: u64) -> Groups<f64> {
        let combined = self.open_cpu_ns.main + self.open_cpu_ns.descendants;
        let open_cpu_ns = Groups { combined, ..self.open_cpu_ns };
        open_cpu_ns.map(|ns| (ns / length_ns as f64 * 100.0).clamp(0.0, self.possible_percent()))
    }

    /// The utilisation in the last window that closed, percent. Before there is one, that in the open window up to `at_ns`.
    pub(crate) fn percent(&self, at_ns: u64) -> Groups<Option<f64>> {
        let length_ns = at_ns.saturating_sub(self.open_since_ns);
        match self.last_percent.combined {
            None if length_ns > 0 => self.open_percent(length_ns).map(Some),
            _ => self.last_percent,
        }
    }

    /// The utilisation if all cores are busy, percent.
    fn possible_percent(&self) -> f64 {
        f64::from(self.cores) * 100.0
    }

    /// Takes in the machine's busy ticks since boot, read at `at_ns`, CLOCK_MONOTONIC nanoseconds. Returns its utilisation since
    /// the reading before, percent. `None`: there is no such reading, or the time is too short.
    pub(crate) fn add_system(&mut self, at_ns: u64, busy_ticks: u64, ticks_per_second: u64) -> Option<f64> {
        let now = (at_ns, busy_ticks);
        let possible_percent = self.possible_percent();
        let Some(span) = &mut self.system else {
            self.system = Some(SystemSpan { first: now, last: now });
            return None;
        };
        let percent = percent_between(span.last, now, ticks_per_second);
        span.last = now;
        let percent = percent?.min(possible_percent);
        self.max_system_percent = larger(self.max_system_percent, Some(percent));
        Some(percent)
    }

    /// The largest and the mean utilisation of the machine, percent. `None`: the time between readings was too short.
    pub(crate) fn system_percent(&self, ticks_per_second: u64) -> (Option<f64>, Option<f64>) {
        let mean = self.system.and_then(|span| percent_between(span.first, span.last, ticks_per_second));
        (self.max_system_percent, mean.map(|mean| mean.min(self.possible_percent())))
    }
}

/// The utilisation between two readings of time (nanoseconds) and busy ticks, percent. `None`: the time is too short
/// for the resolution of clock ticks.
fn percent_between(from: (u64, u64), to: (u64, u64), ticks_per_second: u64) -> Option<f64> {
    let ((from_ns, from_ticks), (to_ns, to_ticks)) = (from, to);
    let length_s = to_ns.checked_sub(from_ns).filter(|ns| *ns >= SHORTEST_WINDOW_NS)? as f64 / 1e9;
    let busy_s = to_ticks.saturating_sub(from_ticks) as f64 / ticks_per_second as f64;
    Some(busy_s / length_s * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn sample(from_ns: u64, at_ns: u64, main: u64, descendants: u64) -> Sample {
        Sample {
            from_ns,
            at_ns,
            cpu_ns: Groups { main, descendants, combined: main + descendants },
            ..Sample::default()
        }
    }

    // Requirement: CPU-6
    #[test]
    fn short_intervals_are_merged_into_windows_of_100_ms() {
        let mut cpu = CpuUsage::new(SECOND / 1000, 8, 0);
        for tick in 1..=200u64 {
            let busy = if tick <= 50 { SECOND / 1000 } else { 0 };
            cpu.add(&sample((tick - 1) * SECOND / 1000, tick * SECOND / 1000, busy, 0));
        }
        let Groups { main, combined, .. } = cpu.max_percent;
        // 50 ms busy: 50% of the first window, or a little more, since windows close up to 5% early.
        assert!((49.0..=53.0).contains(&main.unwrap()), "{main:?}");
        assert_eq!(main, combined);
    }

    #[test]
    fn run_shorter_than_a_window_is_one_window() {
        let mut cpu = CpuUsage::new(60 * SECOND, 4, 0);
        cpu.add(&sample(0, SECOND / 50, SECOND / 100, SECOND / 50));
        cpu.finish(SECOND / 50);
        let Groups { main, descendants, combined } = cpu.max_percent;
        assert_eq!((main, descendants, combined), (Some(50.0), Some(100.0), Some(150.0)));
    }

    #[test]
    fn machine_utilisation_spans_first_to_last_reading() {
        let mut cpu = CpuUsage::new(SECOND, 2, 0);
        for (at, ticks) in [(0, 0), (SECOND, 200), (2 * SECOND, 200)] {
            cpu.add_system(at, ticks, 100);
        }
        assert_eq!(cpu.system_percent(100), (Some(200.0), Some(100.0)));
    }

    // Requirement: CPU-58
    #[test]
    fn few_ticks_give_no_machine_utilisation() {
        let mut cpu = CpuUsage::new(SECOND, 2, 0);
        cpu.add_system(0, 0, 100);
        cpu.add_system(SECOND / 20, 5, 100);
        assert_eq!(cpu.system_percent(100), (None, None));
    }
}

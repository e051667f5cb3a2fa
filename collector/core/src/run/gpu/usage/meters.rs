//! Single figures over time: gauges, counters that can wrap or restart, busy and throttled time.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::model::gpu::Busy;

/// A value that goes up and down.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Gauge {
    /// Smallest reading.
    pub min: f64,
    /// Largest reading.
    pub max: f64,
    /// Value times seconds, the readings joined by straight lines.
    integral: f64,
    /// The last reading: when it was, CLOCK_MONOTONIC nanoseconds, and its value.
    last: (u64, f64),
    first_ns: u64,
}

impl Gauge {
    /// Makes a gauge of its first reading, in its own unit. Times are CLOCK_MONOTONIC nanoseconds.
    pub(crate) fn new(at_ns: u64, value: f64) -> Self {
        Self { min: value, max: value, integral: 0.0, last: (at_ns, value), first_ns: at_ns }
    }

    /// Adds another reading, later than all before it. The value went from one to the other in a straight line.
    pub(crate) fn add(&mut self, at_ns: u64, value: f64) {
        let (before_ns, before) = self.last;
        self.integral += (before + value) / 2.0 * seconds(at_ns.saturating_sub(before_ns));
        self.min = self.min.min(value);
        self.max = self.max.max(value);
        self.last = (at_ns, value);
    }

    /// Gives value times seconds. `None`: there is a single reading.
    pub(crate) fn integrated(&self) -> Option<f64> {
        (self.last.0 > self.first_ns).then_some(self.integral)
    }

    /// Gives the time between its first and its last reading, seconds. `None`: there is a single one.
    pub(crate) fn span_s(&self) -> Option<f64> {
        (self.last.0 > self.first_ns).then(|| seconds(self.last.0 - self.first_ns))
    }

    /// Gives the mean over time; of a single reading, its value.
    pub(crate) fn mean(&self) -> f64 {
        let length = seconds(self.last.0.saturating_sub(self.first_ns));
        // Rounding must not lead beyond the smallest and largest reading.
        if length > 0.0 { (self.integral / length).clamp(self.min, self.max) } else { self.last.1 }
    }
}

/// What is known of how a counter counts.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CounterKind {
    /// The most that it can count in a second.
    pub most_per_s: f64,
    /// It has 32 bits, unless a reading is larger.
    pub may_wrap: bool,
    /// When this reading was complete, nanoseconds: until then it may have counted.
    pub until_ns: u64,
}

/// A counter that goes up, until it wraps or the driver restarts it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Counter {
    /// The count since the first reading, without `low`.
    total: f64,
    /// How often it restarted at zero; what it had counted since the reading before is lost.
    pub restarts: u64,
    /// How often it stepped back by what no restart explains.
    pub steps_back: u64,
    /// It was read more than once: a single reading gives no difference.
    pub has_counted: bool,
    /// It could have wrapped unseen.
    is_unsure: bool,
    /// A reading was larger than 32 bits hold, so it does not wrap.
    is_wide: bool,
    /// The largest reading since it began, and when that was begun, nanoseconds.
    last: f64,
    last_ns: u64,
    /// When it was read first and last, nanoseconds.
    read_ns: (u64, u64),
    /// After a step back: the last reading, and the count since.
    low: Option<(f64, f64)>,
}

/// Counters of 32 bits wrap here.
const WRAP: f64 = 4_294_967_296.0;
/// The most that a device counts in a second is known to this factor: NVIDIA's power is a mean over a second.
const RATE_SLACK: f64 = 2.0;

impl Counter {
    /// Makes a counter of its first reading, in its own unit. What it had counted before does not count.
    pub(crate) fn new(at_ns: u64, value: f64) -> Self {
        let is_wide = value >= WRAP;
        Self { is_wide, last: value, last_ns: at_ns, read_ns: (at_ns, at_ns), ..Self::default() }
    }

    /// Gives how much the meter counted since the first reading, in its own unit. `None`: it was read once at most, or it
    /// could have wrapped unseen.
    pub(crate) fn total(&self) -> Option<f64> {
        let since_step_back = self.low.map_or(0.0, |(_, counted)| counted);
        (self.has_counted && !self.may_have_wrapped()).then_some(self.total + since_step_back)
    }

    /// Gives the time from the first reading to the last, which the count covers, seconds. `None`: it was read once.
    pub(crate) fn span_s(&self) -> Option<f64> {
        self.has_counted.then(|| seconds(self.read_ns.1.saturating_sub(self.read_ns.0)))
    }

    /// Whether it could have wrapped between two readings without being seen to.
    pub(crate) fn may_have_wrapped(&self) -> bool {
        self.is_unsure && !self.is_wide
    }

    /// Adds another reading, begun at `at_ns`. If it is smaller than the one before, the counter wrapped or the driver restarted
    /// it. What it can have counted since tells. If it is neither, the reading before was too large, or this one is too small.
    pub(crate) fn add(&mut self, at_ns: u64, value: f64, kind: CounterKind) {
        let most = kind.most_per_s * seconds(kind.until_ns.max(at_ns).saturating_sub(self.last_ns));
        self.has_counted = true;
        self.read_ns.1 = at_ns;
        self.is_wide |= value >= WRAP;
        if kind.may_wrap && !self.is_wide {
            let counted = if value >= self.last { value - self.last } else { value + WRAP - self.last };
            // One more time round is possible, too.
            self.is_unsure |= counted + WRAP <= most;
            self.total += counted;
        } else if value >= self.last {
            self.total += value - self.last;
        } else if value < self.last / 2.0 && value <= most * RATE_SLACK + 1.0 {
            // It began again at 0, and what it shows can have been counted since. One count more is a reading's rounding.
            self.total += value;
            self.restarts += 1;
        } else {
            // Its two halves, or two sensors, were not read at one time. The larger reading counts until it is passed.
            match &mut self.low {
                None => (self.low, self.steps_back) = (Some((value, 0.0)), self.steps_back + 1),
                Some((last, counted)) => {
                    *counted += (value - *last).max(0.0);
                    *last = value;
                }
            }
            return;
        }
        (self.last, self.last_ns, self.low) = (value, at_ns, None);
    }
}

/// Busy time: the sum over stretches of time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct BusyMeter {
    /// The largest of any stretch, percent.
    pub max: Option<f64>,
    /// Percent times microseconds.
    busy: f64,
    covered_us: f64,
    lost_us: f64,
}

impl BusyMeter {
    /// Adds a stretch of time in which the device was busy. A counter that catches up late can exceed 100%: only the maximum is
    /// capped, so that the mean misses nothing.
    pub(crate) fn add(&mut self, busy: Busy) {
        let percent = busy.percent.clamp(0.0, 100.0);
        self.max = Some(self.max.map_or(percent, |max| max.max(percent)));
        self.busy += busy.percent.max(0.0) * busy.us as f64;
        self.covered_us += busy.us as f64;
    }

    /// Adds time of which the driver no longer knows, microseconds.
    pub(crate) fn lose(&mut self, us: u64) {
        self.lost_us += us as f64;
    }

    /// Gives for how long the driver's reports are known, seconds.
    pub(crate) fn measured_s(&self) -> f64 {
        self.covered_us / 1e6
    }

    /// Gives for how long they were lost, seconds.
    pub(crate) fn lost_s(&self) -> f64 {
        self.lost_us / 1e6
    }

    /// Gives the mean over the reported time, percent. `None`: nothing was reported. If no stretch has a length, it is the
    /// largest.
    pub(crate) fn mean(&self) -> Option<f64> {
        if self.covered_us > 0.0 {
            self.max.map(|max| (self.busy / self.covered_us).min(max))
        } else {
            self.max
        }
    }

    /// Gives the time busy, seconds, which is no more than the reported time. `None`: all stretches have no length.
    pub(crate) fn active_s(&self) -> Option<f64> {
        // 100 percent, and a million microseconds.
        const PER_SECOND: f64 = 100.0 * 1e6;
        (self.covered_us > 0.0).then_some(self.busy.min(self.covered_us * 100.0) / PER_SECOND)
    }
}

/// Time in each of a device's throttle reasons.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ThrottleTimes {
    ns: BTreeMap<String, u64>,
    /// When the reasons were read first and last, CLOCK_MONOTONIC nanoseconds.
    read_ns: Option<(u64, u64)>,
}

impl ThrottleTimes {
    /// Takes in the reasons that apply at this time, CLOCK_MONOTONIC nanoseconds. Each counts for the time since the reading
    /// before.
    pub(crate) fn add(&mut self, at_ns: u64, reasons: &[Cow<'_, str>]) {
        let (first_ns, last_ns) = self.read_ns.unwrap_or((at_ns, at_ns));
        for reason in reasons {
            *self.ns.entry(reason.to_string()).or_default() += at_ns.saturating_sub(last_ns);
        }
        self.read_ns = Some((first_ns, at_ns));
    }

    /// Gives nanoseconds by reason. `None`: they were not read more than once.
    pub(crate) fn ns(&self) -> Option<&BTreeMap<String, u64>> {
        self.read_ns.is_some_and(|(first_ns, last_ns)| last_ns > first_ns).then_some(&self.ns)
    }
}

/// Converts nanoseconds to seconds.
fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    #[test]
    fn gauge_integrates_linearly_between_readings() {
        let mut power = Gauge::new(0, 100.0);
        power.add(2 * S, 300.0);
        power.add(3 * S, 300.0);
        assert_eq!((power.min, power.max, power.integral), (100.0, 300.0, 700.0));
        assert_eq!(power.mean(), 700.0 / 3.0);
        assert_eq!(Gauge::new(5, 7.0).mean(), 7.0);
    }

    const PCIE: CounterKind = CounterKind { most_per_s: 1e9, may_wrap: true, until_ns: 0 };
    const ENERGY: CounterKind = CounterKind { most_per_s: 100.0, may_wrap: false, until_ns: 0 };

    /// A counter that gives these readings, a second apart.
    fn counter(kind: CounterKind, readings: &[f64]) -> Counter {
        let mut counter = Counter::new(0, readings[0]);
        for (at_s, value) in (1..).zip(&readings[1..]) {
            counter.add(at_s * S, *value, kind);
        }
        counter
    }

    #[test]
    fn counter_of_32_bits_wraps_once_at_most() {
        assert_eq!(counter(PCIE, &[1.0]).total(), None);
        assert_eq!(counter(PCIE, &[4_294_967_000.0, 704.0]).total(), Some(1000.0));
        // At 5 GB/s it can wrap in a second.
        let fast = CounterKind { most_per_s: 5e9, ..PCIE };
        assert_eq!(counter(fast, &[0.0, 704.0]).total(), None);
        // Later it shows more than 32 bits: it can't have wrapped.
        assert_eq!(counter(fast, &[0.0, 704.0, 5e9]).total(), Some(5e9));
    }

    #[test]
    fn counter_restarts_only_where_its_rate_explains_it() {
        let energy = counter(ENERGY, &[1000.0, 1500.0, 150.0, 300.0]);
        assert_eq!((energy.total(), energy.restarts, energy.steps_back), (Some(800.0), 1, 0));
        // 1400 J in a second would be 1400 W.
        let energy = counter(ENERGY, &[3000.0, 1400.0, 1450.0]);
        assert_eq!((energy.total(), energy.restarts, energy.steps_back), (Some(50.0), 0, 1));
    }

    #[test]
    fn step_back_keeps_the_larger_reading() {
        let energy = counter(ENERGY, &[3e9, 3e9 + 1.0, 3e9 + 0.5, 3e9 + 2.0, 3e9 + 1.5]);
        assert_eq!((energy.total(), energy.restarts, energy.steps_back), (Some(2.0), 0, 2));
    }

    #[test]
    fn busy_mean_is_weighted_and_capped_at_100() {
        let mut busy = BusyMeter::default();
        assert_eq!((busy.mean(), busy.active_s()), (None, None));
        let mut once = busy;
        once.add(Busy { us: 0, percent: 30.0 });
        assert_eq!((once.max, once.mean(), once.active_s()), (Some(30.0), Some(30.0), None));
        busy.add(Busy { us: 1_000_000, percent: 0.0 });
        busy.add(Busy { us: 1_000_000, percent: 160.0 });
        assert_eq!((busy.max, busy.mean(), busy.active_s()), (Some(100.0), Some(80.0), Some(1.6)));
        busy.add(Busy { us: 1_000_000, percent: 900.0 });
        assert_eq!((busy.mean(), busy.active_s()), (Some(100.0), Some(3.0)));
    }
}

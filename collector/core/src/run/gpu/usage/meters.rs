//! Single figures of a device over time: gauges, counters that can wrap or restart, busy and throttled time.

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
    /// The integral over the measured time, in the gauge's unit times seconds. The readings are joined by straight lines.
    integral: f64,
    /// The time between readings, without that in which one failed, nanoseconds.
    measured_ns: u64,
    /// The last reading: when it was, CLOCK_MONOTONIC nanoseconds, and its value.
    last: (u64, f64),
    /// A reading failed since the last one.
    is_interrupted: bool,
    /// How many readings there were.
    #[serde(default)]
    pub readings: u64,
}

impl Gauge {
    /// Makes a gauge of its first reading, in its own unit. Times are CLOCK_MONOTONIC nanoseconds.
    pub(crate) fn new(at_ns: u64, value: f64) -> Self {
        let last = (at_ns, value);
        Self {
            min: value,
            max: value,
            integral: 0.0,
            measured_ns: 0,
            last,
            is_interrupted: false,
            readings: 1,
        }
    }

    /// Adds another reading, later than all before it. Between two readings the value is taken to change in a straight line, unless one
    /// between them failed ([`Self::interrupt`]).
    pub(crate) fn add(&mut self, at_ns: u64, value: f64) {
        let (before_ns, before) = self.last;
        if !self.is_interrupted {
            let since_ns = at_ns.saturating_sub(before_ns);
            self.integral += (before + value) / 2.0 * seconds(since_ns);
            self.measured_ns += since_ns;
        }
        self.min = self.min.min(value);
        self.max = self.max.max(value);
        self.readings += 1;
        (self.last, self.is_interrupted) = ((at_ns, value), false);
    }

    /// Notes that a reading failed: the time from the last one to the next is unknown.
    pub(crate) fn interrupt(&mut self) {
        self.is_interrupted = true;
    }

    /// The last reading.
    pub(crate) fn last(&self) -> f64 {
        self.last.1
    }

    /// The integral over the measured time, in the gauge's unit times seconds. `None`: no time was measured, as by a single reading.
    pub(crate) fn integrated(&self) -> Option<f64> {
        (self.measured_ns > 0).then_some(self.integral)
    }

    /// The measured time, seconds. `None`: there is none, as of a single reading.
    pub(crate) fn span_s(&self) -> Option<f64> {
        (self.measured_ns > 0).then(|| seconds(self.measured_ns))
    }

    /// The mean over the measured time. Without such, it is the last reading.
    pub(crate) fn mean(&self) -> f64 {
        // Rounding must not lead beyond the smallest and largest reading.
        self.span_s().map_or(self.last.1, |span_s| (self.integral / span_s).clamp(self.min, self.max))
    }
}

/// What is known of how a counter counts.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CounterKind {
    /// The fastest that it can count, in its own unit per second.
    pub most_per_s: f64,
    /// What counted faster than this was a wrong reading, in its own unit per second.
    pub wrong_per_s: f64,
    /// The driver can update it this much too late, seconds.
    pub lag_s: f64,
    /// It has 32 bits, unless a reading is larger.
    pub may_wrap: bool,
    /// When this reading was complete, CLOCK_MONOTONIC nanoseconds: the counter may have counted until then.
    pub until_ns: u64,
}

/// A counter that goes up, until it wraps or the driver restarts it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Counter {
    /// The count since the first reading, without that of `after_step_back`.
    total: f64,
    /// How often it restarted at zero; what it had counted since the reading before is lost.
    pub restarts: u64,
    /// How often it stepped back in a way that no wrap or restart explains.
    pub steps_back: u64,
    /// How often it jumped ahead by more than it can have counted, which is in no count.
    pub jumps: u64,
    /// It was read more than once: a single reading gives no difference.
    pub has_counted: bool,
    /// It could have wrapped unseen between two readings, if it has 32 bits.
    is_unsure: bool,
    /// A reading was wrong, and what was counted meanwhile is not known. Counters that can't wrap leave that out, see [`Self::jumps`].
    pub is_wrong: bool,
    /// A reading was larger than 32 bits hold, so it does not wrap.
    is_wide: bool,
    /// The last reading. After a step back it stays, until a reading passes it: see [`Self::step_back`].
    last: f64,
    /// When the reading of `last` began, CLOCK_MONOTONIC nanoseconds.
    last_ns: u64,
    /// When it was read first and last, CLOCK_MONOTONIC nanoseconds.
    read_ns: (u64, u64),
    /// After a step back: the last reading, and the count since the step.
    after_step_back: Option<(f64, f64)>,
}

/// Counters of 32 bits wrap here.
const WRAP: f64 = 4_294_967_296.0;
/// A device may count up to this many times `most_per_s` in a second: NVIDIA's power is a mean over a second.
const RATE_SLACK: f64 = 2.0;

impl Counter {
    /// Makes a counter of its first reading, in its own unit. What it had counted before does not count.
    pub(crate) fn new(at_ns: u64, value: f64) -> Self {
        let is_wide = value >= WRAP;
        Self { is_wide, last: value, last_ns: at_ns, read_ns: (at_ns, at_ns), ..Self::default() }
    }

    /// How much it counted since the first reading, in its own unit. `None`: it was read once at most, it could have wrapped unseen, or
    /// a reading was wrong.
    pub(crate) fn total(&self) -> Option<f64> {
        let since_step_back = self.after_step_back.map_or(0.0, |(_, counted)| counted);
        let is_known = self.has_counted && !self.may_have_wrapped() && !self.is_wrong;
        is_known.then_some(self.total + since_step_back)
    }

    /// The time from the first reading to the last, which the count covers, seconds. `None`: it was read once.
    pub(crate) fn span_s(&self) -> Option<f64> {
        self.has_counted.then(|| seconds(self.read_ns.1.saturating_sub(self.read_ns.0)))
    }

    /// Whether it could have wrapped between two readings without any sign of it.
    pub(crate) fn may_have_wrapped(&self) -> bool {
        self.is_unsure && !self.is_wide
    }

    /// Adds another reading, begun at `at_ns`, CLOCK_MONOTONIC nanoseconds. If it is smaller than the last, there are three cases. A
    /// counter of 32 bits has wrapped. Another one has restarted, if it shows less than half of the last and can have counted so
    /// much since then. Otherwise it is a step back: the last reading was too large, or this one is too small.
    pub(crate) fn add(&mut self, at_ns: u64, value: f64, kind: CounterKind) {
        let since_s = seconds(kind.until_ns.max(at_ns).saturating_sub(self.last_ns));
        let most = kind.most_per_s * since_s;
        let most_believed = kind.wrong_per_s * (since_s + kind.lag_s) + 1.0;
        self.has_counted = true;
        self.read_ns.1 = at_ns;
        self.is_wide |= value >= WRAP;
        let has_32_bits = kind.may_wrap && !self.is_wide;
        // A restarted counter shows what it counted since. One count more comes from rounding.
        let has_restarted = value < self.last / 2.0 && value <= most * RATE_SLACK + 1.0;
        if has_32_bits {
            let counted = if value >= self.last { value - self.last } else { value + WRAP - self.last };
            // It could have wrapped once more.
            self.is_unsure |= counted + WRAP <= most;
            // It did not wrap, but stepped back or was reset, or a reading was wrong.
            self.is_wrong |= counted > most_believed;
            self.total += counted;
        } else if value >= self.last {
            // More than it can have counted comes from a wrong reading: this one or the last.
            if value - self.last <= most_believed {
                self.total += value - self.last;
            } else {
                self.jumps += 1;
                self.is_wrong |= kind.may_wrap;
            }
        } else if has_restarted {
            self.total += value;
            self.restarts += 1;
        } else {
            self.step_back(value);
            self.is_wrong |= kind.may_wrap;
            return;
        }
        (self.last, self.last_ns, self.after_step_back) = (value, at_ns, None);
    }

    /// Takes in a reading that is too small: two halves of the counter, or two sensors, were not read at one time. `last` stays
    /// until a reading passes it. If none does, [`Self::total`] adds what was counted since the step.
    fn step_back(&mut self, value: f64) {
        match &mut self.after_step_back {
            None => {
                self.after_step_back = Some((value, 0.0));
                self.steps_back += 1;
            }
            Some((last, counted)) => {
                *counted += (value - *last).max(0.0);
                *last = value;
            }
        }
    }
}

/// Utilisation over stretches of time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct BusyMeter {
    /// The largest utilisation of any stretch, percent.
    pub max: Option<f64>,
    /// Sum over the stretches, percent times microseconds.
    busy: f64,
    /// Length of all stretches and of the idle time, microseconds.
    covered_us: f64,
    /// Time of which the driver no longer knew the utilisation, microseconds.
    lost_us: f64,
}

impl BusyMeter {
    /// Adds a stretch of time and its utilisation. A counter that catches up late can exceed 100%: only the maximum is capped, so
    /// that the mean misses nothing.
    pub(crate) fn add(&mut self, busy: Busy) {
        let percent = busy.percent.clamp(0.0, 100.0);
        self.max = Some(self.max.map_or(percent, |max| max.max(percent)));
        self.busy += busy.percent.max(0.0) * busy.us as f64;
        self.covered_us += busy.us as f64;
    }

    /// Adds time in which nothing ran, microseconds. It counts in the mean if there is a stretch at all.
    pub(crate) fn add_idle(&mut self, us: u64) {
        self.covered_us += us as f64;
    }

    /// Adds time of which the driver no longer knows the utilisation, microseconds.
    pub(crate) fn add_lost(&mut self, us: u64) {
        self.lost_us += us as f64;
    }

    /// For how long the utilisation is known, seconds.
    pub(crate) fn measured_s(&self) -> f64 {
        self.covered_us / 1e6
    }

    /// For how long the driver no longer knew the utilisation, seconds.
    pub(crate) fn lost_s(&self) -> f64 {
        self.lost_us / 1e6
    }

    /// The mean utilisation over all stretches and the idle time, percent. If none of them has a length, it is the largest. `None`:
    /// there is no stretch.
    pub(crate) fn mean(&self) -> Option<f64> {
        if self.covered_us > 0.0 {
            // Where a counter caught up late, `busy` counts more than 100%, but `max` does not. The mean must not exceed `max`.
            self.max.map(|max| (self.busy / self.covered_us).min(max))
        } else {
            self.max
        }
    }

    /// The busy time, seconds, which is no more than the length of all stretches. `None`: no stretch has a length.
    pub(crate) fn active_s(&self) -> Option<f64> {
        // A second of 100 percent, in the unit of `busy`.
        const PER_SECOND: f64 = 100.0 * 1e6;
        (self.covered_us > 0.0).then_some(self.busy.min(self.covered_us * 100.0) / PER_SECOND)
    }
}

/// A value whose means over stretches of time are known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct StretchMeter {
    /// The largest mean of a stretch, in the value's unit.
    pub max: f64,
    /// Sum over the stretches, in the value's unit times microseconds.
    sum: f64,
    /// Length of all stretches, microseconds.
    us: f64,
}

impl StretchMeter {
    /// Adds a stretch with its mean. One without a length says nothing.
    pub(crate) fn add(&mut self, us: u64, mean: f64) {
        if us > 0 {
            self.max = self.max.max(mean);
            self.sum += mean * us as f64;
            self.us += us as f64;
        }
    }

    /// The mean over all stretches. `None`: there is none.
    pub(crate) fn mean(&self) -> Option<f64> {
        // Rounding must not lead beyond the largest.
        (self.us > 0.0).then(|| (self.sum / self.us).min(self.max))
    }

    /// Length of all stretches, seconds.
    pub(crate) fn measured_s(&self) -> f64 {
        self.us / 1e6
    }

    /// The integral over time, in the value's unit times seconds. `None`: there is no stretch.
    pub(crate) fn integrated(&self) -> Option<f64> {
        (self.us > 0.0).then_some(self.sum / 1e6)
    }
}

/// Time in each of a device's throttle reasons.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ThrottleTimes {
    /// Time in each reason, nanoseconds.
    ns: BTreeMap<String, u64>,
    /// Clock of the processors in each reason, MHz.
    #[serde(default)]
    clocks_mhz: BTreeMap<String, StretchMeter>,
    /// The time between readings, without that in which one failed, nanoseconds.
    measured_ns: u64,
    /// When the reasons were read last, CLOCK_MONOTONIC nanoseconds. `None`: never, or a reading failed since.
    last_ns: Option<u64>,
}

impl ThrottleTimes {
    /// Takes in the reasons that apply at this time, CLOCK_MONOTONIC nanoseconds, and the clock of the processors, MHz (`None`: not
    /// known). Each counts for the time since the reading before, unless one between them failed ([`Self::interrupt`]).
    pub(crate) fn add(&mut self, at_ns: u64, reasons: &[Cow<'_, str>], clock_mhz: Option<f64>) {
        let since_ns = self.last_ns.map_or(0, |last_ns| at_ns.saturating_sub(last_ns));
        for reason in reasons {
            *self.ns.entry(reason.to_string()).or_default() += since_ns;
            if let Some(mhz) = clock_mhz {
                self.clocks_mhz.entry(reason.to_string()).or_default().add(since_ns / 1000, mhz);
            }
        }
        self.measured_ns += since_ns;
        self.last_ns = Some(at_ns);
    }

    /// Notes that a reading failed: the time from the last one to the next is unknown.
    pub(crate) fn interrupt(&mut self) {
        self.last_ns = None;
    }

    /// Nanoseconds by reason. `None`: no time was measured, as by a single reading.
    pub(crate) fn ns(&self) -> Option<&BTreeMap<String, u64>> {
        (self.measured_ns > 0).then_some(&self.ns)
    }

    /// The measured time, seconds. `None`: there is none, as of a single reading.
    pub(crate) fn measured_s(&self) -> Option<f64> {
        (self.measured_ns > 0).then(|| seconds(self.measured_ns))
    }

    /// The mean clock of the processors while a reason applied, MHz. `None`: not known.
    pub(crate) fn clock_mhz(&self, reason: &str) -> Option<f64> {
        self.clocks_mhz.get(reason).and_then(StretchMeter::mean)
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

    #[test]
    fn time_in_which_a_reading_failed_is_in_no_mean() {
        let mut power = Gauge::new(0, 100.0);
        power.add(S, 100.0);
        power.interrupt();
        power.add(4 * S, 500.0);
        power.add(5 * S, 500.0);
        assert_eq!((power.integrated(), power.span_s(), power.mean()), (Some(600.0), Some(2.0), 300.0));
        let mut once = Gauge::new(0, 100.0);
        once.interrupt();
        once.add(S, 200.0);
        assert_eq!((once.integrated(), once.span_s(), once.mean()), (None, None, 200.0));
        let mut throttle = ThrottleTimes::default();
        let capped = [Cow::Borrowed("cap")];
        throttle.add(0, &capped, None);
        throttle.add(S, &capped, None);
        throttle.interrupt();
        throttle.add(4 * S, &capped, None);
        throttle.add(5 * S, &capped, None);
        assert_eq!((throttle.ns().unwrap()["cap"], throttle.measured_s()), (2 * S, Some(2.0)));
    }

    const PCIE: CounterKind =
        CounterKind { most_per_s: 1e9, wrong_per_s: 1.5e9, lag_s: 0.0, may_wrap: true, until_ns: 0 };
    const ENERGY: CounterKind =
        CounterKind { most_per_s: 100.0, wrong_per_s: 2e3, lag_s: 1.0, may_wrap: false, until_ns: 0 };

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
        let fast = CounterKind { most_per_s: 5e9, wrong_per_s: 7.5e9, ..PCIE };
        assert_eq!(counter(fast, &[0.0, 704.0]).total(), None);
        // A reset, and a step back by one: no wrap of a link of 1 GB/s in a second.
        let reset = counter(PCIE, &[1e9, 1e9 + 5.0, 2.0]);
        let back = counter(PCIE, &[100.0, 99.0]);
        assert!(reset.is_wrong && back.is_wrong && (reset.total(), back.total()) == (None, None));
        // At 3 GB/s, read twice in the time in which it can wrap.
        let often = CounterKind { most_per_s: 3e9, wrong_per_s: 4.5e9, until_ns: 0, ..PCIE };
        let mut back = Counter::new(0, 2e8);
        back.add(S * 7 / 10, 1e8, often);
        assert_eq!(back.total(), None);
        // A counter of 64 bits that leaps or steps back is not believed, either.
        assert_eq!(counter(fast, &[5e9, 6e9, 1e13]).total(), None);
        assert_eq!(counter(fast, &[5e9, 6e9, 5.9e9]).total(), None);
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
    fn jump_that_no_rate_explains_is_not_counted() {
        let energy = counter(ENERGY, &[5e6, 5e6 + 50.0, 0.0, 5e6 + 150.0, 5e6 + 200.0]);
        assert_eq!((energy.total(), energy.restarts, energy.jumps), (Some(100.0), 1, 1));
        let energy = counter(ENERGY, &[5e6, 9e9, 5e6 + 100.0, 5e6 + 150.0]);
        assert_eq!((energy.total(), energy.steps_back, energy.jumps), (Some(50.0), 1, 1));
    }

    #[test]
    fn step_back_keeps_the_larger_reading() {
        let energy = counter(ENERGY, &[3e9, 3e9 + 1.0, 3e9 + 0.5, 3e9 + 2.0, 3e9 + 1.5]);
        assert_eq!((energy.total(), energy.restarts, energy.steps_back), (Some(2.0), 0, 2));
    }

    #[test]
    fn mean_of_stretches_is_weighted_by_their_lengths() {
        let mut rate = StretchMeter::default();
        assert_eq!((rate.mean(), rate.integrated()), (None, None));
        rate.add(0, 9e9);
        rate.add(1_000_000, 3e9);
        rate.add(3_000_000, 1e9);
        assert_eq!((rate.max, rate.mean(), rate.integrated()), (3e9, Some(1.5e9), Some(6e9)));
        assert_eq!(rate.measured_s(), 4.0);
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
        let mut seldom = BusyMeter::default();
        seldom.add_idle(3_000_000);
        assert_eq!((seldom.max, seldom.mean()), (None, None));
        seldom.add(Busy { us: 1_000_000, percent: 60.0 });
        assert_eq!((seldom.max, seldom.mean()), (Some(60.0), Some(15.0)));
    }
}

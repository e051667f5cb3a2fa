//! Single figures over time: gauges, counters that can wrap or restart, and busy time.

use serde::{Deserialize, Serialize};

use crate::model::gpu::Busy;

/// A value that goes up and down.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Gauge {
    /// Smallest reading.
    pub min: f64,
    /// Largest reading.
    pub max: f64,
    /// Value times seconds, the readings joined by straight lines.
    integral: f64,
    last: (u64, f64),
    first_ns: u64,
}

impl Gauge {
    /// A first reading.
    pub(crate) fn new(at_ns: u64, value: f64) -> Self {
        Self { min: value, max: value, integral: 0.0, last: (at_ns, value), first_ns: at_ns }
    }

    /// Another reading.
    pub(crate) fn add(&mut self, at_ns: u64, value: f64) {
        let (before_ns, before) = self.last;
        self.integral += (before + value) / 2.0 * seconds(at_ns.saturating_sub(before_ns));
        self.min = self.min.min(value);
        self.max = self.max.max(value);
        self.last = (at_ns, value);
    }

    /// Value times seconds; `None` of a single reading.
    pub(crate) fn integrated(&self) -> Option<f64> {
        (self.last.0 > self.first_ns).then_some(self.integral)
    }

    /// Mean over time; of a single reading, its value.
    pub(crate) fn mean(&self) -> f64 {
        let length = seconds(self.last.0.saturating_sub(self.first_ns));
        // Rounding must not lead beyond the smallest and largest reading.
        if length > 0.0 { (self.integral / length).clamp(self.min, self.max) } else { self.last.1 }
    }
}

/// A counter that only goes up, until it wraps or the driver restarts it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Counter {
    /// The count since the first reading.
    pub total: f64,
    /// How often it restarted at zero; what it had counted since the reading before is lost.
    pub restarts: u64,
    /// It was read more than once: a single reading gives no difference.
    pub has_counted: bool,
    last: f64,
}

/// Counters of 32 bits wrap here.
const WRAP: f64 = 4_294_967_296.0;

impl Counter {
    /// A first reading.
    pub(crate) fn new(value: f64) -> Self {
        Self { total: 0.0, restarts: 0, has_counted: false, last: value }
    }

    /// Another reading. A counter that went down has wrapped if it `wraps` and was below 2^32. Any other restarted, and its
    /// value is what it counted since.
    pub(crate) fn add(&mut self, value: f64, wraps: bool) {
        if value >= self.last {
            self.total += value - self.last;
        } else if wraps && self.last < WRAP {
            self.total += value + WRAP - self.last;
        } else {
            self.total += value;
            self.restarts += 1;
        }
        self.last = value;
        self.has_counted = true;
    }
}

/// Busy time: the sum over stretches of time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct BusyMeter {
    /// The largest of any stretch, percent.
    pub max: Option<f64>,
    /// Percent times microseconds.
    busy: f64,
    covered_us: f64,
}

impl BusyMeter {
    /// Take in a stretch. One of more than 100 percent is of a counter that catches up with the stretches before: only the
    /// maximum is bounded.
    pub(crate) fn add(&mut self, busy: Busy) {
        let percent = busy.percent.clamp(0.0, 100.0);
        self.max = Some(self.max.map_or(percent, |max| max.max(percent)));
        self.busy += busy.percent.max(0.0) * busy.us as f64;
        self.covered_us += busy.us as f64;
    }

    /// Mean over the reported time, percent.
    pub(crate) fn mean(&self) -> Option<f64> {
        if self.covered_us > 0.0 { Some((self.busy / self.covered_us).min(100.0)) } else { self.max }
    }

    /// Time busy, seconds; `None` if all stretches have no length.
    pub(crate) fn active_s(&self) -> Option<f64> {
        (self.covered_us > 0.0).then_some(self.busy.min(self.covered_us * 100.0) / 1e8)
    }
}

/// The driver's last report, which holds for as long as the stretch that it covers. Drivers update each device at times
/// of its own, so most readings bring nothing new of some devices.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Latest<T> {
    value: T,
    until_ns: u64,
}

impl<T: Copy + Default> Latest<T> {
    /// Reported at this time, for a stretch of so many microseconds. It holds at this time in any case.
    pub(crate) fn new(at_ns: u64, us: u64, value: T) -> Self {
        Self { value, until_ns: at_ns.saturating_add(us.saturating_mul(1000).max(1)) }
    }

    /// The value at this time: zero, once the stretch is over.
    pub(crate) fn at(&self, at_ns: u64) -> T {
        if at_ns < self.until_ns { self.value } else { T::default() }
    }
}

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
    fn decreasing_counter_wraps_or_restarts() {
        let mut pcie = Counter::new(4_294_967_000.0);
        pcie.add(704.0, true);
        assert_eq!((pcie.total, pcie.restarts), (1000.0, 0));
        let mut energy = Counter::new(1000.0);
        energy.add(1500.0, false);
        energy.add(200.0, false);
        energy.add(300.0, false);
        assert_eq!((energy.total, energy.restarts), (800.0, 1));
        let mut wide = Counter::new(9e12);
        wide.add(5.0, true);
        assert_eq!((wide.total, wide.restarts), (5.0, 1), "beyond 32 bits it can't be a wrap of 32 bits");
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

//! One reading of one device.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use super::figure::{Figure, Missing, Reading};

/// Utilisation over a stretch of time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Busy {
    /// Length, microseconds.
    pub us: u64,
    /// Mean over it, 0 to 100.
    pub percent: f64,
}

/// What the hardware's performance counters show over a stretch of time.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Activity {
    /// Length, microseconds; 0: there is no earlier reading to compare with.
    pub us: u64,
    /// Means over it, of the figures of performance counters ([`Figure::is_of_gpm`]).
    pub values: Vec<(Figure, Reading<f64>)>,
}

/// A process that a driver lists on a device.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProcessMemory {
    /// Its pid as the driver has it.
    pub pid: u32,
    /// Its memory there, bytes.
    pub bytes: Reading<u64>,
    /// What it does there, by the lists that have it.
    #[serde(default)]
    pub work: Work,
}

/// What a process does on a device.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Work {
    /// The driver does not say.
    #[default]
    Unknown,
    /// It computes.
    Compute,
    /// It draws.
    Graphics,
    /// It does both.
    Both,
}

impl Work {
    /// Joins what two lists say.
    pub fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Unknown, known) | (known, Self::Unknown) => known,
            (a, b) if a == b => a,
            _ => Self::Both,
        }
    }
}

/// Utilisation of a device by one process.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ProcessBusy {
    /// Its pid as the driver has it.
    pub pid: u32,
    /// How much, and over how long.
    pub busy: Busy,
    /// The process was not read before, so the driver's counter has no earlier value. Then `busy` is its busy time since its start, at
    /// 100 percent.
    pub is_from_start: bool,
}

impl ProcessBusy {
    /// The utilisation, and the length of the time that it is of. Busy time since the process's start becomes the mean
    /// from `start_ns` to the reading at `at_ns`, both CLOCK_MONOTONIC.
    ///
    /// `None`: the counter has more busy time than the process can have had, so it also counted before the process started. The counter is
    /// read up to `slack_ns` after `at_ns`, so it may be ahead by that much.
    pub fn stretch(&self, start_ns: u64, at_ns: u64, slack_ns: u64) -> Option<Busy> {
        if !self.is_from_start {
            return Some(self.busy);
        }
        let us = at_ns.saturating_sub(start_ns) / 1000;
        if self.busy.us > us.saturating_add(slack_ns / 1000) {
            return None;
        }
        let busy_us = self.busy.us.min(us);
        let percent = if us == 0 { 0.0 } else { busy_us as f64 * self.busy.percent / us as f64 };
        Some(Busy { us, percent })
    }
}

/// What a driver in accounting mode recorded of one process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccountingEntry {
    /// Its pid as the driver has it.
    pub pid: u32,
    /// When it began to use the device, microseconds since the epoch.
    pub started_us: u64,
    /// Whether it still runs: the figures are final only after it.
    pub is_running: bool,
    /// Its largest memory, bytes.
    pub peak_bytes: Option<u64>,
    /// Its mean utilisation, percent.
    pub utilization_percent: Option<u32>,
}

/// A reading of one device. Figures that it did not read are absent: a backend may read each figure at a rate of its own.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct DeviceSample {
    /// [`Device::id`](super::Device::id).
    pub device: String,
    /// When the reading began, CLOCK_MONOTONIC nanoseconds; 0: with its batch.
    pub at_ns: u64,
    /// The device fell off the bus ([`Missing::Lost`]), or its driver no longer has it.
    pub is_lost: bool,
    /// Single values: gauges and counters.
    pub values: Vec<(Figure, Reading<f64>)>,
    /// Utilisation since the sample before.
    pub busy: Option<Reading<Vec<Busy>>>,
    /// Time before `busy` of which the driver no longer knows the utilisation, microseconds: it keeps few samples.
    pub busy_lost_us: u64,
    /// What the performance counters show since the sample before. `None`: they were not read.
    pub activity: Option<Reading<Activity>>,
    /// How far apart the driver's own samples of utilisation are, microseconds. 0: each reading makes one.
    pub busy_every_us: u64,
    /// The driver's own rate of the device at this moment, percent: what `nvidia-smi` shows.
    pub rate_percent: Option<Reading<f64>>,
    /// When the PCIe bytes had been read, CLOCK_MONOTONIC nanoseconds; 0: at the time of the whole reading. How long two
    /// readings are apart decides whether the counters may have wrapped.
    pub counted_ns: u64,
    /// The most that the PCIe link carries one way, bytes a second; `None`: not known.
    pub link_bytes_per_s: Option<u64>,
    /// Names of the throttle reasons that hold now.
    pub throttle: Option<Reading<Vec<Cow<'static, str>>>>,
    /// The same as the driver's bits, with those that have no name here. `None`: not read, or the driver has no bits.
    pub throttle_bits: Option<u64>,
    /// Critical errors since the sample before, by number.
    pub xids: Option<Reading<Vec<u64>>>,
    /// CLOCK_MONOTONIC after `processes` was read, nanoseconds; 0: at the time of the whole reading. Reading many devices
    /// takes long enough for processes to start and end in between.
    pub listed_ns: u64,
    /// The processes with memory on it.
    pub processes: Option<Reading<Vec<ProcessMemory>>>,
    /// The processes that ran on it since the sample before.
    pub process_busy: Option<Reading<Vec<ProcessBusy>>>,
    /// The length of the time that `process_busy` is about, microseconds. A process did nothing in the part of it that none of its
    /// entries covers. 0: that is not known.
    pub process_busy_us: u64,
    /// The driver's accounting entries.
    pub accounting: Option<Reading<Vec<AccountingEntry>>>,
}

impl DeviceSample {
    /// A sample without figures, of the device with this id.
    pub fn of_device(id: &str) -> Self {
        Self { device: id.to_owned(), ..Self::default() }
    }

    /// A sample without figures, of a device that fell off the bus ([`Missing::Lost`]) or that its driver no longer has.
    pub fn lost(id: &str) -> Self {
        Self { is_lost: true, ..Self::of_device(id) }
    }

    /// Merges this reading with an earlier one of the device: a figure that this one lacks is taken from the earlier one. All times are
    /// this reading's. A device that was lost is back if this reading has a figure.
    pub fn over_earlier(mut self, earlier: Self) -> Self {
        let is_lost = self.is_lost || (earlier.is_lost && !self.has_figures());
        for (figure, value) in earlier.values {
            if self.values.iter().all(|(known, _)| *known != figure) {
                self.values.push((figure, value));
            }
        }
        // The bits are those of the same reading.
        let throttle_bits = if self.throttle.is_some() { self.throttle_bits } else { earlier.throttle_bits };
        Self {
            busy: self.busy.or(earlier.busy),
            throttle: self.throttle.or(earlier.throttle),
            throttle_bits,
            xids: self.xids.or(earlier.xids),
            processes: self.processes.or(earlier.processes),
            process_busy: self.process_busy.or(earlier.process_busy),
            rate_percent: self.rate_percent.or(earlier.rate_percent),
            activity: self.activity.or(earlier.activity),
            accounting: self.accounting.or(earlier.accounting),
            is_lost,
            ..self
        }
    }

    /// Whether a figure could not be read because the device is lost.
    pub fn is_any_lost(&self) -> bool {
        self.values.iter().any(|(_, value)| *value == Err(Missing::Lost))
            || self.busy == Some(Err(Missing::Lost))
            || self.processes == Some(Err(Missing::Lost))
            || self.activity == Some(Err(Missing::Lost))
    }

    /// Whether any figure was read besides critical errors. Errors alone do not show that a lost device is back.
    pub fn has_figures(&self) -> bool {
        !self.values.is_empty()
            || self.busy.is_some()
            || self.throttle.is_some()
            || self.processes.is_some()
            || self.process_busy.is_some()
            || self.activity.is_some()
            || self.accounting.is_some()
    }

    /// Every pid that the driver names in this reading, in any of its lists.
    pub fn pids(&self) -> impl Iterator<Item = u32> {
        let listed = self.processes.iter().flatten().flatten().map(|process| process.pid);
        let busy = self.process_busy.iter().flatten().flatten().map(|process| process.pid);
        let accounted = self.accounting.iter().flatten().flatten().map(|entry| entry.pid);
        listed.chain(busy).chain(accounted)
    }

    /// Whether the device reports a figure (`Ok`), or why not, for each of [`Figure::entries`].
    /// Figures that are read on request alone are left out.
    pub fn capabilities(&self) -> Vec<(Figure, Reading<()>)> {
        fn without_value<T>(reading: &Reading<T>) -> Reading<()> {
            reading.as_ref().map(|_| ()).map_err(Clone::clone)
        }
        let capability = |figure: Figure| {
            let reading = match figure {
                Figure::Utilization => self.busy.as_ref().map(without_value),
                Figure::Throttle => self.throttle.as_ref().map(without_value),
                Figure::Xid => self.xids.as_ref().map(without_value),
                Figure::ProcessMemory => self.processes.as_ref().map(without_value),
                Figure::ProcessUtilization => self.process_busy.as_ref().map(without_value),
                Figure::Accounting => self.accounting.as_ref().map(without_value),
                _ if figure.is_of_gpm() => self.activity.as_ref().map(|activity| {
                    let activity = activity.as_ref().map_err(Clone::clone)?;
                    let known = activity.values.iter().find(|(other, _)| *other == figure);
                    known.map_or(Ok(()), |(_, value)| without_value(value))
                }),
                _ => {
                    let known = self.values.iter().find(|(other, _)| *other == figure);
                    known.map(|(_, value)| without_value(value))
                }
            };
            reading.unwrap_or(Err(Missing::NotSupported))
        };
        let mut all = Figure::entries(capability);
        all.retain(|(figure, _)| !figure.is_on_request());
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_reading_of_a_figure_counts_and_a_lost_device_comes_back_with_one() {
        let reading = |values: &[(Figure, f64)]| DeviceSample {
            values: values.iter().map(|(figure, value)| (*figure, Ok(*value))).collect(),
            ..DeviceSample::of_device("GPU-1")
        };
        let of_both = reading(&[(Figure::Power, 2.0)])
            .over_earlier(reading(&[(Figure::Power, 1.0), (Figure::Temperature, 40.0)]));
        assert_eq!(of_both, reading(&[(Figure::Power, 2.0), (Figure::Temperature, 40.0)]));
        let throttled = DeviceSample {
            throttle: Some(Ok(Vec::new())),
            throttle_bits: Some(4),
            ..DeviceSample::of_device("GPU-1")
        };
        let refused = DeviceSample { throttle: Some(Err(Missing::NoPermission)), ..of_both.clone() };
        assert_eq!(of_both.clone().over_earlier(throttled.clone()).throttle_bits, Some(4));
        assert_eq!(refused.over_earlier(throttled).throttle_bits, None);
        let with_errors = DeviceSample { xids: Some(Ok(vec![79])), ..DeviceSample::of_device("GPU-1") };
        let lost = with_errors.over_earlier(DeviceSample::lost("GPU-1"));
        assert!(lost.is_lost && !of_both.over_earlier(lost).is_lost);
    }
}

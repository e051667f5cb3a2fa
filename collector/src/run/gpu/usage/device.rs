//! One device over the run.

use std::collections::{BTreeMap, HashMap, VecDeque};

use serde::{Deserialize, Serialize};

use super::groups::GroupMemory;
use super::meters::{BusyMeter, Counter, CounterKind, Gauge, Latest};
use crate::model::gpu::{Device, DeviceSample, Figure, Missing, Reading};
use crate::run::gpu::policy::POLICY;

/// A device at its last reading.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Now {
    /// The largest utilisation, percent.
    pub busy: Latest<f64>,
    /// The same of the run's processes (main, descendants, both).
    pub process_busy: Latest<[f64; 3]>,
    /// Memory in use by all processes of the machine, bytes.
    pub used_bytes: Option<u64>,
    /// Memory of the run's processes.
    pub memory: Option<GroupMemory>,
}

/// A time during which a figure could not be read.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Gap {
    /// Why, by the latest failure.
    pub reason: Missing,
    /// For how long in all, from the first failed reading to the first that succeeded, nanoseconds.
    pub ns: u64,
    /// Since when it can't be read now, CLOCK_MONOTONIC nanoseconds.
    since_ns: Option<u64>,
    /// Most memory in use on the device meanwhile by all processes of the machine, bytes.
    pub used_bytes: Option<u64>,
}

/// When the process lists were read.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct ListReadings {
    /// How often.
    pub count: u64,
    /// Longest time between two, nanoseconds.
    pub longest_ns: u64,
    first_ns: u64,
    last_ns: u64,
    /// The latest times, CLOCK_MONOTONIC nanoseconds; ascending.
    #[serde(skip)]
    times: VecDeque<u64>,
}

impl ListReadings {
    fn add(&mut self, at_ns: u64) {
        if self.count == 0 {
            self.first_ns = at_ns;
        } else {
            self.longest_ns = self.longest_ns.max(at_ns.saturating_sub(self.last_ns));
        }
        (self.count, self.last_ns) = (self.count + 1, at_ns);
        self.times.push_back(at_ns);
        let is_old = |at: &u64| at.saturating_add(POLICY.times_kept_ns) < at_ns;
        while self.times.front().is_some_and(is_old) {
            self.times.pop_front();
        }
    }

    /// Mean time between two, nanoseconds.
    pub(crate) fn mean_ns(&self) -> Option<f64> {
        let times = self.count.checked_sub(1).filter(|times| *times > 0)?;
        Some(self.last_ns.saturating_sub(self.first_ns) as f64 / times as f64)
    }

    /// Whether there was one in this time, of which the end is not long ago.
    fn is_any_within(&self, from_ns: u64, to_ns: u64) -> bool {
        let next = self.times.partition_point(|at| *at < from_ns);
        self.times.get(next).is_some_and(|at| *at <= to_ns)
    }
}

/// What a device did over the run.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct DeviceUsage {
    /// The device.
    pub device: Device,
    /// Whether the command's environment names it; `None`: it names none.
    pub is_visible: Option<bool>,
    /// It is part of a device that is tracked itself.
    pub is_part: bool,
    /// Gauges.
    pub gauges: BTreeMap<Figure, Gauge>,
    /// Counters.
    pub counters: BTreeMap<Figure, Counter>,
    /// Its utilisation.
    pub busy: BusyMeter,
    /// Nanoseconds in each throttle reason.
    pub throttle_ns: BTreeMap<String, u64>,
    /// When those were read first and last, CLOCK_MONOTONIC nanoseconds.
    throttle_read_ns: Option<(u64, u64)>,
    /// Critical errors by number, and how often.
    pub xids: BTreeMap<u64, u64>,
    /// Why a figure was not known when it was last read.
    pub missing: BTreeMap<Figure, Missing>,
    /// Figures that were known at any time.
    pub known: Vec<Figure>,
    /// Times during which figures could not be read.
    pub gaps: BTreeMap<Figure, Gap>,
    /// When its process lists were read.
    pub lists: ListReadings,
    /// When it was lost first, CLOCK_MONOTONIC nanoseconds.
    pub lost_at_ns: Option<u64>,
    /// It was lost, and answered again later.
    pub is_back: bool,
    /// Largest memory of the run's processes on it.
    pub max: GroupMemory,
    /// Whether any process of the run was ever seen on it.
    pub is_used: bool,
    /// An accounting entry reported memory of a process of the run, whether or not the process list did.
    pub has_accounting: bool,
    /// The driver listed a process of the run (main, a descendant) without its memory.
    pub has_unreported: [bool; 2],
    /// When the driver first listed a process of the run by a known pid, CLOCK_MONOTONIC nanoseconds.
    used_since_ns: Option<u64>,
    /// The driver listed a pid of another namespace, which may be a process of the run.
    pub(super) has_foreign: bool,
    /// The driver reported the utilisation of any process.
    pub(super) has_process_samples: bool,
    /// The driver reported the utilisation of a process of the run.
    pub has_samples_of_run: bool,
    /// The last reading.
    pub(super) now: Now,
    /// When it was read last, CLOCK_MONOTONIC nanoseconds; 0: never.
    last_ns: u64,
    /// Since when an entry of the driver's list has been unchanged, and its bytes, by pid.
    #[serde(skip)]
    streaks: HashMap<u32, (u64, Option<u64>)>,
}

impl DeviceUsage {
    pub(super) fn new(device: Device, is_visible: Option<bool>) -> Self {
        Self { device, is_visible, ..Self::default() }
    }

    /// Whether a figure was ever known.
    pub(crate) fn knows(&self, figure: Figure) -> bool {
        self.known.contains(&figure)
    }

    /// Whether the driver ever listed a process of the run by a known pid.
    pub(super) fn was_ever_resolved(&self) -> bool {
        self.used_since_ns.is_some()
    }

    /// For how long the driver has listed processes of the run, up to the last reading.
    fn used_ns(&self) -> Option<u64> {
        self.used_since_ns.map(|since_ns| self.last_ns.saturating_sub(since_ns))
    }

    /// A process of the run was seen on it at this time.
    pub(super) fn note_use(&mut self, at_ns: u64) {
        self.is_used = true;
        self.used_since_ns.get_or_insert(at_ns);
    }

    /// Why the utilisation by the run's processes is not known, although the driver has a call for it.
    pub(crate) fn process_utilization_gap(&self) -> Option<Missing> {
        let interval_ns = POLICY.process_sample_interval_ns;
        let is_foreign = self.missing.get(&Figure::ProcessMemory) == Some(&Missing::ForeignPids);
        let was_busy = self.busy.active_s().is_some_and(|s| s * 1e9 >= interval_ns as f64);
        match (self.has_process_samples, self.has_samples_of_run) {
            // Drivers report no samples of a process that is idle. That is known only after an interval, and only if the
            // device was idle too.
            (false, _) if self.used_ns().is_some_and(|ns| ns < interval_ns || was_busy) => {
                Some(Missing::NoSample)
            }
            (_, false) if is_foreign => Some(Missing::ForeignPids),
            _ => None,
        }
    }

    /// Take in a reading, all but the processes.
    pub(super) fn add(&mut self, at_ns: u64, sample: &DeviceSample) {
        // The XID that explains a loss comes before it, or in the same reading.
        if let Some(xids) = sample.xids.as_ref().and_then(|xids| self.note(at_ns, Figure::Xid, xids)) {
            for xid in xids {
                *self.xids.entry(*xid).or_default() += 1;
            }
        }
        if sample.is_lost {
            self.lost_at_ns.get_or_insert(at_ns);
            self.is_back = false;
            self.now = Now::default();
            return;
        }
        if !sample.has_figures() {
            return;
        }
        self.is_back = self.lost_at_ns.is_some();
        for (figure, reading) in &sample.values {
            self.add_value(at_ns, *figure, reading, sample);
        }
        self.add_busy(at_ns, sample);
        if let Some(reasons) =
            sample.throttle.as_ref().and_then(|reading| self.note(at_ns, Figure::Throttle, reading))
        {
            // A reason is counted from the reading before on.
            let (first_ns, last_ns) = self.throttle_read_ns.unwrap_or((at_ns, at_ns));
            for reason in reasons {
                *self.throttle_ns.entry(reason.clone().into_owned()).or_default() +=
                    at_ns.saturating_sub(last_ns);
            }
            self.throttle_read_ns = Some((first_ns, at_ns));
        }
        self.last_ns = at_ns;
    }

    fn add_value(&mut self, at_ns: u64, figure: Figure, reading: &Reading<f64>, sample: &DeviceSample) {
        if figure == Figure::MemoryUsed {
            self.now.used_bytes = reading.as_ref().ok().map(|value| *value as u64);
            let open = self.gaps.values_mut().filter(|gap| gap.since_ns.is_some());
            open.for_each(|gap| gap.used_bytes = gap.used_bytes.max(self.now.used_bytes));
        }
        let Some(value) = self.note(at_ns, figure, reading).copied() else { return };
        let most_per_s = match figure {
            Figure::Energy => self.gauges.get(&Figure::Power).map_or(POLICY.most_w, |power| power.max),
            Figure::PcieTx | Figure::PcieRx => {
                sample.link_bytes_per_s.unwrap_or(POLICY.fastest_link_bytes_per_s) as f64
            }
            Figure::EccCorrected | Figure::EccUncorrected => f64::MAX,
            _ => {
                let gauge = self.gauges.entry(figure);
                gauge.and_modify(|g| g.add(at_ns, value)).or_insert_with(|| Gauge::new(at_ns, value));
                return;
            }
        };
        let may_wrap = matches!(figure, Figure::PcieTx | Figure::PcieRx);
        let until_ns = if may_wrap { sample.counted_ns.max(at_ns) } else { at_ns };
        let kind = CounterKind { most_per_s, may_wrap, until_ns };
        let counter = self.counters.entry(figure);
        counter
            .and_modify(|counter| counter.add(at_ns, value, kind))
            .or_insert_with(|| Counter::new(at_ns, value));
    }

    fn add_busy(&mut self, at_ns: u64, sample: &DeviceSample) {
        let reading = sample.busy.as_ref();
        let Some(spans) = reading.and_then(|reading| self.note(at_ns, Figure::Utilization, reading)) else {
            return;
        };
        self.busy.lose(sample.busy_lost_us);
        let mut largest = 0.0_f64;
        for span in spans {
            self.busy.add(*span);
            largest = largest.max(span.percent.clamp(0.0, 100.0));
        }
        if let Some(last) = spans.last() {
            self.now.busy = Latest::new(at_ns, last.us, largest);
        }
    }

    /// The process lists were read.
    pub(super) fn note_lists(&mut self, at_ns: u64) {
        self.lists.add(at_ns);
    }

    /// Whether the lists were read while a process lived. `None`: they are never read, or no process of the run is expected
    /// on this device.
    pub(super) fn was_listed_within(&self, from_ns: u64, to_ns: u64) -> Option<bool> {
        let counts = self.lists.count > 0 && self.is_visible != Some(false);
        counts.then(|| self.lists.is_any_within(from_ns, to_ns))
    }

    /// Whether any reading had more than its loss.
    pub(crate) fn was_read(&self) -> bool {
        self.last_ns != 0
    }

    /// Whether throttle reasons were read more than once, so that times are known.
    pub(crate) fn has_throttle_times(&self) -> bool {
        self.throttle_read_ns.is_some_and(|(first_ns, last_ns)| last_ns > first_ns)
    }

    /// For how long a figure could not be read, up to the last reading, nanoseconds.
    pub(crate) fn gap_ns(&self, gap: &Gap) -> u64 {
        gap.ns + gap.since_ns.map_or(0, |since_ns| self.last_ns.saturating_sub(since_ns))
    }

    /// Note whether a figure is known, and if not, why.
    pub(super) fn note<'a, T>(
        &mut self,
        at_ns: u64,
        figure: Figure,
        reading: &'a Reading<T>,
    ) -> Option<&'a T> {
        match reading {
            Ok(value) => {
                if !self.known.contains(&figure) {
                    self.known.push(figure);
                }
                self.missing.remove(&figure);
                if let Some(gap) = self.gaps.get_mut(&figure)
                    && let Some(since_ns) = gap.since_ns.take()
                {
                    gap.ns += at_ns.saturating_sub(since_ns);
                }
                Some(value)
            }
            Err(missing) => {
                self.missing.insert(figure, missing.clone());
                let new = || Gap { reason: missing.clone(), ns: 0, since_ns: None, used_bytes: None };
                let gap = self.gaps.entry(figure).or_insert_with(new);
                gap.reason.clone_from(missing);
                if gap.since_ns.is_none() {
                    (gap.since_ns, gap.used_bytes) = (Some(at_ns), gap.used_bytes.max(self.now.used_bytes));
                }
                None
            }
        }
    }

    /// Since when the driver has listed this pid with this memory; to be called once a reading.
    pub(super) fn listed_since(&mut self, at_ns: u64, pid: u32, bytes: Option<u64>) -> u64 {
        let streak = self.streaks.entry(pid).or_insert((at_ns, bytes));
        if streak.1 != bytes {
            *streak = (at_ns, bytes);
        }
        streak.0
    }

    /// Forget the pids that the driver no longer lists.
    pub(super) fn keep_listed(&mut self, is_listed: impl Fn(u32) -> bool) {
        self.streaks.retain(|pid, _| is_listed(*pid));
    }
}

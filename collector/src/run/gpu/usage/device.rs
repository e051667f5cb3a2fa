//! One device over the run.

use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize};

use super::groups::GroupMemory;
use super::meters::{BusyMeter, Counter, Gauge, Latest};
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
    /// Critical errors by number, and how often.
    pub xids: BTreeMap<u64, u64>,
    /// Why a figure was not known when it was last read.
    pub missing: BTreeMap<Figure, Missing>,
    /// Figures that were known at any time.
    pub known: Vec<Figure>,
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
    /// The driver listed a process of the run without its memory.
    pub has_unreported: bool,
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
    /// When it was read first and last, CLOCK_MONOTONIC nanoseconds; 0: never.
    first_ns: u64,
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
        // The XID that explains a loss comes in the same reading.
        if let Some(xids) = sample.xids.as_ref().and_then(|reading| self.note(Figure::Xid, reading)) {
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
        self.is_back = self.lost_at_ns.is_some();
        self.now.used_bytes = None;
        for (figure, reading) in &sample.values {
            let Some(value) = self.note(*figure, reading).copied() else { continue };
            match figure {
                Figure::Energy | Figure::EccCorrected | Figure::EccUncorrected => {
                    self.count(*figure, value, false)
                }
                Figure::PcieTx | Figure::PcieRx => self.count(*figure, value, true),
                _ => {
                    let gauge = self.gauges.entry(*figure);
                    gauge.and_modify(|g| g.add(at_ns, value)).or_insert_with(|| Gauge::new(at_ns, value));
                }
            }
            if *figure == Figure::MemoryUsed {
                self.now.used_bytes = Some(value as u64);
            }
        }
        if let Some(spans) = sample.busy.as_ref().and_then(|reading| self.note(Figure::Utilization, reading))
        {
            let mut largest = 0.0_f64;
            for span in spans {
                self.busy.add(*span);
                largest = largest.max(span.percent.clamp(0.0, 100.0));
            }
            if let Some(last) = spans.last() {
                self.now.busy = Latest::new(at_ns, last.us, largest);
            }
        }
        if let Some(reasons) =
            sample.throttle.as_ref().and_then(|reading| self.note(Figure::Throttle, reading))
        {
            // A reason is counted from the reading before on.
            let since = if self.last_ns == 0 { at_ns } else { self.last_ns };
            for reason in reasons {
                *self.throttle_ns.entry(reason.clone().into_owned()).or_default() +=
                    at_ns.saturating_sub(since);
            }
        }
        self.last_ns = at_ns;
        self.first_ns = if self.first_ns == 0 { at_ns } else { self.first_ns };
    }

    /// Whether any reading had more than its loss.
    pub(crate) fn was_read(&self) -> bool {
        self.last_ns != 0
    }

    /// Whether it was read more than once, so that differences are known.
    pub(crate) fn has_span(&self) -> bool {
        self.last_ns > self.first_ns
    }

    fn count(&mut self, figure: Figure, value: f64, wraps: bool) {
        let counter = self.counters.entry(figure);
        counter.and_modify(|counter| counter.add(value, wraps)).or_insert_with(|| Counter::new(value));
    }

    /// Note whether a figure is known, and if not, why.
    pub(super) fn note<'a, T>(&mut self, figure: Figure, reading: &'a Reading<T>) -> Option<&'a T> {
        match reading {
            Ok(value) => {
                if !self.known.contains(&figure) {
                    self.known.push(figure);
                }
                self.missing.remove(&figure);
                Some(value)
            }
            Err(missing) => {
                self.missing.insert(figure, missing.clone());
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

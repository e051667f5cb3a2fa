//! One device over the run.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::availability::{Availability, Gap};
use super::full_memory::FullMemory;
use super::gpu_processes::{BusyProcesses, GpuProcesses};
use super::maxima::Maxima;
use super::memory_steps::{MemoryList, MemorySteps};
use super::meters::{BusyMeter, Counter, CounterKind, Gauge, StretchMeter, ThrottleTimes};
use super::process_lists::ProcessLists;
use super::recent::RecentFigures;
use crate::model::gpu::{
    Activity, Busy, Device, DeviceSample, Figure, Missing, ProcessMemory, Reading, Vendor,
};
use crate::model::groups::Groups;
use crate::model::tree_sample::GpuSample;
use crate::run::gpu::pid_table::{PidEntry, PidResolver};
use crate::run::gpu::policy::GpuPolicy;

/// A reading of a device.
#[derive(Clone, Copy)]
pub(super) struct DeviceReading<'a> {
    /// The device's index in `GpuUsage::devices`.
    pub number: u32,
    /// When it began, CLOCK_MONOTONIC nanoseconds.
    pub at_ns: u64,
    pub sample: &'a DeviceSample,
    pub pids: PidResolver<'a>,
    /// For how long the device may be left unread before that counts as a gap, nanoseconds.
    pub most_unread_ns: u64,
}

/// The loss of a device: it fell off the bus, or its driver no longer lists it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Loss {
    /// When it was first lost, CLOCK_MONOTONIC nanoseconds.
    pub at_ns: u64,
    /// It has answered since it was last lost.
    pub is_back: bool,
}

/// What a driver reported of the run's processes on a device.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct RunOnDevice {
    /// The largest memory that they had together, bytes.
    pub max: Groups<u64>,
    /// A process of the run was seen on it.
    pub is_used: bool,
    /// The driver's accounting reported memory of a process of the run, whether or not a process list did.
    pub has_accounting: bool,
    /// The driver listed a process of the run without its memory.
    pub has_unreported: Groups<bool>,
    /// The driver's last list has a process of the run without its memory, so their sum is not known.
    #[serde(default)]
    pub lacks_memory: bool,
    /// The driver's last list has processes that are not of the run.
    has_others: bool,
    /// When the driver first listed a process of the run by a known pid, CLOCK_MONOTONIC nanoseconds.
    listed_since_ns: Option<u64>,
    /// The driver listed a pid of another pid namespace, which may be that of a process of the run.
    has_foreign: bool,
    /// The driver reported the utilisation of any process of the machine.
    has_any_samples: bool,
    /// The driver reported the utilisation of a pid of another pid namespace. Drivers up to 560 do so even where their lists have the
    /// pids of the reader's namespace (HAMi-core issue 112).
    has_foreign_samples: bool,
    /// The driver reported the utilisation of a process of the run.
    pub has_samples: bool,
}

impl RunOnDevice {
    /// Whether processes of the run were seen at work, of which the driver told no memory: a process that computes has some.
    pub(crate) fn lacks_memory_of_busy(&self) -> bool {
        self.is_used && self.listed_since_ns.is_none() && self.max == Groups::default()
    }
}

/// The memory of the run's processes by one list of the processes on a device.
#[derive(Default)]
struct ListSums {
    /// Sums over the run's processes, bytes.
    memory: Groups<u64>,
    /// Memory of each process that has figures of its own, by id, bytes. `None`: the list has the process without its memory.
    by_process: BTreeMap<u64, Option<u64>>,
    /// The start of each of these that began during the run, by id, CLOCK_MONOTONIC nanoseconds.
    starts: BTreeMap<u64, u64>,
    /// Ids of the processes whose memory at least one entry tells.
    with_memory: BTreeSet<u64>,
    /// Processes with an entry that lacks the memory in this list and in the one before. By id, with whether it is the main one.
    lacking_memory: BTreeMap<u64, bool>,
    /// A process is not of the run.
    has_others: bool,
}

impl ListSums {
    /// Adds an entry about a process: its memory in bytes, if the driver knows it. `was_listed`: the list before has the entry with
    /// the same memory. A process that lacks its memory for the first time may just have ended ([`Device::may_be_used`]).
    /// `is_kept`: the process has figures of its own.
    fn add(&mut self, process: &PidEntry, bytes: Option<u64>, was_listed: bool, is_kept: bool) {
        if bytes.is_some() {
            self.with_memory.insert(process.id);
        } else if was_listed {
            self.lacking_memory.insert(process.id, process.is_main);
        }
        self.memory.add(process.is_main, bytes.unwrap_or(0), u64::saturating_add);
        if is_kept {
            // The driver may list a process once for each of several thread ids.
            let held = self.by_process.entry(process.id).or_default();
            if let Some(bytes) = bytes {
                *held = Some(held.unwrap_or(0).saturating_add(bytes));
            }
            if !process.ran_before {
                self.starts.insert(process.id, process.start_ns);
            }
        }
    }

    /// The memory of all processes of the run, bytes. `None`: for one of them it is not known.
    fn whole(&self) -> Option<u64> {
        let is_known = self.unreported().next().is_none() && self.by_process.values().all(Option::is_some);
        is_known.then_some(self.memory.combined)
    }

    /// Iterates over the processes that lack their memory in all entries. An item is whether the process is the main one.
    fn unreported(&self) -> impl Iterator<Item = bool> {
        let lacking = self.lacking_memory.iter().filter(|(id, _)| !self.with_memory.contains(id));
        lacking.map(|(_, is_main)| *is_main)
    }
}

/// What a device did over the run.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct DeviceUsage {
    /// The device.
    pub device: Arc<Device>,
    /// Whether the command's environment names it; `None`: it names none.
    pub is_visible: Option<bool>,
    /// It is a part (a MIG instance, for example) of another device that is tracked, too.
    pub is_part: bool,
    /// Which figures are known, and why the others are not.
    pub figures: Availability,
    /// Figures that go up and down.
    pub gauges: BTreeMap<Figure, Gauge>,
    /// Figures that count.
    pub counters: BTreeMap<Figure, Counter>,
    /// Its utilisation.
    pub busy: BusyMeter,
    /// What its performance counters showed, by figure.
    #[serde(default)]
    pub activity: BTreeMap<Figure, StretchMeter>,
    /// Time in each throttle reason.
    pub throttle: ThrottleTimes,
    /// The driver's bits of its throttle reasons, by the last reading. `None`: not read, or it has none.
    throttle_bits: Option<u64>,
    /// When those were read, CLOCK_MONOTONIC nanoseconds.
    #[serde(default)]
    throttle_read_ns: u64,
    /// The most that its PCIe link carries one way, bytes a second. `None`: not known.
    pub link_bytes_per_s: Option<u64>,
    /// Critical errors by number, and how often.
    pub xids: BTreeMap<u64, u64>,
    /// When it was lost; `None`: it never was.
    pub loss: Option<Loss>,
    /// When the driver's lists of the processes on it were read.
    pub lists: ProcessLists,
    /// The run's processes on it.
    pub run: RunOnDevice,
    /// When it had no free memory last; `None`: it always had some, or is a part of a device.
    pub full: Option<FullMemory>,
    /// The steps of the memory of the run's processes.
    pub(super) steps: MemorySteps,
    /// Memory in use by all processes of the machine at the last reading, bytes. `None`: not known.
    used_bytes: Option<u64>,
    /// What became known since the open sample began.
    pub(super) recent: RecentFigures,
    /// When its figures were read last, CLOCK_MONOTONIC nanoseconds; 0: never.
    last_ns: u64,
}

impl DeviceUsage {
    /// Makes a device of which nothing has been read.
    pub(super) fn new(device: Device, is_visible: Option<bool>) -> Self {
        Self { device: Arc::new(device), is_visible, ..Self::default() }
    }

    /// Whether it has memory of its own, as an integrated GPU has not. Each of these shows that a GPU has some.
    pub(crate) fn has_memory(&self) -> bool {
        self.device.memory_bytes.is_some()
            || self.knows(Figure::MemoryUsed)
            || self.run.max.combined > 0
            || self.missing(Figure::MemoryUsed).is_some_and(|reason| *reason != Missing::NotSupported)
    }

    /// Whether its utilization could not be read so far, or is reported by its parts only.
    pub(super) fn lacks_busy(&self) -> bool {
        let reason = self.missing(Figure::Utilization);
        let may_come = self.knows(Figure::Utilization) || self.may_still_tell();
        self.busy.max.is_none() && reason.map_or(may_come, |reason| *reason != Missing::NotSupported)
    }

    /// Whether a figure without an answer can still come. NVML is asked for each figure, kind by kind, so it has not been asked yet. Other
    /// backends leave out what a device does not support.
    pub(super) fn may_still_tell(&self) -> bool {
        self.device.vendor == Some(Vendor::Nvidia) || !self.was_read()
    }

    /// Whether a figure was ever known.
    pub(crate) fn knows(&self, figure: Figure) -> bool {
        self.figures.known.contains(&figure)
    }

    /// Why a figure is not known by its last reading. `None`: it is known, or was never read.
    pub(crate) fn missing(&self, figure: Figure) -> Option<&Missing> {
        self.figures.missing.get(&figure)
    }

    /// The largest reading of a gauge, in the figure's unit. `None`: there was none.
    pub(crate) fn max(&self, figure: Figure) -> Option<f64> {
        self.gauges.get(&figure).map(|gauge| gauge.max)
    }

    /// The mean of a gauge over time, in the figure's unit. `None`: it was never read.
    pub(crate) fn mean(&self, figure: Figure) -> Option<f64> {
        self.gauges.get(&figure).map(Gauge::mean)
    }

    /// What a counter counted over the run, in the figure's unit. `None`: it is not known.
    pub(crate) fn counted(&self, figure: Figure) -> Option<f64> {
        self.counters.get(&figure).and_then(Counter::total)
    }

    /// The figures of the device for a sample: the largest that became known since the sample began, or else the last ones.
    /// A figure that was last read before `oldest_ns`, CLOCK_MONOTONIC nanoseconds, is too old to be known. The memory in use, a
    /// gauge here, has a field of its own there.
    pub(super) fn now(&self, oldest_ns: u64) -> GpuSample {
        let mut gauges = self.recent.gauges(oldest_ns);
        GpuSample {
            device: Arc::clone(&self.device),
            read_ns: self.last_ns,
            is_new: self.recent.is_any_new(),
            used_bytes: gauges.remove(&Figure::MemoryUsed).map(|bytes| bytes as u64),
            run_bytes: self.recent.run_bytes.get(oldest_ns).filter(|_| !self.run.lacks_memory),
            busy_percent: self.recent.busy_percent.get(oldest_ns),
            // What is alone on a device keeps it busy, whatever the driver tells of processes.
            run_busy_percent: self.recent.run_busy_percent.get(oldest_ns).filter(|_| self.run.has_others),
            throttle_bits: self.throttle_bits.filter(|_| self.throttle_read_ns >= oldest_ns),
            is_incomplete: self.is_incomplete(),
            gauges,
        }
    }

    /// Whether a kind of figures was not asked for yet. NVML's are read kind by kind; the others' come all at once.
    fn is_incomplete(&self) -> bool {
        // One figure of each kind that a log has.
        const OF_KINDS: [Figure; 3] = [Figure::Utilization, Figure::Power, Figure::Temperature];
        let is_unasked = |figure: &Figure| !self.knows(*figure) && self.missing(*figure).is_none();
        self.device.vendor == Some(Vendor::Nvidia) && OF_KINDS.iter().any(is_unasked)
    }

    /// Notes that it is not read for a while: until the next readings, its gauges and throttle reasons are unknown.
    pub(crate) fn interrupt(&mut self) {
        self.gauges.values_mut().for_each(Gauge::interrupt);
        self.throttle.interrupt();
    }

    /// Whether it was lost and did not come back.
    pub(crate) fn is_lost(&self) -> bool {
        self.loss.is_some_and(|loss| !loss.is_back)
    }

    /// Whether its figures were ever read.
    pub(crate) fn was_read(&self) -> bool {
        self.last_ns != 0
    }

    /// For how long a figure could not be read, up to the last reading, nanoseconds.
    pub(crate) fn gap_ns(&self, gap: &Gap) -> u64 {
        gap.ns(self.last_ns)
    }

    /// Whether the process lists were read from `from_ns` to `to_ns`, CLOCK_MONOTONIC nanoseconds. `None`: they were never read, or
    /// no process of the run is expected on this device.
    pub(super) fn was_listed_within(&self, from_ns: u64, to_ns: u64) -> Option<bool> {
        let is_expected = self.lists.read.count > 0 && self.is_visible != Some(false);
        is_expected.then(|| self.lists.were_read_within(from_ns, to_ns))
    }

    /// Why the utilisation by the run's processes is not known, although the driver has a call for it. `None`: the
    /// utilisation is known, as far as the driver's answers show.
    pub(crate) fn process_utilization_gap(&self) -> Option<Missing> {
        // The driver's last answer was a refusal, and no earlier one had samples.
        let refused = self.missing(Figure::ProcessUtilization).filter(|_| !self.run.has_any_samples);
        if refused.is_some() {
            return refused.cloned();
        }
        let interval_ns = GpuPolicy::PROCESS_SAMPLE_INTERVAL_NS;
        let listed_ns = self.run.listed_since_ns.map(|since_ns| self.last_ns.saturating_sub(since_ns));
        // Drivers report no samples of an idle process, so without any samples all processes may have been idle. That is sure only if
        // the device was busy for less than an interval, and a process of the run was listed for one. `listed_ns`: for how long it was
        // listed.
        let was_busy = self.busy.active_s().is_some_and(|s| s * 1e9 >= interval_ns as f64);
        let may_lack_samples = listed_ns.is_some_and(|ns| ns < interval_ns || was_busy);
        if !self.run.has_any_samples && may_lack_samples {
            return Some(Missing::NoSample);
        }
        // A sample with a pid of another namespace may be one of a process of the run.
        let is_foreign = self.missing(Figure::ProcessMemory) == Some(&Missing::ForeignPids)
            || (self.run.has_foreign_samples && listed_ns.is_some());
        (!self.run.has_samples && is_foreign).then_some(Missing::ForeignPids)
    }

    /// Takes in a reading: of the device, then of the run's processes on it. Adds to the figures of these processes, and to the
    /// maxima over all devices.
    pub(super) fn add(&mut self, reading: &DeviceReading, processes: &mut GpuProcesses, maxima: &mut Maxima) {
        self.add_figures(reading, maxima);
        self.add_memory(reading, processes, maxima);
        self.add_run_busy(reading, processes, maxima);
        self.add_accounting(reading, processes, maxima);
        // This reading may have opened gaps. They take in the memory in use as well.
        self.figures.note_used(self.used_bytes);
    }

    /// Takes in the figures of the device itself, and whether it is lost. If it is, its memory in use and its recent figures are
    /// not known any more.
    fn add_figures(&mut self, reading: &DeviceReading, maxima: &mut Maxima) {
        let DeviceReading { at_ns, sample, .. } = *reading;
        // XIDs (NVIDIA's error numbers) come first: one that explains a loss can come in the same reading as the loss.
        let xids = self.figures.note(at_ns, Figure::Xid, sample.xids.as_ref());
        for xid in xids.into_iter().flatten() {
            *self.xids.entry(*xid).or_default() += 1;
        }
        if sample.is_lost {
            self.loss.get_or_insert(Loss { at_ns, is_back: false }).is_back = false;
            self.used_bytes = None;
            self.run.lacks_memory = false;
            self.recent = RecentFigures::default();
            self.interrupt();
            self.steps.lose();
            maxima.note_loss(reading.number, at_ns);
            return;
        }
        if !sample.has_figures() {
            return;
        }
        if let Some(loss) = &mut self.loss {
            loss.is_back = true;
        }
        for (figure, value) in &sample.values {
            self.add_value(reading, *figure, value, maxima);
        }
        self.link_bytes_per_s = sample.link_bytes_per_s.or(self.link_bytes_per_s);
        self.add_busy(reading, maxima);
        self.add_activity(at_ns, sample.activity.as_ref());
        match self.figures.note(at_ns, Figure::Throttle, sample.throttle.as_ref()) {
            Some(reasons) => {
                self.throttle.add(at_ns, reasons, self.gauges.get(&Figure::SmClock).map(Gauge::last));
            }
            None if sample.throttle.is_some() => self.throttle.interrupt(),
            None => {}
        }
        if sample.throttle.is_some() {
            (self.throttle_bits, self.throttle_read_ns) = (sample.throttle_bits, at_ns);
        }
        self.last_ns = at_ns;
    }

    /// Takes in the value of a gauge or a counter, in the figure's unit, or why there is none. The memory in use also goes into the
    /// sum over all devices, and into the gaps of other figures. A part (MIG) is left out of the sum: its device's reading has it.
    fn add_value(
        &mut self,
        reading: &DeviceReading,
        figure: Figure,
        value: &Reading<f64>,
        maxima: &mut Maxima,
    ) {
        let DeviceReading { at_ns, .. } = *reading;
        if figure == Figure::MemoryUsed {
            self.used_bytes = value.as_ref().ok().map(|value| *value as u64);
            // Gaps that this reading closes below take in the memory in use before that.
            self.figures.note_used(self.used_bytes);
            if let Some(bytes) = self.used_bytes.filter(|_| !self.is_part) {
                maxima.add_used(reading.number, at_ns, bytes);
            }
        }
        let Some(value) = self.figures.note(at_ns, figure, Some(value)).copied() else {
            self.gauges.get_mut(&figure).into_iter().for_each(Gauge::interrupt);
            return;
        };
        if !figure.is_cumulative() {
            self.recent.add_gauge(figure, at_ns, value);
            let gauge = self.gauges.entry(figure);
            gauge.and_modify(|gauge| gauge.add(at_ns, value)).or_insert_with(|| Gauge::new(at_ns, value));
            return;
        }
        let kind = self.counter_kind(figure, reading);
        let counter = self.counters.entry(figure).and_modify(|counter| counter.add(at_ns, value, kind));
        counter.or_insert_with(|| Counter::new(at_ns, value));
    }

    /// How fast a counter can count at most, whether it can wrap, and until when this reading may have counted. Energy counts no
    /// faster than the largest power that was read. Only the counters of PCIe can have 32 bits; they had been read by `counted_ns`.
    fn counter_kind(&self, figure: Figure, reading: &DeviceReading) -> CounterKind {
        let DeviceReading { at_ns, sample, .. } = *reading;
        match figure {
            Figure::Energy => {
                // A sensor that says 0 says nothing.
                let read_w =
                    self.max(Figure::Power).filter(|watts| *watts > 0.0).unwrap_or(GpuPolicy::MOST_W);
                let any_w = read_w.max(GpuPolicy::MOST_W) * GpuPolicy::POWER_SLACK;
                let wrong_per_s = any_w.min(read_w * GpuPolicy::MOST_TIMES_READ);
                CounterKind { most_per_s: read_w, wrong_per_s, lag_s: 1.0, may_wrap: false, until_ns: at_ns }
            }
            Figure::PcieTx | Figure::PcieRx => {
                let link = sample.link_bytes_per_s.unwrap_or(GpuPolicy::FASTEST_LINK_BYTES_PER_S) as f64;
                let until_ns = sample.counted_ns.max(at_ns);
                let wrong_per_s = link * GpuPolicy::LINK_SLACK;
                CounterKind { most_per_s: link, wrong_per_s, lag_s: 0.0, may_wrap: true, until_ns }
            }
            _ => CounterKind {
                most_per_s: f64::MAX,
                wrong_per_s: f64::MAX,
                lag_s: 1.0,
                may_wrap: false,
                until_ns: at_ns,
            },
        }
    }

    /// Takes in the utilisation of the device, in stretches before the reading: for the device, for the sample, and for the sum
    /// over all devices.
    fn add_busy(&mut self, reading: &DeviceReading, maxima: &mut Maxima) {
        let DeviceReading { at_ns, sample, .. } = *reading;
        let spans = self.figures.note(at_ns, Figure::Utilization, sample.busy.as_ref());
        let Some(spans) = spans else { return };
        // `busy_lost_us`: time before these, whose samples the driver had overwritten before they were read.
        self.busy.add_lost(sample.busy_lost_us);
        spans.iter().for_each(|span| self.busy.add(*span));
        let stretch = |span: &Busy| (span.us.saturating_mul(1000), span.percent.clamp(0.0, 100.0));
        let stretches: Vec<(u64, f64)> = spans.iter().map(stretch).collect();
        // Nothing newer can be known until the driver takes its next sample.
        let every_ns = sample.busy_every_us.saturating_mul(1000).min(GpuPolicy::LONGEST_SAMPLE_NS);
        let until_ns = at_ns.saturating_add(every_ns);
        for (_, percent) in &stretches {
            self.recent.busy_percent.add(until_ns, *percent);
        }
        maxima.add_busy(reading.number, at_ns, &stretches, until_ns);
    }

    /// Takes in what the performance counters showed up to `at_ns`, CLOCK_MONOTONIC nanoseconds, or why they could not be read.
    /// `None`: they were not read.
    fn add_activity(&mut self, at_ns: u64, activity: Option<&Reading<Activity>>) {
        let activity = match activity {
            None => return,
            Some(Ok(activity)) => activity,
            Some(Err(missing)) => {
                let refused: Reading<f64> = Err(missing.clone());
                for figure in Figure::ALL.into_iter().filter(|figure| figure.is_of_gpm()) {
                    self.figures.note(at_ns, figure, Some(&refused));
                }
                return;
            }
        };
        // Nothing newer can be known until as much time has passed again.
        let until_ns =
            at_ns.saturating_add(activity.us.saturating_mul(1000).min(GpuPolicy::LONGEST_SAMPLE_NS));
        for (figure, value) in &activity.values {
            if let Some(mean) = self.figures.note(at_ns, *figure, Some(value)) {
                self.activity.entry(*figure).or_default().add(activity.us, *mean);
                self.recent.add_gauge(*figure, until_ns, *mean);
            }
        }
    }

    /// Adds up the entries of a process list, read at `at_ns` (CLOCK_MONOTONIC nanoseconds), that are about processes of the run.
    /// Notes what the list shows of them, and whether it has a pid of another namespace.
    fn add_up(
        &mut self,
        list: &[ProcessMemory],
        at_ns: u64,
        pids: PidResolver,
        processes: &mut GpuProcesses,
    ) -> ListSums {
        let mut sums = ListSums::default();
        for listed in list {
            let reported = listed.bytes.as_ref().ok().copied();
            // Since when the driver has listed the pid with this memory.
            let since_ns = self.lists.add_entry(at_ns, listed.pid, reported);
            match pids.resolve(listed.pid, [at_ns, at_ns]) {
                Some(process) if process.started_by(since_ns) => {
                    self.run.is_used = true;
                    self.run.listed_since_ns.get_or_insert(at_ns);
                    self.run.has_unreported.add(process.is_main, reported.is_none(), |a, b| a || b);
                    let bytes = reported.filter(|bytes| self.device.may_be_used(*bytes));
                    let was_listed = since_ns < at_ns;
                    let is_kept = processes.figures_of(process, listed.pid).is_some();
                    sums.add(process, bytes, was_listed, is_kept);
                }
                // The pid's process is younger than the entry: the driver kept the entry of an ended process.
                Some(_) => {}
                None => {
                    sums.has_others = true;
                    self.run.has_foreign |= pids.is_foreign(listed.pid);
                }
            }
        }
        self.lists.forget_unlisted(at_ns);
        sums
    }

    /// Takes in the process list: which processes of the run are on the device, and with how much memory. Finds the steps of their
    /// memory, and notes if the device is full. Also notes if the driver refused the list.
    fn add_memory(&mut self, reading: &DeviceReading, processes: &mut GpuProcesses, maxima: &mut Maxima) {
        let DeviceReading { number, sample, .. } = *reading;
        // What the processes held on a lost device ended with it.
        if sample.is_lost {
            processes.add_memory(number, &self.device.id, reading.at_ns, &BTreeMap::new());
        }
        // 0: the list has no time of its own.
        let at_ns = if sample.listed_ns == 0 { reading.at_ns } else { sample.listed_ns };
        let list = self.figures.note(at_ns, Figure::ProcessMemory, sample.processes.as_ref());
        if let Some(Err(_)) = sample.processes {
            self.lists.add_refusal(at_ns, reading.most_unread_ns);
        }
        let Some(list) = list else { return };
        self.lists.add(at_ns, reading.most_unread_ns);
        let sums = self.add_up(list, at_ns, reading.pids, processes);
        // The memory of these processes is unknown, and so are their groups' maxima from now on.
        for is_main in sums.unreported() {
            self.run.has_unreported.add(is_main, true, |a, b| a || b);
        }
        if !self.is_part {
            let full = FullMemory::if_full(&self.device, at_ns, self.used_bytes, &sums.by_process);
            self.full = full.or(self.full.take());
        }
        processes.add_memory(number, &self.device.id, at_ns, &sums.by_process);
        self.run.lacks_memory = sums.whole().is_none();
        self.run.has_others = sums.has_others;
        self.steps.add(MemoryList {
            at_ns,
            oldest_ns: at_ns.saturating_sub(reading.most_unread_ns),
            memory_bytes: self.device.memory_bytes,
            by_process: &sums.by_process,
            of_run: sums.whole(),
            starts: &sums.starts,
        });
        if self.run.has_foreign && self.run.listed_since_ns.is_none() {
            // Any of the foreign pids may be a process of the run, since none was ever listed by a known pid.
            self.figures.withdraw(Figure::ProcessMemory, Missing::ForeignPids);
        } else {
            maxima.add_memory(number, at_ns, sums.memory);
            self.recent.run_bytes.add(at_ns, sums.memory);
            self.run.max = self.run.max.with(sums.memory, u64::max);
        }
    }

    /// Takes in the utilisation of the device by each process of the run. Notes whether the driver reported any process, and whether
    /// one of them can be a process of the run with a pid of another namespace.
    fn add_run_busy(&mut self, reading: &DeviceReading, processes: &mut GpuProcesses, maxima: &mut Maxima) {
        let DeviceReading { number, at_ns, sample, pids, .. } = *reading;
        let list = self.figures.note(at_ns, Figure::ProcessUtilization, sample.process_busy.as_ref());
        let Some(list) = list else { return };
        let mut stretches = BusyProcesses::default();
        for listed in list {
            // Busy time since the process's start has no known begin yet. So the process is the one with this pid at the reading.
            let us = if listed.is_from_start { 0 } else { listed.busy.us };
            let from_ns = at_ns.saturating_sub(us.saturating_mul(1000));
            let Some(process) = pids.resolve(listed.pid, [from_ns, at_ns]) else {
                self.run.has_foreign_samples |= pids.is_foreign(listed.pid);
                continue;
            };
            // Busy time that includes time before the run, or is not the process's own, says nothing of its utilisation.
            let includes_earlier = listed.is_from_start && process.ran_before;
            let stretch = listed.stretch(process.start_ns, at_ns, GpuPolicy::START_SLACK_NS);
            let busy = stretch.filter(|_| !includes_earlier).unwrap_or(Busy { us: 0, percent: 0.0 });
            stretches.add(process, busy);
            self.run.has_samples = true;
            self.run.is_used |= busy.percent > 0.0;
            if let Some(kept) = processes.figures_of(process, listed.pid) {
                kept.on_device(&self.device.id).busy.add(busy);
            }
        }
        // 0: it is not known which time the list is about, so no time without an entry counts as idle.
        if sample.process_busy_us > 0 {
            processes.add_idle(number, &self.device.id, sample.process_busy_us, &stretches);
        }
        self.run.has_any_samples |= !list.is_empty();
        let sums = stretches.sums();
        // If pids mean other processes than ours, or none was ever the run's, a list without the run's says nothing of the run.
        let has_own = self.run.has_samples && !self.run.has_foreign_samples;
        if has_own && sample.process_busy_us > 0 {
            let most = sums.iter().map(|(_, sum)| sum.combined).fold(0.0, f64::max);
            let known_ns = sample.process_busy_us.saturating_mul(1000).min(GpuPolicy::LONGEST_SAMPLE_NS);
            self.recent.run_busy_percent.add(at_ns.saturating_add(known_ns), most.min(100.0));
        }
        maxima.add_process_busy(number, at_ns, &sums);
    }

    /// Takes in the driver's accounting entries. They also have the peaks of processes that no sample saw. `maxima`: those of the
    /// sum over all devices.
    fn add_accounting(&mut self, reading: &DeviceReading, processes: &mut GpuProcesses, maxima: &mut Maxima) {
        let DeviceReading { at_ns, sample, pids, .. } = *reading;
        let list = self.figures.note(at_ns, Figure::Accounting, sample.accounting.as_ref());
        for entry in list.into_iter().flatten() {
            let process = pids.table.resolve_accounting(entry.pid, entry.started_us);
            let Some(process) = process else { continue };
            self.run.is_used = true;
            // The entry of a running process is not final; it is read again, unless this was the last reading.
            if entry.is_running {
                continue;
            }
            let Some(bytes) = entry.peak_bytes else {
                let on =
                    processes.by_id.get(&process.id).and_then(|known| known.devices.get(&self.device.id));
                let is_unknown = on.is_none_or(|on| on.peak_bytes.is_none());
                self.run.has_unreported.add(process.is_main, is_unknown, |a, b| a || b);
                continue;
            };
            // The entry does not say which processes used the device at the same time. The peak of this process alone is a lower
            // bound of their sum.
            let mut alone = Groups::default();
            alone.add(process.is_main, bytes, u64::saturating_add);
            self.run.has_accounting = true;
            self.run.max = self.run.max.with(alone, u64::max);
            maxima.add_accounted(alone);
            if let Some(kept) = processes.figures_of(process, entry.pid) {
                kept.add_accounting(&self.device.id, bytes, entry.utilization_percent);
            }
        }
    }
}

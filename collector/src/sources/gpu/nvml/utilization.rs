//! Utilisation of a device and by process, from the driver's own samples.

use std::collections::VecDeque;
use std::ffi::c_uint;

use nvml_wrapper_sys::bindings::{nvmlDevice_t, nvmlSample_t, nvmlUtilization_t};

use super::api::{Api, Failure, call, code, list, number};
use super::policy;
use super::process_lists::{self, ProcessSample};
use crate::model::gpu::{Busy, Missing, ProcessBusy, Reading};
use crate::model::sorting::Sorting;
use crate::sys::clock;

/// nvml.h, `NVML_GPU_UTILIZATION_SAMPLES`.
const GPU_UTILIZATION_SAMPLES: u32 = 1;

/// The driver's samples of a device, oldest first: times, microseconds by the driver's clock, and percent. `None`: the driver took a
/// sample, and gives a value that no device can have.
type Samples = Vec<(u64, Option<f64>)>;

/// How far the driver's own samples of a device and its processes were read.
#[derive(Debug, Clone, Default)]
pub(super) struct Progress {
    /// The newest sample of the device.
    device: Newest,
    spacing: Spacing,
    /// For how long, since the last sample, the driver's rate was used instead, microseconds.
    rated_us: u64,
    /// The driver's rate since then, as it was read again and again. The rate counts if no sample comes for that time.
    held: Vec<Busy>,
    /// How long the driver keeps samples at least, microseconds: the longest time between oldest and newest sample of one reading.
    memory_us: u64,
    /// How far the samples of processes were read: up to the newest of the device by then, or of a process if that is newer.
    processes: Newest,
    /// The time, microseconds, for which samples of the device stand that were read since samples of processes were last read.
    sampled_us: u64,
    /// The time between those samples in which the driver took none, since the device was idle, microseconds.
    idle_us: u64,
    /// Time that readings of processes counted before the device's samples covered it, microseconds.
    ahead_us: u64,
    /// Capacity that was enough last for the samples of the device; 0: not read yet.
    device_capacity: usize,
    /// Capacity that was enough last for the samples of its processes; 0: not read yet.
    process_capacity: usize,
    /// The device has the older call for samples of processes. `None`: not known.
    has_older_process_call: Option<bool>,
}

impl Progress {
    /// For how long the driver keeps samples at least, nanoseconds. 0: not known.
    pub(super) fn memory_ns(&self) -> u64 {
        self.memory_us.saturating_mul(1000)
    }

    /// How far apart the driver's samples of the device are while it takes any, microseconds. `None`: not known.
    pub(super) fn spacing_us(&self) -> Option<u64> {
        self.spacing.usual_us().map(|us| us.min(policy::LONGEST_SAMPLE_US))
    }

    /// Takes the rates that were read in place of samples: of the time that these do not cover yet.
    fn take_held(&mut self) -> Utilization {
        let held = std::mem::take(&mut self.held);
        self.rated_us += sum_us(&held);
        // In an idle stretch no process ran, either. In a busy one it is not known what each did.
        let is_idle = |stretch: &&Busy| stretch.percent <= 0.0;
        self.idle_us += held.iter().filter(is_idle).map(|idle| idle.us).sum::<u64>();
        Utilization { busy: Ok(held), is_sampled: false, idle_us: 0, lost_us: 0 }
    }

    /// The rates of the time before the end of the run, if no sample covers that. Nothing is read after it.
    pub(super) fn rest(&mut self) -> Vec<Busy> {
        self.take_held().busy.unwrap_or_default()
    }

    /// The time since the samples of processes were last read, as far as it is known. Notes that they are read again:
    /// `newest_us` is the newest by the driver's clock, microseconds; `None`: there is none. `now_ns`: CLOCK_MONOTONIC.
    /// `None`: it is the first reading, whose samples are from before the run.
    fn since_process_reading(&mut self, newest_us: Option<u64>, now_ns: u64) -> Option<Since> {
        let last = self.processes;
        let (sampled_us, idle_us) = (std::mem::take(&mut self.sampled_us), std::mem::take(&mut self.idle_us));
        // Samples of device and processes have one clock: what is new begins after the newest of both.
        let before = Newest { newest_us: self.device.newest_us.max(last.newest_us), ..last };
        let newest_us = newest_us.unwrap_or(0).max(before.newest_us);
        let is_new = newest_us > last.newest_us;
        if !self.processes.note_reading(is_new.then_some(newest_us), now_ns) {
            return None;
        }
        // The device's samples catch up with what was counted before them.
        let counted_us = self.ahead_us.min(sampled_us);
        let has_caught_up = self.device.newest_us >= last.newest_us;
        let ahead_us = if has_caught_up { 0 } else { self.ahead_us - counted_us };
        // The driver may have overwritten samples that are older than this.
        let kept_us = if self.memory_us == 0 { u64::MAX } else { self.memory_us };
        let of_device_us = (sampled_us - counted_us).min(kept_us);
        // A process's sample can be newer than those of the device. It came between the two calls, or the driver has no samples of
        // the device.
        let newer_us = if newest_us > before.newest_us {
            before.gap_us(newest_us, 0, now_ns).min(policy::LONGEST_SAMPLE_US)
        } else {
            0
        };
        self.ahead_us = ahead_us + newer_us;
        Some(Since { sampled_us: of_device_us + newer_us, idle_us })
    }
}

/// The time since samples of processes were last read.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Since {
    /// The time that the driver's samples stand for, microseconds.
    sampled_us: u64,
    /// The time in which the driver took no samples, since the device was idle, microseconds.
    idle_us: u64,
}

/// How far apart the driver's samples of a device are while it takes any: some drivers take none of an idle device.
#[derive(Debug, Clone, Default)]
struct Spacing {
    /// The latest times between two samples, microseconds.
    gaps_us: VecDeque<u64>,
}

impl Spacing {
    /// Maximum number of gaps that are kept.
    const MAX_KEPT: usize = 64;
    /// Fewer gaps do not show what is usual.
    const LEAST: usize = 3;
    /// Two samples that are closer than this, microseconds, are one that the driver repeated.
    const SHORTEST_US: u64 = 1000;

    /// Takes in the samples of a reading.
    fn add(&mut self, samples: &[(u64, Option<f64>)]) {
        let gaps = samples.windows(2).map(|pair| pair[1].0 - pair[0].0);
        self.gaps_us.extend(gaps.filter(|gap_us| *gap_us >= Self::SHORTEST_US));
        let excess = self.gaps_us.len().saturating_sub(Self::MAX_KEPT);
        self.gaps_us.drain(..excess);
    }

    /// The usual time between two samples, microseconds. `None`: not known yet.
    fn usual_us(&self) -> Option<u64> {
        let mut gaps_us: Vec<u64> = self.gaps_us.iter().copied().collect();
        gaps_us.sort_unstable();
        // The lower quartile, since most gaps may be idle times.
        (gaps_us.len() >= Self::LEAST).then(|| gaps_us[(gaps_us.len() - 1) / 4])
    }

    /// The time that a sample stands for, microseconds, of the `gap_us` since the previous sample. In the rest of the gap the device
    /// was idle.
    fn covered_us(&self, gap_us: u64) -> u64 {
        // A gap has idle time in it only if it is more than twice as long as usual.
        let usual_us = self.usual_us().filter(|usual_us| gap_us > usual_us.saturating_mul(2));
        let covered_us = usual_us.unwrap_or(gap_us);
        covered_us.min(policy::LONGEST_SAMPLE_US)
    }
}

/// The newest sample of a kind. Samples are dated by the driver's clock, which need not be the machine's. Some count from boot
/// (polarsignals/gpu-metrics-agent PR 37). Some were set once and drift (NVIDIA's open kernel modules, timer_gh100.c). So their
/// times are compared with each other only.
#[derive(Debug, Clone, Copy, Default)]
struct Newest {
    /// Its time by the driver's clock, microseconds; 0: there was none yet.
    newest_us: u64,
    /// When the sample was read, or samples were first asked for, CLOCK_MONOTONIC nanoseconds; 0: never.
    at_ns: u64,
    /// Samples were asked for once. The first reading showed which samples are from before the run.
    has_begun: bool,
    /// A sample of the run was read.
    has_sample: bool,
}

impl Newest {
    /// The time from `at_ns` to `now_ns`, microseconds; 0 if samples were never asked for.
    fn age_us(&self, now_ns: u64) -> u64 {
        if self.at_ns == 0 { 0 } else { now_ns.saturating_sub(self.at_ns) / 1000 }
    }

    /// The newest time that a sample can have by now, microseconds of the driver's clock. `None` until a sample of the run was read:
    /// the age of a sample from before the run is not known.
    fn latest_us(&self, now_ns: u64) -> Option<u64> {
        let latest_us =
            self.newest_us.saturating_add(self.age_us(now_ns)).saturating_add(policy::SAMPLE_CLOCK_SLACK_US);
        self.has_sample.then_some(latest_us)
    }

    /// The newest time of a sample that is believed, microseconds of the driver's clock.
    fn believed_us(&self, now_ns: u64) -> u64 {
        self.latest_us(now_ns).unwrap_or_else(|| clock::realtime_ns() / 1000 + policy::CLOCK_SLACK_US)
    }

    /// Takes in the time of the newest sample of a reading, microseconds. `None`: the reading has no sample. Returns whether its
    /// samples count: those of the first reading are from before the run.
    fn note_reading(&mut self, newest_us: Option<u64>, now_ns: u64) -> bool {
        let was_begun = std::mem::replace(&mut self.has_begun, true);
        // The first reading dates the begin, with or without a sample. Later readings change something only with a sample.
        if !was_begun || newest_us.is_some() {
            (self.newest_us, self.at_ns) = (newest_us.unwrap_or(self.newest_us), now_ns);
        }
        self.has_sample |= was_begun && newest_us.is_some();
        was_begun
    }

    /// The time from this sample to a later one, microseconds, without time before the first reading. `at_us`: the time of the later
    /// one by the driver's clock. `older_us`: how much older it is than the newest sample of its reading, which was at `now_ns`
    /// (CLOCK_MONOTONIC).
    fn gap_us(&self, at_us: u64, older_us: u64, now_ns: u64) -> u64 {
        // The gap is measured by the driver's clock. For the run's first sample, it is also bounded by the time since the first
        // reading, by the machine's clock.
        let since_us = if self.newest_us == 0 { u64::MAX } else { at_us.saturating_sub(self.newest_us) };
        let of_run_us = if self.has_sample { u64::MAX } else { self.age_us(now_ns).saturating_sub(older_us) };
        since_us.min(of_run_us)
    }
}

/// What a reading of a device's utilization gave.
pub(super) struct Utilization {
    /// The stretches of time since the last reading.
    pub busy: Reading<Vec<Busy>>,
    /// They are the driver's own samples.
    pub is_sampled: bool,
    /// Of these, the time in which the driver took no samples, since the device was idle, microseconds.
    pub idle_us: u64,
    /// Time since the last reading that the driver no longer knows, or of which its samples have no value, microseconds.
    pub lost_us: u64,
}

/// Reads how busy the device was, by the driver's own samples since the last reading. Where the driver has none, its present rate
/// counts, which `rates` asks for.
pub(super) fn busy(
    api: &Api,
    device: nvmlDevice_t,
    progress: &mut Progress,
    rates: impl FnOnce() -> Reading<nvmlUtilization_t>,
) -> Utilization {
    let now_ns = clock::monotonic_ns();
    let last = progress.device;
    // The time since the newest sample that no rate covers yet.
    let uncovered_us = last.age_us(now_ns).saturating_sub(progress.rated_us);
    // The newest sample is asked for again: if the driver no longer has it, it has overwritten others, too.
    let since_us = last.newest_us.saturating_sub(1);
    let samples = match own_samples(api, device, since_us, &mut progress.device_capacity) {
        Ok(samples) => believed(samples, last.newest_us, last.believed_us(now_ns)),
        Err(Failure(code::NOT_FOUND)) => Some(Vec::new()),
        Err(_) => None,
    };
    // The driver gives no samples that can be used, so the present rate stands for the time since the last reading.
    let Some(mut samples) = samples else {
        if last.at_ns == 0 {
            progress.device.at_ns = now_ns;
        }
        progress.held.clear();
        return rated(progress, uncovered_us, rates);
    };
    progress.spacing.add(&samples);
    let oldest_us = samples.first().map(|(at_us, _)| *at_us);
    // The driver still has the newest sample of the last reading, so no sample was overwritten since.
    let follows_last = last.newest_us == 0 || oldest_us.is_some_and(|oldest_us| oldest_us <= last.newest_us);
    // Some drivers repeat samples.
    samples.retain(|(at_us, _)| *at_us > last.newest_us);
    if let (Some(oldest_us), Some((newest_us, _))) = (oldest_us, samples.last()) {
        progress.memory_us = progress.memory_us.max(newest_us.saturating_sub(oldest_us));
    }
    // Samples without a value are read again, with later ones. The samples of the first reading are from before the run.
    let is_read = !last.has_begun || has_value(&samples);
    let newest_us = samples.last().map(|(at_us, _)| *at_us).filter(|_| is_read);
    if !progress.device.note_reading(newest_us, now_ns) {
        progress.rated_us = 0;
        return Utilization { busy: Ok(Vec::new()), is_sampled: true, idle_us: 0, lost_us: 0 };
    }
    if !has_value(&samples) {
        return without_samples(progress, uncovered_us, rates);
    }
    progress.held.clear();
    let rated_us = std::mem::take(&mut progress.rated_us);
    let (read, sampled_us) = stretches(&samples, &progress.spacing, last, follows_last, rated_us, now_ns);
    progress.sampled_us += sampled_us;
    progress.idle_us += read.idle_us;
    read
}

/// The samples with a time that they can have: `latest_us` at most. `None`: what is newer than `newest_us`, the newest sample of the
/// last reading, is of a time that has not come. Then the driver's clock is wrong, and its samples can't be used. All times are by the
/// driver's clock, microseconds.
fn believed(mut samples: Samples, newest_us: u64, latest_us: u64) -> Option<Samples> {
    let is_any_ahead = samples.iter().any(|(at_us, _)| *at_us > latest_us);
    samples.retain(|(at_us, _)| (1..=latest_us).contains(at_us));
    let is_any_new = samples.last().is_some_and(|(at_us, _)| *at_us > newest_us);
    (is_any_new || !is_any_ahead).then_some(samples)
}

/// Whether any of the samples has a value.
fn has_value(samples: &[(u64, Option<f64>)]) -> bool {
    samples.iter().any(|(_, percent)| percent.is_some())
}

/// What a reading without a new sample gives. Some drivers have the call, but never give a new sample, or give none while nothing runs.
/// Others give several at once. So the driver's rate is read meanwhile, and stands in if no sample comes for long. `uncovered_us`: the
/// time since the newest sample, or since a rate stood in, microseconds.
fn without_samples(
    progress: &mut Progress,
    uncovered_us: u64,
    rates: impl FnOnce() -> Reading<nvmlUtilization_t>,
) -> Utilization {
    let us = uncovered_us.saturating_sub(sum_us(&progress.held));
    let is_late = progress.spacing.usual_us().is_some_and(|usual_us| us > usual_us.saturating_mul(2));
    let is_long = uncovered_us > policy::LONGEST_GAP_US || progress.rated_us > 0;
    let mut refused = None;
    if us > 0 && (is_late || is_long) {
        match rates().and_then(|rates| percent(rates.gpu)) {
            Ok(percent) => progress.held.push(Busy { us, percent }),
            Err(missing) => refused = Some(missing),
        }
    }
    match refused.filter(|_| progress.held.is_empty()) {
        Some(missing) if is_long => {
            Utilization { busy: Err(missing), is_sampled: false, idle_us: 0, lost_us: 0 }
        }
        None if is_long => progress.take_held(),
        _ => Utilization { busy: Ok(Vec::new()), is_sampled: true, idle_us: 0, lost_us: 0 },
    }
}

/// The length of all stretches, microseconds.
fn sum_us(stretches: &[Busy]) -> u64 {
    stretches.iter().map(|stretch| stretch.us).sum()
}

/// Takes the driver's present rate for the last `uncovered_us` microseconds, but for as many at most as a sample can stand for. The time
/// before those is lost. If the rate can't be read, the result has the reason, and no time counts as lost. Notes in `progress` that a rate
/// covers this time.
fn rated(
    progress: &mut Progress,
    uncovered_us: u64,
    rates: impl FnOnce() -> Reading<nvmlUtilization_t>,
) -> Utilization {
    progress.rated_us += uncovered_us;
    let us = uncovered_us.min(policy::LONGEST_SAMPLE_US);
    let busy = rates().and_then(|rates| Ok(vec![Busy { us, percent: percent(rates.gpu)? }]));
    Utilization {
        lost_us: if busy.is_ok() { uncovered_us - us } else { 0 },
        is_sampled: false,
        idle_us: 0,
        busy,
    }
}

/// Makes the stretches of time that the driver's samples stand for, one after another. The time between two samples is busy as
/// the later one says, up to as much as a sample covers by `spacing`. The rest of it was idle, or is lost. If the later one has no
/// value, the time that it stands for is lost. Also returns for how long samples stand, with or without a value, microseconds.
///
/// `last` is the newest sample of the previous reading. `follows_last`: the driver still had that sample, so none between it and
/// `samples` was overwritten. The first `rated_us` microseconds after `last` were counted already, by a rate. `now_ns` is CLOCK_MONOTONIC.
fn stretches(
    samples: &[(u64, Option<f64>)],
    spacing: &Spacing,
    last: Newest,
    follows_last: bool,
    rated_us: u64,
    now_ns: u64,
) -> (Utilization, u64) {
    let newest_us = samples.last().map_or(0, |(at_us, _)| *at_us);
    let period_us = match samples {
        [(first_us, _), (second_us, _), ..] => second_us - first_us,
        _ => policy::LONGEST_SAMPLE_US,
    };
    let mut before = last;
    // By how much the driver's clock leapt ahead. Its samples can have times that leapt, too, so the oldest time is left out.
    let since_us = before.gap_us(newest_us, 0, now_ns);
    let longest_us = last.age_us(now_ns).saturating_add(policy::LONGEST_SAMPLE_US);
    let mut leap_us = if since_us > longest_us { since_us - last.age_us(now_ns) } else { 0 };
    let (mut busy, mut whole_idle_us, mut lost_us, mut sampled_us) = (Vec::new(), 0, 0, 0);
    // The first sample may not follow the last reading. Each later one follows the one before it.
    let (mut counted_us, mut follows_previous) = (rated_us, follows_last);
    for (at_us, percent) in samples.iter().copied() {
        let mut whole_gap_us = before.gap_us(at_us, newest_us - at_us, now_ns);
        let leapt_us = leap_us.min(whole_gap_us);
        (whole_gap_us, leap_us) = (whole_gap_us - leapt_us, leap_us - leapt_us);
        let gap_us = whole_gap_us.saturating_sub(counted_us);
        counted_us -= whole_gap_us - gap_us;
        let mut covered_us = spacing.covered_us(gap_us);
        if follows_previous {
            // The driver takes no samples while the device is idle.
            let idle_us = gap_us - covered_us;
            whole_idle_us += idle_us;
            busy.extend((idle_us > 0).then_some(Busy { us: idle_us, percent: 0.0 }));
        } else {
            // The driver has overwritten the samples of this time.
            covered_us = covered_us.min(period_us);
            lost_us += gap_us - covered_us;
        }
        match percent {
            Some(percent) => busy.push(Busy { us: covered_us, percent: percent.min(100.0) }),
            None => lost_us += covered_us,
        }
        sampled_us += covered_us;
        before = Newest { newest_us: at_us, has_sample: true, ..before };
        follows_previous = true;
    }
    (Utilization { busy: Ok(busy), is_sampled: true, idle_us: whole_idle_us, lost_us }, sampled_us)
}

/// Asks for the device's samples that are newer than `since_us`, by the driver's clock. `capacity` is as `last_capacity` of [`list`].
fn own_samples(
    api: &Api,
    device: nvmlDevice_t,
    since_us: u64,
    capacity: &mut usize,
) -> Result<Samples, Failure> {
    let mut kind = 0;
    let samples: Vec<nvmlSample_t> = list(policy::FIRST_SAMPLES, capacity, |count, samples| {
        call!(api, nvmlDeviceGetSamples(device, GPU_UTILIZATION_SAMPLES, since_us, &mut kind, count, samples))
    })?;
    let possible = 0.0..=f64::from(policy::MAX_PERCENT);
    let percent =
        |sample: &nvmlSample_t| number(kind, sample.sampleValue).filter(|percent| possible.contains(percent));
    let mut read: Samples = samples.iter().map(|sample| (sample.timeStamp, percent(sample))).collect();
    read.order_by_key(|(at_us, _)| *at_us);
    Ok(read)
}

/// A percentage of the driver's. More than 100 is due to rounding, unless it is far more.
pub(super) fn percent(percent: c_uint) -> Reading<f64> {
    if percent <= policy::MAX_PERCENT { Ok(f64::from(percent.min(100))) } else { Err(Missing::NotReported) }
}

/// What a reading of the utilisation by process gave.
pub(super) struct ProcessUtilization {
    /// The processes that the driver reports.
    pub busy: Reading<Vec<ProcessBusy>>,
    /// The time since the last reading of which the driver knows what each process did, microseconds.
    pub known_us: u64,
}

/// Reads the utilisation by process since the last reading. The result is empty at the first reading.
///
/// The driver keeps one ring of samples. Each is of the device, and names the one process that was active when it was taken
/// (`NV2080_CTRL_PERF_GPUMON_ENGINE_UTIL_SAMPLE`: `util`, `procId`; open-gpu-kernel-modules, ctrl2080perf.h). A process's figure is
/// its part of all samples after the time that the call gives (seen with the driver 580). So each figure is a mean over the same time:
/// that of the device's samples since the last reading.
pub(super) fn process_busy(api: &Api, device: nvmlDevice_t, progress: &mut Progress) -> ProcessUtilization {
    let now_ns = clock::monotonic_ns();
    let last = progress.processes;
    // Both kinds are dated by the same clock, and the samples of the device have just been read.
    let latest_us = progress.device.believed_us(now_ns);
    let (capacity, has_older) = (&mut progress.process_capacity, &mut progress.has_older_process_call);
    let samples =
        match process_lists::utilization(api, device, last.newest_us, latest_us, capacity, has_older) {
            Ok(samples) => samples,
            Err(missing) => return ProcessUtilization { busy: Err(missing), known_us: 0 },
        };
    let newest_us = samples.iter().map(|(_, at_us, _)| *at_us).max();
    let Some(since) = progress.since_process_reading(newest_us, now_ns) else {
        return ProcessUtilization { busy: Ok(Vec::new()), known_us: 0 };
    };
    // Some drivers report more than 100 percent.
    let percent = |percent: u32| f64::from(percent).min(100.0);
    let busy = |(pid, _, part): ProcessSample| ProcessBusy {
        pid,
        busy: Busy { us: since.sampled_us, percent: percent(part) },
        is_from_start: false,
    };
    ProcessUtilization {
        busy: Ok(samples.into_iter().map(busy).collect()),
        known_us: since.sampled_us + since.idle_us,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000;

    /// The stretches of samples, and the lost time. A sample of which the percentage is NaN has no value.
    fn spans(samples: &[(u64, f64)], last_us: u64, follows_previous: bool) -> (Vec<(u64, f64)>, u64) {
        let last = Newest { newest_us: last_us, at_ns: 1, has_begun: true, has_sample: true };
        let mut spacing = Spacing::default();
        let value = |(at_us, percent): &(u64, f64)| (*at_us, Some(*percent).filter(|it| !it.is_nan()));
        let samples: Samples = samples.iter().map(value).collect();
        spacing.add(&[&[(last_us, None)], samples.as_slice()].concat());
        let (read, sampled_us) = stretches(&samples, &spacing, last, follows_previous, 0, 100 * S * 1000);
        let busy = read.busy.unwrap();
        let known_us: u64 = busy.iter().map(|stretch| stretch.us).sum();
        assert!(sampled_us <= known_us - read.idle_us + read.lost_us);
        (busy.iter().map(|busy| (busy.us, busy.percent)).collect(), read.lost_us)
    }

    // Requirement: GPU-88
    #[test]
    fn samples_of_a_clock_that_is_days_ahead_are_not_taken_for_an_idle_driver() {
        let believed = |times: &[u64]| {
            let samples = times.iter().map(|at_us| (*at_us, Some(50.0))).collect();
            believed(samples, 5, 100)
                .map(|samples| samples.iter().map(|(at_us, _)| *at_us).collect::<Vec<_>>())
        };
        assert_eq!(believed(&[500, 700]), None);
        assert_eq!(believed(&[5, 500]), None, "the clock went ahead after the last reading");
        assert_eq!(believed(&[]), Some(vec![]), "an idle device");
        assert_eq!(believed(&[0, 5]), Some(vec![5]));
        assert_eq!(believed(&[6, 100, 101]), Some(vec![6, 100]));
    }

    // Requirement: GPU-23
    #[test]
    fn time_of_samples_without_a_value_is_lost_and_not_idle() {
        let samples: Vec<(u64, f64)> = (1..=4).map(|n| (10 * S + n * 200_000, 30.0)).collect();
        let mut broken = samples.clone();
        (broken[1].1, broken[2].1) = (f64::NAN, f64::NAN);
        let known = (200_000, 30.0);
        assert_eq!(spans(&samples, 10 * S, true), (vec![known; 4], 0));
        assert_eq!(spans(&broken, 10 * S, true), (vec![known; 2], 400_000));
        // A rate stood for the first 0.5 s. No time counts twice, whatever samples have a value.
        let last = Newest { newest_us: 10 * S, at_ns: 1, has_begun: true, has_sample: true };
        let samples = [(10 * S + 200_000, None), (10 * S + 400_000, None), (10 * S + 600_000, Some(30.0))];
        let (read, _) = stretches(&samples, &Spacing::default(), last, true, 500_000, 100 * S * 1000);
        assert_eq!((read.busy.unwrap()[0].us, read.lost_us), (100_000, 0));
    }

    // Requirement: GPU-3
    #[test]
    fn rates_stand_in_for_samples_that_do_not_come() {
        let mut progress = Progress::default();
        progress.spacing.add(&[100_000, 200_000, 300_000, 400_000].map(|at_us| (at_us, None)));
        // The rate is read at each of these times after the newest sample, and is the tenth of it.
        let mut read = |uncovered_us: u64| {
            let percent = u32::try_from(uncovered_us / 100_000).unwrap();
            let read = without_samples(&mut progress, uncovered_us, || {
                Ok(nvmlUtilization_t { gpu: percent, memory: 0 })
            });
            read.busy.unwrap().iter().map(|busy| (busy.us, busy.percent)).collect::<Vec<_>>()
        };
        assert_eq!([read(200_000), read(700_000), read(800_000), read(1_900_000)], [[]; 4], "they may come");
        let held = [(700_000, 7.0), (1_200_000, 19.0), (300_000, 22.0)];
        assert_eq!(read(2_200_000), held);
        assert_eq!(read(100_000), [(100_000, 1.0)], "they do not come");
        progress.rated_us = 0;
        let refuse = |progress: &mut Progress, uncovered_us| {
            without_samples(progress, uncovered_us, || Err(Missing::NoPermission)).busy
        };
        assert_eq!(refuse(&mut progress, 500_000), Ok(vec![]));
        assert_eq!(refuse(&mut progress, 2_500_000), Err(Missing::NoPermission));
        without_samples(&mut progress, 900_000, || Ok(nvmlUtilization_t { gpu: 0, memory: 0 }));
        assert_eq!(progress.rest(), [Busy { us: 900_000, percent: 0.0 }]);
        assert_eq!((progress.rest(), progress.idle_us), (vec![], 900_000));
    }

    /// A second passes between two readings, and the driver's clock leaps by five.
    // Requirement: GPU-88
    #[test]
    fn leap_of_the_drivers_clock_is_no_time_of_the_run() {
        let last = Newest { newest_us: 10 * S, at_ns: 1, has_begun: true, has_sample: true };
        let samples = [(10 * S + 500_000, Some(30.0)), (16 * S, Some(30.0))];
        let (read, _) = stretches(&samples, &Spacing::default(), last, true, 0, S * 1000);
        assert_eq!(sum_us(&read.busy.unwrap()), S - 1);
    }

    // Requirement: GPU-3
    #[test]
    fn time_between_samples_of_one_reading_was_idle() {
        assert_eq!(
            spans(&[(12 * S, 80.0), (20 * S, 40.0)], 11 * S, true).0,
            [(S, 80.0), (7 * S, 0.0), (S, 40.0)]
        );
    }

    /// Samples 20 ms apart while the device is busy, and none while it is idle.
    // Requirement: GPU-3
    #[test]
    fn sample_after_an_idle_time_stands_for_the_usual_time() {
        let burst = |from_us: u64| (1..=5).map(move |n| (from_us + n * 20_000, 100.0));
        let samples: Vec<_> = burst(12 * S).chain(burst(14 * S)).collect();
        let (busy, lost_us) = spans(&samples, 10 * S + 100_000, true);
        let busy_us: u64 = busy.iter().filter(|(_, percent)| *percent > 0.0).map(|(us, _)| us).sum();
        assert_eq!((busy_us, lost_us, busy[0]), (200_000, 0, (1_900_000, 0.0)));
        assert_eq!(busy.iter().map(|(us, _)| us).sum::<u64>(), 4 * S);
        // One that comes a little late stands for all of the time.
        let late: Vec<_> = burst(12 * S).chain([(12 * S + 135_000, 100.0)]).collect();
        assert_eq!(
            spans(&late, 12 * S, true).0,
            [[(20_000, 100.0); 5].as_slice(), &[(35_000, 100.0)]].concat()
        );
    }

    /// Samples of an H200: one each 0.2 s, in one ring for the device and its processes, which are read 3 ms apart.
    #[test]
    fn samples_of_processes_are_over_the_time_of_those_of_the_device() {
        let mut progress = Progress::default();
        let mut read = |device_us: u64, newest_us: Option<u64>| {
            let new_us = device_us.saturating_sub(progress.device.newest_us);
            // Those of the first reading are from before the run.
            progress.sampled_us += if progress.device.has_begun { new_us } else { 0 };
            progress.device.note_reading((new_us > 0).then_some(device_us), 1);
            let since = progress.since_process_reading(newest_us, 2);
            since.map(|since| (since.sampled_us, progress.processes.newest_us))
        };
        let us = |n: u64| 100 * S + n * 200_000;
        assert_eq!(read(us(0), None), None);
        // No process ran, then one did.
        assert_eq!(read(us(1), None), Some((200_000, us(1))));
        assert_eq!(read(us(2), Some(us(2))), Some((200_000, us(2))));
        // Nothing is new.
        assert_eq!(read(us(2), None), Some((0, us(2))));
        // A sample came after that of the device was asked for. It counts once.
        assert_eq!(read(us(2), Some(us(3))), Some((200_000, us(3))));
        assert_eq!(read(us(3), None), Some((0, us(3))));
        assert_eq!(read(us(5), Some(us(4))), Some((400_000, us(5))));
        // The device's samples could not be read for a while. What is counted meanwhile is no debt afterwards.
        assert_eq!(read(us(5), Some(us(8))), Some((600_000, us(8))));
        progress.device.newest_us = us(8);
        let mut read_later = |sampled_us, newest_us| {
            (progress.sampled_us, progress.device.newest_us) = (sampled_us, newest_us);
            progress.since_process_reading(None, 3).map(|since| since.sampled_us)
        };
        assert_eq!(read_later(0, us(8)), Some(0));
        assert_eq!(read_later(400_000, us(10)), Some(400_000));
        // The driver keeps samples of 2 s.
        progress.memory_us = 2 * S;
        progress.sampled_us = 9 * S;
        assert_eq!(progress.since_process_reading(None, 4), Some(Since { sampled_us: 2 * S, idle_us: 0 }));
    }

    #[test]
    fn without_samples_no_time_of_processes_is_known() {
        let mut progress = Progress::default();
        assert_eq!(progress.since_process_reading(None, 1), None);
        for s in 1..9 {
            let since = progress.since_process_reading(None, s * S * 1000);
            assert_eq!(since, Some(Since { sampled_us: 0, idle_us: 0 }));
        }
    }

    // Requirement: GPU-23
    #[test]
    fn time_of_overwritten_samples_is_unknown() {
        let (busy, lost_us) = spans(&[(20 * S, 100.0), (20 * S + 20_000, 90.0)], 11 * S, false);
        assert_eq!((busy, lost_us), (vec![(20_000, 100.0), (20_000, 90.0)], 9 * S - 20_000));
        let (busy, lost_us) = spans(&[(20 * S, 100.0)], 11 * S, false);
        assert_eq!((busy, lost_us), (vec![(S, 100.0)], 8 * S));
    }
}

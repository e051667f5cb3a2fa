//! The GPU part of a report, made from what the run has gathered of each device ([`GpuUsage`]). No driver is called here.

use std::collections::BTreeMap;

use crate::model::gpu::{Device, Figure, Missing, NVIDIA, TorchMemory, Vendor};
use crate::model::groups::Groups;
use crate::model::report::{
    CommandGpu, CommandUsage, Gpu, GpuActivity, GpuClocks, GpuDevice, GpuErrors, GpuGap, GpuMemory,
    GpuMissing, GpuPcie, GpuPower, GpuProcess, GpuPstate, GpuReading, GpuThrottle, GpuTorch, GpuUtilization,
    GpuXid, HeavyProcess, MaxGpuRam, OTHER_COMMANDS, Percent, ProcessGpu, ProcessUsage,
};
use crate::model::sorting::{InOrder, Sorting};
use crate::model::tree_sample::larger;
use crate::run::gpu::GpuUsage;
use crate::run::gpu::usage::availability::Gap;
use crate::run::gpu::usage::device::DeviceUsage;
use crate::run::gpu::usage::gpu_processes::{DeviceUse, ProcessGpuUse};
use crate::run::gpu::usage::meters::{Counter, Gauge, StretchMeter};
use crate::run::tree::ProcessSummary;
use crate::run::usage::Totals;

/// Energy counters move in steps of up to 0.1 s: over less than this, seconds, mean power would be off by more than a tenth.
const LEAST_ENERGY_SPAN_S: f64 = 1.0;
/// The energy counter is compared with readings of power if there are as many of these, over as many seconds.
const LEAST_COMPARED: (u64, f64) = (30, 10.0);
/// They have to cover this part of the counter's time.
const MOST_OF_TIME: f64 = 0.8;
/// The mean of readings misses short peaks, but is not wrong by more than this factor.
const MOST_TIMES: f64 = 2.0;
/// The part of the measured time for which a rate may be unread, so that its sum still counts as that of the run.
const MOST_UNREAD_PART: f64 = 0.05;

/// The devices that sums are over. Parts (MIG) are left out, since their whole device has their figures.
pub(super) fn whole(usage: &GpuUsage) -> impl Iterator<Item = &DeviceUsage> {
    usage.devices.iter().filter(|device| !device.is_part)
}

/// Whether a figure of a device that supports it could not be read, so that a sum would lack it.
fn lacks(gpu: &DeviceUsage, figure: Figure) -> bool {
    !gpu.knows(figure) && gpu.missing(figure).is_some_and(is_failure)
}

/// Whether the device supports a figure that is missing for this reason: then reading it failed.
fn is_failure(reason: &Missing) -> bool {
    *reason != Missing::NotSupported && !reason.is_reported_by_parts()
}

/// Whether a figure by process is unknown on a device because reading it failed. The tree's processes are only on devices
/// that are visible to the command.
fn lacks_process_figure(usage: &GpuUsage, figure: Figure) -> bool {
    usage.devices.iter().any(|gpu| gpu.is_visible != Some(false) && lacks(gpu, figure))
}

/// Whether a device of this backend is known. `backend`: [`NVIDIA`], or any other name for all that are not NVIDIA's.
pub(super) fn is_any_of(usage: &GpuUsage, backend: &str) -> bool {
    usage.devices.iter().any(|gpu| (gpu.device.vendor == Some(Vendor::Nvidia)) == (backend == NVIDIA))
}

/// Whether the figures may lack devices. That is so if a backend failed before it listed any, a name of the user's matches none, or a
/// device could not be read. A device that was lost before it was listed can't be in use, so it hides nothing if others are known.
fn may_lack_devices(usage: &GpuUsage) -> bool {
    usage.backends.failed.iter().any(|(backend, _)| !is_any_of(usage, backend))
        || !usage.backends.unknown_names.is_empty()
        || usage.backends.unreadable.iter().any(|why| usage.devices.is_empty() || *why != Missing::Lost)
}

/// Makes the report's figures of GPU memory, bytes. Without a GPU all are 0, as in gpu_tracker; where a driver failed, all are
/// unknown.
pub(super) fn max_gpu_ram(usage: &GpuUsage) -> MaxGpuRam {
    if usage.devices.is_empty() || may_lack_devices(usage) {
        let bytes = (!may_lack_devices(usage)).then_some(0);
        return MaxGpuRam {
            system_capacity_bytes: bytes,
            system_bytes: bytes,
            main_bytes: bytes,
            descendants_bytes: bytes,
            combined_bytes: bytes,
        };
    }
    let with_memory = whole(usage).filter(|gpu| gpu.has_memory());
    let capacities: Vec<_> = with_memory.map(|gpu| gpu.device.memory_bytes).collect();
    let is_capacity_known = usage.backends.unreadable.is_empty() && !capacities.is_empty();
    // `None` if the capacity of one is not known.
    let capacity_bytes: Option<u64> = capacities.into_iter().sum();
    let of_run = memory_of_run(usage);
    let accounted = whole(usage).map(accounted_bytes).max().unwrap_or(0);
    let is_use_known = usage.is_use_known() && !whole(usage).any(lacks_use);
    MaxGpuRam {
        system_capacity_bytes: capacity_bytes.filter(|_| is_capacity_known),
        system_bytes: usage.max.used_bytes.filter(|_| is_use_known).map(|bytes| bytes.max(accounted)),
        main_bytes: of_run.main,
        descendants_bytes: of_run.descendants,
        combined_bytes: of_run.combined,
    }
}

/// The largest memory of the run's processes on all devices together, bytes. `None`: a driver listed a process without its
/// memory, or could not list the processes of a device. It is also `None` if no process was seen and one can have been missed.
fn memory_of_run(usage: &GpuUsage) -> Groups<Option<u64>> {
    let is_any_unread = lacks_process_figure(usage, Figure::ProcessMemory);
    let mut unknown = Groups { main: is_any_unread, descendants: is_any_unread, combined: is_any_unread };
    for gpu in &usage.devices {
        unknown = unknown.with(gpu.run.has_unreported, |a, b| a || b);
    }
    known_memory(usage.max.memory, unknown, may_have_missed(usage))
}

/// The largest memory of the run's processes, bytes; `None` where it is not known.
///
/// - `max`: the largest that readings showed; `None` if no device gave the figure.
/// - `unknown`: a process's memory was not reported, so the figure is unknown.
/// - `missed`: a process may have used a GPU unseen, so a figure of 0 is unknown.
fn known_memory(
    max: Option<Groups<u64>>,
    unknown: Groups<bool>,
    missed: Groups<bool>,
) -> Groups<Option<u64>> {
    let Some(max) = max else { return Groups::default() };
    let known = max.with(unknown, |bytes, is_unknown| (!is_unknown).then_some(bytes));
    known.with(missed, |bytes, is_missed| bytes.filter(|bytes| *bytes > 0 || !is_missed))
}

/// Whether GPU memory of the run's processes can have been missed. A process may have lived between two readings for long enough to
/// use a GPU, one was seen at work that no list had, or a GPU was not read for a while. Drivers in accounting mode report such memory
/// all the same.
pub(super) fn may_have_missed(usage: &GpuUsage) -> Groups<bool> {
    missed_on(usage, usage.devices.iter())
}

/// Whether GPU memory of the run's processes can have been missed on these devices, by group: see [`may_have_missed`].
fn missed_on<'a>(usage: &GpuUsage, mut devices: impl Iterator<Item = &'a DeviceUsage>) -> Groups<bool> {
    let has_accounts = whole(usage).all(|gpu| gpu.knows(Figure::Accounting));
    let is_unread = devices.any(|gpu| {
        gpu.is_visible != Some(false) && (usage.unread_ns(gpu) > 0 || gpu.run.lacks_memory_of_busy())
    });
    // A time without readings can hide processes only of a group that has some.
    let has_any = Groups { main: true, descendants: usage.has_descendants, combined: true };
    let unread = has_any.map(|has_any| has_any && is_unread);
    usage.unsampled.with(unread, |unsampled, is_unread| (unsampled > 0 || is_unread) && !has_accounts)
}

/// Whether a process of the run was seen on a device. `None`: none was, and one can have been missed.
pub(super) fn is_used(usage: &GpuUsage, gpu: &DeviceUsage) -> Option<bool> {
    let is_missed = match why_missing(gpu, Figure::ProcessMemory) {
        None => missed_on(usage, std::iter::once(gpu)).combined,
        // Its parts say what ran on it.
        Some(_) if tells_by_parts(gpu) => return are_parts_used(usage, gpu),
        Some(_) => true,
    };
    (gpu.run.is_used || !is_missed).then_some(gpu.run.is_used)
}

/// Whether the parts of the device (MIG) have the process lists in its place.
fn tells_by_parts(gpu: &DeviceUsage) -> bool {
    why_missing(gpu, Figure::ProcessMemory).is_some_and(|reason| reason.is_reported_by_parts())
}

/// Whether a process of the run was seen on a part of the device. `None`: none was, and one can have been missed, or no part is known.
fn are_parts_used(usage: &GpuUsage, gpu: &DeviceUsage) -> Option<bool> {
    let parts = usage.devices.iter().filter(|part| part.device.parent.as_ref() == Some(&gpu.device.id));
    let used: Vec<Option<bool>> = parts.map(|part| is_used(usage, part)).collect();
    let is_any = used.contains(&Some(true));
    let is_known = !used.is_empty() && used.iter().all(Option::is_some);
    (is_any || is_known).then_some(is_any)
}

/// The figures that could not be read for a part of the run that is longer than two intervals. A cumulative figure misses
/// nothing by that.
pub(super) fn gaps<'a>(usage: &'a GpuUsage, gpu: &'a DeviceUsage) -> impl Iterator<Item = (Figure, &'a Gap)> {
    let gaps = gpu.figures.gaps.iter().map(|(figure, gap)| (*figure, gap));
    gaps.filter(move |(figure, gap)| {
        gpu.knows(*figure) && !figure.is_cumulative() && gpu.gap_ns(gap) > usage.interval_ns.saturating_mul(2)
    })
}

/// Makes the report's GPU counts and the sum of the devices' utilisation, percent. Figures that some device may be missing from are
/// unknown.
pub(super) fn gpu(usage: &GpuUsage) -> Gpu {
    let is_known = !may_lack_devices(usage);
    let count = |n: usize| is_known.then(|| u32::try_from(n).unwrap_or(u32::MAX));
    let means: Vec<f64> = usage.devices.iter().filter_map(|device| device.busy.mean()).collect();
    // A divided device tells its utilization by its parts, and each part its own.
    let is_any_divided = usage.devices.iter().any(|device| device.is_part);
    let percent = if !is_known || is_any_divided || usage.lacks_busy() {
        Percent { max_sum: None, mean_sum: None }
    } else if usage.devices.is_empty() {
        Percent { max_sum: Some(0.0), mean_sum: Some(0.0) }
    } else {
        // Means of devices that were not there at one time do not add up.
        let was_any_lost = usage.devices.iter().any(|device| device.loss.is_some());
        let mean_sum: Option<f64> = (!means.is_empty() && !was_any_lost).then(|| means.iter().sum());
        // `usage.max` is a sum at one time. Of devices known at different times, the sum of the means can be larger.
        let max_sum = usage.max.busy.map(|max| mean_sum.map_or(max, |mean| mean.max(max)));
        Percent { max_sum, mean_sum }
    };
    Gpu {
        system_gpu_count: count(usage.machine.len()).filter(|_| usage.backends.unreadable.is_empty()),
        expected_gpus: count(whole(usage).count()),
        percent,
    }
}

/// The largest sum of the processes' utilisation, percent. `None`: a device or its figure may be missing, or no device gave a sample
/// and one of them should have.
pub(super) fn max_sm_percent(usage: &GpuUsage) -> Option<Groups<f64>> {
    // A gap on one device matters only if no other device gave samples.
    let has_gap = |gpu: &DeviceUsage| {
        gpu.is_visible != Some(false)
            && gpu.knows(Figure::ProcessUtilization)
            && gpu.process_utilization_gap().is_some()
    };
    let has_samples = usage.devices.iter().any(|gpu| gpu.run.has_samples);
    let is_complete = !may_lack_devices(usage)
        && !lacks_process_figure(usage, Figure::ProcessUtilization)
        && (has_samples || !usage.devices.iter().any(has_gap));
    usage.max.process_busy.filter(|_| is_complete)
}

/// Makes the report's entries of all tracked devices. `start_ns`: the start of the run, CLOCK_MONOTONIC.
pub(super) fn gpus(usage: &GpuUsage, start_ns: u64) -> Vec<GpuDevice> {
    usage.devices.iter().map(|device| device_of(usage, device, start_ns)).collect()
}

/// Makes the report's entry of a device. What no reading told is `None`, and `missing` has the reason. `start_ns`: the start of
/// the run, CLOCK_MONOTONIC.
fn device_of(usage: &GpuUsage, gpu: &DeviceUsage, start_ns: u64) -> GpuDevice {
    let device = Device::clone(&gpu.device);
    let missing = |(figure, missing): (Figure, Missing)| GpuMissing {
        figure: figure.name().into(),
        reason: missing.to_string(),
    };
    let mean_ns = gpu.lists.read.mean_ns();
    let throttle = |(reason, ns): (&String, &u64)| GpuThrottle {
        reason: reason.clone(),
        time_s: *ns as f64 / 1e9,
        mean_sm_mhz: gpu.throttle.clock_mhz(reason),
    };
    GpuDevice {
        index: device.index,
        pci_address: device.pci_address,
        name: device.name,
        vendor: device.vendor,
        parent: device.parent,
        source: device.source,
        driver_version: device.driver_version,
        runtime_version: device.runtime_version,
        visible: gpu.is_visible,
        used: is_used(usage, gpu),
        lost_at_s: gpu.loss.map(|loss| loss.at_ns.saturating_sub(start_ns) as f64 / 1e9),
        // Fewer than two readings have no time between them.
        reading: GpuReading {
            count: (!tells_by_parts(gpu)).then_some(gpu.lists.read.count),
            mean_interval_s: mean_ns.map(|ns| ns / 1e9),
            max_interval_s: mean_ns.and(Some(gpu.lists.read.longest_ns as f64 / 1e9)),
        },
        memory: memory_of(usage, gpu),
        utilization: GpuUtilization {
            mean_percent: gpu.busy.mean(),
            max_percent: gpu.busy.max,
            active_s: gpu.busy.active_s(),
            measured_s: gpu.knows(Figure::Utilization).then(|| gpu.busy.measured_s()),
            mean_memory_percent: gpu.mean(Figure::MemoryUtilization),
            max_memory_percent: gpu.max(Figure::MemoryUtilization),
        },
        activity: activity_of(gpu),
        // They need the other GPUs, too, and are added later.
        findings: None,
        power: power_of(gpu),
        max_temperature_c: gpu.max(Figure::Temperature),
        clocks: GpuClocks {
            mean_sm_mhz: gpu.mean(Figure::SmClock),
            max_sm_mhz: gpu.max(Figure::SmClock),
            mean_memory_mhz: gpu.mean(Figure::MemoryClock),
            max_memory_mhz: gpu.max(Figure::MemoryClock),
        },
        pstate: GpuPstate {
            // 0 is the fastest, so the smallest number.
            fastest: gpu.gauges.get(&Figure::Pstate).map(|gauge| gauge.min as u32),
            slowest: gpu.max(Figure::Pstate).map(|number| number as u32),
        },
        throttle: gpu.throttle.ns().map(|ns| ns.iter().map(throttle).collect()),
        throttle_span_s: gpu.throttle.measured_s(),
        pcie: GpuPcie {
            span_s: pcie_span_s(gpu),
            tx_bytes: pcie_bytes(gpu, Figure::PcieTxRate, Figure::PcieTx),
            rx_bytes: pcie_bytes(gpu, Figure::PcieRxRate, Figure::PcieRx),
            link_bytes_per_s: gpu.link_bytes_per_s,
        },
        errors: errors_of(gpu),
        processes: processes_on(usage, &device.id),
        missing: missing_of(gpu).into_iter().map(missing).collect(),
        gaps: gaps_in_report(usage, gpu),
        id: device.id,
    }
}

/// What a counter counted over the run, in the figure's unit, which has no fractions. `None`: it is not known.
fn total_of(gpu: &DeviceUsage, figure: Figure) -> Option<u64> {
    gpu.counted(figure).map(|total| total as u64)
}

/// What a rate by the performance counters adds up to, bytes. `None`: it is not known, or not for the whole time.
fn bytes_of(gpu: &DeviceUsage, rate: Figure) -> Option<u64> {
    let bytes = gpu.activity.get(&rate).and_then(StretchMeter::integrated).map(|bytes| bytes as u64);
    bytes.filter(|_| partly_unread(gpu, rate).is_none())
}

/// Why a rate could not be read for more than [`MOST_UNREAD_PART`] of the time in which it was. `None`: it could.
fn partly_unread(gpu: &DeviceUsage, rate: Figure) -> Option<&Missing> {
    let gap = gpu.figures.gaps.get(&rate)?;
    let measured_s = gpu.activity.get(&rate).map_or(0.0, StretchMeter::measured_s);
    (gpu.gap_ns(gap) as f64 / 1e9 > measured_s * MOST_UNREAD_PART).then_some(&gap.reason)
}

/// The bytes of PCIe in one direction: by the performance counters where they tell their rate, since `counter` is not read any more
/// then. `None`: they are not known.
fn pcie_bytes(gpu: &DeviceUsage, rate: Figure, counter: Figure) -> Option<u64> {
    if gpu.activity.contains_key(&rate) { bytes_of(gpu, rate) } else { total_of(gpu, counter) }
}

/// For how long the bytes of PCIe were counted, seconds. `None`: they are not known.
pub(super) fn pcie_span_s(gpu: &DeviceUsage) -> Option<f64> {
    pcie_bytes(gpu, Figure::PcieTxRate, Figure::PcieTx)?;
    match gpu.activity.get(&Figure::PcieTxRate) {
        Some(rate) => Some(rate.measured_s()),
        None => gpu.counters.get(&Figure::PcieTx).and_then(Counter::span_s),
    }
}

/// Makes the figures of a device's performance counters.
fn activity_of(gpu: &DeviceUsage) -> GpuActivity {
    let meter = |figure| gpu.activity.get(&figure);
    let mean = |figure| meter(figure).and_then(StretchMeter::mean);
    let max = |figure| mean(figure).and(meter(figure)).map(|meter| meter.max);
    let measured_s = gpu.activity.values().map(StretchMeter::measured_s).reduce(f64::max);
    GpuActivity {
        measured_s,
        mean_sm_percent: mean(Figure::SmActive),
        max_sm_percent: max(Figure::SmActive),
        mean_occupancy_percent: mean(Figure::SmOccupancy),
        max_occupancy_percent: max(Figure::SmOccupancy),
        mean_tensor_percent: mean(Figure::TensorActive),
        max_tensor_percent: max(Figure::TensorActive),
        mean_memory_bandwidth_percent: mean(Figure::MemoryBandwidth),
        max_memory_bandwidth_percent: max(Figure::MemoryBandwidth),
        mean_fp64_percent: mean(Figure::Fp64Active),
        max_fp64_percent: max(Figure::Fp64Active),
        mean_fp32_percent: mean(Figure::Fp32Active),
        max_fp32_percent: max(Figure::Fp32Active),
        mean_fp16_percent: mean(Figure::Fp16Active),
        max_fp16_percent: max(Figure::Fp16Active),
        max_pcie_tx_bytes_per_s: max(Figure::PcieTxRate),
        max_pcie_rx_bytes_per_s: max(Figure::PcieRxRate),
        nvlink_tx_bytes: bytes_of(gpu, Figure::NvlinkTxRate),
        nvlink_rx_bytes: bytes_of(gpu, Figure::NvlinkRxRate),
        max_nvlink_tx_bytes_per_s: max(Figure::NvlinkTxRate),
        max_nvlink_rx_bytes_per_s: max(Figure::NvlinkRxRate),
    }
}

/// Counts the errors of a device during the run. XIDs are `None`, not empty, if the driver never told of them.
fn errors_of(gpu: &DeviceUsage) -> GpuErrors {
    let xids = || gpu.xids.iter().map(|(xid, count)| GpuXid { xid: *xid, count: *count }).collect();
    GpuErrors {
        ecc_corrected: total_of(gpu, Figure::EccCorrected),
        ecc_uncorrected: total_of(gpu, Figure::EccUncorrected),
        xid: gpu.knows(Figure::Xid).then(xids),
    }
}

/// Lists the figures of a device that could not be read for a while ([`gaps`]), and for how long in all.
///
/// Process lists can have two gaps: of the time in which the driver refused them, and of that in which it did not answer.
fn gaps_in_report(usage: &GpuUsage, gpu: &DeviceUsage) -> Vec<GpuGap> {
    let gap = |figure: Figure, reason: &Missing, ns: u64| GpuGap {
        figure: figure.name().into(),
        reason: reason.to_string(),
        time_s: ns as f64 / 1e9,
    };
    let mut all: Vec<GpuGap> =
        gaps(usage, gpu).map(|(figure, found)| gap(figure, &found.reason, gpu.gap_ns(found))).collect();
    let unanswered_ns = usage.unanswered_ns(gpu);
    if unanswered_ns > 0 {
        all.push(gap(Figure::ProcessMemory, &Missing::Unread, unanswered_ns));
    }
    all
}

/// Whether the driver said that no memory is in use on the device while a process of the run had some there.
fn lacks_use(gpu: &DeviceUsage) -> bool {
    gpu.max(Figure::MemoryUsed) == Some(0.0) && gpu.run.max.combined > 0 && !gpu.run.has_accounting
}

/// Makes the memory figures of a device: the most that was in use on it, and the most that processes of the run used. The latter
/// are `None` if the driver gave neither a list of processes nor an account of an ended one, and in the cases of [`known_memory`].
fn memory_of(usage: &GpuUsage, gpu: &DeviceUsage) -> GpuMemory {
    let is_told = gpu.knows(Figure::ProcessMemory) || gpu.run.has_accounting;
    let may_miss_some = missed_on(usage, std::iter::once(gpu));
    let of_run = known_memory(is_told.then_some(gpu.run.max), gpu.run.has_unreported, may_miss_some);
    GpuMemory {
        total_bytes: gpu.device.memory_bytes,
        max_used_bytes: gpu
            .max(Figure::MemoryUsed)
            .filter(|_| !lacks_use(gpu))
            .map(|bytes| (bytes as u64).max(accounted_bytes(gpu))),
        max_main_bytes: of_run.main,
        max_descendants_bytes: of_run.descendants,
        max_combined_bytes: of_run.combined,
    }
}

/// The most that the run had on a device by the driver's accounting of ended processes, bytes; 0: that tells nothing. No reading may have
/// seen it.
fn accounted_bytes(gpu: &DeviceUsage) -> u64 {
    if gpu.run.has_accounting { gpu.run.max.combined } else { 0 }
}

/// Makes the power figures of a device. The mean is that of the energy counter, which has all energy since its first reading. The
/// mean is that of the readings of power if the counter can't be believed, was reset, stepped back or jumped. So it is if the counter
/// counted for less than [`LEAST_ENERGY_SPAN_S`].
fn power_of(gpu: &DeviceUsage) -> GpuPower {
    let energy_j = gpu.counted(Figure::Energy).filter(|_| fault_of_energy(gpu).is_none());
    let energy_span_s = energy_span_s(gpu);
    let energy = gpu.counters.get(&Figure::Energy);
    let is_whole = energy.is_some_and(|counter| counter.restarts + counter.steps_back + counter.jumps == 0);
    let is_long = |s: f64| s >= LEAST_ENERGY_SPAN_S;
    let counted = energy_j.zip(energy_span_s).filter(|(j, s)| is_whole && *j > 0.0 && is_long(*s));
    let gauge = gpu.gauges.get(&Figure::Power);
    let (mean_w, mean_span_s) = match counted {
        Some((j, s)) => (Some(j / s), Some(s)),
        None => (gauge.map(Gauge::mean), gauge.and_then(Gauge::span_s)),
    };
    GpuPower {
        mean_w,
        mean_span_s,
        // Readings can miss a short peak, which the energy counter has.
        max_w: gauge.and_then(|gauge| larger(mean_w, Some(gauge.max))),
        energy_j,
        energy_span_s,
        integrated_energy_j: gauge.and_then(Gauge::integrated),
    }
}

/// The time between the first and the last reading of a device's energy counter, seconds; `None`: its energy is not known.
pub(super) fn energy_span_s(gpu: &DeviceUsage) -> Option<f64> {
    gpu.counters.get(&Figure::Energy).filter(|_| fault_of_energy(gpu).is_none()).and_then(Counter::span_s)
}

/// Why the count of the energy counter can't be believed. Some boards and virtual GPUs have one that stands still, always or for a while.
/// `None`: it can, or it is not known.
fn fault_of_energy(gpu: &DeviceUsage) -> Option<Missing> {
    let counted_j = gpu.counted(Figure::Energy)?;
    let power = gpu.gauges.get(&Figure::Power)?;
    if counted_j == 0.0 {
        return (power.max > 0.0).then_some(Missing::StandsStill);
    }
    let counted_s = gpu.counters.get(&Figure::Energy)?.span_s()?;
    // Readings of a part of the time can show less or more.
    let (least, least_s) = LEAST_COMPARED;
    let is_comparable = power.max > 0.0
        && power.readings >= least
        && power.span_s()? >= least_s.max(MOST_OF_TIME * counted_s);
    let times = counted_j / counted_s / power.mean();
    (is_comparable && !(1.0 / MOST_TIMES..=MOST_TIMES).contains(&times)).then_some(Missing::Contradicted)
}

/// Lists the processes of the run that used a device, with their use of it. The largest peak comes first.
fn processes_on(usage: &GpuUsage, device_id: &str) -> Vec<GpuProcess> {
    let use_of_device = |process: &ProcessGpuUse| {
        let used_here = process.devices.get(device_id)?;
        Some(GpuProcess {
            pid: process.pid,
            driver_pid: process.driver_pid,
            command: process.command.to_string(),
            is_main: process.is_main,
            peak_bytes: used_here.peak_bytes,
            mean_sm_percent: used_here.busy.mean().or(used_here.accounted_percent),
            max_sm_percent: used_here.busy.max,
            accounted: used_here.is_accounted,
            torch: torch_on(usage, process, device_id),
        })
    };
    let mut list: Vec<GpuProcess> = usage.processes.by_id.values().filter_map(use_of_device).collect();
    list.order_by(|a, b| b.peak_bytes.cmp(&a.peak_bytes).then(a.pid.cmp(&b.pid)));
    list
}

/// What PyTorch told of a process's memory on a device, beside what the driver counts there. `None`: it told nothing, or of a device
/// that can be another one. PyTorch numbers devices by itself, so a device of its is the only one where the driver counts as much.
fn torch_on(usage: &GpuUsage, process: &ProcessGpuUse, device_id: &str) -> Option<GpuTorch> {
    // A later process can have the pid, and this one's number of the device.
    let is_only = usage.processes.by_id.values().filter(|other| other.pid == process.pid).count() == 1;
    let can_hold = |on: &DeviceUse, reserved: u64| on.peak_bytes.is_some_and(|peak| peak >= reserved);
    let is_here = |told: &&TorchMemory| {
        let Some(reserved) = told.reserved_bytes.filter(|_| told.pid == process.pid) else { return false };
        let mut holding = process.devices.iter().filter(|(_, on)| can_hold(on, reserved));
        holding.next().is_some_and(|(id, _)| id == device_id) && holding.next().is_none()
    };
    let told: Vec<&TorchMemory> = usage.torch.iter().filter(is_here).collect();
    let [TorchMemory { live_bytes, reserved_bytes: Some(reserved_bytes), fragmented_bytes, .. }] = told[..]
    else {
        return None;
    };
    let peak = process.devices.get(device_id)?.peak_bytes?;
    is_only.then_some(GpuTorch {
        live_bytes: *live_bytes,
        reserved_bytes: *reserved_bytes,
        fragmented_bytes: *fragmented_bytes,
        most_context_bytes: peak - reserved_bytes,
    })
}

/// The largest SM utilization of a process on any device, percent; `None` if no driver gave one.
fn max_sm(used: &ProcessGpuUse) -> Option<f64> {
    used.devices.values().filter_map(|on| on.busy.max).reduce(f64::max)
}

/// Adds to each command what its processes used of GPUs. Processes whose command has no entry of its own are in [`OTHER_COMMANDS`].
pub(super) fn with_gpu_use(usage: &GpuUsage, mut commands: Vec<CommandUsage>) -> Vec<CommandUsage> {
    let mut by_name: BTreeMap<&str, CommandGpu> = BTreeMap::new();
    let has_entry = commands.iter().map(|command| command.command.clone()).ordered_set();
    for used in usage.processes.by_id.values() {
        let name = if has_entry.contains(&*used.command) { &*used.command } else { OTHER_COMMANDS };
        let command = by_name.entry(name).or_default();
        command.count += 1;
        command.peak_ram_bytes = command.peak_ram_bytes.max(used.peak_bytes);
        command.max_sm_percent = larger(command.max_sm_percent, max_sm(used));
    }
    for command in &mut commands {
        command.gpu = by_name.remove(command.command.as_str());
    }
    commands
}

/// Lists the processes that used most, each with its use of GPUs. The command started at `run_start_ns`.
pub(super) fn heaviest(usage: &GpuUsage, totals: &Totals, run_start_ns: u64) -> Vec<HeavyProcess> {
    let on_gpus = |id: u64| {
        let used = usage.processes.by_id.get(&id)?;
        Some(ProcessGpu { peak_ram_bytes: used.peak_bytes, max_sm_percent: max_sm(used) })
    };
    let entry = |process: &ProcessSummary| HeavyProcess {
        usage: ProcessUsage { gpu: on_gpus(process.ids.id.0), ..process.usage() },
        start_s: Some(process.start_ns.saturating_sub(run_start_ns) as f64 / 1e9),
        node: None,
    };
    totals.heaviest.list().into_iter().map(entry).collect()
}

/// Lists the figures of a device that are not known, and why.
pub(super) fn missing_of(gpu: &DeviceUsage) -> Vec<(Figure, Missing)> {
    // What is read on request alone is missing only if it was asked for.
    let was_asked =
        |figure: Figure| !figure.is_on_request() || gpu.knows(figure) || gpu.missing(figure).is_some();
    let reason = |figure: Figure| if was_asked(figure) { why_missing(gpu, figure) } else { None };
    let missing = |(figure, reason): (Figure, Option<Missing>)| Some((figure, reason?));
    Figure::entries(reason).into_iter().filter_map(missing).collect()
}

/// Why the bytes of a rate that was read are not known. `None`: they are.
fn why_no_bytes(gpu: &DeviceUsage, rate: Figure) -> Option<Missing> {
    let is_known = bytes_of(gpu, rate).is_some();
    (!is_known).then(|| partly_unread(gpu, rate).cloned().unwrap_or(Missing::ReadOnce))
}

/// Why a figure of a device is not known; `None`: it is.
fn why_missing(gpu: &DeviceUsage, figure: Figure) -> Option<Missing> {
    // The reason if there was neither a value nor an error. NVML is asked for every figure, one after another, so it was not asked
    // in time. Other backends leave out what a device does not support.
    let is_nvml = gpu.device.vendor == Some(Vendor::Nvidia);
    let unasked = if is_nvml { Missing::NoSample } else { Missing::NotSupported };
    let reason = match figure {
        // Figures that were read, but may lack values.
        Figure::Utilization if gpu.knows(figure) => {
            let reason = || gpu.missing(figure).cloned().unwrap_or(Missing::NoSample);
            gpu.busy.max.is_none().then(reason)
        }
        Figure::ProcessUtilization if gpu.knows(figure) => gpu.process_utilization_gap(),
        // The performance counters tell it.
        Figure::PcieTx if gpu.activity.contains_key(&Figure::PcieTxRate) => {
            why_no_bytes(gpu, Figure::PcieTxRate)
        }
        Figure::PcieRx if gpu.activity.contains_key(&Figure::PcieRxRate) => {
            why_no_bytes(gpu, Figure::PcieRxRate)
        }
        Figure::NvlinkTxRate | Figure::NvlinkRxRate if gpu.knows(figure) => why_no_bytes(gpu, figure),
        // A device that is divided says so once, and its parts have the figures.
        _ if figure.is_of_gpm() && gpu.knows(figure) => {
            gpu.activity.get(&figure).and_then(StretchMeter::mean).is_none().then_some(Missing::ReadOnce)
        }
        Figure::ProcessMemory if gpu.knows(figure) => {
            let is_unreported = gpu.run.has_unreported.combined || gpu.run.lacks_memory_of_busy();
            is_unreported.then_some(Missing::NotReported)
        }
        Figure::Throttle if gpu.knows(figure) => {
            let refused = || gpu.figures.gaps.get(&figure).map(|gap| gap.reason.clone());
            gpu.throttle.ns().is_none().then(|| refused().unwrap_or(Missing::ReadOnce))
        }
        Figure::MemoryUsed if lacks_use(gpu) => Some(Missing::NotReported),
        // Counters whose count can't be used.
        Figure::Energy if fault_of_energy(gpu).is_some() => fault_of_energy(gpu),
        _ if gpu.counters.get(&figure).is_some_and(Counter::may_have_wrapped) => Some(Missing::Wraps),
        _ if gpu.counters.get(&figure).is_some_and(|counter| counter.is_wrong) => Some(Missing::Wrong),
        _ if gpu.counters.get(&figure).is_some_and(|counter| !counter.has_counted) => Some(Missing::ReadOnce),
        _ if gpu.knows(figure) => None,
        // Figures that were not read: for the driver's reason, if the device was read at all.
        _ if gpu.was_read() => Some(gpu.missing(figure).unwrap_or(&unasked).clone()),
        _ if gpu.loss.is_some() => Some(Missing::Lost),
        _ => Some(Missing::NoSample),
    }?;
    // The loss of a device that did not come back explains why a figure was read too seldom.
    let is_still_lost = gpu.loss.is_some_and(|loss| !loss.is_back);
    let was_read_too_seldom = matches!(reason, Missing::NoSample | Missing::ReadOnce);
    Some(if is_still_lost && was_read_too_seldom { Missing::Lost } else { reason })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::gpu::{
        BackendsAtEnd, Batch, Busy, DeviceList, DeviceSample, GpuObservation, TrackedDevice,
    };
    use crate::run::gpu::GpuState;

    #[test]
    fn only_gpu_lost_before_the_run_makes_figures_unknown() {
        let figures = |unreadable| {
            let backends = BackendsAtEnd { unreadable, ..BackendsAtEnd::default() };
            let usage = GpuUsage { backends, ..GpuUsage::default() };
            let (ram, gpu) = (max_gpu_ram(&usage), gpu(&usage));
            (ram.combined_bytes, ram.system_bytes, gpu.system_gpu_count, gpu.percent.max_sum)
        };
        assert_eq!(
            figures(vec![]),
            (Some(0), Some(0), Some(0), Some(0.0)),
            "as gpu_tracker has it where there is none"
        );
        assert_eq!(figures(vec![Missing::Lost]), (None, None, None, None));
    }

    // Requirement: GPU-33
    #[test]
    fn sum_of_utilization_is_unknown_while_a_gpu_is_unread() {
        let device = |id: &str| Device { id: id.into(), vendor: Some(Vendor::Nvidia), ..Device::default() };
        let tracked = |id: &str| TrackedDevice { device: device(id), is_visible: None };
        let list = DeviceList {
            tracked: ["a", "b"].map(tracked).to_vec(),
            machine: ["a", "b"].map(Into::into).to_vec(),
            is_order_unsure: false,
        };
        let mut state = GpuState::default();
        let mut read = |batch: Batch| {
            state.apply(&GpuObservation { batches: vec![batch], ..GpuObservation::default() });
            let percent = gpu(&state.usage).percent;
            (percent.max_sum, percent.mean_sum)
        };
        read(Batch { devices: Some(list), ..Batch::default() });
        let busy = |id: &str| DeviceSample {
            device: id.into(),
            busy: Some(Ok(vec![Busy { us: 1000, percent: 100.0 }])),
            ..DeviceSample::default()
        };
        let at_ns = 1_000_000_000;
        assert_eq!(read(Batch { at_ns, samples: vec![busy("a")], ..Batch::default() }), (None, None));
        let both = read(Batch { at_ns, samples: vec![busy("b")], ..Batch::default() });
        assert_eq!(both, (Some(200.0), Some(200.0)));
    }

    #[test]
    fn no_memory_in_use_beside_memory_of_the_run_is_unknown() {
        let used = |device_bytes: f64, run_bytes: u64| {
            let list = DeviceList {
                tracked: vec![TrackedDevice { device: Device::default(), is_visible: None }],
                ..DeviceList::default()
            };
            let values = [(Figure::MemoryUsed, Ok(device_bytes))].into();
            let samples = vec![DeviceSample { values, ..DeviceSample::default() }];
            let batch = Batch { at_ns: 1, devices: Some(list), samples };
            let mut state = GpuState::default();
            state.apply(&GpuObservation { batches: vec![batch], ..GpuObservation::default() });
            state.usage.devices[0].run.max.combined = run_bytes;
            let (usage, gpu) = (&state.usage, &state.usage.devices[0]);
            let missing = why_missing(gpu, Figure::MemoryUsed);
            (memory_of(usage, gpu).max_used_bytes, max_gpu_ram(usage).system_bytes, missing)
        };
        assert_eq!(used(700.0, 500), (Some(700), Some(700), None));
        assert_eq!(used(0.0, 0), (Some(0), Some(0), None));
        assert_eq!(used(0.0, 500), (None, None, Some(Missing::NotReported)));
    }

    // Requirement: GPU-31
    #[test]
    fn energy_that_readings_of_power_contradict_is_unknown() {
        let energy = |readings: u64, joules: fn(u64) -> f64| {
            let values = |s: u64| [(Figure::Power, Ok(100.0)), (Figure::Energy, Ok(joules(s)))];
            let list = DeviceList {
                tracked: vec![TrackedDevice { device: Device::default(), is_visible: None }],
                ..DeviceList::default()
            };
            let mut state = GpuState::default();
            for s in 1..=readings {
                let sample = DeviceSample { values: values(s).into(), ..DeviceSample::default() };
                let devices = (s == 1).then(|| list.clone());
                let batch = Batch { at_ns: s * 1_000_000_000, devices, samples: vec![sample] };
                state.apply(&GpuObservation { batches: vec![batch], ..GpuObservation::default() });
            }
            let gpu = &state.usage.devices[0];
            let power = power_of(gpu);
            (power.energy_j, power.energy_span_s, power.mean_w, fault_of_energy(gpu))
        };
        let right = |s: u64| s as f64 * 120.0;
        // A counter that freezes after 10 s, and one that leaps to the tenfold power for 20 s.
        let freezes = |s: u64| s.min(10) as f64 * 100.0;
        let leaps = |s: u64| (s + 9 * s.min(20)) as f64 * 100.0;
        assert_eq!(energy(40, right), (Some(4680.0), Some(39.0), Some(120.0), None));
        for wrong in [freezes, leaps] {
            assert_eq!(energy(40, wrong), (None, None, Some(100.0), Some(Missing::Contradicted)));
        }
        assert_eq!(energy(20, |_| 5.0), (None, None, Some(100.0), Some(Missing::StandsStill)));
        let few = energy(25, freezes);
        assert_eq!((few.0, few.3), (Some(900.0), None), "a few readings can be wrong by more");
    }

    // Requirement: GPU-22, GPU-32
    #[test]
    fn time_without_an_answer_is_a_gap_beside_that_of_refusals() {
        const S: u64 = 1_000_000_000;
        let device = Device { id: "a".into(), vendor: Some(Vendor::Nvidia), ..Device::default() };
        let list = DeviceList {
            tracked: vec![TrackedDevice { device, is_visible: None }],
            machine: vec!["a".into()],
            is_order_unsure: false,
        };
        let mut state = GpuState::default();
        (state.usage.start_ns, state.usage.end_ns) = (S, Some(60 * S));
        let observed =
            |batch| GpuObservation { batches: vec![batch], interval_ns: S, ..GpuObservation::default() };
        let mut read = |batch| state.apply(&observed(batch));
        read(Batch { devices: Some(list), ..Batch::default() });
        let lists = |at_s: u64, lists| {
            let sample =
                DeviceSample { device: "a".into(), processes: Some(lists), ..DeviceSample::default() };
            Batch { at_ns: at_s * S, samples: vec![sample], ..Batch::default() }
        };
        let refused = || Err(Missing::Failed("no".into()));
        // Answers from 2 s on; none from 3 s to 10 s, and none from 30 s to 40 s: the refusal before explains these.
        for at_s in [2, 3, 10] {
            read(lists(at_s, Ok(vec![])));
        }
        for at_s in [11, 30] {
            read(lists(at_s, refused()));
        }
        read(lists(40, Ok(vec![])));
        for at_s in 41..=60 {
            read(lists(at_s, Ok(vec![])));
        }
        let gaps = gaps_in_report(&state.usage, &state.usage.devices[0]);
        let told: Vec<(&str, f64)> = gaps.iter().map(|gap| (gap.reason.as_str(), gap.time_s)).collect();
        assert_eq!(told, [("no", 29.0), ("not read for longer than two intervals", 7.0)]);
    }
}

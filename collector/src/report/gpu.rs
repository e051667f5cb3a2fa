//! The GPU part of a report, from the GPU usage. No driver is called here.

use std::collections::BTreeMap;

use crate::model::gpu::NVIDIA;
use crate::model::gpu::{Figure, Missing, Vendor};
use crate::model::report::{
    CommandGpu, CommandUsage, Gpu, GpuClocks, GpuDevice, GpuErrors, GpuGap, GpuMemory, GpuMissing, GpuPcie,
    GpuPower, GpuProcess, GpuPstate, GpuReading, GpuThrottle, GpuUtilization, GpuXid, GroupPercent,
    MaxGpuRam, Percent, ProcessGpu, ProcessUsage,
};
use crate::run::gpu::GpuUsage;
use crate::run::gpu::usage::device::{DeviceUsage, Gap};
use crate::run::gpu::usage::{ProcessGpu as Used, meters};
use crate::run::usage::Totals;

/// The devices that enter sums: a part (MIG) is already in its whole device.
pub(super) fn whole(usage: &GpuUsage) -> impl Iterator<Item = &DeviceUsage> {
    usage.devices.iter().filter(|device| !device.is_part)
}

/// Whether a figure of a device that supports it could not be read, so that a sum would lack it.
fn lacks(of: &DeviceUsage, figure: Figure) -> bool {
    let reason = of.missing.get(&figure);
    !of.knows(figure)
        && reason.is_some_and(|reason| *reason != Missing::NotSupported && !reason.is_reported_by_parts())
}

/// The same for figures by process. The tree's processes are only on devices that are visible to the command.
fn lacks_process_figure(usage: &GpuUsage, figure: Figure) -> bool {
    usage.devices.iter().any(|of| of.is_visible != Some(false) && lacks(of, figure))
}

/// Whether a device of this backend is known.
pub(super) fn is_any_of(usage: &GpuUsage, backend: &str) -> bool {
    usage.devices.iter().any(|of| (of.device.vendor == Some(Vendor::Nvidia)) == (backend == NVIDIA))
}

/// Whether there may be devices that the figures lack: a backend failed before it listed any, or a device could not be
/// read. A lost device can't be in use, so it hides nothing as long as others are known.
fn may_lack_devices(usage: &GpuUsage) -> bool {
    usage.failed.iter().any(|(backend, _)| !is_any_of(usage, backend))
        || !usage.unknown_names.is_empty()
        || usage.unreadable.iter().any(|why| usage.devices.is_empty() || *why != Missing::Lost)
}

/// Without a GPU all figures are 0, as in gpu_tracker; where a driver failed, all are unknown.
pub(super) fn max_gpu_ram(usage: &GpuUsage) -> MaxGpuRam {
    if usage.devices.is_empty() || may_lack_devices(usage) {
        let none = (!may_lack_devices(usage)).then_some(0);
        return MaxGpuRam {
            system_capacity_bytes: none,
            system_bytes: none,
            main_bytes: none,
            descendants_bytes: none,
            combined_bytes: none,
        };
    }
    let [main_unknown, descendants_unknown] = usage
        .has_unreported
        .map(|is_unknown| is_unknown || lacks_process_figure(usage, Figure::ProcessMemory));
    // An integrated GPU has no memory of its own.
    let has_memory = |of: &&DeviceUsage| {
        let reason = of.missing.get(&Figure::MemoryUsed);
        of.device.memory_bytes.is_some()
            || of.knows(Figure::MemoryUsed)
            || of.max.combined > 0
            || reason.is_some_and(|reason| *reason != Missing::NotSupported)
    };
    let is_complete =
        usage.unreadable.is_empty() && whole(usage).filter(has_memory).all(|of| of.knows(Figure::MemoryUsed));
    let capacities: Vec<_> = whole(usage).filter(has_memory).map(|of| of.device.memory_bytes).collect();
    let [main_unseen, descendants_unseen] = may_have_missed(usage);
    // Nothing was seen, and there was time for more between two readings.
    let is_seen = |bytes: u64, unseen: bool| (bytes > 0 || !unseen).then_some(bytes);
    let max = |is_unknown: bool| usage.max.filter(|_| !is_unknown);
    MaxGpuRam {
        system_capacity_bytes: (usage.unreadable.is_empty() && !capacities.is_empty())
            .then_some(capacities)
            .and_then(|all| all.into_iter().sum()),
        system_bytes: usage.max_used.filter(|_| is_complete),
        main_bytes: max(main_unknown).and_then(|max| is_seen(max.main, main_unseen)),
        descendants_bytes: max(descendants_unknown)
            .and_then(|max| is_seen(max.descendants, descendants_unseen)),
        combined_bytes: max(main_unknown || descendants_unknown)
            .and_then(|max| is_seen(max.combined, main_unseen || descendants_unseen)),
    }
}

/// Whether a process of the run (main, a descendant) lived between two readings, and long enough to use a GPU. A driver that
/// keeps accounts reports it all the same.
pub(super) fn may_have_missed(usage: &GpuUsage) -> [bool; 2] {
    let has_accounts = whole(usage).all(|of| of.knows(Figure::Accounting));
    usage.has_unsampled_long.map(|is_long| is_long && !has_accounts)
}

/// Figures that could not be read for a part of the run that is longer than two intervals. A counter misses nothing by that.
pub(super) fn gaps<'a>(usage: &'a GpuUsage, of: &'a DeviceUsage) -> impl Iterator<Item = (Figure, &'a Gap)> {
    use Figure::{Accounting, EccCorrected, EccUncorrected, Energy, PcieRx, PcieTx, Xid};
    let is_counter = |figure| {
        matches!(figure, Accounting | EccCorrected | EccUncorrected | Energy | PcieRx | PcieTx | Xid)
    };
    let gaps = of.gaps.iter().map(|(figure, gap)| (*figure, gap));
    gaps.filter(move |(figure, gap)| {
        of.knows(*figure) && !is_counter(*figure) && of.gap_ns(gap) > usage.interval_ns.saturating_mul(2)
    })
}

/// GPU counts and the sum of the devices' utilisation.
pub(super) fn gpu(usage: &GpuUsage) -> Gpu {
    let is_known = !may_lack_devices(usage);
    let count = |n: usize| is_known.then(|| u32::try_from(n).unwrap_or(u32::MAX));
    let means: Vec<f64> = usage.devices.iter().filter_map(|device| device.busy.mean()).collect();
    // The percent of a part is not that of a device.
    let is_divided =
        |of: &DeviceUsage| of.missing.get(&Figure::Utilization).is_some_and(Missing::is_reported_by_parts);
    let is_complete = is_known && !whole(usage).any(|of| lacks(of, Figure::Utilization) || is_divided(of));
    let percent = if !is_complete {
        Percent { max_sum: None, mean_sum: None }
    } else if usage.devices.is_empty() {
        Percent { max_sum: Some(0.0), mean_sum: Some(0.0) }
    } else {
        Percent { max_sum: usage.max_busy, mean_sum: (!means.is_empty()).then(|| means.iter().sum()) }
    };
    Gpu {
        system_gpu_count: count(usage.machine.len()).filter(|_| usage.unreadable.is_empty()),
        expected_gpus: count(whole(usage).count()),
        percent,
    }
}

/// Largest sum of the processes' utilisation; `None` unless it is complete, or at least one device gives it.
pub(super) fn max_sm_percent(usage: &GpuUsage) -> Option<GroupPercent> {
    // A gap on one device does not void what another device gave.
    let has_gap = |of: &DeviceUsage| {
        of.is_visible != Some(false)
            && of.knows(Figure::ProcessUtilization)
            && of.process_utilization_gap().is_some()
    };
    let has_samples = usage.devices.iter().any(|of| of.has_samples_of_run);
    let is_complete = !may_lack_devices(usage)
        && !lacks_process_figure(usage, Figure::ProcessUtilization)
        && (has_samples || !usage.devices.iter().any(has_gap));
    let max = usage.max_process_busy.filter(|_| is_complete);
    max.map(|[main, descendants, combined]| GroupPercent { main, descendants, combined })
}

/// All tracked devices.
pub(super) fn gpus(usage: &GpuUsage, start_ns: u64) -> Vec<GpuDevice> {
    usage.devices.iter().map(|device| device_of(usage, device, start_ns)).collect()
}

fn device_of(usage: &GpuUsage, of: &DeviceUsage, start_ns: u64) -> GpuDevice {
    let gauge = |figure| of.gauges.get(&figure).copied();
    let max = |figure| gauge(figure).map(|gauge: meters::Gauge| gauge.max);
    let mean = |figure| gauge(figure).map(|gauge: meters::Gauge| gauge.mean());
    let counted = |figure| of.counters.get(&figure).and_then(meters::Counter::total);
    let whole = |figure| counted(figure).map(|count| count as u64);
    let is_known = of.knows(Figure::ProcessMemory) || of.has_accounting;
    let [main_unreported, descendants_unreported] = of.has_unreported;
    let [main_unseen, descendants_unseen] = may_have_missed(usage);
    let held = |bytes, is_unreported: bool, is_unseen: bool| {
        (is_known && !is_unreported && (bytes > 0 || !is_unseen)).then_some(bytes)
    };
    let device = of.device.clone();
    GpuDevice {
        index: device.index,
        pci_address: device.pci_address,
        name: device.name,
        vendor: device.vendor.map(crate::model::gpu::Vendor::name),
        parent: device.parent,
        source: device.source,
        driver_version: device.driver_version,
        runtime_version: device.runtime_version,
        visible: of.is_visible,
        used: of.is_used,
        lost_at_s: of.lost_at_ns.map(|at| at.saturating_sub(start_ns) as f64 / 1e9),
        reading: GpuReading {
            count: of.lists.count,
            mean_interval_s: of.lists.mean_ns().map(|ns| ns / 1e9),
            max_interval_s: of.lists.mean_ns().map(|_| of.lists.longest_ns as f64 / 1e9),
        },
        memory: GpuMemory {
            total_bytes: device.memory_bytes,
            max_used_bytes: max(Figure::MemoryUsed).map(|bytes| bytes as u64),
            max_main_bytes: held(of.max.main, main_unreported, main_unseen),
            max_descendants_bytes: held(of.max.descendants, descendants_unreported, descendants_unseen),
            max_combined_bytes: held(
                of.max.combined,
                main_unreported || descendants_unreported,
                main_unseen || descendants_unseen,
            ),
        },
        utilization: GpuUtilization {
            mean_percent: of.busy.mean(),
            max_percent: of.busy.max,
            active_s: of.busy.active_s(),
            measured_s: of.knows(Figure::Utilization).then(|| of.busy.measured_s()),
            mean_memory_percent: mean(Figure::MemoryUtilization),
            max_memory_percent: max(Figure::MemoryUtilization),
        },
        power: GpuPower {
            mean_w: mean(Figure::Power),
            max_w: max(Figure::Power),
            energy_j: counted(Figure::Energy),
            energy_span_s: energy_span_s(of),
            integrated_energy_j: gauge(Figure::Power).and_then(|gauge| gauge.integrated()),
        },
        max_temperature_c: max(Figure::Temperature),
        clocks: GpuClocks {
            mean_sm_mhz: mean(Figure::SmClock),
            max_sm_mhz: max(Figure::SmClock),
            mean_memory_mhz: mean(Figure::MemoryClock),
            max_memory_mhz: max(Figure::MemoryClock),
        },
        pstate: GpuPstate {
            fastest: gauge(Figure::Pstate).map(|gauge| gauge.min as u32),
            slowest: gauge(Figure::Pstate).map(|gauge| gauge.max as u32),
        },
        throttle: (of.knows(Figure::Throttle) && of.has_throttle_times()).then(|| {
            let time = |(reason, ns): (&String, &u64)| GpuThrottle {
                reason: reason.clone(),
                time_s: *ns as f64 / 1e9,
            };
            of.throttle_ns.iter().map(time).collect()
        }),
        pcie: GpuPcie { tx_bytes: whole(Figure::PcieTx), rx_bytes: whole(Figure::PcieRx) },
        errors: GpuErrors {
            ecc_corrected: whole(Figure::EccCorrected),
            ecc_uncorrected: whole(Figure::EccUncorrected),
            xid: of
                .knows(Figure::Xid)
                .then(|| of.xids.iter().map(|(xid, count)| GpuXid { xid: *xid, count: *count }).collect()),
        },
        processes: processes_on(usage, &device.id),
        missing: missing_of(of)
            .into_iter()
            .map(|(figure, missing)| GpuMissing { figure: figure.name().into(), reason: missing.to_string() })
            .collect(),
        gaps: gaps(usage, of)
            .map(|(figure, gap)| GpuGap {
                figure: figure.name().into(),
                reason: gap.reason.to_string(),
                time_s: of.gap_ns(gap) as f64 / 1e9,
            })
            .collect(),
        id: device.id,
    }
}

/// The time that the energy of a device covers, seconds; `None`: it is not known.
pub(super) fn energy_span_s(of: &DeviceUsage) -> Option<f64> {
    of.counters.get(&Figure::Energy).and_then(meters::Counter::span_s)
}

/// The processes on a device, largest peak first.
fn processes_on(usage: &GpuUsage, device: &str) -> Vec<GpuProcess> {
    let on = |used: &Used| {
        let on = used.devices.get(device)?;
        Some(GpuProcess {
            pid: used.pid,
            driver_pid: used.driver_pid,
            command: used.command.to_string(),
            is_main: used.is_main,
            peak_bytes: on.peak_bytes,
            mean_sm_percent: on.busy.mean().or(on.accounted_percent),
            max_sm_percent: on.busy.max,
            accounted: on.is_accounted,
        })
    };
    let mut list: Vec<GpuProcess> = usage.processes.values().filter_map(on).collect();
    list.sort_by(|a, b| b.peak_bytes.cmp(&a.peak_bytes).then(a.pid.cmp(&b.pid)));
    list
}

fn max_sm(used: &Used) -> Option<f64> {
    used.devices.values().filter_map(|on| on.busy.max).reduce(f64::max)
}

/// Adds the GPU columns to the list of commands.
pub(super) fn with_gpu_columns(usage: &GpuUsage, mut commands: Vec<CommandUsage>) -> Vec<CommandUsage> {
    let mut by_name: BTreeMap<&str, CommandGpu> = BTreeMap::new();
    for used in usage.processes.values() {
        let of = by_name.entry(&used.command).or_default();
        of.count += 1;
        of.peak_ram_bytes = of.peak_ram_bytes.max(used.peak_bytes);
        of.max_sm_percent = of.max_sm_percent.into_iter().chain(max_sm(used)).reduce(f64::max);
    }
    for command in &mut commands {
        command.gpu = by_name.remove(command.command.as_str());
    }
    commands
}

/// The heaviest processes, with their GPU columns.
pub(super) fn heaviest(usage: &GpuUsage, totals: &Totals) -> Vec<ProcessUsage> {
    let on_gpus = |id: u64| {
        let used = usage.processes.get(&id)?;
        Some(ProcessGpu { peak_ram_bytes: used.peak_bytes, max_sm_percent: max_sm(used) })
    };
    totals
        .heaviest()
        .into_iter()
        .map(|(id, process)| ProcessUsage { gpu: on_gpus(id.0), ..process })
        .collect()
}

/// The figures of a device that are not known, and why.
pub(super) fn missing_of(of: &DeviceUsage) -> Vec<(Figure, Missing)> {
    // NVML is asked for every figure, but not for all of them at once.
    let is_nvml = of.device.vendor == Some(Vendor::Nvidia);
    let unasked = if is_nvml { Missing::NoSample } else { Missing::NotSupported };
    let reason = |figure: Figure| match figure {
        Figure::Utilization if of.knows(figure) => of.busy.max.is_none().then_some(Missing::NoSample),
        Figure::ProcessUtilization if of.knows(figure) => of.process_utilization_gap(),
        Figure::ProcessMemory if of.knows(figure) => {
            of.has_unreported.contains(&true).then_some(Missing::NotReported)
        }
        Figure::Throttle if of.knows(figure) => (!of.has_throttle_times()).then_some(Missing::ReadOnce),
        _ if of.counters.get(&figure).is_some_and(meters::Counter::may_have_wrapped) => Some(Missing::Wraps),
        _ if of.counters.get(&figure).is_some_and(|counter| !counter.has_counted) => Some(Missing::ReadOnce),
        _ if of.knows(figure) => None,
        _ if of.was_read() => Some(of.missing.get(&figure).cloned().unwrap_or(unasked.clone())),
        _ if of.lost_at_ns.is_some() => Some(Missing::Lost),
        _ => Some(Missing::NoSample),
    };
    // What was not read often enough is not read any more.
    let is_lost = of.lost_at_ns.is_some() && !of.is_back;
    let is_rare = |reason: &Missing| matches!(reason, Missing::NoSample | Missing::ReadOnce);
    let missing = |figure| {
        let reason = reason(figure)?;
        Some((figure, if is_lost && is_rare(&reason) { Missing::Lost } else { reason }))
    };
    Figure::ALL.into_iter().filter_map(missing).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_gpu_lost_before_the_run_makes_figures_unknown() {
        let of = |unreadable| {
            let usage = GpuUsage { unreadable, ..GpuUsage::default() };
            let (ram, gpu) = (max_gpu_ram(&usage), gpu(&usage));
            (ram.combined_bytes, ram.system_bytes, gpu.system_gpu_count, gpu.percent.max_sum)
        };
        assert_eq!(
            of(vec![]),
            (Some(0), Some(0), Some(0), Some(0.0)),
            "as gpu_tracker has it where there is none"
        );
        assert_eq!(of(vec![Missing::Lost]), (None, None, None, None));
    }
}

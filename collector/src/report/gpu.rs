//! The GPU part of a report, from the usage: no driver is asked here.

use std::collections::BTreeMap;

use crate::model::gpu::NVIDIA;
use crate::model::gpu::{Figure, Missing, Vendor};
use crate::model::report::{
    CommandGpu, CommandUsage, Gpu, GpuClocks, GpuDevice, GpuErrors, GpuMemory, GpuMissing, GpuPcie, GpuPower,
    GpuProcess, GpuPstate, GpuThrottle, GpuUtilization, GpuXid, GroupPercent, MaxGpuRam, Percent, ProcessGpu,
    ProcessUsage,
};
use crate::run::gpu::GpuUsage;
use crate::run::gpu::usage::device::DeviceUsage;
use crate::run::gpu::usage::{ProcessGpu as Used, meters};
use crate::run::usage::Totals;

/// Devices that count in sums: the parts of a device are in the whole.
fn whole(usage: &GpuUsage) -> impl Iterator<Item = &DeviceUsage> {
    usage.devices.iter().filter(|device| !device.is_part)
}

/// Whether a device does not tell its part of a sum, though it could.
fn hides(of: &DeviceUsage, figure: Figure) -> bool {
    let reason = of.missing.get(&figure);
    !of.knows(figure)
        && reason.is_some_and(|reason| !matches!(reason, Missing::NotSupported | Missing::OfInstances))
}

/// The same of our processes, which are only on devices that the command may see.
fn hides_processes(usage: &GpuUsage, figure: Figure) -> bool {
    usage.devices.iter().any(|of| of.is_visible != Some(false) && hides(of, figure))
}

/// Whether a device of this backend is known.
fn is_any_of(usage: &GpuUsage, backend: &str) -> bool {
    usage.devices.iter().any(|of| (of.device.vendor == Some(Vendor::Nvidia)) == (backend == NVIDIA))
}

/// Whether a driver failed of whose devices none is known, so that there may be some; or one that could not be read may be
/// in use. Nobody uses a lost one.
fn hides_devices(usage: &GpuUsage) -> bool {
    usage.failed.iter().any(|(backend, _)| !is_any_of(usage, backend))
        || usage.unreadable.iter().any(|why| usage.devices.is_empty() || *why != Missing::Lost)
}

/// gpu_tracker's section. Without a GPU all is 0, as it has it; where a driver fails, nobody knows.
#[must_use]
pub fn max_gpu_ram(usage: &GpuUsage) -> MaxGpuRam {
    if usage.devices.is_empty() || hides_devices(usage) {
        let none = (!hides_devices(usage)).then_some(0);
        return MaxGpuRam {
            system_capacity_bytes: none,
            system_bytes: none,
            main_bytes: none,
            descendants_bytes: none,
            combined_bytes: none,
        };
    }
    let [main_untold, descendant_untold] =
        usage.untold.map(|untold| untold || hides_processes(usage, Figure::ProcessMemory));
    // A processor's own graphics unit has no memory of its own.
    let has_memory = |of: &&DeviceUsage| {
        let reason = of.missing.get(&Figure::MemoryUsed);
        of.device.memory_bytes.is_some()
            || of.knows(Figure::MemoryUsed)
            || of.max.combined > 0
            || reason.is_some_and(|reason| *reason != Missing::NotSupported)
    };
    let is_told =
        usage.unreadable.is_empty() && whole(usage).filter(has_memory).all(|of| of.knows(Figure::MemoryUsed));
    let capacities: Vec<_> = whole(usage).filter(has_memory).map(|of| of.device.memory_bytes).collect();
    MaxGpuRam {
        system_capacity_bytes: (usage.unreadable.is_empty() && !capacities.is_empty())
            .then_some(capacities)
            .and_then(|all| all.into_iter().sum()),
        system_bytes: usage.max_used.filter(|_| is_told),
        main_bytes: usage.max.filter(|_| !main_untold).map(|max| max.main),
        descendants_bytes: usage.max.filter(|_| !descendant_untold).map(|max| max.descendants),
        combined_bytes: usage.max.filter(|_| !main_untold && !descendant_untold).map(|max| max.combined),
    }
}

/// gpu_tracker's other section.
#[must_use]
pub fn gpu(usage: &GpuUsage) -> Gpu {
    let is_known = !hides_devices(usage);
    let count = |n: usize| is_known.then(|| u32::try_from(n).unwrap_or(u32::MAX));
    let means: Vec<f64> = usage.devices.iter().filter_map(|device| device.busy.mean()).collect();
    let is_told = is_known && !whole(usage).any(|of| hides(of, Figure::Utilization));
    let percent = if !is_told {
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

/// Largest sum of the processes' utilisation.
#[must_use]
pub fn max_sm_percent(usage: &GpuUsage) -> Option<GroupPercent> {
    // What one device told of our processes is no less for what another did not.
    let has_gap = |of: &DeviceUsage| {
        of.is_visible != Some(false)
            && of.knows(Figure::ProcessUtilization)
            && of.process_utilization_gap().is_some()
    };
    let is_any_told = usage.devices.iter().any(|of| of.has_samples_of_ours);
    let is_told = !hides_devices(usage)
        && !hides_processes(usage, Figure::ProcessUtilization)
        && (is_any_told || !usage.devices.iter().any(has_gap));
    let max = usage.max_process_busy.filter(|_| is_told);
    max.map(|[main, descendants, combined]| GroupPercent { main, descendants, combined })
}

/// Each device.
#[must_use]
pub fn gpus(usage: &GpuUsage, start_ns: u64) -> Vec<GpuDevice> {
    usage.devices.iter().map(|device| device_of(usage, device, start_ns)).collect()
}

fn device_of(usage: &GpuUsage, of: &DeviceUsage, start_ns: u64) -> GpuDevice {
    let gauge = |figure| of.gauges.get(&figure).copied();
    let max = |figure| gauge(figure).map(|gauge: meters::Gauge| gauge.max);
    let mean = |figure| gauge(figure).map(|gauge: meters::Gauge| gauge.mean());
    let counted =
        |figure| of.counters.get(&figure).filter(|counter| counter.has_counted).map(|counter| counter.total);
    let whole = |figure| counted(figure).map(|count| count as u64);
    let is_told = of.knows(Figure::ProcessMemory) || of.has_accounts;
    let held = |bytes| (is_told && !of.has_untold).then_some(bytes);
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
        memory: GpuMemory {
            total_bytes: device.memory_bytes,
            max_used_bytes: max(Figure::MemoryUsed).map(|bytes| bytes as u64),
            max_main_bytes: held(of.max.main),
            max_descendants_bytes: held(of.max.descendants),
            max_combined_bytes: held(of.max.combined),
        },
        utilization: GpuUtilization {
            mean_percent: of.busy.mean(),
            max_percent: of.busy.max,
            active_s: of.busy.active_s(),
            mean_memory_percent: mean(Figure::MemoryUtilization),
            max_memory_percent: max(Figure::MemoryUtilization),
        },
        power: GpuPower {
            mean_w: mean(Figure::Power),
            max_w: max(Figure::Power),
            energy_j: counted(Figure::Energy),
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
        throttle: (of.knows(Figure::Throttle) && of.has_span()).then(|| {
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
        id: device.id,
    }
}

/// Largest peak first.
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

/// The list of commands with its GPU columns.
#[must_use]
pub fn with_gpu_columns(usage: &GpuUsage, mut commands: Vec<CommandUsage>) -> Vec<CommandUsage> {
    let mut by_name: BTreeMap<&str, CommandGpu> = BTreeMap::new();
    for used in usage.processes.values() {
        let of = by_name.entry(&used.command).or_default();
        of.count += 1;
        of.peak_ram_bytes = of.peak_ram_bytes.max(used.peak_bytes);
        of.max_sm_percent = match (of.max_sm_percent, max_sm(used)) {
            (Some(a), Some(b)) => Some(a.max(b)),
            (a, b) => a.or(b),
        };
    }
    for command in &mut commands {
        command.gpu = by_name.remove(command.command.as_str());
    }
    commands
}

/// The list of heavy processes with its GPU columns.
#[must_use]
pub fn heaviest(usage: &GpuUsage, totals: &Totals) -> Vec<ProcessUsage> {
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

/// What a reader should know.
#[must_use]
pub fn warnings(usage: &GpuUsage, start_ns: u64) -> Vec<String> {
    let mut warnings: Vec<String> = usage
        .failed
        .iter()
        .map(|(name, missing)| {
            let is_any = is_any_of(usage, name);
            let then = if is_any { "their figures end there" } else { "whether there are any is not known" };
            format!("{name} GPUs: {missing}; {then}.")
        })
        .collect();
    for (name, since_ns) in &usage.silent {
        let since_s = since_ns.saturating_sub(start_ns) as f64 / 1e9;
        warnings.push(format!(
            "{name} GPUs: the driver has not answered since {since_s:.1} s; their figures end there."
        ));
    }
    warnings.extend(usage.notes.iter().cloned());
    for of in &usage.devices {
        let id = &of.device.id;
        if let Some(at) = of.lost_at_ns {
            let at_s = at.saturating_sub(start_ns) as f64 / 1e9;
            let then = if of.is_back { "it came back later" } else { "its figures end there" };
            warnings.push(format!("GPU lost at {at_s:.1} s: {id}; {then}."));
        }
        if of.counters.get(&Figure::Energy).is_some_and(|counter| counter.restarts > 0) {
            warnings.push(format!(
                "The energy counter of {id} began again during the run (a reloaded driver?); what it counted just \
                 before is missing."
            ));
        }
        for (xid, count) in &of.xids {
            let times = if *count == 1 { "once".to_owned() } else { format!("{count} times") };
            warnings.push(format!("{id} reported XID error {xid} ({times})."));
        }
        if of.counters.get(&Figure::EccUncorrected).is_some_and(|counter| counter.total > 0.0) {
            warnings.push(format!("{id} had uncorrected memory errors (ECC)."));
        }
    }
    warnings.extend(missing(usage));
    warnings.extend(idle(usage));
    if usage.is_order_unsure {
        warnings.push(
            "The numbers in CUDA_VISIBLE_DEVICES are taken in the order of the PCI bus; CUDA counts the fastest GPU \
             first, so it may mean others (CUDA_DEVICE_ORDER=PCI_BUS_ID, or UUIDs)."
                .to_owned(),
        );
    }
    // A driver that keeps accounts knows of all of them.
    let has_gap = whole(usage).any(|device| !device.knows(Figure::Accounting));
    if usage.unsampled > 0 && has_gap {
        warnings.push(format!(
            "GPU processes shorter than the sampling interval may be missing: {} {} lived between two looks at the GPUs \
             (--gpu-accounting, or a smaller --st).",
            usage.unsampled,
            if usage.unsampled == 1 { "process" } else { "processes" }
        ));
    }
    warnings
}

/// What is not known of a device, and why.
fn missing_of(of: &DeviceUsage) -> Vec<(Figure, Missing)> {
    let reason = |figure: Figure| match figure {
        Figure::Utilization if of.knows(figure) => of.busy.max.is_none().then_some(Missing::NoSample),
        Figure::ProcessUtilization if of.knows(figure) => of.process_utilization_gap(),
        Figure::ProcessMemory if of.knows(figure) => of.has_untold.then_some(Missing::NotTold),
        Figure::Throttle if of.knows(figure) => (!of.has_span()).then_some(Missing::Once),
        _ if of.counters.get(&figure).is_some_and(|counter| !counter.has_counted) => Some(Missing::Once),
        _ if of.knows(figure) => None,
        _ if of.was_read() => Some(of.missing.get(&figure).cloned().unwrap_or(Missing::NotSupported)),
        _ if of.lost_at_ns.is_some() => Some(Missing::Lost),
        _ => Some(Missing::NoSample),
    };
    Figure::ALL.into_iter().filter_map(|figure| Some((figure, reason(figure)?))).collect()
}

/// Figures with the devices that lack them, by the reason.
type Reasons = BTreeMap<String, BTreeMap<Figure, Vec<String>>>;

/// Each reason once for the same devices, with the figures that they lack. An account is a way to a figure, and none
/// itself.
fn lines(said: &str, reasons: Reasons) -> Vec<String> {
    let mut lines = Vec::new();
    for (reason, by_figure) in reasons {
        let mut by_devices: Vec<(Vec<String>, Vec<&str>)> = Vec::new();
        for (figure, devices) in by_figure.into_iter().filter(|(figure, _)| *figure != Figure::Accounting) {
            match by_devices.iter_mut().find(|(others, _)| *others == devices) {
                Some((_, figures)) => figures.push(figure.name()),
                None => by_devices.push((devices, vec![figure.name()])),
            }
        }
        lines.extend(by_devices.into_iter().map(|(devices, figures)| {
            format!("GPU figures that {said} ({reason}): {} of {}.", figures.join(", "), devices.join(", "))
        }));
    }
    lines
}

fn missing(usage: &GpuUsage) -> Vec<String> {
    let (mut missing, mut ended, mut unread) = (Reasons::new(), Reasons::new(), Vec::new());
    for of in &usage.devices {
        let id = &of.device.id;
        let note = |reasons: &mut Reasons, reason: &Missing, figure| {
            reasons.entry(reason.to_string()).or_default().entry(figure).or_default().push(id.clone());
        };
        if !of.was_read() {
            // That it is lost has a warning of its own.
            unread.extend(of.lost_at_ns.is_none().then_some(id.as_str()));
            continue;
        }
        for (figure, reason) in missing_of(of).iter().filter(|(_, reason)| *reason != Missing::OfInstances) {
            note(&mut missing, reason, *figure);
        }
        let was_known = |(figure, _): &(&Figure, &Missing)| of.knows(**figure) && of.lost_at_ns.is_none();
        for (figure, reason) in of.missing.iter().filter(was_known) {
            note(&mut ended, reason, *figure);
        }
    }
    let mut lines =
        [lines("are missing", missing), lines("could no longer be read when the command ended", ended)]
            .concat();
    if !unread.is_empty() {
        let all = format!("({}): all figures of {}", Missing::NoSample, unread.join(", "));
        lines.push(format!("GPU figures that are missing {all}."));
    }
    lines
}

/// Allocated and never used: what a batch system wants to know.
fn idle(usage: &GpuUsage) -> Vec<String> {
    // Of the parts of a device that is named as a whole CUDA uses one: the whole is idle, or not.
    let is_with_the_whole = |of: &DeviceUsage| {
        let mut all = usage.devices.iter();
        all.any(|other| Some(&other.device.id) == of.device.parent.as_ref() && other.is_visible == Some(true))
    };
    let is_idle = |of: &&DeviceUsage| {
        let parts = || usage.devices.iter().filter(|d| d.device.parent.as_ref() == Some(&of.device.id));
        of.is_visible == Some(true)
            && !of.is_used
            && of.lost_at_ns.is_none()
            && (of.knows(Figure::ProcessMemory) || parts().count() > 0)
            && !parts().any(|part| part.is_used)
            && !is_with_the_whole(of)
    };
    let line = |of: &DeviceUsage| {
        let name = of.device.name.as_deref().map(|name| format!(" ({name})")).unwrap_or_default();
        format!("Allocated but idle: {}{name} was never seen in use by the command.", of.device.id)
    };
    usage.devices.iter().filter(is_idle).map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_only_gpu_that_is_lost_before_the_run_makes_no_figure_0() {
        let of = |unreadable| {
            let mut usage = GpuUsage::default();
            usage.unreadable = unreadable;
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

//! The warnings about GPUs.

use std::collections::BTreeMap;

use super::super::counts::{processes, times};
use super::super::gpu::{energy_span_s, gaps, is_any_of, may_have_missed, missing_of, whole};
use super::super::inputs::Inputs;
use crate::model::gpu::{Figure, Missing};
use crate::model::report::{Stage, Topic, Warning};
use crate::run::gpu::GpuUsage;
use crate::run::gpu::usage::availability::Gap;
use crate::run::gpu::usage::device::{DeviceUsage, Loss};

/// A share of lost utilization samples that is worth a warning; less changes no figure by more than that.
const LOST_SHARE: f64 = 0.01;
/// The share of the run that energy or utilization may lack without a warning.
const UNCOVERED_SHARE: f64 = 0.1;
/// The least time without energy that is worth one, seconds.
const LEAST_WITHOUT_ENERGY_S: f64 = 0.2;
/// The same of utilization: where a driver takes no samples of an idle GPU, it is known to be idle after 2 s only.
const LEAST_WITHOUT_UTILIZATION_S: f64 = 2.25;

/// In the order of the report: backends, devices, missing figures, then what concerns the run as a whole.
pub(super) fn warnings(inputs: &Inputs) -> Vec<Warning> {
    let (usage, start_ns) = (&inputs.run.gpu.usage, inputs.run.start_ns);
    let seconds = |at_ns: u64| at_ns.saturating_sub(start_ns) as f64 / 1e9;
    let mut warnings = Warnings(Vec::new());
    warnings.extend(
        Topic::Figures,
        usage.backends.failed.iter().map(|(name, missing)| failed(usage, name, missing)),
    );
    let unresponsive = |(name, since_ns): &(String, u64)| unresponsive(name, seconds(*since_ns));
    warnings.extend(Topic::Command, usage.unresponsive.iter().map(unresponsive));
    warnings.extend(Topic::Figures, usage.backends.notes.iter().cloned());
    warnings.extend(Topic::Figures, no_gpu_of_vendor(inputs));
    warnings
        .extend(Topic::Figures, usage.backends.unknown_names.iter().map(|name| unknown_name(usage, name)));
    for of in &usage.devices {
        warnings.extend(Topic::Command, of.loss.map(|loss| lost(of, loss, seconds(loss.at_ns))));
        warnings.extend(Topic::Figures, energy_counter(of));
        warnings.extend(Topic::Command, xid_errors(of));
        warnings.extend(Topic::Command, memory_errors(of));
    }
    warnings.extend(Topic::Figures, missing_figures(usage));
    warnings.extend(Topic::Figures, usage.devices.iter().flat_map(|of| gaps_of(usage, of)));
    warnings.extend(Topic::Figures, usage.devices.iter().filter_map(lost_utilization));
    let run_s = seconds(inputs.end.at_ns);
    warnings.extend(
        Topic::Figures,
        short_energy(usage, run_s).into_iter().chain(short_utilization(usage, run_s)),
    );
    warnings.extend(Topic::Figures, slow_readings(usage));
    warnings.extend(Topic::IdleGpu, idle(usage));
    warnings.extend(Topic::Figures, ambiguous_indices(usage));
    warnings.extend(Topic::Figures, unsampled_processes(usage));
    warnings.0
}

struct Warnings(Vec<Warning>);

impl Warnings {
    fn extend(&mut self, topic: Topic, texts: impl IntoIterator<Item = String>) {
        self.0.extend(texts.into_iter().map(|text| Warning::new(topic, text)));
    }
}

fn failed(usage: &GpuUsage, backend: &str, missing: &Missing) -> String {
    let then = if is_any_of(usage, backend) {
        "their figures end there"
    } else {
        "whether there are any is not known"
    };
    format!("{backend} GPUs: {missing}; {then}.")
}

/// Zeros for a vendor that was named by mistake would look like a command that uses no GPU.
fn no_gpu_of_vendor(inputs: &Inputs) -> Option<String> {
    let (usage, config) = (&inputs.run.gpu.usage, &inputs.config.gpu);
    // Before the end, the driver may still be starting.
    let is_none =
        usage.devices.is_empty() && usage.backends.failed.is_empty() && usage.backends.unreadable.is_empty();
    let vendor = config.vendor.filter(|_| is_none && inputs.end.stage != Stage::SoFar)?.name();
    let which = if config.only_visible { " that the command may see" } else { "" };
    Some(format!(
        "--gb {vendor}: there is no GPU of this vendor{which}, so all GPU figures are 0. GPUs of other vendors are left out."
    ))
}

fn unknown_name(usage: &GpuUsage, name: &str) -> String {
    let known: Vec<&str> = usage.machine.iter().map(String::as_str).collect();
    format!(
        "--guuids: \"{name}\" is not a GPU of this machine: one of {}. Sums over the GPUs are not known.",
        known.join(", ")
    )
}

fn unresponsive(backend: &str, since_s: f64) -> String {
    format!(
        "{backend} GPUs: the driver has not responded since {since_s:.1} s after the start; their figures end there."
    )
}

fn lost(of: &DeviceUsage, loss: Loss, at_s: f64) -> String {
    let then = if loss.is_back { "it came back later" } else { "its figures end there" };
    format!("GPU lost at {at_s:.1} s: {}; {then}.", of.device.id)
}

fn energy_counter(of: &DeviceUsage) -> impl Iterator<Item = String> {
    let counter = of.counters.get(&Figure::Energy);
    let id = &of.device.id;
    let reset = counter.filter(|counter| counter.restarts > 0).map(|_| {
        format!(
            "The energy counter of {id} was reset during the run, as when a driver is reloaded: the energy between the last \
             reading and the reset is missing."
        )
    });
    let stepped = counter.filter(|counter| counter.steps_back > 0).map(|counter| {
        format!(
            "The energy counter of {id} stepped back {} without a reset: the larger reading was kept.",
            times(counter.steps_back)
        )
    });
    reset.into_iter().chain(stepped)
}

/// A figure that could not be read for a while: what was used meanwhile may exceed its maximum.
fn gaps_of(usage: &GpuUsage, of: &DeviceUsage) -> Vec<String> {
    let line = |(figure, gap): (Figure, &Gap)| {
        let used = gap.used_bytes.filter(|_| figure == Figure::ProcessMemory).map(|bytes| {
            format!(" Up to {:.1} GB were in use on it meanwhile, by all processes.", bytes as f64 / 1e9)
        });
        format!(
            "GPU figure that could not be read for {:.1} s of the run ({}): {} of {}. What was used meanwhile is \
             missing.{}",
            of.gap_ns(gap) as f64 / 1e9,
            gap.reason,
            figure.name(),
            of.device.id,
            used.unwrap_or_default()
        )
    };
    // One that could not be read to the end has a warning of its own.
    gaps(usage, of).filter(|(figure, _)| !of.figures.missing.contains_key(figure)).map(line).collect()
}

/// The driver had overwritten samples before they were read.
fn lost_utilization(of: &DeviceUsage) -> Option<String> {
    let (lost_s, measured_s) = (of.busy.lost_s(), of.busy.measured_s());
    (lost_s > measured_s * LOST_SHARE).then(|| {
        format!(
            "The utilization of {} is known for {measured_s:.1} s, and not for {lost_s:.1} s: the driver keeps it for less \
             than the time between two readings. The mean is that of the time which is known.",
            of.device.id
        )
    })
}

/// Energy that is known for a part of the run only: a counter is read first when the driver answers, and last before the end.
fn short_energy(usage: &GpuUsage, run_s: f64) -> Option<String> {
    let spans = usage.devices.iter().filter_map(|of| Some((of, energy_span_s(of)?)));
    short(spans.collect(), run_s, LEAST_WITHOUT_ENERGY_S).map(|(ids, known_s)| {
        format!(
            "The energy of {ids} is that of {known_s:.1} s of the run's {run_s:.1} s: the driver was late or slow to answer. What \
             was used before the first reading and after the last is missing."
        )
    })
}

/// The same of utilization. What the driver had overwritten has a warning of its own.
fn short_utilization(usage: &GpuUsage, run_s: f64) -> Option<String> {
    let is_known = |of: &&DeviceUsage| of.busy.measured_s() > 0.0;
    let spans = usage.devices.iter().filter(is_known);
    let spans = spans.map(|of| (of, of.busy.measured_s() + of.busy.lost_s()));
    short(spans.collect(), run_s, LEAST_WITHOUT_UTILIZATION_S).map(|(ids, known_s)| {
        format!(
            "The utilization of {ids} is that of {known_s:.1} s of the run's {run_s:.1} s: the driver was late or slow to answer. \
             Active time before and after that is missing."
        )
    })
}

/// The devices of which too little is known, and for how long the least is. A lost one has a warning of its own.
fn short(spans: Vec<(&DeviceUsage, f64)>, run_s: f64, least_s: f64) -> Option<(String, f64)> {
    let is_short = |(of, known_s): &(&DeviceUsage, f64)| {
        of.loss.is_none() && run_s - known_s > least_s.max(run_s * UNCOVERED_SHARE)
    };
    let short: Vec<_> = spans.into_iter().filter(is_short).collect();
    let known_s = short.iter().map(|(_, known_s)| *known_s).reduce(f64::min)?;
    let ids: Vec<&str> = short.iter().map(|(of, _)| of.device.id.as_str()).collect();
    Some((ids.join(", "), known_s))
}

fn is_slow(usage: &GpuUsage, of: &DeviceUsage) -> bool {
    of.is_visible != Some(false)
        && of.lists.mean_ns().is_some_and(|mean_ns| mean_ns > usage.interval_ns as f64 * 2.0)
}

fn is_any_slow(usage: &GpuUsage) -> bool {
    usage.devices.iter().any(|of| is_slow(usage, of))
}

/// GPUs that were read much less often than asked for.
fn slow_readings(usage: &GpuUsage) -> Option<String> {
    let slow: Vec<&DeviceUsage> = usage.devices.iter().filter(|of| is_slow(usage, of)).collect();
    let slowest = slow.iter().filter_map(|of| of.lists.mean_ns()).reduce(f64::max)?;
    let ids: Vec<&str> = slow.iter().map(|of| of.device.id.as_str()).collect();
    Some(format!(
        "GPU memory by process was read every {:.2} s instead of every {:.2} s, since the driver is slow: shorter peaks are \
         missing on {}.",
        slowest / 1e9,
        usage.interval_ns as f64 / 1e9,
        ids.join(", ")
    ))
}

fn xid_errors(of: &DeviceUsage) -> impl Iterator<Item = String> {
    of.xids
        .iter()
        .map(|(xid, count)| format!("{} reported XID error {xid} ({}).", of.device.id, times(*count)))
}

fn memory_errors(of: &DeviceUsage) -> Option<String> {
    let has_any = of.counted(Figure::EccUncorrected).is_some_and(|total| total > 0.0);
    has_any.then(|| format!("{} had uncorrected memory errors (ECC).", of.device.id))
}

fn ambiguous_indices(usage: &GpuUsage) -> Option<String> {
    usage.is_order_unsure.then(|| {
        "The indices in CUDA_VISIBLE_DEVICES were read in PCI bus order, but CUDA's default order has the fastest GPU first: \
         they may mean other GPUs. Set CUDA_DEVICE_ORDER=PCI_BUS_ID, or name the GPUs by UUID."
            .into()
    })
}

/// A driver with accounting switched on reports every process, sampled or not.
fn unsampled_processes(usage: &GpuUsage) -> Option<String> {
    let has_gap = whole(usage).any(|device| !device.knows(Figure::Accounting));
    (usage.unsampled.count > 0 && has_gap).then(|| {
        let is_null = may_have_missed(usage).combined && usage.max.memory.is_none_or(|max| max.combined == 0);
        let cure = if is_any_slow(usage) { "" } else { ", or a smaller --st" };
        format!(
            "{} lived between two readings of the GPUs: GPU memory and utilization of such processes are missing{}. Use \
             --gpu-accounting{cure}.",
            processes(usage.unsampled.count),
            if is_null { ", so it is not known whether any GPU memory was used" } else { "" }
        )
    })
}

/// Figures by reason, each with the devices that lack it.
type Reasons = BTreeMap<String, BTreeMap<Figure, Vec<String>>>;

/// One line for each reason and set of devices, with the figures that those lack. Accounting is no figure of the report.
fn lines(problem: &str, reasons: Reasons) -> Vec<String> {
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
            format!(
                "GPU figures that {problem} ({reason}): {} of {}.",
                figures.join(", "),
                devices.join(", ")
            )
        }));
    }
    lines
}

fn missing_figures(usage: &GpuUsage) -> Vec<String> {
    let (mut missing, mut ended, mut unread) = (Reasons::new(), Reasons::new(), Vec::new());
    for of in &usage.devices {
        let id = &of.device.id;
        let note = |reasons: &mut Reasons, reason: &Missing, figure| {
            reasons.entry(reason.to_string()).or_default().entry(figure).or_default().push(id.clone());
        };
        if !of.was_read() {
            // A lost device has a warning of its own.
            unread.extend(of.loss.is_none().then_some(id.as_str()));
            continue;
        }
        // A loss has a warning of its own.
        let is_told = |reason: &Missing| reason.is_reported_by_parts() || *reason == Missing::Lost;
        for (figure, reason) in missing_of(of).iter().filter(|(_, reason)| !is_told(reason)) {
            note(&mut missing, reason, *figure);
        }
        let was_known = |(figure, _): &(&Figure, &Missing)| of.knows(**figure) && of.loss.is_none();
        for (figure, reason) in of.figures.missing.iter().filter(was_known) {
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

/// GPUs that the command was given and never used.
fn idle(usage: &GpuUsage) -> impl Iterator<Item = String> {
    // CUDA uses one part (MIG) of a device that is named as a whole: that device is idle or not, its parts are not judged.
    let is_part_of_visible = |of: &DeviceUsage| {
        let mut all = usage.devices.iter();
        all.any(|other| Some(&other.device.id) == of.device.parent.as_ref() && other.is_visible == Some(true))
    };
    let is_any_missed = may_have_missed(usage).combined;
    let is_idle = move |of: &&DeviceUsage| {
        let parts = || usage.devices.iter().filter(|d| d.device.parent.as_ref() == Some(&of.device.id));
        of.is_visible == Some(true)
            && !of.run.is_used
            && !is_any_missed
            && of.loss.is_none()
            && (of.knows(Figure::ProcessMemory) || parts().count() > 0)
            && !parts().any(|part| part.run.is_used)
            && !is_part_of_visible(of)
    };
    usage.devices.iter().filter(is_idle).map(|of| {
        let name = of.device.name.as_deref().map(|name| format!(" ({name})")).unwrap_or_default();
        format!("Allocated but idle: {}{name} was never seen in use by the command.", of.device.id)
    })
}

//! The warnings about GPUs.

use std::collections::BTreeMap;

use super::super::counts::{processes, times};
use super::super::gpu::{is_any_of, missing_of, whole};
use super::super::inputs::Inputs;
use crate::model::gpu::{Figure, Missing};
use crate::model::report::{Stage, Topic, Warning};
use crate::run::gpu::GpuUsage;
use crate::run::gpu::usage::device::DeviceUsage;

/// In the order of the report: backends, devices, missing figures, then what concerns the run as a whole.
pub(super) fn warnings(inputs: &Inputs) -> Vec<Warning> {
    let (usage, start_ns) = (&inputs.run.gpu.usage, inputs.run.start_ns);
    let seconds = |at_ns: u64| at_ns.saturating_sub(start_ns) as f64 / 1e9;
    let mut warnings = Warnings(Vec::new());
    warnings.extend(Topic::Figures, usage.failed.iter().map(|(name, missing)| failed(usage, name, missing)));
    let unresponsive = |(name, since_ns): &(String, u64)| unresponsive(name, seconds(*since_ns));
    warnings.extend(Topic::Command, usage.unresponsive.iter().map(unresponsive));
    warnings.extend(Topic::Figures, usage.notes.iter().cloned());
    warnings.extend(Topic::Figures, no_gpu_of_vendor(inputs));
    for of in &usage.devices {
        warnings.extend(Topic::Command, of.lost_at_ns.map(|at_ns| lost(of, seconds(at_ns))));
        warnings.extend(Topic::Figures, energy_counter_reset(of));
        warnings.extend(Topic::Command, xid_errors(of));
        warnings.extend(Topic::Command, memory_errors(of));
    }
    warnings.extend(Topic::Figures, missing_figures(usage));
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
    let is_none = usage.devices.is_empty() && usage.failed.is_empty() && usage.unreadable.is_empty();
    let vendor = config.vendor.filter(|_| is_none && inputs.end.stage != Stage::SoFar)?.name();
    let which = if config.only_visible { " that the command may see" } else { "" };
    Some(format!(
        "--gb {vendor}: there is no GPU of this vendor{which}, so all GPU figures are 0. GPUs of other vendors are left out."
    ))
}

fn unresponsive(backend: &str, since_s: f64) -> String {
    format!(
        "{backend} GPUs: the driver has not responded since {since_s:.1} s after the start; their figures end there."
    )
}

fn lost(of: &DeviceUsage, at_s: f64) -> String {
    let then = if of.is_back { "it came back later" } else { "its figures end there" };
    format!("GPU lost at {at_s:.1} s: {}; {then}.", of.device.id)
}

fn energy_counter_reset(of: &DeviceUsage) -> Option<String> {
    of.counters.get(&Figure::Energy).is_some_and(|counter| counter.restarts > 0).then(|| {
        format!(
            "The energy counter of {} was reset during the run, as when a driver is reloaded: the energy between the last \
             reading and the reset is missing.",
            of.device.id
        )
    })
}

fn xid_errors(of: &DeviceUsage) -> impl Iterator<Item = String> {
    of.xids
        .iter()
        .map(|(xid, count)| format!("{} reported XID error {xid} ({}).", of.device.id, times(*count)))
}

fn memory_errors(of: &DeviceUsage) -> Option<String> {
    let has_any = of.counters.get(&Figure::EccUncorrected).is_some_and(|counter| counter.total > 0.0);
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
    (usage.unsampled > 0 && has_gap).then(|| {
        format!(
            "{} lived between two readings of the GPUs: GPU memory and utilization of such processes are missing. Use \
             --gpu-accounting, or a smaller --st.",
            processes(usage.unsampled)
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
            unread.extend(of.lost_at_ns.is_none().then_some(id.as_str()));
            continue;
        }
        for (figure, reason) in missing_of(of).iter().filter(|(_, reason)| !reason.is_reported_by_parts()) {
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

/// GPUs that the command was given and never used.
fn idle(usage: &GpuUsage) -> impl Iterator<Item = String> {
    // CUDA uses one part (MIG) of a device that is named as a whole: that device is idle or not, its parts are not judged.
    let is_part_of_visible = |of: &DeviceUsage| {
        let mut all = usage.devices.iter();
        all.any(|other| Some(&other.device.id) == of.device.parent.as_ref() && other.is_visible == Some(true))
    };
    let is_idle = move |of: &&DeviceUsage| {
        let parts = || usage.devices.iter().filter(|d| d.device.parent.as_ref() == Some(&of.device.id));
        of.is_visible == Some(true)
            && !of.is_used
            && of.lost_at_ns.is_none()
            && (of.knows(Figure::ProcessMemory) || parts().count() > 0)
            && !parts().any(|part| part.is_used)
            && !is_part_of_visible(of)
    };
    usage.devices.iter().filter(is_idle).map(|of| {
        let name = of.device.name.as_deref().map(|name| format!(" ({name})")).unwrap_or_default();
        format!("Allocated but idle: {}{name} was never seen in use by the command.", of.device.id)
    })
}

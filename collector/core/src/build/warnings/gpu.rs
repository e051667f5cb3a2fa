//! The warnings about GPUs. Each function makes those of one cause: `None`, or no text, if the cause does not apply.

use std::collections::BTreeMap;

use super::super::gpu::{
    energy_span_s, gaps, is_any_of, is_used, may_have_missed, missing_of, pcie_span_s, whole,
};
use super::super::inputs::Inputs;
use super::gpu_names::names;
use crate::model::counts_in_words::{processes, times};
use crate::model::gpu::{DRIVER_PERCENT_AT_INTERVAL as GIVEN_PERCENT, Figure, GpuConfig, Missing, Vendor};
use crate::model::report::{Stage, Topic, Warning};
use crate::model::sorting::Sorting;
use crate::run::gpu::GpuUsage;
use crate::run::gpu::usage::availability::Gap;
use crate::run::gpu::usage::device::{DeviceUsage, Loss};

/// Utilization that was lost needs a warning if it is more than this part of what was measured. Less changes no figure by more.
const LOST_PART: f64 = 0.01;
/// The part of the run that energy, traffic, throttled time or utilization may lack without a warning.
const UNCOVERED_PART: f64 = 0.1;
/// The least time for which such a figure is not counted that is worth a warning, seconds.
const LEAST_UNCOUNTED_S: f64 = 0.2;
/// A driver counts as always slow, and not only once, if its longest time between two readings is at most this many times the mean.
pub(in crate::build) const MOST_REGULAR: f64 = 3.0;
/// The least time without utilization that is worth a warning, seconds. If a driver takes no samples of an idle GPU, it takes 2 s
/// until that GPU is known to be idle.
const LEAST_WITHOUT_UTILIZATION_S: f64 = 2.25;
/// The largest sum over GPUs is known if each was read as often: the first reading can come before the memory is used.
const LEAST_READINGS_FOR_SUM: u64 = 4;
/// The longest time between two readings of memory that needs no warning if the mean is as asked for, nanoseconds.
const LONGEST_INTERVAL_NS: f64 = 1e9;

/// What a warning is about, in the order of its weight: the summary shows the two first warnings only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Weight {
    /// All figures of a driver or of a GPU are missing or end early, or are of other GPUs.
    Whole,
    /// Peaks of memory are missing, or too small.
    Peak,
    /// Energy or utilization is missing, or of a part of the run.
    Total,
    /// Another figure is missing.
    Gauge,
    /// No figure is wrong or missing.
    Remark,
}

impl Weight {
    /// The weight of a warning that says that this figure is missing.
    fn of_figure(figure: Figure) -> Self {
        match figure {
            Figure::MemoryUsed | Figure::ProcessMemory => Self::Peak,
            Figure::Utilization | Figure::ProcessUtilization | Figure::Energy | Figure::Power => Self::Total,
            _ => Self::Gauge,
        }
    }
}

/// The warnings about GPUs, the most misleading first.
pub(super) fn warnings(inputs: &Inputs) -> Vec<Warning> {
    let usage = &inputs.run.gpu.usage;
    let seconds = |at_ns: u64| inputs.run.since_start_s(at_ns);
    let run_s = seconds(inputs.end.at_ns);
    let mut all = Warnings(Vec::new());
    let (figures, command) = (Topic::Figures, Topic::Command);
    let failed = |(name, missing): &(String, Missing)| failed(usage, name, missing);
    all.extend(Weight::Whole, figures, usage.backends.failed.iter().map(failed));
    let unresponsive = |(name, since_ns): &(String, u64)| unresponsive(name, seconds(*since_ns));
    all.extend(Weight::Whole, command, usage.unresponsive.iter().map(unresponsive));
    all.extend(Weight::Whole, figures, no_gpu_of_vendor(inputs));
    all.extend(Weight::Whole, figures, no_visible_gpu(usage, &inputs.config.gpu));
    all.extend(Weight::Remark, figures, nothing_logged(inputs));
    let unknown_names = usage.backends.unknown_names.iter();
    all.extend(Weight::Whole, figures, unknown_names.map(|name| unknown_name(usage, name)));
    all.extend(Weight::Peak, figures, usage.backends.notes.iter().cloned());
    let lost = |gpu: &DeviceUsage| gpu.loss.map(|loss| lost(gpu, loss, seconds(loss.at_ns)));
    all.extend(Weight::Whole, command, usage.devices.iter().filter_map(lost));
    all.extend(Weight::Whole, command, usage.devices.iter().flat_map(xid_errors));
    all.extend(Weight::Whole, command, usage.devices.iter().filter_map(memory_errors));
    all.extend(Weight::Whole, figures, ambiguous_indices(usage));
    all.extend(Weight::Whole, figures, used_though_hidden(usage));
    all.extend(Weight::Peak, figures, slow_readings(inputs));
    all.extend(Weight::Peak, figures, unread(usage, inputs.config.restarts));
    all.extend(Weight::Peak, figures, unsampled_processes(usage));
    all.extend(Weight::Peak, figures, sum_of_few_readings(usage));
    for (weight, text) in missing_figures(usage).into_iter().chain(unread_spans(usage)) {
        all.extend(weight, figures, [text]);
    }
    all.extend(Weight::Total, figures, usage.devices.iter().flat_map(energy_counter));
    all.extend(Weight::Total, figures, lost_utilization(usage));
    all.extend(Weight::Total, figures, short(usage, run_s));
    all.extend(Weight::Remark, Topic::IdleGpu, idle(usage));
    all.0.order_by_key(|(weight, _)| *weight);
    all.0.into_iter().map(|(_, warning)| warning).collect()
}

/// Warnings, each with the weight that they are sorted by.
struct Warnings(Vec<(Weight, Warning)>);

impl Warnings {
    /// Adds warnings of one weight and topic.
    fn extend(&mut self, weight: Weight, topic: Topic, texts: impl IntoIterator<Item = String>) {
        self.0.extend(texts.into_iter().map(|text| (weight, Warning::new(topic, text))));
    }
}

/// The warning that a backend gave no reading, or none any more.
fn failed(usage: &GpuUsage, backend: &str, missing: &Missing) -> String {
    let has_any = is_any_of(usage, backend);
    let then = if has_any { "their figures end there" } else { "whether there are any is not known" };
    format!("{backend} GPUs: {missing}; {then}.")
}

/// Warns that there is no GPU of the vendor that `--gb` names. Zeros for a vendor that was named by mistake would look like a
/// command that uses no GPU. `None`: there is one, or that is not known.
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

/// Warns that `--visible` leaves no GPU. `None`: it leaves one, was not asked for, or there is none at all.
fn no_visible_gpu(usage: &GpuUsage, config: &GpuConfig) -> Option<String> {
    let is_none =
        usage.devices.is_empty() && !usage.machine.is_empty() && usage.backends.unknown_names.is_empty();
    (config.only_visible && config.vendor.is_none() && is_none).then(|| {
        "--visible: the command's environment names no GPU of this machine, so all GPU figures are 0."
            .to_owned()
    })
}

/// Warns that the log of `--trace-gpu` has no line of a GPU, which would look like a failure. `None`: it has some, was not asked for,
/// or the run is not over.
fn nothing_logged(inputs: &Inputs) -> Option<String> {
    inputs.config.tracking.gpu_trace.as_ref()?;
    let is_over = inputs.end.stage != Stage::SoFar;
    (is_over && !inputs.run.gpu.usage.devices.iter().any(DeviceUsage::was_read))
        .then(|| "--trace-gpu: no GPU was read, so the log has its first line only.".to_owned())
}

/// Says that a name of `--guuids` is no GPU here.
fn unknown_name(usage: &GpuUsage, name: &str) -> String {
    let known = usage.machine.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
    format!(
        "--guuids: \"{name}\" is not a GPU of this machine: one of {known}. Sums over the GPUs are not known."
    )
}

/// Says that a driver does not answer since that time of the run, seconds.
fn unresponsive(backend: &str, since_s: f64) -> String {
    format!(
        "{backend} GPUs: the driver has not responded since {since_s:.1} s after the start; their figures end there."
    )
}

/// Says when a device was lost, seconds after the start, and whether it came back.
fn lost(gpu: &DeviceUsage, loss: Loss, at_s: f64) -> String {
    let then = if loss.is_back { "it came back later" } else { "its figures end there" };
    format!("GPU lost at {at_s:.1} s: {}; {then}.", gpu.device.id)
}

/// Warns if the energy counter of a device was reset, and if it stepped back.
fn energy_counter(gpu: &DeviceUsage) -> impl Iterator<Item = String> {
    let counter = gpu.counters.get(&Figure::Energy);
    let id = &gpu.device.id;
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
    let jumped = counter.filter(|counter| counter.jumps > 0).map(|counter| {
        format!(
            "The energy counter of {id} jumped ahead {} by more than a GPU can use: the energy between the two readings is missing.",
            times(counter.jumps)
        )
    });
    reset.into_iter().chain(stepped).chain(jumped)
}

/// Warns of figures that could not be read for a while, in a line for each reason. Figures that the same devices lacked share it. What was
/// used meanwhile may exceed their maxima.
fn unread_spans(usage: &GpuUsage) -> Vec<(Weight, String)> {
    let mut spans = Reasons::new();
    for gpu in &usage.devices {
        // `missing_figures` warns of a figure that could not be read at the end.
        let was_read_again = |(figure, _): &(Figure, &Gap)| !gpu.figures.missing.contains_key(figure);
        for (figure, gap) in gaps(usage, gpu).filter(was_read_again) {
            note(&mut spans, &gap.reason, figure, gpu);
        }
    }
    let of_reason = |(reason, by_figure): (String, BTreeMap<Figure, Vec<&DeviceUsage>>)| {
        let by_figure = by_figure.into_iter().map(|(figure, devices)| (devices, figure));
        let lines = by_devices(by_figure).into_iter();
        lines.map(|(devices, figures)| unread_span(usage, &figures, &reason, &devices)).collect::<Vec<_>>()
    };
    spans.into_iter().flat_map(of_reason).collect()
}

/// Says for how long these figures of these devices could not be read for one reason.
fn unread_span(usage: &GpuUsage, figures: &[Figure], reason: &str, on: &[&DeviceUsage]) -> (Weight, String) {
    let gaps = on
        .iter()
        .flat_map(|gpu| figures.iter().filter_map(|figure| Some((*gpu, gpu.figures.gaps.get(figure)?))));
    let longest_ns = gaps.map(|(gpu, gap)| gpu.gap_ns(gap)).max().unwrap_or(0);
    let is_one = on.len() == 1 && figures.len() == 1;
    let lists = on.iter().filter_map(|gpu| gpu.figures.gaps.get(&Figure::ProcessMemory)?.used_bytes).max();
    let used = lists.filter(|_| figures.contains(&Figure::ProcessMemory)).map(|bytes| {
        let which = if on.len() == 1 { "it" } else { "one of them" };
        format!(" Up to {:.1} GB were in use on {which} meanwhile, by all processes.", bytes as f64 / 1e9)
    });
    let text = format!(
        "GPU figure{} that could not be read for {}{:.1} s of the run ({reason}): {} of {}. What was used meanwhile is missing.{}",
        if figures.len() == 1 { "" } else { "s" },
        if is_one { "" } else { "up to " },
        longest_ns as f64 / 1e9,
        figures.iter().map(|figure| figure.name()).collect::<Vec<_>>().join(", "),
        names(usage, on),
        used.unwrap_or_default()
    );
    (weight_of(figures), text)
}

/// Warns if the largest memory of the run on several GPUs together is a lower bound because they were read too seldom. What one had
/// when another was read is known from readings before and after that. `None`: it is none.
fn sum_of_few_readings(usage: &GpuUsage) -> Option<String> {
    let holding = usage.devices.iter().filter(|gpu| gpu.run.max.combined > 0);
    let (devices, most): (Vec<_>, Vec<u64>) = holding.map(|gpu| (gpu, gpu.run.max.combined)).unzip();
    let readings = devices.iter().map(|gpu| gpu.lists.read.count).min()?;
    let (least, most) = (usage.max.memory?.combined, most.iter().sum::<u64>());
    (readings < LEAST_READINGS_FOR_SUM && least < most).then(|| {
        let [least, most] = [least, most].map(|bytes| format!("{:.1}", bytes as f64 / 1e9));
        format!(
            "Read only {} in this short run: the GPU RAM of {}. The largest of all together is between {least} GB, as shown, and \
             {most} GB.",
            times(readings),
            names(usage, &devices),
        )
    })
}

/// Warns of GPUs whose driver had overwritten samples of utilization before they were read. `None`: there is none.
fn lost_utilization(usage: &GpuUsage) -> Option<String> {
    let lost_much = |gpu: &&DeviceUsage| gpu.busy.lost_s() > gpu.busy.measured_s() * LOST_PART;
    let devices: Vec<&DeviceUsage> = usage.devices.iter().filter(lost_much).collect();
    let known_s = devices.iter().map(|gpu| gpu.busy.measured_s()).reduce(f64::min)?;
    let lost_s = devices.iter().map(|gpu| gpu.busy.lost_s()).reduce(f64::max)?;
    let (least, most) = if devices.len() == 1 { ("", "") } else { ("at least ", "up to ") };
    Some(format!(
        "The utilization of {} is known for {least}{known_s:.1} s, and not for {most}{lost_s:.1} s: the driver keeps it for less than \
         the time between two readings, or gave values that no GPU can have. The mean is that of the time which is known.",
        names(usage, &devices),
    ))
}

/// A figure of the whole run that is counted between two readings.
struct Counted {
    figure: Figure,
    /// What the warning calls it.
    name: &'static str,
    /// For how many seconds a device's is known.
    known_s: fn(&DeviceUsage) -> Option<f64>,
    /// The least time without it that is worth a warning, seconds.
    least_s: f64,
}

/// Those that [`short`] warns of. What of utilization the driver had overwritten has a warning of its own ([`lost_utilization`]).
const COUNTED: [Counted; 4] = [
    Counted { figure: Figure::Energy, name: "energy", known_s: energy_span_s, least_s: LEAST_UNCOUNTED_S },
    Counted {
        figure: Figure::PcieTx,
        name: "PCIe traffic",
        known_s: pcie_span_s,
        least_s: LEAST_UNCOUNTED_S,
    },
    Counted {
        figure: Figure::Throttle,
        name: "throttled time",
        known_s: |gpu| gpu.throttle.measured_s(),
        least_s: LEAST_UNCOUNTED_S,
    },
    Counted {
        figure: Figure::Utilization,
        name: "utilization",
        known_s: |gpu| Some(gpu.busy.measured_s()).filter(|s| *s > 0.0).map(|s| s + gpu.busy.lost_s()),
        least_s: LEAST_WITHOUT_UTILIZATION_S,
    },
];

/// Warns of such figures that are known for a part of the run only. Figures that the same devices lack share a line. `run_s`: the run's
/// length, seconds.
///
/// A first reading comes when the driver answers, and the last one before the run's end. Time in which the driver refused a figure
/// has a warning of its own ([`unread_spans`]), and so has a lost device.
fn short(usage: &GpuUsage, run_s: f64) -> impl Iterator<Item = String> {
    let of_figure = |counted: &Counted| {
        // That of a counter has none, since nothing is missing where it can be read again.
        let refused_s = |gpu: &DeviceUsage| {
            let gap = gpu.figures.gaps.get(&counted.figure).filter(|_| !counted.figure.is_cumulative());
            gap.map_or(0.0, |gap| gpu.gap_ns(gap) as f64 / 1e9)
        };
        let spans =
            usage.devices.iter().filter_map(|gpu| Some((gpu, (counted.known_s)(gpu)? + refused_s(gpu))));
        let is_short = |(gpu, known_s): &(&DeviceUsage, f64)| {
            gpu.loss.is_none() && run_s - known_s > counted.least_s.max(run_s * UNCOVERED_PART)
        };
        let (devices, known_s): (Vec<_>, Vec<_>) = spans.filter(is_short).unzip();
        (devices, (counted.name, known_s))
    };
    let lacking = COUNTED.iter().map(of_figure).filter(|(devices, _)| !devices.is_empty());
    by_devices(lacking).into_iter().map(move |(devices, figures)| {
        let (figures, known_s): (Vec<&str>, Vec<Vec<f64>>) = figures.into_iter().unzip();
        let known_s = || known_s.iter().flatten().copied();
        let [least, most] =
            [known_s().fold(f64::MAX, f64::min), known_s().fold(0.0, f64::max)].map(|s| format!("{s:.1}"));
        format!(
            "GPU figures that cover {} s of the run's {run_s:.1} s (the driver was late, slow, or refused them): {} of {}. What came \
             before the first reading and after the last is missing.",
            if least == most { least } else { format!("{least} to {most}") },
            figures.join(", "),
            names(usage, &devices),
        )
    })
}

/// Puts together what holds for the same devices.
fn by_devices<'a, T>(
    all: impl Iterator<Item = (Vec<&'a DeviceUsage>, T)>,
) -> Vec<(Vec<&'a DeviceUsage>, Vec<T>)> {
    let mut groups: Vec<(Vec<&DeviceUsage>, Vec<T>)> = Vec::new();
    for (devices, one) in all {
        let is_same = |others: &[&DeviceUsage]| {
            others.len() == devices.len() && others.iter().zip(&devices).all(|(a, b)| std::ptr::eq(*a, *b))
        };
        match groups.iter_mut().find(|(others, _)| is_same(others)) {
            Some((_, group)) => group.push(one),
            None => groups.push((devices, vec![one])),
        }
    }
    groups
}

/// Whether the driver told the processes' memory much less often than it was to be asked, on average or once. Time in which it refused
/// to tell has a warning of its own ([`unread_spans`]).
fn is_slow(usage: &GpuUsage, gpu: &DeviceUsage) -> bool {
    // The run has no process on a device that it may not see.
    let may_be_used = gpu.is_visible != Some(false);
    let asked_ns = usage.interval_ns as f64;
    let answers = &gpu.lists.answers;
    let is_long = answers.longest_ns as f64 > LONGEST_INTERVAL_NS.max(asked_ns * 2.0);
    may_be_used && answers.mean_ns().is_some_and(|mean_ns| mean_ns > asked_ns * 2.0 || is_long)
}

/// Warns of GPUs whose driver did not answer for a while. Not of those that are always slow: [`slow_readings`] warns of them. `None`:
/// there is none. `restarts`: how often the collector was replaced.
fn unread(usage: &GpuUsage, restarts: u32) -> Option<String> {
    // No time between readings is much longer than the mean.
    let is_always_slow = |gpu: &DeviceUsage| {
        let longest_ns = usage.longest_unanswered_ns(gpu) as f64;
        is_slow(usage, gpu)
            && gpu.lists.answers.mean_ns().is_some_and(|mean_ns| longest_ns <= mean_ns * MOST_REGULAR)
    };
    let is_unread = |gpu: &&DeviceUsage| {
        gpu.is_visible != Some(false) && usage.unanswered_ns(gpu) > 0 && !is_always_slow(gpu)
    };
    let unread: Vec<&DeviceUsage> = usage.devices.iter().filter(is_unread).collect();
    let unanswered_ns = unread.iter().map(|gpu| usage.unanswered_ns(gpu)).max()?;
    // A collector that replaces a killed one has to initialise the driver again.
    let killed = if restarts > 0 { "the collector was killed, or " } else { "" };
    Some(format!(
        "GPU memory was not read for {:.1} s of the run on {}: {killed}the driver or the machine was slow. Memory that was used in that time \
         is missing. If none was seen at other times, it is not known whether any was used.",
        unanswered_ns as f64 / 1e9,
        names(usage, &unread)
    ))
}

/// Warns of GPUs that were read much less often than asked for, and says what the user can do. `None`: there is none.
fn slow_readings(inputs: &Inputs) -> Option<String> {
    let usage = &inputs.run.gpu.usage;
    let slow: Vec<&DeviceUsage> = usage.devices.iter().filter(|gpu| is_slow(usage, gpu)).collect();
    let slowest = slow.iter().filter_map(|gpu| gpu.lists.answers.mean_ns()).reduce(f64::max)?;
    let longest = slow.iter().map(|gpu| gpu.lists.answers.longest_ns).max().unwrap_or(0);
    // Only NVIDIA's driver is read within a share of its time (`driver_percent`), which is larger if the user gives --st.
    let why = match inputs.config.gpu.driver_percent {
        _ if slow.iter().all(|gpu| gpu.device.vendor != Some(Vendor::Nvidia)) => {
            "The driver is slow.".to_owned()
        }
        percent if percent < GIVEN_PERCENT => format!(
            "The driver is slow, and at most {percent}% of its time is used; with --st given, {GIVEN_PERCENT}%."
        ),
        percent => format!("The driver is slow, and at most {percent}% of its time is used."),
    };
    Some(format!(
        "GPU memory by process was read every {:.2} s, at most {:.2} s apart, instead of every {:.2} s: shorter peaks are missing \
         on {}. {why}",
        slowest / 1e9,
        longest as f64 / 1e9,
        usage.interval_ns as f64 / 1e9,
        names(usage, &slow)
    ))
}

/// Says which XID errors a device had.
fn xid_errors(gpu: &DeviceUsage) -> impl Iterator<Item = String> {
    gpu.xids
        .iter()
        .map(|(xid, count)| format!("{} reported XID error {xid} ({}).", gpu.device.id, times(*count)))
}

/// Says that a device had uncorrected memory errors.
fn memory_errors(gpu: &DeviceUsage) -> Option<String> {
    let has_any = gpu.counted(Figure::EccUncorrected).is_some_and(|total| total > 0.0);
    has_any.then(|| format!("{} had uncorrected memory errors (ECC).", gpu.device.id))
}

/// Says that the indices of CUDA_VISIBLE_DEVICES may mean other devices.
fn ambiguous_indices(usage: &GpuUsage) -> Option<String> {
    usage.is_order_unsure.then(|| {
        "The indices in CUDA_VISIBLE_DEVICES were read in PCI bus order, but CUDA's default order has the fastest GPU first: \
         they may mean other GPUs. Set CUDA_DEVICE_ORDER=PCI_BUS_ID, or name the GPUs by UUID."
            .into()
    })
}

/// Names the GPUs that the command used though its environment does not name them. `None`: there are none.
fn used_though_hidden(usage: &GpuUsage) -> Option<String> {
    let is_hidden = |gpu: &&DeviceUsage| gpu.is_visible == Some(false) && gpu.run.is_used;
    let devices: Vec<&DeviceUsage> = usage.devices.iter().filter(is_hidden).collect();
    (!devices.is_empty()).then(|| {
        format!(
            "GPUs that the command used though its environment does not name them: {}. A program can choose GPUs itself, and CUDA \
             can number them in another order. How many GPUs the next job needs is not known.",
            names(usage, &devices)
        )
    })
}

/// Warns of processes that lived between two readings of the GPUs. A driver with accounting switched on reports every process,
/// sampled or not: then there is no warning.
fn unsampled_processes(usage: &GpuUsage) -> Option<String> {
    let lacks_accounting = whole(usage).any(|device| !device.knows(Figure::Accounting));
    (usage.unsampled.combined > 0 && lacks_accounting).then(|| {
        let is_null = may_have_missed(usage).combined && usage.max.memory.is_none_or(|max| max.combined == 0);
        // Where the driver is slow, a smaller --st does not make it answer more often.
        let is_any_slow = usage.devices.iter().any(|gpu| is_slow(usage, gpu));
        let cure = if is_any_slow { "" } else { ", or a smaller --st" };
        format!(
            "{} lived between two readings of the GPUs: GPU memory and utilization of such processes are missing{}. Use \
             --gpu-accounting{cure}.",
            processes(usage.unsampled.combined),
            if is_null { ", so it is not known whether any GPU memory was used" } else { "" }
        )
    })
}

/// By reason and figure, the devices that lack the figure for that reason.
type Reasons<'a> = BTreeMap<String, BTreeMap<Figure, Vec<&'a DeviceUsage>>>;

/// Writes a line for each reason and set of devices, with the figures that these devices lack. `problem` continues "GPU figures that".
/// Accounting is left out, since it is no figure of the report.
fn lines_by_reason(usage: &GpuUsage, problem: &str, reasons: Reasons<'_>) -> Vec<(Weight, String)> {
    let mut lines = Vec::new();
    for (reason, by_figure) in reasons {
        let by_figure = by_figure.into_iter().filter(|(figure, _)| *figure != Figure::Accounting);
        // Figures that the same devices lack share a line.
        for (devices, figures) in by_devices(by_figure.map(|(figure, devices)| (devices, figure))) {
            let weight = weight_of(&figures);
            let figures: Vec<&str> = figures.into_iter().map(Figure::name).collect();
            let (figures, devices) = (figures.join(", "), names(usage, &devices));
            lines.push((weight, format!("GPU figures that {problem} ({reason}): {figures} of {devices}.")));
        }
    }
    lines
}

/// The weight of a warning that says that these figures are missing.
fn weight_of(figures: &[Figure]) -> Weight {
    figures.iter().map(|figure| Weight::of_figure(*figure)).min().unwrap_or(Weight::Gauge)
}

/// Notes that a figure of a device is missing for a reason.
fn note<'a>(reasons: &mut Reasons<'a>, reason: &Missing, figure: Figure, gpu: &'a DeviceUsage) {
    reasons.entry(reason.to_string()).or_default().entry(figure).or_default().push(gpu);
}

/// Says which figures are missing, by reason. Figures that could no longer be read at the end, and devices without any figure, have
/// lines of their own.
fn missing_figures(usage: &GpuUsage) -> Vec<(Weight, String)> {
    // `missing` has figures that are not known, `ended` known ones whose last reading failed, `unread` devices without any figure.
    let (mut missing, mut ended, mut unread) = (Reasons::new(), Reasons::new(), Vec::new());
    for gpu in &usage.devices {
        // The loss of a device has a warning of its own.
        if !gpu.was_read() {
            if gpu.loss.is_none() {
                unread.push(gpu);
            }
            continue;
        }
        // The parts of the device have the figure, or the warning of its loss explains why it is missing.
        let is_explained = |reason: &Missing| reason.is_reported_by_parts() || *reason == Missing::Lost;
        let has_part = |part: &DeviceUsage| part.device.parent.as_ref() == Some(&gpu.device.id);
        let is_of_mig = gpu.is_part || usage.devices.iter().any(has_part);
        // Of the rest, no instance has any, in any run.
        let is_of_every_run = |figure, reason: &Missing| {
            let is_utilization = matches!(figure, Figure::Utilization | Figure::ProcessUtilization);
            is_of_mig && !is_utilization && *reason == Missing::NotSupported
        };
        for (figure, reason) in missing_of(gpu) {
            let is_expected = figure.may_be_absent(&reason) || is_of_every_run(figure, &reason);
            if !is_explained(&reason) && !is_expected {
                note(&mut missing, &reason, figure, gpu);
            }
        }
        let was_known = |(figure, _): &(&Figure, &Missing)| gpu.knows(**figure) && gpu.loss.is_none();
        for (figure, reason) in gpu.figures.missing.iter().filter(was_known) {
            note(&mut ended, reason, *figure, gpu);
        }
    }
    let mut lines = [
        lines_by_reason(usage, "are missing", missing),
        lines_by_reason(usage, "could no longer be read when the command ended", ended),
    ]
    .concat();
    if !unread.is_empty() {
        let all = format!("({}): all figures of {}", Missing::NoSample, names(usage, &unread));
        lines.push((Weight::Whole, format!("GPU figures that are missing {all}.")));
    }
    lines
}

/// Warns of each GPU that the command's environment names and that the command certainly never used.
fn idle(usage: &GpuUsage) -> impl Iterator<Item = String> {
    // If the environment names a whole device, CUDA uses one part (MIG) of it. Then the device is judged, and not its parts.
    let is_part_of_visible = |gpu: &DeviceUsage| {
        let mut all = usage.devices.iter();
        all.any(|other| {
            Some(&other.device.id) == gpu.device.parent.as_ref() && other.is_visible == Some(true)
        })
    };
    let is_idle = move |gpu: &&DeviceUsage| {
        let parts = || usage.devices.iter().filter(|d| d.device.parent.as_ref() == Some(&gpu.device.id));
        // Its process lists were read, or it has parts, and neither it nor a part was ever used.
        gpu.is_visible == Some(true)
            && is_used(usage, gpu) == Some(false)
            && gpu.loss.is_none()
            && (gpu.knows(Figure::ProcessMemory) || parts().count() > 0)
            && parts().all(|part| is_used(usage, part) == Some(false))
            && !is_part_of_visible(gpu)
    };
    usage.devices.iter().filter(is_idle).map(|gpu| {
        let name = gpu.device.name.as_deref().map(|name| format!(" ({name})")).unwrap_or_default();
        format!("Allocated but idle: {}{name} was never seen in use by the command.", gpu.device.id)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::gpu::Device;
    use crate::model::groups::Groups;

    // Requirement: HINT-54
    #[test]
    fn gpu_that_was_used_though_the_environment_does_not_name_it_is_told() {
        let gpu = |id: &str, is_visible, is_used| {
            let device = Device { id: id.into(), ..Device::default() };
            let mut gpu = DeviceUsage::default();
            (gpu.is_visible, gpu.device, gpu.run.is_used) = (is_visible, device.into(), is_used);
            gpu
        };
        let of = |devices| used_though_hidden(&GpuUsage { devices, ..GpuUsage::default() });
        let (hidden, seen) = (Some(false), Some(true));
        let text = of(vec![gpu("A", seen, false), gpu("B", hidden, true), gpu("C", hidden, false)]).unwrap();
        assert!(text.contains("name them: B. A program"), "{text}");
        assert_eq!(of(vec![gpu("A", seen, true), gpu("B", hidden, false), gpu("C", None, true)]), None);
    }

    // Requirement: GPU-9
    #[test]
    fn visible_gpus_that_are_none_of_the_machine_are_told() {
        let told = |only_visible, machine: &[&str], devices| {
            let machine = machine.iter().map(|id| (*id).to_owned()).collect();
            let config = GpuConfig { only_visible, ..GpuConfig::default() };
            no_visible_gpu(&GpuUsage { machine, devices, ..GpuUsage::default() }, &config).is_some()
        };
        assert!(told(true, &["A"], vec![]));
        assert!(!told(false, &["A"], vec![]));
        assert!(!told(true, &[], vec![]), "a machine without GPUs");
        assert!(!told(true, &["A"], vec![DeviceUsage::default()]));
    }

    // Requirement: GPU-1
    #[test]
    fn sum_over_gpus_of_a_few_readings_is_told_as_bounds() {
        let told = |readings: u64, together: u64| {
            let mut usage = GpuUsage::default();
            for bytes in [2_000_000_000, 3_000_000_000] {
                let mut gpu = DeviceUsage::default();
                gpu.run.max.combined = bytes;
                gpu.lists.read.count = readings;
                usage.devices.push(gpu);
            }
            usage.max.memory = Some(Groups { combined: together, ..Groups::default() });
            sum_of_few_readings(&usage)
        };
        assert!(told(2, 3_000_000_000).unwrap().ends_with("is between 3.0 GB, as shown, and 5.0 GB."));
        assert_eq!(told(2, 5_000_000_000), None, "it is known");
        assert_eq!(told(4, 3_000_000_000), None, "one followed the other");
    }
}

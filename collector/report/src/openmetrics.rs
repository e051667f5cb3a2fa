//! The report in Prometheus' text format, for node_exporter's textfile collector (`-o FILE.prom`), and the list of GPUs in it.
//!
//! Each figure is a metric in its base unit: bytes, seconds, a ratio of 1. What is not known has no line: it is never 0. Counters
//! end in `_total`. The labels are the command with its script, and the name of the file. The start of the run is a metric, since a
//! label of it would begin new series with each run.

use std::fmt::Write as _;
use std::path::Path;
use std::time::UNIX_EPOCH;

use super::figures::float;
use super::quote;
use crate::model::command::command_of_args;
use crate::model::gpu::gpu_figure::GpuFigure;
use crate::model::gpu::listing::{Listed, Listing};
use crate::model::report::{GpuDevice, Report, Stage, Track};

/// What all names begin with.
const PREFIX: &str = "gpu_track_";

/// Whether a metric only grows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MetricKind {
    Counter,
    Gauge,
}

use MetricKind::{Counter, Gauge};

/// A metric: its name without [`PREFIX`], its kind, and its help text.
type Metric<'a> = (&'a str, MetricKind, &'a str);

/// The figures of each GPU in the list of GPUs, with their help texts.
const NOW: [(GpuFigure, &str); 4] = [
    (GpuFigure::MemoryUsed, "Memory in use by all processes."),
    (GpuFigure::Utilization, "Utilization lately."),
    (GpuFigure::Temperature, "Temperature."),
    (GpuFigure::Power, "Power."),
];

/// The text of the metrics so far.
#[derive(Default)]
struct Metrics {
    text: String,
    /// The labels that all lines share.
    labels: Vec<(&'static str, String)>,
}

impl Metrics {
    /// Adds a metric: a line for each value that is known and finite. Without such a value, the metric is left out. A value can come
    /// with labels, each a name and a text, which its line has besides the shared ones.
    fn add<'a>(
        &mut self,
        (name, kind, help): Metric<'_>,
        values: impl IntoIterator<Item = (impl IntoIterator<Item = (&'static str, &'a str)>, Option<f64>)>,
    ) {
        let mut has_head = false;
        for (own_labels, value) in values {
            let Some(value) = value.filter(|value| value.is_finite()) else { continue };
            if !has_head {
                has_head = true;
                self.head((name, kind, help));
            }
            let own_labels: Vec<_> = own_labels.into_iter().collect();
            self.line(name, &own_labels, value);
        }
    }

    /// Adds the lines that begin a metric.
    fn head(&mut self, (name, kind, help): Metric<'_>) {
        let kind = if kind == Counter { "counter" } else { "gauge" };
        let _infallible = writeln!(self.text, "# HELP {PREFIX}{name} {help}\n# TYPE {PREFIX}{name} {kind}");
    }

    /// Adds the line of a value.
    fn line(&mut self, name: &str, own_labels: &[(&str, &str)], value: f64) {
        let shared = self.labels.iter().map(|(label, value)| (*label, value.as_str()));
        let all = shared.chain(own_labels.iter().copied());
        let labels: Vec<String> =
            all.map(|(label, value)| format!("{label}=\"{}\"", label_value(value))).collect();
        let labels = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
        let _infallible = writeln!(self.text, "{PREFIX}{name}{labels} {value}");
    }

    /// Adds a figure of GPUs: a line for each id of a GPU.
    fn add_figure<'a>(
        &mut self,
        figure: GpuFigure,
        help: &str,
        values: impl Iterator<Item = (&'a str, Option<f64>)>,
    ) {
        // How the figure's name ends by its unit, what a base unit is called instead, and how many of the unit one of those is.
        let (ending, base, factor) = match figure.row().unit {
            Some("%") => ("_percent", "_ratio", 100.0),
            Some("C") => ("_c", "_celsius", 1.0),
            Some("W") => ("_w", "_watts", 1.0),
            _ => ("", "", 1.0),
        };
        let name = format!("gpu_{}{base}", figure.name().trim_end_matches(ending));
        let values = values.map(|(id, value)| (Some(("uuid", id)), value.map(|value| value / factor)));
        self.add((&name, Gauge, help), values);
    }

    /// Adds a metric with one line.
    fn add_one(&mut self, metric: Metric<'_>, value: Option<f64>) {
        self.add(metric, [(None, value)]);
    }
}

/// Escapes what the value of a label may not have: a backslash, a quote, a line break. Control characters are escaped first.
fn label_value(value: &str) -> String {
    quote::escape(value).replace('\\', "\\\\").replace('"', "\\\"")
}

/// Renders the report, whose units are fixed. `file`: where it is written. node_exporter refuses a line that two files have, so the file
/// tells runs of one command apart. The next run of a command into the same file goes on with its series.
pub(super) fn report(report: &Report, file: Option<&Path>) -> String {
    let command = command_of_args(&report.command).unwrap_or_default();
    let file = file.and_then(Path::file_stem).map(|stem| ("file", stem.to_string_lossy().into_owned()));
    let labels = [("command", command)].into_iter().chain(file).collect();
    let mut metrics = Metrics { labels, ..Metrics::default() };
    run(&mut metrics, report);
    usage(&mut metrics, report);
    gpus(&mut metrics, report);
    metrics.text
}

/// Adds how far the run is, and how it ended.
fn run(metrics: &mut Metrics, report: &Report) {
    let started_s = report.started_at.duration_since(UNIX_EPOCH).ok().map(|since| since.as_secs_f64());
    metrics.add(
        ("stage", Gauge, "1: so_far (it runs), final, or recovered (it was killed as a whole)."),
        [(Some(("stage", report.stage.name())), Some(1.0))],
    );
    metrics.add_one(("start_time_seconds", Gauge, "Start of the command since the epoch."), started_s);
    metrics.add_one(
        ("wall_seconds", Gauge, "Time from the start of the command to its end, or up to this report."),
        Some(report.wall_s),
    );
    let exit = report.ending.exit;
    metrics.add_one(("exit_code", Gauge, "Exit code of the command."), exit.code.map(f64::from));
    metrics.add_one(
        ("exit_signal", Gauge, "Number of the signal that ended the command."),
        exit.signal.map(f64::from),
    );
    metrics.add_one(
        ("warnings", Gauge, "Warnings of the report about its figures."),
        Some(report.warnings.len() as f64),
    );
}

/// Adds RAM, CPU time, processes and I/O of the tree.
fn usage(metrics: &mut Metrics, report: &Report) {
    // A line for each part of the tree.
    let by_set = |values: [Option<f64>; 3]| {
        let sets = ["main", "descendants", "combined"].map(|set| Some(("set", set)));
        sets.into_iter().zip(values)
    };
    let now = &report.series.ram_bytes;
    metrics.add(
        ("ram_max_bytes", Gauge, "Largest RAM so far: main (first process), descendants, combined; of several nodes a lower bound."),
        by_set(report.max_ram.footprint_bytes().values().map(float)),
    );
    metrics.add(
        ("ram_bytes", Gauge, "RAM lately, while the command runs."),
        by_set([&now.main, &now.descendants, &now.combined].map(|track| lately(report, track))),
    );
    metrics.add_one(("cpu_seconds_total", Counter, "CPU time of all processes."), report.cpu_time.total_s);
    metrics.add_one(
        // Not known of a run that was not tracked: its launcher has counted only the processes that it waited for.
        ("processes_total", Counter, "Processes that ever lived."),
        report.coverage.untracked_reason.is_none().then_some(report.processes.total as f64),
    );
    metrics.add_one(
        ("processes_max", Gauge, "Most processes alive at one time; of several nodes a lower bound."),
        float(report.processes.max_concurrent),
    );
    metrics.add_one(
        ("processes", Gauge, "Live processes lately, while the command runs."),
        lately(report, &report.series.processes),
    );
    metrics.add_one(
        ("io_read_bytes_total", Counter, "Bytes that ended processes read from storage."),
        float(report.io.read_bytes),
    );
    metrics.add_one(
        ("io_written_bytes_total", Counter, "Bytes that ended processes wrote to storage."),
        float(report.io.write_bytes),
    );
}

/// The present value of a quantity over time: the mean of the last point of its `track`. `None`: it is not known, or the report is
/// not one of a command that still runs.
fn lately(report: &Report, track: &Track) -> Option<f64> {
    (report.stage == Stage::SoFar).then(|| track.mean.last().copied().flatten()).flatten()
}

/// A figure of the GPUs in a report.
enum OfReport {
    /// Of the whole run.
    Whole(Metric<'static>, fn(&GpuDevice) -> Option<f64>),
    /// While the command runs, with its help text.
    Lately(GpuFigure, &'static str),
}

/// The figures of the GPUs in a report.
const OF_REPORT: [OfReport; 20] = [
    OfReport::Whole(("gpu_memory_total_bytes", Gauge, "Memory that the GPU has."), |gpu| {
        float(gpu.memory.total_bytes)
    }),
    OfReport::Whole(
        ("gpu_memory_used_max_bytes", Gauge, "Most memory in use by all processes of the machine."),
        |gpu| float(gpu.memory.max_used_bytes),
    ),
    OfReport::Whole(("gpu_memory_run_max_bytes", Gauge, "Most memory of the run's processes."), |gpu| {
        float(gpu.memory.max_combined_bytes)
    }),
    OfReport::Lately(GpuFigure::MemoryUsed, "Memory in use lately, while the command runs."),
    OfReport::Lately(GpuFigure::MemoryRun, "Memory of the run's processes lately, while the command runs."),
    OfReport::Whole(
        ("gpu_utilization_mean_ratio", Gauge, "Mean utilization, by any process of the machine."),
        |gpu| ratio(gpu.utilization.mean_percent),
    ),
    OfReport::Whole(("gpu_utilization_max_ratio", Gauge, "Largest utilization."), |gpu| {
        ratio(gpu.utilization.max_percent)
    }),
    OfReport::Lately(GpuFigure::Utilization, "Utilization lately, while the command runs."),
    OfReport::Whole(
        ("gpu_sm_active_mean_ratio", Gauge, "Mean over the SMs of the time in which a warp was on them."),
        |gpu| ratio(gpu.activity.mean_sm_percent),
    ),
    OfReport::Lately(GpuFigure::SmActive, "SM activity lately, while the command runs."),
    OfReport::Whole(
        ("gpu_tensor_active_mean_ratio", Gauge, "Time in which the tensor cores worked."),
        |gpu| ratio(gpu.activity.mean_tensor_percent),
    ),
    OfReport::Lately(GpuFigure::TensorActive, "Tensor core activity lately, while the command runs."),
    OfReport::Whole(
        ("gpu_memory_bandwidth_mean_ratio", Gauge, "Memory traffic, of the most that is possible."),
        |gpu| ratio(gpu.activity.mean_memory_bandwidth_percent),
    ),
    OfReport::Lately(GpuFigure::MemoryBandwidth, "Memory bandwidth lately, while the command runs."),
    OfReport::Lately(GpuFigure::PcieTxRate, "Sent over PCIe lately, bytes a second, while the command runs."),
    OfReport::Lately(
        GpuFigure::PcieRxRate,
        "Received over PCIe lately, bytes a second, while the command runs.",
    ),
    OfReport::Lately(
        GpuFigure::NvlinkTxRate,
        "Sent over NVLink lately, bytes a second, while the command runs.",
    ),
    OfReport::Lately(
        GpuFigure::NvlinkRxRate,
        "Received over NVLink lately, bytes a second, while the command runs.",
    ),
    OfReport::Whole(
        ("gpu_busy_seconds_total", Counter, "Time that the GPU was busy, by any process of the machine."),
        |gpu| gpu.utilization.active_s,
    ),
    OfReport::Whole(
        ("gpu_energy_joules_total", Counter, "Energy that the GPU used, by its own counter."),
        |gpu| gpu.power.energy_j,
    ),
];

fn ratio(percent: Option<f64>) -> Option<f64> {
    percent.map(|percent| percent / 100.0)
}

/// Adds the figures of GPUs: each figure has a line for each GPU, whose id is the label `uuid`.
fn gpus(metrics: &mut Metrics, report: &Report) {
    let gpus = || report.gpus.iter().map(|gpu| (gpu.id.as_str(), gpu));
    for figure in &OF_REPORT {
        match figure {
            OfReport::Whole(metric, value) => {
                metrics.add(*metric, gpus().map(|(id, gpu)| (Some(("uuid", id)), value(gpu))));
            }
            OfReport::Lately(figure, help) => {
                let series = |id: &str| report.series.gpus.iter().find(|series| series.id == id);
                let value = |id| lately(report, &series(id)?[*figure]);
                metrics.add_figure(*figure, help, gpus().map(|(id, _)| (id, value(id))));
            }
        }
    }
}

/// Renders the GPUs of the machine, as they are now.
pub(super) fn gpu_list(listing: &Listing) -> String {
    let mut metrics = Metrics::default();
    metrics.add_one(("gpus", Gauge, "GPUs of the machine."), listing.count.map(|count| count as f64));
    let gpus = || listing.gpus.iter().map(|gpu| (gpu.device.id.as_str(), gpu));
    // In sums over GPUs, parts are told from whole ones by this.
    let indices: Vec<_> =
        listing.gpus.iter().map(|gpu| gpu.device.index.map(|index| index.to_string())).collect();
    metrics.add(
        ("gpu_info", Gauge, "What each GPU is. parent: the GPU that it is a part of."),
        listing.gpus.iter().zip(&indices).map(|(Listed { device, .. }, index)| {
            let known = [("index", index), ("name", &device.name), ("parent", &device.parent)];
            let known = known.into_iter().filter_map(|(label, text)| Some((label, text.as_deref()?)));
            (std::iter::once(("uuid", device.id.as_str())).chain(known), Some(1.0))
        }),
    );
    metrics.add(
        ("gpu_memory_total_bytes", Gauge, "Memory that the GPU has."),
        gpus().map(|(id, gpu)| (Some(("uuid", id)), float(gpu.device.memory_bytes))),
    );
    for (figure, help) in NOW {
        metrics.add_figure(figure, help, gpus().map(|(id, gpu)| (id, gpu.now.figures[figure])));
    }
    metrics.text
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use gpu_track_core::fixtures::{full, hostile, killed, unknown};

    use super::*;
    use crate::model::gpu::Device;
    use crate::model::gpu::listing::GpuNow;

    /// Checks a text by the rules of the format, and gives its samples.
    fn samples(text: &str) -> Vec<(String, f64)> {
        let is_name = |name: &str| {
            !name.is_empty() && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
        };
        let (mut metrics, mut seen) = (HashSet::new(), HashSet::new());
        let (mut metric, mut found) = (String::new(), Vec::new());
        assert!(text.ends_with('\n'));
        let mut lines = text.lines().peekable();
        while let Some(line) = lines.next() {
            if let Some(help) = line.strip_prefix("# HELP ") {
                let (name, words) = help.split_once(' ').unwrap();
                assert!(is_name(name) && !words.is_empty() && metrics.insert(name.to_owned()), "{line}");
                let kind = lines.next().unwrap().strip_prefix(&format!("# TYPE {name} ")).unwrap();
                assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
                assert!(lines.peek().is_some_and(|next| next.starts_with(name)), "{name} has no value");
                metric = name.to_owned();
                continue;
            }
            let (series, value) = line.rsplit_once(' ').unwrap();
            let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
            assert_eq!(name, metric, "its metric stands before it");
            let mut rest = labels;
            while rest != "}" {
                let (label, after) = rest.split_once("=\"").unwrap();
                assert!(is_name(label), "{line}");
                let mut is_escaped = false;
                let end = after.char_indices().find(|(_, c)| {
                    let is_end = *c == '"' && !is_escaped;
                    assert!(!is_escaped || "\\\"n".contains(*c), "{line}");
                    is_escaped = *c == '\\' && !is_escaped;
                    is_end
                });
                rest = &after[end.unwrap().0 + 1..];
                rest = rest.strip_prefix(',').unwrap_or(rest);
            }
            assert!(seen.insert(series.to_owned()), "{series} is there twice");
            found.push((series.to_owned(), value.parse().unwrap()));
        }
        found
    }

    fn series(report: &Report) -> Vec<(String, f64)> {
        samples(&super::report(report, None))
    }

    fn value(report: &Report, part: &str) -> Option<f64> {
        let all = series(report);
        let mut found = all.iter().filter(|(series, _)| series.contains(part));
        let value = found.next().map(|(_, value)| *value);
        assert!(found.next().is_none(), "several have {part}");
        value
    }

    // Requirement: OUT-40
    #[test]
    fn figures_are_in_base_units_and_labels_tell_runs_apart() {
        let report = full();
        assert_eq!(value(&report, "ram_max_bytes{command=\"make\",set=\"combined\"}"), Some(204_472_320.0));
        let in_file = super::report(&report, Some(Path::new("/run/metrics/nightly build.prom")));
        assert!(in_file.contains("{command=\"make\",file=\"nightly build\",set=\"main\"}"), "{in_file}");
        assert_eq!(value(&report, "cpu_seconds_total"), report.cpu_time.total_s);
        assert_eq!(value(&report, "exit_code"), Some(0.0));
        assert_eq!(value(&report, "stage=\"final\""), Some(1.0));
        assert_eq!(value(&report, "start_time_seconds"), Some(1_760_000_000.123));
        assert_eq!(value(&report, "exit_signal"), None);
        assert_eq!(value(&report, "track_ram_bytes"), None, "nothing runs any more");
    }

    // Requirement: OUT-40
    #[test]
    fn gpus_have_lines_by_uuid_and_what_runs_has_its_last_point() {
        let mut report = killed();
        report.stage = Stage::SoFar;
        let gpu = report.gpus.first().unwrap().clone();
        let used = series(&report).into_iter().find(|(series, _)| {
            series.starts_with("gpu_track_gpu_memory_used_max_bytes") && series.contains(&gpu.id)
        });
        assert_eq!(used.map(|(_, bytes)| bytes), gpu.memory.max_used_bytes.map(|bytes| bytes as f64));
        let busy = series(&report).into_iter().find(|(series, _)| series.contains("utilization_max_ratio"));
        assert_eq!(busy.map(|(_, ratio)| ratio), gpu.utilization.max_percent.map(|percent| percent / 100.0));
        report.series.ram_bytes.combined.mean = vec![Some(1.0), Some(2_000_000.0)];
        let now = series(&report)
            .into_iter()
            .find(|(series, _)| series.starts_with("gpu_track_ram_bytes") && series.contains("combined"));
        assert_eq!(now.map(|(_, bytes)| bytes), Some(2_000_000.0));
    }

    // Requirement: OUT-3, OUT-40
    #[test]
    fn what_is_not_known_has_no_line() {
        let report = unknown();
        for name in ["ram_max_bytes", "cpu_seconds_total", "exit_code", "io_read_bytes_total"] {
            assert_eq!(value(&report, name), None, "{name}");
        }
        assert_eq!(value(&report, "stage="), Some(1.0));
        let mut report = full();
        assert!(value(&report, "processes_total").is_some());
        report.coverage.untracked_reason = Some("no shared memory".into());
        assert_eq!(value(&report, "processes_total"), None);
    }

    // Requirement: OUT-9, OUT-40
    #[test]
    fn label_of_any_bytes_is_escaped() {
        let mut report = hostile();
        series(&report);
        report.command = vec!["/bin/a\"b\\c\n\u{1b}[31md".into()];
        let text = super::report(&report, None);
        assert!(text.contains("command=\"a\\\"b\\\\c\\\\n\\\\x1b[31md\""), "{text}");
        assert!(!text.contains('\u{1b}'));
        samples(&text);
    }

    #[test]
    fn list_of_gpus_without_figures_has_their_number() {
        let listing = Listing { count: Some(0), ..Listing::default() };
        assert_eq!(samples(&gpu_list(&listing)), [("gpu_track_gpus".to_owned(), 0.0)]);
    }

    // Requirement: OUT-40
    #[test]
    fn listed_gpus_have_a_line_of_what_they_are() {
        let gpu = |id: &str, index, parent: Option<&str>| Listed {
            device: Device { id: id.into(), index, parent: parent.map(str::to_owned), ..Device::default() },
            tracked: true,
            visible: None,
            figures: vec![],
            now: GpuNow::default(),
        };
        let gpus = vec![gpu("GPU-a", Some(0), None), gpu("MIG-b", None, Some("GPU-a"))];
        let text = gpu_list(&Listing { gpus, ..Listing::default() });
        let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(
            lines,
            [
                "gpu_track_gpu_info{uuid=\"GPU-a\",index=\"0\"} 1",
                "gpu_track_gpu_info{uuid=\"MIG-b\",parent=\"GPU-a\"} 1"
            ]
        );
    }
}

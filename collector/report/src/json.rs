//! The report as JSON. The first five objects have gpu_tracker 5's names, nesting, units and meanings, so that programs
//! that parse those can switch. Their figures are in the units that the user asked for. After them comes the whole report,
//! unrounded, which `read` turns into a report again. Unknown is null.

mod layout;
pub(crate) mod pretty;

use serde::Serialize;
use serde_json::{Value, ser};

use super::quote::{escape_json, json_line};
use crate::model::gpu::listing::Listing;
use crate::model::report::{Percent, Report, SetRam, Stage};
use crate::model::style::{RamUnit, Style, TimeUnit};
use layout::Layout;

/// Version of the JSON form. It goes up when a key changes its name or meaning, or is removed.
///
/// - 2: `coverage.silent` became `coverage.uninstrumented`.
/// - 3: an entry of `warnings` is an object, and the whole report can be read back.
pub(super) const SCHEMA_VERSION: u64 = 3;

/// Renders the report as JSON, indented as in gpu_tracker, with a newline at its end.
pub(super) fn json(report: &Report, style: &Style) -> String {
    let gpu_tracker = GpuTracker::new(report, style, NULL);
    let finished = report.stage == Stage::Over;
    text(&Document { gpu_tracker, schema_version: SCHEMA_VERSION, finished, report }, " ")
}

/// Renders the objects that gpu_tracker has, and nothing more. Programs that read them know no null: an unknown figure is 0, as
/// gpu_tracker writes one that it could not read. [`unknown`] names such figures.
pub(super) fn gpu_tracker(report: &Report, style: &Style) -> String {
    text(&GpuTracker::new(report, style, Some(0)), " ")
}

/// The keys of gpu_tracker's objects whose figures are not known: `max_ram.main.private_rss`. An object without any
/// known figure is named as a whole.
pub(super) fn unknown(report: &Report) -> Vec<String> {
    let value = serde_json::to_value(GpuTracker::new(report, &Style::default(), NULL));
    nulls(&value.expect("numbers and strings serialize"))
}

/// The paths of all nulls in `value`. An object with nothing but nulls is one path. The empty path is `value` itself.
fn nulls(value: &Value) -> Vec<String> {
    let entries = match value {
        Value::Null => return vec![String::new()],
        Value::Object(entries) => entries,
        _ => return Vec::new(),
    };
    if entries.values().all(Value::is_null) {
        return vec![String::new()];
    }
    let mut paths = Vec::new();
    for (key, value) in entries {
        for inner in nulls(value) {
            paths.push(if inner.is_empty() { key.clone() } else { format!("{key}.{inner}") });
        }
    }
    paths
}

/// Renders JSON with this indent for each level, and a newline at its end. Control characters in strings are escaped.
pub(super) fn text(value: &impl Serialize, indent: &str) -> String {
    let mut bytes = Vec::with_capacity(16 * 1024);
    let mut serializer = ser::Serializer::with_formatter(&mut bytes, Layout::new(indent));
    value.serialize(&mut serializer).expect("numbers, strings and lists serialize");
    bytes.push(b'\n');
    escape_json(&String::from_utf8(bytes).expect("JSON is UTF-8"))
}

/// Renders the output of `--gpus` as JSON, with a newline at its end.
pub(super) fn gpu_list(listing: &Listing) -> String {
    text(listing, "  ")
}

/// Renders the output of `gpu-track gpus` as JSON in one line, since it can be written again and again.
pub(super) fn gpu_line(listing: &Listing) -> String {
    json_line(listing)
}

/// The JSON Schema of the report that [`json`] writes.
#[cfg(test)]
pub(super) fn schema() -> Value {
    let settings = schemars::generate::SchemaSettings::draft2020_12().for_serialize();
    settings.into_generator().into_root_schema_for::<Document>().to_value()
}

/// The objects of gpu_tracker 5.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct GpuTracker {
    /// `max_ram_bytes` in `unit`.
    max_ram: MaxRamInUnit,
    /// `max_gpu_ram_bytes` in `unit`.
    max_gpu_ram: MaxGpuRamInUnit,
    /// `cpu`, and the same over the number of cores.
    cpu_utilization: CpuUtilization,
    /// `gpu`, and the same over the number of GPUs.
    gpu_utilization: GpusUtilization,
    /// `wall_s` in `unit`.
    compute_time: ComputeTime,
}

/// The JSON form of a report.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(title = "Report of gpu-track-run"))]
struct Document<'a> {
    #[serde(flatten)]
    gpu_tracker: GpuTracker,
    /// Version of this form.
    schema_version: u64,
    /// `stage` is `final`.
    finished: bool,
    #[serde(flatten)]
    report: &'a Report,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct MaxRamInUnit {
    /// That of `--ru`, else `gigabytes`.
    unit: &'static str,
    /// As in `max_ram_bytes`.
    system_capacity: Option<f64>,
    /// As in `max_ram_bytes`.
    system: Option<f64>,
    /// As in `max_ram_bytes`.
    main: RssValues,
    /// As in `max_ram_bytes`.
    descendants: RssValues,
    /// As in `max_ram_bytes`.
    combined: RssValues,
}

/// RAM of a part of the tree.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct RssValues {
    /// As in `SetRam`, in the unit of `max_ram`.
    total_rss: Option<f64>,
    /// As in `SetRam`, in the unit of `max_ram`.
    private_rss: Option<f64>,
    /// As in `SetRam`, in the unit of `max_ram`.
    shared_rss: Option<f64>,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct MaxGpuRamInUnit {
    /// That of `--gru`, else `gigabytes`.
    unit: &'static str,
    /// As in `max_gpu_ram_bytes`.
    system_capacity: Option<f64>,
    /// As in `max_gpu_ram_bytes`.
    system: Option<f64>,
    /// As in `max_gpu_ram_bytes`.
    main: Option<f64>,
    /// As in `max_gpu_ram_bytes`.
    descendants: Option<f64>,
    /// As in `max_gpu_ram_bytes`.
    combined: Option<f64>,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct CpuUtilization {
    /// As in `cpu`.
    system_core_count: u32,
    /// As in `cpu`.
    n_expected_cores: u32,
    /// As in `cpu`; `hardware` per `system_core_count`.
    system: Percentages,
    /// As in `cpu`; `hardware` per `n_expected_cores`.
    main: Percentages,
    /// As in `cpu`; `hardware` per `n_expected_cores`.
    descendants: Percentages,
    /// As in `cpu`; `hardware` per `n_expected_cores`.
    combined: Percentages,
    /// Threads, as in `cpu`.
    main_n_threads: Option<u64>,
    /// Threads, as in `cpu`.
    descendants_n_threads: Option<u64>,
    /// Threads, as in `cpu`.
    combined_n_threads: Option<u64>,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct GpusUtilization {
    /// As in `gpu`.
    system_gpu_count: Option<u32>,
    /// As in `gpu`.
    n_expected_gpus: Option<u32>,
    /// As in `gpu`; `hardware` per `n_expected_gpus`.
    gpu_percentages: Percentages,
}

/// Utilization, percent.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Percentages {
    /// As in `Percent`.
    max_sum_percent: Option<f64>,
    /// The same over the number of cores or GPUs.
    max_hardware_percent: Option<f64>,
    /// As in `Percent`.
    mean_sum_percent: Option<f64>,
    /// The same over the number of cores or GPUs.
    mean_hardware_percent: Option<f64>,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct ComputeTime {
    /// That of `--tu`, else `hours`.
    unit: &'static str,
    /// `wall_s` in `unit`.
    time: f64,
}

/// Stands for figures that are not known.
const NULL: Option<u32> = None;

impl GpuTracker {
    /// Makes gpu_tracker's objects, in the units of `style`; `unknown` stands for figures that are not known.
    fn new(report: &Report, style: &Style, unknown: Option<u32>) -> Self {
        let unknown_figure = unknown.map(f64::from);
        let ram_unit = style.ram_unit.unwrap_or(RamUnit::Gigabytes);
        let gpu_ram_unit = style.gpu_ram_unit.unwrap_or(RamUnit::Gigabytes);
        let time_unit = style.time_unit.unwrap_or(TimeUnit::Hours);
        let ram = |bytes: Option<u64>| bytes.map(|b| ram_unit.convert(b as f64)).or(unknown_figure);
        let gpu_ram = |bytes: Option<u64>| bytes.map(|b| gpu_ram_unit.convert(b as f64)).or(unknown_figure);
        let rss = |set: &SetRam| RssValues {
            total_rss: ram(set.footprint_bytes),
            private_rss: ram(set.private_bytes),
            shared_rss: ram(set.shared_bytes),
        };
        let cpu = &report.cpu;
        // `of`: the number of cores or GPUs.
        let percentages = |percent: Percent, of: Option<u32>| Percentages {
            max_sum_percent: percent.max_sum.or(unknown_figure),
            max_hardware_percent: percent.max_hardware(of).or(unknown_figure),
            mean_sum_percent: percent.mean_sum.or(unknown_figure),
            mean_hardware_percent: percent.mean_hardware(of).or(unknown_figure),
        };
        let of_expected = |percent| percentages(percent, Some(cpu.expected_cores));
        let threads = |threads: Option<u64>| threads.or(unknown.map(u64::from));
        Self {
            max_ram: MaxRamInUnit {
                unit: ram_unit.name(),
                system_capacity: ram(report.max_ram.system_capacity_bytes),
                system: ram(report.max_ram.system_bytes),
                main: rss(&report.max_ram.main),
                descendants: rss(&report.max_ram.descendants),
                combined: rss(&report.max_ram.combined),
            },
            max_gpu_ram: MaxGpuRamInUnit {
                unit: gpu_ram_unit.name(),
                system_capacity: gpu_ram(report.max_gpu_ram.system_capacity_bytes),
                system: gpu_ram(report.max_gpu_ram.system_bytes),
                main: gpu_ram(report.max_gpu_ram.main_bytes),
                descendants: gpu_ram(report.max_gpu_ram.descendants_bytes),
                combined: gpu_ram(report.max_gpu_ram.combined_bytes),
            },
            cpu_utilization: CpuUtilization {
                system_core_count: cpu.system_core_count,
                n_expected_cores: cpu.expected_cores,
                system: percentages(cpu.system, Some(cpu.system_core_count)),
                main: of_expected(cpu.main),
                descendants: of_expected(cpu.descendants),
                combined: of_expected(cpu.combined),
                main_n_threads: threads(cpu.main_threads),
                descendants_n_threads: threads(cpu.descendants_threads),
                combined_n_threads: threads(cpu.combined_threads),
            },
            gpu_utilization: GpusUtilization {
                system_gpu_count: report.gpu.system_gpu_count.or(unknown),
                n_expected_gpus: report.gpu.expected_gpus.or(unknown),
                gpu_percentages: percentages(report.gpu.percent, report.gpu.expected_gpus),
            },
            compute_time: ComputeTime { unit: time_unit.name(), time: time_unit.convert(report.wall_s) },
        }
    }
}

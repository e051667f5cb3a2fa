//! The report as JSON. The first five objects have gpu_tracker 5's names, nesting, units and meanings, so that programs
//! that parse those can switch. Unknown is null.

use serde::Serialize;
use serde_json::ser::{PrettyFormatter, Serializer};

use super::timestamp::rfc3339;
use crate::model::gpu::listing::Listing;
use crate::model::report::{
    Cgroup, ContextSwitches, Coverage, CpuTime, Exit, Faults, GpuDevice, Hints, Host, Io, Limits,
    MaxProportionalRam, MeanRam, Peak, Percent, Processes, Rss, Stage, Usable, Warning,
};
use crate::model::style::{RamUnit, Style, TimeUnit};
use crate::report::Report;
use crate::run::cause::Cause;

/// Version of the JSON form. It goes up when a key changes its name or meaning, or is removed.
///
/// 2: `coverage.silent` became `coverage.uninstrumented`.
const SCHEMA_VERSION: u32 = 2;

/// The report as JSON, indented as in gpu_tracker, with a newline at its end.
pub(super) fn json(report: &Report, style: &Style) -> String {
    let mut bytes = Vec::with_capacity(16 * 1024);
    let mut serializer = Serializer::with_formatter(&mut bytes, PrettyFormatter::with_indent(b" "));
    let gpu_tracker = GpuTracker::new(report, style);
    let written = match style.as_gpu_tracker {
        true => gpu_tracker.serialize(&mut serializer),
        false => Document::new(gpu_tracker, report).serialize(&mut serializer),
    };
    written.expect("numbers, strings and lists serialize");
    bytes.push(b'\n');
    String::from_utf8(bytes).expect("JSON is UTF-8")
}

/// The output of `--gpus` as JSON, with a newline at its end.
pub(super) fn gpu_list(listing: &Listing) -> String {
    // Plain data always serializes.
    serde_json::to_string_pretty(listing).unwrap_or_default() + "\n"
}

/// The objects of gpu_tracker 5.
#[derive(Serialize)]
struct GpuTracker {
    max_ram: MaxRam,
    max_gpu_ram: MaxGpuRam,
    cpu_utilization: CpuUtilization,
    gpu_utilization: GpuUtilization,
    compute_time: ComputeTime,
}

#[derive(Serialize)]
struct Document<'a> {
    #[serde(flatten)]
    gpu_tracker: GpuTracker,
    schema_version: u32,
    finished: bool,
    command: &'a [String],
    started_at: String,
    host: &'a Host,
    exit: CommandExit<'a>,
    usable: &'a Usable,
    hints: &'a Hints,
    cpu_time: &'a CpuTime,
    io: &'a Io,
    faults: &'a Faults,
    context_switches: &'a ContextSwitches,
    mean_ram: &'a MeanRam,
    max_ram_proportional: &'a MaxProportionalRam,
    processes: &'a Processes,
    gpus: &'a [GpuDevice],
    peak: &'a Option<Peak>,
    cgroup: &'a Option<Cgroup>,
    limits: &'a Limits,
    coverage: &'a Coverage,
    warnings: &'a [Warning],
}

/// How the command ended, and what ended it.
#[derive(Serialize)]
struct CommandExit<'a> {
    #[serde(flatten)]
    exit: Exit,
    cause: Option<&'a Cause>,
}

#[derive(Serialize)]
struct MaxRam {
    unit: &'static str,
    system_capacity: Option<f64>,
    system: Option<f64>,
    main: RssValues,
    descendants: RssValues,
    combined: RssValues,
}

#[derive(Serialize)]
struct RssValues {
    total_rss: Option<f64>,
    private_rss: Option<f64>,
    shared_rss: Option<f64>,
}

#[derive(Serialize)]
struct MaxGpuRam {
    unit: &'static str,
    system_capacity: Option<f64>,
    system: Option<f64>,
    main: Option<f64>,
    descendants: Option<f64>,
    combined: Option<f64>,
}

#[derive(Serialize)]
struct CpuUtilization {
    system_core_count: u32,
    n_expected_cores: u32,
    system: Percentages,
    main: Percentages,
    descendants: Percentages,
    combined: Percentages,
    main_n_threads: Option<u64>,
    descendants_n_threads: Option<u64>,
    combined_n_threads: Option<u64>,
}

#[derive(Serialize)]
struct GpuUtilization {
    system_gpu_count: Option<u32>,
    n_expected_gpus: Option<u32>,
    gpu_percentages: Percentages,
}

#[derive(Serialize)]
struct Percentages {
    max_sum_percent: Option<f64>,
    max_hardware_percent: Option<f64>,
    mean_sum_percent: Option<f64>,
    mean_hardware_percent: Option<f64>,
}

#[derive(Serialize)]
struct ComputeTime {
    unit: &'static str,
    time: f64,
}

impl GpuTracker {
    fn new(report: &Report, style: &Style) -> Self {
        let ram_unit = style.ram_unit.unwrap_or(RamUnit::Gigabytes);
        let gpu_ram_unit = style.gpu_ram_unit.unwrap_or(RamUnit::Gigabytes);
        let time_unit = style.time_unit.unwrap_or(TimeUnit::Hours);
        let ram = |bytes: Option<u64>| bytes.map(|b| ram_unit.convert(b as f64));
        let gpu_ram = |bytes: Option<u64>| bytes.map(|b| gpu_ram_unit.convert(b as f64));
        let rss = |rss: &Rss| RssValues {
            total_rss: ram(rss.total_bytes),
            private_rss: ram(rss.private_bytes),
            shared_rss: ram(rss.shared_bytes),
        };
        let cpu = &report.cpu;
        let of_expected = |percent| percentages(percent, cpu.expected_cores);
        Self {
            max_ram: MaxRam {
                unit: ram_unit.name(),
                system_capacity: ram(report.max_ram.system_capacity_bytes),
                system: ram(report.max_ram.system_bytes),
                main: rss(&report.max_ram.main),
                descendants: rss(&report.max_ram.descendants),
                combined: rss(&report.max_ram.combined),
            },
            max_gpu_ram: MaxGpuRam {
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
                system: percentages(cpu.system, cpu.system_core_count),
                main: of_expected(cpu.main),
                descendants: of_expected(cpu.descendants),
                combined: of_expected(cpu.combined),
                main_n_threads: cpu.main_threads,
                descendants_n_threads: cpu.descendants_threads,
                combined_n_threads: cpu.combined_threads,
            },
            gpu_utilization: GpuUtilization {
                system_gpu_count: report.gpu.system_gpu_count,
                n_expected_gpus: report.gpu.expected_gpus,
                gpu_percentages: percentages(report.gpu.percent, report.gpu.expected_gpus.unwrap_or(0)),
            },
            compute_time: ComputeTime { unit: time_unit.name(), time: time_unit.convert(report.wall_s) },
        }
    }
}

impl<'a> Document<'a> {
    fn new(gpu_tracker: GpuTracker, report: &'a Report) -> Self {
        Self {
            gpu_tracker,
            schema_version: SCHEMA_VERSION,
            finished: report.stage == Stage::Over,
            command: &report.command,
            started_at: rfc3339(report.started_at),
            host: &report.host,
            exit: CommandExit { exit: report.exit, cause: report.cause.as_ref() },
            usable: &report.usable,
            hints: &report.hints,
            cpu_time: &report.cpu_time,
            io: &report.io,
            faults: &report.faults,
            context_switches: &report.context_switches,
            mean_ram: &report.mean_ram,
            max_ram_proportional: &report.max_ram_proportional,
            processes: &report.processes,
            gpus: &report.gpus,
            peak: &report.peak,
            cgroup: &report.cgroup,
            limits: &report.limits,
            coverage: &report.coverage,
            warnings: &report.warnings,
        }
    }
}

fn percentages(percent: Percent, units: u32) -> Percentages {
    Percentages {
        max_sum_percent: percent.max_sum,
        max_hardware_percent: percent.max_hardware(units),
        mean_sum_percent: percent.mean_sum,
        mean_hardware_percent: percent.mean_hardware(units),
    }
}

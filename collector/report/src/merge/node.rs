//! One node, from its reports: what its processes used, and how that is known.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, UNIX_EPOCH};

use super::cover::Cover;
use super::ending::Endings;
use super::grid::Grid;
use super::head::cut;
use super::machine::Energy;
use super::plan::NodePlan;
use super::quantity::{Axis, Span};
use super::sum::Sum;
use super::sums::Quantities;
use super::totals::{InAny, Known, bytes_time, mean, millionths, saturated};
use crate::model::report::{
    CoresSource, GpuDevice, Node, NodeCoverage, NodeGpu, NodeRam, NodeSeries, Report, UsableCores,
};
use crate::model::timestamp::{self, Timestamp};

/// Maximum number of GPUs of a node that are listed.
const MOST_GPUS: usize = 64;
/// Maximum number of processors of an affinity mask.
const MOST_CPUS: u32 = 1 << 16;
/// The most cores that a report may use: more is forged.
const MOST_CORES: f64 = 1e6;

/// A node whose reports are being read.
#[derive(Default)]
pub(super) struct OpenNode {
    pub(super) name: String,
    clock_offset_s: Option<f64>,
    grid: Grid,
    reports: u64,
    endings: Endings,
    /// From the first start to the last end.
    span: Option<Span>,
    /// The times of a report have nothing to do with those of the others.
    is_apart: bool,
    cores: u32,
    usable: UsableNode,
    /// RAM of all reports over time.
    ram: Sum,
    /// RAM of the last report. Its `max_used_bytes` and `total_bytes` are the largest of all reports.
    own_ram: NodeRam,
    /// Mean RAM times time, bytes times microseconds.
    ram_time: Known,
    /// CPU utilization of all reports over time.
    cpu: Sum,
    cpu_us: Known,
    /// Whether the run of some report waited for cores.
    contended: InAny,
    processes: u64,
    /// The sum of the reports' expected cores.
    expected_cores: u64,
    /// A report expects another number of cores than its machine has, so `--n-expected-cores` was given.
    has_expected_cores: bool,
    gpus: BTreeMap<String, OpenGpu>,
    coverage: NodeCoverage,
}

/// A GPU of the open node.
struct OpenGpu {
    gpu: NodeGpu,
    /// Whether the command of some report used it.
    used: InAny,
    energy: Energy,
    /// The times of the reports that have it.
    cover: Cover,
}

/// Cores and memory that a node's reports may use.
#[derive(Default)]
struct UsableNode {
    /// Processors of the affinity masks.
    affinity: BTreeSet<u32>,
    /// In some report something else than the affinity mask sets the cores.
    has_other_source: bool,
    /// The sum of `--n-expected-cores` of all reports.
    asked: f64,
    /// The most cores that a report may use.
    largest: f64,
    /// What sets them.
    source: CoresSource,
    memory_bytes: Option<u64>,
}

/// A node of which all reports were read, with what it adds to the sums of its machine.
pub(super) struct ClosedNode {
    pub node: Node,
    /// `--n-expected-cores`, else its cores.
    pub expected_cores: u64,
    pub usable: UsableCores,
}

impl OpenNode {
    /// Begins a node.
    pub(super) fn new(plan: &NodePlan, grid: Grid) -> Self {
        // If a node has one report, that has the largest RAM itself, so the sum needs no bounds.
        let ram = if plan.reports > 1 { Sum::new(grid) } else { Sum::over_time(grid) };
        Self {
            name: cut(&plan.name),
            clock_offset_s: plan.clock_offset_s,
            grid,
            ram,
            cpu: Sum::over_time(grid),
            ..Self::default()
        }
    }

    /// Adds a report from `file`, with its time axis and what it has over time.
    pub(super) fn add(&mut self, file: &str, report: &Report, axis: &Axis, quantities: &Quantities) {
        let Axis { span, is_apart, .. } = *axis;
        let [ram, cpu] = quantities.combined_ram_and_cpu();
        self.reports += 1;
        self.endings.add(span.end_us, &self.name, file, report);
        self.is_apart |= is_apart;
        self.span = Some(self.span.map_or(span, |all| all.joined(span)));
        self.cores = self.cores.max(report.host.cores);
        self.usable.add(report);
        // Without --n-expected-cores, a report expects all cores of its machine.
        self.has_expected_cores |= report.cpu.expected_cores != report.cpu.system_core_count;
        self.expected_cores += u64::from(report.cpu.expected_cores);
        self.ram.add(ram);
        self.cpu.add(cpu);
        let own = &mut self.own_ram;
        own.max_bytes = report.max_ram.combined.footprint_bytes;
        own.at_most_bytes = report.max_ram_at_most.combined;
        own.max_used_bytes = own.max_used_bytes.max(report.max_ram.system_bytes);
        own.total_bytes = own.total_bytes.max(report.host.ram_bytes);
        let wall_us = u128::from(span.length_us());
        self.ram_time.add(report.mean_ram_bytes.combined.map(|bytes| bytes_time(bytes, wall_us)));
        self.cpu_us.add(report.cpu_time.total_s.map(millionths));
        self.contended.add(report.contention.is_contended);
        self.processes = self.processes.saturating_add(report.processes.total);
        GpuDevice::whole(&report.gpus).for_each(|gpu| self.add_gpu(gpu, span));
        self.add_coverage(report);
    }

    /// Adds a GPU of a report whose command ran at `span`. GPUs beyond [`MOST_GPUS`] are left out.
    fn add_gpu(&mut self, gpu: &GpuDevice, span: Span) {
        if self.gpus.len() >= MOST_GPUS && !self.gpus.contains_key(&gpu.id) {
            return;
        }
        // The first report is the longest: its mean covers most.
        let OpenGpu { gpu: all, used, energy, cover } =
            self.gpus.entry(gpu.id.clone()).or_insert_with(|| OpenGpu {
                gpu: NodeGpu {
                    id: cut(&gpu.id),
                    name: gpu.name.as_deref().map(cut),
                    mean_percent: gpu.utilization.mean_percent,
                    ..NodeGpu::default()
                },
                used: InAny::default(),
                energy: Energy::default(),
                cover: Cover::new(span),
            });
        *cover = cover.with(span);
        used.add(gpu.used);
        all.total_bytes = all.total_bytes.max(gpu.memory.total_bytes);
        all.max_run_bytes = all.max_run_bytes.max(gpu.memory.max_combined_bytes);
        energy.add(span, gpu.power.energy_j);
    }

    /// Adds how the processes of a report are known. Of several reasons, the first is kept.
    fn add_coverage(&mut self, report: &Report) {
        let (all, of_report) = (&mut self.coverage, &report.coverage);
        all.exact = all.exact.saturating_add(of_report.exact);
        all.sampled = all.sampled.saturating_add(of_report.sampled);
        all.unknown = all.unknown.saturating_add(of_report.unknown);
        all.dropped_events = all.dropped_events.saturating_add(of_report.dropped_events);
        for (reason, other) in [
            (&mut all.untracked_reason, &of_report.untracked_reason),
            (&mut all.uncounted_reason, &of_report.uncounted_reason),
        ] {
            if reason.is_none() {
                *reason = other.as_deref().map(cut);
            }
        }
    }

    /// Makes the node after its last report. `bins_per_point`: bins in each point of its series; `None`: it gets no series.
    pub(super) fn close(self, bins_per_point: Option<usize>) -> ClosedNode {
        let span = self.span.unwrap_or(Span { start_us: self.grid.start_us, end_us: self.grid.start_us });
        let wall_us = span.length_us();
        let bounds = self.ram.bounds();
        // The only report knows its largest RAM; that of several together lies between bounds.
        let ram = match self.reports {
            1 => self.own_ram,
            _ => NodeRam {
                max_bytes: bounds.at_least.map(saturated),
                at_most_bytes: bounds.at_most.map(saturated),
                ..self.own_ram
            },
        };
        let usable = self.usable.cores();
        let expected_cores =
            if self.has_expected_cores { self.expected_cores } else { u64::from(self.cores) };
        let gpus = self.gpus.into_values().map(|OpenGpu { gpu, used, energy, cover }| NodeGpu {
            used: used.is_so(),
            energy_j: energy.sum().map(|energy| energy as f64 / 1e6),
            mean_percent: gpu.mean_percent.filter(|_| cover.is_whole()),
            ..gpu
        });
        // After this time, at least one of the node's reports tells nothing more.
        let heard_us = self.endings.unfinished_us.unwrap_or(span.end_us);
        let heard = UNIX_EPOCH + Duration::from_micros(heard_us.unsigned_abs());
        let node = Node {
            node: self.name,
            state: self.endings.state(),
            reports: self.reports,
            last_heard_at: Some(Timestamp(timestamp::representable(heard))),
            silent_s: (!self.is_apart).then(|| (self.grid.end_us - heard_us).max(0) as f64 / 1e6),
            clock_offset_s: self.clock_offset_s,
            cores: Some(self.cores),
            usable_cores: Some(usable.count),
            ram: NodeRam {
                mean_bytes: mean(self.ram_time, wall_us),
                usable_bytes: self.usable.memory_bytes,
                ..ram
            },
            cpu_s: self.cpu_us.whole_seconds(),
            busy_cores: mean(self.cpu_us, wall_us),
            is_contended: self.contended.is_so(),
            processes: Some(self.processes),
            exit: self.endings.ending().exit,
            gpus: gpus.collect(),
            coverage: Some(self.coverage),
            series: bins_per_point.map(|bins| series(&self.ram, &self.cpu, bins)).unwrap_or_default(),
        };
        ClosedNode { node, expected_cores, usable }
    }
}

/// Makes the series of a node or a rank, with `bins_per_point` bins in each point.
pub(super) fn series(ram: &Sum, cpu: &Sum, bins_per_point: usize) -> NodeSeries {
    let bytes = |list: Vec<Option<u128>>| list.into_iter().map(|bytes| Some(bytes? as f64)).collect();
    // Converts millionths of a percent to percent with two decimals, so that small shares are not lost.
    let percent = |millionths: Option<u128>| millionths.map(|part| (part as f64 / 1e4).round() / 100.0);
    let (ram, cpu) = (ram.line(bins_per_point), cpu.line(bins_per_point));
    NodeSeries {
        mean_ram_bytes: bytes(ram.mean),
        max_ram_bytes: bytes(ram.max),
        mean_cpu_percent: cpu.mean.into_iter().map(percent).collect(),
    }
}

impl UsableNode {
    /// Adds what a report of the node may use.
    fn add(&mut self, report: &Report) {
        let UsableCores { count, source } = report.usable.cores;
        let count = count.clamp(0.0, MOST_CORES);
        let affinity = report.allowed.cpus.as_ref().filter(|_| source == CoresSource::Affinity);
        match affinity {
            Some(cpus) => self.affinity.extend(cpus.iter().filter(|cpu| **cpu < MOST_CPUS)),
            None => self.has_other_source = true,
        }
        if source == CoresSource::NExpectedCores {
            self.asked += count;
        }
        if count > self.largest {
            (self.largest, self.source) = (count, source);
        }
        self.memory_bytes = self.memory_bytes.max(report.usable.memory.bytes);
    }

    /// The cores that all reports may use: the largest of three numbers.
    ///
    /// - The processors that are in any affinity mask, if all cores are known by such masks.
    /// - The sum of `--n-expected-cores`.
    /// - The most that one report may use. Quota and allocation are those of the node, so they do not add up.
    fn cores(&self) -> UsableCores {
        let by_mask = if self.has_other_source { 0.0 } else { self.affinity.len() as f64 };
        UsableCores { count: self.largest.max(by_mask).max(self.asked), source: self.source }
    }
}

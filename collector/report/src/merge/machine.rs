//! What belongs to a machine and not to a report: cores, memory, GPUs, and what all programs use of them. Each counts once,
//! however many reports and nodes (containers) are of the machine. The longest report of a machine comes first; most figures are
//! that report's.

use std::collections::BTreeMap;

use super::cover::Cover;
use super::grid::Grid;
use super::quantity::{Axis, Quantity, Scale, Span};
use super::seen::Seen;
use super::sum::Sum;
use super::totals::{Known, both, millionths, saturated};
use crate::figures::float;
use crate::model::gpu::gpu_figure::GpuFigure;
use crate::model::report::{Gpu, GpuDevice, MaxGpuRam, Percent, Report, Track};
use crate::model::sorting::Sorting;

/// Maximum number of GPUs of a machine that are told apart.
const MOST_GPUS: usize = 1024;

/// Sums over machines.
#[derive(Default)]
pub(super) struct Machines {
    /// How many machines.
    pub count: u64,
    cores: u64,
    ram_bytes: Known,
    /// Memory in use.
    pub ram: Sum,
    /// CPU utilisation by all programs.
    pub cpu: Sum,
    /// The means of CPU utilisation, millionths of a percent of one core.
    mean_cpu: Known,
    gpu_count: Known,
    expected_gpus: Known,
    usable_gpus: Known,
    gpu_ram_bytes: Known,
    /// GPU memory in use.
    pub gpu_ram: Sum,
    /// GPU utilisation.
    gpu_busy: Sum,
    /// The means of GPU utilisation, millionths of a percent of one GPU.
    mean_busy: Known,
    /// The energy of the GPUs, millionths of a joule.
    energy: Known,
    /// The first report of some machine does not cover nearly all of the run ([`Cover::is_whole`]), so the machine's means are over
    /// another time.
    has_other_means: bool,
    open: OpenMachine,
}

/// What a machine has.
#[derive(Debug, Clone, Copy)]
pub(super) struct Size {
    pub cores: u32,
    /// Memory; `None`: unknown.
    pub ram_bytes: Option<u64>,
}

/// The machine whose reports are being read.
#[derive(Default)]
struct OpenMachine {
    reports: u64,
    /// The times of its reports. `None`: there is none.
    cover: Option<Cover>,
    /// The times of a report have nothing to do with those of the others.
    is_apart: bool,
    cores: u32,
    ram_bytes: Option<u64>,
    /// How much of its memory in use is in the sums.
    ram: Seen,
    /// How much of its CPU utilisation is in the sums.
    cpu: Seen,
    /// How much of its GPU memory in use is in the sums.
    gpu_ram: Vec<SeenGpus>,
    mean_cpu_percent: Option<f64>,
    gpu_count: Option<u32>,
    expected_gpus: Option<u32>,
    usable_gpus: Option<u32>,
    gpu_ram_bytes: Option<u64>,
    mean_busy_percent: Option<f64>,
    gpus: BTreeMap<String, OpenGpu>,
}

/// GPUs of the open machine whose memory came into the sums together, by one report.
struct SeenGpus {
    ids: Vec<String>,
    memory: Seen,
    /// When the command of that report ran.
    span: Span,
}

/// A GPU of the open machine.
#[derive(Default)]
struct OpenGpu {
    energy: Energy,
    /// The command of some report may use it.
    is_visible: bool,
}

/// The energy of a GPU by several reports. The counter is the GPU's: reports that overlap in time have read the same energy.
#[derive(Debug, Default, Clone)]
pub(super) struct Energy {
    /// The time of each report, and its energy, millionths of a joule.
    stretches: Vec<(Span, u128)>,
    is_unknown: bool,
}

impl Machines {
    pub(super) fn new(grid: Grid) -> Self {
        let sum = || Sum::new(grid);
        Self { ram: sum(), cpu: sum(), gpu_ram: sum(), gpu_busy: sum(), ..Self::default() }
    }

    /// Adds a report of the machine that is open.
    pub(super) fn add(&mut self, report: &Report, axis: &Axis) {
        let is_first = self.open.reports == 0;
        self.open.reports += 1;
        let before = self.open.cover.unwrap_or(Cover::new(axis.span));
        self.open.cover = Some(before.with(axis.span));
        self.open.is_apart |= axis.is_apart;
        self.open.cores = self.open.cores.max(report.host.cores);
        self.open.ram_bytes = self.open.ram_bytes.max(report.host.ram_bytes);
        self.add_system(report, axis, is_first);
        // This comes before the report's new GPUs are added: only those of earlier reports are raised.
        if !is_first {
            self.raise_gpu_use(report, axis);
        }
        let new_gpus = self.open.add_gpus(report, axis.span, is_first);
        if is_first || !new_gpus.is_empty() {
            self.add_gpu_use(report, axis, &new_gpus, is_first);
        }
    }

    /// Adds the use of memory and cores by all programs. The sums have that of the first report of the machine. Later reports
    /// raise the upper bounds where they saw more, or ran while the first did not.
    fn add_system(&mut self, report: &Report, axis: &Axis, is_first: bool) {
        let series = &report.series;
        let max = float(report.max_ram.system_bytes);
        let ram = axis.quantity(&[&series.ram_bytes.system], Scale::Whole, max, max);
        let max = report.cpu.system.max_sum;
        let cpu = axis.quantity(&[&series.cpu_percent.system], Scale::Percent, max, max);
        if is_first {
            self.open.mean_cpu_percent = report.cpu.system.mean_sum;
        }
        let is_covered = self.open.cover.is_some_and(|cover| cover.holds(axis.span));
        let open = &mut self.open;
        for (sum, seen, quantity) in
            [(&mut self.ram, &mut open.ram, ram), (&mut self.cpu, &mut open.cpu, cpu)]
        {
            add_or_raise(sum, seen, quantity.as_ref(), Standing { is_first, is_covered });
        }
    }

    /// Raises the use of GPUs that are in the sums to what a later report saw of them: the largest value of a single report, and
    /// the upper bound of memory. No upper bound of utilization is reported, so that is not raised. What this report does not know
    /// is unknown of the machine, unless the first report covers all of its time.
    fn raise_gpu_use(&mut self, report: &Report, axis: &Axis) {
        let is_covered = self.open.cover.is_some_and(|cover| cover.holds(axis.span));
        let busy = report.gpu.percent.max_sum.map(|percent| Scale::Percent.units(percent));
        for (sum, largest) in
            [(&mut self.gpu_ram, report.max_gpu_ram.system_bytes), (&mut self.gpu_busy, busy)]
        {
            match largest {
                Some(largest) => sum.raise_largest(largest),
                None if is_covered => {}
                None => sum.add(None),
            }
        }
        // Without parts of a GPU (MIG instances), whose memory is in that of their GPU.
        let devices: Vec<&str> = GpuDevice::whole(&report.gpus).map(|gpu| gpu.id.as_str()).collect();
        for seen in &mut self.open.gpu_ram {
            // How many of these GPUs the report has.
            let found = seen.ids.iter().filter(|id| devices.contains(&id.as_str())).count();
            if found == 0 {
                continue;
            }
            // The report's own maximum is over all of its GPUs.
            let max = float(report.max_gpu_ram.system_bytes).filter(|_| found == devices.len());
            let used = gpu_tracks(report, &seen.ids, GpuFigure::MemoryUsed);
            let quantity = axis.quantity(&used, Scale::Whole, max, max.or(bound_of(&used)));
            // Without all of these GPUs, or without an upper bound, the quantity counts as unknown.
            let quantity = quantity.filter(|of| found == seen.ids.len() && of.at_most.is_some());
            let is_covered = Cover::new(seen.span).holds(axis.span);
            let standing = Standing { is_first: false, is_covered };
            add_or_raise(&mut self.gpu_ram, &mut seen.memory, quantity.as_ref(), standing);
        }
    }

    /// Adds the use of those GPUs of a report that no report before had. The report's own maxima are over all of its GPUs, so
    /// only those of the first report can be used. If one is unknown, some GPU could not be read, and the others' series don't count.
    fn add_gpu_use(&mut self, report: &Report, axis: &Axis, new_gpus: &[String], is_first: bool) {
        let of_report = float(report.max_gpu_ram.system_bytes);
        let max = of_report.filter(|_| is_first);
        let used = gpu_tracks(report, new_gpus, GpuFigure::MemoryUsed);
        // The report's own maximum is an upper bound. Else the largest of the points are one, if all are known.
        let at_most = max.or(bound_of(&used));
        let quantity = of_report.and_then(|_| axis.quantity(&used, Scale::Whole, max, at_most));
        let mut memory = Seen::default();
        // Whichever report it is, these GPUs are new to the sums.
        let standing = Standing { is_first: true, is_covered: true };
        add_or_raise(&mut self.gpu_ram, &mut memory, quantity.as_ref(), standing);
        self.open.gpu_ram.push(SeenGpus { ids: new_gpus.to_vec(), memory, span: axis.span });
        // Of utilization, only the report's own maximum counts as an upper bound.
        let of_report = report.gpu.percent.max_sum;
        let max = of_report.filter(|_| is_first);
        let busy = gpu_tracks(report, new_gpus, GpuFigure::Utilization);
        let busy = of_report.and_then(|_| axis.quantity(&busy, Scale::Percent, max, max));
        self.gpu_busy.add(busy.as_ref());
    }

    /// Adds the machine that is open to the sums, and returns its size. `None`: it has no reports. What is added after this is of
    /// another machine.
    pub(super) fn close(&mut self) -> Option<Size> {
        let open = std::mem::take(&mut self.open);
        if open.reports == 0 {
            return None;
        }
        self.count += 1;
        self.cores += u64::from(open.cores);
        self.ram_bytes.add(open.ram_bytes.map(u128::from));
        // The means of the first report are those of the machine if it covers all of the time.
        let mean = |percent: Option<f64>| percent.filter(|_| open.has_means()).map(millionths);
        self.mean_cpu.add(mean(open.mean_cpu_percent));
        let count = |count: Option<u32>| count.map(u128::from);
        self.gpu_count.add(count(open.gpu_count));
        self.expected_gpus.add(count(open.expected_gpus));
        self.usable_gpus.add(count(open.usable_gpus()));
        self.gpu_ram_bytes.add(open.gpu_ram_bytes.map(u128::from));
        self.mean_busy.add(mean(open.mean_busy_percent));
        let Grid { start_us, end_us, .. } = self.ram.grid;
        let run = Span { start_us, end_us };
        self.has_other_means |= !open.cover.is_some_and(|cover| cover.with(run).is_whole());
        for gpu in open.gpus.values() {
            self.energy.add(gpu.energy.sum());
        }
        if open.gpu_count.is_none() {
            // The machine can have GPUs that no report has.
            self.energy.add(None);
        }
        Some(Size { cores: open.cores, ram_bytes: open.ram_bytes })
    }

    /// The cores of all machines.
    pub(super) fn cores(&self) -> u32 {
        u32::try_from(self.cores).unwrap_or(u32::MAX)
    }

    /// The memory of all machines, bytes; `None` if that of one is unknown.
    pub(super) fn ram_bytes(&self) -> Option<u64> {
        self.ram_bytes.whole().map(saturated)
    }

    /// The energy of all GPUs, joules; `None` if there is none, or that of one is unknown.
    pub(super) fn energy_j(&self) -> Option<f64> {
        self.energy.whole().map(|energy| energy as f64 / 1e6)
    }

    /// The utilization of all cores by all programs, percent of one core.
    pub(super) fn cpu_percent(&self) -> Percent {
        let mean_sum = self.mean_cpu.whole().map(|sum| sum as f64 / 1e6);
        Percent { max_sum: self.at_least_mean_of_run(self.cpu.at_least(Scale::Percent), mean_sum), mean_sum }
    }

    /// The larger of a maximum and a sum of means. The means count only if all are over the time of the run.
    fn at_least_mean_of_run(&self, max: Option<f64>, mean: Option<f64>) -> Option<f64> {
        at_least_mean(max, mean.filter(|_| !self.has_other_means))
    }

    /// The number of GPUs and their utilization. What is unknown of a machine is unknown of all.
    pub(super) fn gpu(&self) -> Gpu {
        let mean_sum = self.mean_busy.whole().map(|sum| sum as f64 / 1e6);
        // A mean raises a known maximum, but does not replace an unknown one.
        let max_sum = self.gpu_busy.at_least(Scale::Percent).filter(|_| self.gpu_busy.is_complete());
        Gpu {
            system_gpu_count: whole_count(self.gpu_count),
            expected_gpus: whole_count(self.expected_gpus),
            percent: Percent { max_sum: max_sum.and(self.at_least_mean_of_run(max_sum, mean_sum)), mean_sum },
        }
    }

    /// How many GPUs the run may use; `None` if it is not known of a machine.
    pub(super) fn usable_gpus(&self) -> Option<u32> {
        whole_count(self.usable_gpus)
    }

    /// The capacity of all GPUs, and a lower bound of the largest memory in use by all programs. `None`: it is unknown of a machine.
    /// The figures of the run's own processes are not set.
    pub(super) fn gpu_ram(&self) -> MaxGpuRam {
        MaxGpuRam {
            system_capacity_bytes: self.gpu_ram_bytes.whole().map(saturated),
            system_bytes: self.gpu_ram.at_least_of_all().map(saturated),
            ..MaxGpuRam::default()
        }
    }
}

/// The larger of a maximum and a mean: the maximum is a lower bound, which can be below the mean. `None`: both are unknown.
pub(super) fn at_least_mean(max: Option<f64>, mean: Option<f64>) -> Option<f64> {
    max.into_iter().chain(mean).reduce(f64::max)
}

/// A sum as a count of GPUs; `None` if one is unknown, or there is none.
fn whole_count(sum: Known) -> Option<u32> {
    sum.whole().map(|count| u32::try_from(count).unwrap_or(u32::MAX))
}

/// A track of each of these GPUs of a report.
fn gpu_tracks<'a>(report: &'a Report, ids: &[String], figure: GpuFigure) -> Vec<&'a Track> {
    report.series.gpus.iter().filter(|gpu| ids.contains(&gpu.id)).map(|gpu| &gpu[figure]).collect()
}

/// An upper bound for the sum of `tracks`, to be passed to [`Axis::quantity`]. That raises any bound to the largest point of the
/// sum, so 0 stands for the largest point. `None`: there is no bound, because a track is unknown at some point.
fn bound_of(tracks: &[&Track]) -> Option<f64> {
    tracks.iter().all(|track| track.max.iter().all(Option::is_some)).then_some(0.0)
}

/// How a report stands to those of the same machine before it.
#[derive(Clone, Copy)]
struct Standing {
    /// No report before was of this machine, or of these GPUs.
    is_first: bool,
    /// The command of the first report, of this machine or with these GPUs, ran all of the time of this one.
    is_covered: bool,
}

/// Adds what the first report has of a quantity, or raises the sum where a later report saw more than was `seen` before. `None`:
/// the quantity is unknown. Then there is no upper bound, unless the first report covers all of the time of this one.
fn add_or_raise(sum: &mut Sum, seen: &mut Seen, quantity: Option<&Quantity>, standing: Standing) {
    if standing.is_first {
        sum.add(quantity);
        if let Some(quantity) = quantity {
            // Later reports are compared with what this one saw.
            seen.raise(quantity, sum.grid);
        }
        return;
    }
    match quantity {
        Some(quantity) => sum.raise_where_above(quantity, seen),
        None if standing.is_covered => {}
        None => sum.drop_upper_bound(),
    }
}

impl OpenMachine {
    /// Whether the means of the first report are those over the time of all reports.
    fn has_means(&self) -> bool {
        !self.is_apart && self.cover.is_some_and(Cover::is_whole)
    }

    /// Adds the GPUs of a report and its figures of all its GPUs. Returns the ids of the GPUs that no report before had. GPUs
    /// beyond [`MOST_GPUS`] are left out.
    fn add_gpus(&mut self, report: &Report, span: Span, is_first: bool) -> Vec<String> {
        let mut new: Vec<&GpuDevice> = Vec::new();
        for gpu in GpuDevice::whole(&report.gpus) {
            if !self.gpus.contains_key(&gpu.id) {
                if self.gpus.len() >= MOST_GPUS {
                    continue;
                }
                new.push(gpu);
            }
            let open = self.gpus.entry(gpu.id.clone()).or_default();
            open.energy.add(span, gpu.power.energy_j);
            open.is_visible |= gpu.visible == Some(true);
        }
        if is_first {
            self.gpu_count = report.gpu.system_gpu_count;
            self.expected_gpus = report.gpu.expected_gpus;
            self.usable_gpus = report.usable.gpus.count;
            self.gpu_ram_bytes = report.max_gpu_ram.system_capacity_bytes;
            self.mean_busy_percent = report.gpu.percent.mean_sum;
        } else {
            self.join_gpu_figures(report, &new, span);
        }
        new.into_iter().map(|gpu| gpu.id.clone()).collect()
    }

    /// Joins the GPU figures of a later report, whose command ran at `span`, to those of the first. `new`: its GPUs that no
    /// report before had. What is unknown in one becomes unknown.
    fn join_gpu_figures(&mut self, report: &Report, new: &[&GpuDevice], span: Span) {
        // The mean of a GPU adds up with the other means only if it is over the time of all reports.
        let is_whole = self.cover.is_some_and(|cover| cover.is_whole_for(span));
        let Gpu { system_gpu_count, expected_gpus, .. } = report.gpu;
        let more = u32::try_from(new.len()).unwrap_or(u32::MAX);
        self.expected_gpus = both(self.expected_gpus, expected_gpus, |all, _| all.saturating_add(more));
        self.gpu_count = both(self.gpu_count, system_gpu_count, u32::max);
        // The machine has at least the GPUs that its reports expected.
        self.gpu_count = self.gpu_count.map(|count| count.max(self.expected_gpus.unwrap_or(0)));
        self.usable_gpus = both(self.usable_gpus, report.usable.gpus.count, u32::max);
        for gpu in new {
            self.gpu_ram_bytes = both(self.gpu_ram_bytes, gpu.memory.total_bytes, u64::saturating_add);
            let busy_percent = gpu.utilization.mean_percent.filter(|_| is_whole);
            self.mean_busy_percent = both(self.mean_busy_percent, busy_percent, |all, own| all + own);
        }
    }

    /// Counts the GPUs that the commands of the reports may use. Each of several may use other GPUs, so the count is at least
    /// that of the GPUs that are visible to any of them. `None`: it is unknown.
    fn usable_gpus(&self) -> Option<u32> {
        let visible = self.gpus.values().filter(|gpu| gpu.is_visible).count();
        if self.reports == 1 {
            return self.usable_gpus;
        }
        self.usable_gpus.map(|most| most.max(u32::try_from(visible).unwrap_or(u32::MAX)))
    }
}

impl Energy {
    /// Adds what a report of this time has, joules; `None`: it is unknown.
    pub(super) fn add(&mut self, span: Span, energy_j: Option<f64>) {
        match energy_j {
            Some(energy_j) => self.stretches.push((span, millionths(energy_j))),
            None => self.is_unknown = true,
        }
    }

    /// The energy, millionths of a joule: the most that reports which do not overlap in time have together. If others
    /// overlap with them in part, that is a lower bound. `None`: it is unknown in a report, or there is no report.
    pub(super) fn sum(&self) -> Option<u128> {
        if self.is_unknown || self.stretches.is_empty() {
            return None;
        }
        let mut by_end: Vec<&(Span, u128)> = self.stretches.iter().collect();
        by_end.order_by_key(|(span, energy)| (span.end_us, span.start_us, *energy));
        // The most that the first 0, 1, 2, ... stretches have together without an overlap.
        let mut most = vec![0_u128];
        for (at, (span, energy)) in by_end.iter().enumerate() {
            let before = by_end[..at].partition_point(|(other, _)| other.end_us <= span.start_us);
            most.push(most[at].max(most[before].saturating_add(*energy)));
        }
        most.last().copied()
    }
}

//! What belongs to a machine and not to a report: cores, memory, GPUs, and what all programs use of them. Each counts once,
//! however many reports and nodes (containers) are of the machine. The longest report of it is the first, and tells most.

use std::collections::BTreeMap;

use super::grid::Grid;
use super::quantity::{Axis, Scale, Span};
use super::sum::Sum;
use super::totals::{Known, millionths, saturated};
use crate::model::report::{Gpu, GpuDevice, GpuSeries, MaxGpuRam, Percent, Report, Track};

/// Most GPUs of a machine that are told apart.
const MOST_GPUS: usize = 1024;

/// Sums over machines.
pub(super) struct Machines {
    /// How many.
    pub count: u64,
    cores: u64,
    ram_bytes: Known,
    /// Memory in use.
    pub ram: Sum,
    /// CPU utilisation by all programs.
    pub cpu: Sum,
    mean_cpu: Known,
    gpu_count: Known,
    expected_gpus: Known,
    usable_gpus: Known,
    gpu_ram_bytes: Known,
    /// GPU memory in use.
    pub gpu_ram: Sum,
    /// GPU utilisation.
    gpu_busy: Sum,
    mean_busy: Known,
    energy: Known,
    open: Open,
}

/// The machine whose reports are being read.
#[derive(Default)]
struct Open {
    reports: u64,
    cores: u32,
    ram_bytes: Option<u64>,
    mean_cpu_percent: Option<f64>,
    gpu_count: Option<u32>,
    expected_gpus: Option<u32>,
    usable_gpus: Option<u32>,
    gpu_ram_bytes: Option<u64>,
    mean_busy_percent: Option<f64>,
    gpus: BTreeMap<String, OpenGpu>,
}

/// A GPU of it.
#[derive(Default)]
struct OpenGpu {
    energy: Energy,
    is_visible: bool,
}

/// The energy of a GPU by several reports. The counter is the GPU's: reports that overlap in time have read the same energy.
#[derive(Debug, Default, Clone)]
pub(super) struct Energy {
    /// Times of reports that do not overlap, and the largest energy of each, millionths of a joule.
    stretches: Vec<(Span, u128)>,
    is_unknown: bool,
}

impl Machines {
    pub(super) fn new(grid: Grid) -> Self {
        let sum = || Sum::new(grid);
        Self {
            count: 0,
            cores: 0,
            ram_bytes: Known::default(),
            ram: sum(),
            cpu: sum(),
            mean_cpu: Known::default(),
            gpu_count: Known::default(),
            expected_gpus: Known::default(),
            usable_gpus: Known::default(),
            gpu_ram_bytes: Known::default(),
            gpu_ram: sum(),
            gpu_busy: sum(),
            mean_busy: Known::default(),
            energy: Known::default(),
            open: Open::default(),
        }
    }

    /// Adds a report of the machine that is open, whose command ran at `span`.
    pub(super) fn add(&mut self, report: &Report, axis: &Axis, span: Span) {
        let is_first = self.open.reports == 0;
        self.open.reports += 1;
        self.open.cores = self.open.cores.max(report.host.cores);
        self.open.ram_bytes = self.open.ram_bytes.max(report.host.ram_bytes);
        if is_first {
            self.add_system(report, axis);
        } else {
            self.ram.raise(report.max_ram.system_bytes.unwrap_or(0));
        }
        let new_gpus = self.open.add_gpus(report, span, is_first);
        if is_first || !new_gpus.is_empty() {
            self.add_gpu_use(report, axis, &new_gpus, is_first);
        }
    }

    /// Adds the use of memory and cores by all programs: that of the first report of the machine.
    fn add_system(&mut self, report: &Report, axis: &Axis) {
        let series = &report.series;
        let max = report.max_ram.system_bytes.map(|bytes| bytes as f64);
        self.ram.add(axis.quantity(&[&series.ram_bytes.system], Scale::Whole, max, max).as_ref());
        let max = report.cpu.system.max_sum;
        self.cpu.add(axis.quantity(&[&series.cpu_percent.system], Scale::Percent, max, max).as_ref());
        self.open.mean_cpu_percent = report.cpu.system.mean_sum;
    }

    /// Adds the use of those GPUs of a report that no report before had. The report's own maxima are over all of its GPUs, so
    /// only those of the first report can be used.
    fn add_gpu_use(&mut self, report: &Report, axis: &Axis, new_gpus: &[&str], is_first: bool) {
        let tracks = |track: fn(&GpuSeries) -> &Track| -> Vec<&Track> {
            let of_new = report.series.gpus.iter().filter(|gpu| new_gpus.contains(&gpu.id.as_str()));
            of_new.map(track).collect()
        };
        let max = report.max_gpu_ram.system_bytes.map(|bytes| bytes as f64).filter(|_| is_first);
        let used = tracks(|gpu| &gpu.memory_used_bytes);
        self.gpu_ram.add(axis.quantity(&used, Scale::Whole, max, max).as_ref());
        let max = report.gpu.percent.max_sum.filter(|_| is_first);
        let busy = tracks(|gpu| &gpu.utilization_percent);
        self.gpu_busy.add(axis.quantity(&busy, Scale::Percent, max, max).as_ref());
    }

    /// Adds the machine that is open to the sums, if it has reports. What is added after this is of another one.
    pub(super) fn close(&mut self) {
        let open = std::mem::take(&mut self.open);
        if open.reports == 0 {
            return;
        }
        self.count += 1;
        self.cores += u64::from(open.cores);
        self.ram_bytes.add(open.ram_bytes.map(u128::from));
        self.mean_cpu.add(open.mean_cpu_percent.map(millionths));
        let count = |count: Option<u32>| count.map(u128::from);
        self.gpu_count.add(count(open.gpu_count));
        self.expected_gpus.add(count(open.expected_gpus));
        self.usable_gpus.add(count(open.usable_gpus()));
        self.gpu_ram_bytes.add(open.gpu_ram_bytes.map(u128::from));
        self.mean_busy.add(open.mean_busy_percent.map(millionths));
        for gpu in open.gpus.values() {
            self.energy.add(gpu.energy.sum());
        }
    }

    /// Gives the cores of all machines.
    pub(super) fn cores(&self) -> u32 {
        u32::try_from(self.cores).unwrap_or(u32::MAX)
    }

    /// Gives the memory of all machines, bytes; `None` if that of one is unknown.
    pub(super) fn ram_bytes(&self) -> Option<u64> {
        self.ram_bytes.whole().map(saturated)
    }

    /// Gives the energy of all GPUs, joules; `None` if there is none, or that of one is unknown.
    pub(super) fn energy_j(&self) -> Option<f64> {
        self.energy.whole().map(|energy| energy as f64 / 1e6)
    }

    /// Gives the utilization of all cores by all programs, percent of one core.
    pub(super) fn cpu_percent(&self) -> Percent {
        let mean_sum = self.mean_cpu.sum().map(|sum| sum as f64 / 1e6);
        Percent { max_sum: at_least_mean(self.cpu.at_least(Scale::Percent), mean_sum), mean_sum }
    }

    /// Gives the number of GPUs and their utilization. What is unknown of a machine is unknown of all.
    pub(super) fn gpu(&self) -> Gpu {
        let count = |sum: Known| sum.whole().map(|count| u32::try_from(count).unwrap_or(u32::MAX));
        let mean_sum = self.mean_busy.whole().map(|sum| sum as f64 / 1e6);
        let max_sum = self.gpu_busy.at_least(Scale::Percent).filter(|_| self.gpu_busy.is_complete());
        Gpu {
            system_gpu_count: count(self.gpu_count),
            expected_gpus: count(self.expected_gpus),
            percent: Percent { max_sum: max_sum.and(at_least_mean(max_sum, mean_sum)), mean_sum },
        }
    }

    /// Gives how many GPUs the run may use; `None` if it is not known of a machine.
    pub(super) fn usable_gpus(&self) -> Option<u32> {
        self.usable_gpus.whole().map(|count| u32::try_from(count).unwrap_or(u32::MAX))
    }

    /// Gives the capacity of all GPUs and the largest memory in use by all programs. The caller adds that of the run's processes.
    pub(super) fn gpu_ram(&self) -> MaxGpuRam {
        MaxGpuRam {
            system_capacity_bytes: self.gpu_ram_bytes.whole().map(saturated),
            system_bytes: self.gpu_ram.at_least_of_all().map(saturated),
            ..MaxGpuRam::default()
        }
    }
}

/// Gives the larger of a maximum and a mean: the maximum is a lower bound, which can be below the mean. `None`: both are unknown.
pub(super) fn at_least_mean(max: Option<f64>, mean: Option<f64>) -> Option<f64> {
    max.into_iter().chain(mean).reduce(f64::max)
}

impl Open {
    /// Adds the GPUs of a report, and gives the ids of those that no report before had. Parts of a GPU are left out: they are in
    /// their whole device.
    fn add_gpus<'a>(&mut self, report: &'a Report, span: Span, is_first: bool) -> Vec<&'a str> {
        let mut new: Vec<&GpuDevice> = Vec::new();
        for gpu in report.gpus.iter().filter(|gpu| gpu.parent.is_none()) {
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
            self.join_gpu_figures(report, &new);
        }
        new.into_iter().map(|gpu| gpu.id.as_str()).collect()
    }

    /// Joins the GPU figures of a later report to those of the first. What is unknown in one becomes unknown.
    fn join_gpu_figures(&mut self, report: &Report, new: &[&GpuDevice]) {
        let Gpu { system_gpu_count, expected_gpus, .. } = &report.gpu;
        let more = u32::try_from(new.len()).unwrap_or(u32::MAX);
        self.expected_gpus =
            Option::zip(self.expected_gpus, *expected_gpus).map(|(all, _)| all.saturating_add(more));
        self.gpu_count = Option::zip(self.gpu_count, *system_gpu_count).map(|(all, count)| all.max(count));
        // The machine has at least the GPUs that its reports expected.
        self.gpu_count = self.gpu_count.max(self.gpu_count.and(self.expected_gpus));
        self.usable_gpus =
            Option::zip(self.usable_gpus, report.usable.gpus.count).map(|(all, count)| all.max(count));
        for gpu in new {
            self.gpu_ram_bytes = Option::zip(self.gpu_ram_bytes, gpu.memory.total_bytes)
                .map(|(all, own)| all.saturating_add(own));
            self.mean_busy_percent =
                Option::zip(self.mean_busy_percent, gpu.utilization.mean_percent).map(|(all, own)| all + own);
        }
    }

    /// Counts the GPUs that some report may use. `None`: it is unknown. Each of several reports may use other GPUs, so there are
    /// at least those that are visible to any.
    fn usable_gpus(&self) -> Option<u32> {
        let visible = self.gpus.values().filter(|gpu| gpu.is_visible).count();
        if self.reports == 1 {
            return self.usable_gpus;
        }
        self.usable_gpus.map(|most| most.max(u32::try_from(visible).unwrap_or(u32::MAX)))
    }
}

impl Energy {
    /// Adds what a report of this time has, joules; `None`: it is unknown. Stretches that overlap with it become one.
    pub(super) fn add(&mut self, span: Span, energy_j: Option<f64>) {
        let Some(energy_j) = energy_j else {
            self.is_unknown = true;
            return;
        };
        let (mut joined, mut largest) = (span, millionths(energy_j));
        self.stretches.retain(|(other, energy)| {
            let overlaps = other.start_us < joined.end_us && joined.start_us < other.end_us;
            if overlaps {
                joined.start_us = joined.start_us.min(other.start_us);
                joined.end_us = joined.end_us.max(other.end_us);
                largest = largest.max(*energy);
            }
            !overlaps
        });
        self.stretches.push((joined, largest));
    }

    /// Gives the energy, millionths of a joule; `None` if it is unknown in a report, or there is no report.
    pub(super) fn sum(&self) -> Option<u128> {
        (!self.is_unknown && !self.stretches.is_empty())
            .then(|| self.stretches.iter().map(|(_, energy)| energy).sum())
    }
}

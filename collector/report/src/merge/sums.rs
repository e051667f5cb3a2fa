//! The quantities of which reports have series, and their sums over time.

use super::grid::Grid;
use super::quantity::{Axis, Quantity, Scale};
use super::sum::Sum;
use super::totals::Known;
use crate::figures::float;
use crate::model::gpu::gpu_figure::GpuFigure;
use crate::model::groups::Groups;
use crate::model::report::{GpuDevice, Report, SetTracks, Track};

/// Sums over reports, over time.
#[derive(Default)]
pub(super) struct Sums {
    pub ram: Groups<Sum>,
    pub cpu: Groups<Sum>,
    pub processes: Sum,
    /// Bytes per second.
    pub read: Sum,
    pub written: Sum,
    pub gpu_ram: Sum,
    /// GPU memory of main and of descendants, which reports don't have over time.
    pub gpu_main: MaxOnly,
    pub gpu_descendants: MaxOnly,
}

/// A quantity of which only maxima are known.
#[derive(Default)]
pub(super) struct MaxOnly {
    sum: Known,
    largest: u64,
}

/// What a report has over time. A list of three has the quantities of the command's first process (main), of its descendants, and
/// of both together.
pub(super) struct Quantities {
    ram: [Option<Quantity>; 3],
    cpu: [Option<Quantity>; 3],
    processes: Option<Quantity>,
    read: Option<Quantity>,
    written: Option<Quantity>,
    gpu_ram: Option<Quantity>,
}

impl Quantities {
    /// The quantities of one report, as far as its series have them.
    pub(super) fn from_report(report: &Report, axis: &Axis) -> Self {
        let series = &report.series;
        let ram = report.max_ram.footprint_bytes().values().map(float);
        let ram_at_most = report.max_ram_at_most.values().map(float);
        let cpu =
            [report.cpu.main, report.cpu.descendants, report.cpu.combined].map(|percent| percent.max_sum);
        let of_groups = |of: &SetTracks, scale: Scale, max: [Option<f64>; 3], at_most: [Option<f64>; 3]| {
            let tracks = [&of.main, &of.descendants, &of.combined];
            std::array::from_fn(|at| axis.quantity(&[tracks[at]], scale, max[at], at_most[at]))
        };
        let max_concurrent = float(report.processes.max_concurrent);
        // Without parts of a GPU (MIG instances), whose memory is in that of their GPU.
        let devices: Vec<&str> = GpuDevice::whole(&report.gpus).map(|gpu| gpu.id.as_str()).collect();
        let of_devices = series.gpus.iter().filter(|gpu| devices.contains(&gpu.id.as_str()));
        let gpu_ram: Vec<&Track> = of_devices.map(|gpu| &gpu[GpuFigure::MemoryRun]).collect();
        let max_gpu_ram = float(report.max_gpu_ram.combined_bytes);
        Self {
            ram: of_groups(&series.ram_bytes, Scale::Whole, ram, ram_at_most),
            // Only RAM has an upper bound of its own. That of the others is their maximum.
            cpu: of_groups(&series.cpu_percent, Scale::Percent, cpu, cpu),
            processes: axis.quantity(&[&series.processes], Scale::Whole, max_concurrent, max_concurrent),
            // A report has no maximum of its I/O beside the points.
            read: axis.quantity(&[&series.io_bytes_per_s.read], Scale::Whole, None, None),
            written: axis.quantity(&[&series.io_bytes_per_s.written], Scale::Whole, None, None),
            // There is no maximum if a driver hides some processes. Then the points have only a part of the memory.
            gpu_ram: max_gpu_ram
                .and_then(|_| axis.quantity(&gpu_ram, Scale::Whole, max_gpu_ram, max_gpu_ram)),
        }
    }

    /// RAM and CPU utilization of main and descendants together.
    pub(super) fn combined_ram_and_cpu(&self) -> [Option<&Quantity>; 2] {
        [self.ram[2].as_ref(), self.cpu[2].as_ref()]
    }
}

/// Applies `figure` to the sum of main, of descendants, and of both together.
pub(super) fn by_group<T>(
    Groups { main, descendants, combined }: &Groups<Sum>,
    figure: impl Fn(&Sum) -> T,
) -> Groups<T> {
    Groups { main: figure(main), descendants: figure(descendants), combined: figure(combined) }
}

impl Sums {
    /// Begins with no report.
    pub(super) fn new(grid: Grid) -> Self {
        let sum = || Sum::new(grid);
        let groups = || Groups { main: sum(), descendants: sum(), combined: sum() };
        Self {
            ram: groups(),
            cpu: groups(),
            processes: sum(),
            read: Sum::over_time(grid),
            written: Sum::over_time(grid),
            gpu_ram: sum(),
            ..Self::default()
        }
    }

    /// Adds the quantities of a report.
    pub(super) fn add(&mut self, quantities: &Quantities, report: &Report) {
        for (sums, quantities) in [(&mut self.ram, &quantities.ram), (&mut self.cpu, &quantities.cpu)] {
            for (sum, quantity) in
                [&mut sums.main, &mut sums.descendants, &mut sums.combined].into_iter().zip(quantities)
            {
                sum.add(quantity.as_ref());
            }
        }
        self.processes.add(quantities.processes.as_ref());
        self.read.add(quantities.read.as_ref());
        self.written.add(quantities.written.as_ref());
        self.gpu_ram.add(quantities.gpu_ram.as_ref());
        self.gpu_main.add(report.max_gpu_ram.main_bytes);
        self.gpu_descendants.add(report.max_gpu_ram.descendants_bytes);
    }
}

impl MaxOnly {
    /// Adds the maximum of a report, bytes; `None`: it is unknown.
    fn add(&mut self, bytes: Option<u64>) {
        self.sum.add(bytes.map(u128::from));
        self.largest = self.largest.max(bytes.unwrap_or(0));
    }

    /// The largest sum over time, bytes. `None`: it is unknown, because several maxima above 0 may be of different times, or a
    /// maximum is unknown.
    pub(super) fn max(&self) -> Option<u64> {
        self.sum.whole().filter(|sum| *sum == u128::from(self.largest)).map(|_| self.largest)
    }
}

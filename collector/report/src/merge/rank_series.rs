//! Ranks over time. A job can have any number of ranks, so at most [`MAX_SERIES`] have a series. These are all ranks, or every
//! second one, every fourth one, and so on. Which ranks these are does not depend on the order of the reports.

use super::grid::Grid;
use super::node;
use super::sum::Sum;
use super::sums::Quantities;
use crate::model::report::{NodeSeries, RankPlace, RankSeries};

/// Maximum number of ranks with a series.
const MAX_SERIES: usize = 64;
/// Maximum number of points of a series.
const MOST_POINTS: usize = 120;

/// Which ranks have a series.
#[derive(Debug)]
pub(super) struct Sampling {
    /// Ranks whose number is a multiple of this power of two have one. `None`: no rank has, since too many jobs have a rank 0.
    step: Option<u64>,
    /// How many series were begun and not dropped.
    count: usize,
}

/// The series of a rank whose reports are being read.
#[derive(Debug)]
pub(super) struct OpenSeries {
    ram: Sum,
    cpu: Sum,
}

impl Default for Sampling {
    fn default() -> Self {
        Self { step: Some(1), count: 0 }
    }
}

impl Sampling {
    /// Begins the series of another rank. `None`: it gets none.
    pub(super) fn open(&mut self, rank: u32, grid: Grid) -> Option<OpenSeries> {
        if !self.has(rank) {
            return None;
        }
        self.count += 1;
        Some(OpenSeries { ram: Sum::over_time(grid), cpu: Sum::over_time(grid) })
    }

    /// Drops series until at most [`MAX_SERIES`] are left. `ranks`: the number of each rank, and its series if it has one.
    pub(super) fn limit<'a>(&mut self, ranks: impl Iterator<Item = (u32, &'a mut Option<OpenSeries>)>) {
        if self.count <= MAX_SERIES {
            return;
        }
        let mut kept: Vec<_> = ranks.filter(|(_, series)| series.is_some()).collect();
        while kept.len() > MAX_SERIES {
            // A step above all numbers of ranks leaves the rank 0 of each job. If those are too many, no rank has a series.
            self.step = self.step.filter(|step| *step <= u64::from(u32::MAX)).map(|step| step * 2);
            for (_, series) in kept.iter_mut().filter(|(rank, _)| !self.has(*rank)) {
                **series = None;
            }
            kept.retain(|(_, series)| series.is_some());
        }
        self.count = kept.len();
    }

    /// Whether a rank of this number has a series.
    fn has(&self, rank: u32) -> bool {
        self.step.is_some_and(|step| u64::from(rank).is_multiple_of(step))
    }
}

impl OpenSeries {
    /// Adds a report of the rank: its RAM and its CPU utilization over time.
    pub(super) fn add(&mut self, quantities: &Quantities) {
        let [ram, cpu] = quantities.combined_ram_and_cpu();
        self.ram.add(ram);
        self.cpu.add(cpu);
    }

    /// Ends the series.
    pub(super) fn close(self, place: RankPlace) -> RankSeries {
        let bins = bins_per_point(self.ram.grid);
        let NodeSeries { mean_ram_bytes, mean_cpu_percent, .. } = node::series(&self.ram, &self.cpu, bins);
        RankSeries { place, mean_ram_bytes, mean_cpu_percent }
    }
}

/// Begin and end of each point of the series on this grid, seconds after its start.
pub(super) fn axis(grid: Grid) -> (Vec<f64>, Vec<f64>) {
    grid.axis(bins_per_point(grid))
}

fn bins_per_point(grid: Grid) -> usize {
    grid.bins.div_ceil(MOST_POINTS)
}

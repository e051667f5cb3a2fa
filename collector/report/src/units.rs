//! The units in which a report's figures are shown.

use super::figures::{bytes, number, short};
use crate::model::report::Report;
use crate::model::style::{RamUnit, Style, TimeUnit};

/// The units that the user asked for, else those in which the figures of this report read well. One report has one unit of
/// RAM, one of GPU RAM and one of time.
#[derive(Clone, Copy)]
pub(super) struct Units {
    pub(super) ram: RamUnit,
    pub(super) gpu_ram: RamUnit,
    pub(super) time: TimeUnit,
    /// The unit of time that the user asked for.
    pub(super) asked_time: Option<TimeUnit>,
    /// The unit of RAM that the user asked for.
    pub(super) asked_ram: Option<RamUnit>,
}

impl Units {
    /// Chooses the units that the user asked for, else those in which the report's figures read well. For RAM that is the largest
    /// of the tree, for times the wall time. For GPU RAM it is that of the run, or if that is 0 or unknown, that of the machine.
    pub(super) fn choose(report: &Report, style: &Style) -> Self {
        let (ram, gpu) = (&report.max_ram, &report.max_gpu_ram);
        let of_tree =
            [ram.combined.footprint_bytes, ram.main.footprint_bytes, ram.descendants.footprint_bytes];
        Self {
            ram: style.ram_unit.unwrap_or_else(|| unit_that_fits(of_tree.into_iter().flatten().max())),
            gpu_ram: style.gpu_ram_unit.unwrap_or_else(|| {
                let known = [gpu.combined_bytes, gpu.system_bytes, gpu.system_capacity_bytes];
                unit_that_fits(known.into_iter().flatten().find(|bytes| *bytes > 0))
            }),
            time: style.time_unit.unwrap_or_else(|| TimeUnit::that_fits(report.wall_s)),
            asked_time: style.time_unit,
            asked_ram: style.ram_unit,
        }
    }

    /// Formats RAM in the report's unit. If the number would have more than four digits and the user asked for no unit, the unit
    /// is a larger one.
    pub(super) fn bytes(&self, bytes: u64) -> String {
        const MAX_READABLE: f64 = 9_999.5;
        let is_readable = self.asked_ram.is_some() || self.ram.convert(bytes as f64) < MAX_READABLE;
        let unit = if is_readable { self.ram } else { RamUnit::that_fits(bytes as f64) };
        format!("{} {}", short(unit.convert(bytes as f64)), unit.symbol())
    }

    /// Formats a time in the report's unit.
    pub(super) fn seconds(&self, seconds: f64) -> String {
        format!("{} {}", short(self.time.convert(seconds)), self.time.symbol())
    }

    /// Formats GPU RAM in the report's unit of that.
    pub(super) fn gpu_bytes(&self, bytes: u64) -> String {
        format!("{} {}", short(self.gpu_ram.convert(bytes as f64)), self.gpu_ram.symbol())
    }

    /// Formats RAM in the report's unit with three decimals.
    pub(super) fn exact_bytes(&self, bytes: u64) -> String {
        format!("{:.3} {}", self.ram.convert(bytes as f64), self.ram.symbol())
    }

    /// Formats a moment of the run.
    pub(super) fn after_the_start(&self, at_s: f64) -> String {
        format!("{:.3} {} after the start", self.time.convert(at_s), self.time.symbol())
    }

    /// Formats RAM for a column that has the report's unit in its head.
    pub(super) fn ram_cell(&self, bytes: Option<u64>) -> String {
        number(bytes.map(|bytes| self.ram.convert(bytes as f64)))
    }

    /// Formats GPU RAM for a column that has its unit in its head.
    pub(super) fn gpu_ram_cell(&self, bytes: Option<u64>) -> String {
        number(bytes.map(|bytes| self.gpu_ram.convert(bytes as f64)))
    }

    /// Formats a time for a column that has its unit in its head.
    pub(super) fn time_cell(&self, seconds: Option<f64>) -> String {
        number(seconds.map(|seconds| self.time.convert(seconds)))
    }

    /// Formats bytes that were read or written. `None`: there are none, or it is unknown. They can be far more or fewer than those of
    /// RAM, so they have the unit that fits them unless the user asked for one.
    pub(super) fn io(&self, read_or_written: Option<u64>) -> Option<String> {
        let moved = read_or_written.filter(|moved| *moved > 0)?;
        Some(if self.asked_ram.is_some() { self.bytes(moved) } else { bytes(moved) })
    }
}

/// The unit in which `bytes` read well; gpu_tracker's default if they are 0 or unknown.
fn unit_that_fits(bytes: Option<u64>) -> RamUnit {
    bytes.filter(|b| *b > 0).map_or(RamUnit::Gigabytes, |b| RamUnit::that_fits(b as f64))
}

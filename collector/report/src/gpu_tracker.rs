//! The report as text in the form of gpu_tracker 5, for users who move from that Python program: the same sections, words and nesting.

use super::document::{Block, Cell, Section};
use super::figures::{count, number};
use super::units::Units;
use crate::model::report::{MaxGpuRam, Percent, Report, SetRam};
use crate::model::style::{RamUnit, Style};

/// Renders the text that gpu_tracker writes: every row, units in rows of their own, and numbers as Python writes them. A
/// newline ends it. It has no word for an unknown figure: that is 0, as for gpu_tracker where it did not get to read it.
pub(super) fn text(report: &Report, style: &Style) -> String {
    sections(report, Units::choose(report, style)).iter().map(|section| lines_of(section, "")).collect()
}

/// Renders a section and those in it, with `indent` before each line. [`sections`] makes no other blocks than sections and rows.
fn lines_of(section: &Section, indent: &str) -> String {
    let inner = format!("{indent}   ");
    let unit = section.unit.map(|name| format!("{inner}Unit: {name}\n")).unwrap_or_default();
    let lines = section.blocks.iter().map(|block| match block {
        Block::Section(section) => lines_of(section, &inner),
        Block::Row(label, cells) => {
            cells.iter().map(|cell| format!("{inner}{label}: {}\n", value(cell))).collect()
        }
        _ => String::new(),
    });
    let title = section.title.as_deref().unwrap_or_default();
    format!("{indent}{title}:\n{unit}{}", lines.collect::<String>())
}

/// Renders a cell; an unknown number is 0.
fn value(cell: &Cell) -> String {
    match cell {
        Cell::Number(value, _) => as_in_python(&number(value.or(Some(0.0)))).to_owned(),
        Cell::Count(value) => count(value.or(Some(0))),
        Cell::Text(_, text) | Cell::Figure(_, text) | Cell::Note(text) => text.clone(),
        // Sections that gpu_tracker has contain neither.
        Cell::Part(_) | Cell::RamOverTime(..) => String::new(),
    }
}

/// Cuts needless zeros from a number with decimals, as Python does: `1.200` to `1.2`, and `3.000` to `3.0`.
fn as_in_python(number: &str) -> &str {
    let digits = number.trim_end_matches('0');
    let is_whole = digits.ends_with('.');
    number.get(..digits.len() + usize::from(is_whole)).unwrap_or(number)
}

/// Makes the sections that gpu_tracker has. The full text begins with them, too.
pub(super) fn sections(report: &Report, units: Units) -> [Section; 5] {
    [
        max_ram(report, units.ram),
        max_gpu_ram(&report.max_gpu_ram, units.gpu_ram),
        cpu_utilization(report),
        gpu_utilization(report),
        measured("Compute time", units.time.name()).seconds("Time", Some(report.wall_s), units.time),
    ]
}

/// Makes a section whose numbers are in this unit.
fn measured(title: &str, unit: &'static str) -> Section {
    Section { unit: Some(unit), ..Section::new(title) }
}

/// Makes the section of the largest RAM: of the machine, the main (first) process, its descendants, and both together.
fn max_ram(report: &Report, unit: RamUnit) -> Section {
    let ram = &report.max_ram;
    let rss = |title, set: &SetRam| {
        Section::new(title)
            .bytes("Total RSS", set.footprint_bytes, unit)
            .bytes("Private RSS", set.private_bytes, unit)
            .bytes("Shared RSS", set.shared_bytes, unit)
    };
    measured("Max RAM", unit.name())
        .bytes("System capacity", ram.system_capacity_bytes, unit)
        .bytes("System", ram.system_bytes, unit)
        .section(rss("Main", &ram.main))
        .section(rss("Descendants", &ram.descendants))
        .section(rss("Combined", &ram.combined))
}

fn max_gpu_ram(ram: &MaxGpuRam, unit: RamUnit) -> Section {
    measured("Max GPU RAM", unit.name())
        .bytes("System capacity", ram.system_capacity_bytes, unit)
        .bytes("System", ram.system_bytes, unit)
        .bytes("Main", ram.main_bytes, unit)
        .bytes("Descendants", ram.descendants_bytes, unit)
        .bytes("Combined", ram.combined_bytes, unit)
}

/// Makes the section of CPU utilization and threads, of the same parts.
fn cpu_utilization(report: &Report) -> Section {
    let cpu = &report.cpu;
    Section::new("CPU utilization")
        .text("System core count", cpu.system_core_count.to_string())
        .text("Number of expected cores", cpu.expected_cores.to_string())
        .section(percentages("System", cpu.system, cpu.system_core_count))
        .section(percentages("Main", cpu.main, cpu.expected_cores))
        .section(percentages("Descendants", cpu.descendants, cpu.expected_cores))
        .section(percentages("Combined", cpu.combined, cpu.expected_cores))
        .count("Main number of threads", cpu.main_threads)
        .count("Descendants number of threads", cpu.descendants_threads)
        .count("Combined number of threads", cpu.combined_threads)
}

fn gpu_utilization(report: &Report) -> Section {
    let gpu = &report.gpu;
    Section::new("GPU utilization")
        .count("System GPU count", gpu.system_gpu_count.map(u64::from))
        .count("Number of expected GPUs", gpu.expected_gpus.map(u64::from))
        .section(percentages("GPU percentages", gpu.percent, gpu.expected_gpus))
}

/// Makes a section of four percentages: the largest and the mean sum, and each divided by `units`, the number of cores or GPUs.
/// With 0 units, as on a machine without a GPU, gpu_tracker writes 0, and `max_hardware` and `mean_hardware` return that.
fn percentages(title: &str, percent: Percent, units: impl Into<Option<u32>>) -> Section {
    let units = units.into();
    Section::new(title)
        .number("Max sum percent", percent.max_sum, "")
        .number("Max hardware percent", percent.max_hardware(units), "")
        .number("Mean sum percent", percent.mean_sum, "")
        .number("Mean hardware percent", percent.mean_hardware(units), "")
}

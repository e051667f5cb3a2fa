//! The sections that gpu_tracker has, in its words and nesting.

use super::page::Page;
use super::units::Units;
use crate::model::report::{Percent, Rss};
use crate::model::style::{RamUnit, TimeUnit};
use crate::report::Report;

pub(super) fn sections(page: &mut Page, report: &Report, units: Units) {
    max_ram(page, report, units.ram);
    max_gpu_ram(page, report, units.gpu_ram);
    cpu_utilization(page, report);
    gpu_utilization(page, report);
    compute_time(page, report, units.time);
}

fn max_ram(page: &mut Page, report: &Report, unit: RamUnit) {
    let bytes = |page: &mut Page, level, label: &str, bytes: Option<u64>| {
        page.number(level, label, bytes.map(|b| unit.convert(b as f64)), unit.symbol());
    };
    let rss = |page: &mut Page, label: &str, rss: &Rss| {
        page.heading(1, label);
        bytes(page, 2, "Total RSS", rss.total_bytes);
        bytes(page, 2, "Private RSS", rss.private_bytes);
        bytes(page, 2, "Shared RSS", rss.shared_bytes);
    };
    let ram = &report.max_ram;
    page.heading(0, "Max RAM");
    page.unit(unit.name());
    bytes(page, 1, "System capacity", ram.system_capacity_bytes);
    bytes(page, 1, "System", ram.system_bytes);
    rss(page, "Main", &ram.main);
    rss(page, "Descendants", &ram.descendants);
    rss(page, "Combined", &ram.combined);
}

fn max_gpu_ram(page: &mut Page, report: &Report, unit: RamUnit) {
    let ram = &report.max_gpu_ram;
    page.heading(0, "Max GPU RAM");
    page.unit(unit.name());
    for (label, bytes) in [
        ("System capacity", ram.system_capacity_bytes),
        ("System", ram.system_bytes),
        ("Main", ram.main_bytes),
        ("Descendants", ram.descendants_bytes),
        ("Combined", ram.combined_bytes),
    ] {
        page.number(1, label, bytes.map(|b| unit.convert(b as f64)), unit.symbol());
    }
}

fn cpu_utilization(page: &mut Page, report: &Report) {
    let cpu = &report.cpu;
    page.heading(0, "CPU utilization");
    page.field(1, "System core count", cpu.system_core_count);
    page.field(1, "Number of expected cores", cpu.expected_cores);
    percentages(page, "System", cpu.system, cpu.system_core_count);
    percentages(page, "Main", cpu.main, cpu.expected_cores);
    percentages(page, "Descendants", cpu.descendants, cpu.expected_cores);
    percentages(page, "Combined", cpu.combined, cpu.expected_cores);
    page.count(1, "Main number of threads", cpu.main_threads);
    page.count(1, "Descendants number of threads", cpu.descendants_threads);
    page.count(1, "Combined number of threads", cpu.combined_threads);
}

fn gpu_utilization(page: &mut Page, report: &Report) {
    page.heading(0, "GPU utilization");
    page.count(1, "System GPU count", report.gpu.system_gpu_count.map(u64::from));
    page.count(1, "Number of expected GPUs", report.gpu.expected_gpus.map(u64::from));
    percentages(page, "GPU percentages", report.gpu.percent, report.gpu.expected_gpus.unwrap_or(0));
}

fn compute_time(page: &mut Page, report: &Report, unit: TimeUnit) {
    page.heading(0, "Compute time");
    page.unit(unit.name());
    page.number(1, "Time", Some(unit.convert(report.wall_s)), unit.symbol());
}

fn percentages(page: &mut Page, of: &str, percent: Percent, units: u32) {
    page.heading(1, of);
    page.number(2, "Max sum percent", percent.max_sum, "");
    page.number(2, "Max hardware percent", percent.max_hardware(units), "");
    page.number(2, "Mean sum percent", percent.mean_sum, "");
    page.number(2, "Mean hardware percent", percent.mean_hardware(units), "");
}

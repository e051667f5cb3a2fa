//! The sections that gpu_tracker has, in its words and nesting.

use super::page::Page;
use super::units::Units;
use crate::model::report::Report;
use crate::model::report::{Percent, Rss};
use crate::model::style::{RamUnit, TimeUnit};

pub(super) fn sections(page: &mut Page, report: &Report, units: Units) {
    max_ram(page, report, units.ram);
    max_gpu_ram(page, report, units.gpu_ram);
    cpu_utilization(page, report);
    gpu_utilization(page, report);
    compute_time(page, report, units.time);
}

fn max_ram(page: &mut Page, report: &Report, unit: RamUnit) {
    let rss = |page: &mut Page, label: &str, rss: &Rss| {
        page.heading(1, label);
        page.bytes(2, "Total RSS", rss.total_bytes, unit);
        page.bytes(2, "Private RSS", rss.private_bytes, unit);
        page.bytes(2, "Shared RSS", rss.shared_bytes, unit);
    };
    let ram = &report.max_ram;
    page.heading(0, "Max RAM");
    page.unit(unit.name());
    page.bytes(1, "System capacity", ram.system_capacity_bytes, unit);
    page.bytes(1, "System", ram.system_bytes, unit);
    rss(page, "Main", &ram.main);
    rss(page, "Descendants", &ram.descendants);
    rss(page, "Combined", &ram.combined);
}

fn max_gpu_ram(page: &mut Page, report: &Report, unit: RamUnit) {
    let ram = &report.max_gpu_ram;
    page.heading(0, "Max GPU RAM");
    page.unit(unit.name());
    page.bytes(1, "System capacity", ram.system_capacity_bytes, unit);
    page.bytes(1, "System", ram.system_bytes, unit);
    page.bytes(1, "Main", ram.main_bytes, unit);
    page.bytes(1, "Descendants", ram.descendants_bytes, unit);
    page.bytes(1, "Combined", ram.combined_bytes, unit);
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
    page.seconds(1, "Time", Some(report.wall_s), unit);
}

fn percentages(page: &mut Page, of: &str, percent: Percent, units: u32) {
    page.heading(1, of);
    page.number(2, "Max sum percent", percent.max_sum, "");
    page.number(2, "Max hardware percent", percent.max_hardware(units), "");
    page.number(2, "Mean sum percent", percent.mean_sum, "");
    page.number(2, "Mean hardware percent", percent.mean_hardware(units), "");
}

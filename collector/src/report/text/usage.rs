//! What the tree used, beyond gpu_tracker's sections: CPU time, mean RAM, the RAM peak, I/O, faults and switches.

use super::super::quote;
use super::format::{UNKNOWN, number};
use super::page::Page;
use super::units::unit_that_fits;
use crate::model::report::{CpuTime, Io, MaxProportionalRam, MeanRam, Peak, Report};
use crate::model::style::{RamUnit, Style, TimeUnit};

pub(super) fn cpu_time(page: &mut Page, time: &CpuTime, unit: TimeUnit) {
    let convert = |seconds: Option<f64>| seconds.map(|s| unit.convert(s));
    page.heading(0, "CPU time");
    page.field(1, "Unit", unit.name());
    page.number(1, "User", convert(time.user_s));
    page.number(1, "System", convert(time.system_s));
    page.number(1, "Total", convert(time.total_s));
    let kernel = number(convert(time.kernel_s));
    match &time.kernel_s_reason {
        Some(reason) => {
            page.field(1, "By the kernel's sum", format_args!("{kernel} ({})", quote::escape(reason)))
        }
        None => page.field(1, "By the kernel's sum", kernel),
    }
    page.number(1, "Unattributed", convert(time.unattributed_s));
}

pub(super) fn mean_ram(page: &mut Page, mean: &MeanRam, unit: RamUnit) {
    let convert = |bytes: Option<f64>| bytes.map(|b| unit.convert(b));
    page.heading(0, "Mean RAM");
    page.field(1, "Unit", unit.name());
    page.number(1, "Main", convert(mean.main_bytes));
    page.number(1, "Descendants", convert(mean.descendants_bytes));
    page.number(1, "Combined", convert(mean.combined_bytes));
}

pub(super) fn max_ram_proportional(page: &mut Page, max: &MaxProportionalRam, unit: RamUnit) {
    let convert = |bytes: Option<u64>| bytes.map(|b| unit.convert(b as f64));
    page.heading(0, "Maximum proportional RAM (PSS)");
    page.field(1, "Unit", unit.name());
    page.number(1, "Main", convert(max.main_bytes));
    page.number(1, "Descendants", convert(max.descendants_bytes));
    page.number(1, "Combined", convert(max.combined_bytes));
}

pub(super) fn peak(page: &mut Page, peak: Option<&Peak>, ram: RamUnit, time: TimeUnit) {
    let Some(peak) = peak else { return page.field(0, "RAM peak", UNKNOWN) };
    page.heading(0, "RAM peak");
    page.field(1, "Unit", ram.name());
    page.number(1, "Combined RSS", Some(ram.convert(peak.combined_rss_bytes as f64)));
    let at = format!("{:.3} {} after the start", time.convert(peak.at_s), time.name());
    page.field(1, "Time", at);
    if peak.processes.is_empty() {
        return;
    }
    page.heading(1, "Held by");
    let (rss, private) = (format!("RSS [{}]", ram.symbol()), format!("private [{}]", ram.symbol()));
    page.table(2, ["PID", &rss, &private, "Command"], &peak.processes, |holder| {
        let bytes = |bytes: u64| number(Some(ram.convert(bytes as f64)));
        let (rss, private) = (bytes(holder.rss_bytes), bytes(holder.private_bytes));
        [holder.pid.to_string(), rss, private, quote::escape(&holder.command)]
    });
}

pub(super) fn io(page: &mut Page, io: &Io, style: &Style) {
    let unit = style.ram_unit.unwrap_or_else(|| unit_that_fits(io.read_bytes.max(io.write_bytes)));
    let convert = |bytes: Option<u64>| bytes.map(|b| unit.convert(b as f64));
    page.heading(0, "I/O");
    page.field(1, "Unit", unit.name());
    page.number(1, "Read", convert(io.read_bytes));
    page.number(1, "Written", convert(io.write_bytes));
}

pub(super) fn faults_and_switches(page: &mut Page, report: &Report) {
    page.heading(0, "Page faults");
    page.count(1, "Minor", report.faults.minor);
    page.count(1, "Major", report.faults.major);
    page.heading(0, "Context switches");
    page.count(1, "Voluntary", report.context_switches.voluntary);
    page.count(1, "Involuntary", report.context_switches.involuntary);
}

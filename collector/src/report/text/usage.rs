//! What the tree used, beyond gpu_tracker's sections: CPU time, mean RAM, the RAM peak, I/O, faults and switches.

use super::super::quote;
use super::format::{UNKNOWN, number};
use super::page::Page;
use super::units::Units;
use crate::model::report::{CpuTime, Io, MaxProportionalRam, MeanRam, Peak};
use crate::report::Report;

pub(super) fn cpu_time(page: &mut Page, time: &CpuTime, units: Units) {
    let unit = units.time;
    let convert = |seconds: Option<f64>| seconds.map(|s| unit.convert(s));
    page.heading(0, "CPU time");
    page.number(1, "User", convert(time.user_s), unit.symbol());
    page.number(1, "System", convert(time.system_s), unit.symbol());
    page.number(1, "Total", convert(time.total_s), unit.symbol());
    page.number(1, "Of the usable cores", time.usable_percent, "%");
    match &time.kernel_s_reason {
        Some(reason) => {
            page.field(1, "By the kernel's sum", format_args!("{UNKNOWN} ({})", quote::escape(reason)))
        }
        None => page.number(1, "By the kernel's sum", convert(time.kernel_s), unit.symbol()),
    }
    page.number(1, "Unattributed", convert(time.unattributed_s), unit.symbol());
}

pub(super) fn mean_ram(page: &mut Page, mean: &MeanRam, units: Units) {
    page.heading(0, "Mean RAM");
    for (label, bytes) in [
        ("Main", mean.main_bytes),
        ("Descendants", mean.descendants_bytes),
        ("Combined", mean.combined_bytes),
    ] {
        page.number(1, label, bytes.map(|b| units.ram.convert(b)), units.ram.symbol());
    }
}

pub(super) fn max_ram_proportional(page: &mut Page, max: &MaxProportionalRam, units: Units) {
    if max.combined_bytes.is_none() {
        return;
    }
    page.heading(0, "Maximum proportional RAM (PSS)");
    for (label, bytes) in
        [("Main", max.main_bytes), ("Descendants", max.descendants_bytes), ("Combined", max.combined_bytes)]
    {
        page.number(1, label, bytes.map(|b| units.ram.convert(b as f64)), units.ram.symbol());
    }
}

pub(super) fn peak(page: &mut Page, peak: Option<&Peak>, units: Units) {
    let Some(peak) = peak else { return };
    let (ram, time) = (units.ram, units.time);
    page.heading(0, "RAM peak");
    page.number(1, "Combined RSS", Some(ram.convert(peak.combined_rss_bytes as f64)), ram.symbol());
    let at = format!("{:.3} {} after the start", time.convert(peak.at_s), time.symbol());
    page.field(1, "Time", at);
    if peak.processes.is_empty() {
        return;
    }
    page.heading(1, "Held by");
    let (rss, private) = (format!("RSS [{}]", ram.symbol()), format!("private [{}]", ram.symbol()));
    page.table(2, ["PID", &rss, &private, "Command"], &peak.processes, |holder| {
        let bytes = |bytes: Option<u64>| number(bytes.map(|bytes| ram.convert(bytes as f64)));
        let (rss, private) = (bytes(Some(holder.rss_bytes)), bytes(holder.private_bytes));
        [holder.pid.to_string(), rss, private, quote::escape(&holder.command)]
    });
}

pub(super) fn io(page: &mut Page, io: &Io, units: Units) {
    page.heading(0, "I/O");
    for (label, bytes) in [("Read", io.read_bytes), ("Written", io.write_bytes)] {
        if let Some(bytes) = bytes.filter(|bytes| *bytes > 0) {
            page.field(1, label, units.io(bytes));
        }
    }
}

pub(super) fn faults_and_switches(page: &mut Page, report: &Report) {
    page.heading(0, "Page faults");
    page.count(1, "Minor", report.faults.minor);
    page.count(1, "Major", report.faults.major);
    page.heading(0, "Context switches");
    page.count(1, "Voluntary", report.context_switches.voluntary);
    page.count(1, "Involuntary", report.context_switches.involuntary);
}

//! What the tree used, beyond gpu_tracker's sections: CPU time, mean RAM, the RAM peak, I/O, faults and switches.

use super::format::{UNKNOWN, number_of_bytes};
use super::page::Page;
use super::units::Units;
use crate::model::groups::Groups;
use crate::model::report::Report;
use crate::model::report::{CpuTime, Io, MaxProportionalRam, Peak};
use crate::quote;

pub(super) fn cpu_time(page: &mut Page, time: &CpuTime, units: Units) {
    let unit = units.time;
    page.heading(0, "CPU time");
    page.seconds(1, "User", time.user_s, unit);
    page.seconds(1, "System", time.system_s, unit);
    page.seconds(1, "Total", time.total_s, unit);
    page.number(1, "Of the usable cores", time.usable_percent, "%");
    match &time.kernel_s_reason {
        Some(reason) => {
            page.field(1, "By the kernel's sum", format_args!("{UNKNOWN} ({})", quote::escape(reason)))
        }
        None => page.seconds(1, "By the kernel's sum", time.kernel_s, unit),
    }
    page.seconds(1, "Unattributed", time.unattributed_s, unit);
}

pub(super) fn mean_ram(page: &mut Page, mean: Groups<Option<f64>>, units: Units) {
    page.heading(0, "Mean RAM");
    for (label, bytes) in
        [("Main", mean.main), ("Descendants", mean.descendants), ("Combined", mean.combined)]
    {
        page.number(1, label, bytes.map(|b| units.ram.convert(b)), units.ram.symbol());
    }
}

pub(super) fn max_ram_proportional(page: &mut Page, max: &MaxProportionalRam, units: Units) {
    let Groups { main, descendants, combined } = max.bytes;
    if combined.is_none() {
        return;
    }
    page.heading(0, "Maximum proportional RAM (PSS)");
    page.bytes(1, "Main", main, units.ram);
    page.bytes(1, "Descendants", descendants, units.ram);
    page.bytes(1, "Combined", combined, units.ram);
}

pub(super) fn peak(page: &mut Page, peak: Option<&Peak>, units: Units) {
    let Some(peak) = peak else { return };
    let (ram, time) = (units.ram, units.time);
    page.heading(0, "RAM peak");
    page.bytes(1, "Combined RSS", Some(peak.combined_rss_bytes), ram);
    let at = format!("{:.3} {} after the start", time.convert(peak.at_s), time.symbol());
    page.field(1, "Time", at);
    if peak.processes.is_empty() {
        return;
    }
    page.heading(1, "Held by");
    let (rss, private) = (format!("RSS [{}]", ram.symbol()), format!("private [{}]", ram.symbol()));
    page.table(2, ["PID", &rss, &private, "Command"], &peak.processes, |holder| {
        let [rss, private] = [Some(holder.rss_bytes), holder.private_bytes].map(|b| number_of_bytes(b, ram));
        [holder.pid.to_string(), rss, private, quote::escape(&holder.command)]
    });
}

pub(super) fn io(page: &mut Page, io: &Io, units: Units) {
    page.heading(0, "I/O");
    traffic(page, [io.read_bytes, io.write_bytes], units);
}

/// Bytes read and written, as far as there are any.
pub(super) fn traffic(page: &mut Page, bytes: [Option<u64>; 2], units: Units) {
    for (label, bytes) in ["Read", "Written"].into_iter().zip(bytes) {
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

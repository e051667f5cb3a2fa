//! What the tree used: CPU time, RAM, I/O, faults and switches.

use crate::model::groups::Groups;
use crate::model::report::{MaxProportionalRam, Peak};
use crate::report::Report;
use crate::report::document::{Column, Section, Table};
use crate::report::units::Units;

pub(super) fn cpu_time(report: &Report, units: Units) -> Section {
    let (time, unit) = (&report.cpu_time, units.time);
    let section = Section::new("CPU time")
        .seconds("User", time.user_s, unit)
        .seconds("System", time.system_s, unit)
        .seconds("Total", time.total_s, unit)
        .number("Of the usable cores", time.usable_percent, "%");
    let kernel = "By the kernel's sum";
    let section = match &time.kernel_s_reason {
        None => section.seconds(kernel, time.kernel_s, unit),
        reason => section.unknown(kernel, reason.as_ref()),
    };
    section.seconds("Unattributed", time.unattributed_s, unit)
}

pub(super) fn mean_ram(mean: Groups<Option<f64>>, units: Units) -> Section {
    let (ram, symbol) = (|bytes: Option<f64>| bytes.map(|b| units.ram.convert(b)), units.ram.symbol());
    Section::new("Mean RAM")
        .number("Main", ram(mean.main), symbol)
        .number("Descendants", ram(mean.descendants), symbol)
        .number("Combined", ram(mean.combined), symbol)
}

pub(super) fn max_ram_proportional(max: &MaxProportionalRam, units: Units) -> Section {
    let section = Section::new("Maximum proportional RAM (PSS)");
    if max.bytes.combined.is_none() {
        return section;
    }
    section
        .bytes("Main", max.bytes.main, units.ram)
        .bytes("Descendants", max.bytes.descendants, units.ram)
        .bytes("Combined", max.bytes.combined, units.ram)
}

/// The moment of the largest RAM, and what held it.
pub(super) fn peak(peak: Option<&Peak>, units: Units) -> Section {
    let section = Section::new("RAM peak");
    let Some(peak) = peak else { return section };
    let ram = units.ram.symbol();
    let head = [
        Column::count("PID"),
        Column::number("RSS", ram),
        Column::number("private", ram),
        Column::text("Command"),
    ];
    let holders = peak.processes.iter().map(|holder| {
        let [rss, private] = [Some(holder.rss_bytes), holder.private_bytes].map(|b| units.ram_cell(b));
        [holder.pid.to_string(), rss, private, holder.command.clone()]
    });
    section
        .bytes("Combined RSS", Some(peak.combined_rss_bytes), units.ram)
        .text("Time", units.after_the_start(peak.at_s))
        .section(Section::new("Held by").table(Table::new(head, holders)))
}

pub(super) fn io(report: &Report, units: Units) -> Section {
    traffic(Section::new("I/O"), [report.io.read_bytes, report.io.write_bytes], units)
}

/// Adds the bytes read and written, as far as there are any.
pub(super) fn traffic(section: Section, [read, written]: [Option<u64>; 2], units: Units) -> Section {
    section.text("Read", units.some_io(read)).text("Written", units.some_io(written))
}

pub(super) fn faults(report: &Report) -> Section {
    Section::new("Page faults").count("Minor", report.faults.minor).count("Major", report.faults.major)
}

pub(super) fn switches(report: &Report) -> Section {
    let switches = &report.context_switches;
    Section::new("Context switches")
        .count("Voluntary", switches.voluntary)
        .count("Involuntary", switches.involuntary)
}

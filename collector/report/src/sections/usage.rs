//! What the tree used: CPU time, RAM, I/O, faults and switches.

use std::cmp::Reverse;

use super::contention;
use crate::document::{Block, Cell, Column, Section, Table, Tone};
use crate::figures::{short, thousands};
use crate::model::groups::Groups;
use crate::model::report::{MemorySource, Peak, Report};
use crate::units::Units;

/// A line of fewer spans of time shows nothing.
const LEAST_SPANS: usize = 4;
/// Most commands that the summary names as holders of the peak.
const HOLDERS: usize = 3;

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

pub(super) fn mean_ram(report: &Report, units: Units) -> Section {
    groups("Mean RAM", report.mean_ram_bytes.values(), units)
}

/// Nothing where that of the whole tree is unknown.
pub(super) fn max_ram_proportional(report: &Report, units: Units) -> Section {
    const TITLE: &str = "Maximum proportional RAM (PSS)";
    match report.max_ram_proportional.bytes {
        Groups { combined: None, .. } => Section::new(TITLE),
        bytes => groups(TITLE, bytes.values().map(|bytes| Some(bytes? as f64)), units),
    }
}

fn groups(title: &str, bytes: [Option<f64>; 3], units: Units) -> Section {
    let labelled = ["Main", "Descendants", "Combined"].into_iter().zip(bytes);
    labelled.fold(Section::new(title), |section, (label, bytes)| {
        section.number(label, bytes.map(|bytes| units.ram.convert(bytes)), units.ram.symbol())
    })
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
        .bytes("Combined RSS", Some(peak.footprint_bytes), units.ram)
        .text("Time", units.after_the_start(peak.at_s))
        .section(Section::new("Held by").table(Table::new(head, holders)))
}

pub(super) fn io(report: &Report, units: Units) -> Section {
    traffic(Section::new("I/O"), [report.io.read_bytes, report.io.write_bytes], units)
}

/// Adds the bytes read and written, as far as there are any.
pub(super) fn traffic(section: Section, [read, written]: [Option<u64>; 2], units: Units) -> Section {
    section.text("Read", units.io(read)).text("Written", units.io(written))
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

/// CPU and RAM for the summary, in columns.
pub(super) fn rows(report: &Report, units: Units) -> Vec<Block> {
    let mut rows = vec![Block::Heads(&["used", "of"]), cpu_row(report, units)];
    rows.extend(contention::row(report));
    rows.push(ram_row(report, units));
    rows.extend(report.peak.as_ref().and_then(|peak| holders_row(peak, units)));
    rows.extend(over_time_row(report, units));
    rows
}

/// A figure, its whole, and the part that it is of that.
fn gauge(label: &str, used: String, whole: Option<String>, part: Option<f64>, note: String) -> Block {
    let mut cells = vec![Cell::Figure(Tone::Plain, used)];
    if let (Some(whole), Some(part)) = (whole, part.filter(|part| part.is_finite())) {
        cells.extend([Cell::Figure(Tone::Plain, whole), Cell::Part(part)]);
    }
    cells.push(Cell::Note(note));
    Block::Row(label.to_owned(), cells)
}

fn cpu_row(report: &Report, units: Units) -> Block {
    let Some(total_s) = report.cpu_time.total_s else { return Block::text("CPU", "not known") };
    let time = units.seconds(total_s);
    if report.wall_s <= 0.0 {
        return Block::text("CPU", time);
    }
    let cores = report.usable.cores.count;
    let number = if cores.fract() == 0.0 { thousands(cores) } else { short(cores) };
    let plural = if (cores - 1.0).abs() < 1e-9 { "" } else { "s" };
    let part = report.cpu_time.usable_percent.map(|percent| percent / 100.0);
    gauge("CPU", busy_cores(total_s / report.wall_s), Some(format!("{number} core{plural}")), part, time)
}

fn busy_cores(cores: f64) -> String {
    match cores {
        0.0 => "0 cores".to_owned(),
        ..0.005 => "<0.01 cores".to_owned(),
        ..0.0995 => format!("{cores:.2} cores"),
        _ => format!("{} cores", short(cores)),
    }
}

fn ram_row(report: &Report, units: Units) -> Block {
    const LABEL: &str = "RAM peak";
    let Some(peak) = report.max_ram.combined.footprint_bytes else { return Block::text(LABEL, "not known") };
    let memory = &report.usable.memory;
    let note = match memory.source {
        Some(MemorySource::Cgroup) => "limit",
        Some(MemorySource::Slurm) => "Slurm",
        Some(MemorySource::Machine) | None => "",
    };
    let part = memory.bytes.filter(|whole| *whole > 0).map(|whole| peak as f64 / whole as f64);
    let whole = memory.bytes.map(|whole| units.bytes(whole));
    gauge(LABEL, units.bytes(peak), whole, part, note.to_owned())
}

/// What held the RAM at its peak, where that was more than one process.
fn holders_row(peak: &Peak, units: Units) -> Option<Block> {
    if peak.processes.len() < 2 {
        return None;
    }
    let mut groups: Vec<(&str, usize, u64)> = Vec::new();
    for holder in &peak.processes {
        match groups.iter_mut().find(|(name, ..)| *name == holder.command) {
            Some((_, count, bytes)) => {
                *count += 1;
                *bytes = bytes.saturating_add(holder.added_bytes);
            }
            None => groups.push((&holder.command, 1, holder.added_bytes)),
        }
    }
    groups.sort_by_key(|(.., bytes)| Reverse(*bytes));
    let named = groups.iter().take(HOLDERS).map(|(name, count, bytes)| {
        let count = if *count == 1 { String::new() } else { format!("{count} ") };
        format!("{count}{name} {}", units.bytes(*bytes))
    });
    let named = named.collect::<Vec<_>>().join(", ");
    Some(Block::text("", format!("at {}: {named}", units.seconds(peak.at_s))))
}

fn over_time_row(report: &Report, units: Units) -> Option<Block> {
    let spans = &report.ram_over_time;
    let mean = report.mean_ram_bytes.combined;
    let mean = mean.map(|mean| format!(" mean {}", units.bytes(mean as u64))).unwrap_or_default();
    let cells = || vec![Cell::RamOverTime(spans.clone(), report.wall_s), Cell::Text(Tone::Plain, mean)];
    (spans.len() >= LEAST_SPANS).then(|| Block::Row("RAM over time".to_owned(), cells()))
}

pub(super) fn io_row(report: &Report, units: Units) -> Option<Block> {
    let read = units.io(report.io.read_bytes).map(|read| format!("{read} read"));
    let written = units.io(report.io.write_bytes).map(|written| format!("{written} written"));
    let parts: Vec<_> = [read, written].into_iter().flatten().collect();
    (!parts.is_empty()).then(|| Block::text("I/O", parts.join(", ")))
}

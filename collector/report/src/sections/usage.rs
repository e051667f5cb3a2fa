//! What the tree used: CPU time, RAM, I/O, faults and switches.

use super::{contention, nodes, time_spent};
use crate::document::{Block, Cell, Column, RamSpan, Section, Table, Tone};
use crate::figures::{short, thousands};
use crate::model::groups::Groups;
use crate::model::report::{MemorySource, Peak, Report, Series, TimeBasis};
use crate::quote;
use crate::units::Units;

/// A chart of RAM over fewer spans of time shows nothing.
const LEAST_SPANS: usize = 4;
/// Maximum number of commands that the summary names as holders of the peak.
const MAX_HOLDERS: usize = 3;
/// Maximum number of columns of the name of one of them.
const HOLDER_COLUMNS: usize = 24;

/// Makes the section of CPU time.
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

/// Makes the section of mean RAM.
pub(super) fn mean_ram(report: &Report, units: Units) -> Section {
    groups("Mean RAM", report.mean_ram_bytes.values(), units)
}

/// Makes the section of the largest proportional RAM; empty if that of the whole tree is unknown.
pub(super) fn max_ram_proportional(report: &Report, units: Units) -> Section {
    const TITLE: &str = "Maximum proportional RAM (PSS)";
    match report.max_ram_proportional.bytes {
        Groups { combined: None, .. } => Section::new(TITLE),
        bytes => groups(TITLE, bytes.values().map(|bytes| Some(bytes? as f64)), units),
    }
}

/// Makes a section of a figure in bytes for main, descendants and all.
fn groups(title: &str, bytes: [Option<f64>; 3], units: Units) -> Section {
    let labelled = ["Main", "Descendants", "Combined"].into_iter().zip(bytes);
    labelled.fold(Section::new(title), |section, (label, bytes)| {
        section.number(label, bytes.map(|bytes| units.ram.convert(bytes)), units.ram.symbol())
    })
}

/// Makes the section of the moment of the largest RAM, and of the processes that held it; empty if it is unknown.
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
        .section(Section::new("Largest processes").table(Table::new(head, holders)))
        .section(Section::new("All by command").table(holders_by_command(peak, units)))
}

/// Makes the table of all processes at the peak, by command. What each command added sums up to no more than the peak.
fn holders_by_command(peak: &Peak, units: Units) -> Table {
    let head = [Column::count("Count"), Column::number("Added", units.ram.symbol()), Column::text("Command")];
    let row = |count: u64, bytes, command| [thousands(count as f64), units.ram_cell(Some(bytes)), command];
    let named = peak.by_command.iter();
    let named = named.map(|command| row(command.count, command.added_bytes, command.command.clone()));
    let others = peak.other_commands.map(|others| {
        row(others.count, others.added_bytes, format!("({} other names)", thousands(others.commands as f64)))
    });
    Table::new(head, named.chain(others))
}

/// Makes the section of I/O.
pub(super) fn io(report: &Report, units: Units) -> Section {
    let io = &report.io;
    let section = traffic(Section::new("I/O"), [io.read_bytes, io.write_bytes], units)
        .text("Never stored", units.io(io.cancelled_write_bytes))
        .text("Unknown", io.reason.clone());
    match &io.calls_reason {
        None => section
            .text("By read calls", by_calls(io.read_call_bytes, io.read_calls, units))
            .text("By write calls", by_calls(io.write_call_bytes, io.write_calls, units)),
        reason => section.unknown("By calls", reason.as_ref()),
    }
}

/// Formats the bytes that calls passed, and how many calls there were. `None`: there were no bytes, or it is unknown.
fn by_calls(bytes: Option<u64>, calls: Option<u64>, units: Units) -> Option<String> {
    let (bytes, calls) = (units.io(bytes)?, calls.filter(|calls| *calls > 0)?);
    let plural = if calls == 1 { "" } else { "s" };
    Some(format!("{bytes} in {} call{plural}", thousands(calls as f64)))
}

/// Adds the rows of the bytes read and written. Without such bytes there is no row.
pub(super) fn traffic(section: Section, [read, written]: [Option<u64>; 2], units: Units) -> Section {
    section.text("Read", units.io(read)).text("Written", units.io(written))
}

/// Makes the section of page faults.
pub(super) fn faults(report: &Report) -> Section {
    Section::new("Page faults").count("Minor", report.faults.minor).count("Major", report.faults.major)
}

/// Makes the section of context switches.
pub(super) fn switches(report: &Report) -> Section {
    let switches = &report.context_switches;
    Section::new("Context switches")
        .count("Voluntary", switches.voluntary)
        .count("Involuntary", switches.involuntary)
}

/// Makes the summary's rows of CPU and RAM, and the heads of their columns.
pub(super) fn rows(report: &Report, units: Units) -> Vec<Block> {
    let mut rows = vec![Block::Heads(&["used", "of"]), cpu_row(report, units)];
    rows.extend(time_spent::row(report));
    rows.extend(contention::row(report));
    rows.push(ram_row(report, units));
    rows.extend(above_limit(report));
    rows.extend(report.peak.as_ref().and_then(|peak| holders_row(peak, units)));
    rows.extend(over_time_row(report, units));
    rows
}

/// Makes a row: the figure `used`, the `whole` that there is, the `part` of it that was used (0 to 1), and a note. If one of `whole`
/// and `part` is unknown, both are left out.
pub(super) fn gauge(
    label: &str,
    used: String,
    whole: Option<String>,
    part: Option<f64>,
    note: String,
) -> Block {
    let mut cells = vec![Cell::Figure(Tone::Plain, used)];
    if let (Some(whole), Some(part)) = (whole, part.filter(|part| part.is_finite())) {
        cells.extend([Cell::Figure(Tone::Plain, whole), Cell::Part(part)]);
    }
    cells.push(Cell::Note(note));
    Block::Row(label.to_owned(), cells)
}

/// Makes the summary's row of busy cores, those that the run may use, and CPU time.
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
    let busy = busy_cores(total_s / report.wall_s);
    gauge("CPU", busy, Some(format!("{number} core{plural}")), part, format!("{time} CPU"))
}

/// Makes a row of the time against its limit, for a page. `None`: there was no limit, or it is not known.
pub(super) fn time_row(report: &Report, units: Units) -> Option<Block> {
    let hint = report.hints.time?;
    let given_s = hint.given_s.filter(|given_s| *given_s > 0.0)?;
    let note = match hint.basis {
        TimeBasis::SlurmJob => "since the Slurm job's start",
        TimeBasis::Wall | TimeBasis::TimeLimit => "",
    };
    let [used, whole] = [hint.basis_s, given_s].map(|s| units.seconds(s));
    Some(gauge("Time", used, Some(whole), Some(hint.basis_s / given_s), note.to_owned()))
}

/// Formats a number of busy cores.
pub(crate) fn busy_cores(cores: f64) -> String {
    match cores {
        0.0 => "0 cores".to_owned(),
        ..0.005 => "<0.01 cores".to_owned(),
        ..0.0995 => format!("{cores:.2} cores"),
        _ => format!("{} cores", short(cores)),
    }
}

/// Makes the summary's row of the largest RAM.
fn ram_row(report: &Report, units: Units) -> Block {
    const LABEL: &str = "RAM peak";
    let Some(peak) = report.max_ram.combined.footprint_bytes else { return Block::text(LABEL, "not known") };
    let memory = &report.usable.memory;
    let note = match memory.source {
        // Without tracking, only the peaks of the processes that the launcher waited for are known, not their sum.
        _ if report.coverage.untracked_reason.is_some() => "of one process",
        Some(MemorySource::Cgroup) => "limit",
        Some(MemorySource::Slurm) => "Slurm",
        Some(MemorySource::Machine) | None => "",
    };
    let part = memory.bytes.filter(|whole| *whole > 0).map(|whole| peak as f64 / whole as f64);
    let whole = memory.bytes.map(|whole| units.bytes(whole));
    let note = nodes::bounds(report, units).unwrap_or_else(|| note.to_owned());
    gauge(LABEL, units.bytes(peak), whole, part, note)
}

/// Says how RAM can have been above the limit of the cgroup. `None`: it was not. The kernel charges a page to the cgroup that touched it
/// first (cgroup-v2.rst, "Memory Ownership"), also if processes of others map it.
fn above_limit(report: &Report) -> Option<Block> {
    /// How far off RAM can be: the kernel counts pages in batches for each CPU.
    const PRECISION: f64 = 0.02;
    const WORDS: &str = "above the limit: others were charged for shared pages";
    let memory = &report.usable.memory;
    let limit = memory.bytes.filter(|_| memory.source == Some(MemorySource::Cgroup))?;
    let is_above = |peak: u64| peak as f64 > limit as f64 * (1.0 + PRECISION);
    let is_above = report.max_ram.combined.footprint_bytes.is_some_and(is_above);
    is_above.then(|| Block::text("", WORDS))
}

/// Makes the row of the commands that held the RAM at its peak. `None`: it was a single process.
fn holders_row(peak: &Peak, units: Units) -> Option<Block> {
    let (named, others) = peak.by_command.split_at(peak.by_command.len().min(MAX_HOLDERS));
    // Commands after the first few, and those that the report does not name either, are summed.
    let unnamed = peak.other_commands.map(|others| (others.count, others.added_bytes));
    let others = others.iter().map(|command| (command.count, command.added_bytes)).chain(unnamed);
    let (other_count, other_bytes) = others.fold((0_u64, 0_u64), |(all_count, all_bytes), (count, bytes)| {
        (all_count.saturating_add(count), all_bytes.saturating_add(bytes))
    });
    let all_count = named.iter().fold(other_count, |sum, command| sum.saturating_add(command.count));
    if all_count < 2 {
        return None;
    }
    let held = |name: String, count: u64, bytes: u64| {
        let count = if count <= 1 { String::new() } else { format!("{} ", thousands(count as f64)) };
        format!("{count}{name} {}", units.bytes(bytes))
    };
    let names: Vec<String> = named.iter().map(|command| quote::escape(&command.command)).collect();
    let names = quote::shorten(&names, HOLDER_COLUMNS);
    let parts = named.iter().zip(names);
    let mut parts: Vec<String> =
        parts.map(|(command, name)| held(name, command.count, command.added_bytes)).collect();
    if other_count > 0 {
        let name = if other_count == 1 { "1 other" } else { "others" };
        parts.push(held(name.to_owned(), other_count, other_bytes));
    }
    Some(Block::text("", format!("at {}: {}", units.seconds(peak.at_s), parts.join(", "))))
}

/// Makes the summary's row of RAM over time; `None` for short runs.
fn over_time_row(report: &Report, units: Units) -> Option<Block> {
    let Series { start_s, end_s, ram_bytes, .. } = &report.series;
    let points = start_s.iter().zip(end_s).zip(&ram_bytes.combined.max);
    let spans: Vec<RamSpan> = points
        .filter_map(|((start_s, end_s), max)| {
            Some(RamSpan { start_s: *start_s, end_s: *end_s, max_bytes: (*max)? })
        })
        .collect();
    if spans.len() < LEAST_SPANS {
        return None;
    }
    let mean = report.mean_ram_bytes.combined;
    let mean = mean.map(|mean| format!(" mean {}", units.bytes(mean as u64))).unwrap_or_default();
    let cells = vec![Cell::RamOverTime(spans, report.wall_s), Cell::Text(Tone::Plain, mean)];
    Some(Block::Row("RAM over time".to_owned(), cells))
}

/// Makes the summary's row of I/O of storage. If the run attached to a process and its I/O is unknown, the row says why. `None`: there
/// was no I/O, or it is unknown for another reason.
pub(super) fn io_row(report: &Report, units: Units) -> Option<Block> {
    let read = units.io(report.io.read_bytes).map(|read| format!("{read} read"));
    let cancelled = units.io(report.io.cancelled_write_bytes);
    let cancelled = cancelled.map_or(String::new(), |bytes| format!(" ({bytes} never stored)"));
    let written = units.io(report.io.write_bytes).map(|written| format!("{written} written{cancelled}"));
    let parts: Vec<_> = [read, written].into_iter().flatten().collect();
    let reason = report.io.reason.as_ref().filter(|_| report.attached.is_some());
    let unknown = reason.map(|reason| Block::text("I/O", format!("unknown: {reason}")));
    (!parts.is_empty()).then(|| Block::text("I/O", parts.join(", "))).or(unknown)
}

/// Makes the summary's row of what calls passed. `None`: it was not much more than storage had.
pub(super) fn calls_row(report: &Report, units: Units) -> Option<Block> {
    let io = &report.io;
    let calls =
        [(io.read_call_bytes, io.read_bytes, "read"), (io.write_call_bytes, io.write_bytes, "written")];
    let parts = calls.into_iter().filter_map(|(by_calls, stored, name)| {
        let bytes = units.io(by_calls.filter(|by_calls| is_much_more(*by_calls, stored)))?;
        Some(format!("{bytes} {name}"))
    });
    let parts: Vec<_> = parts.collect();
    // Not all of it is of files.
    (!parts.is_empty())
        .then(|| Block::text("I/O calls", format!("{} (pipes and cached files, too)", parts.join(", "))))
}

/// Whether calls passed so much more than storage had that the summary tells it.
fn is_much_more(by_calls: u64, stored: Option<u64>) -> bool {
    /// Memory takes 100 MB in some 20 ms.
    const LEAST_BYTES: u64 = 100_000_000;
    const FACTOR: u64 = 2;
    by_calls >= LEAST_BYTES && by_calls / FACTOR >= stored.unwrap_or(0)
}

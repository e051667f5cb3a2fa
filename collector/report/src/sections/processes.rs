//! The processes: counts, by command, and the heaviest.

use std::cmp::Reverse;

use crate::command_line;
use crate::command_sums::CommandSums;
use crate::document::{Block, Column, Section, Table};
use crate::figures::{UNKNOWN, column, count, exit, number, thousands};
use crate::model::quality::Quality;
use crate::model::report::{
    CommandGpu, CommandUsage, Coverage, HeavyProcess, Peaks, ProcessGpu, Processes, Report,
};
use crate::model::sorting::Sorting;
use crate::units::Units;

/// Longest command line in a table, in columns. The text of all sections (`Arrangement::Outline`) has room for it after the figures in
/// lines of 80 columns.
const COMMAND_COLUMNS: usize = 36;
/// Longest command line in the tip of a row of an HTML page, in columns.
const WHOLE_COMMAND_COLUMNS: usize = 250;
/// Maximum number of rows of the processes with most RAM.
const MOST_BY_RAM: usize = 5;
/// Maximum number of rows of the commands that passed most bytes by calls.
const MOST_BY_CALLS: usize = 10;
/// Maximum number of commands in the summary.
const MAX_COMMANDS: usize = 5;

/// Makes the section of all processes. An untracked run has only what its launcher was told.
pub(super) fn processes(report: &Report, units: Units) -> Section {
    let processes = &report.processes;
    if report.coverage.untracked_reason.is_some() {
        return Section::new("Processes")
            .unknown("Total", Some(&"the run was not tracked".to_owned()))
            .count("Still running at the end", processes.still_running)
            .section(still_running(processes));
    }
    let mut by_cpu: Vec<&HeavyProcess> = processes.heaviest.iter().collect();
    let mut by_ram = by_cpu.clone();
    let cpu_s = |process: &HeavyProcess| process.usage.cpu_s.unwrap_or(0.0);
    by_cpu.order_by(|a, b| cpu_s(b).total_cmp(&cpu_s(a)));
    by_ram.order_by_key(|process| Reverse(process.usage.peak_rss_bytes));
    // The label "Most at one time" already says that. A text that begins with "at least" stays whole.
    let most_at_once = most_at_once(report).map(|most| most.trim_start_matches("at most ").to_owned());
    Section::new("Processes")
        .text("Total", processes.total.to_string())
        .text("Most at one time", most_at_once)
        .count("Still running at the end", processes.still_running)
        .section(still_running(processes))
        .section(by_command(&processes.by_command, units))
        .section(calls_by_command(processes, units))
        .section(commands_on_gpus(&processes.by_command, units))
        .section(heaviest("Most CPU time", &by_cpu, units))
        .section(if by_ram.len() > MOST_BY_RAM {
            heaviest("Most RAM", &by_ram[..MOST_BY_RAM], units)
        } else {
            // The table by CPU time shows all of them.
            Section::default()
        })
        .section(heaviest_on_gpus(&processes.heaviest, units))
}

/// The lower and the upper bound of how many processes lived at one time. They are the same in the report of one node.
fn concurrency_bounds(report: &Report) -> [Option<u64>; 2] {
    let most = report.processes.max_concurrent;
    [most, report.merged.as_ref().map_or(most, |merged| merged.at_most.processes)]
}

/// Whether it is known how many processes lived at one time, and not only within bounds.
fn is_concurrency_exact(report: &Report) -> bool {
    let [least, most] = concurrency_bounds(report);
    least >= most && most.is_some()
}

/// Says how many processes lived at one time, such as `at most 9`. A merged report, where only bounds are known, says `at least 9,
/// at most 14`. `None`: it is not known.
pub(crate) fn most_at_once(report: &Report) -> Option<String> {
    let [least, most] = concurrency_bounds(report);
    let least = least.filter(|_| !is_concurrency_exact(report));
    let bound = |words: &str, count: Option<u64>| Some(format!("{words} {}", thousands(count? as f64)));
    let bounds: Vec<String> =
        [bound("at least", least), bound("at most", most)].into_iter().flatten().collect();
    (!bounds.is_empty()).then(|| bounds.join(", "))
}

/// Makes the table of the processes that still ran at the end. Its total can be more than are listed.
fn still_running(processes: &Processes) -> Section {
    let listed = processes.still_running_processes.iter();
    let listed = listed.map(|process| [process.pid.to_string(), process.command.clone()]);
    let mut table = Table::new([Column::count("PID"), Column::text("Command")], listed);
    table.total = usize::try_from(processes.still_running.unwrap_or(0)).unwrap_or(usize::MAX);
    Section::default().table(table)
}

/// Makes the table of command names.
fn by_command(commands: &[CommandUsage], units: Units) -> Section {
    let [cpu, peak, _] = usage_columns(units);
    // Processes of one command can run at the same time: their wall times can add up to more than the run's.
    let walls = Column::number("Wall sum", units.time.symbol());
    let head = [Column::count("Count"), cpu, peak, walls, Column::text("Command")];
    let rows = commands.iter().map(|command| {
        let [cpu, peak, wall] = usage_cells(command.cpu_s, command.peak_rss_bytes, command.wall_s, units);
        [command.count.to_string(), cpu, peak, wall, command.command.clone()]
    });
    Section::new("By command").table(Table::new(head, rows))
}

/// Makes the table of what command names passed by read and write calls, most bytes first. Those whose bytes are not known are left out.
fn calls_by_command(processes: &Processes, units: Units) -> Section {
    let known = processes.by_command.iter().filter_map(|CommandUsage { command, calls, .. }| {
        let calls = calls.as_ref()?;
        let bytes = calls.read_call_bytes?.saturating_add(calls.write_call_bytes?);
        Some((bytes, command, calls))
    });
    let mut known: Vec<_> = known.collect();
    known.order_by_key(|(bytes, ..)| Reverse(*bytes));
    let head = [
        Column::count("Read"),
        Column::count("Written"),
        Column::count("Reads"),
        Column::count("Writes"),
        Column::text("Known"),
        Column::text("Command"),
    ];
    let rows = known.iter().take(MOST_BY_CALLS).map(|(_, command, calls)| {
        let bytes = |bytes| units.io(bytes).unwrap_or_else(|| "0".to_owned());
        let quality = match calls.quality {
            Quality::Exact => "exactly",
            Quality::Bound => "at most",
            Quality::Sampled | Quality::Unknown => "at least",
        };
        [
            bytes(calls.read_call_bytes),
            bytes(calls.write_call_bytes),
            count(calls.read_calls),
            count(calls.write_calls),
            quality.to_owned(),
            (*command).clone(),
        ]
    });
    let table = Table { total: known.len(), ..Table::new(head, rows) };
    let reason = processes.calls_reason.clone().filter(|_| !known.is_empty());
    Section::new("By read and write calls").table(table).text("Not all is known", reason)
}

/// Makes a table of single processes.
fn heaviest(title: &str, processes: &[&HeavyProcess], units: Units) -> Section {
    let [cpu, peak, wall] = usage_columns(units);
    let [pid, parent, exited] = ["PID", "Parent", "Exit"].map(Column::count);
    let head = [pid, parent, exited, cpu, peak, wall, Column::text("Command")];
    let rows = processes.iter().map(|HeavyProcess { usage: process, node, .. }| {
        let [cpu, peak, wall] = usage_cells(process.cpu_s, process.peak_rss_bytes, process.wall_s, units);
        let command = command_line::process(process.args.as_deref(), &process.command, COMMAND_COLUMNS);
        let node = node.as_ref().map(|node| format!("{node}: ")).unwrap_or_default();
        let (pid, parent) = (process.pid.to_string(), count(process.ppid.map(u64::from)));
        [pid, parent, exit(process.exit), cpu, peak, wall, node + &command]
    });
    let mut table = Table::new(head, rows);
    let whole = |process: &&HeavyProcess| {
        let usage = &process.usage;
        let whole = |args| command_line::process(Some(args), &usage.command, WHOLE_COMMAND_COLUMNS);
        usage.args.as_deref().map(whole).unwrap_or_default()
    };
    table.tips = processes.iter().map(whole).collect();
    Section::new(title).table(table)
}

/// The columns of CPU time, peak RSS and wall time.
fn usage_columns(units: Units) -> [Column; 3] {
    let (time, ram) = (units.time.symbol(), units.ram.symbol());
    [Column::number("CPU", time), Column::number("Peak RSS", ram), Column::number("Wall", time)]
}

/// The cells of these columns.
fn usage_cells(cpu_s: Option<f64>, peak_bytes: Option<u64>, wall_s: f64, units: Units) -> [String; 3] {
    [units.time_cell(cpu_s), units.ram_cell(peak_bytes), units.time_cell(Some(wall_s))]
}

/// Makes the table of the command names whose processes were seen on a GPU.
fn commands_on_gpus(commands: &[CommandUsage], units: Units) -> Section {
    let rows = commands.iter().filter_map(|command| {
        let CommandGpu { count, peak_ram_bytes, max_sm_percent } = command.gpu.clone()?;
        let gpu = ProcessGpu { peak_ram_bytes, max_sm_percent };
        Some((count.to_string(), gpu, &command.command))
    });
    Section::new("By command on GPUs").table(gpu_table("Count", rows, units))
}

/// Makes the table of those of the heaviest processes that were seen on a GPU.
fn heaviest_on_gpus(processes: &[HeavyProcess], units: Units) -> Section {
    let rows = processes.iter().filter_map(|HeavyProcess { usage: process, .. }| {
        Some((process.pid.to_string(), process.gpu.clone()?, &process.command))
    });
    Section::new("Heaviest on GPUs").table(gpu_table("PID", rows, units))
}

/// A row of a table about GPUs: the cell of the first column, the figures, and the command.
type GpuRow<'a> = (String, ProcessGpu, &'a String);

/// Makes a table of rows about GPUs: those of most GPU RAM first. `first`: the head of the first column.
fn gpu_table<'a>(first: &'static str, rows: impl Iterator<Item = GpuRow<'a>>, units: Units) -> Table {
    let ram = Column::number("Peak GPU RAM", units.gpu_ram.symbol());
    let head = [Column::count(first), ram, Column::number("Max SM", "%"), Column::text("Command")];
    let mut rows: Vec<_> = rows.collect();
    rows.order_by_key(|(_, gpu, _)| Reverse(gpu.peak_ram_bytes));
    let cells = |(first, gpu, command): GpuRow| {
        [first, units.gpu_ram_cell(gpu.peak_ram_bytes), number(gpu.max_sm_percent), command.clone()]
    };
    Table::new(head, rows.into_iter().map(cells))
}

/// Makes the summary's row: how many processes there were, why there may be more, and how well they are known. `None`: there is
/// one, and it is known exactly, so the other figures are its own.
pub(super) fn row(report: &Report) -> Option<Block> {
    let (processes, coverage) = (&report.processes, &report.coverage);
    if coverage.untracked_reason.is_some() {
        return Some(Block::text("Processes", "not counted"));
    }
    let (inexact_cpu, inexact_ram) = (inexact_cpu(report), inexact_ram(coverage));
    let uncounted = coverage.uncounted_reason.as_deref();
    let is_exact = coverage.exact == processes.total && inexact_ram.is_none() && uncounted.is_none();
    if processes.total <= 1 && is_exact {
        return None;
    }
    let at_least = if uncounted.is_some() { "at least " } else { "" };
    let mut text = format!("{at_least}{}", thousands(processes.total as f64));
    if let Some(most) = most_at_once(report) {
        text += &format!(", {most} at once");
    }
    if let Some(reason) = uncounted {
        text += &format!("; {reason}");
    }
    text += &match (inexact_cpu, inexact_ram) {
        (None, None) if uncounted.is_some() => "; these are exact".to_owned(),
        // "all" would also be said of the number of processes at once.
        (None, None) if !is_concurrency_exact(report) => "; CPU exact; RAM exact".to_owned(),
        (None, None) => ", all exact".to_owned(),
        (cpu, ram) => {
            let [cpu, ram] = [cpu, ram].map(|counts| counts.unwrap_or_else(|| "exact".to_owned()));
            format!("; CPU {cpu}; RAM {ram}")
        }
    };
    Some(Block::Paragraph("Processes", text))
}

/// Counts how the processes' CPU times are known: `20 exact, 2 unknown`. `None`: all are known exactly.
fn inexact_cpu(report: &Report) -> Option<String> {
    let Coverage { exact, sampled, unknown, .. } = report.coverage;
    // A sum above the kernel's own sum shows that some of its CPU times are too large.
    let is_exact = exact == report.processes.total && report.cpu_time.above_kernel_s().is_none();
    (!is_exact).then(|| counts(&[(exact, "exact"), (sampled, "sampled"), (unknown, "unknown")]))
}

/// Counts how the processes' peaks of RAM are known: `20 exact, 2 sampled`. `None`: all are known exactly.
fn inexact_ram(coverage: &Coverage) -> Option<String> {
    let Peaks { exact, sampled, bound, unknown } = coverage.peaks;
    let is_exact = sampled == 0 && bound == 0 && unknown == 0;
    let all = [(exact, "exact"), (sampled, "sampled"), (bound, "upper bound"), (unknown, "unknown")];
    (!is_exact).then(|| counts(&all))
}

/// Formats counts of processes, each with how a figure of theirs is known: `20 exact, 2 unknown`. Those of 0 are left out.
fn counts(counts: &[(u64, &str)]) -> String {
    let known = counts.iter().filter(|(count, _)| *count > 0);
    let parts: Vec<_> = known.map(|(count, how)| format!("{} {how}", thousands(*count as f64))).collect();
    parts.join(", ")
}

/// Makes the summary's table of the commands that used most CPU time, with at most `most_lines` lines. `None`: there are too few
/// lines, or there is a single process, so the other figures are its own.
pub(super) fn top_commands(report: &Report, units: Units, most_lines: usize) -> Option<Block> {
    let all = &report.processes.by_command;
    if report.processes.total <= 1 || all.is_empty() || most_lines < 3 {
        return None;
    }
    // One line is for the heads, one for the others.
    let most = MAX_COMMANDS.min(most_lines - 2);
    // If only one command would be left, its own line takes the place of a line for the others.
    let shown = if all.len() <= most + 1 { all.len().min(most_lines - 1) } else { most };
    let (shown, others) = all.split_at(shown);
    let mut rows = shown.to_vec();
    if !others.is_empty() {
        rows.push(sum_of(others));
    }
    let mut table = commands_table(&rows, units);
    let total_s = report.cpu_time.total_s.filter(|total_s| *total_s > 0.0);
    let part = |row: &CommandUsage| Option::zip(row.cpu_s, total_s).map(|(cpu_s, total_s)| cpu_s / total_s);
    table.parts = rows.iter().map(part).collect();
    Some(Block::Table(table))
}

/// Makes the table of command names for the summary.
fn commands_table(commands: &[CommandUsage], units: Units) -> Table {
    let (time, ram) = (units.time, units.ram);
    let cells = |value: &dyn Fn(&CommandUsage) -> Option<f64>| {
        column(&commands.iter().map(value).collect::<Vec<_>>())
    };
    let cpu = cells(&|command| command.cpu_s.map(|s| time.convert(s)));
    let peak = cells(&|command| command.peak_rss_bytes.map(|bytes| ram.convert(bytes as f64)));
    let wall = cells(&|command| Some(time.convert(command.wall_s)));
    let rows = commands.iter().zip(cpu).zip(peak).zip(wall).map(|(((command, cpu), peak), wall)| {
        let count = if command.count == 0 { UNKNOWN.to_owned() } else { thousands(command.count as f64) };
        [command.command.clone(), count, cpu, peak, wall]
    });
    let (time, ram) = (time.symbol(), ram.symbol());
    let head = [
        Column::text("Command"),
        Column::count("count"),
        Column::number("CPU", time),
        Column::number("peak", ram),
        Column::number("wall sum", time),
    ];
    Table::new(head, rows)
}

/// Makes one row of several commands: the sums of their counts and times, and the largest peak of any of their processes.
fn sum_of(others: &[CommandUsage]) -> CommandUsage {
    let mut sums = CommandSums::default();
    others.iter().for_each(|command| sums.add(command));
    sums.usage(&format!("{} others", thousands(others.len() as f64)))
}

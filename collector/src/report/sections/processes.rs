//! The processes: counts, by command, and the heaviest.

use std::cmp::Reverse;

use crate::model::report::{CommandUsage, ProcessUsage, Processes};
use crate::report::document::{Column, Section, Table};
use crate::report::figures::{count, exit, number};
use crate::report::quote;
use crate::report::units::Units;

/// Longest command line in a table, in columns.
const COMMAND: usize = 100;

pub(super) fn processes(processes: &Processes, units: Units) -> Section {
    Section::new("Processes")
        .text("Total", processes.total.to_string())
        .text("Most at one time", processes.max_concurrent.to_string())
        .count("Still running at the end", processes.still_running)
        .section(still_running(processes))
        .section(by_command(&processes.by_command, units))
        .section(commands_on_gpus(&processes.by_command, units))
        .section(heaviest(&processes.heaviest, units))
        .section(heaviest_on_gpus(&processes.heaviest, units))
}

fn still_running(processes: &Processes) -> Section {
    let listed = processes.still_running_processes.iter().map(|of| [of.pid.to_string(), of.command.clone()]);
    let mut table = Table::new([Column::count("PID"), Column::text("Command")], listed);
    table.total = usize::try_from(processes.still_running).unwrap_or(usize::MAX);
    Section::default().table(table)
}

fn by_command(commands: &[CommandUsage], units: Units) -> Section {
    let [cpu, peak, wall] = usage_columns(units);
    let head = [Column::count("Count"), cpu, peak, wall, Column::text("Command")];
    let rows = commands.iter().map(|of| {
        let [cpu, peak, wall] = usage_cells(of.cpu_s, of.peak_rss_bytes, of.wall_s, units);
        [of.count.to_string(), cpu, peak, wall, of.command.clone()]
    });
    Section::new("By command").table(Table::new(head, rows))
}

fn heaviest(processes: &[ProcessUsage], units: Units) -> Section {
    let [cpu, peak, wall] = usage_columns(units);
    let [pid, parent, exited] = ["PID", "Parent", "Exit"].map(Column::count);
    let head = [pid, parent, exited, cpu, peak, wall, Column::text("Command")];
    let rows = processes.iter().map(|of| {
        let [cpu, peak, wall] = usage_cells(of.cpu_s, of.peak_rss_bytes, of.wall_s, units);
        let command = quote::process(of.args.as_deref(), &of.command, COMMAND);
        [of.pid.to_string(), count(of.ppid.map(u64::from)), exit(of.exit), cpu, peak, wall, command]
    });
    Section::new("Heaviest").table(Table::new(head, rows))
}

fn usage_columns(units: Units) -> [Column; 3] {
    let (time, ram) = (units.time.symbol(), units.ram.symbol());
    [Column::number("CPU", time), Column::number("Peak RSS", ram), Column::number("Wall", time)]
}

fn usage_cells(cpu_s: Option<f64>, peak_bytes: Option<u64>, wall_s: f64, units: Units) -> [String; 3] {
    [units.time_cell(cpu_s), units.ram_cell(peak_bytes), units.time_cell(Some(wall_s))]
}

/// Command names whose processes were seen on a GPU.
fn commands_on_gpus(commands: &[CommandUsage], units: Units) -> Section {
    let rows = commands.iter().filter_map(|of| {
        let gpu = of.gpu.as_ref()?;
        Some((gpu.peak_ram_bytes, gpu.max_sm_percent, gpu.count.to_string(), of.command.as_str()))
    });
    Section::new("By command on GPUs").table(on_gpus("Count", rows, units))
}

/// Heaviest processes that were seen on a GPU.
fn heaviest_on_gpus(processes: &[ProcessUsage], units: Units) -> Section {
    let rows = processes.iter().filter_map(|of| {
        let gpu = of.gpu.as_ref()?;
        Some((gpu.peak_ram_bytes, gpu.max_sm_percent, of.pid.to_string(), of.command.as_str()))
    });
    Section::new("Heaviest on GPUs").table(on_gpus("PID", rows, units))
}

/// Peak GPU RAM, largest SM percentage, what the first column has, and command.
type OnGpu<'a> = (Option<u64>, Option<f64>, String, &'a str);

/// The rows by GPU RAM, the largest first.
fn on_gpus<'a>(first: &'static str, rows: impl Iterator<Item = OnGpu<'a>>, units: Units) -> Table {
    let ram = Column::number("Peak GPU RAM", units.gpu_ram.symbol());
    let head = [Column::count(first), ram, Column::number("Max SM", "%"), Column::text("Command")];
    let mut rows: Vec<_> = rows.collect();
    rows.sort_by_key(|(peak, ..)| Reverse(*peak));
    let cells =
        |(peak, sm, first, command): OnGpu| [first, units.gpu_ram_cell(peak), number(sm), command.to_owned()];
    Table::new(head, rows.into_iter().map(cells))
}

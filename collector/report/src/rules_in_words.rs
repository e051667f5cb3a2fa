//! The figures of limits and alerts, and an exceeded limit, in words.

use std::time::Duration;

use crate::figures::{bytes, percent, readable};
use crate::model::counts_in_words::processes;
use crate::model::rule::{Quantity, Rule, Unit};
use crate::model::run_limit::{Exceeded, LargestProcess};
use crate::quote;
use crate::units::Units;

/// A longer name of a command is cut to this many columns.
const LONGEST_COMMAND: usize = 40;

/// A line for the user when the tree is being ended at a limit. `kill_after`: the time from SIGTERM to SIGKILL.
pub fn limit_in_words(limit: &Rule, exceeded: &Exceeded, kill_after: Duration) -> String {
    let unit = limit.unit();
    // A rule counts times in nanoseconds, a report in seconds.
    let amount = with_unit(unit.in_report_unit(exceeded.by.amount as f64), Some(unit), None);
    let held = exceeded.largest.as_ref().map(|process| held_most(process, bytes));
    format!(
        "limit {} exceeded: {}{}. SIGTERM to all processes, SIGKILL after {}",
        limit.words,
        figure(limit.quantity, unit, &amount),
        held.unwrap_or_default(),
        readable(kill_after.as_secs_f64())
    )
}

/// Says which process held most RAM or GPU RAM, as the rest of a sentence. `bytes` writes a number of bytes with its unit.
pub(crate) fn held_most(process: &LargestProcess, bytes: impl Fn(u64) -> String) -> String {
    let pid = process.pid.map(|pid| format!("pid {pid} ")).unwrap_or_default();
    let (memory, held) =
        process.gpu_ram_bytes.map_or(("RAM", process.rss_bytes), |gpu_ram_bytes| ("GPU RAM", gpu_ram_bytes));
    let command = quote::cut(&process.command, LONGEST_COMMAND);
    format!("; {pid}({command}) held most {memory}, {}", bytes(held))
}

/// Says how much there is of the quantity of a rule. `amount`: how much, with its unit; that of a number of processes has the word
/// itself. A limit of wall time needs no amount.
pub(crate) fn figure(quantity: Quantity, unit: Unit, amount: &str) -> String {
    match quantity {
        // `Growth` is an alert on memory that rises all the time. On a GPU, its events have the quantity `GpuRam`.
        Quantity::Ram | Quantity::Growth => format!("{amount} of RAM"),
        Quantity::GpuRam => format!("{amount} of GPU RAM"),
        Quantity::Cpu if unit == Unit::Percent => format!("{amount} of the cores in use"),
        Quantity::Cpu => format!("{amount} of CPU time"),
        Quantity::Wall => "the time was over".to_owned(),
        Quantity::Processes => amount.to_owned(),
        Quantity::Stall => format!("nothing happened for {amount}"),
        Quantity::GpuIdle => format!("no GPU worked for {amount}"),
        Quantity::Disk => format!("{amount} free where the run may write"),
    }
}

/// The title in capitals of a run that a limit of this quantity ended.
pub(crate) fn limit_title(quantity: Quantity) -> &'static str {
    match quantity {
        Quantity::Ram => "RAM LIMIT",
        Quantity::GpuRam => "GPU RAM LIMIT",
        Quantity::Cpu => "CPU TIME LIMIT",
        Quantity::Wall => "TIME LIMIT",
        Quantity::Processes => "PROCESS LIMIT",
        Quantity::Stall => "STALLED",
        Quantity::GpuIdle => "GPU IDLE",
        // Only alerts watch these two.
        Quantity::Disk | Quantity::Growth => "LIMIT",
    }
}

/// Formats an amount of a report with its unit. `unit`: what the amount is measured in; `None`: nothing. `units`: those in which the
/// whole report is shown; `None`: each amount has the unit that fits it.
pub(crate) fn with_unit(amount: f64, unit: Option<Unit>, units: Option<Units>) -> String {
    match unit {
        Some(Unit::Bytes) => units.map_or_else(|| bytes(amount as u64), |units| units.bytes(amount as u64)),
        Some(Unit::Seconds) => units.map_or_else(|| readable(amount), |units| units.seconds(amount)),
        Some(Unit::Processes) => processes(amount as u64),
        Some(Unit::Percent) => percent(amount / 100.0),
        None => amount.to_string(),
    }
}

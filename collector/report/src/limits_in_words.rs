//! A limit that the user set for the run, and that the run has exceeded, in words.

use std::time::Duration;

use crate::figures::{bytes, percent, readable};
use crate::model::counts_in_words::processes;
use crate::model::run_limit::{Exceeded, LargestProcess, Quantity, RunLimit, Unit};
use crate::quote;

/// A longer name of a command is cut to this many columns.
const LONGEST_COMMAND: usize = 40;

/// Gives a line for the user when the tree is being ended at a limit. `kill_after`: the time from SIGTERM to SIGKILL.
#[must_use]
pub fn limit_in_words(limit: &RunLimit, exceeded: &Exceeded, kill_after: Duration) -> String {
    let unit = limit.quantity.unit();
    let used = exceeded.by.amount;
    let amount = match unit {
        Unit::Bytes => bytes(used),
        Unit::Seconds => readable(unit.of_report(used)),
        Unit::Processes => processes(used),
        Unit::Percent => percent(unit.of_report(used) / 100.0),
    };
    let held = exceeded.largest.as_ref().map(|process| held_most(process, bytes));
    format!(
        "limit {} exceeded: {}{}. SIGTERM to all processes, SIGKILL after {}",
        limit.words,
        excess(limit.quantity, &amount),
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

/// Says how much there was of the quantity of an exceeded limit. `amount`: how much, with its unit; a limit of time tells itself.
pub(crate) fn excess(quantity: Quantity, amount: &str) -> String {
    match quantity {
        Quantity::Ram => format!("{amount} of RAM"),
        Quantity::GpuRam => format!("{amount} of GPU RAM"),
        Quantity::Cpu => format!("{amount} of CPU time"),
        Quantity::Wall => "the time was over".to_owned(),
        Quantity::Processes => amount.to_owned(),
        Quantity::Stall => format!("nothing happened for {amount}"),
        Quantity::GpuIdle => format!("no GPU worked for {amount}"),
    }
}

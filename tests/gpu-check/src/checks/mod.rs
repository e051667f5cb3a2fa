//! The checks. Each function `judge_...` compares a report with what is known from elsewhere.

mod check;
mod memory;
mod opinion;
mod pcie;
mod selection;
#[cfg(test)]
mod testing;
mod time;
mod utilization;

use std::process::{Command, Stdio};

use crate::costs;
use crate::nvml::changes;
use crate::process;
use crate::results::{Results, shown};
pub(crate) use check::Check;
use check::ms;

/// All of them, in the order of the output.
pub(crate) fn all(results: &mut Results, check: &Check, is_quick: bool, with_accounting: bool) {
    list(results, check);
    call_costs(results, check);
    results.line("\nMemory");
    memory::all_kinds(results, check, is_quick);
    memory::short_processes(results, check);
    results.line("\nUtilization");
    utilization::busy(results, check);
    utilization::half_busy(results, check);
    utilization::two_processes(results, check);
    results.line("\nEnergy");
    time::energy(results, check);
    opinion::under_load(results, check);
    results.line("\nPCIe");
    pcie::all(results, check);
    results.line("\nWhich GPUs");
    selection::all(results, check);
    results.line("\nWhat tracking costs");
    time::collector(results, check);
    time::start_and_end(results, check);
    time::allocations(results, check);
    results.line("\nAccounting");
    if with_accounting || check.nvml.is_accounting() {
        memory::accounted(results, check, with_accounting);
    } else {
        results.skip("accounting", "it is off, and only --accounting switches it on");
    }
}

/// `--gpus` shows what each device reports.
fn list(results: &mut Results, check: &Check) {
    match Command::new(check.tracker).arg("--gpus").stdin(Stdio::null()).output() {
        Ok(output) => {
            results.line(String::from_utf8_lossy(&output.stdout).trim_end());
            results.check("gpu-track-run --gpus", output.status.success(), &output.status.to_string());
        }
        Err(error) => results.check("gpu-track-run --gpus", false, &error.to_string()),
    }
}

/// What each call costs, on a device at rest and on a busy one.
fn call_costs(results: &mut Results, check: &Check) {
    let at_rest = costs::costs(check.nvml, check.times.call);
    let words = process::part("spin", &[ms(check.times.busy * 4)]);
    let mut command = Command::new(words.first().map_or("", String::as_str));
    let spinning = command.args(words.iter().skip(1)).stdout(Stdio::piped()).spawn();
    let mut line = String::new();
    if let Ok(mut spinning) = spinning {
        if let Some(stdout) = spinning.stdout.take() {
            let _ = std::io::BufRead::read_line(&mut std::io::BufReader::new(stdout), &mut line);
        }
        // The driver takes a sample at least once a second.
        std::thread::sleep(check.times.held);
        let while_busy = costs::costs(check.nvml, check.times.call);
        let (nvml, time) = (check.nvml, check.times.call);
        let more = [
            nvml.device_samples(),
            format!("{} (the busy process is {})", nvml.process_samples(), spinning.id()),
            format!("compute processes {:?}", nvml.compute_processes()),
            changes("the energy counter", time, || nvml.energy_j()),
            changes("PowerUsage", time, || nvml.power_mw()),
        ];
        let rate = nvml.rate();
        let _ = spinning.kill().and_then(|()| spinning.wait());
        results.line(&format!("\nNVML's calls; busy: {}, {}%\n", line.trim(), shown(rate)));
        for row in costs::table(&at_rest, &while_busy, if line.is_empty() { "again" } else { "busy" }) {
            results.line(&row);
        }
        results.line("");
        more.iter().for_each(|line| results.note(line));
    }
    results.check("the GPU can be kept busy", line.starts_with("spins"), line.trim());
}

//! The processes: counts, by command, and the heaviest.

use super::format::{count, exit, number, number_of_bytes};
use super::gpus;
use super::page::{Page, WIDTH};
use super::units::Units;
use crate::model::report::{ProcessUsage, Processes};
use crate::quote;

pub(super) fn processes(page: &mut Page, processes: &Processes, units: Units) {
    let time = units.time;
    let seconds = |s: Option<f64>| number(s.map(|s| time.convert(s)));
    let bytes = |bytes: Option<u64>| number_of_bytes(bytes, units.ram);
    let (cpu, rss) = (format!("CPU [{}]", time.symbol()), format!("Peak RSS [{}]", units.ram.symbol()));
    let wall = format!("Wall [{}]", time.symbol());
    page.heading(0, "Processes");
    page.field(1, "Total", processes.total);
    page.field(1, "Most at one time", processes.max_concurrent);
    page.count(1, "Still running at the end", Some(processes.still_running));
    still_running(page, processes);
    if !processes.by_command.is_empty() {
        page.heading(1, "By command");
        let head = ["Count", &cpu, &rss, &wall, "Command"];
        page.table(2, head, &processes.by_command, |of| {
            let (peak, wall) = (bytes(of.peak_rss_bytes), seconds(Some(of.wall_s)));
            [of.count.to_string(), seconds(of.cpu_s), peak, wall, quote::escape(&of.command)]
        });
        gpus::by_command(page, &processes.by_command, units.gpu_ram);
    }
    if !processes.heaviest.is_empty() {
        page.heading(1, "Heaviest");
        let head = ["PID", "Parent", "Exit", &cpu, &rss, &wall, "Command"];
        page.table(2, head, &processes.heaviest, |of| {
            [
                of.pid.to_string(),
                count(of.ppid.map(u64::from)),
                exit(of.exit),
                seconds(of.cpu_s),
                bytes(of.peak_rss_bytes),
                seconds(Some(of.wall_s)),
                command(of),
            ]
        });
        gpus::heaviest(page, &processes.heaviest, units.gpu_ram);
    }
}

fn still_running(page: &mut Page, processes: &Processes) {
    let listed = &processes.still_running_processes;
    if listed.is_empty() {
        return;
    }
    let all = usize::try_from(processes.still_running).unwrap_or(usize::MAX);
    page.table_of(2, ["PID", "Command"], listed, all, |of| [of.pid.to_string(), quote::escape(&of.command)]);
}

fn command(process: &ProcessUsage) -> String {
    quote::process(process.args.as_deref(), &process.command, WIDTH)
}

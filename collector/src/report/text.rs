//! The report for people: one line that says it all, then gpu_tracker's sections in its words and nesting, then ours.
//! Unknown is `n/a`.

mod gpus;
mod ours;
mod page;

use page::{Page, WIDTH};

use super::quote;
use crate::model::report::{Exit, Percent, Report, Rss, Stage};
use crate::model::style::{RamUnit, Style, TimeUnit};

/// The report as text, with a newline at its end.
#[must_use]
pub fn text(report: &Report, style: &Style) -> String {
    let units = Units::choose(report, style);
    let mut page = Page::default();
    page.line(0, headline(report));
    max_ram(&mut page, report, units.ram);
    max_gpu_ram(&mut page, report, units.gpu_ram);
    cpu_utilization(&mut page, report);
    gpu_utilization(&mut page, report);
    page.heading(0, "Compute time");
    page.field(1, "Unit", units.time.name());
    page.number(1, "Time", Some(units.time.convert(report.wall_s)));
    ours::sections(&mut page, report, style, units);
    page.into_text()
}

/// The units of gpu_tracker's sections: as asked for, or so that the figures of this report read well.
#[derive(Clone, Copy)]
struct Units {
    ram: RamUnit,
    gpu_ram: RamUnit,
    time: TimeUnit,
}

impl Units {
    fn choose(report: &Report, style: &Style) -> Self {
        let (ram, gpu) = (&report.max_ram, &report.max_gpu_ram);
        let of_tree = [ram.combined.total_bytes, ram.main.total_bytes, ram.descendants.total_bytes];
        Self {
            ram: style.ram_unit.unwrap_or_else(|| unit_that_fits(of_tree.into_iter().flatten().max())),
            gpu_ram: style.gpu_ram_unit.unwrap_or_else(|| {
                let known = [gpu.combined_bytes, gpu.system_bytes, gpu.system_capacity_bytes];
                unit_that_fits(known.into_iter().flatten().find(|bytes| *bytes > 0))
            }),
            time: style.time_unit.unwrap_or_else(|| TimeUnit::that_fits(report.wall_s)),
        }
    }
}

/// gpu_tracker's default where there is nothing to fit.
fn unit_that_fits(bytes: Option<u64>) -> RamUnit {
    bytes.filter(|b| *b > 0).map_or(RamUnit::Gigabytes, |b| RamUnit::that_fits(b as f64))
}

fn headline(report: &Report) -> String {
    let end = match report.exit {
        _ if report.stage == Stage::Recovered && report.processes.still_running == 0 => {
            "tracking was killed".to_owned()
        }
        _ if report.stage != Stage::Over => "still running".to_owned(),
        Exit { code: Some(code), .. } => format!("exited with code {code}"),
        Exit { signal: Some(signal), .. } => format!("killed by {}", signal_name(signal)),
        Exit { code: None, signal: None } => "ended in an unknown way".to_owned(),
    };
    let end = format!(": {end} after {}", duration(report.wall_s));
    quote::command(&report.command, WIDTH.saturating_sub(end.len())) + &end
}

/// As people say it: finer where it is short.
fn duration(seconds: f64) -> String {
    let ms = (seconds * 1e3).round() as u64;
    let s = seconds.round() as u64;
    match s {
        _ if ms < 60_000 => format!("{:.3} s", ms as f64 / 1e3),
        _ if ms < 3_600_000 => format!("{} min {:.3} s", ms / 60_000, (ms % 60_000) as f64 / 1e3),
        0..86_400 => format!("{} h {} min {} s", s / 3600, s / 60 % 60, s % 60),
        _ => format!("{} d {} h {} min", s / 86_400, s / 3600 % 24, s / 60 % 60),
    }
}

/// Names as in signal(7), for the architectures that number them alike (x86-64, AArch64 and most others).
fn signal_name(signal: i32) -> String {
    const NAMES: [&str; 31] = [
        "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2", "PIPE",
        "ALRM", "TERM", "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG", "XCPU", "XFSZ",
        "VTALRM", "PROF", "WINCH", "IO", "PWR", "SYS",
    ];
    let name = usize::try_from(signal).ok().and_then(|n| NAMES.get(n.checked_sub(1)?));
    name.map_or_else(|| format!("signal {signal}"), |name| format!("SIG{name}"))
}

fn max_ram(page: &mut Page, report: &Report, unit: RamUnit) {
    let convert = |bytes: Option<u64>| bytes.map(|b| unit.convert(b as f64));
    let rss = |page: &mut Page, who: &str, rss: &Rss| {
        page.heading(1, who);
        page.number(2, "Total RSS", convert(rss.total_bytes));
        page.number(2, "Private RSS", convert(rss.private_bytes));
        page.number(2, "Shared RSS", convert(rss.shared_bytes));
    };
    let ram = &report.max_ram;
    page.heading(0, "Max RAM");
    page.field(1, "Unit", unit.name());
    page.number(1, "System capacity", convert(ram.system_capacity_bytes));
    page.number(1, "System", convert(ram.system_bytes));
    rss(page, "Main", &ram.main);
    rss(page, "Descendants", &ram.descendants);
    rss(page, "Combined", &ram.combined);
}

fn max_gpu_ram(page: &mut Page, report: &Report, unit: RamUnit) {
    let convert = |bytes: Option<u64>| bytes.map(|b| unit.convert(b as f64));
    let ram = &report.max_gpu_ram;
    page.heading(0, "Max GPU RAM");
    page.field(1, "Unit", unit.name());
    page.number(1, "System capacity", convert(ram.system_capacity_bytes));
    page.number(1, "System", convert(ram.system_bytes));
    page.number(1, "Main", convert(ram.main_bytes));
    page.number(1, "Descendants", convert(ram.descendants_bytes));
    page.number(1, "Combined", convert(ram.combined_bytes));
}

fn cpu_utilization(page: &mut Page, report: &Report) {
    let cpu = &report.cpu;
    page.heading(0, "CPU utilization");
    page.field(1, "System core count", cpu.system_core_count);
    page.field(1, "Number of expected cores", cpu.expected_cores);
    percentages(page, "System", cpu.system, cpu.system_core_count);
    percentages(page, "Main", cpu.main, cpu.expected_cores);
    percentages(page, "Descendants", cpu.descendants, cpu.expected_cores);
    percentages(page, "Combined", cpu.combined, cpu.expected_cores);
    page.count(1, "Main number of threads", cpu.main_threads);
    page.count(1, "Descendants number of threads", cpu.descendants_threads);
    page.count(1, "Combined number of threads", cpu.combined_threads);
}

fn gpu_utilization(page: &mut Page, report: &Report) {
    page.heading(0, "GPU utilization");
    page.count(1, "System GPU count", report.gpu.system_gpu_count.map(u64::from));
    page.count(1, "Number of expected GPUs", report.gpu.expected_gpus.map(u64::from));
    percentages(page, "GPU percentages", report.gpu.percent, report.gpu.expected_gpus.unwrap_or(0));
}

fn percentages(page: &mut Page, of: &str, percent: Percent, units: u32) {
    page.heading(1, of);
    page.number(2, "Max sum percent", percent.max_sum);
    page.number(2, "Max hardware percent", percent.max_hardware(units));
    page.number(2, "Mean sum percent", percent.mean_sum);
    page.number(2, "Mean hardware percent", percent.mean_hardware(units));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_well() {
        let said = [0.0204, 59.9996, 61.5, 3599.9999, 7384.4, 86_399.9, 200_000.0].map(duration);
        let right = [
            "0.020 s",
            "1 min 0.000 s",
            "1 min 1.500 s",
            "1 h 0 min 0 s",
            "2 h 3 min 4 s",
            "1 d 0 h 0 min",
            "2 d 7 h 33 min",
        ];
        assert_eq!(said, right);
    }

    #[test]
    fn signals_have_their_names() {
        for (signal, name) in [
            (libc::SIGHUP, "SIGHUP"),
            (libc::SIGKILL, "SIGKILL"),
            (libc::SIGTERM, "SIGTERM"),
            (libc::SIGCHLD, "SIGCHLD"),
            (libc::SIGXCPU, "SIGXCPU"),
            (libc::SIGSYS, "SIGSYS"),
            (40, "signal 40"),
            (0, "signal 0"),
            (-1, "signal -1"),
        ] {
            assert_eq!(signal_name(signal), name);
        }
    }
}

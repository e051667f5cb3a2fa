//! The sections that gpu_tracker doesn't have, in its style.

use super::super::json::rfc3339;
use super::super::quote;
use super::page::{Page, UNKNOWN, WIDTH, count, number};
use super::{Units, gpus, signal_name, unit_that_fits};
use crate::model::report::{Cgroup, Exit, Limit, Limits, Peak, Processes, Report};
use crate::model::style::{RamUnit, Style, TimeUnit};

/// Rows of a table; JSON has them all.
pub(super) const MOST_ROWS: usize = 15;

/// All of them.
pub fn sections(page: &mut Page, report: &Report, style: &Style, units: Units) {
    // Most processes of a long run are short: their times read well in seconds only.
    let of_processes = style.time_unit.unwrap_or(TimeUnit::Seconds);
    cpu_time(page, report, units.time);
    mean_ram(page, report, units.ram);
    peak(page, report.peak.as_ref(), units.ram, of_processes);
    io(page, report, style);
    page.heading(0, "Page faults");
    page.count(1, "Minor", report.faults.minor);
    page.count(1, "Major", report.faults.major);
    page.heading(0, "Context switches");
    page.count(1, "Voluntary", report.context_switches.voluntary);
    page.count(1, "Involuntary", report.context_switches.involuntary);
    processes(page, &report.processes, units, of_processes);
    if let Some(cgroup) = &report.cgroup {
        of_cgroup(page, cgroup, units);
    }
    gpus::gpus(page, report, units.gpu_ram, of_processes);
    host(page, report);
    limits(page, &report.limits);
    coverage(page, report);
    list(page, 0, "Warnings", &report.warnings);
}

fn cpu_time(page: &mut Page, report: &Report, unit: TimeUnit) {
    let time = &report.cpu_time;
    let convert = |seconds: Option<f64>| seconds.map(|s| unit.convert(s));
    page.heading(0, "CPU time");
    page.field(1, "Unit", unit.name());
    page.number(1, "User", convert(time.user_s));
    page.number(1, "System", convert(time.system_s));
    page.number(1, "Total", convert(time.total_s));
    let kernel = number(convert(time.kernel_s));
    match &time.kernel_s_reason {
        Some(reason) => {
            page.field(1, "By the kernel's sum", format_args!("{kernel} ({})", quote::escape(reason)))
        }
        None => page.field(1, "By the kernel's sum", kernel),
    }
    page.number(1, "Unattributed", convert(time.unattributed_s));
}

fn mean_ram(page: &mut Page, report: &Report, unit: RamUnit) {
    let convert = |bytes: Option<f64>| bytes.map(|b| unit.convert(b));
    page.heading(0, "Mean RAM");
    page.field(1, "Unit", unit.name());
    page.number(1, "Main", convert(report.mean_ram.main_bytes));
    page.number(1, "Descendants", convert(report.mean_ram.descendants_bytes));
    page.number(1, "Combined", convert(report.mean_ram.combined_bytes));
}

fn peak(page: &mut Page, peak: Option<&Peak>, ram: RamUnit, time: TimeUnit) {
    let Some(peak) = peak else { return page.field(0, "RAM peak", UNKNOWN) };
    page.heading(0, "RAM peak");
    page.field(1, "Unit", ram.name());
    page.number(1, "Combined RSS", Some(ram.convert(peak.combined_rss_bytes as f64)));
    let at = format!("{:.3} {} after the start", time.convert(peak.at_s), time.name());
    page.field(1, "Time", at);
    if peak.processes.is_empty() {
        return;
    }
    page.heading(1, "Held by");
    let rows = peak.processes.iter().take(MOST_ROWS).map(|holder| {
        let rss = number(Some(ram.convert(holder.rss_bytes as f64)));
        [holder.pid.to_string(), rss, quote::escape(&holder.command)]
    });
    page.table(2, ["PID", &format!("RSS [{}]", ram.symbol()), "Command"], &rows.collect::<Vec<_>>());
    more(page, peak.processes.len());
}

fn io(page: &mut Page, report: &Report, style: &Style) {
    let io = &report.io;
    let unit = style.ram_unit.unwrap_or_else(|| unit_that_fits(io.read_bytes.max(io.write_bytes)));
    let convert = |bytes: Option<u64>| bytes.map(|b| unit.convert(b as f64));
    page.heading(0, "I/O");
    page.field(1, "Unit", unit.name());
    page.number(1, "Read", convert(io.read_bytes));
    page.number(1, "Written", convert(io.write_bytes));
}

fn processes(page: &mut Page, processes: &Processes, units: Units, time: TimeUnit) {
    let ram = units.ram;
    let seconds = |s: Option<f64>| number(s.map(|s| time.convert(s)));
    let bytes = |b: Option<u64>| number(b.map(|b| ram.convert(b as f64)));
    let (cpu, rss) = (format!("CPU [{}]", time.symbol()), format!("Peak RSS [{}]", ram.symbol()));
    let wall = format!("Wall [{}]", time.symbol());
    page.heading(0, "Processes");
    page.field(1, "Total", processes.total);
    page.field(1, "Most at one time", processes.max_concurrent);
    page.field(1, "Still running at the end", processes.still_running);
    if !processes.still_running_processes.is_empty() {
        let still = &processes.still_running_processes;
        let row = |p: &crate::model::report::Running| [p.pid.to_string(), quote::escape(&p.command)];
        page.table(2, ["PID", "Command"], &still.iter().take(MOST_ROWS).map(row).collect::<Vec<_>>());
        more(page, usize::try_from(processes.still_running).unwrap_or(usize::MAX));
    }
    if !processes.by_command.is_empty() {
        page.heading(1, "By command");
        let rows = processes.by_command.iter().take(MOST_ROWS).map(|of| {
            let command = quote::escape(&of.command);
            [
                of.count.to_string(),
                seconds(of.cpu_s),
                bytes(of.peak_rss_bytes),
                seconds(Some(of.wall_s)),
                command,
            ]
        });
        page.table(2, ["Count", &cpu, &rss, &wall, "Command"], &rows.collect::<Vec<_>>());
        more(page, processes.by_command.len());
        gpus::by_command(page, &processes.by_command, units.gpu_ram);
    }
    if !processes.heaviest.is_empty() {
        page.heading(1, "Heaviest");
        let rows = processes.heaviest.iter().take(MOST_ROWS).map(|p| {
            let command = match &p.args {
                Some(args) if !args.is_empty() => quote::command(args, WIDTH),
                _ => quote::escape(&p.command),
            };
            [
                p.pid.to_string(),
                count(p.ppid.map(u64::from)),
                exit(p.exit),
                seconds(p.cpu_s),
                bytes(p.peak_rss_bytes),
                seconds(Some(p.wall_s)),
                command,
            ]
        });
        let head = ["PID", "Parent", "Exit", &cpu, &rss, &wall, "Command"];
        page.table(2, head, &rows.collect::<Vec<_>>());
        more(page, processes.heaviest.len());
        gpus::heaviest(page, processes, units.gpu_ram);
    }
}

fn exit(exit: Exit) -> String {
    match exit {
        Exit { code: Some(code), .. } => code.to_string(),
        Exit { signal: Some(signal), .. } => signal_name(signal),
        Exit { code: None, signal: None } => UNKNOWN.to_owned(),
    }
}

fn host(page: &mut Page, report: &Report) {
    let known = |name: &Option<String>| name.as_deref().map_or_else(|| UNKNOWN.to_owned(), quote::escape);
    page.heading(0, "Host");
    page.field(1, "Name", known(&report.host.hostname));
    page.field(1, "Kernel", known(&report.host.kernel));
    page.field(1, "Started at", rfc3339(report.started_at));
}

fn of_cgroup(page: &mut Page, cgroup: &Cgroup, units: Units) {
    let ram = |bytes: Option<u64>| bytes.map(|b| units.ram.convert(b as f64));
    page.heading(0, "Cgroup");
    page.field(1, "Units", format_args!("{}, {}", units.ram.name(), units.time.name()));
    page.number(1, "Memory peak", ram(cgroup.memory_peak_bytes));
    page.count(1, "OOM kills", cgroup.oom_kills);
    page.number(1, "CPU time", cgroup.cpu_usage_s.map(|s| units.time.convert(s)));
    page.number(1, "Read", ram(cgroup.io_read_bytes));
    page.number(1, "Written", ram(cgroup.io_write_bytes));
    if let Some(reason) = &cgroup.reason {
        page.field(1, "Not known", quote::escape(reason));
    }
}

/// Those that bind: a limit that isn't there needs no line.
fn limits(page: &mut Page, limits: &Limits) {
    let limit = |limit: Limit, show: &dyn Fn(u64) -> String| match limit {
        Limit::Known(n) => show(n),
        Limit::Unlimited => "unlimited".to_owned(),
        Limit::Unknown => UNKNOWN.to_owned(),
    };
    let bytes = |n: u64| {
        let unit = unit_that_fits(Some(n));
        format!("{:.3} {}", unit.convert(n as f64), unit.name())
    };
    page.heading(0, "Limits");
    page.field(1, "Memory", limit(limits.memory_bytes, &bytes));
    page.field(1, "CPU quota", limit(limits.cpu_millicores, &|n| format!("{:.3} cores", n as f64 / 1000.0)));
    if let Limit::Known(tasks) = limits.tasks {
        page.field(1, "Processes and threads", tasks);
    }
    page.count(1, "Usable cores", limits.cpus.as_ref().map(|cpus| cpus.len() as u64));
    for (name, of) in &limits.ulimits {
        if let Limit::Known(n) = of.soft
            && SHOWN.contains(&name.as_str())
        {
            let (name, unit) =
                name.rsplit_once('_').filter(|(_, unit)| *unit != "files").unwrap_or((name, ""));
            let value = if unit == "bytes" { bytes(n) } else { format!("{n} {unit}") };
            page.field(1, &format!("ulimit {}", name.replace('_', " ")), value.trim_end());
        }
    }
    for (name, value) in &limits.slurm {
        page.field(1, name, quote::escape(value));
    }
}

/// Limits that end jobs.
const SHOWN: [&str; 6] =
    ["address_space_bytes", "cpu_s", "data_bytes", "file_size_bytes", "open_files", "processes"];

fn coverage(page: &mut Page, report: &Report) {
    let coverage = &report.coverage;
    page.heading(0, "Coverage");
    page.field(1, "Processes", coverage.processes);
    page.field(1, "Exact", coverage.exact);
    page.field(1, "Sampled", coverage.sampled);
    page.field(1, "Unknown", coverage.unknown);
    page.field(1, "Joined", coverage.joined);
    page.field(1, "Failed spawns", coverage.failed_spawns);
    page.field(1, "Silent", coverage.silent);
    page.field(1, "Dropped events", coverage.dropped_events);
    if let Some(reason) = &coverage.records_untrusted {
        page.field(1, "Untrusted records", quote::escape(reason));
    }
    page.heading(1, "Found first by");
    page.count(2, "Preload", coverage.layers.preload);
    page.count(2, "Wait", coverage.layers.wait);
    page.count(2, "Subreaper", coverage.layers.subreaper);
    page.count(2, "Scan", coverage.layers.scan);
    match (&coverage.connector_absent, coverage.layers.connector) {
        (Some(reason), None) => {
            page.field(2, "Connector", format_args!("{UNKNOWN} ({})", quote::escape(reason)))
        }
        (_, found) => page.count(2, "Connector", found),
    }
    page.heading(1, "Peak RSS");
    page.field(2, "Exact", coverage.peaks.exact);
    page.field(2, "Sampled", coverage.peaks.sampled);
    page.field(2, "Upper bound", coverage.peaks.bound);
    page.field(2, "Unknown", coverage.peaks.unknown);
    list(page, 1, "Static executables", &coverage.static_executables);
}

fn list(page: &mut Page, level: usize, label: &str, items: &[String]) {
    if items.is_empty() {
        return page.field(level, label, "none");
    }
    page.heading(level, label);
    for item in items {
        page.item(level + 1, &quote::escape(item));
    }
}

/// Says what a table of [`MOST_ROWS`] left out.
pub(super) fn more(page: &mut Page, of: usize) {
    if of > MOST_ROWS {
        page.line(2, format_args!("... and {} more", of - MOST_ROWS));
    }
}

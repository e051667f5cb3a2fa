//! Where the command ran: host, limits, and its own cgroup.

use super::super::quote;
use super::super::timestamp::rfc3339;
use super::format::UNKNOWN;
use super::page::Page;
use super::units::{Units, unit_that_fits};
use crate::model::report::{Cgroup, Limit, Limits, Report};

/// ulimits that are shown: those that can end a job.
const SHOWN: [&str; 6] =
    ["address_space_bytes", "cpu_s", "data_bytes", "file_size_bytes", "open_files", "processes"];

pub(super) fn host(page: &mut Page, report: &Report) {
    let known = |name: &Option<String>| name.as_deref().map_or_else(|| UNKNOWN.to_owned(), quote::escape);
    page.heading(0, "Host");
    page.field(1, "Name", known(&report.host.hostname));
    page.field(1, "Kernel", known(&report.host.kernel));
    page.field(1, "Started at", rfc3339(report.started_at));
}

/// A ulimit, or a limit of tasks, that is not set has no line.
pub(super) fn limits(page: &mut Page, limits: &Limits) {
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

/// Nothing without `--cgroup`.
pub(super) fn cgroup(page: &mut Page, cgroup: Option<&Cgroup>, units: Units) {
    let Some(cgroup) = cgroup else { return };
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

//! Where the command ran: host, limits, and its own cgroup.

use super::page::Page;
use super::units::Units;
use super::usage;
use crate::model::report::Report;
use crate::model::report::{Cgroup, Limits, Usable};
use crate::model::timestamp::rfc3339;
use crate::quote;

/// ulimits that are shown: those that can end a job.
const SHOWN: [&str; 6] =
    ["address_space_bytes", "cpu_s", "data_bytes", "file_size_bytes", "open_files", "processes"];

pub(super) fn host(page: &mut Page, report: &Report) {
    page.heading(0, "Host");
    for (label, name) in [("Name", &report.host.hostname), ("Kernel", &report.host.kernel)] {
        if let Some(name) = name {
            page.field(1, label, quote::escape(name));
        }
    }
    page.field(1, "Started at", rfc3339(report.started_at));
}

/// A limit that is not set, or not known, has no line.
pub(super) fn limits(page: &mut Page, limits: &Limits, usable: &Usable, units: Units) {
    let bytes = |n: u64| {
        let unit = units.ram;
        format!("{:.3} {}", unit.convert(n as f64), unit.symbol())
    };
    page.heading(0, "Limits");
    if let Some(n) = limits.memory_bytes.known() {
        page.field(1, "Memory", bytes(n));
    }
    if let Some(n) = limits.cpu_millicores.known() {
        page.field(1, "CPU quota", format_args!("{:.3} cores", n as f64 / 1000.0));
    }
    page.count(1, "Processes and threads", limits.tasks.known());
    page.field(1, "Usable cores", usable.cores.count);
    for (name, of) in &limits.ulimits {
        if let Some(n) = of.soft.known()
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
    page.heading(0, "Cgroup");
    page.bytes(1, "Memory peak", cgroup.memory_peak_bytes, units.ram);
    page.count(1, "OOM kills", cgroup.oom_kills);
    page.seconds(1, "CPU time", cgroup.cpu_usage_s, units.time);
    usage::traffic(page, [cgroup.io_read_bytes, cgroup.io_write_bytes], units);
    if let Some(reason) = &cgroup.reason {
        page.field(1, "Not known", quote::escape(reason));
    }
}

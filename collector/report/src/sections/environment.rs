//! Where the command ran: host, limits, and its own cgroup.

use super::usage;
use crate::document::Section;
use crate::model::report::{Allowed, Cgroup, Enforcer, Report, RunLimitUse};
use crate::model::timestamp::rfc3339;
use crate::rules_in_words::with_unit;
use crate::units::Units;

/// ulimits that are shown: those that can end a job.
const SHOWN: [&str; 6] =
    ["address_space_bytes", "cpu_s", "data_bytes", "file_size_bytes", "open_files", "processes"];

pub(super) fn host(report: &Report) -> Section {
    Section::new("Host")
        .text("Name", report.host.hostname.clone())
        .text("Kernel", report.host.kernel.clone())
        .text("Started at", rfc3339(report.started_at))
}

/// Makes a row for each limit that is set and known.
pub(super) fn limits(report: &Report, units: Units) -> Section {
    let Allowed { memory_bytes, cpu_millicores, tasks, ulimits, slurm, job, .. } = &report.allowed;
    let quota = cpu_millicores.known().map(|n| format!("{:.3} cores", n as f64 / 1000.0));
    let mut section = Section::new("Limits")
        .text("Memory", memory_bytes.known().map(|bytes| units.exact_bytes(bytes)))
        .text("CPU quota", quota)
        .count("Processes and threads", tasks.known())
        .text("Usable cores", report.usable.cores.count.to_string());
    for (name, limit) in ulimits.iter().filter(|(name, _)| SHOWN.contains(&name.as_str())) {
        let Some(n) = limit.soft.known() else { continue };
        // The last word of a name is its unit. `open_files` and `processes` have none.
        let (name, unit) = name.rsplit_once('_').filter(|(_, unit)| *unit != "files").unwrap_or((name, ""));
        let value = if unit == "bytes" { units.exact_bytes(n) } else { format!("{n} {unit}") };
        section = section.text(format!("ulimit {}", name.replace('_', " ")), value.trim_end().to_owned());
    }
    slurm.iter().chain(job).fold(section, |section, (name, value)| section.text(name, value.clone()))
}

/// Makes a row for each limit that the user set for the run.
pub(super) fn run_limits(report: &Report, units: Units) -> Section {
    let row = |limit: &RunLimitUse| {
        let action = if limit.action == "end" { "ends all processes" } else { &limit.action };
        let how = match (limit.enforced_by, &limit.reason) {
            (_, Some(reason)) => format!(" ({reason})"),
            (Enforcer::Kernel, None) => " (held by the kernel)".to_owned(),
            _ => String::new(),
        };
        let exceeded = match (limit.allowed, limit.exceeded_at_s) {
            // The limit is a percentage of something, such as the usable memory, whose size is unknown.
            (None, _) => "did not act: the whole is not known".to_owned(),
            (_, None) => "not exceeded".to_owned(),
            (_, Some(at_s)) => {
                let amount =
                    limit.amount.map(|n| format!(": {}", with_unit(n, Some(limit.unit), Some(units))));
                format!("exceeded {}{}", units.after_the_start(at_s), amount.unwrap_or_default())
            }
        };
        format!("{action}{how}; {exceeded}")
    };
    let limits = report.run_limits.iter();
    limits.fold(Section::new("Limits of the run"), |section, limit| section.text(&limit.limit, row(limit)))
}

/// Makes the rows about the command's own cgroup; none without `--cgroup`.
pub(super) fn cgroup(cgroup: Option<&Cgroup>, units: Units) -> Section {
    let section = Section::new("Cgroup");
    let Some(cgroup) = cgroup else { return section };
    let section = section
        .bytes("Memory peak", cgroup.memory_peak_bytes, units.ram)
        .count("OOM kills", cgroup.oom_kills)
        .seconds("CPU time", cgroup.cpu_usage_s, units.time);
    usage::traffic(section, [cgroup.io_read_bytes, cgroup.io_write_bytes], units)
        .text("Not known", cgroup.reason.clone())
}

//! Pressure on CPU, memory and I/O, a CPU quota, and memory beside RAM.

use super::super::figures::{bytes, short, thousands};
use crate::document::{Block, Section};
use crate::model::report::{CpuQuota, Pressure, Report, ResourceStalls, Stall};
use crate::units::Units;

/// When the summary tells of them.
struct Policy;

impl Policy {
    /// The part of the quota's periods in which it was used up. Below that, a program with several threads hardly notices it.
    const LEAST_THROTTLED_PART: f64 = 0.05;
    /// The part of the time in which all tasks stood still for lack of memory. Reclaim at the start of a large program is below it.
    const LEAST_STALLED_PART: f64 = 0.01;
}

/// Makes the section of pressure and of a CPU quota; empty if nothing was read.
pub(super) fn section(report: &Report, units: Units) -> Section {
    let pressure = &report.pressure;
    let section = Section::new("Pressure and quota");
    if pressure.since_s.is_none() {
        // A short run has none, which needs no line.
        return section;
    }
    let section = of_group(section, "machine", &pressure.machine, units);
    let section = of_group(section, "cgroup", &pressure.cgroup, units)
        .text("Cgroup", pressure.cgroup_name.clone())
        .text("Unknown", pressure.reason.clone());
    section.text("CPU quota", quota(&pressure.quota, units))
}

/// Adds the rows of a machine or cgroup.
fn of_group(section: Section, name: &str, stalls: &ResourceStalls, units: Units) -> Section {
    [("CPU", stalls.cpu), ("Memory", stalls.memory), ("I/O", stalls.io)].into_iter().fold(
        section,
        |section, (resource, Stall { some_s, full_s })| {
            let full = full_s.map(|full_s| format!(", all {}", units.seconds(full_s)));
            let text = some_s.map(|some_s| {
                format!("some tasks waited {}{}", units.seconds(some_s), full.unwrap_or_default())
            });
            section.text(format!("{resource}, {name}"), text)
        },
    )
}

/// Says what a quota withheld. `None`: there is no quota, or it is unknown.
fn quota(quota: &CpuQuota, units: Units) -> Option<String> {
    let (throttled, all) = Option::zip(quota.throttled_periods, quota.periods)?;
    let withheld = units.seconds(quota.throttled_s?);
    let group = quota.cgroup.as_deref().unwrap_or_default();
    let periods = format!("{} of {} periods", thousands(throttled as f64), thousands(all as f64));
    Some(format!("used up in {periods}, {withheld} withheld ({group})"))
}

/// Makes the section of swap and of what a cgroup is charged for; empty if there was no swap and there is no such group.
pub(super) fn beside_ram(report: &Report, units: Units) -> Section {
    let swap = &report.swap;
    let with_ram = swap.with_ram_peak_bytes.filter(|_| swap.peak_bytes.is_some_and(|peak| peak > 0));
    let section = Section::new("Memory beside RAM")
        .text(
            "Swap peak (sampled)",
            swap.peak_bytes.filter(|peak| *peak > 0).map(|peak| units.exact_bytes(peak)),
        )
        .text("RAM and swap peak", with_ram.map(|peak| units.exact_bytes(peak)));
    let Some(memory) = &report.cgroup_memory else { return section };
    section
        .text("Cgroup", memory.cgroup.clone())
        .text("Page cache at the end", memory.page_cache_bytes.map(bytes))
        .text("Of it tmpfs and shared", memory.shmem_bytes.map(bytes))
        .text("Of it mapped", memory.mapped_file_bytes.map(bytes))
}

/// Makes the summary's row of what held the run up. `None`: nothing did so notably.
pub(super) fn row(report: &Report, units: Units) -> Option<Block> {
    let parts = [throttled(&report.pressure, units), stalled(&report.pressure), swapped(report, units)];
    let parts: Vec<_> = parts.into_iter().flatten().collect();
    (!parts.is_empty()).then(|| Block::text("Held up", parts.join(", ")))
}

/// Says that a CPU quota was used up.
fn throttled(pressure: &Pressure, units: Units) -> Option<String> {
    let part = pressure.quota.throttled_part().filter(|part| *part > Policy::LEAST_THROTTLED_PART)?;
    let withheld = units.seconds(pressure.quota.throttled_s?);
    Some(format!("CPU quota used up in {} % of its periods ({withheld} withheld)", short(part * 100.0)))
}

/// Says that all tasks stood still for lack of memory: those of the cgroup, or else those of the machine.
fn stalled(pressure: &Pressure) -> Option<String> {
    let measured_s = pressure.measured_s.filter(|measured_s| *measured_s > 0.0)?;
    let groups = [(&pressure.cgroup, ""), (&pressure.machine, " (of the machine)")];
    groups.into_iter().find_map(|(stalls, of)| {
        let part = stalls.memory.full_s? / measured_s;
        let is_much = part > Policy::LEAST_STALLED_PART;
        is_much.then(|| format!("all waited for memory {} % of the time{of}", short(part * 100.0)))
    })
}

/// Says that memory of the run was in swap.
fn swapped(report: &Report, units: Units) -> Option<String> {
    let peak = report.swap.peak_bytes.filter(|peak| *peak > 0)?;
    Some(format!("{} in swap", units.bytes(peak)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::report::Swap;
    use crate::model::style::Style;

    /// The summary's row of this report, as text.
    fn text(report: &Report) -> Option<String> {
        let units = Units::choose(report, &Style::default());
        let Some(Block::Row(_, cells)) = row(report, units) else { return None };
        match &cells[..] {
            [crate::document::Cell::Text(_, text)] => Some(text.clone()),
            _ => panic!("one cell"),
        }
    }

    // Requirement: STALL-4
    #[test]
    fn summary_tells_of_quota_memory_and_swap_only_where_they_matter() {
        let quiet = Report {
            pressure: Pressure::default(),
            swap: Swap { peak_bytes: Some(0), ..Swap::default() },
            ..gpu_track_core::fixtures::full()
        };
        assert_eq!(text(&quiet), None);
        let pressure = |throttled_periods, cgroup_s, machine_s| {
            let memory = |full_s| ResourceStalls {
                memory: Stall { some_s: full_s, full_s },
                ..ResourceStalls::default()
            };
            Pressure {
                measured_s: Some(10.0),
                cgroup: memory(cgroup_s),
                machine: memory(machine_s),
                quota: CpuQuota {
                    periods: Some(100),
                    throttled_periods: Some(throttled_periods),
                    throttled_s: Some(4.0),
                    ..CpuQuota::default()
                },
                ..Pressure::default()
            }
        };
        let with = |pressure| text(&Report { pressure, ..quiet.clone() });
        assert_eq!(with(pressure(5, Some(0.1), Some(0.1))), None);
        let found = with(pressure(6, Some(0.2), Some(0.5))).unwrap();
        assert!(found.starts_with("CPU quota used up in 6.00 % of its periods ("), "{found}");
        assert!(found.ends_with(", all waited for memory 2.00 % of the time"), "{found}");
        let found = with(pressure(0, None, Some(0.5))).unwrap();
        assert_eq!(found, "all waited for memory 5.00 % of the time (of the machine)");
        let swap = Swap { peak_bytes: Some(300_000_000), ..Swap::default() };
        assert!(text(&Report { swap, ..quiet }).unwrap().ends_with(" in swap"));
    }
}

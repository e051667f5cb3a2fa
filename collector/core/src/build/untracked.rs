//! What is left of a report where tracking could not begin: what wait4(2) tells the command's parent.

use crate::model::groups::Groups;
use crate::model::report::{Contention, Hints, Percent, Report, Series, SetRam, Swap};

/// The reason for all that is unknown.
const REASON: &str = "the run was not tracked";

/// Makes all figures of a report unknown, except those that wait4(2) told the command's parent. The only RAM left is that of one
/// process (`largest_rss_bytes`). What other processes held at that time is unknown.
pub(super) fn keep_what_a_parent_knows(report: &mut Report, largest_rss_bytes: Option<u64>) {
    let unknown = || SetRam { footprint_bytes: None, private_bytes: None, shared_bytes: None };
    report.max_ram.main = unknown();
    report.max_ram.descendants = unknown();
    report.max_ram.combined = SetRam { footprint_bytes: largest_rss_bytes, ..unknown() };
    // One process held this much, so it is a lower bound of the tree's largest RAM.
    report.coverage.ram_floor_bytes = largest_rss_bytes;
    report.coverage.private_ram_reason = Some(REASON.into());
    report.coverage.connector_absent = Some(REASON.into());
    report.max_ram_at_most = Groups::default();
    report.mean_ram_bytes = Groups::default();
    report.max_ram_proportional.reason = Some(REASON.into());
    report.peak = None;
    report.series = Series::default();

    // Only samples show the largest utilisation and number of threads.
    report.cpu.main = Percent::default();
    report.cpu.descendants = Percent::default();
    report.cpu.combined.max_sum = None;
    report.cpu.main_threads = None;
    report.cpu.descendants_threads = None;
    report.cpu.combined_threads = None;
    report.time_spent = None;
    report.io.calls_reason = Some(REASON.into());
    report.swap = Swap { reason: Some(REASON.into()), ..Swap::default() };
    report.pressure.reason = Some(REASON.into());
    report.pressure.quota.reason = Some(REASON.into());
    report.contention = Contention { reason: Some(REASON.into()), ..Contention::default() };

    // The launcher waited for some processes only. How many others there were, and how they ended, is unknown.
    report.crashes = None;
    report.cpu_time.unattributed_s = None;
    report.processes.max_concurrent = None;
    report.processes.by_command.clear();
    report.processes.calls_reason = Some(REASON.into());
    report.processes.heaviest.clear();
    report.tasks.clear();
    report.hints = Hints { withheld: Some(REASON.into()), ..Hints::default() };
}

//! What is left of a report where tracking could not begin: what wait4(2) tells the command's parent.

use crate::model::groups::Groups;
use crate::model::report::{Hints, Percent, Report, SetRam};

/// Makes everything else unknown. The largest RSS of one process is no more than that: it is known neither whose it was, nor
/// what others had just then.
pub(super) fn keep_what_a_parent_knows(report: &mut Report) {
    let unknown = || SetRam { footprint_bytes: None, private_bytes: None, shared_bytes: None };
    let largest = report.max_ram.combined.footprint_bytes;
    report.max_ram.main = unknown();
    report.max_ram.descendants = unknown();
    report.max_ram.combined = SetRam { footprint_bytes: largest, ..unknown() };
    report.coverage.ram_floor_bytes = largest;
    report.max_ram_at_most = Groups::default();
    report.mean_ram_bytes = Groups::default();

    // Most at one time is a matter of samples.
    report.cpu.main = Percent::default();
    report.cpu.descendants = Percent::default();
    report.cpu.combined.max_sum = None;
    report.cpu.main_threads = None;
    report.cpu.descendants_threads = None;
    report.cpu.combined_threads = None;

    report.processes.by_command.clear();
    report.processes.heaviest.clear();
    report.hints = Hints { withheld: Some("the run was not tracked".into()), ..Hints::default() };
}

//! What each form of a report says, as data: pure functions of the report.

pub(super) mod cause;
mod coverage;
mod environment;
mod gpus;
mod headline;
pub(super) mod next_job;
mod processes;
mod usage;

use super::document::{Block, Section};
use super::gpu_tracker;
use super::units::Units;
use crate::report::Report;

/// All that there is to say.
pub(super) fn full(report: &Report, units: Units) -> Vec<Block> {
    let evidence = report.ending.cause.as_ref().and_then(|cause| cause::evidence(cause, units));
    let evidence: Vec<_> = evidence.into_iter().collect();
    let warnings: Vec<_> = report.warnings.iter().map(|warning| warning.text.clone()).collect();
    let mut sections = vec![Section::list("Evidence", evidence)];
    sections.extend(gpu_tracker::sections(report, units));
    sections.extend([
        usage::cpu_time(report, units),
        usage::mean_ram(report.mean_ram_bytes, units),
        usage::max_ram_proportional(&report.max_ram_proportional, units),
        usage::peak(report.peak.as_ref(), units),
        usage::io(report, units),
        usage::faults(report),
        usage::switches(report),
        processes::processes(&report.processes, units),
        environment::cgroup(report.cgroup.as_ref(), units),
        gpus::gpus(&report.gpus, units),
        environment::host(report),
        environment::limits(report, units),
        next_job::next_job(&report.hints, units),
        coverage::coverage(&report.coverage),
        Section::list("Warnings", warnings),
    ]);
    let headline = Block::Headline(headline::headline(report));
    std::iter::once(headline).chain(sections.into_iter().map(Block::Section)).collect()
}

//! What each form of a report says, as data: pure functions of the report.

mod alerts;
pub(crate) mod cause;
mod containers;
mod contention;
mod coverage;
mod crashes;
mod environment;
mod gpus;
mod headline;
mod next_job;
mod nodes;
mod pressure;
mod processes;
mod tasks;
mod time_spent;
mod usage;
mod warnings;

use super::document::{Block, Section, Tone};
use super::gpu_tracker;
use super::units::Units;
use crate::model::report::{Cause, Report};
use crate::model::style::Style;
pub(crate) use headline::brief_end;
pub(crate) use next_job::slurm_options;
pub(crate) use processes::most_at_once;
pub(crate) use usage::busy_cores;

/// Maximum number of lines of evidence in the summary.
const MOST_EVIDENCE: usize = 3;

/// The command that shows all of a kept report.
const SHOW_KEPT: &str = "gpu-track-run --last --full";

/// Makes the headline and all sections of the full text.
pub(super) fn full(report: &Report, units: Units) -> Vec<Block> {
    let mut sections = vec![Section::list("Evidence", evidence(report, units).into_iter().collect())];
    sections.extend(usage_sections(report, units));
    sections.extend([
        tasks::section(report, units, usize::MAX),
        containers::section(report, units, usize::MAX),
        processes::processes(report, units),
        crashes::section(report),
    ]);
    sections.push(environment::cgroup(report.cgroup.as_ref(), units));
    sections.push(gpus::gpus(&report.gpus, units));
    sections.extend(circumstances(report, units));
    sections.push(warnings::warnings(report));
    let headline = headline::full(report, units);
    std::iter::once(headline).chain(sections.into_iter().map(Block::Section)).collect()
}

/// Makes the sections of what the tree used.
fn usage_sections(report: &Report, units: Units) -> Vec<Section> {
    let mut sections = Vec::from(gpu_tracker::sections(report, units));
    sections.extend([
        time_spent::section(report, units),
        usage::cpu_time(report, units),
        contention::contention(&report.contention),
        usage::mean_ram(report, units),
        usage::max_ram_proportional(report, units),
        usage::peak(report.peak.as_ref(), units),
        pressure::beside_ram(report, units),
        pressure::section(report, units),
        usage::io(report, units),
        usage::faults(report),
        usage::switches(report),
        nodes::nodes(report, units),
        nodes::ranks(report, units),
    ]);
    sections
}

/// Makes the sections of where the command ran, what to ask for next time, and how the figures are known.
fn circumstances(report: &Report, units: Units) -> [Section; 6] {
    [
        environment::host(report),
        environment::limits(report, units),
        environment::run_limits(report, units),
        alerts::section(report, units),
        next_job::next_job(report, units),
        coverage::coverage(&report.coverage),
    ]
}

/// What an HTML page says beside its charts.
pub(super) struct Page {
    /// The command, and how it ended.
    pub(super) headline: Block,
    /// The rows of the text's summary, and two of gauges. Crashes and warnings are left out, since sections below have them in full.
    pub(super) summary: Vec<Block>,
    /// What a reader must know first.
    pub(super) alerts: [Section; 2],
    /// The processes.
    pub(super) processes: Section,
    /// The GPUs, a section for each.
    pub(super) gpus: Section,
    /// All other sections.
    pub(super) others: Vec<Section>,
}

/// Maximum number of tasks, or of containers, in the table of a page.
const TASK_ROWS: usize = 20;

/// Lines of a page for the commands that used most, with their head.
const COMMAND_LINES: usize = 7;

/// Makes what an HTML page says.
pub(super) fn page(report: &Report, units: Units, style: &Style) -> Page {
    let mut summary: Vec<Block> = evidence(report, units).map(evidence_remark).into_iter().collect();
    summary.extend(alerts::remark(report, units));
    summary.extend(usage::rows(report, units));
    summary.extend(pressure::row(report, units));
    summary.extend(usage::time_row(report, units));
    summary.extend(gpus::rows(report, units));
    summary.extend(gpus::finding_rows(report, units, usize::MAX));
    summary.extend(gpus::memory_row(report, units));
    summary.extend(nodes::rows(report, units, &mut { usize::MAX }));
    let io_row = usage::io_row(report, units);
    let mut others = usage_sections(report, units);
    if io_row.is_some() && report.io.read_calls.is_none() {
        // The row has all that the section has.
        let title = usage::io(report, units).title;
        others.retain(|section| section.title != title);
    }
    summary.extend(io_row);
    summary.extend(usage::calls_row(report, units));
    summary.extend(processes::row(report));
    summary.extend(top_tasks_or_commands(report, units, COMMAND_LINES));
    summary.extend(next_job::paragraph(report, units, style.hints));
    others.push(tasks::section(report, units, TASK_ROWS));
    others.push(containers::section(report, units, TASK_ROWS));
    others.push(environment::cgroup(report.cgroup.as_ref(), units));
    others.extend(circumstances(report, units));
    Page {
        headline: headline::brief(report, units),
        summary,
        alerts: [warnings::warnings(report), crashes::section(report)],
        processes: processes::processes(report, units),
        gpus: gpus::gpus(&report.gpus, units),
        others,
    }
}

/// A row of one line, if there is a line left for it.
fn within<T>(lines_left: &mut usize, row: Option<T>) -> Option<T> {
    let row = row.filter(|_| *lines_left > 0)?;
    *lines_left -= 1;
    Some(row)
}

/// Makes the summary: how the command ended and why, how much it used of what it might use, and by which processes. Then it says
/// what to ask for next time. Crashes, rows that a report needs only for some runs, and the commands that used most share `free_lines`
/// lines, in this order.
pub(super) fn summary(report: &Report, units: Units, style: &Style, free_lines: usize) -> Vec<Block> {
    let mut blocks = vec![headline::brief(report, units)];
    blocks.extend(evidence(report, units).map(evidence_remark));
    let crashes = crashes::remarks(report, free_lines);
    let mut lines_left = free_lines - crashes.len();
    blocks.extend(crashes);
    blocks.extend(alerts::remark(report, units));
    blocks.extend(usage::rows(report, units));
    blocks.extend(within(&mut lines_left, pressure::row(report, units)));
    blocks.extend(gpus::rows(report, units));
    let findings = gpus::finding_rows(report, units, lines_left);
    lines_left -= findings.len();
    blocks.extend(findings);
    blocks.extend(nodes::rows(report, units, &mut lines_left));
    blocks.extend(usage::io_row(report, units));
    blocks.extend(within(&mut lines_left, usage::calls_row(report, units)));
    blocks.extend(processes::row(report));
    let containers = containers::rows(report, units, lines_left);
    lines_left -= containers.len();
    blocks.extend(containers);
    blocks.extend(top_tasks_or_commands(report, units, lines_left));
    blocks.extend(next_job::paragraph(report, units, style.hints));
    blocks.extend(warnings::remarks(report, style.is_kept));
    blocks.extend(style.is_kept.then(|| Block::Paragraph("Full report", SHOW_KEPT.to_owned())));
    blocks
}

/// The summary's table of the heaviest tasks, or of commands if they say more.
fn top_tasks_or_commands(report: &Report, units: Units, most_lines: usize) -> Option<Block> {
    tasks::top(report, units, most_lines).or_else(|| processes::top_commands(report, units, most_lines))
}

fn evidence_remark(text: String) -> Block {
    Block::Remark { tone: Tone::Bad, text, most_lines: MOST_EVIDENCE }
}

/// The evidence of what ended the command, in a sentence. `None`: the headline says it all, or the cause is not known.
///
/// Where a rank of a job fails, srun and mpirun end the others by signals. So the rank that failed first, which the headline names, says
/// more than a signal does.
fn evidence(report: &Report, units: Units) -> Option<String> {
    let cause = report.ending.cause.as_ref();
    match cause {
        Some(Cause::Signal(_)) | None if nodes::first_failed(report, units).is_some() => None,
        Some(Cause::Signal(_)) | None => cause
            .and_then(|cause| cause::evidence(cause, units))
            .or_else(|| nodes::first_ended(report, units)),
        Some(cause) => cause::evidence(cause, units),
    }
}

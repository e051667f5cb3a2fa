//! The report, as it is so far and at the end, in each place that it is written to.

use std::io::{self, Write};
use std::path::Path;

use super::kept::Kept;
use super::sink::{Place, Resume, Sink};
use crate::model::config::{Config, ReportConfig, ReportTarget};
use crate::model::report::{Report, Stage};
use crate::model::style::Output;
use crate::report::format::{is_complete, render, stand_ins};
use crate::report::quote;
use crate::sinks::output::{write_atomically, write_report};

struct ReportFile {
    config: ReportConfig,
    /// `None`: it is not kept.
    kept: Option<Kept>,
}

/// Gives the sink. Every run has it.
pub(super) fn make(place: &Place) -> Vec<Box<dyn Sink>> {
    vec![Box::new(ReportFile { config: place.config.report.clone(), kept: None })]
}

/// Gives the targets of reports so far, with their paths: files, whose content is replaced each time. Their form must be able
/// to say that the run is not over, which gpu_tracker's can't.
fn early_files(config: &ReportConfig) -> impl Iterator<Item = (&ReportTarget, &Path)> {
    let complete = config.targets.iter().filter(|target| is_complete(&target.format));
    complete.filter_map(|target| Some((target, target.output.file()?)))
}

/// Whether a report can be written to any file before the run is over.
#[must_use]
pub fn has_files(config: &ReportConfig) -> bool {
    early_files(config).next().is_some()
}

/// Writes a report to the files that can have one before the run is over; not to terminals, streams, or files of gpu_tracker's
/// form.
///
/// # Errors
/// If any of them can't be written. The text names each of those, for the user.
pub fn write_files(config: &ReportConfig, report: &Report) -> io::Result<()> {
    let write = |(target, path): (&ReportTarget, &Path)| {
        write_atomically(path, render(report, target, config.style).as_bytes())
            .err()
            .map(|error| not_written(target, &error))
    };
    all_written(early_files(config).filter_map(write).collect())
}

/// Keeps the last report of a run without a collector (`--last`), and writes it to every target.
///
/// # Errors
/// If any target can't be written. The text names each of those, for the user.
pub fn write_everywhere(config: &Config, report: &Report) -> io::Result<()> {
    let kept = config.report.keep.as_ref().and_then(Kept::prepare);
    let written = ReportFile { config: config.report.clone(), kept }.report(report, report.stage);
    warn_where_report_cannot(config, report);
    written
}

fn not_written(target: &ReportTarget, error: &io::Error) -> String {
    format!("cannot write the report to {}: {error}", target.output)
}

/// Gives one error that lists the problems, if there are any.
fn all_written(problems: Vec<String>) -> io::Result<()> {
    if problems.is_empty() { Ok(()) } else { Err(io::Error::other(problems.join("; "))) }
}

/// Writes to stderr what a form without a place for warnings leaves out, such as gpu_tracker's. That is the warnings, and
/// which figures are 0 there because they are unknown.
pub(crate) fn warn_where_report_cannot(config: &Config, report: &Report) {
    // A report in any other form has its own place for warnings.
    if config.report.targets.iter().any(|target| is_complete(&target.format)) || config.tracking.disable_logs
    {
        return;
    }
    let first = config.report.targets.first();
    let stand_ins = first.and_then(|target| stand_ins(report, &target.format));
    let warnings = report.warnings.iter().map(|warning| &warning.text).chain(&stand_ins);
    let lines = warnings.map(|text| format!("WARNING:root:{}\n", quote::escape(text)));
    let _ = io::stderr().write_all(lines.collect::<String>().as_bytes());
}

impl Sink for ReportFile {
    fn name(&self) -> String {
        let places: Vec<_> = self.config.targets.iter().map(|target| target.output.to_string()).collect();
        format!("The report to {}", places.join(", "))
    }

    /// The files are replaced as a whole, so there is nothing else to open.
    fn open(&mut self, _resume: Resume) -> io::Result<()> {
        self.kept = self.config.keep.as_ref().and_then(Kept::prepare);
        Ok(())
    }

    fn wants_report(&self, stage: Stage) -> bool {
        stage != Stage::SoFar || has_files(&self.config)
    }

    /// Writes the report to every place. A report-so-far goes only to files whose form can say so, and its errors are ignored.
    fn report(&mut self, report: &Report, stage: Stage) -> io::Result<()> {
        if stage == Stage::SoFar {
            // An error is no trouble yet; the last report says so.
            let _ = write_files(&self.config, report);
            return Ok(());
        }
        // The text of the report tells the user whether the report is kept, so it is kept first.
        self.config.style.is_kept = self.kept.take().is_some_and(|kept| kept.keep(report));
        self.write(report)
    }
}

impl ReportFile {
    /// Writes the report to every target. The error names those that can't be written.
    fn write(&self, report: &Report) -> io::Result<()> {
        let mut problems = Vec::new();
        // The first report that could not be written, unless stderr is where that failed.
        let mut lost = None;
        for target in &self.config.targets {
            let text = render(report, target, self.config.style);
            if let Err(error) = write_report(&target.output, &text) {
                problems.push(not_written(target, &error));
                lost = lost.or((target.output != Output::Stderr).then_some(text));
            }
        }
        if let Some(text) = lost {
            // The run may have taken days: stderr may still be seen.
            let _ = io::stderr().write_all(text.as_bytes());
        }
        all_written(problems)
    }
}

//! Writes reports to the files and streams that the user asked for: reports so far while the command runs, then the last one.

use std::io::{self, Write};
use std::path::Path;

use super::kept::Kept;
use super::sink::{Resume, Sink, SinkContext};
use super::spare;
use crate::model::config::{Config, ReportConfig, ReportTarget};
use crate::model::report::{Report, Stage};
use crate::model::style::{Output, Style};
use crate::report::format::{TEXT_NAME, extension, is_complete, render, stand_ins};
use crate::report::quote;
use crate::sinks::output::{write_atomically, write_report};

struct ReportFile {
    config: ReportConfig,
    /// Keeps the last report. `None`: it is not kept.
    kept: Option<Kept>,
}

/// The sink. Every run has it.
pub(super) fn make(context: &SinkContext) -> Vec<Box<dyn Sink>> {
    vec![Box::new(ReportFile { config: context.config.report.clone(), kept: None })]
}

/// The targets that get reports before the run is over, with their paths: only files, because a new report replaces the old one there.
/// Their format must be able to say that the run is not over. Those of gpu_tracker, a program that users may come from, can't.
fn early_files(config: &ReportConfig) -> impl Iterator<Item = (&ReportTarget, &Path)> {
    // The report of all nodes so far is in the other files of the launcher's node.
    let is_of_launcher = config.node_part.as_ref().is_some_and(|part| !part.is_agent);
    let others = if is_of_launcher { config.targets.len().saturating_sub(1) } else { 0 };
    let complete = config.targets.iter().skip(others).filter(|target| is_complete(&target.format));
    complete.filter_map(|target| Some((target, target.output.file()?)))
}

/// Whether a report can be written to any file before the run is over.
pub fn has_files(config: &ReportConfig) -> bool {
    early_files(config).next().is_some()
}

/// Writes a report to the files that can have one before the run is over. Terminals, streams, and files in gpu_tracker's
/// format get none.
///
/// # Errors
/// If any of them can't be written. The text names each of those, for the user.
pub fn write_files(config: &ReportConfig, report: &Report) -> io::Result<()> {
    let mut problems = Vec::new();
    for (target, path) in early_files(config) {
        let text = render(report, target, config.style);
        if let Err(error) = write_atomically(path, text.as_bytes()) {
            problems.push(not_written(target, &error));
        }
    }
    fail_if_any(problems)
}

/// Keeps the last report of a run without a collector for `--last`, and writes it to every target. Warnings that no target shows
/// go to stderr.
///
/// # Errors
/// If any target can't be written. The text names each of those, for the user.
pub fn write_everywhere(config: &Config, report: &Report) -> io::Result<()> {
    let kept = config.report.keep.as_ref().and_then(Kept::prepare);
    let written = ReportFile { config: config.report.clone(), kept }.report(report, report.stage);
    print_warnings_beside_report(config, report);
    written
}

/// The line for the user about a target that can't be written.
fn not_written(target: &ReportTarget, error: &io::Error) -> String {
    format!("cannot write the report to {}: {error}", target.output)
}

/// Fails with one error that lists the problems, if there are any.
fn fail_if_any(problems: Vec<String>) -> io::Result<()> {
    if problems.is_empty() { Ok(()) } else { Err(io::Error::other(problems.join("; "))) }
}

/// Writes to stderr what gpu_tracker's format leaves out: the warnings, and which figures are 0 only because they are unknown. The lines
/// have the form of Python's logging, as those of gpu_tracker do.
///
/// Writes nothing if any report has a format with a place for warnings, or if logs are disabled.
pub(crate) fn print_warnings_beside_report(config: &Config, report: &Report) {
    if config.report.targets.iter().any(|target| is_complete(&target.format)) || config.tracking.disable_logs
    {
        return;
    }
    // All formats are gpu_tracker's here, and have the same zeros for unknown figures.
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

    /// Begins to open the directory of kept reports. The report's files are opened when they are written.
    fn open(&mut self, _resume: Resume) -> io::Result<()> {
        self.kept = self.config.keep.as_ref().and_then(Kept::prepare);
        Ok(())
    }

    fn set_report_config(&mut self, config: &ReportConfig) {
        self.config = config.clone();
        self.kept = config.keep.as_ref().and_then(Kept::prepare);
    }

    fn wants_report(&self, stage: Stage) -> bool {
        stage != Stage::SoFar || has_files(&self.config)
    }

    /// Keeps the last report, and writes it to every target. A report-so-far (one before the end of the run) goes only to
    /// [`early_files`].
    fn report(&mut self, report: &Report, stage: Stage) -> io::Result<()> {
        if stage == Stage::SoFar {
            // An error can be temporary, and if it is not, writing the last report fails, too.
            let _ = write_files(&self.config, report);
            return Ok(());
        }
        // The text of the report tells the user whether the report is kept, so it is kept first.
        self.config.style.is_kept = self.kept.take().is_some_and(|kept| kept.keep(report));
        self.write(report)
    }
}

impl ReportFile {
    /// Writes the report to every target. A report that can't be written goes to a spare place. If no target is stderr, stderr gets the
    /// summary then: the run may have taken days, so the user should at least see that.
    ///
    /// # Errors
    /// If any target can't be written. The text names each of those, and where its report is.
    fn write(&self, report: &Report) -> io::Result<()> {
        let mut problems = Vec::new();
        for target in &self.config.targets {
            let text = render(report, target, self.config.style);
            let Err(error) = write_report(&target.output, &text) else { continue };
            let problem = not_written(target, &error);
            problems.push(match target.output {
                Output::Stderr => problem,
                _ => match spare::write(&self.config.spare, &text, extension(&target.format)) {
                    Some(path) => format!("{problem}; it is in {}", path.display()),
                    None => format!("{problem}; it could not be written to any other place"),
                },
            });
        }
        let has_stderr = self.config.targets.iter().any(|target| target.output == Output::Stderr);
        if !problems.is_empty() && !has_stderr {
            let summary = ReportTarget { format: TEXT_NAME.to_owned(), output: Output::Stderr };
            let style = Style { full: false, quiet: false, ..self.config.style };
            let _ = write_report(&summary.output, &render(report, &summary, style));
        }
        fail_if_any(problems)
    }
}

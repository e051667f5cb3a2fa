//! The report, as it is so far and at the end.

use std::io::{self, Write};

use super::sink::{Place, Resume, Sink};
use crate::model::config::ReportConfig;
use crate::model::report::{Report, Stage};
use crate::model::style::Output;
use crate::report::format::{is_complete, render};
use crate::sinks::output::{write_atomically, write_report};

struct ReportFile {
    config: ReportConfig,
}

pub(super) fn make(place: &Place) -> Option<Box<dyn Sink>> {
    Some(Box::new(ReportFile { config: place.config.report.clone() }))
}

impl Sink for ReportFile {
    fn name(&self) -> String {
        format!("The report to {}", self.config.output)
    }

    /// The file is replaced as a whole, so there is nothing to open.
    fn open(&mut self, _resume: Resume) -> io::Result<()> {
        Ok(())
    }

    /// gpu_tracker's form cannot say that it is unfinished.
    fn wants_report(&self, stage: Stage) -> bool {
        let is_file = matches!(self.config.output, Output::File(_));
        stage != Stage::SoFar || (is_file && is_complete(&self.config.format))
    }

    fn report(&mut self, report: &Report, stage: Stage) -> io::Result<()> {
        let text = render(report, &self.config);
        match (&self.config.output, stage) {
            (Output::File(path), Stage::SoFar) => {
                // A report-so-far that can't be written is no trouble yet; the final one says so.
                let _ = write_atomically(path, text.as_bytes());
                Ok(())
            }
            (output, _) => write_report(output, &text).inspect_err(|_| {
                // The run may have taken days: stderr may still be seen.
                if !matches!(output, Output::Stderr) {
                    let _ = io::stderr().write_all(text.as_bytes());
                }
            }),
        }
    }
}

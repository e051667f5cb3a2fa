//! What the checks work with.

use std::path::{Path, PathBuf};

use crate::nvml::Nvml;
use crate::pauses::Times;
use crate::process;
use crate::report::{self, Report};
use crate::results::Results;

/// What the checks work with.
pub(crate) struct Check<'a> {
    /// The driver.
    pub nvml: &'a Nvml,
    /// The gpu-track-run that is checked.
    pub tracker: &'a Path,
    /// How long they take.
    pub times: Times,
}

impl Check<'_> {
    /// The report on a part with these arguments.
    pub(super) fn tracked(
        &self,
        results: &mut Results,
        part: &str,
        arguments: &[String],
        options: &[&str],
    ) -> Option<Report> {
        report::tracked(results, self.tracker, options, &process::part(part, arguments), &[])
    }
}

/// A file for what a part writes. It is removed when this is dropped.
pub(super) struct Answer(pub PathBuf);

impl Answer {
    pub(super) fn new(name: &str) -> Self {
        Self(std::env::temp_dir().join(format!("gpu-check.{}.{name}", std::process::id())))
    }

    pub(super) fn path(&self) -> String {
        self.0.display().to_string()
    }

    pub(super) fn numbers(&self) -> Vec<f64> {
        process::numbers(&self.0)
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Milliseconds, for a part's command line.
pub(super) fn ms(time: std::time::Duration) -> String {
    time.as_millis().to_string()
}

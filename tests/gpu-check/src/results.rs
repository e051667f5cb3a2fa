//! Prints what the checks find, keeps it in a log, and counts failures.

use std::fmt::Display;
use std::fs::File;
use std::io::Write;
use std::path::Path;

/// A figure in the output.
pub(crate) fn shown<T: Display>(figure: Option<T>) -> String {
    figure.map_or_else(|| "n/a".to_owned(), |figure| figure.to_string())
}

/// A figure in the output, with two decimals.
pub(crate) fn rounded(figure: Option<f64>) -> String {
    shown(figure.map(|figure| format!("{figure:.2}")))
}

/// The lines of the output, one for each check.
pub(crate) struct Results {
    log: Option<File>,
    /// Names of the checks that failed.
    pub failures: Vec<String>,
    /// How many checks were made.
    pub checks: u32,
}

impl Results {
    /// With a log at this path, if it can be written.
    pub(crate) fn new(log: &Path) -> Self {
        let file = File::create(log);
        let failure = file.as_ref().err().map(|error| format!("no log: {}: {error}", log.display()));
        let mut results = Self { log: file.ok(), failures: Vec::new(), checks: 0 };
        if let Some(failure) = failure {
            results.line(&failure);
        }
        results
    }

    /// For another thread: lines in the same log.
    pub(crate) fn another(&self) -> Self {
        let log = self.log.as_ref().and_then(|log| log.try_clone().ok());
        Self { log, failures: Vec::new(), checks: 0 }
    }

    /// A line of the output. It is written at once, so that a time limit loses none.
    pub(crate) fn line(&mut self, text: &str) {
        let mut stdout = std::io::stdout().lock();
        let _ = writeln!(stdout, "{text}").and_then(|()| stdout.flush());
        if let Some(log) = &mut self.log {
            let _ = writeln!(log, "{text}");
        }
    }

    /// A figure that is right or wrong.
    pub(crate) fn check(&mut self, what: &str, is_right: bool, detail: &str) {
        self.line(&format!("{} {what}: {detail}", if is_right { "ok  " } else { "FAIL" }));
        self.checks += 1;
        if !is_right {
            self.failures.push(what.to_owned());
        }
    }

    /// A check that can't be made here.
    pub(crate) fn skip(&mut self, what: &str, reason: &str) {
        self.line(&format!("skip {what}: {reason}"));
    }

    /// Something to read that is no check.
    pub(crate) fn note(&mut self, text: &str) {
        self.line(&format!("     {text}"));
    }

    /// The last line; whether any check failed.
    pub(crate) fn summary(&mut self) -> bool {
        let failed = self.failures.join(", ");
        let text = match self.failures.len() {
            0 => format!("\nall {} right", self.checks),
            count => format!("\n{count} of {} wrong: {failed}", self.checks),
        };
        self.line(&text);
        !failed.is_empty()
    }
}

//! The forms in which a report, or the list of GPUs, is written: the values of `-f`.

use super::{json, text};
use crate::model::config::ReportConfig;
use crate::model::gpu::listing::Listing;
use crate::model::report::Report;
use crate::model::style::Style;

/// A form. Its functions are pure; what they return ends with a newline.
struct Format {
    /// Its name on the command line.
    name: &'static str,
    /// Writes a report.
    report: fn(&Report, &Style) -> String,
    /// Writes the output of `--gpus`.
    gpus: fn(&Listing) -> String,
}

/// For people, and the default.
const TEXT: Format = Format { name: "text", report: text::text, gpus: text::gpu_list::gpu_list };

/// All of them.
const FORMATS: [Format; 2] = [TEXT, Format { name: "json", report: json::json, gpus: json::gpu_list }];

/// The names of all forms, the default first.
pub fn names() -> impl Iterator<Item = &'static str> {
    FORMATS.iter().map(|format| format.name)
}

/// The report in the form that `config` asks for; of one that nobody wants to see, what went wrong with tracking.
#[must_use]
pub fn render(report: &Report, config: &ReportConfig) -> String {
    let format = if config.style.quiet { &TEXT } else { named(&config.format) };
    (format.report)(report, &config.style)
}

/// The output of `--gpus` in the form of this name.
#[must_use]
pub fn render_gpus(listing: &Listing, format: &str) -> String {
    (named(format).gpus)(listing)
}

/// The command line allows no other names.
fn named(name: &str) -> &'static Format {
    FORMATS.iter().find(|format| format.name == name).unwrap_or(&TEXT)
}

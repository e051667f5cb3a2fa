//! The forms in which a report, or the list of GPUs, is written: the values of `-f`. Two more are for users of the Python
//! program gpu_tracker 5: they have what that program writes, and nothing more.

use super::{gpu_tracker, gpustat, html, json, openmetrics, text};
use crate::metrics::MetricPoints;
use crate::model::config::ReportTarget;
use crate::model::gpu::listing::Listing;
use crate::model::report::Report;
use crate::model::style::{Console, Output, Style};

/// A form. What its functions return ends with a newline.
struct Format {
    /// Its name.
    name: &'static str,
    /// What the name of a file in this form ends in.
    extension: &'static str,
    /// Renders a report for the place to which it will be written.
    report: fn(&Report, &Style, &Output) -> String,
    /// Renders the output of `--gpus`. `None`: the form is for reports alone.
    gpus: Option<fn(&Listing) -> String>,
}

impl Format {
    /// Whether it can say that the run is not over, and has a place for warnings. gpu_tracker's forms have neither, so only the
    /// others are values of `-f`.
    fn is_complete(&self) -> bool {
        !self.name.starts_with(GPU_TRACKER)
    }
}

/// The name of the form for people.
pub const TEXT_NAME: &str = "text";

/// For people, and the default.
const TEXT: Format = Format {
    name: TEXT_NAME,
    extension: "txt",
    report: |report, style, _| text::text(report, style),
    gpus: Some(text::gpu_list::gpu_list),
};

/// The name of the form from which a report can be read back.
pub const JSON_NAME: &str = "json";

/// For programs.
const JSON: Format = Format {
    name: JSON_NAME,
    extension: "json",
    report: |report, style, _| json::json(report, style),
    gpus: Some(json::gpu_list),
};

/// For Prometheus, which scrapes it again and again.
const OPENMETRICS: Format = Format {
    name: "openmetrics",
    extension: "prom",
    report: |report, _, output| openmetrics::report(report, output.file()),
    gpus: Some(openmetrics::gpu_list),
};

/// The name of the form for a browser.
pub const HTML_NAME: &str = "html";

/// For a browser.
const HTML: Format = Format {
    name: HTML_NAME,
    extension: "html",
    report: |report, style, _| html::html(report, style),
    gpus: None,
};

/// The prefix of gpu_tracker's forms: the rest of such a name is the form of ours that it corresponds to.
pub const GPU_TRACKER: &str = "gpu_tracker ";

/// All forms.
const FORMATS: [Format; 6] = [
    TEXT,
    JSON,
    HTML,
    OPENMETRICS,
    Format { name: "gpu_tracker text", report: |report, style, _| gpu_tracker::text(report, style), ..TEXT },
    Format { name: "gpu_tracker json", report: |report, style, _| json::gpu_tracker(report, style), ..JSON },
];

/// The values of `-f`, the default first.
pub fn names() -> impl Iterator<Item = &'static str> {
    FORMATS.iter().filter(|format| format.is_complete()).map(|format| format.name)
}

/// The values of `-f` that lists of GPUs can have, too.
pub fn names_of_lists() -> impl Iterator<Item = &'static str> {
    names().filter(|name| named(name).gpus.is_some())
}

/// Where a listing is shown.
#[derive(Debug, Clone, Copy)]
pub struct Shown {
    /// It is the first of several.
    pub is_first: bool,
    /// What shows it.
    pub console: Console,
}

/// A form of `gpu-track gpus`: its name, and what renders a listing.
type GpusNow = (&'static str, fn(&Listing, Shown) -> String);

/// The forms of `gpu-track gpus`, the default first. The last four are those of other programs.
const GPUS_NOW: [GpusNow; 8] = [
    (TEXT_NAME, |listing, _| text::gpus_now::gpus_now(listing)),
    ("line", |listing, shown| text::gpus_line::gpus_line(listing, shown.console)),
    (JSON_NAME, |listing, _| json::gpu_line(listing)),
    (OPENMETRICS.name, |listing, _| openmetrics::gpu_list(listing)),
    (LIST_NAME, |listing, _| text::smi_monitors::list(listing)),
    ("gpustat", |listing, _| gpustat::gpustat(listing)),
    ("dmon", |listing, shown| text::smi_monitors::dmon(listing, shown.is_first)),
    (PMON_NAME, |listing, shown| text::smi_monitors::pmon(listing, shown.is_first)),
];

/// The name of the form with a line for each process, whose utilization is known from the second listing on.
pub const PMON_NAME: &str = "pmon";
/// The name of the form that `nvidia-smi -L` has.
pub const LIST_NAME: &str = "list";
/// Forms of `gpu-track gpus` that other programs have. They have no place for drivers that could not be read, and for warnings.
pub const FORMS_OF_OTHERS: [&str; 4] = [LIST_NAME, "gpustat", "dmon", PMON_NAME];

/// The values of `-f` of `gpu-track gpus`.
pub fn names_of_gpus_now() -> impl Iterator<Item = &'static str> {
    GPUS_NOW.into_iter().map(|(name, _)| name)
}

/// The value of `-f` for a file with this extension. `None`: no form has it.
pub fn of_extension(extension: &str) -> Option<&'static str> {
    names().find(|name| named(name).extension == extension)
}

/// The extension of a file in the form of this name.
pub fn extension(name: &str) -> &'static str {
    named(name).extension
}

/// Whether programs read a file of this form again and again during the run, so that it should never be old.
pub fn is_scraped(name: &str) -> bool {
    name == OPENMETRICS.name
}

/// Whether gpu_tracker has a form of this name, too.
pub fn is_of_gpu_tracker(name: &str) -> bool {
    FORMATS.iter().any(|format| format.name.strip_prefix(GPU_TRACKER) == Some(name))
}

/// Whether a report in the form of this name can say that the run is not over, and what to warn of.
pub fn is_complete(name: &str) -> bool {
    named(name).is_complete()
}

/// Names, in a sentence, the unknown figures that gpu_tracker's forms write as 0, since they have no word for "not known".
/// `name`: that of the form. `None`: every figure is known, or the form itself shows which are not.
pub fn stand_ins(report: &Report, name: &str) -> Option<String> {
    let unknown = if is_complete(name) { Vec::new() } else { json::unknown(report) };
    (!unknown.is_empty())
        .then(|| format!("Not known, and therefore 0 in the report: {}.", unknown.join(", ")))
}

/// Renders the report as it is written to `target`. `asked`: the style that the user asked for, such as colours, of which a target
/// may not show all. A quiet report is always text: it has what went wrong with tracking, and nothing else.
pub fn render(report: &Report, target: &ReportTarget, asked: Style) -> String {
    let style = target.style_here(asked);
    let format = if style.quiet { &TEXT } else { named(&target.format) };
    let mut text = (format.report)(report, &style, &target.output);
    if !format.is_complete() && matches!(target.output, Output::File(_)) {
        // gpu_tracker ends a file without a newline.
        text.truncate(text.trim_end_matches('\n').len());
    }
    text
}

/// Renders the page of a report with charts of `metrics`, which were collected for its points.
pub fn page_with_metrics(report: &Report, style: &Style, metrics: &MetricPoints) -> String {
    html::with_metrics(report, style, &metrics.tracks())
}

/// Renders the output of `--gpus` in the form of this name, or as text if that form has no lists.
pub fn render_gpus(listing: &Listing, format: &str) -> String {
    named(format).gpus.unwrap_or(text::gpu_list::gpu_list)(listing)
}

/// Renders the output of `gpu-track gpus` in the form of this name, or as text if there is no such form.
pub fn render_gpus_now(listing: &Listing, format: &str, shown: Shown) -> String {
    let form = GPUS_NOW.iter().find(|(name, _)| *name == format).unwrap_or(&GPUS_NOW[0]);
    (form.1)(listing, shown)
}

/// The form of this name. The command line accepts no other names; for them, this would be text.
fn named(name: &str) -> &'static Format {
    FORMATS.iter().find(|format| format.name == name).unwrap_or(&TEXT)
}

#[cfg(test)]
mod tests {
    use super::*;

    // Requirement: CMD-16
    #[test]
    fn each_form_of_gpu_tracker_is_another_one_than_ours_of_that_name() {
        assert_eq!(names().collect::<Vec<_>>(), ["text", "json", "html", "openmetrics"]);
        assert_eq!(names_of_lists().collect::<Vec<_>>(), ["text", "json", "openmetrics"]);
        let theirs: Vec<_> = names().filter(|name| is_of_gpu_tracker(name)).collect();
        assert_eq!(theirs, ["text", "json"], "gpu_tracker has no others that can be written");
        for name in theirs {
            let form = format!("{GPU_TRACKER}{name}");
            assert_eq!(
                (named(&form).name, is_complete(&form), is_complete(name)),
                (form.as_str(), false, true)
            );
        }
    }

    // Requirement: OUT-40
    #[test]
    fn file_for_prometheus_is_named_by_its_extension() {
        assert_eq!(of_extension("prom"), Some("openmetrics"));
        assert!(is_scraped("openmetrics") && !is_scraped("json"));
    }
}

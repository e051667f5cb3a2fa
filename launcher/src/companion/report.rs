//! `gpu-track report`: shows a report that was written or kept, its tasks, or how its run went over time. Of a directory, it shows a
//! table of the reports.

mod directory;
mod over_time;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::builder::PossibleValuesParser;
use clap::{Args, ValueHint};
use gpu_track_collector::model::config::{ReportConfig, ReportTarget};
use gpu_track_collector::model::style::Style;
use gpu_track_collector::report::format;
use gpu_track_collector::report::over_time::Detail;
use gpu_track_collector::report::task_table;
use gpu_track_collector::{bundle, read_recording};

use crate::cli::{self, PatternValues, ReportArgs, ReportPlaces, UsageError};
use crate::companion::{last, report_files, show};
use crate::console;
use directory::DirectoryArgs;
use over_time::TimeArgs;

/// The form for spreadsheets. Only tables have it: a report itself has none.
const CSV: &str = "csv";
/// The form for issues and pages of documentation. Only the table of tasks has it.
const MARKDOWN: &str = "markdown";

/// The arguments of `gpu-track report`.
#[derive(Debug, Args)]
// A report itself has no form in CSV.
#[command(mut_arg("format", |format| format.value_parser(PossibleValuesParser::new(names()))))]
#[command(mut_arg("outputs", |output| output.help("Write the report to FILE instead of stdout; repeatable").long_help(None)))]
// `--heaviest` is refused: a run chooses the processes in its report.
#[command(mut_arg("most_heaviest", |heaviest| heaviest.hide(true)))]
pub(super) struct ReportArguments {
    /// A report in JSON (-: stdin), a tracking file (.csv, .jsonl, .sqlite), a bundle of --record or gpu-track record, or a directory of reports [default: the newest report that was
    /// kept]
    #[arg(value_name = "FILE", value_hint = ValueHint::AnyPath)]
    file: Option<PathBuf>,

    /// Show the tasks of the run as a table: text, csv, markdown or json
    #[arg(long, conflicts_with_all = ["every", "list_events", "metrics"])]
    tasks: bool,

    #[command(flatten)]
    time: TimeArgs,
    #[command(flatten)]
    in_directory: DirectoryArgs,
    #[command(flatten)]
    places: ReportPlaces,
    #[command(flatten)]
    report: ReportArgs,
}

/// The forms that `-f` takes: those of a report, and those of tables.
fn names() -> Vec<&'static str> {
    format::names().chain([CSV, MARKDOWN]).collect()
}

/// What is read.
enum Given {
    /// The newest report that was kept.
    Newest,
    /// A directory of reports.
    Directory(PathBuf),
    /// A report, a tracking file, or a bundle of evidence.
    File(PathBuf),
}

impl Given {
    fn new(path: Option<PathBuf>) -> Self {
        match path {
            None => Self::Newest,
            Some(path) if path.is_dir() && !is_bundle(&path) => Self::Directory(path),
            Some(path) => Self::File(path),
        }
    }
}

/// What is shown of a run.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shown {
    Report,
    Tasks,
    /// The run over time, or its events.
    OverTime,
}

/// Whether a directory is a bundle of evidence.
fn is_bundle(path: &Path) -> bool {
    path.join(bundle::MANIFEST).is_file()
}

/// Shows what the arguments name on stdout, or writes it where `-o` says.
///
/// # Errors
/// If the file can't be read, it lacks what the options ask for, or a place can't be used.
pub(super) fn serve(arguments: ReportArguments) -> Result<ExitCode, UsageError> {
    let ReportArguments { file, tasks, time, in_directory, mut places, report } = arguments;
    let given = Given::new(file);
    let is_directory = matches!(given, Given::Directory(_));
    if !is_directory {
        time.check()?;
        if in_directory.sort.is_some() {
            return Err(UsageError::of_option("--sort", "only a directory of reports is sorted"));
        }
    }
    if report.chooses_heaviest() {
        let problem = "a run chooses the processes in its report: give it to gpu-track-run";
        return Err(UsageError::of_option("--heaviest", problem));
    }
    let of_one_report = report.of_one_report();
    let is_form_given = places.format.is_some();
    // A directory and the run over time are shown as tables, whose files can have different forms.
    if places.format.is_none() && names_csv(&places.outputs, tasks || time.is_any() || is_directory) {
        places.format = Some(CSV.to_owned());
    }
    if !tasks && places.format.as_deref() == Some(MARKDOWN) {
        return Err(UsageError::of_option("--format", "\"markdown\" is for --tasks"));
    }
    let shown = match tasks {
        true => Shown::Tasks,
        // Without --tasks, CSV can only mean the run over time.
        false if time.is_any() || places.format() == CSV => Shown::OverTime,
        false => Shown::Report,
    };
    let style = ReportConfig::from(report).style;
    let view = View { shown, time, places, is_form_given, style, of_one_report };
    match given {
        Given::Newest => match last::newest() {
            Ok(kept) => view.show(&kept.json, &kept.path),
            Err(problem) => Ok(console::failure(problem)),
        },
        Given::Directory(path) => view.show_directory(&path, &in_directory),
        Given::File(path) => view.show_file(path),
    }
}

/// What the options ask for.
struct View {
    shown: Shown,
    time: TimeArgs,
    places: ReportPlaces,
    /// `-f` was given.
    is_form_given: bool,
    style: Style,
    /// An option that only a report takes.
    of_one_report: Option<&'static str>,
}

impl View {
    /// Shows a directory of reports.
    fn show_directory(&self, path: &Path, options: &DirectoryArgs) -> Result<ExitCode, UsageError> {
        if self.shown == Shown::Tasks || self.time.is_any() || self.time.has_metrics() {
            let problem =
                "is a directory of reports: --tasks, --every, --list-events and --metrics are for one run";
            return Err(UsageError::of_path(path, problem));
        }
        self.check_table()?;
        self.time.check_date()?;
        directory::show(path, options, self)
    }

    /// Shows what is asked for of a report, a tracking file, or a bundle.
    fn show_file(&self, path: PathBuf) -> Result<ExitCode, UsageError> {
        let path = match is_bundle(&path) {
            true if self.shown == Shown::OverTime => path.join(bundle::tail_of(&path)),
            true => path.join(bundle::REPORT),
            false => path,
        };
        let problem = |problem: String| UsageError::of_path(&path, problem);
        // `None` if the file's name is not that of a tracking file. A tracking file can have a report, too.
        if let Some(recording) = read_recording(&path, Detail::Points) {
            let recording = recording.map_err(problem)?;
            let report = recording.report_of_nodes.as_ref().or(recording.report.as_ref());
            return match report.filter(|_| self.shown != Shown::OverTime) {
                Some(json) => self.show(json, &path),
                None if self.shown == Shown::Tasks => {
                    Err(UsageError::of_path(&path, "has no report, and so no tasks"))
                }
                None => {
                    self.check_table()?;
                    self.show_recording(recording, &path)
                }
            };
        }
        self.show(&report_files::text(&path)?, &path)
    }

    /// Shows what is asked for of the report `json`, which was read from `path`.
    fn show(&self, json: &str, path: &Path) -> Result<ExitCode, UsageError> {
        match self.shown {
            Shown::Tasks => self.show_tasks(json, path),
            Shown::OverTime => {
                self.check_table()?;
                self.show_over_time(json, path)
            }
            // --metrics adds charts to the page of a report.
            Shown::Report if self.time.has_metrics() => self.show_page(json, path),
            Shown::Report => show::report(json, path.display(), &self.places, self.style),
        }
    }

    /// Shows the tasks that the report `json` has, which was read from `path`.
    ///
    /// # Errors
    /// If it is no report or has no tasks, or an option or a place can't be used.
    fn show_tasks(&self, json: &str, path: &Path) -> Result<ExitCode, UsageError> {
        let report = report_files::parsed(json, path)?.report;
        if report.tasks.is_empty() {
            return Err(UsageError::of_path(
                path,
                "has no tasks: its run had none, or a version without them wrote it",
            ));
        }
        self.check_forms(&[format::TEXT_NAME, format::JSON_NAME, CSV, MARKDOWN])?;
        self.write(|form| match form {
            CSV => task_table::csv(&report),
            MARKDOWN => task_table::markdown(&report),
            format::JSON_NAME => task_table::json(&report),
            _ => task_table::text(&report),
        })
    }

    /// Checks that a table of runs, points or events can be written as asked: as text, JSON or CSV.
    ///
    /// # Errors
    /// As [`Self::check_forms`].
    fn check_table(&self) -> Result<(), UsageError> {
        self.check_forms(&[format::TEXT_NAME, format::JSON_NAME, CSV])
    }

    /// Checks that a table can be written as asked: each place has one of these forms, and no option is given that says how one report
    /// is written.
    ///
    /// # Errors
    /// If there is such an option, a place has another form, or can't be written to.
    fn check_forms(&self, forms: &[&str]) -> Result<(), UsageError> {
        if let Some(option) = self.of_one_report {
            let problem = "it says how one report is written, and a table is asked for";
            return Err(UsageError::of_option(option, problem));
        }
        let check = |form: &str| match forms.contains(&form) {
            true => Ok(()),
            false => Err(UsageError::of_option(
                "--format",
                format_args!("\"{form}\" is for one report: {}", one_of(forms)),
            )),
        };
        if self.places.outputs.is_empty() {
            return check(self.places.format());
        }
        cli::targets(&self.places, &PatternValues::here())?
            .iter()
            .try_for_each(|target| check(self.form(target)))
    }

    /// The form in a place: CSV if its file ends in `.csv`, else the target's format. `-f` beside a single `-o` is about that file.
    fn form<'a>(&self, target: &'a ReportTarget) -> &'a str {
        let is_csv = target.output.file().and_then(Path::extension).is_some_and(|extension| extension == CSV);
        let is_chosen = self.is_form_given && self.places.outputs.len() == 1;
        if is_csv && !is_chosen { CSV } else { &target.format }
    }

    /// Writes to stdout, or to each place that `-o` names, what `text` gives for the form of that place. If writing fails, a line on
    /// stderr says so, and the status is 1.
    ///
    /// # Errors
    /// If a place of `-o` can't be used.
    fn write(&self, text: impl Fn(&str) -> String) -> Result<ExitCode, UsageError> {
        if self.places.outputs.is_empty() {
            return Ok(console::print(&text(self.places.format())));
        }
        let targets = cli::targets(&self.places, &PatternValues::here())?;
        Ok(console::write(targets.iter().map(|target| (&target.output, text(self.form(target))))))
    }
}

/// Whether the names of the outputs ask for CSV: all of them, or at least one where tables are shown (`has_tables`).
fn names_csv(outputs: &[PathBuf], has_tables: bool) -> bool {
    let is_csv = |output: &PathBuf| output.extension().is_some_and(|extension| extension == CSV);
    let are_all_csv = !outputs.is_empty() && outputs.iter().all(is_csv);
    are_all_csv || (has_tables && outputs.iter().any(is_csv))
}

/// Lists forms: `text, json or csv`.
fn one_of(forms: &[&str]) -> String {
    match forms.split_last() {
        Some((last, others)) => format!("{} or {last}", others.join(", ")),
        None => String::new(),
    }
}

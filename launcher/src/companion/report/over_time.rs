//! A run over time and its events, from a tracking file or a report.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueHint};
use gpu_track_collector::read_metrics;
use gpu_track_collector::report::events::{self, Event, Filter, Kind};
use gpu_track_collector::report::format;
use gpu_track_collector::report::metrics::MetricPoints;
use gpu_track_collector::report::over_time::{self, Clock, OverTime, Recording};
use gpu_track_collector::report::read::{ReadReport, read as read_report};

use super::{CSV, View};
use crate::cli::{self, PatternValues, UsageError};
use crate::companion::report_files;
use crate::console::message;

/// The options that ask for the run over time, or its events, in place of the report.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Over time")]
pub(super) struct TimeArgs {
    /// Show the run over time, with a point every TIME. As text, that is the minimum, mean and maximum of each quantity; -f csv
    /// and -f json have the points
    #[arg(long, value_name = "TIME", allow_negative_numbers = true, value_parser = cli::interval)]
    every: Option<Duration>,

    /// Add metrics of FILE, which gpu_track.metric() wrote: to each point of --every the last value until its end, and to the page
    /// (-f html) a chart of each; repeatable
    #[arg(long, value_name = "FILE", conflicts_with = "list_events", value_hint = ValueHint::FilePath)]
    metrics: Vec<PathBuf>,

    /// List what happened: starts and ends of processes, the RAM peak, and what alerts and limits did. Processes are in .jsonl and .sqlite
    #[arg(long, conflicts_with = "every")]
    list_events: bool,

    /// List events from this time on, after the start of the run. Of a directory: the runs that started in the last WHEN (7d, 12h), or
    /// since a date (2026-11-01) or time, in UTC
    #[arg(long, value_name = "WHEN", allow_negative_numbers = true, value_parser = since)]
    since: Option<Since>,

    /// List events of these kinds
    #[arg(long = "type", value_name = "KIND,...", value_delimiter = ',',
          value_parser = PossibleValuesParser::new(Kind::all().map(Kind::name)).try_map(kind))]
    kinds: Vec<Kind>,

    /// List the last N events
    #[arg(long, value_name = "N")]
    last: Option<usize>,
}

/// From when on something is listed.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Since {
    /// Seconds after the start of a run, or before now.
    Seconds(f64),
    /// A date, or a time of a day.
    Date(SystemTime),
}

/// Parses from when on something is listed: seconds, numbers with units, or a date, perhaps with a time.
///
/// # Errors
/// If it has another form, as a line for the user.
fn since(given: &str) -> Result<Since, String> {
    let with_time =
        if given.len() == "2026-11-01".len() { format!("{given}T00:00:00Z") } else { given.to_owned() };
    let seconds = given.parse().ok().filter(|seconds: &f64| seconds.is_finite());
    let time = || cli::Time::Any.parse(given).ok().map(|time| time.as_secs_f64());
    let date = || humantime::parse_rfc3339_weak(&with_time).ok().map(Since::Date);
    seconds.or_else(time).map(Since::Seconds).or_else(date).ok_or_else(|| {
        format!("\"{given}\" is no time: such as 90, 1h30m or 7d, or for a directory 2026-11-01 or 2026-11-01T08:00:00")
    })
}

/// Finds the kind of events of this name.
fn kind(name: String) -> Result<Kind, String> {
    Kind::all().find(|kind| kind.name() == name).ok_or(name)
}

impl TimeArgs {
    /// Whether the run over time or its events are asked for, in place of the report.
    pub(super) fn is_any(&self) -> bool {
        self.every.is_some() || self.list_events
    }

    /// Whether metrics are asked for.
    pub(super) fn has_metrics(&self) -> bool {
        !self.metrics.is_empty()
    }

    /// Checks that options which choose events come with `--list-events`.
    ///
    /// # Errors
    /// If they come without.
    pub(super) fn check(&self) -> Result<(), UsageError> {
        if let (Some(Since::Date(_)), true) = (self.since, self.list_events) {
            return Err(UsageError::of_option("--since", "a date is for a directory of reports"));
        }
        let chooses = self.since.is_some() || !self.kinds.is_empty() || self.last.is_some();
        match chooses && !self.list_events {
            true => Err(UsageError::new("--since, --type and --last choose events: give --list-events, too")),
            false => Ok(()),
        }
    }

    /// Checks the options for a directory of reports, where `--since` says how long ago runs started.
    ///
    /// # Errors
    /// If events are chosen, or that time is negative. Only events can be before a start: that of their run.
    pub(super) fn check_date(&self) -> Result<(), UsageError> {
        match self.since {
            _ if !self.kinds.is_empty() || self.last.is_some() => Err(UsageError::new(
                "--type and --last choose events of one run, not of a directory of reports",
            )),
            Some(Since::Seconds(seconds)) if seconds < 0.0 => Err(UsageError::of_option(
                "--since",
                "is how long ago a run of a directory started, such as 7d",
            )),
            _ => Ok(()),
        }
    }

    /// Since when runs are listed. `None`: all are listed.
    pub(super) fn since_date(&self) -> Option<SystemTime> {
        match self.since? {
            Since::Date(date) => Some(date),
            Since::Seconds(seconds) => {
                SystemTime::now().checked_sub(Duration::try_from_secs_f64(seconds.max(0.0)).ok()?)
            }
        }
    }

    /// Which events are listed.
    fn filter(&self) -> Filter {
        let since_s = match self.since {
            Some(Since::Seconds(seconds)) => seconds,
            _ => 0.0,
        };
        Filter { kinds: self.kinds.clone(), since_s, last: self.last }
    }
}

impl View {
    /// Shows the points or the events of a tracking file.
    ///
    /// # Errors
    /// If the file lacks what is asked for, or a place can't be used.
    pub(super) fn show_recording(&self, recording: Recording, path: &Path) -> Result<ExitCode, UsageError> {
        if !self.time.list_events {
            let has_report = recording.report.is_some() || recording.report_of_nodes.is_some();
            // Neither points nor events were asked for: a report was, or CSV, which a report can't be.
            if !self.time.is_any() && !has_report {
                message(format_args!("{} has no report: these are its points", path.display()));
            }
            return self.show_points(recording.over_time, recording.clock, path);
        }
        if recording.processes.is_none() {
            return Err(UsageError::of_path(path, "has no events: files in .jsonl and .sqlite have"));
        }
        let report =
            recording.report.as_deref().and_then(|json| read_report(json).ok()).map(|read| read.report);
        self.show_events(&events::events(&recording, report.as_ref(), &self.time.filter()))
    }

    /// Shows the points or the events that a report has. Of processes, it has only the command's events.
    ///
    /// # Errors
    /// If `json` is no report or has no points, or a place can't be used.
    pub(super) fn show_over_time(&self, json: &str, path: &Path) -> Result<ExitCode, UsageError> {
        let report = report_files::parsed(json, path)?.report;
        if self.time.list_events {
            if report.events.is_none() {
                message("a report has no events of processes: gpu-track-run --tf FILE.jsonl writes them");
            }
            return self.show_events(&events::of_report(&report, &self.time.filter()));
        }
        let points = over_time::from_report(&report);
        if points.is_empty() {
            return Err(UsageError::of_path(path, "has no points: its run was not tracked"));
        }
        message(format_args!(
            "the points are those of the report, each up to {:.3} s long: gpu-track-run --tf FILE.jsonl writes all samples",
            points.longest_s()
        ));
        self.show_points(points, Some(over_time::clock_of_report(&report)), path)
    }

    /// Shows the page (HTML) of a report, with charts of the metrics.
    ///
    /// # Errors
    /// If `json` is no report, a file of metrics can't be read, or a place is for another form or can't be used.
    pub(super) fn show_page(&self, json: &str, path: &Path) -> Result<ExitCode, UsageError> {
        let is_page = |form: &str| form == format::HTML_NAME;
        let targets = cli::targets(&self.places, &PatternValues::here())?;
        let are_pages = targets.iter().all(|target| is_page(&target.format));
        if !are_pages {
            return Err(UsageError::of_option(
                "--metrics",
                "a report has none: give --every for points, or -f html for the page",
            ));
        }
        let ReadReport { report, note } = report_files::parsed(json, path)?;
        note.iter().for_each(message);
        let points = over_time::from_report(&report);
        let metrics = read_points(&points, over_time::clock_of_report(&report), &self.time.metrics)?;
        self.write(|_| format::page_with_metrics(&report, &self.style, &metrics))
    }

    /// Writes points to each place: one for each interval of `--every` if that is given, and with metrics if there are some. `clock`:
    /// that of the points, which come from `path`; `None`: they tell none.
    ///
    /// # Errors
    /// If there are points and metrics, and no clock, a file of metrics can't be read, or a place can't be used.
    fn show_points(
        &self,
        points: OverTime,
        clock: Option<Clock>,
        path: &Path,
    ) -> Result<ExitCode, UsageError> {
        let mut points = match self.time.every {
            Some(every) => points.every(every.as_secs_f64()),
            None => points,
        };
        // A file that was just begun has no points, and may not tell its clock yet.
        if !self.time.metrics.is_empty() && !points.is_empty() {
            let no_clock = || UsageError::of_path(path, "has no time of day, which metrics need");
            let clock = clock.ok_or_else(no_clock)?;
            points = read_points(&points, clock, &self.time.metrics)?.joined(points);
        }
        self.write(|form| match form {
            format::JSON_NAME => over_time::json(&points),
            CSV => over_time::csv(&points),
            _ => over_time::text(&points),
        })
    }

    /// Writes events to stdout, or to each place of `-o`, in its form.
    fn show_events(&self, events: &[Event]) -> Result<ExitCode, UsageError> {
        self.write(|form| match form {
            format::JSON_NAME => events::json(events),
            CSV => events::csv(events),
            _ => events::text(events),
        })
    }
}

/// Reads the metrics of `files`, and matches them with points. `clock`: that of the points. Notes go to stderr.
///
/// # Errors
/// If a file can't be read.
fn read_points(points: &OverTime, clock: Clock, files: &[PathBuf]) -> Result<MetricPoints, UsageError> {
    let mut metrics = MetricPoints::new(points, clock);
    for file in files {
        read_metrics(file, |value| metrics.add(value)).map_err(UsageError::new)?.iter().for_each(message);
    }
    metrics.notes().iter().for_each(message);
    Ok(metrics)
}

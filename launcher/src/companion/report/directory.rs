//! A table of the reports in a directory and those below it.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use gpu_track_collector::bundle;
use gpu_track_collector::model::sorting::Sorting;
use gpu_track_collector::report::format;
use gpu_track_collector::report::read::read as read_report;
use gpu_track_collector::report::runs::{self, RunRow, SortBy};
use gpu_track_collector::report::study::Plan;

use super::super::report_files;
use super::super::report_files::MOST_FILES;
use super::super::study::WARMUP;
use super::{CSV, View};
use crate::cli::{self, UsageError};
use crate::console::{self, message};

/// Maximum number of directories that are looked at.
const MOST_DIRECTORIES: usize = 10_000;
/// The extension of the directory that has the reports of a run's nodes. The run's own report includes those.
const OF_NODES: &str = "d";

/// The options that choose and sort the reports of a directory.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Directory")]
pub(super) struct DirectoryArgs {
    /// Sort the reports of a directory; those with most come first [default: start]
    #[arg(long, value_name = "BY", value_parser = cli::one_of(&SortBy::ALL, SortBy::name))]
    pub(super) sort: Option<SortBy>,
}

/// Shows a table of the reports in a directory and those below it, of runs that started after `--since`. A line on stderr counts the
/// files that are no reports.
///
/// # Errors
/// If the directory can't be read or has no such report, or a place can't be used.
pub(super) fn show(directory: &Path, args: &DirectoryArgs, view: &View) -> Result<ExitCode, UsageError> {
    let problem = |problem: String| UsageError::of_path(directory, problem);
    let listed = listed(directory).map_err(|error| problem(format!("cannot be read: {error}")))?;
    let mut unreadable = Vec::new();
    let mut rows: Vec<RunRow> = Vec::new();
    for path in listed {
        // A link to a report counts as a run of this directory.
        let refuses_links = false;
        let json = report_files::read(&path, refuses_links);
        let read_error = json.as_ref().err().map(ToString::to_string);
        let json = json.unwrap_or_default();
        let name = path.strip_prefix(directory).unwrap_or(&path).to_string_lossy().into_owned();
        match read_report(&json) {
            Ok(read) => rows.push(runs::row(name, &read.report)),
            // The plan of a study lies beside its reports.
            Err(_) if Plan::read(&json).is_ok() => {}
            Err(error) => {
                unreadable.push((name, read_error.unwrap_or_else(|| format!("is no report: {error}"))))
            }
        }
    }
    if let Some((first, why)) = unreadable.iter().min() {
        message(format_args!(
            "{} of the .json files can't be read as reports, such as {first}, which {why}",
            unreadable.len()
        ));
    }
    if rows.is_empty() {
        return Err(problem("has no report in what could be read: their names end in .json".into()));
    }
    let since = view.time.since_date();
    rows.retain(|run| since.is_none_or(|since| run.started_at >= since));
    if rows.is_empty() {
        return Err(problem("has no report of a run that started so late".into()));
    }
    runs::sort(&mut rows, args.sort.unwrap_or_default());
    view.write(|form| match form {
        format::JSON_NAME => runs::json(&rows),
        CSV => runs::csv(&rows),
        _ => runs::text(&rows, console::of_stdout().columns.into()),
    })
}

/// Lists the files of a directory, and of those below it, that can be reports. Links to directories, hidden directories, and those of a
/// run's nodes, of bundles and of warm-up runs are left out. A line on stderr says what could not be looked at.
///
/// # Errors
/// If the directory itself can't be read.
fn listed(directory: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut files = report_files::in_directory(directory)?;
    let mut directories = below(directory);
    let (mut count, mut unreadable) = (0, Vec::new());
    while let Some(next) = directories.pop() {
        count += 1;
        if count > MOST_DIRECTORIES || files.len() > MOST_FILES {
            message(format_args!(
                "\"{}\" has more than {MOST_DIRECTORIES} directories or {MOST_FILES} files below it: the others are left out",
                directory.display()
            ));
            break;
        }
        match report_files::in_directory(&next) {
            Ok(found) => files.extend(found),
            Err(_) => unreadable.push(next.clone()),
        }
        directories.extend(below(&next));
    }
    if let Some(first) = unreadable.iter().min() {
        message(format_args!(
            "{} of the directories below \"{}\" can't be read, such as {}",
            unreadable.len(),
            directory.display(),
            first.strip_prefix(directory).unwrap_or(first).display()
        ));
    }
    Ok(files)
}

/// Lists the directories in a directory that can have reports of other runs, the last name first, since the caller takes them from
/// the end.
fn below(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let is_other = |path: &PathBuf| {
        let is_hidden = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'));
        // `FILE.d` beside FILE has the reports of a run's nodes.
        let is_of_nodes = path.extension().is_some_and(|extension| extension == OF_NODES)
            && path.with_extension("").is_file();
        // The runs of a study that do not count.
        let is_warmup = path.file_name().is_some_and(|name| name == WARMUP);
        !is_hidden && !is_of_nodes && !is_warmup && !path.join(bundle::MANIFEST).is_file()
    };
    let directories = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    let mut found: Vec<PathBuf> = directories.map(|entry| entry.path()).filter(is_other).collect();
    found.order_by(|a, b| b.cmp(a));
    found
}

//! `gpu-track merge`: one report of the reports of several nodes, or of several ranks.
//!
//! Each file is read twice: a first look at all files says which belong together, and then their reports are added up one by one. So
//! no more than one of them is in memory at a time.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::hash::{BuildHasher, RandomState};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{ArgAction, Args, ValueHint};
use gpu_track_collector::model::config::ReportConfig;
use gpu_track_collector::model::report::{Report, ReportFiles};
use gpu_track_collector::model::sorting::InOrder;
use gpu_track_collector::model::style::Style;
use gpu_track_collector::report::merge::{
    Head, MOST_CLOCK_OFFSET_S, MergedReport, Merger, Plan, Source, ranks_csv,
};
use gpu_track_collector::report::quote;
use gpu_track_collector::report::read::read as read_report;
use gpu_track_collector::tracking::{TrackingFile, of_nodes};
use gpu_track_collector::{output_at, write_report};

use super::report_files;
use crate::cli::{self, Naming, PatternValues, ReportArgs, ReportPlaces, UsageError};
use crate::companion::show;
use crate::console::message;

/// The extension of the file with the table of all ranks, beside a report.
pub(crate) const RANKS: &str = "ranks.csv";

/// The arguments of `gpu-track merge`.
#[derive(Debug, Args)]
pub(super) struct MergeArguments {
    /// Reports in JSON, and directories of such: those files of them whose names end in .json
    #[arg(value_name = "DIR|FILE", required = true, value_hint = ValueHint::AnyPath)]
    paths: Vec<PathBuf>,

    /// Put the clock of this node right, which is so many seconds ahead of the others (negative: behind); repeatable
    #[arg(long = "clock-offset", value_name = "NODE=SECONDS", action = ArgAction::Append, value_parser = clock_offset)]
    clock_offsets: Vec<(String, f64)>,

    /// Write the nodes, and the sums over them over time, to FILE, too: tables of a database (.sqlite), or a line with the report
    /// (.jsonl); repeatable
    #[arg(long = "tf", value_name = "FILE", value_hint = ValueHint::FilePath, action = ArgAction::Append)]
    tracking_files: Vec<PathBuf>,
    /// Replace files of --tf that exist
    #[arg(long, requires = "tracking_files")]
    overwrite: bool,

    #[command(flatten)]
    places: ReportPlaces,
    #[command(flatten)]
    report: ReportArgs,
}

/// Files that may be reports, by path. `true`: it was found in a directory, and not named by the user.
type Candidates = BTreeMap<OsString, bool>;

/// Merges the reports that the arguments name, and writes the result to stdout, or where `-o` and `--tf` say. Lines on stderr say which
/// files are left out, and what could not be written.
///
/// # Errors
/// If a directory can't be read, there is no report at all, or a place can't be used.
pub(super) fn serve(arguments: MergeArguments) -> Result<ExitCode, UsageError> {
    let MergeArguments { paths, clock_offsets, tracking_files, overwrite, places, report } = arguments;
    let patterns = PatternValues { rank_number: None, ..PatternValues::here() };
    let config = ReportConfig { targets: cli::targets(&places, &patterns)?, ..ReportConfig::from(report) };
    let (style, targets): (Style, _) = (config.style, &config.targets);
    let outputs: Vec<&Path> = config.files().collect();
    let files = files(&paths, &outputs)?;
    let naming = Naming { report: &config, patterns: &patterns };
    let tracking = cli::make_files_of_nodes(&tracking_files, overwrite, naming)?;
    let MergedReport { report, ranks } =
        merged(&files, &clock_offsets).map_err(|files| no_report(&paths, &files))?;
    if let Some(files) = report.merged.as_ref().map(|merged| &merged.files)
        && let Some(first) = files.unread_files.first()
    {
        let (all, unread) = (files.read + files.unread, files.unread);
        message(format_args!(
            "{unread} of {all} files are not in the report, such as {}: {}",
            first.file, first.reason
        ));
    }
    let status = show::written(&report, targets, &places, style);
    let are_ranks_written = ranks.is_empty() || write_ranks(&ranks_csv(&ranks), &outputs);
    // If one file can't be written, the others still are.
    let mut are_files_written = true;
    for held in &tracking {
        are_files_written &= write_tracking_file(&held.file, &report);
    }
    Ok(if are_ranks_written && are_files_written { status } else { ExitCode::FAILURE })
}

/// Writes the figures of all nodes to a tracking file. Returns whether that worked. If not, a line on stderr says why.
fn write_tracking_file(file: &TrackingFile, report: &Report) -> bool {
    let path = file.target().path;
    if report.merged.is_none() {
        message(format_args!(
            "{} is not written: there is one report, and no sum over nodes",
            path.display()
        ));
        return false;
    }
    let is_of_run = false;
    let written = of_nodes::write(file, report, is_of_run);
    written.inspect_err(|error| message(format_args!("cannot write {}: {error}", path.display()))).is_ok()
}

/// Writes the table of all ranks beside each of these reports. Returns whether all could be written. If not, lines on stderr say why.
pub(crate) fn write_ranks(csv: &str, outputs: &[&Path]) -> bool {
    let mut is_written = true;
    for path in outputs.iter().map(|path| path.with_extension(RANKS)) {
        let written = output_at(&path).and_then(|output| write_report(&output, csv));
        if let Err(error) = written {
            message(format_args!("cannot write the ranks to {}: {error}", path.display()));
            is_written = false;
        }
    }
    is_written
}

/// Merges the reports in these files of a directory.
///
/// # Errors
/// If no file has a report. The error says why not.
pub(crate) fn of_files(paths: &[PathBuf]) -> Result<MergedReport, ReportFiles> {
    merged(&paths.iter().map(|path| (path.into(), true)).collect(), &[])
}

/// Makes the error that there is no report, with the reason for the first file.
fn no_report(paths: &[PathBuf], files: &ReportFiles) -> UsageError {
    match files.unread_files.first() {
        Some(first) => UsageError::new(format_args!(
            "no report in {} file{}, such as {}: {}",
            files.unread,
            if files.unread == 1 { "" } else { "s" },
            first.file,
            first.reason
        )),
        None => {
            let first = paths.first().map(|path| path.display().to_string()).unwrap_or_default();
            UsageError::new(format_args!("\"{first}\" has no report: their names end in .json"))
        }
    }
}

/// Finds the files that the arguments `paths` stand for, by path as given. A file under two paths is found later, as a copy. In a
/// directory, the `outputs` of this merge are left out: an earlier one can have written them.
///
/// # Errors
/// If a directory can't be read.
fn files(paths: &[PathBuf], outputs: &[&Path]) -> Result<Candidates, UsageError> {
    let mut files = Candidates::new();
    for path in paths {
        if !path.is_dir() {
            files.insert(path.into(), false);
            continue;
        }
        let unreadable = |error| UsageError::of_path(path, format_args!("cannot be read: {error}"));
        let listed = report_files::in_directory(path).map_err(unreadable)?;
        let resolved = path.canonicalize().unwrap_or_else(|_| path.clone());
        let is_output = |file: &Path| {
            file.file_name().is_some_and(|name| outputs.contains(&resolved.join(name).as_path()))
        };
        for path in listed.into_iter().filter(|path| !is_output(path)) {
            files.entry(path.into()).or_insert(true);
        }
    }
    Ok(files)
}

/// Parses `NODE=SECONDS`: a node, and how far its clock is ahead, seconds.
fn clock_offset(given: &str) -> Result<(String, f64), String> {
    let problem = || format!("\"{given}\" is no clock: write it as NODE=SECONDS");
    let (node, seconds) = given.rsplit_once('=').ok_or_else(problem)?;
    match seconds.parse::<f64>() {
        Ok(seconds) if seconds.is_finite() && seconds.abs() > MOST_CLOCK_OFFSET_S => Err(format!(
            "\"{given}\" is too far: a clock is at most {MOST_CLOCK_OFFSET_S:e} s ahead or behind"
        )),
        Ok(seconds) if seconds.is_finite() && !node.is_empty() => Ok((node.to_owned(), seconds)),
        _ => Err(problem()),
    }
}

/// What a first look at all files finds.
struct FirstLook<'a> {
    sources: Vec<Source>,
    /// The file of each source, as in [`Candidates`].
    candidates: Vec<(&'a OsString, bool)>,
    /// Files without a report, each with the reason.
    unread: Vec<(String, String)>,
}

/// Merges the reports in files. `clock_offsets`: nodes, each with how many seconds its clock is ahead.
///
/// # Errors
/// If no file has a report. The error says which files there are, and why they have none.
fn merged(files: &Candidates, clock_offsets: &[(String, f64)]) -> Result<MergedReport, ReportFiles> {
    // One hasher for both looks, so that its hashes tell whether a file changed between them.
    let hasher = RandomState::new();
    let FirstLook { sources, candidates, unread } = first_look(files, clock_offsets, &hasher);
    let plan = Plan::new(sources, unread);
    // Each report's number in the plan, and its place in `candidates`.
    let order: Vec<(usize, usize)> = plan.order().map(|(number, _)| (number, plan.place(number))).collect();
    let mut merger = Merger::new(plan);
    for (number, place) in order {
        let is_unchanged = |json: &str| merger.plan.is_unchanged(number, hasher.hash_one(json));
        let read = match text(candidates[place]) {
            Ok(json) if is_unchanged(&json) => read_report(&json).map_err(|error| error.to_string()),
            Ok(_) => Err("it changed while reports were merged".to_owned()),
            Err(reason) => Err(reason),
        };
        match read {
            Ok(read) => merger.add(number, read),
            Err(reason) => merger.leave_out(number, reason),
        }
    }
    merger.finish()
}

/// Reads the head of each file's report, notes the hash of the file, and puts the clocks of nodes right. A line on stderr says
/// which nodes of `clock_offsets` have no report.
fn first_look<'a>(
    files: &'a Candidates,
    clock_offsets: &[(String, f64)],
    hasher: &RandomState,
) -> FirstLook<'a> {
    let mut look = FirstLook { sources: Vec::new(), candidates: Vec::new(), unread: Vec::new() };
    let mut nodes_not_seen = clock_offsets.iter().map(|(node, _)| node.as_str()).ordered_set();
    for candidate in files.iter().map(|(path, is_found)| (path, *is_found)) {
        let file = quote::escape(&candidate.0.to_string_lossy());
        let read = text(candidate).and_then(|json| {
            let head = Head::read(&json).map_err(|error| error.to_string())?;
            Ok((head, hasher.hash_one(&json)))
        });
        match read {
            Ok((mut head, hash)) => {
                let is_of_head = |(node, _): &&(String, f64)| head.hostname.as_ref() == Some(node);
                // Of several offsets of a node, the last one counts.
                if let Some((node, offset_s)) = clock_offsets.iter().rfind(is_of_head) {
                    head.set_clock_offset(*offset_s);
                    nodes_not_seen.remove(node.as_str());
                }
                look.sources.push(Source { file, head, content: Some(hash) });
                look.candidates.push(candidate);
            }
            Err(reason) => look.unread.push((file, reason)),
        }
    }
    for node in nodes_not_seen {
        message(format_args!("--clock-offset: no report is of {}", quote::escape(node)));
    }
    look
}

/// Reads a file of [`Candidates`]. One that was found in a directory may be no link: another user can have put it there.
///
/// # Errors
/// The reason why it can't be read, as a sentence that begins with "it".
fn text((path, refuses_links): (&OsString, bool)) -> Result<String, String> {
    report_files::read(Path::new(path), refuses_links).map_err(|error| format!("it {error}"))
}

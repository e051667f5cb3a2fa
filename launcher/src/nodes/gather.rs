//! The end of a run over several nodes: the launcher waits for the reports of the other nodes, and makes one of all.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use gpu_track_collector::model::config::Config;
use gpu_track_collector::model::host_name::short;
use gpu_track_collector::model::report::{self, ElsewhereKind, LeftReport, Nodes, Report, StartedElsewhere};
use gpu_track_collector::report::merge::{
    MergedReport, note_left_reports, note_unseen, note_untracked_nodes, ranks_csv,
};
use gpu_track_collector::tracking::{TrackingFile, of_nodes};
use gpu_track_collector::{ProcRoot, write_everywhere};
use serde::Deserialize;

use super::batch_job::BatchJob;
use super::directory::{Absence, NodeDirectory, prefix_of_host};
use super::step::{Step, Told};
use super::{Joinable, Joined, NodeRun, Stage};
use crate::cli::{HeldTrackingFile, Options};
use crate::companion::{merge, report_files};
use crate::console::message;
use crate::process::signals::{self, SignalSet};
use crate::run::config;
use crate::run::wakeups::Wakeups;

/// How long the launcher waits for the other nodes after its command.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often the launcher looks for their reports meanwhile.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);
/// Where an agent leaves its report on a node that does not see the directory, if XDG_STATE_HOME names no other place there.
const HOME_STATE: &str = "~/.local/state/gpu-track/nodes";

/// The part of a report that tells whether it is final.
#[derive(Deserialize)]
struct Progress {
    stage: report::Stage,
}

/// For each file of a report that was read: when the file was last changed at that time, and whether the report was final.
#[derive(Default)]
struct Seen(BTreeMap<PathBuf, (Option<SystemTime>, bool)>);

impl Seen {
    /// Whether the report in this file is final. A file that has not changed is not read again, nor is one whose report was final.
    fn is_final(&mut self, path: &Path) -> bool {
        let changed_at = fs::symlink_metadata(path).and_then(|file| file.modified()).ok();
        match self.0.get(path) {
            Some((seen_at, is_final)) if *seen_at == changed_at || *is_final => *is_final,
            _ => {
                let refuses_links = true;
                let text = report_files::read(path, refuses_links).ok();
                let progress = text.and_then(|text| serde_json::from_str::<Progress>(&text).ok());
                let is_final = progress.is_some_and(|progress| progress.stage == report::Stage::Over);
                self.0.insert(path.to_owned(), (changed_at, is_final));
                is_final
            }
        }
    }
}

/// Says why no agent could run on a node. `program`: the path at which the program was looked for.
fn absence_text(absence: Absence, program: &str) -> String {
    match absence {
        Absence::Missing => format!("gpu-track-run is missing there: {program}"),
        Absence::OtherVersion => format!("gpu-track-run is of another version there: {program}"),
    }
}

/// Notes that a part of the run is not in the report, because of which the report has no hints.
fn note_unknown_hints(report: &mut Report, reason: String) {
    report.hints = std::mem::take(&mut report.hints).without_a_part(reason);
}

/// The file of all ranks beside a report.
pub(super) fn ranks_beside(report: &Path) -> PathBuf {
    report.with_extension(merge::RANKS)
}

/// Merges these reports, which are in `directory`. `None`: no report can be read, and a line on stderr says why.
pub(super) fn report_of_all(directory: &NodeDirectory, reports: &[PathBuf]) -> Option<MergedReport> {
    let merged = merge::of_files(reports).map_err(|files| {
        let first = files.unread_files.first().map(|file| file.reason.clone()).unwrap_or_default();
        message(format_args!("no node has a report in {}: {first}", directory.path().display()));
    });
    merged.ok()
}

/// Writes the report of all nodes or ranks to each place of `config`, and the table of ranks beside its files. Returns whether all
/// could be written. If not, lines on stderr say why.
pub(super) fn write(config: &Config, MergedReport { report, ranks }: &MergedReport) -> bool {
    let written = write_everywhere(config, report).inspect_err(|error| message(error));
    let files: Vec<&Path> = config.report.files().collect();
    let has_ranks = report.ranks.is_some() && !ranks.is_empty();
    let are_ranks_written = !has_ranks || merge::write_ranks(&ranks_csv(ranks), &files);
    written.is_ok() && are_ranks_written
}

/// Adds the figures of all nodes to a tracking file, whose rows are of this node. `.csv` and `.pftrace` have no place for them and
/// stay as they are. If the file can't be written, a line on stderr says so.
fn add_to_tracking_file(file: &TrackingFile, report: &Report) {
    let is_of_run = true;
    if let Err(error) = of_nodes::write(file, report, is_of_run) {
        message(format_args!(
            "the tracking file {} has the rows of this node, and no sums over all nodes: {error}",
            file.target().path.display()
        ));
    }
}

impl NodeRun {
    /// Ends the agents, waits for the reports of all nodes, and writes one report of them to the places that the user named. Its
    /// figures go to the `tracking` files, too. To be called when this node's own report is written.
    /// Does nothing if no other node was tracked.
    pub(crate) fn conclude(mut self, options: &Options, tracking: &[HeldTrackingFile], signals: SignalSet) {
        let mut joined = match std::mem::replace(&mut self.stage, Stage::Failed) {
            Stage::Joined(joined) => joined,
            Stage::Joining(made) if made.is_finished() => {
                // The run was over before a program reached another node.
                if let Ok(Ok(Joinable { place: Some(place), .. })) = made.join() {
                    place.directory.remove();
                }
                return;
            }
            // A file system that does not answer may still make the directory.
            Stage::Alone | Stage::Joining(_) | Stage::Failed => return,
        };
        // What the agents of a batch job have told is taken before the wait, which ends their step.
        let told = joined.step.as_ref().map(Step::told);
        let reports = joined.wait_for_others(signals);
        let config =
            Config { report: self.report.clone(), ..config::from_options(options, &ProcRoot::default()) };
        let Some(mut merged) = report_of_all(&joined.directory, &reports) else { return };
        let has_left = told.as_ref().is_some_and(|told| !told.left.is_empty());
        joined.note_missing_nodes(&self, &mut merged.report, told);
        let is_written = write(&config, &merged);
        // `tracking` has the files of --trace-gpu and --events, too, which have other forms.
        let of_run = |file: &&TrackingFile| options.tracking.tracking_files.contains(&file.target());
        for file in tracking.iter().map(|held| &held.file).filter(of_run) {
            add_to_tracking_file(file, &merged.report);
        }
        // If nodes have left reports, the user needs the directory to merge them with its reports.
        if self.is_temporary && is_written && !has_left {
            joined.directory.remove();
        }
    }

    /// Ends the agents and removes the directory, for a command that could not be started.
    pub(crate) fn discard(self, signals: SignalSet) {
        if let Stage::Joined(mut joined) = self.stage {
            joined.wait_for_others(signals);
            joined.directory.remove();
        }
    }
}

/// The hosts that ssh was to reach with an agent, and of which there are fewer reports than calls. `reports`: the names of their files.
fn hosts_without_report(reports: &[String], elsewhere: &[StartedElsewhere]) -> Vec<String> {
    let by_agents = elsewhere.iter().filter(|entry| entry.kind == ElsewhereKind::Host && entry.in_tree > 0);
    let of_hosts = by_agents.filter_map(|entry| Some((entry.target.clone()?, entry.count)));
    let count = |host: &str| reports.iter().filter(|name| name.starts_with(&prefix_of_host(host))).count();
    of_hosts.filter(|(host, calls)| (count(host) as u64) < *calls).map(|(host, _)| host).collect()
}

/// What is said of nodes without a report, and how many others have one.
struct Places {
    /// Where their reports are, or may be.
    left: Vec<LeftReport>,
    /// Why there are none.
    untracked: Vec<(String, String)>,
    /// The hosts on which a batch system was to start agents one by one, and of which there is no report.
    silent: Vec<String>,
    /// How many reports of other nodes there are.
    others: usize,
}

impl Joined {
    /// Notes in the report of all nodes why nodes have none, or where their reports are. `told`: what the agents of a batch job have told;
    /// `None`: the batch system has started none. An agent that an MPI launcher has started can't tell that it does not see the directory. So each
    /// node without a report, on which an agent was to start, may have left one.
    fn note_missing_nodes(&self, run: &NodeRun, report: &mut Report, told: Option<Told>) {
        let (carriers, job, has_step) = (&run.carriers, run.job.as_ref(), told.is_some());
        let Told { mut left, absences } = told.unwrap_or_default();
        let reports = self.directory.reports().unwrap_or_default();
        let name = |path: &PathBuf| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let reports: Vec<String> = reports.iter().map(name).collect();
        let program = carriers.program().display().to_string();
        let absences = absences.into_iter().chain(self.directory.absences());
        let mut untracked: Vec<(String, String)> =
            absences.map(|(node, absence)| (node, absence_text(absence, &program))).collect();
        let missing = report.coverage.elsewhere.iter().filter(|entry| entry.kind == ElsewhereKind::Node);
        for entry in missing.filter(|_| !has_step) {
            let node = entry.target.clone().unwrap_or_else(|| "nodes of srun".to_owned());
            if untracked.iter().any(|(known, _)| short(known) == short(&node)) {
                continue;
            }
            if entry.is_tracked {
                left.push(self.may_be_left(node));
            } else if entry.program == "srun" {
                untracked.push((node, format!("Slurm started no agents: {}", self.no_step)));
            } else {
                let why =
                    carriers.hindrance(&entry.program).unwrap_or_else(|| "it was not told to".to_owned());
                untracked.push((node, format!("The MPI launcher started no agent there: {why}")));
            }
        }
        let lost = hosts_without_report(&reports, &report.coverage.elsewhere);
        let hosts = job.iter().flat_map(|job| &job.others).map(|other| &other.host);
        let is_silent = |host: &&String| !reports.iter().any(|name| short(name) == short(host));
        let silent: Vec<String> = hosts.filter(is_silent).cloned().collect();
        let starter = job.map_or("ssh", |job| job.system.name);
        if let Some(first) = lost.first().or(silent.first()) {
            note_unknown_hints(report, format!("what {starter} started on {first} is not in this report"));
        }
        for node in lost.into_iter().filter(|node| untracked.iter().all(|(known, _)| known != node)) {
            left.push(self.may_be_left(node));
        }
        let mut places = Places { left, untracked, silent, others: reports.len().saturating_sub(1) };
        if let Some(job) = job {
            self.note_nodes_of_job(job, report, has_step, &mut places);
        }
        let Places { left, untracked, .. } = places;
        if !left.is_empty() {
            note_left_reports(report, left, &self.directory.path().display().to_string(), &program);
        }
        note_untracked_nodes(report, &untracked);
    }

    /// Notes which other nodes of a batch job have no report: the silent hosts, and those without a name. `has_step`: agents were
    /// started.
    fn note_nodes_of_job(&self, job: &BatchJob, report: &mut Report, has_step: bool, places: &mut Places) {
        let why = if has_step {
            "Their agents left no report".to_owned()
        } else {
            format!("{} started no agents: {}", job.system.name, self.no_step)
        };
        // Those that have a report, or are named otherwise.
        let known = places.others + places.left.len() + places.untracked.len();
        let unnamed = job.unnamed(has_step).saturating_sub(known) as u64;
        if unnamed > 0 {
            let none = Nodes { unseen: 0, unseen_names: Vec::new() };
            report.coverage.nodes.get_or_insert(none).unseen += unnamed;
            note_unknown_hints(report, "nodes of the job are not in this report".to_owned());
            places.untracked.push((format!("{unnamed} of the job's nodes"), why.clone()));
        }
        let is_known = |known: &str, node: &str| short(known) == short(node);
        for node in std::mem::take(&mut places.silent) {
            note_unseen(report, &node);
            let is_said = places.untracked.iter().any(|(known, _)| is_known(known, &node))
                || places.left.iter().any(|left| is_known(&left.node, &node));
            match has_step {
                _ if is_said => {}
                true => places.left.push(self.may_be_left(node)),
                false => places.untracked.push((node, why.clone())),
            }
        }
    }

    /// The report that an agent on this node may have left there.
    fn may_be_left(&self, node: String) -> LeftReport {
        let name = self.directory.path().file_name().unwrap_or_default().to_string_lossy();
        LeftReport { path: format!("{HOME_STATE}/{name}"), node, is_certain: false }
    }

    /// Ends the agents that a batch system has started; others end with their daemon. Then waits until each report in the directory is
    /// final, at most for [`PATIENCE`], or until a signal asks to end. Returns the files of the reports.
    fn wait_for_others(&mut self, signals: SignalSet) -> Vec<PathBuf> {
        drop(self.step.take());
        let mut seen = Seen::default();
        let wakeups = Wakeups::new(signals);
        let started = Instant::now();
        loop {
            let reports = self.directory.reports().unwrap_or_else(|_| vec![self.own.clone()]);
            let is_complete = reports.iter().all(|path| *path == self.own || seen.is_final(path));
            if is_complete || started.elapsed() > PATIENCE {
                return reports;
            }
            match wakeups.wait(None, Some(LOOK_INTERVAL)) {
                Ok(Some(received)) if signals::requests_end(received.signal) => return reports,
                Ok(_) => {}
                Err(_) => return reports,
            }
        }
    }
}

//! Writes the figures of a run over several nodes into a tracking file, when the reports of the nodes have been merged to one. The
//! file's rows are of the launcher's node only, and were written during the run.

use std::io;
use std::path::Path;

use gpu_track_report::tracking_line::Line;
use thiserror::Error;

use super::lines::LineFile;
use super::{TrackingFile, form_of, sqlite};
use crate::model::report::Report;
use crate::model::style::StreamFile;

/// Why a tracking file lacks the figures of the nodes.
#[derive(Debug, Error)]
pub enum NotWritten {
    /// The kernel refused, or another file has the name.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// SQLite refused, or another program had the database locked.
    #[error(transparent)]
    Sqlite(#[from] rusqlite::Error),
    /// There is no space. The text is that of the error.
    #[error("{0}")]
    NoSpace(String),
}

/// Writes the figures of all nodes in a report into a file. The last argument, `is_of_run`: the file is the tracking file of a run,
/// which gets nothing if the run wrote nothing to it.
type Writer = fn(&StreamFile, &Report, bool) -> Result<(), NotWritten>;

/// The writer for a file of this name. `None`: the file's form has no place for the figures of nodes. Rows of `.csv` are
/// those of gpu_tracker, which knows one machine only, and slices of `.pftrace` are processes of one machine.
fn writer(path: &Path) -> Option<Writer> {
    match form_of(path)?.extension {
        "jsonl" => Some(append_line),
        "sqlite" => Some(sqlite::write_nodes),
        _ => None,
    }
}

/// Whether a file of this name has a place for the figures of all nodes.
pub fn has_place(path: &Path) -> bool {
    writer(path).is_some()
}

/// Writes the figures of all nodes to a file, if its form has a place for them. `report` is the merged one. `is_of_run`: the file is
/// the tracking file of a run, which gets nothing if the run wrote nothing to it.
///
/// # Errors
/// If they can't be written.
pub fn write(file: &TrackingFile, report: &Report, is_of_run: bool) -> Result<(), NotWritten> {
    let target = file.target();
    match writer(&target.path) {
        Some(writer) => writer(&target, report, is_of_run),
        None => Ok(()),
    }
}

/// Appends the line of the nodes to a `.jsonl` file (see [`Writer`]). A report that is not a merged one has no such line.
fn append_line(target: &StreamFile, report: &Report, is_of_run: bool) -> Result<(), NotWritten> {
    if report.merged.is_none() {
        return Ok(());
    }
    let mut lines = LineFile::open(target)?;
    if is_of_run && lines.is_empty() {
        return Ok(());
    }
    match lines.append(&[Line::nodes(report).text()])? {
        true => Ok(()),
        false => Err(NotWritten::NoSpace(lines.loss().error.unwrap_or_default())),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use gpu_track_core::fixtures;
    use gpu_track_report::merge::merge;
    use gpu_track_report::read::read;
    use rusqlite::Connection;

    use super::*;
    use crate::model::report::NodeState;

    /// The report of twelve ranks on two nodes; a third one has none.
    fn of_two_nodes() -> Report {
        merge(&fixtures::nodes()).unwrap().report
    }

    fn file(directory: &tempfile::TempDir, name: &str) -> TrackingFile {
        TrackingFile::create(directory.path().canonicalize().unwrap().join(name), false).unwrap()
    }

    /// The rows that a statement gives, of numbers.
    fn rows(path: &Path, sql: &str) -> Vec<Vec<Option<f64>>> {
        let connection = Connection::open(path).unwrap();
        let mut statement = connection.prepare(sql).unwrap();
        let columns = statement.column_count();
        let numbers = |row: &rusqlite::Row| (0..columns).map(|at| row.get(at)).collect();
        statement.query_map([], numbers).unwrap().map(Result::unwrap).collect()
    }

    // Requirement: NODE-21
    #[test]
    fn database_has_the_nodes_each_over_time_and_their_sums_as_the_report_has_them() {
        let directory = tempfile::tempdir().unwrap();
        let (file, report) = (file(&directory, "t.sqlite"), of_two_nodes());
        write(&file, &report, false).unwrap();
        let path = file.target().path;
        let series = &report.series;
        let expected: Vec<Vec<Option<f64>>> = (0..series.start_s.len())
            .map(|at| {
                let ram = &series.ram_bytes.combined;
                let length_ms = ((series.end_s[at] - series.start_s[at]) * 1e3).round();
                let cpu = series.cpu_percent.system.mean[at];
                vec![ram.min[at], ram.mean[at], ram.max[at], series.processes.max[at], cpu, Some(length_ms)]
            })
            .collect();
        // Of the last moments, what all programs did is not known.
        assert!(expected.iter().flatten().any(Option::is_none) && expected.len() > 10, "{expected:?}");
        let sums =
            "SELECT combined_ram_min_bytes, combined_ram_mean_bytes, combined_ram_max_bytes, processes_max,
                    system_cpu_mean_percent, round((timestamp - start_timestamp) * 1000)
                    FROM sums_over_nodes ORDER BY timestamp";
        assert_eq!(rows(&path, sums), expected);
        let bin_s = report.merged.as_ref().map(|merged| merged.bin_s);
        assert_eq!(rows(&path, "SELECT DISTINCT bin_s FROM sums_over_nodes"), [[bin_s]]);

        let state = |state| report.nodes.iter().filter(|node| node.state == state).count() as f64;
        let never = state(NodeState::NeverCheckedIn);
        assert!(never > 0.0 && state(NodeState::LastHeard) > 0.0);
        let unknown =
            "SELECT count(*) FROM nodes WHERE state = 'never_checked_in' AND cores IS NULL AND cpu_s IS NULL
                       AND processes IS NULL AND exact IS NULL AND ram_max_bytes IS NULL";
        assert_eq!(rows(&path, unknown), [[Some(never)]]);
        let known: Vec<Vec<Option<f64>>> = report
            .nodes
            .iter()
            .filter(|node| node.reports > 0)
            .map(|node| {
                let [ram, processes] = [node.ram.max_bytes, node.processes].map(|n| n.map(|n| n as f64));
                vec![ram, processes, node.cpu_s, node.silent_s]
            })
            .collect();
        let nodes =
            "SELECT ram_max_bytes, processes, cpu_s, silent_s FROM nodes WHERE reports > 0 ORDER BY node";
        assert_eq!(rows(&path, nodes), known);

        let of_first = &report.nodes[0];
        let over_time = format!(
            "SELECT mean_ram_bytes FROM nodes_over_time WHERE node = '{}' ORDER BY timestamp",
            of_first.node
        );
        let means: Vec<Option<f64>> = rows(&path, &over_time).into_iter().flatten().collect();
        assert_eq!(means, of_first.series.mean_ram_bytes);
    }

    // Requirement: NODE-21
    #[test]
    fn line_has_the_report_of_all_nodes_behind_those_of_the_run() {
        let directory = tempfile::tempdir().unwrap();
        let (file, report) = (file(&directory, "t.jsonl"), of_two_nodes());
        let path = file.target().path;
        // The last line of a killed run is torn.
        fs::write(&path, "{\"later\":1}\n{\"to").unwrap();
        write(&file, &report, true).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        let Some((first, last)) = text.split_once('\n') else { panic!("{text}") };
        assert_eq!(first, "{\"later\":1}");
        let Some(Line::Nodes(nodes)) = Line::read(last) else { panic!("{last}") };
        let read = read(&nodes.report.to_string()).unwrap().report;
        assert_eq!(read.nodes, report.nodes);
    }

    // Requirement: NODE-21
    #[test]
    fn file_without_rows_of_a_run_or_a_place_for_nodes_stays_as_it_is() {
        let directory = tempfile::tempdir().unwrap();
        let report = of_two_nodes();
        for name in ["t.csv", "t.jsonl", "t.pftrace", "t.sqlite"] {
            let file = file(&directory, name);
            write(&file, &report, true).unwrap();
            assert_eq!(fs::metadata(file.target().path).unwrap().len(), 0, "{name}");
            drop(file);
            assert!(!directory.path().join(name).exists(), "{name}");
        }
        // That of one node has no sums.
        let file = file(&directory, "t.sqlite");
        write(&file, &fixtures::full(), false).unwrap();
        assert_eq!(fs::metadata(file.target().path).unwrap().len(), 0);
    }
}

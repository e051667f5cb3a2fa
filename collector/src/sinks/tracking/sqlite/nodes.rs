//! The tables of a run over several nodes: `nodes`, `nodes_over_time` and `sums_over_nodes`. They are made from the merged report,
//! which exists only when the run is over. So they are written all at once, after the collector's last row.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rusqlite::types::Value as Sql;
use rusqlite::{Transaction, TransactionBehavior, params, params_from_iter};

use super::tables::{has_tables, integer};
use super::{BUSY, check_file};
use crate::database;
use crate::model::report::{Merged, Node, NodeCoverage, Report, SetTracks, Track};
use crate::model::style::StreamFile;
use crate::sinks::tracking::of_nodes::NotWritten;

/// While another program has the database locked, the transaction waits for this many times [`BUSY`].
const TRIES: u32 = 10;
/// The tables whose columns are always the same.
const TABLES: &str = "
    CREATE TABLE nodes (
        node TEXT PRIMARY KEY, state TEXT, reports INTEGER, last_heard_timestamp FLOAT, silent_s FLOAT, clock_offset_s FLOAT,
        cores INTEGER, usable_cores FLOAT, ram_total_bytes INTEGER, ram_usable_bytes INTEGER, ram_max_bytes INTEGER,
        ram_at_most_bytes INTEGER, ram_mean_bytes FLOAT, ram_max_used_bytes INTEGER, cpu_s FLOAT, busy_cores FLOAT,
        is_contended INTEGER, processes INTEGER, exit_code INTEGER, exit_signal INTEGER, exact INTEGER, sampled INTEGER,
        unknown INTEGER, dropped_events INTEGER, untracked_reason TEXT, uncounted_reason TEXT) WITHOUT ROWID;
    CREATE TABLE nodes_over_time (
        timestamp FLOAT, node TEXT, start_timestamp FLOAT, mean_ram_bytes FLOAT, max_ram_bytes FLOAT, mean_cpu_percent FLOAT,
        PRIMARY KEY (timestamp, node)) WITHOUT ROWID;";
/// The parts of [`SetTracks`], in its order, as the columns of `sums_over_nodes` call them.
const SETS: [&str; 4] = ["main", "descendants", "combined", "system"];

/// Writes the tables into a database, in one transaction. A report that is not a merged one has no such tables. `is_of_run`: the
/// database is the tracking file of a run. If the run made no tables in it, since it was not tracked, these are left out, too.
pub(in crate::sinks::tracking) fn write(
    target: &StreamFile,
    report: &Report,
    is_of_run: bool,
) -> Result<(), NotWritten> {
    let Some(merged) = &report.merged else { return Ok(()) };
    check_file(target)?;
    let mut connection = database::open_to_write(&target.path)?;
    connection.busy_timeout(BUSY * TRIES)?;
    // SQLite opened the database by its name, which must still be that of the launcher's file.
    check_file(target)?;
    if is_of_run && !has_tables(&connection)? {
        return Ok(());
    }
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    transaction.execute_batch(TABLES)?;
    insert_nodes(&transaction, &report.nodes)?;
    insert_nodes_over_time(&transaction, report, merged)?;
    insert_sums(&transaction, report, merged)?;
    Ok(transaction.commit()?)
}

/// A time as the other tables have it: seconds since the epoch.
fn timestamp(time: SystemTime) -> f64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

/// The time `seconds` after the start of the merged run, as seconds since the epoch.
fn after(report: &Report, seconds: f64) -> f64 {
    timestamp(report.started_at + Duration::try_from_secs_f64(seconds).unwrap_or_default())
}

/// Inserts each node as a row of `nodes`. The names are unique: two nodes of one name have their boot ids in it.
fn insert_nodes(transaction: &Transaction, nodes: &[Node]) -> rusqlite::Result<()> {
    let sql = format!("INSERT OR IGNORE INTO nodes VALUES ({})", ["?"; 26].join(", "));
    let mut statement = transaction.prepare(&sql)?;
    let bytes = |bytes: Option<u64>| bytes.map(integer);
    for node in nodes {
        // The name that JSON has for the state.
        let state = serde_json::to_value(node.state).ok().and_then(|name| name.as_str().map(str::to_owned));
        let of_coverage = |figure: fn(&NodeCoverage) -> u64| node.coverage.as_ref().map(figure).map(integer);
        let reason = |reason: fn(&NodeCoverage) -> Option<&str>| node.coverage.as_ref().and_then(reason);
        statement.execute(params![
            node.node,
            state,
            integer(node.reports),
            node.last_heard_at.map(|at| timestamp(at.0)),
            node.silent_s,
            node.clock_offset_s,
            node.cores,
            node.usable_cores,
            bytes(node.ram.total_bytes),
            bytes(node.ram.usable_bytes),
            bytes(node.ram.max_bytes),
            bytes(node.ram.at_most_bytes),
            node.ram.mean_bytes,
            bytes(node.ram.max_used_bytes),
            node.cpu_s,
            node.busy_cores,
            node.is_contended,
            bytes(node.processes),
            node.exit.code,
            node.exit.signal,
            of_coverage(|coverage| coverage.exact),
            of_coverage(|coverage| coverage.sampled),
            of_coverage(|coverage| coverage.unknown),
            of_coverage(|coverage| coverage.dropped_events),
            reason(|coverage| coverage.untracked_reason.as_deref()),
            reason(|coverage| coverage.uncounted_reason.as_deref()),
        ])?;
    }
    Ok(())
}

/// Inserts the points of each node's series, each as a row of `nodes_over_time`. A node without a report has none.
fn insert_nodes_over_time(
    transaction: &Transaction,
    report: &Report,
    merged: &Merged,
) -> rusqlite::Result<()> {
    let mut statement =
        transaction.prepare("INSERT OR IGNORE INTO nodes_over_time VALUES (?, ?, ?, ?, ?, ?)")?;
    for node in &report.nodes {
        let series = &node.series;
        let times = merged.node_start_s.iter().zip(&merged.node_end_s);
        for (at, (start_s, end_s)) in times.enumerate().take(series.mean_ram_bytes.len()) {
            let value = |list: &Vec<Option<f64>>| list.get(at).copied().flatten();
            statement.execute(params![
                after(report, *end_s),
                node.node,
                after(report, *start_s),
                value(&series.mean_ram_bytes),
                value(&series.max_ram_bytes),
                value(&series.mean_cpu_percent),
            ])?;
        }
    }
    Ok(())
}

/// Creates `sums_over_nodes`, and inserts the points of the series that are summed over the nodes.
fn insert_sums(transaction: &Transaction, report: &Report, merged: &Merged) -> rusqlite::Result<()> {
    let quantities = summed_quantities(report);
    let columns: Vec<(String, &Vec<Option<f64>>)> = quantities.iter().flat_map(columns_of).collect();
    let declared: Vec<String> = columns.iter().map(|(name, _)| format!("{name} FLOAT")).collect();
    transaction.execute_batch(&format!(
        "CREATE TABLE sums_over_nodes (timestamp FLOAT PRIMARY KEY, start_timestamp FLOAT, bin_s FLOAT, {}) WITHOUT ROWID",
        declared.join(", ")
    ))?;
    let placeholders = vec!["?"; 3 + columns.len()].join(", ");
    let mut statement =
        transaction.prepare(&format!("INSERT OR IGNORE INTO sums_over_nodes VALUES ({placeholders})"))?;
    let times = report.series.start_s.iter().zip(&report.series.end_s);
    for (at, (start_s, end_s)) in times.enumerate() {
        let mut row = vec![Some(after(report, *end_s)), Some(after(report, *start_s)), Some(merged.bin_s)];
        row.extend(columns.iter().map(|(_, values)| values.get(at).copied().flatten()));
        let row = row.into_iter().map(|value| value.map_or(Sql::Null, Sql::Real));
        statement.execute(params_from_iter(row))?;
    }
    Ok(())
}

/// A quantity over time: what the names of its columns begin with, what they end with (the unit), and its values.
type Quantity<'a> = (String, &'static str, &'a Track);

/// Lists the quantities that are summed over nodes.
fn summed_quantities(report: &Report) -> Vec<Quantity<'_>> {
    let series = &report.series;
    let mut quantities = Vec::new();
    for (name, unit, tracks) in
        [("ram", "_bytes", &series.ram_bytes), ("cpu", "_percent", &series.cpu_percent)]
    {
        let SetTracks { main, descendants, combined, system } = tracks;
        for (set, track) in SETS.iter().zip([main, descendants, combined, system]) {
            quantities.push((format!("{set}_{name}"), unit, track));
        }
    }
    let io = &series.io_bytes_per_s;
    quantities.push(("processes".to_owned(), "", &series.processes));
    quantities.push(("io_read".to_owned(), "_bytes_per_s", &io.read));
    quantities.push(("io_written".to_owned(), "_bytes_per_s", &io.written));
    quantities
}

/// The columns of a quantity, names and values: its lower bound, its mean and its upper bound.
fn columns_of<'a>((name, unit, track): &Quantity<'a>) -> [(String, &'a Vec<Option<f64>>); 3] {
    [("min", &track.min), ("mean", &track.mean), ("max", &track.max)]
        .map(|(which, list)| (format!("{name}_{which}{unit}"), list))
}

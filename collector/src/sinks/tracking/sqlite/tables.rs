//! The tables, and how a batch is inserted into them.
//!
//! `static_data` and `data` are gpu_tracker's, with the [columns](super::super::columns) of `.csv`. The others are ours, with
//! units in the names of their columns. Primary keys are the keys of rows and processes, so an item that comes again after a
//! restart is ignored.

use rusqlite::types::{ToSqlOutput, Value as Sql};
use rusqlite::{Connection, ToSql, Transaction, TransactionBehavior, params, params_from_iter};

use super::Batch;
use crate::model::ended_process::EndedProcess;
use crate::model::ended_task::EndedTask;
use crate::model::gpu::gpu_figure::GpuFigure;
use crate::sinks::tracking::columns::{Column, DATA, DataRow, Fixed, Form, Gpus, Kind, STATIC, Value};

/// Our tables. `GAUGES` stands for the columns of [`GAUGES`].
const OURS: &str = "
    CREATE TABLE IF NOT EXISTS processes (
        pid INTEGER, start_ns INTEGER, ppid INTEGER, command TEXT, args TEXT, start_timestamp FLOAT, wall_s FLOAT,
        is_still_running INTEGER, exit_code INTEGER, exit_signal INTEGER, cpu_s FLOAT, cpu_quality TEXT,
        peak_rss_bytes INTEGER, peak_quality TEXT, PRIMARY KEY (pid, start_ns)) WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS gpus (
        at_ns INTEGER, gpu TEXT, timestamp FLOAT, name TEXT, read_ns INTEGER, used_bytes INTEGER,
        main_bytes INTEGER, descendants_bytes INTEGER, combined_bytes INTEGER, busy_percent FLOAT, GAUGES,
        PRIMARY KEY (at_ns, gpu)) WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS samples_by_command (
        at_ns INTEGER, command TEXT, timestamp FLOAT, processes INTEGER, added_bytes INTEGER, cpu_ns INTEGER,
        PRIMARY KEY (at_ns, command)) WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS tasks (
        id INTEGER PRIMARY KEY, kind TEXT, name TEXT, parent INTEGER, start_ns INTEGER, start_timestamp FLOAT,
        end_timestamp FLOAT, wall_s FLOAT, processes INTEGER, starts INTEGER, failed_starts INTEGER, still_running INTEGER,
        cpu_s FLOAT, peak_ram_bytes INTEGER, peak_quality TEXT, gpu_ram_bytes INTEGER, read_bytes INTEGER,
        write_bytes INTEGER, exit_code INTEGER, exit_signal INTEGER, why TEXT);";
/// How many columns of `gpus` come before [`GAUGES`].
const BEFORE_GAUGES: usize = 10;
/// The last columns of `gpus`, in their order.
const GAUGES: [GpuFigure; 17] = [
    GpuFigure::MemoryUtilization,
    GpuFigure::Power,
    GpuFigure::Temperature,
    GpuFigure::SmClock,
    GpuFigure::MemoryClock,
    GpuFigure::Pstate,
    GpuFigure::SmActive,
    GpuFigure::SmOccupancy,
    GpuFigure::TensorActive,
    GpuFigure::MemoryBandwidth,
    GpuFigure::Fp64Active,
    GpuFigure::Fp32Active,
    GpuFigure::Fp16Active,
    GpuFigure::PcieTxRate,
    GpuFigure::PcieRxRate,
    GpuFigure::NvlinkTxRate,
    GpuFigure::NvlinkRxRate,
];

impl ToSql for Value {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Owned(match self {
            Self::Unknown => Sql::Null,
            Self::Text(text) => Sql::Text((*text).to_owned()),
            Self::Integer(number) => Sql::Integer(integer(*number)),
            Self::Number(number) => Sql::Real(*number),
            Self::Time(us) => Sql::Real(*us as f64 / 1e6),
        }))
    }
}

/// A number as SQLite's integer, which has a sign. One that is too large becomes the largest.
pub(super) fn integer(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// The key of the last row of `data`, CLOCK_MONOTONIC nanoseconds; 0: there is no row, or no table.
pub(super) fn last_key(connection: &Connection) -> rusqlite::Result<u64> {
    if !has_tables(connection)? {
        return Ok(0);
    }
    let key: Option<i64> = connection.query_row("SELECT max(at_ns) FROM data", [], |row| row.get(0))?;
    Ok(key.and_then(|key| u64::try_from(key).ok()).unwrap_or(0))
}

/// Whether the tables exist. They are created all at once, so `data` stands for all.
pub(super) fn has_tables(connection: &Connection) -> rusqlite::Result<bool> {
    let count = "SELECT count(*) FROM sqlite_master WHERE name = 'data'";
    let count: i64 = connection.query_row(count, [], |row| row.get(0))?;
    Ok(count > 0)
}

/// Writes a batch, and `gpus` if they are given, in one transaction: all of it or nothing. Creates the tables if they are missing.
pub(super) fn write(
    connection: &mut Connection,
    form: Form,
    batch: &Batch,
    gpus: Option<Gpus>,
) -> rusqlite::Result<()> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    create(&transaction, form)?;
    if let Some(gpus) = gpus {
        let names: Vec<String> = STATIC.iter().map(|column| format!("{} = ?", column.name)).collect();
        let sql = format!("UPDATE static_data SET {}", names.join(", "));
        transaction.execute(&sql, params_from_iter(values(STATIC, &Fixed { form, gpus })))?;
    }
    let mut data = transaction.prepare(&insert("data", DATA))?;
    for row in &batch.rows {
        data.execute(params_from_iter(values(DATA, row)))?;
        insert_gpus(&transaction, row)?;
    }
    // The statement borrows the transaction, which `commit` consumes.
    drop(data);
    insert_commands(&transaction, &batch.rows)?;
    insert_processes(&transaction, batch)?;
    insert_tasks(&transaction, batch)?;
    transaction.commit()
}

/// Creates the tables and the row of `static_data`, unless they are there.
fn create(transaction: &Transaction, form: Form) -> rusqlite::Result<()> {
    if has_tables(transaction)? {
        return Ok(());
    }
    transaction.execute_batch(&format!("CREATE TABLE static_data ({})", declared(STATIC)))?;
    // In SQLite, an INTEGER PRIMARY KEY is the rowid itself, so the key needs no index.
    let data = declared(DATA).replace("at_ns INTEGER", "at_ns INTEGER PRIMARY KEY");
    let gauges = GAUGES.map(|figure| format!("{} FLOAT", figure.name())).join(", ");
    let ours = OURS.replace("GAUGES", &gauges);
    transaction.execute_batch(&format!("CREATE TABLE data ({data});{ours}"))?;
    let fixed = Fixed { form, gpus: Gpus::default() };
    transaction.execute(&insert("static_data", STATIC), params_from_iter(values(STATIC, &fixed)))?;
    Ok(())
}

/// Columns as CREATE TABLE has them: `NAME TYPE, ...`. The types are those that gpu_tracker's database library uses.
fn declared<S>(columns: &[Column<S>]) -> String {
    let name_of = |kind| match kind {
        Kind::Text => "VARCHAR",
        Kind::Integer => "INTEGER",
        Kind::Number => "FLOAT",
    };
    let all: Vec<String> =
        columns.iter().map(|column| format!("{} {}", column.name, name_of(column.kind))).collect();
    all.join(", ")
}

/// The statement that inserts a row with these columns into a table, unless its key is there.
fn insert<S>(table: &str, columns: &[Column<S>]) -> String {
    format!("INSERT OR IGNORE INTO {table} VALUES ({})", vec!["?"; columns.len()].join(", "))
}

/// The values that columns have for `source`.
fn values<'a, S>(columns: &'a [Column<S>], source: &'a S) -> impl Iterator<Item = Value> + 'a {
    columns.iter().map(|column| (column.value)(source))
}

/// Inserts the GPUs of a row of `data`, each as a row of `gpus`.
fn insert_gpus(transaction: &Transaction, row: &DataRow) -> rusqlite::Result<()> {
    let sample = &row.interval.sample;
    if sample.gpu.devices.is_empty() {
        return Ok(());
    }
    let mut statement = transaction.prepare(&format!(
        "INSERT OR IGNORE INTO gpus VALUES ({})",
        vec!["?"; BEFORE_GAUGES + GAUGES.len()].join(", ")
    ))?;
    for gpu in &sample.gpu.devices {
        let bytes = |bytes: Option<u64>| bytes.map(integer);
        // Main, descendants, combined. NULL: not known.
        let of_run = gpu.run_bytes.map_or([None; 3], |run| run.values().map(Some)).map(bytes);
        let read_ns = (gpu.read_ns > 0).then(|| integer(gpu.read_ns));
        let (at_ns, used, timestamp) =
            (integer(sample.at_ns), bytes(gpu.used_bytes), Value::Time(row.time_us()));
        let first: [&dyn ToSql; BEFORE_GAUGES] = [
            &at_ns,
            &gpu.device.id,
            &timestamp,
            &gpu.device.name,
            &read_ns,
            &used,
            &of_run[0],
            &of_run[1],
            &of_run[2],
            &gpu.busy_percent,
        ];
        let gauges = GAUGES.map(|figure| (figure.row().value)(gpu));
        let last = gauges.iter().map(|gauge| -> &dyn ToSql { gauge });
        statement.execute(params_from_iter(first.into_iter().chain(last)))?;
    }
    Ok(())
}

/// Inserts the commands of rows of `data`, each as a row of `samples_by_command`.
fn insert_commands(transaction: &Transaction, rows: &[DataRow]) -> rusqlite::Result<()> {
    let mut statement =
        transaction.prepare("INSERT OR IGNORE INTO samples_by_command VALUES (?, ?, ?, ?, ?, ?)")?;
    for row in rows {
        for command in &row.interval.sample.commands {
            statement.execute(params![
                integer(row.interval.sample.at_ns),
                &*command.command,
                Value::Time(row.time_us()),
                integer(command.processes),
                integer(command.added_bytes),
                integer(command.cpu_ns),
            ])?;
        }
    }
    Ok(())
}

/// Inserts the processes of a batch, their arguments as a JSON array.
fn insert_processes(transaction: &Transaction, batch: &Batch) -> rusqlite::Result<()> {
    let mut statement = transaction
        .prepare("INSERT OR IGNORE INTO processes VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)")?;
    for EndedProcess { start_ns, is_still_running, usage } in &batch.processes {
        let args = usage.args.as_ref().and_then(|args| serde_json::to_string(args).ok());
        statement.execute(params![
            usage.pid,
            integer(*start_ns),
            usage.ppid,
            usage.command,
            args,
            Value::Time(start_ns.saturating_add(batch.epoch_ns) / 1000),
            usage.wall_s,
            is_still_running,
            usage.exit.code,
            usage.exit.signal,
            usage.cpu_s,
            usage.cpu_quality.name(),
            usage.peak_rss_bytes.map(integer),
            usage.peak_quality.name(),
        ])?;
    }
    Ok(())
}

/// Inserts the tasks of a batch. One that is there went on, so its row is replaced.
fn insert_tasks(transaction: &Transaction, batch: &Batch) -> rusqlite::Result<()> {
    if batch.tasks.is_empty() {
        return Ok(());
    }
    let columns = ["?"; 21].join(", ");
    let mut statement = transaction.prepare(&format!("INSERT OR REPLACE INTO tasks VALUES ({columns})"))?;
    let bytes = |bytes: Option<u64>| bytes.map(integer);
    for EndedTask { start_ns, end_ns, usage, .. } in &batch.tasks {
        let timestamp = |at_ns: &u64| Value::Time(at_ns.saturating_add(batch.epoch_ns) / 1000);
        statement.execute(params![
            usage.id,
            usage.kind_name(),
            usage.name,
            usage.parent,
            integer(*start_ns),
            timestamp(start_ns),
            timestamp(end_ns),
            usage.wall_s,
            integer(usage.processes),
            bytes(usage.starts),
            bytes(usage.failed_starts),
            integer(usage.still_running),
            usage.cpu_s,
            bytes(usage.peak_ram_bytes),
            usage.peak_quality.name(),
            bytes(usage.gpu_ram_bytes),
            bytes(usage.io.read_bytes),
            bytes(usage.io.write_bytes),
            usage.exit.code,
            usage.exit.signal,
            usage.why,
        ])?;
    }
    Ok(())
}

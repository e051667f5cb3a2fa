//! Opens the databases of gpu_tracker's form.

use std::path::Path;

use rusqlite::types::ValueRef;
use rusqlite::{Connection, OpenFlags};

/// Opens a database to read it.
///
/// What a killed writer had begun has to be undone, which needs permission to write. Where there is none, there may be nothing to
/// undo.
pub(super) fn open(path: &Path) -> rusqlite::Result<Connection> {
    Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE)
        .or_else(|_| Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY))
}

/// Gives the names of the columns of a table. A view is none: reading it could take any time.
///
/// # Errors
/// If there is no such table, or it can't be read, as a text to put behind the file's name.
pub(super) fn columns(connection: &Connection, table: &str) -> Result<Vec<String>, String> {
    let count = "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = ?";
    let count: i64 = connection.query_row(count, [table], |row| row.get(0)).map_err(unreadable)?;
    if count == 0 {
        return Err(format!("has no table \"{table}\""));
    }
    let names = "SELECT name FROM pragma_table_info(?)";
    let mut statement = connection.prepare(names).map_err(unreadable)?;
    let names = statement.query_map([table], |row| row.get(0)).map_err(unreadable)?;
    names.collect::<Result<_, _>>().map_err(unreadable)
}

/// Reads a finite number, also from a text. `None`: the cell has none.
pub(super) fn number(cell: ValueRef<'_>) -> Option<f64> {
    match cell {
        ValueRef::Integer(number) => Some(number as f64),
        ValueRef::Real(number) => Some(number).filter(|number| number.is_finite()),
        ValueRef::Text(text) => super::csv::number(text),
        ValueRef::Null | ValueRef::Blob(_) => None,
    }
}

/// Reads a whole number, also from a text or a number without a fraction. `None`: the cell has none.
pub(super) fn whole(cell: ValueRef<'_>) -> Option<i64> {
    match cell {
        ValueRef::Integer(number) => Some(number),
        ValueRef::Real(number) => Some(number as i64).filter(|whole| *whole as f64 == number),
        ValueRef::Text(text) => str::from_utf8(text).ok()?.trim().parse().ok(),
        ValueRef::Null | ValueRef::Blob(_) => None,
    }
}

/// Says that a file can't be read, and why, as a text to put behind the file's name.
pub(super) fn unreadable(error: impl std::fmt::Display) -> String {
    format!("cannot be read: {error}")
}

//! Opens and reads databases in gpu_tracker's form.

use std::path::Path;

use rusqlite::types::ValueRef;
use rusqlite::{Connection, OpenFlags};

/// Opens a database to read it.
///
/// SQLite must roll back what a killed writer had begun, which needs permission to write. Without the permission, the database is
/// opened for reading only, since there may be nothing to roll back.
pub(super) fn open(path: &Path) -> rusqlite::Result<Connection> {
    Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE)
        .or_else(|_| Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY))
}

/// Gives the names of the columns of a table. Views and generated columns are refused: they are computed when they are read, which
/// could take any time and memory.
///
/// # Errors
/// If there is no such table, it can't be read, or it has a generated column. The error is a text to put behind the file's name.
pub(super) fn columns(connection: &Connection, table: &str) -> Result<Vec<String>, String> {
    let count = "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = ?";
    let count: i64 = connection.query_row(count, [table], |row| row.get(0)).map_err(unreadable)?;
    if count == 0 {
        return Err(format!("has no table \"{table}\""));
    }
    // Not pragma_table_info, which leaves generated and hidden columns out.
    let names = "SELECT name, hidden FROM pragma_table_xinfo(?)";
    let mut statement = connection.prepare(names).map_err(unreadable)?;
    let mut rows = statement.query([table]).map_err(unreadable)?;
    let mut names = Vec::new();
    while let Some(row) = rows.next().map_err(unreadable)? {
        let name: String = row.get(0).map_err(unreadable)?;
        let hidden: i64 = row.get(1).map_err(unreadable)?;
        if hidden != 0 {
            return Err(format!(
                "has a generated column \"{name}\" in its table \"{table}\", which is not read"
            ));
        }
        names.push(name);
    }
    Ok(names)
}

/// Makes the query for the columns `names` of a table, in this order.
pub(super) fn select(names: &[String], table: &str) -> String {
    let quoted: Vec<String> = names.iter().map(|name| format!("\"{}\"", name.replace('"', "\"\""))).collect();
    format!("SELECT {} FROM {table}", quoted.join(", "))
}

/// Gives the finite number in a cell, which can be a text. `None`: the cell has none.
pub(super) fn number(cell: ValueRef<'_>) -> Option<f64> {
    match cell {
        ValueRef::Integer(number) => Some(number as f64),
        ValueRef::Real(number) => Some(number).filter(|number| number.is_finite()),
        ValueRef::Text(text) => super::csv::number(text),
        ValueRef::Null | ValueRef::Blob(_) => None,
    }
}

/// Gives the whole number in a cell, which can be a text, or a real number without a fraction. `None`: the cell has none.
pub(super) fn whole(cell: ValueRef<'_>) -> Option<i64> {
    match cell {
        ValueRef::Integer(number) => Some(number),
        ValueRef::Real(number) => Some(number as i64).filter(|whole| *whole as f64 == number),
        ValueRef::Text(text) => str::from_utf8(text).ok()?.trim().parse().ok(),
        ValueRef::Null | ValueRef::Blob(_) => None,
    }
}

/// Makes a text to put behind a file's name: that it can't be read, and why.
pub(super) fn unreadable(error: impl std::fmt::Display) -> String {
    format!("cannot be read: {error}")
}

#[cfg(test)]
mod tests {
    use super::*;

    // Requirement: CMD-44
    #[test]
    fn columns_are_read_by_their_names_and_generated_ones_are_refused() {
        let connection = Connection::open_in_memory().unwrap();
        let tables =
            "CREATE TABLE data (\"a\"\"b, c\" INTEGER, \"select\" INTEGER); INSERT INTO data VALUES (1, 2);
            CREATE TABLE virtual (g AS (zeroblob(900000000)), x INTEGER); INSERT INTO virtual VALUES (7);
            CREATE TABLE stored (x INTEGER, g INTEGER AS (x + 1) STORED);";
        connection.execute_batch(tables).unwrap();
        let names = columns(&connection, "data").unwrap();
        assert_eq!(names, ["a\"b, c", "select"]);
        let cells = connection.query_row(&select(&names, "data"), [], |row| Ok((row.get(0)?, row.get(1)?)));
        assert_eq!(cells.unwrap(), (1, 2));
        for table in ["virtual", "stored"] {
            let expected =
                format!("has a generated column \"g\" in its table \"{table}\", which is not read");
            assert_eq!(columns(&connection, table).unwrap_err(), expected);
        }
    }
}

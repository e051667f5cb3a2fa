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
/// If there is no such table, it can't be read, or it has a generated column, as a text to put behind the file's name. What such a
/// column gives is computed when it is read, and could take any time and memory.
pub(super) fn columns(connection: &Connection, table: &str) -> Result<Vec<String>, String> {
    let count = "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = ?";
    let count: i64 = connection.query_row(count, [table], |row| row.get(0)).map_err(unreadable)?;
    if count == 0 {
        return Err(format!("has no table \"{table}\""));
    }
    // pragma_table_info leaves generated and hidden columns out.
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

/// Makes the query for these columns of a table, in their order.
pub(super) fn select(names: &[String], table: &str) -> String {
    let quoted: Vec<String> = names.iter().map(|name| format!("\"{}\"", name.replace('"', "\"\""))).collect();
    format!("SELECT {} FROM {table}", quoted.join(", "))
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

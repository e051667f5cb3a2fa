//! Reads the tables of a database. Its content can be anything: it is another program's, damaged, or made to mislead.
//!
//! Only tables are read. Views and virtual tables are programs, which can take any time and memory. What is read of tables is bounded by
//! the size of the file, since a damaged file can have pages that lead to each other, and so endless tables.

use std::cell::Cell;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;

use rusqlite::config::DbConfig;
use rusqlite::limits::Limit;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, ErrorCode, OpenFlags, Row};

use super::{snapshot, vfs};

/// Limits of SQLite (sqlite.org/limits.html), far beyond those of tracking files: bytes of a value and of a table's definition, databases
/// beside this one, and depth of an expression.
const LIMITS: [(Limit, i32); 4] = [
    (Limit::SQLITE_LIMIT_LENGTH, 1 << 20),
    (Limit::SQLITE_LIMIT_SQL_LENGTH, 1 << 20),
    (Limit::SQLITE_LIMIT_ATTACHED, 0),
    (Limit::SQLITE_LIMIT_EXPR_DEPTH, 100),
];
/// Settings (sqlite.org/pragma.html) for content that is not trusted. `cache_size` is in KiB, if negative. With a small cache, a value
/// that is spread over many pages is read again and again, which the VFS bounds.
const PRAGMAS: [(&str, &str); 5] = [
    ("query_only", "ON"),
    ("cell_size_check", "ON"),
    ("mmap_size", "0"),
    ("temp_store", "MEMORY"),
    ("cache_size", "-64"),
];
/// Hard limit of SQLite's memory, bytes. It takes a few MB, for a database of any size.
const MAX_HEAP_BYTES: &str = "67108864";
/// SQLite executes a query in steps. After so many of them, it asks whether to go on.
const STEPS: i32 = 1000;
/// Steps that any database may take, and how many more for each byte of its file. A value takes a step, and at least a byte.
const LEAST_STEPS: u64 = 1_000_000;
const STEPS_PER_BYTE: u64 = 4;
/// Maximum number of bytes of content. A year of samples each second has about that many values.
const MOST_CONTENT: u64 = 1 << 30;
/// The message about a database whose tables have more content than its file can hold.
const ENDLESS: &str = "is damaged: its tables have more content than a file of its size can have";

/// A database that is open to be read.
pub(crate) struct DatabaseReader {
    connection: Connection,
    /// How much more content may be read: bytes of texts, and one for any other value.
    left: Cell<u64>,
    /// The locked file, whose descriptor `connection` reads. As the last field, it is closed after the connection.
    _file: File,
}

impl DatabaseReader {
    /// Opens the database at `path`.
    ///
    /// # Errors
    /// If it can't be read without a change to it or to what is beside it. The error is a text to put after the file's name.
    pub(crate) fn open(path: &Path) -> Result<Self, String> {
        let file = snapshot::open(path).map_err(|error| error.to_string())?;
        let size = file.metadata().map_err(unreadable)?.len();
        let connection = connect(&file, size).map_err(sqlite_error)?;
        Ok(Self { connection, left: Cell::new(size.min(MOST_CONTENT)), _file: file })
    }

    /// The names of the columns of a table; `None` if there is no such table. A table with generated columns is refused, because SQLite
    /// can compute their expressions at each read.
    ///
    /// # Errors
    /// If it can't be read, or is no table. The error is a text to put after the file's name.
    pub(crate) fn columns_if_any(&self, table: &str) -> Result<Option<Vec<String>>, String> {
        // In sqlite_master, the type of a virtual table would be "table", too.
        let kind = "SELECT type FROM pragma_table_list(?) WHERE schema = 'main'";
        let kinds = self.list(kind, table, |row| row.get::<_, String>(0))?;
        match kinds.first().map(String::as_str) {
            None => return Ok(None),
            Some("table") => {}
            Some(kind) => return Err(format!("has a {kind} \"{table}\", and only tables are read")),
        }
        // Not pragma_table_info, which leaves generated and hidden columns out.
        let names = "SELECT name, hidden FROM pragma_table_xinfo(?)";
        let columns = self.list(names, table, |row| Ok((row.get::<_, String>(0)?, row.get::<_, i64>(1)?)))?;
        if let Some((name, _)) = columns.iter().find(|(_, hidden)| *hidden != 0) {
            return Err(format!(
                "has a generated column \"{name}\" in its table \"{table}\", which is not read"
            ));
        }
        Ok(Some(columns.into_iter().map(|(name, _)| name).collect()))
    }

    /// The names of the columns of a table.
    ///
    /// # Errors
    /// As [`Self::columns_if_any`], and if there is no such table.
    pub(crate) fn columns(&self, table: &str) -> Result<Vec<String>, String> {
        self.columns_if_any(table)?.ok_or_else(|| format!("has no table \"{table}\""))
    }

    /// What `of_row` makes of the rows of a query, whose parameter is the name `table`.
    fn list<T>(
        &self,
        query: &str,
        table: &str,
        of_row: impl FnMut(&Row) -> rusqlite::Result<T>,
    ) -> Result<Vec<T>, String> {
        let mut statement = self.connection.prepare(query).map_err(sqlite_error)?;
        statement.query_map([table], of_row).and_then(Iterator::collect).map_err(sqlite_error)
    }

    /// Hands the rows of a table to `take`, each with the columns `names` in this order.
    ///
    /// # Errors
    /// If they can't be read. An error of `take` is returned as it is, and ends the reading. Both are texts to put after the file's
    /// name.
    pub(crate) fn rows(
        &self,
        table: &str,
        names: &[impl AsRef<str>],
        mut take: impl FnMut(&Row) -> Result<(), String>,
    ) -> Result<(), String> {
        let mut statement = self.connection.prepare(&select(names, table)).map_err(sqlite_error)?;
        let mut rows = statement.query([]).map_err(sqlite_error)?;
        while let Some(row) = rows.next().map_err(sqlite_error)? {
            self.charge(row, names.len())?;
            take(row)?;
        }
        Ok(())
    }

    /// Returns what `take` makes of the first row of a table, with the columns `names`.
    ///
    /// # Errors
    /// If the table can't be read or has no row, or if `take` fails. The error is a text to put after the file's name.
    pub(crate) fn first_row<T>(
        &self,
        table: &str,
        names: &[impl AsRef<str>],
        take: impl FnOnce(&Row) -> rusqlite::Result<T>,
    ) -> Result<T, String> {
        let query = select(names, table) + " LIMIT 1";
        // One row needs no count of its content: SQLITE_LIMIT_LENGTH bounds it.
        self.connection.query_row(&query, [], take).map_err(|error| match error {
            rusqlite::Error::QueryReturnedNoRows => format!("has no row in its table \"{table}\""),
            error => sqlite_error(error),
        })
    }

    /// Subtracts the content of a row from what may still be read. An error says that it is too much.
    fn charge(&self, row: &Row, columns: usize) -> Result<(), String> {
        let mut content = 0;
        for at in 0..columns {
            content += match row.get_ref(at).map_err(sqlite_error)? {
                ValueRef::Text(bytes) | ValueRef::Blob(bytes) => 1 + bytes.len() as u64,
                _ => 1,
            };
        }
        self.left.set(self.left.get().checked_sub(content).ok_or(ENDLESS)?);
        Ok(())
    }
}

/// Connects SQLite with a file of `size` bytes, and bounds what it does.
fn connect(file: &File, size: u64) -> rusqlite::Result<Connection> {
    let name = file.as_raw_fd().to_string();
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = vfs::open(Path::new(&name), flags)?;
    for (limit, value) in LIMITS {
        connection.set_limit(limit, value)?;
    }
    for (config, value) in [
        (DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true),
        (DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false),
        (DbConfig::SQLITE_DBCONFIG_ENABLE_VIEW, false),
        (DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false),
    ] {
        connection.set_db_config(config, value)?;
    }
    connection.pragma_update_and_check(None, "hard_heap_limit", MAX_HEAP_BYTES, |_| Ok(()))?;
    let mut calls_left = LEAST_STEPS.saturating_add(size.saturating_mul(STEPS_PER_BYTE)) / STEPS as u64;
    // SQLite calls this after each `STEPS` steps, and interrupts the query if it returns true.
    let is_beyond = move || {
        calls_left = calls_left.saturating_sub(1);
        calls_left == 0
    };
    connection.progress_handler(STEPS, Some(is_beyond))?;
    for (name, value) in PRAGMAS {
        connection.pragma_update(None, name, value)?;
    }
    Ok(connection)
}

/// Makes the query for the columns `names` of a table, in this order. No index is used: a damaged one could list other rows than the
/// table has.
fn select(names: &[impl AsRef<str>], table: &str) -> String {
    let quoted: Vec<String> =
        names.iter().map(|name| format!("\"{}\"", name.as_ref().replace('"', "\"\""))).collect();
    format!("SELECT {} FROM main.\"{table}\" NOT INDEXED", quoted.join(", "))
}

/// Makes a text to put after a file's name: that it can't be read, and why.
pub(crate) fn unreadable(error: impl std::fmt::Display) -> String {
    format!("cannot be read: {error}")
}

/// Makes a text to put after a file's name, of an error of SQLite.
fn sqlite_error(error: rusqlite::Error) -> String {
    match error.sqlite_error_code() {
        // The handler of `connect` has interrupted the query.
        Some(ErrorCode::OperationInterrupted) => ENDLESS.to_owned(),
        _ => unreadable(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A database that these statements make.
    fn made(directory: &tempfile::TempDir, statements: &str) -> std::path::PathBuf {
        let path = directory.path().join("t.sqlite");
        Connection::open(&path).unwrap().execute_batch(statements).unwrap();
        path
    }

    /// How many rows are read of `data`, and the problem that ends it.
    fn read(path: &Path) -> (usize, Result<(), String>) {
        let mut count = 0;
        let result = DatabaseReader::open(path).and_then(|reader| {
            let names = reader.columns("data")?;
            reader.rows("data", &names, |_| {
                count += 1;
                Ok(())
            })
        });
        (count, result)
    }

    // Requirement: CMD-44
    #[test]
    fn columns_are_read_by_their_names_and_generated_ones_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let tables =
            "CREATE TABLE data (\"a\"\"b, c\" INTEGER, \"select\" INTEGER); INSERT INTO data VALUES (1, 2);
            CREATE TABLE virtual (g AS (zeroblob(900000000)), x INTEGER); INSERT INTO virtual VALUES (7);
            CREATE TABLE stored (x INTEGER, g INTEGER AS (x + 1) STORED);";
        let reader = DatabaseReader::open(&made(&directory, tables)).unwrap();
        let names = reader.columns("data").unwrap();
        assert_eq!(names, ["a\"b, c", "select"]);
        let cells = reader.first_row("data", &names, |row| Ok((row.get(0)?, row.get(1)?)));
        assert_eq!(cells.unwrap(), (1, 2));
        for table in ["virtual", "stored"] {
            let expected =
                format!("has a generated column \"g\" in its table \"{table}\", which is not read");
            assert_eq!(reader.columns(table).unwrap_err(), expected);
        }
        assert_eq!(reader.columns("none").unwrap_err(), "has no table \"none\"");
        assert_eq!(reader.columns_if_any("none"), Ok(None));
    }

    // Requirement: SQL-2
    #[test]
    fn only_tables_are_read() {
        let endless = "CREATE VIEW data AS WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT x FROM c";
        let module = "PRAGMA writable_schema = ON;
            INSERT INTO sqlite_master VALUES ('table', 'data', 'data', 0, 'CREATE VIRTUAL TABLE data USING none')";
        for (statements, kind) in [(endless, "view"), (module, "virtual")] {
            let directory = tempfile::tempdir().unwrap();
            let expected = format!("has a {kind} \"data\", and only tables are read");
            assert_eq!(read(&made(&directory, statements)), (0, Err(expected)), "{statements}");
        }
    }

    // Requirement: SQL-2
    #[test]
    fn large_values_and_names_that_are_no_text_are_refused() {
        let large = "CREATE TABLE data (x); INSERT INTO data VALUES (1), (zeroblob(2000000));";
        let name = "CREATE TABLE data (x); PRAGMA writable_schema = ON;
            UPDATE sqlite_master SET sql = CAST(x'435245415445205441424c4520646174612028ff29' AS TEXT);";
        for (statements, rows, problem) in [(large, 1, "too big"), (name, 0, "utf-8")] {
            let directory = tempfile::tempdir().unwrap();
            let (count, result) = read(&made(&directory, statements));
            let error = result.unwrap_err();
            assert!(count == rows && error.contains(problem), "{count}: {error}");
        }
    }

    /// Makes a table with one page endless: the page `root` gets three children, all of them one page, and so on `depth` times. Then
    /// comes what the page was. Page 1 has the definitions of tables.
    fn make_endless(path: &Path, root: usize, depth: usize) {
        const PAGE: usize = 4096;
        let mut bytes = std::fs::read(path).unwrap();
        let mut last = bytes.len() / PAGE;
        // The first page begins with the database's header.
        let begin = |page: usize| (page - 1) * PAGE + if page == 1 { 100 } else { 0 };
        let mut leaf = bytes[(root - 1) * PAGE..root * PAGE].to_vec();
        leaf.copy_within(begin(root) % PAGE..begin(root) % PAGE + 16, 0);
        let mut inner = root;
        for _ in 0..depth {
            last += 1;
            bytes.resize(last * PAGE, 0);
            let [low, child] = [(PAGE - 5) as u16, last as u16].map(u16::to_be_bytes);
            // The kind of an inner page, two cells, where they begin, the last child, and where each cell is: the same one for both. It
            // is a child and a key (sqlite.org/fileformat2.html).
            let head = [[5, 0], [0, 0], [2, low[0]], [low[1], 0], [0, 0], child, low, low].concat();
            bytes[begin(inner)..][..head.len()].copy_from_slice(&head);
            bytes[inner * PAGE - 5..inner * PAGE].copy_from_slice(&[0, 0, child[0], child[1], 1]);
            inner = last;
        }
        bytes[(last - 1) * PAGE..].copy_from_slice(&leaf);
        bytes[28..32].copy_from_slice(&(last as u32).to_be_bytes());
        std::fs::write(path, bytes).unwrap();
    }

    // Requirement: SQL-2
    #[test]
    fn table_without_an_end_is_read_until_it_has_more_content_than_its_file() {
        let table = "PRAGMA page_size = 4096; CREATE TABLE data (x); INSERT INTO data VALUES (7);";
        let directory = tempfile::tempdir().unwrap();
        let path = made(&directory, table);
        make_endless(&path, 2, 2);
        assert_eq!(read(&path), (9, Ok(())));
        // Its 11 levels of pages fit into the cache. If each row were read from the file, the limit of that would come first.
        make_endless(&path, 2, 9);
        let (count, result) = read(&path);
        assert_eq!((count as u64, result.unwrap_err().as_str()), (path.metadata().unwrap().len(), ENDLESS));
    }

    // Requirement: SQL-2
    #[test]
    fn definitions_without_an_end_are_given_up() {
        // It may come again and again.
        let table = "PRAGMA page_size = 4096; PRAGMA writable_schema = ON;
            INSERT INTO sqlite_master VALUES ('view', 'data', 'data', 0, 'CREATE VIEW IF NOT EXISTS data AS SELECT 1');";
        let directory = tempfile::tempdir().unwrap();
        let path = made(&directory, table);
        make_endless(&path, 1, 2);
        assert_eq!(read(&path), (0, Err("has a view \"data\", and only tables are read".to_owned())));
        make_endless(&path, 1, 16);
        assert_eq!(read(&path), (0, Err(ENDLESS.to_owned())));
    }
}

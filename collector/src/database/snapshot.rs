//! Opens the file of a database for reading, as its last whole transaction left it. Nothing is made, changed or removed beside it.
//!
//! The file is opened once, and locked as SQLite's readers lock: no writer changes it until it is closed. So SQLite can read it as a file
//! that never changes.
//!
//! A writer that was killed can have left a log. A journal undoes its last transaction; a write-ahead log has what is not yet in the
//! database. Then database and log are copied to files without names, and SQLite completes the copy of the database. The log must
//! belong to the database's owner or to this user. It may not name another file, because SQLite would delete that.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::{self, File, Metadata};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rusqlite::OpenFlags;
use rustix::fs::{CWD, MemfdFlags, Mode, OFlags, memfd_create, openat};
use thiserror::Error;

use super::{MOST_COPIED, journal, locks, vfs};
use crate::sys::files::copy_range;

/// Maximum number of bytes of a database. A year of samples each second has about that.
const MAX_BYTES: u64 = 16 << 30;
/// How long to wait for a writer. A transaction of `--tf` takes milliseconds.
const WAIT: Duration = Duration::from_secs(10);
/// How often to look whether the writer has ended.
const EVERY: Duration = Duration::from_millis(10);
/// What a journal begins and ends with (sqlite.org/fileformat2.html). At its end, the name of another file precedes it.
const MAGIC: [u8; 8] = [0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7];
/// The byte of the database's header with its format version for writers; that for readers follows. 2: it has a write-ahead log.
const VERSIONS: u64 = 18;
const WRITE_AHEAD: u8 = 2;

/// Why a database can't be read. The message follows the file's name.
#[derive(Debug, Error)]
pub(super) enum NotOpened {
    #[error("is no regular file")]
    NotAFile,
    #[error("has {0} bytes: at most {MAX_BYTES} are read")]
    TooLarge(u64),
    #[error("is in use by a program that writes it: try again later, or close it there")]
    Locked,
    #[error("is on a file system without the locks that SQLite needs ({0}): copy it to another one")]
    NoLocks(io::Error),
    #[error("may be incomplete: {0} is beside it, which {1}")]
    Log(String, UnusableLog),
    #[error("cannot be read: {0}")]
    Io(#[from] io::Error),
    #[error("needs a copy in /tmp, since its last transaction is not complete, and there is none: {0}")]
    NotCopied(io::Error),
    #[error("cannot be completed from what its writer left: {0}")]
    Sqlite(#[from] rusqlite::Error),
}

/// Why a log is not used, and what to do. With a log of another user beside the database, SQLite would do what that log says.
#[derive(Debug, Error)]
pub(super) enum UnusableLog {
    #[error("is no regular file: {COPY}")]
    NotAFile,
    #[error("belongs to user {0}: {COPY}")]
    Foreign(u32),
    #[error("has another name, too: {COPY}")]
    Linked,
    #[error("names another file, which SQLite would delete: {COPY}")]
    NamesAnother,
    #[error("has {0} bytes with the database, and at most {MOST_COPIED} are copied: {COMPLETE}")]
    TooLarge(u64),
    #[error("cannot be read ({0}): {COMPLETE}")]
    Io(io::Error),
}

/// What to do about a log that is not to be trusted.
const COPY: &str = "copy the database alone to another directory, to read it as it is";
/// What to do about a log that a killed writer left and that can't be copied.
const COMPLETE: &str = "open the database with sqlite3 as its owner, which completes it";

/// What a writer left beside a database.
#[derive(Clone, Copy, PartialEq)]
enum Log {
    Journal,
    WriteAhead,
}

impl Log {
    /// What SQLite appends to the database's name.
    fn suffix(self) -> &'static str {
        match self {
            Self::Journal => journal::SUFFIX,
            Self::WriteAhead => "-wal",
        }
    }
}

impl fmt::Display for Log {
    /// Writes the letter that stands for the log in a name for [`vfs`], such as `5+6j`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Journal => "j",
            Self::WriteAhead => "w",
        })
    }
}

/// Opens and locks a database, or a completed copy of it.
///
/// # Errors
/// If it is no database that can be read, or could be read only if something were changed.
pub(super) fn open(given: &Path) -> Result<File, NotOpened> {
    let path = fs::canonicalize(given)?;
    // To open a device can have effects, so this looks before the open. Other users can't put a device there in between.
    if !fs::symlink_metadata(&path)?.is_file() {
        return Err(NotOpened::NotAFile);
    }
    // Database and log are opened in this one directory, even if it is renamed or replaced meanwhile.
    let directory = path.parent().unwrap_or(&path);
    let directory = openat(CWD, directory, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
    let directory = directory.map_err(io::Error::from)?;
    let name = path.file_name().ok_or(io::ErrorKind::IsADirectory).map_err(io::Error::from)?;
    let database = open_in(&directory, name.to_owned())?;
    let found = database.metadata()?;
    if !found.is_file() {
        return Err(NotOpened::NotAFile);
    }
    if found.len() > MAX_BYTES {
        return Err(NotOpened::TooLarge(found.len()));
    }
    // A writer may be in a transaction.
    until(|| locks::share(&database))?;
    whole(database, &directory, name)
}

/// Returns a database, or a completed copy of it if it is incomplete without a log that lies beside it. `name`: its name in `directory`.
fn whole(database: File, directory: &OwnedFd, name: &OsStr) -> Result<File, NotOpened> {
    for kind in [Log::Journal, Log::WriteAhead] {
        let mut log_name = name.to_owned();
        log_name.push(kind.suffix());
        let refused = |why| NotOpened::Log(Path::new(&log_name).display().to_string(), why);
        let log = match open_in(directory, log_name.clone()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            log => log,
        };
        // A log that can't be opened is an error only if the database is incomplete without it.
        if !is_needed(&database, log.as_ref().ok(), kind)? {
            continue;
        }
        let log = log.map_err(|error| refused(UnusableLog::Io(error)))?;
        check(&database.metadata()?, &log.metadata()?).map_err(refused)?;
        return completed(&database, &log, kind)?.map_err(refused);
    }
    Ok(database)
}

/// Opens a file in a directory for reading. No link is followed, and no writer of a pipe is waited for.
fn open_in(directory: &OwnedFd, name: OsString) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    Ok(openat(directory, name, flags, Mode::empty())?.into())
}

/// Waits until `is_done` returns true, for at most [`WAIT`].
fn until(is_done: impl Fn() -> io::Result<bool>) -> Result<(), NotOpened> {
    let end = Instant::now() + WAIT;
    while !is_done().map_err(NotOpened::NoLocks)? {
        if Instant::now() > end {
            return Err(NotOpened::Locked);
        }
        sleep(EVERY);
    }
    Ok(())
}

/// Whether the database is incomplete without its log. `log`: `None` if it is there but can't be opened.
fn is_needed(database: &File, log: Option<&File>, kind: Log) -> Result<bool, NotOpened> {
    let is_regular = |file: &&File| file.metadata().is_ok_and(|found| found.is_file());
    match kind {
        // The journal is that of a live writer. Our lock shows that it has not yet changed the database.
        Log::Journal if locks::is_reserved(database).map_err(NotOpened::NoLocks)? => Ok(false),
        // After a transaction, a journal is empty or has no header.
        Log::Journal => {
            Ok(log.filter(is_regular).is_none_or(|log| starts_with(log, 0, &MAGIC).unwrap_or(true)))
        }
        Log::WriteAhead => {
            let uses_log =
                (0..2).any(|at| starts_with(database, VERSIONS + at, &[WRITE_AHEAD]).unwrap_or(true));
            Ok(uses_log
                && log
                    .and_then(|log| log.metadata().ok())
                    .is_none_or(|found| !found.is_file() || found.len() > 0))
        }
    }
}

/// Whether these bytes are at `offset` of a file.
fn starts_with(file: &File, offset: u64, bytes: &[u8]) -> io::Result<bool> {
    let mut found = [0; MAGIC.len()];
    let found = &mut found[..bytes.len()];
    match file.read_exact_at(found, offset) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        result => result.map(|()| found == bytes),
    }
}

/// Checks that a log may be used for the database, by the metadata of both.
fn check(database: &Metadata, log: &Metadata) -> Result<(), UnusableLog> {
    let owners = [database.uid(), rustix::process::geteuid().as_raw()];
    match log {
        _ if !log.is_file() => Err(UnusableLog::NotAFile),
        _ if !owners.contains(&log.uid()) => Err(UnusableLog::Foreign(log.uid())),
        _ if log.nlink() > 1 => Err(UnusableLog::Linked),
        _ => match database.len().saturating_add(log.len()) {
            too_many if too_many > MOST_COPIED => Err(UnusableLog::TooLarge(too_many)),
            _ => Ok(()),
        },
    }
}

/// Copies a database and its log, has SQLite complete the copy, and returns that. The inner error says that the log can't be used.
fn completed(database: &File, log: &File, kind: Log) -> Result<Result<File, UnusableLog>, NotOpened> {
    // With a write-ahead log, a reader's lock does not keep writers out: every program that has the database open shares it.
    let is_in_use =
        || -> io::Result<bool> { Ok(kind == Log::WriteAhead && locks::is_shared_by_others(database)?) };
    // Length and time of change of both files. If they stay during the copy, no program wrote meanwhile.
    let state = || -> io::Result<[(u64, i64, i64); 2]> {
        let stamp =
            |file: &File| file.metadata().map(|found| (found.len(), found.mtime(), found.mtime_nsec()));
        Ok([stamp(database)?, stamp(log)?])
    };
    until(|| Ok(!is_in_use()?))?;
    let before = state()?;
    let copy = |file| copy(file).map_err(NotOpened::NotCopied);
    let (database_copy, log_copy) = (copy(database)?, copy(log)?);
    if is_in_use()? || state()? != before {
        return Err(NotOpened::Locked);
    }
    let end = log_copy.metadata()?.len().saturating_sub(MAGIC.len() as u64);
    if kind == Log::Journal && starts_with(&log_copy, end, &MAGIC)? {
        return Ok(Err(UnusableLog::NamesAnother));
    }
    let name = format!("{}+{}{kind}", database_copy.as_raw_fd(), log_copy.as_raw_fd());
    let connection = vfs::open(Path::new(&name), OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    // A write-ahead log that only this connection uses needs no shared memory.
    connection.pragma_update(None, "locking_mode", "EXCLUSIVE")?;
    // The first access plays a journal back. For `user_version`, SQLite does not read the tables' definitions.
    connection.pragma_query_value(None, "user_version", |_| Ok(()))?;
    if kind == Log::WriteAhead {
        connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
    }
    Ok(Ok(database_copy))
}

/// Copies a file to one without a name, in /tmp or else in memory. Holes stay holes, so that a copy takes no more room than the file.
fn copy(file: &File) -> io::Result<File> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let on_disk = openat(CWD, "/tmp", flags, Mode::RUSR | Mode::WUSR);
    let made = on_disk.or_else(|_| memfd_create("gpu-track-database", MemfdFlags::CLOEXEC));
    let copy = File::from(made?);
    // `check` has refused a larger file. One that has grown since is cut here; `completed` drops the copy, since the length changed.
    let length = file.metadata()?.len().min(MOST_COPIED);
    copy.set_len(length)?;
    copy_range(file, &copy, 0..length, u64::MAX)?;
    Ok(copy)
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::{PermissionsExt, chown};
    use std::path::PathBuf;
    use std::sync::mpsc;
    use std::thread;

    use rusqlite::Connection;
    use rustix::fs::{FileType, mknodat};

    use super::super::DatabaseReader;
    use super::*;

    #[test]
    fn copy_of_a_file_with_holes_has_them_too() {
        use std::os::unix::fs::{FileExt, MetadataExt};
        let file = tempfile::tempfile().unwrap();
        file.set_len(1 << 32).unwrap();
        file.write_all_at(b"begin", 0).unwrap();
        file.write_all_at(b"end", 3 << 30).unwrap();
        let copied = copy(&file).unwrap();
        let metadata = copied.metadata().unwrap();
        assert_eq!(metadata.len(), 1 << 32);
        assert!(metadata.blocks() * 512 <= 1 << 20, "{} blocks", metadata.blocks());
        let mut read = [0; 5];
        copied.read_exact_at(&mut read, 3 << 30).unwrap();
        assert_eq!(&read, b"end\0\0");
        copied.read_exact_at(&mut read, 0).unwrap();
        assert_eq!(&read, b"begin");
    }

    /// How many rows the first transaction has.
    const ROWS: u32 = 100;

    /// What is in a directory: the name of each file, and what tells whether it was changed or replaced.
    fn state(directory: &Path) -> Vec<(OsString, u64, u64, i64, i64)> {
        let entry = |entry: io::Result<fs::DirEntry>| {
            let entry = entry.unwrap();
            let found = fs::symlink_metadata(entry.path()).unwrap();
            (entry.file_name(), found.ino(), found.len(), found.ctime(), found.ctime_nsec())
        };
        let mut all: Vec<_> = fs::read_dir(directory).unwrap().map(entry).collect();
        all.sort();
        all
    }

    /// How many rows the database has. Nothing beside it changes.
    fn rows(path: &Path) -> Result<u32, String> {
        let directory = fs::canonicalize(path).unwrap();
        let before = state(directory.parent().unwrap());
        let count = DatabaseReader::open(path).and_then(|reader| {
            let mut count = 0;
            reader.rows("data", &["x"], |_| {
                count += 1;
                Ok(())
            })?;
            Ok(count)
        });
        assert_eq!(state(directory.parent().unwrap()), before);
        count
    }

    /// A database of [`ROWS`] rows in this journal mode, and a connection with it.
    fn made(path: &Path, journal_mode: &str) -> Connection {
        let connection = Connection::open(path).unwrap();
        let _: String = connection
            .query_row(&format!("PRAGMA journal_mode={journal_mode}"), [], |row| row.get(0))
            .unwrap();
        connection
            .execute_batch("PRAGMA cache_size = 1; PRAGMA cache_spill = 1; CREATE TABLE data (x)")
            .unwrap();
        add(&connection, ROWS);
        connection
    }

    fn add(connection: &Connection, rows: u32) {
        let add = "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < ?)
            INSERT INTO data SELECT hex(randomblob(100)) FROM c";
        connection.execute(add, [rows]).unwrap();
    }

    /// A database whose writer was killed in a transaction, in a new directory: the files as they were then. Its log's path, too.
    fn left(journal_mode: &str) -> (tempfile::TempDir, PathBuf, PathBuf) {
        let directory = tempfile::tempdir().unwrap();
        let writing = directory.path().join("writing");
        fs::create_dir(&writing).unwrap();
        let connection = made(&writing.join("t.sqlite"), journal_mode);
        connection.execute_batch("BEGIN").unwrap();
        add(&connection, 10_000);
        let suffix = if journal_mode == "WAL" { "-wal" } else { "-journal" };
        let paths = ["t.sqlite".to_owned(), format!("t.sqlite{suffix}")].map(|name| {
            fs::copy(writing.join(&name), directory.path().join(&name)).unwrap();
            directory.path().join(name)
        });
        drop(connection);
        fs::remove_dir_all(writing).unwrap();
        let [database, log] = paths;
        (directory, database, log)
    }

    /// The problem of a database whose log can't be used.
    fn problem(path: &Path) -> String {
        let error = rows(path).unwrap_err();
        assert!(error.starts_with("may be incomplete: t.sqlite-journal is beside it, which "), "{error}");
        error
    }

    // Requirement: SQL-1
    #[test]
    fn what_a_killed_writer_had_begun_is_not_read_and_stays() {
        for journal_mode in ["DELETE", "PERSIST", "WAL"] {
            let (_directory, path, log) = left(journal_mode);
            assert!(path.metadata().unwrap().len() > 1_000_000 || journal_mode == "WAL");
            assert_eq!(rows(&path), Ok(ROWS), "{journal_mode}");
            let connection = Connection::open(&path).unwrap();
            let count = |row: &rusqlite::Row| row.get(0);
            assert_eq!(connection.query_row("SELECT count(*) FROM data", [], count), Ok(ROWS));
            drop(connection);
            assert!(!log.exists(), "SQLite itself completes it");
            assert_eq!(rows(&path), Ok(ROWS), "{journal_mode}, without a log");
        }
    }

    // Requirement: SQL-1
    #[test]
    fn journal_that_names_another_file_is_refused_and_the_file_stays() {
        let (directory, path, journal) = left("DELETE");
        let other = directory.path().join("other");
        fs::write(&other, "").unwrap();
        let name = other.as_os_str().as_bytes();
        let sum: u32 = name.iter().copied().map(u32::from).sum();
        let numbers = [name.len() as u32, sum].map(u32::to_be_bytes).concat();
        let end = [&[0, 0, 0, 0], name, &numbers, &MAGIC].concat();
        fs::write(&journal, [fs::read(&journal).unwrap(), end].concat()).unwrap();
        assert!(
            problem(&path)
                .contains("which names another file, which SQLite would delete: copy the database alone")
        );
    }

    // Requirement: SQL-1
    #[test]
    fn journal_that_is_no_file_or_not_the_owners_is_refused() {
        let (directory, path, journal) = left("DELETE");
        let other = directory.path().join("other");
        fs::hard_link(&journal, &other).unwrap();
        assert!(problem(&path).contains("which has another name, too"));
        fs::remove_file(&other).unwrap();
        if rustix::process::geteuid().is_root() {
            chown(&journal, Some(12_345), None).unwrap();
            assert!(problem(&path).contains("which belongs to user 12345"));
            // That of the database's owner is used.
            chown(&path, Some(12_345), None).unwrap();
            assert_eq!(rows(&path), Ok(ROWS));
        }
        fs::remove_file(&journal).unwrap();
        mknodat(CWD, &journal, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
        assert!(problem(&path).contains("which is no regular file"));
        fs::remove_file(&journal).unwrap();
        std::os::unix::fs::symlink("other", &journal).unwrap();
        assert!(problem(&path).contains("which cannot be read"));
    }

    // Requirement: SQL-1
    #[test]
    fn what_is_left_after_a_transaction_is_no_reason_for_a_copy() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("t.sqlite");
        let connection = made(&path, "PERSIST");
        let journal = directory.path().join("t.sqlite-journal");
        assert!(journal.metadata().unwrap().len() > 0);
        let ino = |file: &File| file.metadata().unwrap().ino();
        assert_eq!(ino(&open(&path).unwrap()), path.metadata().unwrap().ino());
        assert_eq!(rows(&path), Ok(ROWS));
        // Whoever owns it.
        if rustix::process::geteuid().is_root() {
            chown(&journal, Some(12_345), None).unwrap();
            assert_eq!(rows(&path), Ok(ROWS));
        }
        drop(connection);
        fs::write(&journal, "").unwrap();
        assert_eq!(rows(&path), Ok(ROWS));
        // A write-ahead log of a database that has none.
        fs::write(directory.path().join("t.sqlite-wal"), "no log").unwrap();
        assert_eq!(rows(&path), Ok(ROWS));
    }

    // Requirement: SQL-1
    #[test]
    fn database_is_read_while_its_writer_goes_on() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("t.sqlite");
        let connection = made(&path, "PERSIST");
        // The writer has begun, and not yet changed the database.
        connection.execute_batch("BEGIN IMMEDIATE; UPDATE data SET x = 7 WHERE rowid = 1").unwrap();
        assert_eq!(rows(&path), Ok(ROWS));
        connection.execute_batch("ROLLBACK").unwrap();
        // It changes the database, so the reader waits.
        connection.execute_batch("BEGIN EXCLUSIVE; INSERT INTO data VALUES (8)").unwrap();
        let (sender, begun) = mpsc::channel();
        let reading = path.clone();
        let reader = thread::spawn(move || {
            sender.send(()).unwrap();
            DatabaseReader::open(&reading).and_then(|reader| {
                let mut count = 0;
                reader.rows("data", &["x"], |_| {
                    count += 1;
                    Ok(())
                })?;
                Ok(count)
            })
        });
        begun.recv().unwrap();
        connection.execute_batch("COMMIT").unwrap();
        assert_eq!(reader.join().unwrap(), Ok(ROWS + 1));
        // A writer waits for the reader.
        let held = open(&path).unwrap();
        connection.busy_timeout(Duration::ZERO).unwrap();
        assert!(connection.execute_batch("INSERT INTO data VALUES (9)").is_err());
        drop(held);
        connection.execute_batch("INSERT INTO data VALUES (9)").unwrap();
    }

    // Requirement: SQL-1
    #[test]
    fn files_of_any_name_are_read_and_other_things_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        for name in ["a?mode=rwc&x=%41#b.sqlite", "file:c.sqlite", "7", "7+8j.sqlite", "\u{e4}.sqlite"] {
            drop(made(&path(name), "DELETE"));
            assert_eq!(rows(&path(name)), Ok(ROWS), "{name}");
        }
        std::os::unix::fs::symlink("7", path("link.sqlite")).unwrap();
        assert_eq!(rows(&path("link.sqlite")), Ok(ROWS));
        mknodat(CWD, path("pipe"), FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
        fs::create_dir(path("directory")).unwrap();
        File::create(path("sparse")).unwrap().set_len(MAX_BYTES + 1).unwrap();
        for (name, problem) in [
            ("pipe", "is no regular file"),
            ("directory", "is no regular file"),
            ("none", "cannot be read: No such file or directory (os error 2)"),
            ("sparse", "has 17179869185 bytes: at most 17179869184 are read"),
        ] {
            assert_eq!(open(&path(name)).unwrap_err().to_string(), problem);
        }
        fs::write(path("text"), "no database").unwrap();
        assert_eq!(rows(&path("text")), Err("cannot be read: file is not a database".to_owned()));
        fs::write(path("empty"), "").unwrap();
        assert!(rows(&path("empty")).unwrap_err().contains("no such table"));
    }

    // Requirement: SQL-1
    #[test]
    fn database_in_a_directory_that_can_not_be_written_is_read() {
        let (directory, path, log) = left("DELETE");
        let set_mode = |path: &Path, mode| fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        for (path, mode) in [(&*path, 0o400), (&*log, 0o400), (directory.path(), 0o500)] {
            set_mode(path, mode);
        }
        assert_eq!(rows(&path), Ok(ROWS));
        set_mode(directory.path(), 0o700);
    }
}

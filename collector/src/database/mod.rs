//! SQLite databases: tracking files and sub-tracking files. Only this module opens them.
//!
//! SQLite trusts what it finds beside a database. It plays a journal back into the database, it deletes a file that the journal names,
//! and it applies a write-ahead log. Another user with write access to the directory can have made these. So SQLite opens no file by its
//! name here, except a database to write ([`vfs`]).
//!
//! - A database to read stays as it is, and nothing is made or removed beside it. It is opened and locked first, and then handed to
//!   SQLite as a descriptor ([`snapshot`]). What SQLite reads from it is bounded ([`reader`]).
//! - A database to write has one file beside it: a journal that this user made and no other user can open ([`journal`]).

mod journal;
mod locks;
mod reader;
mod snapshot;
mod vfs;

use std::path::Path;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

pub(crate) use journal::{
    ForeignJournal, check as check_journal, make as make_journal, remove as remove_journal,
};
pub(crate) use reader::{DatabaseReader, unreadable};

/// Maximum number of bytes of a database that is copied, and of its log.
const MOST_COPIED: u64 = 4 << 30;

/// Opens the database at an absolute path without links, to write it. No write waits for the disk, and nothing goes to temporary files.
///
/// # Errors
/// If SQLite can't open it.
pub(crate) fn open_to_write(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = vfs::open(path, flags)?;
    for (name, value) in [("synchronous", "OFF"), ("temp_store", "MEMORY")] {
        connection.pragma_update(None, name, value)?;
    }
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
    Ok(connection)
}

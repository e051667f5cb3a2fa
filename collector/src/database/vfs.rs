//! The files that SQLite sees: a VFS (sqlite.org/vfs.html) with two kinds of databases, told apart by their names.
//!
//! - `5`, or `5+6j`, or `5+6w`: numbers of this process's descriptors, of a database and of its journal (j) or write-ahead log (w).
//!   These files are not locked here, and nothing is looked for beside them. A log is emptied where SQLite would delete it.
//! - An absolute path: a database to write. SQLite's own VFS opens and locks it. Its [`journal`] is opened here.
//!
//! No other file exists, and none can be made: write-ahead logs and their shared memory, super-journals, temporary files.

use std::ffi::{CStr, OsStr, c_char, c_int, c_void};
use std::fs::File;
use std::io;
use std::os::fd::{BorrowedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::OnceLock;
use std::{ptr, slice};

use rusqlite::ffi::{self, sqlite3_file, sqlite3_io_methods, sqlite3_vfs};
use rusqlite::{Connection, OpenFlags};

use super::{MOST_COPIED, journal};

/// The name of the VFS.
const NAME: &CStr = c"gpu-track";
/// How many times its size may be read of a database. In a damaged one, pages can refer to each other in a circle.
const READS: u64 = 4;
/// So many bytes may be read of any database, however small it is.
const LEAST_READABLE: u64 = 16 << 20;

/// Opens a database. `name` must be of one of the two forms at the head of this file.
///
/// # Errors
/// If SQLite can't open it.
pub(super) fn open(name: &Path, flags: OpenFlags) -> rusqlite::Result<Connection> {
    static REGISTERED: OnceLock<c_int> = OnceLock::new();
    match *REGISTERED.get_or_init(register) {
        ffi::SQLITE_OK => Connection::open_with_flags_and_vfs(name, flags, NAME),
        code => Err(rusqlite::Error::SqliteFailure(ffi::Error::new(code), None)),
    }
}

/// Registers the VFS with SQLite, and returns SQLite's code. Time, sleep and random numbers are those of SQLite's own VFS.
fn register() -> c_int {
    // SAFETY: SQLite's own VFS is never freed, and neither is this one. SQLite only reads it once it is registered.
    unsafe {
        let base = ffi::sqlite3_vfs_find(ptr::null());
        let Some(&of_sqlite) = base.as_ref() else { return ffi::SQLITE_ERROR };
        let own = sqlite3_vfs {
            iVersion: 1,
            // SQLite makes room of this size for each file, which this VFS or SQLite's own fills (see `open_file`).
            szOsFile: of_sqlite.szOsFile.max(size_of::<OpenFile>() as c_int),
            pNext: ptr::null_mut(),
            zName: NAME.as_ptr(),
            pAppData: base.cast(),
            xOpen: Some(open_file),
            xDelete: Some(delete),
            xAccess: Some(access),
            xFullPathname: Some(full_name),
            ..of_sqlite
        };
        let make_default = 0;
        ffi::sqlite3_vfs_register(Box::into_raw(Box::new(own)), make_default)
    }
}

/// A file that SQLite has open, and that this VFS opened.
#[repr(C)]
struct OpenFile {
    /// What SQLite sees of the file. It must come first.
    head: sqlite3_file,
    file: File,
    /// How many more bytes may be read.
    readable: u64,
    /// Maximum size of the file, bytes.
    most: u64,
    characteristics: c_int,
}

static METHODS: sqlite3_io_methods = sqlite3_io_methods {
    iVersion: 1,
    xClose: Some(close),
    xRead: Some(read),
    xWrite: Some(write),
    xTruncate: Some(truncate),
    xSync: Some(sync),
    xFileSize: Some(file_size),
    xLock: Some(lock),
    xUnlock: Some(lock),
    xCheckReservedLock: Some(check_reserved_lock),
    xFileControl: Some(file_control),
    xSectorSize: Some(sector_size),
    xDeviceCharacteristics: Some(characteristics),
    xShmMap: None,
    xShmLock: None,
    xShmBarrier: None,
    xShmUnmap: None,
    xFetch: None,
    xUnfetch: None,
};

/// The descriptor that a name stands for: that of the database, or that of its log if the name is a log's.
fn descriptor(name: &CStr) -> Option<RawFd> {
    let name = name.to_str().ok().filter(|name| !name.starts_with('/'))?;
    let log = name.strip_suffix("j-journal").or_else(|| name.strip_suffix("w-wal"));
    let number = match log {
        Some(both) => both.split_once('+')?.1,
        // A log of another kind than the name has, such as `5-wal`: there is none.
        None if name.contains('-') => return None,
        None => name.split('+').next()?,
    };
    number.parse().ok()
}

/// Another descriptor of the file that a name stands for.
fn file_of(name: &CStr) -> Option<File> {
    let number = descriptor(name)?;
    // SAFETY: only this module makes such names, of files that stay open as long as the connection.
    let file = unsafe { BorrowedFd::borrow_raw(number) };
    Some(file.try_clone_to_owned().ok()?.into())
}

/// The name as a path, if it is that of the journal of a database to write.
fn journal_path(name: &CStr) -> Option<&Path> {
    let path = Path::new(OsStr::from_bytes(name.to_bytes()));
    (path.is_absolute() && name.to_bytes().ends_with(journal::SUFFIX.as_bytes())).then_some(path)
}

/// SQLite's `xOpen`: opens a database or the log of one. A database to write, which has an absolute path, is left to SQLite's own VFS.
/// A file without a name, which is a temporary one, and a name that stands for no file are refused.
unsafe extern "C" fn open_file(
    vfs: *mut sqlite3_vfs,
    name: *const c_char,
    file: *mut sqlite3_file,
    flags: c_int,
    out_flags: *mut c_int,
) -> c_int {
    // SAFETY: SQLite hands its VFS, a name or null, room for a file, and a place for flags or null.
    unsafe {
        // Tells SQLite that it need not close the file if this fails.
        (*file).pMethods = ptr::null();
        if name.is_null() {
            return ffi::SQLITE_CANTOPEN;
        }
        let is_database = flags & ffi::SQLITE_OPEN_MAIN_DB != 0;
        let text = CStr::from_ptr(name);
        if is_database && text.to_bytes().starts_with(b"/") {
            let base: *mut sqlite3_vfs = (*vfs).pAppData.cast();
            return (*base)
                .xOpen
                .map_or(ffi::SQLITE_CANTOPEN, |open| open(base, name, file, flags, out_flags));
        }
        let opened = match journal_path(text) {
            Some(path) => journal::open(path, flags & ffi::SQLITE_OPEN_CREATE != 0).ok(),
            None => file_of(text),
        };
        let Some(opened) = opened else { return ffi::SQLITE_CANTOPEN };
        let is_read = is_database && flags & ffi::SQLITE_OPEN_READONLY != 0;
        let size = opened.metadata().map_or(0, |found| found.len());
        file.cast::<OpenFile>().write(OpenFile {
            head: sqlite3_file { pMethods: &raw const METHODS },
            file: opened,
            // Pages of a damaged database can lead to each other, so what is read of it is bounded.
            readable: if is_read {
                LEAST_READABLE.saturating_add(size.saturating_mul(READS))
            } else {
                u64::MAX
            },
            // A database that is written here is a copy that SQLite completes from its log. No log makes it larger than a copy may be.
            most: if is_database { MOST_COPIED } else { u64::MAX },
            // SQLite then neither locks the file nor looks for logs: `snapshot` has done both.
            characteristics: if is_read { ffi::SQLITE_IOCAP_IMMUTABLE } else { 0 },
        });
        if let Some(out_flags) = out_flags.as_mut() {
            *out_flags = flags;
        }
    }
    ffi::SQLITE_OK
}

/// Deletes a log.
unsafe extern "C" fn delete(_: *mut sqlite3_vfs, name: *const c_char, _sync_directory: c_int) -> c_int {
    // SAFETY: SQLite hands a name.
    let name = unsafe { CStr::from_ptr(name) };
    let result = match (journal_path(name), file_of(name)) {
        (Some(path), _) => journal::delete(path),
        // A log that is known by its descriptor has no name that could be removed.
        (None, Some(log)) => log.set_len(0),
        (None, None) => Err(io::ErrorKind::PermissionDenied.into()),
    };
    match result {
        Ok(()) => ffi::SQLITE_OK,
        Err(error) if error.kind() == io::ErrorKind::NotFound => ffi::SQLITE_IOERR_DELETE_NOENT,
        Err(_) => ffi::SQLITE_IOERR_DELETE,
    }
}

/// Tells whether a file exists. As with SQLite's own VFS, an empty one does not.
unsafe extern "C" fn access(_: *mut sqlite3_vfs, name: *const c_char, _: c_int, result: *mut c_int) -> c_int {
    // SAFETY: SQLite hands a name and a place for the result.
    unsafe {
        let name = CStr::from_ptr(name);
        let size = match journal_path(name) {
            Some(path) => journal::size(path),
            None => file_of(name).and_then(|file| file.metadata().ok()).map_or(0, |found| found.len()),
        };
        *result = c_int::from(size > 0);
    }
    ffi::SQLITE_OK
}

/// Copies a name as its full form, since each name here is one already.
unsafe extern "C" fn full_name(
    _: *mut sqlite3_vfs,
    name: *const c_char,
    room: c_int,
    out: *mut c_char,
) -> c_int {
    // SAFETY: SQLite hands a name and `room` bytes.
    unsafe {
        let bytes = CStr::from_ptr(name).to_bytes_with_nul();
        if usize::try_from(room).is_ok_and(|room| bytes.len() <= room) {
            ptr::copy_nonoverlapping(name, out, bytes.len());
            return ffi::SQLITE_OK;
        }
    }
    ffi::SQLITE_CANTOPEN
}

/// The file behind SQLite's pointer.
///
/// # Safety
/// `file` is one that [`open_file`] opened, and no other reference to it is used meanwhile.
unsafe fn open_of<'a>(file: *mut sqlite3_file) -> &'a mut OpenFile {
    // SAFETY: that is what the caller says.
    unsafe { &mut *file.cast() }
}

unsafe extern "C" fn close(file: *mut sqlite3_file) -> c_int {
    // SAFETY: SQLite closes a file once, and does not use it afterwards.
    unsafe { ptr::drop_in_place(file.cast::<OpenFile>()) };
    ffi::SQLITE_OK
}

/// Reads, as long as the file may still be read. Each read counts, because a query on a damaged database might never end.
unsafe extern "C" fn read(file: *mut sqlite3_file, buffer: *mut c_void, length: c_int, offset: i64) -> c_int {
    let (Ok(length), Ok(mut offset)) = (usize::try_from(length), u64::try_from(offset)) else {
        return ffi::SQLITE_IOERR_READ;
    };
    // SAFETY: SQLite hands an open file, and a buffer of `length` bytes, which are initialized here.
    let (open, mut rest) = unsafe {
        ptr::write_bytes(buffer.cast::<u8>(), 0, length);
        (open_of(file), slice::from_raw_parts_mut(buffer.cast::<u8>(), length))
    };
    let Some(readable) = open.readable.checked_sub(length as u64) else { return ffi::SQLITE_CORRUPT };
    open.readable = readable;
    while !rest.is_empty() {
        match open.file.read_at(rest, offset) {
            // What is beyond the end reads as 0.
            Ok(0) => return ffi::SQLITE_IOERR_SHORT_READ,
            Ok(count) => {
                offset += count as u64;
                rest = &mut rest[count..];
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return ffi::SQLITE_IOERR_READ,
        }
    }
    ffi::SQLITE_OK
}

/// Writes, if the file then stays within its maximum size.
unsafe extern "C" fn write(
    file: *mut sqlite3_file,
    buffer: *const c_void,
    length: c_int,
    offset: i64,
) -> c_int {
    let (Ok(length), Ok(offset)) = (usize::try_from(length), u64::try_from(offset)) else {
        return ffi::SQLITE_IOERR_WRITE;
    };
    // SAFETY: SQLite hands an open file, and a buffer of `length` bytes.
    let (open, bytes) = unsafe { (open_of(file), slice::from_raw_parts(buffer.cast::<u8>(), length)) };
    if offset.saturating_add(length as u64) > open.most {
        return ffi::SQLITE_FULL;
    }
    match open.file.write_all_at(bytes, offset) {
        Ok(()) => ffi::SQLITE_OK,
        Err(error) if error.kind() == io::ErrorKind::StorageFull => ffi::SQLITE_FULL,
        Err(_) => ffi::SQLITE_IOERR_WRITE,
    }
}

unsafe extern "C" fn truncate(file: *mut sqlite3_file, size: i64) -> c_int {
    // SAFETY: SQLite hands an open file.
    let open = unsafe { open_of(file) };
    match u64::try_from(size).ok().filter(|size| *size <= open.most).map(|size| open.file.set_len(size)) {
        Some(Ok(())) => ffi::SQLITE_OK,
        _ => ffi::SQLITE_IOERR_TRUNCATE,
    }
}

/// No write waits for the disk (`synchronous=OFF`).
unsafe extern "C" fn sync(_: *mut sqlite3_file, _: c_int) -> c_int {
    ffi::SQLITE_OK
}

unsafe extern "C" fn file_size(file: *mut sqlite3_file, size: *mut i64) -> c_int {
    // SAFETY: SQLite hands an open file and a place for the size.
    let (open, size) = unsafe { (open_of(file), &mut *size) };
    match open.file.metadata().ok().and_then(|found| i64::try_from(found.len()).ok()) {
        Some(found) => {
            *size = found;
            ffi::SQLITE_OK
        }
        None => ffi::SQLITE_IOERR_FSTAT,
    }
}

/// Nothing is to be locked: the file is a copy that only this process has, or `snapshot` has locked it.
unsafe extern "C" fn lock(_: *mut sqlite3_file, _: c_int) -> c_int {
    ffi::SQLITE_OK
}

/// Says that nobody else is about to write, as for [`lock`].
unsafe extern "C" fn check_reserved_lock(_: *mut sqlite3_file, is_reserved: *mut c_int) -> c_int {
    // SAFETY: SQLite hands a place for the result.
    unsafe { *is_reserved = 0 };
    ffi::SQLITE_OK
}

unsafe extern "C" fn file_control(_: *mut sqlite3_file, _: c_int, _: *mut c_void) -> c_int {
    ffi::SQLITE_NOTFOUND
}

/// 0: SQLite uses its default.
unsafe extern "C" fn sector_size(_: *mut sqlite3_file) -> c_int {
    0
}

unsafe extern "C" fn characteristics(file: *mut sqlite3_file) -> c_int {
    // SAFETY: SQLite hands an open file.
    unsafe { open_of(file) }.characteristics
}

//! Writes reports to their outputs: stderr, stdout, a file or a stream. A reader of the file finds the old report or the new one,
//! never a part.

mod destination;
mod stream;

use std::ffi::OsStr;
use std::fs::{File, Metadata, Permissions};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use rustix::fs::{
    Access, AtFlags, CWD, FileType, Mode, OFlags, accessat, openat, renameat, statat, unlinkat,
};
use rustix::io::Errno;

use crate::model::style::{Output, StreamFile};
pub(crate) use crate::sys::given_path::directory_of;
use crate::sys::given_path::is_foreign;
use crate::sys::own_stdout;
pub(super) use stream::write_all;

/// What the name of a new file begins with until all of it is written.
pub(crate) const TEMPORARY_PREFIX: &str = ".gpu-track.";

/// The mode of a new file: reading and writing for all, without what the umask forbids.
pub(crate) const FOR_ALL: Mode = Mode::from_raw_mode(0o666);

/// Writes a report to an output. What is in a file is replaced; a stream is appended to.
///
/// # Errors
/// If the file can't be opened or written.
pub fn write_report(output: &Output, text: &str) -> io::Result<()> {
    match output {
        Output::Stderr => io::stderr().write_all(text.as_bytes()),
        Output::Stdout => own_stdout::writer().write_all(text.as_bytes()),
        Output::File(path) => write_atomically(path, text.as_bytes()),
        Output::Stream(stream) => stream::append(stream, text.as_bytes()),
    }
}

/// Replaces `target` atomically: writes a new file beside it and renames that. The mode of a replaced file is kept if it was
/// this user's. If the directory is not writable but the file is, the file is overwritten in place.
///
/// Symbolic links that appeared since [`output_at`] are not followed: where root tracks another user's command, that user
/// may own the directory.
///
/// # Errors
/// If opening, writing or renaming fails. No new file is left behind then.
pub(crate) fn write_atomically(target: &Path, bytes: &[u8]) -> io::Result<()> {
    let name = target.file_name().ok_or(io::ErrorKind::IsADirectory)?;
    let directory = directory_of(target)?;
    let Err(error) = replace(directory.as_fd(), name, FOR_ALL, |file| file.write_all(bytes)) else {
        return Ok(());
    };
    if !is_denied(&error) {
        return Err(error);
    }
    match overwrite(directory.as_fd(), name, bytes) {
        // There is nothing to overwrite, so the first error is the one to report.
        Err(again) if again.kind() == io::ErrorKind::NotFound => Err(error),
        result => result,
    }
}

/// Finds where a report to `path` goes. Symbolic links are resolved here, once, and not followed when the report is written.
///
/// # Errors
/// If the path can't be resolved, or permissions forbid writing there.
pub fn output_at(path: &Path) -> io::Result<Output> {
    let may_write =
        |path: &Path| accessat(CWD, path, Access::WRITE_OK, AtFlags::EACCESS).map_err(io::Error::from);
    // The report is written by the collector, whose working directory may be another one.
    let output = destination::find(&std::path::absolute(path)?)?;
    match &output {
        // It can be overwritten.
        Output::File(target) if target.exists() && may_write(target).is_ok() => {}
        // It can be created or replaced if its directory is writable.
        Output::File(target) => may_write(target.parent().unwrap_or(target))?,
        _ => may_write(path)?,
    }
    Ok(output)
}

/// Identifies a file by its inode, so that another file that gets its path later is noticed. `found`: the file's metadata.
pub(crate) fn stream_file(path: &Path, found: &Metadata) -> StreamFile {
    let (device, inode, kind) = (found.dev(), found.ino(), found.mode() & libc::S_IFMT);
    StreamFile { path: path.to_owned(), device, inode, kind }
}

/// Fails if `found` is the metadata of another file than the one that was found at the start of the run.
pub(crate) fn check_same(target: &StreamFile, found: &Metadata) -> io::Result<()> {
    match stream_file(&target.path, found) == *target {
        true => Ok(()),
        false => Err(io::Error::other("it is another file than at the start of the run")),
    }
}

/// Whether an error says that a file can't be created because of permissions or a read-only file system.
fn is_denied(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem)
}

/// Creates a temporary file in the directory, writes it with `fill`, and renames it to `name`, which replaces a file of that
/// name. The new file has the mode of this user's file that it replaces, else those bits of `mode` that the umask leaves. It is not
/// synced to disk: the rename is atomic for readers without that, and a sync could stall the collector.
///
/// # Errors
/// If any of that fails. The old file stays then, and the temporary one is removed.
pub(crate) fn replace(
    directory: BorrowedFd<'_>,
    name: &OsStr,
    mode: Mode,
    fill: impl FnOnce(&mut File) -> io::Result<()>,
) -> io::Result<()> {
    let (temporary, mut file) = create_in(directory, mode)?;
    let fill_and_rename = || -> io::Result<()> {
        fill(&mut file)?;
        if let Some(mode) = mode_to_keep(directory, name) {
            file.set_permissions(Permissions::from_mode(mode))?;
        }
        Ok(renameat(directory, temporary.as_str(), directory, name)?)
    };
    let result = fill_and_rename();
    if result.is_err() {
        let _ = unlinkat(directory, temporary.as_str(), AtFlags::empty());
    }
    result
}

/// The mode that the replacement of this file is to have: the file's, without the bits of setuid, setgid and sticky.
///
/// `None`: there is no such file, it is not a regular file, it can't be looked at, or it is another user's. If root's report
/// took over a mode of 0777 from another user's file, all users could change it.
fn mode_to_keep(directory: BorrowedFd<'_>, name: &OsStr) -> Option<u32> {
    let old = statat(directory, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
    let is_own = FileType::from_raw_mode(old.st_mode) == FileType::RegularFile
        && old.st_uid == rustix::process::geteuid().as_raw();
    is_own.then_some(old.st_mode & 0o777)
}

/// Replaces the content of an existing regular file. Refuses a file of another user in a directory where all users may
/// write. The file is emptied only after these checks.
fn overwrite(directory: BorrowedFd<'_>, name: &OsStr, bytes: &[u8]) -> io::Result<()> {
    let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let mut file = File::from(openat(directory, name, flags, Mode::empty())?);
    let found = file.metadata()?;
    if !found.is_file() {
        return Err(io::Error::other("it is not a file any more"));
    }
    // Through the descriptor: the directory's name may stand for another one by now. O_PATH allows fstat since Linux 3.6.
    let above = File::from(directory.try_clone_to_owned()?).metadata()?;
    if is_foreign(&above, &found) {
        let problem = format!(
            "user {} owns the file, in a directory where all users may write: give another name",
            found.uid()
        );
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, problem));
    }
    file.set_len(0)?;
    file.write_all(bytes)
}

/// Creates a file of a new name in a directory, and returns the name and the file. The name is random, because another user could
/// take a name that can be guessed.
fn create_in(directory: BorrowedFd<'_>, mode: Mode) -> io::Result<(String, File)> {
    const TRIES: u32 = 100;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    for attempt in 0..TRIES {
        let random = RandomState::new().hash_one(attempt);
        let temporary = format!("{TEMPORARY_PREFIX}{}.{random:016x}", std::process::id());
        match openat(directory, temporary.as_str(), flags, mode) {
            Err(Errno::EXIST) => {}
            result => return Ok((temporary, result?.into())),
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

#[cfg(test)]
mod tests {
    use std::fs::{self, OpenOptions};
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::{chown, symlink};

    use super::*;

    fn names_in(directory: &Path) -> Vec<String> {
        let mut names: Vec<_> =
            fs::read_dir(directory).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    // Requirement: OUT-5
    #[test]
    fn report_is_replaced_atomically_and_keeps_its_mode() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("report");
        write_atomically(&path, b"old, and longer").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        let mut reader = File::open(&path).unwrap();
        write_atomically(&path, b"new").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o640);
        assert_eq!(io::read_to_string(&mut reader).unwrap(), "old, and longer");
        assert_eq!(names_in(directory.path()), ["report"]);
    }

    #[test]
    fn new_file_has_the_mode_that_the_umask_leaves() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("report");
        write_atomically(&path, b"x").unwrap();
        let ordinary = directory.path().join("ordinary");
        fs::write(&ordinary, b"x").unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode(), fs::metadata(&ordinary).unwrap().mode());
    }

    // Requirement: OUT-6
    #[test]
    fn symbolic_link_stays_and_its_target_is_replaced() {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir(directory.path().join("real")).unwrap();
        let link = directory.path().join("link");
        symlink("real/report", &link).unwrap();
        for text in ["to a missing target", "to an existing one"] {
            write_report(&output_at(&link).unwrap(), text).unwrap();
            assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
            assert_eq!(fs::read_to_string(directory.path().join("real/report")).unwrap(), text);
        }
        assert_eq!(names_in(&directory.path().join("real")), ["report"]);
        symlink("loop", directory.path().join("loop")).unwrap();
        let error = output_at(&directory.path().join("loop")).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ELOOP));
    }

    /// Root tracks another user's command, and that user puts links in the report's place.
    // Requirement: OUT-6
    #[test]
    fn links_made_after_the_start_are_not_followed() {
        let top = tempfile::tempdir().unwrap();
        let top = top.path().canonicalize().unwrap();
        let (ours, theirs) = (top.join("ours"), top.join("theirs"));
        fs::create_dir(&ours).unwrap();
        fs::create_dir(&theirs).unwrap();
        fs::write(theirs.join("report"), "not to be touched").unwrap();
        let untouched = || fs::read_to_string(theirs.join("report")).unwrap() == "not to be touched";
        let report = ours.join("report");
        let output = output_at(&report).unwrap();
        symlink(theirs.join("report"), &report).unwrap();
        write_report(&output, "a report").unwrap();
        assert!(fs::symlink_metadata(&report).unwrap().is_file() && untouched());
        fs::rename(&ours, top.join("away")).unwrap();
        symlink(&theirs, &ours).unwrap();
        assert_eq!(write_report(&output, "another").unwrap_err().raw_os_error(), Some(libc::ELOOP));
        assert!(untouched());
    }

    #[test]
    fn device_or_pipe_is_written_to_directly() {
        write_report(&output_at(Path::new("/dev/null")).unwrap(), "x").unwrap();
        assert!(!fs::metadata("/dev/null").unwrap().is_file());
        let error = write_report(&output_at(Path::new("/dev/full")).unwrap(), "x").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        let (reader, writer) = io::pipe().unwrap();
        let path = format!("/dev/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&writer));
        write_report(&output_at(Path::new(&path)).unwrap(), "through a pipe").unwrap();
        drop(writer);
        assert_eq!(io::read_to_string(reader).unwrap(), "through a pipe");
    }

    #[test]
    fn file_open_in_a_process_is_appended_to() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        fs::write(&path, "output of the command\n").unwrap();
        let open = OpenOptions::new().append(true).open(&path).unwrap();
        let by_fd = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&open));
        write_report(&output_at(Path::new(&by_fd)).unwrap(), "the report\n").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "output of the command\nthe report\n");
        assert_eq!(open.metadata().unwrap().ino(), fs::metadata(&path).unwrap().ino());
    }

    // Requirement: OUT-5
    #[test]
    fn failed_write_leaves_the_old_report_and_no_other_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("report");
        fs::write(&path, "old").unwrap();
        let full: fn(&mut File) -> io::Result<()> = |file| {
            file.write_all(b"half of it")?;
            Err(io::ErrorKind::StorageFull.into())
        };
        let opened = directory_of(&path).unwrap();
        let replace = |name: &str, fill: fn(&mut File) -> io::Result<()>| {
            super::replace(opened.as_fd(), OsStr::new(name), FOR_ALL, fill)
        };
        assert_eq!(replace("report", full).unwrap_err().kind(), io::ErrorKind::StorageFull);
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        let sub = directory.path().join("sub");
        fs::create_dir(&sub).unwrap();
        assert_eq!(replace("sub", |_| Ok(())).unwrap_err().kind(), io::ErrorKind::IsADirectory);
        assert_eq!(write_atomically(&sub, b"x").unwrap_err().kind(), io::ErrorKind::IsADirectory);
        let missing = directory.path().join("no/such");
        assert_eq!(write_atomically(&missing, b"x").unwrap_err().kind(), io::ErrorKind::NotFound);
        assert_eq!(names_in(directory.path()), ["report", "sub"]);
    }

    /// Runs as another user in a thread: the kernel keeps credentials per thread.
    fn as_user(uid: u32, work: impl FnOnce() + Send) {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let uid = rustix::process::Uid::from_raw(uid);
                rustix::thread::set_thread_res_uid(uid, uid, uid).unwrap();
                work();
            });
        });
    }

    /// A directory where all users may write, with a file and a link of user 64002; `None` without root.
    fn shared() -> Option<tempfile::TempDir> {
        if !rustix::process::geteuid().is_root() {
            println!("skipped: needs root, for files of other users");
            return None;
        }
        let directory = tempfile::tempdir().unwrap();
        fs::set_permissions(directory.path(), Permissions::from_mode(0o1777)).unwrap();
        fs::write(directory.path().join("target"), "theirs").unwrap();
        symlink("target", directory.path().join("link")).unwrap();
        symlink(".", directory.path().join("sub")).unwrap();
        for name in ["link", "sub"] {
            std::os::unix::fs::lchown(directory.path().join(name), Some(64002), None).unwrap();
        }
        let file = directory.path().join("file");
        fs::write(&file, "theirs").unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o777)).unwrap();
        chown(&file, Some(64002), None).unwrap();
        Some(directory)
    }

    // Requirement: OUT-6, OUT-55
    #[test]
    fn foreign_links_and_files_are_refused_where_all_users_may_write() {
        let Some(directory) = shared() else { return };
        let refused = |name: &str| output_at(&directory.path().join(name)).unwrap_err().to_string();
        for (name, part) in [
            ("link", "is a link of user 64002"),
            ("sub/target", "is a link of user 64002"),
            ("file", "is a file of user 64002"),
        ] {
            assert!(refused(name).contains(part), "{}", refused(name));
            let path = directory.path().join(name);
            as_user(64001, || assert!(output_at(&path).unwrap_err().to_string().contains(part)));
        }
        // A link of the directory's owner, and one's own, are followed.
        symlink("target", directory.path().join("of_owner")).unwrap();
        assert!(output_at(&directory.path().join("of_owner")).is_ok());
        let file = directory.path().join("file");
        as_user(64002, || assert!(output_at(&file).is_ok()));
        // A file that appears later: root replaces it, with a mode of its own. Another user does not write into it.
        as_user(64001, || {
            assert_eq!(write_atomically(&file, b"x").unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        });
        assert_eq!(fs::read(&file).unwrap(), b"theirs");
        write_atomically(&file, b"root's").unwrap();
        let found = fs::metadata(&file).unwrap();
        assert_eq!((found.uid(), found.mode() & 0o022), (0, 0), "{:o}", found.mode());
    }

    // Requirement: OUT-6
    #[test]
    fn file_overwritten_in_place_is_not_found_through_a_new_link() {
        let top = tempfile::tempdir().unwrap();
        let top = top.path().canonicalize().unwrap();
        let (ours, theirs) = (top.join("ours"), top.join("theirs"));
        for directory in [&ours, &theirs] {
            fs::create_dir(directory).unwrap();
            fs::write(directory.join("report"), "old").unwrap();
            fs::set_permissions(directory.join("report"), Permissions::from_mode(0o666)).unwrap();
            fs::set_permissions(directory, Permissions::from_mode(0o555)).unwrap();
        }
        fs::set_permissions(&top, Permissions::from_mode(0o755)).unwrap();
        fs::rename(&ours, top.join("away")).unwrap();
        symlink(&theirs, &ours).unwrap();
        let written = || {
            assert_eq!(
                write_atomically(&ours.join("report"), b"new").unwrap_err().raw_os_error(),
                Some(libc::ELOOP)
            );
        };
        if rustix::process::geteuid().is_root() {
            as_user(64001, written)
        } else {
            written()
        }
        assert_eq!(fs::read(theirs.join("report")).unwrap(), b"old");
    }

    /// Root may write anywhere, so a thread becomes another user: the kernel keeps credentials per thread.
    #[test]
    fn writable_file_in_a_read_only_directory_is_overwritten() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("report");
        fs::write(&path, "old, and longer").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o666)).unwrap();
        fs::set_permissions(directory.path(), Permissions::from_mode(0o555)).unwrap();
        let other = directory.path().join("other");
        std::thread::scope(|scope| {
            scope.spawn(|| {
                if rustix::process::geteuid().is_root() {
                    let nobody = rustix::process::Uid::from_raw(65534);
                    rustix::thread::set_thread_res_uid(nobody, nobody, nobody).unwrap();
                }
                output_at(&path).unwrap();
                write_atomically(&path, b"new").unwrap();
                assert_eq!(output_at(&other).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
                assert_eq!(
                    write_atomically(&other, b"x").unwrap_err().kind(),
                    io::ErrorKind::PermissionDenied
                );
            });
        });
        fs::set_permissions(directory.path(), Permissions::from_mode(0o755)).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
        assert_eq!(names_in(directory.path()), ["report"]);
    }

    #[test]
    fn taken_temporary_name_is_skipped() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("report");
        let taken = format!(".gpu-track.{}.0", std::process::id());
        fs::write(directory.path().join(&taken), "someone else's").unwrap();
        write_atomically(&path, b"mine").unwrap();
        assert_eq!(fs::read_to_string(directory.path().join(&taken)).unwrap(), "someone else's");
        assert_eq!(names_in(directory.path()), [taken.as_str(), "report"]);
    }

    #[test]
    fn output_is_unchanged_by_serialization() {
        for output in [
            Output::Stderr,
            Output::Stdout,
            Output::File(Path::new(OsStr::from_bytes(b"/tmp/\xff\n")).into()),
        ] {
            let sent = serde_json::to_string(&output).unwrap();
            assert_eq!(serde_json::from_str::<Output>(&sent).unwrap(), output);
        }
    }
}

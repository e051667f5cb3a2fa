//! Opens a file that a user gave to be read. It can be anything, be another user's, and change meanwhile.
//!
//! Only a regular file is opened, or a pipe without a name that a process has open already, as that of a shell's `<(COMMAND)`. A link
//! that another user could redirect is refused ([`GivenPath`]). So nothing waits, except for a writer of such a pipe, or of stdin.
//! What is read is bounded by the caller's limit, and by the size that a regular file has when it is opened.

use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, absolute};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{Mode, OFlags, fstatfs, openat, statfs};
use rustix::io::Errno;
use thiserror::Error;

use super::given_path::{GivenPath, directory_of};

/// Maximum number of bytes of a JSON report. One with ten thousand command names has 3 MB.
pub const MOST_OF_REPORT: u64 = 32 << 20;
/// Maximum number of bytes of an analysis of code blocks in JSON, of which each block has about 4 kB.
pub const MOST_OF_ANALYSIS: u64 = 64 << 20;
/// Maximum number of bytes of what a user writes by hand: options, and the plan of a study.
pub const MOST_OF_OPTIONS: u64 = 1 << 20;
/// Maximum number of bytes of a file of hosts, which has a line for each process of a job: 40,000 lines with long names.
pub(crate) const MOST_OF_HOSTS: u64 = 2 << 20;
/// Maximum number of bytes of a file that is read row by row. A year of samples each second has about that.
const MOST_OF_ROWS: u64 = 16 << 30;

/// The names of stdin. If stdin is a socket, the second one can't be opened.
const STDIN: [&str; 2] = ["-", "/dev/stdin"];
/// The type of the file system of pipes without a name, by statfs(2) (PIPEFS_MAGIC).
const OPEN_PIPES: i64 = 0x5049_5045;

/// Why a file can't be read. The message follows the file's name.
#[derive(Debug, Error)]
pub enum NotReadable {
    /// The text says what it is, such as "a directory".
    #[error("is {0}, and no file")]
    NotAFile(&'static str),
    /// It has this number of bytes, and the second number is the limit.
    #[error("has {0} bytes, and at most {1} are read")]
    TooLarge(u64, u64),
    /// The file is not UTF-8.
    #[error("is no text")]
    NotText,
    /// The kernel refused, or a link is another user's.
    #[error("cannot be read: {0}")]
    Io(#[from] io::Error),
}

/// A file that is open for reading.
#[derive(Debug)]
pub struct GivenFile {
    file: File,
    /// Maximum number of bytes to be read.
    most: u64,
    /// How many of them are left.
    left: u64,
    /// The file has no size, as a pipe: whether it is longer than [`Self::most`], which is an error, only reading shows. Any other
    /// file is read up to the size that it had when it was opened.
    is_endless: bool,
    is_regular: bool,
}

/// Opens the file at `path`, of which at most `most` bytes are read. `-` is stdin.
///
/// # Errors
/// If it is no regular file or open pipe, has more than `most` bytes, or can't be opened. Also if another user's link leads to it, in
/// a sticky directory where all users may write (/tmp).
pub fn open(path: &Path, most: u64) -> Result<GivenFile, NotReadable> {
    let stream = |file: OwnedFd| GivenFile {
        file: file.into(),
        most,
        left: most,
        is_endless: true,
        is_regular: false,
    };
    if STDIN.map(OsStr::new).contains(&path.as_os_str()) {
        return Ok(stream(io::stdin().as_fd().try_clone_to_owned()?));
    }
    let GivenPath { path, found, is_in_proc } = GivenPath::find(&absolute(path)?)?;
    // To open a fifo or device can have effects, so the kind is looked at before. The file can be replaced until it is opened.
    let is_open_pipe = is_in_proc && statfs(&path).is_ok_and(|system| system.f_type == OPEN_PIPES);
    if !is_open_pipe {
        check(&found.ok_or_else(|| io::Error::from(Errno::NOENT))?)?;
    }
    let mut flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    // A last name in /proc can be a link, which stands for the file that was looked at.
    flags.set(OFlags::NOFOLLOW, !is_in_proc);
    let name = path.file_name().ok_or_else(|| io::Error::from(Errno::ISDIR))?;
    let file = openat(directory_of(&path)?, name, flags, Mode::empty()).map_err(io::Error::from)?;
    if is_open_pipe && fstatfs(&file).is_ok_and(|system| system.f_type == OPEN_PIPES) {
        return Ok(stream(file));
    }
    let file = File::from(file);
    let found = file.metadata()?;
    check(&found)?;
    let size = found.len();
    if size > most {
        return Err(NotReadable::TooLarge(size, most));
    }
    // The kernel makes the content of some files when they are read, as in /proc.
    let is_endless = size == 0;
    Ok(GivenFile { file, most, left: if is_endless { most } else { size }, is_endless, is_regular: true })
}

/// Opens a file that is read row by row. The error is a text to put after the file's name.
pub(crate) fn open_rows(path: &Path) -> Result<GivenFile, String> {
    open(path, MOST_OF_ROWS).map_err(|error| error.to_string())
}

/// Reads the whole file at `path`, of at most `most` bytes.
///
/// # Errors
/// As [`open`], and if it can't be read.
pub fn read(path: &Path, most: u64) -> Result<Vec<u8>, NotReadable> {
    let mut bytes = Vec::new();
    open(path, most)?.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Reads the whole file at `path` as text, of at most `most` bytes.
///
/// # Errors
/// As [`read`], and if it is not UTF-8.
pub fn read_text(path: &Path, most: u64) -> Result<String, NotReadable> {
    String::from_utf8(read(path, most)?).map_err(|_| NotReadable::NotText)
}

/// Fails if this is no regular file.
fn check(found: &Metadata) -> Result<(), NotReadable> {
    let kind = found.file_type();
    if kind.is_file() {
        return Ok(());
    }
    Err(NotReadable::NotAFile(match kind.is_dir() {
        true => "a directory",
        false if kind.is_fifo() => "a pipe",
        false if kind.is_symlink() => "a link",
        false => "a device or socket",
    }))
}

impl GivenFile {
    /// Whether it is a regular file, which can be opened again.
    pub fn is_regular(&self) -> bool {
        self.is_regular
    }

    /// Reads what is there, and waits for it if the file is a pipe or stdin.
    fn read_some(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.file.read(buffer) {
                // A regular file is not waited for: one such as /proc/kmsg may never have content.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && !self.is_regular => {
                    poll(&mut [PollFd::new(&self.file, PollFlags::IN)], None)?;
                }
                result => return result,
            }
        }
    }
}

impl Read for GivenFile {
    /// Reads up to the limit. If a file without a size has more, that is an error.
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.left == 0 && self.is_endless && !buffer.is_empty() {
            // If one more byte can be read, the file is longer than the limit.
            return match self.read_some(&mut [0])? {
                0 => Ok(0),
                _ => Err(io::Error::other(format!(
                    "it has more than {} bytes, the most that are read",
                    self.most
                ))),
            };
        }
        let room = usize::try_from(self.left).unwrap_or(usize::MAX).min(buffer.len());
        let read = self.read_some(&mut buffer[..room])?;
        self.left -= read as u64;
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write;
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::{PermissionsExt, lchown, symlink};
    use std::os::unix::net::UnixListener;
    use std::path::PathBuf;
    use std::thread;

    use rustix::fs::{CWD, FileType, mknodat};

    use super::*;

    fn text(path: impl Into<PathBuf>, most: u64) -> Result<String, String> {
        read_text(&path.into(), most).map_err(|error| error.to_string())
    }

    // Requirement: FAULT-20
    #[test]
    fn only_regular_files_of_bounded_size_are_read() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        fs::write(path("a"), "text").unwrap();
        symlink("a", path("link")).unwrap();
        symlink("link", path("loop")).unwrap();
        fs::create_dir(path("directory")).unwrap();
        symlink("directory/../a", path("way")).unwrap();
        mknodat(CWD, path("fifo"), FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
        let _socket = UnixListener::bind(path("socket")).unwrap();
        fs::write(path("latin1"), b"\xe4").unwrap();
        fs::write(path("empty"), "").unwrap();
        File::create(path("sparse")).unwrap().set_len(1 << 40).unwrap();
        for (name, content) in
            [("a", "text"), ("link", "text"), ("loop", "text"), ("way", "text"), ("empty", "")]
        {
            assert_eq!(text(path(name), 4), Ok(content.to_owned()), "{name}");
        }
        for (name, problem) in [
            ("a", "has 4 bytes, and at most 3 are read"),
            ("directory", "is a directory, and no file"),
            ("fifo", "is a pipe, and no file"),
            ("socket", "is a device or socket, and no file"),
            ("latin1", "is no text"),
            ("sparse", "has 1099511627776 bytes, and at most 3 are read"),
            ("none", "cannot be read: No such file or directory (os error 2)"),
        ] {
            assert_eq!(text(path(name), 3), Err(problem.to_owned()), "{name}");
        }
        assert_eq!(text("/dev/zero", 3), Err("is a device or socket, and no file".to_owned()));
    }

    // Requirement: FAULT-20
    #[test]
    fn open_pipe_is_read_to_its_end_or_limit() {
        let (reader, mut writer) = io::pipe().unwrap();
        let by_name = || format!("/dev/fd/{}", reader.as_raw_fd());
        let written = thread::spawn(move || writer.write_all(&[b'x'; 100_000]).map(|()| writer));
        assert_eq!(
            text(by_name(), 70_000),
            Err("cannot be read: it has more than 70000 bytes, the most that are read".to_owned())
        );
        // The rest, which ends with the writer.
        let rest = thread::scope(|scope| {
            let rest = scope.spawn(|| text(by_name(), 70_000).unwrap().len());
            drop(written.join().unwrap().unwrap());
            rest.join().unwrap()
        });
        assert_eq!(rest, 100_000 - 70_001);
    }

    // Requirement: FAULT-20
    #[test]
    fn file_that_grows_ends_at_the_size_that_it_had() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a");
        fs::write(&path, "text").unwrap();
        let mut file = open(&path, 100).unwrap();
        File::options().append(true).open(&path).unwrap().write_all(b" and more").unwrap();
        assert_eq!(io::read_to_string(&mut file).unwrap(), "text");
    }

    #[test]
    fn files_of_proc_are_read_as_far_as_they_have_content() {
        assert!(text("/proc/self/status", 1 << 20).unwrap().contains("Pid:"));
        assert_eq!(
            text("/proc/self/status", 3),
            Err("cannot be read: it has more than 3 bytes, the most that are read".to_owned())
        );
        assert_eq!(text("/proc/self/fd", 3), Err("is a directory, and no file".to_owned()));
    }

    // Requirement: FAULT-20
    #[test]
    fn link_of_another_user_is_refused_where_all_may_write() {
        if !rustix::process::geteuid().is_root() {
            println!("skipped: needs root, for a link of another user");
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o1777)).unwrap();
        fs::write(path("a"), "text").unwrap();
        fs::create_dir(path("safe")).unwrap();
        symlink("../theirs", path("safe/own")).unwrap();
        for link in ["own", "theirs"] {
            symlink("a", path(link)).unwrap();
        }
        lchown(path("theirs"), Some(12_345), None).unwrap();
        assert_eq!(text(path("own"), 4), Ok("text".to_owned()));
        for name in ["theirs", "safe/own"] {
            let error = text(path(name), 4).unwrap_err();
            assert!(error.contains("theirs is a link of user 12345, in a directory where all"), "{error}");
        }
        // A file of another user is only read.
        std::os::unix::fs::chown(path("a"), Some(12_345), None).unwrap();
        assert_eq!(text(path("a"), 4), Ok("text".to_owned()));
    }
}

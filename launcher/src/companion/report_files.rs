//! Files of reports, as other users and other nodes leave them: they can be anything, and can change while they are read.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use gpu_track_collector::given_file::{self, MOST_OF_REPORT};
use gpu_track_collector::report::format;
use gpu_track_collector::report::read::{self as report_read, ReadReport};
use thiserror::Error;

use crate::cli::UsageError;
use crate::console::message;

/// Maximum number of bytes of a report of one node or rank.
const MOST_BYTES: u64 = 8 << 20;
/// Bytes that are read first: they tell whether a file can be JSON at all.
const FIRST_BYTES: u64 = 4096;
/// Maximum number of files of a directory that are looked at: those whose names come first.
pub(crate) const MOST_FILES: usize = 200_000;

/// Why a file can't be read. The message follows the file's name.
#[derive(Debug, Error)]
pub(crate) enum NotReadable {
    #[error(transparent)]
    File(#[from] given_file::NotReadable),
    /// A symbolic link in a directory can name a report a second time.
    #[error("is a symbolic link: name it, or the file that it leads to")]
    Link,
    /// The file does not begin as JSON does.
    #[error("is no JSON")]
    NotJson,
}

impl From<io::Error> for NotReadable {
    fn from(error: io::Error) -> Self {
        Self::File(error.into())
    }
}

/// Lists the files of a directory whose names end as those of JSON reports do, in the order of their names. If there are more than
/// [`MOST_FILES`], the last ones are left out, and a line on stderr says so.
///
/// # Errors
/// If the directory can't be read.
pub(crate) fn in_directory(directory: &Path) -> io::Result<Vec<PathBuf>> {
    // Only the names to return are kept, so memory is bounded.
    let mut names: BTreeSet<OsString> = BTreeSet::new();
    let mut left_out = 0_u64;
    for entry in fs::read_dir(directory)? {
        let name = entry?.file_name();
        if Path::new(&name).extension() == Some(OsStr::new(format::JSON_NAME)) {
            names.insert(name);
            if names.len() > MOST_FILES {
                names.pop_last();
                left_out += 1;
            }
        }
    }
    if left_out > 0 {
        message(format_args!(
            "\"{}\" has more than {MOST_FILES} files: {left_out} are left out, the last ones by name",
            directory.display()
        ));
    }
    Ok(names.into_iter().map(|name| directory.join(name)).collect())
}

/// Reads a file that may be a report, as text. It can be read again, so a pipe is refused. `refuses_links`: a symbolic link is an
/// error. It can lead to another file of the same directory, whose report would count twice.
///
/// # Errors
/// If the file can't be read, is no regular file, is too large, is no text, or does not begin as JSON does.
pub(crate) fn read(path: &Path, refuses_links: bool) -> Result<String, NotReadable> {
    if refuses_links && fs::symlink_metadata(path)?.is_symlink() {
        return Err(NotReadable::Link);
    }
    let mut file = given_file::open(path, MOST_BYTES)?;
    if !file.is_regular() {
        return Err(given_file::NotReadable::NotAFile("a pipe").into());
    }
    let mut bytes = Vec::new();
    file.by_ref().take(FIRST_BYTES).read_to_end(&mut bytes)?;
    if !bytes.trim_ascii_start().starts_with(b"{") {
        return Err(NotReadable::NotJson);
    }
    file.read_to_end(&mut bytes)?;
    String::from_utf8(bytes).map_err(|_| given_file::NotReadable::NotText.into())
}

/// Reads the text of a report that the user names.
///
/// # Errors
/// If the file can't be read.
pub(super) fn text(path: &Path) -> Result<String, UsageError> {
    given_file::read_text(path, MOST_OF_REPORT).map_err(|error| UsageError::of_path(path, error))
}

/// Parses the report `json`, which was read from `path`.
///
/// # Errors
/// If it is no report.
pub(super) fn parsed(json: &str, path: &Path) -> Result<ReadReport, UsageError> {
    report_read::read(json)
        .map_err(|problem| UsageError::of_path(path, format_args!("is no report: {problem}")))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    use rustix::fs::{CWD, FileType, Mode, mknodat};

    use super::*;

    // Requirement: NODE-5, NODE-55
    #[test]
    fn only_files_of_text_of_bounded_size_are_read() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        fs::write(path("a.json"), " {\"a\": 1}").unwrap();
        symlink("a.json", path("link.json")).unwrap();
        fs::create_dir(path("directory.json")).unwrap();
        mknodat(CWD, path("pipe.json"), FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
        let _socket = UnixListener::bind(path("socket.json")).unwrap();
        fs::write(path("garbage.json"), [0xff; 100]).unwrap();
        fs::write(path("latin1.json"), b"{\"a\": \"\xe4\"}").unwrap();
        let sparse = fs::File::create(path("large.json")).unwrap();
        sparse.set_len(1 << 40).unwrap();
        fs::write(path("other.txt"), "{}").unwrap();
        let read = |name: &str| read(&path(name), true).map_err(|error| error.to_string());
        assert_eq!(read("a.json").unwrap(), " {\"a\": 1}");
        for (name, reason) in [
            ("link.json", "is a symbolic link: name it, or the file that it leads to"),
            ("directory.json", "is a directory, and no file"),
            ("pipe.json", "is a pipe, and no file"),
            ("socket.json", "is a device or socket, and no file"),
            ("garbage.json", "is no JSON"),
            ("latin1.json", "is no text"),
            ("large.json", "has 1099511627776 bytes, and at most 8388608 are read"),
            ("none.json", "cannot be read: No such file or directory (os error 2)"),
        ] {
            assert_eq!(read(name).unwrap_err(), reason, "{name}");
        }
        assert_eq!(super::read(&path("link.json"), false).unwrap(), " {\"a\": 1}", "the user named it");
        let listed = in_directory(directory.path()).unwrap();
        let names: Vec<_> = listed.iter().map(|path| path.file_name().unwrap().to_str().unwrap()).collect();
        assert_eq!(
            names,
            [
                "a.json",
                "directory.json",
                "garbage.json",
                "large.json",
                "latin1.json",
                "link.json",
                "pipe.json",
                "socket.json"
            ]
        );
    }
}

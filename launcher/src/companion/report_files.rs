//! Files of reports, as other users and other nodes leave them: they can be anything, and can change while they are read.
//! Reading one takes bounded memory, and never waits for a writer.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use gpu_track_collector::format;
use rustix::fs::{CWD, Mode, OFlags, openat};
use thiserror::Error;

use crate::console::message;

/// Most bytes of a report. One with ten thousand command names has 3 MB.
const MOST_BYTES: u64 = 8 << 20;
/// So many bytes tell whether a file can be JSON at all, before the rest of it is read.
const FIRST_BYTES: u64 = 4096;
/// Most files of a directory that are looked at: those whose names come first.
const MOST_FILES: usize = 200_000;

/// Why a file can't be read. The message follows the file's name.
#[derive(Debug, Error)]
pub(crate) enum NotReadable {
    /// The text says what it is, such as "a directory".
    #[error("is {0}, and no file")]
    NotAFile(&'static str),
    /// A symbolic link in a directory can name a report a second time.
    #[error("is a symbolic link: name it, or the file that it leads to")]
    Link,
    #[error("is larger than {} MiB, which no report is", MOST_BYTES >> 20)]
    TooLarge,
    /// The file is not UTF-8.
    #[error("is no text")]
    NotText,
    /// The file does not begin as JSON does.
    #[error("is no JSON")]
    NotJson,
    #[error("cannot be read: {0}")]
    Io(#[from] io::Error),
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

/// Reads a file that may be a report, as text. `refuses_links`: a symbolic link is an error. It can lead to another file of
/// the same directory, whose report would count twice.
///
/// # Errors
/// If the file can't be read, is no regular file, is too large, is no text, or does not begin as JSON does.
pub(crate) fn read(path: &Path, refuses_links: bool) -> Result<String, NotReadable> {
    let kind = if refuses_links { fs::symlink_metadata(path)? } else { fs::metadata(path)? }.file_type();
    if let Some(other) = other_kind(kind) {
        return Err(other);
    }
    // The kind was checked before, because opening a device can have effects. The file can be replaced until it is opened, by a
    // pipe for example. So the open must not block, and the kind is checked again.
    let mut flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    flags.set(OFlags::NOFOLLOW, refuses_links);
    let file = File::from(openat(CWD, path, flags, Mode::empty()).map_err(io::Error::from)?);
    let metadata = file.metadata()?;
    if let Some(other) = other_kind(metadata.file_type()) {
        return Err(other);
    }
    if metadata.len() > MOST_BYTES {
        return Err(NotReadable::TooLarge);
    }
    let mut bytes = Vec::with_capacity(usize::try_from(metadata.len() + 1).unwrap_or(0));
    (&file).take(FIRST_BYTES).read_to_end(&mut bytes)?;
    if !bytes.trim_ascii_start().starts_with(b"{") {
        return Err(NotReadable::NotJson);
    }
    // The file can grow while it is read, so one byte more than allowed is asked for.
    (&file).take(MOST_BYTES + 1 - bytes.len() as u64).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MOST_BYTES {
        return Err(NotReadable::TooLarge);
    }
    String::from_utf8(bytes).map_err(|_| NotReadable::NotText)
}

/// Gives the reason why a file of this kind is not read. `None`: it is a regular file.
fn other_kind(kind: fs::FileType) -> Option<NotReadable> {
    if kind.is_file() {
        None
    } else if kind.is_symlink() {
        Some(NotReadable::Link)
    } else if kind.is_dir() {
        Some(NotReadable::NotAFile("a directory"))
    } else if kind.is_fifo() {
        Some(NotReadable::NotAFile("a pipe"))
    } else {
        Some(NotReadable::NotAFile("a device or socket"))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    use rustix::fs::{FileType, mknodat};

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
        let sparse = File::create(path("large.json")).unwrap();
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
            ("large.json", "is larger than 8 MiB, which no report is"),
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

//! Where a report goes: the path of `-o` is resolved once, at the start.
//!
//! In sticky directories where all users may write, such as /tmp, another user's link is not followed, and another user's file
//! is not written to. These are the kernel's rules (fs.protected_symlinks, fs.protected_regular; proc_sys_fs(5)). They are
//! applied here whether the machine has them on or not.

use std::ffi::OsString;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use rustix::io::Errno;

use crate::model::style::{Output, StreamFile};

/// The kernel's limit (path_resolution(7)).
const MOST_LINKS: u32 = 40;

/// Finds the output at an absolute path. Resolves the path name by name, as the kernel does, so that each link can be
/// checked.
///
/// # Errors
/// If the path can't be resolved, is a directory, or is another user's where all users may write.
pub(super) fn find(given: &Path) -> io::Result<Output> {
    // The part of the path that is resolved and has no link.
    let mut here = PathBuf::from("/");
    // The names that are not yet resolved, the next one last.
    let mut left = reversed(given);
    let mut links = 0;
    while let Some(name) = left.pop() {
        if name == ".." {
            here.pop();
            continue;
        }
        let is_last = left.is_empty();
        // /dev/stderr leads to /proc/PID/fd/2. Such a link stands for an open file, not for a name. A report that replaced the
        // file of that name would not reach the process that has the old one open.
        if is_last && here.starts_with("/proc") {
            return stream(given);
        }
        let next = here.join(&name);
        match fs::symlink_metadata(&next) {
            Ok(found) if found.is_symlink() => {
                refuse_foreign(&here, &next, &found)?;
                links += 1;
                if links > MOST_LINKS {
                    return Err(Errno::LOOP.into());
                }
                let target = fs::read_link(&next)?;
                if target.is_absolute() {
                    here = PathBuf::from("/");
                }
                left.extend(reversed(&target));
            }
            Ok(_) if !is_last => here = next,
            Ok(found) if found.is_dir() => return Err(io::ErrorKind::IsADirectory.into()),
            Ok(found) if found.is_file() => {
                refuse_foreign(&here, &next, &found)?;
                return Ok(Output::File(next));
            }
            Ok(_) => return stream(given),
            Err(error) if is_last && error.kind() == io::ErrorKind::NotFound => {
                return Ok(Output::File(next));
            }
            Err(error) => return Err(error),
        }
    }
    // The path ends in "/" or "..".
    Err(io::ErrorKind::IsADirectory.into())
}

/// Splits a path into its names, the last one first.
fn reversed(path: &Path) -> Vec<OsString> {
    let is_name = |part: &Component<'_>| matches!(part, Component::Normal(_) | Component::ParentDir);
    path.components().filter(is_name).map(|part| part.as_os_str().to_owned()).rev().collect()
}

/// Gives the output to a fifo, terminal, device or open file, with what identifies it. Reports are appended to such a file.
fn stream(path: &Path) -> io::Result<Output> {
    let found = fs::metadata(path)?;
    Ok(Output::Stream(StreamFile {
        path: path.to_owned(),
        device: found.dev(),
        inode: found.ino(),
        kind: found.mode() & libc::S_IFMT,
    }))
}

/// Fails if the file or link at `path` is another user's, and all users may write to its directory. `found` is its metadata.
fn refuse_foreign(directory: &Path, path: &Path, found: &Metadata) -> io::Result<()> {
    if !is_foreign(&fs::symlink_metadata(directory)?, found) {
        return Ok(());
    }
    let (kind, cure) = match found.is_symlink() {
        true => ("link", "name the file that it leads to"),
        false => ("file", "give another name"),
    };
    Err(io::Error::new(
        io::ErrorKind::PermissionDenied,
        format!(
            "{} is a {kind} of user {}, in a directory where all users may write: {cure}",
            path.display(),
            found.uid()
        ),
    ))
}

/// Whether a file belongs neither to this user nor to the directory's owner, in a sticky directory where all users may write.
pub(super) fn is_foreign(directory: &Metadata, file: &Metadata) -> bool {
    let is_shared = directory.mode() & libc::S_ISVTX != 0 && directory.mode() & libc::S_IWOTH != 0;
    let user = rustix::process::geteuid().as_raw();
    is_shared && file.uid() != user && file.uid() != directory.uid()
}

//! What a path that a user gave leads to. It is resolved name by name, as the kernel does (path_resolution(7)), so that each link can
//! be checked.
//!
//! In sticky directories where all users may write, such as /tmp, another user's link is not followed. This is the kernel's rule
//! (fs.protected_symlinks; proc_sys_fs(5)). It is applied here whether the machine has it on or not.

use std::ffi::OsString;
use std::fs::{self, Metadata};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat, openat2};
use rustix::io::Errno;

/// The kernel's limit of links in a path (path_resolution(7)).
const MAX_LINKS: u32 = 40;
/// Links in /proc stand for open files and directories, which need not have a name.
const PROC: &str = "/proc";

/// What a path leads to.
#[derive(Debug)]
pub(crate) struct GivenPath {
    /// The path without links, except for a last name in /proc.
    pub(crate) path: PathBuf,
    /// The file. `None`: there is none of this name.
    pub(crate) found: Option<Metadata>,
    /// The last name is in /proc. For example, /dev/stdin leads to /proc/PID/fd/0, which stands for an open file, and not for a name.
    pub(crate) is_in_proc: bool,
}

impl GivenPath {
    /// Resolves an absolute path.
    ///
    /// # Errors
    /// If it can't be resolved, ends in "/" or "..", or has another user's link where all users may write.
    pub(crate) fn find(given: &Path) -> io::Result<Self> {
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
            let next = here.join(&name);
            let is_last = left.is_empty();
            if is_last && here.starts_with(PROC) {
                return Ok(Self { found: Some(fs::metadata(&next)?), path: next, is_in_proc: true });
            }
            match fs::symlink_metadata(&next) {
                Ok(found) if found.is_symlink() => {
                    refuse_foreign(&here, &next, &found)?;
                    links += 1;
                    if links > MAX_LINKS {
                        return Err(Errno::LOOP.into());
                    }
                    let target = fs::read_link(&next)?;
                    if target.is_absolute() {
                        if here.starts_with(PROC) {
                            refuse_elsewhere(&next, &target)?;
                        }
                        here = PathBuf::from("/");
                    }
                    left.extend(reversed(&target));
                }
                Ok(_) if !is_last => here = next,
                Ok(found) => return Ok(Self { path: next, found: Some(found), is_in_proc: false }),
                Err(error) if is_last && error.kind() == io::ErrorKind::NotFound => {
                    return Ok(Self { path: next, found: None, is_in_proc: false });
                }
                Err(error) => return Err(error),
            }
        }
        // The path ends in "/" or "..".
        Err(io::ErrorKind::IsADirectory.into())
    }

    /// The number of this process's descriptor that the path stands for, such as 1 for /dev/stdout. `None`: it stands for none.
    pub(crate) fn own_descriptor(&self) -> Option<u32> {
        // The directory of this process in /proc.
        let own = Path::new(PROC).join(fs::read_link("/proc/self").ok()?);
        let name = self.path.strip_prefix(own).ok()?;
        name.parent()?.ends_with("fd").then(|| name.file_name()?.to_str()?.parse().ok())?
    }
}

/// Splits a path into its names, the last one first.
fn reversed(path: &Path) -> Vec<OsString> {
    let is_name = |part: &Component<'_>| matches!(part, Component::Normal(_) | Component::ParentDir);
    path.components().filter(is_name).map(|part| part.as_os_str().to_owned()).rev().collect()
}

/// Fails if the file or link at `path` is another user's, and all users may write to its directory. `found` is its metadata.
pub(crate) fn refuse_foreign(directory: &Path, path: &Path, found: &Metadata) -> io::Result<()> {
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

/// Fails if a link in /proc leads to another directory than the one named `target` here. It does if it is a link of a process with
/// another root, or the directory has no name any more.
fn refuse_elsewhere(link: &Path, target: &Path) -> io::Result<()> {
    let file = |path: &Path| fs::metadata(path).map(|found| (found.dev(), found.ino()));
    let led_to = file(link)?;
    match file(target) {
        Ok(named) if named == led_to => Ok(()),
        _ => Err(io::Error::other(format!("{} leads to a directory that has no name here", link.display()))),
    }
}

/// Whether a file belongs neither to this user nor to the directory's owner, in a sticky directory where all users may write.
pub(crate) fn is_foreign(directory: &Metadata, file: &Metadata) -> bool {
    let is_shared = directory.mode() & libc::S_ISVTX != 0 && directory.mode() & libc::S_IWOTH != 0;
    let user = rustix::process::geteuid().as_raw();
    is_shared && file.uid() != user && file.uid() != directory.uid()
}

/// Opens the directory of a path that had no symbolic links when it was resolved. Fails if it has one by now, where the kernel
/// can tell (since Linux 5.6). The descriptor is an O_PATH one.
pub(crate) fn directory_of(target: &Path) -> io::Result<OwnedFd> {
    // O_PATH alone does not trigger an automount (autofs); to resolve "." in the directory does.
    let parent = &target.parent().unwrap_or(target).join(".");
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    match openat2(CWD, parent, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS) {
        // Before Linux 5.6, or where a container's seccomp filter rejects it.
        Err(Errno::NOSYS | Errno::PERM) => Ok(openat(CWD, parent, flags, Mode::empty())?),
        result => Ok(result?),
    }
}

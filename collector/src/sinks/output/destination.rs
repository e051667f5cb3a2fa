//! Where a report goes: the path of `-o` is resolved once, at the start.
//!
//! In sticky directories where all users may write, such as /tmp, another user's file is not written to. This is the kernel's rule
//! (fs.protected_regular; proc_sys_fs(5)), which is applied here whether the machine has it on or not.

use std::ffi::OsString;
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::{fs, io};

use rustix::stdio::{stderr, stdin, stdout};
use rustix::termios::{tcgetsid, ttyname};

use super::stream_file;
use crate::model::style::Output;
use crate::sys::given_path::{GivenPath, refuse_foreign};

/// The device number of /dev/tty.
const OWN_TERMINAL: u64 = libc::makedev(5, 0);

/// Finds the output at an absolute path.
///
/// # Errors
/// If the path can't be resolved, is a directory, or is another user's where all users may write.
pub(super) fn find(given: &Path) -> io::Result<Output> {
    let leads_to = GivenPath::find(given)?;
    match (leads_to.own_descriptor(), leads_to.found) {
        // The collector, which writes the report, has these two from the launcher. By their names it would find its own.
        (Some(1), _) => Ok(Output::Stdout),
        (Some(2), _) => Ok(Output::Stderr),
        // A path below /proc, such as /proc/PID/fd/3, stands for a file that a process has open. A new file of that name would not
        // reach that process.
        _ if leads_to.is_in_proc => stream(given),
        (_, None) => Ok(Output::File(leads_to.path)),
        (_, Some(found)) if found.is_dir() => Err(io::ErrorKind::IsADirectory.into()),
        (_, Some(found)) if found.is_file() => {
            refuse_foreign(leads_to.path.parent().unwrap_or(Path::new("/")), &leads_to.path, &found)?;
            Ok(Output::File(leads_to.path))
        }
        (_, Some(found)) if found.rdev() == OWN_TERMINAL => stream(&own_terminal()?),
        _ => stream(given),
    }
}

/// The name of this process's controlling terminal, for the collector, which can't open /dev/tty, since it has none.
fn own_terminal() -> io::Result<PathBuf> {
    let name = |fd: BorrowedFd<'_>| {
        tcgetsid(fd).ok()?;
        ttyname(fd, Vec::new()).ok()
    };
    let standard = [stdin(), stdout(), stderr()];
    let name = standard.into_iter().find_map(name).ok_or_else(|| {
        io::Error::other("no standard stream is the terminal: give its name, which tty(1) prints")
    })?;
    Ok(OsString::from_vec(name.into_bytes()).into())
}

/// The output to a fifo, terminal, device or open file, with what identifies it. Reports are appended to such a file.
fn stream(path: &Path) -> io::Result<Output> {
    Ok(Output::Stream(stream_file(path, &fs::metadata(path)?)))
}

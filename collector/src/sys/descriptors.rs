//! What a process has open, without a look at the files themselves: those of a network file system may not answer.

use std::fs;
use std::os::unix::fs::MetadataExt;

use super::proc_fs::ProcRoot;

/// How many descriptors of a process are looked at.
const MAX_DESCRIPTORS: usize = 64;
/// Longer names are cut.
const MAX_NAME_CHARS: usize = 512;

/// A descriptor of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Descriptor {
    /// Its number.
    pub number: u32,
    /// A path, or what the kernel shows in place of one: `pipe:[1234]`.
    pub name: String,
    /// It may be written to.
    pub is_written: bool,
}

/// What /proc/PID/fdinfo tells of a descriptor (proc_pid_fdinfo(5)).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Position {
    /// File offset, bytes.
    pub position: u64,
    /// Flags of open(2).
    pub flags: i32,
    /// Its mount, as in /proc/PID/mountinfo.
    pub mount: u64,
    /// Inode; 0: the kernel is older than 5.14.
    pub inode: u64,
}

/// The first descriptors of a process: not always all, see [`are_few`]. None if it is gone, or of another user.
pub(crate) fn descriptors(root: &ProcRoot, pid: u32) -> impl Iterator<Item = Descriptor> {
    /// The link of a descriptor has the permissions of its owner for what the descriptor may do.
    const MAY_WRITE: u32 = 0o200;
    let entries = fs::read_dir(root.path(pid, "fd")).into_iter().flatten().flatten();
    entries.take(MAX_DESCRIPTORS).filter_map(|entry| {
        let name = fs::read_link(entry.path()).ok()?;
        Some(Descriptor {
            number: entry.file_name().to_str()?.parse().ok()?,
            name: name.to_string_lossy().chars().take(MAX_NAME_CHARS).collect(),
            is_written: entry.metadata().ok()?.mode() & MAY_WRITE != 0,
        })
    })
}

/// Whether [`descriptors`] looks at all descriptors of a process.
pub(crate) fn are_few(root: &ProcRoot, pid: u32) -> bool {
    fs::read_dir(root.path(pid, "fd")).into_iter().flatten().nth(MAX_DESCRIPTORS).is_none()
}

impl Position {
    /// Reads where a descriptor of a process is. `None`: it is closed, or may not be read.
    pub(crate) fn read(root: &ProcRoot, pid: u32, number: u32) -> Option<Self> {
        let text = root.read(pid, &format!("fdinfo/{number}"))?;
        let mut position = Self::default();
        for line in String::from_utf8_lossy(&text).lines() {
            let Some((key, value)) = line.split_once(':') else { continue };
            let value = value.trim();
            match key {
                "pos" => position.position = value.parse().ok()?,
                "flags" => position.flags = i32::from_str_radix(value, 8).ok()?,
                "mnt_id" => position.mount = value.parse().ok()?,
                "ino" => position.inode = value.parse().ok()?,
                _ => {}
            }
        }
        Some(position)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Seek, SeekFrom};
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn own_descriptors_have_names_modes_and_positions() {
        let root = ProcRoot::default();
        let pid = std::process::id();
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.as_file_mut().seek(SeekFrom::Start(4711)).unwrap();
        let number = file.as_file().as_raw_fd().unsigned_abs();
        let read = Position::read(&root, pid, number).unwrap();
        assert_eq!((read.position, read.flags & libc::O_ACCMODE), (4711, libc::O_RDWR));
        let mut own = descriptors(&root, pid);
        let found = own.find(|one| one.number == number).unwrap();
        assert_eq!((found.name.as_str(), found.is_written), (file.path().to_str().unwrap(), true));
        assert_eq!(Position::read(&root, pid, 1_000_000), None);
    }
}

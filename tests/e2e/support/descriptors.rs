//! The open descriptors of a process.

use std::fs::DirEntry;

/// What /proc shows for a signalfd.
pub const SIGNAL_FD: &str = "anon_inode:[signalfd]";

/// An open descriptor.
#[derive(Debug)]
pub struct Descriptor {
    /// The descriptor's number.
    pub number: u32,
    /// What it stands for: a path, `pipe:[INODE]`, ...
    pub target: String,
    /// The flags of open(2).
    pub flags: i32,
}

impl Descriptor {
    /// Whether a program that is executed does not get it.
    pub fn is_close_on_exec(&self) -> bool {
        self.flags & libc::O_CLOEXEC != 0
    }
}

/// The open descriptors of a process; none if it has ended.
pub fn descriptors(pid: u32) -> Vec<Descriptor> {
    let Ok(entries) = std::fs::read_dir(format!("/proc/{pid}/fd")) else { return Vec::new() };
    let descriptor = |entry: DirEntry| {
        let name = entry.file_name().into_string().ok()?;
        let info = std::fs::read_to_string(format!("/proc/{pid}/fdinfo/{name}")).ok()?;
        let flags = info.lines().find_map(|line| line.strip_prefix("flags:"))?;
        Some(Descriptor {
            number: name.parse().ok()?,
            target: std::fs::read_link(entry.path()).ok()?.to_string_lossy().into_owned(),
            flags: i32::from_str_radix(flags.trim(), 8).ok()?,
        })
    };
    entries.flatten().filter_map(descriptor).collect()
}

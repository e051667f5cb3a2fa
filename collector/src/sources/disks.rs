//! File systems without space, where the command may have wanted to write.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

use procfs::FromRead;
use procfs::process::{MountInfo, MountInfos};
use rustix::fs::StatVfsMountFlags;

use crate::model::report::{DiskFull, DiskRole};
use crate::sys::proc_fs::ProcRoot;

/// Less space than this is none: a write that failed leaves up to its own length.
const FULL_BYTES: u64 = 1 << 20;
/// A file system of another machine may not answer; the report must not wait for it.
const LONGEST_WAIT: Duration = Duration::from_millis(200);

/// File systems of this machine's own disks and memory. Others may not answer.
const LOCAL: [&str; 12] =
    ["bcachefs", "btrfs", "exfat", "ext2", "ext3", "ext4", "f2fs", "jfs", "overlay", "tmpfs", "xfs", "zfs"];
/// Most of them that are looked at. Machines with containers have hundreds of mounts of few file systems.
const MOST_LOCAL: usize = 64;

/// The file systems that were not full when the run began.
pub(crate) struct Disks {
    had_space: Vec<PathBuf>,
}

impl Disks {
    /// Finds the local file systems with space. Only those are asked, which answer at once.
    pub(crate) fn at_start(root: &ProcRoot) -> Self {
        let mounts = MountInfos::from_file(root.top_path("self/mountinfo")).map(|mounts| mounts.0);
        let mut known = HashSet::new();
        let is_local = |mount: &MountInfo| LOCAL.contains(&mount.fs_type.as_str());
        let had_space = mounts
            .unwrap_or_default()
            .into_iter()
            .filter(|mount| is_local(mount) && known.insert(mount.majmin.clone()))
            .take(MOST_LOCAL)
            .map(|mount| mount.mount_point)
            .filter(|path| available_bytes(path).is_some_and(|bytes| bytes >= FULL_BYTES))
            .collect();
        Self { had_space }
    }

    /// Finds the full file systems among those of the working directory, the directory for temporary files, and the reports.
    /// After these come those that had space at the start.
    pub(crate) fn full<'a>(&self, reports: impl Iterator<Item = &'a Path>) -> Vec<DiskFull> {
        let temporary = std::env::var_os("TMPDIR").map_or_else(|| PathBuf::from("/tmp"), PathBuf::from);
        let of_reports = reports.map(|path| (path.parent().map(Path::to_owned), DiskRole::Report));
        let others = self.had_space.iter().filter_map(|path| disk(path, DiskRole::Other));
        let all = [(std::env::current_dir().ok(), DiskRole::Working), (Some(temporary), DiskRole::Temporary)];
        let (sender, found) = mpsc::channel();
        for (path, role) in all.into_iter().chain(of_reports) {
            let Some(path) = path else { continue };
            let sender = sender.clone();
            // Without a thread this disk stays unknown. One that never answers ends with the collector.
            let _ = std::thread::Builder::new().spawn(move || sender.send(disk(&path, role)));
        }
        drop(sender);
        let mut full: Vec<DiskFull> = Vec::new();
        while let Ok(disk) = found.recv_timeout(LONGEST_WAIT) {
            full.extend(disk);
        }
        full.sort_by_key(|disk| disk.role as u8);
        full.extend(others);
        full
    }
}

/// Gives the file system of a path, if it may be written to and has no space left for this user.
fn disk(path: &Path, role: DiskRole) -> Option<DiskFull> {
    let available_bytes = available_bytes(path).filter(|bytes| *bytes < FULL_BYTES)?;
    Some(DiskFull { path: path.display().to_string(), role, available_bytes })
}

/// Gives the space for this user, bytes. `None`: it is unknown, or the file system may not be written to.
fn available_bytes(path: &Path) -> Option<u64> {
    let disk = rustix::fs::statvfs(path).ok()?;
    let blocks = if rustix::process::geteuid().is_root() { disk.f_bfree } else { disk.f_bavail };
    // /proc and the like have no blocks at all.
    let may_be_written = disk.f_blocks > 0 && !disk.f_flag.contains(StatVfsMountFlags::RDONLY);
    may_be_written.then(|| blocks.saturating_mul(disk.f_frsize))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_system_with_space_or_without_blocks_is_not_full() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(disk(dir.path(), DiskRole::Working), None);
        assert_eq!(disk(Path::new("/proc"), DiskRole::Working), None);
        assert_eq!(disk(&dir.path().join("absent"), DiskRole::Report), None);
    }
}

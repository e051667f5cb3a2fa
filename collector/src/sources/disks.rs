//! File systems without space, where the command may have wanted to write.

use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

use rustix::fs::StatVfsMountFlags;

use crate::model::report::{DiskFull, DiskRole};

/// Less space than this is none: a write that failed leaves up to its own length.
const FULL_BYTES: u64 = 1 << 20;
/// A file system of another machine may not answer; the report must not wait for it.
const LONGEST_WAIT: Duration = Duration::from_millis(200);

/// The full ones among those of the working directory, the directory for temporary files, and the reports.
pub(crate) fn full<'a>(reports: impl Iterator<Item = &'a Path>) -> Vec<DiskFull> {
    let temporary = std::env::var_os("TMPDIR").map_or_else(|| PathBuf::from("/tmp"), PathBuf::from);
    let of_reports = reports.map(|path| (path.parent().map(Path::to_owned), DiskRole::Report));
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
    full
}

/// A file system that may be written to and has no space left for this user.
fn disk(path: &Path, role: DiskRole) -> Option<DiskFull> {
    let disk = rustix::fs::statvfs(path).ok()?;
    let blocks = if rustix::process::geteuid().is_root() { disk.f_bfree } else { disk.f_bavail };
    let available_bytes = blocks.saturating_mul(disk.f_frsize);
    // /proc and the like have no blocks at all.
    let is_full =
        disk.f_blocks > 0 && !disk.f_flag.contains(StatVfsMountFlags::RDONLY) && available_bytes < FULL_BYTES;
    is_full.then(|| DiskFull { path: path.display().to_string(), role, available_bytes })
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

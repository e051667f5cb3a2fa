//! The cgroups with a memory limit that a process is in: how often an allocation met the limit, and the most memory that was charged.

use std::path::Path;

use super::{Group, Groups, count, memory_limit, number, read};
use crate::model::cgroup::{MemoryLimit, MemoryLimitUse};
use crate::model::report::Limit;

impl Groups {
    /// Finds the groups with a memory limit, innermost first.
    pub(super) fn memory_limits(&self) -> Vec<MemoryLimit> {
        let Some(group) = self.for_memory() else { return Vec::new() };
        let groups = group.with_ancestors().filter_map(|(dir, name)| {
            let Limit::Known(limit_bytes) = memory_limit(dir)? else { return None };
            let [hits_before, peak_before] = [hits(dir), peak(dir)];
            Some(MemoryLimit { dir: dir.to_owned(), name, limit_bytes, hits_before, peak_before })
        });
        groups.collect()
    }
}

impl Group {
    /// Directory and name of the group and its ancestors, up to the mount point.
    pub(super) fn with_ancestors(&self) -> impl Iterator<Item = (&Path, String)> {
        let names = Path::new(&self.name).ancestors().map(|name| name.display().to_string());
        self.directories().zip(names)
    }
}

/// Reads what has happened in the group since the start of the session. `None`: the group, or its limit, is gone.
pub(crate) fn usage(limit: &MemoryLimit) -> Option<MemoryLimitUse> {
    // The limit may have been changed meanwhile.
    let Limit::Known(limit_bytes) = memory_limit(&limit.dir)? else { return None };
    let hits_since = |before: u64| hits(&limit.dir)?.checked_sub(before);
    // Newer kernels have this file without counting: in Linux 6.18, a process that was killed at that limit left it at 0.
    let may_lack_hits = limit.dir.join(HITS_WITH_SWAP).exists();
    let peak_bytes = peak(&limit.dir);
    Some(MemoryLimitUse {
        cgroup: limit.name.clone(),
        limit_bytes,
        hits: limit.hits_before.and_then(hits_since).filter(|hits| *hits > 0 || !may_lack_hits),
        peak_bytes,
        // A peak that has not grown may be older than the run.
        is_peak_of_run: matches!((limit.peak_before, peak_bytes), (Some(before), Some(now)) if now > before),
    })
}

/// v1's count of hits of the limit of memory with swap.
const HITS_WITH_SWAP: &str = "memory.memsw.failcnt";

/// Reads how often an allocation met the limit since the group was made. v1 has a count for the limit of memory alone, and one for that
/// of memory with swap. `None`: the kernel has no count.
fn hits(dir: &Path) -> Option<u64> {
    if let Some(hits) = number(&dir.join("memory.failcnt")) {
        return Some(hits.saturating_add(number(&dir.join(HITS_WITH_SWAP)).unwrap_or(0)));
    }
    // Not "max", which also counts hits that reclaim solved. v1 has no count without those.
    // Before Linux 5.2 there is only `memory.events`, which also counts what happened in the groups below.
    let events = ["memory.events.local", "memory.events"].iter().find_map(|file| read(&dir.join(file)))?;
    count(&events, "oom ")
}

/// Reads the largest charge since the group was made, bytes. v2 has it since Linux 5.19. `None`: the kernel does not keep it.
pub(super) fn peak(dir: &Path) -> Option<u64> {
    ["memory.max_usage_in_bytes", "memory.peak"].iter().find_map(|file| number(&dir.join(file)))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{put, tree};
    use super::*;

    // Requirement: WHY-2
    #[test]
    fn groups_with_a_limit_are_watched_innermost_first() {
        let (dir, root) = tree("0::/job/step/task\n", "30 20 0:26 / TOP/fs rw - cgroup2 cgroup2 rw\n");
        put(&dir, "fs/job/memory.max", "9000\n");
        put(&dir, "fs/job/memory.events.local", "max 5\noom 2\n");
        put(&dir, "fs/job/memory.peak", "4000\n");
        put(&dir, "fs/job/step/memory.max", "7000\n");
        put(&dir, "fs/job/step/task/memory.max", "max\n");
        let limits = Groups::own(&root).memory_limits();
        let names: Vec<_> = limits.iter().map(|limit| (limit.name.as_str(), limit.limit_bytes)).collect();
        assert_eq!(names, [("/job/step", 7000), ("/job", 9000)]);
        put(&dir, "fs/job/memory.events.local", "max 9\noom 3\n");
        let figures = |limit: &MemoryLimit| {
            let used = usage(limit).unwrap();
            (used.hits, used.peak_bytes, used.is_peak_of_run)
        };
        assert_eq!(figures(&limits[1]), (Some(1), Some(4000), false), "the peak is from before the run");
        put(&dir, "fs/job/memory.peak", "8000\n");
        assert_eq!(figures(&limits[1]), (Some(1), Some(8000), true));
        assert_eq!(figures(&limits[0]), (None, None, false), "an old kernel keeps neither");
        std::fs::remove_dir_all(dir.path().join("fs/job")).unwrap();
        assert_eq!(usage(&limits[0]), None);
    }

    // Requirement: WHY-2
    #[test]
    fn version_1_counts_both_limits() {
        let (dir, root) = tree("4:memory:/job\n", "30 20 0:26 / TOP/memory rw - cgroup cgroup rw,memory\n");
        put(&dir, "memory/job/memory.limit_in_bytes", "7000\n");
        put(&dir, "memory/job/memory.failcnt", "1\n");
        put(&dir, "memory/job/memory.memsw.failcnt", "2\n");
        put(&dir, "memory/job/memory.max_usage_in_bytes", "6000\n");
        let limits = Groups::own(&root).memory_limits();
        assert_eq!((limits[0].hits_before, limits[0].peak_before), (Some(3), Some(6000)));
        let hits = || usage(&limits[0]).unwrap().hits;
        assert_eq!(hits(), None, "of hits with swap, a newer kernel tells none");
        put(&dir, "memory/job/memory.failcnt", "5\n");
        assert_eq!(hits(), Some(4));
        std::fs::remove_file(dir.path().join("memory/job/memory.memsw.failcnt")).unwrap();
        put(&dir, "memory/job/memory.failcnt", "3\n");
        assert_eq!(hits(), Some(0), "swap is not counted here");
        put(&dir, "memory/memory.limit_in_bytes", "9223372036854771712\n");
        assert_eq!(Groups::own(&root).memory_limits(), limits, "the topmost group has none");
    }
}

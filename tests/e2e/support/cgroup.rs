//! A cgroup for a test: of v2, or of v1 if the controller is mounted there.

use std::path::{Path, PathBuf};

/// A group at the top of a hierarchy. It is removed when dropped and must be empty then.
pub struct Group {
    dir: PathBuf,
}

/// Where a hierarchy of this kind is mounted (proc_pid_mountinfo(5)).
pub fn mounted(kind: &str, option: &str) -> Option<PathBuf> {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    mounts.lines().find_map(|line| {
        let (place, source) = line.split_once(" - ")?;
        let mut source = source.split(' ');
        let is_it = source.next() == Some(kind)
            && (option.is_empty() || source.nth(1)?.split(',').any(|name| name == option));
        is_it.then(|| place.split(' ').nth(4).map(PathBuf::from))?
    })
}

fn contains_word(file: &Path, word: &str) -> bool {
    std::fs::read_to_string(file).is_ok_and(|text| text.split_whitespace().any(|listed| listed == word))
}

impl Group {
    /// A group of v2 with this controller enabled ("" for none).
    ///
    /// # Errors
    /// The reason why it is not available.
    pub fn v2(controller: &str) -> Result<Self, String> {
        let top = mounted("cgroup2", "").ok_or("no cgroup v2 is mounted")?;
        if !controller.is_empty() && !contains_word(&top.join("cgroup.subtree_control"), controller) {
            return Err(format!("cgroup v2 hands down no {controller} controller at {}", top.display()));
        }
        Self::below(&top)
    }

    /// A group of either version with a memory limit.
    ///
    /// # Errors
    /// The reason why it is not available.
    pub fn with_memory_limit(bytes: u64) -> Result<Self, String> {
        let (group, limits) = match mounted("cgroup", "memory") {
            Some(top) => (Self::below(&top)?, ["memory.limit_in_bytes", "memory.memsw.limit_in_bytes"]),
            None => (Self::v2("memory")?, ["memory.max", "memory.swap.max"]),
        };
        let set = |file, value: u64| std::fs::write(group.dir.join(file), value.to_string());
        set(limits[0], bytes).map_err(|error| format!("no memory limit: {error}"))?;
        // Without swap accounting this file does not exist.
        let _ = set(limits[1], if limits[1] == "memory.swap.max" { 0 } else { bytes });
        Ok(group)
    }

    /// A group of either version with a quota of a fifth of a core.
    ///
    /// # Errors
    /// The reason why it is not available.
    pub fn with_cpu_quota() -> Result<Self, String> {
        let (group, file, quota) = match mounted("cgroup", "cpu") {
            Some(top) => (Self::below(&top)?, "cpu.cfs_quota_us", "20000"),
            None => (Self::v2("cpu")?, "cpu.max", "20000 100000"),
        };
        std::fs::write(group.dir.join(file), quota).map_err(|error| format!("no CPU quota: {error}"))?;
        Ok(group)
    }

    fn below(top: &Path) -> Result<Self, String> {
        let test = std::thread::current().name().unwrap_or("test").replace(':', "_");
        let dir = top.join(format!("test-{}-{test}", std::process::id()));
        std::fs::create_dir(&dir).map_err(|error| format!("cannot make {}: {error}", dir.display()))?;
        Ok(Self { dir })
    }

    /// Path of a file of the group.
    pub fn file(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// The group's path below the mount point.
    pub fn name(&self) -> String {
        format!("/{}", self.dir.file_name().unwrap().to_str().unwrap())
    }

    /// The words to put before a command that has to run in the group.
    pub fn enter(&self) -> [String; 4] {
        let script = format!("echo $$ >'{}' && exec \"$@\"", self.file("cgroup.procs").display());
        ["sh".into(), "-c".into(), script, "sh".into()]
    }

    /// The groups below this one.
    pub fn children(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(&self.dir).unwrap().map(Result::unwrap);
        entries.filter(|entry| entry.file_type().unwrap().is_dir()).map(|entry| entry.path()).collect()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.dir);
    }
}

//! The descendants of a process as /proc shows them now.

use std::collections::HashMap;

/// All living descendants of a process, its zombies included, without the process itself; the oldest relatives first.
///
/// # Errors
/// /proc cannot be listed.
pub fn descendants(root: u32) -> Result<Vec<u32>, String> {
    let entries = std::fs::read_dir("/proc").map_err(|error| format!("/proc: {error}"))?;
    let mut children: HashMap<u32, Vec<(u64, u32)>> = HashMap::new();
    for entry in entries.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        // A process may have ended since the directory was listed.
        let stat = std::fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        if let Some((parent, start)) = parent_and_start(&stat) {
            children.entry(parent).or_default().push((start, pid));
        }
    }
    let mut found = vec![root];
    let mut at = 0;
    while let Some(pid) = found.get(at) {
        let mut direct = children.remove(pid).unwrap_or_default();
        direct.sort_unstable();
        found.extend(direct.into_iter().map(|(_, pid)| pid));
        at += 1;
    }
    found.remove(0);
    Ok(found)
}

/// Fields 4 and 22 of /proc/PID/stat. The second field is the name, which may contain anything.
fn parent_and_start(stat: &str) -> Option<(u32, u64)> {
    let (_, rest) = stat.rsplit_once(") ")?;
    let mut fields = rest.split(' ');
    Some((fields.nth(1)?.parse().ok()?, fields.nth(17)?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn parent_and_start_follow_the_name() {
        let stat = "7 (a) b) 1 (c) S 42 7 7 0 -1 0 1 2 3 4 5 6 7 8 20 0 1 0 12345 99 1";
        assert_eq!(parent_and_start(stat), Some((42, 12345)));
        assert_eq!(parent_and_start("7 (sh) S 42"), None);
    }

    #[test]
    fn children_and_their_children_are_found() {
        let mut shell = Command::new("sh")
            .args(["-c", "sleep 1000 & read line; kill $!"])
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        let pid = shell.id();
        while descendants(pid).unwrap().is_empty() {
            std::thread::yield_now();
        }
        assert_eq!(descendants(std::process::id()).unwrap().iter().filter(|one| **one == pid).count(), 1);
        assert_eq!(descendants(pid).unwrap().len(), 1);
        drop(shell.stdin.take());
        shell.wait().unwrap();
        assert!(descendants(pid).unwrap().is_empty());
    }
}

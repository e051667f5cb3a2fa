//! Processes and files in /dev/shm that a run must not leave behind.
//!
//! Each run has a mark in its environment, which its collector and its tree inherit. So leftovers are found even after
//! reparenting, and processes of other tests are told apart.

use std::sync::atomic::{AtomicU32, Ordering};

use super::run::BINARY;

/// Name of the variable that marks a run.
pub const VARIABLE: &str = "GPU_TRACK_TEST_RUN";

/// A value for [`VARIABLE`] that no other run has.
pub fn new_mark() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    format!("{}.{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}

/// Live processes of a run: pid and command line.
pub fn processes(mark: &str) -> Vec<(u32, String)> {
    let variable = format!("{VARIABLE}={mark}");
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        // The environment of a zombie is empty, and that of another user's process is unreadable.
        let environment = std::fs::read(entry.path().join("environ")).unwrap_or_default();
        if environment.split(|byte| *byte == 0).any(|entry| entry == variable.as_bytes()) {
            let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
            found.push((pid, String::from_utf8_lossy(&line).replace('\0', " ")));
        }
    }
    found
}

/// The collector of a run: it has the launcher's executable and another command line, which is not that of a runner of `--on-alert` or
/// of an ender. (The command, before its exec, has the launcher's command line.)
pub fn collector(mark: &str, launcher: u32) -> Option<u32> {
    let binary = std::fs::canonicalize(BINARY).unwrap();
    let cmdline = |pid: u32| std::fs::read(format!("/proc/{pid}/cmdline")).ok();
    let is_helper = |line: &str| line.starts_with("gpu-track-alert ") || line.starts_with("gpu-track-ender ");
    let others = processes(mark).into_iter().filter(|(_, line)| !is_helper(line));
    others.map(|(pid, _)| pid).find(|pid| {
        cmdline(*pid) != cmdline(launcher)
            && std::fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|exe| exe == binary)
    })
}

/// Kills what is left of the run with this mark.
pub fn kill_processes(mark: &str) {
    for (pid, _) in processes(mark) {
        // SAFETY: kill has no memory preconditions. A process that has ended meanwhile is no error.
        unsafe { libc::kill(pid.cast_signed(), libc::SIGKILL) };
    }
}

/// Files in /dev/shm of the launcher with this pid.
pub fn segments(launcher: u32) -> Vec<String> {
    let launcher = launcher.to_string();
    // A name is `gpu-track.USER.LAUNCHER.RANDOM`, and the user may be another than the test's.
    let is_its = |name: &String| {
        let mut parts = name.split('.');
        parts.next() == Some("gpu-track") && parts.nth(1) == Some(launcher.as_str())
    };
    let entries = std::fs::read_dir("/dev/shm").unwrap().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok()).filter(is_its).collect()
}

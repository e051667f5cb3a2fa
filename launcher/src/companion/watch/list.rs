//! The list of the runs of this user that go on (`gpu-track watch --list`).

use std::process::ExitCode;

use gpu_track_collector::clock;

use super::frame::{Frame, Reading, Stage};
use super::is_alive;
use super::live::Live;
use crate::companion::runs::Found;
use crate::console;

/// Most runs that are listed.
const MOST_RUNS: usize = 64;

/// Prints a table of the first [`MOST_RUNS`] runs, and how many more there are.
pub(super) fn list(all: &[Found]) -> ExitCode {
    console::print(&table(all))
}

/// Makes the table of runs that [`list`] prints.
fn table(all: &[Found]) -> String {
    let mut text = format!("{:>8}  {:>12}  {:>8}  {:>5}  {}\n", "PID", "TIME", "RAM", "LIVE", "COMMAND");
    let now_ns = clock::monotonic_ns();
    for found in all.iter().take(MOST_RUNS) {
        text += &gpu_track_collector::report::quote::escape(&line(found, now_ns, is_alive));
        text += "\n";
    }
    if all.len() > MOST_RUNS {
        text += &format!("{} more\n", all.len() - MOST_RUNS);
    }
    text
}

/// Makes a line about a run for the list of runs, or says why its file can't be read. `now_ns`: CLOCK_MONOTONIC.
fn line(found: &Found, now_ns: u64, is_alive: impl Fn(u32) -> bool) -> String {
    let pid = found.launcher_pid;
    match Live::open(&found.path) {
        Err(problem) => format!("{pid:>8}  {} {problem}", found.path.display()),
        Ok(mut live) => {
            let Reading { run, frame, .. } = live.read(now_ns, is_alive);
            let Frame { at_s, stage, ram_bytes, processes, .. } = frame;
            let ram = ram_bytes.map_or("?".into(), |bytes| super::view::text::bytes(bytes, None));
            let processes = processes.map_or("?".into(), |count| count.to_string());
            let time = gpu_track_collector::report::figures::readable(at_s);
            let note =
                if stage == Stage::Killed { "killed: gpu-track recover writes its report  " } else { "" };
            let command = gpu_track_collector::report::quote::words(&run.command);
            format!("{pid:>8}  {time:>12}  {ram:>8}  {processes:>5}  {note}{command}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Requirement: WATCH-1
    #[test]
    fn first_runs_are_listed_and_the_others_are_counted() {
        let found = |pid| Found { path: format!("/absent/{pid}.live").into(), launcher_pid: pid };
        let all: Vec<Found> = (1..=100).map(found).collect();
        let text = table(&all);
        assert_eq!((text.lines().count(), text.lines().last()), (1 + MOST_RUNS + 1, Some("36 more")));
        assert_eq!(table(&all[..MOST_RUNS]).lines().count(), 1 + MOST_RUNS);
    }

    // Requirement: WATCH-1
    #[test]
    fn run_whose_file_can_not_be_read_is_listed_with_the_reason() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("gpu-track.1.9.b.live");
        std::fs::write(&path, "").unwrap();
        let said = line(&Found { path, launcher_pid: 9 }, 0, |_| true);
        assert!(said.ends_with(".9.b.live is no live file of version 2"), "{said}");
    }
}

//! Reports that are kept, and `--last`.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::PathBuf;

use gpu_track_collector::model::config::ReportTarget;
use gpu_track_collector::model::style::Style;
use gpu_track_collector::report::format::render;
use gpu_track_collector::report::read::read as read_report;
use tempfile::TempDir;

use crate::support::run::{Run, Tracked};
use crate::support::{is_root, pty, tracked};

/// A user's state directory.
struct State(TempDir);

impl State {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        fs::set_permissions(directory.path(), PermissionsExt::from_mode(0o700)).unwrap();
        Self(directory)
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("state/gpu-track")
    }

    /// gpu-track-run with this state directory and, if given, this GPU_TRACK_KEEP.
    fn run(&self, command: &[&str], keep: Option<&str>) -> Tracked {
        let state = self.0.path().join("state");
        let keep = keep.map(str::to_owned);
        tracked(command).only_options(&[]).with(move |command| {
            for variable in ["CI", "JENKINS_URL", "SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "GPU_TRACK_KEEP"]
            {
                command.env_remove(variable);
            }
            command
                .env("XDG_STATE_HOME", state)
                .env("LC_ALL", "C.UTF-8")
                .env("NO_COLOR", "1")
                .envs(keep.map(|n| ("GPU_TRACK_KEEP", n)))
        })
    }

    fn last(&self, options: &[&str]) -> Run {
        self.run(&[], None).options(&["--last"]).options(options).run()
    }

    fn files(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.path()).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).collect()
    }
}

// Requirement: OUT-28
#[test]
fn run_on_a_terminal_is_shown_again() {
    let state = State::new();
    let (read, write) = pty::open(Some(100));
    let running = state.run(&["sh", "-c", "exit 3"], None).with(|command| command.stderr(write)).start();
    let text = pty::read_all(read);
    assert_eq!(running.wait().status.code(), Some(3));
    let last = text.lines().last().unwrap();
    assert_eq!(last, "  Full report    gpu-track-run --last --full", "{text}");

    let json = state.last(&["-f", "json"]);
    let report = read_report(&json.stdout).unwrap().report;
    assert_eq!((json.status.code(), json.stderr.as_str(), report.ending.exit.code), (Some(0), "", Some(3)));
    let shown = |style: Style| render(&report, &ReportTarget::default(), style);
    assert_eq!(state.last(&["--full"]).stdout, shown(Style { full: true, ..Style::default() }));
    assert_eq!(state.last(&[]).stdout, shown(Style::default()));
    let written = state.0.path().join("again.txt");
    let run = state.last(&["--summary", "-o", written.to_str().unwrap()]);
    assert_eq!((run.stdout.as_str(), run.stderr.clone()), ("", shown(Style::default())));
    assert_eq!(fs::read_to_string(written).unwrap(), shown(Style { full: true, ..Style::default() }));

    let [file] = &state.files()[..] else { panic!("{:?}", state.files()) };
    let mode = |path: &PathBuf| fs::metadata(path).unwrap().mode() & 0o777;
    assert_eq!((mode(file), mode(&state.path())), (0o600, 0o700));
}

// Requirement: OUT-28
#[test]
fn other_runs_are_kept_only_if_the_user_says_so() {
    let state = State::new();
    let run = state.run(&["true"], None).run();
    assert!(!run.stderr.contains("Full report"), "{}", run.stderr);
    let last = state.last(&[]);
    assert_eq!((last.status.code(), last.stdout.as_str()), (Some(1), ""));
    let line = format!("gpu-track-run: no report is kept in {}. ", state.path().display());
    assert!(last.stderr.starts_with(&line) && last.stderr.lines().count() == 1, "{}", last.stderr);
    for number in ["1", "2", "3"] {
        let run = state.run(&["sh", "-c", "exit $0", number], Some("2")).run();
        assert!(run.stderr.ends_with("  Full report    gpu-track-run --last --full\n"), "{}", run.stderr);
        let shown = state.last(&[]).stdout.clone();
        assert!(shown.contains(&format!("FAILED, exit {number} ")), "{shown}");
    }
    assert_eq!(state.files().len(), 2);
}

// Requirement: OUT-28
#[test]
fn where_nothing_can_be_kept_nothing_is_said() {
    let state = State::new();
    fs::write(state.0.path().join("state"), "").unwrap();
    let run = state.run(&["true"], Some("5")).run();
    assert!(run.stderr.contains(" OK, exit 0 ") && !run.stderr.contains("Full report"), "{}", run.stderr);
    assert_eq!(state.last(&[]).status.code(), Some(1));
    if is_root() {
        // Root with another user's environment, as under `sudo -E`.
        let state = State::new();
        std::os::unix::fs::chown(state.0.path(), Some(12345), None).unwrap();
        let run = state.run(&["true"], Some("5")).run();
        assert!(!run.stderr.contains("Full report"), "{}", run.stderr);
        assert!(!state.path().exists());
    }
}

// Requirement: OUT-28
#[test]
fn damaged_report_is_named() {
    let state = State::new();
    state.run(&["true"], Some("1")).run();
    assert_eq!(state.last(&[]).status.code(), Some(0));
    fs::write(&state.files()[0], "{").unwrap();
    let run = state.last(&[]);
    assert_eq!((run.status.code(), run.stdout.as_str()), (Some(1), ""));
    let line = format!("gpu-track-run: cannot show {}: it is no JSON", state.files()[0].display());
    assert!(run.stderr.starts_with(&line), "{}", run.stderr);
}

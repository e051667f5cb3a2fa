//! All processes of a run are killed at once: `--recover` makes a report from what is left in shared memory.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use gpu_track_collector::segment::named::NamedFile;
use gpu_track_collector::{Segment, StateFile};
use tempfile::TempDir;

use crate::hostile::is_drained;
use crate::kills::{MORE_THAN_THE_RING, kill_all, progressed, stop_collector_during_children};
use crate::support::report::Report;
use crate::support::run::{BINARY, Running, cache_home};
use crate::support::{Run, is_root, kill, leftovers, program, skip, tracked, wait_until};
use crate::{Random, rounds};

/// A session directory of a test's own, so that tests do not see each other's leftovers.
struct Shm(TempDir);

impl Shm {
    fn new() -> Self {
        Self(tempfile::tempdir_in("/dev/shm").unwrap())
    }

    fn names(&self) -> Vec<PathBuf> {
        fs::read_dir(self.0.path()).unwrap().map(|entry| entry.unwrap().path()).collect()
    }

    /// The state file of the run with this launcher.
    fn state(&self, launcher: u32) -> Option<PathBuf> {
        let is_its = |path: &PathBuf| {
            let name = path.to_str().unwrap();
            name.contains(&format!(".{launcher}.")) && name.ends_with(".state")
        };
        self.names().into_iter().find(is_its)
    }

    fn tracked<S: Into<std::ffi::OsString>>(&self, command: impl IntoIterator<Item = S>) -> Running {
        let dir = self.0.path().to_str().unwrap();
        tracked(command).options(&["--session-dir", dir]).piped_stdin().leaves_processes().start()
    }

    /// Starts a run and waits until its script prints `ready` and the collector has saved its state.
    fn ready(&self, script: &str) -> Running {
        let running = self.tracked(["sh", "-c", script]);
        running.wait_for_output("ready");
        self.wait_for_collector(&running);
        running
    }

    /// Starts such a run and kills all of its processes.
    fn killed(&self, script: &str) -> Run {
        let running = self.ready(script);
        kill_all(&running);
        running.wait()
    }

    /// Waits until the collector has saved the run's description, which recovery needs, and has read all records so
    /// far.
    fn wait_for_collector(&self, running: &Running) {
        wait_until("the collector's state", || {
            self.state(running.pid()).is_some_and(|path| path.metadata().unwrap().len() > 0)
        });
        let path = self.state(running.pid()).unwrap().with_extension("");
        let file = File::options().read(true).write(true).open(&path).unwrap();
        let segment = Segment::from_file(&path, file.into()).unwrap();
        wait_until("the first records to be read", || is_drained(&segment));
    }

    fn recover(&self, options: &[&str]) -> Output {
        let mut command = Command::new(BINARY);
        command.args(["--recover", "--session-dir"]).arg(self.0.path()).args(options);
        command.output().unwrap()
    }

    /// Recovers the only run there is; its report.
    fn report(&self) -> Report {
        let output = self.recover(&["-f", "json", "--ru", "bytes", "--tu", "seconds", "-o", "-"]);
        assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), String::new()));
        assert_eq!(self.names().len(), 0, "the files of a recovered run are removed");
        let report = Report(serde_json::from_slice(&output.stdout).unwrap());
        assert_eq!((report.at("finished"), report.at("stage")), (&false.into(), &"recovered".into()));
        assert!(report.at("exit.code").is_null() && report.at("exit.signal").is_null());
        assert!(report.warnings().contains("and its collector were killed"), "{}", report.warnings());
        report
    }

    /// Asserts that nothing can be recovered; the line that gives the reason.
    fn refused(&self) -> String {
        let output = self.recover(&[]);
        assert_eq!((output.status.code(), text(&output.stdout)), (Some(1), String::new()));
        let line = text(&output.stderr);
        assert_eq!(line.lines().count(), 1, "{line}");
        line
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

const SCRIPT: &str = "/bin/true; /bin/true; /bin/true; echo ready; read x; exit 0";

// Requirement: FAULT-3, FAULT-70, FAULT-74, FAULT-75
#[test]
fn a_killed_run_is_recovered_once() {
    let shm = Shm::new();
    shm.killed(SCRIPT);
    let report = shm.report();
    assert_eq!(report.at("command.2"), SCRIPT);
    assert_eq!(report.u64("processes.total"), 4);
    assert_eq!(report.u64("processes.still_running"), 0);
    assert_eq!(report.command("true").unwrap()["count"], 3);
    assert_eq!(report.u64("coverage.exact"), 3, "the processes that had ended");
    assert!(report.f64("compute_time.time") > 0.0 && report.f64("max_ram.combined.total_rss") > 0.0);
    assert!(report.at("limits.ulimits.open_files.soft").is_u64(), "the run's limits are recovered");
    assert!(shm.refused().contains("nothing to recover"));
}

// Requirement: RECORD-1
#[test]
fn recovered_run_leaves_a_bundle() {
    let (shm, records) = (Shm::new(), tempfile::tempdir().unwrap());
    let options =
        ["--session-dir", shm.0.path().to_str().unwrap(), "--record", records.path().to_str().unwrap()];
    let running = tracked(["sh", "-c", SCRIPT]).options(&options).piped_stdin().leaves_processes().start();
    running.wait_for_output("ready");
    shm.wait_for_collector(&running);
    kill_all(&running);
    // It is no run that goes on any more.
    let refused = Command::new(Path::new(BINARY).with_file_name("gpu-track"))
        .args(["record", &running.pid().to_string(), "--session-dir"])
        .arg(shm.0.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(said.contains("it was killed as a whole: gpu-track recover"), "{said}");
    running.wait();
    shm.report();
    let bundles: Vec<_> = fs::read_dir(records.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
    let [bundle] = &bundles[..] else { panic!("{bundles:?}") };
    let read = |name: &str| -> serde_json::Value {
        serde_json::from_slice(&fs::read(bundle.join(name)).unwrap()).unwrap()
    };
    let manifest = read("manifest.json");
    assert_eq!(
        (&manifest["trigger"], &manifest["missing"][0]["name"]),
        (&"recovered".into(), &"tail.jsonl".into())
    );
    assert_eq!(read("report.json")["stage"], "recovered");
}

// Requirement: FAULT-3, FAULT-74
#[test]
fn storm_killed_at_any_moment_is_counted_exactly() {
    let mut random = Random(7);
    let shm = Shm::new();
    for _ in 0..rounds(8) {
        let running = shm.tracked([program("storm"), "calm".into(), "100000".into()]);
        shm.wait_for_collector(&running);
        assert!(progressed(&running, random.below(150)));
        kill_all(&running);
        // The program writes one dot per reaped child.
        let reaped = running.path("stdout").metadata().unwrap().len();
        running.wait();
        let report = shm.report();
        let exact = report.u64("coverage.exact");
        assert!((reaped..=reaped + 1).contains(&exact), "{exact} of {reaped}");
        let total = report.u64("processes.total");
        assert!((reaped + 1..=reaped + 2).contains(&total), "{total} of {reaped}");
        assert_eq!(report.u64("coverage.dropped_events"), 0);
    }
}

// Requirement: FAULT-3
#[test]
fn events_beyond_the_ring_capacity_are_recovered() {
    let shm = Shm::new();
    let mut running = shm.tracked(["sh", "-c", MORE_THAN_THE_RING]);
    let mut stdin = running.stdin();
    shm.wait_for_collector(&running);
    stop_collector_during_children(&running, &mut stdin);
    kill_all(&running);
    running.wait();
    let report = shm.report();
    assert_eq!((report.u64("processes.total"), report.u64("coverage.exact")), (1501, 1500));
    assert_eq!(report.u64("coverage.dropped_events"), 0);
}

// Requirement: FAULT-76
#[test]
fn recovered_report_lists_survivors_as_still_running() {
    let shm = Shm::new();
    let mut running = shm.tracked(["sh", "-c", SCRIPT]);
    let stdin = running.stdin();
    running.wait_for_output("ready");
    shm.wait_for_collector(&running);
    let collector = running.collector().unwrap();
    kill(running.pid(), libc::SIGSTOP);
    kill(collector, libc::SIGKILL);
    kill(running.pid(), libc::SIGKILL);
    // The run's files count as in use until the launcher and the collector have ended.
    wait_until("the collector's end", || !Path::new(&format!("/proc/{collector}")).exists());
    let mark = running.mark().to_owned();
    running.wait();
    let report = shm.report();
    assert_eq!((report.u64("processes.total"), report.u64("coverage.exact")), (4, 3));
    assert_eq!(report.u64("processes.still_running"), 1);
    assert_eq!(report.at("processes.still_running_processes.0.command"), "sh");
    let pid = report.u64("processes.still_running_processes.0.pid");
    assert!(leftovers::processes(&mark).iter().any(|(alive, _)| u64::from(*alive) == pid));
    drop(stdin);
    wait_until("the tree's end", || leftovers::processes(&mark).is_empty());
}

// Requirement: FAULT-4
#[test]
fn run_in_progress_is_not_recovered() {
    let shm = Shm::new();
    let mut running = shm.tracked(["sh", "-c", SCRIPT]);
    running.wait_for_output("ready");
    shm.wait_for_collector(&running);
    assert!(shm.refused().contains("nothing to recover"));
    assert_eq!(shm.names().len(), 3);
    drop(running.stdin());
    running.wait().assert_clean(0).assert_all_exact(4);
    assert_eq!(shm.names().len(), 0);
}

// Requirement: FAULT-79
#[test]
fn damaged_state_is_reported_and_removed() {
    let mut random = Random(11);
    let mut garbage = || -> Vec<u8> { (0..20_000).map(|_| random.next() as u8).collect() };
    let of_all = garbage();
    let of_snapshots = garbage();
    type Damage<'a> = &'a dyn Fn(&File);
    let cases: [(Damage, &str); 5] = [
        (&|file| file.write_all_at(&of_all, 0).unwrap(), "its state is damaged"),
        (&|file| file.set_len(30).unwrap(), "its state is damaged"),
        (&|file| file.set_len(0).unwrap(), "nothing was kept"),
        (
            &|file| {
                for at in 1..4u64 {
                    file.write_all_at(&of_snapshots, at << 40).unwrap();
                }
            },
            "its state is damaged",
        ),
        (
            // A length that exceeds the memory.
            &|file| file.write_all_at(&(1u64 << 50).to_ne_bytes(), 8).unwrap(),
            "its state is damaged",
        ),
    ];
    for (damage, reason) in cases {
        let shm = Shm::new();
        let run = shm.killed(SCRIPT);
        damage(&File::options().write(true).open(shm.state(run.launcher).unwrap()).unwrap());
        let line = shm.refused();
        assert!(line.contains(reason) && line.ends_with("removed\n"), "{line}");
        assert_eq!(shm.names().len(), 0);
    }
    let shm = Shm::new();
    let run = shm.killed(SCRIPT);
    fs::remove_file(shm.state(run.launcher).unwrap()).unwrap();
    assert!(shm.refused().contains("nothing was kept"));
    assert_eq!(shm.names().len(), 0);
}

// Requirement: FAULT-86
#[test]
fn overwritten_segment_loses_only_unread_records() {
    let shm = Shm::new();
    let run = shm.killed(SCRIPT);
    let state = shm.state(run.launcher).unwrap();
    let segment = state.with_extension("");
    let mut random = Random(3);
    let garbage: Vec<u8> = (0..segment.metadata().unwrap().len()).map(|_| random.next() as u8).collect();
    fs::write(segment, garbage).unwrap();
    let report = shm.report();
    assert_eq!((report.u64("processes.total"), report.u64("coverage.exact")), (4, 3));
    assert!(report.warnings().contains("was overwritten"), "{}", report.warnings());
}

// Requirement: FAULT-77
#[test]
fn state_of_another_version_is_left_unchanged() {
    let shm = Shm::new();
    let run = shm.killed(SCRIPT);
    let path = shm.state(run.launcher).unwrap();
    let file = File::options().read(true).write(true).open(&path).unwrap();
    let state = StateFile::from_file(&path, file.into()).unwrap();
    state.save_run(br#"["0.0.9", {"all": "else"}, null]"#).unwrap();
    drop(state);
    let line = shm.refused();
    assert!(line.contains("gpu-track-run 0.0.9") && line.ends_with("left as it is\n"), "{line}");
    assert_eq!(shm.names().len(), 3);
}

// Requirement: FAULT-3
#[test]
fn each_recovered_run_gets_its_own_report() {
    let shm = Shm::new();
    let runs = [shm.ready(SCRIPT), shm.ready("echo ready; read x; exit 0")].map(|running| {
        kill_all(&running);
        running.wait()
    });
    let directory = tempfile::tempdir().unwrap();
    let to = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let output = shm.recover(&["-f", "json", "-o", &to("one.json")]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("put %p into its name"), "{}", text(&output.stderr));
    let output = shm.recover(&["-f", "json", "-o", "/dev/full"]);
    assert_eq!((output.status.code(), text(&output.stderr).matches("/dev/full").count()), (Some(1), 2));
    assert_eq!(shm.names().len(), 6, "files are removed only after their report was written");
    assert!(fs::read_dir(directory.path()).unwrap().next().is_none());
    let output = shm.recover(&["-f", "json", "-o", &to("%p.json")]);
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), String::new()));
    for (run, total) in runs.iter().zip([4, 1]) {
        let json = fs::read(to(&format!("{}.json", run.launcher))).unwrap();
        assert_eq!(Report(serde_json::from_slice(&json).unwrap()).u64("processes.total"), total);
    }
    assert_eq!(shm.names().len(), 0);
}

// Requirement: FAULT-10, FAULT-70
#[test]
fn next_run_removes_stale_sessions() {
    let shm = Shm::new();
    shm.killed("echo ready; read x; exit 0");
    let output = shm.recover(&[]);
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(0), String::new()));
    let report = text(&output.stderr);
    let headline = report.lines().find(|line| !line.is_empty()).unwrap();
    assert!(headline.starts_with("sh -c 'echo ready; read x; exit 0' ..."), "{report}");
    assert!(headline.contains("TRACKING KILLED after "), "{report}");
    shm.killed(SCRIPT);
    assert_eq!(shm.names().len(), 3);
    shm.tracked(["true"]).wait().assert_clean(0);
    assert_eq!(shm.names().len(), 0);
}

// Requirement: FAULT-78
#[test]
fn recovery_ignores_pids_of_another_pid_namespace() {
    if !is_root() {
        skip!("needs root (a pid namespace)");
    }
    let shm = Shm::new();
    let mut namespace = Command::new("unshare")
        .args(["--pid", "--fork", "--kill-child", "--mount-proc", BINARY, "--session-dir"])
        .arg(shm.0.path())
        .args(["sh", "-c", SCRIPT])
        .env("XDG_CACHE_HOME", cache_home())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(namespace.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    let is_state = |path: &PathBuf| path.extension().is_some_and(|e| e == "state");
    let state = shm.names().into_iter().find(is_state).unwrap();
    wait_until("the collector's state", || state.metadata().unwrap().len() > 0);
    // The pipe stays open until all processes are dead, because EOF would end the command.
    let stdin = namespace.stdin.take();
    // The kernel kills all processes of a pid namespace when its first process dies.
    namespace.kill().unwrap();
    namespace.wait().unwrap();
    wait_until("the end of all processes", || {
        NamedFile::left_behind(&state, state.metadata().unwrap().uid()).is_ok()
    });
    drop(stdin);
    let report = shm.report();
    assert_eq!((report.u64("processes.total"), report.u64("coverage.exact")), (4, 3));
    assert_eq!(report.u64("processes.still_running"), 1, "the command's end is not known");
    assert!(report.warnings().contains("another pid namespace"), "{}", report.warnings());
}

//! `--record DIR`: the bundle of evidence of a run that something ended. `gpu-track record`: that of a run that goes on.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;

use crate::support::run::{BINARY, Run, Running};
use crate::support::{is_root, kill, program, skip, tracked, wait_until};

/// The directory of a test's bundles.
struct Records(TempDir);

impl Records {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn directory(&self) -> PathBuf {
        self.0.path().join("records")
    }

    /// Runs a shell script. `more`: what follows the directory in the option.
    fn run(&self, more: &str, options: &[&str], script: &str) -> Run {
        let record = format!("{}{more}", self.directory().display());
        tracked(["sh", "-c", script])
            .options(&["--record", &record])
            .options(options)
            .with(|command| command.env("OMP_NUM_THREADS", "3").env("MY_PASSWORD", "hidden"))
            .run()
    }

    fn bundles(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(self.directory()).unwrap();
        let mut bundles: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
        bundles.sort();
        bundles
    }

    /// The only bundle.
    fn bundle(&self) -> PathBuf {
        let [bundle] = &self.bundles()[..] else { panic!("{:?}", self.bundles()) };
        bundle.clone()
    }
}

fn json(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

/// What `gpu-track report` prints of a bundle.
fn shown(bundle: &Path, options: &[&str]) -> String {
    let companion = Path::new(BINARY).with_file_name("gpu-track");
    let output = Command::new(companion).arg("report").arg(bundle).args(options).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

// Requirement: RECORD-1
#[test]
fn run_that_a_limit_ended_leaves_a_bundle() {
    let records = Records::new();
    let script = format!("exec {} hold 200000000 1000000", program("touch"));
    let run = records.run("", &["--limit", "ram=100M"], &script);
    assert_eq!(run.status.code(), Some(124), "{}", run.stderr);
    let bundle = records.bundle();
    let manifest = json(&bundle.join("manifest.json"));
    assert_eq!((&manifest["trigger"], &manifest["form_version"]), (&"limit".into(), &1.into()));
    for file in manifest["files"].as_array().unwrap() {
        let length = std::fs::metadata(bundle.join(file["name"].as_str().unwrap())).unwrap().len();
        assert_eq!(file["bytes"], length, "{file}");
    }
    assert_eq!(json(&bundle.join("report.json"))["exit"], *run.report().at("exit"));
    assert!(std::fs::read_to_string(bundle.join("machine.txt")).unwrap().contains("MemAvailable"));
    // As a report, and over time.
    assert!(shown(&bundle, &[]).contains("RAM LIMIT"), "{}", shown(&bundle, &[]));
    assert!(shown(&bundle, &["--every", "0.1"]).contains("ram_combined_bytes"));
}

// Requirement: RECORD-1
#[test]
fn fatal_signal_leaves_a_bundle_and_an_ordinary_end_none() {
    let records = Records::new();
    for script in ["exit 0", "exit 3", "kill -TERM $$", "kill -INT $$"] {
        records.run("", &[], script);
        assert_eq!(records.bundles(), [] as [PathBuf; 0], "{script}");
    }
    records.run("", &[], "kill -SEGV $$");
    assert_eq!(json(&records.bundle().join("manifest.json"))["trigger"], "signal");
}

// Requirement: RECORD-2
#[test]
fn newest_bundles_stay() {
    let records = Records::new();
    let mut newest = Vec::new();
    for _ in 0..3 {
        records.run(",keep=2", &[], "kill -SEGV $$");
        newest.push(records.bundles().pop().unwrap());
    }
    assert_eq!(records.bundles(), newest[1..]);
}

// Requirement: RECORD-3
#[test]
fn only_its_owner_may_read_a_bundle_and_it_has_no_secrets() {
    let records = Records::new();
    records.run("", &[], "kill -SEGV $$");
    let bundle = records.bundle();
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&records.directory()), mode(&bundle)), (0o700, 0o700));
    let mut all = String::new();
    for file in std::fs::read_dir(&bundle).unwrap() {
        let path = file.unwrap().path();
        assert_eq!(mode(&path), 0o600, "{}", path.display());
        all += &String::from_utf8_lossy(&std::fs::read(&path).unwrap());
    }
    assert_eq!(json(&bundle.join("environment.json"))["OMP_NUM_THREADS"], "3");
    assert!(!all.contains("hidden"), "a variable that is not listed");
}

// Requirement: RECORD-4
#[test]
fn directory_that_can_not_be_made_is_refused_before_the_start() {
    let run = tracked(["sh", "-c", "echo started"]).options(&["--record", "/proc/records"]).run();
    assert_eq!((run.status.code(), run.stdout.as_str()), (Some(2), ""));
    assert!(run.stderr.contains("--record") && run.stderr.lines().count() == 1, "{}", run.stderr);
}

// Requirement: RECORD-4
#[test]
fn full_disk_costs_the_bundle_and_not_the_report() {
    if !is_root() {
        skip!("needs root, to mount a file system");
    }
    let records = Records::new();
    std::fs::create_dir(records.directory()).unwrap();
    let mount = format!("mount -t tmpfs -o size=8k tmpfs {}", records.directory().display());
    let record = records.directory().display().to_string();
    let run = tracked(["sh", "-c", "kill -SEGV $$"]).options(&["--record", &record]).with_mounts(&mount);
    let run = run.run();
    assert_eq!(run.report().at("exit.signal"), libc::SIGSEGV);
    assert!(run.stderr.contains("The bundle in") && run.stderr.contains("No space left"), "{}", run.stderr);
}

/// Bytes that the program of [`going_on`] holds.
const HELD_BYTES: u64 = 60_000_000;

/// A run of three processes that have ended, and of a shell and a program that hold memory until stdin is closed.
fn going_on(options: &[&str]) -> Running {
    let holds = format!("{} hold {HELD_BYTES} 3600000", program("touch"));
    let script = format!("/bin/true; /bin/true; /bin/true; {holds} & read line; kill $!; wait; exit 3");
    let running = tracked(["sh", "-c", &script])
        .options(options)
        .with(|command| command.env("OMP_NUM_THREADS", "3"))
        .piped_stdin()
        .start();
    let live = running.live();
    let is_held = |number: u64| live.sample(number).is_some_and(|sample| sample.combined_bytes > HELD_BYTES);
    wait_until("a sample of what it holds", || live.count().checked_sub(1).is_some_and(is_held));
    running
}

/// Runs `gpu-track record` for a run, with `options`.
fn record(running: &Running, options: &[&str]) -> Output {
    Command::new(Path::new(BINARY).with_file_name("gpu-track"))
        .args(["record", &running.pid().to_string()])
        .args(options)
        .env_remove("GPU_TRACK_SESSION")
        .output()
        .unwrap()
}

/// The path that it printed.
fn recorded(output: &Output) -> PathBuf {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).unwrap().trim_end().into()
}

/// Asserts that a bundle has what the run of [`going_on`] used up to then.
fn assert_so_far(bundle: &Path) {
    let report = json(&bundle.join("report.json"));
    assert_eq!((&report["stage"], &report["processes"]["total"]), (&"so_far".into(), &5.into()));
    assert_eq!(report["processes"]["still_running"], 2);
    let peak_bytes = report["max_ram_bytes"]["combined"]["total_rss"].as_u64().unwrap();
    assert!(peak_bytes > HELD_BYTES, "{peak_bytes}");
}

// Requirement: RECORD-5, RECORD-6
#[test]
fn bundle_of_a_run_that_goes_on_has_its_figures_so_far_and_the_run_ends_as_without_it() {
    let records = Records::new();
    let directory = records.directory().display().to_string();
    let mut running = going_on(&["--record", &directory]);
    let output = record(&running, &["--context", "step 7", "--metadata", "{\"epoch\": 3}"]);
    // Where the run has its bundles.
    let bundle = records.bundle();
    assert_eq!(recorded(&output), bundle);
    assert_so_far(&bundle);
    let manifest = json(&bundle.join("manifest.json"));
    let about = ["trigger", "context"].map(|key| manifest[key].as_str().unwrap());
    assert_eq!((about, &manifest["metadata"]["epoch"]), (["asked", "step 7"], &3.into()));
    assert_eq!(manifest["missing"][0]["name"], "tail.jsonl");
    assert_eq!(json(&bundle.join("environment.json"))["OMP_NUM_THREADS"], "3");
    assert!(shown(&bundle, &[]).contains("STILL RUNNING"), "{}", shown(&bundle, &[]));
    assert!(shown(&bundle, &["--every", "0.1"]).contains("ram_combined_bytes"));
    drop(running.stdin());
    let run = running.wait();
    let so_far = json(&bundle.join("report.json"));
    let report = run.assert_clean(3);
    report.assert_all_exact(5);
    let peak_bytes = so_far["max_ram_bytes"]["combined"]["total_rss"].as_u64().unwrap();
    // The bundle has a sample of its own, which can have found a little more than those of the run.
    let most_bytes = report.u64("max_ram_bytes.combined.total_rss") * 11 / 10;
    assert!(peak_bytes <= most_bytes, "{peak_bytes} {most_bytes}");
    let commands = |report: &Value| {
        let all = report["processes"]["by_command"].as_array().unwrap();
        let mut all: Vec<_> = all.iter().map(|one| (one["command"].clone(), one["count"].clone())).collect();
        all.sort_by_key(|(command, _)| command.to_string());
        all
    };
    let all = Value::Object([("processes".to_owned(), report.at("processes").clone())].into_iter().collect());
    assert_eq!(commands(&so_far), commands(&all));
}

// Requirement: RECORD-6
#[test]
fn run_is_recorded_while_its_collector_is_stopped_and_when_it_was_just_killed() {
    let records = Records::new();
    let directory = records.directory().display().to_string();
    let mut running = going_on(&[]);
    let collector = running.wait_for_collector();
    kill(collector, libc::SIGSTOP);
    assert_so_far(&recorded(&record(&running, &["--to", &directory])));
    kill(collector, libc::SIGCONT);
    kill(collector, libc::SIGKILL);
    assert_so_far(&recorded(&record(&running, &["--to", &directory])));
    drop(running.stdin());
    let run = running.wait();
    assert_eq!((run.status.code(), run.report().u64("processes.total")), (Some(3), 5));
}

// Requirement: RECORD-5, RECORD-55
#[test]
fn figures_so_far_of_a_storm_of_processes_never_go_back_and_reach_those_of_the_run() {
    const CHILDREN: u64 = 2000;
    let records = Records::new();
    let directory = format!("{},keep=1", records.directory().display());
    let script = format!("{} brief {CHILDREN}; read line; exit 3", program("storm"));
    let mut running = tracked(["sh", "-c", &script]).piped_stdin().start();
    // From then on the collector has noted what the run is.
    running.live();
    let mut total = 0;
    wait_until("all processes in a bundle", || {
        let report = json(&recorded(&record(&running, &["--to", &directory])).join("report.json"));
        let now = report["processes"]["total"].as_u64().unwrap();
        assert!(now >= total, "{now} after {total}");
        let warnings = report["warnings"].to_string();
        assert!(!warnings.contains("damaged") && !warnings.contains("forged"), "{warnings}");
        total = now;
        // The shell, the program, and its children.
        total == CHILDREN + 2
    });
    drop(running.stdin());
    running.wait().report().assert_all_exact(CHILDREN + 2);
}

// Requirement: RECORD-7
#[test]
fn what_can_not_be_recorded_is_said_in_one_line_and_leaves_nothing() {
    let records = Records::new();
    let mut running = going_on(&[]);
    let refused = |options: &[&str], code: i32, said: &str| {
        let output = record(&running, options);
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), output.stdout.len()), (Some(code), 0), "{stderr}");
        assert!(stderr.contains(said) && stderr.lines().count() == 1, "{stderr}");
    };
    refused(&["--metadata", "{"], 2, "--metadata: this is no JSON");
    refused(&["--to", "/proc/records"], 1, "cannot write a bundle to /proc/records");
    refused(&["--to", "x,keep=0"], 2, "--to");
    assert!(!records.directory().exists());
    let pid = running.pid().to_string();
    let companion = Path::new(BINARY).with_file_name("gpu-track");
    let limited = |limit: &str| {
        let script = format!("ulimit {limit}; exec {} record {pid} --to \"$0\"", companion.display());
        Command::new("sh").args(["-c", &script]).arg(records.directory()).output().unwrap()
    };
    // The soft limit of file size is raised.
    assert_so_far(&recorded(&limited("-S -f 8")));
    let output = limited("-f 8");
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.contains("File too large") && stderr.lines().count() == 1, "{stderr}");
    assert_eq!((output.status.code(), records.bundles().len()), (Some(1), 1));
    drop(running.stdin());
    running.wait();
    let output = Command::new(companion).args(["record", &pid]).output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.contains("no run of this user has the pid") && stderr.lines().count() == 1, "{stderr}");
}

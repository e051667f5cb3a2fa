//! `--record DIR`: the bundle of evidence of a run that something ended.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

use crate::support::run::{BINARY, Run};
use crate::support::{is_root, program, skip, tracked};

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

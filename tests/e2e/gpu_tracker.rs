//! The name `gpu-tracker`: scripts that call gpu_tracker 5 run unchanged.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

use crate::support::run::BINARY;
use crate::support::{Run, or_skip, tracked};

/// The version whose command line and reports ours are compared with.
const VERSION: &str = "5.0.1";

/// Runs our program under the name gpu-tracker.
fn ours(args: &[&str]) -> Run {
    ours_through(args, &[])
}

/// Runs our program under that name through a command that execs it.
fn ours_through(args: &[&str], prefix: &[&str]) -> Run {
    let run = tracked::<String>([]).only_options(args).through(prefix);
    let link = run.path("gpu-tracker");
    symlink(BINARY, &link).unwrap();
    run.by_the_name(&link).run()
}

/// No driver of NVIDIA, which could list GPUs.
fn no_driver() -> Result<(), &'static str> {
    if Path::new("/proc/driver/nvidia").exists() { Err("this machine has an NVIDIA driver") } else { Ok(()) }
}

/// gpu_tracker's own program.
pub fn theirs() -> Result<PathBuf, String> {
    let path = std::env::var_os("GPU_TRACK_TEST_GPU_TRACKER")
        .ok_or("gpu_tracker is not installed (scripts/test)")?;
    let version =
        Command::new(&path).arg("--version").output().map_err(|error| format!("{path:?}: {error}"))?;
    let version = String::from_utf8_lossy(&version.stdout).trim().to_owned();
    if version == VERSION { Ok(path.into()) } else { Err(format!("gpu_tracker is {version}, not {VERSION}")) }
}

// Requirement: CMD-16
#[test]
fn output_and_exit_status_are_those_of_gpu_tracker() {
    let run = ours(&["-e", "sh -c exit${IFS}3", "--disable-logs"]);
    assert_eq!(run.status.code(), Some(0), "{}", run.stderr);
    let lines: Vec<_> = run.stdout.lines().collect();
    assert_eq!(lines[0], "Resource tracking complete. Process completed with status code: 3");
    assert_eq!(lines[1..3], ["Max RAM:", "   Unit: gigabytes"]);
    assert_eq!(lines[lines.len() - 3..lines.len() - 1], ["Compute time:", "   Unit: hours"]);
    assert_eq!(run.stderr, "");

    let run = ours(&["-e", "sh -c kill${IFS}-9${IFS}$$"]);
    assert_eq!(run.status.code(), Some(0), "{}", run.stderr);
    assert!(run.stdout.starts_with("Resource tracking complete. Process completed with status code: -9\n"));

    let run = ours(&["--version"]);
    assert_eq!((run.status.code(), run.stdout.as_str(), run.stderr.as_str()), (Some(0), "5.0.1\n", ""));
    let run = ours(&["-h"]);
    assert_eq!((run.status.code(), run.stderr.as_str()), (Some(0), ""));
    assert!(run.stdout.contains("\nUsage:\n    gpu-tracker -h | --help\n"), "{}", run.stdout);
}

// Requirement: CMD-16
#[test]
fn errors_have_status_and_form_of_those_of_gpu_tracker() {
    for (args, begin) in [
        (&["-e", "/no/such/command"][..], "ERROR:root:Command not found: \"/no/such/command\"\n"),
        (
            &["-e", "/"],
            "ERROR:root:The following error occurred when starting the command \"/\": Permission denied",
        ),
        (&["-e", ""], "ERROR:root:Empty command provided.\n"),
        (&["-e", "true", "--ru=foo"], "ERROR:root:--ru: \"foo\" is not allowed"),
        (
            &["-e", "true", "-f", "html"],
            "ERROR:root:--format: \"html\" is no format of gpu_tracker: text or json\n",
        ),
        (
            &["sub-track", "analyze", "--tf=x.csv", "--stf=y.csv"],
            "ERROR:root:\"y.csv\" cannot be read: No such file",
        ),
        (&["--out=x"], "Usage:\n    gpu-tracker -h | --help\n"),
        (&["-e", "true", "--full"], "Usage:\n    gpu-tracker -h | --help\n"),
        (&["--t=x"], "--t is not a unique prefix: --tconfig, --tu, --tf?\nUsage:\n"),
    ] {
        let run = ours(args);
        assert_eq!((run.status.code(), run.stdout.as_str()), (Some(1), ""), "{args:?}");
        assert!(run.stderr.starts_with(begin), "{args:?}: {}", run.stderr);
        assert!(begin.starts_with("ERROR") == (run.stderr.lines().count() == 1), "{args:?}: {}", run.stderr);
    }
}

/// The collector says it, under the name that its launcher was called by.
// Requirement: CMD-16
#[test]
fn report_that_cannot_be_written_is_told_in_the_form_of_gpu_tracker() {
    let run = ours(&["-e", "true", "--output=/dev/full"]);
    assert_eq!(run.status.code(), Some(0), "{}", run.stderr);
    let told = "WARNING:root:cannot write the report to /dev/full: ";
    assert!(run.stderr.lines().any(|line| line.starts_with(told)), "{}", run.stderr);
    assert!(!run.stderr.contains("gpu-track-run"), "{}", run.stderr);
}

// Requirement: CMD-16, FAULT-98
#[test]
fn what_is_unknown_without_tracking_is_told_in_the_form_of_gpu_tracker() {
    let script = "ulimit -n 12; exec \"$@\"";
    let run = ours_through(&["-e", "true"], &["sh", "-c", script, "sh"]);
    assert_eq!(run.status.code(), Some(0), "{}", run.stderr);
    let begin = "WARNING:root:Not known, and therefore 0 in the report: ";
    assert!(run.stderr.lines().any(|line| line.starts_with(begin)), "{}", run.stderr);
}

// Requirement: CMD-16
#[test]
fn figures_of_a_short_run_are_numbers_and_those_not_known_are_named() {
    fn assert_no_null(value: &Value, path: &str) {
        match value {
            Value::Object(entries) => {
                entries.iter().for_each(|(key, value)| assert_no_null(value, &format!("{path}.{key}")));
            }
            value => assert!(value.is_number() || value.is_string(), "{path}: {value}"),
        }
    }
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("usage.json");
    let run = ours(&["--exec=true", "--form=json", "--out", file.to_str().unwrap()]);
    assert_eq!(run.status.code(), Some(0), "{}", run.stderr);
    let json = std::fs::read_to_string(&file).unwrap();
    assert!(json.ends_with('}'), "gpu_tracker writes no newline there");
    assert_no_null(&serde_json::from_str(&json).unwrap(), "");
    // Utilization of the machine takes two readings a tenth of a second apart.
    let begin = "WARNING:root:Not known, and therefore 0 in the report: cpu_utilization.system";
    assert!(run.stderr.lines().any(|line| line.starts_with(begin)), "{}", run.stderr);
    let run = ours(&["-etrue"]);
    assert!(run.stdout.contains("Max sum percent: 0.0") && !run.stdout.contains("n/a"), "{}", run.stdout);
}

// Requirement: CMD-14, CMD-16, GPU-9
#[test]
fn what_has_no_effect_is_named_once_and_the_command_runs() {
    or_skip!(no_driver());
    let directory = tempfile::tempdir().unwrap();
    let config = directory.path().join("config.json");
    std::fs::write(&config, r#"{"n_join_attempts": 3, "gpu_uuids": "GPU-7", "gpu_brand": "nvidia"}"#)
        .unwrap();
    let args = ["-e", "echo ran", "--tconfig", config.to_str().unwrap()];
    let run = ours(&args);
    assert_eq!(run.status.code(), Some(0), "{}", run.stderr);
    assert!(run.stdout.starts_with("ran\n"), "{}", run.stdout);
    let named: Vec<_> = run.stderr.lines().filter(|line| line.contains("n_join_attempts")).collect();
    assert_eq!(named, ["WARNING:root:without effect: n_join_attempts"]);
    assert!(run.stderr.contains("--guuids: no GPU was found on this machine"), "{}", run.stderr);
    let run = ours(&[&args[..], &["--disable-logs"]].concat());
    assert_eq!(run.stderr, "");
}

/// Five jobs, as `-e` takes them: nothing in them needs quotes.
const JOBS: [&str; 5] = [
    "sleep 1.5",
    "sh -c sleep${IFS}1&sleep${IFS}1;/bin/true;wait;exit${IFS}3",
    "PYTHON -c b=bytearray(100_000_000);import(time).sleep(2)",
    "timeout 1.5 dd if=/dev/zero of=/dev/null",
    "xargs -a /dev/null -P 2 -n 1 sleep 0.1",
];

/// A job with the interpreter's own path, because a version manager's wrapper would be a process more.
fn job(index: usize) -> String {
    let python = crate::support::installed("python3")
        .map_or_else(|| "python3".into(), |path| path.display().to_string());
    JOBS[index].replace("PYTHON", &python).replace("import(time)", "__import__('time')")
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// What each prints for one job, from the line after the command's own output on.
fn both(program: &Path, job: &str, format: &str) -> [String; 2] {
    let args = ["-e", job, "-f", format, "--disable-logs"];
    let theirs = text(&Command::new(program).args(args).current_dir(std::env::temp_dir()).output().unwrap());
    let ours = ours(&args).stdout.clone();
    [theirs, ours].map(|printed| {
        let begin = printed.find("Resource tracking complete").unwrap_or_else(|| panic!("{job}: {printed}"));
        printed[begin..].to_owned()
    })
}

/// Asserts the same keys in the same order, the same types and units, and the same constants of the machine.
fn assert_same_shape(theirs: &Value, ours: &Value, path: &str) {
    match (theirs, ours) {
        (Value::Object(theirs), Value::Object(ours)) => {
            assert_eq!(theirs.len(), ours.len(), "{path}");
            for (key, value) in theirs {
                assert_same_shape(value, &ours[key], &format!("{path}.{key}"));
            }
        }
        (Value::Number(theirs), Value::Number(ours)) => {
            assert_eq!(theirs.is_f64(), ours.is_f64(), "{path}: {theirs} and {ours}");
            if ["system_capacity", "system_core_count", "n_expected_cores", "count", "n_expected_gpus"]
                .iter()
                .any(|constant| path.ends_with(constant))
            {
                let [theirs, ours] = [theirs, ours].map(|number| number.as_f64().unwrap());
                assert!((theirs - ours).abs() <= theirs * 1e-9, "{path}: {theirs} and {ours}");
            }
        }
        (Value::String(theirs), Value::String(ours)) => assert_eq!(theirs, ours, "{path}"),
        other => panic!("{path}: {other:?}"),
    }
}

/// The names in a JSON report, each with its line's indentation, in their order.
fn keys(json: &str) -> Vec<&str> {
    json.lines().filter_map(|line| line.split_once("\": ").map(|(key, _)| key)).collect()
}

/// A text report with `#` in place of each figure.
fn labels(text: &str) -> String {
    text.split_inclusive([' ', '\n'])
        .map(|word| match word.trim_end().parse::<f64>() {
            Ok(_) => word.replace(word.trim_end(), if word.contains('.') { "#.#" } else { "#" }),
            Err(_) => word.to_owned(),
        })
        .collect()
}

// Requirement: OUT-2, CMD-16
#[test]
fn reports_have_the_keys_types_units_and_words_of_gpu_tracker() {
    let program = &or_skip!(theirs());
    std::thread::scope(|scope| {
        for index in 0..JOBS.len() {
            scope.spawn(move || compare(program, &job(index)));
        }
    });
}

fn compare(program: &Path, job: &str) {
    let first_line = |printed: &str| printed.lines().next().unwrap_or_default().to_owned();
    let [theirs, ours] = both(program, job, "json");
    assert_eq!(first_line(&theirs), first_line(&ours), "{job}");
    let [theirs, ours] = [theirs, ours].map(|printed| printed.split_once('\n').unwrap().1.to_owned());
    assert_eq!(keys(&theirs), keys(&ours), "{job}");
    let [theirs, ours] = [theirs, ours].map(|json| serde_json::from_str::<Value>(&json).unwrap());
    assert_same_shape(&theirs, &ours, job);
    if job.contains("bytearray") {
        let [theirs, ours] =
            [theirs, ours].map(|report| report["max_ram"]["combined"]["total_rss"].as_f64().unwrap());
        assert!((theirs / ours - 1.0).abs() < 0.2, "{job}: {theirs} and {ours} gigabytes");
    }
    let [theirs, ours] = both(program, job, "text");
    assert_eq!(labels(&theirs), labels(&ours), "{job}");
}

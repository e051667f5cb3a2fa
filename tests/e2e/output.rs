//! Where the report goes and which form it has.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use gpu_track_collector::model::config::{ReportConfig, ReportTarget};
use gpu_track_collector::model::report::Report;
use gpu_track_collector::model::style::Style;
use gpu_track_collector::replay;
use gpu_track_collector::report::format::render;
use gpu_track_collector::report::read::{ReadReport, read as read_report};
use serde_json::Value;

use crate::support::pty::Terminal;
use crate::support::report::assert_within;
use crate::support::run::{BINARY, Run, cache_home};
use crate::support::tracked;

// Requirement: OUT-2, OUT-4, OUT-51
#[test]
fn json_on_stdout_parses_and_keeps_key_order() {
    let run = tracked(["/bin/true"]).only_options(&["-f", "json", "-o", "-"]).run();
    assert_eq!(run.status.code(), Some(0));
    assert_eq!(run.stderr, "");
    let report: serde_json::Value = serde_json::from_str(&run.stdout).unwrap();
    let keys: Vec<_> = run.stdout.lines().filter(|line| line.starts_with(" \"")).collect();
    for (line, key) in
        keys.iter().zip(["max_ram", "max_gpu_ram", "cpu_utilization", "gpu_utilization", "compute_time"])
    {
        assert!(line.starts_with(&format!(" \"{key}\"")), "{line} where {key} should be");
    }
    assert_eq!(report["schema_version"], 3);
    assert_eq!(report["max_ram"]["unit"], "gigabytes");
    assert_eq!(report["compute_time"]["unit"], "hours");
    assert_eq!(report["command"], serde_json::json!(["/bin/true"]));
}

// Requirement: OUT-4, OUT-16, OUT-18
#[test]
fn default_report_is_a_summary_on_stderr() {
    let run = tracked(["sh", "-c", "printf data; printf error >&2; exit 3"]).only_options(&[]).run();
    assert_eq!(run.status.code(), Some(3));
    assert_eq!(run.stdout, "data");
    let lines: Vec<_> = run.stderr.lines().collect();
    // The command's last line has no newline.
    assert_eq!(lines[0], "error");
    assert!(lines[1].starts_with("sh -c ") && lines[1].contains(" FAILED, exit 3 after "), "{lines:?}");
    assert!(lines.len() <= 30 && lines.iter().all(|line| line.chars().count() <= 100), "{lines:?}");
    for label in ["  CPU ", "  RAM peak "] {
        assert!(lines.iter().any(|line| line.starts_with(label)), "no {label}: {lines:?}");
    }
}

// Requirement: OUT-2, OUT-18
#[test]
fn full_report_is_what_a_file_has() {
    let on_stderr = tracked(["sh", "-c", "exit 3"]).only_options(&["--full"]).run().stderr.clone();
    let on_stdout = tracked(["sh", "-c", "exit 3"]).only_options(&["-o", "-"]).run().stdout.clone();
    for report in [on_stderr, on_stdout] {
        assert!(report.starts_with("sh -c 'exit 3': exited with code 3 after "), "{report}");
        for heading in ["Max RAM:", "CPU utilization:", "Compute time:", "CPU time:", "Host:"] {
            assert!(report.lines().any(|line| line == heading), "no {heading} in {report}");
        }
        assert!(
            !report.contains(": 0.000") && !report.lines().any(|line| line.ends_with(": n/a")),
            "{report}"
        );
    }
}

// Requirement: OUT-27
#[test]
fn several_files_and_the_summary_tell_of_the_same_run() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let (json, text) = (file("r.json"), file("r.txt"));
    let run = tracked(["sh", "-c", "exit 3"])
        .only_options(&["-o", &json, "--summary", "-o", &text, "-o", "-"])
        .run();
    assert_eq!(run.status.code(), Some(3));
    let read = |path: &str| std::fs::read_to_string(path).unwrap();
    assert_eq!(read(&text), run.stdout);
    assert!(run.stdout.starts_with("sh -c 'exit 3': exited with code 3 after "), "{}", run.stdout);
    assert!(
        run.stderr.contains(" FAILED, exit 3 after ") && run.stderr.lines().count() <= 30,
        "{}",
        run.stderr
    );
    let ReadReport { report, .. } = read_report(&read(&json)).unwrap();
    assert_eq!(
        render(&report, &ReportTarget::default(), Style { full: true, ..Style::default() }),
        run.stdout
    );
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 2, "a lock or a temporary file is left");
}

// Requirement: OUT-27
#[test]
fn file_that_cannot_be_written_costs_no_other() {
    let directory = tempfile::tempdir().unwrap();
    let [lost, kept] = ["lost/r.json", "r.json"].map(|name| directory.path().join(name));
    std::fs::create_dir(lost.parent().unwrap()).unwrap();
    let run = tracked(["rm", "-r", lost.parent().unwrap().to_str().unwrap()])
        .only_options(&["-o", lost.to_str().unwrap(), "-o", kept.to_str().unwrap()])
        .run();
    assert_eq!(run.status.code(), Some(0), "{}", run.stderr);
    assert!(read_report(&std::fs::read_to_string(kept).unwrap()).is_ok());
    let line = format!("gpu-track-run: cannot write the report to {}: ", lost.display());
    assert!(run.stderr.lines().last().unwrap().starts_with(&line), "{}", run.stderr);
}

/// A run whose command removes the directory of its reports, with these variables for directories.
fn run_whose_directory_goes(top: &Path, names: &[&str], state: PathBuf, temporary: PathBuf) -> Run {
    let gone = top.join("gone");
    std::fs::create_dir(&gone).unwrap();
    let outputs: Vec<String> =
        names.iter().flat_map(|name| ["-o".into(), gone.join(name).to_str().unwrap().to_owned()]).collect();
    tracked(["rm", "-r", gone.to_str().unwrap()])
        .only_options(&outputs.iter().map(String::as_str).collect::<Vec<_>>())
        .with(move |command| command.env("XDG_STATE_HOME", state).env("TMPDIR", temporary))
        .run()
}

// Requirement: OUT-29
#[test]
fn report_that_cannot_be_written_is_in_a_place_of_its_own_and_stderr_has_the_summary() {
    let top = tempfile::tempdir().unwrap();
    let (top, nowhere) = (top.path().canonicalize().unwrap(), PathBuf::from("/nowhere"));
    std::fs::set_permissions(&top, PermissionsExt::from_mode(0o700)).unwrap();
    let (state, temporary) = (top.join("state"), top.join("temporary"));
    std::fs::create_dir(&temporary).unwrap();
    let names = ["r.json", "r.html"];
    for (place, state, temporary) in [
        (Some(state.join("gpu-track/unwritten")), state.clone(), temporary.clone()),
        (Some(temporary.clone()), nowhere.join("state"), temporary),
        (None, nowhere.join("state"), nowhere.clone()),
    ] {
        // Root takes /tmp in place of a TMPDIR that is not there or not safe.
        if place.is_none() && rustix::process::geteuid().is_root() {
            continue;
        }
        let run = run_whose_directory_goes(&top, &names, state, temporary);
        assert_eq!(run.status.code(), Some(0), "{}", run.stderr);
        assert!(
            run.stderr.contains(" OK, exit 0 after ") && run.stderr.lines().count() <= 31,
            "{}",
            run.stderr
        );
        let told = run.stderr.lines().last().unwrap();
        let Some(place) = place else {
            assert!(told.ends_with("; it could not be written to any other place"), "{told}");
            continue;
        };
        for (name, problem) in
            names.iter().zip(told.split("r.json: ").nth(1).unwrap().split("; cannot write"))
        {
            let path = Path::new(problem.split("; it is in ").nth(1).unwrap());
            assert!(path.starts_with(&place) && path.extension() == Path::new(name).extension(), "{told}");
            let modes = [path, path.parent().unwrap()].map(|path| path.metadata().unwrap().mode() & 0o777);
            assert_eq!(modes, [0o600, 0o700], "{told}");
            let text = std::fs::read_to_string(path).unwrap();
            match *name {
                "r.json" => assert!(read_report(&text).is_ok()),
                _ => assert!(text.starts_with("<!DOCTYPE html>") && text.ends_with("</html>\n"), "{told}"),
            }
        }
    }
}

// Requirement: OUT-29
#[test]
fn newest_twenty_of_such_reports_are_left() {
    let top = tempfile::tempdir().unwrap();
    let top = top.path().canonicalize().unwrap();
    std::fs::set_permissions(&top, PermissionsExt::from_mode(0o700)).unwrap();
    let directory = top.join("state/gpu-track/unwritten");
    std::fs::create_dir_all(&directory).unwrap();
    let olds: Vec<_> =
        (100..125).map(|at| directory.join(format!("20200101T000000.000{at}-7.html"))).collect();
    olds.iter().for_each(|old| std::fs::write(old, "").unwrap());
    let run = run_whose_directory_goes(&top, &["r.json"], top.join("state"), "/nowhere".into());
    assert!(run.stderr.contains("; it is in "), "{}", run.stderr);
    assert_eq!(std::fs::read_dir(directory).unwrap().count(), 20);
    assert!(!olds[5].exists() && olds[6].exists());
}

// Requirement: OUT-4
#[test]
fn names_of_the_standard_streams_are_those_of_the_launcher() {
    for (name, is_stdout) in [
        ("/dev/fd/1", true),
        ("/proc/self/fd/1", true),
        ("/proc/thread-self/fd/1", true),
        ("/dev/fd/2", false),
    ] {
        let line = format!("'{BINARY}' -o {name} -f json -- true | cat");
        // A pipe, whose name in /proc leads to no file.
        let done =
            Command::new("sh").args(["-c", &line]).env("XDG_CACHE_HOME", cache_home()).output().unwrap();
        let (full, empty) = if is_stdout { (done.stdout, done.stderr) } else { (done.stderr, done.stdout) };
        assert_eq!(String::from_utf8_lossy(&empty), "", "{name}");
        assert!(read_report(str::from_utf8(&full).unwrap()).is_ok(), "{name}");
    }
    for option in ["--tf=/dev/fd/1", "--events=/dev/fd/1"] {
        let run = tracked(["true"]).only_options(&[option]).run();
        assert_eq!(run.status.code(), Some(2), "{option}: {}", run.stderr);
    }
    let run = tracked(["true"]).only_options(&["-q", "--trace-gpu", "/dev/fd/1"]).run();
    assert!(run.stdout.starts_with("timestamp, "), "{} {}", run.stdout, run.stderr);
}

// Requirement: OUT-4
#[test]
fn own_terminal_gets_the_report_by_its_general_name() {
    let mut command = Command::new(BINARY);
    command.args(["-o", "/dev/tty", "--", "true"]).env("XDG_CACHE_HOME", cache_home());
    let mut terminal = Terminal::start(command);
    terminal.expect("Max RAM:");
    let (status, text) = terminal.finish();
    assert!(status.success() && !text.contains("cannot write"), "{text}");
}

// Requirement: OUT-19
#[test]
fn quiet_run_writes_nothing_unless_tracking_went_wrong() {
    for format in ["text", "json"] {
        let run = tracked(["sh", "-c", "exit 3"]).only_options(&["-q", "-f", format]).run();
        assert_eq!((run.status.code(), run.stderr.as_str()), (Some(3), ""));
    }
    let run = tracked(["sh", "-c", "echo ready; read line"]).only_options(&["-q"]).piped_stdin().start();
    run.wait_for_output("ready");
    run.wait_for_collector();
    run.replace_collector();
    let mut run = run;
    drop(run.stdin());
    let run = run.wait();
    assert!(run.stderr.starts_with("gpu-track-run: The collector was killed once"), "{}", run.stderr);
    assert_eq!(run.stderr.lines().count(), 1, "{}", run.stderr);
}

// Requirement: OUT-7
#[test]
fn output_patterns_are_filled_in() {
    let directory = tempfile::tempdir().unwrap();
    let pattern = directory.path().join("%p-%j-100%%.json");
    let run = tracked(["/bin/true"])
        .only_options(&["-f", "json", "-o", pattern.to_str().unwrap()])
        .with(|command| command.env("SLURM_JOB_ID", "4711"))
        .run();
    assert_eq!(run.status.code(), Some(0), "{}", run.stderr);
    let expected = directory.path().join(format!("{}-4711-100%.json", run.launcher));
    let text = std::fs::read(&expected).unwrap();
    serde_json::from_slice::<serde_json::Value>(&text).unwrap();
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1, "a temporary file is left");
}

/// A reader closes the FIFO after one report; a second open for writing would then block for ever.
// Requirement: FAULT-69, OUT-5
#[test]
fn fifo_gets_only_the_final_report() {
    let directory = tempfile::tempdir().unwrap();
    let fifo = directory.path().join("fifo");
    assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let reader = std::thread::spawn({
        let fifo = fifo.clone();
        move || std::fs::read_to_string(fifo)
    });
    let run = tracked(["sleep", "2.2"]).only_options(&["-f", "json", "-o", fifo.to_str().unwrap()]).run();
    assert_eq!(run.status.code(), Some(0), "{}", run.stderr);
    let report: serde_json::Value = serde_json::from_str(&reader.join().unwrap().unwrap()).unwrap();
    assert_eq!(report["finished"], true);
}

// Requirement: CMD-14
#[test]
fn options_override_the_configuration_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("config.json");
    std::fs::write(&path, r#"{"sleep_time": 0.5, "ram_unit": "kilobytes", "time_unit": "days"}"#).unwrap();
    let run = tracked(["/bin/true"])
        .only_options(&["-f", "json", "-o", "-", "--tconfig", path.to_str().unwrap(), "--tu", "minutes"])
        .run();
    let report: serde_json::Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(report["max_ram"]["unit"], "kilobytes");
    assert_eq!(report["compute_time"]["unit"], "minutes");
}

// Requirement: OUT-10
#[test]
fn report_names_host_command_and_start_time() {
    let run = tracked(["sh", "-c", "exit 0"]).run();
    let report = run.assert_clean(0);
    let hostname = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    assert_eq!(report.at("host.hostname"), hostname.trim());
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    assert_eq!(report.at("host.kernel"), kernel.trim());
    assert_eq!(report.at("command"), &serde_json::json!(["sh", "-c", "exit 0"]));
    assert!(report.at("started_at").as_str().unwrap().ends_with('Z'));
    assert_eq!(report.u64("gpu_utilization.system_gpu_count"), 0);
}

// Requirement: IO-4
#[test]
fn writes_that_were_never_stored_are_told() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let script = format!(
        "cd {} && dd if=/dev/zero of=kept bs=1M count=4 conv=fsync status=none && \
         dd if=/dev/zero of=removed bs=1M count=20 status=none && rm removed",
        directory.path().display()
    );
    let run = tracked(["sh", "-c", &script]).run();
    let report = run.assert_clean(0);
    let (written, cancelled) = (report.u64("io.write_bytes"), report.u64("io.cancelled_write_bytes"));
    assert!((24 << 20..26 << 20).contains(&written), "24 MiB were written, io.write_bytes is {written}");
    // The kernel can have stored some of it before.
    assert!((16 << 20..=21 << 20).contains(&cancelled), "{cancelled} of {written}");
}

// Requirement: IO-1, IO-2
#[test]
fn written_bytes_are_counted_in_all_and_over_time() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let write = format!(
        "dd if=/dev/zero of={}/file bs=1M count=20 conv=fsync status=none",
        directory.path().display()
    );
    // The last point ends with the run, a little before the sample that it has.
    let run = tracked(["sh", "-c", &format!("{write}; sleep 1.2")]).run();
    let report = run.assert_clean(0);
    let written = report.u64("io.write_bytes");
    assert!((20 << 20..22 << 20).contains(&written), "20 MiB were written, io.write_bytes is {written}");
    let list = |key: &str| report.array(&format!("series.{key}")).iter().map(|value| value.as_f64());
    let lengths = list("end_s").zip(list("start_s")).map(|(end, start)| end.unwrap() - start.unwrap());
    let rates = list("io_bytes_per_s.written.mean").map(|rate| rate.unwrap_or(0.0));
    let over_time: f64 = lengths.zip(rates).map(|(length_s, rate)| length_s * rate).sum();
    // Times of the report are exact to a millisecond.
    assert_within("integral of writes", over_time, written as f64, 5.0);
}

// Requirement: IO-3
#[test]
fn free_space_of_the_working_directory_is_the_kernels() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let free = || {
        let found = rustix::fs::statvfs(directory.path()).unwrap();
        let blocks = if rustix::process::geteuid().is_root() { found.f_bfree } else { found.f_bavail };
        (blocks * found.f_frsize) as f64
    };
    let before = free();
    let run = tracked(["sleep", "0.5"]).with({
        let directory = directory.path().to_owned();
        move |command| command.current_dir(directory)
    });
    let run = run.run();
    let after = free();
    let systems = run.assert_clean(0).array("series.file_systems").to_vec();
    let path = directory.path().canonicalize().unwrap();
    let is_working =
        |directory: &Value| directory["role"] == "working" && directory["path"] == path.to_str().unwrap();
    let own = systems.iter().find(|system| system["directories"].as_array().unwrap().iter().any(is_working));
    let means = own.unwrap()["free_bytes"]["mean"].as_array().unwrap();
    let last = means.iter().filter_map(Value::as_f64).next_back().unwrap();
    // Other tests write there meanwhile.
    let slack = (4u64 << 30) as f64;
    assert!(
        (before.min(after) - slack..=before.max(after) + slack).contains(&last),
        "{before} {last} {after}"
    );
}

// Requirement: CMD-15
#[test]
fn help_version_manual_and_completions_are_printed() {
    for (options, expected) in [
        (&["--help"][..], "--sleep-time"),
        (&["--version"], env!("CARGO_PKG_VERSION")),
        (&["--man"], ".TH"),
        (&["--completions", "bash"], "gpu-track-run"),
    ] {
        let run = tracked::<String>([]).only_options(options).run();
        assert_eq!(run.status.code(), Some(0), "{options:?}: {}", run.stderr);
        assert!(run.stdout.contains(expected), "{options:?}: {}", run.stdout);
    }
}

/// Everything that the collector concludes from enters its core as observations, so a run can be replayed without /proc.
// Requirement: OUT-11
#[test]
fn replayed_journal_gives_the_same_report() {
    let directory = tempfile::tempdir().unwrap();
    let (report, journal) = (directory.path().join("report"), directory.path().join("journal"));
    let script = "for i in 1 2 3; do (sleep 0.1 & /bin/true; wait) done; exec /bin/sh -c 'sleep 0.2; exit 3'";
    for format in ["json", "text"] {
        let run = tracked(["/bin/sh", "-c", script])
            .only_options(&["-f", format, "--st", "0.02", "-o", report.to_str().unwrap()])
            .options(&["--journal", journal.to_str().unwrap()])
            .run();
        assert_eq!(run.status.code(), Some(3), "{}", run.stderr);
        assert_eq!(std::fs::read_to_string(&report).unwrap(), replayed(&journal));
        std::fs::remove_file(&journal).unwrap();
    }
    let run = tracked(["/bin/sh", "-c", script])
        .only_options(&["--st", "0.02"])
        .options(&["--journal", journal.to_str().unwrap()])
        .run();
    assert!(run.stderr.contains("RAM over time"), "{}", run.stderr);
    assert_eq!(run.stderr, replayed(&journal));
}

/// The report of a journal, in the form that its run asked for.
fn replayed(journal: &Path) -> String {
    let (report, config) = replay(journal).unwrap();
    render(&report, &config.targets[0], config.style)
}

/// A run in other forms than the one that it wrote: its journal and its JSON report give the same text.
// Requirement: OUT-23
#[test]
fn json_report_that_is_read_back_gives_the_text_of_the_run() {
    let directory = tempfile::tempdir().unwrap();
    let (written, journal) = (directory.path().join("report"), directory.path().join("journal"));
    let script = "for i in 1 2 3; do (sleep 0.1 & /bin/true; wait) done; sh -c 'kill -SEGV $$'; exit 3";
    let run = |options: &[&str]| {
        let run = tracked(["/bin/sh", "-c", script])
            .only_options(&["--st", "0.02", "--ru", "megabytes", "-o", written.to_str().unwrap()])
            .options(&["--journal", journal.to_str().unwrap()])
            .options(options)
            .run();
        assert_eq!(run.status.code(), Some(3), "{}", run.stderr);
        let (of_journal, config) = replay(&journal).unwrap();
        std::fs::remove_file(&journal).unwrap();
        (std::fs::read_to_string(&written).unwrap(), of_journal, config)
    };
    let form = |report: &Report, config: &ReportConfig, format: &str, full: bool| {
        let target = ReportTarget { format: format.to_owned(), ..ReportTarget::default() };
        render(report, &target, Style { full, ..config.style })
    };
    let as_written =
        |report: &Report, config: &ReportConfig| render(report, &config.targets[0], config.style);

    // The program writes JSON; the texts are those of its journal.
    let (json, of_journal, config) = run(&["-f", "json"]);
    let ReadReport { report, note } = read_report(&json).unwrap();
    assert_eq!(note, None);
    assert_eq!(as_written(&report, &config), json);
    for full in [true, false] {
        let text = |report: &Report| form(report, &config, "text", full);
        assert_eq!(text(&report), text(&of_journal));
    }
    assert!(form(&report, &config, "text", false).contains("RAM over time"), "{json}");

    // The program writes text; the JSON is that of its journal.
    let (text, of_journal, config) = run(&["-f", "text"]);
    let json = form(&of_journal, &config, "json", true);
    assert_eq!(as_written(&read_report(&json).unwrap().report, &config), text);
}

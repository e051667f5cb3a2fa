//! Bytes by read and write calls: compared with the kernel's own sum in a shell of the tree, and with known work.

use std::process::Command;

use crate::support::report::Report;
use crate::support::{kill, or_skip, program, skip, tracked, wait_until};

/// Many short processes, a pipe, and then the kernel's sum over all that the shell waited for.
const SCRIPT: &str = "i=0; while [ $i -lt 200 ]; do cat $0; i=$((i+1)); done > /dev/null; \
                      dd if=/dev/zero bs=64k count=320 status=none | cat > /dev/null; cat /proc/$$/io";
const FILE_BYTES: usize = 10_000;
/// All bytes that SCRIPT's programs pass by one kind of call: those of the file, and those of the pipe twice.
const WORK_BYTES: u64 = 200 * FILE_BYTES as u64 + 2 * 320 * 65_536;

/// The kernel's `rchar`, `wchar`, `syscr` and `syscw` in the text of /proc/PID/io.
fn kernel_counts(text: &str) -> [u64; 4] {
    ["rchar: ", "wchar: ", "syscr: ", "syscw: "].map(|key| {
        let value = text.lines().find_map(|line| line.strip_prefix(key));
        value.unwrap_or_else(|| panic!("{key:?} in {text:?}")).parse().unwrap()
    })
}

/// The same figures of a report.
fn counts(report: &Report) -> [u64; 4] {
    ["read_call_bytes", "write_call_bytes", "read_calls", "write_calls"]
        .map(|key| report.u64(&format!("io.{key}")))
}

/// A file that any user can read.
fn file() -> tempfile::NamedTempFile {
    let file =
        tempfile::Builder::new().permissions(std::os::unix::fs::PermissionsExt::from_mode(0o644)).tempfile();
    let file = file.unwrap();
    std::fs::write(file.path(), vec![b'x'; FILE_BYTES]).unwrap();
    file
}

/// The figures of a run are the kernel's in `text`, and what the last `cat` and the ends of the processes added to them.
fn assert_is_of_kernel(report: &Report, text: &str) {
    let (reported, kernel) = (counts(report), kernel_counts(text));
    assert!(kernel[0] >= WORK_BYTES && kernel[1] >= WORK_BYTES, "{kernel:?}");
    let most_more = [40_000, 1_000, 60, 10];
    for ((reported, kernel), most_more) in reported.iter().zip(kernel).zip(most_more) {
        assert!((kernel..=kernel + most_more).contains(reported), "{reported} beside {kernel}: {report}");
    }
}

// Requirement: IO-5
#[test]
fn bytes_of_calls_are_the_kernels_also_of_short_processes_and_pipes() {
    let file = file();
    let run = tracked(["sh", "-c", SCRIPT, file.path().to_str().unwrap()]).run();
    assert_is_of_kernel(run.assert_clean(0), &run.stdout);
}

// Requirement: IO-5
#[test]
fn bytes_of_calls_of_an_ordinary_user_are_the_kernels() {
    let file = file();
    let run = tracked(["sh", "-c", SCRIPT, file.path().to_str().unwrap()]);
    let run = or_skip!(run.by_an_ordinary_user()).run();
    assert_is_of_kernel(run.assert_clean(0), &run.stdout);
}

// Requirement: IO-5
#[test]
fn children_from_before_the_run_and_a_killed_collector_are_in_no_figure_of_calls() {
    let before = "dd if=/dev/zero bs=1M count=50 status=none | cat > /dev/null; exec \"$@\"";
    let file = file();
    let script = format!("echo ready; read line; {SCRIPT}");
    let mut running = tracked(["sh", "-c", &script, file.path().to_str().unwrap()])
        .through(&["sh", "-c", before, "sh"])
        .piped_stdin()
        .start();
    running.wait_for_output("ready\n");
    running.replace_collector();
    drop(running.stdin());
    let run = running.wait();
    assert_is_of_kernel(run.report(), &run.stdout);
}

// Requirement: IO-56
#[test]
fn shim_adds_little_to_the_figures_of_calls() {
    let file = file();
    let path = file.path().to_str().unwrap();
    let alone = Command::new("sh").args(["-c", SCRIPT, path]).output().unwrap();
    let alone = kernel_counts(&String::from_utf8(alone.stdout).unwrap());
    let run = tracked(["sh", "-c", SCRIPT, path]).run();
    let with_shim = kernel_counts(&run.stdout);
    // 200 cats, the dd and its cat, and the shell.
    let (programs, most) = (203, [2_300, 0, 3, 0]);
    for ((alone, with_shim), most) in alone.iter().zip(with_shim).zip(most) {
        assert!(with_shim - alone <= programs * most, "{alone} and {with_shim}");
    }
}

// Requirement: IO-6, IO-55
#[test]
fn figures_of_calls_are_null_with_a_reason_where_the_kernel_has_no_sum_of_all() {
    let reason_of = |report: &Report| {
        assert!(
            report.at("io.read_calls").is_null() && report.at("io.write_call_bytes").is_null(),
            "{report}"
        );
        report.at("io.calls_reason").as_str().unwrap().to_owned()
    };
    let run = tracked([program("ignored_sigchld"), "3".into(), "0.1".into()]).run();
    assert!(reason_of(run.assert_clean(0)).starts_with("the kernel itself reaped 3 processes"));

    let mut running = tracked(["sh", "-c", "echo ready; read line"]).piped_stdin().start();
    running.wait_for_output("ready\n");
    let collector = running.wait_for_collector();
    kill(running.pid(), libc::SIGKILL);
    drop(running.stdin());
    wait_until("the collector's end", || !std::fs::exists(format!("/proc/{collector}")).unwrap());
    assert_eq!(reason_of(running.wait().report()), "gpu-track-run was killed");

    let run = tracked(["true"]).run();
    let report = run.assert_clean(0);
    if report.f64("wall_s") < 0.05 {
        assert_eq!(reason_of(report), "it is not read in a run below 50 ms");
    }
}

// Requirement: IO-6, IO-55
#[test]
fn figures_of_calls_are_null_after_an_attach() {
    let mut sleep = Command::new("sleep").arg("0.3").spawn().unwrap();
    let run = tracked([""; 0]).options(&["--attach", &sleep.id().to_string()]).run();
    sleep.wait().unwrap();
    let reason = run.report().at("io.calls_reason").as_str().unwrap();
    assert!(reason.contains("before the attach"), "{reason}");
}

/// What a command of the report passed by calls.
fn counts_of(report: &Report, command: &str) -> [u64; 4] {
    let entry = report.command(command).unwrap_or_else(|| panic!("no {command}: {report}"));
    ["read_call_bytes", "write_call_bytes", "read_calls", "write_calls"]
        .map(|key| entry["calls"][key].as_u64().unwrap_or_else(|| panic!("{command} has no {key}: {report}")))
}

fn quality_of<'a>(report: &'a Report, command: &str) -> &'a str {
    report.command(command).unwrap()["calls"]["quality"].as_str().unwrap()
}

/// No figure of all commands together is larger than the run's.
fn assert_commands_are_within_the_run(report: &Report) {
    for key in ["read_call_bytes", "write_call_bytes", "read_calls", "write_calls"] {
        let commands = report.array("processes.by_command").iter();
        let sum: u64 = commands.filter_map(|entry| entry["calls"][key].as_u64()).sum();
        let run = report.u64(&format!("io.{key}"));
        assert!(sum <= run, "{key}: {sum} of commands, {run} of the run: {report}");
    }
}

// Requirement: IO-7
#[test]
fn short_programs_of_a_shell_have_their_bytes_and_the_shell_has_none_of_them() {
    let file = file();
    // A reading while sleep lives divides what cat and what sleep do.
    let script = "i=0; while [ $i -lt 200 ]; do cat $0; i=$((i+1)); done > /dev/null; sleep 2.5";
    let run = tracked(["sh", "-c", script, file.path().to_str().unwrap()]).run();
    let report = run.assert_clean(0);
    // A thread of sh that no sample saw may have done what cat did.
    assert_eq!((quality_of(report, "cat"), quality_of(report, "sh")), ("bound", "sampled"));
    let [read, written, ..] = counts_of(report, "cat");
    // Each cat also reads the heads of its libraries, and what the shim reads.
    let files = 200 * FILE_BYTES as u64;
    assert!(written == files && (files..files + 200 * 20_000).contains(&read), "{read}, {written}: {report}");
    let [read, written, ..] = counts_of(report, "sh");
    assert!(read < 50_000 && written == 0, "{read}, {written}: {report}");
    assert_commands_are_within_the_run(report);
}

// Requirement: IO-7
#[test]
fn program_of_threads_without_children_has_all_that_the_run_passed() {
    let python = "/usr/bin/python3";
    if !std::fs::exists(python).unwrap() {
        skip!("needs {python}");
    }
    let script = "import threading
def work():
    with open('/dev/zero', 'rb', 0) as zeros, open('/dev/null', 'wb', 0) as null:
        for _ in range(3000):
            null.write(zeros.read(65536))
threads = [threading.Thread(target=work) for _ in range(4)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]";
    let run = tracked([python, "-c", script]).run();
    let report = run.assert_clean(0);
    let [command] = report.array("processes.by_command") else { panic!("{report}") };
    let command = command["command"].as_str().unwrap();
    assert_eq!(counts_of(report, command), counts(report));
    assert!(counts(report)[1] >= 4 * 3000 * 65_536, "{report}");
    assert_eq!(quality_of(report, command), "exact");
}

// Requirement: IO-57
#[test]
fn commands_that_ended_between_the_same_readings_have_lower_bounds() {
    let script = "dd if=/dev/zero bs=64k count=320 status=none | cat > /dev/null; sleep 2.5";
    let run = tracked(["sh", "-c", script]).run();
    let report = run.assert_clean(0);
    for command in ["dd", "cat"] {
        assert!(["sampled", "unknown"].contains(&quality_of(report, command)), "{report}");
    }
    let reason = report.at("processes.calls_reason").as_str().unwrap();
    assert!(reason.contains("between two readings"), "{reason}");
    assert_commands_are_within_the_run(report);
}

// Requirement: IO-58
#[test]
fn nothing_of_children_that_the_kernel_reaped_is_said_to_be_exact() {
    let run = tracked([program("ignored_sigchld"), "3".into(), "1.5".into()]).run();
    let report = run.assert_clean(0);
    assert_ne!(quality_of(report, "ignored_sigchld"), "exact");
    let reason = report.at("processes.calls_reason").as_str().unwrap();
    assert!(reason.starts_with("the kernel itself reaped 3 processes"), "{reason}");
}

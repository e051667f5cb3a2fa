//! `--attach`: a process that runs already is tracked from then on, and runs on afterwards.

use std::collections::HashMap;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write, pipe};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use gpu_track_abi::sample::Sample;
use serde_json::Value;

use crate::support::report::Report;
use crate::support::run::{Run, Running, Tracked};
use crate::support::signals::with_default_signals;
use crate::support::{is_root, kill, or_skip, program, skip, tracked, wait_until};

/// What a figure by clock ticks may be off: both parts of a CPU time are rounded down at both readings.
const TICKS_S: f64 = 0.04;

/// A process that runs before gpu-track-run, and does what a test says.
struct Subject {
    child: Child,
    /// `None`: it is to end.
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Subject {
    fn start() -> Self {
        Self::of(&mut Command::new(program("steps")))
    }

    /// A shell, whose steps are lines of a script.
    fn shell() -> Self {
        let script = "while read -r line; do eval \"$line\"; echo ok; done";
        Self::of(Command::new("sh").args(["-c", script]))
    }

    fn of(command: &mut Command) -> Self {
        let child = with_default_signals(command).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = child.unwrap();
        let (input, output) = (child.stdin.take(), BufReader::new(child.stdout.take().unwrap()));
        Self { child, input, output }
    }

    fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Tells it to do a step, and waits until it is done.
    fn does(&mut self, step: &str) {
        self.begins(step);
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        assert_eq!(line, "ok\n", "{step}");
    }

    fn begins(&mut self, step: &str) {
        self.input.as_mut().unwrap().write_all(format!("{step}\n").as_bytes()).unwrap();
    }

    /// Ends its input, at which it exits with 7.
    fn ends(&mut self) {
        drop(self.input.take());
    }

    /// CPU time by /proc/PID/stat, seconds, without that of its children.
    fn cpu_s(&self) -> f64 {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid())).unwrap();
        let fields: Vec<&str> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
        let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
        // SAFETY: sysconf has no preconditions.
        ticks as f64 / unsafe { libc::sysconf(libc::_SC_CLK_TCK) } as f64
    }

    /// Asserts that it lives, is not stopped or traced, and does what it is told.
    fn assert_unharmed(&mut self) {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        assert!(status.contains("TracerPid:\t0\n") && !status.contains("State:\tT"), "{status}");
        assert!(status.contains(&format!("PPid:\t{}\n", std::process::id())), "{status}");
        self.does("burn 0");
    }
}

impl Drop for Subject {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// gpu-track-run that attaches to this process, and writes the report as other runs do.
fn attaching_to(pid: u32) -> Tracked {
    tracked([""; 0]).options(&["--attach", &pid.to_string()])
}

/// Starts gpu-track-run with a descriptor for `--ready-fd`. Gives the run, and what the line has.
fn ready(run: Tracked) -> (Running, HashMap<String, String>) {
    let (mut reader, writer) = pipe().unwrap();
    let running = with_ready_fd(run, writer.into()).start();
    // A single read gets the whole line.
    let mut line = [0; 4096];
    let length = reader.read(&mut line).unwrap();
    let line = String::from_utf8_lossy(&line[..length]);
    assert_eq!(reader.read(&mut [0]).unwrap(), 0, "the descriptor is closed");
    let line: Value = serde_json::from_str(&line).unwrap_or_else(|_| panic!("{line:?} is no JSON"));
    assert_eq!(line["version"], 1);
    let environment = line["environment"].as_object().unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    (running, environment.iter().map(|(name, value)| (name.clone(), text(value))).collect())
}

/// Has gpu-track-run keep this descriptor, for `--ready-fd`.
fn with_ready_fd(run: Tracked, writer: OwnedFd) -> Tracked {
    let number = writer.as_raw_fd().to_string();
    let keep_open = move |command: &mut Command| {
        // SAFETY: fcntl is async-signal-safe. The closure owns the descriptor.
        unsafe {
            command.pre_exec(move || match libc::fcntl(writer.as_raw_fd(), libc::F_SETFD, 0) {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            })
        };
    };
    run.options(&["--ready-fd", &number]).with(|command| {
        keep_open(command);
        command
    })
}

/// Waits until the last sample is like this.
fn wait_for_sample(running: &Running, is_it: impl Fn(&Sample) -> bool) {
    let live = running.live();
    let last = || live.sample(live.count().checked_sub(1)?);
    wait_until("a sample", || last().is_some_and(|sample| is_it(&sample)));
}

/// Waits for a sample with so many processes: then the collector has attached.
fn wait_for_processes(running: &Running, count: u64) {
    wait_for_sample(running, |sample| sample.processes == count);
}

/// Ends tracking, and gives the run. Nothing is known to have failed.
#[track_caller]
fn end(running: Running) -> Run {
    kill(running.pid(), libc::SIGTERM);
    let run = running.wait();
    assert_eq!((run.status.code(), run.stderr.as_str()), (Some(0), ""));
    run
}

/// The first process's CPU time, seconds.
fn main_cpu_s(report: &Report) -> f64 {
    entry(report, |process| process["pid"] == report.at("attached")["pid"])["cpu_s"].as_f64().unwrap()
}

fn entry(report: &Report, is_it: impl Fn(&Value) -> bool) -> &Value {
    report.array("processes.heaviest").iter().find(|process| is_it(process)).expect("it is listed")
}

/// The option for each set of layers: as a plain user has them, and as root.
const LAYERS: [&str; 2] = ["preload,wait,scan", "preload,wait,scan,connector"];

// Requirement: ATTACH-2
#[test]
fn cpu_time_and_faults_count_from_the_attach_on() {
    for layers in LAYERS {
        let mut subject = Subject::start();
        subject.does("burn 0.5");
        subject.does("touch 40000000");
        let before_s = subject.cpu_s();
        let (running, _) = ready(attaching_to(subject.pid()).options(&["--layers", layers]));
        subject.does("burn 0.3");
        let after_s = subject.cpu_s();
        let run = end(running);
        let report = run.report();
        let counted_s = main_cpu_s(report);
        assert!((counted_s - (after_s - before_s)).abs() <= TICKS_S, "{counted_s}, {before_s}..{after_s}");
        assert!(report.u64("faults.minor") < 40_000_000 / 4096, "the faults of before are not the run's");
        assert_eq!(report.u64("attached.pid"), u64::from(subject.pid()));
        assert_eq!(report.at("attached.command"), "steps");
        assert!(report.f64("attached.ran_before_s") >= 0.5);
        subject.assert_unharmed();
    }
}

// Requirement: ATTACH-3
#[test]
fn ram_peak_is_that_of_the_time_after_the_attach() {
    const MB: u64 = 1_000_000;
    for layers in LAYERS {
        let mut subject = Subject::start();
        subject.does("touch 200000000");
        let (running, _) = ready(attaching_to(subject.pid()).options(&["--layers", layers]));
        subject.does("hold 50000000");
        let run = end(running);
        let peak = entry(run.report(), |_| true)["peak_rss_bytes"].as_u64().unwrap();
        let combined = run.report().u64("max_ram_bytes.combined.total_rss");
        assert!((50 * MB..70 * MB).contains(&peak), "{peak}");
        assert!((50 * MB..70 * MB).contains(&combined), "{combined}");
    }
}

// Requirement: ATTACH-3
#[test]
fn program_that_the_process_execs_has_its_own_peak_and_report() {
    let mut subject = Subject::start();
    subject.does("burn 0.3");
    subject.does("touch 100000000");
    let (running, _) = ready(attaching_to(subject.pid()));
    let held = program("touch");
    subject.begins(&format!("exec {held} hold 30000000 100000"));
    wait_for_sample(&running, |sample| sample.main_bytes >= 30_000_000);
    let run = end(running);
    let report = run.report();
    assert!(main_cpu_s(report) < 0.3, "{report}");
    let peak = entry(report, |_| true)["peak_rss_bytes"].as_u64().unwrap();
    assert!((30_000_000..60_000_000).contains(&peak), "{peak}");
}

// Requirement: ATTACH-5
#[test]
fn present_descendants_count_from_the_attach_on() {
    // Those without a scan, too.
    for layers in LAYERS.into_iter().chain(["preload,wait"]) {
        let mut subject = Subject::start();
        subject.does("child 0.4");
        let (running, _) = ready(attaching_to(subject.pid()).options(&["--layers", layers]));
        // The collector attaches when it has begun to work.
        wait_for_processes(&running, 2);
        subject.does("wake");
        let run = end(running);
        let report = run.report();
        assert_eq!(report.u64("processes.total"), 2, "gpu-track-run is no part of the run");
        let child_s =
            entry(report, |process| process["ppid"] == report.at("attached")["pid"])["cpu_s"].as_f64();
        assert!((0.39..0.6).contains(&child_s.unwrap()), "{child_s:?}");
        assert!(main_cpu_s(report) < 0.2, "{report}");
    }
}

// Requirement: ATTACH-5, ATTACH-51
#[test]
fn children_that_are_forked_later_count() {
    for layers in LAYERS {
        let mut subject = Subject::start();
        let (running, _) = ready(attaching_to(subject.pid()).options(&["--layers", layers]));
        wait_for_processes(&running, 1);
        subject.does("fork 1");
        let run = end(running);
        let report = run.report();
        assert_eq!(report.u64("processes.total"), 2);
        let child = entry(report, |process| process["ppid"] == report.at("attached")["pid"]);
        let child_s = child["cpu_s"].as_f64().unwrap();
        // Without the kernel's events it is known as of the last sample before its end.
        assert!((0.1..=1.2).contains(&child_s), "{child_s}");
        if layers.contains("connector") && report.at("coverage.connector_absent").is_null() {
            assert!(child_s >= 0.99, "{child_s}");
        } else {
            assert!(report.warnings().contains("reports nothing itself"), "{}", report.warnings());
            assert!(!report.at("coverage.uncounted_reason").is_null());
        }
    }
}

// Requirement: ATTACH-6
#[test]
fn child_with_the_environment_of_the_ready_line_is_exact() {
    for layers in LAYERS {
        let mut subject = Subject::shell();
        let (running, environment) = ready(attaching_to(subject.pid()).options(&["--layers", layers]));
        let mut names: Vec<&str> = environment.keys().map(String::as_str).collect();
        names.sort_unstable();
        assert_eq!(names, ["GPU_TRACK_SESSION", "LD_PRELOAD"]);
        let set: Vec<String> = environment.iter().map(|(name, value)| format!("{name}='{value}'")).collect();
        subject.does(&format!("{} {} 0.3", set.join(" "), program("burn")));
        let run = end(running);
        let report = run.report();
        let burn = entry(report, |process| process["command"] == "burn");
        assert_eq!(burn["cpu_quality"], "exact");
        assert!((0.297..0.4).contains(&burn["cpu_s"].as_f64().unwrap()), "{burn}");
        assert_eq!(burn["exit"]["code"], 0);
        assert_eq!(report.u64("coverage.layers.preload") + report.u64("coverage.layers.scan"), 2);
        assert_eq!(report.u64("coverage.exact"), 1);
    }
}

// Requirement: ATTACH-2, ATTACH-6
#[test]
fn program_with_the_environment_in_place_of_the_process_is_exact_from_the_attach_on() {
    for layers in LAYERS {
        let mut subject = Subject::shell();
        subject.does("i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done");
        let (running, environment) = ready(attaching_to(subject.pid()).options(&["--layers", layers]));
        let set: Vec<String> = environment.iter().map(|(name, value)| format!("{name}='{value}'")).collect();
        subject.begins(&format!("export {}; exec {} 0.3", set.join(" "), program("burn")));
        let run = running.wait();
        assert_eq!((run.status.code(), run.stderr.as_str()), (Some(0), ""));
        let burn = entry(run.report(), |_| true);
        assert_eq!((&burn["cpu_quality"], &burn["command"]), (&"exact".into(), &"burn".into()));
        assert!((0.297..0.4).contains(&burn["cpu_s"].as_f64().unwrap()), "{burn}");
        assert_eq!(run.report().at("exit.code"), 0, "its own record tells");
    }
}

// Requirement: ATTACH-1, ATTACH-54
#[test]
fn request_to_end_ends_tracking_alone_with_status_0() {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        let mut subject = Subject::start();
        let (running, _) = ready(attaching_to(subject.pid()));
        kill(running.pid(), signal);
        let run = running.wait();
        assert_eq!((run.status.code(), run.stderr.as_str()), (Some(0), ""));
        let report = run.report();
        assert_eq!(report.at("attached.runs_on"), true);
        assert!(report.at("exit.code").is_null() && report.at("exit.signal").is_null());
        assert_eq!(report.at("exit.reason"), "it still ran when tracking ended");
        assert!(report.at("cpu_time.kernel_s_reason").as_str().unwrap().contains("not a child"));
        assert!(report.at("context_switches.voluntary").is_null() && report.at("hints.memory").is_null());
        assert!(!report.warnings().contains("Still running"), "{}", report.warnings());
        subject.assert_unharmed();
    }
}

/// A directory on a file system with a block device, unlike /tmp where that is a tmpfs.
fn on_disk() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// Bytes that the process has written to storage by /proc/PID/io.
fn written_bytes(pid: u32) -> u64 {
    let io = fs::read_to_string(format!("/proc/{pid}/io")).unwrap();
    let line = io.lines().find_map(|line| line.strip_prefix("write_bytes: "));
    line.unwrap().parse().unwrap()
}

// Requirement: ATTACH-2
#[test]
fn block_io_counts_from_the_attach_on_though_the_launcher_is_killed() {
    for layers in LAYERS {
        let mut subject = Subject::start();
        let directory = on_disk();
        let file = directory.path().join("file").display().to_string();
        subject.does(&format!("write {file} 20000000"));
        let before = written_bytes(subject.pid());
        let (running, _) = ready(attaching_to(subject.pid()).options(&["--layers", layers]));
        let collector = running.wait_for_collector();
        subject.does(&format!("write {file} 5000000"));
        kill(running.pid(), libc::SIGKILL);
        subject.does(&format!("write {file} 10000000"));
        let counted = written_bytes(subject.pid()) - before;
        // Longer than the time between two readings of I/O.
        subject.does("burn 1.3");
        wait_for_sample(&running, |sample| sample.cpu_ns >= 1_290_000_000);
        subject.ends();
        drop(subject.child.wait());
        wait_until("the collector's end", || !fs::exists(format!("/proc/{collector}")).unwrap());
        let run = running.wait();
        assert_eq!(run.report().u64("io.write_bytes"), counted, "{}", run.report());
        assert!(run.report().at("io.reason").is_null());
    }
}

// Requirement: ATTACH-2
#[test]
fn block_io_of_before_is_not_that_of_a_program_in_place_of_the_process() {
    for layers in LAYERS {
        let mut subject = Subject::shell();
        let directory = on_disk();
        let write = |megabytes: u64| {
            let file = directory.path().join("file");
            format!("dd if=/dev/zero of={} bs=1M count={megabytes} conv=fsync status=none", file.display())
        };
        subject.does(&write(20));
        let (running, environment) = ready(attaching_to(subject.pid()).options(&["--layers", layers]));
        let set: Vec<String> = environment.iter().map(|(name, value)| format!("{name}='{value}'")).collect();
        subject.begins(&format!("export {}; exec {}", set.join(" "), write(5)));
        let run = running.wait();
        let written = run.report().u64("io.write_bytes");
        assert!(written < 20 << 20, "{written} bytes were written, {}", run.report());
    }
}

// Requirement: ATTACH-2, ATTACH-9, ATTACH-59
#[test]
fn child_that_had_ended_before_the_attach_is_no_part_of_the_run() {
    for layers in LAYERS {
        let directory = on_disk();
        let file = directory.path().join("file");
        let script = "dd if=/dev/zero of=\"$1\" bs=1M count=20 conv=fsync status=none & exec sh -c \
                      'while read -r line; do eval \"$line\"; echo ok; done'";
        let mut subject = Subject::of(Command::new("sh").args(["-c", script, "sh", file.to_str().unwrap()]));
        let pid = subject.pid();
        let children = || fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
        wait_until("a child", || !children().is_empty());
        let stat = format!("/proc/{}/stat", children().trim());
        wait_until("a zombie", || fs::read_to_string(&stat).unwrap().contains(") Z "));
        let (running, _) = ready(attaching_to(pid).options(&["--layers", layers]));
        wait_for_processes(&running, 1);
        // The shell waits for any child.
        subject.does("/bin/true");
        assert!(fs::metadata(&stat).is_err(), "the shell has waited for it");
        let run = end(running);
        let report = run.report();
        assert!(report.u64("io.write_bytes") < 1 << 20, "{report}");
        let names: Vec<_> =
            report.array("processes.heaviest").iter().map(|process| &process["command"]).collect();
        assert!(!names.contains(&&Value::from("dd")), "{names:?}");
    }
}

// Requirement: ATTACH-2, ATTACH-5
#[test]
fn child_of_before_that_an_instrumented_program_waits_for_counts_from_the_attach_on() {
    if !fs::exists("/usr/bin/python3").unwrap() {
        skip!("needs python3");
    }
    for layers in LAYERS {
        let mut subject = Subject::shell();
        let directory = on_disk();
        let path = |name: &str| directory.path().join(name).display().to_string();
        let (burnt, end) = (path("burnt"), path("end"));
        subject.does(&format!("mkfifo {burnt} {end}"));
        let burn = "i=0; while [ $i -lt 600000 ]; do i=$((i+1)); done";
        subject.does(&format!("( {burn}; echo > {burnt}; read x < {end} ) & read x < {burnt}"));
        let (running, environment) = ready(attaching_to(subject.pid()).options(&["--layers", layers]));
        wait_for_processes(&running, 2);
        let set: Vec<String> = environment.iter().map(|(name, value)| format!("{name}='{value}'")).collect();
        let wait = "import os; os.wait()";
        subject.begins(&format!("export {}; exec /usr/bin/python3 -c '{wait}'", set.join(" ")));
        fs::write(end, "\n").unwrap();
        let run = running.wait();
        let report = run.report();
        let child = entry(report, |process| process["ppid"] == report.at("attached")["pid"]);
        assert!(child["cpu_s"].as_f64().unwrap() < 0.1, "{child}");
        assert!(report.f64("cpu_time.total_s") < 2.0, "{report}");
    }
}

// Requirement: ATTACH-1, ATTACH-52
#[test]
fn end_of_the_process_ends_the_run_with_status_0() {
    for layers in LAYERS {
        let mut subject = Subject::start();
        let (running, _) = ready(attaching_to(subject.pid()).options(&["--layers", layers]));
        subject.does("burn 0.2");
        wait_for_sample(&running, |sample| sample.cpu_ns >= 190_000_000);
        subject.ends();
        let run = running.wait();
        assert_eq!((run.status.code(), run.stderr.as_str()), (Some(0), ""));
        let report = run.report();
        assert_eq!(report.at("attached.runs_on"), false);
        assert!((0.19..0.4).contains(&main_cpu_s(report)), "{report}");
        // The kernel may have told, though another program is its parent.
        match report.at("exit.code").as_i64() {
            Some(code) => assert_eq!(code, 7),
            None => assert!(report.at("exit.reason").as_str().unwrap().contains("not gpu-track-run's child")),
        }
        assert_eq!(subject.child.wait().unwrap().code(), Some(7), "its own parent gets its status");
    }
}

// Requirement: ATTACH-1
#[test]
fn killed_launcher_leaves_the_report_to_the_collector() {
    let mut subject = Subject::start();
    let (running, _) = ready(attaching_to(subject.pid()));
    let collector = running.wait_for_collector();
    subject.does("burn 0.2");
    kill(running.pid(), libc::SIGKILL);
    subject.does("burn 0.2");
    wait_for_sample(&running, |sample| sample.cpu_ns >= 390_000_000);
    subject.ends();
    drop(subject.child.wait());
    wait_until("the collector's end", || !std::path::Path::new(&format!("/proc/{collector}")).exists());
    let run = running.wait();
    assert_eq!(run.status.signal(), Some(libc::SIGKILL));
    let cpu_s = main_cpu_s(run.report());
    assert!((0.39..0.6).contains(&cpu_s), "{cpu_s}");
    assert!(run.report().warnings().contains("The launcher was killed"), "{}", run.report().warnings());
}

// Requirement: ATTACH-2
#[test]
fn collector_that_replaces_a_killed_one_counts_from_the_attach_on() {
    let mut subject = Subject::start();
    subject.does("burn 0.5");
    let (running, _) = ready(attaching_to(subject.pid()));
    running.wait_for_collector();
    subject.does("burn 0.2");
    running.replace_collector();
    subject.does("burn 0.2");
    let run = end(running);
    let cpu_s = main_cpu_s(run.report());
    assert!((0.39..0.6).contains(&cpu_s), "{cpu_s}");
    assert_eq!(run.report().u64("processes.total"), 1);
}

// Requirement: ATTACH-1
#[test]
fn launcher_below_the_attached_process_is_no_part_of_the_run() {
    let script =
        "\"$@\" --attach $$ & launcher=$!; read line; kill -TERM $launcher; wait $launcher; echo status $?";
    let mut running = tracked([""; 0]).through(&["sh", "-c", script, "sh"]).piped_stdin().start();
    wait_until("the report-so-far", || fs::exists(running.path("report.json")).unwrap());
    running.stdin().write_all(b"\n").unwrap();
    let run = running.wait();
    assert_eq!((run.stdout.as_str(), run.stderr.as_str()), ("status 0\n", ""));
    let report = run.report();
    assert_eq!(report.u64("attached.pid"), u64::from(run.launcher));
    assert_eq!(report.u64("processes.total"), 1, "{report}");
}

// Requirement: ATTACH-4, LIMIT-58
#[test]
fn what_can_not_be_attached_to_is_refused_in_one_line() {
    let refused = |run: Run, part: &str| {
        assert_eq!(run.status.code(), Some(2), "{}", run.stderr);
        assert_eq!(run.stderr.lines().count(), 1, "{}", run.stderr);
        assert!(run.stderr.contains(part), "{}", run.stderr);
    };
    // Above the kernel's largest pid.
    refused(attaching_to(5_000_001).run(), "--attach: no process has the pid 5000001");
    let mut zombie = Subject::start();
    zombie.ends();
    let stat = format!("/proc/{}/stat", zombie.pid());
    wait_until("a zombie", || fs::read_to_string(&stat).unwrap().contains(") Z "));
    refused(attaching_to(zombie.pid()).run(), "has ended");
    let itself = tracked([""; 0]).through(&["sh", "-c", "exec \"$@\" --attach $$", "sh"]).run();
    refused(itself, "is gpu-track-run itself");
    if fs::read_to_string("/proc/2/comm").is_ok_and(|name| name == "kthreadd\n") {
        refused(attaching_to(2).run(), "is a thread of the kernel");
    }
    let subject = Subject::start();
    let limit = ["--limit", "ram=1G"];
    for options in
        [&["--wait-all"][..], &["--cgroup"], &["--nodes", "auto"], &limit, &["--recover"], &["-e", "true"]]
    {
        refused(attaching_to(subject.pid()).options(options).run(), "--attach");
    }
    refused(tracked(["true"]).options(&["--attach", &subject.pid().to_string()]).run(), "--attach");
    refused(attaching_to(subject.pid()).options(&["--ready-fd", "77"]).run(), "77 is not an open descriptor");
    refused(tracked(["true"]).options(&["--ready-fd", "7"]).run(), "add --attach PID");
    refused(attaching_to(subject.pid()).options(&["--ready-fd", "1"]).run(), "at least 3");
    refused(tracked([""; 0]).options(&["--attach", "0"]).run(), "the pid of a process");
}

// Requirement: ATTACH-4
#[test]
fn process_of_another_user_lacks_what_may_not_be_read() {
    if !is_root() {
        skip!("needs root (setpriv)");
    }
    let mut subject = Subject::start();
    let run = or_skip!(attaching_to(subject.pid()).by_an_ordinary_user());
    let (running, _) = ready(run);
    subject.does("burn 0.2");
    let run = end(running);
    let report = run.report();
    assert!((0.19..0.4).contains(&main_cpu_s(report)), "{report}");
    assert!(report.at("io.write_bytes").is_null() && report.at("io.read_bytes").is_null());
    assert!(report.at("io.reason").as_str().unwrap().contains("before the attach could not be read"));
    let warnings = report.warnings();
    assert!(warnings.contains("its block I/O, its environment") && warnings.contains("another user's"));
}

// Requirement: ATTACH-57
#[test]
fn process_is_not_tracked_where_there_is_no_session() {
    if !is_root() {
        skip!("needs root (mounts)");
    }
    let mut subject = Subject::start();
    let run = attaching_to(subject.pid()).with_mounts("mount -t tmpfs -o ro none /dev/shm").run();
    assert_eq!(run.status.code(), Some(1));
    assert_eq!(run.stderr.lines().count(), 1, "{}", run.stderr);
    assert!(run.stderr.contains("--attach: cannot create"), "{}", run.stderr);
    assert!(run.report().warnings().contains("could not be attached to"), "{}", run.report().warnings());
    subject.assert_unharmed();
}

// Requirement: ATTACH-57, ATTACH-8
#[test]
fn report_without_figures_names_the_process() {
    let mut subject = Subject::start();
    let run = attaching_to(subject.pid()).options(&["--session-dir", "/nonexistent"]).run();
    assert_eq!(run.status.code(), Some(1));
    let report = run.report();
    assert_eq!(report.u64("attached.pid"), u64::from(subject.pid()));
    assert_eq!(
        (report.at("attached.command"), report.at("attached.runs_on")),
        (&"steps".into(), &true.into())
    );
    assert!(report.array("command")[0].as_str().unwrap().ends_with("steps"));
    assert_eq!(report.at("exit.reason"), "it was not tracked");
    assert!(!report.warnings().contains("layer is off"), "{}", report.warnings());
    subject.assert_unharmed();
}

// Requirement: ATTACH-1, ATTACH-6
#[test]
fn full_pipe_that_nobody_reads_does_not_keep_the_run_from_its_end() {
    let subject = Subject::start();
    let (_reader, mut writer) = pipe().unwrap();
    // SAFETY: F_SETPIPE_SZ takes a number of bytes; the descriptor is open.
    let bytes = unsafe { libc::fcntl(writer.as_raw_fd(), libc::F_SETPIPE_SZ, 4096) };
    writer.write_all(&vec![b' '; usize::try_from(bytes).unwrap()]).unwrap();
    let running = with_ready_fd(attaching_to(subject.pid()), writer.into()).start();
    wait_for_processes(&running, 1);
    end(running);
}

// Requirement: ATTACH-8, ATTACH-52
#[test]
fn process_that_is_a_child_after_all_has_its_status_in_the_report() {
    let script = "exec 3<&0; sh -c 'read line <&3; exit 7' & exec \"$@\" --attach $!";
    let mut running = tracked([""; 0]).through(&["sh", "-c", script, "sh"]).piped_stdin().start();
    wait_until("the report-so-far", || fs::exists(running.path("report.json")).unwrap());
    running.stdin().write_all(b"\n").unwrap();
    let run = running.wait();
    assert_eq!((run.status.code(), run.stderr.as_str()), (Some(0), ""));
    assert_eq!(run.report().at("exit.code"), 7);
    assert_eq!(run.report().at("attached.runs_on"), false);
    assert!(run.report().at("cpu_time.kernel_s_reason").as_str().unwrap().contains("used before"));
}

// Requirement: ATTACH-7
#[test]
fn process_id_of_tconfig_attaches() {
    let mut subject = Subject::start();
    let run = tracked([""; 0]);
    let file = run.path("config.json");
    fs::write(&file, format!("{{\"process_id\": {}, \"sleep_time\": 0.05}}", subject.pid())).unwrap();
    let running = run.options(&["--tconfig", file.to_str().unwrap()]).start();
    running.wait_for_collector();
    subject.does("burn 0.1");
    let run = end(running);
    assert_eq!(run.report().u64("attached.pid"), u64::from(subject.pid()));
    subject.assert_unharmed();
}

// Requirement: ATTACH-8
#[test]
fn summary_says_what_was_attached_to() {
    let mut subject = Subject::start();
    let (running, _) =
        ready(attaching_to(subject.pid()).only_options(&["--attach", &subject.pid().to_string()]));
    subject.does("burn 0.1");
    kill(running.pid(), libc::SIGTERM);
    let run = running.wait();
    assert_eq!(run.status.code(), Some(0));
    let end = format!("RUNS ON, attached to pid {} for ", subject.pid());
    assert!(run.stderr.contains(&end), "{}", run.stderr);
    assert!(!run.stderr.contains("the command"), "{}", run.stderr);
}

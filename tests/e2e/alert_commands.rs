//! `--on-alert`: a command runs when an alert goes on or off, beside the tracked tree, and whatever it does the run is as without it.

use std::io::{BufRead, BufReader, PipeReader, PipeWriter, Read, Write, pipe};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::support::run::{BINARY, Run, Running, Tracked, become_user, tracked};
use crate::support::{kill, leftovers, or_skip, program, static_program, wait_until};

/// Makes a file "began" in the directory $2, holds 200 MB until that has a file "told", and ends when it has a file "over".
const HOLDS: &str = "\
>\"$2/began\"; \"$1\" hold 200000000 1000000 & until [ -e \"$2/told\" ]; do sleep 0.02; done
kill $!; wait; until [ -e \"$2/over\" ]; do sleep 0.02; done; exit 3";
/// An argument of that, with the markup of a shell.
const HOSTILE: &str = "$(touch hacked); `touch hacked`\n'\"";

/// CMD's first words: the run ends when the alert has gone off, so no order to run CMD is left over.
const ENDS_THE_RUN_WHEN_RECOVERED: &str = "[ $GPU_TRACK_EVENT = warning ] || { >over; exit 0; }";

/// A run that holds memory until the file "told" is there, and ends when "over" is.
struct Alerted {
    directory: tempfile::TempDir,
}

impl Alerted {
    fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    fn make(&self, name: &str) {
        std::fs::write(self.path(name), "").unwrap();
    }

    /// The run under these options, with CMD. CMD runs in the directory.
    fn tracked(&self, command: &str, options: &[&str]) -> Tracked {
        let (touch, directory) = (program("touch"), self.directory.path().to_str().unwrap());
        let words = ["sh", "-c", HOLDS, "sh", &touch, directory, HOSTILE];
        let command = format!("cd {directory}; {command}");
        let options = [&["--alert", "ram>100M", "--on-alert", &command], options].concat();
        tracked(words).options(&options).leaves_processes()
    }
}

/// Waits for the end of the run, then for that of CMD, which may be at work still.
fn ended(running: Running) -> Run {
    let mark = running.mark().to_owned();
    let run = running.wait();
    wait_until("the end of CMD", || leftovers::processes(&mark).is_empty());
    run
}

/// A user without other processes.
const USER: u32 = 64_531;

/// The events of this kind.
fn events<'a>(run: &'a Run, kind: &str) -> Vec<&'a Value> {
    run.report().array("events.list").iter().filter(|event| event["kind"] == kind).collect()
}

/// What failed, by the events of the run. stderr has said each, too.
fn failures(run: &Run) -> Vec<String> {
    let events = events(run, "error");
    let messages: Vec<String> =
        events.iter().map(|event| event["message"].as_str().unwrap().to_owned()).collect();
    for message in &messages {
        assert!(run.stderr.contains(message.as_str()), "{message}: {}", run.stderr);
    }
    messages
}

fn commands(run: &Run) -> Vec<&str> {
    let commands = run.report().array("processes.by_command").iter();
    commands.map(|command| command["command"].as_str().unwrap()).collect()
}

/// CMD uses 1 s of CPU time in a static program, leaves a process behind, and tells what it knows.
// Requirement: ALERT-11
#[test]
fn command_gets_the_facts_and_is_not_of_the_tree() {
    for layers in ["preload,wait,subreaper,scan,connector", "preload,wait,subreaper,scan"] {
        let alerted = Alerted::new();
        let burn = static_program("burn");
        let command = format!(
            "(cat /dev/null; exec sleep 0.5) & {burn} 1; \
             env -0 >$GPU_TRACK_EVENT; echo $LD_PRELOAD >preload; \
             echo $PPID >runner; cut -d' ' -f6 /proc/$$/stat >session; \
             ls -l /proc/self/fd | grep -c -- '->' >descriptors; grep SigBlk /proc/self/status >signals; \
             case $GPU_TRACK_EVENT in warning) >told;; recovered) >over;; esac"
        );
        let options = ["--wait-all", "--layers", layers];
        let run = ended(alerted.tracked(&command, &options).start());
        assert_eq!((run.status.code(), failures(&run)), (Some(3), vec![]), "{}", run.stderr);
        let kernel_s = run.report().f64("cpu_time.kernel_s");
        assert!(kernel_s < 1.0, "{kernel_s} s: CMD's are among them");
        let commands = commands(&run);
        assert!(commands.iter().all(|name| ["sh", "touch", "sleep"].contains(name)), "{commands:?}");
        assert_eq!(run.report().command("sh").unwrap()["count"], 1);
        assert_eq!(alerted.text("preload"), "\n", "the shim is not in CMD");
        assert_eq!(
            alerted.text("session"),
            alerted.text("runner"),
            "a session without terminal and launcher"
        );
        assert_eq!(alerted.text("signals"), "SigBlk:\t0000000000000000\n");
        assert_eq!(alerted.text("descriptors"), "4\n", "the standard streams, and the one of ls");
        assert!(!alerted.path("hacked").exists());
        for event in ["warning", "recovered"] {
            let environment = alerted.text(event);
            let fact = |name: &str| {
                let prefix = format!("GPU_TRACK_{name}=");
                environment.split('\0').find_map(|pair| pair.strip_prefix(&prefix)).map(str::to_owned)
            };
            let number = |name: &str| fact(name).unwrap().parse::<u64>().unwrap();
            assert_eq!(fact("ALERT").as_deref(), Some("ram>100M"));
            assert_eq!(number("THRESHOLD_BYTES"), 104_857_600);
            assert_eq!(number("VALUE_BYTES") > 104_857_600, event == "warning", "{environment}");
            assert_eq!(fact("VALUE_SECONDS"), None);
            assert!(fact("MESSAGE").unwrap().starts_with("alert ram>100M"));
            assert!(
                fact("COMMAND").unwrap().starts_with("sh -c ") && fact("COMMAND").unwrap().ends_with(HOSTILE)
            );
            assert_eq!(number("LAUNCHER_PID"), u64::from(run.launcher));
            assert!(number("COMMAND_PID") > 0);
            if event == "warning" {
                assert_eq!(fact("LARGEST_COMMAND").as_deref(), Some("touch"));
                assert!(number("LARGEST_RSS_BYTES") > 104_857_600 && number("LARGEST_PID") > 0);
            }
        }
    }
}

// Requirement: ALERT-12
#[test]
fn failure_is_an_event_in_the_report_in_the_file_and_on_stderr() {
    for (command, failure) in [
        ("exit 5", "the command of --on-alert exited with status 5"),
        ("kill -9 $$", "the command of --on-alert was ended by SIGKILL"),
    ] {
        let alerted = Alerted::new();
        let file = alerted.path("events.jsonl");
        let command = format!("{ENDS_THE_RUN_WHEN_RECOVERED}; {command}");
        let running = alerted.tracked(&command, &["--events", file.to_str().unwrap()]).start();
        wait_until("the failure", || alerted.text("events.jsonl").contains("\"error\""));
        alerted.make("told");
        let run = ended(running);
        assert_eq!((run.status.code(), failures(&run)), (Some(3), vec![failure.to_owned()]));
        assert_eq!(run.report().u64("events.by_kind.error"), 1);
        assert_eq!(events(&run, "error")[0]["rule"], "ram>100M");
        assert!(run.stderr.contains(&format!("alert ram>100M (warning): {failure}")), "{}", run.stderr);
        assert_eq!(alerted.text("events.jsonl").matches(failure).count(), 1);
    }
}

/// Of 20 alerts that go on together, one has its turn, 16 wait, and 3 are dropped.
// Requirement: ALERT-11, ALERT-12
#[test]
fn commands_run_one_at_a_time_and_too_many_are_dropped_and_told() {
    let alerted = Alerted::new();
    let command = "[ $GPU_TRACK_EVENT = warning ] || exit 0; \
                   mkdir busy || exit 9; until [ -e go ]; do sleep 0.02; done; echo $GPU_TRACK_ALERT >>turns; rmdir busy";
    let list: Vec<String> = (1..20).map(|n| format!("ram>{n}M")).collect();
    let running = alerted.tracked(command, &["--alert", &list.join(",")]).start();
    let lines = |name: &Path| std::fs::read_to_string(name).unwrap_or_default().lines().count();
    let stderr = running.path("stderr");
    wait_until("20 alerts, and what is said of three", || lines(&stderr) == 23);
    alerted.make("go");
    wait_until("17 turns", || lines(&alerted.path("turns")) == 17);
    alerted.make("told");
    alerted.make("over");
    let run = ended(running);
    let dropped = "the command of --on-alert was not run: 16 other alerts waited for it";
    assert_eq!(failures(&run).iter().filter(|failure| *failure == dropped).count(), 3, "{}", run.stderr);
    assert!(failures(&run).iter().all(|failure| !failure.contains("exited")), "{}", run.stderr);
    let turns: std::collections::BTreeSet<String> =
        alerted.text("turns").lines().map(str::to_owned).collect();
    assert_eq!(turns.len(), 17, "{turns:?}");
}

/// CMD writes all the time, and holds what it has inherited.
// Requirement: ALERT-13
#[test]
fn run_ends_as_without_the_command_which_goes_on() {
    let alerted = Alerted::new();
    let command = "[ $GPU_TRACK_EVENT = warning ] || exit 0; >told; >over; \
                   until [ -e go ]; do echo some text; sleep 0.02; done; echo done >ended";
    let directory = alerted.directory.path().to_str().unwrap();
    let mark = leftovers::new_mark();
    let mut launcher = Command::new(BINARY)
        .args(["-q", "--alert", "ram>100M", "--on-alert"])
        .arg(format!("cd {directory}; {command}"))
        .args(["--", "sh", "-c", HOLDS, "sh", &program("touch"), directory])
        .env(leftovers::VARIABLE, &mark)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    assert_eq!(launcher.wait().unwrap().code(), Some(3));
    // Each end of file comes although CMD runs.
    let mut text = String::new();
    launcher.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    assert_eq!(text, "");
    launcher.stderr.take().unwrap().read_to_string(&mut text).unwrap();
    assert!(text.is_empty() || text.starts_with("some text\n"), "{text}");
    assert_eq!(alerted.text("ended"), "");
    alerted.make("go");
    wait_until("the end of CMD", || alerted.text("ended") == "done\n");
    wait_until("the end of its runner", || leftovers::processes(&mark).is_empty());
}

/// More processes than a limit allows, when the file "told" is there.
const TOO_MANY: &str = "\
\"$1\" hold 200000000 1000000 & until [ -e \"$2/told\" ]; do sleep 0.02; done
n=0; while [ $n -lt 30 ]; do sleep 1000 & n=$((n + 1)); done; wait";

// Requirement: ALERT-13
#[test]
fn limit_ends_the_tree_and_not_the_command_of_an_alert() {
    let alerted = Alerted::new();
    let directory = alerted.directory.path().to_str().unwrap();
    let command = format!("cd {directory}; >told; until [ -e go ]; do sleep 0.02; done; >ended");
    let options = ["--alert", "ram>100M", "--on-alert", &command, "--limit", "processes=20"];
    let words = ["sh", "-c", TOO_MANY, "sh", &program("touch"), directory];
    let running = tracked(words).options(&options).leaves_processes().start();
    let mark = running.mark().to_owned();
    let run = running.wait();
    assert_eq!(run.status.code(), Some(124), "{}", run.stderr);
    assert!(!alerted.path("ended").exists());
    alerted.make("go");
    wait_until("the end of CMD", || leftovers::processes(&mark).is_empty());
    assert!(alerted.path("ended").exists(), "CMD was ended with the tree");
}

// Requirement: ALERT-12, ALERT-13
#[test]
fn alerts_that_wait_at_the_end_of_the_run_are_told() {
    let alerted = Alerted::new();
    let command = "until [ -e go ]; do sleep 0.02; done";
    let running = alerted.tracked(command, &["--alert", "ram>50M"]).start();
    let stderr = running.path("stderr");
    wait_until("two alerts", || std::fs::read_to_string(&stderr).unwrap().lines().count() == 2);
    alerted.make("told");
    alerted.make("over");
    let mark = running.mark().to_owned();
    let run = running.wait();
    assert!(!leftovers::processes(&mark).is_empty(), "CMD is at work");
    alerted.make("go");
    wait_until("the end of CMD", || leftovers::processes(&mark).is_empty());
    let failures = failures(&run);
    let are_told = failures.iter().all(|failure| failure.ends_with("the run ended before"));
    assert!(!failures.is_empty() && are_told, "{failures:?} {}", run.stderr);
}

/// Whether a child of this process has ended, and the process has not reaped it.
fn has_ended_child(pid: u32) -> bool {
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    children.split_whitespace().any(|child| {
        let stat = std::fs::read_to_string(format!("/proc/{child}/stat")).unwrap_or_default();
        stat.rsplit(')').next().is_some_and(|fields| fields.trim_start().starts_with('Z'))
    })
}

/// The launcher stands still while the alert goes on and the command ends, so the order to run CMD is still in the pipe.
// Requirement: ALERT-12
#[test]
fn alert_of_the_last_moments_runs_the_command_or_is_told() {
    let alerted = Alerted::new();
    let file = alerted.path("events.jsonl");
    let running = alerted.tracked("echo >>ran", &["--events", file.to_str().unwrap()]).start();
    wait_until("the command", || alerted.path("began").exists());
    let launcher = running.pid();
    kill(launcher, libc::SIGSTOP);
    wait_until("the alert", || alerted.text("events.jsonl").contains("\"warning\""));
    alerted.make("told");
    alerted.make("over");
    wait_until("the end of the command", || has_ended_child(launcher));
    kill(launcher, libc::SIGCONT);
    let run = ended(running);
    let failures = failures(&run);
    let are_run = alerted.text("ran").lines().count();
    assert!(failures.iter().all(|failure| failure.ends_with("the run ended before")), "{failures:?}");
    assert_eq!(failures.len() + are_run, events(&run, "warning").len() + events(&run, "recovered").len());
    assert_eq!(alerted.text("events.jsonl").matches("the run ended before").count(), failures.len());
}

// Requirement: ALERT-12, ALERT-13
#[test]
fn what_a_killed_runner_leaves_behind_is_not_of_the_tree() {
    let alerted = Alerted::new();
    let command = format!(
        "{ENDS_THE_RUN_WHEN_RECOVERED}; echo $$ >shell; echo $PPID >runner; \
         (until [ -e go ]; do cat /dev/null; done) & wait"
    );
    let running = alerted.tracked(&command, &["--wait-all"]).start();
    wait_until("the runner's pid", || alerted.text("runner").ends_with('\n'));
    kill(alerted.text("runner").trim().parse().unwrap(), libc::SIGKILL);
    let stderr = running.path("stderr");
    let is_told = || std::fs::read_to_string(&stderr).unwrap().contains("the process that ran it was killed");
    wait_until("what is said of it", is_told);
    alerted.make("go");
    let shell = Path::new("/proc").join(alerted.text("shell").trim());
    wait_until("the end of what is left", || !shell.exists());
    alerted.make("told");
    let run = ended(running);
    assert_eq!((run.status.code(), failures(&run).len()), (Some(3), 1), "{}", run.stderr);
    let commands = commands(&run);
    assert!(commands.iter().all(|name| ["sh", "touch", "sleep"].contains(name)), "{commands:?}");
    assert_eq!(run.report().command("sh").unwrap()["count"], 1);
}

// Requirement: ALERT-12
#[test]
fn command_that_can_not_be_started_is_told() {
    let alerted = Alerted::new();
    let mut permissions = std::fs::metadata(alerted.directory.path()).unwrap().permissions();
    std::os::unix::fs::PermissionsExt::set_mode(&mut permissions, 0o777);
    std::fs::set_permissions(alerted.directory.path(), permissions).unwrap();
    let running = or_skip!(alerted.tracked(":", &[]).by_user(USER)).start();
    wait_until("the command", || alerted.path("began").exists());
    let user = become_user(USER);
    let mut limit = Command::new(&user[0]);
    limit.args(&user[1..]).args(["prlimit", "--nproc=0:0", "--pid"]).arg(running.pid().to_string());
    assert!(limit.status().unwrap().success());
    let stderr = running.path("stderr");
    wait_until("the failure", || std::fs::read_to_string(&stderr).unwrap().contains("could not be started"));
    alerted.make("told");
    alerted.make("over");
    let run = ended(running);
    assert_eq!(run.status.code(), Some(3), "{}", run.stderr);
    let failure = "the command of --on-alert could not be started: Resource temporarily unavailable";
    assert!(failures(&run).iter().any(|told| told == failure), "{}", run.stderr);
}

/// A launcher's part for a runner (the other arguments). Exits with how many other children it has got by the runner's end.
const LAUNCHER: &str = "\
import ctypes, os, sys
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER
words = ['gpu-track-run', '--as=gpu-track-alert', '/no/segment', str(os.getpid()), *sys.argv[2:]]
runner = os.posix_spawn(sys.argv[1], words, os.environ)
others = 0
try:
    while True:
        others += os.wait()[0] != runner
except ChildProcessError:
    sys.exit(min(others, 100))
";

/// A runner that gives CMD this time.
fn runner(most_ms: u32, command: &str) -> Command {
    let mut launcher = Command::new("python3");
    launcher.args(["-c", LAUNCHER, BINARY, &most_ms.to_string(), command]).stdin(Stdio::null());
    launcher
}

/// The result of a runner that gives CMD this time, and what it wrote to stderr. Nothing of CMD is left, not even for the launcher to
/// reap.
fn run_by_runner(most_ms: u32, command: &str) -> (Value, Vec<u8>) {
    let mark = leftovers::new_mark();
    let runner = runner(most_ms, command).env(leftovers::VARIABLE, &mark).output().unwrap();
    assert_eq!(leftovers::processes(&mark), [], "left of {command}");
    assert_eq!(runner.status.code(), Some(0), "children of the launcher by {command}");
    (serde_json::from_slice(&runner.stdout).unwrap(), runner.stderr)
}

/// What a runner tells of CMD.
fn outcome(failure: impl Into<Value>, is_cut: bool) -> Value {
    json!({"failure": failure.into(), "is_cut": is_cut})
}

fn too_long(is_cut: bool) -> Value {
    outcome(json!({"too_long": {"after_ms": 300, "left": 0}}), is_cut)
}

// Requirement: ALERT-11, ALERT-13
#[test]
fn command_that_takes_too_long_is_ended_with_all_that_it_started() {
    for command in [
        "sleep 1000",
        "trap '' TERM; while :; do sleep 0.01; done",
        // Daemons, of which one ignores SIGTERM, and one is stopped.
        "setsid sleep 1000 & (trap '' TERM; setsid sh -c 'sleep 1000' &) & setsid sh -c 'kill -STOP $$' & exit 0",
        "kill -STOP $$",
        // It has no output to be passed on.
        "exec >&- 2>&-; sleep 1000",
        "sleep 1000 | sleep 1000 & kill -9 $$",
    ] {
        assert_eq!(run_by_runner(300, command).0, too_long(false), "{command}");
    }
}

// Requirement: ALERT-12, ALERT-13
#[test]
fn end_of_the_command_is_told_as_it_was_and_its_output_is_bounded() {
    let good = outcome(Value::Null, false);
    assert_eq!(run_by_runner(60_000, "echo out; echo err >&2"), (good.clone(), b"out\nerr\n".to_vec()));
    assert_eq!(run_by_runner(60_000, "sleep 0.3 & exit 0").0, good, "what is left may end by itself");
    assert_eq!(run_by_runner(60_000, "no-such-program-at-all").0, outcome(json!({"exited": 127}), false));
    assert_eq!(run_by_runner(60_000, "kill -SEGV $$").0, outcome(json!({"killed": 11}), false));
    for (length, is_cut) in [(64 * 1024, false), (64 * 1024 + 1, true), (1_000_000_000, true)] {
        let (result, stderr) = run_by_runner(60_000, &format!("head -c {length} /dev/zero"));
        assert_eq!((result, stderr.len()), (outcome(Value::Null, is_cut), 64 * 1024), "{length}");
    }
}

/// A pipe that takes nothing more, and how much is in it.
fn full_pipe() -> (PipeReader, PipeWriter, usize) {
    let (reader, mut writer) = pipe().unwrap();
    rustix::io::ioctl_fionbio(&writer, true).unwrap();
    let mut length = 0;
    while let Ok(written) = writer.write(&[b'x'; 4096]) {
        length += written;
    }
    rustix::io::ioctl_fionbio(&writer, false).unwrap();
    (reader, writer, length)
}

// Requirement: ALERT-13
#[test]
fn stderr_that_takes_nothing_keeps_no_command_from_its_end() {
    let (_reader, stderr, _) = full_pipe();
    let runner = runner(300, "echo lost; sleep 1000").stderr(stderr).output().unwrap();
    assert_eq!(serde_json::from_slice::<Value>(&runner.stdout).unwrap(), too_long(true));
}

#[test]
fn output_reaches_a_stderr_that_takes_it_later() {
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path().to_str().unwrap();
    let (mut reader, stderr, length) = full_pipe();
    let command = format!("cd {place}; echo text; >said; until [ -e go ]; do sleep 0.02; done");
    let mut command = runner(60_000, &command);
    let runner = command.stdout(Stdio::piped()).stderr(stderr).spawn().unwrap();
    // It has the other end of the pipe.
    drop(command);
    wait_until("the output", || directory.path().join("said").exists());
    std::fs::write(directory.path().join("go"), "").unwrap();
    let mut text = vec![0; length];
    reader.read_exact(&mut text).unwrap();
    text.clear();
    reader.read_to_end(&mut text).unwrap();
    assert_eq!(text, b"text\n");
    let result: Value = serde_json::from_slice(&runner.wait_with_output().unwrap().stdout).unwrap();
    assert_eq!(result, outcome(Value::Null, false));
}

// Requirement: ALERT-12
#[test]
fn failure_is_told_on_a_stderr_that_takes_it_later() {
    let alerted = Alerted::new();
    let (reader, stderr, _) = full_pipe();
    let mut command = Command::new(BINARY);
    command.args(["--alert", "ram>100M", "--on-alert", "exit 5", "--events"]).arg(alerted.path("events"));
    command.arg("-o").arg(alerted.path("report.json"));
    command.args(["--", "sh", "-c", HOLDS, "sh", &program("touch")]).arg(alerted.directory.path());
    let mut launcher = command.stdin(Stdio::null()).stderr(stderr).spawn().unwrap();
    // It has the other end of the pipe.
    drop(command);
    wait_until("the failure", || alerted.text("events").contains("\"error\""));
    let mut lines = BufReader::new(reader).lines().map(Result::unwrap);
    let line = "alert ram>100M (warning): the command of --on-alert exited with status 5";
    assert!(lines.any(|told| told.contains(line)));
    alerted.make("told");
    alerted.make("over");
    lines.for_each(drop);
    assert_eq!(launcher.wait().unwrap().code(), Some(3));
}

/// The runner needs 2 s for the end of CMD.
// Requirement: ALERT-13
#[test]
fn stderr_is_let_go_of_before_the_command_is_ended() {
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path().to_str().unwrap();
    let (mut reader, stderr) = pipe().unwrap();
    let command =
        format!("cd {place}; trap '' TERM; echo $$ >shell; echo text; while :; do sleep 0.02; done");
    let runner = Command::new(BINARY)
        .args(["--as=gpu-track-alert", "/no/segment", &std::process::id().to_string(), "2000", &command])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(stderr)
        .spawn()
        .unwrap();
    let mut text = String::new();
    reader.read_to_string(&mut text).unwrap();
    let shell = std::fs::read_to_string(directory.path().join("shell")).unwrap();
    assert!(Path::new("/proc").join(shell.trim()).exists(), "stderr was held until the command's end");
    assert_eq!(text, "text\n");
    let result: Value = serde_json::from_slice(&runner.wait_with_output().unwrap().stdout).unwrap();
    assert_eq!(result, outcome(json!({"too_long": {"after_ms": 2000, "left": 0}}), false));
}

// Requirement: ALERT-12
#[test]
fn output_that_is_cut_is_told_unless_the_launcher_is_quiet() {
    for (options, is_told) in [(&[][..], true), (&["--quiet"], false)] {
        let alerted = Alerted::new();
        let command = "[ $GPU_TRACK_EVENT = warning ] || { >over; exit 0; }; head -c 70000 /dev/zero; >told";
        let run = ended(alerted.tracked(command, options).start());
        let line =
            "gpu-track-run: alert ram>100M (warning): not all that the command of --on-alert wrote is shown";
        assert_eq!(run.stderr.contains(line), is_told, "{}", run.stderr.trim_matches('\0'));
    }
}

/// Two alerts go on. The second has its turn after the tracked command's end.
// Requirement: ALERT-11
#[test]
fn pid_of_the_tracked_command_is_told_while_it_lives() {
    let alerted = Alerted::new();
    let directory = alerted.directory.path().to_str().unwrap();
    let command = format!(
        "cd {directory}; echo ${{GPU_TRACK_COMMAND_PID:-none}} >>pids; until [ -e go ]; do sleep 0.02; done"
    );
    let lasting = format!("( (until [ -e \"$2/last\" ]; do sleep 0.02; done) & ); {HOLDS}");
    let words = ["sh", "-c", &lasting, "sh", &program("touch"), directory];
    let options = ["--wait-all", "--alert", "ram>100M,ram>50M", "--on-alert", &command];
    let running = tracked(words).options(&options).leaves_processes().start();
    let stderr = running.path("stderr");
    wait_until("two alerts", || std::fs::read_to_string(&stderr).unwrap().lines().count() == 2);
    let pids = || alerted.text("pids").lines().map(str::to_owned).collect::<Vec<_>>();
    wait_until("the first turn", || !pids().is_empty());
    let main = Path::new("/proc").join(&pids()[0]);
    assert!(main.exists());
    alerted.make("told");
    alerted.make("over");
    wait_until("the end of the tracked command", || !main.exists());
    alerted.make("go");
    wait_until("the second turn", || pids().len() > 1);
    assert_eq!(pids()[1], "none");
    alerted.make("last");
    ended(running);
}

// Requirement: ALERT-11
#[test]
fn command_is_told_which_process_the_run_attached_to() {
    let alerted = Alerted::new();
    let mut process = Command::new(program("touch")).args(["hold", "200000000", "1000000"]).spawn().unwrap();
    let directory = alerted.directory.path().to_str().unwrap();
    let command =
        format!("cd {directory}; echo \"$GPU_TRACK_COMMAND_PID $GPU_TRACK_COMMAND\" >new; mv new facts");
    let attach = ["--attach", &process.id().to_string(), "--alert", "ram>100M", "--on-alert", &command];
    let running = tracked([""; 0]).options(&attach).leaves_processes().start();
    wait_until("CMD", || alerted.path("facts").exists());
    kill(running.pid(), libc::SIGTERM);
    assert_eq!(ended(running).status.code(), Some(0));
    let expected = format!("{} {} hold 200000000 1000000\n", process.id(), program("touch"));
    assert_eq!(alerted.text("facts"), expected);
    process.kill().unwrap();
    process.wait().unwrap();
}

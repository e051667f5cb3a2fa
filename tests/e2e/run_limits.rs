//! `--limit` and `--signal-at`: the tree ends as a whole, and the report says why.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::support::cgroup::Group;
use crate::support::programs::compiled;
use crate::support::run::{Run, become_user};
use crate::support::{installed, is_root, kill, or_skip, program, skip, tracked, wait_until};

/// Longer than any test runs.
const LONG: &str = "1000";

/// The number of an ordinary user.
const NOBODY: u32 = 65534;

/// Runs a shell script under these options. Nothing of its tree may be left: that is checked of every run.
fn limited(options: &[&str], script: &str) -> Run {
    tracked(["sh", "-c", script]).options(options).run()
}

/// The cause of the command's end, which is a limit.
fn cause(run: &Run) -> &Value {
    let cause = run.report().at("exit.cause");
    assert_eq!(cause["kind"], "limit", "{cause}");
    cause
}

// Requirement: LIMIT-2, LIMIT-5
#[test]
fn wall_time_ends_the_command_with_the_status_of_timeout() {
    let run = tracked(["sleep", LONG]).options(&["--limit", "wall=300ms"]).run();
    assert_eq!(run.status.code(), Some(124), "{}", run.stderr);
    assert!(
        run.stderr.starts_with("gpu-track-run: limit wall=300ms exceeded: the time was over"),
        "{}",
        run.stderr
    );
    let cause = cause(&run);
    assert_eq!((&cause["enforced_by"], &cause["was_killed"]), (&"timer".into(), &false.into()), "{cause}");
    assert!(cause["at_s"].as_f64().unwrap() >= 0.3, "{cause}");
    assert_eq!(cause["process"]["command"], "sleep", "{cause}");
    assert_eq!(run.report().at("exit.signal"), libc::SIGTERM);
}

/// The status of a script under timeout(1), as a shell says it.
fn under_timeout(script: &str) -> Option<i32> {
    let status = Command::new("timeout").args(["-k", "0.2", "1", "sh", "-c", script]).status().unwrap();
    status.code().or(status.signal().map(|signal| 128 + signal))
}

// Requirement: LIMIT-5
#[test]
fn statuses_are_those_of_timeout() {
    for (script, code) in [
        ("exec sleep 1000", 124),
        ("trap 'exit 0' TERM; while :; do sleep 0.01; done", 124),
        ("trap '' TERM; while :; do sleep 0.01; done", 137),
        ("exit 3", 3),
    ] {
        let limit = if code == 3 { "wall=1h" } else { "wall=1s" };
        let run = limited(&["--limit", limit, "--kill-after", "200ms"], script);
        assert_eq!(
            (run.status.code(), under_timeout(script)),
            (Some(code), Some(code)),
            "{script}: {}",
            run.stderr
        );
    }
}

// Requirement: LIMIT-2
#[test]
fn process_that_ends_the_tree_is_not_of_it() {
    for layers in ["preload,wait,subreaper,scan,connector", "preload,wait,subreaper,scan"] {
        let options = ["--limit", "wall=300ms", "--kill-after", "300ms", "--layers", layers];
        let run = limited(&options, "trap '' TERM; while :; do :; done");
        assert_eq!(run.status.code(), Some(137), "{}", run.stderr);
        let commands = run.report().array("processes.by_command");
        assert!(commands.iter().all(|command| command["command"] == "sh"), "{commands:?}");
        assert_eq!(run.report().command("sh").unwrap()["count"], 1);
    }
}

// Requirement: LIMIT-3
#[test]
fn ram_above_its_limit_ends_the_tree_with_the_process_that_held_most() {
    let run = tracked([program("touch").as_str(), "hold", "200000000", "1000"])
        .options(&["--limit", "ram=100M"])
        .run();
    assert_eq!(run.status.code(), Some(124), "{}", run.stderr);
    let (cause, report) = (cause(&run), run.report());
    assert_eq!((&cause["quantity"], &cause["unit"]), (&"ram".into(), &"bytes".into()));
    assert_eq!(cause["allowed"], 104_857_600.0);
    assert!(cause["amount"].as_f64().unwrap() > 104_857_600.0, "{cause}");
    assert_eq!((&cause["process"]["command"], &cause["enforced_by"]), (&"touch".into(), &"samples".into()));
    let overshoot = report.u64("max_ram_bytes.combined.total_rss") - 104_857_600;
    assert_eq!(cause["overshoot_bytes"], overshoot);
    let limits = report.array("run_limits");
    assert_eq!(
        (limits.len(), &limits[0]["limit"], &limits[0]["action"]),
        (1, &"ram=100M".into(), &"end".into())
    );
    assert_eq!(limits[0]["exceeded_at_s"], cause["at_s"]);
}

// Requirement: LIMIT-3
#[test]
fn child_that_held_too_much_for_a_moment_exceeds_the_limit_too() {
    let script = format!("{} execs 1 300000000 30; exec sleep {LONG}", program("touch"));
    let run = limited(&["--limit", "ram=100M", "--st", "10"], &script);
    assert_eq!(run.status.code(), Some(124), "{}", run.stderr);
    assert!(cause(&run)["amount"].as_f64().unwrap() > 104_857_600.0, "{}", cause(&run));
}

// Requirement: LIMIT-3
#[test]
fn percentages_are_of_what_the_run_may_use() {
    let run = tracked(["true"]).options(&["--limit", "ram=50%"]).run();
    let limits = run.assert_clean(0).array("run_limits");
    let usable = run.report().f64("usable.memory.bytes");
    assert!((limits[0]["allowed"].as_f64().unwrap() - usable / 2.0).abs() <= 1.0, "{limits:?}");
    assert!(limits[0]["exceeded_at_s"].is_null() && limits[0]["amount"].is_null(), "{limits:?}");
}

// Requirement: LIMIT-3
#[test]
fn cpu_time_and_processes_have_limits() {
    let run = limited(&["--limit", "cpu=200ms"], "while :; do :; done");
    assert_eq!(run.status.code(), Some(124), "{}", run.stderr);
    assert!(cause(&run)["amount"].as_f64().unwrap() >= 0.2);
    assert_eq!(cause(&run)["quantity"], "cpu");
    let run = limited(&["--limit", "processes=5"], "for i in 1 2 3 4 5 6 7 8; do sleep 1000 & done; wait");
    assert_eq!(run.status.code(), Some(124), "{}", run.stderr);
    let cause = cause(&run);
    assert!((6.0..=9.0).contains(&cause["amount"].as_f64().unwrap()), "{cause}");
    assert_eq!((&cause["unit"], cause["allowed"].as_f64()), (&"processes".into(), Some(5.0)));
}

// Requirement: LIMIT-4
#[test]
fn every_process_of_the_tree_is_ended() {
    let daemon = program("daemon");
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("pid");
    // A daemon of its own session, a stopped process, one that ignores SIGTERM, and one whose first thread has ended.
    let script = format!(
        "{daemon} double {}; sleep {LONG} & kill -STOP $!; (trap '' TERM; while :; do sleep 0.05; done) & \
         setsid sleep {LONG} & wait",
        file.display()
    );
    let options = ["--limit", "wall=2s", "--kill-after", "300ms"];
    let run = limited(&options, &script);
    assert!(file.exists(), "the daemon ran");
    assert_eq!(run.status.code(), Some(137), "{}", run.stderr);
    assert_eq!(run.report().u64("processes.still_running"), 0);
    assert_eq!((&cause(&run)["was_killed"], &cause(&run)["left"]), (&true.into(), &0.into()));
}

// Requirement: LIMIT-4, LIMIT-64
#[test]
fn process_that_cleans_up_at_sigterm_may_start_others() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("saved").display().to_string();
    let script =
        format!("trap 'sh -c \"sleep 0.3; echo state >{file}\"; exit 0' TERM; while :; do sleep 0.01; done");
    let run = limited(&["--limit", "wall=1s"], &script);
    assert_eq!(run.status.code(), Some(124), "{}", run.stderr);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "state\n", "its clean-up was not disturbed");
    assert_eq!((run.report().at("exit.code"), &cause(&run)["was_killed"]), (&0.into(), &false.into()));
}

// Requirement: LIMIT-4
#[test]
fn fork_bomb_is_ended() {
    // It ends by itself after 4,000 processes.
    let bomb =
        "trap '' TERM; f() { [ $1 -ge 11 ] && exec sleep 1000; f $(($1+1)) & f $(($1+1)); wait; }; f 0";
    let run = limited(&["--limit", "processes=200", "--kill-after", "100ms"], bomb);
    assert_eq!(run.status.code(), Some(137), "{}", run.stderr);
    assert_eq!((&cause(&run)["left"], run.report().u64("processes.still_running")), (&0.into(), 0));
}

// Requirement: LIMIT-4
#[test]
fn processes_that_the_command_left_are_ended_under_wait_all() {
    let script = format!("sleep {LONG} & exit 0");
    let run = limited(&["--wait-all", "--limit", "wall=300ms"], &script);
    assert_eq!(run.status.code(), Some(124), "{}", run.stderr);
    assert_eq!(run.report().u64("processes.still_running"), 0);
}

// Requirement: LIMIT-4
#[test]
fn children_of_the_program_that_became_the_launcher_are_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("pid").display().to_string();
    let before = format!("sleep {LONG} & echo $! >{file}; exec \"$@\"");
    let run = tracked(["sleep", LONG])
        .options(&["--limit", "wall=300ms"])
        .through(&["sh", "-c", &before, "sh"])
        .leaves_processes()
        .run();
    assert_eq!(run.status.code(), Some(124), "{}", run.stderr);
    let stranger: u32 = std::fs::read_to_string(&file).unwrap().trim().parse().unwrap();
    let name = std::fs::read_to_string(format!("/proc/{stranger}/comm"));
    kill(stranger, libc::SIGKILL);
    assert_eq!(name.unwrap(), "sleep\n", "it was ended");
}

// Requirement: LIMIT-4
#[test]
fn run_within_the_run_ends_with_its_command_and_writes_its_report() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).display().to_string();
    let (report, terms) = (path("inner.json"), path("terms"));
    let inner = format!("trap 'echo >>{terms}; exit 5' TERM; while :; do sleep 0.01; done");
    let words = [crate::support::run::BINARY, "-o", &report, "--", "sh", "-c", &inner];
    let run = tracked(words).options(&["--limit", "wall=3s"]).run();
    assert_eq!(run.status.code(), Some(124), "{}", run.stderr);
    let inner: Value = serde_json::from_slice(&std::fs::read(&report).unwrap()).unwrap();
    assert_eq!((&inner["stage"], &inner["exit"]["code"]), (&"final".into(), &5.into()));
    assert_eq!(std::fs::read_to_string(&terms).unwrap(), "\n", "its command got one SIGTERM");
}

// Requirement: LIMIT-4
#[test]
fn processes_that_are_started_while_their_parent_is_ended_are_ended_too() {
    let run = limited(&["--limit", "processes=50"], "while :; do sleep 1000 & done");
    assert_eq!(run.status.code(), Some(124), "{}", run.stderr);
    assert_eq!((&cause(&run)["was_killed"], &cause(&run)["left"]), (&false.into(), &0.into()));
}

// Requirement: LIMIT-63
#[test]
fn command_is_ended_where_proc_is_of_another_namespace() {
    let mut probe = Command::new("unshare");
    if !probe.args(["-pf", "true"]).status().is_ok_and(|status| status.success()) {
        skip!("no pid namespace can be made");
    }
    let through = ["unshare", "-pf"];
    let run = tracked(["sleep", LONG]).options(&["--limit", "wall=500ms"]).through(&through).run();
    assert_eq!(run.status.code(), Some(124), "{}", run.stderr);
}

// Requirement: LIMIT-10
#[test]
fn children_that_ended_before_anything_told_of_it_do_not_count() {
    // SIGKILL leaves them no record.
    let script = "i=0; while [ $i -lt 300 ]; do sh -c 'kill -KILL $$' 2>/dev/null; i=$((i+1)); done; exit 3";
    let run = limited(&["--limit", "processes=20"], script);
    assert_eq!(run.status.code(), Some(3), "{}", run.stderr);
}

// Requirement: LIMIT-10
#[test]
fn command_that_ended_before_its_limit_could_act_is_not_ended_by_it() {
    // Its last record tells that it held too much.
    let run = tracked([program("touch").as_str(), "execs", "1", "200000000", "1"])
        .options(&["--limit", "ram=100M", "--st", "10"])
        .run();
    if run.status.code() == Some(0) {
        assert!(run.report().at("exit.cause").is_null(), "{}", run.report().at("exit.cause"));
    } else {
        assert_eq!((run.status.code(), &cause(&run)["quantity"]), (Some(124), &"ram".into()));
    }
}

// Requirement: LIMIT-7
#[test]
fn command_gets_its_signal_once_and_runs_on() {
    let script =
        "n=0; trap 'n=$((n+1))' USR1; i=0; while [ $i -lt 150 ]; do sleep 0.01; i=$((i+1)); done; echo $n";
    let run = limited(&["--signal-at", "wall>1s=USR1"], script);
    assert_eq!((run.status.code(), run.stdout.as_str()), (Some(0), "1\n"), "{}", run.stderr);
    let limits = run.report().array("run_limits");
    assert_eq!(limits[0]["action"], "SIGUSR1");
    assert!(limits[0]["exceeded_at_s"].as_f64().unwrap() >= 1.0, "{limits:?}");
    assert!(run.report().at("exit.cause").is_null());
}

// Requirement: LIMIT-9
#[test]
fn command_in_which_nothing_happens_is_ended() {
    let run = tracked(["sleep", LONG]).options(&["--limit", "stall=2s"]).run();
    assert_eq!(run.status.code(), Some(124), "{}", run.stderr);
    assert_eq!((&cause(&run)["quantity"], &cause(&run)["unit"]), (&"stall".into(), &"seconds".into()));
}

// Requirement: LIMIT-10
#[test]
fn limit_that_is_not_exceeded_changes_nothing() {
    let all = "ram=1T,gpu_ram=1T,cpu=1d,wall=1d,processes=100000,stall=1d,gpu_idle=1d";
    let run = tracked(["sh", "-c", "echo out; exit 3"]).options(&["--limit", all]).run();
    assert_eq!((run.status.code(), run.stdout.as_str(), run.stderr.as_str()), (Some(3), "out\n", ""));
    assert!(run.report().array("run_limits").iter().all(|limit| limit["exceeded_at_s"].is_null()));
    assert!(run.report().at("exit.cause").is_null());
}

/// A run of `program` under a limit of RAM in a cgroup of its own, as far as the kernel gives it one. `through`: what starts the
/// launcher.
fn in_own_cgroup(program: &str, through: &[String]) -> Run {
    let through: Vec<&str> = through.iter().map(String::as_str).collect();
    let options = ["--cgroup", "--limit", "ram=100M"];
    tracked([program, "hold", "200000000", "1000"]).options(&options).through(&through).run()
}

// Requirement: LIMIT-8
#[test]
fn kernel_holds_the_limit_of_ram_in_the_commands_own_cgroup() {
    let group = or_skip!(Group::v2("memory"));
    if installed("musl-gcc").is_none() {
        skip!("musl-gcc is not installed");
    }
    // Samples count the pages of libraries, which the kernel charged to other groups, and could act before it (LIMIT-65).
    let program = compiled("touch", "musl-gcc", &["-static"]);
    let run = in_own_cgroup(&program, &group.enter());
    assert_eq!(run.status.signal(), Some(libc::SIGKILL), "{}", run.stderr);
    assert_eq!(run.report().at("exit.cause.enforced_by"), "kernel");
    assert!(run.report().u64("exit.cause.overshoot_bytes") < 1_048_576);
}

// Requirement: LIMIT-8
#[test]
fn samples_hold_the_limit_of_ram_where_the_kernel_does_not() {
    if Group::v2("memory").is_ok() {
        skip!("the kernel holds it here");
    }
    let run = in_own_cgroup(&program("touch"), &[]);
    assert_eq!(run.status.code(), Some(124), "{}", run.stderr);
    assert_eq!(cause(&run)["enforced_by"], "samples");
    let limits = run.report().array("run_limits");
    // Without any cgroup, a warning about that says why.
    assert_eq!(limits[0]["reason"].is_string(), run.report().at("cgroup.path").is_string(), "{limits:?}");
}

/// Makes a copy of setpriv(1) that runs as root whoever starts it. The error is the reason why there is none.
fn setuid_root(directory: &Path) -> Result<String, String> {
    let copy = directory.join("setpriv");
    let set_mode = |path: &Path, mode| std::fs::set_permissions(path, PermissionsExt::from_mode(mode));
    std::fs::copy(installed("setpriv").ok_or("setpriv is not installed")?, &copy)
        .map_err(|error| error.to_string())?;
    set_mode(directory, 0o755).and_then(|()| set_mode(&copy, 0o4755)).map_err(|error| error.to_string())?;
    let user = become_user(NOBODY);
    let output =
        Command::new(&user[0]).args(&user[1..]).arg(&copy).args(["--reuid", "0", "id", "-u"]).output();
    let is_root = output.is_ok_and(|output| output.stdout == b"0\n");
    is_root.then(|| copy.display().to_string()).ok_or_else(|| "setuid has no effect here".to_owned())
}

// Requirement: LIMIT-54
#[test]
fn setuid_descendant_that_may_not_be_signalled_is_named() {
    if !is_root() {
        skip!("needs root, for a setuid program");
    }
    let directory = tempfile::tempdir().unwrap();
    let setpriv = or_skip!(setuid_root(directory.path()));
    // A signal is allowed by the real and the saved user id, so the program sets all of them.
    let script = format!("sleep {LONG} & {setpriv} --reuid 0 --regid 0 --clear-groups sleep {LONG}");
    let run = tracked(["sh", "-c", &script])
        .options(&["--limit", "wall=2s", "--kill-after", "200ms"])
        .leaves_processes();
    let run = or_skip!(run.by_user(NOBODY)).run();
    let left = run.report().array("processes.still_running_processes");
    for process in left {
        kill(u32::try_from(process["pid"].as_u64().unwrap()).unwrap(), libc::SIGKILL);
    }
    // Every process that may be ended has ended by SIGTERM.
    assert_eq!(run.status.code(), Some(124), "{}", run.stderr);
    assert!(run.stderr.contains("1 process could not be ended"), "{}", run.stderr);
    assert_eq!((&cause(&run)["was_killed"], &cause(&run)["left"]), (&false.into(), &1.into()));
    let commands: Vec<&Value> = left.iter().map(|process| &process["command"]).collect();
    assert_eq!(commands, ["sleep"]);
}

// Requirement: LIMIT-6
#[test]
fn limit_holds_after_the_collector_was_killed() {
    let running = tracked(["sleep", LONG]).options(&["--limit", "wall=4s"]).start();
    running.wait_for_collector();
    running.replace_collector();
    let run = running.wait();
    assert_eq!(run.status.code(), Some(124), "{}", run.stderr);
    cause(&run);
}

// Requirement: LIMIT-6
#[test]
fn collector_ends_the_tree_where_the_launcher_was_killed() {
    let directory = tempfile::tempdir().unwrap();
    let go = directory.path().join("go");
    let script = format!(
        "echo ready; until [ -e {0} ]; do sleep 0.05; done; sleep {LONG} & sleep {LONG} & wait",
        go.display()
    );
    let running = tracked(["sh", "-c", &script]).options(&["--limit", "processes=2"]).start();
    running.wait_for_output("ready");
    let collector = running.collector().expect("a collector runs");
    kill(running.pid(), libc::SIGKILL);
    std::fs::write(&go, "").unwrap();
    // The session's files are removed somewhat before the collector ends.
    wait_until("the collector's end", || !std::path::Path::new(&format!("/proc/{collector}")).exists());
    let run = running.wait();
    assert_eq!(run.status.signal(), Some(libc::SIGKILL));
    assert_eq!((&cause(&run)["quantity"], &cause(&run)["left"]), (&"processes".into(), &0.into()));
    assert_eq!(run.report().u64("processes.still_running"), 0);
}

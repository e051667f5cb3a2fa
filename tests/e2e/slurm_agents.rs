//! `--nodes=auto` in a job of Slurm: a step of agents tracks the other nodes. Here, a program called srun starts them as Slurm
//! does, and another directory stands for another node's /dev/shm. With a cluster (GPU_TRACK_TEST_CLUSTER), Slurm does it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::support::cluster::{IN_JOB, cluster, on_host, on_node, on_slurm, run_in};
use crate::support::programs::{can_build, compiled};
use crate::support::run::{BINARY, Tracked, tracked};
use crate::support::{kill, or_skip, program, skip, wait_until};

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A directory with an srun that starts agents by this script, and commands of the user on this node.
fn with_srun(script: &str) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("srun");
    fs::write(&path, format!("#!/bin/sh\n[ \"$1\" = --jobid ] || exec \"$@\"\n{script}\n")).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    directory
}

/// An srun that starts a task on this node, and one on a node whose /dev/shm is its own directory.
fn two_nodes() -> tempfile::TempDir {
    with_srun(
        "while [ \"$1\" != sh ]; do shift; done\n\
         sh -c \"$3\" </dev/null\n\
         echo $$ >${0%/*}/agent\n\
         exec sh -c \"$(printf %s \"$3\" | sed \"s#:/dev/shm/#:${0%/*}/#g\")\"",
    )
}

/// A run of srun with this shell script over the nodes of a job of Slurm. `$OTHER` begins a command on the other node.
fn in_job(script: &str, srun: &Path, report: &Path) -> Tracked {
    command_in_job(&["srun", "sh", "-c"], script, srun, report)
}

/// A run of this command, whose last word is this shell script, over the nodes of a job of Slurm.
fn command_in_job(command: &[&str], script: &str, srun: &Path, report: &Path) -> Tracked {
    let directory = srun.display().to_string();
    let path = format!("{directory}:{}", std::env::var("PATH").unwrap());
    let moved = format!("$(printf %s \"$GPU_TRACK_SESSION\" | sed s#/dev/shm#{directory}#)");
    let script = script.replace("$OTHER", &format!("GPU_TRACK_SESSION={moved}"));
    tracked(command.iter().copied().chain([&*script]))
        .only_options(&["-q", "-o", report.to_str().unwrap()])
        .starts_agents()
        .with(move |command| {
            command.env("PATH", path).envs([("SLURM_JOB_ID", "7"), ("SLURM_JOB_NUM_NODES", "2")])
        })
}

/// The report of the agent or of the launcher's node, if there is one.
fn of_node(report: &Path, is_agent: bool) -> Option<Value> {
    let directory = PathBuf::from(format!("{}.d", report.display()));
    let files = fs::read_dir(directory).ok()?.map(|entry| entry.unwrap().path());
    let reports = files.filter_map(|file| serde_json::from_slice::<Value>(&fs::read(file).ok()?).ok());
    reports.filter(Value::is_object).find(|report| report["node_part"]["is_agent"] == is_agent)
}

// Requirement: NODE-14
#[test]
fn what_runs_on_another_node_of_the_job_is_in_the_report() {
    let (srun, directory) = (two_nodes(), tempfile::tempdir().unwrap());
    let report = directory.path().join("r.json");
    // Signals that Slurm sends to all steps do not end an agent.
    let script = format!(
        "kill -TERM $(cat {}/agent); $OTHER sh -c '/bin/true; exit 5'; exit 3",
        srun.path().display()
    );
    let run = in_job(&script, srun.path(), &report).run();
    assert_eq!((run.status.code(), &*run.stderr), (Some(3), ""));
    let agent = of_node(&report, true).unwrap();
    // The shell and its child. The agent is none, and there is no command.
    assert_eq!((&agent["processes"]["total"], &agent["stage"]), (&2.into(), &"final".into()), "{agent}");
    assert_eq!((&agent["warnings"], &agent["command"]), (&Value::Array(vec![]), &Value::Array(vec![])));
    let merged: Value = serde_json::from_slice(&fs::read(&report).unwrap()).unwrap();
    assert_eq!((&merged["merged"]["files"]["read"], &merged["exit"]["code"]), (&2.into(), &3.into()));
    let left: Vec<_> = fs::read_dir(srun.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left.len(), 2, "the agent's segment: {left:?}");
}

/// Programs start srun by exec, and by posix_spawn as Python's subprocess can.
// Requirement: NODE-66
#[test]
fn agents_start_when_the_tree_starts_srun_and_not_before() {
    let (srun, directory) = (two_nodes(), tempfile::tempdir().unwrap());
    let report = directory.path().join("r.json");
    let read = || serde_json::from_slice::<Value>(&fs::read(&report).unwrap()).unwrap();
    let run = command_in_job(&["sh", "-c"], "/bin/true; exit 3", srun.path(), &report).run();
    assert_eq!((run.status.code(), &*run.stderr), (Some(3), ""));
    assert!(read()["merged"].is_null() && of_node(&report, true).is_none());
    let mark = srun.path().join("agent");
    assert!(!mark.exists(), "no step was started");
    let spawn =
        "python3 -c \"import os; os.waitpid(os.posix_spawnp('srun', ['srun', 'true'], os.environ), 0)\"";
    // The launcher does not answer for a while: srun starts all the same, and agents later. Then this waits for the other node's segment.
    let stopped = format!(
        "kill -STOP $PPID; srun true; kill -CONT $PPID; until ls {}/gpu-track.* >/dev/null 2>&1; do :; done",
        srun.path().display()
    );
    for start in ["srun true", spawn, &stopped] {
        let _ = fs::remove_file(&mark);
        let started = format!("until [ -e {} ]; do :; done", mark.display());
        let script = format!("{start}; {started}; $OTHER sh -c '/bin/true; exit 5'; exit 3");
        let run = command_in_job(&["sh", "-c"], &script, srun.path(), &report).run();
        assert_eq!((run.status.code(), &*run.stderr), (Some(3), ""), "{start}");
        let agent = of_node(&report, true).unwrap();
        assert_eq!(agent["stage"], "final");
        assert!(start == stopped || agent["processes"]["total"] == 2, "{start}: {}", agent["processes"]);
        let merged = read();
        assert_eq!((&merged["merged"]["files"]["read"], &merged["exit"]["code"]), (&2.into(), &3.into()));
        // The process that starts the agents is none of the run.
        let own = of_node(&report, false).unwrap();
        assert!(!own["processes"]["by_command"].to_string().contains("gpu-track"), "{}", own["processes"]);
        // A program that did not wait may have started something there before.
        assert_eq!(
            own["node_part"]["ready_s"].is_number(),
            start != stopped,
            "{start}: {}",
            own["node_part"]
        );
    }
}

/// srun waits for the agents for a while only.
// Requirement: NODE-66
#[test]
fn node_whose_agent_came_too_late_is_said_to_be_missing() {
    let (directory, srun) = (tempfile::tempdir().unwrap(), with_srun("exec cat"));
    let report = directory.path().join("r.json");
    let run = command_in_job(&["sh", "-c"], "srun true; exit 3", srun.path(), &report).run();
    assert_eq!((run.status.code(), &*run.stderr), (Some(3), ""));
    let report: Value = serde_json::from_slice(&fs::read(&report).unwrap()).unwrap();
    assert_eq!(report["coverage"]["nodes"]["unseen"], 1, "{}", report["coverage"]);
    let warnings = report["warnings"].to_string();
    assert!(
        warnings.contains("Not tracked: 1 of the job's nodes. Their agents left no report."),
        "{warnings}"
    );
    assert_eq!(report["hints"]["withheld"], "nodes of the job are not in this report");
}

// Requirement: NODE-38
#[test]
fn node_of_the_job_without_the_program_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let report = directory.path().join("r.json");
    let srun = with_srun(&format!(
        "while [ \"$1\" != sh ]; do shift; done\n\
         sh -c \"$3\" </dev/null\n\
         exec sh -c \"$(printf %s \"$3\" | sed 's#{BINARY}#/nonexistent#g')\"",
    ));
    let run = in_job("exit 3", srun.path(), &report).run();
    assert_eq!((run.status.code(), &*run.stderr), (Some(3), ""));
    let report: Value = serde_json::from_slice(&fs::read(&report).unwrap()).unwrap();
    let warnings = report["warnings"].to_string();
    assert!(warnings.contains("gpu-track-run is missing there: "), "{warnings}");
}

// Requirement: NODE-22
#[test]
fn report_that_stays_on_a_node_is_named_with_its_path_and_can_be_merged() {
    let (directory, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let report = directory.path().join("r.json");
    // The other node does not see the directory.
    let srun = with_srun(
        "while [ \"$1\" != sh ]; do shift; done\n\
         sh -c \"$3\" </dev/null\n\
         exec sh -c \"$(printf %s \"$3\" | sed \"s#:/dev/shm/#:${0%/*}/#g; s#:[^: ]*\\(/r.json.d\\)#:/nonexistent\\1#g\")\"",
    );
    let home = state.path().to_owned();
    let run = in_job("$OTHER sh -c '/bin/true; exit 5'; exit 3", srun.path(), &report)
        .with(move |command| command.env("XDG_STATE_HOME", home))
        .run();
    assert_eq!((run.status.code(), &*run.stderr), (Some(3), ""));
    let read = |path: &Path| serde_json::from_slice::<Value>(&fs::read(path).unwrap()).unwrap();
    let of_launcher = read(&report);
    let [left] = &of_launcher["coverage"]["left_reports"].as_array().unwrap()[..] else {
        panic!("{}", of_launcher["coverage"])
    };
    assert_eq!(left["is_certain"], true);
    let path = PathBuf::from(left["path"].as_str().unwrap());
    assert!(path.starts_with(state.path().join("gpu-track/nodes/r.json.d")), "{left}");
    let warnings = of_launcher["warnings"].to_string();
    assert!(
        warnings.contains(&format!("{}:{}", left["node"].as_str().unwrap(), path.display())),
        "{warnings}"
    );
    assert_eq!(read(&path)["stage"], "final");
    let shared = PathBuf::from(format!("{}.d", report.display()));
    fs::copy(&path, shared.join(path.file_name().unwrap())).unwrap();
    let mut merge = Command::new(env!("CARGO_BIN_EXE_gpu-track"));
    let merged = merge.args(["merge", "-f", "json"]).arg(&shared).output().unwrap();
    let merged: Value = serde_json::from_slice(&merged.stdout).unwrap();
    assert_eq!(merged["merged"]["files"]["read"], 2, "{}", merged["merged"]);
    let [all, own] = [&merged, &of_launcher].map(|report| report["processes"]["total"].as_u64().unwrap());
    assert_eq!(all, own + 2, "the shell there and its child");
    assert!(merged["coverage"]["left_reports"].is_null());
}

// Requirement: NODE-14
#[test]
fn agents_are_no_part_of_the_run_and_change_no_figure_of_it() {
    let (srun, directory) = (two_nodes(), tempfile::tempdir().unwrap());
    let report = directory.path().join("r.json");
    let run = in_job(":", srun.path(), &report).run();
    assert_eq!((run.status.code(), &*run.stderr), (Some(0), ""));
    let launcher = of_node(&report, false).unwrap();
    assert_eq!((&launcher["processes"]["total"], &launcher["warnings"]), (&1.into(), &Value::Array(vec![])));
    let merged: Value = serde_json::from_slice(&fs::read(&report).unwrap()).unwrap();
    for key in ["cpu_time", "io", "faults"] {
        let figures = |report: &Value| {
            let all = report[key].as_object().unwrap().iter();
            all.filter(|(_, value)| value.is_number()).count()
        };
        assert_eq!(figures(&merged), figures(&launcher), "{key}: {}", merged[key]);
    }
    let [all, own] = [&merged, &launcher].map(|report| report["wall_s"].as_f64().unwrap());
    assert!((all - own).abs() < 0.002, "{all} {own}");
}

// Requirement: NODE-14
#[test]
fn signal_that_comes_before_the_command_ends_it() {
    let directory = tempfile::tempdir().unwrap();
    let report = directory.path().join("r.json");
    let waits = with_srun("echo >${0%/*}/begun; cat");
    let running = in_job("exec sleep 60", waits.path(), &report).start();
    wait_until("srun", || waits.path().join("begun").exists());
    kill(running.pid(), libc::SIGTERM);
    assert_eq!(running.wait().status.signal(), Some(libc::SIGTERM));
}

// Requirement: NODE-14
#[test]
fn agent_ends_with_its_last_report_where_the_launcher_is_killed() {
    let (srun, directory) = (two_nodes(), tempfile::tempdir().unwrap());
    let report = directory.path().join("r.json");
    let running = in_job("$OTHER sh -c 'kill -9 $PPID; kill -9 '$PPID", srun.path(), &report).start();
    let stage = || of_node(&report, true).map(|report| report["stage"].clone());
    wait_until("the agent's last report", || stage() == Some("final".into()));
    drop(running);
}

// Requirement: NODE-39, NODE-67
#[test]
fn report_of_all_is_made_where_the_launcher_is_killed_and_that_of_one_node_names_it() {
    let (srun, directory) = (two_nodes(), tempfile::tempdir().unwrap());
    let report = directory.path().join("r.json");
    let running = in_job("$OTHER sh -c 'kill -9 $PPID; kill -9 '$PPID", srun.path(), &report).start();
    let read = || serde_json::from_slice::<Value>(&fs::read(&report).ok()?).ok();
    // Whoever is last makes it: the agent, or the launcher's collector.
    let is_of_all = |report: &Value| report["merged"]["files"]["read"] == 2 && report["stage"] == "final";
    wait_until("the report of all", || read().as_ref().is_some_and(is_of_all));
    drop(running);
    let gpu_track = |words: &[&str]| {
        let output = Command::new(BINARY).arg0("gpu-track").args(words).output().unwrap();
        text(&[output.stdout, output.stderr].concat())
    };
    let is_own = |path: &PathBuf| {
        let text = fs::read(path).unwrap_or_default();
        serde_json::from_slice::<Value>(&text).is_ok_and(|report| report["node_part"]["is_agent"] == false)
    };
    let parts = fs::read_dir(format!("{}.d", report.display())).unwrap().map(|entry| entry.unwrap().path());
    let own = parts.filter(|path| path.is_file()).find(is_own).unwrap();
    let summary = gpu_track(&["report", own.to_str().unwrap()]);
    let merge = format!("gpu-track merge {}.d", report.display());
    assert!(summary.contains(&format!("this one alone; the report of all nodes: {merge}")), "{summary}");
    assert!(!summary.contains("Next job"), "{summary}");
    let all = gpu_track(&["merge", "--full", &format!("{}.d", report.display())]);
    assert!(all.contains("2 reports") && !all.contains("this one alone"), "{all}");
}

// Requirement: NODE-12, NODE-14, NODE-60
#[test]
fn command_runs_as_without_us_where_slurm_starts_no_agents() {
    let directory = tempfile::tempdir().unwrap();
    let report = directory.path().join("r.json");
    let refuses = with_srun("echo 'srun: error: Invalid job id specified' >&2; exit 1");
    let run = in_job("echo out; exit 3", refuses.path(), &report).run();
    let line = "gpu-track-run: --nodes: Slurm starts no agents: error: Invalid job id specified\n";
    assert_eq!((run.status.code(), &*run.stdout, &*run.stderr), (Some(3), "out\n", line));
    // What has started srun is no process of the run.
    let commands = of_node(&report, false).unwrap()["processes"]["by_command"].clone();
    assert!(
        !commands.to_string().contains("gpu-track") && !commands.to_string().contains("unseen"),
        "{commands}"
    );
    // A step that Slurm never starts delays the command by 2 s.
    let waits = with_srun("cat");
    let run = in_job("echo out; exit 3", waits.path(), &report).run();
    let line = "gpu-track-run: --nodes: the agents of 0 of 2 nodes are ready: the command starts without the others\n";
    assert_eq!((run.status.code(), &*run.stdout, &*run.stderr), (Some(3), "out\n", line));
}

/// Puts a program in the place of gpu-track-run on n2, which is that with a clock 3.7 s ahead. Gives the directory that it needs.
fn put_clock_ahead_on_n2(cluster: &str) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let (copy, stand_in) = (directory.path().join("gpu-track-run"), directory.path().join("stand-in"));
    fs::copy(BINARY, &copy).unwrap();
    let clock = compiled("clock_ahead", "cc", &["-shared", "-fPIC"]);
    let script = format!("#!/bin/sh\nLD_PRELOAD={clock} exec {} \"$@\"\n", copy.display());
    fs::write(&stand_in, script).unwrap();
    fs::set_permissions(&stand_in, fs::Permissions::from_mode(0o755)).unwrap();
    on_host(cluster, "n2", &["mount", "--bind", stand_in.to_str().unwrap(), BINARY]);
    directory
}

/// When a node's RAM was above half of its largest, seconds after the first start: begin and end.
fn high(report: &Value, node: &str) -> (f64, f64) {
    let series = |name: &str| report["merged"][name].as_array().unwrap();
    let nodes = report["nodes"].as_array().unwrap();
    let ram = &nodes.iter().find(|of| of["node"] == node).unwrap()["series"]["mean_ram_bytes"];
    let ram: Vec<f64> = ram.as_array().unwrap().iter().map(|bytes| bytes.as_f64().unwrap_or(0.0)).collect();
    let most = ram.iter().copied().fold(0.0, f64::max);
    let is_high = |bytes: &f64| *bytes > most / 2.0;
    let [first, last] = [ram.iter().position(is_high), ram.iter().rposition(is_high)].map(Option::unwrap);
    (series("node_start_s")[first].as_f64().unwrap(), series("node_end_s")[last].as_f64().unwrap())
}

// Requirement: NODE-23
#[test]
fn clock_of_a_node_that_is_ahead_is_put_right_in_the_sums() {
    let (cluster, _turn) = or_skip!(cluster());
    if !cfg!(target_arch = "x86_64") {
        skip!("the library that moves the clock is for x86-64");
    }
    or_skip!(on_slurm(&cluster, ":", false).map(drop));
    let (stand_in, directory) = (put_clock_ahead_on_n2(&cluster), tempfile::tempdir().unwrap());
    // Each rank holds its memory at the same time as the other, for less than the clock is ahead.
    let held = 100 << 20;
    let line = format!("TRACK srun -n2 --ntasks-per-node=1 {} hold {held} 1500", program("touch"));
    let (status, _, report) = run_in(&directory, &cluster, IN_JOB, &line, true);
    on_host(&cluster, "n2", &["umount", BINARY]);
    drop(stand_in);
    let report = report.unwrap();
    assert_eq!((status, &report["merged"]["files"]["read"]), (Some(0), &2.into()), "{}", report["merged"]);
    let read = |path: &Path| serde_json::from_slice::<Value>(&fs::read(path).unwrap()).unwrap();
    let path = directory.path().join("r.json");
    let (own, agent) = (of_node(&path, false).unwrap(), of_node(&path, true).unwrap());
    let ahead_s = agent["node_part"]["clock_ahead_s"].as_f64().unwrap();
    // As far as a busy machine lets the agent compare it.
    assert!((ahead_s - 3.7).abs() < 0.5, "{ahead_s}");
    let offset_s = report["nodes"][1]["clock_offset_s"].as_f64().unwrap();
    let own_s = own["node_part"]["clock_ahead_s"].as_f64().unwrap();
    assert!((offset_s - (ahead_s - own_s)).abs() < 1e-6, "{offset_s}");

    let largest = |report: &Value| report["max_ram_bytes"]["combined"]["total_rss"].as_f64().unwrap();
    let sum = largest(&own) + largest(&agent);
    assert!(largest(&report) > 0.95 * sum, "{} of {sum}", largest(&report));
    // Both began and ended to hold it at one time, except for what srun and samples of 0.1 s need.
    let [one, other] = ["n1", "n2"].map(|node| high(&report, node));
    assert!((one.0 - other.0).abs() < 0.5 && (one.1 - other.1).abs() < 0.5, "{one:?} {other:?}");

    // Without what the agent found out, the two do not meet.
    let wrong = directory.path().join("wrong");
    fs::create_dir(&wrong).unwrap();
    for (name, mut of_node) in [("1.json", own), ("2.json", agent)] {
        of_node["node_part"]["clock_ahead_s"] = Value::Null;
        fs::write(wrong.join(name), of_node.to_string()).unwrap();
    }
    let mut merge = Command::new(env!("CARGO_BIN_EXE_gpu-track"));
    let status = merge.args(["merge", "-o"]).arg(directory.path().join("wrong.json")).arg(&wrong).status();
    assert!(status.unwrap().success());
    let apart = largest(&read(&directory.path().join("wrong.json")));
    assert!(apart < 0.75 * sum, "{apart} of {sum}");
}

/// A directory that n1 and n2 see by mounts of their own, each of which shows the other's names some seconds late.
struct LateNames<'a> {
    cluster: &'a str,
    place: tempfile::TempDir,
    _behind: tempfile::TempDir,
}

impl<'a> LateNames<'a> {
    fn mount(cluster: &'a str, program: &str) -> Self {
        let [place, behind] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let [at, of] = [&place, &behind].map(|directory| directory.path().to_str().unwrap());
        ["n1", "n2"].iter().for_each(|host| on_host(cluster, host, &[program, of, at, "6"]));
        Self { cluster, place, _behind: behind }
    }

    /// Runs a command on a host. Gives what it wrote.
    fn output(&self, host: &str, command: &[&str]) -> std::process::Output {
        Command::new(self.cluster).args(["exec", host]).args(command).output().unwrap()
    }
}

impl Drop for LateNames<'_> {
    fn drop(&mut self) {
        for host in ["n1", "n2"] {
            self.output(host, &["umount", self.place.path().to_str().unwrap()]);
        }
    }
}

// Requirement: NODE-13, NODE-22, NODE-64
#[test]
fn node_whose_names_show_late_is_named_and_its_report_is_there_for_a_merge() {
    let (cluster, _turn) = or_skip!(cluster());
    or_skip!(on_slurm(&cluster, ":", false).map(drop));
    // Flags come before the source: the linker must not leave the library out for that.
    let flags = ["-Wl,--no-as-needed", "-lfuse3"];
    if !can_build("late_names", "cc", &flags) || !Path::new("/dev/fuse").exists() {
        skip!("needs /dev/fuse and libfuse3-dev");
    }
    let shared = LateNames::mount(&cluster, &compiled("late_names", "cc", &flags));
    let (path, state) = (shared.place.path().to_str().unwrap(), tempfile::tempdir().unwrap());
    let (report, reports) = (format!("{path}/r.json"), format!("{path}/r.json.d"));
    let home = format!("XDG_STATE_HOME={}", state.path().display());
    let run = || {
        let srun = "srun -n2 --ntasks-per-node=1 sh -c '/bin/true; sleep 0.3; :'";
        let line = format!("{home} {BINARY} --nodes=auto -q -o {report} -- {srun}");
        let output = shared.output("n1", &[IN_JOB, &[&line]].concat());
        assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), String::new()));
        serde_json::from_slice::<Value>(&shared.output("n1", &["cat", &report]).stdout).unwrap()
    };
    let unseen = |report: &Value| report["coverage"]["nodes"]["unseen_names"].clone();
    // n2 does not see the directory yet, so the report stays there.
    let first = run();
    assert_eq!(unseen(&first), serde_json::json!(["n2"]));
    let left = &first["coverage"]["left_reports"][0];
    assert_eq!((&left["node"], &left["is_certain"]), (&"n2".into(), &true.into()), "{}", first["coverage"]);
    let stayed = Path::new(left["path"].as_str().unwrap()).to_owned();
    wait_until("the report that stayed", || fs::read(&stayed).is_ok_and(|text| !text.is_empty()));

    // Now it does, but n1 does not see the file of n2 yet.
    let mark = format!("{reports}/run");
    wait_until("the directory on n2", || shared.output("n2", &["test", "-e", &mark]).status.success());
    let second = run();
    assert_eq!(unseen(&second), serde_json::json!(["n2"]));
    assert!(second["coverage"]["left_reports"].is_null(), "{}", second["coverage"]);
    assert!(second["warnings"].to_string().contains("n2"), "{}", second["warnings"]);
    let merged = || {
        let merge = [env!("CARGO_BIN_EXE_gpu-track"), "merge", "-f", "json", &reports];
        serde_json::from_slice::<Value>(&shared.output("n1", &merge).stdout).unwrap()
    };
    wait_until("the name of n2's file", || merged()["merged"]["files"]["read"] == 2);
    let merged = merged();
    assert_eq!((on_node(&merged, "n2"), unseen(&merged)), (Some(3), Value::Null));
}

// Requirement: NODE-14
#[test]
fn steps_of_slurm_are_counted_and_end_as_without_us() {
    let (cluster, _turn) = or_skip!(cluster());
    let ok = "TRACK srun sh -c '/bin/true; sleep 0.3; :'";
    let (status, _, report) = or_skip!(on_slurm(&cluster, ok, true));
    let report = report.unwrap();
    assert_eq!((status, &report["merged"]["files"]["read"]), (Some(0), &2.into()), "{}", report["merged"]);
    // Two ranks of three processes; on n1 also srun, which forks.
    assert_eq!((on_node(&report, "n1"), on_node(&report, "n2")), (Some(8), Some(6)), "{}", report["nodes"]);
    assert!(report["coverage"]["nodes"].is_null(), "{}", report["coverage"]);
    assert_eq!((&report["ranks"]["seen"], &report["ranks"]["expected"]), (&4.into(), &4.into()));
    for line in [
        "TRACK srun sh -c '[ $SLURM_PROCID = 3 ] && exit 3; sleep 0.5'",
        "TRACK srun sh -c '[ $SLURM_PROCID = 3 ] && kill -9 $$; sleep 0.5'",
        "TRACK srun -K sh -c '[ $SLURM_PROCID = 3 ] && kill -SEGV $$; sleep 5'",
        "(sleep 1; scancel $SLURM_JOB_ID) & TRACK srun sleep 5",
    ] {
        let (status, _, report) = on_slurm(&cluster, line, true).unwrap();
        let mut bare = (0..20).map(|_| on_slurm(&cluster, line, false).unwrap().0);
        assert!(bare.any(|bare| bare == status), "{line}: {status:?}, never so without us");
        let states = report.unwrap()["nodes"].clone();
        let is_final = |node: &Value| node["state"] == "final";
        assert!(
            states.as_array().unwrap().iter().filter(|node| is_final(node)).count() == 2,
            "{line}: {states}"
        );
    }
}

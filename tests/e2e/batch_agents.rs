//! Agents in jobs of PBS, LSF and Flux. Programs made from the documentation stand in for those of the batch systems
//! (`tests/e2e/batch_systems`). The job's other host has a name and a /dev/shm of its own.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::support::run::{Tracked, tracked};
use crate::support::{is_root, leftovers, or_skip, wait_until};

/// The name of the other host.
const OTHER: &str = "other-host";

/// A job over this host and another one.
struct Job {
    holder: Child,
    directory: tempfile::TempDir,
}

/// Variables and their values.
type Variables = &'static [(&'static str, &'static str)];

/// Each batch system: its name, what starts a command on the other host or on both, and the variables of a job. `HERE` and `NODEFILE`
/// stand for what differs.
const SYSTEMS: [(&str, &str, Variables); 3] = [
    (
        "PBS",
        "mpirun",
        &[("PBS_JOBID", "7.server"), ("PBS_ENVIRONMENT", "PBS_BATCH"), ("PBS_NODEFILE", "NODEFILE")],
    ),
    (
        "LSF",
        "blaunch -z \"$(uname -n) other-host\" -no-shell",
        &[("LSB_JOBID", "7"), ("LSB_MCPU_HOSTS", "HERE 2 other-host 2")],
    ),
    ("Flux", "flux run", &[("FLUX_ENCLOSING_ID", "f7"), ("FLUX_URI", "local:///x")]),
];

impl Job {
    fn new() -> Result<Self, &'static str> {
        if !is_root() {
            return Err("only root can make another host");
        }
        let directory = tempfile::tempdir().unwrap();
        let script = format!("hostname {OTHER} && mount -t tmpfs tmpfs /dev/shm && : >$0 && exec sleep 600");
        let up = directory.path().join("up");
        let mut holder = Command::new("unshare");
        holder.args(["-m", "-u", "-i", "--propagation", "private", "sh", "-c", &script]).arg(&up);
        let mut job = Self { holder: holder.stdin(Stdio::null()).spawn().unwrap(), directory };
        let mut has_failed = false;
        wait_until("the other host", || {
            has_failed = job.holder.try_wait().unwrap().is_some();
            up.exists() || has_failed
        });
        if has_failed {
            return Err("no namespace can be made");
        }
        let here = rustix::system::uname().nodename().to_string_lossy().into_owned();
        fs::write(job.path("nodes"), format!("{here}\n{here}\n{OTHER}\n{OTHER}\n")).unwrap();
        Ok(job)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn report(&self) -> Value {
        serde_json::from_slice(&fs::read(self.path("r.json")).unwrap()).unwrap()
    }

    /// A run of this command in a job of this system.
    fn run(&self, variables: &[(&str, &str)], command: &[&str]) -> Tracked {
        let stand_ins =
            Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("tests/e2e/batch_systems");
        let path = format!("{}:{}", stand_ins.display(), std::env::var("PATH").unwrap());
        let here = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let nodes = self.path("nodes").display().to_string();
        let filled = |value: &str| value.replace("HERE", &here).replace("NODEFILE", &nodes);
        let variables: Vec<_> =
            variables.iter().map(|(name, value)| ((*name).to_owned(), filled(value))).collect();
        let own = [
            ("JOB", self.directory.path().display().to_string()),
            ("OTHER", OTHER.to_owned()),
            ("OTHER_PID", self.holder.id().to_string()),
            ("PATH", path),
        ];
        tracked(command.iter().copied())
            .only_options(&["-q", "-o", self.path("r.json").to_str().unwrap()])
            .with(move |command| command.envs(variables).envs(own))
            .starts_agents()
    }

    /// The report of the other host in the run's directory.
    fn of_other(&self) -> Option<Value> {
        let files = fs::read_dir(self.path("r.json.d")).ok()?.map(|entry| entry.unwrap().path());
        let of_other = |path: &PathBuf| path.file_name().unwrap().to_string_lossy().starts_with(OTHER);
        serde_json::from_slice(&fs::read(files.filter(|path| path.is_file()).find(of_other)?).ok()?).ok()
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        drop(self.holder.kill());
        drop(self.holder.wait());
    }
}

/// Shell code that lasts until the other host has an agent: a busy machine can take longer than the first program waits.
const UNTIL_TRACKED: &str = "until ls /proc/$OTHER_PID/root/dev/shm | grep -q gpu-track; do sleep 0.05; done";

/// How often a report has seen this command.
fn count(report: &Value, command: &str) -> Option<u64> {
    let commands = report["processes"]["by_command"].as_array().unwrap();
    commands.iter().find(|of| of["command"] == command)?["count"].as_u64()
}

// Requirement: NODE-76
#[test]
fn what_runs_on_another_host_of_the_job_is_in_the_report() {
    let job = or_skip!(Job::new());
    for (system, start, variables) in SYSTEMS {
        let line = format!("{start} true; {UNTIL_TRACKED}; {start} sh -c 'sleep 0; exit 5'; exit 3");
        let run = job.run(variables, &["sh", "-c", &line]).run();
        assert_eq!((run.status.code(), &*run.stdout, &*run.stderr), (Some(3), "", ""), "{system}");
        let report = job.report();
        assert_eq!(report["merged"]["files"]["read"], 2, "{system}: {}", report["warnings"]);
        assert!(report["coverage"]["nodes"].is_null(), "{system}: {}", report["coverage"]);
        let agent = job.of_other().unwrap();
        assert_eq!(
            (&agent["stage"], count(&agent, "sleep")),
            (&"final".into(), Some(1)),
            "{system}: {agent}"
        );
        // The job's output has nothing of ours.
        assert_eq!(fs::read_to_string(job.path("output")).unwrap_or_default(), "", "{system}");
    }
    // The command itself is such a program. Agents start before it.
    let [(_, start, variables), ..] = SYSTEMS;
    let run = job.run(variables, &[start, "sh", "-c", "exit 4"]).run();
    assert_eq!((run.status.code(), &job.report()["merged"]["files"]["read"]), (Some(4), &2.into()));
}

// Requirement: NODE-76
#[test]
fn run_that_starts_nothing_on_other_hosts_starts_no_agent() {
    let job = or_skip!(Job::new());
    for (system, _, variables) in SYSTEMS {
        let run = job.run(variables, &["sh", "-c", "/bin/true; mpirun --version; flux jobs; exit 3"]).run();
        assert_eq!((run.status.code(), &*run.stderr), (Some(3), ""), "{system}");
        let found =
            (job.report()["merged"].is_null(), job.path("r.json.d").exists(), job.path("started").exists());
        assert_eq!(found, (true, false, false), "{system}");
    }
    // Flux says only when it is asked that a job has one node.
    let [.., (_, _, variables)] = SYSTEMS;
    let one = [variables, &[("SIZE", "1"), ("OTHER", "")]].concat();
    let run = job.run(&one, &["sh", "-c", "flux run true; exit 3"]).run();
    assert_eq!((run.status.code(), &*run.stderr, job.path("r.json.d").exists()), (Some(3), "", false));
}

// Requirement: NODE-12, NODE-76
#[test]
fn command_runs_as_without_us_where_the_batch_system_starts_no_agents() {
    let job = or_skip!(Job::new());
    for (system, start, variables) in SYSTEMS {
        for fault in ["refuses", "hangs"] {
            // What the user starts is not that of the stand-in.
            let line = format!("export STAND_IN=; {start} sh -c 'echo out; exit 5'; exit 3");
            let faulty = [variables, &[("STAND_IN", fault)]].concat();
            let running = job.run(&faulty, &["sh", "-c", &line]).leaves_processes().start();
            let mark = running.mark().to_owned();
            let run = running.wait();
            assert_eq!((run.status.code(), &*run.stdout), (Some(3), "out\nout\n"), "{system} {fault}");
            let is_said = run.stderr.contains(&format!("--nodes: {system} starts no agents: "));
            assert_eq!(is_said, fault == "refuses", "{system} {fault}: {}", run.stderr);
            // Flux does not name the hosts of a job, and only it itself tells how many there are.
            let unseen = &job.report()["coverage"]["nodes"];
            let expected = match (system, fault) {
                ("Flux", "hangs") => Value::Null,
                ("Flux", _) => serde_json::json!({"unseen": 1, "unseen_names": []}),
                _ => serde_json::json!({"unseen": 1, "unseen_names": [OTHER]}),
            };
            assert_eq!(*unseen, expected, "{system} {fault}");
            // A program that does not see the end of its input is killed after half a minute.
            leftovers::kill_processes(&mark);
        }
    }
}

// Requirement: NODE-76
#[test]
fn agents_end_where_the_launcher_is_killed() {
    let job = or_skip!(Job::new());
    for (system, start, variables) in SYSTEMS {
        let killed = format!(
            "{start} sh -c 'if [ $(uname -n) = {OTHER} ]; then kill -9 $LAUNCHER; else sleep 60; fi'"
        );
        let running =
            job.run(variables, &["sh", "-c", &format!("LAUNCHER=$PPID; export LAUNCHER; {killed}")]).start();
        let mark = running.mark().to_owned();
        let stage = || job.of_other().map(|report| report["stage"].clone());
        wait_until(&format!("the last report of {system}'s agent"), || stage() == Some("final".into()));
        drop(running);
        wait_until("the end of all processes", || leftovers::processes(&mark).is_empty());
    }
}

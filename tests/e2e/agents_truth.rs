//! Processes of each node in the report of a run over several nodes, against the kernel's own events.
//!
//! The process connector sends its events to the initial network namespace alone, and the hosts of the cluster have their own. But
//! they share one kernel, whose events name processes of all hosts. So one recorder listens outside, and sorts them by host.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::iter::successors;
use std::os::unix::ffi::OsStrExt;
use std::process::Command;
use std::thread;
use std::time::Instant;

use gpu_track_truth::listener::Listener;
use gpu_track_truth::tree::Counts;

use crate::agents::launchers;
use crate::support::cluster::{IN_JOB, cluster, on_node, on_slurm, run_in};
use crate::support::run::BINARY;
use crate::support::{WATCHDOG, is_root, or_skip, skip, static_program};

/// How many ranks the launchers start.
const RANKS: usize = 4;
/// What the script of a rank begins with, and no other program's arguments do.
const MARK: &str = "# rank of agents_truth";

/// The script of a rank. It waits for the recorder, and then starts what differs from rank to rank: children, a grandchild that
/// outlives its parent, a program without the shim, and many at once.
fn script(directory: &str) -> String {
    let uninstrumented = static_program("runs");
    format!(
        "{MARK}
        rank=$SLURM_PROCID$PMI_RANK$OMPI_COMM_WORLD_RANK
        read go <{directory}/go.$rank
        for i in 1 2 3; do /bin/true; (exit 3); done
        for i in $(seq $((rank * 5))); do sh -c '/bin/true & wait; exit 1'; done
        for i in $(seq 10); do /bin/true & done; wait
        (setsid sh -c 'sleep 0.1; exit 0' & exit 0)
        {uninstrumented} 0 x
        sleep 0.3"
    )
}

/// A process as /proc of the initial pid namespace shows it.
struct Seen {
    pid: u32,
    parent: u32,
    /// The namespace that tells hosts apart.
    host: String,
    program: Vec<u8>,
    words: Vec<Vec<u8>>,
}

/// The processes that are there.
fn seen() -> Vec<Seen> {
    let of = |pid: u32| {
        let place = |name: &str| format!("/proc/{pid}/{name}");
        let stat = fs::read_to_string(place("stat")).ok()?;
        let parent = stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()?;
        let host = fs::read_link(place("ns/uts")).ok()?.to_string_lossy().into_owned();
        let program = fs::read_link(place("exe")).ok()?.as_os_str().as_bytes().to_owned();
        let words = fs::read(place("cmdline")).ok()?.split(|byte| *byte == 0).map(<[u8]>::to_vec).collect();
        Some(Seen { pid, parent, host, program, words })
    };
    let pids =
        fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    pids.filter_map(of).collect()
}

/// The processes of the job on each host from which all others descend. They are children of a launcher or an agent, and what
/// Slurm's daemon started: a rank, or the daemon of an MPI launcher. `None`: not all ranks wait yet.
fn roots() -> Option<BTreeMap<String, Vec<u32>>> {
    let all = seen();
    let is_ours = |process: &Seen| process.program == BINARY.as_bytes();
    let parent = |process: &Seen| all.iter().find(|other| other.pid == process.parent);
    // `sh -c SCRIPT`; Slurm gives the path of the shell.
    let is_rank =
        |process: &&Seen| process.words.get(2).is_some_and(|word| word.starts_with(MARK.as_bytes()));
    let is_shell = |process: &&Seen| process.words[0].ends_with(b"sh");
    let ranks: Vec<&Seen> = all.iter().filter(is_rank).filter(is_shell).collect();
    if ranks.len() < RANKS {
        return None;
    }
    // The srun that starts the agents is no part of the job.
    let is_tracker = |process: &Seen| is_ours(process) && process.words[0] != b"gpu-track-agents";
    let mut roots: Vec<&Seen> =
        all.iter().filter(|process| !is_ours(process) && parent(process).is_some_and(is_tracker)).collect();
    for rank in ranks {
        let ancestors: Vec<&Seen> = successors(Some(rank), |process| parent(process)).collect();
        let is_known = |process: &&Seen| roots.iter().any(|root| root.pid == process.pid);
        if !ancestors.iter().any(is_known) {
            let slurm = ancestors.iter().position(|process| process.words[0].starts_with(b"slurmstepd"))?;
            roots.push(ancestors[slurm - 1]);
        }
    }
    let mut of_hosts: BTreeMap<String, Vec<u32>> = BTreeMap::new();
    for root in roots {
        of_hosts.entry(root.host.clone()).or_default().push(root.pid);
    }
    Some(of_hosts)
}

/// The namespace of a host.
fn namespace(cluster: &str, host: &str) -> String {
    let output =
        Command::new(cluster).args(["exec", host, "readlink", "/proc/self/ns/uts"]).output().unwrap();
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

// Requirement: NODE-10, NODE-14
#[test]
fn each_node_has_the_processes_that_the_kernel_reported_there() {
    let (cluster, _turn) = or_skip!(cluster());
    if !is_root() {
        skip!("needs root (process connector)");
    }
    let mut ways: Vec<(String, String, &[&str])> = Vec::new();
    let has_slurm = on_slurm(&cluster, ":", false).is_ok();
    for launcher in launchers(&cluster) {
        if has_slurm {
            ways.push((format!("{} in a job", launcher.name), launcher.line.clone(), IN_JOB));
        }
        ways.push((launcher.name, launcher.line, &["sh", "-c"]));
    }
    if has_slurm {
        ways.push(("srun".to_owned(), "TRACK srun".to_owned(), IN_JOB));
    }
    for (name, launcher, shell) in ways {
        let mut listener = or_skip!(Listener::subscribe());
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().to_str().unwrap();
        let pipes: Vec<String> = (0..RANKS).map(|rank| format!("{path}/go.{rank}")).collect();
        assert!(Command::new("mkfifo").args(&pipes).status().unwrap().success());
        let line = format!("{launcher} sh -c '{}'", script(path).replace('\'', "'\\''"));
        // Opened for both ways, a pipe waits for no reader, and keeps what was written.
        let mut pipes: Vec<fs::File> = pipes
            .iter()
            .map(|path| fs::OpenOptions::new().read(true).write(true).open(path).unwrap())
            .collect();
        let (of_hosts, (status, text, report)) = thread::scope(|scope| {
            let run = scope.spawn(|| run_in(&directory, &cluster, shell, &line, true));
            let (start, mut of_hosts) = (Instant::now(), None);
            while !run.is_finished() {
                listener.drain().unwrap();
                if of_hosts.is_none() {
                    of_hosts = roots();
                    // Without the ranks, the test fails when they have ended.
                    if of_hosts.is_some() || start.elapsed() > WATCHDOG {
                        pipes.iter_mut().for_each(|pipe| pipe.write_all(b"\n").unwrap());
                    }
                }
                listener.wait().unwrap();
            }
            (of_hosts.expect("the ranks"), run.join().unwrap())
        });
        assert_eq!(status, Some(0), "{name}: {text}");
        let report = report.unwrap();
        for host in ["n1", "n2"] {
            let roots = &of_hosts[&namespace(&cluster, host)];
            let counts = |listener: &Listener| {
                roots.iter().fold(Counts::default(), |sum, root| {
                    let of = listener.tree.counts(*root).unwrap();
                    Counts {
                        processes: sum.processes + of.processes,
                        execs: sum.execs + of.execs,
                        ended: sum.ended + of.ended,
                    }
                })
            };
            // An event comes a little after what it reports.
            let start = Instant::now();
            while counts(&listener).ended < counts(&listener).processes && start.elapsed() < WATCHDOG {
                listener.wait().unwrap();
                listener.drain().unwrap();
            }
            let counts = counts(&listener);
            assert_eq!(counts.ended, counts.processes, "{name}, {host}: {counts:?}");
            assert!(counts.processes > 50, "{name}, {host}: {counts:?}");
            assert_eq!(on_node(&report, host), Some(counts.processes), "{name}, {host}: {counts:?}");
        }
    }
}

//! Processes that the command starts on other machines are in no figure. The report names those machines, or says how
//! many ranks of a job it lacks.

use std::os::unix::process::ExitStatusExt;
use std::process::Command;

use serde_json::Value;

use crate::support::cluster::cluster;
use crate::support::run::{BINARY, cache_home};
use crate::support::{installed, or_skip, skip, static_program, tracked};

/// A program that is called `name` and has these arguments. It is a shell, whose `-c` ssh and srun have, too.
fn fake(name: &str, arguments: &str) -> String {
    format!("exec -a {name} sh -c 'sleep 1; :' {arguments}")
}

// Requirement: SEE-20, SEE-91
#[test]
fn host_of_an_mpi_daemon_is_named() {
    let run =
        tracked(["bash", "-c", &fake("/usr/bin/ssh", "n2.example.org 'PATH=x; orted -mca ess env'")]).run();
    let report = run.assert_clean(0);
    assert_eq!(
        report.at("coverage.nodes"),
        &serde_json::json!({"unseen": 1, "unseen_names": ["n2.example.org"]})
    );
    assert!(report.warnings().contains("1 other node (n2.example.org)"), "{}", report.warnings());
}

// Requirement: SEE-20, SEE-91
#[test]
fn nodes_of_srun_are_those_of_the_allocation() {
    let run = tracked(["bash", "-c", &fake("srun", "./app")])
        .with(|command| command.env("SLURM_JOB_NODELIST", "m[08-10]").env("SLURMD_NODENAME", "m09"))
        .run();
    let report = run.assert_clean(0);
    assert_eq!(
        report.at("coverage.nodes"),
        &serde_json::json!({"unseen": 2, "unseen_names": ["m08", "m10"]})
    );
}

// Requirement: SEE-20
#[test]
fn ssh_for_other_purposes_is_no_node() {
    let run = tracked(["bash", "-c", &fake("ssh", "git@example.org git-upload-pack x.git")]).run();
    assert!(run.assert_clean(0).at("coverage.nodes").is_null());
}

// Requirement: SEE-20, HINT-18
#[test]
fn summary_says_what_tracks_other_nodes_and_asks_for_no_memory() {
    let run = tracked(["bash", "-c", &fake("ssh", "n2 'orted -mca x'")]).only_options(&["--hints"]).run();
    let shown = run.stderr.split_whitespace().collect::<Vec<_>>().join(" ");
    let advice = "Not in this report: 1 other node (n2); gpu-track-run --nodes=auto -- CMD tracks all nodes.";
    assert!(shown.contains(advice), "{}", run.stderr);
    assert!(
        shown.contains("not known: what orted started elsewhere") && !shown.contains("--mem"),
        "{}",
        run.stderr
    );
    // The site forbids what was asked for, so the report does not advise it.
    let run = tracked(["bash", "-c", &fake("ssh", "n2 'orted -mca x'")])
        .options(&["--nodes=auto", "--disable-logs"])
        .with(|command| command.env("GPU_TRACK_NODES", "never"))
        .run();
    let warnings = run.assert_clean(0).warnings();
    assert!(warnings.contains("1 other node (n2)") && !warnings.contains("--nodes=auto"), "{warnings}");
}

/// The shell code of a rank of an Open MPI job.
fn rank(job: u32, rank: u32, count: u32) -> String {
    format!("PMIX_NAMESPACE={job} OMPI_COMM_WORLD_RANK={rank} OMPI_COMM_WORLD_SIZE={count} /bin/true; ")
}

// Requirement: SEE-21
#[test]
fn ranks_that_wrote_no_record_are_counted() {
    // Two processes of one rank; a complete job; jobs of one rank and of none.
    let script = [rank(7, 0, 4), rank(7, 3, 4), rank(7, 3, 4), rank(8, 0, 2), rank(8, 1, 2), rank(9, 0, 1)];
    let run = tracked(["sh", "-c", &(script.concat() + "PMI_RANK=0 /bin/true; exit 0")]).run();
    let report = run.assert_clean(0);
    assert_eq!(report.at("coverage.ranks"), &serde_json::json!({"unseen": 2, "expected": 4}));
    assert!(report.warnings().contains("2 of 4 ranks"), "{}", report.warnings());
}

/// Each way in which environments name ranks, alone.
// Requirement: SEE-21
#[test]
fn ranks_are_known_by_the_variables_of_each_launcher() {
    let (ways, _) = gpu_track_abi::rank::VARIABLES.as_chunks::<{ gpu_track_abi::rank::VARIABLES_OF_WAY }>();
    for [rank, count, ids @ ..] in ways {
        let ids = ids.iter().filter(|name| !name.is_empty()).map(|name| format!("{name}=1 "));
        let script = format!("{rank}=1 {count}=4 {}/bin/true; exit 0", ids.collect::<String>());
        let run = tracked(["sh", "-c", &script]).run();
        let found = run.assert_clean(0).at("coverage.ranks");
        assert_eq!(found, &serde_json::json!({"unseen": 3, "expected": 4}), "{script}");
    }
}

/// A script sets the variables as torchrun does: it needs no PyTorch.
// Requirement: NODE-15
#[test]
fn ranks_of_torchrun_have_figures_of_their_own() {
    let rank = |rank: u32| {
        format!(
            "RANK={rank} WORLD_SIZE=3 LOCAL_RANK={rank} MASTER_PORT=29500 sh -c '/bin/true; exit {rank}'; "
        )
    };
    let run = tracked([
        "sh",
        "-c",
        &((0..3).map(rank).collect::<String>() + "RANK=1 WORLD_SIZE=9 /bin/true; exit 0"),
    ]);
    let run = run.run();
    let report = run.assert_clean(0);
    let ranks = report.at("job_ranks").as_array().unwrap();
    let found: Vec<_> =
        ranks.iter().map(|rank| (rank["rank"].as_u64(), rank["processes"].as_u64())).collect();
    assert_eq!(found, (0..3).map(|rank| (Some(rank), Some(2))).collect::<Vec<_>>(), "{ranks:?}");
    assert!(report.at("coverage.ranks").is_null());
}

// Requirement: SEE-94, SEE-95
#[test]
fn ranks_that_cannot_be_known_are_not_guessed() {
    let by_static_program =
        |rank: u32| format!("PMI_RANK={rank} PMI_SIZE=3 {} 0 x; ", static_program("runs"));
    let only_static = format!("{}exit 0", by_static_program(0));
    let mixed = format!("PMI_RANK=1 PMI_SIZE=3 /bin/true; {only_static}");
    // Two jobs of MPICH: each has one rank here.
    let two_jobs = "PMI_RANK=0 PMI_SIZE=2 /bin/true; PMI_RANK=1 PMI_SIZE=2 /bin/true; exit 0".to_owned();
    for (script, unseen) in [(only_static, None), (mixed, Some(2)), (two_jobs, None)] {
        let run = tracked(["sh", "-c", &script]).run();
        let ranks = &run.assert_clean(0).at("coverage.ranks");
        assert_eq!(ranks["unseen"].as_u64(), unseen, "{script}");
    }
}

// Requirement: SEE-21
#[test]
fn run_that_is_a_rank_itself_lacks_no_ranks() {
    let directory = tempfile::tempdir().unwrap();
    let report = directory.path().join("%r.json");
    let script = format!("/bin/true; {}exit 0", rank(7, 1, 4));
    for (job, unseen) in [("7", None), ("6", Some(3))] {
        let run = tracked(["sh", "-c", &script])
            .only_options(&["-f", "json", "-o", report.to_str().unwrap()])
            .with(move |command| {
                command.env("PMIX_NAMESPACE", job).env("OMPI_COMM_WORLD_RANK", "1");
                command.env("OMPI_COMM_WORLD_SIZE", "4");
                command.env("SLURM_PROCID", "0").env("SLURM_STEP_NUM_TASKS", "2")
            })
            .run();
        assert_eq!(run.status.code(), Some(0), "{}", run.stderr);
        let text = std::fs::read(directory.path().join("1.json")).unwrap();
        let report: Value = serde_json::from_slice(&text).unwrap();
        assert_eq!(report["coverage"]["ranks"]["unseen"].as_u64(), unseen, "in job {job}");
    }
}

// Requirement: SEE-21
#[test]
fn complete_job_of_mpirun_lacks_no_ranks() {
    let launchers = ["mpirun.openmpi", "mpiexec.hydra"].map(|name| installed(name).map(|_| name));
    if launchers == [None, None] {
        skip!("neither Open MPI nor MPICH is installed");
    }
    for launcher in launchers.into_iter().flatten() {
        let run = tracked([launcher, "-n", "2", "/bin/true"])
            .with(|command| {
                command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
            })
            .run();
        // On a busy machine MPICH's mpiexec ends by SIGPIPE now and then, also without tracking.
        let has_ended = run.status.success() || run.status.signal() == Some(libc::SIGPIPE);
        assert!(has_ended && run.report().at("coverage.ranks").is_null(), "{launcher}: {}", run.stderr);
    }
}

/// The report of a command that n1 runs.
fn on_n1(cluster: &str, command: &[&str]) -> Value {
    let directory = tempfile::tempdir().unwrap();
    let report = directory.path().join("report.json");
    let mut run = Command::new(cluster);
    run.args(["exec", "n1", BINARY, "--nodes=off", "-f", "json", "-o"]).arg(&report).arg("--").args(command);
    let output = run.env("XDG_CACHE_HOME", cache_home()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&std::fs::read(&report).unwrap()).unwrap()
}

// Requirement: SEE-20, SEE-91
#[test]
fn ranks_of_mpirun_on_another_host_are_noticed() {
    let (cluster, _turn) = or_skip!(cluster());
    if installed("mpirun.openmpi").is_none() {
        skip!("mpirun.openmpi is not installed");
    }
    let ssh = Command::new(&cluster).arg("ssh").output().unwrap();
    let ssh = String::from_utf8_lossy(&ssh.stdout).trim().to_owned();
    let tcp = "--mca btl tcp,self,vader --mca btl_tcp_if_include eth0 --mca oob_tcp_if_include eth0";
    let words: Vec<_> =
        ["mpirun.openmpi", "--allow-run-as-root", "--host", "n1:2,n2:2", "--mca", "plm_rsh_agent", &ssh]
            .into_iter()
            .chain(tcp.split(' '))
            .chain(["-n", "4", "sleep", "0.5"])
            .collect();
    let report = on_n1(&cluster, &words);
    assert_eq!(report["coverage"]["nodes"], serde_json::json!({"unseen": 1, "unseen_names": ["n2"]}));
    assert_eq!(report["coverage"]["ranks"], serde_json::json!({"unseen": 2, "expected": 4}));
}

// Requirement: SEE-20, SEE-91
#[test]
fn tasks_of_srun_on_another_node_are_noticed() {
    let (cluster, _turn) = or_skip!(cluster());
    if !Command::new(&cluster)
        .args(["exec", "n1", "sinfo"])
        .output()
        .is_ok_and(|output| output.status.success())
    {
        skip!("the cluster has no Slurm");
    }
    let report = on_n1(&cluster, &["srun", "-N2", "-n2", "sleep", "0.5"]);
    assert_eq!(report["coverage"]["nodes"]["unseen"], 1);
    let report = on_n1(&cluster, &["srun", "-N2", "-n2", "--nodelist=n[1-2]", "sleep", "0.5"]);
    assert_eq!(report["coverage"]["nodes"], serde_json::json!({"unseen": 1, "unseen_names": ["n2"]}));
}

//! `--nodes=auto` below an MPI launcher: each rank has a launcher of its own, and the last one makes one report of all. With a
//! cluster (GPU_TRACK_TEST_CLUSTER), the ranks are on two hosts.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::support::cluster::{cluster, on_node, on_slurm};
use crate::support::run::{BINARY, Run, Tracked, tracked};
use crate::support::{installed, or_skip, skip, wait_until};

/// This command as a rank of two, of one job.
fn rank(number: &'static str, script: &str) -> Tracked {
    tracked(["sh", "-c", script]).with(move |command| {
        let rank = [("OMPI_COMM_WORLD_RANK", number), ("OMPI_COMM_WORLD_SIZE", "2")];
        command.envs(rank).env("PMIX_NAMESPACE", "7.1")
    })
}

/// This command under Open MPI's mpirun, with a launcher for each of four ranks. `None`: it is not installed.
fn four_ranks(script: &str, report: &Path) -> Option<Run> {
    let mpirun = ["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "-n", "4"];
    installed(mpirun[0])?;
    let options = ["--nodes=auto", "-o", report.to_str().unwrap()];
    // A collector whose launcher is killed outlives the run.
    Some(tracked(["sh", "-c", script]).through(&mpirun).only_options(&options).leaves_processes().run())
}

/// The report in this file, if it is whole.
fn read(report: &Path) -> Option<Value> {
    serde_json::from_slice(&fs::read(report).ok()?).ok()
}

/// How many ranks have a report in this one.
fn ranks_in(report: &Value) -> Option<u64> {
    report["ranks"]["seen"].as_u64()
}

// Requirement: NODE-18
#[test]
fn ranks_with_a_launcher_each_make_one_report() {
    let directory = tempfile::tempdir().unwrap();
    let report = directory.path().join("r.json");
    // No rank ends before all have begun.
    let script = format!(
        "mkdir {0}/$OMPI_COMM_WORLD_RANK; until [ -d {0}/0 -a -d {0}/1 -a -d {0}/2 -a -d {0}/3 ]; do :; done",
        directory.path().display()
    );
    let Some(run) = four_ranks(&script, &report) else { skip!("mpirun is not installed") };
    assert_eq!((run.status.code(), &*run.stderr), (Some(0), ""));
    let merged = read(&report).unwrap();
    assert_eq!(ranks_in(&merged), Some(4), "{merged}");
    assert_eq!((&merged["processes"]["total"], &merged["exit"]["code"]), (&8.into(), &0.into()), "{merged}");
}

/// Open MPI kills the launchers soon after it has asked the other ranks to end.
// Requirement: NODE-18
#[test]
fn report_of_all_ranks_is_made_where_one_fails_and_the_others_are_killed() {
    let directory = tempfile::tempdir().unwrap();
    let report = directory.path().join("r.json");
    let script = "[ $OMPI_COMM_WORLD_RANK = 1 ] && exit 3; exec sleep 60";
    let Some(run) = four_ranks(script, &report) else { skip!("mpirun is not installed") };
    assert_eq!(run.status.code(), Some(3), "{}", run.stderr);
    wait_until("the report of all", || read(&report).and_then(|report| ranks_in(&report)) == Some(4));
    assert_eq!(read(&report).unwrap()["exit"]["code"], 3);
}

// Requirement: NODE-18
#[test]
fn rank_that_begins_after_the_others_have_ended_is_in_the_report() {
    let directory = tempfile::tempdir().unwrap();
    let report = directory.path().join("r.json");
    fs::write(&report, "of an earlier run").unwrap();
    let options = ["--nodes=auto", "-o", report.to_str().unwrap()];
    for (number, ranks) in [("1", 1), ("0", 2)] {
        let run = rank(number, "exit 4").only_options(&options).run();
        assert_eq!((run.status.code(), &*run.stderr), (Some(4), ""));
        let merged = read(&report).unwrap();
        assert_eq!(ranks_in(&merged), Some(ranks), "{merged}");
    }
    // Another job begins anew.
    let run =
        rank("0", ":").only_options(&options).with(|command| command.env("PMIX_NAMESPACE", "8.1")).run();
    assert_eq!(run.status.code(), Some(0));
    assert_eq!(ranks_in(&read(&report).unwrap()), Some(1));
    let ranks = fs::read_to_string(report.with_extension("ranks.csv")).unwrap();
    assert_eq!(ranks.lines().count(), 2, "{ranks}");
}

/// A script of each rank runs two commands, one after the other. Nothing but the rank's own reports tells them apart.
// Requirement: NODE-18, OUT-12
#[test]
fn commands_of_one_job_have_a_report_each_and_the_last_one_is_that_of_the_job() {
    let directory = tempfile::tempdir().unwrap();
    let report = directory.path().join("r.json");
    let options = ["--nodes=auto", "-o", report.to_str().unwrap()];
    for script in ["true; true; true", "exit 5"] {
        for number in ["0", "1"] {
            let run = rank(number, script).only_options(&options).run();
            assert_eq!(&*run.stderr, "");
        }
    }
    let merged = read(&report).unwrap();
    assert_eq!((ranks_in(&merged), &merged["merged"]["files"]["read"]), (Some(2), &2.into()), "{merged}");
    assert_eq!((&merged["processes"]["total"], &merged["exit"]["code"]), (&2.into(), &5.into()), "{merged}");
}

// Requirement: NODE-18, OUT-12
#[test]
fn report_that_another_run_writes_to_stays_its_own() {
    let directory = tempfile::tempdir().unwrap();
    let (report, meet) = (directory.path().join("r.json"), directory.path().join("meet"));
    let other =
        tracked(["sh", "-c", &format!("until [ -e {} ]; do sleep 0.01; done; exit 9", meet.display())])
            .only_options(&["-o", report.to_str().unwrap()])
            .start();
    wait_until("the other run has begun", || directory.path().join(".r.json.gpu-track-lock").exists());
    let run = rank("0", ":").only_options(&["--nodes=auto", "-o", report.to_str().unwrap()]).run();
    assert_eq!(run.status.code(), Some(0));
    assert!(run.stderr.contains("another run writes to"), "{}", run.stderr);
    fs::write(&meet, "").unwrap();
    assert_eq!(other.wait().status.code(), Some(9));
    assert_eq!(read(&report).unwrap()["exit"]["code"], 9);
}

// Requirement: NODE-18
#[test]
fn rank_that_is_refused_or_can_not_be_run_leaves_the_others_their_report() {
    let directory = tempfile::tempdir().unwrap();
    let report = directory.path().join("r.json");
    let options = ["--nodes=auto", "-o", report.to_str().unwrap()];
    assert_eq!(rank("1", ":").only_options(&options).run().status.code(), Some(0));
    let before = fs::read(&report).unwrap();
    let taken = directory.path().join("t.0.csv");
    fs::write(&taken, "of the user").unwrap();
    let refused = rank("0", ":")
        .only_options(&options)
        .options(&["--tf", directory.path().join("t.csv").to_str().unwrap()])
        .run();
    assert_eq!(refused.status.code(), Some(2), "{}", refused.stderr);
    assert_eq!(fs::read(&report).unwrap(), before);
    let not_found = tracked(["/no/such/program"]).only_options(&options).with(|command| {
        let rank = [("OMPI_COMM_WORLD_RANK", "0"), ("OMPI_COMM_WORLD_SIZE", "2")];
        command.envs(rank).env("PMIX_NAMESPACE", "7.1")
    });
    let run = not_found.run();
    assert_eq!((run.status.code(), run.stderr.lines().count()), (Some(127), 1), "{}", run.stderr);
    let merged = read(&report).unwrap();
    assert_eq!((ranks_in(&merged), &merged["exit"]["code"]), (Some(2), &127.into()), "{merged}");
}

/// Slurm's variables are those of a task in an agent, too, and a run in a run has those of the outer one.
// Requirement: NODE-18
#[test]
fn agent_and_a_run_within_a_run_are_no_ranks() {
    let directory = tempfile::tempdir().unwrap();
    let report = directory.path().join("r.json");
    let inner =
        format!("{BINARY} --nodes=auto -q -f json -o {} -- true", directory.path().join("inner").display());
    let run = rank("0", &inner).only_options(&["--nodes=auto", "-o", report.to_str().unwrap()]).run();
    assert_eq!((run.status.code(), &*run.stderr), (Some(0), ""));
    assert!(directory.path().join("inner.0").is_file(), "a report of its own");
    let run = tracked(["true"])
        .only_options(&["--agent", &format!("0:-:{}", directory.path().join("x.d").display())])
        .with(|command| {
            let rank = [
                ("SLURM_PROCID", "1"),
                ("SLURM_STEP_NUM_TASKS", "2"),
                ("SLURM_JOB_ID", "5"),
                ("SLURM_STEP_ID", "1"),
            ];
            command.envs(rank).env("GPU_TRACK_NODES", "auto").env("XDG_STATE_HOME", "/dev/null")
        });
    assert_eq!(run.run().status.code(), Some(0));
    let made: Vec<_> =
        fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(!made.iter().any(|name| name.to_string_lossy().starts_with("x.d")), "{made:?}");
}

// Requirement: NODE-18
#[test]
fn ranks_without_a_file_print_one_summary_and_leave_no_directory() {
    let state = tempfile::tempdir().unwrap();
    let home = state.path().to_owned();
    // The first rank ends after the second one.
    let meet = state.path().join("meet");
    let first = rank("0", &format!("until [ -e {} ]; do sleep 0.01; done", meet.display()))
        .only_options(&[])
        .with({
            let home = home.clone();
            move |command| command.env("XDG_STATE_HOME", home).env("GPU_TRACK_NODES", "auto")
        })
        .start();
    let joined = || fs::read_dir(home.join("gpu-track/nodes")).is_ok_and(|mut jobs| jobs.next().is_some());
    wait_until("the first rank has begun", joined);
    let second = rank("1", &format!(": >{}", meet.display()))
        .only_options(&["--nodes=auto"])
        .with({
            let home = home.clone();
            move |command| command.env("XDG_STATE_HOME", home)
        })
        .run();
    let first = first.wait();
    let summaries = [first.stderr.as_str(), second.stderr.as_str()].concat();
    assert_eq!(summaries.matches("Nodes  ").count(), 1, "{summaries}");
    assert!(summaries.contains("1, 2 ranks"), "{summaries}");
    assert!(!joined());
}

// Requirement: NODE-18, OUT-12
#[test]
fn ranks_have_a_report_each_where_a_name_or_the_environment_tells_them_apart() {
    let directory = tempfile::tempdir().unwrap();
    let names = |given: &str, tracked: Tracked| {
        let report = directory.path().join(given);
        let run = tracked.only_options(&["--nodes=auto", "-o", report.to_str().unwrap()]).run();
        assert_eq!(run.status.code(), Some(0), "{}", run.stderr);
        let entries = fs::read_dir(directory.path()).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.retain(|name| name.ends_with(".json"));
        names.sort();
        names.iter().for_each(|name| fs::remove_file(directory.path().join(name)).unwrap());
        names
    };
    assert_eq!(names("x.%r.json", rank("1", ":")), ["x.1.json"]);
    assert_eq!(names("x.%p.json", rank("1", ":")).len(), 1);
    // Hydra's environment does not name the job.
    let of_hydra = tracked(["true"]).with(|command| command.env("PMI_RANK", "1").env("PMI_SIZE", "2"));
    assert_eq!(names("x.json", of_hydra), ["x.1.json"]);
    // Flux does, though its PMI does not.
    let of_flux = tracked(["true"]).with(|command| {
        let by_pmi = [("PMI_RANK", "1"), ("PMI_SIZE", "2")];
        let by_flux = [("FLUX_TASK_RANK", "1"), ("FLUX_JOB_SIZE", "2"), ("FLUX_JOB_ID", "ƒ3E")];
        command.envs(by_pmi).envs(by_flux)
    });
    assert_eq!(names("x.json", of_flux), ["x.json"]);
    // Ranks of another job are in the directory.
    let report = directory.path().join("y.json");
    let meet = directory.path().join("meet");
    let first = rank("0", &format!("until [ -e {} ]; do sleep 0.01; done", meet.display()))
        .only_options(&["--nodes=auto", "-o", report.to_str().unwrap()])
        .start();
    wait_until("the first rank has begun", || directory.path().join("y.json.d/run").exists());
    let other = rank("1", ":").with(|command| command.env("PMIX_NAMESPACE", "8.1"));
    let run = other.only_options(&["--nodes=auto", "-o", report.to_str().unwrap()]).run();
    assert!(run.stderr.contains("each rank has a report of its own"), "{}", run.stderr);
    assert!(directory.path().join("y.1.json").exists());
    fs::write(&meet, "").unwrap();
    assert_eq!(first.wait().status.code(), Some(0));
    assert!(report.exists());
}

// Requirement: NODE-18
#[test]
fn ranks_of_srun_on_two_hosts_make_one_report() {
    let (cluster, _turn) = or_skip!(cluster());
    for end in ["", "; exit 3", "; [ $SLURM_PROCID = 2 ] && kill -SEGV $$; sleep 2"] {
        let line = format!("srun -K TRACK sh -c '/bin/true{end}'");
        let bare = or_skip!(on_slurm(&cluster, &line, false));
        let (code, output, report) = or_skip!(on_slurm(&cluster, &line, true));
        assert_eq!((code, &output), (bare.0, &bare.1), "{line}");
        assert_eq!(code == Some(0), end.is_empty(), "{line}");
        let report = report.unwrap();
        assert_eq!(ranks_in(&report), Some(4), "{line}: {report}");
        if end.is_empty() {
            assert_eq!([on_node(&report, "n1"), on_node(&report, "n2")], [Some(4), Some(4)], "{report}");
        }
    }
}

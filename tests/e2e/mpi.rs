//! MPI launchers on one machine: mpirun, its daemons and its ranks.

use crate::support::programs::{can_build, compiled};
use crate::support::truth::KernelRecorder;
use crate::support::{assert_within, installed, or_skip, skip, tracked};

fn four_ranks(compiler: &str, launcher: &str, options: &[&str]) {
    if installed(launcher).is_none() {
        skip!("{launcher} is not installed");
    }
    if !can_build("mpi_sum", compiler, &[]) {
        skip!("{compiler} is not installed, or has no mpi.h");
    }
    let recorder = or_skip!(KernelRecorder::open());
    let ranks = compiled("mpi_sum", compiler, &[]);
    let mut words = vec![launcher];
    words.extend(options);
    words.extend(["-n", "4", &ranks, "0.5", "100000000"]);
    let run = tracked(recorder.wrap(words)).run();
    let truth = recorder.close();
    assert_eq!(run.status.code(), Some(0), "{}", run.stderr);
    assert_eq!(run.stdout.trim(), "ranks 4");
    let report = run.report();
    report.assert_all_exact(truth.processes());
    assert_within("cpu_time.total_s", report.f64("cpu_time.total_s"), truth.cpu_s, 1.0);
    let sum = report.command("mpi_sum").or_else(|| {
        let entries = report.array("processes.by_command");
        entries.iter().find(|entry| entry["command"].as_str().unwrap().starts_with("mpi_sum"))
    });
    let sum = sum.expect("the ranks are listed by their command name");
    assert_eq!(sum["count"], 4);
    assert!(sum["peak_rss_bytes"].as_u64().unwrap() >= 100_000_000);
    let all = report.array("job_ranks");
    assert_eq!(all.iter().map(|rank| rank["rank"].as_u64().unwrap()).collect::<Vec<_>>(), [0, 1, 2, 3]);
    for rank in all {
        assert!(rank["of"] == 4 && rank["processes"] == 1 && rank["exit"]["code"] == 0, "{rank}");
        assert!(rank["peak_ram_bytes"].as_u64().unwrap() >= 100_000_000, "{rank}");
    }
    let cpu_s: f64 = all.iter().map(|rank| rank["cpu_s"].as_f64().unwrap()).sum();
    assert_within("CPU time of the ranks", cpu_s, sum["cpu_s"].as_f64().unwrap(), 0.1);
}

// Requirement: SEE-16, NODE-15
#[test]
fn open_mpi_ranks_match_the_kernel_count_and_cpu() {
    four_ranks("mpicc.openmpi", "mpirun.openmpi", &["--allow-run-as-root", "--oversubscribe"]);
}

// Requirement: SEE-16, NODE-15
#[test]
fn mpich_ranks_match_the_kernel_count_and_cpu() {
    four_ranks("mpicc.mpich", "mpirun.mpich", &[]);
}

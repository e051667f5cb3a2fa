//! Language runtimes and tools, each of which creates processes in its own way.

use crate::support::truth::KernelRecorder;
use crate::support::{Run, assert_within, installed, program, skipped, tracked};

/// Runs a command and compares its processes and CPU time with the kernel's, where those can be recorded. `expected` is
/// the number of processes, if it is known. None: skipped.
///
/// Waits for the last process, because Python's helpers end a moment after their parent.
fn compared_with_kernel(command: &[&str], expected: Option<u64>) -> Option<Run> {
    let Some(path) = installed(command[0]) else {
        skipped(&format!("{} is not installed", command[0]));
        return None;
    };
    let mut words: Vec<String> = command.iter().map(|word| (*word).to_owned()).collect();
    words[0] = path.to_str().unwrap().to_owned();
    let recorder = KernelRecorder::open();
    let run = match &recorder {
        Ok(recorder) => tracked(recorder.wrap(words)).options(&["--wait-all", "-q"]).run(),
        Err(_) => tracked(words).options(&["--wait-all", "-q"]).run(),
    };
    assert_eq!(run.status.code(), Some(0), "{}", run.stderr);
    if let Some(expected) = expected {
        run.report().assert_all_exact(expected);
    }
    match recorder {
        Ok(recorder) => {
            let truth = recorder.close();
            run.report().assert_all_exact(truth.processes());
            // A process can be reaped while another core still tears it down; that time is missing (docs/ACCURACY.md).
            let ends_s = 20e-6 * truth.processes() as f64;
            let percent = 1.0 + 100.0 * ends_s / truth.cpu_s;
            assert_within("cpu_time.total_s", run.report().f64("cpu_time.total_s"), truth.cpu_s, percent);
        }
        Err(reason) if expected.is_none() => {
            skipped(&reason);
            return None;
        }
        Err(_) => {}
    }
    Some(run)
}

fn multiprocessing(method: &str) {
    let directory = tempfile::tempdir().unwrap();
    let script = directory.path().join("pool.py");
    let text = format!(
        "import multiprocessing, time\n\
         def work(_):\n\
        \x20   end = time.thread_time() + 0.3\n\
        \x20   data = bytearray(50_000_000)\n\
        \x20   while time.thread_time() < end: pass\n\
        \x20   return len(data)\n\
         if __name__ == '__main__':\n\
        \x20   multiprocessing.set_start_method('{method}')\n\
        \x20   workers = [multiprocessing.Process(target=work, args=(i,)) for i in range(3)]\n\
        \x20   for worker in workers: worker.start()\n\
        \x20   for worker in workers: worker.join()\n\
        \x20   assert all(worker.exitcode == 0 for worker in workers)\n"
    );
    std::fs::write(&script, text).unwrap();
    let Some(run) = compared_with_kernel(&["python3", script.to_str().unwrap()], None) else { return };
    let report = run.report();
    assert!(report.u64("processes.total") >= 4);
    assert!(report.f64("cpu_time.total_s") >= 0.9);
    let peak = report.f64("max_ram.descendants.total_rss");
    assert!(peak >= 50e6, "one worker alone holds 50 MB; the peak is {peak}");
}

#[test]
fn python_multiprocessing_fork_workers_are_counted() {
    multiprocessing("fork");
}

#[test]
fn python_multiprocessing_spawn_workers_are_counted() {
    multiprocessing("spawn");
}

#[test]
fn python_multiprocessing_forkserver_workers_are_counted() {
    multiprocessing("forkserver");
}

// Requirement: SHIM-15
#[test]
fn python_subprocess_children_are_exact() {
    let code = "import subprocess\nfor i in range(20): subprocess.run(['/bin/true'], check=True)\n\
                for i in range(5): subprocess.run(['/bin/true'], check=True, env={}, close_fds=True)";
    compared_with_kernel(&["python3", "-c", code], Some(26));
}

// Requirement: SHIM-15
#[test]
fn perl_children_are_exact() {
    let code =
        "for (1..10) { system('/bin/true'); `/bin/echo x`; my $p = fork; exit 0 unless $p; waitpid $p, 0; }";
    compared_with_kernel(&["perl", "-e", code], Some(31));
}

// Requirement: SHIM-15
#[test]
fn node_children_are_exact() {
    let code = "const c = require('child_process'); for (let i = 0; i < 5; i++) c.spawnSync('/bin/true');\
                c.execSync('/bin/true; exit 0'); const w = require('worker_threads');\
                new w.Worker('let x = 0; for (let i = 0; i < 1e7; i++) x += i', {eval: true});";
    compared_with_kernel(&["node", "-e", code], Some(8));
}

// Requirement: SHIM-15
#[test]
fn java_threads_and_cpu_are_counted() {
    if installed("javac").is_none() {
        return skipped("javac is not installed, so java runs no source file");
    }
    let source = crate::support::programs::source("Burn.java");
    let Some(run) = compared_with_kernel(&["java", source.to_str().unwrap()], None) else { return };
    assert!(run.stdout.ends_with("done\n"));
    let report = run.report();
    assert!(report.f64("cpu_time.total_s") >= 1.0);
    assert!(report.u64("cpu_utilization.main_n_threads") > 3);
}

#[test]
fn gnu_parallel_jobs_are_counted() {
    let burn = program("burn");
    let Some(run) =
        compared_with_kernel(&["parallel", "-j4", &burn, "{}", ":::", "0.1", "0.2", "0.3", "0.4"], None)
    else {
        return;
    };
    let report = run.report();
    assert_eq!(report.command("burn").unwrap()["count"], 4);
    let burnt = report.command("burn").unwrap()["cpu_s"].as_f64().unwrap();
    // Each job begins as a fork of perl, whose CPU time before the exec is included.
    assert_within("cpu_s of the jobs", burnt, 1.0, 5.0);
}

#[test]
fn pipeline_into_gnu_parallel_matches_the_kernel() {
    compared_with_kernel(
        &["sh", "-c", "seq 20 | parallel -j4 'echo {} | tr 0-9 a-j' | sort | wc -l; exit 0"],
        None,
    );
}

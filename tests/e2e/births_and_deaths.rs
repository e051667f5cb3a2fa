//! Every way to create and end a process gives the right count, CPU time and peak.

use crate::support::{assert_within, kill, program, skip, static_program, tracked, wait_until};

/// The most CPU time that process start-up and the shell may add to the known work.
const OVERHEAD_S: f64 = 0.1;

// Requirement: CPU-3
#[test]
fn killed_child_has_exact_cpu_and_peak() {
    let run = tracked([program("killed"), "1".into(), "100000000".into()]).options(&["--st", "10"]).run();
    let report = run.assert_clean(0);
    report.assert_all_exact(2);
    let child_s: f64 = run.stdout.trim().parse().unwrap();
    let heaviest = &report.array("processes.heaviest")[0];
    assert_within("cpu_s of the child", heaviest["cpu_s"].as_f64().unwrap(), child_s, 1.0);
    assert_eq!(heaviest["exit"]["signal"], 9);
    assert!(heaviest["exit"]["code"].is_null());
    assert_within("descendants", report.f64("max_ram.descendants.total_rss"), 100e6, 3.0);
}

// Requirement: CPU-4
#[test]
fn cpu_of_unreaped_children_is_not_added_to_their_parent() {
    // The parents exit without waiting, so the launcher reaps their zombies. The static programs keep the collector busy
    // meanwhile.
    let group = "f{f{c5} f{c5} c15 s9} f{f{c5 s9} f{c5 Y4} c10} P{c1} P{c2} a ";
    let run = tracked([program("twig"), group.repeat(12)])
        .options(&["--wait-all", "-q"])
        .with(|command| command.env("TWIG_STATIC", static_program("twig")))
        .run();
    let report = run.assert_clean(0);
    report.assert_cpu(report.f64("cpu_time.kernel_s"), 1.0);
}

// Requirement: SEE-12, SEE-51
#[test]
fn static_child_is_exact_and_listed_as_static() {
    let burn = static_program("burn");
    let run = tracked(["sh", "-c", &format!("{burn} 0.5; exit 0")]).run();
    let report = run.assert_clean(0);
    report.assert_all_exact(2);
    report.assert_cpu_between(0.5, OVERHEAD_S);
    let listed = report.array("coverage.static_executables");
    assert!(listed.iter().any(|path| *path == burn.as_str()), "static_executables is {listed:?}");
}

// Requirement: SEE-51
#[test]
fn static_command_has_exact_cpu() {
    let run = tracked([static_program("burn"), "0.5".into()]).run();
    let report = run.assert_clean(0);
    report.assert_all_exact(1);
    report.assert_cpu(0.5, 1.0);
}

// Requirement: CPU-5, CPU-52, CPU-53
#[test]
fn autoreaped_children_are_exact_and_kernel_s_is_null() {
    let run = tracked([program("ignored_sigchld"), "10".into(), "0.1".into()]).run();
    let report = run.assert_clean(0);
    report.assert_all_exact(11);
    report.assert_cpu_between(1.0, OVERHEAD_S);
    assert!(report.at("cpu_time.kernel_s").is_null(), "wait accounting does not include autoreaped children");
    assert!(report.at("cpu_time.kernel_s_reason").is_string());
}

// Requirement: CPU-2, CPU-5, CPU-53
#[test]
fn uninstrumented_program_that_waits_and_then_ignores_sigchld_counts_its_children_once() {
    for layers in ["preload,wait,subreaper,scan,connector", "preload,wait,subreaper,scan"] {
        let run = tracked([static_program("ignored_sigchld"), "5".into(), "0.1".into(), "0.4".into()]);
        let run = run.options(&["--layers", layers, "--st", "0.01"]).run();
        let report = run.assert_clean(0);
        let total_s = report.f64("cpu_time.total_s");
        // Without the connector a child has what its last sample saw.
        assert!(total_s > 0.4 && total_s < 0.9 + OVERHEAD_S, "{total_s} s, not 0.9: {report}");
        assert!(report.at("cpu_time.kernel_s").is_null(), "{report}");
    }
}

// Requirement: SHIM-6
#[test]
fn thread_cancelled_in_wait_leaves_figures_exact() {
    for function in ["waitpid", "waitid"] {
        let run = tracked([program("cancelled_wait"), function.into(), "0.2".into()]).run();
        let report = run.assert_clean(0);
        report.assert_all_exact(2);
        report.assert_cpu_between(0.2, OVERHEAD_S);
    }
}

// Requirement: SEE-85, SHIM-5
#[test]
fn shim_makes_no_call_under_a_killing_seccomp_filter() {
    for how in ["prctl", "syscall", "strict"] {
        let run = tracked([program("seccomp"), how.into()]).run();
        let report = run.assert_clean(0);
        report.assert_all_exact(2);
        report.assert_cpu_between(0.05, OVERHEAD_S);
    }
}

// Requirement: SEE-10
#[test]
fn failed_posix_spawn_is_counted_with_its_child() {
    let run = tracked([program("births"), "posix_spawn_fails".into(), "0".into()]).run();
    let report = run.assert_clean(0);
    assert_eq!(report.u64("coverage.failed_spawns"), 1);
    assert_eq!(report.u64("processes.total"), 2, "the child existed until its exec failed");
}

fn assert_daemon_is_still_running(how: &str) {
    let pid_file = tempfile::tempdir().unwrap();
    let path = pid_file.path().join("pid");
    let words = [program("daemon"), how.into(), path.to_str().unwrap().into()];
    let run = tracked(words).leaves_processes().run();
    wait_until("the daemon's pid", || path.exists());
    let pid: u32 = std::fs::read_to_string(&path).unwrap().trim().parse().unwrap();
    let listed = run.report().array("processes.still_running_processes").to_vec();
    kill(pid, libc::SIGTERM);
    wait_until("the daemon's end", || {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.is_empty() || stat.rsplit(')').next().unwrap().starts_with(" Z")
    });
    let report = run.assert_clean(0);
    assert_eq!(report.u64("processes.total"), 3);
    assert_eq!(report.u64("processes.still_running"), 1);
    assert_eq!(listed.len(), 1);
    assert_eq!((&listed[0]["pid"], &listed[0]["command"]), (&pid.into(), &"daemon".into()));
}

// Requirement: SEE-6, SEE-90
#[test]
fn libc_daemon_is_reported_as_still_running() {
    assert_daemon_is_still_running("libc");
}

// Requirement: SEE-6
#[test]
fn double_fork_daemon_is_reported_as_still_running() {
    assert_daemon_is_still_running("double");
}

// Requirement: SEE-6, SEE-90
#[test]
fn wait_all_waits_for_the_last_daemon() {
    let pid_file = tempfile::tempdir().unwrap();
    let path = pid_file.path().join("pid");
    let words = [program("daemon"), "double".into(), path.to_str().unwrap().into()];
    let running = tracked(words).options(&["--wait-all", "-q"]).start();
    wait_until("the daemon's pid", || path.exists());
    kill(std::fs::read_to_string(&path).unwrap().trim().parse().unwrap(), libc::SIGTERM);
    let run = running.wait();
    let report = run.assert_clean(0);
    report.assert_all_exact(3);
    assert_eq!(report.u64("processes.still_running"), 0);
}

// Requirement: SEE-6
#[test]
fn background_children_of_an_exited_shell_are_exact() {
    let burn = program("burn");
    let run = tracked(["sh", "-c", &format!("({burn} 0.3 & exec {burn} 0.3) & exit 0")])
        .options(&["--wait-all", "-q"])
        .run();
    let report = run.assert_clean(0);
    report.assert_all_exact(3);
    report.assert_cpu_between(0.6, OVERHEAD_S);
}

// Requirement: HOST-1
#[test]
fn musl_child_is_exact_without_the_shim() {
    if crate::support::installed("musl-gcc").is_none() {
        skip!("musl-gcc is not installed");
    }
    let burn = crate::support::programs::compiled("burn", "musl-gcc", &[]);
    let run = tracked(["sh", "-c", &format!("{burn} 0.3; exit 0")]).run();
    let report = run.assert_clean(0);
    report.assert_all_exact(2);
    report.assert_cpu_between(0.3, OVERHEAD_S);
}

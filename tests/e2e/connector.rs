//! The process connector: uninstrumented processes of the tree are counted, and no other processes are.

use crate::support::report::Report;
use crate::support::run::Run;
use crate::support::{is_root, or_skip, program, skip, static_program, tracked};

/// Starts 20 children, one after another.
const CHILDREN: &str = "i=0; while [ $i -lt 20 ]; do /bin/true; i=$((i + 1)); done";

/// A run's report, or the reason why connector events are absent or incomplete.
fn complete_report(run: &Run) -> Result<&Report, String> {
    let report = run.assert_clean(0);
    match report.at("coverage.connector_absent").as_str() {
        Some(reason) => Err(reason.to_owned()),
        // Other tests start thousands of processes at the same time; a socket buffers only some thousand events.
        None if report.u64("coverage.connector_overruns") > 0 => {
            assert!(report.warnings().contains("faster than they could be read"), "{}", report.warnings());
            Err("connector events came faster than they were read".into())
        }
        None => Ok(report),
    }
}

// Requirement: SEE-7, SEE-53, SEE-54
#[test]
fn short_static_children_are_all_counted() {
    let run =
        tracked([static_program("runs"), "100".into(), static_program("runs"), "0".into(), "x".into()]).run();
    let report = or_skip!(complete_report(&run));
    assert_eq!(report.u64("processes.total"), 101);
    assert!(report.at("coverage.uncounted_reason").is_null(), "{report}");
    // A scan may find a process before its connector event is read.
    let found = ["connector", "scan"].map(|layer| report.u64(&format!("coverage.layers.{layer}")));
    assert_eq!(found.iter().sum::<u64>(), 100, "{found:?}");
    // If a zombie's CPU clock was read, its value is subtracted from the command's, so the sum stays right.
    report.assert_cpu(report.f64("cpu_time.kernel_s"), 1.0);
    assert_eq!(report.at("processes.heaviest.0.exit.code"), 0);
}

/// Children that are shorter than a sampling interval.
// Requirement: SEE-107
#[test]
fn count_without_the_connector_is_called_a_lower_bound() {
    let job =
        || tracked([static_program("runs"), "200".into(), static_program("runs"), "0".into(), "x".into()]);
    let without = ["--layers", "preload,wait,subreaper,scan"];
    let reason = "short children of static programs are not counted";
    let run = job().options(&without).run();
    assert!(run.report().u64("processes.total") < 201, "{}", run.report());
    assert_eq!(run.report().at("coverage.uncounted_reason"), reason);
    let run = job().only_options(&without).run();
    // The text goes on in the next line.
    let summary = run.stderr.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(summary.contains("Processes at least ") && summary.contains(reason), "{}", run.stderr);
    assert!(!summary.contains("all exact"), "{}", run.stderr);
}

// Requirement: SEE-107
#[test]
fn count_without_the_preload_layer_is_a_lower_bound_only_where_the_connector_is_off() {
    let of_layers = |layers: &str| tracked(["sh", "-c", CHILDREN]).options(&["--layers", layers]).run();
    let reason = "the preload layer is off: short processes are not counted";
    let warning = "The preload layer is off";
    let without = of_layers("wait,subreaper,scan");
    assert_eq!(without.report().at("coverage.uncounted_reason"), reason);
    assert!(without.report().warnings().contains(warning), "{}", without.report());
    let with = of_layers("wait,subreaper,scan,connector");
    let report = or_skip!(complete_report(&with));
    assert_eq!(report.u64("processes.total"), 21, "{report}");
    assert!(report.at("coverage.uncounted_reason").is_null(), "{report}");
    assert!(!report.warnings().contains(warning), "{report}");
}

// Requirement: SEE-7, SEE-53
#[test]
fn static_children_have_their_known_cpu_time() {
    let (runs, burn) = (static_program("runs"), static_program("burn"));
    let run = tracked([&runs, "3", &burn, "0.3"]).run();
    let report = or_skip!(complete_report(&run));
    assert_eq!(report.u64("processes.total"), 4);
    assert_eq!(report.command("burn").unwrap()["count"], 3);
    report.assert_cpu(0.9, 3.0);
    report.assert_cpu(report.f64("cpu_time.kernel_s"), 1.0);
    let listed = report.array("coverage.static_executables");
    assert!(listed.contains(&runs.into()) && listed.contains(&burn.into()), "{listed:?}");
}

/// Root's command has another user's shell run this.
fn with_another_users_shell(script: &str) -> Run {
    let script = format!("setpriv --reuid 65534 --regid 65534 --clear-groups sh -c '{script}'; exit 0");
    tracked(["sh", "-c", &script]).with(|command| command.env_remove("XDG_CACHE_HOME")).run()
}

// Requirement: SEE-53
#[test]
fn what_children_of_another_users_shell_lack_is_not_its_own() {
    if !is_root() {
        skip!("needs root (setpriv)");
    }
    let burn = program("burn");
    let run = with_another_users_shell(&format!("{burn} 0.1; {burn} 0.1; {burn} 0.1; {burn} 0.1; exit 0"));
    let report = or_skip!(complete_report(&run));
    assert_eq!(report.u64("processes.total"), 6);
    assert_missing_time_is_unattributed(report);
}

/// An ordinary user gets no accounts of exits, so that the children's figures are from samples.
// Requirement: SEE-53, SEE-54
#[test]
fn what_children_of_a_users_static_program_lack_is_not_its_own() {
    let (runs, burn) = (static_program("runs"), static_program("burn"));
    let run = or_skip!(tracked([&runs, "4", &burn, "0.1"]).by_an_ordinary_user()).run();
    let report = or_skip!(complete_report(&run));
    assert_eq!(report.u64("processes.total"), 5);
    assert_missing_time_is_unattributed(report);
}

fn assert_missing_time_is_unattributed(report: &Report) {
    report.assert_cpu(report.f64("cpu_time.kernel_s"), 1.0);
    // Each child may lack what it used after its last sample. That time stays unattributed, and is not counted as the
    // shell's.
    let children = report.array("processes.heaviest").iter().filter(|process| process["command"] == "burn");
    let lacking_s: f64 = children.map(|burn| (0.1 - burn["cpu_s"].as_f64().unwrap()).max(0.0)).sum();
    let unattributed_s = report.f64("cpu_time.unattributed_s");
    assert!(unattributed_s + 0.002 >= lacking_s, "{unattributed_s} s unattributed, {lacking_s} s lacking");
}

/// Of the children of the static program `runs`, the CPU time (seconds) and the peak RSS (bytes) of those that have it exact.
/// On a busy machine the collector can be late for some, and it begins to read accounts when it has seen `runs`.
fn exact_children(report: &Report) -> (Vec<f64>, Vec<f64>) {
    let processes = report.array("processes.heaviest");
    let main = processes.iter().find(|process| process["command"] == "runs").expect("it is listed");
    let children = || processes.iter().filter(|process| process["ppid"] == main["pid"]);
    let exact = |figure, quality| {
        let of_those = children().filter(|child| child[quality] == "exact");
        of_those.map(|child| child[figure].as_f64().expect("a number")).collect()
    };
    (exact("cpu_s", "cpu_quality"), exact("peak_rss_bytes", "peak_quality"))
}

// Requirement: SEE-22, SEE-97
#[test]
fn kernel_accounts_for_static_children_of_a_static_parent() {
    if !is_root() {
        skip!("needs root (taskstats)");
    }
    let list_all = ["--heaviest", "100"];
    // Two threads with 20 ms each.
    let (runs, burn, touch) = (static_program("runs"), static_program("burn"), static_program("touch"));
    let run = tracked([runs.as_str(), "20", &burn, "0.02", "threads", "2"]).options(&list_all).run();
    let report = or_skip!(complete_report(&run));
    let (cpu_s, _) = exact_children(report);
    assert!(cpu_s.len() >= 10, "{cpu_s:?}");
    assert!(cpu_s.iter().all(|cpu_s| (0.04..0.06).contains(cpu_s)), "{cpu_s:?}");
    report.assert_cpu(report.f64("cpu_time.kernel_s"), 1.0);
    let run = tracked([runs.as_str(), "20", &touch, "hold", "30000000", "0"]).options(&list_all).run();
    let report = or_skip!(complete_report(&run));
    let (_, peak_bytes) = exact_children(report);
    assert!(peak_bytes.len() >= 10, "{peak_bytes:?}");
    assert!(peak_bytes.iter().all(|peak| (29.7e6..32e6).contains(peak)), "{peak_bytes:?}");
}

// Requirement: SEE-22, SEE-53, SEE-97, SEE-98
#[test]
fn kernel_accounts_for_children_of_another_users_shell() {
    if !is_root() {
        skip!("needs root (setpriv)");
    }
    let burn = program("burn");
    let run = with_another_users_shell(&format!("for i in 1 2 3 4 5 6 7 8; do {burn} 0.02; done; exit 0"));
    let report = or_skip!(complete_report(&run));
    assert_eq!(report.u64("processes.total"), 10);
    assert_eq!(report.u64("coverage.unknown"), 0);
    // Besides the command's shell: on a busy machine the collector can be late for some.
    assert!(
        report.u64("coverage.exact") >= 6 && report.u64("coverage.peaks.exact") >= 6,
        "{}",
        report.warnings()
    );
    report.assert_cpu(report.f64("cpu_time.kernel_s"), 1.0);
}

// Requirement: RAM-20, RAM-21
#[test]
fn peak_of_a_static_fork_child_between_samples_is_known() {
    // A static child of a static program holds 200 MB for 30 ms, long after the run was young.
    let script = format!("sleep 0.7; {} forks 1 200000000 30; sleep 0.1", static_program("touch"));
    let mut sampled = 0;
    for _ in 0..5 {
        let run = tracked(["sh", "-c", &script]).options(&["--st", "10"]).run();
        let report = or_skip!(complete_report(&run));
        // On a busy machine the sample may be missed. Then sh knows from wait4 that somebody held them.
        for set in ["descendants", "combined"] {
            let total = report.f64(&format!("max_ram.{set}.total_rss"));
            assert!(total > 0.97 * 200e6, "{set} is {total}");
        }
        let peak = report.command("touch").and_then(|touch| touch["peak_rss_bytes"].as_f64());
        let is_sampled = peak.is_some_and(|peak| peak > 0.97 * 200e6);
        assert_eq!(
            !is_sampled,
            report.all_warnings().join("\n").contains("between two samples, and what the others"),
            "{peak:?}"
        );
        sampled += u32::from(is_sampled);
    }
    assert!(sampled >= 3, "sampled in {sampled} of 5 runs");
}

// Requirement: SEE-7
#[test]
fn dynamic_children_of_a_static_child_are_not_joined() {
    let script = format!("{} 20 /bin/true; exit 0", static_program("runs"));
    let run = tracked(["sh", "-c", &script]).run();
    let report = or_skip!(complete_report(&run));
    report.assert_all_exact(22);
    assert_eq!(report.u64("coverage.joined"), 0);
    // On a busy machine no sample may have seen the name of the static one.
    assert_eq!(report.command("true").unwrap()["count"], 20);
}

// Requirement: SEE-7
#[test]
fn connector_works_for_an_unprivileged_user() {
    let runs = static_program("runs");
    let run = or_skip!(tracked([&runs, "10", &runs, "0", "x"]).by_an_ordinary_user()).run();
    let report = or_skip!(complete_report(&run));
    assert_eq!(report.u64("processes.total"), 11);
}

// Requirement: SEE-7
#[test]
fn another_users_processes_are_counted() {
    if !is_root() {
        skip!("needs root (setpriv)");
    }
    let script = format!("/bin/true; /bin/true; {} 0.3; exit 0", program("burn"));
    let run =
        tracked(["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "sh", "-c", &script])
            .with(|command| command.env_remove("XDG_CACHE_HOME"))
            .run();
    let report = or_skip!(complete_report(&run));
    assert_eq!(report.u64("processes.total"), 4);
    report.assert_cpu_between(0.3, 0.1);
}

// Requirement: SEE-7
#[test]
fn processes_outside_the_tree_are_not_counted() {
    let storm = || std::process::Command::new(program("runs")).args(["400", "/bin/true"]).spawn().unwrap();
    let mut strangers = storm();
    let runs = static_program("runs");
    let (one, other) =
        (tracked([&runs, "200", "/bin/true"]).start(), tracked([&runs, "300", &runs, "0", "x"]).start());
    let (one, other) = (one.wait(), other.wait());
    assert!(strangers.wait().unwrap().success());
    for (run, processes) in [(one, 201), (other, 301)] {
        assert_eq!(or_skip!(complete_report(&run)).u64("processes.total"), processes);
    }
}

// Requirement: SEE-8
#[test]
fn each_reuse_of_a_pid_is_a_new_process() {
    if !is_root() {
        skip!("needs root (a pid namespace)");
    }
    // Each child gets pid 100 in the namespace: by turns an instrumented and an uninstrumented program.
    let script = format!(
        "i=0; while [ $i -lt 20 ]; do echo 99 >/proc/sys/kernel/ns_last_pid; /bin/true;
         echo 99 >/proc/sys/kernel/ns_last_pid; {} 0 x; i=$((i+1)); done; exit 0",
        static_program("runs")
    );
    let run = tracked(["unshare", "-fp", "--mount-proc", "sh", "-c", &script]).run();
    let report = or_skip!(complete_report(&run));
    report.assert_all_exact(42);
    assert_eq!(report.command("true").unwrap()["count"], 20);
}

#[test]
fn connector_events_survive_a_killed_collector() {
    let script =
        format!("{0} 10 {0} 0 x; echo ready; read x; {0} 10 {0} 0 x; exit 0", static_program("runs"));
    let mut running = tracked(["sh", "-c", &script]).piped_stdin().start();
    running.wait_for_output("ready");
    running.replace_collector();
    std::io::Write::write_all(&mut running.stdin(), b"go\n").unwrap();
    let run = running.wait();
    assert_eq!(or_skip!(complete_report(&run)).u64("processes.total"), 23);
}

// Requirement: SEE-11
#[test]
fn disabled_connector_is_reported_as_switched_off() {
    let run = tracked(["/bin/true"]).options(&["--layers", "preload,wait,subreaper,scan"]).run();
    let report = run.assert_clean(0);
    assert_eq!(report.at("coverage.connector_absent"), "switched off");
    assert!(report.at("coverage.layers.connector").is_null());
}

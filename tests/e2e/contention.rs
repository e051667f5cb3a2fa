//! Others on the cores that the command may use: what the report says of them, and of what it does not know.

use std::process::{Child, Command};

use gpu_track_collector::model::config::ReportTarget;
use gpu_track_collector::model::style::Style;
use gpu_track_collector::report::format::render;
use gpu_track_collector::report::read::read as read_report;

use crate::support::report::Report;
use crate::support::{installed, is_root, or_skip, program, skip, tracked};

/// Processes that keep cores busy until they are dropped.
struct Burners(Vec<Child>);

impl Burners {
    /// One for each of these processors, pinned to it.
    fn on(cpus: &[u32]) -> Self {
        let burn = |cpu: &u32| {
            let mut command = Command::new("taskset");
            command.args(["-c", &cpu.to_string(), &program("burn"), "1000"]).spawn().unwrap()
        };
        Self(cpus.iter().map(burn).collect())
    }
}

impl Drop for Burners {
    fn drop(&mut self) {
        for burner in &mut self.0 {
            drop(burner.kill());
            drop(burner.wait());
        }
    }
}

/// The first two processors that this process may run on. The error is the reason why there are none.
fn two_cpus() -> Result<[u32; 2], String> {
    if installed("taskset").is_none() {
        return Err("taskset is not installed".into());
    }
    let run = tracked(["true"]).run();
    let cpus: Vec<_> = run.report().array("limits.cpus").iter().map(|cpu| cpu.as_u64().unwrap()).collect();
    match cpus[..] {
        [first, second, ..] => Ok([first, second].map(|cpu| u32::try_from(cpu).unwrap())),
        _ => Err("there is one core".into()),
    }
}

/// The summary of this report, and its full text.
fn texts(report: &Report) -> [String; 2] {
    let report = read_report(&report.0.to_string()).unwrap().report;
    [false, true].map(|full| {
        let style = Style { full, hints: true, ..Style::default() };
        render(&report, &ReportTarget::default(), style)
    })
}

/// What JSON and text say of the same run agrees, whatever else the machine does.
fn assert_agrees(report: &Report) {
    let is_contended = report.at("contention.is_contended").as_bool();
    let others = report.at("contention.others_cores").as_f64();
    let may_be = is_contended.unwrap_or(others.is_some());
    let [summary, full] = texts(report);
    // The row is left out if the verdict says the same, or if the run waited for a core for less than a tenth of its time.
    let states = report.array("time_spent.states").iter();
    let waited =
        states.filter(|time| time["state"] == "waiting_for_core").filter_map(|time| time["share"].as_f64());
    let is_known = report.u64("time_spent.n_samples") > 0;
    let is_left_out = is_known && waited.sum::<f64>() < 0.1
        || report.at("time_spent.verdict")["kind"] == "waiting_for_core";
    assert_eq!(
        summary.contains("other programs had"),
        is_contended == Some(true) && !is_left_out,
        "{summary}"
    );
    assert_eq!(summary.contains("--cpus-per-task"), !may_be, "{summary}");
    assert_eq!(report.at("hints.cpus.is_lower_bound"), may_be);
    assert!(!may_be || report.at("hints.cpus.is_serial") == false);
    assert!(!may_be || !full.contains("it ran serially"), "{full}");
    let is_null = ["is_contended", "others_cores", "stolen_cores", "waiting_threads"]
        .iter()
        .any(|key| report.at(&format!("contention.{key}")).is_null());
    assert!(is_null <= report.at("contention.reason").is_string(), "{}", report.at("contention"));
}

// Requirement: CPU-11, HINT-5
#[test]
fn run_beside_busy_processes_is_not_called_serial() {
    let cpus = or_skip!(two_cpus());
    let burners = Burners::on(&cpus);
    let list = format!("{},{}", cpus[0], cpus[1]);
    // Two processes that have half of each core use one core in all, as a serial program does.
    let run =
        tracked([program("burn").as_str(), "1.2", "children", "2"]).through(&["taskset", "-c", &list]).run();
    drop(burners);
    let report = run.assert_clean(0);
    if report.at("contention.others_cores").is_null() || report.at("limits.cpu_millicores").is_u64() {
        skip!("{}, CPU quota {}", report.at("contention.reason"), report.at("limits.cpu_millicores"));
    }
    assert_eq!(report.at("contention.is_contended"), true);
    let counts_delays =
        std::fs::read_to_string("/proc/self/schedstat").is_ok_and(|text| !text.starts_with("0 "));
    assert!(!counts_delays || report.f64("contention.waiting_threads") > 0.1, "{}", report.at("contention"));
    assert_eq!(report.u64("contention.allowed_cores"), 2);
    // Burners have half of the time, or less where others run, too.
    assert!((0.3..2.05).contains(&report.f64("contention.others_cores")), "{}", report.at("contention"));
    assert_eq!(report.at("hints.cpus.is_serial"), false);
    assert_eq!(report.at("hints.cpus.is_lower_bound"), true);
    assert_agrees(report);
}

// Requirement: CPU-11, HINT-5
#[test]
fn text_speaks_of_others_where_the_figures_do() {
    for command in [["0.6", "children", "2"], ["0.2", "threads", "8"]] {
        let run = tracked([&[program("burn").as_str()], command.as_slice()].concat()).run();
        let report = run.assert_clean(0);
        let cores = report.array("limits.cpus").len();
        assert_eq!(report.u64("contention.allowed_cores"), cores as u64);
        if let Some(others) = report.at("contention.others_cores").as_f64() {
            assert!((0.0..cores as f64 * 1.1).contains(&others), "{others} of {cores} cores");
        }
        assert_agrees(report);
    }
}

// Requirement: CPU-11
#[test]
fn cores_of_a_run_with_two_collectors_are_known() {
    let run = tracked(["sh", "-c", &format!("echo up; read line; {} 0.3", program("burn"))]).piped_stdin();
    let mut running = run.start();
    running.wait_for_output("up");
    running.wait_for_collector();
    running.replace_collector();
    drop(running.stdin());
    let run = running.wait();
    let report = run.report();
    let contention = report.at("contention");
    assert!(!contention["others_cores"].is_null() || contention["reason"].is_string(), "{contention}");
    assert_agrees(report);
}

// Requirement: CPU-12
#[test]
fn without_the_times_of_cores_others_are_unknown() {
    if !is_root() {
        skip!("needs root (mount)");
    }
    let run =
        tracked([program("burn").as_str(), "0.1"]).with_mounts("mount --bind /dev/null /proc/stat").run();
    let report = run.report();
    assert_eq!(report.at("contention.reason"), "/proc/stat does not have the cores");
    assert!(report.at("contention.is_contended").is_null() && report.at("contention.others_cores").is_null());
    assert_eq!(report.at("hints.cpus.is_lower_bound"), false);
    assert_agrees(report);
}

//! Random trees of processes, compared with the kernel's own figures. Each process is counted once, the CPU time is
//! complete, and each peak RSS is right as far as the report claims.
//!
//! A failing tree is shrunk and reported with its seed; GPU_TRACK_TEST_SEED repeats it.

use std::collections::HashMap;
use std::time::{SystemTime, UNIX_EPOCH};

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner};

use crate::support::report::Report;
use crate::support::truth::{KernelRecorder, Truth};
use crate::support::{or_skip, program, skip, static_program, tracked};

/// How the trees are run.
#[derive(Clone, Copy)]
struct Setup {
    shim: Shim,
    /// Through this command.
    through: &'static [&'static str],
    reaper: OrphanReaper,
}

/// The process that reaps orphans.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OrphanReaper {
    Launcher,
    /// A static subreaper, which is uninstrumented.
    Subreaper,
    /// The init of a pid namespace. The tree's programs report their peaks by the namespace's pids, not the kernel's.
    Init,
}

/// The programs that carry the shim.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shim {
    InAll,
    /// The programs that do not carry the shim are static or made by a raw clone.
    InSome,
}

/// Scripts for tests/programs/twig.c. The computing times are long compared with process start-up, so that 1% is a
/// meaningful tolerance.
fn script(shim: Shim) -> BoxedStrategy<String> {
    let work = prop_oneof![
        4 => Just("c20".to_owned()),
        2 => prop_oneof![Just("m3"), Just("m9"), Just("m30")].prop_map(str::to_owned),
        1 => Just("t".to_owned()),
        3 => prop_oneof![Just("a"), Just("w"), Just("W")].prop_map(str::to_owned),
        1 => Just("k".to_owned()),
    ];
    let end = prop_oneof![
        5 => Just(""),
        3 => prop_oneof![Just("x5"), Just("X3"), Just("Y4"), Just("s9")],
    ];
    let leaf = vec(work.clone(), 1..3).prop_map(|words| words.join(" "));
    leaf.prop_recursive(4, 24, 4, move |inside| {
        let makers = match shim {
            Shim::InAll => {
                prop_oneof![3 => Just("f"), 2 => Just("p"), 1 => Just("d"), 1 => Just("e")].boxed()
            }
            Shim::InSome => {
                let uninstrumented = prop_oneof![1 => Just("F"), 2 => Just("P"), 1 => Just("E")];
                let instrumented =
                    prop_oneof![2 => Just("f"), 1 => Just("p"), 1 => Just("d"), 1 => Just("e")];
                prop_oneof![uninstrumented, instrumented].boxed()
            }
        };
        let child = (makers, inside, end.clone())
            .prop_map(|(maker, inside, end)| format!("{maker}{{c20 {inside} {end}}}"));
        vec(prop_oneof![2 => child, 1 => work.clone()], 1..4).prop_map(|words| words.join(" "))
    })
    .prop_map(move |tree| match shim {
        Shim::InAll => format!("c20 {tree}"),
        // Each tree has at least one uninstrumented process that holds memory.
        Shim::InSome => format!("c20 P{{c20 m9 c20}} {tree}"),
    })
    .boxed()
}

fn compare_with_kernel(script: &str, setup: Setup) -> Result<(), TestCaseError> {
    let recorder = KernelRecorder::open().map_err(TestCaseError::reject)?;
    let directory = tempfile::tempdir().unwrap();
    let peaks = directory.path().join("peaks");
    let mut words: Vec<String> = setup.through.iter().map(|word| (*word).to_owned()).collect();
    match setup.reaper {
        OrphanReaper::Launcher => {}
        OrphanReaper::Subreaper => words.extend([static_program("init"), "-s".to_owned()]),
        OrphanReaper::Init => words.push(program("init")),
    }
    words.extend([program("twig"), script.to_owned()]);
    let peaks_file = peaks.clone();
    let run = tracked(recorder.wrap(words))
        .options(&["--wait-all", "-q", "--heaviest", "1000"])
        .with(move |command| {
            command
                .env("TWIG_DYNAMIC", program("twig"))
                .env("TWIG_STATIC", static_program("twig"))
                .env("TWIG_PEAKS", peaks_file)
        })
        .run();
    let truth = recorder.close();
    let report = run.report();
    prop_assert_eq!(report.u64("processes.total"), truth.processes(), "processes");
    let off = report.f64("cpu_time.total_s") - truth.cpu_s;
    let allowed = truth.cpu_s * 0.01 + truth.cgroup_entry_s;
    prop_assert!(off.abs() <= allowed, "CPU time is {off:+} s off {} s", truth.cpu_s);
    prop_assert_eq!(report.u64("coverage.dropped_events"), 0);
    if setup.reaper == OrphanReaper::Init {
        return Ok(());
    }
    let peaks = std::fs::read_to_string(&peaks).unwrap_or_default();
    check_peaks(report, &truth, &PeaksBeforeExec::parse(&peaks))
}

/// The peaks that programs of the tree wrote down before an exec discarded their memory, by pid.
struct PeaksBeforeExec(HashMap<u32, Peak>);

/// A fork child may have read in this many bytes of file pages again. Whether these are its own cannot be known.
const FILE_BYTES: u64 = 4 << 20;

/// The range that contains the true peak RSS, in bytes.
#[derive(Clone, Copy, Default)]
struct Peak {
    at_least: u64,
    at_most: u64,
}

impl PeaksBeforeExec {
    fn parse(lines: &str) -> Self {
        let mut peaks: HashMap<u32, Peak> = HashMap::new();
        for line in lines.lines() {
            let (line, is_raw) = line.strip_suffix(" raw").map_or((line, false), |line| (line, true));
            let numbers: Vec<u64> = line.split(' ').map(|word| word.parse().unwrap()).collect();
            let [pid, peak, at_fork] = numbers.try_into().expect("pid, peak and RSS at the fork, KiB");
            let own = (peak - at_fork) * 1024;
            // RAM-54 excepts a fork child that grows by less than this before its exec, and any raw clone.
            let is_certain = at_fork == 0 || (!is_raw && own > FILE_BYTES + 2 * tolerance(peak * 1024));
            let process = peaks.entry(pid as u32).or_default();
            process.at_least = process.at_least.max(if is_certain { own } else { 0 });
            process.at_most = process.at_most.max(own + FILE_BYTES.min(at_fork * 1024));
        }
        Self(peaks)
    }
}

/// The error of the kernel's own RSS figures, whose counters are batched per CPU.
fn tolerance(rss_bytes: u64) -> u64 {
    // SAFETY: sysconf has no preconditions.
    let (cores, page) =
        unsafe { (libc::sysconf(libc::_SC_NPROCESSORS_CONF), libc::sysconf(libc::_SC_PAGESIZE)) };
    let (cores, page) = (cores as u64, page as u64);
    (rss_bytes / 100).max(3 * 32.max(2 * cores) * page * cores)
}

/// An exact peak is the true one. A bound is at least the true peak, and a sample at most.
fn check_peaks(report: &Report, truth: &Truth, before_exec: &PeaksBeforeExec) -> Result<(), TestCaseError> {
    let listed = report.array("processes.heaviest");
    prop_assert_eq!(listed.len() as u64, report.u64("processes.total"), "processes that are listed singly");
    let by_pid = truth.by_pid();
    for process in listed {
        let Some(recorded) = by_pid.get(&(process["pid"].as_u64().expect("a pid") as u32)) else { continue };
        // The kernel gives the peak of a process's last image; the programs wrote down those of the images before.
        let mut peak = before_exec.0.get(&recorded.pid).copied().unwrap_or_default();
        if recorded.pid == truth.tree[0].pid {
            peak.at_least = peak.at_least.max(truth.root_peak_before_bytes);
        }
        let at_least = peak.at_least.max(recorded.hiwater_rss_bytes);
        let at_most = peak.at_most.max(at_least);
        let is_short = |ours: u64| ours + tolerance(at_least) < at_least;
        let is_over = |ours: u64| ours > at_most + tolerance(at_most);
        let is_right = match (process["peak_quality"].as_str(), process["peak_rss_bytes"].as_u64()) {
            (Some("exact"), Some(ours)) => !is_short(ours) && !is_over(ours),
            (Some("bound"), Some(ours)) => !is_short(ours),
            (Some("sampled"), Some(ours)) => !is_over(ours),
            (Some("unknown"), None) => true,
            _ => false,
        };
        prop_assert!(is_right, "peak of {process}: the truth is {at_least} to {at_most}");
    }
    Ok(())
}

fn check_random_trees(setup: Setup, cases: u32) {
    drop(or_skip!(KernelRecorder::open()));
    let seed = match std::env::var("GPU_TRACK_TEST_SEED") {
        Ok(seed) => seed.parse().expect("a number"),
        Err(_) => SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64,
    };
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let config = Config { cases, failure_persistence: None, max_shrink_iters: 40, ..Config::default() };
    let mut runner = TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &bytes));
    if let Err(error) = runner.run(&script(setup.shim), |script| compare_with_kernel(&script, setup)) {
        panic!("GPU_TRACK_TEST_SEED={seed}: {error}");
    }
}

/// The reason why the process connector is not available.
fn connector_absent() -> Option<String> {
    let run = tracked(["/bin/true"]).run();
    run.report().at("coverage.connector_absent").as_str().map(str::to_owned)
}

/// Whether a pid namespace can be made here.
fn pid_namespace() -> Result<(), String> {
    let made = std::process::Command::new("unshare").args(["-fp", "true"]).status();
    made.is_ok_and(|status| status.success())
        .then_some(())
        .ok_or("pid namespaces are not permitted".to_owned())
}

// Requirement: RAM-9, RAM-66, SEE-15
#[test]
fn fully_instrumented_trees_match_the_kernel() {
    check_random_trees(Setup { shim: Shim::InAll, through: &[], reaper: OrphanReaper::Launcher }, 40);
}

// Requirement: RAM-9, SEE-15, SEE-80
#[test]
fn partly_instrumented_trees_match_the_kernel() {
    if let Some(reason) = connector_absent() {
        skip!("{reason}");
    }
    check_random_trees(Setup { shim: Shim::InSome, through: &[], reaper: OrphanReaper::Launcher }, 40);
}

// Requirement: RAM-9, RAM-53, RAM-74
#[test]
fn growth_of_a_copy_before_an_exec_is_in_an_exact_peak() {
    if let Some(reason) = connector_absent() {
        skip!("{reason}");
    }
    drop(or_skip!(KernelRecorder::open()));
    let setup = Setup { shim: Shim::InSome, through: &[], reaper: OrphanReaper::Launcher };
    // A fork child that holds 30 MB execs an instrumented and a static program; the same below a static program.
    for script in [
        "c20 f{c20 m30 e{c20}} a",
        "c20 m20 f{c20 m30 E{c20}} a",
        "c20 P{c20 f{c20 m30 e{c20}} a} a",
        "c20 P{c20 f{c20 m30 E{c20}} a} a",
    ] {
        compare_with_kernel(script, setup).unwrap_or_else(|error| panic!("{script}: {error}"));
    }
}

// Requirement: SEE-76
#[test]
fn trees_below_an_uninstrumented_subreaper_match() {
    if let Some(reason) = connector_absent() {
        skip!("{reason}");
    }
    check_random_trees(Setup { shim: Shim::InAll, through: &[], reaper: OrphanReaper::Subreaper }, 20);
}

// Requirement: SEE-84
#[test]
fn trees_under_strace_match_the_kernel() {
    if crate::support::installed("strace").is_none() {
        skip!("strace is not installed");
    }
    let through = &["strace", "-f", "-qq", "-o", "/dev/null", "-e", "trace=none"];
    check_random_trees(Setup { shim: Shim::InAll, through, reaper: OrphanReaper::Launcher }, 6);
}

// Requirement: SEE-9
#[test]
fn raw_wait_of_a_killed_process_in_a_pid_namespace_is_counted_once() {
    drop(or_skip!(KernelRecorder::open()));
    or_skip!(pid_namespace());
    let setup = Setup { shim: Shim::InAll, through: &["unshare", "-fp"], reaper: OrphanReaper::Init };
    // The killed process waited for one child through libc, and for the other by a raw system call.
    for script in ["c20 f{c20 f{c20 c20 } d{} W s9} ", "c20 f{f{c40} f{c20} W w s9}"] {
        compare_with_kernel(script, setup).unwrap_or_else(|error| panic!("{script}: {error}"));
    }
}

// Requirement: SEE-9
#[test]
fn trees_in_a_pid_namespace_match_the_kernel() {
    or_skip!(pid_namespace());
    let through = &["unshare", "-fp"];
    check_random_trees(Setup { shim: Shim::InAll, through, reaper: OrphanReaper::Init }, 20);
}

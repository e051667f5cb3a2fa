//! Random trees of processes, held against the kernel's own account: each process once, none invented, all CPU time,
//! and of each process the peak RSS, as far as the report says that it is known.
//!
//! What fails is shrunk to the smallest tree that does, and named with the seed that made it; GPU_TRACK_TEST_SEED runs
//! that one again.

use std::collections::HashMap;
use std::time::{SystemTime, UNIX_EPOCH};

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner};

use crate::support::report::Report;
use crate::support::truth::{KernelAccount, Truth};
use crate::support::{program, skip, static_program, tracked};

/// How the trees are run.
#[derive(Clone, Copy)]
struct Way {
    shim: Shim,
    /// Through this command.
    through: &'static [&'static str],
    below: Below,
}

/// Who reaps the orphans.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Below {
    /// The launcher.
    Nobody,
    /// A static subreaper, which tells nobody.
    Subreaper,
    /// The init of a pid namespace. What they say of their memory is said under other pids than the kernel's.
    Init,
}

/// Where the shim is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shim {
    /// In every program.
    InAll,
    /// In some: others are static, or made by a raw clone.
    InSome,
}

/// Scripts for tests/programs/twig.c. Computing is long against what starting a process costs, so that 1% means
/// something.
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
                let silent = prop_oneof![1 => Just("F"), 2 => Just("P"), 1 => Just("E")];
                let speaking = prop_oneof![2 => Just("f"), 1 => Just("p"), 1 => Just("d"), 1 => Just("e")];
                prop_oneof![silent, speaking].boxed()
            }
        };
        let child = (makers, inside, end.clone())
            .prop_map(|(maker, inside, end)| format!("{maker}{{c20 {inside} {end}}}"));
        vec(prop_oneof![2 => child, 1 => work.clone()], 1..4).prop_map(|words| words.join(" "))
    })
    .prop_map(move |tree| match shim {
        Shim::InAll => format!("c20 {tree}"),
        // One that says nothing and holds memory is in each.
        Shim::InSome => format!("c20 P{{c20 m9 c20}} {tree}"),
    })
    .boxed()
}

fn run_of(script: &str, way: Way) -> Result<(), TestCaseError> {
    let account = KernelAccount::open().map_err(TestCaseError::reject)?;
    let directory = tempfile::tempdir().unwrap();
    let (says, its_says) = (directory.path().join("says"), directory.path().join("says"));
    let mut words: Vec<String> = way.through.iter().map(|word| (*word).to_owned()).collect();
    match way.below {
        Below::Nobody => {}
        Below::Subreaper => words.extend([static_program("init"), "-s".to_owned()]),
        Below::Init => words.push(program("init")),
    }
    words.extend([program("twig"), script.to_owned()]);
    let run = tracked(account.wrap(words))
        .options(&["--wait-all", "--heaviest", "1000"])
        .with(move |command| {
            command
                .env("TWIG_DYNAMIC", program("twig"))
                .env("TWIG_STATIC", static_program("twig"))
                .env("TWIG_SAYS", its_says)
        })
        .run();
    let truth = account.close();
    let report = run.report();
    prop_assert_eq!(report.u64("processes.total"), truth.processes(), "processes");
    let off = report.f64("cpu_time.total_s") - truth.cpu_s;
    let allowed = truth.cpu_s * 0.01 + truth.moving_s;
    prop_assert!(off.abs() <= allowed, "CPU time is {off:+} s off {} s", truth.cpu_s);
    prop_assert_eq!(report.u64("coverage.dropped_events"), 0);
    if way.below == Below::Init {
        return Ok(());
    }
    check_peaks(report, &truth, &Said::read(&std::fs::read_to_string(&says).unwrap_or_default()))
}

/// What programs of the tree said of their memory before an exec took it away, by pid, bytes.
struct Said(HashMap<u32, Peak>);

/// As much as this of what a fork child has may be pages of files that it read in again: whether that is its own, nobody
/// can tell.
const FILE_PAGES: u64 = 4 << 20;

/// Between these the truth is.
#[derive(Clone, Copy, Default)]
struct Peak {
    at_least: u64,
    at_most: u64,
}

impl Said {
    fn read(lines: &str) -> Self {
        let mut said: HashMap<u32, Peak> = HashMap::new();
        for line in lines.lines() {
            let (line, is_raw) = line.strip_suffix(" raw").map_or((line, false), |line| (line, true));
            let numbers: Vec<u64> = line.split(' ').map(|word| word.parse().unwrap()).collect();
            let [pid, peak, at_fork] = numbers.try_into().expect("pid, peak and what was there at the fork");
            let own = (peak - at_fork) * 1024;
            // What docs/LIMITS.md excepts: a fork child that grows by less before its exec, and any raw clone.
            let is_certain = at_fork == 0 || (!is_raw && own > FILE_PAGES + 2 * tolerance(peak * 1024));
            let process = said.entry(pid as u32).or_default();
            process.at_least = process.at_least.max(if is_certain { own } else { 0 });
            process.at_most = process.at_most.max(own + FILE_PAGES.min(at_fork * 1024));
        }
        Self(said)
    }
}

/// How far the kernel's own figures of an RSS may be off: its counters are batched per processor.
fn tolerance(rss: u64) -> u64 {
    // SAFETY: sysconf has no preconditions.
    let (cores, page) =
        unsafe { (libc::sysconf(libc::_SC_NPROCESSORS_CONF), libc::sysconf(libc::_SC_PAGESIZE)) };
    let (cores, page) = (cores as u64, page as u64);
    (rss / 100).max(3 * 32.max(2 * cores) * page * cores)
}

/// What the report calls exact is the truth, a bound is not below it, a sample not above it.
fn check_peaks(report: &Report, truth: &Truth, said: &Said) -> Result<(), TestCaseError> {
    let listed = report.array("processes.heaviest");
    prop_assert_eq!(listed.len() as u64, report.u64("processes.total"), "processes that are listed singly");
    let by_pid = truth.by_pid();
    for process in listed {
        let Some(kernels) = by_pid.get(&(process["pid"].as_u64().expect("a pid") as u32)) else { continue };
        // The kernel speaks of the last program's memory; the programs themselves of those before.
        let mut peak = said.0.get(&kernels.pid).copied().unwrap_or_default();
        if kernels.pid == truth.tree[0].pid {
            peak.at_least = peak.at_least.max(truth.root_peak_before);
        }
        let at_least = peak.at_least.max(kernels.hiwater_rss_bytes);
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

fn check(way: Way, cases: u32) {
    if let Err(reason) = KernelAccount::open() {
        skip!("{reason}");
    }
    let seed = match std::env::var("GPU_TRACK_TEST_SEED") {
        Ok(seed) => seed.parse().expect("a number"),
        Err(_) => SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64,
    };
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let config = Config { cases, failure_persistence: None, max_shrink_iters: 40, ..Config::default() };
    let mut runner = TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &bytes));
    if let Err(error) = runner.run(&script(way.shim), |script| run_of(&script, way)) {
        panic!("GPU_TRACK_TEST_SEED={seed}: {error}");
    }
}

/// Why the kernel does not tell of silent programs.
fn connector_absent() -> Option<String> {
    let run = tracked(["/bin/true"]).run();
    run.report().at("coverage.connector_absent").as_str().map(str::to_owned)
}

#[test]
fn fully_instrumented_trees_match_the_kernel() {
    check(Way { shim: Shim::InAll, through: &[], below: Below::Nobody }, 40);
}

#[test]
fn partly_instrumented_trees_match_the_kernel() {
    if let Some(reason) = connector_absent() {
        skip!("{reason}");
    }
    check(Way { shim: Shim::InSome, through: &[], below: Below::Nobody }, 40);
}

#[test]
fn trees_below_an_uninstrumented_subreaper_match() {
    if let Some(reason) = connector_absent() {
        skip!("{reason}");
    }
    check(Way { shim: Shim::InAll, through: &[], below: Below::Subreaper }, 20);
}

#[test]
fn trees_under_strace_match_the_kernel() {
    if crate::support::installed("strace").is_none() {
        skip!("strace is not installed");
    }
    let through = &["strace", "-f", "-qq", "-o", "/dev/null", "-e", "trace=none"];
    check(Way { shim: Shim::InAll, through, below: Below::Nobody }, 6);
}

#[test]
fn trees_in_a_pid_namespace_match_the_kernel() {
    if !std::process::Command::new("unshare").args(["-fp", "true"]).status().is_ok_and(|s| s.success()) {
        skip!("there can't be a pid namespace");
    }
    check(Way { shim: Shim::InAll, through: &["unshare", "-fp"], below: Below::Init }, 20);
}

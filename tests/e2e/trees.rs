//! Random trees of processes, held against the kernel's own account: each process once, none invented, all CPU time.
//!
//! What fails is shrunk to the smallest tree that does, and named with the seed that made it; GPU_TRACK_TEST_SEED runs
//! that one again.

use std::time::{SystemTime, UNIX_EPOCH};

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner};

use crate::support::truth::KernelAccount;
use crate::support::{program, skip, static_program, tracked};

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
        1 => Just("m4".to_owned()),
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
                prop_oneof![2 => Just("f"), 1 => Just("p"), 1 => Just("d"), 1 => Just("F"), 2 => Just("P"), 1 => Just("E")]
                    .boxed()
            }
        };
        let child = (makers, inside, end.clone())
            .prop_map(|(maker, inside, end)| format!("{maker}{{c20 {inside} {end}}}"));
        vec(prop_oneof![2 => child, 1 => work.clone()], 1..4).prop_map(|words| words.join(" "))
    })
    .prop_map(|tree| format!("c20 {tree}"))
    .boxed()
}

fn run_of(script: &str, through: &[&str]) -> Result<(), TestCaseError> {
    let account = KernelAccount::open().map_err(TestCaseError::reject)?;
    let mut words: Vec<String> = through.iter().map(|word| (*word).to_owned()).collect();
    words.extend([program("twig"), script.to_owned()]);
    let run = tracked(account.wrap(words))
        .options(&["--wait-all"])
        .with(|command| {
            command.env("TWIG_DYNAMIC", program("twig")).env("TWIG_STATIC", static_program("twig"))
        })
        .run();
    let truth = account.close();
    let report = run.report();
    prop_assert_eq!(report.u64("processes.total"), truth.family.processes, "processes");
    let off = report.f64("cpu_time.total_s") - truth.cpu_s;
    let allowed = truth.cpu_s * 0.01 + truth.moving_s;
    prop_assert!(off.abs() <= allowed, "CPU time is {off:+} s off {} s", truth.cpu_s);
    prop_assert_eq!(report.u64("coverage.dropped_events"), 0);
    Ok(())
}

fn check(shim: Shim, cases: u32, through: &[&str]) {
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
    if let Err(error) = runner.run(&script(shim), |script| run_of(&script, through)) {
        panic!("GPU_TRACK_TEST_SEED={seed}: {error}");
    }
}

#[test]
fn with_the_shim_in_every_program() {
    check(Shim::InAll, 40, &[]);
}

#[test]
fn with_the_shim_in_some_programs_and_the_kernels_word_on_the_others() {
    let run = tracked(["/bin/true"]).run();
    if let Some(reason) = run.report().at("coverage.connector_absent").as_str() {
        skip!("{reason}");
    }
    check(Shim::InSome, 40, &[]);
}

#[test]
fn under_strace() {
    if crate::support::installed("strace").is_none() {
        skip!("strace is not installed");
    }
    check(Shim::InAll, 6, &["strace", "-f", "-qq", "-o", "/dev/null", "-e", "trace=none"]);
}

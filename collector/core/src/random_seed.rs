//! The seed of random tests: fixed, so that a test that passed passes again. GPU_TRACK_TEST_SEED sets another one,
//! PROPTEST_CASES the number of cases, and GPU_TRACK_TEST_SAMPLES the length of long runs.

#![allow(clippy::disallowed_methods, clippy::print_stderr, reason = "for tests only")]

use proptest::test_runner::{Config, RngSeed};

/// The seed, and writes it to stderr, so that a failed test shows it.
pub fn seed() -> u64 {
    let seed = std::env::var("GPU_TRACK_TEST_SEED").map_or(1, |seed| seed.parse().expect("a number"));
    // The test harness shows it only if the test fails.
    eprintln!("GPU_TRACK_TEST_SEED={seed}");
    seed
}

/// How many cases are tried: PROPTEST_CASES, or else `unless_given`.
pub fn cases(unless_given: u32) -> u32 {
    std::env::var("PROPTEST_CASES").map_or(unless_given, |cases| cases.parse().expect("a number"))
}

/// How many samples a long run has: GPU_TRACK_TEST_SAMPLES, or else `unless_given`.
pub fn samples(unless_given: u64) -> u64 {
    std::env::var("GPU_TRACK_TEST_SAMPLES").map_or(unless_given, |samples| samples.parse().expect("a number"))
}

/// For `proptest!`. No file of seeds is written: the seed and the number of cases repeat a failure.
pub fn seeded() -> Config {
    Config { rng_seed: RngSeed::Fixed(seed()), failure_persistence: None, ..Config::default() }
}

//! The fault suite: programs that are hard on a preloaded library, resources that run out, parts that are killed, and
//! trees that attack. Whatever happens, the command does what it does without gpu-track-run, and what is missing in the
//! report is said.
//!
//! `scripts/soak` runs the same tests with more rounds (see [`rounds`]).
#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

mod fuzz;
mod garbage;
mod hostile;
mod kills;
mod programs;
mod recover;
mod resources;
mod sanitizers;
#[path = "../e2e/support/mod.rs"]
#[allow(dead_code, unused_imports, clippy::print_stdout, reason = "shared with the end-to-end tests")]
mod support;
mod tools;
mod twice;

/// How often a test does what may fail by chance: `few` times, or GPU_TRACK_SOAK times as often.
fn rounds(few: u32) -> u32 {
    let factor = std::env::var("GPU_TRACK_SOAK").ok().and_then(|factor| factor.parse().ok()).unwrap_or(1);
    few.saturating_mul(factor)
}

/// Numbers that are the same in every run (xorshift64*).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, end: u64) -> u64 {
        (self.next() >> 11) % end
    }
}

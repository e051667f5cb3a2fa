//! The fault suite: programs that are difficult for a preloaded library, exhausted resources, killed components, and
//! hostile processes in the tree. The command must behave as without gpu-track-run, and the report must state what is
//! missing.
//!
//! `scripts/soak` runs the same tests with more rounds (see [`rounds`]).
#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

mod alert_commands;
mod databases;
mod fuzz;
mod garbage;
mod given_files;
mod hostile;
mod kills;
mod limits;
mod members;
mod orders;
mod programs;
mod recover;
mod resources;
mod sandboxes;
mod sanitizers;
mod shared_machine;
#[path = "../e2e/support/mod.rs"]
#[allow(
    dead_code,
    unused_imports,
    unused_macros,
    clippy::print_stdout,
    reason = "shared with the end-to-end tests"
)]
mod support;
mod tools;
mod tracking_file;
mod with_and_without;

/// How often a test repeats what may fail by chance: `few` times, or GPU_TRACK_SOAK times as often.
fn rounds(few: u32) -> u32 {
    let factor = std::env::var("GPU_TRACK_SOAK").ok().and_then(|factor| factor.parse().ok()).unwrap_or(1);
    few.saturating_mul(factor)
}

/// Pseudo-random numbers (xorshift64*), the same in every run.
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

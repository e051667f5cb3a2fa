//! The contract: what the processes of a session must agree on, and nothing else.
//!
//! The shim (a writer in every tracked process), the collector (the reader) and the launcher (which creates it, and
//! writes REAPED records) share one file-backed segment per session.
//!
//! - [`layout`]: the segment and its header
//! - [`ring`]: the lock-free event ring
//! - [`overflow`]: records that find the ring full
//! - [`record`]: the fields of a record
//! - [`sample`]: the ring of live samples
//! - [`preload`]: the shim's entry in LD_PRELOAD
//! - [`rank`]: ranks of MPI jobs and Slurm steps
//!
//! `gpu_track.h` beside this crate has the same for C. The crate is `no_std` and has no dependencies, because it is
//! also loaded into other people's programs.
#![cfg_attr(not(any(test, loom)), no_std)]
#![cfg_attr(test, allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do"))]

pub mod layout;
pub mod overflow;
pub mod preload;
pub mod rank;
pub mod record;
pub mod ring;
pub mod sample;
mod sync;

/// Environment variable that names the session: a colon-separated list of segment paths, outermost session first.
/// A nested run appends its own, so that each run gets its report.
pub const ENV_SESSION: &str = "GPU_TRACK_SESSION";

/// The dynamic linker's list of libraries to load first (ld.so(8)).
pub const ENV_PRELOAD: &str = "LD_PRELOAD";

/// Most sessions that one process writes to: the outermost ones. Four levels of nesting are more than is met in
/// practice.
pub const MAX_SESSIONS: usize = 4;

/// Longest segment path in bytes, without its terminating NUL.
pub const MAX_PATH: usize = 127;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// The number or string of `#define NAME` in the C header.
    fn define(name: &str) -> String {
        let header = include_str!("../gpu_track.h");
        let line = header.lines().find(|l| l.split_whitespace().nth(1) == Some(name)).unwrap();
        line.split_whitespace().nth(2).unwrap().trim_matches('"').to_owned()
    }

    // Requirement: HOST-2
    #[test]
    fn c_header_has_the_same_constants() {
        let number = |name: &str| {
            let text = define(name);
            let digits = text.trim_end_matches(['u', 'l']);
            digits
                .strip_prefix("0x")
                .map_or_else(|| digits.parse().unwrap(), |h| u64::from_str_radix(h, 16).unwrap())
        };
        assert_eq!(define("GPU_TRACK_ENV_SESSION"), ENV_SESSION);
        assert_eq!(define("GPU_TRACK_SHIM_PREFIX"), preload::SHIM_PREFIX);
        assert_eq!(number("GPU_TRACK_MAGIC"), layout::MAGIC);
        assert_eq!(number("GPU_TRACK_ABI_VERSION"), u64::from(layout::ABI_VERSION));
        assert_eq!(preload::SHIM_PREFIX, std::format!("libgpu_track_shim.v{}.", layout::ABI_VERSION));
        assert_eq!(number("GPU_TRACK_HEADER_SIZE"), layout::HEADER_SIZE as u64);
        assert_eq!(number("GPU_TRACK_RECORD_WORDS"), record::RECORD_WORDS as u64);
        assert_eq!(number("GPU_TRACK_RING_CAPACITY"), layout::RING_CAPACITY as u64);
        assert_eq!(number("GPU_TRACK_FILE_SIZE"), layout::FILE_SIZE as u64);
        assert_eq!(number("GPU_TRACK_OVERFLOW_SLOT"), overflow::SLOT as u64);
        assert_eq!(number("GPU_TRACK_FLAG_PIDFS"), u64::from(layout::FLAG_PIDFS));
        assert_eq!(number("GPU_TRACK_FLAG_NO_ENV_REPAIR"), u64::from(layout::FLAG_NO_ENV_REPAIR));
        assert_eq!(number("GPU_TRACK_FLAG_NO_WAIT_RECORDS"), u64::from(layout::FLAG_NO_WAIT_RECORDS));
        assert_eq!(number("GPU_TRACK_FLAG_SPLIT_RSS"), u64::from(layout::FLAG_SPLIT_RSS));
        assert_eq!(number("GPU_TRACK_FLAG_ELF32"), u64::from(layout::FLAG_ELF32));
        assert_eq!(number("GPU_TRACK_STATE_OPEN"), u64::from(layout::STATE_OPEN));
        assert_eq!(number("GPU_TRACK_STATE_CLOSED"), u64::from(layout::STATE_CLOSED));
    }
}

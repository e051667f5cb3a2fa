//! Shared by the tests: runs under gpu-track-run, compiled programs, and the kernel's figures.

pub mod cgroup;
pub mod cluster;
pub mod descriptors;
pub mod footprints;
pub mod gpu;
pub mod gpu_files;
pub mod leftovers;
pub mod pidfd;
pub mod programs;
pub mod pty;
pub mod report;
pub mod rows;
pub mod run;
pub mod signals;
pub mod trace;
pub mod truth;

use std::time::{Duration, Instant};

pub use programs::{program, static_program};
pub use report::assert_within;
pub use run::{Run, tracked};

/// Ends the test as skipped. scripts/test counts the line that this writes.
macro_rules! skip {
    ($($reason:tt)*) => {{
        $crate::support::skipped(&format!($($reason)*));
        return;
    }};
}
pub(crate) use skip;

/// The value of a result. An error is the reason for which the test is skipped.
macro_rules! or_skip {
    ($result:expr) => {
        match $result {
            Ok(value) => value,
            Err(reason) => $crate::support::skip!("{reason}"),
        }
    };
}
pub(crate) use or_skip;

/// Writes to stderr's descriptor directly, because cargo captures what a passing test prints.
pub fn skipped(reason: &str) {
    let name = std::thread::current().name().unwrap_or("?").to_owned();
    drop(std::io::Write::write_all(&mut std::io::stderr(), format!("SKIPPED {name}: {reason}\n").as_bytes()));
}

/// How long anything may take before a test gives up on it. A busy machine of two cores needs half a minute for what takes
/// two seconds alone.
pub const WATCHDOG: Duration = Duration::from_secs(180);

/// Waits for a condition; panics when the watchdog ends.
pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < WATCHDOG, "gave up waiting for {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Whether the tests run as root.
pub fn is_root() -> bool {
    // SAFETY: geteuid has no preconditions.
    unsafe { libc::geteuid() == 0 }
}

/// The path of a program on PATH. The system's directories come first, because a version manager's wrappers start
/// children of their own.
pub fn installed(name: &str) -> Option<std::path::PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    ["/usr/bin", "/bin", "/usr/sbin", "/sbin"]
        .into_iter()
        .map(std::path::PathBuf::from)
        .chain(std::env::split_paths(&path))
        .map(|directory| directory.join(name))
        .find(|file| file.is_file())
}

/// Sends a signal to a process that the test started.
pub fn kill(pid: u32, signal: i32) {
    // SAFETY: kill has no memory preconditions.
    let result = unsafe { libc::kill(pid.cast_signed(), signal) };
    assert_eq!(result, 0, "kill({pid}, {signal}): {}", std::io::Error::last_os_error());
}

//! A cluster of hosts on this machine, for tests of what crosses nodes.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Gives the program that runs a command on a host (`PROGRAM exec n1 COMMAND`, `PROGRAM ssh`), to one test at a time: one changes
/// what its hosts have.
///
/// # Errors
/// If there is none: why a test is skipped.
pub fn cluster() -> Result<(String, MutexGuard<'static, ()>), &'static str> {
    static TURN: Mutex<()> = Mutex::new(());
    let program = std::env::var("GPU_TRACK_TEST_CLUSTER")
        .map_err(|_| "needs a cluster of hosts n1 and n2 (GPU_TRACK_TEST_CLUSTER)")?;
    Ok((program, TURN.lock().unwrap_or_else(PoisonError::into_inner)))
}

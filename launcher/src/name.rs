//! The name by which this program was called.

use std::ffi::{OsStr, OsString};
use std::path::Path;

/// Called by this name, which a link or a copy can have, the program takes gpu_tracker's command line.
const GPU_TRACKER: &str = "gpu-tracker";
/// Called by this name, the program is the companion command, which has subcommands.
const COMPANION: &str = "gpu-track";
/// argv\[0\] of collectors. The second one is for launchers that were called by gpu_tracker's name: their collectors, too, write
/// their lines for the user as gpu_tracker does.
const COLLECTORS: [&str; 2] = ["gpu-track-collector", "gpu-tracker-collector"];

/// Whether argv\[0\] is gpu_tracker's.
pub(crate) fn is_gpu_tracker(name: Option<&OsString>) -> bool {
    is_called(name, GPU_TRACKER)
}

/// Whether argv\[0\] is the companion command's.
pub(crate) fn is_companion(name: Option<&OsString>) -> bool {
    is_called(name, COMPANION)
}

/// Gives the name of this program, with which its lines for the user begin.
pub(crate) fn of_program() -> &'static str {
    if is_companion(std::env::args_os().next().as_ref()) { COMPANION } else { "gpu-track-run" }
}

/// Whether argv\[0\] is this name, with or without a directory before it.
fn is_called(name: Option<&OsString>, expected: &str) -> bool {
    name.and_then(|name| Path::new(name).file_name()) == Some(OsStr::new(expected))
}

/// Whether this process, or its launcher, was called by gpu_tracker's name.
pub(crate) fn is_this_gpu_tracker() -> bool {
    let name = std::env::args_os().next();
    is_gpu_tracker(name.as_ref()) || name.is_some_and(|name| name == COLLECTORS[1])
}

/// Gives argv\[0\] of this launcher's collectors.
pub(crate) fn of_collectors() -> &'static str {
    COLLECTORS[usize::from(is_this_gpu_tracker())]
}

/// Whether argv\[0\] is a collector's.
pub(crate) fn is_collector(name: &OsStr) -> bool {
    COLLECTORS.iter().any(|collector| name == *collector)
}

//! The name by which this program was called: argv\[0\], or the name by which [it started itself](own_program).

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::sync::OnceLock;

use gpu_track_collector::own_program;

/// The name of a launcher.
pub(crate) const LAUNCHER: &str = "gpu-track-run";
/// Called by this name, which a link or a copy can have, the program takes gpu_tracker's command line.
const GPU_TRACKER: &str = "gpu-tracker";
/// Called by this name, the program is the companion command, which has subcommands.
pub(crate) const COMPANION: &str = "gpu-track";
/// The names of collectors. The second one is for launchers that were called by gpu_tracker's name: their collectors, too, write
/// their lines for the user as gpu_tracker does.
const COLLECTORS: [&str; 2] = ["gpu-track-collector", "gpu-tracker-collector"];

/// The command line of this process, with its name as the first word, and whether it is a helper. Only this program starts helpers.
pub(crate) fn command_line() -> (Vec<OsString>, bool) {
    let line: Vec<OsString> = std::env::args_os().collect();
    match own_program::named(&line) {
        Some(named) => {
            let is_helper = [LAUNCHER, COMPANION].iter().all(|program| named[0] != *program);
            (named, is_helper)
        }
        None => (line, false),
    }
}

/// The name of this process if it is a forked collector. Its arguments are still the launcher's.
static FORKED: OnceLock<&str> = OnceLock::new();

/// Gives this process the name of a collector of its launcher.
pub(crate) fn become_collector() {
    let _ = FORKED.set(of_collectors());
}

/// The name of this process.
fn of_process() -> Option<OsString> {
    FORKED.get().map(OsString::from).or_else(|| command_line().0.into_iter().next())
}

/// Whether argv\[0\] is gpu_tracker's.
pub(crate) fn is_gpu_tracker(name: Option<&OsString>) -> bool {
    is_called(name, GPU_TRACKER)
}

/// Whether argv\[0\] is the companion command's.
pub(crate) fn is_companion(name: Option<&OsString>) -> bool {
    is_called(name, COMPANION)
}

/// The name of this program, with which its lines for the user begin.
pub(crate) fn of_program() -> &'static str {
    if is_companion(of_process().as_ref()) { COMPANION } else { LAUNCHER }
}

/// Whether argv\[0\] is this name, with or without a directory before it.
fn is_called(name: Option<&OsString>, expected: &str) -> bool {
    name.and_then(|name| Path::new(name).file_name()) == Some(OsStr::new(expected))
}

/// Whether this process, or its launcher, was called by gpu_tracker's name.
pub(crate) fn is_this_gpu_tracker() -> bool {
    let name = of_process();
    is_gpu_tracker(name.as_ref()) || name.is_some_and(|name| name == COLLECTORS[1])
}

/// The name of this launcher's collectors.
pub(crate) fn of_collectors() -> &'static str {
    COLLECTORS[usize::from(is_this_gpu_tracker())]
}

/// Whether a name is a collector's.
pub(crate) fn is_collector(name: &str) -> bool {
    COLLECTORS.contains(&name)
}

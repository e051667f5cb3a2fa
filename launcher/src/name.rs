//! The name by which this program was called.

use std::ffi::{OsStr, OsString};
use std::path::Path;

/// A link to this program, or a copy, of this name takes gpu_tracker's command line.
const GPU_TRACKER: &str = "gpu-tracker";

/// Whether argv\[0\] is gpu_tracker's.
pub(crate) fn is_gpu_tracker(name: Option<&OsString>) -> bool {
    name.and_then(|name| Path::new(name).file_name()) == Some(OsStr::new(GPU_TRACKER))
}

/// Whether this process was called so.
pub(crate) fn is_this_gpu_tracker() -> bool {
    is_gpu_tracker(std::env::args_os().next().as_ref())
}

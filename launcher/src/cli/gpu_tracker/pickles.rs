//! Pickles of gpu_tracker's `sub-track`: they hold classes of Python, so the module gpu_track reads and writes them.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use gpu_track_collector::safe_path::User;

use crate::{name, trusted};

/// Fails unless the module is installed. It is not looked for in the working directory, which may be another user's.
const FIND: &str = "import sys; sys.path[:] = [p for p in sys.path if p]
from gpu_track.__main__ import serve_sub_track";
/// Does what `python3 -m gpu_track` does with pickles. It never comes back to this program.
const RUN: &str = "import sys; sys.path[:] = [p for p in sys.path if p]
from gpu_track.__main__ import serve_sub_track; serve_sub_track(sys.argv[1:]) or sys.exit('ERROR:root:the Python module gpu_track does not know this line')";

/// Becomes `python3 -m gpu_track`, if this process was called as gpu_tracker and the module is installed. Returns if not. For root,
/// Python ignores the environment, which can be another user's, when it looks for the module (`python3 -I`). `line`: the program's
/// name, then `sub-track`, its command and the options, in this order.
pub(crate) fn hand_to_python(line: &[OsString]) {
    if !name::is_this_gpu_tracker() {
        return;
    }
    let user = User::this();
    let Ok(program) = trusted::program("python3", user) else { return };
    let python = |code| {
        let mut command = Command::new(&program);
        command.args(user.is_root().then_some("-I")).args(["-c", code]);
        command
    };
    let mut find = python(FIND);
    find.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    if find.status().is_ok_and(|status| status.success()) {
        // Returns only if Python can't be executed any more.
        let _ = python(RUN).args(line.iter().skip(1)).exec();
    }
}

//! This program as another process: a collector, or another helper of a run.
//!
//! A name says what the process is. It is given as argv\[0\], for ps(1), and in the first argument. The argument decides, because a
//! wrapper or an interpreter (`valgrind --trace-children=yes`) loses argv\[0\]. A launcher refuses that argument. So no helper can
//! become a launcher, which would start further helpers.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Start of the first argument of each process that this program starts by a name.
const AS: &str = "--as=";

/// Prepares to start this program by a name.
pub fn command(name: &str) -> Command {
    let mut command = Command::new(path());
    set_name(&mut command, name);
    command
}

/// Prepares to start this program by a name, in a session of its own: no signal to the command's process group or terminal reaches it.
pub fn command_in_own_session(name: &str) -> Command {
    let mut command = command(name);
    // SAFETY: setsid(2) is async-signal-safe.
    unsafe {
        command.pre_exec(|| {
            libc::setsid();
            Ok(())
        });
    }
    command
}

/// Sets the name by which `command`, which executes this program, starts it.
pub fn set_name(command: &mut Command, name: &str) {
    command.arg0(name).arg(format!("{AS}{name}"));
}

/// The name and the arguments of a process with this command line, as one list. `None`: this program did not start the process by a
/// name.
pub fn named(line: &[OsString]) -> Option<Vec<OsString>> {
    let (first, rest) = line.get(1..)?.split_first()?;
    let name = first.as_bytes().strip_prefix(AS.as_bytes())?;
    Some([OsStr::from_bytes(name).to_owned()].into_iter().chain(rest.iter().cloned()).collect())
}

/// The path by which this program is executed again. That is /proc/self/exe, which is its file even after another file got its name.
/// Where an interpreter runs this program (valgrind, qemu-user), /proc/self/exe opens the interpreter's file, but as a link it still
/// names this program.
fn path() -> PathBuf {
    let own = Path::new("/proc/self/exe");
    let identity = |path: &Path| fs::metadata(path).map(|found| (found.dev(), found.ino())).ok();
    let target = fs::read_link(own).ok();
    // The target of a file that was replaced ends in " (deleted)".
    let other = target.filter(|target| identity(target).is_some_and(|found| Some(found) != identity(own)));
    other.unwrap_or_else(|| own.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_argument_is_the_name_whatever_argv_0_is() {
        let line = |words: &str| words.split(' ').map(OsString::from).collect::<Vec<_>>();
        let started = command("gpu-track-ender");
        let first = started.get_args().next().unwrap().to_owned();
        assert_eq!(named(&[OsString::from("/lost"), first, "7".into()]), Some(line("gpu-track-ender 7")));
        for other in ["gpu-track-ender 7", "x", "x 7 --as=gpu-track-ender", "x -as=y", ""] {
            assert_eq!(named(&line(other)), None, "{other:?}");
        }
        assert_eq!(named(&[]), None);
        assert_eq!(path(), Path::new("/proc/self/exe"));
    }
}

//! What root takes from its environment, which can be another user's (`su -m`, `sudo -E`): a path, and programs along PATH, that no
//! other user can replace. For any other user the environment is the user's own. docs/SHARED-MACHINE.md lists all variables.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf, absolute};

use gpu_track_collector::safe_path::{Unsafe, User};
use rustix::fs::{Access, access};

/// The path to use for one that the environment names. For root, links in it are resolved: a link in another user's directory
/// could lead elsewhere after it was checked.
///
/// # Errors
/// If `user` is root, and another user can replace the file.
pub(crate) fn path(named: &OsStr, user: User) -> Result<OsString, Unsafe> {
    if !user.is_root() {
        return Ok(named.to_owned());
    }
    Ok(user.resolve(&absolute(Path::new(named))?)?.into_os_string())
}

/// The program to execute for a name without a slash. For root, that is the first one along PATH that no other user can replace.
///
/// # Errors
/// If `user` is root, and PATH has no such program.
pub(crate) fn program(name: &str, user: User) -> io::Result<OsString> {
    if !user.is_root() {
        return Ok(name.into());
    }
    let along = env::var_os("PATH").unwrap_or_default();
    program_in(env::split_paths(&along), name, user)
}

/// The first program of this name in these directories. For root, one that no other user can replace.
///
/// # Errors
/// If there is none.
pub(crate) fn program_in(
    mut directories: impl Iterator<Item = PathBuf>,
    name: &str,
    user: User,
) -> io::Result<OsString> {
    let of_user = |path: PathBuf| (path.is_file() && access(&path, Access::EXEC_OK).is_ok()).then_some(path);
    let found = directories.find_map(|directory| {
        // An empty name stands for the working directory.
        let path = if directory.as_os_str().is_empty() { Path::new(".") } else { &directory }.join(name);
        if user.is_root() { executable(&path, user) } else { of_user(path) }
    });
    found.map(PathBuf::into_os_string).ok_or_else(|| {
        let that = if user.is_root() { " that root alone can replace" } else { "" };
        io::Error::new(ErrorKind::NotFound, format!("PATH has no {name}{that}"))
    })
}

/// Whether this is a file of this user's. One that another user puts there counts as none.
pub(crate) fn is_own_file(path: &Path) -> bool {
    let found = fs::symlink_metadata(path);
    found.is_ok_and(|found| found.is_file() && found.uid() == rustix::process::geteuid().as_raw())
}

/// A program's path without links, if it can be executed, and no other user than `user` and root can replace it.
fn executable(path: &Path, user: User) -> Option<PathBuf> {
    let path = user.resolve(&absolute(path).ok()?).ok()?;
    let found = path.metadata().ok()?;
    (found.is_file() && found.permissions().mode() & 0o111 != 0).then_some(path)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::symlink;

    use super::*;

    // Requirement: FAULT-15
    #[test]
    fn root_executes_no_program_of_another_user() {
        let top = tempfile::tempdir().unwrap();
        let top = top.path().canonicalize().unwrap();
        let own = User::new(User::this().uid(), 0);
        let program = top.join("program");
        symlink("program", top.join("link")).unwrap();
        fs::write(&program, "").unwrap();
        for (mode, may) in [(0o644, false), (0o755, true), (0o775, false)] {
            fs::set_permissions(&program, Permissions::from_mode(mode)).unwrap();
            assert_eq!(executable(&top.join("link"), own), may.then(|| program.clone()), "{mode:o}");
        }
        assert_eq!(executable(&top, own), None, "a directory");
        assert_eq!(super::program("x", User::new(1000, 0)).unwrap(), "x");
        let real = fs::canonicalize("/bin/sh").unwrap();
        assert_eq!(super::program("sh", User::new(0, 0)).unwrap(), real);
        assert!(super::program("no-such-program", User::new(0, 0)).is_err());
    }
}

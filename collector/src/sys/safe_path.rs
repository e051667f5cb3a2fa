//! Finds out which paths no other user can redirect, for files that this user's programs load. The rule is that of sshd's
//! `safe_path` (misc.c).
//!
//! A directory is safe if this user or root owns it, and if it is sticky or only they can write to it. In a sticky directory
//! another user can't rename or remove a file of this user or root. A path is safe if all its directories are, after its
//! symbolic links are resolved. The resolved path has no link left that could change.
//!
//! The root directory is not checked, because a user that can change it can change every program. For the same reason its owner
//! is trusted, too. A user namespace shows all owners that it does not map as user 65534: root, and other users. So a
//! directory of such an owner is trusted only if every system has it.

use std::fs::{self, DirBuilder, Metadata};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use thiserror::Error;

/// The user id that a user namespace shows for users that it does not map (user_namespaces(7), /proc/sys/kernel/overflowuid).
const UNMAPPED: u32 = 65534;
/// Directories that every system has.
const OF_SYSTEM: [&str; 9] =
    ["/", "/dev", "/dev/shm", "/home", "/run", "/run/user", "/tmp", "/var", "/var/cache"];

/// Why a path is not safe.
#[derive(Debug, Error)]
pub enum Unsafe {
    /// The path can't be looked at.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// A user that is not trusted owns it.
    #[error("user {1} owns {0}")]
    Owner(PathBuf, u32),
    /// Other users may write to it.
    #[error("other users can write to {0} (mode {1:03o})")]
    Writable(PathBuf, u32),
}

/// The user whose files are to be safe.
#[derive(Debug, Clone, Copy)]
pub struct User {
    uid: u32,
    /// Owner of the root directory.
    root_owner: u32,
    /// Whether members of this process's groups may write to the directories of a path.
    trusts_groups: bool,
}

impl User {
    /// The effective user of this process.
    pub fn this() -> Self {
        let uid = rustix::process::geteuid().as_raw();
        let root_owner = fs::metadata("/").map_or(0, |root| root.uid());
        Self { uid, root_owner, trusts_groups: false }
    }

    /// A user on a system whose root directory has this owner, for tests.
    pub fn new(uid: u32, root_owner: u32) -> Self {
        Self { uid, root_owner, trusts_groups: false }
    }

    /// The same user, but for files that no program loads. Members of this process's groups may then write to the directories of a
    /// path, as umask 002 lets them. If the user is root, they may not.
    #[must_use]
    pub fn trusting_groups(self) -> Self {
        Self { trusts_groups: self.uid != 0, ..self }
    }

    /// The user's id.
    pub fn uid(self) -> u32 {
        self.uid
    }

    /// Whether this is the machine's root or a container's, and not a user that its own user namespace maps to 0. In such a
    /// namespace the owner of the root directory is unmapped.
    pub fn is_root(self) -> bool {
        self.uid == 0 && self.root_owner != UNMAPPED
    }

    /// Whether this user trusts the owner of the file at `path`, which has the metadata `found`. It trusts itself, root, and the
    /// root directory's owner.
    ///
    /// An unmapped owner can be any user. It is trusted only for directories that every system has, and only if the root
    /// directory's owner is unmapped, too.
    pub(crate) fn trusts(self, path: &Path, found: &Metadata) -> bool {
        let owner = found.uid();
        if owner == self.uid || owner == 0 {
            return true;
        }
        let is_root_owner = owner == self.root_owner;
        if owner == UNMAPPED {
            return is_root_owner && OF_SYSTEM.iter().any(|of_system| path == Path::new(of_system));
        }
        is_root_owner
    }

    /// Checks that no other user can replace or change one file or directory of a resolved path.
    fn check(self, path: &Path) -> Result<(), Unsafe> {
        let found = fs::symlink_metadata(path)?;
        if path == Path::new("/") {
            return Ok(());
        }
        if !self.trusts(path, &found) {
            return Err(Unsafe::Owner(path.to_owned(), found.uid()));
        }
        let is_sticky = found.is_dir() && found.mode() & libc::S_ISVTX != 0;
        let forbidden = if self.trusts_groups && is_of_own_group(&found) { 0o002 } else { 0o022 };
        if found.mode() & forbidden != 0 && !is_sticky {
            return Err(Unsafe::Writable(path.to_owned(), found.mode() & 0o777));
        }
        Ok(())
    }

    /// Checks that the user trusts the owners of all directories and links in a path. Another user's link could lead to any directory
    /// of this user's. A missing directory is no error, because this user will create it.
    ///
    /// # Errors
    /// If another user owns one.
    pub fn check_links(self, path: &Path) -> Result<(), Unsafe> {
        let foreign = path.ancestors().filter(|part| *part != Path::new("/")).find_map(|part| {
            let found = fs::symlink_metadata(part).ok()?;
            (!self.trusts(part, &found)).then(|| Unsafe::Owner(part.to_owned(), found.uid()))
        });
        foreign.map_or(Ok(()), Err)
    }

    /// Resolves the links in the path of an existing file or directory, and checks that no other user can replace it.
    ///
    /// # Errors
    /// If it does not exist, or another user could replace it.
    pub fn resolve(self, path: &Path) -> Result<PathBuf, Unsafe> {
        let resolved = fs::canonicalize(path)?;
        resolved.ancestors().try_for_each(|part| self.check(part))?;
        Ok(resolved)
    }

    /// Resolves the links in the path of a directory, and checks that no other user can replace it. Creates it and its parents
    /// with `mode` as needed, each only in a safe directory.
    ///
    /// # Errors
    /// If it can't be created, or another user could replace it.
    pub fn resolve_or_create(self, directory: &Path, mode: u32) -> Result<PathBuf, Unsafe> {
        match self.resolve(directory) {
            Err(Unsafe::Io(error)) if error.kind() == io::ErrorKind::NotFound => {}
            resolved => return resolved,
        }
        let (Some(parent), Some(name)) = (directory.parent(), directory.file_name()) else {
            return Err(io::Error::from(io::ErrorKind::NotFound).into());
        };
        let created = self.resolve_or_create(parent, mode)?.join(name);
        match DirBuilder::new().mode(mode).create(&created) {
            // Another launcher has created it by now, or the path is a link that leads nowhere.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => self.resolve(&created),
            result => Ok(result.map(|()| created)?),
        }
    }
}

/// Whether the group of a file is one of this process's groups.
fn is_of_own_group(found: &Metadata) -> bool {
    let is_group = |gid: rustix::process::Gid| gid.as_raw() == found.gid();
    is_group(rustix::process::getegid())
        || rustix::process::getgroups().is_ok_and(|all| all.into_iter().any(is_group))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    use super::*;

    fn set_mode(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    fn top() -> (tempfile::TempDir, PathBuf) {
        let top = tempfile::tempdir().unwrap();
        let path = top.path().canonicalize().unwrap();
        (top, path)
    }

    // Requirement: FAULT-13
    #[test]
    fn every_directory_above_is_judged() {
        let (_top, top) = top();
        let user = User::this();
        let cache = top.join("home/cache");
        fs::create_dir_all(&cache).unwrap();
        assert_eq!(user.resolve(&cache).unwrap(), cache);
        for (mode, is_safe) in [(0o755, true), (0o775, false), (0o757, false), (0o1777, true)] {
            set_mode(&top.join("home"), mode);
            assert_eq!(user.resolve(&cache).is_ok(), is_safe, "{mode:o}");
            assert_eq!(user.resolve_or_create(&cache.join("a/b"), 0o700).is_ok(), is_safe, "{mode:o}");
            fs::remove_dir_all(cache.join("a")).ok();
        }
    }

    // Requirement: OUT-28
    #[test]
    fn group_may_write_above_what_no_program_loads() {
        let (_top, top) = top();
        let user = User::new(User::this().uid().max(1), 0).trusting_groups();
        let uid = fs::metadata(&top).unwrap().uid();
        let own = User { uid, trusts_groups: true, ..user };
        for (mode, is_safe) in [(0o775, true), (0o757, false)] {
            set_mode(&top, mode);
            assert_eq!(own.check(&top).is_ok(), is_safe, "{mode:o}");
            assert!(
                User::new(uid, 0).trusting_groups().check(&top).is_ok() == (is_safe && uid != 0),
                "{mode:o}"
            );
        }
    }

    // Requirement: FAULT-13
    #[test]
    fn links_are_resolved_and_nothing_is_made_behind_an_unsafe_one() {
        let (_top, top) = top();
        let user = User::this();
        fs::create_dir_all(top.join("real")).unwrap();
        symlink("real", top.join("link")).unwrap();
        assert_eq!(user.resolve(&top.join("link")).unwrap(), top.join("real"));
        set_mode(&top.join("real"), 0o777);
        let error = user.resolve_or_create(&top.join("link/new"), 0o700).unwrap_err().to_string();
        assert!(error.contains("real (mode 777)"), "{error}");
        assert!(!top.join("real/new").exists());
        symlink("nowhere", top.join("dangling")).unwrap();
        assert!(user.resolve_or_create(&top.join("dangling"), 0o700).is_err());
    }

    // Requirement: FAULT-13
    #[test]
    fn directory_of_another_user_is_not_safe() {
        let (_top, top) = top();
        let theirs = top.join("theirs");
        fs::create_dir_all(theirs.join("ours")).unwrap();
        let user = User::this();
        if user.uid() != 0 {
            println!("skipped: needs root, for a directory of another user");
            return;
        }
        chown(&theirs, Some(12345), None).unwrap();
        let error = user.resolve(&theirs.join("ours")).unwrap_err().to_string();
        assert!(error.contains("user 12345 owns"), "{error}");
    }

    #[test]
    fn in_a_user_namespace_only_directories_of_the_system_may_be_of_unmapped_users() {
        let (_top, top) = top();
        let inside = User::new(1000, UNMAPPED);
        let Ok(of_nobody) = fs::metadata(&top) else { return };
        // The directory is the test's own: the rule is about the number alone.
        let user = User::new(of_nobody.uid(), UNMAPPED);
        assert!(user.trusts(&top, &of_nobody));
        if of_nobody.uid() == 0 {
            chown(&top, Some(UNMAPPED), None).unwrap();
            let of_nobody = fs::metadata(&top).unwrap();
            assert!(!inside.trusts(&top, &of_nobody));
            assert!(inside.trusts(Path::new("/dev/shm"), &of_nobody));
            let outside = User::new(1000, 0);
            assert!(!outside.trusts(Path::new("/dev/shm"), &of_nobody));
        }
        assert!(!User::new(0, UNMAPPED).is_root());
    }
}

//! The shim on disk: the launcher contains its bytes, but the dynamic linker needs a file.
//!
//! The file is named by a hash of its content and written once. It goes to the first directory that only the user can write to and
//! that is not mounted noexec. No other user may be able to replace it (see [`safe_path`](gpu_track_collector::safe_path)). An
//! existing file is used only if no other user could have written it, and if every byte is right.
//!
//! LD_PRELOAD names a link to the file, because AddressSanitizer checks names:
//!
//! - A program that is linked to its shared runtime (gcc's default) reads the name of the first library. Without
//!   `libasan.so` or `libclang_rt.asan` in that name, it ends with status 1 (`AsanCheckDynamicRTPrereqs`,
//!   compiler-rt/lib/asan/asan_linux.cpp): that library's malloc could come before its own. The shim defines no malloc.
//! - A program with a static runtime (clang's default) ends if a *mapped file* has such a name
//!   (`AsanCheckIncompatibleRT`). The kernel reports the file's own name there, not the link's.
//!
//! Both were tried. Setting `verify_asan_link_order=0` in ASAN_OPTIONS instead would change the programs' environment.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::ptr;
use std::time::Duration;

use gpu_track_abi::preload::SHIM_PREFIX;
use gpu_track_collector::safe_path::{Unsafe, User};
use rustix::mm::{MapFlags, ProtFlags};
use thiserror::Error;

use crate::process::time_limit;
use crate::shim_on_disk::old_shims::{self, Lock};

/// The built library (see build.rs).
const BYTES: &[u8] = include_bytes!(env!("GPU_TRACK_SHIM_SO"));
/// A hash of the library's bytes, which names this build of the library.
const HASH: &str = env!("GPU_TRACK_SHIM_HASH");
/// How long the launcher waits for a directory's file system, which may never answer. A busy NFS server answers within this.
const PATIENCE: Duration = Duration::from_secs(2);

/// The error that no directory can hold the library.
#[derive(Debug, Error)]
#[error("cannot write the preloaded library to any directory: {reasons}; {cure}")]
pub(crate) struct ShimFileError {
    reasons: String,
    cure: &'static str,
}

impl ShimFileError {
    /// Makes the error, with the cure for this user.
    fn new(reasons: &[String], user: User) -> Self {
        let cure = if user.is_root() {
            "make one of them that is root's, that only root can write to, and that is not mounted noexec; or make \
             lib/gpu-track beside the bin directory of gpu-track-run, as a part of a container's image"
        } else {
            "set XDG_CACHE_HOME to a directory that only this user can write to, below directories that no other user \
             can write to, and not mounted noexec; or, in a container's image, make lib/gpu-track beside the bin directory of \
             gpu-track-run, and run gpu-track-run true there once as root"
        };
        Self { reasons: reasons.join("; "), cure }
    }
}

/// Why one directory cannot hold the library.
#[derive(Debug, Error)]
enum Unfit {
    #[error("its path contains a colon, a dollar sign or white space, which LD_PRELOAD cannot hold")]
    Path,
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("it is not a directory of this user that only this user can write to")]
    NotPrivate,
    #[error("another user could replace it: {0}")]
    Unsafe(Unsafe),
    #[error("its file system did not answer within {PATIENCE:?}")]
    NoAnswer,
    #[error("files in it cannot be mapped executable")]
    NoExec,
}

impl From<Unsafe> for Unfit {
    fn from(error: Unsafe) -> Self {
        match error {
            Unsafe::Io(error) => Self::Io(error),
            error => Self::Unsafe(error),
        }
    }
}

/// The library on disk, for LD_PRELOAD.
#[derive(Debug, Clone)]
pub(crate) struct Installed {
    /// The path of the link to the library, with the symbolic links in its directories resolved.
    pub(crate) link: PathBuf,
    /// Whether no other run has used the library within a day. `None`: nothing is removed from its directory, so that does not matter.
    pub(crate) is_first_today: Option<bool>,
}

/// Finds the library on disk, or writes it there. `PREFIX/lib/gpu-track`, if it can be used, goes before the user's own directories.
pub(crate) fn install() -> Result<Installed, ShimFileError> {
    let user = User::this();
    let shared = std::env::current_exe().ok().and_then(|program| shared_directory(&program));
    if let Some(link) = shared.and_then(|directory| link_in_shared(&directory, user)) {
        // Nothing is removed from a directory that an administrator made.
        return Ok(Installed { link, is_first_today: None });
    }
    install_to(&candidates(|name| std::env::var_os(name), user), user)
}

/// The directory `PREFIX/lib/gpu-track` of the program `PREFIX/bin/gpu-track-run`, if there is one. Sandboxes that show the program
/// (`bwrap --ro-bind /usr /usr`) show it, too.
fn shared_directory(program: &Path) -> Option<PathBuf> {
    let directory = program.parent()?.parent()?.join("lib/gpu-track");
    directory.is_dir().then_some(directory)
}

/// The link to the library in a shared directory. If the directory is this user's, the library is written there if it is
/// missing. If it is root's, root's next run does that. `None`: the library is missing, or can't be trusted or mapped.
fn link_in_shared(directory: &Path, user: User) -> Option<PathBuf> {
    let directory = user.resolve(directory).ok().filter(|directory| is_taken_literally(directory))?;
    let found = fs::symlink_metadata(&directory).ok()?;
    if found.uid() == user.uid() {
        return time_limit::unlimited(|| install_in(&directory, user)).ok().map(|installed| installed.link);
    }
    let name = format!("{SHIM_PREFIX}{HASH}.so");
    let link = directory.join(format!("{SHIM_PREFIX}{HASH}.not-libasan.so"));
    let is_safe = found.uid() == 0 && found.mode() & 0o022 == 0;
    let is_linked = fs::read_link(&link).is_ok_and(|target| target == Path::new(&name));
    if !is_safe || !is_linked {
        return None;
    }
    let file = open_if_right(&directory.join(name), user)?;
    check_executable(&file).ok()?;
    Some(link)
}

/// Lists the directories to try, best first. `variable` reads an environment variable. Relative paths in it are ignored (XDG Base
/// Directory).
///
/// Processes of root's tree can become other users, and the dynamic linker prints an error in each one that cannot read
/// the library. So root's library goes to a directory that all users can read. It never goes to one that the environment
/// names, which can be another user's (`su -m`, `sudo -E`).
fn candidates(variable: impl Fn(&str) -> Option<OsString>, user: User) -> Vec<PathBuf> {
    let uid = user.uid();
    let below = |name: &str, rest: &str| {
        let base = PathBuf::from(variable(name)?);
        (base.is_absolute() && !user.is_root()).then(|| base.join(rest))
    };
    let for_all = |path: &str| (uid == 0).then(|| path.into());
    [
        for_all("/var/cache/gpu-track"),
        for_all("/run/gpu-track"),
        below("XDG_CACHE_HOME", "gpu-track"),
        below("HOME", ".cache/gpu-track"),
        below("XDG_RUNTIME_DIR", "gpu-track"),
        Some(format!("/dev/shm/gpu-track-{uid}").into()),
        Some(format!("/tmp/gpu-track-{uid}").into()),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Puts the library into the first of these directories that can hold it.
///
/// # Errors
/// If none can hold it. The error has the reason for each.
fn install_to(directories: &[PathBuf], user: User) -> Result<Installed, ShimFileError> {
    let installed = in_first(directories, user, move |directory| install_or_leave_nothing(directory, user));
    installed.map_err(|reasons| ShimFileError::new(&reasons, user))
}

/// Makes a link of this name to `program`, in a directory of its own beside the library. It stays there: processes that outlive a run
/// have the directory in their PATH, and no other user may make it again. Returns that directory.
///
/// # Errors
/// If no directory can hold it. The error has the reason for each.
pub(crate) fn link_to(program: &Path, name: &str) -> Result<PathBuf, String> {
    let user = User::this();
    let mut hasher = DefaultHasher::new();
    program.hash(&mut hasher);
    let (own, target, name) =
        (format!("{name}-{:016x}", hasher.finish()), program.to_owned(), name.to_owned());
    let made = in_first(&candidates(|name| std::env::var_os(name), user), user, move |directory| {
        let directory = make_private_directory(&make_private_directory(directory, user)?.join(&own), user)?;
        if !is_taken_literally(&directory) {
            return Err(Unfit::Path);
        }
        make_link(&target, &directory.join(&name))?;
        Ok(directory)
    });
    made.map_err(|reasons| reasons.join("; "))
}

/// Does this work in the first of these directories that can have it. A directory whose file system does not answer is skipped.
///
/// # Errors
/// If none can have it. The error has the reason for each.
fn in_first<T: Send + 'static>(
    directories: &[PathBuf],
    user: User,
    work: impl Fn(&Path) -> Result<T, Unfit> + Clone + Send + 'static,
) -> Result<T, Vec<String>> {
    let mut reasons = Vec::new();
    for directory in directories {
        let (tried, work) = (directory.clone(), work.clone());
        let work = move || work(&tried);
        // A directory that a variable of the environment names may be on a file system that does not answer. Root's directories
        // are all fixed.
        let result = if user.is_root() || time_limit::is_on_disk(directory) {
            time_limit::unlimited(work)
        } else {
            time_limit::within(PATIENCE, work).unwrap_or(Err(Unfit::NoAnswer))
        };
        match result {
            Ok(made) => return Ok(made),
            Err(unfit) => reasons.push(format!("{}: {unfit}", directory.display())),
        }
    }
    Err(reasons)
}

/// Puts the library into a directory. If that fails, and the directory was made for it, the directory is removed again.
fn install_or_leave_nothing(directory: &Path, user: User) -> Result<Installed, Unfit> {
    let is_new = !directory.exists();
    install_in(directory, user).inspect_err(|_| {
        if is_new {
            // The removal fails if another process has put a file there meanwhile.
            let _ = fs::remove_dir(directory);
        }
    })
}

/// Makes a directory if it is missing, and puts the library and the link to it there, unless they are there already. Marks the
/// library as used once a day, so that no launcher removes it.
fn install_in(directory: &Path, user: User) -> Result<Installed, Unfit> {
    let directory = &make_private_directory(directory, user)?;
    if !is_taken_literally(directory) {
        return Err(Unfit::Path);
    }
    let name = format!("{SHIM_PREFIX}{HASH}.so");
    let shim = directory.join(&name);
    let is_first_today = !old_shims::was_used_today(&shim);
    // A launcher removes shims that were not used for 30 days. The lock keeps this one until `touch` says that it is used.
    let _lock = (is_first_today && shim.exists()).then(|| Lock::take(directory));
    write(&shim, user)?;
    let link = directory.join(format!("{SHIM_PREFIX}{HASH}.not-libasan.so"));
    make_link(Path::new(&name), &link)?;
    if is_first_today {
        old_shims::touch(&shim);
    }
    Ok(Installed { link, is_first_today: Some(is_first_today) })
}

/// Whether the dynamic linker takes a path in LD_PRELOAD as it is. Colons and white space separate paths there, and `$LIB`,
/// `${ORIGIN}` and the like are replaced (ld.so(8)).
fn is_taken_literally(directory: &Path) -> bool {
    !directory.as_os_str().as_bytes().iter().any(|b| b":$".contains(b) || b.is_ascii_whitespace())
}

/// Creates a directory that only this user can write to, and that no other user can replace. An existing directory is checked. If the
/// user is root, others can read its files. Returns its path without links.
fn make_private_directory(directory: &Path, user: User) -> Result<PathBuf, Unfit> {
    let mode = if user.uid() == 0 { 0o755 } else { 0o700 };
    // A link in place of the directory itself is not followed: in /tmp, another user may have made one before.
    if fs::symlink_metadata(directory).is_ok_and(|found| !found.is_dir()) {
        return Err(Unfit::NotPrivate);
    }
    let directory = user.resolve_or_create(directory, mode)?;
    let found = fs::symlink_metadata(&directory)?;
    if !found.is_dir() || found.uid() != user.uid() || found.mode() & 0o022 != 0 {
        return Err(Unfit::NotPrivate);
    }
    if found.mode() & mode != mode {
        // The umask can have removed permissions.
        fs::set_permissions(&directory, fs::Permissions::from_mode(mode))?;
    }
    Ok(directory)
}

/// Writes the library to `path`, unless the right one is there already. Checks that it can be mapped executable.
fn write(path: &Path, user: User) -> Result<(), Unfit> {
    match open_if_right(path, user) {
        Some(file) => check_executable(&file),
        None => replace(path, |new| check_executable(&write_new(new)?)),
    }
}

/// Makes a symbolic link, unless it is there already.
fn make_link(target: &Path, link: &Path) -> Result<(), Unfit> {
    if fs::read_link(link).is_ok_and(|found| found == target) {
        return Ok(());
    }
    replace(link, |new| Ok(symlink(target, new)?))
}

/// Creates a file or link by `create`, under another name, then renames it to `path`. So a launcher that starts meanwhile never finds a
/// part of it.
fn replace(path: &Path, create: impl FnOnce(&Path) -> Result<(), Unfit>) -> Result<(), Unfit> {
    let new = path.with_file_name(temporary_name(path));
    let result = create(&new).and_then(|()| Ok(fs::rename(&new, path)?));
    if result.is_err() {
        // The caller needs the first error, not this one.
        let _ = fs::remove_file(&new);
    }
    result
}

/// Makes a hidden name for a new file, from the pid and the time: launchers in several pid namespaces can share the directory.
fn temporary_name(path: &Path) -> OsString {
    let nanos =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |d| d.as_nanos());
    let mut name = OsString::from(".");
    name.push(path.file_name().unwrap_or(OsStr::new("shim")));
    name.push(format!(".{}.{nanos}", std::process::id()));
    name
}

/// Opens the library if only this user or root could have written it, and every byte is right.
fn open_if_right(path: &Path, user: User) -> Option<File> {
    let mut file =
        OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path).ok()?;
    let found = file.metadata().ok()?;
    let is_trusted = found.is_file() && [user.uid(), 0].contains(&found.uid()) && found.mode() & 0o022 == 0;
    if !is_trusted || found.len() != BYTES.len() as u64 {
        return None;
    }
    let mut content = Vec::with_capacity(BYTES.len());
    file.read_to_end(&mut content).ok()?;
    (content == BYTES).then_some(file)
}

/// Writes the library to a new file, which all users can read and execute.
fn write_new(path: &Path) -> Result<File, Unfit> {
    let mut options = OpenOptions::new();
    let mut file = options.read(true).write(true).create_new(true).mode(0o755).open(path)?;
    file.write_all(BYTES)?;
    // The umask can have removed the read permission of others, which a command that runs as another user needs.
    rustix::fs::fchmod(file.as_fd(), 0o755.into()).map_err(io::Error::from)?;
    Ok(file)
}

/// Checks that the dynamic linker can map the file. A noexec mount or a security module can prevent it.
fn check_executable(file: &File) -> Result<(), Unfit> {
    /// Any part of the file shows whether it can be mapped.
    const LENGTH: usize = 4096;
    let flags = ProtFlags::READ | ProtFlags::EXEC;
    // SAFETY: a new mapping at an address that the kernel chooses, unmapped at once and never read.
    let result = unsafe {
        rustix::mm::mmap(ptr::null_mut(), LENGTH, flags, MapFlags::PRIVATE, file, 0)
            .and_then(|page| rustix::mm::munmap(page, LENGTH))
    };
    result.map_err(|_| Unfit::NoExec)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user() -> User {
        User::this()
    }

    fn dir() -> tempfile::TempDir {
        tempfile::tempdir().unwrap()
    }

    fn set_mode(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    // Requirement: SEE-60
    #[test]
    fn candidate_directories_are_in_the_right_order() {
        let all = candidates(
            |name| match name {
                "XDG_CACHE_HOME" => Some("/c".into()),
                "HOME" => Some("/h".into()),
                "XDG_RUNTIME_DIR" => Some("/run/user/7".into()),
                _ => None,
            },
            User::new(7, 0),
        );
        let wanted = [
            "/c/gpu-track",
            "/h/.cache/gpu-track",
            "/run/user/7/gpu-track",
            "/dev/shm/gpu-track-7",
            "/tmp/gpu-track-7",
        ];
        assert_eq!(all, wanted.map(PathBuf::from));
        let bare = candidates(|name| (name == "XDG_CACHE_HOME").then(|| "relative".into()), User::new(7, 0));
        assert_eq!(bare, wanted[3..].iter().map(PathBuf::from).collect::<Vec<_>>());
    }

    // Requirement: FAULT-13
    #[test]
    fn root_has_no_candidate_that_the_environment_names() {
        let all = candidates(|_| Some("/home/another".into()), User::new(0, 0));
        let wanted = ["/var/cache/gpu-track", "/run/gpu-track", "/dev/shm/gpu-track-0", "/tmp/gpu-track-0"];
        assert_eq!(all, wanted.map(PathBuf::from));
        // The root of a user namespace is an ordinary user outside.
        let all = candidates(|_| Some("/home/mine".into()), User::new(0, 65534));
        assert!(all.contains(&"/home/mine/.cache/gpu-track".into()), "{all:?}");
    }

    // Requirement: FAULT-52
    #[test]
    fn shared_directory_is_not_used_where_the_linker_reads_its_path_otherwise() {
        let top = dir();
        for (name, is_used) in [("a", true), ("a b", false), ("a:b", false), ("$PLATFORM", false)] {
            let directory = top.path().join(name);
            fs::create_dir(&directory).unwrap();
            // As root's run leaves it.
            let library = format!("{SHIM_PREFIX}{HASH}");
            fs::write(directory.join(format!("{library}.so")), BYTES).unwrap();
            set_mode(&directory.join(format!("{library}.so")), 0o755);
            symlink(format!("{library}.so"), directory.join(format!("{library}.not-libasan.so"))).unwrap();
            // Another user takes what root has made.
            let other = (user().uid() == 0).then(|| User::new(64001, 0));
            for user in [user()].into_iter().chain(other) {
                assert_eq!(link_in_shared(&directory, user).is_some(), is_used, "{name} {user:?}");
            }
        }
    }

    #[test]
    fn existing_file_is_used_again() {
        let top = dir();
        let target = top.path().join("a/gpu-track");
        let path = install_in(&target, user()).unwrap().link;
        assert_eq!(fs::read(&path).unwrap(), BYTES);
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o755);
        let mode = if user().uid() == 0 { 0o755 } else { 0o700 };
        assert_eq!(fs::metadata(&target).unwrap().mode() & 0o777, mode);
        let inode = fs::metadata(&path).unwrap().ino();
        assert_eq!(install_in(&target, user()).unwrap().link, path);
        assert_eq!(fs::metadata(&path).unwrap().ino(), inode);
        assert_eq!(fs::read_dir(&target).unwrap().count(), 2, "only the file and the link are left");
    }

    // Requirement: FAULT-97
    #[test]
    fn first_run_of_a_day_touches_the_file() {
        let top = dir();
        let link = install_in(top.path(), user()).unwrap().link;
        assert_eq!(install_in(top.path(), user()).unwrap().is_first_today, Some(false));
        let file = File::open(&link).unwrap();
        file.set_modified(std::time::SystemTime::now() - 40 * Duration::from_secs(24 * 3600)).unwrap();
        assert_eq!(install_in(top.path(), user()).unwrap().is_first_today, Some(true));
        assert!(old_shims::was_used_today(&fs::canonicalize(&link).unwrap()));
    }

    #[test]
    fn file_that_others_can_write_is_replaced() {
        let top = dir();
        let path = install_in(top.path(), user()).unwrap().link;
        let inode = || fs::metadata(&path).unwrap().ino();
        let first = inode();
        set_mode(&path, 0o777);
        install_in(top.path(), user()).unwrap();
        let second = inode();
        assert_ne!(first, second);
        let mut wrong = BYTES.to_vec();
        wrong[BYTES.len() / 2] ^= 1;
        fs::write(&path, &wrong).unwrap();
        install_in(top.path(), user()).unwrap();
        assert_ne!(inode(), second);
        assert_eq!(fs::read(&path).unwrap(), BYTES);
    }

    #[test]
    fn link_in_place_of_the_file_is_replaced() {
        let top = dir();
        let path = fs::canonicalize(install_in(top.path(), user()).unwrap().link).unwrap();
        let victim = fs::canonicalize(top.path()).unwrap().join("victim");
        fs::rename(&path, &victim).unwrap();
        symlink(&victim, &path).unwrap();
        install_in(top.path(), user()).unwrap();
        assert!(fs::symlink_metadata(&path).unwrap().is_file());
        assert_eq!(fs::read(&victim).unwrap(), BYTES);
    }

    // Requirement: SEE-86, SHIM-13
    #[test]
    fn only_the_link_has_the_name_for_address_sanitizer() {
        let top = dir();
        let link = install_in(top.path(), user()).unwrap().link;
        let has = |path: &Path| path.file_name().unwrap().to_str().unwrap().contains("libasan.so");
        assert!(has(&link) && !has(&fs::canonicalize(&link).unwrap()));
        fs::remove_file(&link).unwrap();
        symlink("elsewhere", &link).unwrap();
        assert_eq!(install_in(top.path(), user()).unwrap().link, link);
        assert_eq!(fs::read(&link).unwrap(), BYTES, "a link to another file is replaced");
    }

    // Requirement: FAULT-52
    #[test]
    fn unfit_directories_are_skipped_with_their_reasons() {
        let top = dir();
        let named = ["a:b", "a b", "$LIB", "${ORIGIN}"].map(|name| top.path().join(name));
        let open = top.path().join("open");
        fs::create_dir(&open).unwrap();
        set_mode(&open, 0o777);
        let link = top.path().join("link");
        symlink(top.path(), &link).unwrap();
        let file = top.path().join("file");
        fs::write(&file, "").unwrap();
        let good = top.path().join("good");
        let bad = [&named[..], &[open, link, file.join("below")]].concat();
        let error = install_to(&bad, user()).unwrap_err().to_string();
        for part in [
            "a:b: its path",
            "a b: its path",
            "$LIB: its path",
            "${ORIGIN}: its path",
            "open: another user could",
            "link: it is not",
            "below: ",
        ] {
            assert!(error.contains(part), "{error}");
        }
        let all: Vec<_> = bad.into_iter().chain([good.clone()]).collect();
        assert!(install_to(&all, user()).unwrap().link.starts_with(good));
    }

    // Requirement: FAULT-52
    #[test]
    fn noexec_mount_is_skipped() {
        if user().uid() != 0 {
            println!("skipped: needs root, to mount");
            return;
        }
        let top = dir();
        let (mount, good) = (top.path().join("noexec"), top.path().join("good"));
        fs::create_dir(&mount).unwrap();
        let target = std::ffi::CString::new(mount.as_os_str().as_bytes()).unwrap();
        // The mount exists only in this thread's mount namespace, and ends with it.
        let found = std::thread::spawn(move || {
            let (none, private) = (ptr::null(), libc::MS_REC | libc::MS_PRIVATE);
            // SAFETY: NUL-terminated strings; only this thread's namespace is changed.
            unsafe {
                assert_eq!(libc::unshare(libc::CLONE_NEWNS), 0);
                assert_eq!(libc::mount(none, c"/".as_ptr(), none, private, ptr::null()), 0);
                let tmpfs = c"tmpfs".as_ptr();
                assert_eq!(
                    libc::mount(tmpfs, target.as_ptr(), tmpfs, libc::MS_NOEXEC, c"mode=700".as_ptr().cast()),
                    0
                );
            }
            let error = install_to(&[mount.join("gpu-track")], user()).unwrap_err().to_string();
            assert!(error.contains("cannot be mapped executable"), "{error}");
            assert_eq!(fs::read_dir(&mount).unwrap().count(), 0, "no file is left");
            install_to(&[mount.join("gpu-track"), good.clone()], user()).unwrap().link.starts_with(good)
        });
        assert!(found.join().unwrap());
    }
}

//! The shim on disk: the launcher carries its bytes, and the dynamic linker wants a file.
//!
//! It is written once, under its content hash, to the first directory that only the user can write to and that may be
//! mapped executable (a home or /tmp can be mounted noexec). A file that is there already is used only if nobody else could
//! have written it and every byte is right.
//!
//! What is preloaded is a link to it, whose name satisfies AddressSanitizer. A program that is linked to its shared
//! runtime (gcc's way) looks at the first library's name, and ends with status 1 if that has neither `libasan.so` nor
//! `libclang_rt.asan` in it (`AsanCheckDynamicRTPrereqs`, compiler-rt/lib/asan/asan_linux.cpp): somebody's malloc could
//! have come before its own. The shim defines none, and its calls go on to what comes next, which is the runtime. A
//! program with a static runtime (clang's way) ends if a *mapped file* is named so (`AsanCheckIncompatibleRT`): there the
//! kernel tells the file's own name, not the link's. Both were tried. The other way, `verify_asan_link_order=0` in
//! ASAN_OPTIONS, would change the environment that programs see.

use std::ffi::{OsStr, OsString};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::ptr;

use gpu_track_abi::preload::SHIM_PREFIX;
use rustix::mm::{MapFlags, ProtFlags};

use crate::elf32;

/// The built library (see build.rs).
const BYTES: &[u8] = include_bytes!(env!("GPU_TRACK_SHIM_SO"));
const HASH: &str = env!("GPU_TRACK_SHIM_HASH");

/// Why there is no file for the dynamic linker.
#[derive(Debug, thiserror::Error)]
pub enum ShimFileError {
    /// Every directory was tried.
    #[error(
        "no directory for the preloaded library: {0}; set XDG_CACHE_HOME to one that may be mapped executable"
    )]
    NoDirectory(String),
}

/// Why one directory won't do.
#[derive(Debug, thiserror::Error)]
enum Unfit {
    #[error("its path has a colon or white space, which LD_PRELOAD can't carry")]
    Path,
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("it is no directory of ours that only we can write to")]
    NotPrivate,
    #[error("files in it may not be mapped executable")]
    NoExec,
}

/// The path of the library, written if need be.
///
/// # Errors
/// When no candidate directory will do; the message says why for each.
pub fn install() -> Result<PathBuf, ShimFileError> {
    let uid = rustix::process::geteuid().as_raw();
    install_to(&candidates(|name| std::env::var_os(name), uid), BYTES, uid, elf32::is_supported())
}

/// The directories to try, best first. Those from the environment count if they are absolute (XDG Base Directory).
///
/// Processes of root's tree may become other users, and the dynamic linker complains loudly in each that can't read
/// the library: root's comes to a place that all can reach.
fn candidates(variable: impl Fn(&str) -> Option<OsString>, uid: u32) -> Vec<PathBuf> {
    let below = |name: &str, rest: &str| {
        let base = PathBuf::from(variable(name)?);
        base.is_absolute().then(|| base.join(rest))
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

fn install_to(
    directories: &[PathBuf],
    bytes: &[u8],
    uid: u32,
    elf32: bool,
) -> Result<PathBuf, ShimFileError> {
    let mut reasons = Vec::new();
    for directory in directories {
        let is_new = !directory.exists();
        match install_in(directory, bytes, uid, elf32) {
            Ok(path) => return Ok(path),
            Err(unfit) => reasons.push(format!("{}: {unfit}", directory.display())),
        }
        if is_new {
            // Leave nothing where nothing could be used; it fails if somebody else found a use for it.
            let _ = fs::remove_dir(directory);
        }
    }
    Err(ShimFileError::NoDirectory(reasons.join("; ")))
}

fn install_in(directory: &Path, bytes: &[u8], uid: u32, elf32: bool) -> Result<PathBuf, Unfit> {
    if directory.as_os_str().as_bytes().iter().any(|b| *b == b':' || b.is_ascii_whitespace()) {
        return Err(Unfit::Path);
    }
    private_directory(directory, uid)?;
    let name = format!("{SHIM_PREFIX}{HASH}.so");
    write(&directory.join(&name), bytes, uid, |file| {
        if maps_executable(file) { Ok(()) } else { Err(Unfit::NoExec) }
    })?;
    let link = directory.join(format!("{SHIM_PREFIX}{HASH}.not-libasan.so"));
    make_link(&name, &link)?;
    if elf32 {
        // Where it fails there is no such library, as the caller will see.
        let _ = add_for_elf32(directory, &link, uid);
    }
    Ok(link)
}

/// A directory of ours that only we can write to, and whose files all can read if we are root.
fn private_directory(directory: &Path, uid: u32) -> Result<(), Unfit> {
    let mode = if uid == 0 { 0o755 } else { 0o700 };
    DirBuilder::new().recursive(true).mode(mode).create(directory)?;
    // Of the link itself: in /tmp anybody may have been there first.
    let found = fs::symlink_metadata(directory)?;
    if !found.is_dir() || found.uid() != uid || found.mode() & 0o022 != 0 {
        return Err(Unfit::NotPrivate);
    }
    if found.mode() & mode != mode {
        // The umask may have taken the others' permissions.
        fs::set_permissions(directory, fs::Permissions::from_mode(mode))?;
    }
    Ok(())
}

/// What 32-bit programs find in the place of this shim.
fn add_for_elf32(directory: &Path, shim: &Path, uid: u32) -> Result<(), Unfit> {
    for (link, target) in elf32::LINKS {
        make_link(target, &directory.join(link))?;
    }
    let own = directory.join(elf32::DIRECTORY);
    private_directory(&own, uid)?;
    write(&own.join(shim.file_name().unwrap_or_default()), &elf32::empty_library(), uid, |_| Ok(()))
}

/// Write a file that `is_fit`, unless the right one is there.
fn write(
    path: &Path,
    bytes: &[u8],
    uid: u32,
    is_fit: impl Fn(&File) -> Result<(), Unfit>,
) -> Result<(), Unfit> {
    if let Some(file) = usable(path, bytes, uid) {
        return is_fit(&file);
    }
    let part = path.with_file_name(part_name(path));
    let written = write_new(&part, bytes).and_then(|file| {
        is_fit(&file)?;
        // Atomic: who starts at the same moment sees all of it or nothing.
        Ok(fs::rename(&part, path)?)
    });
    if written.is_err() {
        // The reason matters, not whether the rest of a failed write could be removed.
        let _ = fs::remove_file(&part);
    }
    written
}

/// A symbolic link, in the place of whatever other one is there.
fn make_link(target: &str, link: &Path) -> io::Result<()> {
    if fs::read_link(link).is_ok_and(|found| found == Path::new(target)) {
        return Ok(());
    }
    let part = link.with_file_name(part_name(link));
    symlink(target, &part)?;
    fs::rename(&part, link).inspect_err(|_| {
        // The reason matters, not whether the rest could be removed.
        let _ = fs::remove_file(&part);
    })
}

/// A name beside the final one that no other launcher uses, in any pid namespace that shares the directory.
fn part_name(path: &Path) -> OsString {
    let nanos =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |d| d.as_nanos());
    let mut name = OsString::from(".");
    name.push(path.file_name().unwrap_or(OsStr::new("shim")));
    name.push(format!(".{}.{nanos}", std::process::id()));
    name
}

/// The file at `path`, if nobody but us or root could have written it and it is the right one.
fn usable(path: &Path, bytes: &[u8], uid: u32) -> Option<File> {
    let mut file =
        OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path).ok()?;
    let found = file.metadata().ok()?;
    let trusted = found.is_file() && (found.uid() == uid || found.uid() == 0) && found.mode() & 0o022 == 0;
    if !trusted || found.len() != bytes.len() as u64 {
        return None;
    }
    let mut content = Vec::with_capacity(bytes.len());
    file.read_to_end(&mut content).ok()?;
    (content == bytes).then_some(file)
}

fn write_new(path: &Path, bytes: &[u8]) -> Result<File, Unfit> {
    let mut options = OpenOptions::new();
    let mut file = options.read(true).write(true).create_new(true).mode(0o755).open(path)?;
    file.write_all(bytes)?;
    // The umask may have taken the others' read permission: a command that runs as another user needs it.
    rustix::fs::fchmod(file.as_fd(), 0o755.into()).map_err(io::Error::from)?;
    Ok(file)
}

/// Whether the dynamic linker could map the file: a noexec mount says no, and so may a security module.
fn maps_executable(file: &File) -> bool {
    // SAFETY: a new mapping where the kernel likes, unmapped at once and never read.
    unsafe {
        let flags = ProtFlags::READ | ProtFlags::EXEC;
        let Ok(page) = rustix::mm::mmap(ptr::null_mut(), 4096, flags, MapFlags::PRIVATE, file, 0) else {
            return false;
        };
        rustix::mm::munmap(page, 4096).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uid() -> u32 {
        rustix::process::geteuid().as_raw()
    }

    fn dir() -> tempfile::TempDir {
        tempfile::tempdir().unwrap()
    }

    fn set_mode(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn candidates_are_in_the_order_of_the_design() {
        let all = candidates(
            |name| match name {
                "XDG_CACHE_HOME" => Some("/c".into()),
                "HOME" => Some("/h".into()),
                "XDG_RUNTIME_DIR" => Some("/run/user/7".into()),
                _ => None,
            },
            7,
        );
        let wanted = [
            "/c/gpu-track",
            "/h/.cache/gpu-track",
            "/run/user/7/gpu-track",
            "/dev/shm/gpu-track-7",
            "/tmp/gpu-track-7",
        ];
        assert_eq!(all, wanted.map(PathBuf::from));
        let bare = candidates(|name| (name == "XDG_CACHE_HOME").then(|| "relative".into()), 7);
        assert_eq!(bare, wanted[3..].iter().map(PathBuf::from).collect::<Vec<_>>());
    }

    #[test]
    fn written_once_and_then_used_again() {
        let top = dir();
        let target = top.path().join("a/gpu-track");
        let path = install_in(&target, BYTES, uid(), false).unwrap();
        assert_eq!(fs::read(&path).unwrap(), BYTES);
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o755);
        let mode = if uid() == 0 { 0o755 } else { 0o700 };
        assert_eq!(fs::metadata(&target).unwrap().mode() & 0o777, mode);
        let inode = fs::metadata(&path).unwrap().ino();
        assert_eq!(install_in(&target, BYTES, uid(), false).unwrap(), path);
        assert_eq!(fs::metadata(&path).unwrap().ino(), inode);
        assert_eq!(
            fs::read_dir(&target).unwrap().count(),
            2,
            "the file and the link: no temporary file stays"
        );
    }

    #[test]
    fn a_file_that_others_could_have_changed_is_replaced() {
        let top = dir();
        let path = install_in(top.path(), BYTES, uid(), false).unwrap();
        let inode = || fs::metadata(&path).unwrap().ino();
        let first = inode();
        set_mode(&path, 0o777);
        install_in(top.path(), BYTES, uid(), false).unwrap();
        let second = inode();
        assert_ne!(first, second);
        let mut wrong = BYTES.to_vec();
        wrong[BYTES.len() / 2] ^= 1;
        fs::write(&path, &wrong).unwrap();
        install_in(top.path(), BYTES, uid(), false).unwrap();
        assert_ne!(inode(), second);
        assert_eq!(fs::read(&path).unwrap(), BYTES);
    }

    #[test]
    fn a_link_in_the_files_place_is_replaced_and_its_target_untouched() {
        let top = dir();
        let path = fs::canonicalize(install_in(top.path(), BYTES, uid(), false).unwrap()).unwrap();
        let victim = fs::canonicalize(top.path()).unwrap().join("victim");
        fs::rename(&path, &victim).unwrap();
        symlink(&victim, &path).unwrap();
        install_in(top.path(), BYTES, uid(), false).unwrap();
        assert!(fs::symlink_metadata(&path).unwrap().is_file());
        assert_eq!(fs::read(&victim).unwrap(), BYTES);
    }

    #[test]
    fn the_link_has_the_name_that_address_sanitizer_wants_and_the_file_has_not() {
        let top = dir();
        let link = install_in(top.path(), BYTES, uid(), false).unwrap();
        let has = |path: &Path| path.file_name().unwrap().to_str().unwrap().contains("libasan.so");
        assert!(has(&link) && !has(&fs::canonicalize(&link).unwrap()));
        fs::remove_file(&link).unwrap();
        symlink("elsewhere", &link).unwrap();
        assert_eq!(install_in(top.path(), BYTES, uid(), false).unwrap(), link);
        assert_eq!(fs::read(&link).unwrap(), BYTES, "a link that leads elsewhere is replaced");
    }

    /// By a reader of ELF files that is not ours.
    #[test]
    fn beside_it_lies_what_a_32_bit_linker_takes_for_it() {
        let top = dir();
        let link = install_in(top.path(), BYTES, uid(), true).unwrap();
        let name = link.file_name().unwrap();
        assert!(elf32::is_installed(&link));
        // What another put in an alias's place is replaced; what can't be costs this alone.
        fs::remove_file(top.path().join("haswell")).unwrap();
        symlink("elsewhere", top.path().join("haswell")).unwrap();
        assert!(!elf32::is_installed(&link));
        assert_eq!(install_in(top.path(), BYTES, uid(), true).unwrap(), link);
        assert!(elf32::is_installed(&link));
        let other = dir();
        fs::write(other.path().join("i686"), "").unwrap();
        assert!(!elf32::is_installed(&install_in(other.path(), BYTES, uid(), true).unwrap()));
        for alias in ["x86_64", "haswell", "xeon_phi", "${PLATFORM}"] {
            assert_eq!(fs::read(top.path().join(alias).join(name)).unwrap(), BYTES, "{alias}");
        }
        let narrow = top.path().join("i586").join(name);
        assert_eq!(
            narrow.canonicalize().unwrap(),
            top.path().canonicalize().unwrap().join("i686").join(name)
        );
        let inode = fs::metadata(&narrow).unwrap().ino();
        assert_eq!(install_in(top.path(), BYTES, uid(), true).unwrap(), link);
        assert_eq!(fs::metadata(&narrow).unwrap().ino(), inode, "used again");
        assert_eq!(fs::read_dir(narrow.parent().unwrap()).unwrap().count(), 1, "no temporary file stays");

        let output = std::process::Command::new("readelf").args(["--all", "--wide"]).arg(&narrow).output();
        let Ok(output) = output else {
            println!("skipped: readelf is not installed");
            return;
        };
        let text = String::from_utf8_lossy(&output.stdout);
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{text}");
        for part in ["ELF32", "DYN (Shared object file)", "Intel 80386", "GNU_STACK", "RW  0x10", "(STRSZ)"] {
            assert!(text.contains(part), "no {part:?} in {text}");
        }
    }

    #[test]
    fn unfit_directories_are_passed_over_with_their_reasons() {
        let top = dir();
        let colon = top.path().join("a:b");
        let space = top.path().join("a b");
        let open = top.path().join("open");
        fs::create_dir(&open).unwrap();
        set_mode(&open, 0o777);
        let link = top.path().join("link");
        symlink(top.path(), &link).unwrap();
        let file = top.path().join("file");
        fs::write(&file, "").unwrap();
        let good = top.path().join("good");
        let bad = vec![colon, space, open, link, file.join("below")];
        let error = install_to(&bad, BYTES, uid(), false).unwrap_err().to_string();
        for part in ["a:b: its path", "a b: its path", "open: it is no", "link: it is no", "below: "] {
            assert!(error.contains(part), "{error}");
        }
        let all: Vec<_> = bad.into_iter().chain([good.clone()]).collect();
        assert!(install_to(&all, BYTES, uid(), false).unwrap().starts_with(good));
    }

    #[test]
    fn a_noexec_mount_is_passed_over() {
        if uid() != 0 {
            println!("skipped: needs root, to mount");
            return;
        }
        let top = dir();
        let (mount, good) = (top.path().join("noexec"), top.path().join("good"));
        fs::create_dir(&mount).unwrap();
        let target = std::ffi::CString::new(mount.as_os_str().as_bytes()).unwrap();
        // A thread with a mount namespace of its own: the mount is gone with it.
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
            let error = install_to(&[mount.join("gpu-track")], BYTES, uid(), false).unwrap_err().to_string();
            assert!(error.contains("may not be mapped executable"), "{error}");
            assert_eq!(fs::read_dir(&mount).unwrap().count(), 0, "nothing stays there");
            install_to(&[mount.join("gpu-track"), good.clone()], BYTES, uid(), false)
                .unwrap()
                .starts_with(good)
        });
        assert!(found.join().unwrap());
    }
}

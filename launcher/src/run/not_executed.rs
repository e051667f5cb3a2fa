//! What to do about a command that could not be executed. The kernel's error alone is often misleading: a script with
//! a missing interpreter is "No such file or directory", too.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// The kernel reads no more of a script's first line (BINPRM_BUF_SIZE).
const MOST_OF_FIRST_LINE: u64 = 256;

/// What the error does not say about why the first of these words could not be executed. `directories`: the value of PATH. `None`:
/// nothing more is known.
pub(crate) fn hint<S: AsRef<OsStr>>(
    words: &[S],
    error: &io::Error,
    directories: Option<&OsStr>,
) -> Option<String> {
    let [command, arguments @ ..] = words else { return None };
    let command = command.as_ref();
    let found = find(command, directories);
    match (error.kind(), found) {
        (ErrorKind::NotFound, Some(file)) => of_missing_loader(&file),
        (ErrorKind::NotFound, None) => of_missing_command(command, arguments.is_empty()),
        (ErrorKind::PermissionDenied, Some(file)) => of_refused_file(&file),
        _ => None,
    }
}

/// Finds the file of a command: the name itself if it has a slash, else the first file of that name in PATH.
fn find(command: &OsStr, directories: Option<&OsStr>) -> Option<PathBuf> {
    let exists = |path: &PathBuf| !command.is_empty() && path.exists();
    if command.as_bytes().contains(&b'/') {
        return Some(PathBuf::from(command)).filter(exists);
    }
    std::env::split_paths(directories?).map(|directory| directory.join(command)).find(exists)
}

/// Says which loader or interpreter is missing. The file itself is there, so the program that has to load it is what the kernel did not
/// find. `None`: the file can't be read, or is neither ELF nor a script.
fn of_missing_loader(file: &Path) -> Option<String> {
    let mut start = Vec::new();
    // Opening a device or a fifo can have side effects.
    let file = Some(file).filter(|file| file.is_file())?;
    File::open(file).ok()?.take(MOST_OF_FIRST_LINE).read_to_end(&mut start).ok()?;
    if start.starts_with(b"\x7fELF") {
        return Some("its dynamic loader is missing: it was built for another C library or machine".into());
    }
    let line = start.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?.trim_ascii_start();
    let interpreter = line.split(|byte| matches!(byte, b' ' | b'\t')).next()?;
    let why = if interpreter.ends_with(b"\r") { "its lines end with CR LF" } else { "that is missing" };
    // The debug form (`{:?}`) makes a carriage return visible.
    Some(format!("it is a script for {:?}, and {why}", String::from_utf8_lossy(interpreter)))
}

/// Says what is wrong with a command that was not found: it sets a variable, or it is a whole command line. `is_alone`: there are no
/// arguments. `None`: it is neither.
fn of_missing_command(command: &OsStr, is_alone: bool) -> Option<String> {
    let text = command.to_string_lossy();
    let is_name = |name: &str| {
        name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
            && name.chars().all(|each| each.is_ascii_alphanumeric() || each == '_')
    };
    if text.split_once('=').is_some_and(|(name, _)| is_name(name)) {
        return Some("to set a variable, write it before gpu-track-run".into());
    }
    (is_alone && text.contains(char::is_whitespace))
        .then(|| "for a command in one string, use -e, or sh -c for a shell's syntax".into())
}

/// Says why the kernel refuses to execute a file that is there. `None`: its kind and mode do not tell.
fn of_refused_file(file: &Path) -> Option<String> {
    let found = fs::metadata(file).ok()?;
    let is_executable = found.permissions().mode() & 0o111 != 0;
    match (found.is_dir(), is_executable) {
        (true, _) => Some("it is a directory".into()),
        (false, false) => Some("it is not executable: chmod +x".into()),
        (false, true) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hint_of(command: &[&OsStr], errno: i32, directories: &Path) -> Option<String> {
        hint(command, &io::Error::from_raw_os_error(errno), Some(directories.as_os_str()))
    }

    // Requirement: CMD-5
    #[test]
    fn file_that_cannot_be_executed_is_explained() {
        let directory = tempfile::tempdir().unwrap();
        let hint_for_file = |name: &str, content: &[u8], mode: u32, errno: i32| {
            let path = directory.path().join(name);
            fs::write(&path, content).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let by_path = hint_of(&[path.as_os_str()], errno, "/".as_ref());
            assert_eq!(hint_of(&[name.as_ref()], errno, directory.path()), by_path);
            by_path
        };
        let missing = |name, content| hint_for_file(name, content, 0o755, libc::ENOENT).unwrap();
        assert_eq!(
            missing("script", b"#! /no/perl -w\n"),
            r#"it is a script for "/no/perl", and that is missing"#
        );
        let windows = r#"it is a script for "/bin/sh\r", and its lines end with CR LF"#;
        assert_eq!(missing("windows", b"#!/bin/sh\r\necho\r\n"), windows);
        assert!(missing("binary", b"\x7fELF\x02").starts_with("its dynamic loader is missing"));
        assert_eq!(hint_for_file("empty", b"", 0o755, libc::ENOENT), None);
        assert_eq!(
            hint_for_file("plain", b"", 0o644, libc::EACCES).as_deref(),
            Some("it is not executable: chmod +x")
        );
        assert_eq!(hint_for_file("refused", b"", 0o755, libc::EACCES), None);
        let root = hint_of(&["/".as_ref()], libc::EACCES, directory.path());
        assert_eq!(root.as_deref(), Some("it is a directory"));
    }

    // Requirement: CMD-5
    #[test]
    fn command_line_that_names_no_file_is_explained() {
        let hint_for_words = |words: &[&str]| {
            let words: Vec<&OsStr> = words.iter().map(AsRef::as_ref).collect();
            hint_of(&words, libc::ENOENT, "/nonexistent".as_ref())
        };
        assert!(hint_for_words(&["python3 train.py"]).unwrap().contains("use -e"));
        assert!(hint_for_words(&["OMP_NUM_THREADS=4", "./app"]).unwrap().contains("before gpu-track-run"));
        for plain in [&["nosuch"][..], &["no such", "argument"], &["4=4"], &[""], &[]] {
            assert_eq!(hint_for_words(plain), None, "{plain:?}");
        }
    }
}

//! What a shell is asked to run: the command line of bash and of POSIX shells.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

/// Long options of bash, which it also takes with one dash.
const LONG: [&[u8]; 15] = [
    b"debug",
    b"debugger",
    b"dump-po-strings",
    b"dump-strings",
    b"help",
    b"login",
    b"noediting",
    b"noprofile",
    b"norc",
    b"posix",
    b"pretty-print",
    b"protected",
    b"restricted",
    b"verbose",
    b"version",
];
/// Those with a value in the next word.
const LONG_WITH_VALUE: [&[u8]; 2] = [b"init-file", b"rcfile"];

/// What a shell runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ShellWork<'a> {
    /// The command of `-c`.
    Command(&'a OsStr),
    /// A script, by its path.
    Script(&'a OsStr),
    /// What stdin or a terminal gives.
    Input,
}

/// What a shell with these arguments runs. argv\[0\] is not among them.
pub(super) fn work(arguments: &[OsString]) -> ShellWork<'_> {
    let mut is_command = false;
    let mut rest = arguments.iter().map(OsString::as_os_str);
    let first = loop {
        let Some(word) = rest.next() else { break None };
        let bytes = word.as_bytes();
        let plain = bytes.strip_prefix(b"--").or_else(|| bytes.strip_prefix(b"-")).unwrap_or_default();
        match bytes {
            b"-" | b"--" => break rest.next(),
            _ if LONG.contains(&plain) => {}
            _ if LONG_WITH_VALUE.contains(&plain) => {
                rest.next();
            }
            [sign @ (b'-' | b'+'), letters @ ..] => {
                is_command |= *sign == b'-' && letters.contains(&b'c');
                // Each of these takes the next word.
                for _ in letters.iter().filter(|letter| b"oO".contains(letter)) {
                    rest.next();
                }
            }
            _ => break Some(word),
        }
    };
    match first {
        Some(command) if is_command => ShellWork::Command(command),
        Some(script) => ShellWork::Script(script),
        None => ShellWork::Input,
    }
}

#[cfg(test)]
mod tests {
    use super::ShellWork::{Command, Input, Script};
    use super::*;

    // Requirement: TASK-15
    #[test]
    fn commands_are_told_from_scripts_and_from_input() {
        let c = Command(OsStr::new("c"));
        let s = Script(OsStr::new("s"));
        for (line, expected) in [
            ("-c c", c),
            ("-lc c x", c),
            ("-c -e c", c),
            ("-e -c c -c d", c),
            ("-euo pipefail -c c", c),
            ("-O extglob +o posix -c -- c", c),
            ("--norc -norc --rcfile f -c c", c),
            ("-ceu c", c),
            ("s", s),
            ("s -c c", s),
            ("-ue s", s),
            ("-- s", s),
            ("-x - s", s),
            ("+c s", s),
            ("-norc s", s),
            ("-o -c s", s),
            ("--version", Input),
            ("-c", Input),
            ("-i", Input),
            ("-s", Input),
            ("-o", Input),
        ] {
            let words: Vec<OsString> = line.split(' ').map(Into::into).collect();
            assert_eq!(work(&words), expected, "{line}");
        }
        assert_eq!(work(&[]), Input);
        assert_eq!(work(&["-c".into(), "".into()]), Command(OsStr::new("")));
    }
}

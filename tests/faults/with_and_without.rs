//! A command with and without gpu-track-run: output and exit status must be the same.

use std::process::{Command, Stdio};

use crate::support::run::cache_home;
use crate::support::signals::with_default_signals;
use crate::support::{Run, tracked};

/// Runs the command both ways. Numbers such as pids and addresses differ between runs, so only their places are compared.
#[track_caller]
pub fn same_with_and_without<S: AsRef<str>>(words: &[S]) -> Run {
    same_in(words, &[])
}

/// Runs the command both ways through another command, which prepares the environment and execs it.
#[track_caller]
pub fn same_in<S: AsRef<str>>(words: &[S], through: &[&str]) -> Run {
    let words: Vec<&str> = words.iter().map(AsRef::as_ref).collect();
    let all = [through, &words].concat();
    let mut bare = Command::new(all[0]);
    bare.args(&all[1..]).env("XDG_CACHE_HOME", cache_home()).stdin(Stdio::null());
    let bare = with_default_signals(&mut bare).output().unwrap_or_else(|error| panic!("{all:?}: {error}"));
    let run = tracked(words).through(through).run();
    let text = |bytes: &[u8]| without_numbers(&String::from_utf8_lossy(bytes));
    assert_eq!(run.status, bare.status, "{all:?}: exit status; stderr: {}", run.stderr);
    assert_eq!(without_numbers(&run.stdout), text(&bare.stdout), "{all:?}: stdout");
    assert_eq!(without_numbers(&run.stderr), text(&bare.stderr), "{all:?}: stderr");
    run
}

/// Replaces each sequence of hexadecimal digits that contains a decimal one by `#`.
fn without_numbers(text: &str) -> String {
    let mut result = String::new();
    let mut word = String::new();
    for c in text.chars().chain(['\n']) {
        if c.is_ascii_hexdigit() || c == 'x' {
            word.push(c);
            continue;
        }
        let is_number = word.contains(|c: char| c.is_ascii_digit());
        result.push_str(if is_number { "#" } else { &word });
        result.push(c);
        word.clear();
    }
    result
}

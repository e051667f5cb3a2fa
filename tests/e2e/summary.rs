//! The summary as a user sees it: on a terminal, through a pipe, in a file.

use std::fs::File;
use std::os::fd::OwnedFd;

use tempfile::TempDir;

use crate::support::pty;
use crate::support::run::Tracked;
use crate::support::tracked;

/// Runs more commands than the summary lists, one of which uses most of the CPU time. The text is longer than a line, and
/// its beginning is not ASCII.
const SCRIPT: &str = ": Größe; for tool in \"$0\"/*; do \"$tool\" -c :; done; \
    i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done";

/// A run with these variables, on xterm.
struct Job {
    tools: TempDir,
    variables: &'static [(&'static str, &'static str)],
}

const UTF8: (&str, &str) = ("LC_ALL", "C.UTF-8");

impl Job {
    fn new(variables: &'static [(&'static str, &'static str)]) -> Self {
        let tools = tempfile::tempdir().unwrap();
        for number in 0..40 {
            std::os::unix::fs::symlink("/bin/sh", tools.path().join(format!("tool{number}"))).unwrap();
        }
        Self { tools, variables }
    }

    fn tracked(&self) -> Tracked {
        let variables = self.variables;
        let command = ["sh", "-c", SCRIPT, self.tools.path().to_str().unwrap()];
        tracked(command).only_options(&["--hints"]).with(move |command| {
            command.env("TERM", "xterm").env_remove("NO_COLOR").envs(variables.iter().copied())
        })
    }

    /// What it writes to stderr, of which `read` is the test's end and `write` the other.
    fn stderr_of(&self, read: File, write: OwnedFd) -> String {
        let running = self.tracked().with(|command| command.stderr(write)).start();
        let text = pty::read_all(read);
        assert_eq!(running.wait().status.code(), Some(0));
        assert!(text.contains("OK, exit 0 after "), "{text:?}");
        text
    }

    fn on_terminal(&self, columns: Option<u16>) -> String {
        let (read, write) = pty::open(columns);
        self.stderr_of(read, write)
    }
}

/// The text without colours (`ESC [ ... m`). Any other escape sequence stays.
fn visible(text: &str) -> String {
    let mut parts = text.split("\x1b[");
    let mut visible = parts.next().unwrap().to_owned();
    for part in parts {
        let (code, after) = part.split_once('m').unwrap_or(("?", part));
        assert!(code.bytes().all(|byte| byte.is_ascii_digit() || byte == b';'), "no colour: {part:?}");
        visible += after;
    }
    visible
}

fn has_colours(text: &str) -> bool {
    text.contains('\x1b')
}

/// Block elements of Unicode, as in bars.
fn has_blocks(text: &str) -> bool {
    text.contains(|c| ('\u{2580}'..='\u{259f}').contains(&c))
}

// Requirement: OUT-17
#[test]
fn terminal_shows_colours_unless_the_user_wants_none() {
    let text = Job::new(&[UTF8]).on_terminal(None);
    assert!(has_colours(&text) && !visible(&text).contains('\x1b'), "{text:?}");
    for variable in [&[UTF8, ("NO_COLOR", "1")], &[UTF8, ("TERM", "dumb")]] {
        let text = Job::new(variable).on_terminal(None);
        assert!(!has_colours(&text) && has_blocks(&text), "{variable:?}: {text:?}");
    }
}

// Requirement: OUT-17
#[test]
fn file_and_pipe_have_no_colours() {
    let job = Job::new(&[UTF8]);
    let run = job.tracked().run();
    assert!(!has_colours(&run.stderr) && has_blocks(&run.stderr), "{:?}", run.stderr);
    let (read, write) = std::io::pipe().unwrap();
    let text = job.stderr_of(OwnedFd::from(read).into(), write.into());
    assert!(!has_colours(&text) && has_blocks(&text), "{text:?}");
}

// Requirement: OUT-16
#[test]
fn summary_fits_the_terminal() {
    for (columns, most) in [(None, 100), (Some(250), 120), (Some(72), 72)] {
        let text = visible(&Job::new(&[UTF8]).on_terminal(columns));
        let lines: Vec<_> = text.lines().collect();
        assert!(lines.len() <= 30, "{} lines: {lines:#?}", lines.len());
        let width = lines.iter().map(|line| line.chars().count()).max().unwrap();
        assert!(width <= most && width > most / 2, "{width} of {most} columns: {lines:#?}");
    }
}

// Requirement: OUT-25
#[test]
fn wide_terminal_shows_long_names_whole() {
    let name = "tool-with-a-name-of-forty-six-columns-in-total";
    let job = Job::new(&[UTF8]);
    std::os::unix::fs::symlink("/bin/sh", job.tools.path().join(name)).unwrap();
    let script = "\"$0\" -c 'i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done'; :";
    let text = |columns| {
        let (read, write) = pty::open(Some(columns));
        let tool = job.tools.path().join(name);
        let command = ["sh", "-c", script, tool.to_str().unwrap()];
        let tracked = tracked(command).only_options(&[]).with(|command| command.stderr(write)).start();
        let text = pty::read_all(read);
        assert_eq!(tracked.wait().status.code(), Some(0));
        text
    };
    let named = |columns| text(columns).lines().any(|line| visible(line).starts_with(&format!("  {name} ")));
    assert!(named(120) && !named(80));
    assert!(visible(&text(80)).contains("  tool-wit...in-total"), "both of its ends stand in 80 columns");
}

// Requirement: OUT-17
#[test]
fn terminal_of_another_encoding_shows_ascii() {
    for variables in [&[("LC_ALL", "C")], &[("LC_ALL", "de_DE.ISO-8859-1")]] {
        let text = Job::new(variables).on_terminal(None);
        assert!(text.is_ascii() && has_colours(&text) && text.contains("##"), "{variables:?}: {text:?}");
    }
    let text = Job::new(&[UTF8]).on_terminal(None);
    assert!(has_blocks(&text), "{text:?}");
}

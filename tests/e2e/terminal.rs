//! On a terminal: Ctrl-C, Ctrl-Z, fg, and a command that controls its tty.

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Command;

use crate::support::program;
use crate::support::pty::Terminal;
use crate::support::report::Report;
use crate::support::run::BINARY;
use crate::untracked::NO_SESSION;

/// gpu-track-run, with tracking, and where that cannot begin.
fn with_and_without_tracking() -> [String; 2] {
    [BINARY.to_owned(), format!("{BINARY} {}", NO_SESSION.join(" "))]
}

/// bash with this line as its script.
fn script(line: &str) -> Command {
    let mut command = Command::new("bash");
    command.args(["-c", line]);
    command
}

/// An interactive bash that has shown its first prompt.
fn interactive() -> Terminal {
    let mut command = Command::new("bash");
    // Job control is as in a user's shell. Line editing is off, because it changes the output.
    command.args(["--norc", "--noprofile", "--noediting", "-i"]).env("PS1", "prompt> ");
    let mut terminal = Terminal::start(command);
    terminal.expect("prompt> ");
    terminal.write("stty -echo\n");
    terminal.expect("prompt> ");
    terminal
}

/// A script that runs a command which ends only by a key, with a report in this file, and then goes on with `then`.
fn until_a_key(run: &str, file: &Path, then: &str) -> Terminal {
    let command = "sh -c 'echo ready; exec sleep 100000'";
    let mut terminal =
        Terminal::start(script(&format!("{run} -f json -o {} -- {command}; {then}", file.display())));
    terminal.expect("ready");
    terminal
}

fn report(file: &Path) -> Report {
    Report(serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap())
}

// Requirement: CMD-8
#[test]
fn ctrl_c_stops_the_surrounding_shell_loop() {
    for run in with_and_without_tracking() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("report");
        let line = format!(
            "for i in 1 2 3; do {run} -f json -o {} -- sh -c 'echo ready $0; exec sleep 100000' $i; echo after $i; done",
            file.display()
        );
        let mut terminal = Terminal::start(script(&line));
        terminal.expect("ready 1");
        terminal.until_leader_waits();
        terminal.write("\x03");
        let (status, rest) = terminal.finish();
        assert_eq!(status.signal(), Some(libc::SIGINT), "{status}");
        assert!(!rest.contains("after"), "the loop went on: {rest:?}");
        assert_eq!(report(&file).at("exit.signal"), libc::SIGINT);
    }
}

/// A second SIGINT lets the launcher give up the report. The key that ended the command must not count as one. Whether
/// the launcher gets its SIGINT before or after the command's exit is chance, so the test repeats.
// Requirement: CMD-4
#[test]
fn key_that_ends_the_command_does_not_lose_the_report() {
    let keys = ["\x03", "\x1c"].repeat(5);
    for (key, run) in keys.iter().flat_map(|key| with_and_without_tracking().map(|run| (key, run))) {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("report");
        let mut terminal = until_a_key(&run, &file, "exit 0");
        terminal.until_leader_waits();
        terminal.write(key);
        terminal.finish();
        assert!(report(&file).at("exit.signal").is_number());
    }
}

// Requirement: CMD-8
#[test]
fn handled_ctrl_c_lets_the_shell_loop_continue() {
    for run in with_and_without_tracking() {
        let signals = program("signals");
        let line =
            format!("for i in 1 2; do {run} -o /dev/null -- {signals} {}; echo after $i; done", libc::SIGINT);
        let mut terminal = Terminal::start(script(&line));
        for i in 1..=2 {
            terminal.expect("ready");
            terminal.write("\x03");
            terminal.expect("got 2");
            terminal.expect(&format!("after {i}"));
        }
        let (status, _) = terminal.finish();
        assert_eq!(status.code(), Some(0), "{status}");
    }
}

// Requirement: CMD-4, CMD-8
#[test]
fn ctrl_backslash_ends_the_command_with_a_report() {
    for run in with_and_without_tracking() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("report");
        let mut terminal = until_a_key(&run, &file, "exit 9");
        terminal.write("\x1c");
        let (status, _) = terminal.finish();
        assert_eq!(status.code(), Some(9), "{status}");
        assert_eq!(report(&file).at("exit.signal"), libc::SIGQUIT);
    }
}

// Requirement: CMD-8
#[test]
fn ctrl_z_stops_the_job_and_fg_resumes_it() {
    for run in with_and_without_tracking() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("report");
        let mut terminal = interactive();
        terminal.write(&format!("{run} -f json -o {} -- sed -u s/^/got:/\n", file.display()));
        terminal.write("one\n");
        terminal.expect("got:one");
        for word in ["two", "three"] {
            terminal.write("\x1a");
            terminal.expect("Stopped");
            terminal.expect("prompt> ");
            terminal.write("fg\n");
            terminal.expect("sed -u");
            terminal.write(&format!("{word}\n"));
            terminal.expect(&format!("got:{word}"));
        }
        terminal.write("\x04");
        terminal.expect("prompt> ");
        terminal.write("echo status=$?\n");
        terminal.expect("status=0");
        terminal.write("exit\n");
        let (status, _) = terminal.finish();
        assert_eq!(status.code(), Some(0), "{status}");
        assert_eq!(report(&file).u64("processes.total"), 1);
    }
}

// Requirement: CMD-8
#[test]
fn stopped_job_resumes_in_the_background() {
    for run in with_and_without_tracking() {
        let mut terminal = interactive();
        terminal.write(&format!("{run} -o /dev/null -- sh -c 'echo ready; kill -STOP $$; echo went on'\n"));
        terminal.expect("ready");
        terminal.expect("Stopped");
        terminal.expect("prompt> ");
        terminal.write("bg\n");
        terminal.expect("went on");
        terminal.write("wait\n");
        terminal.write("echo all=$(jobs | wc -l)\n");
        terminal.expect("all=0");
        terminal.write("exit\n");
        terminal.finish();
    }
}

// Requirement: CMD-8
#[test]
fn command_controls_its_terminal() {
    for run in with_and_without_tracking() {
        // A full-screen program reads keys and the size from its controlling terminal, in the foreground process group.
        let line = format!(
            "{run} -o /dev/null -- sh -c 'test -t 0 && test -t 1 && tty && stty -a </dev/tty && echo end'"
        );
        let mut terminal = Terminal::start(script(&line));
        terminal.expect("/dev/pts/");
        terminal.expect("speed");
        terminal.expect("end");
        let (status, _) = terminal.finish();
        assert_eq!(status.code(), Some(0), "{status}");
    }
}

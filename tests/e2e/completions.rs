//! Completions in real shells: options, commands, and what the command's own completion offers.

use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

use crate::support::pty::Terminal;
use crate::support::run::BINARY;
use crate::support::{installed, skip};

/// A command, and a word that its own completion offers.
const COMMAND: &str = "own-completion";
const WORD: &str = "a-word-of-its-own";

/// What is typed before the tab, and its last word after it.
const LINES: [(&str, &str); 7] = [
    ("own-compl", COMMAND),
    ("--st 0.1 own-compl", COMMAND),
    ("-o x.json -- own-compl", COMMAND),
    ("own-completion a-wor", WORD),
    ("--st 0.1 -f json own-completion --format a-wor", WORD),
    ("--wait-al", "--wait-all"),
    ("--format js", "json"),
];

/// A directory with the command, and with the completions of `shell` in a file.
fn directory(shell: &str) -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    let script = Command::new(BINARY).args(["--completions", shell]).output().unwrap();
    assert!(script.status.success());
    std::fs::write(directory.path().join("completions"), script.stdout).unwrap();
    std::os::unix::fs::symlink("/bin/true", directory.path().join(COMMAND)).unwrap();
    directory
}

fn path_with(directory: &Path) -> String {
    format!("{}:/usr/bin:/bin", directory.display())
}

/// Types each line into an interactive shell. `gpu-track-run` is a function there that prints its arguments.
fn assert_completed_on_a_terminal(mut shell: Command, directory: &TempDir, setup: &str) {
    shell
        .env("PATH", path_with(directory.path()))
        .env("HOME", directory.path())
        .current_dir(directory.path());
    let mut terminal = Terminal::start(shell);
    terminal.write(&format!("{setup}; . ./completions; echo rea''dy\n"));
    terminal.expect("ready");
    for (typed, completed) in LINES {
        terminal.write(&format!("gpu-track-run {typed}\t\n"));
        // The shell shows what is typed; the function's output follows it.
        terminal.expect("GOT<");
        let before = typed.rsplit_once(' ').map_or("", |(before, _)| before);
        terminal.expect(format!("{before} {completed}").trim_start());
    }
    terminal.write("exit\n");
    assert!(terminal.finish().0.success());
}

// Requirement: CMD-15
#[test]
fn bash_completes_options_commands_and_their_arguments() {
    let library = Path::new("/usr/share/bash-completion/bash_completion");
    if !library.exists() {
        skip!("bash-completion is not installed");
    }
    let directory = directory("bash");
    let setup = format!(
        "gpu-track-run() {{ echo \"GOT<$*>\"; }}; . {}; complete -W {WORD} {COMMAND}",
        library.display()
    );
    let mut bash = Command::new("bash");
    bash.args(["--norc", "--noprofile", "-i"]);
    assert_completed_on_a_terminal(bash, &directory, &setup);
}

// Requirement: CMD-15
#[test]
fn bash_without_its_library_completes_options_and_commands() {
    let directory = directory("bash");
    let script = format!(
        ". ./completions; try() {{ COMP_WORDS=(\"$@\"); COMP_CWORD=$(($# - 1)); COMPREPLY=(); \
         _gpu_track_run_command \"$1\" \"${{@: -1}}\" \"${{@: -2:1}}\"; echo \"${{COMPREPLY[*]}}\"; }}; \
         try gpu-track-run --st 0.1 own-compl; try gpu-track-run --wait-al; try gpu-track-run --format = js; \
         try gpu-track-run {COMMAND} a-wor"
    );
    let mut bash = Command::new("bash");
    bash.args(["--norc", "--noprofile", "-c", &script]).env("PATH", path_with(directory.path()));
    let output = bash.current_dir(directory.path()).output().unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    assert_eq!(
        printed,
        format!("{COMMAND}\n--wait-all\njson\n\n"),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

// Requirement: CMD-15
#[test]
fn zsh_completes_options_commands_and_their_arguments() {
    let Some(zsh) = installed("zsh") else { skip!("zsh is not installed") };
    let directory = directory("zsh");
    let setup = format!(
        "PS1='% '; unsetopt prompt_sp; gpu-track-run() {{ print -r -- \"GOT<$*>\" }}; autoload -Uz compinit; \
         compinit -u -D; _own() {{ compadd {WORD} }}; compdef _own {COMMAND}"
    );
    let mut command = Command::new(zsh);
    command.args(["-f", "-i"]);
    assert_completed_on_a_terminal(command, &directory, &setup);
}

// Requirement: CMD-15
#[test]
fn fish_completes_options_commands_and_their_arguments() {
    let Some(fish) = installed("fish") else { skip!("fish is not installed") };
    let directory = directory("fish");
    for (typed, completed) in LINES {
        let script = format!(
            "source completions; complete -c {COMMAND} -x -a {WORD}; complete -C 'gpu-track-run {typed}'"
        );
        let mut command = Command::new(&fish);
        command.args(["--no-config", "-c", &script]).current_dir(directory.path());
        let output =
            command.env("PATH", path_with(directory.path())).env("HOME", directory.path()).output().unwrap();
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        let offered: Vec<_> =
            printed.lines().map(|line| line.split('\t').next().unwrap_or_default()).collect();
        assert_eq!(offered, [completed], "{typed}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

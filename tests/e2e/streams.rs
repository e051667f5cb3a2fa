//! stdin, stdout and stderr belong to the command alone.

use std::os::unix::process::CommandExt;
use std::process::{Command, Output, Stdio};

use crate::support::descriptors::{SIGNAL_FD, descriptors};
use crate::support::run::{BINARY, cache_home};
use crate::support::{WATCHDOG, kill, program, tracked, wait_until};

/// Runs a shell line that contains gpu-track-run.
fn shell(line: &str) -> Output {
    let line = line.replace("gpu-track-run", &format!("{BINARY} -o /dev/null"));
    let mut command = Command::new("timeout");
    command
        .args([&WATCHDOG.as_secs().to_string(), "sh", "-c", &line])
        .stdin(Stdio::null())
        .env("XDG_CACHE_HOME", cache_home());
    command.output().unwrap()
}

// Requirement: CMD-1
#[test]
fn pipeline_through_the_launcher_is_unchanged() {
    let output = shell("echo x | gpu-track-run -- cat | wc");
    let words: Vec<_> = str::from_utf8(&output.stdout).unwrap().split_whitespace().collect();
    assert_eq!(words, ["1", "1", "2"]);
    assert_eq!(output.stderr, b"");
}

// Requirement: CMD-1
#[test]
fn early_reader_exit_ends_the_command_by_sigpipe() {
    let output = shell("(gpu-track-run -- yes; echo $? >&2) | head -n 1");
    assert_eq!(output.stdout, b"y\n");
    assert_eq!(output.stderr, b"141\n");
}

// Requirement: CMD-1
#[test]
fn binary_data_passes_unchanged() {
    let output =
        shell("head -c 10000000 /dev/urandom | tee /dev/fd/3 3>&1 >/dev/null | gpu-track-run -- cat | wc -c");
    assert_eq!(str::from_utf8(&output.stdout).unwrap().trim(), "10000000");
}

/// Closes all other descriptors at exec: this process may have inherited some of another test's.
fn with_standard_descriptors_only(command: &mut Command) -> &mut Command {
    // SAFETY: a system call on plain numbers. On kernels without it the other descriptors stay open.
    unsafe {
        command.pre_exec(|| {
            libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC);
            Ok(())
        })
    }
}

// Requirement: CMD-2
#[test]
fn command_has_the_same_descriptors_as_untracked() {
    let directory = tempfile::tempdir().unwrap();
    let list = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let (with, without) = (list("with"), list("without"));
    for redirection in ["", "<&-", ">&-", "2>&-", "<&- >&- 2>&-", "7</dev/null"] {
        let script = format!("exec \"$@\" {redirection}");
        let prefix = ["sh", "-c", &script, "sh"];
        tracked([program("open_fds"), with.clone()])
            .through(&prefix)
            .with(with_standard_descriptors_only)
            .run()
            .assert_clean(0)
            .assert_all_exact(1);
        let open_fds = program("open_fds");
        let untracked = [&prefix[..], &[&open_fds, &without]].concat();
        let mut untracked_command = Command::new(untracked[0]);
        untracked_command.args(&untracked[1..]).stdin(Stdio::null());
        let status = with_standard_descriptors_only(&mut untracked_command).status().unwrap();
        assert!(status.success());
        let read = |file: &str| std::fs::read_to_string(file).unwrap();
        assert_eq!(read(&with), read(&without), "with {redirection}");
    }
}

// Requirement: CMD-2
#[test]
fn launchers_descriptors_are_close_on_exec_and_above_the_standard_ones() {
    for redirection in ["", "<&- >&- 2>&-"] {
        let script = format!("exec \"$@\" {redirection}");
        let running = tracked(["sleep", "100000"])
            .through(&["sh", "-c", &script, "sh"])
            .with(with_standard_descriptors_only)
            .start();
        let mut open = Vec::new();
        wait_until("the signalfd", || {
            open = descriptors(running.pid());
            open.iter().any(|one| one.target == SIGNAL_FD)
        });
        let pipes = open.iter().filter(|one| one.target.starts_with("pipe:")).count();
        assert_eq!(pipes, 2, "one there and one back: {open:?}");
        assert!(open.iter().all(|one| one.number <= 2 || one.is_close_on_exec()), "{open:?}");
        let is_standard = |target: &str| {
            target == "/dev/null" || target.ends_with("/stdout") || target.ends_with("/stderr")
        };
        assert!(open.iter().all(|one| one.number > 2 || is_standard(&one.target)), "{open:?}");
        kill(running.pid(), libc::SIGTERM);
        running.wait();
    }
}

//! Signals: the dispositions that the command starts with, and those that the launcher forwards.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, Stdio};

use crate::support::signals::with_default_signals;
use crate::support::{kill, program, tracked};
use crate::untracked::NO_SESSION;

/// The output of tests/programs/signals.c under gpu-track-run: the signal state at its start.
fn tracked_signal_state(options: &[&str], through: &[&str]) -> String {
    let running = tracked([program("signals"), "15".into()]).options(options).through(through).start();
    running.wait_for_output("ready");
    kill(running.pid(), libc::SIGTERM);
    let run = running.wait();
    assert_eq!(run.status.code(), Some(0), "{}", run.stderr);
    run.stdout.clone()
}

/// What the program that prints its signal state writes without gpu-track-run.
fn untracked_signal_state(through: &[&str]) -> String {
    let signals = program("signals");
    let words = [through, &[signals.as_str(), "15"]].concat();
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = with_default_signals(&mut command).spawn().unwrap();
    let mut seen = String::new();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    while !seen.contains("ready") && stdout.read_line(&mut seen).unwrap() > 0 {}
    kill(child.id(), libc::SIGTERM);
    stdout.read_to_string(&mut seen).unwrap();
    child.wait().unwrap();
    seen
}

// Requirement: CMD-6
#[test]
fn command_starts_with_unchanged_signal_dispositions() {
    for traps in ["", "trap '' PIPE;", "trap '' HUP USR2 TSTP;"] {
        let script = format!("{traps} exec \"$@\"");
        let through = ["sh", "-c", &script, "sh"];
        for options in [&[][..], &NO_SESSION] {
            let with = tracked_signal_state(options, &through);
            assert_eq!(with, untracked_signal_state(&through), "after {script}, with {options:?}");
        }
    }
}

// Requirement: CMD-6
#[test]
fn nohup_keeps_sighup_ignored() {
    let running = tracked([program("signals"), "15".into()]).through(&["nohup"]).start();
    running.wait_for_output("ready");
    // The launcher must survive SIGHUP, too.
    kill(running.pid(), libc::SIGHUP);
    kill(running.pid(), libc::SIGTERM);
    let run = running.wait();
    assert_eq!(run.status.code(), Some(0), "{}", run.status);
    // The launcher may forward its SIGHUP; the command's initial signal state is the same.
    assert_eq!(run.stdout.replace("got 1\n", ""), untracked_signal_state(&["nohup"]));
    run.report().assert_all_exact(1);
}

// Requirement: CMD-6
#[test]
fn blocked_signal_mask_reaches_the_command() {
    let running = tracked([program("signals"), "15".into()])
        .with(|command| {
            // SAFETY: sigemptyset, sigaddset and sigprocmask are async-signal-safe.
            unsafe {
                command.pre_exec(|| {
                    let mut set = std::mem::zeroed();
                    libc::sigemptyset(&mut set);
                    libc::sigaddset(&mut set, libc::SIGUSR1);
                    libc::sigprocmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
                    Ok(())
                })
            }
        })
        .start();
    running.wait_for_output("ready");
    kill(running.pid(), libc::SIGTERM);
    let run = running.wait();
    run.assert_clean(0);
    assert!(run.stdout.contains("SigBlk:\t0000000000000200"), "{}", run.stdout);
}

// Requirement: CMD-7
#[test]
fn signals_sent_to_the_launcher_reach_the_command() {
    let signals = [
        libc::SIGHUP,
        libc::SIGINT,
        libc::SIGQUIT,
        libc::SIGUSR1,
        libc::SIGUSR2,
        libc::SIGALRM,
        libc::SIGCONT,
    ];
    let running = tracked([program("signals"), "15".into()]).start();
    running.wait_for_output("ready");
    for signal in signals {
        kill(running.pid(), signal);
        running.wait_for_output(&format!("got {signal}\n"));
    }
    kill(running.pid(), libc::SIGTERM);
    let run = running.wait();
    run.assert_clean(0).assert_all_exact(1);
}

// Requirement: CMD-4
#[test]
fn sigint_and_sigterm_end_the_command_with_a_report() {
    for signal in [libc::SIGINT, libc::SIGTERM] {
        let running = tracked(["sh", "-c", "echo ready; exec sleep 100000"]).start();
        running.wait_for_output("ready");
        kill(running.pid(), signal);
        let run = running.wait();
        assert_eq!(run.status.signal(), Some(signal), "{}", run.status);
        let report = run.report();
        assert_eq!(report.at("exit.signal"), signal);
        assert_eq!(report.at("finished"), true);
    }
}

/// Tests that send signals, run again by a shell that ignores them: nohup, and a script's background job, do so.
#[test]
fn tests_pass_where_signals_are_ignored() {
    let again = [
        "exit_status::launcher_dies_by_the_signal_that_ended_the_command",
        "signals::nohup_keeps_sighup_ignored",
        "terminal::ctrl_backslash_ends_the_command_with_a_report",
    ];
    let mut shell = Command::new("sh");
    shell.args(["-c", "trap '' HUP INT QUIT; exec \"$@\"", "sh"]).arg(std::env::current_exe().unwrap());
    let output = shell.arg("--exact").args(again).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains(&format!("{} passed", again.len())), "{text}");
}

//! The launcher ends with the command's exit status, or by the command's signal.

use std::os::unix::process::ExitStatusExt;

use crate::support::tracked;

// Requirement: CMD-3
#[test]
fn exit_codes_pass_through() {
    for code in [0, 1, 2, 42, 125, 126, 127, 255] {
        tracked(["sh", "-c", &format!("exit {code}")]).run().assert_clean(code);
    }
}

// Requirement: CMD-4
#[test]
fn launcher_dies_by_the_signal_that_ended_the_command() {
    // The launcher disables its own core dumps, so SEGV and QUIT leave no second core file.
    for signal in [
        libc::SIGHUP,
        libc::SIGINT,
        libc::SIGQUIT,
        libc::SIGKILL,
        libc::SIGSEGV,
        libc::SIGPIPE,
        libc::SIGTERM,
        40,
    ] {
        let run = tracked(["sh", "-c", &format!("kill -{signal} $$")]).run();
        assert_eq!(run.status.signal(), Some(signal), "{}", run.status);
        assert!(!run.status.core_dumped());
        let report = run.report();
        assert_eq!(report.at("exit.signal"), signal);
        assert!(report.at("exit.code").is_null());
        report.assert_all_exact(1);
    }
}

// Requirement: CMD-5
#[test]
fn missing_command_exits_127() {
    for command in ["/nonexistent/program", "no-such-program-on-path"] {
        let run = tracked([command]).run();
        assert_eq!(run.status.code(), Some(127));
        assert!(run.stderr.contains(command), "stderr names the command: {}", run.stderr);
        assert_eq!(run.stderr.lines().count(), 1, "{}", run.stderr);
    }
}

// Requirement: CMD-5
#[test]
fn command_that_cannot_be_executed_exits_126() {
    let file = tempfile::NamedTempFile::new().unwrap();
    for (command, why) in [(file.path().to_str().unwrap(), "not executable"), ("/etc", "a directory")] {
        let run = tracked([command]).run();
        assert_eq!(run.status.code(), Some(126));
        assert!(run.stderr.contains(command), "stderr names the command: {}", run.stderr);
        assert!(run.stderr.contains(why), "stderr says what is wrong with it: {}", run.stderr);
        assert_eq!(run.stderr.lines().count(), 1, "{}", run.stderr);
    }
}

// Requirement: CMD-5
#[test]
fn script_without_a_shebang_runs_as_with_execvp() {
    use std::os::unix::fs::PermissionsExt;
    let directory = tempfile::tempdir().unwrap();
    let script = directory.path().join("script");
    std::fs::write(&script, "echo from a script; exit 3\n").unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    let run = tracked([script.to_str().unwrap()]).run();
    assert_eq!(run.stdout, "from a script\n");
    run.assert_clean(3);
}

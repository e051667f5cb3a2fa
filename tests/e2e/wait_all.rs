//! `--wait-all`: what the user is told while it waits, and what ends it.

use std::os::unix::process::CommandExt;
use std::path::Path;

use tempfile::TempDir;

use crate::support::descriptors::{SIGNAL_FD, descriptors};
use crate::support::run::{Run, Running};
use crate::support::{is_root, kill, program, skip, static_program, tracked, wait_until};

/// The line that says what is waited for, once it is there.
fn told(running: &Running) -> String {
    let text = || std::fs::read_to_string(running.path("stderr")).unwrap();
    wait_until("a line on stderr", || text().ends_with('\n'));
    text()
}

/// A command that leaves a daemon, which writes its pid into a file and waits for SIGTERM.
struct Daemon {
    directory: TempDir,
}

impl Daemon {
    fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap() }
    }

    fn file(&self) -> String {
        self.directory.path().join("pid").to_str().unwrap().to_owned()
    }

    fn words(&self) -> [String; 3] {
        [program("daemon"), "double".into(), self.file()]
    }

    fn pid(&self) -> u32 {
        wait_until("the daemon's pid", || Path::new(&self.file()).exists());
        std::fs::read_to_string(self.file()).unwrap().trim().parse().unwrap()
    }

    /// What the user is told about it.
    fn line(&self) -> String {
        format!(
            "gpu-track-run: the command has ended; waiting for 1 process: {} daemon (--wait-all). SIGINT (Ctrl-C) ends \
             the wait.\n",
            self.pid()
        )
    }
}

// Requirement: SEE-6
#[test]
fn wait_ends_with_the_last_process_where_the_kernel_lists_no_children() {
    if !is_root() {
        skip!("needs root (mount)");
    }
    let (daemon, empty) = (Daemon::new(), tempfile::tempdir().unwrap());
    let mounts = format!("mount --bind {} /proc/$$/task", empty.path().display());
    let running = tracked(daemon.words()).options(&["--wait-all"]).with_mounts(&mounts).start();
    assert_eq!(told(&running), daemon.line());
    kill(daemon.pid(), libc::SIGTERM);
    assert_eq!(running.wait().status.code(), Some(0));
}

// Requirement: SEE-102
#[test]
fn user_is_told_once_what_is_waited_for() {
    let daemon = Daemon::new();
    let running = tracked(daemon.words()).options(&["--wait-all"]).start();
    assert_eq!(told(&running), daemon.line());
    kill(daemon.pid(), libc::SIGTERM);
    let run = running.wait();
    assert_eq!((run.status.code(), &run.stderr), (Some(0), &daemon.line()));
    run.report().assert_all_exact(3);
}

// Requirement: SEE-102
#[test]
fn interrupt_ends_the_wait_with_a_report() {
    let daemon = Daemon::new();
    let running = tracked(daemon.words()).options(&["--wait-all"]).leaves_processes().start();
    told(&running);
    kill(running.pid(), libc::SIGINT);
    let run = running.wait();
    kill(daemon.pid(), libc::SIGTERM);
    assert_eq!(run.status.code(), Some(0), "{}", run.stderr);
    assert_eq!(run.report().at("processes.still_running_processes")[0]["pid"], daemon.pid());
    assert_eq!(run.report().at("exit.wait_interrupted"), true);
    let warnings = run.report().at("warnings").as_array().unwrap();
    let line = format!("Still running when --wait-all was interrupted: pid {} (daemon).", daemon.pid());
    assert!(warnings[0]["text"].as_str().unwrap().starts_with(&line), "{warnings:?}");
    assert_eq!(warnings.len(), 1, "{warnings:?}");
}

// Requirement: SEE-102
#[test]
fn interrupted_wait_is_not_called_ok() {
    let daemon = Daemon::new();
    let running = tracked(daemon.words()).only_options(&["--wait-all"]).leaves_processes().start();
    told(&running);
    kill(running.pid(), libc::SIGINT);
    let run = running.wait();
    kill(daemon.pid(), libc::SIGTERM);
    assert!(
        run.stderr.contains(" exit 0, WAIT INTERRUPTED after ") && !run.stderr.contains("OK"),
        "{}",
        run.stderr
    );
}

/// Its helper reads from the command, and ends a moment after it.
const WITH_HELPER: &str = "mkfifo \"$0\"; (cat \"$0\"; exec sleep 0.005) & exec 3>\"$0\"; exit 0";

/// On a busy machine, a helper can need longer than it has.
// Requirement: SEE-105
#[test]
fn helper_that_ends_with_the_command_is_not_left_running() {
    let is_complete = |_| {
        let directory = tempfile::tempdir().unwrap();
        let fifo = directory.path().join("fifo");
        let run = tracked(["sh", "-c", WITH_HELPER, fifo.to_str().unwrap()]).leaves_processes().run();
        assert_eq!(run.status.code(), Some(0), "{}", run.stderr);
        assert_eq!(run.report().at("exit.wait_interrupted"), false);
        // There is a sum of the kernel's only if the launcher has reaped the helper.
        run.report().u64("processes.still_running") == 0 && run.report().at("cpu_time.kernel_s").is_number()
    };
    assert!((0..20).any(is_complete), "it was never waited for");
}

// Requirement: SEE-105, SEE-106
#[test]
fn what_lives_on_has_one_warning() {
    let daemon = Daemon::new();
    let run = tracked(daemon.words()).leaves_processes().run();
    kill(daemon.pid(), libc::SIGTERM);
    let warnings = run.report().at("warnings").as_array().unwrap();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(
        warnings[0]["text"].as_str().unwrap().starts_with("Still running at the end: pid "),
        "{warnings:?}"
    );
    assert_eq!(run.report().u64("processes.still_running"), 1);
}

// Requirement: SEE-102
#[test]
fn quiet_wait_says_nothing() {
    for quiet in ["-q", "--disable-logs"] {
        let run = tracked(["sh", "-c", "sleep 2 & exit 0"]).options(&["--wait-all", quiet]).run();
        run.assert_clean(0).assert_all_exact(2);
    }
}

/// Makes signalfd(2) fail, as a sandbox can.
fn without_signalfd() -> std::io::Result<()> {
    let (load, jump_if_equal, give) = (0x20, 0x15, 0x06);
    let statement = |code, jt, k| libc::sock_filter { code, jt, jf: 0, k };
    let number = u32::try_from(libc::SYS_signalfd4).unwrap();
    let refused = libc::SECCOMP_RET_ERRNO | libc::ENOSYS.cast_unsigned();
    let mut code = [
        statement(load, 0, 0),
        statement(jump_if_equal, 1, number),
        statement(give, 0, libc::SECCOMP_RET_ALLOW),
        statement(give, 0, refused),
    ];
    let filter = libc::sock_fprog { len: code.len().try_into().unwrap(), filter: code.as_mut_ptr() };
    // SAFETY: the filter lives through the calls, which are async-signal-safe.
    let result = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const filter)
    };
    if result == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

// Requirement: CMD-7, SEE-102
#[test]
fn launcher_without_signalfd_forwards_signals_and_obeys() {
    let daemon = Daemon::new();
    let script = format!("{}; exec {} 15", daemon.words().join(" "), program("signals"));
    let running = tracked(["sh", "-c", &script])
        .options(&["--wait-all"])
        // SAFETY: what it calls is async-signal-safe.
        .with(|command| unsafe { command.pre_exec(without_signalfd) })
        .start();
    running.wait_for_output("ready");
    assert!(descriptors(running.pid()).iter().all(|one| one.target != SIGNAL_FD));
    for signal in [libc::SIGUSR1, libc::SIGTERM] {
        kill(running.pid(), signal);
        running.wait_for_output(&format!("got {signal}\n"));
    }
    assert_eq!(told(&running), daemon.line());
    kill(daemon.pid(), libc::SIGTERM);
    assert_eq!(running.wait().status.code(), Some(0));
}

/// The process that orphans of this test come to: process 1, or a subreaper nearer.
fn adopter() -> u32 {
    let script = "sleep 1000 >/dev/null 2>&1 & echo $!";
    let output = std::process::Command::new("sh").args(["-c", script]).output().unwrap();
    let orphan: u32 = String::from_utf8(output.stdout).unwrap().trim().parse().unwrap();
    let stat = std::fs::read_to_string(format!("/proc/{orphan}/stat")).unwrap();
    kill(orphan, libc::SIGKILL);
    stat.rsplit(") ").next().unwrap().split(' ').nth(1).unwrap().parse().unwrap()
}

/// Asserts that the daemon of tests/programs/waits_for_parent.c did its work, and that the report says who had orphans.
fn assert_work_is_done(run: &Run) {
    assert_eq!((run.status.code(), run.stdout.as_str()), (Some(0), "work done\n"), "{}", run.stderr);
    let report = run.report();
    assert_eq!((report.u64("processes.total"), report.u64("coverage.exact")), (2, 2));
    assert!(report.at("coverage.layers.subreaper").is_null());
    let reason = report.at("cpu_time.kernel_s_reason").as_str().unwrap();
    assert!(reason.contains("not reaped by gpu-track-run (--no-subreaper): 1 process"), "{reason}");
    let is_connected = report.at("coverage.connector_absent").is_null();
    assert_eq!(report.warnings().contains("--no-subreaper"), !is_connected);
    assert_eq!(report.at("coverage.uncounted_reason").is_null(), is_connected);
}

// Requirement: SEE-28, SEE-114
#[test]
fn daemon_that_waits_for_its_parent_works_without_the_subreaper() {
    let words = [program("waits_for_parent"), adopter().to_string()];
    let options = ["--no-subreaper", "--wait-all"];
    assert_work_is_done(&tracked(&words).options(&options).run());
    let without_connector = ["--no-subreaper", "--wait-all", "--layers", "preload,wait,scan"];
    assert_work_is_done(&tracked(&words).options(&without_connector).run());
    if !is_root() {
        skip!("needs root (unshare)");
    }
    let contained = [program("waits_for_parent"), "1".into()];
    let through = ["unshare", "-fp", "--mount-proc"];
    assert_work_is_done(&tracked(contained).options(&options).through(&through).run());
}

// Requirement: SEE-28, SEE-102, SEE-115
#[test]
fn wait_lasts_as_long_as_the_last_process_without_the_subreaper() {
    let daemon = Daemon::new();
    let running = tracked(daemon.words()).options(&["--no-subreaper", "--wait-all"]).start();
    assert_eq!(told(&running), daemon.line());
    running.replace_collector();
    // It leaves no record of its end.
    kill(daemon.pid(), libc::SIGKILL);
    let run = running.wait();
    assert_eq!(run.status.code(), Some(0), "{}", run.stderr);
    assert_eq!((run.report().u64("processes.total"), run.report().u64("processes.still_running")), (3, 0));
    assert_eq!(run.report().at("exit.wait_interrupted"), false);
}

// Requirement: SEE-28, LIMIT-4
#[test]
fn limit_ends_orphans_without_the_subreaper() {
    for words in [program("daemon"), static_program("daemon")] {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("pid").display().to_string();
        let many = "for i in 1 2 3 4 5 6 7 8; do sleep 1000 & done; wait";
        let script = format!("{words} double {file}; {many}");
        let options = ["--no-subreaper", "--limit", "processes=5"];
        let run = tracked(["sh", "-c", &script]).options(&options).run();
        assert_eq!(run.status.code(), Some(124), "{}", run.stderr);
        assert!(Path::new(&file).exists(), "the daemon ran");
        // That nothing is left running is checked of every run.
    }
}

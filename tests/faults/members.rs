//! Which processes are of the run. Not of it are those of a shell that became gpu-track-run, and those that enter a container whose first
//! process it is, although they could come to the launcher. They are not counted, not waited for and not ended.

use std::ffi::CString;
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::process::{Signal, pidfd_send_signal};
use tempfile::TempDir;

use crate::support::pty::Terminal;
use crate::support::run::{BINARY, Run, Running, Tracked};
use crate::support::{
    WATCHDOG, installed, is_root, kill, leftovers, pidfd, program, skip, static_program, tracked, wait_until,
};

/// Longer than any test runs.
const LONG: &str = "1000";
/// CPU time of the job, seconds. No command here uses so much.
const BURN: &str = "0.3";
/// A script that starts more processes than [`LIMIT`] allows.
const MANY: &str = "for i in 1 2 3 4 5 6 7 8; do sleep 1000 & done; wait";
const LIMIT: [&str; 2] = ["--limit", "processes=5"];

/// A shell that has jobs and becomes gpu-track-run. When the command asks for it, one of them leaves a daemon, which lives until the
/// test ends it.
struct Shell {
    directory: TempDir,
}

impl Shell {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        for name in ["go", "began"] {
            let path = directory.path().join(name).into_os_string().into_string().unwrap();
            let path = CString::new(path).unwrap();
            // SAFETY: the path is a C string.
            assert_eq!(unsafe { libc::mkfifo(path.as_ptr(), 0o600) }, 0);
        }
        Self { directory }
    }

    fn path(&self, name: &str) -> String {
        self.directory.path().join(name).to_str().unwrap().to_owned()
    }

    /// A run of a command that asks for the daemon, which these `words` start, and then does this.
    fn run(&self, daemon: &str, then: &str) -> Tracked {
        let [go, began, pid] = ["go", "began", "pid"].map(|name| self.path(name));
        let burn = program("burn");
        let job = format!("read line <{go}; {burn} {BURN}; {daemon} {pid}; cat {pid} >{began}");
        let command = format!("echo >{go}; read line <{began}; {then}");
        // The job's own parent ends at once, so the job is an orphan, too.
        let script = format!("({job} &) & sleep {LONG} & exec \"$@\"");
        tracked(["sh", "-c", &command]).through(&["sh", "-c", &script, "sh"]).leaves_processes()
    }

    /// Waits for the end of a run. Then ends the daemon, the shell's other job, and what else is left. Asserts that these two were left
    /// alone.
    fn wait(&self, running: Running) -> Run {
        let mark = running.mark().to_owned();
        let run = running.wait();
        let pid: u32 = std::fs::read_to_string(self.path("pid")).unwrap().trim().parse().unwrap();
        let left = leftovers::processes(&mark);
        left.iter().for_each(|(pid, _)| kill(*pid, libc::SIGKILL));
        // The daemon's environment can lack the mark.
        let daemon = pidfd::open(pid);
        let has_daemon = daemon.is_some_and(|daemon| pidfd_send_signal(&daemon, Signal::KILL).is_ok());
        let has_job = left.iter().any(|(_, line)| line.starts_with("sleep"));
        assert!(has_daemon && has_job, "left of the shell: daemon {has_daemon}, {left:?}");
        run
    }
}

/// Whether the process with this pid is there, and is no zombie.
fn is_alive(pid: &str) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

/// Asserts that the run has the processes of its command alone.
#[track_caller]
fn assert_only_the_commands(run: &Run) {
    let report = run.report();
    let commands: Vec<_> = report.array("processes.by_command").iter().map(|row| &row["command"]).collect();
    assert!(commands.iter().all(|name| *name == "sh" || *name == "sleep"), "{commands:?}");
    assert_eq!(report.u64("processes.still_running"), 0);
    let (kernel_s, burned_s) = (report.at("cpu_time.kernel_s").as_f64(), BURN.parse().unwrap());
    assert!(kernel_s.is_none_or(|kernel_s| kernel_s < burned_s), "{kernel_s:?}");
}

// Requirement: SEE-27, LIMIT-4
#[test]
fn daemon_of_a_job_is_not_of_the_run() {
    let [instrumented, uninstrumented] = [program("daemon"), static_program("daemon")];
    // Of the last one, nothing can be read by which a run could know it.
    for daemon in [
        format!("{instrumented} libc"),
        format!("{uninstrumented} double"),
        format!("env -i {uninstrumented} double"),
    ] {
        let shell = Shell::new();
        let run = shell.wait(shell.run(&daemon, MANY).options(&LIMIT).start());
        assert_eq!(run.status.code(), Some(124), "{daemon}: {}", run.stderr);
        assert_eq!(run.report().u64("exit.cause.left"), 0);
        assert_only_the_commands(&run);

        let shell = Shell::new();
        let run = shell.wait(shell.run(&daemon, "exit 3").options(&["--wait-all"]).start());
        assert_eq!((run.status.code(), run.stderr.as_str()), (Some(3), ""), "{daemon}");
        assert_only_the_commands(&run);
        run.report().assert_all_exact(1);
        assert!(run.report().at("cpu_time.kernel_s").is_f64());
    }
}

// Requirement: SEE-6, LIMIT-4
#[test]
fn daemon_of_the_command_is_of_the_run_beside_jobs() {
    let [instrumented, uninstrumented] = [program("daemon"), static_program("daemon")];
    for own in [format!("{instrumented} libc"), format!("env -i {uninstrumented} double")] {
        let shell = Shell::new();
        let own = format!("{own} {}; {MANY}", shell.path("own"));
        let run = shell.wait(shell.run(&format!("{instrumented} double"), &own).options(&LIMIT).start());
        assert_eq!(run.status.code(), Some(124), "{own}: {}", run.stderr);
        let pid = std::fs::read_to_string(shell.path("own")).unwrap();
        assert!(!is_alive(pid.trim()), "{own} lives");
        assert!(run.report().command("daemon").is_some() || own.starts_with("env"), "{own}");
    }
}

// Requirement: SEE-27, LIMIT-6
#[test]
fn job_is_left_alone_where_gpu_track_run_was_killed() {
    let shell = Shell::new();
    let then = format!("echo ready; read line <{}; {MANY}", shell.path("go"));
    let running = shell.run(&format!("{} double", program("daemon")), &then).options(&LIMIT).start();
    running.wait_for_output("ready");
    let collector = running.collector().expect("a collector runs");
    kill(running.pid(), libc::SIGKILL);
    std::fs::write(shell.path("go"), "\n").unwrap();
    wait_until("the collector's end", || !Path::new(&format!("/proc/{collector}")).exists());
    let run = shell.wait(running);
    assert_eq!(run.status.signal(), Some(libc::SIGKILL));
    assert_eq!(run.report().at("exit.cause.quantity"), "processes", "{}", run.stderr);
    assert_only_the_commands(&run);
}

/// Runs a command under [`LIMIT`] that does this, and then exceeds the limit, after gpu-track-run was killed and `meanwhile` has run.
fn limited_without_launcher(options: &[&str], first: &str, meanwhile: impl FnOnce(&Running)) -> Run {
    let directory = tempfile::tempdir().unwrap();
    let go = directory.path().join("go").display().to_string();
    let command = format!("{first}; echo ready; until [ -e {go} ]; do sleep 0.01; done; {MANY}");
    let running = tracked(["sh", "-c", &command]).options(&LIMIT).options(options).start();
    running.wait_for_output("ready");
    let collector = running.wait_for_collector();
    meanwhile(&running);
    kill(running.pid(), libc::SIGKILL);
    std::fs::write(go, "").unwrap();
    wait_until("the collector's end", || !Path::new(&format!("/proc/{collector}")).exists());
    let run = running.wait();
    assert_eq!(run.report().at("exit.cause.quantity"), "processes", "{}", run.stderr);
    run
}

// Requirement: LIMIT-4, LIMIT-6
#[test]
fn process_that_maps_a_file_of_the_segments_name_is_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let mut stranger = None;
    limited_without_launcher(&[], "true", |running| {
        let file = directory.path().join(running.segment().file_name().unwrap());
        std::fs::write(&file, [0; 4096]).unwrap();
        let script = "import mmap, signal, sys\nfile = open(sys.argv[1], 'r+')\n\
                      mapped = mmap.mmap(file.fileno(), 0)\nprint(flush=True)\nsignal.pause()";
        let mut python = Command::new("python3");
        python.args(["-c", script]).arg(&file).stdout(Stdio::piped());
        let mut child = python.spawn().unwrap();
        child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        stranger = Some(child);
    });
    let mut stranger = stranger.unwrap();
    let ended = stranger.try_wait().unwrap();
    stranger.kill().unwrap();
    stranger.wait().unwrap();
    assert_eq!(ended, None);
}

// Requirement: LIMIT-6
#[test]
fn static_daemon_is_ended_without_the_launcher_although_no_layer_has_seen_it() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("pid").display().to_string();
    let daemon = format!("{} double {file}", static_program("daemon"));
    limited_without_launcher(&["--layers", "preload,wait,subreaper"], &daemon, |_| {});
    // That nothing is left running is checked of every run.
    assert!(Path::new(&file).exists(), "the daemon ran");
}

// Requirement: SEE-27
#[test]
fn process_substitution_is_not_waited_for() {
    if installed("bash").is_none() {
        skip!("bash is not installed");
    }
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("copy");
    // It ends when nothing has its input open any more, and gpu-track-run has.
    let script = format!("exec \"$@\" > >(cat >{})", file.display());
    let through = ["bash", "-c", &script, "bash"];
    let run = tracked(["echo", "text"]).options(&["--wait-all"]).through(&through).leaves_processes().run();
    run.assert_clean(0).assert_all_exact(1);
    wait_until("the copy", || std::fs::read_to_string(&file).is_ok_and(|text| text == "text\n"));
}

/// The words that start gpu-track-run by exec, from a shell that has a job.
fn through_a_shell() -> [String; 4] {
    ["sh", "-c", &format!("sleep {LONG} & exec \"$@\""), "sh"].map(str::to_owned)
}

/// Ends what is left of a run.
fn end(mark: &str) {
    leftovers::processes(mark).iter().for_each(|(pid, _)| kill(*pid, libc::SIGKILL));
}

// Requirement: CMD-3, CMD-4, WHY-6
#[test]
fn signals_come_through_with_their_sender_and_the_status_comes_back() {
    let through = through_a_shell();
    let through: Vec<&str> = through.iter().map(String::as_str).collect();
    for (command, signal, status) in [
        ("trap 'exit 7' USR1; echo ready; while :; do sleep 0.01; done", libc::SIGUSR1, "exit status: 7"),
        ("echo ready; exec sleep 1000", libc::SIGTERM, "signal: 15 (SIGTERM)"),
    ] {
        let running = tracked(["sh", "-c", command]).through(&through).leaves_processes().start();
        let mark = running.mark().to_owned();
        running.wait_for_output("ready");
        kill(running.pid(), signal);
        let run = running.wait();
        end(&mark);
        assert_eq!(run.status.to_string(), status, "{}", run.stderr);
        if signal == libc::SIGTERM {
            assert_eq!(run.report().u64("exit.cause.sender.pid"), u64::from(std::process::id()));
        }
    }
}

// Requirement: CMD-8
#[test]
fn ctrl_z_stops_a_shell_that_became_gpu_track_run_and_fg_resumes_it() {
    let mut bash = Command::new("bash");
    bash.args(["--norc", "--noprofile", "--noediting", "-i"]).env("PS1", "prompt> ");
    let mut terminal = Terminal::start(bash);
    terminal.expect("prompt> ");
    terminal.write("stty -echo\n");
    terminal.expect("prompt> ");
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("pid").display().to_string();
    let run = format!("exec {BINARY} -o /dev/null -- sed -u s/^/got:/");
    terminal.write(&format!("(sleep {LONG} & echo $! >{file}; {run})\n"));
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
    let job = std::fs::read_to_string(file).unwrap().trim().parse().unwrap();
    let end = pidfd::open(job).unwrap();
    kill(job, libc::SIGKILL);
    assert!(pidfd::ends_within(&end, WATCHDOG));
    terminal.write("exit\n");
    terminal.finish();
}

/// Pid of the first process of the pid namespace that unshare(1) with this pid has made.
fn first_process(unshare: u32) -> u32 {
    let children = format!("/proc/{unshare}/task/{unshare}/children");
    let mut found = None;
    wait_until("the first process of the namespace", || {
        let text = std::fs::read_to_string(&children).unwrap();
        found = text.split_whitespace().next().and_then(|pid| pid.parse().ok());
        found.is_some()
    });
    found.unwrap()
}

// Requirement: SEE-9, SEE-27, SEE-113
#[test]
fn process_that_enters_the_container_is_not_of_the_run() {
    if !is_root() || installed("nsenter").is_none() {
        skip!("needs root and nsenter (a pid namespace that another process enters)");
    }
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).display().to_string();
    let command = format!(
        "echo ready; until [ -e {0} ]; do sleep 0.01; done; {1} double {2}",
        path("go"),
        program("daemon"),
        path("own")
    );
    let running = tracked(["sh", "-c", &command])
        .options(&["--wait-all"])
        .through(&["unshare", "-fp", "--mount-proc"])
        .start();
    running.wait_for_output("ready");
    let first = first_process(running.pid()).to_string();
    assert_eq!(std::fs::read_to_string(format!("/proc/{first}/comm")).unwrap(), "gpu-track-relay\n");
    let entered = Command::new("nsenter")
        .args(["-t", &first, "-p", &program("daemon"), "double", &path("pid")])
        .status();
    assert!(entered.unwrap().success());
    std::fs::write(path("go"), "").unwrap();
    // The run's own daemon is waited for.
    wait_until("the line about the daemon", || {
        std::fs::read_to_string(running.path("stderr")).unwrap().contains("waiting for 1 process")
    });
    let own: PathBuf = path("own").into();
    let inner: u32 = std::fs::read_to_string(own).unwrap().trim().parse().unwrap();
    let killed =
        Command::new("nsenter").args(["-t", &first, "-p", "-m", "kill", &inner.to_string()]).status();
    assert!(killed.unwrap().success());
    let run = running.wait();
    assert_eq!(run.status.code(), Some(0), "{}", run.stderr);
    assert_eq!(run.report().command("daemon").unwrap()["count"], 3);
}

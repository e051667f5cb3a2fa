//! Orders and messages while the collector or the launcher is killed or stopped, and where a pipe is full.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, PipeReader, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::time::Duration;

use crate::support::descriptors::{Descriptor, descriptors};
use crate::support::run::{Running, Tracked};
use crate::support::{kill, program, tracked, wait_until};
use crate::{Random, rounds};

/// Collectors that are killed in one run at most: after a hundred short lives the launcher gives up.
const MOST_KILLS: u32 = 20;

/// The collector looks at least every 50 ms, so an order is there long before it has waited this often.
const MOST_LOOKS: u64 = 300;

/// A command that leaves a daemon, under `--wait-all`. The daemon writes its pid into a file and waits for SIGTERM.
struct Wait {
    tracked: Tracked,
    directory: tempfile::TempDir,
}

impl Wait {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("pid").to_str().unwrap().to_owned();
        let tracked = tracked([program("daemon"), "double".into(), file]).options(&["--wait-all"]);
        Self { tracked, directory }
    }

    fn start(self) -> Waiting {
        Waiting { running: self.tracked.start(), directory: self.directory }
    }
}

struct Waiting {
    running: Running,
    directory: tempfile::TempDir,
}

impl Waiting {
    fn daemon(&self) -> u32 {
        let file = self.directory.path().join("pid");
        wait_until("the daemon's pid", || file.exists());
        std::fs::read_to_string(file).unwrap().trim().parse().unwrap()
    }

    fn is_told(&self) -> bool {
        std::fs::read_to_string(self.running.path("stderr")).unwrap().ends_with('\n')
    }
}

/// A pipe of a process, opened again: the first that it reads, or else writes, besides its standard streams.
fn pipe_of(pid: u32, is_read: bool, options: &mut OpenOptions) -> Option<File> {
    let mode = if is_read { libc::O_RDONLY } else { libc::O_WRONLY };
    let is_it = |one: &Descriptor| {
        one.number > 2 && one.target.starts_with("pipe:") && one.flags & libc::O_ACCMODE == mode
    };
    let number = descriptors(pid).into_iter().find(is_it)?.number;
    options.custom_flags(libc::O_NONBLOCK).open(format!("/proc/{pid}/fd/{number}")).ok()
}

/// Whether the launcher has orders to read.
fn has_orders(launcher: u32) -> bool {
    let pipe = pipe_of(launcher, true, OpenOptions::new().read(true));
    pipe.is_some_and(|pipe| rustix::io::ioctl_fionread(pipe).is_ok_and(|bytes| bytes > 0))
}

fn state(pid: u32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

/// Kills the collector with an order on its way: the launcher is stopped, so it has not answered. False if the user was told
/// before.
fn kill_before_the_answer(waiting: &Waiting) -> bool {
    let launcher = waiting.running.pid();
    let children = format!("/proc/{launcher}/task/{launcher}/children");
    // The launcher has told the collector of the command's end when it has reaped the command, and waits again.
    wait_until("the wait for the daemon", || {
        let children = std::fs::read_to_string(&children).unwrap();
        let only_these = [Some(waiting.daemon()), waiting.running.collector()];
        let are_all = children.split_whitespace().all(|pid| only_these.contains(&pid.parse().ok()));
        are_all && state(launcher) == Some('S')
    });
    kill(launcher, libc::SIGSTOP);
    wait_until("the launcher's stop", || state(launcher) == Some('T'));
    let is_pending = !waiting.is_told();
    if is_pending {
        // A successor is not started while the launcher is stopped.
        let collector = waiting.running.wait_for_collector();
        // The launcher may have been stopped on its way to the wait: a page of its program can be slow to read. Then
        // the wait is unknown to the collector, which gives no order, however often it looks.
        let before = waits(collector);
        wait_until("an order", || has_orders(launcher) || waits(collector) >= before + MOST_LOOKS);
        kill(collector, libc::SIGKILL);
    }
    kill(launcher, libc::SIGCONT);
    is_pending
}

// Requirement: FAULT-95
#[test]
fn order_is_obeyed_once_however_often_the_collector_is_killed() {
    let mut random = Random(0x2545_f491_4f6c_dd1d);
    let (mut killed, kills) = (0, rounds(10));
    while killed < kills {
        let waiting = Wait::new().start();
        let daemon = waiting.daemon();
        let mut here = 0;
        if random.below(2) == 0 {
            here += u32::from(kill_before_the_answer(&waiting));
        }
        // At any moment between the decision, the checkpoint, the order and the answer.
        let (mut last, mut after) = (0, 0);
        while here < MOST_KILLS && after < 2 {
            after += u32::from(waiting.is_told());
            std::thread::sleep(Duration::from_micros(random.below(150_000)));
            let Some(pid) = waiting.running.collector().filter(|pid| *pid != last) else { continue };
            kill(pid, libc::SIGKILL);
            (here, last) = (here + 1, pid);
        }
        wait_until("the line", || waiting.is_told());
        kill(daemon, libc::SIGTERM);
        let run = waiting.running.wait();
        let line = format!("waiting for 1 process: {daemon} daemon (--wait-all)");
        assert_eq!((run.status.code(), run.stderr.lines().count()), (Some(0), 1), "{}", run.stderr);
        assert!(run.stderr.contains(&line), "{}", run.stderr);
        killed += here;
    }
}

/// The reader of a pipe that is full, and its writer, which blocks.
fn full_pipe() -> (PipeReader, std::io::PipeWriter) {
    let (reader, mut writer) = std::io::pipe().unwrap();
    rustix::io::ioctl_fionbio(&writer, true).unwrap();
    while writer.write(&[b'x'; 4096]).is_ok() {}
    rustix::io::ioctl_fionbio(&writer, false).unwrap();
    (reader, writer)
}

/// How often a process has waited.
fn waits(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let count = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    count.unwrap().trim().parse().unwrap()
}

// Requirement: FAULT-95
#[test]
fn stderr_that_takes_nothing_delays_the_line_and_nothing_else() {
    for is_read in [false, true] {
        let (mut reader, writer) = full_pipe();
        let mut wait = Wait::new();
        wait.tracked = wait.tracked.with(|command| command.stderr(writer));
        let waiting = wait.start();
        let (daemon, launcher) = (waiting.daemon(), waiting.running.pid());
        // Each time the order is issued again, the launcher looks and waits again.
        let before = waits(launcher);
        wait_until("three orders", || waits(launcher) >= before + 3);
        let mut text = String::new();
        if is_read {
            wait_until("the line", || {
                let mut chunk = [0; 4096];
                let length = reader.read(&mut chunk).unwrap();
                text.push_str(str::from_utf8(&chunk[..length]).unwrap());
                text.ends_with('\n')
            });
            assert_eq!(text.trim_start_matches('x').lines().count(), 1, "{text}");
        }
        kill(daemon, libc::SIGTERM);
        assert_eq!(waiting.running.wait().status.code(), Some(0));
    }
}

// Requirement: FAULT-96
#[test]
fn stopped_collector_with_a_full_pipe_holds_nothing_up() {
    let running = tracked([program("signals"), "15".into()]).start();
    running.wait_for_output("ready");
    let collector = running.wait_for_collector();
    // The collector has read the configuration when it has threads.
    let threads = format!("/proc/{collector}/task");
    wait_until("the collector's threads", || std::fs::read_dir(&threads).unwrap().count() > 1);
    kill(collector, libc::SIGSTOP);
    wait_until("the collector's stop", || state(collector) == Some('T'));
    let pipe = pipe_of(running.pid(), false, OpenOptions::new().write(true));
    let mut pipe = pipe.expect("the launcher has a pipe to the collector");
    let known = r#"{"Signalled":{"signal":64,"at_ns":1,"sender_pid":1,"sender_uid":0}}"#;
    let full = loop {
        if let Err(error) = pipe.write_all(format!("{known}\n").as_bytes()) {
            break error;
        }
    };
    assert_eq!(full.kind(), ErrorKind::WouldBlock);
    drop(pipe);
    let signals = [libc::SIGUSR1, libc::SIGUSR2, libc::SIGALRM];
    for signal in signals {
        kill(running.pid(), signal);
        running.wait_for_output(&format!("got {signal}\n"));
    }
    kill(running.pid(), libc::SIGTERM);
    running.wait_for_output("got 15\n");
    // The run's end has the collector go on.
    let run = running.wait();
    run.assert_clean(0).assert_all_exact(1);
}

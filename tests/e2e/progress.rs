//! `--every`: lines about the run on stderr while it goes on.

use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;

use crate::support::gpu::FakeGpus;
use crate::support::pty;
use crate::support::{tracked, wait_until};

/// A run of a shell that waits until a file exists.
const UNTIL_STOP: &str = "while [ ! -e \"$0\" ]; do sleep 0.01; done";

/// Times of the lines, tenths of a second since the start.
fn times(lines: &[&str]) -> Vec<u64> {
    let time = |line: &&str| {
        let clock = line.strip_prefix("gpu-track ").unwrap().split_once("  ").unwrap().0;
        let [hours, minutes, seconds] = clock.split(':').collect::<Vec<_>>()[..] else { panic!("{line}") };
        let number = |text: &str| text.parse::<f64>().unwrap();
        ((number(hours) * 3600.0 + number(minutes) * 60.0 + number(seconds)) * 10.0).round() as u64
    };
    lines.iter().map(time).collect()
}

// Requirement: TIME-22
#[test]
fn lines_have_the_gpus_come_at_multiples_and_end_before_the_report() {
    let gpus = FakeGpus::new(2, "1.memory_used 3000000000\n*.samples ring 100 20000 37");
    let stop = gpus.path("stop");
    let words = gpus.words(&["sampled", "hold:0:500000000,c", &format!("wait:{stop}")]);
    let running = gpus
        .tracked(words)
        .without_option("-o")
        .without_option("-f")
        .options(&["--every", "200ms", "--full"])
        .start();
    let seen = || std::fs::read_to_string(running.path("stderr")).unwrap();
    wait_until("lines with the process's memory", || seen().matches("GPU0 37% 0.50/1.00 GB").count() >= 2);
    running.replace_collector();
    let before = seen().lines().count();
    wait_until("lines of another collector", || seen().lines().count() >= before + 2);
    std::fs::write(&stop, "").unwrap();
    let run = running.wait();
    assert_eq!(run.status.code(), Some(0));
    let lines: Vec<&str> = run.stderr.lines().collect();
    let of_run: Vec<&str> = lines.iter().copied().filter(|line| line.starts_with("gpu-track 0:")).collect();
    let last = lines.iter().rposition(|line| line.starts_with("gpu-track ")).unwrap();
    let report = lines.iter().position(|line| line.starts_with("Max RAM")).unwrap();
    assert!(last < report, "a line follows the report: {}", run.stderr);
    let times = times(&of_run);
    assert!(times.iter().all(|tenths| *tenths > 0 && tenths % 2 == 0), "{times:?}");
    assert!(times.is_sorted_by(|a, b| a < b), "{times:?}");
    assert!(of_run.iter().any(|line| line.ends_with("GPU1 37% 0.00/3.00 GB")), "{}", run.stderr);
    // The last one can be of the moment after the command's end.
    let alive = &of_run[..of_run.len() - 1];
    assert!(alive.iter().all(|line| line.contains("  1 process")), "{}", run.stderr);
}

// Requirement: TIME-22
#[test]
fn lines_fit_the_terminal_and_come_with_quiet_too() {
    let gpus = FakeGpus::new(16, "");
    let (master, slave) = pty::open(Some(80));
    let stop = gpus.path("stop");
    let running = gpus
        .tracked(["sh", "-c", UNTIL_STOP, &stop])
        .options(&["--every", "0.1", "-q"])
        .with(|command| command.stderr(slave).env("TERM", "xterm"))
        .start();
    let mut text = Vec::new();
    let mut master: File = master;
    while text.iter().filter(|byte| **byte == b'\n').count() < 4 || !text.windows(5).any(|at| at == b" GPU\r")
    {
        let mut byte = [0];
        master.read_exact(&mut byte).unwrap();
        text.extend(byte);
    }
    std::fs::write(stop, "").unwrap();
    assert_eq!(running.wait().status.code(), Some(0));
    let text = String::from_utf8(text).unwrap() + &pty::read_all(master);
    for line in text.split_inclusive('\n') {
        let line = line.strip_suffix("\r\n").unwrap();
        assert!(line.starts_with("gpu-track 0:") && line.len() <= 80, "{line:?}");
        assert!(!line.contains(char::is_control), "{line:?}");
    }
    assert!(text.contains("  +1") && text.contains(" GPU\r\n"), "{text}");
}

/// A pipe that holds one page, and how its writer finds it: full.
fn full_pipe() -> (File, OwnedFd) {
    let (reader, writer) = std::io::pipe().unwrap();
    let (reader, writer) = (File::from(OwnedFd::from(reader)), OwnedFd::from(writer));
    let fd = std::os::fd::AsRawFd::as_raw_fd(&writer);
    // SAFETY: plain system calls on an open descriptor; the bytes live until the last one returns.
    unsafe {
        let size = libc::fcntl(fd, libc::F_SETPIPE_SZ, 4096);
        assert!(size > 0);
        let bytes = vec![b'x'; size as usize];
        assert_eq!(libc::write(fd, bytes.as_ptr().cast(), bytes.len()), bytes.len() as isize);
    }
    (reader, writer)
}

// Requirement: TIME-22
#[test]
fn full_pipe_on_stderr_delays_neither_the_command_nor_the_report() {
    let (mut reader, writer) = full_pipe();
    let directory = tempfile::tempdir().unwrap();
    let stop = directory.path().join("stop");
    let running = tracked(["sh", "-c", UNTIL_STOP, stop.to_str().unwrap()])
        .options(&["--every", "0.1", "--st", "0.02"])
        .with(move |command| command.stderr(writer))
        .start();
    // The collector samples on.
    let live = running.live();
    let first = live.count();
    wait_until("samples of several intervals", || live.count() > first + 40);
    std::fs::write(&stop, "").unwrap();
    let run = running.wait();
    assert_eq!(run.status.code(), Some(0));
    assert!(run.report().u64("exit.code") == 0);
    let mut text = String::new();
    reader.read_to_string(&mut text).unwrap();
    assert!(!text.contains("gpu-track"), "what found no room is dropped: {text}");
}

//! `gpu-track watch`: beside a job, of a finished run, against hostile files, and on a terminal.

use std::fs;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use gpu_track_abi::live::{LIVE_SIZE, SECTIONS};
use gpu_track_collector::segment::live::LiveFile;
use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};

use crate::support::gpu::FakeGpus;
use crate::support::rows::JsonLines;
use crate::support::run::{Running, tracked};
use crate::support::{installed, is_root, kill, program, skip, wait_until};

const MIB: u64 = 1 << 20;

fn watch(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gpu-track"));
    command.arg("watch").args(arguments).env("LANG", "C.UTF-8").env_remove("LC_ALL").stdin(Stdio::null());
    command.output().unwrap()
}

/// What it prints, without complaint.
fn shown(arguments: &[&str]) -> String {
    let output = watch(arguments);
    let (text, complaint) =
        (String::from_utf8(output.stdout).unwrap(), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && complaint.is_empty(), "{arguments:?}: {complaint}{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    text
}

/// The one line that it refuses with.
#[track_caller]
fn assert_refused(arguments: &[&str], said: &str) {
    let output = watch(arguments);
    let complaint = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), complaint.lines().count()), (Some(2), 1), "{complaint}");
    assert!(complaint.contains(said) && !complaint.trim_end().contains(char::is_control), "{complaint}");
}

/// What it shows of a run, once that has all of the parts.
fn once(running: &Running, parts: &[&str]) -> String {
    once_when(running, |text| parts.iter().all(|part| text.contains(part)))
}

/// What it shows of a run, once that is so.
fn once_when(running: &Running, is_so: impl Fn(&str) -> bool) -> String {
    let pid = running.pid().to_string();
    running.live();
    let mut text = String::new();
    wait_until("the view", || {
        text = shown(&["--once", &pid]);
        is_so(&text)
    });
    text
}

/// The line that has a text.
fn line<'a>(text: &'a str, part: &str) -> &'a str {
    text.lines().find(|line| line.contains(part)).unwrap_or_else(|| panic!("no {part:?} in\n{text}"))
}

// Requirement: WATCH-1, WATCH-2
#[test]
fn view_beside_a_job_shows_it_and_changes_nothing() {
    let hold = format!(
        "/bin/true; /bin/true; {} hold {} 1000000 & read line; kill $!; wait",
        program("touch"),
        64 * MIB
    );
    let mut running = tracked(["sh", "-c", &hold]).piped_stdin().start();
    // One live process, and its RSS.
    let has_touched = |text: &str| {
        text.lines().find_map(|line| line.trim_start().strip_prefix("touch ")).is_some_and(|figures| {
            let words: Vec<&str> = figures.split_whitespace().collect();
            (words[0], words[2]) == ("1", "MB") && words[1].parse().is_ok_and(|mb| (67.0..75.0).contains(&mb))
        })
    };
    let parts = ["2 live", "2 ended", "runs for"];
    let text = once_when(&running, |text| has_touched(text) && parts.iter().all(|part| text.contains(part)));
    assert!(line(&text, "true ").ends_with(" 2"), "two that ended:\n{text}");
    assert!(
        line(&text, "RAM     [").contains(" GB  peak ") && line(&text, "at ").contains("  a touch "),
        "{text}"
    );
    assert!(line(&text, "COVERAGE").contains("2 exact"), "{text}");
    let before = fs::metadata(running.live().named().path()).unwrap();
    let other = watch(&[&running.pid().to_string()]);
    assert!(String::from_utf8_lossy(&other.stderr).contains("this is what --once prints"), "{other:?}");
    assert!(String::from_utf8_lossy(&other.stdout).contains("PROCESSES"), "{other:?}");
    let after = fs::metadata(running.live().named().path()).unwrap();
    assert_eq!((before.permissions(), before.len()), (after.permissions(), after.len()));
    drop(running.stdin());
    running.wait().report().assert_all_exact(4);
}

// Requirement: WATCH-55
#[test]
fn time_is_shown_against_the_end_of_the_batch_job() {
    let now_s = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    let times = [("SLURM_JOB_START_TIME", now_s - 100), ("SLURM_JOB_END_TIME", now_s + 7_200)];
    let slurm = times.map(|(name, s)| (name, s.to_string()));
    let mut running =
        tracked(["sh", "-c", "read line"]).piped_stdin().with(move |run| run.envs(slurm)).start();
    let text = once(&running, &["1 live", " (job)"]);
    let time = line(&text, "Time    [");
    // The job ends two hours after the start of the run, to the second.
    assert!(time.contains(" of 1 h 59 min ") || time.contains(" of 2 h 0 min 0 s"), "{text}");
    drop(running.stdin());
    running.wait();
}

// Requirement: WATCH-2
#[test]
fn gpus_are_shown_with_the_processes_on_them() {
    let gpus = FakeGpus::new(2, "0.samples now:30\n1.power na");
    let stop = gpus.path("stop");
    let words = gpus.words(&["hold:0:7654321,c", &format!("wait:{stop}")]);
    let running = gpus.tracked(words).start();
    // The utilization is known from the second sample on.
    let text = once(&running, &["30%", "7.65 MB", "on all of them: gpu ["]);
    let figures: Vec<&str> = line(&text, "  GPU0 ").split_whitespace().collect();
    assert_eq!(figures[1..8], ["30%", "7.65", "MB", "1.00", "GB", "85.9", "GB"], "{text}");
    assert!(line(&text, "  GPU1 ").contains(" ? "), "power is not known:\n{text}");
    assert!(line(&text, "GPU mem [").contains("7.65 MB of 172 GB"), "{text}");
    fs::write(stop, "").unwrap();
    running.wait().assert_clean(0);
}

// Requirement: WATCH-3
#[test]
fn replay_tells_which_command_held_the_memory_at_a_second() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    for name in ["early", "late"] {
        fs::copy(program("touch"), path(name)).unwrap();
    }
    let file = path("t.jsonl");
    let hold = format!("{} hold {} 300; {} hold {} 600", path("early"), 80 * MIB, path("late"), 120 * MIB);
    let (database, table) = (path("t.sqlite"), path("t.csv"));
    let options = ["--tf", &file, "--tf", &database, "--tf", &table, "--st", "0.02"];
    tracked(["sh", "-c", &hold]).options(&options).run().assert_clean(0);
    let lines = JsonLines::read(Path::new(&file));
    let start_ns = lines.of("sample")[0]["from_ns"].as_u64().unwrap();
    // A moment a quarter before the end of a process: it has touched all its memory by then.
    let moment = |name: &str| {
        let all = lines.of("process");
        let process = all.iter().find(|process| process["command"] == name).unwrap();
        let begin_s = (process["start_ns"].as_u64().unwrap() - start_ns) as f64 / 1e9;
        (begin_s + 0.75 * process["wall_s"].as_f64().unwrap()).to_string()
    };
    for (name, other, least_mb) in [("early", "late", 83.0), ("late", "early", 125.0)] {
        let text = shown(&["--replay", &file, "--once", "--at", &moment(name)]);
        let legend = line(&text, "at ").to_owned() + line(&text, "  a ");
        let words: Vec<&str> = line(&text, "  a ").split_whitespace().collect();
        // "at 0.25 s  b early 84.1 MB  a late -  ...": those that hold most come first.
        assert_eq!(words[4], name, "{legend}\n{text}");
        let held_mb: f64 = words[5].parse().unwrap();
        assert!((least_mb..least_mb + 8.0).contains(&held_mb), "{text}");
        assert!(line(&text, &format!("  {name} ")).contains(" 1 "), "it lives:\n{text}");
        assert!(!text.contains(&format!("    {other}  ")), "the other one does not:\n{text}");
    }
    // A database has the commands and processes, too, and a table the RAM.
    let late = shown(&["--replay", &database, "--once", "--at", &moment("late")]);
    assert_eq!(line(&late, "  a ").split_whitespace().nth(4), Some("late"), "{late}");
    assert!(
        line(&late, "  late ").contains(" 1 ") && line(&late, "PROCESSES").contains(" 1 ended"),
        "{late}"
    );
    let ram = shown(&["--replay", &table, "--once"]);
    assert!(line(&ram, "RAM ").contains("peak 12") && ram.starts_with(&table), "{ram}");
    let end = shown(&["--replay", &file, "--once"]);
    assert!(end.contains("the command ended with status 0") && end.contains("3 ended"), "{end}");
    assert!(line(&end, "PROCESSES").starts_with("PROCESSES up to "), "nothing lives at its end:\n{end}");
    for (arguments, said) in [
        (&["--replay", "/nowhere.jsonl"][..], "cannot be read"),
        (&["--replay", "/etc/passwd"], "files in .csv, .jsonl and .sqlite can"),
        (&["--at", "3"], "--at is a moment of a finished run: give --replay, too"),
        (&["--replay", &file, "--at", "-3"], "--at: \"-3\" is not allowed: a time up to a century"),
    ] {
        assert_refused(arguments, said);
    }
}

// Requirement: WATCH-1
#[test]
fn hostile_name_of_a_command_does_not_reach_the_terminal() {
    let directory = tempfile::tempdir().unwrap();
    let name = directory.path().join("\u{1b}]0;owned\u{7}\u{1b}[2J\n\u{202e}");
    fs::copy(program("touch"), &name).unwrap();
    let words = [name.as_os_str(), "hold".as_ref(), "1000".as_ref(), "100000000".as_ref()];
    let running = tracked(words).start();
    let text = once(&running, &["1 live", "owned", "[2J"]);
    assert!(!text.contains(|c: char| c != '\n' && (c.is_control() || c == '\u{202e}')), "{text:?}");
    assert!(name.as_os_str().as_bytes().contains(&0x1b));
    kill(running.pid(), libc::SIGTERM);
    running.wait();
}

// Requirement: WATCH-1
#[test]
fn foreign_files_are_refused_in_a_line_and_garbage_in_a_whole_one_is_bounded() {
    let directory = tempfile::tempdir().unwrap();
    // SAFETY: getuid has no preconditions.
    let uid = unsafe { libc::getuid() };
    let path = |name: &str| directory.path().join(format!("gpu-track.{uid}.{name}.live"));
    let here = directory.path().to_str().unwrap();
    let once = ["--once", "--session-dir", here];
    // Another test's run can have a /dev/shm of its own, and is named as long as it goes on.
    let is_none = |refused: Output| {
        let said = "gpu-track: no run of this user has a file in";
        refused.status.code() == Some(2) && refused.stderr.starts_with(said.as_bytes())
    };
    wait_until("no run", || is_none(watch(&once)));
    fs::write(path("5.a"), "\u{1b}[2Jgarbage").unwrap();
    assert_refused(&once, "is no live file of version 2");
    fs::write(path("5.a"), vec![0xff; LIVE_SIZE]).unwrap();
    assert_refused(&once, "is no live file of version 2");
    fs::remove_file(path("5.a")).unwrap();

    let live = LiveFile::create(&path("6.b"), 1).unwrap();
    for garbage in [0xff_u8, 0x1b, b'[', 0x01] {
        let mut content = fs::read(path("6.b")).unwrap();
        for section in SECTIONS {
            let (begin, end) = (section.offset as usize, (section.offset + section.size) as usize);
            content[begin..end].fill(garbage);
            // An even sequence: it counts as written. There are more entries than have room.
            let slot = if section.entry_size == 64 { 64 } else { section.size as usize };
            (begin..end)
                .step_by(slot)
                .for_each(|at| content[at..at + 8].copy_from_slice(&2_u64.to_ne_bytes()));
        }
        content[64..72].copy_from_slice(&5_000_u64.to_ne_bytes());
        fs::write(path("6.b"), content).unwrap();
        let text = shown(&once);
        assert!(
            text.lines().count() < 600 && !text.contains(|c: char| c != '\n' && c.is_control()),
            "{text:?}"
        );
    }
    drop(live);
    // Two are listed, and one has to be named.
    fs::copy(path("6.b"), path("7.c")).unwrap();
    let listed = watch(&once);
    assert_eq!(listed.status.code(), Some(2));
    let text = String::from_utf8_lossy(&listed.stdout);
    assert!(text.lines().count() == 3 && text.lines().all(|line| !line.contains(char::is_control)), "{text}");
    assert!(String::from_utf8_lossy(&listed.stderr).contains("several runs go on: name one by its pid"));
    assert_refused(&["4194999"], "no run of this user has the pid 4194999");
    assert_refused(&["/dev/null"], "\"/dev/null\" is no live file of version 2");
}

// Requirement: TIME-66
#[test]
fn run_with_a_private_dev_shm_is_said_to_be_there() {
    if !is_root() {
        skip!("needs root (mount)");
    }
    let mut running =
        tracked(["sh", "-c", "read line"]).with_mounts("mount -t tmpfs none /dev/shm").piped_stdin().start();
    running.wait_for_collector();
    let pid = running.pid().to_string();
    let said = format!("gpu-track-run of pid {pid} has a /dev/shm of its own, which can't be seen from here");
    assert_refused(&["--once", &pid], &said);
    let listed = watch(&["--list"]);
    assert!(
        listed.status.success() && String::from_utf8_lossy(&listed.stderr).contains("a /dev/shm of its own")
    );
    drop(running.stdin());
    running.wait();
}

/// A tmux server of its own, with a shell in a terminal of 80x24.
struct Tmux {
    directory: tempfile::TempDir,
}

impl Tmux {
    fn start() -> Self {
        let tmux = Self { directory: tempfile::tempdir().unwrap() };
        let shell = ["-f", "/dev/null", "new-session", "-d", "-x", "80", "-y", "24", "env PS1='$ ' sh"];
        tmux.command(&shell);
        tmux
    }

    fn command(&self, words: &[&str]) -> String {
        let mut command = Command::new("tmux");
        command.arg("-S").arg(self.path("socket")).args(words).env_remove("TMUX").env("LANG", "C.UTF-8");
        let output = command.output().unwrap();
        assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn keys(&self, keys: &[&str]) {
        self.command(&[&["send-keys"], keys].concat());
    }

    /// Waits until the terminal shows this.
    fn expect(&self, text: &str) {
        let mut shown = String::new();
        wait_until(text, || {
            shown = self.command(&["capture-pane", "-p"]);
            shown.contains(text)
        });
    }

    /// Whether the alternate screen is on, and the cursor is shown.
    fn modes(&self) -> String {
        self.command(&["display-message", "-p", "#{alternate_on} #{cursor_flag}"]).trim().to_owned()
    }

    /// Starts the view of a run in the shell. Gives its pid once it has drawn.
    fn watch(&self, pid: u32) -> u32 {
        let (own, settings) = (self.path("pid"), self.path("settings"));
        let _ = fs::remove_file(&own);
        let line = format!(
            "clear; stty -g >{settings}; sh -c 'echo $$ >{own}; exec {} watch {pid}'; echo \"status:$?\"; stty -g >>{settings}; echo done",
            env!("CARGO_BIN_EXE_gpu-track"),
            settings = settings.display(),
            own = own.display(),
        );
        self.keys(&[&line, "Enter"]);
        self.expect("q end");
        self.expect("PROCESSES");
        assert_eq!(self.modes(), "1 0", "on the alternate screen, without a cursor");
        fs::read_to_string(own).unwrap().trim().parse().unwrap()
    }

    /// Waits for the end of the view. The terminal is as before.
    fn assert_ended(&self, status: i32) {
        self.expect("\ndone");
        self.expect(&format!("status:{status}\n"));
        assert_eq!(self.modes(), "0 1", "the screen of before, with a cursor");
        let settings = fs::read_to_string(self.path("settings")).unwrap();
        let lines: Vec<&str> = settings.lines().collect();
        assert!(lines.len() == 2 && lines[0] == lines[1], "{settings}");
    }
}

impl Drop for Tmux {
    fn drop(&mut self) {
        self.command(&["kill-server"]);
    }
}

// Requirement: WATCH-4
#[test]
fn stopped_view_gives_the_terminal_back_and_goes_on_with_its_keys() {
    if installed("tmux").is_none() {
        skip!("needs tmux");
    }
    let mut running = tracked(["sh", "-c", "read line"]).piped_stdin().start();
    running.live();
    let tmux = Tmux::start();
    let pid = tmux.watch(running.pid());
    kill(pid, libc::SIGTSTP);
    // 128 + SIGTSTP: the shell goes on with what stands after the view.
    tmux.assert_ended(148);
    tmux.keys(&["clear; fg; stty -g >>", tmux.path("settings").to_str().unwrap(), "; echo again", "Enter"]);
    tmux.expect("q end");
    assert_eq!(tmux.modes(), "1 0", "on the alternate screen again");
    tmux.keys(&["s"]);
    tmux.expect("by CPU");
    tmux.keys(&["q"]);
    tmux.expect("\nagain");
    assert_eq!(tmux.modes(), "0 1");
    let settings = fs::read_to_string(tmux.path("settings")).unwrap();
    assert!(
        settings.lines().count() == 3 && settings.lines().all(|line| settings.starts_with(line)),
        "{settings}"
    );
    drop(running.stdin());
    running.wait();
}

/// A terminal of 80x24 without a program that shows it.
struct Terminal {
    /// What such a program would read and write. It does not block.
    master: OwnedFd,
    slave: OwnedFd,
}

impl Terminal {
    fn new() -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        rustix::io::ioctl_fionbio(&master, true).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap();
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let slave = rustix::fs::open(name.as_c_str(), flags, Mode::empty()).unwrap();
        tcsetwinsize(&slave, Winsize { ws_col: 80, ws_row: 24, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
        Self { master, slave }
    }

    fn has_echo(&self) -> bool {
        tcgetattr(&self.slave).unwrap().local_modes.contains(LocalModes::ECHO)
    }

    /// Starts the view of a run on it.
    fn watch(&self, pid: u32) -> Child {
        // As with a shell, it is not this process's descriptor: that one does not block.
        let stdio = || {
            let path = format!("/proc/self/fd/{}", self.slave.as_raw_fd());
            let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
            Stdio::from(rustix::fs::open(path, flags, Mode::empty()).unwrap())
        };
        let mut command = Command::new(env!("CARGO_BIN_EXE_gpu-track"));
        command
            .args(["watch", &pid.to_string()])
            .stdin(stdio())
            .stdout(stdio())
            .stderr(stdio())
            .spawn()
            .unwrap()
    }
}

/// Sends SIGTERM, which has to end the view though `meanwhile` goes on.
fn assert_sigterm_ends(view: &mut Child, mut meanwhile: impl FnMut()) {
    kill(view.id(), libc::SIGTERM);
    let mut status = None;
    wait_until("the end of the view", || {
        meanwhile();
        status = view.try_wait().unwrap();
        status.is_some()
    });
    assert_eq!(status.unwrap().signal(), Some(libc::SIGTERM));
}

// Requirement: WATCH-4, WATCH-7
#[test]
fn signal_ends_the_view_while_its_terminal_takes_nothing_and_while_keys_come_without_an_end() {
    let mut running = tracked(["sh", "-c", "read line"]).piped_stdin().start();
    running.live();
    let terminal = Terminal::new();
    while rustix::io::write(&terminal.slave, &[b'x'; 256]).is_ok() {}
    let mut view = terminal.watch(running.pid());
    wait_until("a raw terminal", || !terminal.has_echo());
    assert_sigterm_ends(&mut view, || {});
    assert!(terminal.has_echo(), "its modes are given back");

    let terminal = Terminal::new();
    let mut view = terminal.watch(running.pid());
    let mut shown = Vec::new();
    let mut read = || {
        let mut part = [0; 4096];
        while let Ok(length) = rustix::io::read(&terminal.master, &mut part) {
            shown.extend_from_slice(&part[..length]);
        }
        String::from_utf8_lossy(&shown).contains("PROCESSES")
    };
    wait_until("the view", &mut read);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                // Without room for more, the view has keys to obey.
                let _ = rustix::io::write(&terminal.master, &[b's'; 1024]);
            }
        });
        assert_sigterm_ends(&mut view, || {
            read();
        });
        is_over.store(true, Ordering::Relaxed);
    });
    drop(running.stdin());
    running.wait();
}

// Requirement: WATCH-4, WATCH-5
#[test]
fn terminal_is_whole_after_q_and_after_signals_and_the_view_follows_its_size() {
    if installed("tmux").is_none() {
        skip!("needs tmux");
    }
    let mut running = tracked(["sh", "-c", "read line"]).piped_stdin().start();
    running.live();
    let tmux = Tmux::start();
    for (signal, status) in [(libc::SIGTERM, 143), (libc::SIGHUP, 129)] {
        let pid = tmux.watch(running.pid());
        kill(pid, signal);
        tmux.assert_ended(status);
    }
    tmux.watch(running.pid());
    tmux.keys(&["?"]);
    tmux.expect("Keys of gpu-track watch");
    tmux.keys(&["s"]);
    tmux.expect("by RSS");
    tmux.keys(&["s"]);
    tmux.expect("by CPU");
    tmux.keys(&["/", "no such"]);
    tmux.expect("command contains: no such_");
    tmux.keys(&["Enter"]);
    tmux.expect("with \"no such\"");
    tmux.command(&["resize-window", "-x", "40", "-y", "12"]);
    wait_until("a smaller view", || {
        let shown = tmux.command(&["capture-pane", "-p"]);
        shown.lines().nth(11).is_some_and(|line| line.starts_with("q end"))
    });
    tmux.keys(&["q"]);
    tmux.command(&["resize-window", "-x", "80", "-y", "24"]);
    tmux.assert_ended(0);
    // The run ends while it is watched: the last figures stay.
    tmux.watch(running.pid());
    drop(running.stdin());
    running.wait();
    tmux.expect("ended after");
    tmux.keys(&["C-c"]);
    tmux.assert_ended(0);
}

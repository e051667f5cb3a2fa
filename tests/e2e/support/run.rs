//! One run of gpu-track-run: it is started, waited for with a watchdog, and checked for leftovers.

use std::ffi::OsString;
use std::fs::File;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use gpu_track_collector::segment::live::{self, LiveFile};
use tempfile::TempDir;

use super::report::Report;
use super::signals::with_default_signals;
use super::{WATCHDOG, kill, leftovers, pidfd, wait_until};

/// The binary under test.
pub const BINARY: &str = env!("CARGO_BIN_EXE_gpu-track-run");

/// Prepares a run of COMMAND under gpu-track-run, with a JSON report in bytes and seconds.
pub fn tracked<S: Into<OsString>>(command: impl IntoIterator<Item = S>) -> Tracked {
    let directory = tempfile::tempdir().unwrap();
    let report = directory.path().join("report.json");
    let mut options: Vec<OsString> =
        "-f json --ru bytes --gru bytes --tu seconds -o".split(' ').map(OsString::from).collect();
    options.push(report.into());
    Tracked {
        program: BINARY.into(),
        prefix: Vec::new(),
        options,
        command: command.into_iter().map(Into::into).collect(),
        setup: Box::new(|command| command),
        directory,
        watchdog: WATCHDOG,
        leaves: Leaves::Nothing,
    }
}

type Setup = Box<dyn FnOnce(&mut Command) -> &mut Command>;

/// Which processes outlive a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Leaves {
    Nothing,
    /// Agents of a batch job and what has started them: they end by themselves when the launcher has closed their input.
    Agents,
    /// Processes of the tree; the test ends them.
    Processes,
}

/// A run that has not started yet (see [`tracked`]).
pub struct Tracked {
    program: PathBuf,
    prefix: Vec<OsString>,
    options: Vec<OsString>,
    command: Vec<OsString>,
    setup: Setup,
    directory: TempDir,
    watchdog: Duration,
    leaves: Leaves,
}

impl Tracked {
    /// Adds options of gpu-track-run.
    pub fn options(mut self, options: &[&str]) -> Self {
        self.options.extend(options.iter().map(OsString::from));
        self
    }

    /// Leaves out an option and its value.
    pub fn without_option(mut self, name: &str) -> Self {
        let place = self.options.iter().position(|option| option == name).unwrap();
        self.options.drain(place..place + 2);
        self
    }

    /// Replaces the default options by these.
    pub fn only_options(mut self, options: &[&str]) -> Self {
        self.options.clear();
        self.options(options)
    }

    /// Starts gpu-track-run by this path, a link to it.
    pub fn by_the_name(mut self, program: &Path) -> Self {
        self.program = program.to_owned();
        self
    }

    /// Starts gpu-track-run through another command, which must exec it.
    pub fn through(mut self, prefix: &[&str]) -> Self {
        self.prefix = prefix.iter().map(OsString::from).collect();
        self
    }

    /// Starts gpu-track-run in a mount namespace of its own, after the shell commands `mounts`.
    pub fn with_mounts(self, mounts: &str) -> Self {
        self.through(&["unshare", "-m", "sh", "-c", &format!("{mounts}; exec \"$@\""), "sh"])
    }

    /// Makes the launcher's stdin a pipe (see [`Running::stdin`]).
    pub fn piped_stdin(self) -> Self {
        self.with(|command| command.stdin(Stdio::piped()))
    }

    /// Starts gpu-track-run as an ordinary user. The error is the reason why that is impossible here.
    pub fn by_an_ordinary_user(self) -> Result<Self, &'static str> {
        self.by_user(65534)
    }

    /// Starts gpu-track-run as the user of this number. The error is the reason why that is impossible here.
    pub fn by_user(self, uid: u32) -> Result<Self, &'static str> {
        let user = become_user(uid);
        let user: Vec<&str> = user.iter().map(String::as_str).collect();
        if !super::is_root() {
            return Err("needs root (setpriv)");
        }
        let may_run = |path: &OsString| {
            let mut test = Command::new(user[0]);
            test.args(&user[1..]).args(["test", "-r"]).arg(path).status().unwrap().success()
        };
        let is_file = |word: &&OsString| Path::new(word).is_absolute();
        if ![&BINARY.into()].into_iter().chain(self.command.iter().filter(is_file)).all(may_run) {
            return Err("the directory of the built programs is closed to other users");
        }
        let directory = self.directory.path().to_owned();
        std::fs::set_permissions(&directory, PermissionsExt::from_mode(0o1777)).unwrap();
        let state = directory.join("state");
        Ok(self
            .through(&user)
            .with(|command| command.env("XDG_CACHE_HOME", directory).env("XDG_STATE_HOME", state)))
    }

    /// Changes the launcher's environment, stdin or directory.
    pub fn with(mut self, setup: impl FnOnce(&mut Command) -> &mut Command + 'static) -> Self {
        let before = self.setup;
        self.setup = Box::new(move |command| setup(before(command)));
        self
    }

    /// Sets another time limit.
    pub fn watchdog(mut self, limit: Duration) -> Self {
        self.watchdog = limit;
        self
    }

    /// Allows processes of the tree to outlive the run; the test ends them.
    pub fn leaves_processes(mut self) -> Self {
        self.leaves = Leaves::Processes;
        self
    }

    /// Allows agents of a batch job to end a moment after the run.
    pub fn starts_agents(mut self) -> Self {
        self.leaves = Leaves::Agents;
        self
    }

    /// Path of a file in the run's directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Starts the run. Its stdout and stderr are files, so that it never blocks on a full pipe.
    pub fn start(self) -> Running {
        let mut words = self.prefix;
        words.push(self.program.into());
        words.extend(self.options);
        if !self.command.is_empty() {
            words.push("--".into());
            words.extend(self.command);
        }
        let mark = leftovers::new_mark();
        let mut command = Command::new(&words[0]);
        command
            .args(&words[1..])
            .env(leftovers::VARIABLE, &mark)
            .env("XDG_CACHE_HOME", cache_home())
            // Reports that can't be written to their places.
            .env("XDG_STATE_HOME", cache_home().join("state"))
            .env("GPU_TRACK_KEEP", "0");
        command.stdin(Stdio::null());
        command.stdout(File::create(self.directory.path().join("stdout")).unwrap());
        command.stderr(File::create(self.directory.path().join("stderr")).unwrap());
        with_default_signals(command.process_group(0));
        (self.setup)(&mut command);
        Running {
            child: command.spawn().unwrap_or_else(|error| panic!("{words:?}: {error}")),
            directory: Some(self.directory),
            mark,
            deadline: Instant::now() + self.watchdog,
            leaves: self.leaves,
        }
    }

    /// Starts the run and waits for its end.
    pub fn run(self) -> Run {
        self.start().wait()
    }
}

/// The words before a command that run it as this user.
pub fn become_user(uid: u32) -> [String; 6] {
    let uid = uid.to_string();
    ["setpriv", "--reuid", &uid, "--regid", &uid, "--clear-groups"].map(str::to_owned)
}

/// Where gpu-track-run keeps its shim during tests, instead of the home directory.
pub fn cache_home() -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("cache");
    std::fs::create_dir_all(&directory).unwrap();
    directory
}

/// A run that has been started.
pub struct Running {
    child: Child,
    directory: Option<TempDir>,
    mark: String,
    deadline: Instant,
    leaves: Leaves,
}

impl Running {
    /// The launcher's pid.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The launcher's standard input, if [`Tracked::piped_stdin`] made it a pipe.
    pub fn stdin(&mut self) -> std::process::ChildStdin {
        self.child.stdin.take().unwrap()
    }

    /// Path of a file in the run's directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.as_ref().unwrap().path().join(name)
    }

    /// The value that marks the run's processes.
    pub fn mark(&self) -> &str {
        &self.mark
    }

    /// Path of the segment's file.
    pub fn segment(&self) -> PathBuf {
        let names = leftovers::segments(self.pid());
        let name = names.into_iter().find(|name| !name.ends_with(".state") && !name.ends_with(".live"));
        Path::new("/dev/shm").join(name.expect("the run has a segment"))
    }

    /// The live file, once the collector has made it.
    pub fn live(&self) -> LiveFile {
        self.wait_for_collector();
        let path = live::path_of(&self.segment());
        let mut found = None;
        wait_until("the live file", || {
            found = LiveFile::open(&path).ok();
            found.is_some()
        });
        found.unwrap()
    }

    /// The pid of the collector, if there is one now.
    pub fn collector(&self) -> Option<u32> {
        leftovers::collector(self.mark(), self.pid())
    }

    /// Waits until there is a collector; its pid.
    pub fn wait_for_collector(&self) -> u32 {
        let mut found = None;
        wait_until("a collector", || {
            found = self.collector();
            found.is_some()
        });
        found.unwrap()
    }

    /// Kills the collector and waits until the launcher has started another one.
    pub fn replace_collector(&self) {
        let first = self.collector().expect("a collector runs");
        kill(first, libc::SIGKILL);
        wait_until("another collector", || self.collector().is_some_and(|pid| pid != first));
    }

    /// Waits until the command has written `text` to its stdout.
    pub fn wait_for_output(&self, text: &str) {
        let path = self.path("stdout");
        wait_until(&format!("{text:?} on stdout"), || {
            String::from_utf8_lossy(&std::fs::read(&path).unwrap()).contains(text)
        });
    }

    /// Waits for the end and checks that the run left no process and no segment behind.
    pub fn wait(mut self) -> Run {
        let launcher = self.child.id();
        let status = self.wait_with_watchdog();
        let directory = self.directory.take().unwrap();
        let read = |name: &str| {
            String::from_utf8_lossy(&std::fs::read(directory.path().join(name)).unwrap_or_default())
                .into_owned()
        };
        let (stdout, stderr, json) = (read("stdout"), read("stderr"), read("report.json"));
        let run =
            Run { status, launcher, stdout, stderr, report: serde_json::from_str(&json).ok().map(Report) };
        let end = || format!("{}, {}", run.status, run.stderr);
        let mut left = leftovers::segments(launcher);
        // A process that outlives a run with --containers can use its directory.
        left.retain(|name| self.leaves != Leaves::Processes || !name.ends_with(".d"));
        assert_eq!(left, [""; 0], "left in /dev/shm: {}", end());
        if let Some(report) = &run.report {
            report.assert_consistent();
        }
        match self.leaves {
            Leaves::Nothing => assert_eq!(leftovers::processes(self.mark()), [], "left running: {}", end()),
            Leaves::Agents => wait_until("end of agents", || leftovers::processes(self.mark()).is_empty()),
            Leaves::Processes => {}
        }
        run
    }

    fn wait_with_watchdog(&mut self) -> ExitStatus {
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            let left = self.deadline.saturating_duration_since(Instant::now());
            if left.is_zero() || !pidfd::open(self.child.id()).is_some_and(|fd| pidfd::ends_within(&fd, left))
            {
                let live = leftovers::processes(self.mark());
                panic!("the run did not end in time; alive: {live:?}");
            }
        }
    }
}

impl Drop for Running {
    /// After a failed test no process and no segment of the run remains.
    fn drop(&mut self) {
        if self.directory.is_some() {
            let launcher = self.child.id();
            leftovers::kill_processes(self.mark());
            drop(self.child.kill());
            drop(self.child.wait());
            for name in leftovers::segments(launcher) {
                drop(std::fs::remove_file(Path::new("/dev/shm").join(name)));
            }
        }
    }
}

/// A run that has ended.
pub struct Run {
    /// How the launcher ended.
    pub status: ExitStatus,
    /// The launcher's pid.
    pub launcher: u32,
    /// What the launcher and the command wrote to stdout.
    pub stdout: String,
    /// What the launcher and the command wrote to stderr.
    pub stderr: String,
    report: Option<Report>,
}

impl Run {
    /// The report.
    pub fn report(&self) -> &Report {
        let report = self.report.as_ref().expect("the run wrote no report that parses");
        report.assert_gpus_agree();
        report
    }

    /// Asserts that the command exited with this code and that stderr is empty.
    #[track_caller]
    pub fn assert_clean(&self, code: i32) -> &Report {
        assert_eq!(self.status.code(), Some(code), "exit status ({}); stderr: {}", self.status, self.stderr);
        assert_eq!(self.stderr, "", "stderr");
        let report = self.report();
        assert_eq!(report.at("exit.code").as_i64(), Some(i64::from(code)), "exit.code");
        assert!(report.at("exit.signal").is_null(), "exit.signal");
        report
    }
}

impl Drop for Run {
    /// A failed test prints the status, the output and the report.
    fn drop(&mut self) {
        if std::thread::panicking() {
            let report = self.report.as_ref().map_or_else(
                || "none".to_owned(),
                |report| serde_json::to_string_pretty(&report.0).unwrap_or_default(),
            );
            println!(
                "status: {}\nstdout: {}\nstderr: {}\nreport: {report}",
                self.status,
                self.stdout.chars().take(2000).collect::<String>(),
                self.stderr.chars().take(2000).collect::<String>()
            );
        }
    }
}

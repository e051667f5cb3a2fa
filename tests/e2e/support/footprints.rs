//! A job that holds its memory until it is told to end, tracked once. Compares what the report says of its RAM with the
//! page frames that tests/truth reads meanwhile.

use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use gpu_track_truth::footprint::{Footprint, Footprints, Recorder};
use gpu_track_truth::relatives::descendants;

use super::run::Running;
use super::{Run, tracked, wait_until};

/// What a job's first process writes, on a line of its own, when all of its memory is there.
const READY: &str = "ready";
/// How many samples see the job's memory. While memory grows, they come more often than asked for.
const SAMPLES: u64 = 25;

/// A job. It writes [`READY`] and holds its memory until its standard input ends.
pub struct Job {
    words: Vec<OsString>,
    /// A process that maps the same files and is not tracked.
    stranger: Vec<OsString>,
    /// Dropped after the job: its files.
    _files: Vec<Box<dyn std::any::Any>>,
    /// How often it is run until it is right.
    pub tries: u32,
}

impl Job {
    /// A job with these words. The stranger is another run of it.
    pub fn new<S: Into<OsString>>(words: impl IntoIterator<Item = S>) -> Self {
        let words: Vec<OsString> = words.into_iter().map(Into::into).collect();
        Self { stranger: words.clone(), words, _files: Vec::new(), tries: 1 }
    }

    /// Puts a program with these words in the place of the stranger.
    pub fn beside<S: Into<OsString>>(mut self, words: impl IntoIterator<Item = S>) -> Self {
        self.stranger = words.into_iter().map(Into::into).collect();
        self
    }

    /// Lets it be run once more. For a job whose own launcher can fail on a busy machine: what we do wrong is wrong twice.
    pub fn tried_twice(mut self) -> Self {
        self.tries = 2;
        self
    }

    /// Keeps something until the job has ended.
    pub fn with(mut self, files: impl std::any::Any) -> Self {
        self._files.push(Box::new(files));
        self
    }
}

/// The user that gpu-track-run runs as. Root reads the page frames in any case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum User {
    /// Root.
    Root,
    /// A user without capabilities.
    Ordinary,
}

/// A figure of the report and its truth, bytes.
#[derive(Debug)]
pub struct Figure {
    /// The set's name in the report, such as `descendants`.
    pub name: &'static str,
    /// By the page frames.
    pub pages: f64,
    /// By the report.
    pub reported: f64,
    percent: f64,
    at_least: f64,
}

impl Figure {
    /// Whether both agree.
    pub fn is_right(&self) -> bool {
        (self.reported - self.pages).abs() <= self.at_least.max(self.pages * self.percent / 100.0)
    }
}

/// Runs a job beside its stranger. The error is the reason why its page frames cannot be read here.
pub fn measure(job: &Job, user: User) -> Result<(Run, Vec<Figure>), String> {
    if !super::is_root() {
        return Err("needs root (page frames, a cgroup)".into());
    }
    let recorder = Recorder::open()?;
    let _stranger = Stranger::start(&job.stranger);
    let mut run = tracked(job.words.clone()).watchdog(Duration::from_secs(240));
    if user == User::Ordinary {
        run = run.by_an_ordinary_user()?.with(|command| command.env("HOME", "/tmp"));
    }
    let mut running = run.piped_stdin().start();
    let told = running.stdin();
    running.wait_for_output(READY);
    let truth = recorder.read(|| tree(&running)).unwrap();
    let seen = samples(&running);
    wait_until("samples of the job", || samples(&running) >= seen + SAMPLES);
    drop(told);
    let run = running.wait();
    let figures = figures(&run, truth);
    Ok((run, figures))
}

/// The command's first process and its descendants.
fn tree(running: &Running) -> Result<Vec<u32>, String> {
    let collector = running.collector();
    let mut all = descendants(running.pid())?;
    all.retain(|pid| Some(*pid) != collector);
    Ok(all)
}

/// The number of samples that the collector has taken.
fn samples(running: &Running) -> u64 {
    running.live().count()
}

fn figures(run: &Run, truth: Footprints) -> Vec<Figure> {
    // An unknown figure is not right.
    let reported = |path: &str| run.report().at(path).as_f64().unwrap_or(f64::NAN);
    let total = |name, set: &str, pages: Footprint| Figure {
        name,
        pages: pages.total_bytes as f64,
        reported: reported(&format!("max_ram.{set}.total_rss")),
        percent: 2.0,
        at_least: 3e6,
    };
    let private = Figure {
        name: "descendants' private",
        pages: truth.descendants.private_bytes as f64,
        reported: reported("max_ram.descendants.private_rss"),
        percent: 5.0,
        at_least: 4e6,
    };
    vec![
        total("main", "main", truth.main),
        total("descendants", "descendants", truth.descendants),
        total("combined", "combined", truth.combined),
        private,
    ]
}

/// An untracked run of a job, until this is dropped.
struct Stranger(Child);

impl Stranger {
    fn start(words: &[OsString]) -> Self {
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut stranger = Self(command.spawn().unwrap_or_else(|error| panic!("{words:?}: {error}")));
        let lines = BufReader::new(stranger.0.stdout.take().unwrap()).lines();
        let is_ready = lines.map_while(Result::ok).any(|line| line == READY);
        assert!(is_ready, "{words:?}: {}", stranger.0.wait().unwrap());
        stranger
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        drop(self.0.wait());
    }
}

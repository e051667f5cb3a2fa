//! `--record DIR`: a bundle of evidence of a run that a limit, a lack of memory, a signal or the like ended. `gpu-track record` makes a
//! bundle of a run that has not ended.
//!
//! A bundle is a directory with the report, and with the last minute of the run sample by sample: the tail. It also has what the kernel
//! says of memory, and the variables that change how programs use memory and cores. The bundle is there as a whole or not at all, and
//! only its owner may read it. While the run goes on, the sink keeps the tail in memory, and writes nothing.

mod directory;
mod evidence;
mod live_tail;
mod tail;

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde_json::Value;

use self::directory::Bundle;
use self::evidence::Content;
use self::tail::Tail;
use super::sink::{Sink, SinkContext};
use crate::model::config::{Bundles, Config, ReportTarget};
use crate::model::report::{Cause, Report, Stage};
use crate::model::style::Style;
use crate::model::timestamp::rfc3339;
use crate::model::tree_sample::{Event, ItemKind, TreeSample, Wants};
use crate::report::format::{JSON_NAME, render};
use crate::run::tree::ProcessSummary;
use crate::sys::segment::live::LiveFile;

/// The file that says why a bundle was made, what it has, and what it lacks.
pub const MANIFEST: &str = "manifest.json";
/// The report in a bundle.
pub const REPORT: &str = "report.json";
/// The run before its end, as a tracking file.
pub const TAIL: &str = "tail.jsonl";
/// The last samples of a run that has not ended, as a tracking file with fewer figures.
pub const LIVE_TAIL: &str = "tail.csv";
/// Version of the format of bundles. It goes up when a file or key changes its name or meaning, or is removed.
const FORM_VERSION: u32 = 1;

/// The content of [`MANIFEST`].
#[derive(Serialize)]
struct Manifest<'a> {
    form_version: u32,
    gpu_track_version: &'static str,
    made_at: String,
    /// Why it was made: a kind of `exit.cause`, `recovered`, or `asked`.
    trigger: String,
    context: Option<&'a str>,
    metadata: Option<&'a Value>,
    command: &'a [String],
    started_at: String,
    files: Vec<FileEntry>,
    missing: Vec<MissingFile>,
}

/// A file of the bundle.
#[derive(Debug, Serialize)]
struct FileEntry {
    name: &'static str,
    bytes: u64,
}

/// A file that a bundle lacks.
#[derive(Debug, Clone, Serialize)]
struct MissingFile {
    name: &'static str,
    reason: String,
}

/// What the program that asks for a bundle (`gpu-track record`) says in its manifest.
#[derive(Debug, Clone, Default)]
pub struct Asked {
    /// What that program was doing, in words.
    pub context: Option<String>,
    /// Anything else.
    pub metadata: Option<Value>,
}

/// Why a bundle is made, and the contents that differ by who makes it.
struct Occasion<'a> {
    /// As `Manifest::trigger`.
    trigger: String,
    asked: &'a Asked,
    /// [`TAIL`] and [`LIVE_TAIL`], as far as there can be one.
    tails: Vec<Content>,
    environment: Content,
}

/// The sink of `--record`.
struct Recorder {
    config: Config,
    bundles: Bundles,
    tail: Tail,
}

/// The sink, if bundles are asked for.
pub(super) fn make(context: &SinkContext) -> Vec<Box<dyn Sink>> {
    let Some(bundles) = context.config.tracking.bundles.clone() else { return Vec::new() };
    let tail = Tail::new(context, bundles.tail);
    vec![Box::new(Recorder { config: context.config.clone(), bundles, tail })]
}

/// Why a bundle is made of this run: the kind of the cause that ended it. Without a cause, it is `out_of_memory` if the kernel killed
/// one of its processes for lack of memory. `None`: no bundle is made. The run ended by itself, or by a signal that asks it to end.
fn trigger(report: &Report) -> Option<String> {
    let Some(cause) = report.ending.cause.as_ref() else {
        // The report's crashes have SIGKILL only where the kernel sent it for lack of memory.
        let mut crashes = report.crashes.iter().flatten();
        return crashes.any(|crash| crash.signal == libc::SIGKILL).then(|| "out_of_memory".to_owned());
    };
    if let Cause::Signal(end) = cause
        && matches!(end.signal, libc::SIGTERM | libc::SIGINT | libc::SIGHUP | libc::SIGQUIT)
    {
        return None;
    }
    let cause = serde_json::to_value(cause).ok()?;
    Some(cause.get("kind")?.as_str()?.to_owned())
}

/// The name of the file with the run over time in this bundle.
pub fn tail_of(bundle: &Path) -> &'static str {
    if bundle.join(TAIL).is_file() { TAIL } else { LIVE_TAIL }
}

/// Makes the directory of bundles if it is missing. Returns its path without symbolic links: a link that appears later is not followed.
///
/// # Errors
/// If it can't be made.
pub fn make_directory(directory: &Path) -> io::Result<PathBuf> {
    directory::make(directory)
}

/// Makes the directory of bundles as [`make_directory`] does, and tries whether a bundle can be made in it.
///
/// # Errors
/// If none can be made.
pub fn prepare(directory: &Path) -> io::Result<PathBuf> {
    let directory = make_directory(directory)?;
    // Dropped at once, which removes what was made.
    Bundle::begin(&directory)?;
    Ok(directory)
}

/// Makes the bundle of a recovered run, if the run asked for one.
///
/// # Errors
/// If it can't be written. Nothing of it is left then.
pub(crate) fn write_recovered(config: &Config, report: &Report) -> io::Result<()> {
    let Some(bundles) = &config.tracking.bundles else { return Ok(()) };
    let occasion = Occasion {
        trigger: "recovered".to_owned(),
        asked: &Asked::default(),
        tails: vec![lacking(TAIL, "the collector that had it was killed")],
        environment: evidence::environment(std::env::vars_os()),
    };
    write(config, bundles, report, occasion).map(drop)
}

/// Makes a bundle of a run that has not ended, and returns its path. `live`: the file with the run's latest samples, if it can be read.
/// `environment`: that of the launcher, or why it can't be read.
///
/// # Errors
/// If it can't be written. Nothing of it is left then.
pub(crate) fn write_asked(
    config: &Config,
    bundles: &Bundles,
    report: &Report,
    asked: &Asked,
    live: Option<&LiveFile>,
    environment: Result<&[(OsString, OsString)], &str>,
) -> io::Result<PathBuf> {
    let in_collector =
        format!("the run goes on, and its collector has it; {LIVE_TAIL} has RAM, CPU and processes");
    let live_tail = match live.and_then(|live| live_tail::text(live, config.start)) {
        Some(text) => (LIVE_TAIL, Ok(text)),
        None => lacking(LIVE_TAIL, "there is no live file"),
    };
    let occasion = Occasion {
        trigger: "asked".to_owned(),
        asked,
        tails: vec![lacking(TAIL, &in_collector), live_tail],
        environment: match environment {
            Ok(variables) => evidence::environment(variables.iter().cloned()),
            Err(reason) => lacking(evidence::ENVIRONMENT, reason),
        },
    };
    write(config, bundles, report, occasion)
}

/// The content of a file that a bundle lacks for this reason.
fn lacking(name: &'static str, reason: &str) -> Content {
    (name, Err(MissingFile { name, reason: reason.to_owned() }))
}

/// Writes a bundle, then removes the oldest bundles beyond the allowed number and size. Returns the new one's path.
///
/// # Errors
/// If it can't be written. Nothing of it is left then.
fn write(config: &Config, bundles: &Bundles, report: &Report, occasion: Occasion) -> io::Result<PathBuf> {
    let Occasion { trigger, asked, tails, environment } = occasion;
    let mut bundle = Bundle::begin(&bundles.directory)?;
    let target = ReportTarget { format: JSON_NAME.to_owned(), ..ReportTarget::default() };
    let mut contents = vec![(REPORT, Ok(render(report, &target, Style::default())))];
    contents.extend(tails.into_iter().chain(evidence::of_kernel(config)).chain([environment]));
    let (mut files, mut missing) = (Vec::new(), Vec::new());
    for (name, content) in contents {
        match content {
            Ok(text) => {
                bundle.write_file(name, text.as_bytes())?;
                files.push(FileEntry { name, bytes: text.len() as u64 });
            }
            Err(lacking) => missing.push(lacking),
        }
    }
    let manifest = Manifest {
        form_version: FORM_VERSION,
        gpu_track_version: env!("CARGO_PKG_VERSION"),
        made_at: rfc3339(std::time::SystemTime::now()),
        trigger,
        context: asked.context.as_deref(),
        metadata: asked.metadata.as_ref(),
        command: &report.command,
        started_at: rfc3339(report.started_at),
        files,
        missing,
    };
    bundle.write_file(MANIFEST, &serde_json::to_vec_pretty(&manifest)?)?;
    bundle.finish(bundles.most, bundles.most_bytes)
}

impl Sink for Recorder {
    fn name(&self) -> String {
        format!("The bundle in {}", self.bundles.directory.display())
    }

    fn wants(&self) -> Wants {
        Wants::from([ItemKind::Sample, ItemKind::Ended, ItemKind::Event])
    }

    fn sample(&mut self, sample: &TreeSample) -> io::Result<()> {
        self.tail.add_sample(sample);
        Ok(())
    }

    fn process_ended(&mut self, process: &ProcessSummary) -> io::Result<()> {
        self.tail.add_process(process.ended());
        Ok(())
    }

    fn event(&mut self, event: &Event) -> io::Result<()> {
        self.tail.add_event(event);
        Ok(())
    }

    /// Writes the bundle, if something ended the run.
    fn report(&mut self, report: &Report, _stage: Stage) -> io::Result<()> {
        let Some(trigger) = trigger(report) else { return Ok(()) };
        let occasion = Occasion {
            trigger,
            asked: &Asked::default(),
            tails: vec![(TAIL, Ok(self.tail.text(report)))],
            environment: evidence::environment(std::env::vars_os()),
        };
        write(&self.config, &self.bundles, report, occasion).map(drop)
    }
}

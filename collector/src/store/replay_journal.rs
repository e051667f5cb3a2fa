//! A run written down, for developers: every observation with its time, so that a run can be replayed without /proc.
//!
//! `--journal FILE` names the file, which must not exist. It begins with the version, the configuration and the
//! machine. Then come the observations, and at the end the inputs of the report. Each part is a length of 4 bytes and
//! that many bytes of postcard. Only the version that wrote it reads it.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::ops::Deref;
use std::path::Path;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::model::config::Config;
use crate::model::host_info::HostInfo;
use crate::model::observation::Observation;
use crate::model::order::Order;
use crate::model::run_end::RunEnd;
use crate::run::RunState;
use crate::run::outbox::Outbox;
use crate::sys::clock;

/// The format of a journal is that of this version.
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// No part is longer: a reader must not take a damaged length for one.
const LONGEST_PART: usize = 1 << 30;

/// A part of a journal after its head.
#[derive(Debug, Serialize, Deserialize)]
enum Part {
    /// An observation, and when it was applied, CLOCK_MONOTONIC nanoseconds.
    Seen(u64, Observation),
    /// The end of the run.
    End(RunEnd),
}

/// Why a journal can't be replayed.
#[derive(Debug, Error)]
pub enum ReplayError {
    /// The file can't be read.
    #[error("cannot read the journal: {0}")]
    Io(#[from] io::Error),
    /// The file is damaged, or no journal.
    #[error("the journal is damaged: {0}")]
    Damaged(#[from] postcard::Error),
    /// The configuration in it is none.
    #[error("the journal's configuration is damaged: {0}")]
    Config(#[from] serde_json::Error),
    /// Another version wrote it.
    #[error("the journal was written by version {0}")]
    OtherVersion(String),
    /// It ends before the run did.
    #[error("the journal ends before the run's end")]
    NoEnd,
}

/// Writes a journal. Where there is no room for it the run goes on without.
#[derive(Debug)]
struct ReplayJournal {
    file: BufWriter<File>,
}

impl ReplayJournal {
    /// Creates the file, with version, configuration and machine at its start.
    fn create(path: &Path, config: &Config, host: &HostInfo) -> io::Result<Self> {
        let mut journal = Self { file: BufWriter::new(File::create_new(path)?) };
        // JSON: what the pipe and the state file hold has forms that postcard can't read back.
        let told = serde_json::to_string(&(config, host)).map_err(io::Error::other)?;
        journal.write(&(VERSION, told))?;
        Ok(journal)
    }

    /// Writes a part, with its length before it.
    fn write(&mut self, part: &impl Serialize) -> io::Result<()> {
        let bytes = postcard::to_stdvec(part).map_err(io::Error::other)?;
        let length = u32::try_from(bytes.len()).map_err(io::Error::other)?;
        self.file.write_all(&length.to_le_bytes())?;
        self.file.write_all(&bytes)
    }
}

/// The run so far, which changes by observations only, and the journal that holds those, if there is one.
#[derive(Debug)]
pub struct JournaledRun {
    run: RunState,
    journal: Option<ReplayJournal>,
}

impl Deref for JournaledRun {
    type Target = RunState;

    fn deref(&self) -> &RunState {
        &self.run
    }
}

impl JournaledRun {
    /// Makes a run that is not written down.
    #[must_use]
    pub fn new(run: RunState) -> Self {
        Self { run, journal: None }
    }

    /// Writes down what comes from now on.
    ///
    /// # Errors
    /// If the file can't be made.
    pub fn write_to(&mut self, path: &Path, config: &Config, host: &HostInfo) -> io::Result<()> {
        self.journal = Some(ReplayJournal::create(path, config, host)?);
        Ok(())
    }

    /// Takes in what a source has seen at this time, CLOCK_MONOTONIC nanoseconds.
    pub fn apply(&mut self, now_ns: u64, observation: Observation) {
        self.run.apply(now_ns, &observation);
        self.note(&Part::Seen(now_ns, observation));
    }

    /// Takes in what a source has seen just now.
    pub fn apply_now(&mut self, observation: Observation) {
        self.apply(clock::monotonic_ns(), observation);
    }

    /// Gives the orders that the launcher is to get at `now_ns` (CLOCK_MONOTONIC). They are not written to the journal: a
    /// replay decides them again.
    pub(crate) fn take_orders(&mut self, now_ns: u64) -> Vec<Order> {
        self.run.take_orders(now_ns)
    }

    /// Gives what waits for the sinks. What they have taken is no conclusion, so it is not written down.
    pub(crate) fn outbox(&mut self) -> &mut Outbox {
        &mut self.run.samples.outbox
    }

    /// Gives the run, when nothing more will be seen.
    #[must_use]
    pub fn into_state(self) -> RunState {
        self.run
    }

    /// Writes down the end, of which the report is about to be made.
    pub fn end(&mut self, end: &RunEnd) {
        self.note(&Part::End(end.clone()));
        if let Some(mut journal) = self.journal.take() {
            // If this fails, a replay says that the end is missing.
            let _ = journal.file.flush();
        }
    }

    /// Writes a part, if the run is written down. After an error nothing more is written.
    fn note(&mut self, part: &Part) {
        if let Some(journal) = &mut self.journal
            && journal.write(part).is_err()
        {
            self.journal = None;
        }
    }
}

/// A run as a journal tells it.
#[derive(Debug)]
pub struct Replayed {
    /// What was asked for.
    pub config: Config,
    /// Where it ran.
    pub host: HostInfo,
    /// What the run came to.
    pub run: RunState,
    /// How it ended.
    pub end: RunEnd,
}

/// Replays a journal.
///
/// # Errors
/// If it can't be read, or is not whole.
pub fn replay(path: &Path) -> Result<Replayed, ReplayError> {
    let mut file = BufReader::new(File::open(path)?);
    let (version, told): (String, String) = read(&mut file)?;
    if version != VERSION {
        return Err(ReplayError::OtherVersion(version));
    }
    let (config, host): (Config, HostInfo) = serde_json::from_str(&told)?;
    let mut run = RunState::of_run(&config, &host);
    loop {
        match read(&mut file)? {
            Part::Seen(now_ns, observation) => run.apply(now_ns, &observation),
            Part::End(end) => return Ok(Replayed { config, host, run, end }),
        }
    }
}

/// Reads the next part.
fn read<T: DeserializeOwned>(file: &mut impl Read) -> Result<T, ReplayError> {
    let mut length = [0; 4];
    file.read_exact(&mut length).map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => ReplayError::NoEnd,
        _ => ReplayError::Io(error),
    })?;
    let length = usize::try_from(u32::from_le_bytes(length)).unwrap_or(LONGEST_PART);
    let mut bytes = vec![0; length.min(LONGEST_PART)];
    file.read_exact(&mut bytes)?;
    Ok(postcard::from_bytes(&bytes)?)
}

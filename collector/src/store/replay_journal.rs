//! A journal of a run, for developers: every observation with its time, so that the run can be replayed without /proc.
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

/// The version of this program, which a journal must have to be replayed.
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// Maximum number of bytes of a part that are read. A damaged file can claim any length.
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
    /// Its configuration or machine can't be parsed.
    #[error("the journal's configuration is damaged: {0}")]
    Config(#[from] serde_json::Error),
    /// Another version of this program wrote it, which may have encoded observations otherwise.
    #[error("the journal was written by version {0}")]
    OtherVersion(String),
    /// It ends before the run did.
    #[error("the journal ends before the run's end")]
    NoEnd,
}

/// Writes the parts of a replay journal to its file, each with its length before it.
#[derive(Debug)]
struct PartWriter {
    file: BufWriter<File>,
}

impl PartWriter {
    /// Creates the file, with version, configuration and machine at its start.
    fn create(path: &Path, config: &Config, host: &HostInfo) -> io::Result<Self> {
        let mut journal = Self { file: BufWriter::new(File::create_new(path)?) };
        // As JSON, because postcard can't read back all forms that the configuration has.
        let config_and_host = serde_json::to_string(&(config, host)).map_err(io::Error::other)?;
        journal.write(&(VERSION, config_and_host))?;
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

/// The run so far, which changes by observations only, and the journal that they are written to, if there is one.
#[derive(Debug)]
pub struct JournaledRun {
    run: Box<RunState>,
    journal: Option<PartWriter>,
}

impl Deref for JournaledRun {
    type Target = RunState;

    fn deref(&self) -> &RunState {
        &self.run
    }
}

impl JournaledRun {
    /// Makes a run without a journal.
    pub fn new(run: Box<RunState>) -> Self {
        Self { run, journal: None }
    }

    /// Creates a journal at `path`, to which the observations from now on are written.
    ///
    /// # Errors
    /// If the file can't be created or written.
    pub fn write_to(&mut self, path: &Path, config: &Config, host: &HostInfo) -> io::Result<()> {
        self.journal = Some(PartWriter::create(path, config, host)?);
        Ok(())
    }

    /// Applies an observation to the run, and writes it to the journal. `now_ns`: when it was made, CLOCK_MONOTONIC nanoseconds.
    pub fn apply(&mut self, now_ns: u64, observation: Observation) {
        self.run.apply(now_ns, &observation);
        self.note(&Part::Seen(now_ns, observation));
    }

    /// Applies an observation that was made just now, as [`Self::apply`] does.
    pub fn apply_now(&mut self, observation: Observation) {
        self.apply(clock::monotonic_ns(), observation);
    }

    /// The orders that the launcher is to get at `now_ns`, CLOCK_MONOTONIC nanoseconds. They are not written to the journal,
    /// because a replay decides them again.
    pub(crate) fn take_orders(&mut self, now_ns: u64) -> Vec<Order> {
        self.run.take_orders(now_ns)
    }

    /// The items that wait for the sinks. Changes to them are not written to the journal: no conclusion depends on them.
    pub(crate) fn outbox(&mut self) -> &mut Outbox {
        &mut self.run.samples.outbox
    }

    /// The run, to which no more observations are applied.
    pub fn into_state(self) -> Box<RunState> {
        self.run
    }

    /// Writes the end of the run to the journal, and closes the journal. Called just before the report is made.
    pub fn end_journal(&mut self, end: &RunEnd) {
        self.note(&Part::End(end.clone()));
        if let Some(mut journal) = self.journal.take() {
            // If this fails, a replay says that the end is missing.
            let _ = journal.file.flush();
        }
    }

    /// Writes a part to the journal, if there is one. After an error, the run goes on without a journal.
    fn note(&mut self, part: &Part) {
        if let Some(journal) = &mut self.journal
            && journal.write(part).is_err()
        {
            self.journal = None;
        }
    }
}

/// A run that was replayed: all that a report is made of.
#[derive(Debug)]
pub struct Replayed {
    /// The run's configuration.
    pub config: Config,
    /// The machine on which it ran.
    pub host: HostInfo,
    /// Its state at the end.
    pub run: Box<RunState>,
    /// How it ended.
    pub end: RunEnd,
}

/// Replays the journal at `path`.
///
/// # Errors
/// If it can't be read, is damaged or not whole, or was written by another version.
pub fn replay(path: &Path) -> Result<Replayed, ReplayError> {
    let mut file = BufReader::new(File::open(path)?);
    let (version, config_and_host): (String, String) = read(&mut file)?;
    if version != VERSION {
        return Err(ReplayError::OtherVersion(version));
    }
    let (config, host): (Config, HostInfo) = serde_json::from_slice(config_and_host.as_bytes())?;
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
    read_whole(file, &mut length)?;
    let length = usize::try_from(u32::from_le_bytes(length)).unwrap_or(LONGEST_PART);
    // A longer part is damage. The limit keeps it from filling the memory.
    let mut bytes = vec![0; length.min(LONGEST_PART)];
    read_whole(file, &mut bytes)?;
    Ok(postcard::from_bytes(&bytes)?)
}

/// Fills `bytes`. A journal that ends within them is one whose collector was killed.
fn read_whole(file: &mut impl Read, bytes: &mut [u8]) -> Result<(), ReplayError> {
    file.read_exact(bytes).map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => ReplayError::NoEnd,
        _ => ReplayError::Io(error),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn journal_that_ends_within_a_part_has_no_end() {
        // As a killed collector leaves it: its writes are of blocks, not of parts.
        let part = [&3_u32.to_le_bytes()[..], &postcard::to_stdvec("ab").unwrap()].concat();
        assert_eq!(read::<String>(&mut &part[..]).unwrap(), "ab");
        for length in 0..part.len() {
            let cut = read::<String>(&mut &part[..length]);
            assert!(matches!(cut, Err(ReplayError::NoEnd)), "{length}: {cut:?}");
        }
    }
}

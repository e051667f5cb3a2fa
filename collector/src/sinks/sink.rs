//! What an output of the run is.

use std::io;
use std::path::Path;
use std::time::Instant;

use gpu_track_report::tracking_line::{FORM_VERSION, Run};

use crate::model::alert::RunEvent;
use crate::model::config::Config;
use crate::model::host_info::HostInfo;
use crate::model::report::{Report, Stage, Usable};
use crate::model::tree_sample::{Event, TreeSample, Wants};
use crate::run::RunState;
use crate::run::tree::ProcessSummary;

/// What a sink goes on from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Resume {
    /// The run begins.
    New,
    /// Collectors before this one were killed. The sink cuts what they left half-written, and drops what it already has.
    Continued,
}

/// What a sink could not write, and goes on without.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Loss {
    /// How many lines.
    pub lines: u64,
    /// Why the first of them.
    pub error: Option<String>,
}

/// An output of the run. After the first error it is closed.
pub(crate) trait Sink: Send {
    /// Gives its name, for the report.
    fn name(&self) -> String;

    /// Called before anything else, in the thread of the other calls.
    fn open(&mut self, resume: Resume) -> io::Result<()>;

    /// Gives what of the run it takes.
    fn wants(&self) -> Wants {
        Wants::default()
    }

    /// Whether it takes the report of this stage.
    fn wants_report(&self, _stage: Stage) -> bool {
        false
    }

    /// Takes a sample: a closed one in a thread, the provisional one in the loop.
    fn sample(&mut self, _sample: &TreeSample) -> io::Result<()> {
        Ok(())
    }

    /// Looks at the run when the sample is complete. Only the loop's sinks get it.
    fn look(&mut self, _run: &RunState, _now: &TreeSample) -> io::Result<()> {
        Ok(())
    }

    /// Takes a process whose figures are final.
    fn process_ended(&mut self, _process: &ProcessSummary) -> io::Result<()> {
        Ok(())
    }

    /// Takes what else became known, such as more RAM of a closed sample.
    fn event(&mut self, _event: &Event) -> io::Result<()> {
        Ok(())
    }

    /// Takes what happened in the run.
    fn happened(&mut self, _event: &RunEvent) -> io::Result<()> {
        Ok(())
    }

    /// Takes the report so far, or the last one; nothing follows that one.
    fn report(&mut self, _report: &Report, _stage: Stage) -> io::Result<()> {
        Ok(())
    }

    /// Gives when it writes what it has gathered, though nothing more comes. `None`: it has nothing.
    fn due(&self) -> Option<Instant> {
        None
    }

    /// Writes what it has gathered: it is due, or nothing more comes.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// Whether all that it was given is where it belongs. Until then a restarted collector hands it on again.
    fn is_written(&self) -> bool {
        true
    }

    /// Gives what it could not write so far, all together.
    fn loss(&self) -> Loss {
        Loss::default()
    }
}

/// What sinks are made of.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place<'a> {
    /// The configuration.
    pub config: &'a Config,
    /// The machine.
    pub host: &'a HostInfo,
    /// What the command may use, as far as that is known when it starts.
    pub usable: &'a Usable,
    /// The segment's path and number of its session.
    pub segment: (&'a Path, u64),
}

impl Place<'_> {
    /// Gives the first line of a tracking file: what does not change during the run.
    pub(crate) fn run(&self) -> Run {
        let Self { config, host, .. } = self;
        Run {
            form_version: FORM_VERSION,
            command: config.command.clone(),
            monotonic_ns: config.start.monotonic_ns,
            realtime_ns: config.start.realtime_ns,
            interval_ns: config.tracking.interval_ns(),
            host: host.host.clone(),
        }
    }
}

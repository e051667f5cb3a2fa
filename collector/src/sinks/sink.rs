//! What an output of the run (a sink) must be able to do, and what it is told.

use std::io;
use std::path::Path;
use std::time::Instant;

use gpu_track_report::tracking_line::{FORM_VERSION, Run};

use crate::model::alert::RunEvent;
use crate::model::config::{Config, ReportConfig};
use crate::model::host_info::HostInfo;
use crate::model::report::{Report, Stage, Usable};
use crate::model::tree_sample::{Event, TreeSample, Wants};
use crate::run::RunState;
use crate::run::task_summary::TaskSummary;
use crate::run::tree::ProcessSummary;

/// Whether a sink begins its output or continues that of a killed collector.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Resume {
    /// The run begins.
    New,
    /// Collectors before this one were killed. The sink cuts what they left half-written, and drops what it already has.
    Continued,
}

/// What a sink could not write because there was no space, or a database stayed locked. The sink goes on with later items.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Loss {
    /// The number of lines that were lost.
    pub lines: u64,
    /// The error that lost the first of them.
    pub error: Option<String>,
}

/// An output of the run. After the first error it is closed.
pub(crate) trait Sink: Send {
    /// The sink's name, for the report.
    fn name(&self) -> String;

    /// Opens the output, if that is done before the first item comes. Called in the thread of the later calls.
    fn open(&mut self, _resume: Resume) -> io::Result<()> {
        Ok(())
    }

    /// Says which items of the run the sink takes.
    fn wants(&self) -> Wants {
        Wants::default()
    }

    /// Takes another configuration of the report. Only sinks of the loop are called.
    fn set_report_config(&mut self, _config: &ReportConfig) {}

    /// Whether the sink takes the report of this stage. Most take the last one alone, when the run is over.
    fn wants_report(&self, stage: Stage) -> bool {
        stage == Stage::Over
    }

    /// Takes a sample. A sink with a thread gets closed samples, a sink of the loop the open one, which can still change.
    fn sample(&mut self, _sample: &TreeSample) -> io::Result<()> {
        Ok(())
    }

    /// Takes the run with its open sample, and shows what it wants of them. Only sinks of the loop are called, after
    /// [`Self::sample`].
    fn show(&mut self, _run: &RunState, _now: &TreeSample) -> io::Result<()> {
        Ok(())
    }

    /// Takes a process whose figures are final.
    fn process_ended(&mut self, _process: &ProcessSummary) -> io::Result<()> {
        Ok(())
    }

    /// Takes tasks that have no process any more. One that goes on later comes again, with all figures.
    fn tasks_ended(&mut self, _tasks: &[TaskSummary]) -> io::Result<()> {
        Ok(())
    }

    /// Takes what became known later of a closed sample, such as more RAM.
    fn event(&mut self, _event: &Event) -> io::Result<()> {
        Ok(())
    }

    /// Takes an event of the run, such as its start or an alert.
    fn happened(&mut self, _event: &RunEvent) -> io::Result<()> {
        Ok(())
    }

    /// Takes a report-so-far, or the last report. Nothing follows the last one.
    fn report(&mut self, _report: &Report, _stage: Stage) -> io::Result<()> {
        Ok(())
    }

    /// The time at which [`Self::flush`] is to be called if no item comes before. `None`: the sink has nothing to flush.
    fn due(&self) -> Option<Instant> {
        None
    }

    /// Writes what the sink has gathered. Called when that is due, and when nothing more comes.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// Whether all items that the sink was given are in its output, or lost. Until it says so, a restarted collector hands them to
    /// it again.
    fn is_written(&self) -> bool {
        true
    }

    /// The sum of what the sink could not write so far.
    fn loss(&self) -> Loss {
        Loss::default()
    }
}

/// What outputs need to know of a run when they are made.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SinkContext<'a> {
    pub config: &'a Config,
    /// The machine.
    pub host: &'a HostInfo,
    /// What the command may use, as far as that is known when it starts.
    pub usable: &'a Usable,
    /// The path of the segment, and the id of its session.
    pub segment: (&'a Path, u64),
}

impl SinkContext<'_> {
    /// The first line of a tracking file: what does not change during the run.
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

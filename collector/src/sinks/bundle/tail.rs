//! The last part of a run, sample by sample, as lines of a tracking file, so that `gpu-track report` shows them.

use std::collections::VecDeque;
use std::time::Duration;

use gpu_track_report::tracking_line::{Line, Run};

use crate::model::ended_process::EndedProcess;
use crate::model::report::Report;
use crate::model::tree_sample::{Event, TreeSample};
use crate::sinks::sink::SinkContext;

/// Maximum number of bytes of the lines. A minute of samples every 10 ms, on a machine with eight GPUs, has about that many.
const MOST_BYTES: usize = 16 << 20;

/// The last lines of a run.
pub(super) struct Tail {
    run: Run,
    /// Lines are dropped when they are older than this.
    length_ns: u64,
    /// Each line with its time, CLOCK_MONOTONIC nanoseconds.
    lines: VecDeque<(u64, String)>,
    /// Length of all lines.
    bytes: usize,
    /// The last sample. Its time dates the lines of processes and events, and its `max_ram` goes into the line of the end.
    last: Option<TreeSample>,
}

impl Tail {
    /// Begins without lines. Those of the last `length` of the run will be kept.
    pub(super) fn new(context: &SinkContext, length: Duration) -> Self {
        Self {
            run: context.run(),
            length_ns: u64::try_from(length.as_nanos()).unwrap_or(u64::MAX),
            lines: VecDeque::new(),
            bytes: 0,
            last: None,
        }
    }

    /// Adds a sample, and keeps it as the last one.
    pub(super) fn add_sample(&mut self, sample: &TreeSample) {
        self.add_line(sample.at_ns, &Line::Sample(Box::new(sample.clone())));
        self.last = Some(sample.clone());
    }

    /// Adds a process whose figures are final. For its age, its line has the time of the last sample.
    pub(super) fn add_process(&mut self, process: EndedProcess) {
        self.add_line(self.last_ns(), &Line::Process(Box::new(process)));
    }

    /// Adds an event. For its age, its line has the time of the last sample.
    pub(super) fn add_event(&mut self, event: &Event) {
        self.add_line(self.last_ns(), &Line::Event(*event));
    }

    /// The time of the last sample; 0: there is none.
    fn last_ns(&self) -> u64 {
        self.last.as_ref().map_or(0, |sample| sample.at_ns)
    }

    /// The lines that are kept, between those of the run's start and end.
    pub(super) fn text(&self, report: &Report) -> String {
        let sampled_max_ram = self.last.as_ref().map(|sample| sample.max_ram).unwrap_or_default();
        let mut text = Line::Run(self.run.clone()).text();
        for (_, line) in &self.lines {
            text += line;
        }
        text + &Line::end(report, sampled_max_ram).text()
    }

    /// Adds a line, and drops the lines that are too old or do not fit into [`MOST_BYTES`].
    fn add_line(&mut self, at_ns: u64, line: &Line) {
        let line = line.text();
        self.bytes += line.len();
        self.lines.push_back((at_ns, line));
        while self.lines.front().is_some_and(|(first_ns, _)| {
            at_ns.saturating_sub(*first_ns) > self.length_ns || self.bytes > MOST_BYTES
        }) {
            self.bytes -= self.lines.pop_front().map_or(0, |(_, line)| line.len());
        }
    }
}

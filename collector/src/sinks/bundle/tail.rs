//! The run before its end, sample by sample, as lines of a tracking file: `gpu-track report` shows them.

use std::collections::VecDeque;
use std::time::Duration;

use gpu_track_report::tracking_line::{Line, Run};

use crate::model::ended_process::EndedProcess;
use crate::model::report::Report;
use crate::model::tree_sample::{Event, TreeSample};
use crate::sinks::sink::Place;

/// The lines take at most this much memory: a minute of samples each 10 ms of a machine with eight GPUs.
const MOST_BYTES: usize = 16 << 20;

/// The last lines of a run.
pub(super) struct Tail {
    run: Run,
    length_ns: u64,
    /// Each with its time, CLOCK_MONOTONIC nanoseconds.
    lines: VecDeque<(u64, String)>,
    bytes: usize,
    last: Option<TreeSample>,
}

impl Tail {
    pub(super) fn new(place: &Place, length: Duration) -> Self {
        Self {
            run: place.run(),
            length_ns: u64::try_from(length.as_nanos()).unwrap_or(u64::MAX),
            lines: VecDeque::new(),
            bytes: 0,
            last: None,
        }
    }

    pub(super) fn add_sample(&mut self, sample: &TreeSample) {
        self.add(sample.at_ns, &Line::Sample(Box::new(sample.clone())));
        self.last = Some(sample.clone());
    }

    /// Adds a process whose figures are final.
    pub(super) fn add_process(&mut self, process: EndedProcess) {
        let at_ns = self.last.as_ref().map_or(0, |sample| sample.at_ns);
        self.add(at_ns, &Line::Process(Box::new(process)));
    }

    pub(super) fn add_event(&mut self, event: &Event) {
        let at_ns = self.last.as_ref().map_or(0, |sample| sample.at_ns);
        self.add(at_ns, &Line::Event(*event));
    }

    /// Gives the lines of the last while, between those of the run's start and end.
    pub(super) fn text(&self, report: &Report) -> String {
        let told = self.last.as_ref().map(|sample| sample.max_ram).unwrap_or_default();
        let (first, end) = (Line::Run(self.run.clone()).text(), Line::end(report, told).text());
        let lines = self.lines.iter().map(|(_, line)| line.as_str());
        std::iter::once(first.as_str()).chain(lines).chain([end.as_str()]).collect()
    }

    /// Adds a line, and forgets those that are too old or too many.
    fn add(&mut self, at_ns: u64, line: &Line) {
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

//! The account of a run that no collector tracks: what the launcher itself knows as the command's parent.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use gpu_track_abi::record::{Event, Origin};
use gpu_track_collector::model::config::{Config, Layer, Message};
use gpu_track_collector::model::kernel_errors::without_numbers;
use gpu_track_collector::model::record_or_event::StoredRecord;
use gpu_track_collector::model::report::Report;
use gpu_track_collector::{
    KnownFile, KnownToParent, Left, ProcRoot, clock, has_files, has_split_rss, untracked, write_everywhere,
    write_files,
};

use crate::cli::Options;
use crate::collector_process::Collector;
use crate::console;
use crate::nodes::NodeRun;
use crate::process::reap::{self, ChildChange};
use crate::process::signals::{MAX_END_REQUESTS, requests_end};
use crate::run::config;
use crate::run::orders::OrderExecutor;
use crate::run::supervise::Account;
use crate::run::wakeups::Wakeups;

/// Maximum number of records of ended children that are kept. What further ones used is added to the last record.
const MOST_REAPED: usize = 10_000;
/// How often the launcher looks at signals while the report is written.
const SIGNAL_CHECK_INTERVAL: Duration = Duration::from_millis(20);

/// The account that the launcher itself keeps: what it is told of the command, and the report's configuration.
pub(crate) struct Untracked {
    config: Config,
    known: KnownToParent,
    has_split_rss: bool,
}

impl Untracked {
    /// Makes the account before the command is started. `reason`: why tracking could not begin.
    pub(crate) fn new(options: &Options, reason: String) -> Self {
        let mut untracked = Self::beside(&config::from_options(options, &ProcRoot::default()));
        untracked.begin(reason);
        untracked
    }

    /// Makes an account beside the collector of a run with this configuration. It is used only if the collector turns out to be
    /// unable to work.
    pub(crate) fn beside(config: &Config) -> Self {
        Self { config: config.clone(), known: KnownToParent::default(), has_split_rss: has_split_rss() }
    }

    /// Makes this account the run's only one. `reason`: why the run is not tracked. Of the layers that find processes, those
    /// remain that need no collector: wait and subreaper.
    pub(crate) fn begin(&mut self, reason: String) {
        let discovery = &mut self.config.discovery;
        discovery.layers.retain(|layer| matches!(layer, Layer::Wait | Layer::Subreaper));
        discovery.untracked = Some(without_numbers(&reason));
    }

    /// Writes a report without figures to the report's files, so that a report of an earlier run there is not taken for this
    /// run's. The report of the run's end replaces it. If there will be none, `why` is the warning that says why.
    pub(crate) fn write_without_figures(&self, why: Option<String>) {
        let mut config = self.config.clone();
        config.report.warnings.extend(why);
        report_to_files(&config, &KnownToParent::default());
    }

    /// Finds the command's children that still run. /proc lists them. Without /proc, waitid(2) says whether there are any.
    fn children_left() -> Left {
        match ProcRoot::default().own_children() {
            None if reap::has_children() => Left::Unknown,
            Some(children) if !children.is_empty() => Left::Some(children),
            None | Some(_) => Left::None,
        }
    }
}

/// Writes a report of `known` to those of the report's files whose format has a place for why a figure is null (gpu_tracker's has
/// none). A failure is said on stderr.
pub(crate) fn report_to_files(config: &Config, known: &KnownToParent) {
    if has_files(&config.report)
        && let Err(error) = write_files(&config.report, &untracked(config, known))
    {
        console::message(error);
    }
}

/// Adds what a process used (`other`, a REAPED event) to `into`, the REAPED record of another process.
fn merge(into: &mut StoredRecord, other: Event) {
    let (
        Event::Reaped { usage, reaper_max_rss_kib, clock_ns, .. },
        Event::Reaped { usage: more, reaper_max_rss_kib: of_more, .. },
    ) = (&mut into.event, other)
    else {
        return;
    };
    // A child may have inherited the launcher's peak. So the launcher's peak is kept that belongs to the larger child.
    if more.max_rss_kib > usage.max_rss_kib {
        *reaper_max_rss_kib = of_more;
    }
    // The CPU clock is of one process, and the record stands for several from now on.
    *clock_ns = 0;
    *usage = usage.plus(&more);
}

impl Account for Untracked {
    fn collector(&self) -> Option<&Collector> {
        None
    }

    fn messages(&self) -> &[Message] {
        self.known.messages()
    }

    fn tell(&mut self, message: Message) {
        self.config.note_nodes(message);
        self.known.tell(message);
    }

    fn is_foreign(&self, _pid: u32) -> bool {
        false
    }

    /// Is not called: all children are the run's.
    fn foreign_ended(&mut self, _pid: u32, _status: i32) {}

    /// Keeps the child's record. Beyond [`MOST_REAPED`] records, it is added to the last one, unless it is the command's.
    fn child_ended(&mut self, ended: &ChildChange, is_main: bool) {
        let event = ended.record(self.has_split_rss);
        let reaped = &mut self.known.reaped;
        if !is_main
            && reaped.len() >= MOST_REAPED
            && let Some(last) = reaped.last_mut()
        {
            merge(last, event);
            return;
        }
        let start = &self.config.start;
        let origin = Origin {
            pid: start.launcher_pid,
            pid_ns: start.pid_ns,
            monotonic_ns: clock::monotonic_ns(),
            ..Origin::default()
        };
        reaped.push(StoredRecord { position: reaped.len() as u64, origin, event });
    }

    /// Has nothing to do: orders come from a collector only.
    fn attend(&mut self, _executor: &mut OrderExecutor) -> Option<Duration> {
        None
    }

    fn segment(&self) -> Option<KnownFile> {
        None
    }

    /// Writes the report in a thread, because its file system may not answer. As with a collector, [`MAX_END_REQUESTS`] requests to end
    /// (Ctrl-C) end the wait for it.
    fn conclude(&mut self, wakeups: &Wakeups) -> io::Result<()> {
        // The signal that ended the command (Ctrl-C) was sent to the launcher, too. It must not end the wait.
        wakeups.discard_pending();
        self.known.left = Self::children_left();
        let (config, known) = (self.config.clone(), std::mem::take(&mut self.known));
        let report = untracked(&config, &known);
        let work = Arc::new(move || write(&config, &report));
        let (done, is_done) = channel::<()>();
        // When the thread ends, it drops `done`, which ends the wait below.
        let writer = std::thread::Builder::new().spawn({
            let work = Arc::clone(&work);
            move || {
                work();
                drop(done);
            }
        });
        if writer.is_err() {
            // No thread could be started: a limit of processes or of memory.
            work();
            return Ok(());
        }
        let mut end_requests = 0;
        while end_requests < MAX_END_REQUESTS
            && is_done.recv_timeout(SIGNAL_CHECK_INTERVAL) == Err(RecvTimeoutError::Timeout)
        {
            while let Some(received) = wakeups.wait(None, Some(Duration::ZERO))? {
                end_requests += u32::from(requests_end(received.signal));
            }
        }
        Ok(())
    }

    /// Has none: agents are started for a tracked run only.
    fn take_nodes(&mut self) -> Option<NodeRun> {
        None
    }

    fn is_reported_by_collector(&self) -> bool {
        false
    }
}

/// Writes the report to every place, and says where that failed.
fn write(config: &Config, report: &Report) {
    if let Err(error) = write_everywhere(config, report) {
        console::message(error);
    }
}

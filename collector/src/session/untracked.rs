//! The report of a run without a collector: its command could not be executed, tracking could not begin, or the
//! collector could not work.

use gpu_track_abi::record::Event;

use super::told::Told;
use crate::build::{self, Inputs};
use crate::model::config::{Config, Message};
use crate::model::counts_in_words::processes;
use crate::model::gpu::{BackendsAtEnd, GpuObservation, Missing};
use crate::model::observation::Observation;
use crate::model::record_or_event::{Finding, StoredRecord};
use crate::model::report::{Report, Running, Topic, Warning};
use crate::model::run_end::RunEnd;
use crate::model::signal::SignalReceived;
use crate::run::RunState;
use crate::sources::gpu::detection;
use crate::sources::{host, signal_sender};
use crate::store::replay_journal::JournaledRun;
use crate::sys::clock;
use crate::sys::proc_fs::ProcRoot;

/// Maximum number of processes that are named as still running.
const MAX_LISTED: usize = 100;

/// What the launcher knows of a command that no collector tracks.
#[derive(Debug, Default)]
pub struct KnownToParent {
    messages: Vec<Message>,
    signals: Vec<SignalReceived>,
    /// The REAPED records, one for each child of the run that the launcher has waited for.
    pub reaped: Vec<StoredRecord>,
    /// Its children that still ran at the end.
    pub left: Left,
}

/// Processes of the run that still ran at its end.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Left {
    /// None did.
    #[default]
    None,
    /// These pids did.
    Some(Vec<u32>),
    /// It is not known which did, because /proc can't be read.
    Unknown,
}

impl KnownToParent {
    /// Takes in a message that a collector would have got. The sender of a signal is looked up now, because it may end soon.
    pub fn tell(&mut self, message: Message) {
        if let Message::Signalled(told) = message {
            self.signals.push(signal_sender::received(&ProcRoot::default(), told));
        }
        self.messages.push(message);
    }

    /// The messages so far.
    pub fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// The largest peak RSS that is known of the reaped processes, bytes. A fork child begins with the launcher's peak, so
    /// only a peak above that is its own. `None`: none is known.
    fn largest_rss_bytes(&self) -> Option<u64> {
        let own_peak = |record: &StoredRecord| match record.event {
            Event::Reaped { reaper_max_rss_kib, usage, .. } if usage.max_rss_kib > reaper_max_rss_kib => {
                Some(usage.max_rss_kib.saturating_mul(1024))
            }
            _ => None,
        };
        self.reaped.iter().filter_map(own_peak).max()
    }
}

/// Makes the report of a command that no collector tracked. If the machine may have GPUs, their use is unknown in it.
pub fn untracked(config: &Config, known: &KnownToParent) -> Report {
    let root = ProcRoot::default();
    let host = host::of_this_machine(&root, config.attached.map(|process| process.pid));
    let mut run = JournaledRun::new(RunState::of_run(config, &host));
    let mut told = Told::default();
    // Signals are applied below, with the senders that were looked up when the signals came.
    for message in known.messages.iter().filter(|message| !matches!(message, Message::Signalled(_))) {
        told.take_in(message, config, &root, &mut run);
    }
    let now_ns = clock::monotonic_ns();
    for received in &known.signals {
        run.apply(now_ns, Observation::SignalReceived(received.clone()));
    }
    run.apply(now_ns, Observation::Findings(known.reaped.iter().copied().map(Finding::Record).collect()));
    run.apply(now_ns, Observation::Gpu(Box::new(unread_gpus(config))));
    run.apply(now_ns, Observation::GpuEnd);
    run.apply(now_ns, Observation::FinalizeAll);
    let end_ns = told.exit.map_or(now_ns, |exit| exit.at_ns);
    let end = RunEnd { largest_rss_bytes: known.largest_rss_bytes(), ..RunEnd::of_exit(end_ns, told.exit) };
    let mut report = build::report(&Inputs { config, host_info: &host, run: &run, end: &end });
    note_left(&mut report, &known.left, &root);
    report
}

/// Adds the processes that still ran to the report, and a warning about them. Their command names are those of /proc/PID/stat.
fn note_left(report: &mut Report, left: &Left, root: &ProcRoot) {
    let which = match left {
        Left::None => return,
        Left::Unknown => {
            report.processes.still_running = None;
            "It is not known which processes".to_owned()
        }
        Left::Some(pids) => {
            let running = |pid: u32| Running { pid, command: root.comm(pid).unwrap_or_default() };
            report.processes.still_running = Some(pids.len() as u64);
            let listed = pids.iter().copied().take(MAX_LISTED);
            report.processes.still_running_processes = listed.map(running).collect();
            processes(pids.len() as u64)
        }
    };
    let was_interrupted = report.ending.wait_interrupted == Some(true);
    let cure = if was_interrupted { "" } else { " --wait-all waits for them." };
    let text = format!("{which} still ran at the end: what they used is in no figure.{cure}");
    report.warnings.push(Warning::new(Topic::Command, text));
}

/// The observation that no GPU backend was read: each that may have devices counts as failed.
fn unread_gpus(config: &Config) -> GpuObservation {
    let unread = |backend: &str| (backend.to_owned(), Missing::Untracked);
    let failed = detection::backends(&config.gpu).into_iter().map(unread).collect();
    GpuObservation {
        end: Some(BackendsAtEnd { failed, ..BackendsAtEnd::default() }),
        ..GpuObservation::default()
    }
}

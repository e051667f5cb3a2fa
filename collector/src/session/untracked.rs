//! The report of a run without a collector: its command could not be executed, or tracking could not begin.

use crate::build::{self, Inputs};
use crate::model::config::{Config, Message};
use crate::model::counts_in_words::processes;
use crate::model::gpu::{AMD_AND_INTEL, BackendsAtEnd, Device, GpuObservation, Missing, NVIDIA, Vendor};
use crate::model::observation::Observation;
use crate::model::record_or_event::{Finding, StoredRecord};
use crate::model::report::{Report, Running, Topic, Warning};
use crate::model::run_end::RunEnd;
use crate::recover;
use crate::run::RunState;
use crate::sources::gpu::list;
use crate::sources::host;
use crate::store::replay_journal::JournaledRun;
use crate::sys::clock;
use crate::sys::proc_fs::ProcRoot;

use super::told::Told;

/// Most processes that are named as still running.
const MOST_LISTED: usize = 100;

/// What the launcher knows of a command that nobody tracks.
#[derive(Debug, Default)]
pub struct KnownToParent {
    /// What it would have told a collector.
    pub messages: Vec<Message>,
    /// The REAPED records of its children that are the run's.
    pub reaped: Vec<StoredRecord>,
    /// Pids of its children that still ran at the end.
    pub left: Vec<u32>,
}

/// The report of it. Whether GPUs were used is unknown where there are any.
#[must_use]
pub fn untracked(config: &Config, known: &KnownToParent) -> Report {
    let root = ProcRoot::default();
    let host = host::of_this_machine(&root);
    let mut run = JournaledRun::new(RunState::of_run(config, &host));
    let mut told = Told::default();
    for message in &known.messages {
        told.take_in(message, config, &root, &mut run);
    }
    let now_ns = clock::monotonic_ns();
    run.apply(now_ns, Observation::Findings(known.reaped.iter().copied().map(Finding::Record).collect()));
    run.apply(now_ns, Observation::Gpu(Box::new(unread_gpus(config))));
    let end_ns = told.exit.map_or(now_ns, |exit| exit.at_ns);
    let run = recover::finish(run, None, end_ns);
    let end =
        RunEnd { command_exit: told.exit, ..RunEnd::of_status(end_ns, told.exit.map(|exit| exit.status)) };
    let mut report = build::report(&Inputs { config, host_info: &host, run: &run, end: &end });
    note_left(&mut report, &known.left, &root);
    report
}

/// Their command names are those of /proc/PID/stat.
fn note_left(report: &mut Report, left: &[u32], root: &ProcRoot) {
    if left.is_empty() {
        return;
    }
    let running = |pid: u32| Running { pid, command: root.comm(pid).unwrap_or_default() };
    report.processes.still_running = left.len() as u64;
    report.processes.still_running_processes = left.iter().copied().take(MOST_LISTED).map(running).collect();
    let which = processes(left.len() as u64);
    let text =
        format!("{which} still ran at the end: what they used is in no figure. --wait-all waits for them.");
    report.warnings.push(Warning::new(Topic::Command, text));
}

fn unread_gpus(config: &Config) -> GpuObservation {
    let present = list::present(&config.gpu);
    let is_nvidia = |device: &Device| device.vendor == Some(Vendor::Nvidia);
    let has_nvidia = present.may_have_others || present.devices.iter().any(is_nvidia);
    let has_others = !present.devices.iter().all(is_nvidia);
    let of_each = [(has_nvidia, NVIDIA), (has_others, AMD_AND_INTEL)];
    let failed = of_each.into_iter().filter(|(is_there, _)| *is_there);
    let failed = failed.map(|(_, backend)| (backend.to_owned(), Missing::Untracked)).collect();
    GpuObservation {
        end: Some(BackendsAtEnd { failed, ..BackendsAtEnd::default() }),
        ..GpuObservation::default()
    }
}

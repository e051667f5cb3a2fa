//! The live file beside the segment: the latest samples, the GPUs, the largest live processes and a summary, for programs that
//! watch the run.

use std::io;
use std::path::PathBuf;

use gpu_track_abi::live::LIVE_VERSION;
use gpu_track_abi::sample::Sample;
use gpu_track_abi::table::{GpuEntry, SUMMARY_CAPACITY, Text};
use serde::Serialize;

use super::sink::{Resume, Sink, SinkContext};
use crate::model::config::SessionStart;
use crate::model::gpu::gpu_figure::{ByGpuFigure, GpuFigure};
use crate::model::live::LiveSummary;
use crate::model::report::Usable;
use crate::model::timestamp::rfc3339;
use crate::model::tree_sample::{GpuSample, ItemKind, TreeSample, Wants};
use crate::report::quote::escape_json;
use crate::run::{RunState, live_summary};
use crate::sys::segment::live::{self, LiveFile};

/// The least time between two summaries. Each costs some 50 us.
const SUMMARY_INTERVAL_NS: u64 = 500_000_000;
/// How many commands a summary may list. The first of these numbers with which the summary fits into the live file is used.
const COMMANDS: [usize; 5] = [256, 128, 64, 16, 0];
/// Most bytes of the run's command line in a summary.
const COMMAND_LINE_BYTES: usize = 4096;

struct LiveRing {
    path: PathBuf,
    session_id: u64,
    /// `None`: the sink is not open.
    file: Option<LiveFile>,
    identity: Identity,
    start: SessionStart,
    /// When the next summary may be written, CLOCK_MONOTONIC nanoseconds.
    summary_due_ns: u64,
}

/// The part of a summary that does not change while this collector lives.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Identity {
    live_version: u32,
    command: Vec<String>,
    command_words_left_out: usize,
    launcher_pid: u32,
    restarts: u32,
    sampling_interval_s: f64,
    usable: Usable,
    job_limit_s: Option<f64>,
}

/// A summary. docs/FILES.md explains its keys.
#[derive(Serialize)]
struct Summary<'a> {
    #[serde(flatten)]
    identity: &'a Identity,
    started_at: String,
    start_ns: u64,
    #[serde(flatten)]
    run: &'a LiveSummary,
}

/// The sink. Every run has it.
pub(super) fn make(context: &SinkContext) -> Vec<Box<dyn Sink>> {
    let (segment, session_id) = context.segment;
    vec![Box::new(LiveRing {
        path: live::path_of(segment),
        session_id,
        file: None,
        identity: Identity::from_context(context),
        start: context.config.start,
        summary_due_ns: 0,
    })]
}

impl Identity {
    /// Makes the constant part of a run's summaries. It has the first words of the command line, as many as fit in
    /// [`COMMAND_LINE_BYTES`].
    fn from_context(context: &SinkContext) -> Self {
        let config = context.config;
        let mut command = Vec::new();
        let mut command_bytes = 0;
        for word in &config.command {
            command_bytes += word.len();
            if command_bytes > COMMAND_LINE_BYTES {
                break;
            }
            command.push(word.clone());
        }
        Self {
            live_version: LIVE_VERSION,
            command_words_left_out: config.command.len() - command.len(),
            command,
            launcher_pid: config.start.launcher_pid,
            restarts: config.restarts,
            sampling_interval_s: config.tracking.interval_ns() as f64 / 1e9,
            usable: context.usable.clone(),
            job_limit_s: job_limit_s(config.start, context.host.allowed.job().end_s()),
        }
    }

    /// A summary of the run as JSON, with as many commands as fit (see [`COMMANDS`]). `None`: even without commands it is
    /// too long.
    fn summary(&self, start: SessionStart, run: &RunState, now: &TreeSample) -> Option<String> {
        for most_commands in COMMANDS {
            let summary = Summary {
                identity: self,
                started_at: rfc3339(start.date(run.start_ns)),
                start_ns: run.start_ns,
                run: &live_summary(run, now, most_commands),
            };
            let text = escape_json(&serde_json::to_string(&summary).ok()?);
            if text.len() <= SUMMARY_CAPACITY {
                return Some(text);
            }
        }
        None
    }
}

/// The time from the start of the run to the end of its Slurm job's time limit, seconds. `end_s`: that end, seconds since
/// the epoch. `None`: there is no such limit, or it ended before the run.
fn job_limit_s(start: SessionStart, end_s: Option<u64>) -> Option<f64> {
    let limit_s = end_s? as f64 - start.realtime_ns as f64 / 1e9;
    Some(limit_s).filter(|limit_s| *limit_s > 0.0)
}

impl Sink for LiveRing {
    fn name(&self) -> String {
        "The live file".into()
    }

    /// Opens the live file. A collector that follows a killed one goes on in that one's file. A new run creates the file, and
    /// so does a collector that can't use the file it finds.
    fn open(&mut self, resume: Resume) -> io::Result<()> {
        let found = match resume {
            Resume::New => None,
            Resume::Continued => LiveFile::resume(&self.path, self.session_id).ok(),
        };
        self.file = Some(match found {
            Some(file) => file,
            None => LiveFile::create(&self.path, self.session_id)?,
        });
        Ok(())
    }

    fn wants(&self) -> Wants {
        Wants::from([ItemKind::Live])
    }

    /// Writes the tables, the summary if it is due, and the open sample. The sample is written last, so that a reader that finds it
    /// finds the tables of its time or of a later one. The newest sample in the ring can still change.
    fn show(&mut self, run: &RunState, now: &TreeSample) -> io::Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        let gpus: Vec<GpuEntry> = parts_after_their_gpus(&now.gpu.devices).map(gpu_entry).collect();
        file.put_gpus(now.at_ns, &gpus);
        let processes = run.live_processes();
        file.put_processes(processes.at_ns, &processes.listed, processes.others);
        if now.at_ns >= self.summary_due_ns {
            self.summary_due_ns = now.at_ns.saturating_add(SUMMARY_INTERVAL_NS);
            if let Some(summary) = self.identity.summary(self.start, run, now) {
                file.put_summary(now.at_ns, &summary);
            }
        }
        // `end` is the value at the sample; since the sample before, it can have been larger.
        file.push(Sample {
            monotonic_ns: now.at_ns,
            main_bytes: now.footprint_bytes.main.end,
            descendants_bytes: now.footprint_bytes.descendants.end,
            combined_bytes: now.footprint_bytes.combined.end,
            cpu_ns: now.cpu.combined.time_ns,
            processes: now.processes.end,
            threads: now.threads.combined.end,
        });
        if file.is_lost() { Err(io::Error::other("its file was truncated")) } else { Ok(()) }
    }
}

/// GPUs in the order of the live file's table, which does not name the GPU of a part: each GPU is followed by its parts. Parts whose GPU
/// is not there come first.
fn parts_after_their_gpus(gpus: &[GpuSample]) -> impl Iterator<Item = &GpuSample> {
    let gpu_of =
        |part: &GpuSample| gpus.iter().position(|gpu| Some(&gpu.device.id) == part.device.parent.as_ref());
    let parts_of =
        move |whole| gpus.iter().filter(move |gpu| gpu.device.parent.is_some() && gpu_of(gpu) == whole);
    let whole = gpus.iter().enumerate().filter(|(_, gpu)| gpu.device.parent.is_none());
    parts_of(None)
        .chain(whole.flat_map(move |(place, gpu)| std::iter::once(gpu).chain(parts_of(Some(place)))))
}

/// Makes the entry of a GPU in the live file's table.
fn gpu_entry(gpu: &GpuSample) -> GpuEntry {
    let device = &gpu.device;
    let figures = ByGpuFigure::from(gpu);
    GpuEntry {
        index: device.index.map(u64::from),
        read_ns: Some(gpu.read_ns).filter(|read_ns| *read_ns != 0),
        total_bytes: device.memory_bytes,
        used_bytes: gpu.used_bytes,
        run_bytes: gpu.run_bytes.map(|bytes| bytes.combined),
        utilization_percent: figures[GpuFigure::Utilization],
        power_w: figures[GpuFigure::Power],
        temperature_c: figures[GpuFigure::Temperature],
        sm_clock_mhz: figures[GpuFigure::SmClock],
        uuid: Text::new(&device.id),
        name: Text::new(device.name.as_deref().unwrap_or_default()),
    }
}

/// The figures in the entry of a GPU. Another program may have written anything there, so a figure that is not finite counts as unknown.
pub fn figures(entry: &GpuEntry) -> ByGpuFigure<Option<f64>> {
    let bytes = |bytes: Option<u64>| bytes.map(|bytes| bytes as f64);
    let of = |figure| match figure {
        GpuFigure::Utilization => entry.utilization_percent,
        GpuFigure::MemoryUsed => bytes(entry.used_bytes),
        GpuFigure::MemoryRun => bytes(entry.run_bytes),
        GpuFigure::Temperature => entry.temperature_c,
        GpuFigure::Power => entry.power_w,
        GpuFigure::SmClock => entry.sm_clock_mhz,
        _ => None,
    };
    ByGpuFigure::new(|figure| of(figure).filter(|value| value.is_finite()))
}

/// The CPU utilization between two samples of a live file, percent of one core. `None`: no time has passed.
pub fn cpu_percent(first: &Sample, last: &Sample) -> Option<f64> {
    let passed_ns = last.monotonic_ns.checked_sub(first.monotonic_ns).filter(|ns| *ns > 0)?;
    // The CPU time goes back a little where a process's CPU time turns out to be its child's.
    Some(last.cpu_ns.saturating_sub(first.cpu_ns) as f64 / passed_ns as f64 * 100.0)
}

impl Drop for LiveRing {
    /// Removes the live file at the end of the run. A killed collector leaves it to the next one.
    fn drop(&mut self) {
        if let Some(file) = &self.file {
            let _ = file.named().unlink();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::model::gpu::Device;

    // Requirement: WATCH-52
    #[test]
    fn parts_come_after_their_gpu_and_those_without_one_first() {
        let gpu = |(id, parent): (&str, Option<&str>)| {
            let device = Device { id: id.into(), parent: parent.map(str::to_owned), ..Device::default() };
            GpuSample { device: Arc::new(device), ..GpuSample::default() }
        };
        let all =
            [("a", None), ("b", None), ("p", Some("a")), ("q", Some("lost")), ("r", Some("b"))].map(gpu);
        let ids: Vec<&str> = parts_after_their_gpus(&all).map(|gpu| gpu.device.id.as_str()).collect();
        assert_eq!(ids, ["q", "a", "p", "b", "r"]);
    }
}

//! The final figures of a process.

use serde::{Deserialize, Serialize};

use super::cpu::OwnUsage;
use super::process::{Bounds, Ids, Name, Process};
use crate::model::config::Layer;
use crate::model::ended_process::EndedProcess;
use crate::model::quality::Quality;
use crate::model::report::{Exit, ProcessUsage};
use crate::run::elsewhere::ClientCall;

/// The largest RSS that a process, or another one below it, is known to have had, bytes; 0: nothing is known. Each is a lower bound
/// of what the whole tree held at some time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnownRss {
    /// That of the process itself.
    pub own_bytes: u64,
    /// The part of `own_bytes` that a fork child may share with its parent.
    pub copied_bytes: u64,
    /// That of a descendant.
    pub below_bytes: u64,
    /// That of the process itself or of a descendant: it is not known which.
    pub either_bytes: u64,
}

/// What is known of a process's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemorySummary {
    /// Its peak RSS, bytes.
    pub peak_rss_bytes: Option<u64>,
    /// How that is known.
    pub peak_quality: Quality,
    /// RSS that it, or a process below it, is known to have had.
    pub known_rss: KnownRss,
    /// What the tree's RAM lacks of it. `None`: nothing.
    pub(crate) missing: Option<MissingRam>,
}

/// Memory of a process that is in no sum of RAM.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MissingRam {
    /// The most that it can be, bytes. `None`: that is unknown.
    pub(crate) at_most_bytes: Option<u64>,
}

/// Which sources reported a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Provenance {
    /// The layer that found it first.
    pub found_by: Layer,
    /// It wrote a record itself.
    pub has_record: bool,
    /// It wrote no record, or exited without an EXIT record.
    pub ended_without_exit_record: bool,
    /// It carries the session and is no descendant of the command's first process, as far as known.
    pub joined: bool,
}

/// What the run keeps of a process whose figures are final.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ProcessSummary {
    /// Ids and pids.
    pub(crate) ids: Ids,
    /// Its parent's pid.
    pub parent_pid: Option<u32>,
    /// What it is called.
    pub(crate) name: Name,
    /// Its start, CLOCK_MONOTONIC nanoseconds.
    pub start_ns: u64,
    /// Its earliest and its latest start, CLOCK_MONOTONIC nanoseconds: see [`Lifetime`](super::process::Lifetime).
    pub(crate) starts_ns: [u64; 2],
    /// From start to end, nanoseconds.
    pub wall_ns: u64,
    /// It was alive at the end of the run.
    pub is_still_running: bool,
    /// When its reaper had waited for it, CLOCK_MONOTONIC nanoseconds. `None`: no record says that.
    pub(crate) reaped_ns: Option<u64>,
    /// Nothing may have reported its children.
    pub(crate) may_have_unknown_children: bool,
    /// How it ended.
    pub exit: Exit,
    /// What it used itself.
    pub(crate) own_usage: OwnUsage,
    /// Its memory.
    pub memory: MemorySummary,
    /// How close it came to its resource limits.
    pub(crate) bounds: Bounds,
    /// Which sources reported it.
    pub provenance: Provenance,
    /// Whether it had a library of a GPU's driver loaded at its end. `None`: it wrote no EXIT record.
    pub had_gpu_library: Option<bool>,
    /// Its arguments, if its program can start work elsewhere. `None`: it can't, or they are unknown.
    pub(crate) client: Option<ClientCall>,
    /// The user as which it ran, if that is another than the launcher's, as far as is known.
    pub(crate) other_user: Option<u32>,
}

impl ProcessSummary {
    /// Its start, and its end if it has ended, CLOCK_MONOTONIC nanoseconds.
    pub(crate) fn lifetime_ns(&self) -> (u64, Option<u64>) {
        let end_ns = self.start_ns.saturating_add(self.wall_ns);
        (self.start_ns, (!self.is_still_running).then_some(end_ns))
    }

    /// Makes the final figures of a process that was taken out of the tree. `client` and `other_user` are left for the caller
    /// to fill in. If it still runs, `now_ns`, CLOCK_MONOTONIC, stands for its end. `page_bytes`: the size of a page.
    pub(super) fn new(
        process: Process,
        own_usage: OwnUsage,
        parent_pid: Option<u32>,
        now_ns: u64,
        page_bytes: u64,
    ) -> Self {
        let (peak_rss_bytes, peak_quality) = process.peak();
        let lifetime = process.lifetime;
        let start_ns = lifetime.likely_start_ns();
        Self {
            ids: process.ids,
            parent_pid,
            start_ns,
            starts_ns: [lifetime.earliest_start_ns, lifetime.start_ns],
            wall_ns: lifetime.end_ns.unwrap_or(now_ns).saturating_sub(start_ns),
            is_still_running: process.is_alive(),
            reaped_ns: lifetime.reaped_ns,
            may_have_unknown_children: process.may_have_unknown_children(),
            exit: process.exit_status(),
            own_usage,
            memory: MemorySummary {
                peak_rss_bytes,
                peak_quality,
                known_rss: process.known_rss(),
                missing: process.missing_ram(page_bytes),
            },
            bounds: process.bounds,
            provenance: Provenance {
                found_by: process.ancestry.found_by,
                has_record: process.program.has_record,
                ended_without_exit_record: process.ended_without_exit_record(),
                joined: process.has_joined(),
            },
            had_gpu_library: process.had_gpu_library(),
            client: None,
            other_user: None,
            name: process.name,
        }
    }

    /// The process as the report lists it, without its use of GPUs, which the tree does not know.
    pub(crate) fn usage(&self) -> ProcessUsage {
        ProcessUsage {
            pid: self.ids.pid(),
            ppid: self.parent_pid,
            command: self.name.command.to_string(),
            args: self.name.args.clone(),
            cpu_s: self.known_cpu_us().map(|us| us as f64 / 1e6),
            cpu_quality: self.own_usage.quality,
            peak_rss_bytes: self.memory.peak_rss_bytes,
            peak_quality: self.memory.peak_quality,
            wall_s: self.wall_ns as f64 / 1e9,
            exit: self.exit,
            gpu: None,
        }
    }

    /// The process as sinks write it.
    pub fn ended(&self) -> EndedProcess {
        EndedProcess { start_ns: self.start_ns, is_still_running: self.is_still_running, usage: self.usage() }
    }

    /// Its CPU time, microseconds. `None`: it is unknown.
    pub(crate) fn known_cpu_us(&self) -> Option<u64> {
        (self.own_usage.quality != Quality::Unknown).then(|| self.own_usage.cpu_us())
    }

    /// Its end, CLOCK_MONOTONIC nanoseconds. For a process that still runs, that is when it was finalized.
    pub(crate) fn end_ns(&self) -> u64 {
        self.start_ns.saturating_add(self.wall_ns)
    }

    /// The largest part of its limit of address space that a sample saw it use, from 0 to 1; 0 without a limit.
    pub(crate) fn address_space_used(&self) -> f64 {
        let limit = self.bounds.limits.address_space_bytes.filter(|limit| *limit > 0);
        limit.map_or(0.0, |limit| self.bounds.peak_virtual_bytes as f64 / limit as f64)
    }
}

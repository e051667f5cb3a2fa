//! Concludes what ended a command that did not succeed, by what the sources reported. The result, a [`Cause`] with its evidence,
//! is data of the report (`model/report/cause.rs`).
//!
//! Each kind of cause is concluded only from evidence that it can show. The more specific kinds are tried first: a SIGKILL that
//! the kernel counted as an out-of-memory kill is no mere signal.

#[cfg(test)]
pub(super) mod tests;
mod timeout;

use libc::{
    SIGABRT, SIGBUS, SIGCHLD, SIGCONT, SIGFPE, SIGILL, SIGKILL, SIGSEGV, SIGSTOP, SIGSYS, SIGTERM, SIGTRAP,
    SIGTSTP, SIGTTIN, SIGTTOU, SIGURG, SIGWINCH, SIGXCPU, SIGXFSZ,
};

use super::failures::Failures;
use super::gpu::GpuUsage;
use super::tree::ProcessSummary;
use crate::model::cgroup::MemoryLimitUse;
pub(crate) use crate::model::report::{
    AddressSpaceLimit, Cause, CpuTimeLimit, DeadProcess, FatalSignal, FileSizeLimit, GpuHolder,
    GpuMemoryExhausted, OutOfMemory, TimeLimit, TimeLimitSource,
};
use crate::model::report::{Allowed, DiskFull, Exit};
use crate::model::signal::{SignalReceived, signal_name};

/// The thresholds by which causes are concluded, each with its reason.
struct Policy;

impl Policy {
    /// A process is near its limit of address space if its size reached this part of the limit. An allocation that failed is
    /// not in the size, so a process that asked for much at once is not found.
    const NEAR_ADDRESS_SPACE: f64 = 0.9;
    /// A cgroup's memory limit was reached if the largest charge is at least this part of it: memory is charged in pages, or huge pages.
    const FULL_MEMORY: f64 = 0.9;
    /// For this long after a signal or the death of a process, the command may fail because of it: it has to clean up.
    const AFTERMATH_NS: u64 = 5_000_000_000;
    /// A SIGKILL that ends a process before this age came from its parent. strace and gdb try ptrace(2) with such a child, which
    /// lives for 0.1 to 5 ms. No other process has noticed the child by then. An out-of-memory kill is known by the
    /// kernel's count.
    const PROBE_NS: u64 = 20_000_000;
    /// Slurm gives times in whole seconds, so they differ from the run's times by up to this much.
    const CLOCK_SLACK_S: f64 = 1.0;
    /// The kernel compares CPU time in ticks with the limit. The time used differs from the limit then by this part of it, and by
    /// `TICKS_SLACK_S`. On a busy machine SIGXCPU came after 0.95 to 1.38 s for a limit of 1 s.
    const TICKS_SLACK: f64 = 0.05;
    const TICKS_SLACK_S: f64 = 0.5;
}

/// Signals that end a process for a fault of its own, and SIGKILL, which no process survives. If the command fails soon after
/// a process ended by one of these, it may have failed because of that.
const FATAL: [i32; 8] = [SIGSEGV, SIGABRT, SIGBUS, SIGILL, SIGFPE, SIGSYS, SIGTRAP, SIGKILL];

/// Signals that end no process by default. Slurm, for one, sends SIGCONT before SIGTERM.
const HARMLESS: [i32; 8] = [SIGCHLD, SIGCONT, SIGSTOP, SIGTSTP, SIGTTIN, SIGTTOU, SIGURG, SIGWINCH];

/// What is known at the end of a run, as evidence for what ended the command.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Evidence<'a> {
    /// How the command ended.
    pub exit: Exit,
    /// Start and end of the command, CLOCK_MONOTONIC nanoseconds.
    pub span_ns: (u64, u64),
    /// CLOCK_REALTIME of the end, seconds since the epoch.
    pub ended_s: f64,
    /// The processes that did not succeed.
    pub failures: &'a Failures,
    /// The signals that the launcher passed on.
    pub signals: &'a [SignalReceived],
    /// Out-of-memory kills during the run: in the command's own cgroup, or else in the launcher's. `None`: not known.
    pub oom_kills: Option<u64>,
    /// The command has a cgroup of its own, and `oom_kills` counts only the kills there: they all hit processes of the tree.
    pub is_own_cgroup: bool,
    /// The cgroups with a memory limit, innermost first.
    pub memory_limits: &'a [MemoryLimitUse],
    /// What the command was allowed to use: cgroup, Slurm and others.
    pub allowed: &'a Allowed,
    /// File systems without space.
    pub full_disks: &'a [DiskFull],
    /// What the run used of GPUs.
    pub gpus: &'a GpuUsage,
}

/// Concludes what ended the command. `None`: it succeeded, has not ended, or failed by itself as far as is known.
pub(crate) fn cause(evidence: &Evidence) -> Option<Cause> {
    let has_failed = evidence.exit.is_failure();
    if !has_failed {
        return None;
    }
    evidence
        .out_of_memory()
        .map(Cause::OutOfMemory)
        .or_else(|| evidence.cpu_time_limit().map(Cause::CpuTimeLimit))
        .or_else(|| evidence.file_size_limit().map(Cause::FileSizeLimit))
        .or_else(|| evidence.limit_outside().or_else(|| evidence.limit_inside()).map(Cause::TimeLimit))
        .or_else(|| evidence.address_space_limit().map(Cause::AddressSpaceLimit))
        .or_else(|| evidence.gpu_memory_exhausted().map(Cause::GpuMemoryExhausted))
        .or_else(|| evidence.signal().map(Cause::Signal))
        .or_else(|| evidence.full_disks.first().cloned().map(Cause::DiskFull))
}

/// Whether the kernel may have killed a process at this limit. The kernel's count of hits decides. Without it, the largest charge
/// must have come close to the limit. If that is not known either, the limit may have been hit.
fn may_be_hit(limit: &MemoryLimitUse) -> bool {
    if let Some(hits) = limit.hits {
        return hits > 0;
    }
    let is_full = |peak: u64| peak as f64 >= limit.limit_bytes as f64 * Policy::FULL_MEMORY;
    limit.peak_bytes.is_none_or(is_full)
}

impl Evidence<'_> {
    /// Finds evidence that the kernel killed processes for want of memory. `None`: it counted no such kill, or it may have killed
    /// only processes outside the tree.
    fn out_of_memory(&self) -> Option<OutOfMemory> {
        let oom_kills = self.oom_kills.filter(|kills| *kills > 0)?;
        let killed = self.failures.by_signal.get(&SIGKILL);
        // No process of the tree was seen to die of SIGKILL. In a shared cgroup, the kill can be another job's.
        if killed.is_none() && !self.is_own_cgroup {
            return None;
        }
        let hit = self.memory_limits.iter().find(|limit| may_be_hit(limit));
        let launchers_cgroup = || self.allowed.cgroup.clone();
        let largest = killed.and_then(|killed| killed.largest.as_ref());
        Some(OutOfMemory {
            process: largest.map(|process| self.dead_process(process)),
            // No process outside the tree was killed, and SIGKILL ended no more processes than the kernel killed for memory.
            is_certain: self.is_own_cgroup && killed.is_some_and(|killed| killed.count <= oom_kills),
            oom_kills,
            cgroup: hit.map(|limit| limit.cgroup.clone()).or_else(launchers_cgroup),
            limit_bytes: hit.map(|limit| limit.limit_bytes),
            peak_bytes: hit.and_then(|limit| limit.peak_bytes),
        })
    }

    /// The last processes that this signal ended, latest first.
    fn ended_by(&self, signal: i32) -> impl Iterator<Item = &ProcessSummary> {
        self.failures.by_signal.get(&signal).into_iter().flat_map(|killed| killed.last.iter().rev())
    }

    /// Finds a process that reached its limit of CPU time, shortly before the command ended: the soft limit, or else the hard one.
    fn cpu_time_limit(&self) -> Option<CpuTimeLimit> {
        // The kernel sends SIGXCPU at the soft limit, and for nothing else.
        let at_soft_limit =
            self.ended_by(SIGXCPU).next().map(|process| (process, process.bounds.limits.cpu_s));
        let at_hard_limit = self.at_hard_cpu_limit().map(|(process, limit_s)| (process, Some(limit_s)));
        let mut at_a_limit = at_soft_limit.into_iter().chain(at_hard_limit);
        let (process, limit_s) =
            at_a_limit.find(|(process, _)| self.is_followed_by_the_end(process.end_ns()))?;
        Some(CpuTimeLimit { process: self.dead_process(process), limit_s })
    }

    /// Finds the last process that SIGKILL ended at its hard limit of CPU time, and that limit, seconds. SIGKILL is sent for
    /// other reasons too, so the process's CPU time must be close to the limit.
    fn at_hard_cpu_limit(&self) -> Option<(&ProcessSummary, u64)> {
        self.ended_by(SIGKILL).find_map(|process| {
            let limit_s = process.bounds.limits.hard_cpu_s?;
            let cpu_s = process.own_usage.cpu_us() as f64 / 1e6;
            let slack_s = limit_s as f64 * Policy::TICKS_SLACK + Policy::TICKS_SLACK_S;
            let is_reached = (limit_s as f64 - cpu_s).abs() <= slack_s;
            is_reached.then_some((process, limit_s))
        })
    }

    /// Finds a process that reached its limit of file size, shortly before the command ended: SIGXFSZ is sent for nothing else.
    fn file_size_limit(&self) -> Option<FileSizeLimit> {
        let process = self.failures.by_signal.get(&SIGXFSZ)?.last.back()?;
        self.is_followed_by_the_end(process.end_ns()).then(|| FileSizeLimit {
            process: self.dead_process(process),
            limit_bytes: process.bounds.limits.file_size_bytes,
        })
    }

    /// Finds a time limit that was set outside the tree. The launcher then received a signal shortly before the command ended, from
    /// `timeout` or at the end time of the Slurm job.
    fn limit_outside(&self) -> Option<TimeLimit> {
        self.signals.iter().find_map(|received| {
            if !self.is_followed_by_the_end(received.at_ns) {
                return None;
            }
            let args = received.sender_args.as_deref();
            let (set_by, limit_s) = if received.sender.command.as_deref() == Some("timeout") {
                (TimeLimitSource::Timeout, args.and_then(timeout::limit_s))
            } else if self.is_at_slurm_end(received) {
                (TimeLimitSource::Slurm, self.allowed.job().limit_s().map(|limit_s| limit_s as f64))
            } else {
                return None;
            };
            // The launcher passes the signal on to the command.
            let process = self.failures.main.as_ref().map(|main| self.dead_process(main));
            let signal = received.signal;
            Some(TimeLimit { process, signal, signal_name: signal_name(signal), set_by, limit_s })
        })
    }

    /// Whether the signal can be the SIGTERM by which Slurm ends a job at the job's end time. Slurm sends SIGTERM up to a minute after
    /// that time, never before. So each SIGTERM from then on is taken for Slurm's.
    fn is_at_slurm_end(&self, received: &SignalReceived) -> bool {
        // The end of the job is a date. The signal's date is computed from the run's end, which is known by both clocks.
        let before_end_s = self.span_ns.1.saturating_sub(received.at_ns) as f64 / 1e9;
        let received_s = self.ended_s - before_end_s;
        let job_end_s = self.allowed.job().end_s();
        received.signal == SIGTERM
            && job_end_s.is_some_and(|job_end_s| received_s >= job_end_s as f64 - Policy::CLOCK_SLACK_S)
    }

    /// Finds a time limit inside the tree: the last `timeout` that ended its child at its limit, shortly before the command ended.
    fn limit_inside(&self) -> Option<TimeLimit> {
        let timeout = self.failures.timed_out.iter().rev().find(|timeout| self.is_at_its_limit(timeout))?;
        let args = timeout.name.args.as_deref();
        let limit_s = args.and_then(timeout::limit_s);
        let sent = args.and_then(timeout::signal).unwrap_or(SIGTERM);
        let child_ended_by =
            |signal| self.ended_by(signal).find(|process| process.parent_pid == Some(timeout.ids.pid()));
        // With `--kill-after`, SIGKILL follows if the child survives the first signal.
        let process = child_ended_by(sent).or_else(|| child_ended_by(SIGKILL));
        let signal = process.and_then(|process| process.exit.signal).unwrap_or(sent);
        Some(TimeLimit {
            process: process.map(|process| self.dead_process(process)),
            signal,
            signal_name: signal_name(signal),
            set_by: TimeLimitSource::Timeout,
            limit_s,
        })
    }

    /// Whether a `timeout` ended at its limit, shortly before the command ended. If its arguments are unknown, it is taken to have
    /// reached its limit.
    fn is_at_its_limit(&self, timeout: &ProcessSummary) -> bool {
        let args = timeout.name.args.as_deref();
        let limit_s = args.and_then(timeout::limit_s);
        let sends_sigkill = args.and_then(timeout::signal) == Some(SIGKILL);
        // `timeout` ends by a signal only with `-s KILL`, since it then sends SIGKILL to itself, too. Else another process killed it.
        let is_own_end = timeout.exit.signal.is_none() || (limit_s.is_some() && sends_sigkill);
        let is_reached = limit_s.is_none_or(|limit_s| timeout.wall_ns as f64 / 1e9 >= limit_s);
        is_own_end && is_reached && self.is_followed_by_the_end(timeout.end_ns())
    }

    /// Finds a process that failed near its limit of address space, shortly before the command ended.
    fn address_space_limit(&self) -> Option<AddressSpaceLimit> {
        let process = self.failures.near_address_space.as_ref()?;
        let is_near = process.address_space_used() >= Policy::NEAR_ADDRESS_SPACE;
        if !is_near || !self.is_followed_by_the_end(process.end_ns()) {
            return None;
        }
        Some(AddressSpaceLimit {
            process: self.dead_process(process),
            limit_bytes: process.bounds.limits.address_space_bytes?,
            peak_bytes: process.bounds.peak_virtual_bytes,
        })
    }

    /// Finds a signal for which no more specific cause is known. It ended the command, or the command exited with 128 + N for it, as
    /// shells do. Or the launcher received it, or it ended another process, shortly before the command failed.
    fn signal(&self) -> Option<FatalSignal> {
        if let Some(signal) = self.exit.signal {
            return self.failures.main.as_ref().map(|main| self.fatal_signal(main, signal));
        }
        self.signal_passed_on().or_else(|| self.signal_received()).or_else(|| self.signal_of_another())
    }

    /// Finds the signal that the command's exit code stands for: 128 + N, if signal N ended a process of the tree.
    fn signal_passed_on(&self) -> Option<FatalSignal> {
        let signal = self.exit.code?.checked_sub(128)?;
        let process = self.failures.by_signal.get(&signal)?.last.back()?;
        Some(self.fatal_signal(process, signal))
    }

    /// Finds the last signal that the launcher received shortly before the command failed.
    fn signal_received(&self) -> Option<FatalSignal> {
        let may_end = |received: &&SignalReceived| {
            !HARMLESS.contains(&received.signal) && self.is_followed_by_the_end(received.at_ns)
        };
        let main = self.failures.main.as_ref()?;
        Some(self.fatal_signal(main, self.signals.iter().rfind(may_end)?.signal))
    }

    /// Finds the last process of the tree that a fatal signal ended, if the command failed soon after. A process that SIGKILL
    /// ended within [`Policy::PROBE_NS`] of its start was a probe of its parent, and is left out.
    fn signal_of_another(&self) -> Option<FatalSignal> {
        let is_probe =
            |process: &ProcessSummary, signal| signal == SIGKILL && process.wall_ns < Policy::PROBE_NS;
        let last_of_each = FATAL.into_iter().filter_map(|signal| {
            let last = self.ended_by(signal).find(|process| !is_probe(process, signal))?;
            Some((last, signal))
        });
        let (process, signal) = last_of_each.max_by_key(|(process, _)| process.end_ns())?;
        self.is_followed_by_the_end(process.end_ns()).then(|| self.fatal_signal(process, signal))
    }

    /// Finds a GPU that had no free memory shortly before the command failed, if processes of the run held some of it. A command fails
    /// for that by an error of its own, or aborts.
    fn gpu_memory_exhausted(&self) -> Option<GpuMemoryExhausted> {
        if !matches!(self.exit.signal, None | Some(SIGABRT)) {
            return None;
        }
        let full = self.gpus.devices.iter().filter_map(|device| Some((device, device.full.as_ref()?)));
        let at_the_end = full.filter(|(_, full)| self.is_followed_by_the_end(full.at_ns));
        let (device, full) = at_the_end.max_by_key(|(_, full)| full.at_ns)?;
        let holder = |(id, bytes): &(u64, u64)| {
            let process = self.gpus.processes.by_id.get(id)?;
            Some(GpuHolder { pid: process.pid, command: process.command.to_string(), bytes: *bytes })
        };
        Some(GpuMemoryExhausted {
            device: device.device.id.clone(),
            used_bytes: full.used_bytes,
            total_bytes: full.total_bytes,
            at_s: full.at_ns.saturating_sub(self.span_ns.0) as f64 / 1e9,
            holders: full.holders.iter().filter_map(holder).collect(),
        })
    }

    /// Describes a process that this signal ended, or that failed because of it. Names the sender, if the launcher received the
    /// same signal.
    fn fatal_signal(&self, process: &ProcessSummary, signal: i32) -> FatalSignal {
        let received = self.signals.iter().find(|received| received.signal == signal);
        FatalSignal {
            process: self.dead_process(process),
            signal,
            signal_name: signal_name(signal),
            sender: received.map(|received| received.sender.clone()),
        }
    }

    /// Whether the command ended soon after this time, CLOCK_MONOTONIC nanoseconds: then what happened at that time may be the reason.
    fn is_followed_by_the_end(&self, at_ns: u64) -> bool {
        self.span_ns.1.saturating_sub(at_ns) <= Policy::AFTERMATH_NS
    }

    /// Describes a process that ended, for the report.
    fn dead_process(&self, process: &ProcessSummary) -> DeadProcess {
        DeadProcess {
            pid: process.ids.pid(),
            command: process.name.command.to_string(),
            args: process.name.args.clone(),
            is_main: process.ids.is_main,
            exit: process.exit,
            at_s: process.end_ns().saturating_sub(self.span_ns.0) as f64 / 1e9,
            peak_rss_bytes: process.memory.peak_rss_bytes,
            cpu_s: process.known_cpu_us().map(|us| us as f64 / 1e6),
        }
    }
}

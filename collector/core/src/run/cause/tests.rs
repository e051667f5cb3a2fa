//! A table: what sources reported, and what may be concluded.

use std::sync::Arc;

use gpu_track_abi::record::Usage;

use super::*;
use crate::model::config::Layer;
use crate::model::ids::{Key, ProcessId, TaskId};
use crate::model::observation::ProcessLimits;
use crate::model::quality::Quality;
use crate::model::report::DiskRole;
use crate::model::signal::Sender;
use crate::run::gpu::GpuUsage;
use crate::run::tree::cpu::OwnUsage;
use crate::run::tree::process::{Bounds, Ids, Name};
use crate::run::tree::summary::{KnownRss, MemorySummary, Provenance};

const S: u64 = 1_000_000_000;
const MIB: u64 = 1 << 20;
/// The command runs from the 100th to the 160th second.
const START: u64 = 100 * S;
const END: u64 = 160 * S;

fn exited(code: i32) -> Exit {
    Exit { code: Some(code), signal: None }
}

fn killed(signal: i32) -> Exit {
    Exit { code: None, signal: Some(signal) }
}

/// A process with this pid that ended so, at the end of the run.
pub(in crate::run) fn process(pid: u32, command: &str, exit: Exit) -> ProcessSummary {
    let ids = Ids {
        id: ProcessId(u64::from(pid)),
        key: Key { pid_ns: 1, pid },
        host_pid: Some(pid),
        fork_number: None,
        pidfd_inode: 0,
        clock_skew_ns: 0,
        is_main: pid == 10,
        is_proven: true,
        is_helper: false,
        rank: None,
        task: TaskId::WORKFLOW,
        born_in: TaskId::WORKFLOW,
        ran_before_task: false,
        ran_script: false,
    };
    let usage = Usage { user_us: 2_000_000, ..Usage::default() };
    ProcessSummary {
        ids,
        parent_pid: Some(1),
        name: Name { command: Arc::from(command), args: None, static_executable: None },
        start_ns: START,
        starts_ns: [START; 2],
        wall_ns: END - START,
        is_still_running: false,
        reaped_ns: None,
        may_have_unknown_children: false,
        exit,
        own_usage: OwnUsage { usage, quality: Quality::Exact, unattributed_us: 0 },
        memory: MemorySummary {
            peak_rss_bytes: Some(u64::from(pid) * MIB),
            peak_quality: Quality::Exact,
            known_rss: KnownRss::default(),
            missing: None,
        },
        bounds: Bounds::default(),
        provenance: Provenance {
            found_by: Layer::Preload,
            has_record: true,
            ended_without_exit_record: false,
            joined: false,
        },
        client: None,
        other_user: None,
        had_gpu_library: None,
    }
}

/// What sources reported of a run.
struct Run {
    failures: Failures,
    signals: Vec<SignalReceived>,
    oom_kills: Option<u64>,
    is_own_cgroup: bool,
    memory_limits: Vec<MemoryLimitUse>,
    allowed: Allowed,
    full_disks: Vec<DiskFull>,
    exit: Exit,
}

impl Run {
    /// The command ended so.
    fn ended(exit: Exit) -> Self {
        let mut run = Self {
            failures: Failures::default(),
            signals: Vec::new(),
            oom_kills: Some(0),
            is_own_cgroup: false,
            memory_limits: Vec::new(),
            allowed: Allowed { cgroup: Some("/job".into()), ..Allowed::default() },
            full_disks: Vec::new(),
            exit,
        };
        run.failures.add_if_failed(&process(10, "main", exit));
        run
    }

    fn and(mut self, process: ProcessSummary) -> Self {
        self.failures.add_if_failed(&process);
        self
    }

    fn received(mut self, signal: i32, at_ns: u64, from: &str) -> Self {
        let words: Vec<_> = from.split(' ').map(str::to_owned).collect();
        self.signals.push(SignalReceived {
            signal,
            at_ns,
            sender: Sender { pid: Some(5), uid: 0, command: words.first().cloned() },
            sender_args: Some(words),
        });
        self
    }

    fn in_slurm_until(mut self, end_s: u64) -> Self {
        self.allowed.slurm.insert("SLURM_JOB_START_TIME".into(), "5000".into());
        self.allowed.slurm.insert("SLURM_JOB_END_TIME".into(), end_s.to_string());
        self
    }

    fn with_limit(mut self, cgroup: &str, mib: u64, hits: Option<u64>) -> Self {
        self.memory_limits.push(MemoryLimitUse {
            cgroup: cgroup.into(),
            limit_bytes: mib * MIB,
            hits,
            peak_bytes: Some(mib * MIB),
            is_peak_of_run: true,
        });
        self
    }

    /// The run ends in the second 9000 since the epoch.
    fn cause(&self) -> Option<Cause> {
        cause(&Evidence {
            exit: self.exit,
            span_ns: (START, END),
            ended_s: 9000.0,
            failures: &self.failures,
            signals: &self.signals,
            oom_kills: self.oom_kills,
            is_own_cgroup: self.is_own_cgroup,
            memory_limits: &self.memory_limits,
            allowed: &self.allowed,
            full_disks: &self.full_disks,
            gpus: &GpuUsage::default(),
        })
    }

    /// The cause in one line.
    fn said(&self) -> String {
        let name = |process: &DeadProcess| format!("{} {}", process.command, process.pid);
        let opt = |process: &Option<DeadProcess>| process.as_ref().map_or("none".into(), name);
        match self.cause() {
            None => "nothing".into(),
            // The limits of the run are looked at before; a run with GPUs is driven end to end.
            Some(Cause::Limit(cause)) => cause.limit,
            Some(Cause::GpuMemoryExhausted(cause)) => cause.device,
            Some(Cause::OutOfMemory(cause)) => {
                let certain = if cause.is_certain { "certainly" } else { "perhaps" };
                let limit =
                    cause.limit_bytes.map_or("no limit".into(), |bytes| format!("{} MiB", bytes / MIB));
                let group = cause.cgroup.unwrap_or_default();
                format!(
                    "oom: {certain} {}, {} kills, {limit} of {group}",
                    opt(&cause.process),
                    cause.oom_kills
                )
            }
            Some(Cause::CpuTimeLimit(cause)) => format!("cpu: {}, {:?}", name(&cause.process), cause.limit_s),
            Some(Cause::FileSizeLimit(cause)) => {
                format!("file size: {}, {:?}", name(&cause.process), cause.limit_bytes)
            }
            Some(Cause::TimeLimit(cause)) => {
                format!(
                    "time: {:?} {:?}, {} to {}",
                    cause.set_by,
                    cause.limit_s,
                    cause.signal_name,
                    opt(&cause.process)
                )
            }
            Some(Cause::AddressSpaceLimit(cause)) => {
                format!(
                    "address space: {}, {} of {}",
                    name(&cause.process),
                    cause.peak_bytes,
                    cause.limit_bytes
                )
            }
            Some(Cause::Signal(cause)) => {
                let sender = cause.sender.and_then(|sender| sender.command).unwrap_or("-".into());
                format!("signal: {} to {}, from {sender}", cause.signal_name, name(&cause.process))
            }
            Some(Cause::DiskFull(cause)) => format!("disk: {}", cause.path),
        }
    }
}

// Requirement: WHY-1, WHY-57
#[test]
fn command_that_succeeded_or_runs_has_no_cause() {
    for exit in [exited(0), Exit::default()] {
        let mut run = Run::ended(exit).and(process(11, "worker", killed(9)));
        run.oom_kills = Some(1);
        run.full_disks =
            vec![DiskFull { path: "/tmp".into(), role: DiskRole::Temporary, available_bytes: 0 }];
        assert_eq!(run.said(), "nothing");
    }
    assert_eq!(Run::ended(exited(1)).said(), "nothing", "it failed by itself");
}

// Requirement: WHY-2, WHY-51
#[test]
fn out_of_memory_needs_a_sigkill_and_a_count() {
    let oom = |kills, run: Run| Run { oom_kills: kills, ..run }.said();
    let worker = |pid| process(pid, "worker", killed(9));
    let shared = || Run::ended(exited(1)).and(worker(11)).with_limit("/job", 64, Some(3));
    let one = || Run { is_own_cgroup: true, ..shared() };
    assert_eq!(oom(Some(1), one()), "oom: certainly worker 11, 1 kills, 64 MiB of /job");
    assert_eq!(oom(Some(2), one()), "oom: certainly worker 11, 2 kills, 64 MiB of /job");
    let two = || one().and(worker(12)).and(worker(13));
    assert_eq!(oom(Some(1), two()), "oom: perhaps worker 13, 1 kills, 64 MiB of /job", "the largest");
    assert_eq!(oom(Some(3), two()), "oom: certainly worker 13, 3 kills, 64 MiB of /job");
    // The kill can have been of another job's process, and somebody can have killed this one.
    assert_eq!(oom(Some(1), shared()), "oom: perhaps worker 11, 1 kills, 64 MiB of /job");
    // The kernel killed nothing, or does not say; or it killed a process of another job.
    for kills in [Some(0), None] {
        assert_eq!(oom(kills, one()), "signal: SIGKILL to worker 11, from -");
    }
    assert_eq!(oom(Some(1), Run::ended(exited(1)).with_limit("/job", 64, Some(1))), "nothing");
    let own = Run { is_own_cgroup: true, ..Run::ended(exited(1)).with_limit("/job", 64, Some(1)) };
    assert_eq!(oom(Some(1), own), "oom: perhaps none, 1 kills, 64 MiB of /job");
}

// Requirement: WHY-2
#[test]
fn limit_that_was_hit_is_named() {
    let oom = |run: Run| Run { oom_kills: Some(1), ..run }.said();
    let run = || Run::ended(killed(9));
    let said = |limit| format!("oom: perhaps main 10, 1 kills, {limit}");
    let nested = run().with_limit("/job/step", 64, Some(0)).with_limit("/job", 99, Some(1));
    assert_eq!(oom(nested), said("99 MiB of /job"));
    let uncounted = run().with_limit("/job/step", 64, None).with_limit("/job", 99, None);
    assert_eq!(oom(uncounted), said("64 MiB of /job/step"));
    assert_eq!(oom(run().with_limit("/job/step", 64, Some(0))), said("no limit of /job"), "the machine");
    let mut unfilled = run().with_limit("/job/step", 64, None).with_limit("/job", 99, None);
    unfilled.memory_limits[0].peak_bytes = Some(57 * MIB);
    unfilled.memory_limits[1].peak_bytes = None;
    assert_eq!(oom(unfilled), said("99 MiB of /job"));
    assert_eq!(oom(run()), said("no limit of /job"));
}

// Requirement: WHY-4
#[test]
fn cpu_time_limit_is_known_by_sigxcpu_or_by_the_hard_limit() {
    let limited = |exit, limit_s, cpu_s: f64| {
        let mut process = process(11, "solve", exit);
        process.bounds.limits = ProcessLimits { cpu_s: limit_s, hard_cpu_s: limit_s, ..Default::default() };
        process.own_usage.usage = Usage { user_us: (cpu_s * 1e6) as u64, ..Usage::default() };
        Run::ended(exited(1)).and(process).said()
    };
    let xcpu = killed(libc::SIGXCPU);
    assert_eq!(limited(xcpu, Some(60), 60.01), "cpu: solve 11, Some(60)");
    assert_eq!(limited(xcpu, None, 60.01), "cpu: solve 11, None");
    assert_eq!(limited(killed(9), Some(60), 56.6), "cpu: solve 11, Some(60)");
    for (limit_s, cpu_s) in [(Some(60), 56.4), (Some(60), 63.6), (None, 60.0)] {
        assert_eq!(limited(killed(9), limit_s, cpu_s), "signal: SIGKILL to solve 11, from -", "{cpu_s}");
    }
    // A worker met its soft limit long before the command met its hard one.
    let mut worker = process(12, "worker", xcpu);
    worker.wall_ns = 10 * S;
    let mut solve = process(11, "solve", killed(9));
    solve.bounds.limits = ProcessLimits { hard_cpu_s: Some(60), ..Default::default() };
    solve.own_usage.usage = Usage { user_us: 60_000_000, ..Usage::default() };
    assert_eq!(Run::ended(exited(1)).and(worker).and(solve).said(), "cpu: solve 11, Some(60)");
}

// Requirement: WHY-10
#[test]
fn file_size_limit_is_known_by_its_signal() {
    for limit in [Some(4096), None] {
        let mut process = process(11, "dd", killed(libc::SIGXFSZ));
        process.bounds.limits = ProcessLimits { file_size_bytes: limit, ..Default::default() };
        assert_eq!(Run::ended(exited(1)).and(process).said(), format!("file size: dd 11, {limit:?}"));
    }
}

// Requirement: WHY-5
#[test]
fn timeout_outside_is_known_by_its_signal() {
    let term = killed(libc::SIGTERM);
    let run = |at_ns| Run::ended(term).received(libc::SIGTERM, at_ns, "timeout 60 gpu-track-run x");
    assert_eq!(run(END - 1).said(), "time: Timeout Some(60.0), SIGTERM to main 10");
    let long_ago = Run { exit: exited(1), ..run(END - 6 * S) };
    assert_eq!(long_ago.said(), "nothing", "the command went on");
    let handled = Run::ended(exited(3)).received(libc::SIGTERM, END - S, "timeout 60 gpu-track-run x");
    assert_eq!(handled.said(), "time: Timeout Some(60.0), SIGTERM to main 10");
}

// Requirement: WHY-5
#[test]
fn timeout_inside_is_known_by_its_status_and_its_time() {
    let timeout = |args: Option<&str>, code| {
        let mut timeout = process(11, "timeout", exited(code));
        timeout.name.args = args.map(|args| args.split(' ').map(str::to_owned).collect());
        timeout
    };
    let mut child = process(12, "sleep", killed(libc::SIGTERM));
    child.parent_pid = Some(11);
    let run = |args, code| Run::ended(exited(124)).and(child.clone()).and(timeout(args, code)).said();
    assert_eq!(run(Some("timeout 60 sleep 99"), 124), "time: Timeout Some(60.0), SIGTERM to sleep 12");
    assert_eq!(run(None, 124), "time: Timeout None, SIGTERM to sleep 12");
    // Its command exited with that status itself, before the limit.
    assert_eq!(run(Some("timeout 61 sleep 99"), 124), "nothing");
    assert_eq!(run(Some("timeout 60 sleep 99"), 1), "nothing");
    let killed = |args| {
        let timeout = ProcessSummary { exit: killed(9), ..timeout(Some(args), 0) };
        Run::ended(exited(1)).and(timeout).said()
    };
    assert_eq!(killed("timeout -s KILL 60 x"), "time: Timeout Some(60.0), SIGKILL to none");
    for args in ["timeout -s KILL 61 x", "timeout 60 x"] {
        assert_eq!(killed(args), "signal: SIGKILL to timeout 11, from -", "by another process");
    }
    let mut other = timeout(Some("timeout -s KILL 5 x"), 137);
    other.name.command = Arc::from("sh");
    assert_eq!(Run::ended(exited(1)).and(other).said(), "nothing");
}

// Requirement: WHY-5
#[test]
fn slurm_ends_a_job_at_its_end_time() {
    let run = |end_s| {
        Run::ended(killed(libc::SIGTERM))
            .received(libc::SIGTERM, END - S, "slurmstepd:")
            .in_slurm_until(end_s)
    };
    // The signal comes in the second 8999.
    for end_s in [8600, 8999, 9000] {
        let limit_s = (end_s - 5000) as f64;
        assert_eq!(run(end_s).said(), format!("time: Slurm Some({limit_s:?}), SIGTERM to main 10"));
    }
    assert_eq!(run(9001).said(), "signal: SIGTERM to main 10, from slurmstepd:", "scancel");
}

// Requirement: WHY-3, WHY-53
#[test]
fn failed_process_near_its_address_space_is_named() {
    let run = |exit, limit: Option<u64>, peak: u64| {
        let mut process = process(11, "solve", exit);
        process.bounds.limits.address_space_bytes = limit;
        process.bounds.peak_virtual_bytes = peak;
        Run::ended(exited(1)).and(process).said()
    };
    for exit in [exited(1), killed(libc::SIGABRT), killed(libc::SIGSEGV)] {
        assert_eq!(run(exit, Some(1000), 900), "address space: solve 11, 900 of 1000", "{exit:?}");
    }
    assert_eq!(run(exited(1), Some(1000), 899), "nothing");
    assert_eq!(run(exited(1), None, 899), "nothing");
    assert_eq!(run(exited(0), Some(1000), 999), "nothing", "it did not fail");
    assert_eq!(run(killed(libc::SIGTERM), Some(1000), 999), "nothing", "it was ended from outside");
}

// Requirement: WHY-6
#[test]
fn signal_of_the_command_or_of_a_process_before_its_failure_is_named() {
    let child = |signal, end_ns: u64| {
        let mut process = process(11, "child", killed(signal));
        process.wall_ns = end_ns - START;
        process
    };
    let segv = libc::SIGSEGV;
    assert_eq!(Run::ended(killed(segv)).said(), "signal: SIGSEGV to main 10, from -");
    let sent = Run::ended(killed(libc::SIGTERM)).received(libc::SIGTERM, END - 1, "sh");
    assert_eq!(sent.said(), "signal: SIGTERM to main 10, from sh");
    let in_child = "signal: SIGSEGV to child 11, from -";
    assert_eq!(Run::ended(exited(139)).and(child(segv, START + S)).said(), in_child, "as a shell has it");
    assert_eq!(Run::ended(exited(2)).and(child(segv, END - S)).said(), in_child);
    assert_eq!(Run::ended(exited(2)).and(child(segv, END - 6 * S)).said(), "nothing", "long before");
    assert_eq!(Run::ended(exited(2)).and(child(libc::SIGPIPE, END)).said(), "nothing", "no failure");
    // A debugger's probe of ptrace(2), made and killed at once.
    let mut probe = child(libc::SIGKILL, START + 4_000_000);
    probe.start_ns = END - S;
    assert_eq!(Run::ended(exited(2)).and(probe.clone()).said(), "nothing");
    assert_eq!(Run::ended(exited(137)).and(probe.clone()).said(), "signal: SIGKILL to child 11, from -");
    let worker = process(12, "worker", killed(9));
    let after = Run::ended(exited(2)).and(worker).and(probe).said();
    assert_eq!(after, "signal: SIGKILL to worker 12, from -");
    let crashed = ProcessSummary { start_ns: END - S, ..child(segv, START + 4_000_000) };
    assert_eq!(Run::ended(exited(2)).and(crashed).said(), in_child);
    let both = Run::ended(exited(2)).and(child(segv, END - S)).and(process(12, "last", killed(6)));
    assert_eq!(both.said(), "signal: SIGABRT to last 12, from -");
    let continued = Run::ended(exited(3)).received(libc::SIGCONT, END - S, "slurmstepd:");
    assert_eq!(continued.said(), "nothing", "it ends no process");
    let handled = continued.received(libc::SIGTERM, END - S, "slurmstepd:");
    assert_eq!(handled.said(), "signal: SIGTERM to main 10, from slurmstepd:");
}

// Requirement: WHY-7
#[test]
fn full_disk_is_named_where_nothing_else_is() {
    let full = || vec![DiskFull { path: "/scratch".into(), role: DiskRole::Working, available_bytes: 7 }];
    assert_eq!(Run { full_disks: full(), ..Run::ended(exited(1)) }.said(), "disk: /scratch");
    let fault = Run { full_disks: full(), ..Run::ended(killed(libc::SIGBUS)) };
    assert_eq!(fault.said(), "signal: SIGBUS to main 10, from -");
}

// Requirement: WHY-8
#[test]
fn failed_processes_take_no_more_memory_than_a_few() {
    let mut failures = Failures::default();
    for pid in 10..10_000 {
        failures.add_if_failed(&process(pid, "worker", killed(9)));
        failures.add_if_failed(&process(pid, "timeout", exited(124)));
    }
    let killed = failures.by_signal.get(&9).unwrap();
    assert_eq!((killed.count, killed.last.len(), failures.timed_out.len()), (9990, 4, 4));
    assert_eq!(killed.largest.as_ref().unwrap().ids.pid(), 9999);
}

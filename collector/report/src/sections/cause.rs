//! What ended the command, in words: a title for the first line, and the evidence.

use crate::command_line;
use crate::figures::{bytes, exit};
use crate::model::counts_in_words;
use crate::model::report::{
    AddressSpaceLimit, Cause, CpuTimeLimit, DeadProcess, DiskFull, DiskRole, Enforcer, FatalSignal,
    FileSizeLimit, GpuHolder, GpuMemoryExhausted, LimitExceeded, OutOfMemory, TimeLimit, TimeLimitSource,
};
use crate::model::signal::Sender;
use crate::quote;
use crate::rules_in_words::{figure, held_most, limit_title, with_unit};
use crate::units::Units;

/// Columns of a command in the evidence.
const COMMAND: usize = 40;

/// A title in capitals, for the first line. `None`: the way that the command ended says it all.
pub(crate) fn title(cause: &Cause) -> Option<&'static str> {
    match cause {
        Cause::Limit(end) => Some(limit_title(end.quantity)),
        Cause::OutOfMemory(_) => Some("OUT OF MEMORY"),
        Cause::AddressSpaceLimit(_) => Some("ADDRESS SPACE LIMIT"),
        Cause::CpuTimeLimit(_) => Some("CPU TIME LIMIT"),
        Cause::FileSizeLimit(_) => Some("FILE SIZE LIMIT"),
        Cause::TimeLimit(_) => Some("TIME LIMIT"),
        Cause::GpuMemoryExhausted(_) => Some("GPU MEMORY EXHAUSTED"),
        Cause::Signal(_) => None,
        Cause::DiskFull(_) => Some("DISK FULL"),
    }
}

/// The evidence in a sentence. `None`: the way that the command ended says it all.
pub(crate) fn evidence(cause: &Cause, units: Units) -> Option<String> {
    match cause {
        Cause::Limit(end) => Some(limit(end, units)),
        Cause::OutOfMemory(shortage) => Some(out_of_memory(shortage, units)),
        Cause::AddressSpaceLimit(end) => Some(address_space_limit(end, units)),
        Cause::CpuTimeLimit(end) => Some(cpu_time_limit(end, units)),
        Cause::FileSizeLimit(end) => Some(file_size_limit(end)),
        Cause::TimeLimit(end) => Some(time_limit(end, units)),
        Cause::GpuMemoryExhausted(end) => Some(gpu_memory(end, units)),
        Cause::Signal(end) => signal(end),
        Cause::DiskFull(disk) => Some(disk_full(disk)),
    }
}

/// Says how near to its ulimit the address space of a process was, and how the process ended.
fn address_space_limit(end: &AddressSpaceLimit, units: Units) -> String {
    format!(
        "{} ended with {} when its address space was {}; its limit (ulimit -v) is {}",
        process(&end.process),
        ended(&end.process),
        units.bytes(end.peak_bytes),
        units.bytes(end.limit_bytes)
    )
}

/// Says which process ended at its ulimit of CPU time.
fn cpu_time_limit(end: &CpuTimeLimit, units: Units) -> String {
    let used = end.process.cpu_s.map(|s| format!(" after {} of CPU time", units.seconds(s)));
    let limit = end.limit_s.map(|s| format!("; its limit (ulimit -t) is {}", units.seconds(s as f64)));
    format!(
        "{} ended {}{}{}",
        ended(&end.process),
        process(&end.process),
        used.unwrap_or_default(),
        limit.unwrap_or_default()
    )
}

/// Says which process ended because it wrote a file beyond its ulimit.
fn file_size_limit(end: &FileSizeLimit) -> String {
    let limit = end.limit_bytes.map(|size| format!(" is {}", bytes(size)));
    format!(
        "{} ended {}: it wrote beyond the largest size of a file; its limit (ulimit -f){}",
        ended(&end.process),
        process(&end.process),
        limit.unwrap_or_else(|| " is not known".to_owned())
    )
}

/// Says which signal ended the command, or one of its processes, at a limit of wall time, and what set the limit.
fn time_limit(end: &TimeLimit, units: Units) -> String {
    let victim = end.process.as_ref().map_or_else(|| "the command".to_owned(), process);
    let whose = match end.set_by {
        TimeLimitSource::Slurm => "the time limit of the Slurm job",
        TimeLimitSource::Timeout => "the time limit of timeout",
    };
    let limit = end.limit_s.map(|s| format!(", {}", units.seconds(s))).unwrap_or_default();
    format!("{} ended {victim} at {whose}{limit}", end.signal_name)
}

/// Says which signal ended a process, and which process sent it. `None`: it ended the main process, which the headline says, and the
/// sender is not known.
fn signal(end: &FatalSignal) -> Option<String> {
    let sender = end.sender.as_ref().map(|from| format!("; {} sent it", sender(from)));
    if end.process.is_main && sender.is_none() {
        return None;
    }
    Some(format!("{} ended {}{}", end.signal_name, process(&end.process), sender.unwrap_or_default()))
}

/// Says how little space a disk has left, and what the command had there.
fn disk_full(disk: &DiskFull) -> String {
    let role = match disk.role {
        DiskRole::Working => "the working directory",
        DiskRole::Temporary => "the directory for temporary files",
        DiskRole::Report => "the directory of the report",
    };
    format!("the disk of {} ({role}) has {} left", disk.path, bytes(disk.available_bytes))
}

/// Says which GPU had no free memory, and which processes held it.
fn gpu_memory(end: &GpuMemoryExhausted, units: Units) -> String {
    let holder = |holder: &GpuHolder| {
        let command = quote::cut(&holder.command, COMMAND);
        format!("pid {} ({command}) {}", holder.pid, units.gpu_bytes(holder.bytes))
    };
    let holders: Vec<_> = end.holders.iter().map(holder).collect();
    format!(
        "{} of {} on {} were in use {}: {}",
        units.gpu_bytes(end.used_bytes),
        units.gpu_bytes(end.total_bytes),
        end.device,
        units.after_the_start(end.at_s),
        holders.join(", ")
    )
}

/// Says which limit of the run was exceeded, when and by how much, which process held most, and what ended the tree.
fn limit(end: &LimitExceeded, units: Units) -> String {
    let amount = with_unit(end.amount, Some(end.unit), Some(units));
    let excess = match end.enforced_by {
        Enforcer::Kernel => format!("the kernel charged {amount}"),
        Enforcer::Timer | Enforcer::Samples => figure(end.quantity, end.unit, &amount),
    };
    let at = end.at_s.map(|at_s| format!(" {}", units.after_the_start(at_s))).unwrap_or_default();
    let over = end.overshoot_bytes.filter(|bytes| *bytes > 0);
    let over =
        over.map(|bytes| format!(", up to {} more than allowed", units.bytes(bytes))).unwrap_or_default();
    let held = end.process.as_ref().map(|process| held_most(process, |bytes| units.bytes(bytes)));
    let how = match (end.enforced_by, end.was_killed) {
        (Enforcer::Kernel, _) => "; the kernel killed all processes",
        (_, Some(true)) => "; SIGTERM, then SIGKILL ended all processes",
        (_, Some(false)) => "; SIGTERM ended all processes",
        (_, None) => "",
    };
    // Processes that could not be ended.
    let left = end.left.filter(|left| *left > 0);
    let left = left.map(|left| format!(", but for {}", counts_in_words::processes(left.into())));
    format!(
        "limit {}: {excess}{at}{over}{}{how}{}",
        end.limit,
        held.unwrap_or_default(),
        left.unwrap_or_default()
    )
}

/// Says which process the kernel killed for lack of memory, and whose limit that was.
fn out_of_memory(shortage: &OutOfMemory, units: Units) -> String {
    let limit = match (&shortage.cgroup, shortage.limit_bytes) {
        (Some(cgroup), Some(limit)) => format!("; the limit of cgroup {cgroup} is {}", units.bytes(limit)),
        (None, Some(limit)) => format!("; the limit is {}", units.bytes(limit)),
        (_, None) => "; no limit applies, so the machine was out of memory".to_owned(),
    };
    let at = |process: &DeadProcess| {
        process.peak_rss_bytes.map(|peak| format!(" at {}", units.bytes(peak))).unwrap_or_default()
    };
    match &shortage.process {
        Some(killed) if shortage.is_certain => {
            format!("the kernel killed {}{}{limit}", process(killed), at(killed))
        }
        Some(killed) => format!(
            "SIGKILL ended {}{}, and the kernel killed {} for lack of memory{limit}",
            process(killed),
            at(killed),
            counts_in_words::processes(shortage.oom_kills)
        ),
        None => format!(
            "the kernel killed {} for lack of memory{limit}",
            counts_in_words::processes(shortage.oom_kills)
        ),
    }
}

/// Names a process: `pid 4242 (python3 train.py)`.
fn process(process: &DeadProcess) -> String {
    let command = command_line::process(process.args.as_deref(), &process.command, COMMAND);
    format!("pid {} ({})", process.pid, quote::cut(&command, COMMAND))
}

/// Says how a process ended: `SIGKILL`, or `exit 1`.
fn ended(process: &DeadProcess) -> String {
    match process.exit.code {
        Some(code) => format!("exit {code}"),
        None => exit(process.exit),
    }
}

/// Names the process that sent a signal: `pid 7 (timeout) of user 1000`.
fn sender(sender: &Sender) -> String {
    match (sender.pid, &sender.command) {
        (Some(pid), Some(command)) => format!("pid {pid} ({command}) of user {}", sender.uid),
        _ => format!("a process of user {}", sender.uid),
    }
}

//! `gpu-track doctor`: what this machine lets a run see. Most of it is read from the report of a short run, so it is what runs get.

use std::fmt::Write as _;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use gpu_track_collector::kept::directory;
use gpu_track_collector::model::gpu::GpuConfig;
use gpu_track_collector::model::gpu::listing::Listing;
use gpu_track_collector::model::kernel_errors::without_numbers;
use gpu_track_collector::model::report::{CoresSource, MemorySource, Report};
use gpu_track_collector::report::figures::{bytes, short};
use gpu_track_collector::report::quote;
use gpu_track_collector::report::read::read as read_report;
use rustix::fs::{Access, StatVfsMountFlags, access, statvfs};

use super::gpu_list;
use crate::console;
use crate::keep;

/// Columns of a finding's name.
const NAME: usize = 11;
/// Columns of its state.
const STATE: usize = 5;
/// The kernel's list of what waited for CPUs.
const PRESSURE: &str = "/proc/pressure/cpu";
/// Where Docker's daemon listens.
const DOCKER: &str = "/run/docker.sock";
/// What a run takes of /dev/shm at least, bytes.
const SEGMENT_BYTES: u64 = 1 << 20;

/// How well something works.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// It works.
    Ok,
    /// It does not, and a run lacks something.
    No,
    /// It is for information.
    Info,
}

/// Something that a run needs or can use.
struct DoctorFinding {
    name: &'static str,
    state: State,
    /// What was found, what it means for a run, and what to do.
    words: String,
}

/// Looks at what a run can see here, and prints a line for each finding. Fails if programs can't be tracked.
pub(super) fn serve() -> ExitCode {
    let report = short_run();
    let findings = findings(report.as_ref());
    let is_tracked = findings.iter().all(|finding| finding.name != TRACKING || finding.state == State::Ok);
    let printed = console::print(&text(&findings, console::of_stdout().columns.into()));
    if is_tracked { printed } else { ExitCode::FAILURE }
}

/// The name of the finding that decides about the exit status.
const TRACKING: &str = "tracking";

/// Tracks this program, which prints its version, in a cgroup of its own. Gives the report, or why there is none.
fn short_run() -> Result<Report, String> {
    let own = "/proc/self/exe";
    let options = ["-q", "-f", "json", "-o", "-", "--cgroup", "--", own, "--version"];
    let output = Command::new(own).arg0("gpu-track-run").args(options).stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("gpu-track-run does not start: {error}"))?;
    // The version comes before the report.
    let text = String::from_utf8_lossy(&output.stdout);
    let json = text.find('{').map_or("", |at| &text[at..]);
    let read = read_report(json).map_err(|_| String::from_utf8_lossy(&output.stderr).trim().to_owned())?;
    Ok(read.report)
}

/// What was found, the most important first.
fn findings(report: Result<&Report, &String>) -> Vec<DoctorFinding> {
    let mut all = vec![tracking(report), shared_memory()];
    if let Ok(report) = report {
        // A run that was not tracked did not try these.
        if report.coverage.untracked_reason.is_none() {
            all.extend([connector(report), cgroup(report)]);
        }
        all.extend([memory(report), cores(report)]);
    }
    all.extend([
        pressure(),
        gpus(&gpu_list::list_once(&GpuConfig::default()).map_err(|error| error.to_string())),
    ]);
    all.extend(docker());
    all.push(kept());
    all.push(machine());
    all
}

fn finding(name: &'static str, is_ok: bool, words: impl Into<String>) -> DoctorFinding {
    DoctorFinding { name, state: if is_ok { State::Ok } else { State::No }, words: words.into() }
}

fn information(name: &'static str, words: impl Into<String>) -> DoctorFinding {
    DoctorFinding { name, state: State::Info, words: words.into() }
}

/// Whether a program loads the shim and is counted exactly.
fn tracking(report: Result<&Report, &String>) -> DoctorFinding {
    match report {
        Ok(report) if report.coverage.layers.preload == Some(1) => {
            finding(TRACKING, true, "a program loads the shim, and its CPU time and peak are exact")
        }
        Ok(report) => {
            let coverage = &report.coverage;
            let reason = coverage.untracked_reason.as_ref().or(coverage.uncounted_reason.as_ref());
            let reason = reason.map_or("a program does not load the shim", String::as_str);
            finding(TRACKING, false, format!("{reason}: only samples see programs"))
        }
        Err(problem) => finding(TRACKING, false, format!("no report: {problem}")),
    }
}

/// Whether there is room for the records of a run.
fn shared_memory() -> DoctorFinding {
    let directory = "/dev/shm";
    match statvfs(directory) {
        Ok(found) => {
            let free = found.f_bavail.saturating_mul(found.f_frsize);
            let problem = match free < SEGMENT_BYTES {
                _ if found.f_flag.contains(StatVfsMountFlags::RDONLY) => ", but it can only be read",
                true => {
                    ": too little for a run; make room, or give a container more (docker run --shm-size=64m)"
                }
                false => "",
            };
            finding(directory, problem.is_empty(), format!("{} free{problem}", bytes(free)))
        }
        Err(error) => {
            finding(directory, false, format!("{error}: runs can't be tracked; mount a tmpfs there"))
        }
    }
}

/// Whether the kernel tells of programs that do not load the shim.
fn connector(report: &Report) -> DoctorFinding {
    const NAME: &str = "connector";
    match &report.coverage.connector_absent {
        None => finding(NAME, true, "the kernel tells of static and setuid programs, too"),
        Some(reason) => finding(
            NAME,
            false,
            format!(
                "{reason}: short children of static and setuid programs are not seen; root has it, or any user on Linux 6.6, \
                 outside of most containers"
            ),
        ),
    }
}

/// Whether a cgroup can be made for a command.
fn cgroup(report: &Report) -> DoctorFinding {
    const NAME: &str = "cgroup";
    match report.cgroup.as_ref().map(|cgroup| &cgroup.reason) {
        Some(None) => finding(NAME, true, "--cgroup has the kernel's own figures of a command"),
        Some(Some(reason)) => finding(
            NAME,
            false,
            format!("{reason}: --cgroup lacks figures; systemd-run --user --scope delegates one"),
        ),
        None => finding(NAME, false, "--cgroup can't be used"),
    }
}

/// How much memory a command may use.
fn memory(report: &Report) -> DoctorFinding {
    let memory = &report.usable.memory;
    let whose = match memory.source {
        Some(MemorySource::Cgroup) => "the limit of the cgroup",
        Some(MemorySource::Slurm) => "what Slurm gave",
        Some(MemorySource::Machine) | None => "all of the machine",
    };
    let amount = memory.bytes.map_or("unknown".to_owned(), bytes);
    let note = match memory.source {
        Some(MemorySource::Cgroup) => "; page cache counts for it, and is not in RAM figures",
        _ => "",
    };
    information("memory", format!("{amount}, {whose}{note}"))
}

/// How many cores a command may use.
fn cores(report: &Report) -> DoctorFinding {
    let whose = match report.usable.cores.source {
        CoresSource::NExpectedCores => "as expected",
        CoresSource::Affinity => "by the affinity mask",
        CoresSource::CgroupQuota => "by the quota of the cgroup",
        CoresSource::Slurm => "by Slurm",
        CoresSource::Machine => "all of the machine",
    };
    information("cores", format!("{}, {whose}", short(report.usable.cores.count)))
}

/// Whether the kernel tells how long processes waited for a CPU.
fn pressure() -> DoctorFinding {
    match fs::read(PRESSURE) {
        Ok(_) => finding("pressure", true, "the kernel tells when processes of the machine wait for a CPU"),
        Err(error) => finding(
            "pressure",
            false,
            format!(
                "{PRESSURE}: {error}: a report does not say how long others kept the run waiting; boot with psi=1"
            ),
        ),
    }
}

/// Which GPUs can be read.
fn gpus(listing: &Result<Listing, String>) -> DoctorFinding {
    const NAME: &str = "GPUs";
    match listing {
        Err(problem) => finding(NAME, false, problem.clone()),
        Ok(listing) => {
            let failed = listing.drivers.iter().map(|driver| format!("{}: {}", driver.name, driver.reason));
            let problems: Vec<String> = failed.chain(listing.warnings.iter().cloned()).collect();
            let names = listing.gpus.iter().map(|gpu| gpu.device.name.as_deref().unwrap_or("?"));
            let names: Vec<&str> = names.take(3).collect();
            match (listing.count, &problems[..]) {
                (Some(0), []) => information(NAME, "none, and no driver"),
                (Some(count), []) => finding(
                    NAME,
                    true,
                    format!("{count}: {}; gpu-track-run --gpus has their figures", names.join(", ")),
                ),
                _ => finding(NAME, false, problems.join("; ")),
            }
        }
    }
}

/// Whether containers are started by a daemon here. `None`: Docker is not there.
fn docker() -> Option<DoctorFinding> {
    let problem = match fs::metadata(DOCKER) {
        Err(error) if error.kind() == ErrorKind::NotFound => return None,
        _ => "a daemon starts containers, so they are not in the command's tree",
    };
    Some(information("docker", format!("{problem}: run gpu-track-run inside the container")))
}

/// Where reports are kept.
fn kept() -> DoctorFinding {
    const NAME: &str = "kept";
    let Some(keep) = keep::of_user(&keep::own_variable) else {
        return finding(
            NAME,
            false,
            "neither XDG_STATE_HOME nor HOME names a directory: gpu-track report needs a FILE",
        );
    };
    let can_be_made = keep.directory.ancestors().find(|path| path.exists());
    let is_writable = can_be_made.is_some_and(|path| access(path, Access::WRITE_OK).is_ok());
    match directory::newest(&keep) {
        Ok(_) if !is_writable => {
            let directory = keep.directory.display();
            finding(NAME, false, format!("{directory} can't be written: gpu-track report needs a FILE"))
        }
        Ok(_) => {
            finding(NAME, true, format!("reports of runs on a terminal are in {}", keep.directory.display()))
        }
        Err(error) => finding(NAME, false, format!("{}: {error}", keep.directory.display())),
    }
}

/// Which program and kernel this is.
fn machine() -> DoctorFinding {
    let uname = rustix::system::uname();
    let kernel = uname.release().to_string_lossy();
    let container = ["/.dockerenv", "/run/.containerenv"].iter().any(|file| Path::new(file).exists());
    let container = if container { ", in a container" } else { "" };
    information("program", format!("gpu-track {}, Linux {kernel}{container}", env!("CARGO_PKG_VERSION")))
}

/// Writes findings, a line for each that is not longer than `columns`, and lines after it for the rest of its words.
fn text(findings: &[DoctorFinding], columns: usize) -> String {
    let room = columns.saturating_sub(NAME + STATE).max(40);
    let mut out = String::new();
    for DoctorFinding { name, state, words } in findings {
        let state = match state {
            State::Ok => "ok",
            State::No => "no",
            State::Info => "",
        };
        let words = without_numbers(words);
        for (at, line) in quote::wrap(quote::escape(&words).split_whitespace(), room).iter().enumerate() {
            let (name, state) = if at == 0 { (*name, state) } else { ("", "") };
            let _infallible = writeln!(out, "{name:NAME$}{state:STATE$}{line}");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_finding_has_its_state_and_words_within_the_columns() {
        let long = "word ".repeat(30);
        let all = [finding("a", true, "fine"), finding("b", false, long), information("c", "x\x1b")];
        let shown = text(&all, 60);
        let lines: Vec<&str> = shown.lines().collect();
        assert_eq!(lines[0], "a          ok   fine");
        assert!(
            lines[1].starts_with("b          no   word word") && lines.iter().all(|line| line.len() <= 60)
        );
        assert_eq!(*lines.last().unwrap(), "c               x\\x1b");
    }

    #[test]
    fn run_without_a_report_is_a_failure_with_its_reason() {
        let problem = "no memory".to_owned();
        let found = tracking(Err(&problem));
        assert!(found.state == State::No && found.words == "no report: no memory");
    }
}

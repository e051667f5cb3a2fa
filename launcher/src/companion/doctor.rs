//! `gpu-track doctor`: what this machine lets a run see. Most of it is read from the report of a short run, so it is what runs get.

use std::fmt::Write as _;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use gpu_track_collector::kept::directory;
use gpu_track_collector::model::gpu::GpuConfig;
use gpu_track_collector::model::gpu::listing::{Driver, Listing};
use gpu_track_collector::model::gpu_query::whole;
use gpu_track_collector::model::kernel_errors::without_numbers;
use gpu_track_collector::model::report::{CoresSource, MemorySource, Report};
use gpu_track_collector::report::figures::{bytes, short};
use gpu_track_collector::report::quote;
use gpu_track_collector::report::read::read as read_report;
use rustix::fs::{Access, StatVfsMountFlags, access, statvfs};

use super::gpu_list;
use crate::{console, keep, nvml_lib};

/// Columns of a finding's name.
const NAME: usize = 11;
/// Columns of its state.
const STATE: usize = 5;
/// Where the kernel says how long processes waited for CPUs (PSI).
const PRESSURE: &str = "/proc/pressure/cpu";
/// Where Docker's daemon listens.
const DOCKER: &str = "/run/docker.sock";
/// Where the records of runs are, and the name of that finding.
const SHARED_MEMORY: &str = "/dev/shm";
/// What a run needs there at least, bytes.
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

/// What was found of something that a run needs or can use.
struct DoctorFinding {
    name: &'static str,
    state: State,
    /// What was found, what it means for a run, and what to do.
    words: String,
}

/// What a check found: `Ok` if it works, `Err` if it does not. Both say what that means for a run.
type Checked = Result<String, String>;

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

/// Tracks this program, which prints its version, in a cgroup of its own. Returns the report, or why there is none.
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

/// Makes all findings, the most important first. `report`: that of the short run, or why there is none.
fn findings(report: Result<&Report, &String>) -> Vec<DoctorFinding> {
    let mut all = vec![finding(TRACKING, tracking(report)), finding(SHARED_MEMORY, shared_memory())];
    if let Ok(report) = report {
        // A run that was not tracked did not try these.
        if report.coverage.untracked_reason.is_none() {
            all.extend([finding("connector", connector(report)), finding("cgroup", cgroup(report))]);
        }
        all.extend([information("memory", memory(report)), information("cores", cores(report))]);
    }
    all.push(finding("pressure", pressure()));
    let mut ignored = Vec::new();
    let config = nvml_lib::with_environment(&GpuConfig::default(), &mut ignored);
    let listing = gpu_list::list_once(&config).map_err(|error| error.to_string());
    all.push(gpus(&listing.map(|listing| Listing {
        warnings: ignored.into_iter().chain(listing.warnings).collect(),
        ..listing
    })));
    all.extend(docker().map(|words| information("docker", words)));
    all.extend([finding("kept", kept()), information("program", machine())]);
    all
}

fn finding(name: &'static str, checked: Checked) -> DoctorFinding {
    let state = if checked.is_ok() { State::Ok } else { State::No };
    DoctorFinding { name, state, words: checked.unwrap_or_else(|words| words) }
}

fn information(name: &'static str, words: String) -> DoctorFinding {
    DoctorFinding { name, state: State::Info, words }
}

/// Whether a program loads the shim and is counted exactly. The short run has one process, which the preload layer must have found.
fn tracking(report: Result<&Report, &String>) -> Checked {
    let coverage = &report.map_err(|problem| format!("no report: {problem}"))?.coverage;
    if coverage.layers.preload == Some(1) {
        return Ok("a program loads the shim, and its CPU time and peak are exact".into());
    }
    let reason = coverage.untracked_reason.as_ref().or(coverage.uncounted_reason.as_ref());
    let reason = reason.map_or("a program does not load the shim", String::as_str);
    Err(format!("{reason}: only samples see programs"))
}

/// Whether there is room for the records of a run.
fn shared_memory() -> Checked {
    let found = statvfs(SHARED_MEMORY)
        .map_err(|error| format!("{error}: runs can't be tracked; mount a tmpfs there"))?;
    let free_bytes = found.f_bavail.saturating_mul(found.f_frsize);
    let free = format!("{} free", bytes(free_bytes));
    if found.f_flag.contains(StatVfsMountFlags::RDONLY) {
        Err(format!("{free}, but it can only be read"))
    } else if free_bytes < SEGMENT_BYTES {
        Err(format!(
            "{free}: too little for a run; make room, or give a container more (docker run --shm-size=64m)"
        ))
    } else {
        Ok(free)
    }
}

/// Whether the kernel tells of programs that do not load the shim.
fn connector(report: &Report) -> Checked {
    match &report.coverage.connector_absent {
        None => Ok("the kernel tells of static and setuid programs, too".into()),
        Some(reason) => Err(format!(
            "{reason}: short children of static and setuid programs are not seen; root has it, or any user on Linux 6.6, \
             outside of most containers"
        )),
    }
}

/// Whether a cgroup can be made for a command.
fn cgroup(report: &Report) -> Checked {
    match report.cgroup.as_ref().map(|cgroup| &cgroup.reason) {
        Some(None) => Ok("--cgroup has the kernel's own figures of a command".into()),
        Some(Some(reason)) => {
            Err(format!("{reason}: --cgroup lacks figures; systemd-run --user --scope delegates one"))
        }
        None => Err("--cgroup can't be used".into()),
    }
}

/// How much memory a command may use.
fn memory(report: &Report) -> String {
    let memory = &report.usable.memory;
    let whose = match memory.source {
        Some(MemorySource::Cgroup) => {
            "the limit of the cgroup; page cache counts for it, and is not in RAM figures"
        }
        Some(MemorySource::Slurm) => "what Slurm gave",
        Some(MemorySource::Machine) | None => "all of the machine",
    };
    format!("{}, {whose}", memory.bytes.map_or("unknown".to_owned(), bytes))
}

/// How many cores a command may use.
fn cores(report: &Report) -> String {
    let whose = match report.usable.cores.source {
        CoresSource::NExpectedCores => "as expected",
        CoresSource::Affinity => "by the affinity mask",
        CoresSource::CgroupQuota => "by the quota of the cgroup",
        CoresSource::Slurm => "by Slurm",
        CoresSource::BatchSlots => "by the slots of the batch job",
        CoresSource::Machine => "all of the machine",
    };
    format!("{}, {whose}", short(report.usable.cores.count))
}

/// Whether the kernel tells how long processes waited for a CPU.
fn pressure() -> Checked {
    let told =
        fs::read(PRESSURE).map(|_| "the kernel tells when processes of the machine wait for a CPU".into());
    told.map_err(|error| {
        format!(
            "{PRESSURE}: {error}: a report does not say how long others kept the run waiting; boot with psi=1"
        )
    })
}

/// Which GPUs can be read.
fn gpus(listing: &Result<Listing, String>) -> DoctorFinding {
    const NAME: &str = "GPUs";
    /// So many have their names told.
    const NAMED: usize = 3;
    let listing = match listing {
        Ok(listing) => listing,
        Err(problem) => return finding(NAME, Err(problem.clone())),
    };
    let failed = listing.drivers.iter().map(Driver::to_string);
    let problems: Vec<String> = failed.chain(listing.warnings.iter().cloned()).collect();
    let gpus = whole(listing);
    if listing.drivers.is_empty() && !gpus.is_empty() {
        let names = gpus.iter().map(|gpu| gpu.device.name.as_deref().unwrap_or("?"));
        let more = (gpus.len() > NAMED).then_some("...");
        let names: Vec<&str> = names.take(NAMED).chain(more).collect();
        let figures = "gpu-track-run --gpus has their figures".to_owned();
        let words = format!("{}: {}", gpus.len(), names.join(", "));
        let words: Vec<String> = [words, figures].into_iter().chain(problems).collect();
        return finding(NAME, Ok(words.join("; ")));
    }
    match &problems[..] {
        [] => information(NAME, "none, and no driver".into()),
        problems => finding(NAME, Err(problems.join("; "))),
    }
}

/// Says that a daemon starts containers here. `None`: Docker is not there.
fn docker() -> Option<String> {
    let is_missing = fs::metadata(DOCKER).is_err_and(|error| error.kind() == ErrorKind::NotFound);
    let problem = "a daemon starts containers, so they are not in the command's tree";
    (!is_missing).then(|| format!("{problem}: run gpu-track-run inside the container"))
}

/// Where reports are kept.
fn kept() -> Checked {
    let keep = keep::of_user(&keep::own_variable)
        .ok_or("neither XDG_STATE_HOME nor HOME names a directory: gpu-track report needs a FILE")?;
    let path = keep.directory.display();
    if !keep.home.is_dir() {
        return Err(format!("{} is missing: gpu-track report needs a FILE", keep.home.display()));
    }
    // Reads the directory as `gpu-track report` does. Only whether that works matters here.
    directory::newest(&keep).map_err(|error| format!("{path}: {error}"))?;
    // A missing directory is created with the first report that is kept. So the nearest existing one above it must be writable.
    let nearest = keep.directory.ancestors().find(|path| path.exists());
    match nearest.is_some_and(|path| access(path, Access::WRITE_OK).is_ok()) {
        true => Ok(format!("reports of runs on a terminal are in {path}")),
        false => Err(format!("{path} can't be written: gpu-track report needs a FILE")),
    }
}

/// Which program and kernel this is.
fn machine() -> String {
    let uname = rustix::system::uname();
    let kernel = uname.release().to_string_lossy();
    let container = ["/.dockerenv", "/run/.containerenv"].iter().any(|file| Path::new(file).exists());
    let container = if container { ", in a container" } else { "" };
    format!("gpu-track {}, Linux {kernel}{container}", env!("CARGO_PKG_VERSION"))
}

/// Writes the findings, the words of each in lines of at most `columns` columns. The first line has its name and state.
fn text(findings: &[DoctorFinding], columns: usize) -> String {
    let room = columns.saturating_sub(NAME + STATE).max(40);
    let mut out = String::new();
    for DoctorFinding { name, state, words } in findings {
        let state = match state {
            State::Ok => "ok",
            State::No => "no",
            State::Info => "",
        };
        // "(os error 2)" tells users nothing.
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
        let all =
            [finding("a", Ok("fine".into())), finding("b", Err(long)), information("c", "x\x1b".into())];
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
        let found = finding(TRACKING, tracking(Err(&problem)));
        assert!(found.state == State::No && found.words == "no report: no memory");
    }
}

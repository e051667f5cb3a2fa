//! The agents of a Slurm job of several nodes: a step of their own, with a task on each node, beside the steps of the user.
//!
//! The tasks read the step's standard input, and its end is theirs. So they end with the launcher, also where that is killed:
//! the kernel closes its pipe, and srun tells the tasks.

use std::ffi::{OsStr, OsString};
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::spawn::InheritedState;

/// What a task writes, on a line of its own, when its node is tracked.
const READY: &str = "gpu-track-run: ready";
/// How long the command waits for the tasks. It starts without those that come later.
const PATIENCE: Duration = Duration::from_secs(2);
/// Steps with larger numbers are not a user's: the batch script, an interactive shell.
const LARGEST_STEP: u64 = 0xffff_0000;

/// A job of several nodes that Slurm has allocated.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SlurmJob {
    id: String,
    nodes: usize,
}

impl SlurmJob {
    /// Gives the job that this process runs in. `None`: it runs in none, the job has one node, or this is one of several tasks of a
    /// step, which all would start agents.
    pub(super) fn here(variable: &dyn Fn(&str) -> Option<OsString>) -> Option<Self> {
        let text = |name| variable(name)?.into_string().ok();
        let number = |name| text(name)?.parse::<u64>().ok();
        let is_one_of_several = number("SLURM_STEP_ID").is_some_and(|step| step < LARGEST_STEP)
            && number("SLURM_STEP_NUM_TASKS").is_none_or(|tasks| tasks > 1);
        let nodes = usize::try_from(number("SLURM_JOB_NUM_NODES")?).ok()?;
        let id = text("SLURM_JOB_ID")?;
        (nodes > 1 && !is_one_of_several).then_some(Self { id, nodes })
    }
}

/// The step. It ends when this is dropped.
pub(super) struct SlurmStep {
    _input: PipeWriter,
    /// srun would end if nobody could read what it writes.
    _output: PipeReader,
}

impl SlurmStep {
    /// Starts an agent on each node of the job, and waits until they track their nodes, at most for [`PATIENCE`]. `agent`: its
    /// command line. `inherited`: the signal state that srun gets back.
    ///
    /// # Errors
    /// If there is no step: what srun says.
    pub(super) fn start(job: &SlurmJob, agent: &str, inherited: InheritedState) -> Result<Self, String> {
        let start = || -> io::Result<(PipeWriter, PipeReader)> {
            let (for_srun, input) = io::pipe()?;
            let (output, from_srun) = io::pipe()?;
            let nodes = job.nodes.to_string();
            let mut srun = Command::new("srun");
            // The user's own settings of steps, for other steps than this one.
            let settings = std::env::vars_os().map(|(name, _)| name).filter(|name| is_setting(name));
            settings.for_each(|name| {
                srun.env_remove(name);
            });
            srun.args(["--jobid", &job.id, "--overlap", "--nodes", &nodes, "--ntasks", &nodes])
                .args(["--ntasks-per-node=1", "--mpi=none", "--cpu-bind=none", "--quiet"])
                // A task ends early on the launcher's own node, and where it can't track.
                .args(["--wait=0", "--kill-on-bad-exit=0"])
                .args(agent.split(' '))
                .stdin(for_srun)
                .stdout(from_srun.try_clone()?)
                .stderr(from_srun);
            // SAFETY: what the closure calls is async-signal-safe.
            unsafe { srun.pre_exec(move || detach(inherited)) };
            // That is the child of `detach`, which has ended.
            srun.spawn()?.wait()?;
            Ok((input, output))
        };
        let (input, mut output) = start().map_err(|error| format!("srun: {error}"))?;
        await_ready(&mut output, job.nodes)?;
        Ok(Self { _input: input, _output: output })
    }
}

/// Whether a variable is a setting of Slurm. Where its configuration is, is none.
fn is_setting(name: &OsStr) -> bool {
    let name = name.as_encoded_bytes();
    (name.starts_with(b"SLURM_") || name.starts_with(b"SRUN_")) && name != b"SLURM_CONF"
}

/// Makes this process a child of none of the run, in a session of its own: the terminal's Ctrl-C is for the command, and the
/// launcher takes in every child of its own as a part of the run. Async-signal-safe.
fn detach(inherited: InheritedState) -> io::Result<()> {
    // SAFETY: neither has a precondition. The child goes on in a copy of this process's memory, of which it uses no lock.
    match unsafe { libc::fork() } {
        -1 => return Err(io::Error::last_os_error()),
        0 => {}
        // SAFETY: it ends the process.
        _ => unsafe { libc::_exit(0) },
    }
    // SAFETY: it has no precondition. It can't fail: the child of a fork leads no process group.
    unsafe { libc::setsid() };
    inherited.restore_signals();
    Ok(())
}

/// Waits until so many tasks have said that they are ready, at most for [`PATIENCE`].
///
/// # Errors
/// If srun has ended: the last line that it wrote.
fn await_ready(output: &mut PipeReader, tasks: usize) -> Result<(), String> {
    let until = Instant::now() + PATIENCE;
    let mut text = Vec::new();
    loop {
        let lines = String::from_utf8_lossy(&text);
        if lines.lines().filter(|line| *line == READY).count() >= tasks {
            return Ok(());
        }
        let left = until.saturating_duration_since(Instant::now());
        let timeout = Timespec::try_from(left).ok();
        let mut fds = [PollFd::new(output, PollFlags::IN)];
        match poll(&mut fds, timeout.as_ref()) {
            Ok(0) => return Ok(()),
            Err(rustix::io::Errno::INTR) => continue,
            Ok(_) | Err(_) => {}
        }
        let mut bytes = [0; 4096];
        match output.read(&mut bytes) {
            Ok(length) if length > 0 => text.extend(&bytes[..length]),
            Ok(_) | Err(_) => {
                let said = lines.lines().rfind(|line| *line != READY).unwrap_or("it ended at once");
                return Err(said.trim_start_matches("srun: ").to_owned());
            }
        }
    }
}

/// Says that this node is tracked; to be called by a task of the step.
pub(super) fn say_ready() {
    // Where nobody reads it, the command waits for its time.
    let _ = writeln!(io::stdout(), "{READY}");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(variables: &[(&str, &str)]) -> Option<SlurmJob> {
        SlurmJob::here(&|name| {
            variables.iter().find(|(of, _)| *of == name).map(|(_, value)| OsString::from(*value))
        })
    }

    // Requirement: NODE-14
    #[test]
    fn agents_belong_to_a_job_of_several_nodes_and_are_started_once() {
        let of_job = [("SLURM_JOB_ID", "7"), ("SLURM_JOB_NUM_NODES", "3")];
        let with = |more: &[(&'static str, &'static str)]| job(&[&of_job, more].concat());
        let expected = Some(SlurmJob { id: "7".to_owned(), nodes: 3 });
        assert_eq!(with(&[]), expected, "a batch script, or a shell of salloc");
        assert_eq!(with(&[("SLURM_STEP_ID", "4294967290")]), expected, "an interactive step");
        let one_task = [("SLURM_STEP_ID", "0"), ("SLURM_STEP_NUM_TASKS", "1")];
        assert_eq!(with(&one_task), expected, "srun --pty");
        assert_eq!(with(&[("SLURM_STEP_ID", "0"), ("SLURM_STEP_NUM_TASKS", "8")]), None);
        assert_eq!(job(&[("SLURM_JOB_ID", "7"), ("SLURM_JOB_NUM_NODES", "1")]), None);
        assert_eq!(job(&[]), None);
    }

    // Requirement: NODE-14
    #[test]
    fn command_waits_until_all_tasks_are_ready_and_learns_why_there_is_no_step() {
        let read = |text: &str| {
            let (mut output, mut writer) = io::pipe().unwrap();
            writer.write_all(text.as_bytes()).unwrap();
            drop(writer);
            await_ready(&mut output, 2)
        };
        assert_eq!(read(&format!("{READY}\nsrun: warning\n{READY}\n")), Ok(()));
        let refused = "srun: error: Unable to create step for job 7: Job/step already completing";
        assert_eq!(
            read(&format!("{READY}\n{refused}\n")),
            Err("error: Unable to create step for job 7: Job/step already completing".to_owned())
        );
        assert_eq!(read(""), Err("it ended at once".to_owned()));
    }

    #[test]
    fn step_has_none_of_the_users_settings() {
        let is_kept = |name: &&&str| !is_setting(OsStr::new(name));
        let names = ["SLURM_CONF", "SLURM_EXPORT_ENV", "SRUN_DEBUG", "SLURM_JOB_ID", "PATH"];
        assert_eq!(names.iter().filter(is_kept).copied().collect::<Vec<_>>(), ["SLURM_CONF", "PATH"]);
    }
}

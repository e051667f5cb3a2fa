//! The agents of a Slurm job of several nodes: a step of their own, with a task on each node, beside the steps of the user.
//!
//! The tasks read the step's standard input, and end when it ends. So they end with the launcher, even if that is killed: the
//! kernel closes its end of the pipe, and srun tells the tasks.

use std::env;
use std::ffi::{OsStr, OsString};
use std::io::{self, BufRead, BufReader, PipeReader, PipeWriter, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use gpu_track_collector::model::batch::Job;
use gpu_track_collector::model::batch::slurm::{self, Slurm};
use gpu_track_collector::model::report::LeftReport;
use gpu_track_collector::own_program;
use gpu_track_collector::safe_path::User;
use rustix::io::Errno;
use rustix::process::{WaitOptions, getpid, set_child_subreaper, wait};

use super::carriers::{or_else, program_of};
use super::directory::{Absence, THIS_NODE, absence_script, host};
use crate::process::signals;
use crate::process::spawn::InheritedState;
use crate::{console, trusted};

/// What a task writes, on a line of its own, when its node is tracked.
const READY: &str = "gpu-track-run: ready";
/// What follows on that line if the node does not see the directory of the run. After it come the node and the path of its report there.
const LEFT: &str = ", report left on ";
/// The variable with the path of Slurm's configuration.
const CONF: &str = "SLURM_CONF";
/// What follows [`READY`] where no agent can run. After it come the node and why, as [`absence_script`] writes it.
const ABSENT: &str = ", no agent on ";
/// How long the command waits for the tasks. It starts without those that come later.
const PATIENCE: Duration = Duration::from_secs(2);
/// How often the launcher looks for signals meanwhile.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// A job of several nodes that Slurm has allocated.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SlurmJob {
    id: String,
    nodes: usize,
}

impl SlurmJob {
    /// The job that this process runs in, if it has several nodes. `variable` reads an environment variable.
    pub(super) fn here(variable: &dyn Fn(&str) -> Option<OsString>) -> Option<Self> {
        let variables = slurm::read(variable);
        let job = Slurm(&variables);
        let nodes = job.node_count().filter(|nodes| *nodes > 1)?;
        Some(Self { id: job.id()?.to_owned(), nodes: nodes.try_into().ok()? })
    }
}

/// The name of the process that starts srun, and is its parent. Its arguments are the segment, by which it is known as a helper of the run,
/// and the command line of srun.
pub(crate) const STARTER: &str = "gpu-track-agents";

/// The step. It ends when this is dropped.
pub(super) struct SlurmStep {
    /// The input of srun, whose end ends the tasks.
    _input: PipeWriter,
    /// The launcher has ended the step, so an end of srun is no error.
    is_ending: Arc<AtomicBool>,
    /// What the tasks told of their nodes.
    told: Arc<Mutex<Told>>,
    /// How many nodes the job has.
    nodes: usize,
    /// How many tasks are ready.
    ready: usize,
    /// Where it is heard that further ones are. `None`: nobody waits for them.
    heard: Option<Receiver<Heard>>,
}

/// What tasks tell of nodes whose reports don't come.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Told {
    /// The reports that stay on their nodes.
    pub(super) left: Vec<LeftReport>,
    /// Nodes on which no agent can run.
    pub(super) absences: Vec<(String, Absence)>,
}

impl Drop for SlurmStep {
    fn drop(&mut self) {
        self.is_ending.store(true, Ordering::Release);
    }
}

impl SlurmStep {
    /// Starts an agent on each node of the job. Also returns the pid of the process that has started srun. `segment`: that of this
    /// node. `agent`: the command line of an agent. `inherited`: the signal state that srun gets back.
    ///
    /// # Errors
    /// If srun can't be started.
    pub(super) fn start(
        job: &SlurmJob,
        segment: &Path,
        agent: &str,
        inherited: InheritedState,
    ) -> io::Result<(Self, u32)> {
        let (pid, input, output) = spawn(job, segment, agent, inherited)?;
        let is_ending = Arc::new(AtomicBool::new(false));
        let (sender, heard) = mpsc::channel();
        let told = Arc::default();
        let (ending, found) = (Arc::clone(&is_ending), Arc::clone(&told));
        // The thread reads to the end, so that srun can always write.
        let read = move || read_all(output, &sender, &ending, &found);
        thread::Builder::new().spawn(read)?;
        let (nodes, ready, heard) = (job.nodes, 0, Some(heard));
        Ok((Self { _input: input, is_ending, told, nodes, ready, heard }, pid))
    }

    /// Whether not all tasks are ready, as far as it is known.
    pub(super) fn is_awaited(&self) -> bool {
        self.heard.is_some()
    }

    /// Takes what the tasks have said so far.
    ///
    /// # Errors
    /// If srun has ended before all tasks were ready. The error is a line for the user, such as what srun said.
    pub(super) fn look(&mut self) -> Result<(), String> {
        while let Some(heard) = self.heard.as_ref().and_then(|heard| heard.try_recv().ok()) {
            self.note(heard)?;
        }
        Ok(())
    }

    /// Waits until all tasks track their nodes. Waits at most for [`PATIENCE`], and until a signal asks this process to end. A line on
    /// stderr says if some are late.
    ///
    /// # Errors
    /// As [`Self::look`].
    pub(super) fn await_ready(&mut self) -> Result<(), String> {
        let until = Instant::now() + PATIENCE;
        while let Some(heard) = &self.heard
            && Instant::now() < until
            && !signals::is_end_pending()
        {
            if let Ok(heard) = heard.recv_timeout(LOOK_INTERVAL) {
                self.note(heard)?;
            }
        }
        if self.heard.take().is_some() {
            console::message(format_args!(
                "--nodes: the agents of {} of {} nodes are ready: the command starts without the others",
                self.ready, self.nodes
            ));
        }
        Ok(())
    }

    fn note(&mut self, heard: Heard) -> Result<(), String> {
        match heard {
            Heard::Ready => self.ready += 1,
            Heard::Ended(why) => return Err(why),
        }
        if self.ready >= self.nodes {
            self.heard = None;
        }
        Ok(())
    }

    /// What the tasks have told so far of nodes whose reports don't come.
    pub(super) fn told(&self) -> Told {
        self.told.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Starts srun below a process of its own: see [`STARTER`]. Returns that process's pid, and the input and output of srun.
fn spawn(
    job: &SlurmJob,
    segment: &Path,
    agent: &str,
    inherited: InheritedState,
) -> io::Result<(u32, PipeWriter, PipeReader)> {
    let (for_srun, input) = io::pipe()?;
    let (output, from_srun) = io::pipe()?;
    let nodes = job.nodes.to_string();
    let user = User::this();
    let absence = absence_script(THIS_NODE, program_of(agent));
    let mut starter = own_program::command(STARTER);
    starter.arg(segment).arg(trusted::program("srun", user)?);
    // The user's settings of steps are not for the step of the agents.
    for (name, _) in env::vars_os().filter(|(name, _)| is_of_users_steps(name)) {
        starter.env_remove(name);
    }
    match env::var_os(CONF).map(|path| configuration(Path::new(&path), user)) {
        Some(Some(path)) => starter.env(CONF, path),
        Some(None) => starter.env_remove(CONF),
        None => &mut starter,
    };
    starter
        .args(["--jobid", &job.id, "--overlap", "--nodes", &nodes, "--ntasks", &nodes])
        .args(["--ntasks-per-node=1", "--mpi=none", "--cpu-bind=none", "--quiet"])
        // A task ends early on the launcher's own node, and where it can't track.
        .args(["--wait=0", "--kill-on-bad-exit=0"])
        .args(["sh", "-c", &or_else(agent, agent, &format!("echo {READY}{ABSENT}{absence}"))])
        .stdin(for_srun)
        .stdout(from_srun.try_clone()?)
        .stderr(from_srun);
    // SAFETY: what the closure calls is async-signal-safe.
    unsafe {
        starter.pre_exec(move || {
            // In a session of its own, the terminal's Ctrl-C does not reach srun.
            libc::setsid();
            inherited.restore_signals();
            Ok(())
        });
    }
    Ok((starter.spawn()?.id(), input, output))
}

/// Starts srun, and ends when all that it has started has ended. Returns the exit status. `None`: these are not the arguments of a
/// starter.
pub(crate) fn serve_starter(args: &[OsString]) -> Option<i32> {
    let [_segment, program, words @ ..] = args else { return None };
    // Otherwise the launcher would inherit what srun leaves behind, as an orphan of the run.
    set_child_subreaper(Some(getpid())).ok();
    match Command::new(program).args(words).spawn() {
        Ok(_) => {
            while !matches!(wait(WaitOptions::empty()), Err(Errno::CHILD)) {}
            Some(0)
        }
        Err(error) => {
            // As srun would say it: the launcher reads this.
            let _ = writeln!(io::stderr(), "srun: error: {error}");
            Some(127)
        }
    }
}

/// Whether a variable of the user's environment is kept from the srun that starts agents. Slurm's variables would change that step,
/// such as its size. The job is named by `--jobid`, so srun needs only the variables by which it finds the controller.
fn is_of_users_steps(name: &OsStr) -> bool {
    /// The variables by which srun finds the controller.
    const CONTROLLER: [&str; 4] = [CONF, "SLURM_WORKING_CLUSTER", "SLURM_CLUSTERS", "SLURM_JWT"];
    let is_slurms = |prefix: &[u8]| name.as_encoded_bytes().starts_with(prefix);
    (is_slurms(b"SLURM") || is_slurms(b"SRUN")) && !CONTROLLER.iter().any(|kept| name == *kept)
}

/// The path of Slurm's configuration that srun gets. srun loads the plug-ins that it names, so root's srun gets only one that no
/// other user can replace. Its name stays, even if it is a link, because Slurm's other files are beside it. `None`: another user can
/// replace it.
fn configuration(named: &Path, user: User) -> Option<PathBuf> {
    trusted::path(named.as_os_str(), user).ok()?;
    let directory = trusted::path(named.parent()?.as_os_str(), user).ok()?;
    Some(Path::new(&directory).join(named.file_name()?))
}

/// What the launcher learns from srun's output.
enum Heard {
    /// A task is ready.
    Ready,
    /// srun has ended. The text is its last error, or else the last other line that it wrote.
    Ended(String),
}

/// Reads what srun writes until it ends. `sender` gets what the launcher waits for, and a SIGCHLD wakes it. `told` gets what the tasks
/// tell of their nodes.
///
/// If srun ends with an error when nobody waits for it, a line on stderr says so, unless the launcher has ended the step
/// (`is_ending`). Without an error, all tasks have ended by themselves, because none had a node to track.
fn read_all(output: impl Read, sender: &Sender<Heard>, is_ending: &AtomicBool, told: &Mutex<Told>) {
    let mut last = "it ended at once".to_owned();
    let mut is_error = false;
    for line in BufReader::new(output).split(b'\n').map_while(Result::ok) {
        let line = String::from_utf8_lossy(&line);
        if let Some(rest) = line.strip_prefix(READY) {
            let mut told = told.lock().unwrap_or_else(PoisonError::into_inner);
            told.left.extend(left_report(rest));
            let absence = rest.strip_prefix(ABSENT).and_then(Absence::at_end_of);
            told.absences.extend(absence.map(|(node, absence)| (node.to_owned(), absence)));
            tell(sender, Heard::Ready);
        } else if line.contains(" error: ") || !is_error {
            is_error |= line.contains(" error: ");
            last = line.trim_start_matches("srun: ").to_owned();
        }
    }
    let is_told = tell(sender, Heard::Ended(last.clone()));
    if is_error && !is_told && !is_ending.load(Ordering::Acquire) {
        console::message(format_args!("--nodes: the agents have ended: {last}"));
    }
}

/// Tells the launcher's first thread, and wakes it. Returns whether that one still waits for it.
fn tell(sender: &Sender<Heard>, heard: Heard) -> bool {
    let is_told = sender.send(heard).is_ok();
    signals::wake_this_process();
    is_told
}

/// Says on stdout that this node is tracked. To be called by a task of the step. `left`: where the report stays on this node.
pub(super) fn say_ready(left: Option<&Path>) {
    let left = left.map(|path| format!("{LEFT}{} {}", host(), path.display())).unwrap_or_default();
    // If the launcher does not get the line, it waits for its whole patience.
    let _ = writeln!(io::stdout(), "{READY}{left}");
}

/// Parses what follows [`READY`] on a line. `None`: the report does not stay on its node.
fn left_report(rest: &str) -> Option<LeftReport> {
    let (node, path) = rest.strip_prefix(LEFT)?.split_once(' ')?;
    Some(LeftReport { node: node.to_owned(), path: path.to_owned(), is_certain: true })
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
    fn agents_belong_to_a_job_of_several_nodes() {
        let nodes = |nodes| job(&[("SLURM_JOB_ID", "7"), ("SLURM_JOB_NUM_NODES", nodes)]);
        assert_eq!(nodes("3"), Some(SlurmJob { id: "7".to_owned(), nodes: 3 }));
        assert_eq!([nodes("1"), nodes("many"), job(&[("SLURM_JOB_ID", "7")]), job(&[])], [const { None }; 4]);
    }

    // Requirement: NODE-14
    #[test]
    fn command_waits_until_all_tasks_are_ready_and_learns_why_there_is_no_step() {
        let step = |text: &str| {
            let (sender, heard) = mpsc::channel();
            read_all(text.as_bytes(), &sender, &AtomicBool::new(false), &Mutex::default());
            SlurmStep {
                _input: io::pipe().unwrap().1,
                is_ending: Arc::default(),
                told: Arc::default(),
                nodes: 2,
                ready: 0,
                heard: Some(heard),
            }
        };
        let refused = "srun: error: Unable to create step for job 7: Job/step already completing";
        let why = "error: Unable to create step for job 7: Job/step already completing";
        for (text, expected) in [
            (format!("{READY}\nsrun: warning\n{READY}\n"), Ok(())),
            (format!("{READY}\n{refused}\n"), Err(why.to_owned())),
            (String::new(), Err("it ended at once".to_owned())),
        ] {
            assert_eq!(step(&text).await_ready(), expected);
            let mut lazy = step(&text);
            assert_eq!((lazy.look(), lazy.is_awaited()), (expected.clone(), expected.is_err()));
        }
    }

    // Requirement: NODE-22, NODE-38
    #[test]
    fn task_tells_where_its_report_stays() {
        let (sender, ready) = mpsc::channel();
        let told = Mutex::default();
        let text = format!("{READY}\n{READY}{LEFT}n2 /home/a b/n2.7.json\n{READY}{ABSENT}n3.missing\n");
        read_all(text.as_bytes(), &sender, &AtomicBool::new(false), &told);
        drop(sender);
        assert_eq!(ready.iter().filter(|heard| matches!(heard, Heard::Ready)).count(), 3);
        let stays = LeftReport { node: "n2".into(), path: "/home/a b/n2.7.json".into(), is_certain: true };
        let told = told.into_inner().unwrap();
        assert_eq!((told.left, told.absences), (vec![stays], vec![("n3".to_owned(), Absence::Missing)]));
    }

    #[test]
    fn step_has_none_of_the_users_settings() {
        let is_kept = |name: &&&str| !is_of_users_steps(OsStr::new(name));
        let names = ["SLURM_CONF", "SLURM_STEP_GPUS", "SLURMD_NODENAME", "SLURM_JOB_ID", "PATH"];
        assert_eq!(names.iter().filter(is_kept).copied().collect::<Vec<_>>(), ["SLURM_CONF", "PATH"]);
    }

    // Requirement: FAULT-15
    #[test]
    fn srun_of_root_gets_no_configuration_of_another_user() {
        let top = tempfile::tempdir().unwrap();
        let top = top.path().canonicalize().unwrap();
        let conf = top.join("real/slurm.conf");
        std::fs::create_dir(top.join("real")).unwrap();
        std::os::unix::fs::symlink("real", top.join("link")).unwrap();
        std::fs::write(&conf, "").unwrap();
        let named = top.join("link/slurm.conf");
        for mode in [0o644, 0o666] {
            std::fs::set_permissions(&conf, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
            // A test of another user has a file of that user.
            let may = mode == 0o644 && User::this().uid() == 0;
            assert_eq!(configuration(&named, User::new(0, 0)), may.then(|| conf.clone()), "{mode:o}");
            assert_eq!(configuration(&named, User::new(1000, 0)), Some(named.clone()));
        }
    }
}

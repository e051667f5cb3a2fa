//! The agents of a batch job of several nodes: a step of their own, with a task on each node, beside what the user starts.
//!
//! The tasks read the step's standard input, and end when it ends. So they end with the launcher, even if that is killed: the
//! kernel closes its end of the pipe, and srun or a program like it tells the tasks. PBS carries no input: there a task has a `sleep` for
//! its input, which a signal ends.

use std::env;
use std::io::{self, BufRead, BufReader, PipeWriter, Read, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use gpu_track_collector::model::report::LeftReport;

use super::batch_job::{BatchJob, PLACE, Streams};
use super::carriers::{or_else, program_of};
use super::directory::{Absence, SAID, THIS_NODE, absence_script, host};
use super::starter::{Call, Starter};
use crate::cli::is_plain;
use crate::console;
use crate::process::signals;
use crate::process::spawn::InheritedState;

/// What a task writes, on a line of its own, when its node is tracked.
const READY: &str = "gpu-track-run: ready";
/// What follows on that line if the node does not see the directory of the run. After it come the node and the path of its report there.
const LEFT: &str = ", report left on ";
/// What follows [`READY`] where no agent can run. After it come the node and why, as [`absence_script`] writes it.
const ABSENT: &str = ", no agent on ";
/// How long the command waits for the tasks. It starts without those that come later.
const PATIENCE: Duration = Duration::from_secs(2);
/// How often the launcher looks for signals meanwhile.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// The step. It ends when this is dropped.
pub(super) struct Step {
    /// The input of what has started the tasks. Its end ends them.
    _input: PipeWriter,
    /// The launcher has ended the step, so its end is no error.
    is_ending: Arc<AtomicBool>,
    /// What the tasks told of their nodes.
    told: Arc<Mutex<Told>>,
    /// How many tasks there are.
    tasks: usize,
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

impl Drop for Step {
    fn drop(&mut self) {
        self.is_ending.store(true, Ordering::Release);
    }
}

impl Step {
    /// Starts an agent on each node of the job. Also returns the pid of the process that starts them. `segment`: that of this node.
    /// `agent`: the command line of an agent. `directory`: that of the nodes' reports. `inherited`: the signal state that the batch
    /// system's program gets back.
    ///
    /// # Errors
    /// If that process can't be started.
    pub(super) fn start(
        job: &BatchJob,
        segment: &Path,
        agent: &str,
        directory: &Path,
        inherited: InheritedState,
    ) -> io::Result<(Self, u32)> {
        let is_heard_by_note = job.system.streams == Streams::OfJob;
        let note = is_heard_by_note.then(|| directory.join(format!("{SAID}{PLACE}")));
        let absence = absence_script(THIS_NODE, program_of(agent));
        let script = or_else(agent, agent, &format!("echo {READY}{ABSENT}{absence}"));
        let script = note.as_deref().map_or(script.clone(), |note| without_streams(&script, note));
        let mut words = job.words();
        words.extend(["sh".to_owned(), "-c".to_owned(), script]);
        let call = Call {
            system: job.system,
            segment,
            ends_by_signal: is_heard_by_note,
            note,
            places: job.others.iter().map(|other| other.place.as_str()).collect(),
            words,
        };
        let Starter { pid, input, output } = call.start(inherited)?;
        let is_ending = Arc::new(AtomicBool::new(false));
        let (sender, heard) = mpsc::channel();
        let told = Arc::default();
        let (ending, found, program) = (Arc::clone(&is_ending), Arc::clone(&told), job.system.program);
        // The thread reads to the end, so that nothing waits to write.
        let read = move || read_all(output, program, &sender, &ending, &found);
        thread::Builder::new().spawn(read)?;
        Ok((Self { _input: input, is_ending, told, tasks: job.tasks, ready: 0, heard: Some(heard) }, pid))
    }

    /// Whether not all tasks are ready, as far as it is known.
    pub(super) fn is_awaited(&self) -> bool {
        self.heard.is_some()
    }

    /// Takes what the tasks have said so far.
    ///
    /// # Errors
    /// If the step has ended before all tasks were ready. The error is a line for the user, such as what srun said.
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
                self.ready, self.tasks
            ));
        }
        Ok(())
    }

    fn note(&mut self, heard: Heard) -> Result<(), String> {
        match heard {
            Heard::Ready => self.ready += 1,
            Heard::Ended(why) => return Err(why),
        }
        if self.ready >= self.tasks {
            self.heard = None;
        }
        Ok(())
    }

    /// What the tasks have told so far of nodes whose reports don't come.
    pub(super) fn told(&self) -> Told {
        self.told.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Makes a line of shell of one that is an agent, for a task that has no streams of its own: what it says goes into the file `note`. A
/// `sleep` is its input, until SIGINT ends that. The batch system kills a task whose first process has ended, so the shell lasts until
/// the agent has ended. The environment of such a task is not that of the launcher.
fn without_streams(script: &str, note: &Path) -> String {
    let places = ["XDG_CACHE_HOME", "XDG_STATE_HOME"].into_iter().filter_map(|name| {
        let value = env::var(name).ok().filter(|value| is_plain(value))?;
        Some(format!("export {name}={value};"))
    });
    format!(
        "{}n={};test -w $n||n=/dev/null;trap : HUP INT TERM;(trap '' HUP TERM;exec sleep 2147483647)|{{ {script};}}>>$n 2>/dev/null",
        places.collect::<String>(),
        note.display()
    )
}

/// What the launcher learns from the output of the step.
enum Heard {
    /// A task is ready.
    Ready,
    /// The step has ended. The text is its last error, or else the last other line that srun or a program like it wrote.
    Ended(String),
}

/// Reads what the tasks and this `program`, which starts them, write until it ends. `sender` gets what the launcher waits for, and a
/// SIGCHLD wakes it. `told` gets what the tasks tell of their nodes.
///
/// If it ends with an error when nobody waits for it, a line on stderr says so, unless the launcher has ended the step
/// (`is_ending`). Without an error, all tasks have ended by themselves, because none had a node to track.
fn read_all(
    output: impl Read,
    program: &str,
    sender: &Sender<Heard>,
    is_ending: &AtomicBool,
    told: &Mutex<Told>,
) {
    let by_program = format!("{program}: ");
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
            last = line.trim_start_matches(&*by_program).to_owned();
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

    // Requirement: NODE-14
    #[test]
    fn command_waits_until_all_tasks_are_ready_and_learns_why_there_is_no_step() {
        let step = |text: &str| {
            let (sender, heard) = mpsc::channel();
            read_all(text.as_bytes(), "srun", &sender, &AtomicBool::new(false), &Mutex::default());
            Step {
                _input: io::pipe().unwrap().1,
                is_ending: Arc::default(),
                told: Arc::default(),
                tasks: 2,
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
        read_all(text.as_bytes(), "srun", &sender, &AtomicBool::new(false), &told);
        drop(sender);
        assert_eq!(ready.iter().filter(|heard| matches!(heard, Heard::Ready)).count(), 3);
        let stays = LeftReport { node: "n2".into(), path: "/home/a b/n2.7.json".into(), is_certain: true };
        let told = told.into_inner().unwrap();
        assert_eq!((told.left, told.absences), (vec![stays], vec![("n3".to_owned(), Absence::Missing)]));
    }
}

//! `--on-alert CMD` in the launcher: the alerts that wait for CMD, the alert that CMD runs for, and the variables that CMD gets.
//!
//! [`crate::alert_commands::runner`] is the process that runs CMD. The launcher never waits for it, also not at the end of the run.

mod output;
pub(crate) mod runner;

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::io::{ErrorKind, Read};
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdout};
use std::time::Duration;

use gpu_track_collector::model::alert::{AlertCommandFailure, RunEvent};
use gpu_track_collector::model::config::Message;
use gpu_track_collector::model::run_limit::LargestProcess;
use gpu_track_collector::report::alerts_in_words::event_in_words;
use gpu_track_collector::{ProcRoot, clock};

use crate::alert_commands::output::MOST_OUTPUT;
use crate::alert_commands::runner::Outcome;
use crate::console;
use crate::process::spawn::Environment;

/// The most alerts that wait for CMD.
const MOST_WAITING: usize = 16;
/// How often lines that stderr did not take are tried again.
const LINE_INTERVAL: Duration = Duration::from_millis(100);
/// How many bytes of the tracked command's line CMD gets at most. execve(2) takes 128 KiB for each variable.
const LONGEST_COMMAND: usize = 4096;

/// All variables that CMD can get. They are removed from its environment before those of its alert are added. Otherwise, in a run
/// that another run's CMD has started, CMD would get variables of that run's alert, too.
const VARIABLES: [&str; 20] = [
    "GPU_TRACK_EVENT",
    "GPU_TRACK_ALERT",
    "GPU_TRACK_MESSAGE",
    "GPU_TRACK_AT_SECONDS",
    "GPU_TRACK_SINCE_SECONDS",
    "GPU_TRACK_VALUE_BYTES",
    "GPU_TRACK_VALUE_PERCENT",
    "GPU_TRACK_VALUE_SECONDS",
    "GPU_TRACK_THRESHOLD_BYTES",
    "GPU_TRACK_THRESHOLD_PERCENT",
    "GPU_TRACK_THRESHOLD_SECONDS",
    "GPU_TRACK_RATE_BYTES_PER_SECOND",
    "GPU_TRACK_LEFT_SECONDS",
    COMMAND,
    COMMAND_PID,
    LAUNCHER_PID,
    "GPU_TRACK_LARGEST_PID",
    "GPU_TRACK_LARGEST_COMMAND",
    "GPU_TRACK_LARGEST_RSS_BYTES",
    "GPU_TRACK_LARGEST_GPU_RAM_BYTES",
];
const COMMAND: &str = "GPU_TRACK_COMMAND";
const COMMAND_PID: &str = "GPU_TRACK_COMMAND_PID";
const LAUNCHER_PID: &str = "GPU_TRACK_LAUNCHER_PID";

/// An alert for which CMD runs when its turn comes.
#[derive(Debug)]
pub(crate) struct Turn {
    /// The number of its order, among the orders of the same rule.
    epoch: u32,
    /// The number of the rule whose alert went on or off.
    alert: u32,
    /// That alert, and what it did, for the lines on stderr.
    name: String,
}

impl Turn {
    /// Makes the turn of the order of this `epoch`, which the run's alert number `alert` has issued for `event`.
    pub(crate) fn new(epoch: u32, alert: u32, event: &RunEvent) -> Self {
        Self { epoch, alert, name: event.alert_name() }
    }
}

/// CMD, and the alerts that it runs for, one after the other.
#[derive(Default)]
pub(crate) struct AlertCommands {
    /// CMD. `None`: there is none.
    command: Option<OsString>,
    /// The tracked command's words, with blanks between them.
    tracked: OsString,
    /// The segment's path; empty without a session.
    segment: PathBuf,
    is_quiet: bool,
    /// The alerts that wait, with what CMD is told of each.
    waiting: VecDeque<(Turn, Environment)>,
    /// The alert that has its turn, and the runner that is at work.
    running: Option<(Turn, Child)>,
    /// Pids of runners that may have left processes of CMD, because the runners were killed, or could not end the processes.
    failed_runners: Vec<u32>,
    /// Failures that the collector has not been told of.
    failures: Vec<Message>,
    /// Lines for the user that stderr has not taken.
    lines: VecDeque<String>,
}

impl AlertCommands {
    /// `command`: CMD, if there is one. `tracked`: the words of the tracked command, of which CMD gets [`LONGEST_COMMAND`] bytes.
    pub(crate) fn new(
        command: Option<OsString>,
        tracked: &[OsString],
        segment: PathBuf,
        is_quiet: bool,
    ) -> Self {
        let mut tracked = tracked.join(OsStr::new(" ")).into_vec();
        tracked.truncate(LONGEST_COMMAND);
        Self { command, tracked: OsString::from_vec(tracked), segment, is_quiet, ..Self::default() }
    }

    /// Runs CMD for an alert, now or when CMD has run for the alerts before. If [`MOST_WAITING`] wait already, notes that as a
    /// failure. `largest`: the process that held most RAM then, or most memory of GPUs if the alert is of that. `main`: the pid of
    /// what is tracked, while that lives.
    pub(crate) fn add(
        &mut self,
        turn: Turn,
        event: &RunEvent,
        largest: Option<&LargestProcess>,
        main: Option<u32>,
    ) {
        if self.waiting.len() >= MOST_WAITING {
            self.note(&turn, AlertCommandFailure::TooMany(MOST_WAITING));
            return;
        }
        self.waiting.push_back((turn, variables_of(event, largest)));
        self.start_next(main);
    }

    /// Starts a runner for the alert that has waited longest, unless one is at work. An alert whose runner can't be started is
    /// noted as a failure, and the next one has its turn.
    fn start_next(&mut self, main: Option<u32>) {
        while self.running.is_none()
            && let Some(command) = &self.command
            && let Some((turn, mut variables)) = self.waiting.pop_front()
        {
            variables.extend(self.variables_of_run(main));
            match runner::start(command, &self.segment, &VARIABLES, variables) {
                Ok(runner) => self.running = Some((turn, runner)),
                Err(error) => {
                    let errno = error.raw_os_error().unwrap_or(libc::EIO);
                    self.note(&turn, AlertCommandFailure::NotStarted(errno));
                }
            }
        }
    }

    /// The variables that say which run it is.
    fn variables_of_run(&self, main: Option<u32>) -> Environment {
        let mut variables = vec![(LAUNCHER_PID.into(), std::process::id().to_string().into())];
        variables.extend(main.map(|main| (COMMAND_PID.into(), main.to_string().into())));
        if !self.tracked.is_empty() {
            variables.push((COMMAND.into(), self.tracked.clone()));
        }
        variables
    }

    /// Whether this child of the launcher is the runner, or was left by a failed one: it is in the session that the runner leads.
    pub(crate) fn has(&self, pid: u32) -> bool {
        self.is_runner(pid) || (!self.failed_runners.is_empty() && self.is_left(pid))
    }

    fn is_runner(&self, pid: u32) -> bool {
        self.running.as_ref().is_some_and(|(_, runner)| runner.id() == pid)
    }

    fn is_left(&self, pid: u32) -> bool {
        session_of(pid).is_some_and(|session| self.failed_runners.contains(&session))
    }

    /// Handles the end of this child, which the caller reaps next. If it is the runner, its outcome is read, and the next alert has
    /// its turn. `main`: as for [`Self::add`].
    pub(crate) fn ended(&mut self, pid: u32, main: Option<u32>) {
        if let Some((turn, mut runner)) = self.running.take_if(|(_, runner)| runner.id() == pid) {
            let outcome = runner.stdout.take().and_then(outcome);
            // A runner that was killed has written no outcome.
            let killed = Outcome { failure: Some(AlertCommandFailure::RunnerKilled), is_cut: false };
            self.take_in(pid, &turn, &outcome.unwrap_or(killed));
        }
        self.forget_ended_sessions(pid);
        self.start_next(main);
    }

    /// Handles the outcome of CMD, which this runner ran: tells the user of cut output, and notes a failure. A runner that may have
    /// left processes of CMD is remembered for [`Self::has`].
    fn take_in(&mut self, runner: u32, turn: &Turn, outcome: &Outcome) {
        if outcome.is_cut {
            let kib = MOST_OUTPUT / 1024;
            self.say(format!(
                "{}: not all that the command of --on-alert wrote is shown: {kib} KiB at most, and what stderr takes in time",
                turn.name
            ));
        }
        let Some(failure) = outcome.failure else { return };
        if let AlertCommandFailure::RunnerKilled | AlertCommandFailure::TooLong { left: 1.., .. } = failure {
            self.failed_runners.push(runner);
        }
        self.note(turn, failure);
    }

    /// Forgets each failed runner whose session has no child of the launcher left. The id of the session is the runner's pid. Once the
    /// session is empty, the kernel may give that pid to another process. Orphans of the session become the launcher's children.
    /// `ended`: a child that is about to be reaped, and does not count.
    fn forget_ended_sessions(&mut self, ended: u32) {
        if self.failed_runners.is_empty() {
            return;
        }
        let Some(children) = ProcRoot::default().own_children() else { return };
        let children = children.into_iter().filter(|child| *child != ended);
        let sessions: Vec<u32> = children.filter_map(session_of).collect();
        self.failed_runners.retain(|runner| sessions.contains(runner));
    }

    /// Gives up the alerts that wait, and notes each as a failure: the run has ended. A CMD that runs goes on.
    pub(crate) fn give_up(&mut self) {
        for (turn, _) in std::mem::take(&mut self.waiting) {
            self.note(&turn, AlertCommandFailure::RunEnded);
        }
    }

    /// Notes a failure for [`Self::take_failures`], and tells the user.
    fn note(&mut self, turn: &Turn, failure: AlertCommandFailure) {
        self.say(format!("{}: {failure}", turn.name));
        let Turn { epoch, alert, .. } = *turn;
        let at_ns = clock::monotonic_ns();
        self.failures.push(Message::AlertCommandFailed { alert, epoch, at_ns, failure });
    }

    /// Writes a line for the user, now or when stderr takes it.
    fn say(&mut self, line: String) {
        if !self.is_quiet {
            self.lines.push_back(line);
            self.write_lines();
        }
    }

    /// Writes the lines for the user as far as stderr takes them now. A line is dropped if writing it fails for another reason.
    pub(crate) fn write_lines(&mut self) {
        while let Some(line) = self.lines.front() {
            match console::message_without_waiting(line) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                _ => drop(self.lines.pop_front()),
            }
        }
    }

    /// How long it is until lines are to be written again. `None`: there are none.
    pub(crate) fn due(&self) -> Option<Duration> {
        (!self.lines.is_empty()).then_some(LINE_INTERVAL)
    }

    /// Takes the messages for the collector.
    pub(crate) fn take_failures(&mut self) -> Vec<Message> {
        std::mem::take(&mut self.failures)
    }
}

/// The session of a process that is not reaped yet. 0: a session of a process outside this pid namespace, or the one in which
/// the kernel starts init. `None`: there is no such process.
fn session_of(pid: u32) -> Option<u32> {
    // rustix's getsid() panics at a session of 0.
    // SAFETY: the call reads no memory of this process.
    let session = unsafe { libc::getsid(i32::try_from(pid).ok()?) };
    u32::try_from(session).ok()
}

/// Reads what a runner that has ended has written. `None`: nothing, so it was killed.
fn outcome(mut stdout: ChildStdout) -> Option<Outcome> {
    // A process of CMD can have opened the runner's end (/proc/PID/fd/1), and the read would wait for its end.
    rustix::io::ioctl_fionbio(&stdout, true).ok()?;
    let mut bytes = [0; 4096];
    let length = stdout.read(&mut bytes).ok()?;
    serde_json::from_slice(bytes.get(..length)?).ok()
}

/// The variables that say what happened. A value that is not known has no variable.
fn variables_of(event: &RunEvent, largest: Option<&LargestProcess>) -> Environment {
    let mut variables = Environment::new();
    let mut add = |name: String, value: Option<String>| {
        variables.extend(value.map(|value| (name.into(), value.into())));
    };
    let seconds = |seconds: f64| format!("{seconds:.3}");
    add("GPU_TRACK_EVENT".into(), Some(event.kind.name().to_owned()));
    add("GPU_TRACK_ALERT".into(), event.rule.clone());
    add("GPU_TRACK_MESSAGE".into(), Some(event_in_words(event)));
    add("GPU_TRACK_AT_SECONDS".into(), Some(seconds(event.at_s)));
    add("GPU_TRACK_SINCE_SECONDS".into(), event.since_s.map(seconds));
    if let Some(unit) = event.unit {
        let name = unit.name().to_uppercase();
        // Shells compare whole numbers only, so bytes have no decimals.
        let number =
            |amount: f64| if name == "BYTES" { format!("{amount:.0}") } else { format!("{amount:.3}") };
        add(format!("GPU_TRACK_VALUE_{name}"), event.amount.map(number));
        add(format!("GPU_TRACK_THRESHOLD_{name}"), event.allowed.map(number));
    }
    add("GPU_TRACK_RATE_BYTES_PER_SECOND".into(), event.rate_bytes_per_s.map(|rate| format!("{rate:.0}")));
    add("GPU_TRACK_LEFT_SECONDS".into(), event.left_s.map(seconds));
    add("GPU_TRACK_LARGEST_PID".into(), largest.and_then(|process| process.pid).map(|pid| pid.to_string()));
    add("GPU_TRACK_LARGEST_COMMAND".into(), largest.map(|process| process.command.clone()));
    add("GPU_TRACK_LARGEST_RSS_BYTES".into(), largest.map(|process| process.rss_bytes.to_string()));
    let gpu_ram_bytes = largest.and_then(|process| process.gpu_ram_bytes);
    add("GPU_TRACK_LARGEST_GPU_RAM_BYTES".into(), gpu_ram_bytes.map(|bytes| bytes.to_string()));
    variables
}

#[cfg(test)]
mod tests {
    use gpu_track_collector::model::alert::EventKind;
    use gpu_track_collector::model::rule::{Quantity, Unit};

    use super::*;

    /// Outside of containers, pid 2 is the kernel's, in session 0. On some machines init and all that it starts are, too.
    #[test]
    fn session_of_the_kernels_processes_is_0() {
        for pid in [1, 2, std::process::id()] {
            // /proc may hide the processes of others, and a container need not have a pid 2.
            let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else { continue };
            let (_, after_name) = stat.rsplit_once(") ").unwrap();
            assert_eq!(session_of(pid), after_name.split(' ').nth(3).unwrap().parse().ok(), "pid {pid}");
        }
    }

    fn event(quantity: Quantity, amount: f64, allowed: Option<f64>) -> RunEvent {
        RunEvent {
            rule: Some("x".into()),
            quantity: Some(quantity),
            unit: Some(if quantity == Quantity::Cpu { Unit::Percent } else { quantity.row().unit }),
            amount: Some(amount),
            allowed,
            ..RunEvent::new(12.5, EventKind::Warning)
        }
    }

    /// The facts, but for those that every alert has.
    fn facts(event: &RunEvent, largest: Option<&LargestProcess>) -> Vec<String> {
        let facts = variables_of(event, largest);
        let [kind, alert, message, at, special @ ..] = &facts[..] else { panic!("{facts:?}") };
        let text = |(name, value): &(OsString, OsString)| {
            format!("{}={}", name.to_str().unwrap(), value.to_str().unwrap())
        };
        assert_eq!([kind, alert].map(text), ["GPU_TRACK_EVENT=warning", "GPU_TRACK_ALERT=x"]);
        assert!(text(message).starts_with("GPU_TRACK_MESSAGE=alert x, 12.5 s after the start"));
        assert_eq!(text(at), "GPU_TRACK_AT_SECONDS=12.500");
        special.iter().map(text).collect()
    }

    // Requirement: ALERT-11
    #[test]
    fn facts_have_their_unit_in_their_name_and_what_is_not_known_is_not_set() {
        let percent = event(Quantity::Cpu, 97.25, Some(90.0));
        assert_eq!(
            facts(&percent, None),
            ["GPU_TRACK_VALUE_PERCENT=97.250", "GPU_TRACK_THRESHOLD_PERCENT=90.000"]
        );
        let idle = event(Quantity::GpuIdle, 300.5, Some(300.0));
        assert_eq!(
            facts(&idle, None),
            ["GPU_TRACK_VALUE_SECONDS=300.500", "GPU_TRACK_THRESHOLD_SECONDS=300.000"]
        );
        let growth = RunEvent { left_s: Some(1.5), ..event(Quantity::Growth, 9e9 + 0.6, None) };
        let unseen = LargestProcess { pid: None, command: "a".into(), rss_bytes: 5, gpu_ram_bytes: None };
        assert_eq!(
            facts(&growth, Some(&unseen)),
            [
                "GPU_TRACK_VALUE_BYTES=9000000001",
                "GPU_TRACK_LEFT_SECONDS=1.500",
                "GPU_TRACK_LARGEST_COMMAND=a",
                "GPU_TRACK_LARGEST_RSS_BYTES=5",
            ]
        );
    }

    #[test]
    fn all_variables_are_taken_off_the_launchers_environment() {
        let alerted = Quantity::ALL.into_iter().filter(|quantity| quantity.row().is_alerted);
        let all: Vec<_> = alerted
            .map(|quantity| {
                let event = event(quantity, 1.0, Some(2.0));
                let event =
                    RunEvent { since_s: Some(1.0), rate_bytes_per_s: Some(1.0), left_s: Some(1.0), ..event };
                let largest = LargestProcess {
                    pid: Some(1),
                    command: "a".into(),
                    rss_bytes: 5,
                    gpu_ram_bytes: Some(6),
                };
                variables_of(&event, Some(&largest))
            })
            .collect();
        let mut names: Vec<_> = all.iter().flatten().map(|(name, _)| name.to_str().unwrap()).collect();
        names.extend([COMMAND, COMMAND_PID, LAUNCHER_PID]);
        names.sort_unstable();
        names.dedup();
        let mut listed = VARIABLES;
        listed.sort_unstable();
        assert_eq!(names, listed);
    }
}

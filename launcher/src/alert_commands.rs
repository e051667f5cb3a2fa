//! `--on-alert CMD` in the launcher: the alerts that wait for CMD, the alert that CMD runs for, and the variables that CMD gets.
//!
//! [`crate::alert_runner`] is the process that runs CMD. The launcher never waits for it, also not at the end of the run.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdout};

use gpu_track_collector::{AlertCommandFailure, LargestProcess, Message, RunEvent, clock, event_in_words};
use rustix::process::{Pid, getsid};

use crate::spawn::Environment;
use crate::{alert_runner, console};

/// So many alerts wait for CMD at most.
const MOST_WAITING: usize = 16;
/// Bytes of the tracked command's line that CMD is told at most. execve(2) takes 128 KiB a variable.
const LONGEST_COMMAND: usize = 4096;

/// All variables that CMD can have. They are removed from CMD's environment before it gets those of its alert: a run within the CMD of
/// another run must not tell its own CMD of that run's alert.
const VARIABLES: [&str; 19] = [
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
];
const COMMAND: &str = "GPU_TRACK_COMMAND";
const COMMAND_PID: &str = "GPU_TRACK_COMMAND_PID";
const LAUNCHER_PID: &str = "GPU_TRACK_LAUNCHER_PID";

/// CMD, and the alerts that it runs for, one after the other.
pub(crate) struct AlertCommands {
    /// CMD. `None`: there is none.
    command: Option<OsString>,
    /// The tracked command's words, with blanks between them.
    tracked: OsString,
    segment: PathBuf,
    is_quiet: bool,
    /// The alerts that wait, by their orders, with what CMD is told of each.
    waiting: VecDeque<(u32, Environment)>,
    /// The runner that is at work, and the order that it is for.
    running: Option<(u32, Child)>,
    /// Pids of runners that may have left processes of CMD behind, because they were killed or could not end them.
    failed_runners: Vec<u32>,
    /// Failures that the collector has not been told of.
    failures: Vec<Message>,
}

impl AlertCommands {
    /// `command`: CMD, if there is one. `tracked`: the tracked command.
    pub(crate) fn new(
        command: Option<OsString>,
        tracked: &[OsString],
        segment: PathBuf,
        is_quiet: bool,
    ) -> Self {
        let mut tracked = tracked.join(OsStr::new(" ")).into_vec();
        tracked.truncate(LONGEST_COMMAND);
        Self {
            command,
            tracked: OsString::from_vec(tracked),
            segment,
            is_quiet,
            waiting: VecDeque::new(),
            running: None,
            failed_runners: Vec::new(),
            failures: Vec::new(),
        }
    }

    /// Runs CMD for an alert, now or when CMD has run for the alerts before. `epoch`: the number of the order to do so. `largest`: the
    /// process that held most RAM then. `main`: the pid of the tracked command's first process, which has not been reaped.
    pub(crate) fn add(
        &mut self,
        epoch: u32,
        event: &RunEvent,
        largest: Option<&LargestProcess>,
        main: Option<u32>,
    ) {
        if self.waiting.len() >= MOST_WAITING {
            self.note(epoch, AlertCommandFailure::TooMany(MOST_WAITING));
            return;
        }
        let mut facts = facts_of(event, largest);
        let mut add = |name: &str, value: OsString| facts.push((name.into(), value));
        add(LAUNCHER_PID, std::process::id().to_string().into());
        if let Some(main) = main {
            add(COMMAND_PID, main.to_string().into());
        }
        if !self.tracked.is_empty() {
            add(COMMAND, self.tracked.clone());
        }
        self.waiting.push_back((epoch, facts));
        self.start_next();
    }

    /// Starts a runner for the alert that has waited longest, unless one is at work.
    fn start_next(&mut self) {
        while self.running.is_none()
            && let Some(command) = &self.command
            && let Some((epoch, facts)) = self.waiting.pop_front()
        {
            match alert_runner::start(command, &self.segment, &VARIABLES, facts) {
                Ok(runner) => self.running = Some((epoch, runner)),
                Err(error) => {
                    let errno = error.raw_os_error().unwrap_or(libc::EIO);
                    self.note(epoch, AlertCommandFailure::NotStarted(errno));
                }
            }
        }
    }

    /// Whether this child of the launcher is the runner, or was left by a failed one: it is in the session that the runner leads.
    pub(crate) fn has(&self, pid: u32) -> bool {
        self.is_runner(pid) || (!self.failed_runners.is_empty() && self.is_left(pid))
    }

    fn is_runner(&self, pid: u32) -> bool {
        self.running.as_ref().is_some_and(|(_, runner)| runner.id() == pid)
    }

    fn is_left(&self, pid: u32) -> bool {
        let session = i32::try_from(pid).ok().and_then(Pid::from_raw).and_then(|pid| getsid(Some(pid)).ok());
        session.is_some_and(|session| self.failed_runners.contains(&session.as_raw_pid().cast_unsigned()))
    }

    /// Takes in that this child has ended. If it is the runner, CMD runs for the next alert.
    pub(crate) fn ended(&mut self, pid: u32) {
        if !self.is_runner(pid) {
            return;
        }
        let Some((epoch, mut runner)) = self.running.take() else { return };
        let failure = match runner.stdout.take().and_then(result) {
            Some(failure) => failure,
            None => Some(AlertCommandFailure::RunnerKilled),
        };
        if let Some(failure) = failure {
            if let AlertCommandFailure::RunnerKilled | AlertCommandFailure::TooLong { left: 1.., .. } =
                failure
            {
                self.failed_runners.push(pid);
            }
            self.note(epoch, failure);
        }
        self.start_next();
    }

    /// Gives up the alerts that wait: the run has ended. A CMD that runs goes on.
    pub(crate) fn give_up(&mut self) {
        for (epoch, _) in std::mem::take(&mut self.waiting) {
            self.note(epoch, AlertCommandFailure::RunEnded);
        }
    }

    /// Notes a failure, and tells the user.
    fn note(&mut self, epoch: u32, failure: AlertCommandFailure) {
        if !self.is_quiet {
            let _ = console::message_without_waiting(failure);
        }
        let monotonic_ns = clock::monotonic_ns();
        self.failures.push(Message::AlertCommandFailed { epoch, monotonic_ns, failure });
    }

    /// Takes the messages for the collector.
    pub(crate) fn take_failures(&mut self) -> Vec<Message> {
        std::mem::take(&mut self.failures)
    }
}

/// Reads what a runner that has ended has written: why CMD failed, if it did. `None`: it wrote nothing, so it was killed.
fn result(mut stdout: ChildStdout) -> Option<Option<AlertCommandFailure>> {
    // A process of CMD may have opened the pipe's other end through /proc. Then a read would wait for it.
    rustix::io::ioctl_fionbio(&stdout, true).ok()?;
    let mut bytes = [0; 4096];
    let length = stdout.read(&mut bytes).ok()?;
    serde_json::from_slice(bytes.get(..length)?).ok()
}

/// Gives the variables that say what happened. A value that is not known has no variable.
fn facts_of(event: &RunEvent, largest: Option<&LargestProcess>) -> Environment {
    let mut facts = Environment::new();
    let mut add = |name: String, value: Option<String>| {
        facts.extend(value.map(|value| (name.into(), value.into())));
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
    facts
}

#[cfg(test)]
mod tests {
    use gpu_track_collector::{AlertQuantity, EventKind};

    use super::*;

    fn event(quantity: AlertQuantity, amount: f64, allowed: Option<f64>) -> RunEvent {
        RunEvent {
            rule: Some("x".into()),
            quantity: Some(quantity),
            unit: Some(quantity.unit()),
            amount: Some(amount),
            allowed,
            ..RunEvent::new(12.5, EventKind::Warning)
        }
    }

    /// The facts, but for those that every alert has.
    fn facts(event: &RunEvent, largest: Option<&LargestProcess>) -> Vec<String> {
        let facts = facts_of(event, largest);
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
        let percent = event(AlertQuantity::Cpu, 97.25, Some(90.0));
        assert_eq!(
            facts(&percent, None),
            ["GPU_TRACK_VALUE_PERCENT=97.250", "GPU_TRACK_THRESHOLD_PERCENT=90.000"]
        );
        let idle = event(AlertQuantity::GpuIdle, 300.5, Some(300.0));
        assert_eq!(
            facts(&idle, None),
            ["GPU_TRACK_VALUE_SECONDS=300.500", "GPU_TRACK_THRESHOLD_SECONDS=300.000"]
        );
        let growth = RunEvent { left_s: Some(1.5), ..event(AlertQuantity::Growth, 9e9 + 0.6, None) };
        let unseen = LargestProcess { pid: None, command: "a".into(), rss_bytes: 5 };
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
        let all = [AlertQuantity::Growth, AlertQuantity::Cpu, AlertQuantity::GpuIdle].map(|quantity| {
            let event = event(quantity, 1.0, Some(2.0));
            let event =
                RunEvent { since_s: Some(1.0), rate_bytes_per_s: Some(1.0), left_s: Some(1.0), ..event };
            let largest = LargestProcess { pid: Some(1), command: "a".into(), rss_bytes: 5 };
            facts_of(&event, Some(&largest))
        });
        let mut names: Vec<_> = all.iter().flatten().map(|(name, _)| name.to_str().unwrap()).collect();
        names.extend([COMMAND, COMMAND_PID, LAUNCHER_PID]);
        names.sort_unstable();
        names.dedup();
        let mut listed = VARIABLES;
        listed.sort_unstable();
        assert_eq!(names, listed);
    }
}

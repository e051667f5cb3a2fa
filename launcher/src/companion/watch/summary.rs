//! The summary of a live file, a JSON text, as far as the view shows it. Another program may have written anything there: what is
//! missing or of another kind is unknown.

use gpu_track_collector::model::alert::RunEvent;
use gpu_track_collector::model::live::{LiveCoverage, LiveEvent};
use gpu_track_collector::model::report::{CommandUsage, Usable};
use gpu_track_collector::model::sorting::InOrder;
use gpu_track_collector::model::time_groups::ByTimeGroup;
use gpu_track_collector::report::alerts_in_words::event_in_words;
use gpu_track_collector::report::figures;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::frame::{Ended, EndedCommand, Run};

/// The summary. docs/FILES.md explains its keys.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(super) struct Summary {
    command: Vec<String>,
    command_words_left_out: u64,
    /// The start of the run, CLOCK_MONOTONIC nanoseconds.
    pub(super) start_ns: Option<u64>,
    pub(super) launcher_pid: Option<u32>,
    restarts: u32,
    /// Time between two samples, seconds.
    sampling_interval_s: Option<f64>,
    usable: Option<Usable>,
    /// The end of the batch job, seconds after the start of the run.
    job_limit_s: Option<f64>,
    max_ram: Value,
    /// How the last second was spent, nanoseconds.
    time_ns: Option<ByTimeGroup<u64>>,
    ended: Option<EndedProcesses>,
    coverage: Option<LiveCoverage>,
    alerts: Vec<Value>,
    events: Vec<Value>,
    other_events: u64,
}

/// Processes that ended.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
struct EndedProcesses {
    count: u64,
    by_command: Vec<Value>,
    other_commands: u64,
}

impl Summary {
    /// Reads the summary from its text. `None`: the text is no JSON, or a key has a value of another kind.
    pub(super) fn read(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

    /// The run as a whole: the command, what it may use, and how many collectors of the run were killed.
    pub(super) fn run(&self) -> Run {
        let mut command = self.command.clone();
        if self.command_words_left_out > 0 {
            command.push(format!("... {} more", self.command_words_left_out));
        }
        Run {
            command,
            launcher_pid: self.launcher_pid,
            restarts: self.restarts,
            usable: self.usable.clone(),
            job_end_s: self.job_limit_s,
            length_s: None,
        }
    }

    /// The time between two samples, seconds. `None`: not known.
    pub(super) fn sampling_interval_s(&self) -> Option<f64> {
        self.sampling_interval_s.filter(|interval_s| interval_s.is_finite())
    }

    /// The largest RAM so far, bytes.
    pub(super) fn max_ram_bytes(&self) -> Option<u64> {
        self.max_ram["combined"]["bytes"].as_u64()
    }

    /// How the run spent about the last second, percent. `None`: not known.
    pub(super) fn time_percent(&self) -> Option<ByTimeGroup<f64>> {
        let shares = self.time_ns?.shares()?;
        Some(ByTimeGroup::new(|group| shares.of(group) * 100.0))
    }

    /// The processes that ended. `None`: the summary does not have them. Commands that this version does not know to read are left out.
    pub(super) fn ended(&self) -> Option<Ended> {
        let ended = self.ended.as_ref()?;
        let used = |CommandUsage { command, count, cpu_s, peak_rss_bytes, .. }: CommandUsage| {
            (command, EndedCommand { count, cpu_s, peak_rss_bytes })
        };
        let by_command = known(&ended.by_command).map(used).ordered_map();
        Some(Ended { count: ended.count, by_command, other_commands: ended.other_commands })
    }

    /// Returns parts of a sentence about how the figures are known, and what they lack. Empty: the summary does not tell.
    pub(super) fn coverage(&self) -> Vec<String> {
        let Some(known) = &self.coverage else { return Vec::new() };
        let counts = [known.exact, known.sampled, known.unknown];
        let mut parts = how_known("ended processes", counts, known.uninstrumented);
        if known.joined > 0 {
            parts.push(format!("{} joined", known.joined));
        }
        if known.unsampled_s > 0.0 {
            parts.push(format!("{} not sampled", figures::readable(known.unsampled_s)));
        }
        parts.extend(known.connector_absent.iter().map(|why| format!("no process connector: {why}")));
        parts.extend(known.records_untrusted.iter().map(|why| format!("records are not trusted: {why}")));
        parts
    }

    /// Says which alerts are on, a line each. Those that this version does not know are left out.
    pub(super) fn alerts(&self) -> Vec<String> {
        known(&self.alerts).map(|alert: RunEvent| event_in_words(&alert)).collect()
    }

    /// Says what happened, a line each. Events that this version does not know are left out, and so are all events if the start of the
    /// run is unknown.
    pub(super) fn events(&self) -> Vec<String> {
        let mut lines: Vec<String> =
            known(&self.events).filter_map(|event| Some(line_of(&event, self.start_ns?))).collect();
        if self.other_events > 0 {
            lines.push(format!("{} more", self.other_events));
        }
        lines
    }
}

/// Returns parts of a sentence: of how many processes the CPU time is exact, sampled and unknown (`counts`, in this order), and how
/// many are uninstrumented, if any. `whose`: which processes, in words.
pub(super) fn how_known(whose: &str, counts: [u64; 3], uninstrumented: u64) -> Vec<String> {
    let [exact, sampled, unknown] = counts;
    let counts = format!("CPU time of {whose}: {exact} exact, {sampled} sampled, {unknown} unknown");
    let uninstrumented = (uninstrumented > 0).then(|| format!("{uninstrumented} uninstrumented"));
    [counts].into_iter().chain(uninstrumented).collect()
}

/// The values that this version knows.
fn known<T: DeserializeOwned>(values: &[Value]) -> impl Iterator<Item = T> {
    values.iter().filter_map(|value| serde_json::from_value(value.clone()).ok())
}

/// Makes the line about an event. `start_ns`: the start of the run, CLOCK_MONOTONIC.
fn line_of(event: &LiveEvent, start_ns: u64) -> String {
    match event {
        LiveEvent::Signal { at_ns, signal, sender } => {
            let at = figures::readable(at_ns.saturating_sub(start_ns) as f64 / 1e9);
            let sender = sender.as_ref().map(|sender| format!(" from {sender}"));
            format!("{at}: {signal}{}", sender.unwrap_or_default())
        }
        LiveEvent::Crash { signal, command, count } => {
            format!("{count} x {} ended by {signal}", command.as_deref().unwrap_or("?"))
        }
        LiveEvent::Output { output, failed: Some(why), .. } => format!("{output} failed: {why}"),
        LiveEvent::Output { output, lost, .. } => format!("{output} lost {lost} lines"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_another_program_wrote_is_unknown_and_harms_nothing() {
        for garbage in ["", "[]", "null", "{\"ended\":7}", "{\"command\":[1]}", &"[".repeat(60_000)] {
            assert_eq!(Summary::read(garbage).and_then(|read| read.ended()), None, "{garbage:.20}");
        }
        let empty = Summary::read("{}").unwrap();
        assert_eq!((empty.run(), empty.ended(), empty.max_ram_bytes()), (Run::default(), None, None));
        assert!(empty.coverage().is_empty() && empty.events().is_empty());
        let text = r#"{"launcher_pid": 9, "ended": {"count": 5, "by_command": [{"command": "x"}, 7]}}"#;
        let some = Summary::read(text).unwrap();
        assert_eq!(some.run().launcher_pid, Some(9));
        assert!(some.ended().unwrap().by_command.is_empty());
        assert_eq!(some.ended().unwrap().count, 5);
    }

    // Requirement: SLOW-13
    #[test]
    fn time_of_the_last_second_is_in_percent() {
        let known = |text: &str| Summary::read(text).unwrap().time_percent();
        let all =
            r#""computing": 3, "waiting_for_core": 0, "storage": 1, "network": 0, "locks": 0, "other": 0"#;
        let percent = known(&format!("{{\"time_ns\": {{{all}}}}}")).unwrap();
        assert_eq!((percent.computing, percent.storage, percent.other), (75.0, 25.0, 0.0));
        assert_eq!([known("{}"), known(r#"{"time_ns": null}"#)], [None; 2]);
    }

    // Requirement: WATCH-14
    #[test]
    fn alerts_that_are_on_are_said_with_the_time_left() {
        let text = r#"{"alerts": [
            {"at_s": 125.0, "kind": "growth", "rule": "growth", "quantity": "growth", "unit": "bytes", "amount": 9.1e8,
             "since_s": 60.0, "rate_bytes_per_s": 2e6, "left_s": 840.0},
            {"at_s": 125.0, "kind": "later"}, 5]}"#;
        let growth = "alert growth, 2 min 5 s after the start: 910 MB of RAM, and it has risen since 1 min 0 s, by 120 MB a minute: \
                      about 14 min 0 s left";
        assert_eq!(Summary::read(text).unwrap().alerts(), [growth]);
    }

    #[test]
    fn events_are_said_and_kinds_of_a_later_version_are_left_out() {
        let text = r#"{"start_ns": 1000000000, "other_events": 4, "events": [
            {"kind": "signal", "at_ns": 3500000000, "signal": "SIGTERM", "sender": "bash"},
            {"kind": "crash", "signal": "SIGSEGV", "command": null, "count": 2},
            {"kind": "output", "output": "t.csv", "failed": null, "lost": 3},
            {"kind": "later", "text": "x"}, 5]}"#;
        let lines = Summary::read(text).unwrap().events();
        let expected =
            ["2.50 s: SIGTERM from bash", "2 x ? ended by SIGSEGV", "t.csv lost 3 lines", "4 more"];
        assert_eq!(lines, expected);
    }
}

//! A summary of the run so far, for programs that watch it. It is cheap enough to be made twice a second.

use super::state::RunState;
use crate::model::alert::RunEvent;
use crate::model::live::{Ended, LiveCoverage, LiveEvent, LiveSummary};
use crate::model::signal::signal_name;
use crate::model::tree_sample::TreeSample;

/// Maximum number of alerts in the list.
const MAX_ALERTS: usize = 8;
/// Maximum number of events of a kind (signals, crashes, outputs) in the list.
const MAX_EVENTS: usize = 6;
/// Maximum number of characters of a text that the run did not make, such as the name of a process.
const MAX_CHARACTERS: usize = 100;

/// Builds the summary of the run and its open sample `now`. Lists at most `most_commands` commands of ended processes.
pub fn live_summary(run: &RunState, now: &TreeSample, most_commands: usize) -> LiveSummary {
    let (by_command, other_commands) = run.totals.most_frequent(most_commands);
    let seen = &run.totals.coverage;
    let (events, other_events) = events(run);
    LiveSummary {
        max_ram: now.max_ram,
        time_ns: run.samples.last_second(),
        ended: Ended { count: seen.processes, by_command, other_commands },
        coverage: LiveCoverage {
            exact: seen.exact,
            sampled: seen.sampled,
            unknown: seen.unknown,
            uninstrumented: seen.uninstrumented,
            joined: seen.joined,
            failed_spawns: run.tree.counts().failed_spawns,
            connector_absent: run.health.connector.absent.as_deref().map(short),
            connector_overruns: run.health.connector.overruns,
            records_untrusted: run.health.records_untrusted(),
            unsampled_s: run.health.unsampled_ns as f64 / 1e9,
        },
        alerts: alerts(run),
        events,
        other_events,
    }
}

/// The first [`MAX_ALERTS`] alerts that are on, as events.
fn alerts(run: &RunState) -> Vec<RunEvent> {
    let is_on = run.rules.alerts.iter().filter_map(|alert| alert.now.as_ref()).take(MAX_ALERTS);
    is_on.map(|event| RunEvent { rule: event.rule.as_deref().map(short), ..event.clone() }).collect()
}

/// The first [`MAX_EVENTS`] of each kind (signals, crashes, troubles of outputs), and how many others there were.
fn events(run: &RunState) -> (Vec<LiveEvent>, u64) {
    let signals = run.signals.iter().map(|received| LiveEvent::Signal {
        at_ns: received.at_ns,
        signal: signal_name(received.signal),
        sender: received.sender.command.as_deref().map(short),
    });
    // Until the end it is not known how many processes the kernel's OOM killer ended. With 0, `list` leaves out all SIGKILLs.
    let known_oom_kills = 0;
    let crashes = run.failures.crashes.list(known_oom_kills);
    let crashed = crashes.iter().map(|crash| LiveEvent::Crash {
        signal: crash.signal_name.clone(),
        command: crash.command.as_deref().map(short),
        count: crash.count,
    });
    let outputs = run.health.sinks.0.iter().map(|(name, trouble)| LiveEvent::Output {
        output: short(name),
        failed: trouble.failed.as_deref().map(short),
        lost: trouble.lost,
    });
    let all = run.signals.len() + crashes.len() + run.health.sinks.0.len();
    let listed: Vec<LiveEvent> =
        signals.take(MAX_EVENTS).chain(crashed.take(MAX_EVENTS)).chain(outputs.take(MAX_EVENTS)).collect();
    let others = (all - listed.len()) as u64;
    (listed, others)
}

/// Shortens a text to [`MAX_CHARACTERS`] characters.
fn short(text: &str) -> String {
    text.chars().take(MAX_CHARACTERS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::report::Exit;
    use crate::run::cause::tests::process;
    use crate::run::tree::RunContext;
    use crate::run::trust::Trust;
    use crate::run::usage::CpuUsage;

    fn new_run() -> RunState {
        let context = RunContext::of_test(100, 10, 0);
        RunState::new(context, CpuUsage::new(1, 2, 0), Trust::new(0, 2, false), 5)
    }

    // Requirement: TIME-65
    #[test]
    fn commands_with_most_processes_come_first_and_the_others_are_counted() {
        let mut run = new_run();
        for (command, count) in [("rare", 1), ("b", 2), ("a", 2), ("often", 3)] {
            for pid in 0..count {
                run.totals.add(&process(pid, command, Exit { code: Some(0), signal: None }));
            }
        }
        let listed = |most| {
            let ended = live_summary(&run, &TreeSample::default(), most).ended;
            let names: Vec<_> =
                ended.by_command.into_iter().map(|usage| (usage.command, usage.count)).collect();
            (ended.count, names, ended.other_commands)
        };
        let named = |name: &str, count| (name.to_owned(), count);
        assert_eq!(listed(3), (8, vec![named("often", 3), named("a", 2), named("b", 2)], 1));
        assert_eq!((listed(9).1.len(), listed(9).2, listed(0).2), (4, 0, 4));
    }

    // Requirement: WATCH-14
    #[test]
    fn alerts_that_are_on_have_their_figure_of_now() {
        use crate::model::alert::Alerts;
        use crate::model::rule::{Quantity, Response, Rule, Threshold};
        use crate::model::tree_sample::Span;
        use crate::run::orders::Orders;
        use crate::run::rules::{Moment, Rules, Usable};
        let alert = Rule {
            words: "ram>100".into(),
            quantity: Quantity::Ram,
            threshold: Threshold::Amount(100),
            response: Response::Tell,
        };
        let asked = Alerts { list: vec![alert], ..Alerts::default() };
        let mut run = new_run();
        run.rules = Rules::new(&[], &asked, Usable::default(), 1);
        let amounts = [(0, 200), (2, 300), (3, 400), (4, 0), (6, 0)].map(|(s, bytes)| {
            let mut sample = TreeSample { at_ns: s * 1_000_000_000, ..TreeSample::default() };
            sample.footprint_bytes.combined = Span::at_end(bytes);
            let moment = Moment { start_ns: 0, are_all_stopped: false, sample: &sample };
            run.rules.decide(&moment, &mut Orders::default());
            let on = live_summary(&run, &sample, 0).alerts;
            on.first().map(|event| (event.amount, event.since_s))
        });
        let on = |amount| Some((Some(amount), Some(2.0)));
        assert_eq!(amounts, [None, on(300.0), on(400.0), on(0.0), None]);
    }

    #[test]
    fn summary_without_commands_is_small_whatever_happened() {
        let mut run = new_run();
        let name = "\u{1}".repeat(4000);
        for signal in 1..31 {
            let command = format!("{signal}{name}");
            let ended = process(1, &command, Exit { code: None, signal: Some(signal) });
            run.totals.add(&ended);
            run.failures.add_if_failed(&ended);
            run.health.sinks.failed(&command, &name);
        }
        run.health.connector.absent = Some(name);
        let summary = live_summary(&run, &TreeSample::default(), 0);
        assert_eq!((summary.events.len(), summary.ended.count), (12, 30));
        assert!(summary.other_events > 0);
        let text = serde_json::to_string(&summary).unwrap();
        assert!(text.len() < 16 * 1024, "{}", text.len());
    }
}

//! The run so far, for programs that watch it: cheap enough to be made twice a second.

use super::state::RunState;
use crate::model::live::{Ended, LiveCoverage, LiveEvent, LiveSummary};
use crate::model::signal::signal_name;
use crate::model::tree_sample::TreeSample;

/// Most events of a kind in the list.
const EVENTS: usize = 6;
/// Most characters of a text that came from outside.
const LONGEST: usize = 100;

/// Builds the summary, with at most so many commands.
pub fn live_summary(run: &RunState, now: &TreeSample, most_commands: usize) -> LiveSummary {
    let (by_command, other_commands) = run.totals.most_frequent(most_commands);
    let seen = &run.totals.coverage;
    let (events, other_events) = events(run);
    LiveSummary {
        max_ram: now.max_ram,
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
        events,
        other_events,
    }
}

/// Gives the first events of each kind, and how many others there were.
fn events(run: &RunState) -> (Vec<LiveEvent>, u64) {
    let signals = run.signals.iter().map(|received| LiveEvent::Signal {
        at_ns: received.at_ns,
        signal: signal_name(received.signal),
        sender: received.sender.command.as_deref().map(short),
    });
    // Which processes the kernel killed for lack of memory is known at the end.
    let crashes = run.failures.crashes.list(0);
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
        signals.take(EVENTS).chain(crashed.take(EVENTS)).chain(outputs.take(EVENTS)).collect();
    let others = (all - listed.len()) as u64;
    (listed, others)
}

fn short(text: &str) -> String {
    text.chars().take(LONGEST).collect()
}

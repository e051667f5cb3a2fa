//! The alerts of a run and what happened in it.

use super::Inputs;
use crate::model::alert::{EventKind, Events, RunEvent};
use crate::model::report::{AlertUse, Peak, Stage};
use crate::model::rule::{Quantity, Unit};
use crate::model::sorting::Sorting;
use crate::run::rules::alerts::Alert;

/// The report's entry on each alert of the run.
pub(super) fn alerts(inputs: &Inputs) -> Vec<AlertUse> {
    let entry = |alert: &Alert| {
        let quantity = alert.rule.quantity;
        // Growth is judged without a threshold: its `allowed` only tells what the run may use. `unknown` says why a figure is not known.
        let reason = (alert.allowed.is_none() && quantity != Quantity::Growth)
            .then(|| quantity.row().unknown.to_owned());
        AlertUse {
            alert: alert.rule.words.clone(),
            quantity,
            unit: alert.rule.unit(),
            allowed: alert.allowed,
            reason,
            times: alert.state.times,
            first_at_s: alert.state.first_on_ns.map(|at_ns| inputs.run.since_start_s(at_ns)),
            on_s: alert.state.on_ns_until(inputs.end.at_ns) as f64 / 1e9,
            is_on: alert.state.on_ns.is_some(),
        }
    };
    inputs.run.rules.alerts.iter().map(entry).collect()
}

/// The report's list of what happened in the run, in order of time. It has the log of the run, its peak if known, and its end if over.
/// `None`: no events were asked for.
pub(super) fn events(inputs: &Inputs, peak: Option<&Peak>, wall_s: f64) -> Option<Events> {
    let log = &inputs.run.events.as_ref()?.log;
    let mut events = Events { count: log.count, by_kind: log.by_kind.clone(), list: log.list.clone() };
    let peak = peak.map(|peak| RunEvent {
        quantity: Some(Quantity::Ram),
        unit: Some(Unit::Bytes),
        amount: Some(peak.footprint_bytes as f64),
        ..RunEvent::new(peak.at_s, EventKind::Peak)
    });
    let stop = (inputs.end.stage == Stage::Over).then(|| RunEvent::new(wall_s, EventKind::Stop));
    for event in peak.into_iter().chain(stop) {
        events.count += 1;
        *events.by_kind.entry(event.kind).or_default() += 1;
        events.list.push(event);
    }
    events.list.order_by(|a, b| a.at_s.total_cmp(&b.at_s));
    Some(events)
}

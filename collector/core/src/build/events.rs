//! The alerts of a run and what happened in it.

use super::Inputs;
use crate::model::alert::{AlertQuantity, EventKind, Events, RunEvent};
use crate::model::report::{AlertUse, Peak, Stage};
use crate::model::run_limit::Unit;
use crate::run::alerts::AlertRule;

/// Gives the report's entry on each alert of the run.
pub(super) fn alerts(inputs: &Inputs) -> Vec<AlertUse> {
    let Some(alerts) = &inputs.run.alerts else { return Vec::new() };
    alerts.list().iter().map(|rule| alert(inputs, rule)).collect()
}

/// Makes the report's entry on an alert.
fn alert(inputs: &Inputs, rule: &AlertRule) -> AlertUse {
    let quantity = rule.alert.quantity;
    let since_start_s = |at_ns: u64| at_ns.saturating_sub(inputs.run.start_ns) as f64 / 1e9;
    // An alert of growth needs no amount that is allowed.
    let reason = (rule.allowed.is_none() && quantity != AlertQuantity::Growth).then(|| reason(quantity));
    AlertUse {
        alert: rule.alert.words.clone(),
        quantity,
        unit: quantity.unit(),
        allowed: rule.allowed,
        reason: reason.map(str::to_owned),
        times: rule.times(),
        first_at_s: rule.first_on_ns().map(since_start_s),
        on_s: rule.on_ns_until(inputs.end.at_ns) as f64 / 1e9,
        is_on: rule.is_on(),
    }
}

/// Says why the figure of an alert was not known at any sample.
fn reason(quantity: AlertQuantity) -> &'static str {
    match quantity {
        AlertQuantity::Ram | AlertQuantity::Growth => "the memory that the run may use is not known",
        AlertQuantity::GpuRam => "no GPU told the memory of the run",
        AlertQuantity::Cpu => "no CPU utilisation was known",
        AlertQuantity::Disk => "no file system told its free space",
        AlertQuantity::GpuIdle => "there is no GPU that the run may use, or one does not tell how busy it is",
    }
}

/// Gives what happened in the run, in order of time. Adds its peak, if that is known, and its end, if the run is over. `None`: no
/// events were asked for.
pub(super) fn events(inputs: &Inputs, peak: Option<&Peak>, wall_s: f64) -> Option<Events> {
    let log = &inputs.run.alerts.as_ref()?.log;
    let mut events = Events { count: log.count, by_kind: log.by_kind.clone(), list: log.list.clone() };
    let peak = peak.map(|peak| RunEvent {
        quantity: Some(AlertQuantity::Ram),
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
    events.list.sort_by(|a, b| a.at_s.total_cmp(&b.at_s));
    Some(events)
}

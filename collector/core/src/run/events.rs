//! Collects the events of a run (its start, exceeded limits, alerts, steps of memory) for `--events`, the report and the live summary.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::event_log::{EventLog, seconds};
use super::gpu::GpuUsage;
use super::rules::Rules;
use super::steps::MemoryStep;
use super::steps::jumps::Jumps;
use crate::model::alert::{AlertCommandFailure, EventKind, RunEvent};
use crate::model::order::{Action, Order};
use crate::model::rule::Quantity;
use crate::model::tree_sample::TreeSample;

/// The events of a run, and what was noted already, so that each event is added once.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct RunEvents {
    pub(crate) log: EventLog,
    jumps: Jumps,
    /// The start of the command was noted.
    has_started: bool,
    /// The limits that were noted as exceeded, by their index.
    exceeded: Vec<usize>,
    /// The runs of the command of `--on-alert` whose failure was noted, by the numbers (epochs) of their orders.
    failed: BTreeSet<u32>,
    /// Events that no sink has got yet.
    #[serde(skip)]
    pub(super) new: Vec<RunEvent>,
}

impl RunEvents {
    /// Adds the event of the command's start, once: a collector that replaces a killed one is told of the start again.
    pub(super) fn note_start(&mut self) {
        if !self.has_started {
            self.has_started = true;
            let at_s = 0.0;
            self.add(RunEvent::new(at_s, EventKind::Start));
        }
    }

    /// Adds an event for each limit that was exceeded since the last call.
    pub(super) fn note_limits(&mut self, rules: &Rules, start_ns: u64) {
        for (index, (limit, exceeded)) in rules.limits().enumerate() {
            let Some(exceeded) = exceeded else { continue };
            if self.exceeded.contains(&index) {
                continue;
            }
            self.exceeded.push(index);
            let unit = limit.unit();
            // The amounts are converted: a rule has times in nanoseconds, a report in seconds.
            self.add(RunEvent {
                rule: Some(limit.words.clone()),
                unit: Some(unit),
                amount: Some(unit.in_report_unit(exceeded.by.amount as f64)),
                allowed: Some(unit.in_report_unit(exceeded.by.allowed as f64)),
                ..RunEvent::new(seconds(start_ns, exceeded.by.at_ns), EventKind::Limit)
            });
        }
    }

    /// Adds the event that the user's command for an alert failed, `at_s` seconds after the command's start. `alert` is the alert's
    /// index. The event is added once for each order, by its `epoch`: a collector that replaces a killed one is told again.
    pub(super) fn note_failure(
        &mut self,
        rules: &Rules,
        (alert, epoch): (u32, u32),
        at_s: f64,
        failure: AlertCommandFailure,
    ) {
        if self.failed.insert(epoch) {
            let rule = rules.alerts.get(alert as usize).map(|alert| alert.rule.words.clone());
            let message = Some(failure.to_string());
            self.add(RunEvent { rule, message, ..RunEvent::new(at_s, EventKind::Error) });
        }
    }

    /// Adds an event for each unanswered order to run the user's command for an alert. The run is over, so no order is obeyed any more.
    /// `at_s`: seconds after the command's start.
    pub(super) fn give_up(&mut self, rules: &Rules, open: &[Order], at_s: f64) {
        for order in open {
            if let Action::RunAlertCommand { alert, .. } = order.action {
                self.note_failure(rules, (alert, order.id.epoch), at_s, AlertCommandFailure::RunEnded);
            }
        }
    }

    /// Adds the event of a jump of RAM from the sample before to this one, if there was such a jump.
    pub(super) fn note_jump(&mut self, rules: &Rules, sample: &TreeSample, start_ns: u64) {
        let (most_bytes, now_bytes) = (rules.most_ram(), sample.footprint_bytes.combined.end);
        if let Some(jump) = self.jumps.add_sample(sample.at_ns, now_bytes, most_bytes, rules.interval_ns) {
            let event = event_of(&jump, start_ns, EventKind::Jump, Quantity::Ram);
            self.add_step(RunEvent { allowed: most_bytes.map(|bytes| bytes as f64), ..event }, jump.is_told);
        }
    }

    /// Adds the events of the steps of GPU memory that `usage` has found since the last call.
    pub(super) fn note_gpu_steps(&mut self, usage: &mut GpuUsage, start_ns: u64) {
        for (found, device, process) in usage.take_steps() {
            let kind = match process {
                // A step of the memory of all processes together.
                None => EventKind::Jump,
                Some(_) if found.to > found.from => EventKind::Allocation,
                Some(_) => EventKind::Deallocation,
            };
            let allowed = device.memory_bytes.filter(|_| kind == EventKind::Jump);
            let event = RunEvent {
                allowed: allowed.map(|bytes| bytes as f64),
                pid: process.map(|process| process.pid),
                command: process.map(|process| process.command.to_string()),
                device: Some(device.id.clone()),
                ..event_of(&found, start_ns, kind, Quantity::GpuRam)
            };
            self.add_step(event, found.is_told);
        }
    }

    /// Adds the event of a step of memory. Where such steps come too often, it is not told, but only counted.
    fn add_step(&mut self, event: RunEvent, is_told: bool) {
        if is_told {
            self.add(event);
        } else {
            self.log.count(event.kind);
        }
    }

    /// Adds an event to the log, and to those that sinks get.
    pub(super) fn add(&mut self, event: RunEvent) {
        self.new.push(event.clone());
        self.log.add(event);
    }
}

/// Makes the event of a step of memory, in a run that began at `start_ns`.
fn event_of(step: &MemoryStep, start_ns: u64, kind: EventKind, quantity: Quantity) -> RunEvent {
    RunEvent {
        quantity: Some(quantity),
        unit: Some(quantity.row().unit),
        amount: Some(step.to as f64),
        from: Some(step.from as f64),
        since_s: Some(seconds(start_ns, step.from_ns)),
        ..RunEvent::new(seconds(start_ns, step.at_ns), kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::alert::Alerts;
    use crate::model::order::{OrderId, OrderedBy};
    use crate::model::rule::{Response, Rule, Threshold};
    use crate::model::run_limit::Excess;
    use crate::model::tree_sample::Span;
    use crate::run::orders::Orders;
    use crate::run::rules::{Moment, Usable};

    const S: u64 = 1_000_000_000;
    const START_NS: u64 = 100 * S;

    fn rule(words: &str, threshold: Threshold, response: Response) -> Rule {
        Rule { words: words.into(), quantity: Quantity::Ram, threshold, response }
    }

    /// Rules with a limit of 1 GiB, and an alert at 80% of 1 GB, for which a command runs.
    fn rules() -> Rules {
        let limit = rule("ram=1G", Threshold::Amount(1 << 30), Response::End);
        let alert = rule("ram>80%", Threshold::Percent(80.0), Response::Tell);
        let alerts = Alerts { list: vec![alert], run_a_command: true, ..Alerts::default() };
        Rules::new(&[limit], &alerts, Usable { ram_bytes: Some(1_000_000_000), cores: 2.0 }, S)
    }

    // Requirement: ALERT-5
    #[test]
    fn limit_is_noted_once_and_the_start_too() {
        let (mut events, mut rules) = (RunEvents::default(), rules());
        events.note_start();
        events.note_start();
        events.note_limits(&rules, START_NS);
        rules.acted(0, Excess { at_ns: START_NS + 3 * S, allowed: 1 << 30, amount: 2 << 30 });
        events.note_limits(&rules, START_NS);
        events.note_limits(&rules, START_NS);
        let kinds: Vec<_> =
            std::mem::take(&mut events.new).iter().map(|event| (event.kind, event.at_s)).collect();
        assert_eq!(kinds, [(EventKind::Start, 0.0), (EventKind::Limit, 3.0)]);
    }

    // Requirement: ALERT-12
    #[test]
    fn failure_of_the_users_command_is_one_event_however_often_it_is_told() {
        let (mut events, rules) = (RunEvents::default(), rules());
        // One that waited for too long is told before an older one that took its time.
        for (epoch, status) in [(3, 1), (0, 2), (3, 1), (0, 2)] {
            let at_s = 4.0 - f64::from(epoch);
            events.note_failure(&rules, (0, epoch), at_s, AlertCommandFailure::Exited(status));
        }
        let new = std::mem::take(&mut events.new);
        let told: Vec<_> = new.iter().map(|event| (event.kind, event.at_s)).collect();
        assert_eq!(told, [(EventKind::Error, 1.0), (EventKind::Error, 4.0)]);
        assert!(new[0].message.as_deref().is_some_and(|text| text.ends_with("exited with status 1")));
        assert_eq!(new[0].rule.as_deref(), Some("ram>80%"));
    }

    // Requirement: ALERT-12
    #[test]
    fn alert_whose_order_is_not_obeyed_before_the_end_is_told() {
        let (mut events, mut rules, mut orders) = (RunEvents::default(), rules(), Orders::default());
        for (s, mb) in [(0, 900), (1, 900), (2, 100), (3, 100)] {
            let mut sample = TreeSample { at_ns: START_NS + s * S, ..TreeSample::default() };
            sample.footprint_bytes.combined = Span::at_end(mb * 1_000_000);
            let moment = Moment { start_ns: START_NS, are_all_stopped: false, sample: &sample };
            rules.decide(&moment, &mut orders);
        }
        // The launcher has run the command for the first of the two alerts.
        orders.answer(OrderId { by: OrderedBy::AlertCommand, epoch: 0 });
        // A collector that was killed and its successor both come to the end.
        for _ in 0..2 {
            events.give_up(&rules, orders.open(), 4.0);
        }
        let new = std::mem::take(&mut events.new);
        let [event] = &new[..] else { panic!("{new:?}") };
        assert_eq!((event.kind, event.at_s, event.rule.as_deref()), (EventKind::Error, 4.0, Some("ram>80%")));
        assert_eq!(event.message, Some(AlertCommandFailure::RunEnded.to_string()));
    }
}

//! An event of a run, in words.

use crate::figures::{UNKNOWN, bytes, readable};
use crate::model::alert::{EventKind, RunEvent};
use crate::model::rule::Quantity;
use crate::quote::escape;
use crate::rules_in_words::{self, with_unit};

/// Describes an event in one line for the user. Control characters of names in it are escaped.
pub fn event_in_words(event: &RunEvent) -> String {
    let rule = escape(event.rule.as_deref().unwrap_or_default());
    let at = readable(event.at_s);
    match event.kind {
        EventKind::Start => "the command started".to_owned(),
        EventKind::Stop => format!("the run ended after {at}"),
        EventKind::Peak => format!("most RAM, {}", amount(event)),
        EventKind::Limit => {
            format!("limit {rule} exceeded {at} after the start: {}", amount(event))
        }
        // A jump is of the whole run, an allocation of one process.
        EventKind::Jump if event.device.is_some() => {
            format!("GPU RAM of the run{} rose {}", on_device(event), step_range(event))
        }
        EventKind::Jump => format!("RAM rose {}", step_range(event)),
        EventKind::Allocation => format!("GPU RAM{} rose {}", on_device(event), step_range(event)),
        EventKind::Deallocation => format!("GPU RAM{} fell {}", on_device(event), step_range(event)),
        EventKind::Error => {
            let alert = event.rule.as_ref().map(|_| format!("alert {rule}: ")).unwrap_or_default();
            let message = escape(event.message.as_deref().unwrap_or_default());
            format!("{alert}{message}, {at} after the start")
        }
        EventKind::Recovered => {
            let on_s = event.since_s.map_or(0.0, |since_s| event.at_s - since_s);
            format!("alert {rule} is over after {}: {}", readable(on_s), figure(event))
        }
        EventKind::Warning | EventKind::Critical | EventKind::GpuIdle => {
            format!("alert {rule}, {at} after the start: {}{}", figure(event), rise(event))
        }
        EventKind::Growth => {
            let since = event.since_s.map(|since_s| format!(" since {}", readable(since_s)));
            format!(
                "alert {rule}, {at} after the start: {}, and it has risen{}{}",
                figure(event),
                since.unwrap_or_default(),
                rise(event)
            )
        }
    }
}

/// Says the figure that an event is about, and how large it was. When a GPU works again, it has no idle time, so none is said.
fn figure(event: &RunEvent) -> String {
    let amount = amount(event);
    match event.quantity.zip(event.unit) {
        Some((Quantity::GpuIdle, _)) if event.kind == EventKind::Recovered => "a GPU works again".to_owned(),
        Some((quantity, unit)) => rules_in_words::figure(quantity, unit, &amount),
        None => amount,
    }
}

/// Says on which GPU an event was, as the middle of a sentence. Empty: it was on no single GPU.
fn on_device(event: &RunEvent) -> String {
    event.device.as_deref().map(|device| format!(" on {}", escape(device))).unwrap_or_default()
}

/// Says from which amount to which memory rose or fell, and the time between the two readings, within which it did so.
fn step_range(event: &RunEvent) -> String {
    let within = event.since_s.map(|since_s| format!(" within {}", readable(event.at_s - since_s)));
    // `amount` writes an event's figure with its unit, so the figure before the step stands in a copy of the event.
    let from = RunEvent { amount: event.from, ..event.clone() };
    format!("from {} to {}{}", amount(&from), amount(event), within.unwrap_or_default())
}

/// Says how fast RAM rises, and when it will reach what may be used, as the end of a sentence. Empty: the event has no rate.
fn rise(event: &RunEvent) -> String {
    let Some(rate) = event.rate_bytes_per_s else { return String::new() };
    let left = event.left_s.map(|left_s| format!(": about {} left", readable(left_s)));
    format!(", by {} a minute{}", bytes((rate * 60.0) as u64), left.unwrap_or_default())
}

/// Formats the amount of an event with its unit.
pub(crate) fn amount(event: &RunEvent) -> String {
    event.amount.map_or_else(|| UNKNOWN.to_owned(), |amount| with_unit(amount, event.unit, None))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::rule::Unit;

    // Requirement: ALERT-7
    #[test]
    fn line_says_what_there_is_since_when_and_how_long_it_can_go_on() {
        let event = |kind, quantity: Quantity, amount| RunEvent {
            rule: Some("x".into()),
            quantity: Some(quantity),
            unit: Some(quantity.row().unit),
            amount: Some(amount),
            since_s: Some(60.0),
            ..RunEvent::new(125.0, kind)
        };
        let rising = RunEvent {
            rate_bytes_per_s: Some(2e6),
            left_s: Some(840.0),
            ..event(EventKind::Growth, Quantity::Growth, 9.1e8)
        };
        let step = |kind, quantity, device: Option<&str>| RunEvent {
            from: Some(0.0),
            since_s: Some(124.5),
            device: device.map(str::to_owned),
            ..event(kind, quantity, 2e9)
        };
        let lines = [
            event(EventKind::Critical, Quantity::Ram, 9.5e8),
            RunEvent { kind: EventKind::Warning, quantity: Some(Quantity::Ram), ..rising.clone() },
            rising,
            event(EventKind::Recovered, Quantity::Ram, 5e8),
            RunEvent { unit: Some(Unit::Percent), ..event(EventKind::Warning, Quantity::Cpu, 97.0) },
            event(EventKind::Warning, Quantity::Disk, 9e8),
            event(EventKind::GpuIdle, Quantity::GpuIdle, 300.0),
            event(EventKind::Recovered, Quantity::GpuIdle, 0.0),
            step(EventKind::Jump, Quantity::Ram, None),
            step(EventKind::Jump, Quantity::GpuRam, Some("GPU-1")),
            step(EventKind::Deallocation, Quantity::GpuRam, Some("GPU\x1b")),
        ];
        let lines = lines.map(|event| event_in_words(&event));
        assert_eq!(
            lines.each_ref().map(String::as_str),
            [
                "alert x, 2 min 5 s after the start: 950 MB of RAM",
                "alert x, 2 min 5 s after the start: 910 MB of RAM, by 120 MB a minute: about 14 min 0 s left",
                "alert x, 2 min 5 s after the start: 910 MB of RAM, and it has risen since 1 min 0 s, by 120 MB a minute: \
                 about 14 min 0 s left",
                "alert x is over after 1 min 5 s: 500 MB of RAM",
                "alert x, 2 min 5 s after the start: 97 % of the cores in use",
                "alert x, 2 min 5 s after the start: 900 MB free where the run may write",
                "alert x, 2 min 5 s after the start: no GPU worked for 5 min 0 s",
                "alert x is over after 1 min 5 s: a GPU works again",
                "RAM rose from 0 B to 2.00 GB within 0.50 s",
                "GPU RAM of the run on GPU-1 rose from 0 B to 2.00 GB within 0.50 s",
                "GPU RAM on GPU\\x1b fell from 0 B to 2.00 GB within 0.50 s",
            ]
        );
    }
}

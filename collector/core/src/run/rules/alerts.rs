//! Alerts: the user is told when one begins and when it is over. A command of the user can run then, too.
//!
//! A sample that lacks an alert's figure leaves the alert as it is, on or off. Between two readings of a slow GPU driver, many do. So the
//! time for which a figure is beyond its threshold goes on over such samples, unless they are too many ([`UNKNOWN_FOR_NS`]).

use serde::{Deserialize, Serialize};

use super::growth::Rise;
use super::hysteresis::{Change, Hysteresis, Side};
use super::limits::is_of_drivers;
use super::watch::{UNKNOWN_FOR_NS, Watch};
use super::{Moment, Rules};
use crate::model::alert::{EventKind, RunEvent};
use crate::model::order::{Action, Order, OrderId, OrderedBy};
use crate::model::rule::{Quantity, Rule, Threshold};
use crate::run::event_log::seconds;
use crate::run::orders::Orders;

/// An alert of memory with this threshold or a higher one is critical.
const CRITICAL_PERCENT: f64 = 95.0;

/// An alert, and whether it is on.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Alert {
    pub(crate) rule: Rule,
    pub(crate) state: Hysteresis,
    /// Whether its figure was known.
    #[serde(default)]
    pub(super) watch: Watch,
    /// The threshold (of growth: what the run may use) when the figure was last known, in the unit of a report.
    pub(crate) allowed: Option<f64>,
    /// For an alert of growth: which memory rose last.
    grown: MemoryKind,
    /// The event that describes it at the last sample that had its figure. `None`: it was off then, or this collector has seen no
    /// such sample.
    #[serde(skip)]
    pub(crate) now: Option<RunEvent>,
}

/// The figure of an alert at a sample, in the unit of the rule.
#[derive(Debug, Clone, Copy)]
struct AlertFigure {
    amount: f64,
    /// The threshold, at which the alert goes on; of growth, which has none, what the run may use. `None`: that is not known.
    allowed: Option<f64>,
    /// On which side of the threshold the amount is.
    side: Side,
    /// How fast memory rises. Only alerts of growth and of RAM tell it. `None`: it does not rise all the time.
    rise: Option<Rise>,
    /// The amount at which memory that rises is full, bytes: the RAM above which the run ends, or all memory of the fullest GPU. `None`: not
    /// known.
    usable: Option<f64>,
}

/// Which memory an alert of growth is about.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
enum MemoryKind {
    /// The footprint.
    #[default]
    Ram,
    /// The memory in use on the fullest GPU.
    GpuRam,
}

/// How each memory rises, with [`MemoryKind`] as index. `None`: it does not rise all the time.
type Rises = [Option<Rise>; 2];

impl Alert {
    /// Makes an alert that is off.
    pub(super) fn new(rule: Rule) -> Self {
        Self {
            rule,
            state: Hysteresis::default(),
            watch: Watch::default(),
            allowed: None,
            grown: MemoryKind::Ram,
            now: None,
        }
    }

    /// The kind of its event when it goes on.
    fn kind(&self) -> EventKind {
        match (self.rule.quantity, self.rule.threshold) {
            (Quantity::Growth, _) => EventKind::Growth,
            (Quantity::GpuIdle, _) => EventKind::GpuIdle,
            (Quantity::Ram | Quantity::GpuRam, Threshold::Percent(percent))
                if percent >= CRITICAL_PERCENT =>
            {
                EventKind::Critical
            }
            _ => EventKind::Warning,
        }
    }
}

impl Rules {
    /// Decides which alerts go on or off, and returns their events. Orders that the user is told of each, and that the user's command
    /// runs, if there is one.
    pub(super) fn decide_alerts(&mut self, moment: &Moment, orders: &mut Orders) -> Vec<RunEvent> {
        let memory = self.gpu_memory.fullest(&moment.sample.gpu).map(|(_, memory_bytes)| memory_bytes);
        let gpu_ram_rise = memory.and_then(|memory_bytes| self.gpu_growth.rise(Some(memory_bytes)));
        let ram_rise = self.ram_growth.rise(self.most_ram());
        // In the order of MemoryKind.
        let rises = [ram_rise, gpu_ram_rise];
        let mut events = Vec::new();
        for index in 0..self.alerts.len() {
            if let Some(event) = self.decide_alert(index, moment, rises) {
                self.order_telling(index as u32, &event, orders);
                events.push(event);
            }
        }
        events
    }

    /// The alerts that were not watched for [`UNKNOWN_FOR_NS`] or longer, as [`Self::not_held`] has limits.
    pub(crate) fn not_watched(&self, has_driver_failed: bool) -> impl Iterator<Item = (&Rule, Option<f64>)> {
        self.alerts.iter().filter_map(move |alert| {
            let was_untold = has_driver_failed && is_of_drivers(&alert.rule);
            let is_long = alert.watch.unknown_ns() >= UNKNOWN_FOR_NS;
            Some((&alert.rule, alert.watch.unwatched_s(was_untold || is_long)?))
        })
    }

    /// Orders what is done when an alert, given by its index, goes on or off.
    fn order_telling(&mut self, alert: u32, event: &RunEvent, orders: &mut Orders) {
        // The number of these orders: with it, each has an id of its own.
        let epoch = self.next_epoch;
        self.next_epoch = self.next_epoch.saturating_add(1);
        let action = Action::TellEvent(event.clone());
        orders.issue(Order { id: OrderId { by: OrderedBy::Alert, epoch }, action });
        if self.runs_a_command {
            let largest = self.largest.holder(event.quantity == Some(Quantity::GpuRam)).cloned();
            let action = Action::RunAlertCommand { alert, event: event.clone(), largest };
            orders.issue(Order { id: OrderId { by: OrderedBy::AlertCommand, epoch }, action });
        }
    }

    /// Takes in a sample for one alert, given by its index. Keeps its threshold and its `now`, for the live summary and the report.
    /// Returns the event if the alert goes on or off. `None`: it stays as it is.
    fn decide_alert(&mut self, index: usize, moment: &Moment, rises: Rises) -> Option<RunEvent> {
        let Moment { start_ns, sample, .. } = *moment;
        let alert = self.alerts.get(index)?;
        let is_growth = alert.rule.quantity == Quantity::Growth;
        // The memory that rises (if both do, RAM), or else the one that rose last.
        let mut kinds = [MemoryKind::Ram, MemoryKind::GpuRam].into_iter();
        let grown = kinds.find(|kind| rises[*kind as usize].is_some()).unwrap_or(alert.grown);
        let figure = if is_growth {
            self.figure_of_growth(grown, rises[grown as usize], moment)
        } else {
            self.figure(&alert.rule, rises, moment)
        };
        let can_be_known = self.knowable_ns(&alert.rule).is_some();
        let alert = self.alerts.get_mut(index)?;
        alert.grown = grown;
        // Time in which the use of a GPU is unknown is not idle, so it is not bridged.
        let bridged_ns = if alert.rule.quantity == Quantity::GpuIdle { 0 } else { UNKNOWN_FOR_NS };
        if can_be_known {
            alert.watch.note(sample.at_ns, figure.is_some(), bridged_ns);
        }
        let Some(figure) = figure else {
            // `now` stays: it is of the last sample with a figure.
            if alert.watch.is_unknown_for(bridged_ns) {
                alert.state.take_unknown();
            }
            return None;
        };
        // The unit of a report, to which `in_report_unit` converts amounts.
        let unit = alert.rule.unit();
        let allowed = figure.allowed.map(|allowed| unit.in_report_unit(allowed));
        alert.allowed = allowed.or(alert.allowed);
        let change = alert.state.take(figure.side, sample.at_ns);
        // How much is left until memory is full, and not until the threshold.
        let left_bytes = figure.usable.map(|usable| (usable - figure.amount).max(0.0));
        // Events of growth on a GPU are about its memory.
        let quantity =
            if is_growth && grown == MemoryKind::GpuRam { Quantity::GpuRam } else { alert.rule.quantity };
        let event = |kind, since_ns| RunEvent {
            rule: Some(alert.rule.words.clone()),
            quantity: Some(quantity),
            unit: Some(unit),
            amount: Some(unit.in_report_unit(figure.amount)),
            allowed,
            since_s: Some(seconds(start_ns, since_ns)),
            rate_bytes_per_s: figure.rise.map(|rise| rise.bytes_per_s),
            left_s: figure.rise.zip(left_bytes).map(|(rise, bytes)| bytes / rise.bytes_per_s),
            ..RunEvent::new(seconds(start_ns, sample.at_ns), kind)
        };
        // Growth has begun when the rise began, not when that was seen.
        let begin = |seen_ns| match figure.rise {
            Some(rise) if is_growth => rise.since_ns,
            _ => seen_ns,
        };
        let now = alert.state.on_ns.map(|on_ns| event(alert.kind(), begin(on_ns)));
        let changed = change.map(|change| match change {
            Change::On { since_ns } => event(alert.kind(), begin(since_ns)),
            Change::Off { since_ns } => event(EventKind::Recovered, since_ns),
        });
        alert.now = now;
        changed
    }

    /// The figure of an alert that is not one of growth. `None`: it is not known.
    fn figure(&self, rule: &Rule, rises: Rises, moment: &Moment) -> Option<AlertFigure> {
        if let (Quantity::GpuRam, Threshold::Percent(_)) = (rule.quantity, rule.threshold) {
            self.gpu_memory.fullest(&moment.sample.gpu)?;
        }
        let level = self.level(rule, moment)?;
        let side = Side::new(level, rule.quantity.row().acts_below);
        // `usable` serves only the time until memory is full, which only a rise has.
        let rise = rises[MemoryKind::Ram as usize].filter(|_| rule.quantity == Quantity::Ram);
        let usable = self.most_ram().map(|bytes| bytes as f64);
        Some(AlertFigure { amount: level.amount, allowed: Some(level.allowed), side, rise, usable })
    }

    /// The figure of an alert of growth, of this kind of memory. `None`: it is not known.
    fn figure_of_growth(&self, kind: MemoryKind, rise: Option<Rise>, moment: &Moment) -> Option<AlertFigure> {
        let (bytes, usable) = match kind {
            MemoryKind::Ram => (moment.sample.footprint_bytes.combined.end, self.most_ram()),
            MemoryKind::GpuRam => {
                self.gpu_memory.fullest(&moment.sample.gpu).map(|(used, memory)| (used, Some(memory)))?
            }
        };
        let usable = usable.map(|bytes| bytes as f64);
        let side = if rise.is_some() { Side::Beyond } else { Side::Back };
        Some(AlertFigure { amount: bytes as f64, allowed: usable, side, rise, usable })
    }
}
#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::model::alert::Alerts;
    use crate::model::gpu::Device;
    use crate::model::groups::Groups;
    use crate::model::rule::Response;
    use crate::model::run_limit::{LargestProcess, LargestProcesses};
    use crate::model::tree_sample::{CpuSample, FileSystemSample, GpuSample, GpuSums, Span, TreeSample};
    use crate::run::rules::Usable;

    const S: u64 = 1_000_000_000;
    const MB: u64 = 1_000_000;
    const START_NS: u64 = 100 * S;
    const INTERVAL_NS: u64 = S;
    const USABLE: Usable = Usable { ram_bytes: Some(1000 * MB), cores: 2.0 };

    fn alert(words: &str, quantity: Quantity, threshold: Threshold) -> Rule {
        Rule { words: words.into(), quantity, threshold, response: Response::Tell }
    }

    fn ram(percent: f64) -> Rule {
        alert("ram", Quantity::Ram, Threshold::Percent(percent))
    }

    fn rules(list: &[Rule]) -> Rules {
        with_usable(list, USABLE)
    }

    fn with_usable(list: &[Rule], usable: Usable) -> Rules {
        Rules::new(&[], &Alerts { list: list.to_vec(), ..Alerts::default() }, usable, INTERVAL_NS)
    }

    fn with_ram(at_ms: u64, bytes: u64) -> TreeSample {
        let combined = Span::at_end(bytes);
        let at_ns = START_NS + at_ms * 1_000_000;
        TreeSample {
            at_ns,
            footprint_bytes: Groups { combined, ..Groups::default() },
            ..TreeSample::default()
        }
    }

    fn moment(sample: &TreeSample) -> Moment<'_> {
        Moment { start_ns: START_NS, are_all_stopped: false, sample }
    }

    /// What a sample causes.
    fn after(rules: &mut Rules, sample: &TreeSample) -> Vec<(EventKind, f64)> {
        let events = rules.decide(&moment(sample), &mut Orders::default());
        events.into_iter().map(|event| (event.kind, event.at_s)).collect()
    }

    // Requirement: ALERT-2
    #[test]
    fn alert_goes_on_after_a_second_above_and_off_a_tenth_below() {
        let mut rules = rules(&[ram(80.0)]);
        let mut at = |ms, mb: u64| after(&mut rules, &with_ram(ms, mb * MB));
        assert_eq!(at(0, 900), []);
        assert_eq!(at(900, 700), [], "it was above for less than a second");
        assert_eq!(at(1000, 801), []);
        assert_eq!(at(1900, 801), []);
        assert_eq!(at(2000, 801), [(EventKind::Warning, 2.0)]);
        assert_eq!([at(3000, 800), at(9000, 721)], [[], []], "not a tenth below");
        assert_eq!([at(9500, 719), at(10_400, 719)], [[], []]);
        assert_eq!(at(10_500, 719), [(EventKind::Recovered, 10.5)]);
        assert_eq!([at(11_000, 900), at(31_900, 900)], [[], []], "again after 30 s");
        assert_eq!(at(32_000, 900), [(EventKind::Warning, 32.0)]);
        let [rule] = rules.alerts.as_slice() else { panic!() };
        assert!(rule.state.on_ns.is_some());
        assert_eq!((rule.state.times, rule.state.first_on_ns), (2, Some(START_NS + 2 * S)));
        assert_eq!(rule.state.on_ns_until(START_NS + 40 * S), 8_500_000_000 + 8 * S);
        assert_eq!(rule.allowed, Some(800e6));
    }

    // Requirement: ALERT-2
    #[test]
    fn memory_at_95_percent_is_critical() {
        let mut rules = rules(&[ram(80.0), ram(95.0)]);
        after(&mut rules, &with_ram(0, 990 * MB));
        let kinds: Vec<_> =
            after(&mut rules, &with_ram(1000, 990 * MB)).iter().map(|(kind, _)| *kind).collect();
        assert_eq!(kinds, [EventKind::Warning, EventKind::Critical]);
    }

    /// Events of a day in which RAM is this much at each half of a second.
    fn events_of_a_day(mut megabytes: impl FnMut(u64, &Rules) -> u64) -> usize {
        let mut rules = rules(&[ram(80.0)]);
        let mut count = 0;
        for half_s in 0..2 * 86_400 {
            let mb = megabytes(half_s, &rules);
            count += after(&mut rules, &with_ram(half_s * 500, mb * MB)).len();
        }
        assert!(count > 0);
        count
    }

    // Requirement: ALERT-3
    #[test]
    fn figure_that_trembles_for_a_day_causes_at_most_two_events_an_hour() {
        const MOST: usize = 48;
        // Half of the time at 850 MB, half at 700, with periods from 5 s to 4 h.
        for period_s in [5, 20, 45, 60, 90, 130, 300, 600, 1000, 1801, 3600, 5400, 7300, 14_400] {
            let count = events_of_a_day(|half_s, _| if half_s / period_s % 2 == 0 { 850 } else { 700 });
            assert!(count <= MOST, "period of {period_s} s: {count} events");
        }
        let (mut random, mut mb) = (1_u64, 0);
        let noise = events_of_a_day(|half_s, _| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            mb = if half_s % 8 == 0 { 650 + (random >> 33) % 300 } else { mb };
            mb
        });
        assert!(noise <= MOST, "noise: {noise} events");
        // The worst that it can do: it changes sides whenever the alert did.
        let worst = events_of_a_day(|_, rules| if rules.alerts[0].state.on_ns.is_some() { 0 } else { 999 });
        assert!((8..=MOST).contains(&worst), "{worst} events");
        // Or it waits until that is forgotten.
        let mut off = 0;
        let patient = events_of_a_day(|_, rules| {
            let rule = &rules.alerts[0];
            off = if rule.state.on_ns.is_some() { 0 } else { off + 1 };
            let waits = rule.state.returns == 2 && off <= 2 * 4 * 3600;
            if rule.state.on_ns.is_some() || waits { 0 } else { 999 }
        });
        assert!((8..=MOST).contains(&patient), "{patient} events");
    }

    // Requirement: ALERT-4
    #[test]
    fn unknown_figure_changes_no_alert() {
        let gpu_ram = |words, threshold| alert(words, Quantity::GpuRam, threshold);
        let list = [
            ram(80.0),
            gpu_ram("gpu_ram>80%", Threshold::Percent(80.0)),
            gpu_ram("gpu_ram>1M", Threshold::Amount(MB)),
            alert("cpu>1%", Quantity::Cpu, Threshold::Percent(1.0)),
            alert("disk<1T", Quantity::Disk, Threshold::Amount(1 << 40)),
            alert("gpu_idle>1s", Quantity::GpuIdle, Threshold::Amount(S)),
        ];
        let mut rules = with_usable(&list, Usable { ram_bytes: None, cores: 2.0 });
        for s in 0..100 {
            assert_eq!(after(&mut rules, &with_ram(s * 1000, 990 * MB)), []);
        }
        assert!(rules.alerts.iter().all(|rule| rule.allowed.is_none() && rule.state.times == 0));
    }

    /// A GPU of 1,000 MB of which so much is used, by the run and by all.
    fn gpu(run_mb: u64, used_mb: u64) -> GpuSample {
        let device = Device { memory_bytes: Some(1000 * MB), ..Device::default() };
        GpuSample {
            device: Arc::new(device),
            used_bytes: Some(used_mb * MB),
            run_bytes: Some(Groups { combined: run_mb * MB, ..Groups::default() }),
            ..GpuSample::default()
        }
    }

    /// A slow driver: only each of these seconds' samples knows the GPUs, of which the first is full and the others are not.
    // Requirement: ALERT-4
    #[test]
    fn alert_goes_on_and_off_by_the_rare_readings_of_slow_drivers() {
        let list = [
            alert("gpu_ram>80%", Quantity::GpuRam, Threshold::Percent(80.0)),
            alert("gpu_ram>1M", Quantity::GpuRam, Threshold::Amount(MB)),
        ];
        let events = |known_every_ms: u64, gpus: u64| {
            let mut rules = rules(&list);
            let mut events = Vec::new();
            for at_ms in (0..40_000).step_by(100) {
                let mut sample = with_ram(at_ms, 0);
                let used_mb = if at_ms < 20_000 { 900 } else { 0 };
                // The driver gives one GPU after another.
                let number = at_ms / known_every_ms % gpus;
                let mut device = gpu(if number == 0 { used_mb } else { 0 }, 0);
                Arc::make_mut(&mut device.device).id = number.to_string();
                if at_ms % known_every_ms == 0 {
                    sample.gpu.run_bytes = Some(Groups { combined: used_mb * MB, ..Groups::default() });
                } else {
                    (device.used_bytes, device.run_bytes) = (None, None);
                }
                device.read_ns = 1;
                sample.gpu.devices = vec![device];
                events.extend(after(&mut rules, &sample));
            }
            let unwatched = rules.not_watched(false).map(|(rule, _)| rule.words.clone()).collect::<Vec<_>>();
            (events, unwatched)
        };
        let on_and_off = |percent: [f64; 2], amount: [f64; 2]| {
            let kinds = [EventKind::Warning, EventKind::Recovered];
            let mut events =
                Vec::from_iter([percent, amount].into_iter().flat_map(|at| kinds.into_iter().zip(at)));
            events.sort_by(|a, b| a.1.total_cmp(&b.1));
            events
        };
        assert_eq!(events(600, 1), (on_and_off([1.2, 21.6], [1.2, 21.6]), vec![]));
        assert_eq!(events(900, 4), (on_and_off([3.6, 23.4], [1.8, 22.5]), vec![]), "one GPU after another");
        let rarely = events(6000, 1);
        assert_eq!(rarely, (vec![], vec!["gpu_ram>80%".to_owned(), "gpu_ram>1M".to_owned()]), "it is told");
    }

    // Requirement: ALERT-1
    #[test]
    fn cpu_disk_and_idle_gpus_have_their_own_figures() {
        let list = [
            alert("cpu>90%", Quantity::Cpu, Threshold::Percent(90.0)),
            alert("disk<1G", Quantity::Disk, Threshold::Amount(1 << 30)),
            alert("gpu_idle>5s", Quantity::GpuIdle, Threshold::Amount(5 * S)),
        ];
        let mut rules = rules(&list);
        let sample = |s: u64, cpu, free, busy| {
            let system = FileSystemSample { free_bytes: Some(free), ..FileSystemSample::default() };
            let combined = CpuSample { time_ns: 0, percent: Some(cpu) };
            TreeSample {
                cpu: Groups { combined, ..Groups::default() },
                file_systems: vec![system],
                gpu: GpuSums {
                    devices: vec![GpuSample { busy_percent: Some(busy), ..GpuSample::default() }],
                    expected: 1,
                    ..GpuSums::default()
                },
                ..with_ram(s * 1000, 0)
            }
        };
        let calm: Vec<_> =
            (0..20).flat_map(|s| after(&mut rules, &sample(s, 170.0, 2 << 30, 50.0))).collect();
        assert_eq!(calm, []);
        let busy: Vec<_> =
            (20..30).flat_map(|s| after(&mut rules, &sample(s, 199.0, 1 << 29, 0.0))).collect();
        let expected = [(EventKind::Warning, 21.0), (EventKind::Warning, 21.0), (EventKind::GpuIdle, 26.0)];
        assert_eq!(busy, expected);
        let after: Vec<_> =
            (30..33).flat_map(|s| after(&mut rules, &sample(s, 10.0, 2 << 30, 9.0))).collect();
        assert_eq!(after, [(EventKind::Recovered, 31.0); 3]);
    }

    // Requirement: ALERT-6
    #[test]
    fn growth_is_told_with_its_rate_and_the_time_that_is_left() {
        let mut rules = rules(&[alert("growth", Quantity::Growth, Threshold::Rise), ram(80.0)]);
        let mut events = Vec::new();
        for s in 0..=380 {
            let sample = with_ram(s * 1000, (100 + 2 * s) * MB);
            events.extend(rules.decide(&moment(&sample), &mut Orders::default()));
        }
        let [growth, warning] = &events[..] else { panic!("{events:?}") };
        assert_eq!((growth.kind, growth.allowed), (EventKind::Growth, Some(1e9)));
        assert!((growth.at_s - 121.0).abs() < 2.0 && growth.since_s.unwrap() < 60.0, "{growth:?}");
        assert!((growth.rate_bytes_per_s.unwrap() / 2e6 - 1.0).abs() < 0.01, "{growth:?}");
        assert_eq!(warning.kind, EventKind::Warning);
        let left_s = (1e9 - warning.amount.unwrap()) / warning.rate_bytes_per_s.unwrap();
        assert!(
            (warning.left_s.unwrap() - left_s).abs() < 1e-6 && (left_s - 99.0).abs() < 3.0,
            "{warning:?}"
        );
    }

    // Requirement: ALERT-6
    #[test]
    fn growth_on_a_gpu_is_told_as_such() {
        let mut rules = rules(&[alert("growth", Quantity::Growth, Threshold::Rise)]);
        let mut events = Vec::new();
        for s in 0..=380 {
            // It rises for the first 3 minutes.
            let used_mb = 100 + 2 * s.min(180);
            let mut sample = with_ram(s * 1000, 100 * MB);
            sample.gpu.devices = vec![gpu(used_mb, used_mb)];
            events.extend(rules.decide(&moment(&sample), &mut Orders::default()));
        }
        let [growth, recovered] = &events[..] else { panic!("{events:?}") };
        assert_eq!((growth.kind, growth.quantity), (EventKind::Growth, Some(Quantity::GpuRam)));
        assert_eq!((growth.allowed, recovered.kind), (Some(1e9), EventKind::Recovered));
        assert!((growth.rate_bytes_per_s.unwrap() / 2e6 - 1.0).abs() < 0.01, "{growth:?}");
        let left_s = (1e9 - growth.amount.unwrap()) / 2e6;
        assert!((growth.left_s.unwrap() - left_s).abs() < 3.0, "{growth:?}");
        assert_eq!(recovered.quantity, Some(Quantity::GpuRam));
    }

    // Requirement: ALERT-11
    #[test]
    fn users_command_is_ordered_for_each_alert_that_goes_on_or_off() {
        let largest =
            LargestProcess { pid: Some(7), command: "hold".into(), rss_bytes: 900 * MB, gpu_ram_bytes: None };
        let all = LargestProcesses { in_ram: Some(largest.clone()), in_gpu_ram: None };
        let ordered = |run_a_command| {
            let asked = Alerts { list: vec![ram(80.0)], run_a_command, ..Alerts::default() };
            let mut orders = Orders::default();
            let mut rules = Rules::new(&[], &asked, USABLE, INTERVAL_NS);
            rules.largest = all.clone();
            for (at_ms, mb) in [(0, 900), (1000, 900), (2000, 100), (3000, 100)] {
                let sample = with_ram(at_ms, mb * MB);
                rules.decide(&moment(&sample), &mut orders);
            }
            orders
                .take(START_NS)
                .into_iter()
                .filter_map(|Order { id, action }| match action {
                    Action::RunAlertCommand { alert: 0, event, largest } => {
                        Some((id.epoch, event.kind, largest))
                    }
                    _ => None,
                })
                .collect::<Vec<_>>()
        };
        let expected = [(0, EventKind::Warning), (1, EventKind::Recovered)];
        let expected = expected.map(|(epoch, kind)| (epoch, kind, Some(largest.clone())));
        assert_eq!(ordered(true), expected);
        assert_eq!(ordered(false), []);
    }
}

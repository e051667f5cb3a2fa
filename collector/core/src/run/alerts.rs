//! Decides by the samples of a run which alerts (`--alert`) are on, and collects the events of the run.
//!
//! An alert goes on when its figure was beyond the threshold for a second, and off when the figure has come back by a tenth. A figure
//! that trembles about its threshold must not be told again and again. So each time that an alert goes on again, its figure must stay
//! back for longer until the alert goes off ([`STAYS_BACK_NS`]). Whatever a figure does, there are at most 2 events an hour over a day.
//!
//! A sample without the figure leaves an alert on or off as it is.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::event_log::EventLog;
use super::gpu::GpuUsage;
use super::growth::{Growth, Rise};
use super::idle::{Activity, Idle};
use super::limits::LimitRules;
use super::orders::Orders;
use super::steps::jumps::Jumps;
use crate::model::alert::{Alert, AlertCommandFailure, AlertQuantity, Alerts, EventKind, RunEvent};
use crate::model::order::{Action, Order, OrderId, Rule};
use crate::model::run_limit::{LargestProcess, LargestProcesses, Threshold};
use crate::model::tree_sample::TreeSample;

/// An alert goes on when its figure was beyond the threshold for this time, nanoseconds.
const BEYOND_NS: u64 = 1_000_000_000;
/// A figure is back when it is away from the threshold by this part of it.
const BACK_BY: f64 = 0.1;
/// An alert goes off when its figure was back for this time, nanoseconds: when it is on for the first time, the second, and so on.
const STAYS_BACK_NS: [u64; 4] = [1_000_000_000, 60_000_000_000, 900_000_000_000, 7_200_000_000_000];
/// An alert that was off for this time, nanoseconds, begins with the first of [`STAYS_BACK_NS`] again.
const FORGOTTEN_NS: u64 = 4 * 3_600_000_000_000;
/// Shortest time from one time that an alert goes on to the next, nanoseconds.
const AGAIN_NS: u64 = 30_000_000_000;
/// An alert of memory with this threshold or a higher one is critical.
const CRITICAL_PERCENT: f64 = 95.0;

/// The alerts of a run, and its events.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct AlertRules {
    rules: Vec<AlertRule>,
    pub(crate) log: EventLog,
    usable: Usable,
    idle: Idle,
    growth: Growth,
    /// Of the fullest GPU.
    gpu_growth: Growth,
    jumps: Jumps,
    /// The start of the command was noted.
    has_started: bool,
    /// The limits that were noted as exceeded, by their index.
    exceeded: Vec<usize>,
    /// How often an alert went on or off, which is the epoch of the orders for the next time.
    next_epoch: u32,
    /// `--on-alert`: a command of the user runs when an alert goes on or off.
    runs_a_command: bool,
    /// The runs of that command whose failure was noted, by the epochs of their orders.
    failed: BTreeSet<u32>,
    /// Events that no sink has got yet.
    #[serde(skip)]
    new: Vec<RunEvent>,
}

/// What the run may use.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub(super) struct Usable {
    /// Memory, bytes; `None`: not known.
    pub ram_bytes: Option<u64>,
    /// Number of cores.
    pub cores: f64,
}

/// A complete sample, and what else the rules need.
#[derive(Debug, Clone, Copy)]
pub(super) struct Facts<'a> {
    /// Start of the command, CLOCK_MONOTONIC nanoseconds.
    pub start_ns: u64,
    /// The time between two samples, nanoseconds.
    pub interval_ns: u64,
    /// All live processes are stopped (Ctrl-Z).
    pub are_all_stopped: bool,
    /// The sample that is complete.
    pub sample: &'a TreeSample,
    /// The processes that hold most; `None`: not known.
    pub largest: Option<&'a LargestProcesses>,
}

/// An alert, and whether it is on.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct AlertRule {
    pub(crate) alert: Alert,
    state: AlertState,
    /// The threshold when the figure was last known, in the unit of the quantity.
    pub(crate) allowed: Option<f64>,
    /// Of an alert of growth: what rose last, RAM or memory on a GPU.
    grown: Grown,
    /// The alert as an event at the last sample that has its figure. `None`: it was off then, or this collector has seen no such sample.
    #[serde(skip)]
    pub(crate) now: Option<RunEvent>,
}

/// What an alert of growth is about.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
enum Grown {
    /// The footprint.
    #[default]
    Ram,
    /// The memory in use on the fullest GPU.
    GpuRam,
}

/// How memory rises. `None`: it does not rise all the time.
#[derive(Debug, Clone, Copy)]
struct Rises {
    ram: Option<Rise>,
    /// On the fullest GPU.
    gpu_ram: Option<Rise>,
}

impl Rises {
    /// Gives what rises, RAM first, or else what rose last.
    fn grown(self, last: Grown) -> Grown {
        match self {
            Self { ram: Some(_), .. } => Grown::Ram,
            Self { gpu_ram: Some(_), .. } => Grown::GpuRam,
            _ => last,
        }
    }

    fn of(self, grown: Grown) -> Option<Rise> {
        match grown {
            Grown::Ram => self.ram,
            Grown::GpuRam => self.gpu_ram,
        }
    }
}

/// The state of an alert. Times are CLOCK_MONOTONIC nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
struct AlertState {
    /// Since when its figure is beyond the threshold. `None`: it is not.
    beyond_ns: Option<u64>,
    /// Since when its figure is back. `None`: it is not.
    back_ns: Option<u64>,
    /// When it went on. `None`: it is off.
    on_ns: Option<u64>,
    last_on_ns: Option<u64>,
    last_off_ns: Option<u64>,
    /// Which of [`STAYS_BACK_NS`] holds.
    returns: usize,
    /// How often it went on.
    times: u64,
    first_on_ns: Option<u64>,
    /// How long it was on before it last went off, all times together, nanoseconds.
    was_on_ns: u64,
}

/// An alert goes on or off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Change {
    /// It went on. `since_ns`: since when its figure is beyond the threshold.
    On { since_ns: u64 },
    /// It went off. `since_ns`: when it had gone on.
    Off { since_ns: u64 },
}

/// The figure of an alert and its threshold, in the unit of its quantity.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Level {
    amount: f64,
    /// `None`: it is an alert of growth, and what the run may use is not known.
    allowed: Option<f64>,
    is_beyond: bool,
    is_back: bool,
}

impl Level {
    /// Makes the level of a figure that may be at most `allowed`.
    fn at_most(allowed: f64, amount: f64) -> Self {
        let (is_beyond, is_back) = (amount > allowed, amount < allowed * (1.0 - BACK_BY));
        Self { amount, allowed: Some(allowed), is_beyond, is_back }
    }

    /// Makes the level of a figure that has to be at least `allowed`.
    fn at_least(allowed: f64, amount: f64) -> Self {
        let (is_beyond, is_back) = (amount < allowed, amount > allowed * (1.0 + BACK_BY));
        Self { amount, allowed: Some(allowed), is_beyond, is_back }
    }
}

impl AlertState {
    /// Takes in a figure at `now_ns`, CLOCK_MONOTONIC nanoseconds. Gives the change of the alert. `None`: it stays on or off.
    fn take_level(&mut self, level: Level, now_ns: u64) -> Option<Change> {
        self.beyond_ns = if level.is_beyond { self.beyond_ns.or(Some(now_ns)) } else { None };
        self.back_ns = if level.is_back { self.back_ns.or(Some(now_ns)) } else { None };
        match self.on_ns {
            None => self.go_on_if_due(now_ns),
            Some(on_ns) => self.go_off_if_due(on_ns, now_ns),
        }
    }

    /// Goes on if the figure was beyond the threshold for [`BEYOND_NS`], and the alert did not go on within [`AGAIN_NS`] before.
    /// `None`: it stays off.
    fn go_on_if_due(&mut self, now_ns: u64) -> Option<Change> {
        let since_ns = self.beyond_ns?;
        let went_on_lately = self.last_on_ns.is_some_and(|last| now_ns.saturating_sub(last) < AGAIN_NS);
        if now_ns.saturating_sub(since_ns) < BEYOND_NS || went_on_lately {
            return None;
        }
        self.go_on(now_ns);
        Some(Change::On { since_ns })
    }

    /// Goes off if the figure was back for the time that [`STAYS_BACK_NS`] asks for. `on_ns`: when the alert went on. `None`: it
    /// stays on.
    fn go_off_if_due(&mut self, on_ns: u64, now_ns: u64) -> Option<Change> {
        let stays_back_ns = STAYS_BACK_NS.get(self.returns).copied().unwrap_or(u64::MAX);
        if now_ns.saturating_sub(self.back_ns?) < stays_back_ns {
            return None;
        }
        self.was_on_ns = self.was_on_ns.saturating_add(now_ns.saturating_sub(on_ns));
        (self.on_ns, self.last_off_ns) = (None, Some(now_ns));
        Some(Change::Off { since_ns: on_ns })
    }

    /// Notes that the alert goes on, and chooses how long its figure must then stay back.
    fn go_on(&mut self, now_ns: u64) {
        let is_return = self.last_off_ns.is_some_and(|off| now_ns.saturating_sub(off) < FORGOTTEN_NS);
        self.returns = if is_return { (self.returns + 1).min(STAYS_BACK_NS.len() - 1) } else { 0 };
        self.times += 1;
        self.first_on_ns.get_or_insert(now_ns);
        (self.on_ns, self.last_on_ns) = (Some(now_ns), Some(now_ns));
    }
}

impl AlertRule {
    fn new(alert: Alert) -> Self {
        Self { alert, state: AlertState::default(), allowed: None, grown: Grown::Ram, now: None }
    }

    pub(crate) fn is_on(&self) -> bool {
        self.state.on_ns.is_some()
    }

    /// Gives how often it went on.
    pub(crate) fn times(&self) -> u64 {
        self.state.times
    }

    /// Gives when it first went on, CLOCK_MONOTONIC nanoseconds.
    pub(crate) fn first_on_ns(&self) -> Option<u64> {
        self.state.first_on_ns
    }

    /// Gives how long it was on until `now_ns`, nanoseconds.
    pub(crate) fn on_ns_until(&self, now_ns: u64) -> u64 {
        let open_ns = self.state.on_ns.map_or(0, |on| now_ns.saturating_sub(on));
        self.state.was_on_ns.saturating_add(open_ns)
    }

    /// Gives the kind of the event that tells that the alert is on.
    fn kind(&self) -> EventKind {
        match (self.alert.quantity, self.alert.threshold) {
            (AlertQuantity::Growth, _) => EventKind::Growth,
            (AlertQuantity::GpuIdle, _) => EventKind::GpuIdle,
            (AlertQuantity::Ram | AlertQuantity::GpuRam, Some(Threshold::Percent(percent)))
                if percent >= CRITICAL_PERCENT =>
            {
                EventKind::Critical
            }
            _ => EventKind::Warning,
        }
    }
}

impl AlertRules {
    /// Makes the rules. `None`: neither alerts nor events are asked for.
    pub(super) fn new(asked: &Alerts, usable: Usable) -> Option<Box<Self>> {
        let rules = asked.list.iter().cloned().map(AlertRule::new).collect();
        let runs_a_command = asked.run_a_command;
        asked.are_asked_for().then(|| Box::new(Self { rules, usable, runs_a_command, ..Self::default() }))
    }

    /// Whether a command of the user runs for each alert that goes on or off.
    pub(super) fn runs_a_command(&self) -> bool {
        self.runs_a_command
    }

    /// Gives the alerts, in the order of the command line.
    pub(crate) fn list(&self) -> &[AlertRule] {
        &self.rules
    }

    /// Notes once that the command has started. A collector that replaces another is told again.
    pub(super) fn note_start(&mut self) {
        if !self.has_started {
            self.has_started = true;
            let at_s = 0.0;
            self.add(RunEvent::new(at_s, EventKind::Start));
        }
    }

    /// Notes each limit once when it is exceeded.
    pub(super) fn note_limits(&mut self, limits: &LimitRules, start_ns: u64) {
        for (index, (limit, exceeded)) in limits.list().enumerate() {
            let Some(exceeded) = exceeded else { continue };
            if self.exceeded.contains(&index) {
                continue;
            }
            self.exceeded.push(index);
            let unit = limit.quantity.unit();
            self.add(RunEvent {
                rule: Some(limit.words.clone()),
                unit: Some(unit),
                amount: Some(unit.of_report(exceeded.by.amount)),
                allowed: Some(unit.of_report(exceeded.by.allowed)),
                ..RunEvent::new(seconds(start_ns, exceeded.by.at_ns), EventKind::Limit)
            });
        }
    }

    /// Notes once that the user's command failed at `at_ns`, for the alert of this index and the order of this epoch. A collector that
    /// replaces another is told again.
    pub(super) fn note_failure(
        &mut self,
        (alert, epoch): (u32, u32),
        at_ns: u64,
        failure: AlertCommandFailure,
        start_ns: u64,
    ) {
        if self.failed.insert(epoch) {
            let rule = self.rules.get(alert as usize).map(|rule| rule.alert.words.clone());
            let message = Some(failure.to_string());
            self.add(RunEvent { rule, message, ..RunEvent::new(seconds(start_ns, at_ns), EventKind::Error) });
        }
    }

    /// Notes, at `at_ns`, that the user's command does not run for these orders, which have no answer: no order is obeyed any more.
    pub(super) fn give_up(&mut self, open: &[Order], at_ns: u64, start_ns: u64) {
        for order in open {
            if let Action::RunAlertCommand { alert, .. } = order.action {
                self.note_failure((alert, order.id.epoch), at_ns, AlertCommandFailure::RunEnded, start_ns);
            }
        }
    }

    /// Decides by a sample that is complete which alerts go on or off. Each change is an event, is told, and has the user's command
    /// run. A jump of RAM at the sample is an event, too.
    pub(super) fn decide(&mut self, facts: &Facts, orders: &mut Orders) {
        let Facts { start_ns, sample, .. } = *facts;
        self.note_jump(facts);
        if self.rules.is_empty() {
            return;
        }
        self.idle.note_activity(&Activity {
            now_ns: sample.at_ns,
            interval_ns: facts.interval_ns,
            are_all_stopped: facts.are_all_stopped,
            cpu_ns: sample.cpu.combined.time_ns,
            io: sample.io.map(|io| io.bytes),
            gpu: &sample.gpu,
        });
        self.growth.add(start_ns, sample.at_ns, sample.footprint_bytes.combined.end);
        let fullest = sample.gpu.fullest();
        if let Some((used_bytes, _)) = fullest {
            self.gpu_growth.add(start_ns, sample.at_ns, used_bytes);
        }
        let rises = Rises {
            ram: self.growth.rise(self.usable.ram_bytes),
            gpu_ram: fullest.and_then(|(_, memory_bytes)| self.gpu_growth.rise(Some(memory_bytes))),
        };
        for index in 0..self.rules.len() {
            if let Some(event) = self.decide_one(index, facts, rises) {
                let is_gpu_ram = event.quantity == Some(AlertQuantity::GpuRam);
                let largest = facts.largest.and_then(|largest| largest.holder(is_gpu_ram));
                self.order(index as u32, &event, largest, orders);
                self.add(event);
            }
        }
    }

    /// Orders what is done when an alert, by its index, goes on or off: the user is told, and the user's command runs if there is one.
    fn order(&mut self, alert: u32, event: &RunEvent, largest: Option<&LargestProcess>, orders: &mut Orders) {
        let epoch = self.next_epoch;
        self.next_epoch = self.next_epoch.saturating_add(1);
        let action = Action::TellEvent(event.clone());
        orders.issue(Order { id: OrderId { rule: Rule::Alert, epoch }, action });
        if self.runs_a_command {
            let action = Action::RunAlertCommand { alert, event: event.clone(), largest: largest.cloned() };
            orders.issue(Order { id: OrderId { rule: Rule::AlertCommand, epoch }, action });
        }
    }

    /// Takes a sample in for one alert, by its index. Keeps its threshold, and what it is now, for the live summary and the report.
    /// Gives the event if the alert goes on or off. `None`: it stays as it is.
    fn decide_one(&mut self, index: usize, facts: &Facts, rises: Rises) -> Option<RunEvent> {
        let Facts { start_ns, sample, .. } = *facts;
        let rule = self.rules.get(index)?;
        let grown = rises.grown(rule.grown);
        // Events of growth on a GPU are about its memory.
        let quantity = match rule.alert.quantity {
            AlertQuantity::Growth if grown == Grown::GpuRam => AlertQuantity::GpuRam,
            quantity => quantity,
        };
        let level = self.level(&rule.alert, facts, rises.of(grown), grown);
        let rule = self.rules.get_mut(index)?;
        rule.grown = grown;
        let Some(level) = level else {
            // It is not known any more for how long the figure is beyond the threshold, or back. `now` stays.
            (rule.state.beyond_ns, rule.state.back_ns) = (None, None);
            return None;
        };
        rule.allowed = level.allowed.or(rule.allowed);
        let change = rule.state.take_level(level, sample.at_ns);
        let is_growth = rule.alert.quantity == AlertQuantity::Growth;
        // Only alerts of growth and of RAM say how fast it rises, and how long that can go on.
        let rise = match rule.alert.quantity {
            AlertQuantity::Growth => rises.of(grown),
            AlertQuantity::Ram => rises.ram,
            _ => None,
        };
        let usable = if is_growth { level.allowed } else { self.usable.ram_bytes.map(|bytes| bytes as f64) };
        let left_bytes = usable.map(|usable| usable - level.amount);
        let left_s = rise.zip(left_bytes).map(|(rise, bytes)| bytes.max(0.0) / rise.bytes_per_s);
        let event = |kind, since_ns| RunEvent {
            rule: Some(rule.alert.words.clone()),
            quantity: Some(quantity),
            unit: Some(quantity.unit()),
            amount: Some(level.amount),
            allowed: level.allowed,
            since_s: Some(seconds(start_ns, since_ns)),
            rate_bytes_per_s: rise.map(|rise| rise.bytes_per_s),
            left_s,
            ..RunEvent::new(seconds(start_ns, sample.at_ns), kind)
        };
        // Growth has begun when the rise began, not when that was seen.
        let begin = |seen_ns| match rise {
            Some(rise) if is_growth => rise.since_ns,
            _ => seen_ns,
        };
        let now = rule.state.on_ns.map(|on_ns| event(rule.kind(), begin(on_ns)));
        let changed = change.map(|change| match change {
            Change::On { since_ns } => event(rule.kind(), begin(since_ns)),
            Change::Off { since_ns } => event(EventKind::Recovered, since_ns),
        });
        rule.now = now;
        changed
    }

    /// Gives the figure of an alert at a sample, with its threshold. `None`: one of them is not known. `rise`: how `grown` rises.
    fn level(&self, alert: &Alert, facts: &Facts, rise: Option<Rise>, grown: Grown) -> Option<Level> {
        let Facts { sample, .. } = *facts;
        let unit = alert.quantity.unit();
        let amount_allowed = match alert.threshold {
            Some(Threshold::Amount(amount)) => Some(unit.of_report(amount)),
            Some(Threshold::Percent(_)) | None => None,
        };
        let part_of = |whole: u64| match alert.threshold {
            Some(Threshold::Percent(percent)) => Some(whole as f64 * percent / 100.0),
            Some(Threshold::Amount(_)) | None => None,
        };
        match alert.quantity {
            AlertQuantity::Ram => {
                let allowed = amount_allowed.or_else(|| part_of(self.usable.ram_bytes?))?;
                Some(Level::at_most(allowed, sample.footprint_bytes.combined.end as f64))
            }
            AlertQuantity::GpuRam => {
                let (used, allowed) = match amount_allowed {
                    Some(allowed) => (sample.gpu.run_bytes?.combined, allowed),
                    None => {
                        let (used, memory) = sample.gpu.fullest()?;
                        (used, part_of(memory)?)
                    }
                };
                Some(Level::at_most(allowed, used as f64))
            }
            AlertQuantity::Cpu => {
                let Some(Threshold::Percent(allowed)) = alert.threshold else { return None };
                let percent = sample.cpu.combined.percent.filter(|_| self.usable.cores > 0.0)?;
                Some(Level::at_most(allowed, percent / self.usable.cores))
            }
            AlertQuantity::Disk => {
                let free = sample.file_systems.iter().filter_map(|system| system.free_bytes).min()?;
                Some(Level::at_least(amount_allowed?, free as f64))
            }
            // A GPU of unknown use counts as active.
            AlertQuantity::GpuIdle if sample.gpu.expected == 0 || sample.gpu.is_idle().is_none() => None,
            AlertQuantity::GpuIdle => {
                let idle_ns = sample.at_ns.saturating_sub(self.idle.gpu_active_ns);
                Some(Level::at_most(amount_allowed?, unit.of_report(idle_ns)))
            }
            AlertQuantity::Growth => {
                let (bytes, allowed) = match grown {
                    Grown::Ram => (sample.footprint_bytes.combined.end, self.usable.ram_bytes),
                    Grown::GpuRam => sample.gpu.fullest().map(|(used, memory)| (used, Some(memory)))?,
                };
                Some(Level {
                    amount: bytes as f64,
                    allowed: allowed.map(|bytes| bytes as f64),
                    is_beyond: rise.is_some(),
                    is_back: rise.is_none(),
                })
            }
        }
    }

    /// Notes a jump of RAM between the sample before and this one, if there was one.
    fn note_jump(&mut self, facts: &Facts) {
        let Facts { start_ns, interval_ns, sample, .. } = *facts;
        let (allowed, ram) = (self.usable.ram_bytes, sample.footprint_bytes.combined.end);
        let Some(jump) = self.jumps.add_sample(sample.at_ns, ram, allowed, interval_ns) else { return };
        let event = RunEvent {
            allowed: allowed.map(|bytes| bytes as f64),
            since_s: Some(seconds(start_ns, jump.from_ns)),
            ..step(seconds(start_ns, sample.at_ns), EventKind::Jump, AlertQuantity::Ram, [jump.from, jump.to])
        };
        self.add_step(event, jump.is_told);
    }

    /// Notes the steps of memory on GPUs that `usage` has found since the last call.
    pub(super) fn note_gpu_steps(&mut self, usage: &mut GpuUsage, start_ns: u64) {
        for (found, device, process) in usage.take_steps() {
            let kind = match process {
                None => EventKind::Jump,
                Some(_) if found.to > found.from => EventKind::Allocation,
                Some(_) => EventKind::Deallocation,
            };
            let (at_s, amounts) = (seconds(start_ns, found.at_ns), [found.from, found.to]);
            let allowed = device.memory_bytes.filter(|_| kind == EventKind::Jump);
            let event = RunEvent {
                allowed: allowed.map(|bytes| bytes as f64),
                since_s: Some(seconds(start_ns, found.from_ns)),
                pid: process.map(|process| process.pid),
                command: process.map(|process| process.command.to_string()),
                device: Some(device.id.clone()),
                ..step(at_s, kind, AlertQuantity::GpuRam, amounts)
            };
            self.add_step(event, found.is_told);
        }
    }

    /// Adds the event of a step of memory if it is told. Otherwise the event is only counted.
    fn add_step(&mut self, event: RunEvent, is_told: bool) {
        if is_told {
            self.add(event);
        } else {
            self.log.count(event.kind);
        }
    }

    /// Adds an event to the log, and to those that sinks get.
    fn add(&mut self, event: RunEvent) {
        self.new.push(event.clone());
        self.log.add(event);
    }

    /// Gives the events since the last call.
    pub(super) fn take_new(&mut self) -> Vec<RunEvent> {
        std::mem::take(&mut self.new)
    }
}

/// Makes the event of a step of memory from one amount to another, bytes.
fn step(at_s: f64, kind: EventKind, quantity: AlertQuantity, [from, to]: [u64; 2]) -> RunEvent {
    RunEvent {
        quantity: Some(quantity),
        unit: Some(quantity.unit()),
        amount: Some(to as f64),
        from: Some(from as f64),
        ..RunEvent::new(at_s, kind)
    }
}

/// Gives a moment of CLOCK_MONOTONIC as seconds after the command's start.
fn seconds(start_ns: u64, at_ns: u64) -> f64 {
    at_ns.saturating_sub(start_ns) as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::model::gpu::Device;
    use crate::model::groups::Groups;
    use crate::model::run_limit::{Excess, RunLimit};
    use crate::model::tree_sample::{CpuSample, FileSystemSample, GpuSample, GpuSums, Span};

    const S: u64 = 1_000_000_000;
    const MB: u64 = 1_000_000;
    const START_NS: u64 = 100 * S;
    const INTERVAL_NS: u64 = S;
    const USABLE: Usable = Usable { ram_bytes: Some(1000 * MB), cores: 2.0 };

    fn alert(words: &str, quantity: AlertQuantity, threshold: Option<Threshold>) -> Alert {
        Alert { words: words.into(), quantity, threshold }
    }

    fn ram(percent: f64) -> Alert {
        alert("ram", AlertQuantity::Ram, Some(Threshold::Percent(percent)))
    }

    fn rules(list: &[Alert]) -> AlertRules {
        *AlertRules::new(&Alerts { list: list.to_vec(), ..Alerts::default() }, USABLE).unwrap()
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

    fn facts(sample: &TreeSample) -> Facts<'_> {
        Facts { start_ns: START_NS, interval_ns: INTERVAL_NS, are_all_stopped: false, sample, largest: None }
    }

    /// What a sample causes, but for jumps.
    fn after(rules: &mut AlertRules, sample: &TreeSample) -> Vec<(EventKind, f64)> {
        rules.decide(&facts(sample), &mut Orders::default());
        let of_alerts = rules.take_new().into_iter().filter(|event| event.kind != EventKind::Jump);
        of_alerts.map(|event| (event.kind, event.at_s)).collect()
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
        let [rule] = rules.list() else { panic!() };
        assert!(rule.is_on());
        assert_eq!((rule.times(), rule.first_on_ns()), (2, Some(START_NS + 2 * S)));
        assert_eq!(rule.on_ns_until(START_NS + 40 * S), 8_500_000_000 + 8 * S);
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
    fn events_of_a_day(mut megabytes: impl FnMut(u64, &AlertRules) -> u64) -> usize {
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
        let worst = events_of_a_day(|_, rules| if rules.list()[0].is_on() { 0 } else { 999 });
        assert!((8..=MOST).contains(&worst), "{worst} events");
        // Or it waits until that is forgotten.
        let mut off = 0;
        let patient = events_of_a_day(|_, rules| {
            let rule = &rules.list()[0];
            off = if rule.is_on() { 0 } else { off + 1 };
            let waits = rule.state.returns == 2 && off <= 2 * 4 * 3600;
            if rule.is_on() || waits { 0 } else { 999 }
        });
        assert!((8..=MOST).contains(&patient), "{patient} events");
    }

    // Requirement: ALERT-4
    #[test]
    fn unknown_figure_changes_no_alert() {
        let gpu_ram = |words, threshold| alert(words, AlertQuantity::GpuRam, Some(threshold));
        let list = [
            ram(80.0),
            gpu_ram("gpu_ram>80%", Threshold::Percent(80.0)),
            gpu_ram("gpu_ram>1M", Threshold::Amount(MB)),
            alert("cpu>1%", AlertQuantity::Cpu, Some(Threshold::Percent(1.0))),
            alert("disk<1T", AlertQuantity::Disk, Some(Threshold::Amount(1 << 40))),
            alert("gpu_idle>1s", AlertQuantity::GpuIdle, Some(Threshold::Amount(S))),
        ];
        let mut rules = *AlertRules::new(
            &Alerts { list: list.to_vec(), ..Alerts::default() },
            Usable { ram_bytes: None, cores: 2.0 },
        )
        .unwrap();
        for s in 0..100 {
            assert_eq!(after(&mut rules, &with_ram(s * 1000, 990 * MB)), []);
        }
        assert!(rules.list().iter().all(|rule| rule.allowed.is_none() && rule.times() == 0));
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

    // Requirement: ALERT-1
    #[test]
    fn cpu_disk_and_idle_gpus_have_their_own_figures() {
        let list = [
            alert("cpu>90%", AlertQuantity::Cpu, Some(Threshold::Percent(90.0))),
            alert("disk<1G", AlertQuantity::Disk, Some(Threshold::Amount(1 << 30))),
            alert("gpu_idle>5s", AlertQuantity::GpuIdle, Some(Threshold::Amount(5 * S))),
        ];
        let mut rules = rules(&list);
        let sample = |s: u64, cpu, free, busy| {
            let system = FileSystemSample { free_bytes: Some(free), ..FileSystemSample::default() };
            let combined = CpuSample { time_ns: 0, percent: Some(cpu) };
            TreeSample {
                cpu: Groups { combined, ..Groups::default() },
                file_systems: vec![system],
                gpu: GpuSums { busy_percent: Some(busy), expected: 1, ..GpuSums::default() },
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
        let mut rules = rules(&[alert("growth", AlertQuantity::Growth, None), ram(80.0)]);
        let mut events = Vec::new();
        for s in 0..=380 {
            let sample = with_ram(s * 1000, (100 + 2 * s) * MB);
            rules.decide(&facts(&sample), &mut Orders::default());
            events.extend(rules.take_new());
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
        let mut rules = rules(&[alert("growth", AlertQuantity::Growth, None)]);
        let mut events = Vec::new();
        for s in 0..=380 {
            // It rises for the first 3 minutes.
            let used_mb = 100 + 2 * s.min(180);
            let mut sample = with_ram(s * 1000, 100 * MB);
            sample.gpu.devices = vec![gpu(used_mb, used_mb)];
            rules.decide(&facts(&sample), &mut Orders::default());
            events.extend(rules.take_new());
        }
        let [growth, recovered] = &events[..] else { panic!("{events:?}") };
        assert_eq!((growth.kind, growth.quantity), (EventKind::Growth, Some(AlertQuantity::GpuRam)));
        assert_eq!((growth.allowed, recovered.kind), (Some(1e9), EventKind::Recovered));
        assert!((growth.rate_bytes_per_s.unwrap() / 2e6 - 1.0).abs() < 0.01, "{growth:?}");
        let left_s = (1e9 - growth.amount.unwrap()) / 2e6;
        assert!((growth.left_s.unwrap() - left_s).abs() < 3.0, "{growth:?}");
        assert_eq!(recovered.quantity, Some(AlertQuantity::GpuRam));
    }

    // Requirement: ALERT-5
    #[test]
    fn limit_is_noted_once_and_the_start_too() {
        let mut rules = rules(&[ram(80.0)]);
        rules.note_start();
        rules.note_start();
        let limit = RunLimit {
            words: "ram=1G".into(),
            quantity: crate::model::run_limit::Quantity::Ram,
            threshold: Threshold::Amount(1 << 30),
            action: crate::model::run_limit::LimitAction::End,
        };
        let mut limits = LimitRules::new(&[limit], None, INTERVAL_NS);
        rules.note_limits(&limits, START_NS);
        limits.acted(0, Excess { at_ns: START_NS + 3 * S, allowed: 1 << 30, amount: 2 << 30 });
        rules.note_limits(&limits, START_NS);
        rules.note_limits(&limits, START_NS);
        let kinds: Vec<_> = rules.take_new().iter().map(|event| (event.kind, event.at_s)).collect();
        assert_eq!(kinds, [(EventKind::Start, 0.0), (EventKind::Limit, 3.0)]);
    }

    // Requirement: ALERT-11
    #[test]
    fn users_command_is_ordered_for_each_alert_that_goes_on_or_off() {
        let largest =
            LargestProcess { pid: Some(7), command: "hold".into(), rss_bytes: 900 * MB, gpu_ram_bytes: None };
        let all = LargestProcesses { in_ram: Some(largest.clone()), in_gpu_ram: None };
        let ordered = |run_a_command| {
            let asked = Alerts { list: vec![ram(80.0)], run_a_command, ..Alerts::default() };
            let (mut rules, mut orders) = (*AlertRules::new(&asked, USABLE).unwrap(), Orders::default());
            for (at_ms, mb) in [(0, 900), (1000, 900), (2000, 100), (3000, 100)] {
                let sample = with_ram(at_ms, mb * MB);
                rules.decide(&Facts { largest: Some(&all), ..facts(&sample) }, &mut orders);
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

    // Requirement: ALERT-12
    #[test]
    fn failure_of_the_users_command_is_one_event_however_often_it_is_told() {
        let mut rules = rules(&[ram(80.0)]);
        // One that waited for too long is told before an older one that took its time.
        for (epoch, status) in [(3, 1), (0, 2), (3, 1), (0, 2)] {
            let at_ns = START_NS + (4 - u64::from(epoch)) * S;
            rules.note_failure((0, epoch), at_ns, AlertCommandFailure::Exited(status), START_NS);
        }
        let events = rules.take_new();
        let told: Vec<_> = events.iter().map(|event| (event.kind, event.at_s)).collect();
        assert_eq!(told, [(EventKind::Error, 1.0), (EventKind::Error, 4.0)]);
        assert!(events[0].message.as_deref().is_some_and(|text| text.ends_with("exited with status 1")));
        assert_eq!(events[0].rule.as_deref(), Some(ram(80.0).words.as_str()));
    }

    // Requirement: ALERT-12
    #[test]
    fn alert_whose_order_is_not_obeyed_before_the_end_is_told() {
        let asked = Alerts { list: vec![ram(80.0)], run_a_command: true, ..Alerts::default() };
        let (mut rules, mut orders) = (*AlertRules::new(&asked, USABLE).unwrap(), Orders::default());
        for (at_ms, mb) in [(0, 900), (1000, 900), (2000, 100), (3000, 100)] {
            rules.decide(&facts(&with_ram(at_ms, mb * MB)), &mut orders);
        }
        // The launcher has run the command for the first of the two alerts.
        orders.answer(OrderId { rule: Rule::AlertCommand, epoch: 0 });
        rules.take_new();
        // A collector that was killed and its successor both come to the end.
        for _ in 0..2 {
            rules.give_up(orders.open(), START_NS + 4 * S, START_NS);
        }
        let events = rules.take_new();
        let [event] = &events[..] else { panic!("{events:?}") };
        assert_eq!((event.kind, event.at_s, &event.rule), (EventKind::Error, 4.0, &Some(ram(80.0).words)));
        assert_eq!(event.message, Some(AlertCommandFailure::RunEnded.to_string()));
    }

    // Requirement: ALERT-10
    #[test]
    fn run_without_alerts_and_events_keeps_nothing() {
        assert!(AlertRules::new(&Alerts::default(), USABLE).is_none());
    }
}

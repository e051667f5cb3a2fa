//! The rules of `--limit` and `--signal-at`: each orders an action once, when its limit is exceeded.
//!
//! For RAM the largest so far counts, which includes what later records add to the time between two samples. So a child that held
//! too much for a moment exceeds a limit, too, although it has ended by then.
//!
//! The launcher keeps a limit of wall time that ends the tree. It has a timer, and does not depend on a collector. The rule here
//! only stands in for a launcher that is gone.

use serde::{Deserialize, Serialize};

use super::idle::{Activity, Idle};
use super::orders::Orders;
use crate::model::order::{Action, Order, OrderId, Rule};
use crate::model::run_limit::{
    Exceeded, Excess, LargestProcesses, LimitAction, Quantity, RunLimit, Threshold, TreeEnd,
};
use crate::model::tree_sample::{GpuSums, IoBytes};

/// A launcher that has not acted this long after a limit of wall time is gone, nanoseconds.
const WALL_GRACE_NS: u64 = 1_000_000_000;
/// If a figure of GPUs is unknown for this long from the first reading on, the driver does not tell it, nanoseconds.
const UNTOLD_NS: u64 = 5_000_000_000;

/// What the rules look at.
#[derive(Debug, Clone)]
pub(super) struct Facts<'a> {
    /// CLOCK_MONOTONIC nanoseconds.
    pub now_ns: u64,
    /// Start of the command, CLOCK_MONOTONIC nanoseconds.
    pub start_ns: u64,
    /// The largest footprint so far, bytes.
    pub max_ram_bytes: u64,
    /// CPU time since the start, nanoseconds.
    pub cpu_ns: u64,
    /// The most live processes since the sample before.
    pub processes: u64,
    /// All live processes are stopped (Ctrl-Z).
    pub are_all_stopped: bool,
    /// Block I/O; `None`: not known.
    pub io: Option<IoBytes>,
    /// The GPUs.
    pub gpu: &'a GpuSums,
}

/// The limits of a run, and which were exceeded.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct LimitRules {
    rules: Vec<LimitRule>,
    /// Memory that the run may use, bytes.
    usable_ram_bytes: Option<u64>,
    /// The time between two samples, nanoseconds.
    interval_ns: u64,
    idle: Idle,
    /// The first sample with a reading of a GPU, CLOCK_MONOTONIC nanoseconds. `None`: there was none.
    gpu_read_ns: Option<u64>,
    /// The processes that held most at the last sample.
    pub(crate) largest: LargestProcesses,
    /// What came of ending the tree.
    pub(crate) tree_end: Option<TreeEnd>,
}

/// A limit, and whether it was exceeded.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct LimitRule {
    limit: RunLimit,
    exceeded: Option<Exceeded>,
    /// What it orders was done.
    has_acted: bool,
    /// Its figures were known at a sample, so it was held from then on.
    was_known: bool,
}

impl LimitRules {
    /// Makes the rules. `usable_ram_bytes`: the memory that the run may use, if it is known. `interval_ns`: the time between two samples.
    pub(super) fn new(limits: &[RunLimit], usable_ram_bytes: Option<u64>, interval_ns: u64) -> Self {
        let rule = |limit: &RunLimit| LimitRule {
            limit: limit.clone(),
            exceeded: None,
            has_acted: false,
            was_known: false,
        };
        Self { rules: limits.iter().map(rule).collect(), usable_ram_bytes, interval_ns, ..Self::default() }
    }

    /// Gives the memory above which the run ends, bytes. It is the least of what the run may use (`usable_bytes`) and its limits of
    /// RAM that end it. `None`: not known.
    pub(super) fn most_ram(&self, usable_bytes: Option<u64>) -> Option<u64> {
        let that_end = self
            .list()
            .map(|(limit, _)| limit)
            .filter(|limit| limit.quantity == Quantity::Ram && limit.action == LimitAction::End);
        // Only limits of GPU memory depend on the sums over GPUs.
        let allowed = that_end.filter_map(|limit| self.allowed(limit, &GpuSums::default()));
        allowed.chain(usable_bytes).min()
    }

    /// Gives the time between two samples, nanoseconds.
    pub(super) fn interval_ns(&self) -> u64 {
        self.interval_ns
    }

    /// Whether there are no limits.
    pub(super) fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Gives the limits, in the order of the command line, and how far each was exceeded.
    pub(crate) fn list(&self) -> impl Iterator<Item = (&RunLimit, Option<&Exceeded>)> {
        self.rules.iter().map(|rule| (&rule.limit, rule.exceeded.as_ref()))
    }

    /// Gives the limits whose figures a GPU's driver has not told. They were not held.
    pub(crate) fn untold(&self) -> impl Iterator<Item = &RunLimit> {
        let untold = self.rules.iter().filter(|rule| !rule.was_known && self.gpu_read_ns.is_some());
        untold.map(|rule| &rule.limit)
    }

    /// Gives what a limit allows, in bytes, nanoseconds or processes by its quantity. `None`: the limit is a percentage of an
    /// amount that is not known.
    pub(crate) fn allowed(&self, limit: &RunLimit, gpu: &GpuSums) -> Option<u64> {
        let part_of =
            |whole: Option<u64>, percent: f64| whole.map(|whole| (whole as f64 * percent / 100.0) as u64);
        match (limit.threshold, limit.quantity) {
            (Threshold::Amount(amount), _) => Some(amount),
            (Threshold::Percent(percent), Quantity::Ram) => part_of(self.usable_ram_bytes, percent),
            (Threshold::Percent(percent), Quantity::GpuRam) => {
                part_of(gpu.fullest().map(|(_, memory)| memory), percent)
            }
            (Threshold::Percent(_), _) => None,
        }
    }

    /// Gives the limit because of which the tree was ended, if it was. Of several, the one that was exceeded first.
    pub(crate) fn that_ended(&self) -> Option<(&RunLimit, &Exceeded)> {
        self.first_to_end(|rule| rule.has_acted)
    }

    /// Gives the limit that was exceeded first, of those that end the tree and for which `fits` is true. `None`: none was exceeded.
    fn first_to_end(&self, fits: impl Fn(&LimitRule) -> bool) -> Option<(&RunLimit, &Exceeded)> {
        let ending = self.rules.iter().filter(|rule| rule.limit.action == LimitAction::End && fits(rule));
        let exceeded = ending.filter_map(|rule| Some((&rule.limit, rule.exceeded.as_ref()?)));
        exceeded.min_by_key(|(_, exceeded)| exceeded.by.at_ns)
    }

    /// Takes in a sample: notes whether the run was idle, and orders the actions of the limits that are exceeded now and were not
    /// before. Once a limit that ends the tree is exceeded, no other acts.
    pub(super) fn decide(&mut self, facts: &Facts, orders: &mut Orders) {
        let Facts { now_ns, cpu_ns, io, gpu, are_all_stopped, .. } = *facts;
        let interval_ns = self.interval_ns;
        self.idle.note_activity(&Activity { now_ns, interval_ns, cpu_ns, io, gpu, are_all_stopped });
        if gpu.devices.iter().any(|device| device.read_ns > 0) {
            self.gpu_read_ns.get_or_insert(now_ns);
        }
        for index in 0..self.rules.len() {
            let is_to_end = self.first_to_end(|_| true).is_some();
            if is_to_end {
                return;
            }
            if let Some(exceeded) = self.exceeded(index, facts) {
                self.order(index, exceeded, orders);
            }
            self.note_known(index, facts, orders);
        }
    }

    /// Notes whether the figures of a limit, given by its index, are known. Where a driver does not tell them, tells the user once that
    /// the limit is not held.
    fn note_known(&mut self, index: usize, facts: &Facts, orders: &mut Orders) {
        let Some(rule) = self.rules.get(index) else { return };
        let is_known = self.allowed(&rule.limit, facts.gpu).is_some() && is_known(&rule.limit, facts);
        let is_untold =
            self.gpu_read_ns.is_some_and(|read_ns| facts.now_ns.saturating_sub(read_ns) >= UNTOLD_NS);
        let (Some(rule), Ok(number)) = (self.rules.get_mut(index), u32::try_from(index)) else { return };
        // Before a GPU was read, it is not known what its driver tells.
        rule.was_known |= is_known && self.gpu_read_ns.is_some();
        // The order that the limit itself gives has the number 0.
        let id = OrderId { rule: Rule::Limit(number), epoch: 1 };
        if is_untold && !rule.was_known && !orders.knows(id) {
            let text =
                format!("the limit {} is not held: {}.", rule.limit.words, untold(rule.limit.quantity));
            orders.issue(Order { id, action: Action::Tell(text) });
        }
    }

    /// Notes that the launcher has acted because of a limit, given by its index, and by how much the limit was exceeded. The rule
    /// may not have decided that: the launcher itself decides on wall time, and a collector may have resumed an older state.
    pub(super) fn acted(&mut self, index: u32, excess: Excess) {
        let index = usize::try_from(index).ok();
        let Some(rule) = index.and_then(|index| self.rules.get_mut(index)) else { return };
        let largest = self.largest.holder(rule.limit.quantity == Quantity::GpuRam).cloned();
        rule.exceeded.get_or_insert(Exceeded { by: excess, largest });
        rule.has_acted = true;
    }

    /// Gives how far a limit is exceeded. `None`: it is not exceeded, was exceeded before, or a figure of it is not known.
    fn exceeded(&self, index: usize, facts: &Facts) -> Option<Exceeded> {
        let rule = self.rules.get(index).filter(|rule| rule.exceeded.is_none())?;
        let allowed = self.allowed(&rule.limit, facts.gpu)?;
        let amount = amount(&rule.limit, facts, &self.idle)?;
        // The launcher itself keeps a limit of wall time that ends the tree: see the head of this file.
        let slack = if rule.limit.quantity == Quantity::Wall && rule.limit.action == LimitAction::End {
            WALL_GRACE_NS
        } else {
            0
        };
        (amount > allowed.saturating_add(slack)).then(|| Exceeded {
            by: Excess { at_ns: facts.now_ns, allowed, amount },
            largest: self.largest.holder(rule.limit.quantity == Quantity::GpuRam).cloned(),
        })
    }

    /// Orders the action of a limit, and notes how far the limit is exceeded.
    fn order(&mut self, index: usize, exceeded: Exceeded, orders: &mut Orders) {
        let (Some(rule), Ok(number)) = (self.rules.get_mut(index), u32::try_from(index)) else { return };
        let action = match rule.limit.action {
            LimitAction::End => Action::EndTree { limit: rule.limit.clone(), exceeded: exceeded.clone() },
            LimitAction::Signal(signal) => Action::Signal { signal, excess: exceeded.by },
        };
        orders.issue(Order { id: OrderId { rule: Rule::Limit(number), epoch: 0 }, action });
        rule.exceeded = Some(exceeded);
    }
}

/// Gives the memory on GPUs that a limit compares. An amount is of the run's memory on all GPUs, a percentage of the fullest GPU, as
/// for alerts. `None`: not known.
fn gpu_ram_bytes(limit: &RunLimit, gpu: &GpuSums) -> Option<u64> {
    match limit.threshold {
        Threshold::Amount(_) => gpu.run_bytes.map(|bytes| bytes.combined),
        Threshold::Percent(_) => gpu.fullest().map(|(used, _)| used),
    }
}

/// Gives how much the run used of what a limit restricts, in bytes, nanoseconds or processes. `None`: not known.
fn amount(limit: &RunLimit, facts: &Facts, idle: &Idle) -> Option<u64> {
    match limit.quantity {
        Quantity::Ram => Some(facts.max_ram_bytes),
        Quantity::GpuRam => gpu_ram_bytes(limit, facts.gpu),
        Quantity::Cpu => Some(facts.cpu_ns),
        Quantity::Wall => Some(facts.now_ns.saturating_sub(facts.start_ns)),
        Quantity::Processes => Some(facts.processes),
        Quantity::Stall => Some(facts.now_ns.saturating_sub(idle.active_ns)),
        Quantity::GpuIdle => {
            (facts.gpu.expected > 0).then(|| facts.now_ns.saturating_sub(idle.gpu_active_ns))
        }
    }
}

/// Whether what a limit restricts is known at a sample. A GPU of unknown utilization counts as active, so idleness is not known then.
fn is_known(limit: &RunLimit, facts: &Facts) -> bool {
    match limit.quantity {
        Quantity::GpuRam => gpu_ram_bytes(limit, facts.gpu).is_some(),
        Quantity::GpuIdle => facts.gpu.is_idle().is_some(),
        Quantity::Stall => facts.gpu.expected == 0 || facts.gpu.is_idle().is_some(),
        Quantity::Ram | Quantity::Cpu | Quantity::Wall | Quantity::Processes => true,
    }
}

/// Says which figure of a limit of this quantity the GPUs' drivers do not tell.
pub(crate) fn untold(quantity: Quantity) -> &'static str {
    match quantity {
        Quantity::GpuIdle | Quantity::Stall => "the drivers of the GPUs do not tell how busy they are",
        _ => "the drivers of the GPUs do not tell this memory",
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Arc;

    use super::*;
    use crate::model::gpu::Device;
    use crate::model::groups::Groups;
    use crate::model::tree_sample::GpuSample;

    const S: u64 = 1_000_000_000;
    const GIB: u64 = 1 << 30;

    fn limit(quantity: Quantity, threshold: Threshold, action: LimitAction) -> RunLimit {
        RunLimit { words: quantity.name().to_owned(), quantity, threshold, action }
    }

    fn ends_at(quantity: Quantity, amount: u64) -> RunLimit {
        limit(quantity, Threshold::Amount(amount), LimitAction::End)
    }

    fn rules(limits: &[RunLimit]) -> (LimitRules, Orders) {
        (LimitRules::new(limits, Some(8 * GIB), S / 10), Orders::default())
    }

    /// GPUs of which the run used so much memory, and so much of their time.
    fn gpu(run_bytes: Option<u64>, busy_percent: Option<f64>) -> GpuSums {
        let of_all = |bytes| crate::model::groups::Groups { combined: bytes, ..Default::default() };
        GpuSums { run_bytes: run_bytes.map(of_all), busy_percent, expected: 1, ..GpuSums::default() }
    }

    fn facts(at_s: u64, gpu: &GpuSums) -> Facts<'_> {
        let now_ns = 100 * S + at_s * S;
        Facts {
            now_ns,
            start_ns: 100 * S,
            max_ram_bytes: 0,
            cpu_ns: 0,
            processes: 1,
            are_all_stopped: false,
            io: None,
            gpu,
        }
    }

    /// The actions that are ordered at this time.
    fn ordered(rules: &mut LimitRules, orders: &mut Orders, facts: &Facts) -> Vec<Action> {
        rules.decide(facts, orders);
        orders.take(facts.now_ns).into_iter().map(|order| order.action).collect()
    }

    // Requirement: LIMIT-3
    #[test]
    fn more_than_is_allowed_ends_the_tree_once() {
        let none = GpuSums::default();
        let (mut rules, mut orders) = rules(&[ends_at(Quantity::Ram, GIB), ends_at(Quantity::Cpu, S)]);
        let at = |s, bytes| Facts { max_ram_bytes: bytes, ..facts(s, &none) };
        assert_eq!(ordered(&mut rules, &mut orders, &at(1, GIB)), []);
        let actions = ordered(&mut rules, &mut orders, &at(2, GIB + 1));
        let [Action::EndTree { limit, exceeded }] = &actions[..] else { panic!("{actions:?}") };
        assert_eq!((limit.quantity, exceeded.by.allowed, exceeded.by.amount), (Quantity::Ram, GIB, GIB + 1));
        assert_eq!(exceeded.by.at_ns, 102 * S);
        assert!(rules.that_ended().is_none(), "the command may end by itself before the launcher acts");
        orders.answer(OrderId { rule: Rule::Limit(0), epoch: 0 });
        rules.acted(0, exceeded.by);
        // The other limit is exceeded by then: the tree ends already.
        let later = Facts { cpu_ns: 2 * S, ..at(3, 9 * GIB) };
        assert_eq!(ordered(&mut rules, &mut orders, &later), []);
        assert_eq!(rules.that_ended().unwrap().0.quantity, Quantity::Ram);
    }

    // Requirement: LIMIT-3
    #[test]
    fn percentage_of_an_unknown_whole_never_acts() {
        let percent = |quantity| limit(quantity, Threshold::Percent(50.0), LimitAction::End);
        let used = gpu(Some(u64::MAX), None);
        let (mut rules, mut orders) = rules(&[percent(Quantity::Ram), percent(Quantity::GpuRam)]);
        let at = |bytes| Facts { max_ram_bytes: bytes, ..facts(1, &used) };
        assert_eq!(ordered(&mut rules, &mut orders, &at(4 * GIB)), []);
        assert_eq!(ordered(&mut rules, &mut orders, &at(4 * GIB + 1)).len(), 1);
        let (mut unknown, mut orders) =
            (LimitRules::new(&[percent(Quantity::Ram)], None, S / 10), Orders::default());
        assert_eq!(ordered(&mut unknown, &mut orders, &at(u64::MAX)), []);
    }

    /// On a node of several GPUs, the others have room that the run can't use.
    // Requirement: LIMIT-3
    #[test]
    fn percentage_of_gpu_memory_is_of_the_fullest_gpu() {
        let device = |used: u64, run: u64| GpuSample {
            device: Arc::new(Device { memory_bytes: Some(80 * GIB), ..Device::default() }),
            used_bytes: Some(used * GIB),
            run_bytes: Some(Groups { combined: run * GIB, ..Groups::default() }),
            ..GpuSample::default()
        };
        let gpus =
            |used| GpuSums { devices: vec![device(used, used), device(80, 0)], ..gpu(Some(used), None) };
        let at_95 = limit(Quantity::GpuRam, Threshold::Percent(95.0), LimitAction::Signal(10));
        let (mut rules, mut orders) = rules(&[at_95]);
        let (little, much) = (gpus(76), gpus(77));
        assert_eq!(ordered(&mut rules, &mut orders, &facts(1, &little)), []);
        let excess = Excess { at_ns: 102 * S, allowed: 76 * GIB, amount: 77 * GIB };
        assert_eq!(
            ordered(&mut rules, &mut orders, &facts(2, &much)),
            [Action::Signal { signal: 10, excess }]
        );
    }

    // Requirement: LIMIT-7
    #[test]
    fn signal_is_sent_once_and_other_limits_hold() {
        let none = GpuSums::default();
        let signal = limit(Quantity::Wall, Threshold::Amount(5 * S), LimitAction::Signal(10));
        let (mut rules, mut orders) = rules(&[signal, ends_at(Quantity::Cpu, S)]);
        assert_eq!(ordered(&mut rules, &mut orders, &facts(5, &none)), []);
        assert_eq!(
            ordered(&mut rules, &mut orders, &facts(6, &none)),
            [Action::Signal { signal: 10, excess: Excess { at_ns: 106 * S, allowed: 5 * S, amount: 6 * S } }]
        );
        orders.answer(OrderId { rule: Rule::Limit(0), epoch: 0 });
        assert_eq!(ordered(&mut rules, &mut orders, &facts(7, &none)), []);
        let used = Facts { cpu_ns: 2 * S, ..facts(8, &none) };
        assert_eq!(ordered(&mut rules, &mut orders, &used).len(), 1);
    }

    // Requirement: LIMIT-2
    #[test]
    fn wall_time_is_left_to_the_launcher_while_it_lives() {
        let none = GpuSums::default();
        let (mut rules, mut orders) = rules(&[ends_at(Quantity::Wall, 5 * S)]);
        assert_eq!(ordered(&mut rules, &mut orders, &facts(6, &none)), [], "the launcher has its timer");
        let excess = Excess { at_ns: 105 * S + 7, allowed: 5 * S, amount: 5 * S + 7 };
        rules.acted(0, excess);
        let (_, exceeded) = rules.that_ended().unwrap();
        assert_eq!((exceeded.by.at_ns, exceeded.by.amount), (105 * S + 7, 5 * S + 7));
        let (mut rules, mut orders) = super::tests::rules(&[ends_at(Quantity::Wall, 5 * S)]);
        assert_eq!(ordered(&mut rules, &mut orders, &facts(7, &none)).len(), 1, "it is gone");
    }

    // Requirement: LIMIT-6
    #[test]
    fn collector_that_resumes_an_older_state_learns_by_how_much_a_limit_was_exceeded() {
        let (mut rules, _) = rules(&[ends_at(Quantity::Ram, GIB)]);
        let excess = Excess { at_ns: 103 * S, allowed: GIB, amount: GIB + 7 };
        rules.acted(0, excess);
        rules.acted(0, Excess { amount: GIB, ..excess });
        assert_eq!(rules.that_ended().unwrap().1.by, excess, "what was told first stays");
    }

    // Requirement: LIMIT-9
    #[test]
    fn limit_whose_figures_no_driver_tells_is_said_once_not_to_be_held() {
        let device = GpuSample { read_ns: 1, ..GpuSample::default() };
        let idle = GpuSample { busy_percent: Some(0.0), ..device.clone() };
        let known = GpuSums { devices: vec![idle], ..gpu(Some(0), Some(0.0)) };
        let unknown = GpuSums { devices: vec![device], ..gpu(None, None) };
        let all = [
            ends_at(Quantity::GpuIdle, 99 * S),
            ends_at(Quantity::Stall, 99 * S),
            ends_at(Quantity::GpuRam, GIB),
            ends_at(Quantity::Cpu, 99 * S),
        ];
        let told = |gpus: &dyn Fn(u64) -> &'static GpuSums| {
            let (mut rules, mut orders) = rules(&all);
            let actions = (0..9).flat_map(|s| ordered(&mut rules, &mut orders, &facts(s, gpus(s))));
            // An order comes again until the launcher has answered it.
            let told: BTreeSet<String> = actions.map(|action| format!("{action:?}")).collect();
            (told.len(), rules.untold().map(|limit| limit.quantity).collect::<Vec<_>>())
        };
        let [known, unknown] = [known, unknown].map(|gpu| &*Box::leak(Box::new(gpu)));
        let unheld = vec![Quantity::GpuIdle, Quantity::Stall, Quantity::GpuRam];
        assert_eq!(told(&|_| unknown), (3, unheld));
        assert_eq!(told(&|_| known), (0, Vec::new()));
        assert_eq!(told(&|s| if s == 4 { known } else { unknown }), (0, Vec::new()), "it was known once");
    }

    // Requirement: LIMIT-9
    #[test]
    fn stall_ends_by_any_activity_and_idle_gpus_by_theirs_alone() {
        let (idle, busy, unknown) = (gpu(None, Some(0.0)), gpu(None, Some(1.0)), gpu(None, None));
        let all = [ends_at(Quantity::Stall, 10 * S), ends_at(Quantity::GpuIdle, 20 * S)];
        // What each second has on top, and which limit acts at its 40th second at the latest.
        type Second<'a> = (u64, Option<u64>, &'a GpuSums);
        let acts = |second: &dyn Fn(u64) -> Second<'static>| -> Option<(Quantity, u64)> {
            let (mut rules, mut orders) = rules(&all);
            (0..40).find_map(|s| {
                let (cpu_ns, io, gpu) = second(s);
                let io = io.map(|read| IoBytes { read, written: 0 });
                let facts = Facts { cpu_ns, io, ..facts(s, gpu) };
                rules.decide(&facts, &mut orders);
                rules.first_to_end(|_| true).map(|(limit, _)| (limit.quantity, s))
            })
        };
        let [idle, busy, unknown] = [idle, busy, unknown].map(|gpu| &*Box::leak(Box::new(gpu)));
        assert_eq!(acts(&|_| (0, None, idle)), Some((Quantity::Stall, 11)));
        assert_eq!(
            acts(&|s| (s * S / 50, None, idle)),
            Some((Quantity::GpuIdle, 21)),
            "2% of a core is work"
        );
        assert_eq!(acts(&|s| (s * S / 200, None, idle)), Some((Quantity::Stall, 11)), "0.5% is polling");
        assert_eq!(acts(&|s| (0, Some(s), idle)), Some((Quantity::GpuIdle, 21)));
        assert_eq!(acts(&|_| (0, None, busy)), None);
        assert_eq!(acts(&|_| (0, None, unknown)), None, "a GPU of unknown use may be at work");
        let told = |busy_percent| GpuSample { busy_percent, ..GpuSample::default() };
        let partly = GpuSums { devices: vec![told(Some(0.0)), told(None)], ..gpu(None, Some(0.0)) };
        let partly = &*Box::leak(Box::new(partly));
        assert_eq!(acts(&|_| (0, None, partly)), None, "so may one beside a GPU that is idle");
        assert_eq!(acts(&|s| (0, None, if s == 5 { busy } else { idle })), Some((Quantity::Stall, 16)));
    }

    // Requirement: LIMIT-9
    #[test]
    fn time_in_which_nobody_looked_or_all_were_stopped_is_no_stall() {
        let none = GpuSums::default();
        let (mut rules, mut orders) = rules(&[ends_at(Quantity::Stall, 10 * S)]);
        for (s, are_all_stopped) in (0..9).map(|s| (s, false)).chain((9..40).map(|s| (s, true))) {
            rules.decide(&Facts { are_all_stopped, ..facts(s, &none) }, &mut orders);
        }
        // Suspended with the collector: the next sample comes an hour later.
        for s in (3640..3650).chain([3650]) {
            assert_eq!(ordered(&mut rules, &mut orders, &facts(s, &none)), [], "{s}");
        }
        assert_eq!(ordered(&mut rules, &mut orders, &facts(3651, &none)).len(), 1);
    }
}

//! Limits: each orders an action once, when it is exceeded.
//!
//! The launcher itself enforces a limit of wall time that ends the tree: its timer does not depend on a collector. The rule here
//! only stands in for a launcher that is gone.

use serde::{Deserialize, Serialize};

use super::watch::{UNKNOWN_FOR_NS, Watch};
use super::{Moment, Rules};
use crate::model::order::{Action, Order, OrderId, OrderedBy};
use crate::model::rule::{Quantity, Response, Rule};
use crate::model::run_limit::{Exceeded, Excess};
use crate::model::tree_sample::GpuSums;
use crate::run::orders::Orders;

/// A launcher that has not acted this long after a limit of wall time is gone, nanoseconds.
const WALL_GRACE_NS: f64 = 1e9;

/// A limit, and whether it was exceeded.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Limit {
    rule: Rule,
    exceeded: Option<Exceeded>,
    /// What it orders was done.
    has_acted: bool,
    /// Whether its figures were known, so that it was held (enforced).
    watch: Watch,
}

impl Limit {
    /// Makes a limit that was not exceeded yet.
    pub(super) fn new(rule: Rule) -> Self {
        Self { rule, exceeded: None, has_acted: false, watch: Watch::default() }
    }
}

impl Rules {
    /// The memory above which the run ends, bytes. It is the least of what the run may use and its limits of RAM that end it.
    /// `None`: not known.
    pub(in crate::run) fn most_ram(&self) -> Option<u64> {
        let rules = self.limits.iter().map(|limit| &limit.rule);
        let ending = rules.filter(|rule| rule.quantity == Quantity::Ram && rule.ends());
        // Limits of RAM do not depend on the sums over GPUs, so empty sums suffice.
        let allowed = ending.filter_map(|rule| self.allowed(rule, &GpuSums::default()));
        allowed.map(|bytes| bytes as u64).chain(self.usable.ram_bytes).min()
    }

    /// The limits, in the order of the command line, and by how much each was exceeded. `None`: it was not.
    pub(crate) fn limits(&self) -> impl Iterator<Item = (&Rule, Option<&Exceeded>)> {
        self.limits.iter().map(|limit| (&limit.rule, limit.exceeded.as_ref()))
    }

    /// The limits that were not held, since samples did not have their figures, each with the seconds for which it was not; `None`: all
    /// the time. `has_driver_failed`: a GPU driver gave no reading.
    pub(crate) fn not_held(&self, has_driver_failed: bool) -> impl Iterator<Item = (&Rule, Option<f64>)> {
        self.limits.iter().filter_map(move |limit| {
            let rule = &limit.rule;
            let could_be_known =
                self.knowable_ns(rule).is_some() || (has_driver_failed && is_of_drivers(rule));
            Some((rule, limit.watch.unwatched_s(could_be_known)?))
        })
    }

    /// The time of the first sample that could have the figures of a rule, CLOCK_MONOTONIC nanoseconds. If a GPU driver tells the
    /// figures, that is the first sample with a reading of a GPU. `untold` then says what it means if the driver does not. `None`:
    /// there was none.
    pub(super) fn knowable_ns(&self, rule: &Rule) -> Option<u64> {
        if is_of_drivers(rule) { self.gpu_read_ns } else { self.sampled_ns }
    }

    /// The limit because of which the tree was ended, if it was. Of several, the one that was exceeded first.
    pub(crate) fn that_ended(&self) -> Option<(&Rule, &Exceeded)> {
        self.first_to_end(|limit| limit.has_acted)
    }

    /// Of the limits that end the tree and for which `fits` is true, the one that was exceeded first. `None`: none was.
    fn first_to_end(&self, fits: impl Fn(&Limit) -> bool) -> Option<(&Rule, &Exceeded)> {
        let ending = self.limits.iter().filter(|limit| limit.rule.ends() && fits(limit));
        let exceeded = ending.filter_map(|limit| Some((&limit.rule, limit.exceeded.as_ref()?)));
        exceeded.min_by_key(|(_, exceeded)| exceeded.by.at_ns)
    }

    /// Orders the actions of the limits that are exceeded now and were not before. Once a limit that ends the tree is exceeded, no other
    /// acts.
    pub(super) fn decide_limits(&mut self, moment: &Moment, orders: &mut Orders) {
        if self.first_to_end(|_| true).is_some() {
            return;
        }
        let sample = moment.sample;
        self.sampled_ns.get_or_insert(sample.at_ns);
        if sample.gpu.devices.iter().any(|device| device.read_ns > 0) {
            self.gpu_read_ns.get_or_insert(sample.at_ns);
        }
        for index in 0..self.limits.len() {
            self.note_known(index, moment, orders);
        }
        for index in 0..self.limits.len() {
            if let Some(exceeded) = self.exceeded(index, moment) {
                self.order_action(index, exceeded, orders);
            }
            if self.first_to_end(|_| true).is_some() {
                return;
            }
        }
    }

    /// Notes whether the figures of a limit, given by its index, are known. If they stay unknown, tells the user once that the limit is
    /// not held.
    fn note_known(&mut self, index: usize, moment: &Moment, orders: &mut Orders) {
        let Some(limit) = self.limits.get(index) else { return };
        // Until a GPU was read, it is not known which figures its driver tells.
        let Some(knowable_ns) = self.knowable_ns(&limit.rule) else { return };
        let is_known = self.level(&limit.rule, moment).is_some();
        let (Some(limit), Ok(number)) = (self.limits.get_mut(index), u32::try_from(index)) else { return };
        let now_ns = moment.sample.at_ns;
        limit.watch.note(now_ns, is_known, 0);
        let is_unknown = !limit.watch.was_known && now_ns.saturating_sub(knowable_ns) >= UNKNOWN_FOR_NS;
        // The order of the limit's action has epoch 0, and this one epoch 1, so that their ids differ.
        let id = OrderId { by: OrderedBy::Limit(number), epoch: 1 };
        if is_unknown && !orders.knows(id) {
            let Rule { words, quantity, .. } = &limit.rule;
            let text = format!("the limit {words} is not held: {}.", quantity.why_not_held(None));
            orders.issue(Order { id, action: Action::Tell(text) });
        }
    }

    /// Notes that the launcher has acted because of a limit, given by its index, and by how much the limit was exceeded. The rule
    /// may not have decided that: the launcher itself decides on wall time, and a collector may have resumed an older state.
    pub(in crate::run) fn acted(&mut self, index: u32, excess: Excess) {
        let Some(limit) = self.limits.get_mut(index as usize) else { return };
        let largest = self.largest.holder(limit.rule.quantity == Quantity::GpuRam).cloned();
        limit.exceeded.get_or_insert(Exceeded { by: excess, largest });
        limit.has_acted = true;
    }

    /// How far a limit is exceeded. `None`: it is not exceeded, was exceeded before, or a figure of it is not known.
    fn exceeded(&self, index: usize, moment: &Moment) -> Option<Exceeded> {
        let Limit { rule, .. } = self.limits.get(index).filter(|limit| limit.exceeded.is_none())?;
        let level = self.level(rule, moment)?;
        // The launcher itself enforces a limit of wall time that ends the tree: see the head of this file.
        let slack = if rule.is_held_by_timer() { WALL_GRACE_NS } else { 0.0 };
        let (allowed, amount) = (level.allowed as u64, level.amount as u64);
        (level.amount > level.allowed + slack).then(|| Exceeded {
            by: Excess { at_ns: moment.sample.at_ns, allowed, amount },
            largest: self.largest.holder(rule.quantity == Quantity::GpuRam).cloned(),
        })
    }

    /// Orders the action of a limit, and notes how far the limit is exceeded.
    fn order_action(&mut self, index: usize, exceeded: Exceeded, orders: &mut Orders) {
        let (Some(limit), Ok(number)) = (self.limits.get_mut(index), u32::try_from(index)) else { return };
        let action = match limit.rule.response {
            Response::Signal(signal) => Action::Signal { signal, excess: exceeded.by },
            Response::End => Action::EndTree { limit: limit.rule.clone(), exceeded: exceeded.clone() },
            // Only alerts tell: no limit does.
            Response::Tell => return,
        };
        orders.issue(Order { id: OrderId { by: OrderedBy::Limit(number), epoch: 0 }, action });
        limit.exceeded = Some(exceeded);
    }
}

/// Whether drivers of GPUs tell the figure of a rule.
pub(super) fn is_of_drivers(rule: &Rule) -> bool {
    rule.quantity.row().untold.is_some()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Arc;

    use super::*;
    use crate::model::alert::Alerts;
    use crate::model::gpu::Device;
    use crate::model::groups::Groups;
    use crate::model::rule::Threshold;
    use crate::model::tree_sample::{GpuSample, IoBytes, IoSample, TreeSample};
    use crate::run::rules::Usable;

    const S: u64 = 1_000_000_000;
    const GIB: u64 = 1 << 30;

    fn limit(quantity: Quantity, threshold: Threshold, response: Response) -> Rule {
        Rule { words: quantity.name().to_owned(), quantity, threshold, response }
    }

    fn ends_at(quantity: Quantity, amount: u64) -> Rule {
        limit(quantity, Threshold::Amount(amount), Response::End)
    }

    fn rules(limits: &[Rule]) -> (Rules, Orders) {
        with_usable(limits, Some(8 * GIB))
    }

    fn with_usable(limits: &[Rule], ram_bytes: Option<u64>) -> (Rules, Orders) {
        let usable = Usable { ram_bytes, cores: 2.0 };
        (Rules::new(limits, &Alerts::default(), usable, S / 10), Orders::default())
    }

    /// GPUs of which the run used so much memory, and so much of their time.
    fn gpu(run_bytes: Option<u64>, busy_percent: Option<f64>) -> GpuSums {
        let of_all = |bytes| crate::model::groups::Groups { combined: bytes, ..Default::default() };
        let devices = vec![GpuSample { busy_percent, ..GpuSample::default() }];
        GpuSums { run_bytes: run_bytes.map(of_all), busy_percent, expected: 1, devices, ..GpuSums::default() }
    }

    fn sample(at_s: u64, gpu: &GpuSums) -> TreeSample {
        let mut sample = TreeSample { at_ns: 100 * S + at_s * S, gpu: gpu.clone(), ..TreeSample::default() };
        sample.processes.max = 1;
        sample
    }

    fn moment(sample: &TreeSample) -> Moment<'_> {
        Moment { start_ns: 100 * S, are_all_stopped: false, sample }
    }

    /// The actions that are ordered at a sample.
    fn ordered(rules: &mut Rules, orders: &mut Orders, sample: &TreeSample) -> Vec<Action> {
        rules.decide(&moment(sample), orders);
        orders.take(sample.at_ns).into_iter().map(|order| order.action).collect()
    }

    fn with_ram(mut sample: TreeSample, bytes: u64) -> TreeSample {
        sample.max_ram.combined.bytes = bytes;
        sample
    }

    fn with_cpu(mut sample: TreeSample, time_ns: u64) -> TreeSample {
        sample.cpu.combined.time_ns = time_ns;
        sample
    }

    // Requirement: LIMIT-3
    #[test]
    fn more_than_is_allowed_ends_the_tree_once() {
        let none = GpuSums::default();
        let (mut rules, mut orders) = rules(&[ends_at(Quantity::Ram, GIB), ends_at(Quantity::Cpu, S)]);
        let at = |s, bytes| with_ram(sample(s, &none), bytes);
        assert_eq!(ordered(&mut rules, &mut orders, &at(1, GIB)), []);
        let actions = ordered(&mut rules, &mut orders, &at(2, GIB + 1));
        let [Action::EndTree { limit, exceeded }] = &actions[..] else { panic!("{actions:?}") };
        assert_eq!((limit.quantity, exceeded.by.allowed, exceeded.by.amount), (Quantity::Ram, GIB, GIB + 1));
        assert_eq!(exceeded.by.at_ns, 102 * S);
        assert!(rules.that_ended().is_none(), "the command may end by itself before the launcher acts");
        orders.answer(OrderId { by: OrderedBy::Limit(0), epoch: 0 });
        rules.acted(0, exceeded.by);
        // The other limit is exceeded by then: the tree ends already.
        let later = with_cpu(at(3, 9 * GIB), 2 * S);
        assert_eq!(ordered(&mut rules, &mut orders, &later), []);
        assert_eq!(rules.that_ended().unwrap().0.quantity, Quantity::Ram);
    }

    // Requirement: LIMIT-3
    #[test]
    fn percentage_of_an_unknown_whole_never_acts() {
        let percent = |quantity| limit(quantity, Threshold::Percent(50.0), Response::End);
        let used = gpu(Some(u64::MAX), None);
        let (mut rules, mut orders) = rules(&[percent(Quantity::Ram), percent(Quantity::GpuRam)]);
        let at = |bytes| with_ram(sample(1, &used), bytes);
        assert_eq!(ordered(&mut rules, &mut orders, &at(4 * GIB)), []);
        assert_eq!(ordered(&mut rules, &mut orders, &at(4 * GIB + 1)).len(), 1);
        let (mut unknown, mut orders) = with_usable(&[percent(Quantity::Ram)], None);
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
        let at_95 = limit(Quantity::GpuRam, Threshold::Percent(95.0), Response::Signal(10));
        let (mut rules, mut orders) = rules(&[at_95]);
        let (little, much) = (gpus(76), gpus(77));
        assert_eq!(ordered(&mut rules, &mut orders, &sample(1, &little)), []);
        let excess = Excess { at_ns: 102 * S, allowed: 76 * GIB, amount: 77 * GIB };
        assert_eq!(
            ordered(&mut rules, &mut orders, &sample(2, &much)),
            [Action::Signal { signal: 10, excess }]
        );
    }

    // Requirement: LIMIT-7
    #[test]
    fn signal_is_sent_once_and_other_limits_hold() {
        let none = GpuSums::default();
        let signal = limit(Quantity::Wall, Threshold::Amount(5 * S), Response::Signal(10));
        let (mut rules, mut orders) = rules(&[signal, ends_at(Quantity::Cpu, S)]);
        assert_eq!(ordered(&mut rules, &mut orders, &sample(5, &none)), []);
        assert_eq!(
            ordered(&mut rules, &mut orders, &sample(6, &none)),
            [Action::Signal { signal: 10, excess: Excess { at_ns: 106 * S, allowed: 5 * S, amount: 6 * S } }]
        );
        orders.answer(OrderId { by: OrderedBy::Limit(0), epoch: 0 });
        assert_eq!(ordered(&mut rules, &mut orders, &sample(7, &none)), []);
        let used = with_cpu(sample(8, &none), 2 * S);
        assert_eq!(ordered(&mut rules, &mut orders, &used).len(), 1);
    }

    // Requirement: LIMIT-2
    #[test]
    fn wall_time_is_left_to_the_launcher_while_it_lives() {
        let none = GpuSums::default();
        let (mut rules, mut orders) = rules(&[ends_at(Quantity::Wall, 5 * S)]);
        assert_eq!(ordered(&mut rules, &mut orders, &sample(6, &none)), [], "the launcher has its timer");
        let excess = Excess { at_ns: 105 * S + 7, allowed: 5 * S, amount: 5 * S + 7 };
        rules.acted(0, excess);
        let (_, exceeded) = rules.that_ended().unwrap();
        assert_eq!((exceeded.by.at_ns, exceeded.by.amount), (105 * S + 7, 5 * S + 7));
        let (mut rules, mut orders) = super::tests::rules(&[ends_at(Quantity::Wall, 5 * S)]);
        assert_eq!(ordered(&mut rules, &mut orders, &sample(7, &none)).len(), 1, "it is gone");
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
            let actions = (0..9).flat_map(|s| ordered(&mut rules, &mut orders, &sample(s, gpus(s))));
            // An order comes again until the launcher has answered it.
            let told: BTreeSet<String> = actions.map(|action| format!("{action:?}")).collect();
            (told.len(), rules.not_held(false).map(|(limit, _)| limit.quantity).collect::<Vec<_>>())
        };
        let [known, unknown] = [known, unknown].map(|gpu| &*Box::leak(Box::new(gpu)));
        let unheld = || vec![Quantity::GpuIdle, Quantity::Stall, Quantity::GpuRam];
        assert_eq!(told(&|_| unknown), (3, unheld()));
        assert_eq!(told(&|_| known), (0, Vec::new()));
        assert_eq!(told(&|s| if s == 4 { known } else { unknown }), (0, unheld()), "it was known once");
        let why = |time_s| Quantity::GpuIdle.why_not_held(time_s);
        assert!(why(None).starts_with("the drivers of the GPUs do not tell"));
        assert_eq!(why(Some(8.9)), "the GPUs were not read often enough");
    }

    // Requirement: LIMIT-9
    #[test]
    fn limit_of_an_unknown_whole_is_said_not_to_be_held_on_a_machine_without_gpus() {
        let percent = limit(Quantity::Ram, Threshold::Percent(80.0), Response::End);
        let all = [ends_at(Quantity::Cpu, S), percent, ends_at(Quantity::GpuRam, GIB)];
        let (mut rules, mut orders) = with_usable(&all, None);
        let none = GpuSums::default();
        assert_eq!(rules.not_held(false).count(), 0, "no sample was taken");
        assert_eq!(ordered(&mut rules, &mut orders, &sample(1, &none)), []);
        let text = "the limit ram is not held: the memory that the run may use is not known.".to_owned();
        assert_eq!(ordered(&mut rules, &mut orders, &sample(6, &none)), [Action::Tell(text)]);
        let unheld =
            |rules: &Rules| rules.not_held(false).map(|(limit, _)| limit.quantity).collect::<Vec<_>>();
        assert_eq!(unheld(&rules), [Quantity::Ram]);
        // A driver that failed may have GPUs.
        let if_failed: Vec<_> = rules.not_held(true).map(|(limit, _)| limit.quantity).collect();
        assert_eq!(if_failed, [Quantity::Ram, Quantity::GpuRam]);
        // The sample at which one limit ends the tree notes what is known for the others, too.
        let (mut rules, mut orders) = super::tests::rules(&[ends_at(Quantity::Cpu, S), all[1].clone()]);
        assert_eq!(ordered(&mut rules, &mut orders, &with_cpu(sample(1, &none), 2 * S)).len(), 1);
        assert_eq!(unheld(&rules), []);
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
                let mut sample = with_cpu(sample(s, gpu), cpu_ns);
                let io = io.map(|read| IoBytes { read, written: 0 });
                sample.io = io.map(|bytes| IoSample { read_ns: sample.at_ns, bytes });
                rules.decide(&moment(&sample), &mut orders);
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
            rules.decide(&Moment { are_all_stopped, ..moment(&sample(s, &none)) }, &mut orders);
        }
        // Suspended with the collector: the next sample comes an hour later.
        for s in (3640..3650).chain([3650]) {
            assert_eq!(ordered(&mut rules, &mut orders, &sample(s, &none)), [], "{s}");
        }
        assert_eq!(ordered(&mut rules, &mut orders, &sample(3651, &none)).len(), 1);
    }
}

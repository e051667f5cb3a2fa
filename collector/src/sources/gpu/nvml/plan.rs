//! The reading plan: which figures of which device to read next. Pure: it is told times and costs.
//!
//! NVML's calls take from microseconds to milliseconds each, under one lock of the driver. So each kind of figures has a share
//! of the thread's time, and is read as often as that pays for, but not more often than asked for. The process lists come
//! first: what they miss is lost, while counters and the driver's own samples can be read later.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::kind::Kind;
use super::policy::POLICY;

/// What to do next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    /// Read these kinds of figures of this device; `None`: of all devices.
    Read(Option<String>, Vec<Kind>),
    /// Nothing is due before this time, CLOCK_MONOTONIC nanoseconds.
    WaitUntil(u64),
    /// The last reading is complete.
    Over,
}

/// What the latest calls of a kind cost, nanoseconds: their median, which a few preempted calls do not change.
#[derive(Debug, Clone, Default)]
struct Costs(VecDeque<u64>);

impl Costs {
    fn add(&mut self, took_ns: u64) {
        self.0.push_back(took_ns);
        if self.0.len() > POLICY.costs_kept {
            self.0.pop_front();
        }
    }

    fn median_ns(&self) -> u64 {
        let mut sorted: Vec<u64> = self.0.iter().copied().collect();
        sorted.sort_unstable();
        sorted.get(sorted.len() / 2).copied().unwrap_or(0)
    }
}

/// When a device's figures are due, by kind, CLOCK_MONOTONIC nanoseconds.
type Due = BTreeMap<Kind, u64>;

/// The plan.
#[derive(Debug)]
pub(super) struct Plan {
    interval_ns: u64,
    costs: BTreeMap<Kind, Costs>,
    due: BTreeMap<Option<String>, Due>,
    /// Devices that the command does not see, by its environment.
    hidden: BTreeSet<String>,
    /// Longest time between two readings of a device's utilization samples, nanoseconds: the driver keeps few of them.
    sample_ns: BTreeMap<String, u64>,
    /// What is left to read at the end of the run.
    last: Option<VecDeque<(Option<String>, Vec<Kind>)>>,
}

impl Plan {
    pub(super) fn new(interval_ns: u64) -> Self {
        Self {
            interval_ns,
            costs: BTreeMap::new(),
            due: BTreeMap::new(),
            hidden: BTreeSet::new(),
            sample_ns: BTreeMap::new(),
            last: None,
        }
    }

    /// The devices to read from now on, and those among them that the command does not see.
    pub(super) fn set_devices(&mut self, wanted: &[String], hidden: &BTreeSet<String>) {
        if self.due.len() == wanted.len() + 1 && self.hidden == *hidden {
            return;
        }
        for id in wanted.iter().cloned().map(Some).chain([None]) {
            self.due.entry(id).or_default();
        }
        self.hidden.clone_from(hidden);
    }

    /// The driver keeps a device's utilization samples for so long.
    pub(super) fn set_sample_memory(&mut self, device: &str, ns: u64) {
        self.sample_ns.insert(device.to_owned(), (ns / 2).max(POLICY.shortest_sample_memory_ns));
    }

    /// All process lists of a device are to be read as soon as its lists are due.
    pub(super) fn want_all_lists(&mut self, device: &str) {
        if let Some(due) = self.due.get_mut(&Some(device.to_owned())) {
            due.insert(Kind::AllLists, 0);
        }
    }

    /// Whether every kind of figures of every device was read.
    pub(super) fn is_complete(&self) -> bool {
        self.due.iter().all(|(id, due)| kinds(id.is_some()).iter().all(|kind| due.contains_key(kind)))
    }

    /// What to do at this time.
    pub(super) fn next(&self, now_ns: u64) -> Step {
        let due = |id: &Option<String>, kind: Kind| {
            self.due.get(id).and_then(|due| due.get(&kind)).copied().unwrap_or(0)
        };
        let devices = || self.due.keys().filter(|id| id.is_some());
        if let Some(first) = devices().min_by_key(|id| due(id, Kind::Lists))
            && due(first, Kind::Lists) <= now_ns
        {
            // The first time, and where it keeps the lists of the other devices waiting only shortly.
            let is_cheap = self.cost_ns(Kind::AllLists) <= POLICY.longest_visit_ns;
            let is_all =
                due(first, Kind::AllLists) == 0 || (is_cheap && due(first, Kind::AllLists) <= now_ns);
            return Step::Read(first.clone(), vec![if is_all { Kind::AllLists } else { Kind::Lists }]);
        }
        let others =
            || self.due.keys().flat_map(|id| kinds(id.is_some()).iter().map(move |kind| (id, *kind)));
        let next = others().min_by_key(|(id, kind)| due(id, *kind));
        let Some((id, kind)) = next.filter(|(id, kind)| due(id, *kind) <= now_ns) else {
            let all = others().chain(devices().map(|id| (id, Kind::Lists)));
            return Step::WaitUntil(all.map(|(id, kind)| due(id, kind)).min().unwrap_or(u64::MAX));
        };
        // One visit reads all that is due, as far as it does not keep the lists waiting.
        let mut cost_ns = self.cost_ns(kind);
        let mut read = vec![kind];
        for other in
            kinds(id.is_some()).iter().copied().filter(|other| *other != kind && due(id, *other) <= now_ns)
        {
            cost_ns += self.cost_ns(other);
            if cost_ns > POLICY.longest_visit_ns {
                break;
            }
            read.push(other);
        }
        read.sort_unstable();
        Step::Read(id.clone(), read)
    }

    /// What to read next at the end of the run.
    pub(super) fn next_at_end(&mut self) -> Step {
        let next = match &mut self.last {
            Some(last) => last.pop_front(),
            None => {
                let mut last = self.all_at_end();
                let next = last.pop_front();
                self.last = Some(last);
                next
            }
        };
        next.map_or(Step::Over, |(id, kinds)| Step::Read(id, kinds))
    }

    fn all_at_end(&self) -> VecDeque<(Option<String>, Vec<Kind>)> {
        let devices = || self.due.keys().filter(|id| id.is_some()).cloned();
        let all: Vec<Kind> = Kind::AT_END.concat();
        let cost_ns: u64 = all.iter().map(|kind| self.cost_ns(*kind)).sum::<u64>() * devices().count() as u64;
        let passes: Vec<Vec<Kind>> = if cost_ns <= POLICY.longest_visit_ns {
            let mut all = all;
            all.sort_unstable();
            vec![all]
        } else {
            Kind::AT_END.map(<[Kind]>::to_vec).to_vec()
        };
        let visits = passes.into_iter().flat_map(|kinds| devices().map(move |id| (id, kinds.clone())));
        [(None, vec![Kind::Events])].into_iter().chain(visits).collect()
    }

    /// A kind of figures was read in a visit that began at this time, and took so long.
    pub(super) fn done(&mut self, id: &Option<String>, kind: Kind, began_ns: u64, took_ns: u64) {
        self.costs.entry(kind).or_default().add(took_ns);
        self.set_due(id, kind, began_ns);
        if kind == Kind::AllLists {
            self.set_due(id, Kind::Lists, began_ns);
        }
    }

    fn set_due(&mut self, id: &Option<String>, kind: Kind, began_ns: u64) {
        let interval_ns = self.interval_of(id, kind);
        if let Some(due) = self.due.get_mut(id) {
            // On the grid, unless it was read before its time or much too late.
            let before_ns = due.get(&kind).copied().filter(|due_ns| *due_ns <= began_ns);
            let on_time_ns = before_ns.map_or(0, |due_ns| due_ns.saturating_add(interval_ns));
            let next_ns =
                if on_time_ns > began_ns { on_time_ns } else { began_ns.saturating_add(interval_ns) };
            due.insert(kind, next_ns);
        }
    }

    fn cost_ns(&self, kind: Kind) -> u64 {
        self.costs.get(&kind).map_or(0, Costs::median_ns)
    }

    /// Time from one reading to the next, nanoseconds.
    fn interval_of(&self, id: &Option<String>, kind: Kind) -> u64 {
        let mut asked_ns = self.interval_ns;
        if kind == Kind::Utilization {
            let sample_ns = id.as_ref().and_then(|id| self.sample_ns.get(id)).copied();
            asked_ns = asked_ns.min(sample_ns.unwrap_or(POLICY.shortest_sample_memory_ns));
        }
        let mut devices = 1.0;
        if let Some(id) = id {
            let hidden = self.hidden.len() as f64;
            devices = (self.due.len() - 1) as f64 - hidden + hidden / POLICY.hidden_factor;
            if self.hidden.contains(id) {
                devices *= POLICY.hidden_factor;
            }
        }
        let paid_ns = self.cost_ns(kind) as f64 * devices / share(kind);
        // The first call of a kind may have been preempted: a few more tell what it costs.
        let is_known = self.costs.get(&kind).is_some_and(|costs| costs.0.len() > POLICY.costs_kept / 2);
        let longest_ns = if is_known { u64::MAX } else { asked_ns.saturating_mul(POLICY.first_intervals) };
        asked_ns.max((paid_ns as u64).min(longest_ns))
    }
}

/// The kinds of figures of a device apart from its lists, or those of all devices.
fn kinds(is_device: bool) -> &'static [Kind] {
    if is_device { &Kind::OTHERS } else { &[Kind::Events] }
}

/// The share of the thread's time for a kind of figures.
fn share(kind: Kind) -> f64 {
    POLICY.shares.iter().find(|(other, _)| *other == kind).map_or(1.0, |(_, share)| *share)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Follows the plan for so long, with calls that cost this. Gives when each kind of each device was read.
    fn follow(
        plan: &mut Plan,
        for_ns: u64,
        cost_ns: impl Fn(Kind) -> u64,
    ) -> BTreeMap<(Option<String>, Kind), Vec<u64>> {
        let mut read: BTreeMap<_, Vec<u64>> = BTreeMap::new();
        let mut now_ns = 1_000 * MS;
        let end_ns = now_ns + for_ns;
        while now_ns < end_ns {
            match plan.next(now_ns) {
                Step::Read(id, kinds) => {
                    let began_ns = now_ns;
                    for kind in kinds {
                        now_ns += cost_ns(kind);
                        plan.done(&id, kind, began_ns, cost_ns(kind));
                        if kind == Kind::AllLists {
                            read.entry((id.clone(), Kind::Lists)).or_default().push(now_ns);
                        }
                        read.entry((id.clone(), kind)).or_default().push(now_ns);
                    }
                }
                Step::WaitUntil(at_ns) => {
                    assert!(at_ns > now_ns);
                    now_ns = at_ns;
                }
                Step::Over => unreachable!(),
            }
        }
        read
    }

    fn plan(devices: u32) -> Plan {
        let mut plan = Plan::new(100 * MS);
        let ids: Vec<String> = (0..devices).map(|n| format!("GPU-{n}")).collect();
        plan.set_devices(&ids, &BTreeSet::new());
        plan
    }

    /// Longest time between two readings, without the first two.
    fn longest(times: &[u64]) -> u64 {
        times[2..].windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(u64::MAX)
    }

    // Requirement: GPU-21
    #[test]
    fn slow_lists_of_eight_devices_are_read_every_150_ms() {
        let mut plan = plan(8);
        let cost_ns = |kind| match kind {
            Kind::Lists => 4_550_000,
            Kind::AllLists => 13_550_000,
            Kind::Gauges => 300_000,
            _ => 100_000,
        };
        let read = follow(&mut plan, 20_000 * MS, cost_ns);
        for ((id, kind), times) in &read {
            if *kind == Kind::Lists {
                assert!(longest(times) <= 150 * MS, "{id:?}: {} ms", longest(times) / MS);
            }
        }
        let count = |kind| read[&(Some("GPU-3".to_owned()), kind)].len();
        assert!(count(Kind::AllLists) >= 4 && count(Kind::AllLists) <= 30, "{}", count(Kind::AllLists));
        assert!(count(Kind::Gauges) > 100);
    }

    #[test]
    fn cheap_figures_are_read_as_often_as_asked_for_and_together() {
        let mut plan = plan(1);
        let read = follow(&mut plan, 10_000 * MS, |_| 50_000);
        let id = Some("GPU-0".to_owned());
        for kind in [Kind::Lists, Kind::Utilization, Kind::Power, Kind::Gauges, Kind::Pcie, Kind::Ecc] {
            assert_eq!(read[&(id.clone(), kind)].len(), 100, "{kind:?}");
        }
    }

    #[test]
    fn thread_is_never_busy_for_more_than_the_sum_of_the_shares() {
        let mut plan = plan(16);
        let read = follow(&mut plan, 200_000 * MS, |_| 20 * MS);
        let busy: usize =
            read.iter().filter(|((_, kind), _)| *kind != Kind::AllLists).map(|(_, times)| times.len()).sum();
        let shares: f64 = POLICY.shares.iter().map(|(_, share)| share).sum();
        assert!(shares < 0.76, "{shares}");
        assert!((busy as f64) < 10_000.0 * shares * 1.1, "{busy}");
        assert!(read.len() > 16 * 7);
    }

    #[test]
    fn rings_of_samples_are_read_before_they_are_overwritten() {
        let mut plan = Plan::new(30_000 * MS);
        plan.set_devices(&["GPU-0".into()], &BTreeSet::new());
        plan.set_sample_memory("GPU-0", 2_000 * MS);
        let read = follow(&mut plan, 100_000 * MS, |_| 50_000);
        assert!(longest(&read[&(Some("GPU-0".into()), Kind::Utilization)]) <= 1_010 * MS);
        assert!(read[&(Some("GPU-0".into()), Kind::Power)].len() < 5);
    }

    #[test]
    fn devices_that_the_command_does_not_see_are_seldom_read_if_calls_are_slow() {
        for (cost_ns, visible, hidden) in [(50_000, 100, 100), (100 * MS, 12, 4)] {
            let mut plan = plan(8);
            let all: Vec<String> = (0..8).map(|n| format!("GPU-{n}")).collect();
            plan.set_devices(&all, &all[1..].iter().cloned().collect());
            let read = follow(&mut plan, 10_000 * MS, |kind| {
                if matches!(kind, Kind::Lists | Kind::AllLists) { cost_ns } else { 50_000 }
            });
            let count = |id: &str| read[&(Some(id.to_owned()), Kind::Lists)].len();
            assert!(count("GPU-0").abs_diff(visible) <= 2, "{}", count("GPU-0"));
            assert!(count("GPU-7").abs_diff(hidden) <= 2, "{}", count("GPU-7"));
        }
    }

    #[test]
    fn at_the_end_everything_is_read_once_more() {
        let mut plan = plan(2);
        follow(&mut plan, 1_000 * MS, |_| 50_000);
        let mut visits = Vec::new();
        while let Step::Read(id, kinds) = plan.next_at_end() {
            visits.push((id, kinds));
        }
        assert_eq!(visits.len(), 3);
        assert_eq!(visits[0], (None, vec![Kind::Events]));
        assert_eq!(visits[1].1.len(), 8);
        assert_eq!(plan.next_at_end(), Step::Over);
        // With calls of 5 ms, the energy of all devices comes first.
        let mut plan = self::plan(2);
        follow(&mut plan, 1_000 * MS, |_| 5 * MS);
        plan.next_at_end();
        for _ in 0..2 {
            assert!(matches!(plan.next_at_end(), Step::Read(_, kinds) if kinds == [Kind::Energy]));
        }
    }
}

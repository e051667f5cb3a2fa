//! The reading plan: which figures of which device to read next. Pure: it is told times and costs.
//!
//! NVML's calls take from microseconds to milliseconds each, under one lock of the driver. So each kind of figures has a share
//! of the thread's time. It is read as often as that pays for, at most as often as asked for. Memory and the process lists come
//! first: what they miss is lost, while counters and the driver's own samples can be read later. Where the lists can't be read
//! each time, the memory in use tells whether they have changed.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::budget::Budget;
use super::figure_kind::Kind;
use super::policy::PLAN;

/// A reading of all lists is this many calls: memory in use, and three lists.
const CALLS_OF_ALL_LISTS: u64 = 4;
/// Lists that are due within one part in this many of the interval of memory are read with it, not at the next visit.
const SOON_PART: u64 = 4;

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
    /// Adds what a reading took, nanoseconds. The oldest of `PLAN.costs_kept` is dropped for it.
    fn add(&mut self, took_ns: u64) {
        self.0.push_back(took_ns);
        if self.0.len() > PLAN.costs_kept {
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
    /// What the shares are multiplied by.
    scale: f64,
    budget: Budget,
    costs: BTreeMap<Kind, Costs>,
    due: BTreeMap<Option<String>, Due>,
    /// Since when the devices are known: what was not read yet is due since then.
    since_ns: BTreeMap<Option<String>, u64>,
    /// Devices that the command does not see, by its environment.
    hidden: BTreeSet<String>,
    /// Longest time between two readings of a device's utilization samples, nanoseconds: the driver keeps few of them.
    sample_ns: BTreeMap<String, u64>,
    /// Shortest time in which a device's PCIe counters can wrap, nanoseconds.
    wrap_ns: BTreeMap<String, u64>,
    /// What is left to read at the end of the run.
    last: Option<VecDeque<(Option<String>, Vec<Kind>)>>,
}

impl Plan {
    /// Makes a plan without devices. `percent`: for how much of the time the driver may be kept busy.
    pub(super) fn new(interval_ns: u64, percent: u32) -> Self {
        Self {
            interval_ns,
            scale: (f64::from(percent) / 100.0 / PLAN.whole_share).min(1.0),
            budget: Budget::new(percent),
            costs: BTreeMap::new(),
            due: BTreeMap::new(),
            since_ns: BTreeMap::new(),
            hidden: BTreeSet::new(),
            sample_ns: BTreeMap::new(),
            wrap_ns: BTreeMap::new(),
            last: None,
        }
    }

    /// Notes that the driver was asked something outside the plan, for `took_ns`, until this time.
    pub(super) fn owe(&mut self, now_ns: u64, took_ns: u64) {
        self.budget.owe(now_ns, took_ns);
    }

    /// Sets the devices to read from now on, and those among them that the command does not see.
    pub(super) fn set_devices(&mut self, wanted: &[String], hidden: &BTreeSet<String>, now_ns: u64) {
        // Devices only come, none goes. One entry is that of all devices.
        if self.due.len() == wanted.len() + 1 && self.hidden == *hidden {
            return;
        }
        for id in wanted.iter().cloned().map(Some).chain([None]) {
            self.since_ns.entry(id.clone()).or_insert(now_ns);
            self.due.entry(id).or_default();
        }
        self.hidden.clone_from(hidden);
    }

    /// Notes that the driver keeps a device's utilization samples for `ns`. They are read twice in that time.
    pub(super) fn set_sample_memory(&mut self, device: &str, ns: u64) {
        self.sample_ns.insert(device.to_owned(), (ns / 2).max(PLAN.shortest_sample_memory_ns));
    }

    /// Notes that a device's PCIe counters take `ns` to wrap at least.
    pub(super) fn set_wrap(&mut self, device: &str, ns: u64) {
        self.wrap_ns.insert(device.to_owned(), (ns as f64 * PLAN.wrap_part) as u64);
    }

    /// Has all process lists of a device read as soon as its lists are due.
    pub(super) fn want_all_lists(&mut self, device: &str) {
        if let Some(due) = self.due.get_mut(&Some(device.to_owned())) {
            due.insert(Kind::AllLists, 0);
        }
    }

    /// Whether every kind of figures of every device was read.
    pub(super) fn is_complete(&self) -> bool {
        self.due.iter().all(|(id, due)| kinds(id.is_some()).iter().all(|kind| due.contains_key(kind)))
    }

    /// Gives what to do at this time, CLOCK_MONOTONIC nanoseconds. Memory and the process lists come before all other kinds.
    pub(super) fn next(&self, now_ns: u64) -> Step {
        let ready_ns = self.budget.ready_ns();
        // A first look at each device's memory and processes does not wait.
        if ready_ns > now_ns && !self.devices().any(|id| self.is_new(id)) {
            return Step::WaitUntil(ready_ns);
        }
        self.next_memory(now_ns).unwrap_or_else(|| self.next_other(now_ns))
    }

    /// Gives the devices. `None`, which stands for all devices at once, is not among them.
    fn devices(&self) -> impl Iterator<Item = &Option<String>> {
        self.due.keys().filter(|id| id.is_some())
    }

    /// Gives the reading of the memory that is due first, with lists as far as those are due. `None`: no memory is due.
    fn next_memory(&self, now_ns: u64) -> Option<Step> {
        let first = self.devices().min_by_key(|id| self.due(id, Kind::Memory))?;
        if self.due(first, Kind::Memory) > now_ns {
            return None;
        }
        let soon_ns = now_ns.saturating_add(self.interval_of(first, Kind::Memory) / SOON_PART);
        let kind = if self.are_all_lists_due(first, now_ns) {
            Kind::AllLists
        } else if self.due(first, Kind::Lists) <= soon_ns {
            Kind::Lists
        } else {
            Kind::Memory
        };
        Some(Step::Read(first.clone(), vec![kind]))
    }

    /// Whether to read all process lists of a device with its memory. They are read if [`Self::want_all_lists`] said so. Else
    /// they are read when they are due or new, where that keeps the lists of the other devices waiting only shortly.
    fn are_all_lists_due(&self, id: &Option<String>, now_ns: u64) -> bool {
        let due_ns = self.due.get(id).and_then(|due| due.get(&Kind::AllLists)).copied();
        let cost_ns = self.estimate_ns(Kind::AllLists).max(self.cost_ns(Kind::Memory) * CALLS_OF_ALL_LISTS);
        let is_cheap = cost_ns <= PLAN.longest_visit_ns;
        due_ns == Some(0) || (is_cheap && due_ns.is_none_or(|due_ns| due_ns <= now_ns))
    }

    /// Gives the reading of other figures than memory and lists that comes first, or until when none is due.
    fn next_other(&self, now_ns: u64) -> Step {
        let others =
            || self.due.keys().flat_map(|id| kinds(id.is_some()).iter().map(move |kind| (id, *kind)));
        // First what is due and lost if it is late: the first readings of all other kinds can take seconds.
        let order = |id, kind| {
            let due_ns = self.due(id, kind);
            let can_wait = due_ns > now_ns || !self.is_urgent(id, kind);
            (can_wait, due_ns, kind)
        };
        let next = others().min_by_key(|(id, kind)| order(id, *kind));
        let Some((id, kind)) = next.filter(|(id, kind)| self.due(id, *kind) <= now_ns) else {
            let all = others().chain(self.devices().map(|id| (id, Kind::Memory)));
            return Step::WaitUntil(all.map(|(id, kind)| self.due(id, kind)).min().unwrap_or(u64::MAX));
        };
        Step::Read(id.clone(), self.visit(id, kind, now_ns))
    }

    /// Whether a kind of figures of a device is lost if it is read late.
    fn is_urgent(&self, id: &Option<String>, kind: Kind) -> bool {
        match kind {
            Kind::Energy => true,
            // What the driver overwrites comes before other kinds, unless it is overwritten in any case.
            Kind::Utilization => self.scale >= 1.0 || self.is_kept_up(id),
            _ => false,
        }
    }

    /// Whether a device's utilization can be read so often that most of the driver's samples are seen.
    fn is_kept_up(&self, id: &Option<String>) -> bool {
        let kept_ns = id.as_ref().and_then(|id| self.sample_ns.get(id));
        kept_ns
            .is_none_or(|ns| self.interval_of(id, Kind::Utilization) <= ns.saturating_mul(PLAN.most_kept_up))
    }

    /// Gives the kinds of figures that one visit of a device reads: `first`, and what else is due, as far as that does not keep
    /// the lists waiting.
    fn visit(&self, id: &Option<String>, first: Kind, now_ns: u64) -> Vec<Kind> {
        let is_due = |other: &Kind| *other != first && self.due(id, *other) <= now_ns;
        let mut cost_ns = self.estimate_ns(first);
        let mut read = vec![first];
        for other in kinds(id.is_some()).iter().copied().filter(is_due) {
            cost_ns += self.estimate_ns(other);
            if cost_ns > PLAN.longest_visit_ns {
                break;
            }
            read.push(other);
        }
        read.sort_unstable();
        read
    }

    /// Gives when a kind of figures is due, CLOCK_MONOTONIC nanoseconds.
    fn due(&self, id: &Option<String>, kind: Kind) -> u64 {
        let due = self.due.get(id).and_then(|due| due.get(&kind)).copied();
        let since_ns = || self.since_ns.get(id).copied().unwrap_or(0);
        let first = || match kind {
            // Most processes are in the compute list, and memory that it does not show is looked into.
            Kind::AllLists if self.scale < 1.0 => since_ns().saturating_add(PLAN.repaid_within_ns),
            kind if kind.is_memory() => 0,
            _ => since_ns(),
        };
        due.unwrap_or_else(first)
    }

    /// Gives what to read next at the end of the run.
    pub(super) fn next_at_end(&mut self) -> Step {
        let mut last = self.last.take().unwrap_or_else(|| self.all_at_end());
        let next = last.pop_front();
        self.last = Some(last);
        next.map_or(Step::Over, |(id, kinds)| Step::Read(id, kinds))
    }

    /// Lists the readings at the end of the run, in their order.
    fn all_at_end(&self) -> VecDeque<(Option<String>, Vec<Kind>)> {
        // What was read longest ago comes first.
        let mut devices: Vec<_> = self.due.iter().filter(|(id, _)| id.is_some()).collect();
        devices.sort_by_key(|(_, due)| due.get(&Kind::Energy).copied());
        let visits = |kinds: &[Kind]| -> Vec<(Option<String>, Vec<Kind>)> {
            devices.iter().map(|(id, _)| ((*id).clone(), kinds.to_vec())).collect()
        };
        let events = vec![(None, vec![Kind::Events])];
        let is_undescribed = |(_, due): &&(&Option<String>, &Due)| !due.contains_key(&Kind::Details);
        let undescribed = devices.iter().filter(is_undescribed);
        let details: Vec<_> = undescribed.map(|(id, _)| ((*id).clone(), vec![Kind::Details])).collect();
        let mut all: Vec<Kind> = Kind::AT_END.concat();
        let cost_ns: u64 = all.iter().map(|kind| self.cost_ns(*kind)).sum::<u64>() * devices.len() as u64;
        // Where all of it is quick, each device is visited once. Else the most perishable kinds of all devices come
        // first.
        if cost_ns <= PLAN.longest_visit_ns {
            all.sort_unstable();
            return [details, events, visits(&all)].concat().into();
        }
        let [first, others @ ..] = Kind::AT_END;
        let others = others.into_iter().flat_map(visits).collect();
        [visits(first), events, details, others].concat().into()
    }

    /// Notes that a kind of figures was read outside the plan, at this time, and took `took_ns`.
    pub(super) fn was_read(&mut self, id: &Option<String>, kind: Kind, began_ns: u64, took_ns: u64) {
        self.costs.entry(kind).or_default().add(took_ns);
        self.set_due(id, kind, began_ns);
    }

    /// Notes that a kind of figures was read in a visit that began at this time, and took `took_ns`.
    pub(super) fn done(&mut self, id: &Option<String>, kind: Kind, began_ns: u64, took_ns: u64) {
        self.was_read(id, kind, began_ns, took_ns);
        self.spend(kind, began_ns, took_ns);
    }

    /// Pays for a reading, at most a few times what its kind usually costs.
    fn spend(&mut self, kind: Kind, began_ns: u64, took_ns: u64) {
        let most_ns = self.cost_ns(kind).saturating_mul(PLAN.most_usual_costs);
        self.budget.spend(began_ns.saturating_add(took_ns), took_ns.min(most_ns));
    }

    /// Whether a device's memory was never read.
    fn is_new(&self, id: &Option<String>) -> bool {
        self.due.get(id).is_some_and(|due| !due.contains_key(&Kind::Memory))
    }

    /// Notes a reading of memory in a visit that began at `began_ns`. `asked` is what was to be read. The call for
    /// memory in use took `used_took_ns`; with the lists it took `all_took_ns`. `None`: no list was read, since the memory in use
    /// had not changed.
    pub(super) fn done_memory(
        &mut self,
        id: &Option<String>,
        asked: Kind,
        began_ns: u64,
        (used_took_ns, all_took_ns): (u64, Option<u64>),
    ) {
        let is_new = self.is_new(id);
        self.costs.entry(Kind::Memory).or_default().add(used_took_ns);
        // Memory in use alone was read. It told that the lists are as they were.
        let Some(all_took_ns) = all_took_ns else {
            self.set_due(id, asked, began_ns);
            return self.spend(Kind::Memory, began_ns, used_took_ns);
        };
        // Lists were read, though memory alone may have been asked for: a change was possible.
        let read = asked.max(Kind::Lists);
        self.costs.entry(read).or_default().add(all_took_ns);
        self.set_due(id, read, began_ns);
        // A first look at a device could not wait for the budget.
        if is_new {
            self.owe(began_ns.saturating_add(all_took_ns), all_took_ns);
        } else {
            self.spend(read, began_ns, all_took_ns);
        }
        if asked == Kind::Memory {
            // Lists that change at each visit are paid by later visits.
            let [share, _] = self.memory_shares();
            let paid_ns = self.cost_ns(Kind::Lists) as f64 * self.devices_like(id) / share;
            self.put_due(id, Kind::Memory, began_ns, self.interval_ns.max(paid_ns as u64));
        }
    }

    /// Sets when a kind of figures is due again. It was read at this time, perhaps outside the plan; or it can't be read,
    /// since the device is gone.
    pub(super) fn set_due(&mut self, id: &Option<String>, kind: Kind, began_ns: u64) {
        self.put_due(id, kind, began_ns, self.interval_of(id, kind));
        // A reading of all lists is one of the lists that show the run, too, and any reading of lists is one of memory.
        match kind {
            Kind::AllLists => self.set_due(id, Kind::Lists, began_ns),
            Kind::Lists => self.set_due(id, Kind::Memory, began_ns),
            _ => {}
        }
    }

    /// Sets when a kind of figures is due again, with this interval.
    fn put_due(&mut self, id: &Option<String>, kind: Kind, began_ns: u64, interval_ns: u64) {
        if let Some(due) = self.due.get_mut(id) {
            // On the grid, unless it was read before its time or much too late.
            let before_ns = due.get(&kind).copied().filter(|due_ns| *due_ns <= began_ns);
            let on_grid_ns = before_ns.map(|due_ns| due_ns.saturating_add(interval_ns));
            let on_grid_ns = on_grid_ns.filter(|on_grid_ns| *on_grid_ns > began_ns);
            due.insert(kind, on_grid_ns.unwrap_or(began_ns.saturating_add(interval_ns)));
        }
    }

    /// Gives the usual cost of a kind, nanoseconds; 0: it was never read.
    fn cost_ns(&self, kind: Kind) -> u64 {
        self.costs.get(&kind).map_or(0, Costs::median_ns)
    }

    /// Gives the usual cost of a kind, nanoseconds. Until it was read once, that of memory in use stands in, which is a
    /// single call.
    fn estimate_ns(&self, kind: Kind) -> u64 {
        self.costs.get(&kind).map_or_else(|| self.cost_ns(Kind::Memory), Costs::median_ns)
    }

    /// Gives the shares for memory with the lists, and of that for memory in use alone.
    fn memory_shares(&self) -> [f64; 2] {
        let whole = [PLAN.memory_share, PLAN.in_use_share];
        // At the start memory alone comes first.
        let is_less = self.scale < 1.0 && self.budget.free_part() >= 1.0;
        let shares = if is_less { PLAN.shares_at_less } else { whole };
        shares.map(|share| share * self.scale())
    }

    /// Gives what the shares are multiplied by now.
    fn scale(&self) -> f64 {
        self.scale * self.budget.free_part()
    }

    /// Gives how many devices there would be, if all were read as often as this one. Hidden devices are read more rarely, by
    /// `PLAN.hidden_factor`. `None`: what is read of all devices at once counts as one.
    fn devices_like(&self, id: &Option<String>) -> f64 {
        if id.is_none() {
            return 1.0;
        }
        let hidden = self.hidden.len() as f64;
        let devices = (self.due.len() - 1) as f64 - hidden + hidden / PLAN.hidden_factor;
        let is_hidden = id.as_ref().is_some_and(|id| self.hidden.contains(id));
        if is_hidden { devices * PLAN.hidden_factor } else { devices }
    }

    /// Gives the time from one reading to the next that is asked for, nanoseconds.
    fn asked_of(&self, id: &Option<String>, kind: Kind) -> u64 {
        let known_ns = |times: &BTreeMap<String, u64>| id.as_ref().and_then(|id| times.get(id)).copied();
        match kind {
            Kind::Utilization => {
                self.interval_ns.min(known_ns(&self.sample_ns).unwrap_or(PLAN.shortest_sample_memory_ns))
            }
            Kind::Pcie => {
                // Where that can't be paid for, the figure is not known, however often it is read.
                let paid_ns = self.cost_ns(kind) as f64 * self.devices_like(id) / self.share(kind);
                let before_wrap_ns =
                    known_ns(&self.wrap_ns).filter(|ns| paid_ns * PLAN.wrap_part <= *ns as f64);
                // Before the counters can wrap, but not much more often than the interval asks for.
                let shortest_ns = (self.interval_ns as f64 / PLAN.wrap_factor) as u64;
                self.interval_ns.min(before_wrap_ns.unwrap_or(u64::MAX).max(shortest_ns))
            }
            _ => self.interval_ns,
        }
    }

    /// Gives the time from one reading to the next, nanoseconds: what is asked for, or longer if the budget does not pay for
    /// that.
    fn interval_of(&self, id: &Option<String>, kind: Kind) -> u64 {
        if matches!(kind, Kind::Ecc | Kind::Details) {
            return u64::MAX;
        }
        let (asked_ns, devices) = (self.asked_of(id, kind), self.devices_like(id));
        let cost_ns = self.cost_ns(kind) as f64;
        let [memory_share, in_use_share] = self.memory_shares();
        let paid_ns = match kind {
            Kind::Memory => cost_ns * devices / in_use_share,
            Kind::Lists => {
                // Memory in use comes first, as often as asked for. What it leaves of the share pays for the lists alone.
                let in_use_ns = self.cost_ns(Kind::Memory) as f64;
                let in_use_share = (in_use_ns * devices / asked_ns as f64).min(in_use_share);
                (cost_ns - in_use_ns).max(0.0) * devices / (memory_share - in_use_share)
            }
            _ => cost_ns * devices / self.share(kind),
        };
        // The first call of a kind may have been preempted: a few more tell what it costs.
        let is_known = self.costs.get(&kind).is_some_and(|costs| costs.0.len() > PLAN.costs_kept / 2);
        let first_ns = (asked_ns as f64 * PLAN.first_intervals / self.scale) as u64;
        let longest_ns = if is_known { u64::MAX } else { first_ns };
        asked_ns.max((paid_ns as u64).min(longest_ns))
    }

    /// Gives the share of the thread's time for a kind of figures.
    fn share(&self, kind: Kind) -> f64 {
        let of_kind = PLAN.shares.iter().find(|(other, _)| *other == kind);
        of_kind.map_or(1.0, |(_, share)| share * self.scale())
    }
}

/// Gives the kinds of figures of a device apart from memory, or those of all devices.
fn kinds(is_device: bool) -> &'static [Kind] {
    if is_device { &Kind::OTHERS } else { &[Kind::Events] }
}

#[cfg(test)]
mod tests;

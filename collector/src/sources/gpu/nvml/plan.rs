//! The reading plan: which figures of which device to read next. This file has no clock and calls no driver: it is given times
//! and costs.
//!
//! NVML's calls take from microseconds to milliseconds each, under one lock of the driver. So each kind of figures has a share of the
//! thread's time. A kind is read as often as its share pays for, at most as often as asked for. What is read of a device at one time
//! is a visit. Memory and the process lists come first: what they miss is lost, while counters and the driver's own samples can be
//! read later. Where the lists can't be read each time, the memory in use shows whether they have changed.

use crate::model::sorting::Sorting;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::budget::Budget;
use super::figure_kind::Kind;
use super::policy;

/// Number of calls of a reading of all lists: one for memory in use, and one for each of three lists.
const CALLS_OF_ALL_LISTS: u64 = 4;
/// Lists that are due soon are read with memory, not at the next visit. Soon is one part in this many of the interval of memory.
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

/// What the latest readings of a kind took, nanoseconds, oldest first.
#[derive(Debug, Clone, Default)]
struct Costs(VecDeque<u64>);

impl Costs {
    /// Adds what a reading took, nanoseconds. Beyond `policy::COSTS_KEPT`, the oldest is dropped.
    fn add(&mut self, took_ns: u64) {
        self.0.push_back(took_ns);
        if self.0.len() > policy::COSTS_KEPT {
            self.0.pop_front();
        }
    }

    /// The median, which a few preempted readings do not change.
    fn median_ns(&self) -> u64 {
        let mut sorted: Vec<u64> = self.0.iter().copied().collect();
        sorted.sort_unstable();
        sorted.get(sorted.len() / 2).copied().unwrap_or(0)
    }
}

/// When a device's figures are due, by kind, CLOCK_MONOTONIC nanoseconds.
type Due = BTreeMap<Kind, u64>;

/// The plan. In its maps and arguments, a device id of `None` stands for all devices at once.
#[derive(Debug, Default)]
pub(super) struct Plan {
    /// The time from one reading to the next that is asked for, nanoseconds.
    interval_ns: u64,
    /// What the shares of [`policy`] are multiplied by, at most 1: less if the driver may be kept busy for less.
    scale: f64,
    budget: Budget,
    costs: BTreeMap<Kind, Costs>,
    /// What the kinds cost of each device: one can be much slower than the others.
    own_costs: BTreeMap<Kind, BTreeMap<Option<String>, Costs>>,
    /// When the figures of each device are due. A kind that was not read yet is missing.
    due: BTreeMap<Option<String>, Due>,
    /// Since when each device is known, CLOCK_MONOTONIC nanoseconds. A kind that was not read yet is due since then.
    since_ns: BTreeMap<Option<String>, u64>,
    /// Devices that the command does not see, by its environment.
    hidden: BTreeSet<String>,
    /// Longest time between two readings of a device's utilization samples that loses none, nanoseconds.
    longest_for_samples_ns: BTreeMap<String, u64>,
    /// How far apart the driver's utilization samples of a device are, nanoseconds: to read them more often shows nothing new.
    sample_spacing_ns: BTreeMap<String, u64>,
    /// Longest time between two readings of a device's PCIe counters in which they surely do not wrap, nanoseconds.
    longest_before_wrap_ns: BTreeMap<String, u64>,
    /// Kinds that are not read of a device again, since it does not have them, or another kind stands for them.
    never: BTreeSet<(String, Kind)>,
    /// What is left to read at the end of the run. `None`: the end has not begun.
    left_at_end: Option<VecDeque<(Option<String>, Vec<Kind>)>>,
}

impl Plan {
    /// Makes a plan without devices. `interval_ns`: the time between readings that is asked for. `percent`: for how much of the
    /// time the driver may be kept busy.
    pub(super) fn new(interval_ns: u64, percent: u32) -> Self {
        Self {
            interval_ns,
            scale: (f64::from(percent) / 100.0 / policy::WHOLE_SHARE).min(1.0),
            budget: Budget::new(percent),
            ..Self::default()
        }
    }

    /// Notes a debt of the budget: the driver was asked something that could not wait, for `took_ns`, until `now_ns`
    /// (CLOCK_MONOTONIC).
    pub(super) fn owe(&mut self, now_ns: u64, took_ns: u64) {
        self.budget.owe(now_ns, took_ns);
    }

    /// Sets the devices to read from now on (`now_ns`, CLOCK_MONOTONIC), and those among them that the command does not see.
    pub(super) fn set_devices(&mut self, wanted: &[String], hidden: &BTreeSet<String>, now_ns: u64) {
        // `wanted` only grows. One entry of `due` is that of all devices at once.
        if self.due.len() == wanted.len() + 1 && self.hidden == *hidden {
            return;
        }
        for id in wanted.iter().cloned().map(Some).chain([None]) {
            self.since_ns.entry(id.clone()).or_insert(now_ns);
            self.due.entry(id).or_default();
        }
        self.hidden.clone_from(hidden);
    }

    /// Notes that the driver keeps a device's utilization samples for `kept_ns`. They are to be read twice in that time.
    pub(super) fn set_sample_memory(&mut self, device: &str, kept_ns: u64) {
        self.longest_for_samples_ns
            .insert(device.to_owned(), (kept_ns / 2).max(policy::SHORTEST_SAMPLE_MEMORY_NS));
    }

    /// Notes that the driver's utilization samples of a device are `spacing_ns` apart.
    pub(super) fn set_sample_spacing(&mut self, device: &str, spacing_ns: u64) {
        self.sample_spacing_ns.insert(device.to_owned(), spacing_ns);
    }

    /// Notes that a device's PCIe counters take at least `wrap_ns` to wrap.
    pub(super) fn set_wrap(&mut self, device: &str, wrap_ns: u64) {
        self.longest_before_wrap_ns.insert(device.to_owned(), (wrap_ns as f64 * policy::WRAP_PART) as u64);
    }

    /// Makes the plan read a kind of figures of a device no more.
    pub(super) fn set_never(&mut self, device: &str, kind: Kind) {
        self.never.insert((device.to_owned(), kind));
        if let Some(due) = self.due.get_mut(&Some(device.to_owned())) {
            due.insert(kind, u64::MAX);
        }
    }

    /// Whether a kind of figures of a device is read no more.
    fn is_never(&self, id: &Option<String>, kind: Kind) -> bool {
        // Only a device of which something is left out costs a search.
        !self.never.is_empty() && id.as_ref().is_some_and(|id| self.never.contains(&(id.clone(), kind)))
    }

    /// Makes the plan read all process lists of a device as soon as its lists are due.
    pub(super) fn want_all_lists(&mut self, device: &str) {
        if let Some(due) = self.due.get_mut(&Some(device.to_owned())) {
            // This marks the wish, since no reading sets the time 0.
            due.insert(Kind::AllLists, 0);
        }
    }

    /// Whether every kind of figures of every device was read at least once.
    pub(super) fn is_complete(&self) -> bool {
        self.due.iter().all(|(id, due)| kinds(id.is_some()).iter().all(|kind| due.contains_key(kind)))
    }

    /// What to do at `now_ns` (CLOCK_MONOTONIC). Memory and the process lists come before all other kinds.
    pub(super) fn next(&self, now_ns: u64) -> Step {
        let ready_ns = self.budget.ready_ns();
        // A first look at each device's memory and processes does not wait for the budget.
        if ready_ns > now_ns && !self.devices().any(|id| self.is_new(id)) {
            return Step::WaitUntil(ready_ns);
        }
        self.next_memory(now_ns).unwrap_or_else(|| self.next_other(now_ns))
    }

    /// The devices, without the `None` that stands for all devices at once.
    fn devices(&self) -> impl Iterator<Item = &Option<String>> {
        self.due.keys().filter(|id| id.is_some())
    }

    /// The reading of memory for the device where it is due first, with lists as far as those are due. `None`: no memory is
    /// due.
    fn next_memory(&self, now_ns: u64) -> Option<Step> {
        let first = self.devices().min_by_key(|id| self.due_ns(id, Kind::Memory))?;
        if self.due_ns(first, Kind::Memory) > now_ns {
            return None;
        }
        let soon_ns = now_ns.saturating_add(self.interval_ns_of(first, Kind::Memory) / SOON_PART);
        let kind = if self.are_all_lists_due(first, now_ns) {
            Kind::AllLists
        } else if self.due_ns(first, Kind::Lists) <= soon_ns {
            Kind::Lists
        } else {
            Kind::Memory
        };
        Some(Step::Read(first.clone(), vec![kind]))
    }

    /// Whether to read all process lists of a device with its memory. They are read if [`Self::want_all_lists`] was called for
    /// the device. Else they are read when they are due or were never read, but only where that is quick. The lists of other
    /// devices wait meanwhile.
    fn are_all_lists_due(&self, id: &Option<String>, now_ns: u64) -> bool {
        let due_ns = self.due.get(id).and_then(|due| due.get(&Kind::AllLists)).copied();
        let cost_ns = self.estimate_ns(Kind::AllLists).max(self.cost_ns(Kind::Memory) * CALLS_OF_ALL_LISTS);
        let is_cheap = cost_ns <= policy::LONGEST_VISIT_NS;
        due_ns == Some(0) || (is_cheap && due_ns.is_none_or(|due_ns| due_ns <= now_ns))
    }

    /// The next reading of figures other than memory and lists. If none is due: the time when the next figure of any kind is.
    fn next_other(&self, now_ns: u64) -> Step {
        // Utilization by process begins no visit: it is read in one that reads the utilization of the device.
        let can_begin = |id: &Option<String>| {
            kinds(id.is_some()).iter().copied().filter(|kind| *kind != Kind::ProcessUtilization)
        };
        let others = || self.due.keys().flat_map(|id| can_begin(id).map(move |kind| (id, kind)));
        // Figures that are due, and lost if they are read late, come first: to read all other kinds for the first time can take
        // seconds.
        let order = |id, kind| {
            let due_ns = self.due_ns(id, kind);
            let can_wait = due_ns > now_ns || !self.is_urgent(id, kind);
            (can_wait, due_ns, kind)
        };
        let next = others().min_by_key(|(id, kind)| order(id, *kind));
        let Some((id, kind)) = next.filter(|(id, kind)| self.due_ns(id, *kind) <= now_ns) else {
            let all = others().chain(self.devices().map(|id| (id, Kind::Memory)));
            return Step::WaitUntil(all.map(|(id, kind)| self.due_ns(id, kind)).min().unwrap_or(u64::MAX));
        };
        Step::Read(id.clone(), self.visit(id, kind, now_ns))
    }

    /// Whether a kind of figures of a device is lost if it is read late, or if others always come first.
    fn is_urgent(&self, id: &Option<String>, kind: Kind) -> bool {
        match kind {
            // The description is read once, and would wait for ever where the others take all the time.
            Kind::Energy | Kind::Details => true,
            // Samples that the driver overwrites are urgent, unless most are overwritten in any case.
            Kind::Utilization => self.scale >= 1.0 || self.is_kept_up(id),
            _ => false,
        }
    }

    /// Whether a device's utilization can be read so often that a good part of the driver's samples is seen.
    fn is_kept_up(&self, id: &Option<String>) -> bool {
        let Some(lossless_ns) = id.as_ref().and_then(|id| self.longest_for_samples_ns.get(id)) else {
            return true;
        };
        self.interval_ns_of(id, Kind::Utilization) <= lossless_ns.saturating_mul(policy::MAX_KEPT_UP)
    }

    /// The kinds of figures that one visit of a device reads: `first`, and others that are due, as long as the visit is
    /// short enough. The lists of other devices wait meanwhile.
    fn visit(&self, id: &Option<String>, first: Kind, now_ns: u64) -> Vec<Kind> {
        let is_due = |other: &Kind| *other != first && self.due_ns(id, *other) <= now_ns;
        // The utilization of processes covers the time of the device's samples, so it is read only right after them.
        let with_processes = is_due(&Kind::ProcessUtilization);
        let estimate_ns = |kind: Kind| match kind {
            Kind::Utilization if with_processes => {
                self.estimate_ns(kind) + self.estimate_ns(Kind::ProcessUtilization)
            }
            _ => self.estimate_ns(kind),
        };
        let mut cost_ns = estimate_ns(first);
        let mut read = vec![first];
        let others = kinds(id.is_some()).iter().copied().filter(|kind| *kind != Kind::ProcessUtilization);
        for other in others.filter(is_due) {
            cost_ns += estimate_ns(other);
            if cost_ns > policy::LONGEST_VISIT_NS {
                break;
            }
            read.push(other);
        }
        if with_processes && read.contains(&Kind::Utilization) {
            read.push(Kind::ProcessUtilization);
        }
        read.sort_unstable();
        read
    }

    /// When a kind of figures is due, CLOCK_MONOTONIC nanoseconds.
    fn due_ns(&self, id: &Option<String>, kind: Kind) -> u64 {
        if let Some(due_ns) = self.due.get(id).and_then(|due| due.get(&kind)) {
            return *due_ns;
        }
        let since_ns = self.since_ns.get(id).copied().unwrap_or(0);
        match kind {
            // Where little may be read, a first reading of all lists waits: most processes are in the compute list. If that does not
            // show all memory that came into use, the others are read at once.
            Kind::AllLists if self.scale < 1.0 => since_ns.saturating_add(policy::REPAID_WITHIN_NS),
            kind if kind.is_memory() => 0,
            _ => since_ns,
        }
    }

    /// What to read next at the end of the run.
    pub(super) fn next_at_end(&mut self) -> Step {
        let mut left = self.left_at_end.take().unwrap_or_else(|| self.all_at_end());
        let next = left.pop_front();
        self.left_at_end = Some(left);
        next.map_or(Step::Over, |(id, kinds)| Step::Read(id, kinds))
    }

    /// Lists the readings at the end of the run, in their order.
    fn all_at_end(&self) -> VecDeque<(Option<String>, Vec<Kind>)> {
        // The device whose energy was read longest ago comes first.
        let mut devices: Vec<_> = self.due.iter().filter(|(id, _)| id.is_some()).collect();
        devices.order_by_key(|(_, due)| due.get(&Kind::Energy).copied());
        let visits = |kinds: &[Kind]| -> Vec<(Option<String>, Vec<Kind>)> {
            let of_device = |id: &Option<String>| {
                kinds.iter().copied().filter(|kind| !self.is_never(id, *kind)).collect::<Vec<_>>()
            };
            devices.iter().map(|(id, _)| ((*id).clone(), of_device(id))).collect()
        };
        let events = vec![(None, vec![Kind::Events])];
        let is_undescribed = |(_, due): &&(&Option<String>, &Due)| !due.contains_key(&Kind::Details);
        let undescribed = devices.iter().filter(is_undescribed);
        let details: Vec<_> = undescribed.map(|(id, _)| ((*id).clone(), vec![Kind::Details])).collect();
        let mut all: Vec<Kind> = Kind::AT_END.concat();
        let cost_ns: u64 = all.iter().map(|kind| self.cost_ns(*kind)).sum::<u64>() * devices.len() as u64;
        // Where all of that is quick, each device is visited once. Else the kinds come in the order of `AT_END`, each for all
        // devices.
        if cost_ns <= policy::LONGEST_VISIT_NS {
            all.sort_unstable();
            return [details, events, visits(&all)].concat().into();
        }
        let [first, others @ ..] = Kind::AT_END;
        let others = others.into_iter().flat_map(visits).collect();
        [visits(first), events, details, others].concat().into()
    }

    /// Notes that a kind of figures was read at `began_ns` (CLOCK_MONOTONIC), and took `took_ns`. Does not charge it to the budget.
    pub(super) fn note_read(&mut self, id: &Option<String>, kind: Kind, began_ns: u64, took_ns: u64) {
        self.note_cost(id, kind, took_ns);
        self.set_due(id, kind, began_ns);
    }

    fn note_cost(&mut self, id: &Option<String>, kind: Kind, took_ns: u64) {
        self.costs.entry(kind).or_default().add(took_ns);
        let own = self.own_costs.entry(kind).or_default();
        match own.get_mut(id) {
            Some(costs) => costs.add(took_ns),
            None => own.entry(id.clone()).or_default().add(took_ns),
        }
    }

    /// Notes that a kind of figures was read in a visit that began at `began_ns` (CLOCK_MONOTONIC), and took `took_ns`.
    /// Charges it to the budget.
    pub(super) fn note_and_charge(&mut self, id: &Option<String>, kind: Kind, began_ns: u64, took_ns: u64) {
        self.note_read(id, kind, began_ns, took_ns);
        self.spend(id, kind, began_ns, took_ns);
    }

    /// Charges a reading to the budget, but at most [`policy::MAX_USUAL_COSTS`] times what its kind usually costs of this device, since a
    /// preempted one takes longer.
    fn spend(&mut self, id: &Option<String>, kind: Kind, began_ns: u64, took_ns: u64) {
        let own = self.own_costs.get(&kind).and_then(|own| own.get(id));
        let usual_ns = own.map_or(0, Costs::median_ns);
        let most_ns = usual_ns.saturating_mul(policy::MAX_USUAL_COSTS);
        // One of the first readings can have hung.
        let lasting_ns = own.filter(|own| own.0.len() >= policy::LEAST_COSTS).map_or(0, Costs::median_ns);
        self.budget.spend(began_ns.saturating_add(took_ns), took_ns.min(most_ns), lasting_ns);
    }

    /// Whether a device's memory was never read.
    fn is_new(&self, id: &Option<String>) -> bool {
        self.due.get(id).is_some_and(|due| !due.contains_key(&Kind::Memory))
    }

    /// Notes a reading of memory in a visit that began at `began_ns` (CLOCK_MONOTONIC), and charges it to the budget. `asked` is
    /// the kind that was to be read. The call for memory in use took `used_took_ns`. The lists and that call together took
    /// `all_took_ns`. `None`: no list was read, because they are as they were, or the device is lost or divided.
    pub(super) fn note_and_charge_memory(
        &mut self,
        id: &Option<String>,
        asked: Kind,
        began_ns: u64,
        used_took_ns: u64,
        all_took_ns: Option<u64>,
    ) {
        let is_new = self.is_new(id);
        self.note_cost(id, Kind::Memory, used_took_ns);
        // Only memory in use was read. No list had to be.
        let Some(all_took_ns) = all_took_ns else {
            self.set_due(id, asked, began_ns);
            return self.spend(id, Kind::Memory, began_ns, used_took_ns);
        };
        // Lists were read, perhaps though only memory was asked for, since they may have changed.
        let read = if asked == Kind::AllLists { Kind::AllLists } else { Kind::Lists };
        self.note_cost(id, read, all_took_ns);
        self.set_due(id, read, began_ns);
        // A first look at a device could not wait for the budget.
        if is_new {
            self.owe(began_ns.saturating_add(all_took_ns), all_took_ns);
        } else {
            self.spend(id, read, began_ns, all_took_ns);
        }
        if asked == Kind::Memory {
            // The lists were not planned. If they change at each visit, the visits must be so rare that the share pays for them.
            let [share, _] = self.memory_shares();
            let paid_ns = self.cost_ns(Kind::Lists) as f64 * self.devices_like(id) / share;
            self.set_due_after(id, Kind::Memory, began_ns, self.interval_ns.max(paid_ns as u64));
        }
    }

    /// Sets when a kind of figures is due again, after a reading at `began_ns` (CLOCK_MONOTONIC). An attempt on a device that is gone
    /// counts as a reading.
    pub(super) fn set_due(&mut self, id: &Option<String>, kind: Kind, began_ns: u64) {
        let interval_ns = self.interval_ns_of(id, kind).max(self.longest_loss_ns(id, kind, began_ns));
        self.set_due_after(id, kind, began_ns, interval_ns);
        // A reading of all lists includes the lists that show the run, and any reading of lists includes memory.
        match kind {
            Kind::AllLists => self.set_due(id, Kind::Lists, began_ns),
            Kind::Lists => self.set_due(id, Kind::Memory, began_ns),
            _ => {}
        }
    }

    /// How much time a counter may lose if its last reading fails, nanoseconds. It is a part of the time until `at_ns`
    /// (CLOCK_MONOTONIC) in which the device was known. Between two readings a counter loses nothing, so it is read no more often
    /// than that. 0 for other kinds.
    fn longest_loss_ns(&self, id: &Option<String>, kind: Kind, at_ns: u64) -> u64 {
        if kind != Kind::Energy {
            return 0;
        }
        let known_ns = self.since_ns.get(id).map_or(0, |since_ns| at_ns.saturating_sub(*since_ns));
        (known_ns / policy::LOST_PART).min(policy::LONGEST_LOSS_NS)
    }

    /// Sets when a kind of figures is due again: `interval_ns` after it was due before, or after `began_ns`.
    fn set_due_after(&mut self, id: &Option<String>, kind: Kind, began_ns: u64, interval_ns: u64) {
        if let Some(due) = self.due.get_mut(id) {
            // Readings stay on a grid of intervals, unless this one came before its time or much too late.
            let was_due_ns = due.get(&kind).copied().filter(|due_ns| *due_ns <= began_ns);
            let on_grid_ns = was_due_ns.map(|due_ns| due_ns.saturating_add(interval_ns));
            let on_grid_ns = on_grid_ns.filter(|on_grid_ns| *on_grid_ns > began_ns);
            due.insert(kind, on_grid_ns.unwrap_or(began_ns.saturating_add(interval_ns)));
        }
    }

    /// The usual cost of a kind, nanoseconds; 0: it was never read.
    fn cost_ns(&self, kind: Kind) -> u64 {
        self.costs.get(&kind).map_or(0, Costs::median_ns)
    }

    /// The usual cost of a kind, nanoseconds. If the kind was never read, the cost of memory in use, a single call, is taken for it.
    fn estimate_ns(&self, kind: Kind) -> u64 {
        self.costs.get(&kind).map_or_else(|| self.cost_ns(Kind::Memory), Costs::median_ns)
    }

    /// The shares of the thread's time for memory with the lists, and for memory in use alone, which is a part of that.
    fn memory_shares(&self) -> [f64; 2] {
        let whole = [policy::MEMORY_SHARE, policy::IN_USE_SHARE];
        // While the budget pays back a large debt, as at the start, the lists keep their larger share.
        let is_less = self.scale < 1.0 && self.budget.free_part() >= policy::FREE_PART_AT_REST;
        let shares = if is_less { policy::SHARES_AT_LESS } else { whole };
        shares.map(|share| share * self.scale_now())
    }

    /// What the shares are multiplied by now: less than `scale` while the budget pays back a debt.
    fn scale_now(&self) -> f64 {
        self.scale * self.budget.free_part()
    }

    /// How many devices there would be, if all were read as often as this one. Hidden devices are read more rarely, by
    /// `policy::HIDDEN_FACTOR`. All devices at once (`None`) count as one.
    fn devices_like(&self, id: &Option<String>) -> f64 {
        if id.is_none() {
            return 1.0;
        }
        let hidden = self.hidden.len() as f64;
        let devices = (self.due.len() - 1) as f64 - hidden + hidden / policy::HIDDEN_FACTOR;
        let is_hidden = id.as_ref().is_some_and(|id| self.hidden.contains(id));
        if is_hidden { devices * policy::HIDDEN_FACTOR } else { devices }
    }

    /// The time from one reading of a kind to the next that is wanted, whatever it costs, nanoseconds.
    fn wanted_interval_ns(&self, id: &Option<String>, kind: Kind) -> u64 {
        let known_ns = |times: &BTreeMap<String, u64>| id.as_ref().and_then(|id| times.get(id)).copied();
        let new_sample_ns = || self.interval_ns.max(known_ns(&self.sample_spacing_ns).unwrap_or(0));
        match kind {
            Kind::Utilization | Kind::ProcessUtilization => new_sample_ns()
                .min(known_ns(&self.longest_for_samples_ns).unwrap_or(policy::SHORTEST_SAMPLE_MEMORY_NS)),
            Kind::Pcie => {
                // If readings before each wrap can't be paid for, the figure is not known, however often it is read.
                let paid_ns = self.cost_ns(kind) as f64 * self.devices_like(id) / self.share(kind);
                // `longest_before_wrap_ns` is only the part [`policy::WRAP_PART`] of the time to a wrap.
                let before_wrap_ns = known_ns(&self.longest_before_wrap_ns)
                    .filter(|ns| paid_ns * policy::WRAP_PART <= *ns as f64);
                // Read before the counters can wrap, but not much more often than the interval asks for.
                let shortest_ns = (self.interval_ns as f64 / policy::WRAP_FACTOR) as u64;
                self.interval_ns.min(before_wrap_ns.unwrap_or(u64::MAX).max(shortest_ns))
            }
            Kind::Gpm => self.interval_ns.max(policy::GPM_WANTED_NS),
            _ => self.interval_ns,
        }
    }

    /// The time from one reading of a kind to the next, nanoseconds. It is longer than the wanted one if the share of the
    /// kind does not pay for that.
    fn interval_ns_of(&self, id: &Option<String>, kind: Kind) -> u64 {
        if matches!(kind, Kind::Ecc | Kind::Details) || self.is_never(id, kind) {
            return u64::MAX;
        }
        let (wanted_ns, devices) = (self.wanted_interval_ns(id, kind), self.devices_like(id));
        let cost_ns = self.cost_ns(kind) as f64;
        let [memory_share, in_use_share] = self.memory_shares();
        let paid_ns = match kind {
            Kind::Memory => cost_ns * devices / in_use_share,
            Kind::Lists => {
                // Memory in use comes first, as often as wanted. What it leaves of the share pays for the lists alone.
                let in_use_ns = self.cost_ns(Kind::Memory) as f64;
                let in_use_share = (in_use_ns * devices / wanted_ns as f64).min(in_use_share);
                (cost_ns - in_use_ns).max(0.0) * devices / (memory_share - in_use_share)
            }
            _ => cost_ns * devices / self.share(kind),
        };
        // The first reading of a kind may have been preempted, so a few more must show what it costs.
        let is_known = self.costs.get(&kind).is_some_and(|costs| costs.0.len() > policy::COSTS_KEPT / 2);
        let first_ns = (wanted_ns as f64 * policy::FIRST_INTERVALS / self.scale) as u64;
        let longest_ns = if is_known { u64::MAX } else { first_ns };
        wanted_ns.max((paid_ns as u64).min(longest_ns))
    }

    /// The share of the thread's time for a kind of figures apart from memory. A kind without a share is not limited by
    /// one.
    fn share(&self, kind: Kind) -> f64 {
        let of_kind = policy::SHARES.iter().find(|(other, _)| *other == kind);
        of_kind.map_or(1.0, |(_, share)| share * self.scale_now())
    }
}

/// The kinds of figures of a device apart from memory, or those that are read of all devices at once.
fn kinds(is_device: bool) -> &'static [Kind] {
    if is_device { &Kind::OTHERS } else { &[Kind::Events] }
}

#[cfg(test)]
mod tests;

//! What processes use of the devices, from one reading of the DRM clients to the next.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::fdinfo::{Client, Engine};
use crate::model::gpu::{Busy, Missing, ProcessBusy, Reading, either};

/// What names a client: the device's PCI address, and the client's number there.
pub(super) type ClientKey = (String, u64);

/// The clients of one reading, each with the processes that have it open, smallest pid first.
pub(super) type Clients = BTreeMap<ClientKey, (Vec<u32>, Client)>;

/// Memory and utilisation of the processes on one device.
#[derive(Debug, Default)]
pub(super) struct DeviceClients {
    /// Memory by pid, bytes.
    pub bytes: BTreeMap<u32, Reading<u64>>,
    /// Busy time since the previous reading, as a multiple of [`ClientUsage::unit_ns`], by pid and engine.
    engines: BTreeMap<u32, BTreeMap<String, f64>>,
}

/// The clients at the last reading.
#[derive(Debug, Default)]
pub(super) struct ClientUsage {
    /// The process in which a client was first seen: a descriptor that is inherited or passed on does not change it.
    owners: HashMap<ClientKey, u32>,
    /// The engines of each client. Counters catch up in jumps and can go back a little, so the largest value is kept.
    before: HashMap<ClientKey, BTreeMap<String, Engine>>,
    /// Cycles of an engine in a nanosecond, by the device's PCI address and the engine.
    rates: HashMap<(String, String), f64>,
    /// The processes that were read.
    seen: HashSet<u32>,
    /// Processes with a client whose use between the last two readings is not known.
    unknown: HashSet<u32>,
    /// When the last reading was, CLOCK_MONOTONIC nanoseconds.
    at_ns: Option<u64>,
    /// Time between the last two readings, nanoseconds.
    span_ns: Option<u64>,
}

impl ClientUsage {
    /// Takes in the clients of a reading at `at_ns` (CLOCK_MONOTONIC nanoseconds). Returns, by the id of the device, their memory now
    /// and the busy time of their engines since the previous reading. Each client counts to one process, its owner. Owners of an
    /// engine whose busy time can't be told go to `unknown`. `device_of` finds the id of a client's device.
    pub(super) fn take_in(
        &mut self,
        at_ns: u64,
        clients: Clients,
        device_of: impl Fn(&Client) -> String,
    ) -> HashMap<String, DeviceClients> {
        let span_ns = self.at_ns.replace(at_ns).map(|before| at_ns.saturating_sub(before));
        self.span_ns = span_ns.filter(|ns| *ns > 0);
        self.owners.retain(|key, _| clients.contains_key(key));
        self.before.retain(|key, _| clients.contains_key(key));
        self.unknown.clear();
        // Cycles per nanosecond of each engine, from clients that the last reading had. A new client has no earlier count, and
        // takes these rates, so they are noted before any client is counted.
        for (key, (_, client)) in &clients {
            self.note_rates(key, client);
        }
        let mut devices: HashMap<String, DeviceClients> = HashMap::new();
        for (key, (holders, client)) in clients {
            let owner = self.owner(&key, &holders);
            let used = devices.entry(device_of(&client)).or_default();
            used.add_bytes(owner, client.device_bytes.ok_or(Missing::NotSupported));
            let of_owner = used.engines.entry(owner).or_default();
            for (name, engine) in client.engines {
                let last = self.before.get(&key).and_then(|engines| engines.get(&name)).copied();
                match self.busy(&key.0, &name, engine, last, owner) {
                    Some(busy) => *of_owner.entry(name.clone()).or_default() += busy,
                    None => {
                        self.unknown.insert(owner);
                    }
                }
                // A counter can go back a little. The largest value is kept, or the way up again would count twice.
                let largest = Engine { busy: last.map_or(0, |last| last.busy).max(engine.busy), ..engine };
                self.before.entry(key.clone()).or_default().insert(name, largest);
            }
        }
        devices
    }

    /// The process to which a client's use counts: the one in which it was first seen. If that has closed the client, the
    /// first of the `holders` takes its place.
    fn owner(&mut self, key: &ClientKey, holders: &[u32]) -> u32 {
        let first = holders.first().copied().unwrap_or_default();
        let owner = self.owners.entry(key.clone()).or_insert(first);
        if !holders.contains(owner) {
            *owner = first;
        }
        *owner
    }

    /// The utilisation of a device by process, from what [`Self::take_in`] returned for it: that of the process's busiest engine. A
    /// process that was not read before has the busy time since its start. A process whose use is not known is left out.
    pub(super) fn by_process(&self, used: &DeviceClients) -> Vec<ProcessBusy> {
        let known = used.engines.iter().filter(|(pid, _)| !self.unknown.contains(pid));
        let of_process = |(pid, engines): (&u32, &BTreeMap<String, f64>)| {
            // Busy time as a part of the time since the previous reading.
            let busiest_share = engines.values().copied().fold(0.0, f64::max);
            let is_from_start = !self.seen.contains(pid);
            let busy = if is_from_start {
                // How long the process has lived is not known here, so its busy time is given as one stretch that is busy throughout.
                Busy { us: (busiest_share * self.unit_ns() / 1000.0) as u64, percent: 100.0 }
            } else {
                Busy { us: self.span_ns.unwrap_or(0) / 1000, percent: busiest_share * 100.0 }
            };
            ProcessBusy { pid: *pid, busy, is_from_start }
        };
        known.map(of_process).collect()
    }

    /// Notes that these processes were read; to be called after [`Self::by_process`].
    pub(super) fn note_read(&mut self, pids: &[u32]) {
        self.seen = pids.iter().copied().collect();
    }

    /// The unit in which busy time is counted, nanoseconds: the time since the previous reading. At the first reading, there is no such
    /// time. The unit is 1 then, so busy time is counted in nanoseconds.
    fn unit_ns(&self) -> f64 {
        self.span_ns.unwrap_or(1) as f64
    }

    /// Notes how fast the cycles of engines pass, if the previous reading had the client.
    fn note_rates(&mut self, key: &ClientKey, client: &Client) {
        let (Some(span_ns), Some(before)) = (self.span_ns, self.before.get(key)) else { return };
        for (name, engine) in &client.engines {
            let last = before.get(name).and_then(|last| last.total_cycles);
            if let (Some(now), Some(last)) = (engine.total_cycles, last)
                && now > last
            {
                let rate = (now - last) as f64 / span_ns as f64;
                self.rates.insert((key.0.clone(), name.clone()), rate);
            }
        }
    }

    /// The busy time of a client's engine since the previous reading, as a part of the time since then. `now` is what the engine
    /// counts now, `last` what it counted at the previous reading. An engine without a `last` counts from 0.
    ///
    /// `None`: the use is not known. The client was there before its `owner` got it, or it counts cycles whose rate is not known.
    fn busy(&self, pdev: &str, name: &str, now: Engine, last: Option<Engine>, owner: u32) -> Option<f64> {
        let busy = now.busy.saturating_sub(last.map_or(0, |last| last.busy)) as f64;
        // How much the engine could have been busy since the previous reading: nanoseconds, or cycles where it counts those.
        let possible = match (now.total_cycles, last) {
            (None, _) => self.unit_ns(),
            (Some(now), Some(Engine { total_cycles: Some(last), .. })) => now.saturating_sub(last) as f64,
            _ => self.rates.get(&(pdev.to_owned(), name.to_owned()))? * self.unit_ns(),
        };
        let share = if possible > 0.0 { busy / possible / now.capacity as f64 } else { 0.0 };
        // The owner was read before, without this client. If the client was busier than is possible since then, it is older:
        // another process has passed it on.
        let is_older = last.is_none() && self.seen.contains(&owner) && share > MAX_SHARE_OF_NEW;
        (!is_older).then_some(share)
    }
}

/// The largest share of the time since the previous reading for which a new client can have been busy. It is above 1, since a client
/// is read a little later than the time by which its reading is dated.
const MAX_SHARE_OF_NEW: f64 = 1.5;

impl DeviceClients {
    /// Adds these bytes to the memory of a process.
    fn add_bytes(&mut self, pid: u32, bytes: Reading<u64>) {
        // The sum starts with 0, or with the reason if the first memory is not known. A client's known memory replaces such a reason
        // (`either`), and an unknown one adds nothing.
        let held = self.bytes.entry(pid).or_insert_with(|| bytes.clone().map(|_| 0));
        *held = either(held.clone(), bytes, u64::saturating_add);
    }
}

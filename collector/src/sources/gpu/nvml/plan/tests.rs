//! The plan, followed with calls of known costs.

use super::*;

const MS: u64 = 1_000_000;

/// Follows the plan for this long, with calls that cost this. Gives when each kind of each device was read.
fn follow(
    plan: &mut Plan,
    for_ns: u64,
    cost_ns: impl Fn(Kind) -> u64,
) -> BTreeMap<(Option<String>, Kind), Vec<u64>> {
    follow_each(plan, for_ns, |_, kind| cost_ns(kind))
}

/// Follows the plan as [`follow`] does. The costs are those of each device.
fn follow_each(
    plan: &mut Plan,
    for_ns: u64,
    cost_of: impl Fn(&Option<String>, Kind) -> u64,
) -> BTreeMap<(Option<String>, Kind), Vec<u64>> {
    let mut read: BTreeMap<_, Vec<u64>> = BTreeMap::new();
    let mut now_ns = 1_000 * MS;
    let end_ns = now_ns + for_ns;
    while now_ns < end_ns {
        match plan.next(now_ns) {
            Step::Read(id, kinds) => {
                let began_ns = now_ns;
                let cost_ns = |kind| cost_of(&id, kind);
                for kind in kinds {
                    now_ns += cost_ns(kind);
                    if kind.is_memory() {
                        let lists_ns = Some(cost_ns(kind)).filter(|_| kind != Kind::Memory);
                        plan.note_and_charge_memory(&id, kind, began_ns, cost_ns(Kind::Memory), lists_ns);
                    } else {
                        plan.note_and_charge(&id, kind, began_ns, cost_ns(kind));
                    }
                    for also in [Kind::Memory, Kind::Lists]
                        .into_iter()
                        .filter(|also| *also < kind && kind.is_memory())
                    {
                        read.entry((id.clone(), also)).or_default().push(now_ns);
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

/// A plan of devices without performance counters.
fn plan(devices: u32) -> Plan {
    plan_without(devices, Kind::Gpm)
}

/// A plan of devices that lack this kind of figures.
fn plan_without(devices: u32, kind: Kind) -> Plan {
    let mut plan = Plan::new(100 * MS, 75);
    let ids: Vec<String> = (0..devices).map(|n| format!("GPU-{n}")).collect();
    plan.set_devices(&ids, &BTreeSet::new(), 0);
    ids.iter().for_each(|id| plan.set_never(id, kind));
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

// Requirement: GPU-21
#[test]
fn memory_in_use_of_eight_devices_is_read_every_150_ms_if_all_calls_are_slow() {
    for (devices, memory_ms, lists_ms, others_ms) in [(8, 150, 450, 1000), (16, 270, 750, 1900)] {
        let mut plan = plan(devices);
        let cost_ns = |kind| match kind {
            Kind::Lists | Kind::Power | Kind::Ecc => 9_200_000,
            Kind::AllLists => 18_400_000,
            Kind::Gauges => 23_000_000,
            _ => 4_600_000,
        };
        let read = follow(&mut plan, 20_000 * MS, cost_ns);
        for ((id, kind), times) in &read {
            let most_ms = match kind {
                Kind::Memory => memory_ms,
                Kind::Lists => lists_ms,
                Kind::Utilization | Kind::Energy => others_ms,
                _ => continue,
            };
            let longest_ms = longest(times) / MS;
            assert!(longest_ms <= most_ms, "{devices}, {id:?}, {kind:?}: {longest_ms} ms");
        }
    }
}

// Requirement: GPU-21
#[test]
fn one_slow_device_pays_for_itself_and_the_others_are_read() {
    let mut plan = Plan::new(100 * MS, 25);
    let ids: Vec<String> = (0..8).map(|n| format!("GPU-{n}")).collect();
    plan.set_devices(&ids, &BTreeSet::new(), 0);
    let is_slow = |id: &Option<String>| id.as_deref() == Some("GPU-5");
    let cost_of = |id: &Option<String>, kind: Kind| {
        if is_slow(id) && kind.is_memory() { 300 * MS } else { 50_000 }
    };
    let read = follow_each(&mut plan, 20_000 * MS, cost_of);
    // Each reading of lists is one of memory, too.
    let all = read.iter().filter(|((_, kind), _)| !matches!(kind, Kind::Lists | Kind::AllLists));
    let busy_ns: u64 = all.map(|((id, kind), times)| cost_of(id, *kind) * times.len() as u64).sum();
    assert!(busy_ns < 20_000 * MS * 30 / 100, "busy for {} ms", busy_ns / MS);
    for ((id, kind), times) in read.iter().filter(|((id, _), _)| id.is_some()) {
        let is_of_run = matches!(kind, Kind::Utilization | Kind::Energy | Kind::Power);
        assert!(!is_of_run || times.len() >= 5, "{id:?} {kind:?}: {}", times.len());
    }
}

#[test]
fn cheap_figures_are_read_as_often_as_asked_for_and_together() {
    let mut plan = plan(1);
    let read = follow(&mut plan, 10_000 * MS, |_| 50_000);
    let id = Some("GPU-0".to_owned());
    for kind in [Kind::AllLists, Kind::Lists, Kind::Utilization, Kind::Power, Kind::Gauges, Kind::Pcie] {
        assert_eq!(read[&(id.clone(), kind)].len(), 100, "{kind:?}");
    }
    assert_eq!(read[&(id, Kind::Ecc)].len(), 1);
}

#[test]
fn thread_is_never_busy_for_more_than_the_sum_of_the_shares() {
    let mut plan = plan(16);
    let read = follow(&mut plan, 200_000 * MS, |_| 20 * MS);
    // Each reading of lists is one of memory, too.
    let busy: usize = read
        .iter()
        .filter(|((_, kind), _)| !matches!(kind, Kind::Lists | Kind::AllLists))
        .map(|(_, times)| times.len())
        .sum();
    // A device has performance counters in place of those of PCIe, or none.
    let others = policy::SHARES.iter().filter(|(kind, _)| *kind != Kind::Gpm);
    let shares: f64 = policy::MEMORY_SHARE + others.map(|(_, share)| share).sum::<f64>();
    assert!(shares < 0.76, "{shares}");
    assert!((busy as f64) < 10_000.0 * shares * 1.1, "{busy}");
    assert!(read.len() > 16 * 7);
    assert!(read.keys().all(|(_, kind)| *kind != Kind::Gpm), "what a device lacks is not read");
}

// Requirement: GPU-82
#[test]
fn performance_counters_take_the_time_of_those_of_pcie() {
    let time = |lacking: Kind| {
        let read = follow(&mut plan_without(8, lacking), 60_000 * MS, |_| 5 * MS);
        let of = |kind| {
            read.iter().filter(|((_, other), _)| *other == kind).map(|(_, times)| times.len()).sum::<usize>()
        };
        (of(Kind::Memory), of(Kind::Gpm) + of(Kind::Pcie))
    };
    let ((memory, pcie), (memory_beside, counters)) = (time(Kind::Gpm), time(Kind::Pcie));
    assert!(memory_beside.abs_diff(memory) <= memory / 20, "{memory} {memory_beside}");
    assert!(counters > 8 && counters <= pcie * 11 / 10, "{pcie} {counters}");
}

// Requirement: GPU-26
#[test]
fn counters_that_wrap_are_read_more_often_than_asked_for() {
    let id = Some("GPU-0".to_owned());
    let longest_ms = |cost_ns| {
        let mut plan = plan(1);
        plan.set_wrap("GPU-0", 68 * MS);
        longest(&follow(&mut plan, 10_000 * MS, |_| cost_ns)[&(id.clone(), Kind::Pcie)]) / MS
    };
    assert!(longest_ms(50_000) < 40);
    // Not with calls that cost too much.
    assert!(longest_ms(5 * MS) > 200);
}

#[test]
fn rings_of_samples_are_read_before_they_are_overwritten() {
    let mut plan = Plan::new(30_000 * MS, 75);
    plan.set_devices(&["GPU-0".into()], &BTreeSet::new(), 0);
    plan.set_sample_memory("GPU-0", 2_000 * MS);
    let read = follow(&mut plan, 100_000 * MS, |_| 50_000);
    assert!(longest(&read[&(Some("GPU-0".into()), Kind::Utilization)]) <= 1_010 * MS);
    assert!(read[&(Some("GPU-0".into()), Kind::Power)].len() < 5);
}

#[test]
fn figures_that_are_not_new_are_not_read() {
    let mut plan = plan(1);
    plan.set_sample_spacing("GPU-0", 400 * MS);
    plan.set_sample_memory("GPU-0", 14_000 * MS);
    let read = follow(&mut plan, 60_000 * MS, |_| 50_000);
    let times = |kind| &read[&(Some("GPU-0".to_owned()), kind)];
    for kind in [Kind::Utilization, Kind::ProcessUtilization] {
        // The first reading does not know the spacing.
        assert!(times(kind).len().abs_diff(60_000 / 400) <= 2, "{kind:?}: {}", times(kind).len());
    }
    // The counter of energy: each twentieth of the time, up to half a second.
    let energy = times(Kind::Energy);
    assert!(
        energy.windows(2).all(|pair| pair[1] - pair[0] <= (pair[0] / 20).clamp(100 * MS, 500 * MS) + 10 * MS)
    );
    assert!(energy.len() < 160, "{}", energy.len());
}

#[test]
fn devices_that_the_command_does_not_see_are_seldom_read_if_calls_are_slow() {
    for (cost_ns, visible, hidden) in [(50_000, 100, 100), (100 * MS, 15, 5)] {
        let mut plan = plan(8);
        let all: Vec<String> = (0..8).map(|n| format!("GPU-{n}")).collect();
        plan.set_devices(&all, &all[1..].iter().cloned().collect(), 0);
        let read = follow(&mut plan, 10_000 * MS, |kind| {
            if matches!(kind, Kind::Lists | Kind::AllLists) { cost_ns } else { 50_000 }
        });
        let count = |id: &str| read[&(Some(id.to_owned()), Kind::Lists)].len();
        assert!(count("GPU-0").abs_diff(visible) <= 2, "{}", count("GPU-0"));
        assert!(count("GPU-7").abs_diff(hidden) <= 2, "{}", count("GPU-7"));
    }
}

#[test]
fn each_device_is_described_soon_however_slow_the_calls_are() {
    for (devices, call_ns, soon_ns) in [(1, 50 * MS, 2_000 * MS), (8, 5 * MS, 5_000 * MS)] {
        let mut plan = Plan::new(100 * MS, 20);
        let ids: Vec<String> = (0..devices).map(|n| format!("GPU-{n}")).collect();
        plan.set_devices(&ids, &BTreeSet::new(), 0);
        let read = follow(&mut plan, soon_ns, |kind| if kind == Kind::Details { 4 } else { 1 } * call_ns);
        let is_described = |id: &String| read.contains_key(&(Some(id.clone()), Kind::Details));
        assert!(ids.iter().all(is_described), "{devices} devices");
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
    assert_eq!(visits[1].1.len(), 9);
    assert_eq!(plan.next_at_end(), Step::Over);
    // With calls of 5 ms, the energy of all devices comes first.
    let mut plan = self::plan(2);
    follow(&mut plan, 1_000 * MS, |_| 5 * MS);
    for _ in 0..2 {
        assert!(matches!(plan.next_at_end(), Step::Read(_, kinds) if kinds == [Kind::Energy]));
    }
}

/// For how long calls of this cost keep the driver busy in the first five seconds, with what finding 16 devices takes.
fn busy_in_five_seconds(percent: u32, cost_ns: u64) -> (f64, Plan) {
    let mut plan = Plan::new(100 * MS, percent);
    let ids: Vec<String> = (0..16).map(|n| format!("GPU-{n}")).collect();
    let found_ns = cost_ns * 16 * 4;
    plan.owe(1_000 * MS, 0);
    plan.owe(1_000 * MS + found_ns, found_ns);
    plan.set_devices(&ids, &BTreeSet::new(), 1_000 * MS);
    let calls = |kind| if kind == Kind::Lists { 2 } else { 1 } * cost_ns;
    let mut busy_ns = found_ns;
    let mut now_ns = 1_000 * MS + found_ns;
    while now_ns < 6_000 * MS {
        match plan.next(now_ns) {
            Step::Read(id, kinds) => {
                for kind in kinds {
                    let (began_ns, took_ns) = (now_ns, calls(kind));
                    now_ns += took_ns;
                    busy_ns += took_ns;
                    if kind.is_memory() {
                        let lists_ns = Some(took_ns).filter(|_| kind != Kind::Memory);
                        plan.note_and_charge_memory(&id, kind, began_ns, cost_ns, lists_ns);
                    } else {
                        plan.note_and_charge(&id, kind, began_ns, took_ns);
                    }
                }
            }
            Step::WaitUntil(at_ns) => now_ns = at_ns,
            Step::Over => unreachable!(),
        }
    }
    (busy_ns as f64 / 5e9, plan)
}

// Requirement: GPU-29
#[test]
fn driver_is_busy_for_its_share_of_the_first_seconds_too() {
    for (percent, least, most) in [(25, 0.22, 0.251), (75, 0.60, 0.751)] {
        let (share, plan) = busy_in_five_seconds(percent, 4_500_000);
        assert!((least..=most).contains(&share), "{percent}%: {share}");
        let memory = plan.due.values().filter(|due| due.contains_key(&Kind::Memory)).count();
        assert_eq!(memory, 16);
    }
}

// Requirement: GPU-21
#[test]
fn memory_is_read_as_asked_for_where_a_quarter_of_the_time_allows_it() {
    let mut plan = Plan::new(100 * MS, 25);
    let ids: Vec<String> = (0..8).map(|n| format!("GPU-{n}")).collect();
    plan.set_devices(&ids, &BTreeSet::new(), 0);
    ids.iter().for_each(|id| plan.set_never(id, Kind::Gpm));
    let read = follow(&mut plan, 20_000 * MS, |kind| if kind == Kind::Lists { 2 * MS } else { MS });
    let longest_ms = longest(&read[&(Some("GPU-3".to_owned()), Kind::Memory)]) / MS;
    assert!(longest_ms <= 130, "{longest_ms}");
}

/// To list the devices again and again is a small debt. It does not give the lists the larger share of the start.
// Requirement: GPU-29
#[test]
fn lists_have_their_smaller_share_though_devices_are_listed_again_and_again() {
    let mut plan = Plan::new(100 * MS, 25);
    let ids: Vec<String> = (0..8).map(|n| format!("GPU-{n}")).collect();
    plan.set_devices(&ids, &BTreeSet::new(), 0);
    let cost_ns = |kind| if kind == Kind::Lists { 4_550_000 } else { 50_000 };
    follow(&mut plan, 20_000 * MS, cost_ns);
    plan.owe(21_000 * MS, MS);
    let [memory, _] = plan.memory_shares();
    let expected = policy::SHARES_AT_LESS[0] / 3.0;
    assert!((expected * policy::FREE_PART_AT_REST..expected).contains(&memory), "{memory}, {expected}");
    // The first look at all devices.
    plan.owe(21_000 * MS, 108 * MS);
    assert!(plan.memory_shares()[0] > expected);
}

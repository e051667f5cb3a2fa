//! Random process trees against the core alone, thousands per second. A simulated machine writes what processes and kernel
//! would, and what the core concludes must be what happened.
//!
//! tests/e2e/trees.rs tries these properties with real processes. A failing tree is shrunk and printed with all that was
//! observed. [`super::random_seed`] says how to repeat it.

mod collector;
mod machine;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner};

use super::RunState;
use super::outbox::Outgoing;
use super::over_time::{Track, Values};
use super::tree::ProcessSummary;
use crate::model::groups::Groups;
use crate::model::observation::Observation;
use crate::model::quality::Quality;
use crate::model::report::ProcessUsage;
use crate::model::tree_sample::Event;
use crate::random_seed::{cases, seed};
use collector::Collector;
use machine::{Exe, Life, Machine, Rules, SimProcess, tolerance};

/// So much the core takes for rounding errors in the sums of a process.
const ROUNDING_US: u64 = 100;
/// Maximum number of processes that live at a time.
const MOST_ALIVE: usize = 24;

/// What one process, or the collector, does next.
#[derive(Debug, Clone, Copy)]
struct Step {
    by: u8,
    action: u8,
    amount: u16,
}

fn take_step(machine: &mut Machine, collector: &mut Collector, step: Step) {
    machine.pass_all(20);
    if machine.rules.is_in_turn {
        return take_turn(machine, collector, step);
    }
    let alive = machine.alive();
    let by = usize::from(step.by) % (alive.len() + 1);
    let amount = u64::from(step.amount);
    let Some(at) = alive.get(by).copied() else {
        machine.wait(None, false);
        return;
    };
    if machine.processes[at].exe == Exe::Subreaper {
        machine.wait(Some(at), true);
        return;
    }
    if machine.is_loading(at) {
        // A library's constructor can run before the shim's.
        match step.action % 4 {
            0 => machine.grow(at, 1 + amount % 40),
            1 => machine.end(at, libc::SIGKILL),
            2 => collector.look(machine),
            _ => machine.compute(at, 1000 + amount % 20_000),
        }
        return;
    }
    machine.run(at);
    let is_mixed = machine.rules.has_uninstrumented;
    let other = if is_mixed && amount % 2 == 1 { Exe::Static } else { Exe::Instrumented };
    let is_raw = machine.rules.has_raw_waits && amount % 5 == 4;
    match step.action % 16 {
        5 | 6 if alive.len() < MOST_ALIVE => drop(machine.fork(at)),
        7 | 8 if alive.len() < MOST_ALIVE => machine.spawn(at, other),
        9 => machine.exec(at, other),
        10 if at > 0 => machine.exit(at, (amount % 7) as i32, is_raw),
        11 | 12 => drop(machine.wait(Some(at), is_raw)),
        3 if machine.rules.has_ignored_children => machine.ignore_children(at),
        4 => machine.grow(at, 1 + amount % 40),
        2 | 3 if machine.rules.has_sandboxes && alive.len() < MOST_ALIVE => {
            let inner_us = if amount % 2 == 0 { 0 } else { amount % 30_000 };
            machine.sandbox(at, 100 + amount % 9000, inner_us);
        }
        13 => {
            let victim = if amount % 3 == 0 { Some(at) } else { machine.youngest_child(at) };
            if let Some(victim) = victim {
                machine.end(victim, libc::SIGKILL);
            }
        }
        14 => match amount % 4 {
            0 => collector.restore(),
            1 => collector.sample(machine),
            _ => collector.look(machine),
        },
        15 => machine.pass_all(amount % 20_000),
        _ => machine.compute(at, 1000 + amount % 20_000),
    }
}

/// The command has one static child at a time.
fn take_turn(machine: &mut Machine, collector: &mut Collector, step: Step) {
    machine.run(0);
    let amount = u64::from(step.amount);
    let Some(child) = machine.youngest_child(0) else {
        return machine.spawn(0, Exe::Static);
    };
    match step.action % 8 {
        0 | 1 => machine.grow(child, 1 + amount % 40),
        2 | 3 => machine.compute(child, 1000 + amount % 20_000),
        4 => collector.sample(machine),
        5 => collector.look(machine),
        6 => collector.restore(),
        _ => {
            machine.exit(child, 0, false);
            machine.wait(Some(0), false);
        }
    }
}

/// Everything that is left ends, and the launcher waits for all.
fn end_all(machine: &mut Machine, collector: &mut Collector) {
    while let Some(at) = machine.alive().into_iter().rfind(|at| machine.processes[*at].exe != Exe::Subreaper)
    {
        machine.run(at);
        // Some wait for their children, and of some the children become orphans.
        while !machine.processes[at].pid.is_multiple_of(3) && machine.wait(Some(at), false) {}
        machine.exit(at, 0, false);
        if machine.processes[at].pid.is_multiple_of(4) {
            collector.look(machine);
        }
    }
    if machine.processes[0].life == Life::Alive {
        while machine.wait(Some(0), true) {}
        machine.exit(0, 0, true);
    }
    while machine.wait(None, false) {}
    collector.look(machine);
    collector.sample(machine);
    collector.look(machine);
    collector.apply(machine, &Observation::FinalizeAll);
}

type Figures = Vec<ProcessUsage>;

/// Samples, events and ended processes are what a replay gives, and the samples have the largest RAM of the run.
fn check_samples(collector: &Collector) -> Result<(), TestCaseError> {
    let (run, replayed) = (&collector.run, &collector.replayed);
    let stored = |run: &RunState| postcard::to_stdvec(&run.samples.outbox).expect("it can be stored");
    prop_assert!(stored(run) == stored(replayed), "a replay gives other samples");
    let (mut largest, mut last_ns, mut last_max) = (Groups::default(), 0, None);
    for (_, item) in run.samples.outbox.since(0) {
        match item {
            Outgoing::Sample(sample) => {
                prop_assert!(sample.from_ns == last_ns || last_ns == 0, "no time is left out");
                prop_assert!(sample.at_ns > last_ns);
                largest = largest.with(sample.footprint_bytes, |largest: u64, ram| largest.max(ram.max));
                (last_ns, last_max) = (sample.at_ns, Some(sample.max_ram));
            }
            Outgoing::Event(Event::Revised { max_footprint_bytes, .. }) => {
                largest = largest.with(*max_footprint_bytes, u64::max)
            }
            Outgoing::Ended(_) | Outgoing::Happened(_) | Outgoing::Tasks(_) => {}
        }
    }
    prop_assert_eq!(
        largest,
        run.ram.max.map(|max| max.footprint_bytes),
        "what the samples and their revisions tell"
    );
    let floors = run.totals.floors.map(|floor| floor.rss_bytes);
    let known = last_max.map(|max| max.map(|max| max.bytes));
    prop_assert_eq!(known, Some(largest.with(floors, u64::max)), "the last sample has the report's maximum");
    Ok(())
}

/// The points have the maxima of the run, and their integrals are its RAM and its CPU time.
fn check_over_time(run: &RunState) -> Result<(), TestCaseError> {
    let over_time = &run.samples.over_time;
    let points = over_time.points();
    let values =
        |track: &Track| -> Vec<Values> { (0..points.len()).filter_map(|at| track.get(at)).collect() };
    let largest = |track: &Track| {
        let extremes = values(track).into_iter().filter_map(|values| values.extremes);
        extremes.map(|extremes| f64::from(extremes.max)).reduce(f64::max)
    };
    let integral = |track: &Track| -> f64 {
        values(track)
            .iter()
            .zip(points)
            .map(|(values, point)| f64::from(values.mean) * point.length_s())
            .sum()
    };
    let is_close = |a: f64, b: f64| (a - b).abs() <= 1e-5 * a.abs().max(b.abs()).max(1e-3);
    let (ram, cpu) = (&over_time.ram_bytes.groups, &over_time.cpu_percent.groups);
    let maxima = [
        (&ram.main, Some(run.ram.max.main.footprint_bytes as f64)),
        (&ram.descendants, Some(run.ram.max.descendants.footprint_bytes as f64)),
        (&ram.combined, Some(run.ram.max.combined.footprint_bytes as f64)),
        (&cpu.combined, run.cpu.max_percent.combined),
        (&over_time.processes, Some(run.ram.max_processes as f64)),
    ];
    for (number, (track, max)) in maxima.into_iter().enumerate() {
        let ours = largest(track);
        prop_assert!(
            is_close(ours.unwrap_or(0.0), max.unwrap_or(0.0)),
            "maximum {number}: {ours:?}, {max:?}"
        );
    }
    prop_assert!(is_close(integral(&ram.combined), run.ram.byte_s.combined), "integral of RAM");
    prop_assert!(is_close(integral(&ram.main), run.ram.byte_s.main), "integral of the first process's RAM");
    let (ours, truth) = (integral(&cpu.combined) * 1e7, run.totals.own_usage.cpu_us() as f64 * 1e3);
    prop_assert!(is_close(ours, truth), "integral of CPU: {ours}, {truth}");
    Ok(())
}

/// The processes as reported, by pid, then by their order.
fn figures(run: &RunState) -> Figures {
    let mut processes = run.totals.heaviest.list();
    processes.sort_by_key(|process| (process.ids.pid(), process.ids.id.0));
    processes.into_iter().map(ProcessSummary::usage).collect()
}

fn total_us(run: &RunState) -> u64 {
    run.totals.own_usage.cpu_us() + run.totals.unattributed_us
}

fn check(rules: Rules, pids: u32, steps: &[Step], has_story: bool) -> Result<(), TestCaseError> {
    let mut machine = Machine::new(rules, pids);
    let mut collector = Collector::new(has_story);
    for step in steps {
        take_step(&mut machine, &mut collector, *step);
        // What an uninstrumented parent reaped and what the kernel did is told apart by what was gone while it lived.
        if rules.has_ignored_children {
            collector.look(&mut machine);
        }
    }
    end_all(&mut machine, &mut collector);
    let result = compare(&machine, &collector);
    match (result, collector.story) {
        (Err(TestCaseError::Fail(reason)), Some(story)) => {
            Err(TestCaseError::fail(format!("{reason}\n{}", story.join("\n"))))
        }
        (result, _) => result,
    }
}

fn compare(machine: &Machine, collector: &Collector) -> Result<(), TestCaseError> {
    let run = &collector.run;
    let rules = machine.rules;
    let ours = figures(run);
    check_samples(collector)?;
    check_over_time(run)?;
    if let Some(restored) = &collector.restored {
        prop_assert_eq!(&figures(restored), &ours, "after a restart");
        prop_assert_eq!(total_us(restored), total_us(run), "CPU time after a restart");
        prop_assert_eq!(restored.totals.by_command(), run.totals.by_command());
    }
    let mut truth: Vec<&SimProcess> = machine.processes.iter().collect();
    truth.sort_by_key(|process| (process.pid, process.start_ns));
    prop_assert!(run.tree.alive().is_empty());
    prop_assert_eq!(run.health.impossible, 0);
    prop_assert_eq!(run.totals.survivors.count, 0);
    if (rules.has_uninstrumented || rules.has_sandboxes) && !rules.has_connector {
        // Without the connector, processes below uninstrumented ones are not all seen.
        prop_assert!(ours.len() <= truth.len(), "{} of {} processes", ours.len(), truth.len());
    } else {
        prop_assert_eq!(ours.len(), truth.len(), "processes");
    }
    let true_us: u64 = truth.iter().map(|process| process.own_us).sum();
    let is_all_told = !rules.has_raw_waits && !rules.is_below_subreaper && !rules.has_ignored_children;
    // Without a REAPED record it is not known what a process used after its EXIT record.
    let rounding_us = ROUNDING_US * truth.len() as u64;
    let slack_us = if is_all_told { 0 } else { machine.after_exit_us + rounding_us };
    let is_short = total_us(run) + slack_us < true_us;
    // Which of its children an uninstrumented process waited for is a best fit: what its sums have beside those can be of
    // others.
    let unattributed_us = if rules.has_ignored_children { run.totals.unattributed_us } else { 0 };
    let is_over =
        total_us(run) - unattributed_us > true_us + slack_us && (rules.has_connector || is_all_told);
    prop_assert!(!is_short && !is_over, "{} us in all, {} in truth", total_us(run), true_us);
    if is_all_told && !rules.has_sandboxes {
        prop_assert_eq!(run.totals.unattributed_us, 0);
    }
    if rules.is_in_turn {
        check_ram_in_turn(run, machine)?;
    }
    if ours.len() != truth.len() {
        return Ok(());
    }
    if rules.has_accounts {
        // The teardown of a large process is missing in its account.
        let mut known = ours
            .iter()
            .zip(&truth)
            .map(|(ours, truth)| ours.cpu_quality == Quality::Exact || truth.hwm_kib > 10 * 1024);
        prop_assert!(known.all(|is_known| is_known), "{ours:?}");
    }
    let are_all_known = ours.iter().all(|process| process.cpu_quality == Quality::Exact);
    for (ours, truth) in ours.iter().zip(truth) {
        prop_assert_eq!(ours.pid, truth.pid);
        let cpu_us = ours.cpu_s.map_or(0, |s| (s * 1e6).round() as u64);
        if are_all_known && !machine.has_untold_waits && (rules.has_connector || is_all_told) {
            prop_assert!(
                cpu_us.abs_diff(truth.own_us) <= slack_us,
                "{cpu_us} us, {} in truth, of {ours:?}",
                truth.own_us
            );
        }
        check_exit(ours, truth)?;
        // Without the connector, the exec of an uninstrumented program is not always seen.
        if rules.has_connector || !truth.was_uninstrumented {
            check_peak(ours, truth)?;
        }
    }
    Ok(())
}

/// Only one child lives at a time: no more memory is there than that of the command and of the largest child.
fn check_ram_in_turn(run: &RunState, machine: &Machine) -> Result<(), TestCaseError> {
    let (main, children) = machine.processes.split_at(1);
    let largest =
        |processes: &[SimProcess]| processes.iter().map(|process| process.hwm_kib * 1024).max().unwrap_or(0);
    let (main, child) = (largest(main), largest(children));
    let (combined, descendants) =
        (run.ram.max.combined.footprint_bytes, run.ram.max.descendants.footprint_bytes);
    prop_assert!(descendants <= child + tolerance(child), "descendants {descendants}, the largest {child}");
    prop_assert!(
        combined <= main + child + tolerance(main + child),
        "combined {combined}, {main} and {child}"
    );
    Ok(())
}

fn check_exit(ours: &ProcessUsage, truth: &SimProcess) -> Result<(), TestCaseError> {
    let code = libc::WIFEXITED(truth.status).then(|| libc::WEXITSTATUS(truth.status));
    let signal = libc::WIFSIGNALED(truth.status).then(|| libc::WTERMSIG(truth.status));
    if ours.exit.code.is_some() || ours.exit.signal.is_some() {
        prop_assert_eq!((ours.exit.code, ours.exit.signal), (code, signal), "exit of {:?}", ours);
    } else {
        prop_assert!(!truth.has_written_exit, "no exit of {ours:?}");
    }
    Ok(())
}

/// An exact peak must be the true one. A bound must not be below it, and a sample not above it.
fn check_peak(ours: &ProcessUsage, truth: &SimProcess) -> Result<(), TestCaseError> {
    let range = truth.peak;
    let is_short = |peak: u64| peak + tolerance(range.at_least) < range.at_least;
    let is_over = |peak: u64| peak > range.at_most + tolerance(range.at_most);
    let is_right = match (ours.peak_quality, ours.peak_rss_bytes) {
        (Quality::Exact, Some(peak)) => !is_short(peak) && !is_over(peak),
        (Quality::Bound, Some(peak)) => !is_short(peak),
        (Quality::Sampled, Some(peak)) => !is_over(peak),
        (Quality::Exact | Quality::Unknown, None) => true,
        _ => false,
    };
    prop_assert!(is_right, "peak of {ours:?}: the truth is {range:?}");
    let is_exact = ours.peak_quality == Quality::Exact && ours.peak_rss_bytes.is_some();
    prop_assert!(
        is_exact || !truth.has_written_exit || truth.was_uninstrumented || truth.had_grown_copy,
        "the peak of {ours:?} was reported"
    );
    Ok(())
}

fn check_random_trees(rules: Rules, trees: u32) {
    let seed = seed();
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let cases = cases(trees);
    let config = Config { cases, failure_persistence: None, max_shrink_iters: 20_000, ..Config::default() };
    let mut runner = TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &bytes));
    let step = |word: u32| Step { by: word as u8, action: (word >> 8) as u8, amount: (word >> 16) as u16 };
    let steps = vec(any::<u32>().prop_map(step), 0..100);
    let pids = prop_oneof![Just(30_000u32), 30..60u32];
    let result = runner.run(&(pids, steps), |(pids, steps)| check(rules, pids, &steps, false));
    if let Err(proptest::test_runner::TestError::Fail(_, (pids, steps))) = &result {
        let again = check(rules, *pids, steps, true);
        panic!("GPU_TRACK_TEST_SEED={seed}: {}", again.expect_err("it fails again"));
    }
    result.expect("no failure");
}

/// Runs of random trees, some cut off after a few steps as if all was killed, and when they ended.
pub(crate) fn random_runs(count: u64) -> impl Iterator<Item = (RunState, u64)> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = move || {
        // xorshift64 (Marsaglia, 2003).
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    (0..count).map(move |number| {
        let rules = Rules {
            has_connector: number % 2 == 0,
            has_uninstrumented: number % 3 > 0,
            has_raw_waits: number % 5 > 2,
            has_accounts: number % 4 == 0,
            has_ignored_children: number % 6 == 5,
            is_below_subreaper: number % 7 == 6,
            ..Rules::default()
        };
        let mut machine = Machine::new(rules, 30_000);
        let mut collector = Collector::new(false);
        for _ in 0..next() % 40 {
            let word = next();
            let (by, action, amount) = (word as u8, (word >> 8) as u8, (word >> 16) as u16);
            take_step(&mut machine, &mut collector, Step { by, action, amount });
        }
        if next() % 2 == 0 {
            end_all(&mut machine, &mut collector);
        } else {
            for at in machine.alive() {
                machine.end(at, libc::SIGKILL);
            }
            collector.look(&mut machine);
            collector.look(&mut machine);
            collector.look(&mut machine);
            collector.apply(&machine, &Observation::FinalizeAll);
        }
        (collector.run, machine.now_ns)
    })
}

#[test]
fn fully_reported_trees_are_exact() {
    let rules = Rules::default();
    check_random_trees(rules, 400);
}

#[test]
fn fully_reported_trees_with_kernel_events_are_exact() {
    let rules = Rules { has_connector: true, ..Rules::default() };
    check_random_trees(rules, 400);
}

#[test]
fn trees_with_sandboxes_without_kernel_events_have_their_cpu_time_once() {
    let rules = Rules { has_sandboxes: true, ..Rules::default() };
    check_random_trees(rules, 400);
}

// Requirement: RAM-1
#[test]
fn static_children_in_turn_without_kernel_events_never_add_up() {
    let rules = Rules { has_uninstrumented: true, is_in_turn: true, ..Rules::default() };
    check_random_trees(rules, 400);
}

#[test]
fn trees_below_an_uninstrumented_subreaper_are_complete() {
    let rules = Rules { has_connector: true, is_below_subreaper: true, ..Rules::default() };
    check_random_trees(rules, 400);
}

#[test]
fn trees_with_untold_waits_below_an_uninstrumented_subreaper_are_complete() {
    let rules =
        Rules { has_connector: true, has_raw_waits: true, is_below_subreaper: true, ..Rules::default() };
    check_random_trees(rules, 400);
}

#[test]
fn partly_instrumented_trees_are_complete() {
    let rules =
        Rules { has_connector: true, has_uninstrumented: true, has_raw_waits: true, ..Rules::default() };
    check_random_trees(rules, 400);
}

#[test]
fn partly_instrumented_trees_without_kernel_events_lose_no_cpu_time() {
    let rules = Rules { has_uninstrumented: true, has_raw_waits: true, ..Rules::default() };
    check_random_trees(rules, 400);
}

#[test]
fn trees_whose_exits_the_kernel_accounts_for_are_exact() {
    let rules = Rules {
        has_connector: true,
        has_uninstrumented: true,
        has_raw_waits: true,
        has_accounts: true,
        ..Rules::default()
    };
    check_random_trees(rules, 400);
}

// Requirement: CPU-4
#[test]
fn children_that_the_kernel_reaps_keep_their_cpu_time_and_parents_theirs() {
    let rules = Rules {
        has_connector: true,
        has_uninstrumented: true,
        has_accounts: true,
        has_ignored_children: true,
        ..Rules::default()
    };
    check_random_trees(rules, 400);
}

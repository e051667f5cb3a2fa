//! The bounds of a merged report, against the truth of timelines that its reports were made from.

use std::time::{Duration, UNIX_EPOCH};

use proptest::prelude::*;

use super::super::*;
use super::as_merged;
use crate::model::groups::Groups;
use crate::model::report::*;
use gpu_track_core::fixtures::full;
use gpu_track_core::random_seed::seeded;

/// RAM of a run: the value up to each of these times, microseconds after its start.
#[derive(Debug, Clone)]
struct Timeline {
    node: usize,
    /// Microseconds after the first of all.
    start_us: i64,
    /// How far the node's clock is off, seconds.
    clock_s: i64,
    steps: Vec<(u64, u64)>,
    /// Where points of the series end, parts of 1,000 of the run.
    cuts: Vec<u64>,
    /// A spike that the series lacks: at which step, how high, and whether the report knows its height.
    spike: Option<(usize, u64, bool)>,
}

/// Values are multiples of this, so that a wrong sum is no matter of rounding.
const UNIT: u64 = 1000;
const START_US: i64 = 1_760_000_000_000_000;

impl Timeline {
    fn wall_us(&self) -> u64 {
        self.steps.last().unwrap().0
    }

    /// What the series sees.
    fn seen(&self, at_us: u64) -> u64 {
        self.steps.iter().find(|(end_us, _)| at_us < *end_us).map_or(0, |(_, value)| *value)
    }

    /// What it was, at a true time.
    fn truth(&self, at_us: i64) -> u64 {
        let Ok(at_us) = u64::try_from(at_us - self.start_us) else { return 0 };
        let step = self.steps.iter().position(|(end_us, _)| at_us < *end_us);
        match (step, self.spike) {
            (Some(at), Some((step, height, _))) if at == step % self.steps.len() => {
                height.max(self.steps[at].1)
            }
            (Some(at), _) => self.steps[at].1,
            (None, _) => 0,
        }
    }

    fn report(&self) -> Report {
        let bounds: Vec<u64> = {
            let mut bounds: Vec<u64> = self.cuts.iter().map(|cut| self.wall_us() * cut / 1000).collect();
            bounds.extend([0, self.wall_us()]);
            bounds.sort_unstable();
            bounds.dedup();
            bounds
        };
        let mut series = Series::default();
        let mut track = Track::default();
        for pair in bounds.windows(2) {
            let changes = self.steps.iter().map(|(end_us, _)| *end_us);
            let inner = changes.filter(|at| *at > pair[0] && *at < pair[1]);
            let times: Vec<u64> = [pair[0]].into_iter().chain(inner).chain([pair[1]]).collect();
            let values: Vec<u64> = times.windows(2).map(|part| self.seen(part[0])).collect();
            let time_sum: u64 =
                times.windows(2).zip(&values).map(|(part, value)| (part[1] - part[0]) * value).sum();
            series.start_s.push(pair[0] as f64 / 1e6);
            series.end_s.push(pair[1] as f64 / 1e6);
            track.min.push(values.iter().min().map(|value| *value as f64));
            track.mean.push(Some(time_sum as f64 / (pair[1] - pair[0]) as f64));
            track.max.push(values.iter().max().map(|value| *value as f64));
        }
        let largest = self.steps.iter().map(|(_, value)| *value).max().unwrap();
        let (max, at_most) = match self.spike {
            Some((_, height, true)) => (largest.max(height), largest.max(height)),
            Some((_, height, false)) => (largest, largest.max(height)),
            None => (largest, largest),
        };
        let nothing: Vec<Option<f64>> = vec![Some(0.0); series.start_s.len()];
        let zero = Track { min: nothing.clone(), mean: nothing.clone(), max: nothing };
        let sets = |combined: Track| SetTracks {
            main: zero.clone(),
            descendants: zero.clone(),
            combined,
            system: zero.clone(),
        };
        series.ram_bytes = sets(track);
        series.cpu_percent = sets(zero.clone());
        series.processes = zero.clone();
        let started_us = START_US + self.start_us + self.clock_s * 1_000_000;
        let mut report = full();
        report.started_at = UNIX_EPOCH + Duration::from_millis((started_us / 1000).unsigned_abs());
        report.wall_s = self.wall_us() as f64 / 1e6;
        report.host.hostname = Some(format!("n{}", self.node));
        report.host.boot_id = Some(format!("boot-{}", self.node));
        report.max_ram.combined.footprint_bytes = Some(max);
        report.max_ram_at_most = Groups { combined: Some(at_most), ..Groups::default() };
        report.series = series;
        report
    }
}

/// The largest sum at one true time.
fn largest_sum<'a>(timelines: impl Iterator<Item = &'a Timeline> + Clone) -> u64 {
    let times = timelines.clone().flat_map(|timeline| {
        let ends = timeline.steps.iter().map(|(end_us, _)| *end_us as i64);
        [0].into_iter().chain(ends).map(|at| at + timeline.start_us)
    });
    times.map(|at| timelines.clone().map(|timeline| timeline.truth(at)).sum()).max().unwrap_or(0)
}

fn files(timelines: &[Timeline]) -> Vec<(String, Report)> {
    timelines.iter().enumerate().map(|(at, timeline)| (format!("{at:03}.json"), timeline.report())).collect()
}

/// Runs of a few milliseconds, where the rounding of their starts matters, and longer ones.
fn timelines() -> impl Strategy<Value = Vec<Timeline>> {
    prop_oneof![Just(1_500_u64), Just(20_000), Just(400_000)]
        .prop_flat_map(|longest_us| prop::collection::vec(timeline(longest_us), 2..5))
}

fn timeline(longest_us: u64) -> impl Strategy<Value = Timeline> {
    let steps = prop::collection::vec((1..longest_us, 0_u64..1000), 1..8);
    let cuts = prop::collection::vec(1_u64..1000, 0..10);
    let spike = prop::option::weighted(0.2, (0_usize..8, 0_u64..3000, any::<bool>()));
    let clock = prop_oneof![15 => Just(0_i64), 1 => Just(400_000), 1 => Just(-90_000_000)];
    (0_usize..4, 0..longest_us * 3, clock, steps, cuts, spike).prop_map(
        |(node, start_us, clock_s, steps, cuts, spike)| {
            let mut end_us = 0;
            let steps = steps.into_iter().map(|(length_us, value)| {
                end_us += length_us;
                (end_us, value * UNIT)
            });
            let (start_us, steps) = (start_us as i64, steps.collect());
            let spike = spike.map(|(step, height, is_known)| (step, height * UNIT, is_known));
            Timeline { node, start_us, clock_s, steps, cuts, spike }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 120, ..seeded() })]

    // Requirement: NODE-2
    #[test]
    fn largest_sums_are_within_their_bounds(timelines in timelines()) {
        let MergedReport { report, .. } = merge(&files(&timelines)).unwrap();
        let truth = largest_sum(timelines.iter());
        let (at_least, at_most) = (report.max_ram.combined.footprint_bytes, report.max_ram_at_most.combined);
        // Means are rounded to whole bytes.
        let rounding = timelines.len() as u64;
        prop_assert!(at_least.unwrap() <= truth + rounding, "{at_least:?} {truth} {at_most:?}");
        prop_assert!(at_most.unwrap() >= truth, "{at_least:?} {truth} {at_most:?}");
        for node in &report.nodes {
            let own = timelines.iter().filter(|timeline| format!("n{}", timeline.node) == node.node);
            let truth = largest_sum(own.clone());
            prop_assert_eq!(node.reports, own.count() as u64);
            let NodeRam { max_bytes, at_most_bytes, .. } = node.ram;
            prop_assert!(max_bytes.unwrap() <= truth + rounding, "{node:?} {truth}");
            prop_assert!(at_most_bytes.unwrap() >= truth, "{node:?} {truth}");
        }
    }

}

proptest! {
    #![proptest_config(ProptestConfig { cases: 30, ..seeded() })]

    // Requirement: NODE-1
    #[test]
    fn order_of_the_files_changes_nothing(
        timelines in timelines(),
        order in Just((0..5).collect::<Vec<usize>>()).prop_shuffle(),
    ) {
        let all = files(&timelines);
        let shuffled: Vec<_> = order.iter().filter_map(|at| all.get(*at).cloned()).collect();
        let [one, other] = [all, shuffled].map(|files| merge(&files).unwrap());
        prop_assert_eq!(one.report, other.report);
    }

    // Requirement: NODE-1
    #[test]
    fn merging_a_single_report_gives_its_own_figures(timeline in timeline(20_000)) {
        let report = timeline.report();
        prop_assert_eq!(&merge(&files(std::slice::from_ref(&timeline))).unwrap().report, &report);
        let merged = as_merged(report.clone());
        let RamOf { max, at_most } = ram_of(&merged);
        prop_assert_eq!((max, at_most), (ram_of(&report).max, ram_of(&report).at_most));
        let node = &merged.nodes[0].ram;
        prop_assert_eq!((node.max_bytes, node.at_most_bytes), (max, at_most));
    }
}

/// RAM of all processes.
struct RamOf {
    max: Option<u64>,
    at_most: Option<u64>,
}

fn ram_of(report: &Report) -> RamOf {
    RamOf { max: report.max_ram.combined.footprint_bytes, at_most: report.max_ram_at_most.combined }
}

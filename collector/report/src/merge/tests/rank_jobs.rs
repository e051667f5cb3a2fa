//! Ranks of several jobs whose environment has no id of the job, and ranks with several reports.

use super::{merged, steady};
use crate::model::report::*;
use crate::model::style::Style;

/// A report of this rank of two, of a job without an id.
fn of_rank(node: &str, rank: u32, start_s: u64, cpu_s: Option<f64>, exit: Option<i32>) -> Report {
    let mut report = steady(node, start_s, 10.0, 1000);
    report.rank = Some(OwnRank { job: 0, rank, of: 2, pid: None });
    report.cpu_time.total_s = cpu_s;
    report.ending.exit = Exit { code: exit, signal: None };
    report
}

fn ranks(reports: &[Report]) -> Ranks {
    merged(reports).ranks.unwrap()
}

// Requirement: NODE-8
#[test]
fn ranks_of_two_jobs_at_once_are_told_apart() {
    let job = |node: &str, start_s: u64, cpu_s: f64| {
        [0, 1].map(|rank| of_rank(node, rank, start_s, Some(cpu_s), Some(0))).to_vec()
    };
    let both = ranks(&[job("n1", 0, 1.0), job("n2", 3, 7.0)].concat());
    assert_eq!((both.jobs, both.seen, both.expected, both.missing.len()), (2, 4, 4, 0));
    let places: Vec<_> = both
        .heaviest
        .iter()
        .map(|rank| (rank.place.job, rank.place.rank, rank.place.node.as_str(), rank.cpu_s))
        .collect();
    let first = [(1, 0, "n2", Some(7.0)), (1, 1, "n2", Some(7.0))];
    assert_eq!(places, [first, [(0, 0, "n1", Some(1.0)), (0, 1, "n1", Some(1.0))]].concat());
    // On one node, at one time.
    assert_eq!(ranks(&[job("n1", 0, 1.0), job("n1", 3, 7.0)].concat()).jobs, 2);
    // One after the other there: the rank ran gpu-track-run twice.
    let one = ranks(&[job("n1", 0, 1.0), job("n1", 10, 7.0)].concat());
    assert_eq!((one.jobs, one.seen, one.heaviest[0].cpu_s), (1, 2, Some(8.0)));
    // Which ranks the second job has is known by its reports alone.
    let part = ranks(&[job("n1", 0, 1.0), job("n2", 3, 7.0)[..1].to_vec()].concat());
    assert_eq!((part.jobs, part.seen, part.expected, part.missing.len()), (2, 3, 3, 0));
}

// Requirement: NODE-8
#[test]
fn rank_with_several_reports_has_the_first_failure_and_no_part_of_a_sum() {
    let exit = |exits: [Option<i32>; 3]| {
        let reports = [0, 1, 2].map(|at| of_rank("n1", 0, at * 20, Some(1.0), exits[at as usize]));
        ranks(&reports).heaviest[0].exit.code
    };
    assert_eq!(exit([None, Some(0), Some(3)]), Some(3));
    assert_eq!(exit([Some(0), Some(4), Some(3)]), Some(4));
    assert_eq!(exit([Some(0), None, Some(0)]), None);
    assert_eq!(exit([Some(0); 3]), Some(0));
    let longer = Report { wall_s: 15.0, ..of_rank("n1", 0, 20, Some(1.0), Some(5)) };
    // The longer report is read first.
    let rank = &ranks(&[longer, of_rank("n1", 0, 0, None, Some(6))]).heaviest[0];
    assert_eq!((rank.exit.code, rank.cpu_s), (Some(6), None));
}

// Requirement: NODE-8
#[test]
fn further_report_of_a_known_rank_counts_however_many_ranks_there_are() {
    let many = 1 << 18;
    let job_rank = |rank| JobRank {
        rank: OwnRank { job: 0, rank, of: many, pid: None },
        command: String::new(),
        processes: 1,
        start_s: 0.0,
        wall_s: 1.0,
        cpu_s: Some(if rank == 0 { 2.0 } else { 1.0 }),
        peak_ram_bytes: None,
        peak_gpu_ram_bytes: None,
        exit: Exit::default(),
    };
    let all = Report { job_ranks: (0..many).map(job_rank).collect(), ..steady("n1", 0, 10.0, 1000) };
    let later = Report { job_ranks: vec![job_rank(0)], ..steady("n1", 20, 10.0, 1000) };
    let cpu_s = ranks(&[all, later]).cpu_s.unwrap();
    assert_eq!((cpu_s.max, cpu_s.min), (4.0, 1.0));
}

// Requirement: NODE-16
#[test]
fn ranks_have_their_ram_and_cpu_over_time() {
    // The second one starts when the first one is over.
    let second =
        Report { rank: Some(OwnRank { job: 0, rank: 1, of: 2, pid: None }), ..steady("n2", 10, 10.0, 3000) };
    let all = ranks(&[of_rank("n1", 0, 0, Some(1.0), Some(0)), second]);
    let points = all.series_start_s.len();
    assert!(points > 50 && points <= 120, "{points}");
    assert_eq!((all.series_start_s[0], all.series_end_s[points - 1]), (0.0, 20.0));
    let series = |rank: usize| (&all.series[rank].mean_ram_bytes, &all.series[rank].mean_cpu_percent);
    let half = |first: Option<f64>, second: Option<f64>| {
        [vec![first; points / 2], vec![second; points - points / 2]].concat()
    };
    assert_eq!(series(0), (&half(Some(1000.0), None), &half(Some(100.0), None)));
    assert_eq!(series(1), (&half(None, Some(3000.0)), &half(None, Some(100.0))));
    assert_eq!(all.series[1].place, RankPlace { job: 0, rank: 1, node: "n2".into() });
}

// Requirement: NODE-16
#[test]
fn of_many_ranks_some_at_regular_steps_have_a_series_in_any_order_of_reports() {
    let with_series = |reports: &[Report]| {
        let ranks = ranks(reports);
        assert_eq!(ranks.series.is_empty(), ranks.series_start_s.is_empty());
        ranks.series.iter().map(|rank| (rank.place.job, rank.place.rank)).collect::<Vec<_>>()
    };
    let rank_of_job = |job: u32, rank: u32| {
        let mut report = of_rank(&format!("n{}", (job + rank) % 3), rank, 0, Some(1.0), Some(0));
        report.rank = Some(OwnRank { job, rank, of: 1000, pid: None });
        report
    };
    let job = |count: u32| (0..count).map(|rank| rank_of_job(7, rank)).collect::<Vec<_>>();
    assert_eq!(with_series(&job(64)).len(), 64);
    let every = |step: usize, below: u32| (0..below).step_by(step).map(|rank| (7, rank)).collect::<Vec<_>>();
    assert_eq!(with_series(&job(65)), every(2, 65));
    let mut backwards = job(200);
    backwards.reverse();
    assert_eq!(with_series(&job(200)), every(4, 200));
    assert_eq!(with_series(&backwards), every(4, 200));
    // Rank 0 of each is a multiple of any step.
    assert_eq!(with_series(&(1..=65).map(|job| rank_of_job(job, 0)).collect::<Vec<_>>()), []);
    assert_eq!(with_series(&(1..=64).map(|job| rank_of_job(job, 0)).collect::<Vec<_>>()).len(), 64);
}

// Requirement: NODE-8
#[test]
fn rank_that_failed_first_is_named_and_not_the_one_that_was_killed_for_it() {
    let signal = |node: &str, rank, wall_s| {
        let mut report = Report { wall_s, ..of_rank(node, rank, 0, Some(1.0), None) };
        report.ending.exit = Exit { code: None, signal: Some(9) };
        report.ending.cause = Some(Cause::Signal(FatalSignal {
            process: DeadProcess {
                pid: 2120,
                command: "app".into(),
                args: None,
                is_main: true,
                exit: report.ending.exit,
                at_s: wall_s,
                peak_rss_bytes: None,
                cpu_s: None,
            },
            signal: 9,
            signal_name: "SIGKILL".into(),
            sender: None,
        }));
        report
    };
    let failed = Report { wall_s: 4.0, ..of_rank("n2", 1, 1, Some(1.0), Some(3)) };
    let report = merged(&[signal("n1", 0, 6.1), failed]);
    let first = report.ranks.as_ref().unwrap().first_failed.as_ref().unwrap();
    assert_eq!(
        (first.place.rank, first.place.node.as_str(), first.at_s, first.exit.code),
        (1, "n2", 5.0, Some(3))
    );
    let text = crate::text::text(&report, &Style::default());
    assert!(text.contains("rank 1 on n2 failed first: exit 3 after 5.00 s"), "{text}");
    assert!(!text.contains("2120"), "{text}");
    assert_eq!(ranks(&[of_rank("n1", 0, 0, None, Some(0))]).first_failed, None);
}

// Requirement: NODE-8
#[test]
fn crashes_have_the_nodes_and_ranks_where_they_were() {
    let crashed = |node: &str, ranks: &[u32]| {
        let mut report = steady(node, 0, 10.0, 1000);
        report.crashes = Some(vec![Crash {
            command: Some("app".into()),
            signal: 11,
            signal_name: "SIGSEGV".into(),
            count: 1,
            is_probe: false,
            places: Vec::new(),
        }]);
        report.job_ranks = ranks
            .iter()
            .map(|rank| JobRank {
                rank: OwnRank { job: 0, rank: *rank, of: 8, pid: None },
                command: "app".into(),
                exit: Exit { code: None, signal: Some(11) },
                ..JobRank::default()
            })
            .collect();
        report
    };
    let report = merged(&[crashed("n1", &[3]), crashed("n2", &[])]);
    let crashes = report.crashes.as_ref().unwrap();
    let places: Vec<_> = crashes[0].places.iter().map(|place| (place.node.as_str(), place.rank)).collect();
    assert_eq!((crashes[0].count, places), (2, vec![("n1", Some(3)), ("n2", None)]));
    let text = crate::text::text(&report, &Style::default());
    assert!(text.contains("SIGSEGV ended 2 processes of app (rank 3 on n1, n2)"), "{text}");
}

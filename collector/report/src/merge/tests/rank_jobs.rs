//! Ranks of several jobs whose environment has no id of the job, and ranks with several reports.

use super::{merged, steady};
use crate::merge::ranks::ranks_of_report;
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
    // Their ranks take different times: the longest reports are read first.
    let lasting =
        |rank, start_s, wall_s| Report { wall_s, ..of_rank("n1", rank, start_s, Some(wall_s), Some(0)) };
    let [first, second] = [[(0, 20.0), (1, 10.0)], [(0, 12.0), (1, 15.0)]];
    let reports = first.map(|(rank, s)| lasting(rank, 0, s)).into_iter();
    let reports: Vec<_> = reports.chain(second.map(|(rank, s)| lasting(rank, 5, s))).collect();
    let mut cpu: Vec<_> =
        ranks(&reports).heaviest.iter().map(|rank| (rank.place.job, rank.place.rank, rank.cpu_s)).collect();
    cpu.sort_by_key(|(job, rank, _)| (*job, *rank));
    let expected = [(0, 0, 20.0), (0, 1, 10.0), (1, 0, 12.0), (1, 1, 15.0)];
    assert_eq!(cpu, expected.map(|(job, rank, s)| (job, rank, Some(s))));
    // One after the other there: the rank ran gpu-track-run twice.
    let one = ranks(&[job("n1", 0, 1.0), job("n1", 10, 7.0)].concat());
    assert_eq!((one.jobs, one.seen, one.heaviest[0].cpu_s), (1, 2, Some(8.0)));
    // Which ranks the second job has is known by its reports alone.
    let part = ranks(&[job("n1", 0, 1.0), job("n2", 3, 7.0)[..1].to_vec()].concat());
    assert_eq!((part.jobs, part.seen, part.expected, part.missing.len()), (2, 3, 3, 0));
}

/// mpirun of MPICH ends with the status of MPI_Abort, and kills all ranks meanwhile.
// Requirement: NODE-8
#[test]
fn ranks_that_the_launcher_kills_have_not_failed_first() {
    let mut report = steady("n1", 0, 10.0, 1000);
    let rank = |rank, wall_s, signal| JobRank {
        rank: OwnRank { job: 0, rank, of: 2, pid: None },
        exit: Exit { code: None, signal: Some(signal) },
        wall_s,
        ..JobRank::default()
    };
    let mut first = |command: &str, code, ends_s: [f64; 2], signal| {
        report.command = vec![command.into()];
        report.ending.exit = Exit { code: Some(code), signal: None };
        report.job_ranks = vec![rank(0, ends_s[0], signal), rank(1, ends_s[1], signal)];
        ranks_of_report(&report).unwrap().first_failed.map(|failed| failed.place.rank)
    };
    assert_eq!(first("sh", 42, [10.1, 10.2], 9), None);
    assert_eq!(first("sh", 42, [10.1, 9.0], 9), Some(1));
    // Its clock can be a little late: the status tells, if it is that of a launcher and not of a killed rank.
    assert_eq!(first("/usr/bin/mpirun.mpich", 42, [9.9, 9.8], 9), None);
    for code in [9, 137, 255] {
        assert_eq!(first("mpirun", code, [9.9, 9.8], 9), Some(1), "{code}");
    }
    // No launcher sends this signal.
    assert_eq!(first("mpirun", 42, [10.1, 10.2], 11), Some(0));
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
    assert!(text.contains("FAILED, exit 3 after 6.10 s: rank 1 on n2 failed first, at 5.00 s"), "{text}");
    assert!(!text.contains("2120"), "{text}");
    assert_eq!(ranks(&[of_rank("n1", 0, 0, None, Some(0))]).first_failed, None);
}

/// A report of a node for 43 s, whose command `mpirun` started these ranks: each with when it ended and how.
fn of_mpirun(node: &str, ranks: &[(u32, f64, Exit)]) -> Report {
    let of_rank = |(rank, end_s, exit): &(u32, f64, Exit)| JobRank {
        rank: OwnRank { job: 0, rank: *rank, of: 3, pid: None },
        command: "app".into(),
        wall_s: *end_s,
        exit: *exit,
        ..JobRank::default()
    };
    let mut report = steady(node, 0, 43.0, 1000);
    report.ending.exit = by(0, 139);
    report.job_ranks = ranks.iter().map(of_rank).collect();
    report
}

/// An end by this signal, or with this code if the signal is 0.
fn by(signal: i32, code: i32) -> Exit {
    if signal == 0 {
        Exit { code: Some(code), signal: None }
    } else {
        Exit { code: None, signal: Some(signal) }
    }
}

/// The rank that failed first of two, each with when it ended and how.
fn first_of(ends: [(f64, Exit); 2]) -> Option<u32> {
    let ranks = [0, 1].map(|rank| (rank, ends[rank as usize].0, ends[rank as usize].1));
    ranks_of(&[of_mpirun("n1", &ranks[..1]), of_mpirun("n2", &ranks[1..])])
}

fn ranks_of(reports: &[Report]) -> Option<u32> {
    ranks(reports).first_failed.map(|failed| failed.place.rank)
}

// Requirement: NODE-40
#[test]
fn rank_that_was_ended_just_before_another_failed_is_not_the_first() {
    let (segv, kill, term) = (by(11, 0), by(9, 0), by(15, 0));
    // mpirun ends the others while the rank that called MPI_Abort is still there.
    assert_eq!(first_of([(42.0, term), (42.3, segv)]), Some(1));
    assert_eq!(first_of([(42.0, by(0, 143)), (42.3, by(0, 1))]), Some(1), "a shell passes SIGTERM on");
    assert_eq!(first_of([(42.0, by(2, 0)), (42.3, segv)]), Some(1), "Ctrl-C");
    // The clocks of the nodes differ by some milliseconds.
    assert_eq!(first_of([(42.0, kill), (42.01, segv)]), Some(1));
    // Its peers failed when they lost it.
    assert_eq!(first_of([(42.0, kill), (42.1, by(0, 1))]), Some(0));
    assert_eq!(first_of([(40.0, term), (42.0, segv)]), Some(0));
    assert_eq!(first_of([(42.0, term), (42.6, kill)]), Some(0), "mpirun kills what does not obey");
    assert_eq!(first_of([(42.0, term), (41.9, term)]), Some(1), "of those that were all ended, the first");
    let mut killed = of_mpirun("n1", &[(0, 42.0, kill)]);
    killed.crashes = Some(vec![Crash {
        command: Some("app".into()),
        signal: 9,
        signal_name: "SIGKILL".into(),
        count: 1,
        is_probe: false,
        places: Vec::new(),
    }]);
    let failed = of_mpirun("n2", &[(1, 42.01, segv)]);
    assert_eq!(ranks_of(&[killed, failed]), Some(0), "for lack of memory, so nothing had failed before");
}

// Requirement: NODE-40
#[test]
fn headline_has_the_first_failure_and_a_run_that_was_ended_from_outside_none() {
    let text = |others: &[(u32, f64, Exit)], exit: Exit| {
        let mut reports =
            [of_mpirun("n1", others), of_mpirun("n2", &[(1, 42.5, by(15, 0)), (2, 42.0, exit)])];
        reports.iter_mut().for_each(|report| report.coverage.nodes = None);
        crate::text::text(&merged(&reports), &Style::default())
    };
    let killed = [(0, 42.6, by(9, 0))];
    let failed = text(&killed, by(11, 0));
    let headline = "FAILED, exit 139 after 43.0 s: rank 2 on n2 failed first, by SIGSEGV at 42.0 s";
    assert!(failed.contains(headline), "{failed}");
    assert_eq!(failed.matches("rank 2").count(), 1, "{failed}");
    let same = text(&killed, by(0, 139));
    assert!(same.contains("FAILED, exit 139 after 43.0 s: rank 2 on n2 failed first, at 42.0 s"), "{same}");
    let rank_missing = text(&[], by(11, 0));
    assert!(rank_missing.contains("rank 2 on n2 failed first of those known, by SIGSEGV"), "{rank_missing}");
    let ended = text(&killed, by(15, 0));
    assert!(ended.contains("FAILED, exit 139 after 43.0 s\n"), "{ended}");
    let remark = "! none is known to have failed by itself; rank 2 on n2 ended first: SIGTERM at 42.0 s";
    assert!(ended.contains(remark), "{ended}");
}

// Requirement: NODE-40
#[test]
fn node_that_failed_first_is_named_where_no_ranks_are_known() {
    let node = |node: &str, wall_s: f64, exit: Exit| {
        let mut report = steady(node, 0, wall_s, 1000);
        report.ending.exit = exit;
        report
    };
    let mut reports = [node("n1", 42.9, by(15, 0)), node("n2", 43.2, by(0, 3)), node("n3", 44.0, by(0, 0))];
    reports.iter_mut().for_each(|report| report.coverage.nodes = None);
    let report = merged(&reports);
    let merged_part = report.merged.as_ref().unwrap();
    assert_eq!((merged_part.failed_node.as_deref(), merged_part.failed_s), (Some("n2"), Some(43.2)));
    let text = crate::text::text(&report, &Style::default());
    assert!(text.contains("FAILED, exit 3 after 44.0 s: n2 failed first, at 43.2 s"), "{text}");
    assert!(text.contains("Failed         n2 exit 3, n1 SIGTERM"), "{text}");
    // The launcher's report has the only command; a daemon that failed on another node does not stand for it.
    let part = |is_agent: bool| NodePart { is_agent, clock_ahead_s: None, ready_s: None, directory: None };
    let launcher = Report { node_part: Some(part(false)), ..node("n1", 43.0, by(0, 1)) };
    let agent = Report { node_part: Some(part(true)), ..node("n2", 42.0, by(0, 1)) };
    assert_eq!(merged(&[launcher, agent]).merged.unwrap().failed_node, None);
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

//! What adds up, what counts once, and what is said of reports that do not belong together.

use std::time::Duration;

use super::{as_merged, merged, of_node};
use crate::model::report::*;
use gpu_track_core::fixtures::{full, killed};

// Requirement: NODE-1
#[test]
fn single_report_has_its_own_sums_when_it_is_merged() {
    for report in [full(), killed()] {
        let merged = as_merged(report.clone());
        assert_eq!(
            (&merged.command, merged.started_at, merged.wall_s, merged.stage),
            (&report.command, report.started_at, report.wall_s, report.stage)
        );
        assert_eq!(merged.ending, report.ending);
        let usable_percent = merged.cpu_time.usable_percent;
        assert_eq!(merged.cpu_time, CpuTime { usable_percent, ..report.cpu_time });
        assert_eq!(
            (merged.io, merged.faults, merged.context_switches),
            (report.io, report.faults, report.context_switches)
        );
        let footprints =
            |ram: &MaxRam| [ram.main, ram.descendants, ram.combined].map(|set| set.footprint_bytes);
        assert_eq!(footprints(&merged.max_ram), footprints(&report.max_ram));
        assert_eq!(merged.max_ram.system_bytes, report.max_ram.system_bytes);
        assert_eq!(merged.max_ram.system_capacity_bytes, report.max_ram.system_capacity_bytes);
        assert_eq!(merged.max_gpu_ram, report.max_gpu_ram);
        assert_eq!((merged.gpu, merged.usable.cores), (report.gpu.clone(), report.usable.cores));
        assert_eq!(merged.usable.memory, report.usable.memory);
        for (own, other) in report.processes.by_command.iter().zip(&merged.processes.by_command) {
            // Times are kept in whole microseconds.
            let is_same = |a: f64, b: f64| (a - b).abs() < 1e-6;
            assert!(is_same(own.cpu_s.unwrap(), other.cpu_s.unwrap()) && is_same(own.wall_s, other.wall_s));
            let others = CommandUsage { cpu_s: own.cpu_s, wall_s: own.wall_s, ..other.clone() };
            assert_eq!(*own, others);
        }
        let mut crashes = merged.crashes.clone();
        crashes.iter_mut().flatten().for_each(|crash| crash.places.clear());
        assert_eq!(crashes, report.crashes);
        assert_eq!(merged.allowed, Allowed { oom_kills: merged.allowed.oom_kills, ..report.allowed });
        assert_eq!(merged.hints, report.hints);
        let cpu = |cpu: &Cpu| [cpu.system, cpu.main, cpu.descendants, cpu.combined];
        for (own, other) in cpu(&report.cpu).into_iter().zip(cpu(&merged.cpu)) {
            let is_same = |a: Option<f64>, b: Option<f64>| (a.unwrap() - b.unwrap()).abs() < 1e-6;
            assert!(is_same(own.mean_sum, other.mean_sum), "{own:?} {other:?}");
            assert!(is_same(own.max_sum, other.max_sum), "{own:?} {other:?}");
        }
    }
}

// Requirement: NODE-3, NODE-53
#[test]
fn times_and_counts_add_up_and_machines_count_once() {
    let [a, b, c] = ["n1", "n1", "n2"].map(of_node);
    let report = merged(&[a, b, c]);
    let one = full();
    assert_eq!(report.cpu_time.total_s, one.cpu_time.total_s.map(|s| s * 3.0));
    assert_eq!(report.cpu_time.kernel_s, one.cpu_time.kernel_s.map(|s| s * 3.0));
    assert_eq!(report.io.write_bytes, one.io.write_bytes.map(|bytes| bytes * 3));
    assert_eq!(report.processes.total, one.processes.total * 3);
    assert_eq!(report.processes.by_command[0].count, one.processes.by_command[0].count * 3);
    // Two nodes, whatever the number of reports.
    assert_eq!((report.host.cores, report.cpu.system_core_count), (16, 16));
    assert_eq!(report.host.ram_bytes, one.host.ram_bytes.map(|bytes| bytes * 2));
    let at_most = report.merged.as_ref().unwrap().at_most.system_ram_bytes;
    assert_eq!(at_most, one.max_ram.system_bytes.map(|bytes| bytes * 2));
    assert_eq!(report.usable.cores, UsableCores { count: 6.0, source: CoresSource::Affinity });
    assert_eq!(report.usable.memory.bytes, one.usable.memory.bytes.map(|bytes| bytes * 2));
    let nodes: Vec<_> = report.nodes.iter().map(|node| (node.node.as_str(), node.reports)).collect();
    assert_eq!(nodes, [("n1", 2), ("n2", 1)]);
    assert!(report.warnings.iter().any(|warning| warning.text.starts_with("2 reports are of n1: ")));
    // They ran at the same time, and one bin has no more than all of them.
    let peak = one.max_ram.combined.footprint_bytes.unwrap();
    assert_eq!(report.max_ram_at_most.combined, one.max_ram_at_most.combined.map(|bytes| bytes * 3));
    assert!(report.max_ram.combined.footprint_bytes.unwrap() > peak * 2, "{:?}", report.max_ram.combined);
}

// Requirement: NODE-3
#[test]
fn unknown_times_are_left_out_and_said() {
    let mut unknown = of_node("n2");
    unknown.cpu_time =
        CpuTime { kernel_s_reason: Some("the launcher was killed".into()), ..CpuTime::default() };
    unknown.max_ram = MaxRam::default();
    unknown.max_ram_at_most = crate::model::groups::Groups::default();
    unknown.series = Series::default();
    let report = merged(&[of_node("n1"), unknown]);
    assert_eq!(report.cpu_time.total_s, full().cpu_time.total_s);
    assert_eq!(report.cpu_time.kernel_s, None);
    assert_eq!(report.cpu_time.kernel_s_reason.as_deref(), Some("n2: the launcher was killed"));
    assert_eq!(report.max_ram.combined.footprint_bytes, full().max_ram.combined.footprint_bytes);
    assert_eq!(report.max_ram_at_most.combined, None);
    assert_eq!((report.nodes[1].cpu_s, report.nodes[1].ram.max_bytes), (None, None));
    let said = "Unknown in some of 2 reports, and in no sum: CPU time (in 1 report), RAM (in 1 report), memory in use by all \
                programs (in 1 report). These sums are of the other reports.";
    assert!(report.warnings.iter().any(|warning| warning.text == said), "{:?}", report.warnings);
}

fn with_gpu(node: &str, id: &str) -> Report {
    let of_killed = killed();
    let mut report = of_node(node);
    report.gpus = vec![GpuDevice { id: id.into(), ..of_killed.gpus[0].clone() }];
    report.max_gpu_ram = of_killed.max_gpu_ram;
    report.gpu = Gpu { system_gpu_count: Some(1), expected_gpus: Some(1), ..of_killed.gpu };
    report.usable.gpus = UsableGpus { count: Some(1), source: Some(GpusSource::Tracked) };
    report
}

// Requirement: NODE-3
#[test]
fn gpu_of_several_reports_counts_once_and_those_of_other_nodes_add_up() {
    let energy_j = killed().gpus[0].power.energy_j.unwrap();
    let [a, b, c] = [("n1", "GPU-A"), ("n1", "GPU-A"), ("n2", "GPU-B")].map(|(node, id)| with_gpu(node, id));
    let report = merged(&[a.clone(), b.clone(), c]);
    assert_eq!((report.gpu.system_gpu_count, report.gpu.expected_gpus), (Some(2), Some(2)));
    assert_eq!(report.usable.gpus.count, Some(2));
    assert_eq!(report.max_gpu_ram.system_capacity_bytes, Some(2 * 85_899_345_920));
    assert_eq!(report.merged.unwrap().gpu_energy_j, Some(energy_j * 2.0));
    assert_eq!(report.nodes[0].gpus.len(), 1);
    // One after the other, on the same GPU: each has read its own energy.
    let mut later = b;
    later.started_at += Duration::from_secs(90);
    assert_eq!(merged(&[a, later]).merged.unwrap().gpu_energy_j, Some(energy_j * 2.0));
}

// Requirement: NODE-4
#[test]
fn reports_that_do_not_belong_together_are_merged_with_a_warning() {
    let mut other = of_node("n2");
    other.command = vec!["other".into()];
    other.allowed.slurm.insert("SLURM_JOB_ID".into(), "18".into());
    other.started_at += Duration::from_secs(86_400);
    let report = merged(&[of_node("n1"), other.clone(), of_node("n3")]);
    let said: Vec<&str> = report.warnings.iter().map(|warning| warning.text.as_str()).collect();
    for part in [
        "These are reports of different commands: 2 of make -j4 'CFLAGS=-O2 -g'; 1 of other.",
        "These are reports of different Slurm jobs (17, 18).",
        "The times of 1 report have nothing in common with those of the others (01.json)",
    ] {
        assert!(said.iter().any(|text| text.starts_with(part)), "{part}: {said:?}");
    }
    // The run is that of the others. What it can have had at most has the one of another time, too.
    assert_eq!((report.wall_s, &report.command), (83.25, &full().command));
    assert_eq!(report.nodes[1].silent_s, None);
    assert_eq!(report.max_ram_at_most.combined, full().max_ram_at_most.combined.map(|bytes| bytes * 3));
    assert_eq!(report.cpu_time.total_s, full().cpu_time.total_s.map(|s| s * 3.0));
    assert!(merged(&[of_node("n1"), of_node("n3")]).warnings.is_empty());
}

// Requirement: NODE-4
#[test]
fn job_of_the_last_of_many_reports_is_told_apart() {
    let mut reports = vec![of_node("n1"); 101];
    // Its file's name, 99.json, comes last.
    reports[99].allowed.slurm.insert("SLURM_JOB_ID".into(), "18".into());
    let report = merged(&reports);
    let is_said = |text: &str| text.starts_with("These are reports of different Slurm jobs (17, 18).");
    assert!(report.warnings.iter().any(|warning| is_said(&warning.text)), "{:?}", report.warnings);
}

// Requirement: NODE-4
#[test]
fn containers_of_one_machine_are_nodes_whose_machine_counts_once() {
    let reports = ["a", "b"].map(|name| {
        let mut report = of_node(name);
        report.host.boot_id = Some("the same".into());
        report.usable.cores = UsableCores { count: 8.0, source: CoresSource::Machine };
        report.usable.memory.bytes = report.host.ram_bytes;
        (report.cpu.system_core_count, report.cpu.expected_cores) = (8, 8);
        report
    });
    let report = merged(&reports);
    // Each may use all that the machine has, and so may both.
    assert_eq!((report.usable.cores.count, report.cpu.expected_cores), (8.0, 8));
    assert_eq!(report.usable.memory.bytes, full().host.ram_bytes);
    assert_eq!((report.nodes.len(), report.host.cores), (2, 8));
    assert_eq!(report.max_ram.system_capacity_bytes, full().host.ram_bytes);
    assert!(report.warnings[0].text.starts_with("By their boot ids, 2 nodes are 1 machine"));
}

#[test]
fn report_without_a_boot_id_is_of_the_node_of_its_name() {
    let mut older = of_node("n1");
    older.host.boot_id = None;
    assert_eq!(merged(&[of_node("n1"), older.clone()]).nodes.len(), 1);
    let mut rebooted = of_node("n1");
    rebooted.host.boot_id = Some("another boot".into());
    let names: Vec<String> =
        merged(&[of_node("n1"), rebooted]).nodes.into_iter().map(|node| node.node).collect();
    assert_eq!(names, ["n1 (boot another boot)", "n1 (boot boot-n1)"]);
}

/// A report of this node, with this RAM in points of one second: smallest, mean and largest.
fn with_ram(node: &str, points: &[[u64; 3]]) -> Report {
    let mut report = of_node(node);
    let list = |at: usize| points.iter().map(|point| Some(point[at] as f64)).collect::<Vec<_>>();
    let nothing = || vec![Some(0.0); points.len()];
    let zero = || Track { min: nothing(), mean: nothing(), max: nothing() };
    let sets = |combined: Track| SetTracks { main: zero(), descendants: zero(), combined, system: zero() };
    report.series = Series {
        start_s: (0..points.len()).map(|at| at as f64).collect(),
        end_s: (1..=points.len()).map(|at| at as f64).collect(),
        ram_bytes: sets(Track { min: list(0), mean: list(1), max: list(2) }),
        cpu_percent: sets(zero()),
        processes: zero(),
        ..Series::default()
    };
    report.wall_s = points.len() as f64;
    let max = points.iter().map(|point| point[2]).max();
    report.max_ram.combined.footprint_bytes = max;
    report.max_ram_at_most.combined = max;
    report
}

/// The lower and the upper bound of the largest RAM of all.
fn bounds(report: &Report) -> [Option<u64>; 2] {
    [report.max_ram.combined.footprint_bytes, report.max_ram_at_most.combined]
}

// Requirement: NODE-51
#[test]
fn bounds_are_apart_where_ram_goes_up_and_down_within_a_point() {
    let steady = [[500, 500, 500]; 10];
    assert_eq!(bounds(&merged(&["n1", "n2"].map(|node| with_ram(node, &steady)))), [Some(1000), Some(1000)]);
    // Each holds 500 for a moment of each second. Whether at the same one is unknown.
    let spikes = [[100, 200, 500]; 10];
    assert_eq!(bounds(&merged(&["n1", "n2"].map(|node| with_ram(node, &spikes)))), [Some(600), Some(1000)]);
}

// Requirement: NODE-52
#[test]
fn clocks_are_taken_to_agree() {
    let mut step = [[100, 100, 100]; 10];
    step[4] = [500, 500, 500];
    let one = with_ram("n1", &step);
    assert_eq!(bounds(&merged(&[one.clone(), with_ram("n2", &step)])), [Some(1000), Some(1000)]);
    // The same at the same time, by a clock that is 3.7 s off.
    let mut late = with_ram("n2", &step);
    late.started_at += Duration::from_millis(3700);
    let report = merged(&[one, late]);
    assert_eq!(bounds(&report), [Some(600), Some(600)]);
    assert_eq!((report.merged.unwrap().clock_error_s, report.nodes[1].clock_offset_s), (None, None));
}

// Requirement: NODE-9
#[test]
fn peak_of_nodes_is_found_where_a_clock_offset_is_given() {
    use crate::merge::{Head, Merger, Plan, Source};
    use crate::read::ReadReport;
    let mut step = [[100, 100, 100]; 10];
    step[4] = [500, 500, 500];
    let [one, mut ahead] = ["n1", "n2"].map(|node| with_ram(node, &step));
    ahead.started_at += Duration::from_millis(3700);
    let mut of_ahead = Head::from_report(&ahead);
    of_ahead.set_clock_offset(3.7);
    let source = |file: &str, head: Head| Source { file: file.into(), head, content: None };
    let mut merger =
        Merger::new(Plan::new(vec![source("a", Head::from_report(&one)), source("b", of_ahead)], Vec::new()));
    for (number, report) in [one, ahead].into_iter().enumerate() {
        merger.add(number, ReadReport { report, note: None });
    }
    let report = merger.finish().unwrap().report;
    assert_eq!(bounds(&report), [Some(1000), Some(1000)]);
    let series = &report.series;
    let peak = series.ram_bytes.combined.mean.iter().position(|mean| *mean == Some(1000.0)).unwrap();
    let bin_s = report.merged.as_ref().unwrap().bin_s;
    assert!((series.start_s[peak] - 4.0).abs() <= bin_s, "{} {bin_s}", series.start_s[peak]);
    let nodes: Vec<_> = report.nodes.iter().map(|node| (node.clock_offset_s, node.silent_s)).collect();
    assert_eq!((report.wall_s, nodes), (10.0, vec![(None, Some(0.0)), (Some(3.7), Some(0.0))]));
}

// Requirement: NODE-6, JOB-1
#[test]
fn nodes_of_a_flux_job_without_a_report_are_counted() {
    let of_task = |node: &str| {
        let mut report = of_node(node);
        report.allowed.slurm.clear();
        let variables = [("FLUX_JOB_ID", "ƒ3E"), ("FLUX_JOB_NNODES", "3"), ("FLUX_TASK_RANK", "0")];
        report.allowed.job = variables.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        report
    };
    let report = merged(&[of_task("n1"), of_task("n2")]);
    let nodes = report.coverage.nodes.unwrap();
    assert_eq!((nodes.unseen, nodes.unseen_names), (1, vec![]));
    assert_eq!(report.allowed.job["FLUX_JOB_ID"], "ƒ3E");
}

// Requirement: NODE-6
#[test]
fn nodes_without_a_final_report_and_without_any_are_named() {
    let mut ended = of_node("n1");
    ended.allowed.slurm.insert("SLURM_STEP_NODELIST".into(), "n[1-2,4]".into());
    ended.coverage.nodes =
        Some(Nodes { unseen: 2, unseen_names: vec!["n2.example.org".into(), "n5".into()] });
    let mut lost = of_node("n2");
    (lost.stage, lost.wall_s, lost.ending) = (Stage::SoFar, 80.0, Ending::default());
    lost.series = Series::default();
    let report = merged(&[ended, lost]);
    let states: Vec<_> = report.nodes.iter().map(|node| (node.node.as_str(), node.state)).collect();
    assert_eq!(
        states,
        [
            ("n1", NodeState::Final),
            ("n2", NodeState::LastHeard),
            ("n4", NodeState::NeverCheckedIn),
            ("n5", NodeState::NeverCheckedIn)
        ]
    );
    assert_eq!((report.nodes[1].silent_s, report.stage), (Some(3.25), Stage::SoFar));
    let nodes = report.coverage.nodes.unwrap();
    assert_eq!((nodes.unseen, nodes.unseen_names), (2, vec!["n4".to_owned(), "n5".into()]));
    assert_eq!(report.warnings[0].text, "Not in this report, and in no figure: 2 nodes (n4, n5).");
    assert!(
        report.warnings[1]
            .text
            .starts_with("1 node without a final report, last heard of: n2: 3.25 s before the end.")
    );
}

// Requirement: NODE-6
#[test]
fn first_failure_is_how_the_command_ended() {
    let failed = |node: &str, wall_s: f64, exit: Exit| {
        let mut report = of_node(node);
        (report.wall_s, report.ending.exit) = (wall_s, exit);
        report
    };
    let aborted = failed("n1", 80.0, Exit { code: None, signal: Some(15) });
    let first = failed("n2", 79.0, Exit { code: Some(3), signal: None });
    let report = merged(&[aborted, first, of_node("n3")]);
    assert_eq!(report.ending.exit, Exit { code: Some(3), signal: None });
    assert_eq!(merged(&[of_node("n1"), of_node("n2")]).ending.exit.code, Some(0));
}

// Requirement: NODE-8, NODE-54
#[test]
fn ranks_are_those_of_reports_that_are_of_one() {
    let report =
        merged(&gpu_track_core::fixtures::nodes().into_iter().map(|(_, report)| report).collect::<Vec<_>>());
    let ranks = report.ranks.unwrap();
    assert_eq!((ranks.seen, ranks.expected, ranks.jobs), (12, 16, 1));
    assert_eq!(ranks.missing, [9, 13, 14, 15]);
    let numbers = |ranks: &[RankUsage]| ranks.iter().map(|rank| rank.place.rank).collect::<Vec<_>>();
    assert_eq!(numbers(&ranks.heaviest), [12, 11, 10, 8, 7, 6, 5, 4, 3, 2]);
    assert_eq!(numbers(&ranks.lightest), [0, 1]);
    let ram = ranks.peak_ram_bytes.unwrap();
    assert_eq!((ram.min, ram.max, ram.min_at.rank, ram.max_at.rank), (200e6, 320e6, 0, 12));
    assert_eq!((ram.max_at.node.as_str(), ram.imbalance), ("n2", Some(320e6 / ram.mean)));
    assert_eq!(merged(&[of_node("n1"), of_node("n2")]).ranks, None, "no report is of a rank");
}

// Requirement: NODE-55
#[test]
fn copies_and_merged_reports_are_left_out() {
    use crate::merge::{Head, Plan, Source};
    let source = |file: &str, report: &Report, content: u64| Source {
        file: file.into(),
        head: Head::from_report(report),
        content: Some(content),
    };
    let (a, b) = (of_node("n1"), of_node("n2"));
    let both = merged(&[a.clone(), b.clone()]);
    let sources = vec![source("b", &b, 2), source("c", &a, 1), source("a", &a, 1), source("all", &both, 3)];
    let plan = Plan::new(sources, vec![("x".into(), "it is no JSON".into())]);
    assert_eq!(plan.order().map(|(_, file)| file.to_owned()).collect::<Vec<_>>(), ["a", "b"]);
    let unread: Vec<_> = plan.unread.iter().map(|file| (file.file.as_str(), file.reason.as_str())).collect();
    assert_eq!(unread[1], ("c", "it is a copy of a"));
    assert!(unread[0].1.starts_with("it is a merged report") && unread[2] == ("x", "it is no JSON"));
}

// Requirement: NODE-5, NODE-6
#[test]
fn report_that_fails_after_the_first_look_is_left_out_and_its_node_is_missing() {
    use crate::merge::{Head, Merger, Plan, Source};
    use crate::read::ReadReport;
    let mut whole = of_node("n1");
    whole.allowed.slurm.insert("SLURM_STEP_NODELIST".into(), "n[1-2]".into());
    let source = |file: &str, report: &Report| Source {
        file: file.into(),
        head: Head::from_report(report),
        content: Some(file.len() as u64),
    };
    let plan = Plan::new(vec![source("a", &whole), source("bb", &of_node("n2"))], Vec::new());
    assert!(plan.is_unchanged(1, 2) && !plan.is_unchanged(1, 1));
    let mut merger = Merger::new(plan);
    merger.add(0, ReadReport { report: whole, note: None });
    merger.leave_out(1, "it changed".into());
    let report = merger.finish().unwrap().report;
    let states: Vec<_> = report.nodes.iter().map(|node| (node.node.as_str(), node.state)).collect();
    assert_eq!(states, [("n1", NodeState::Final), ("n2", NodeState::NeverCheckedIn)]);
    let said = "Not in this report, and in no figure: 1 node (n2); 1 of 2 files (bb: it changed).";
    assert_eq!(report.warnings[0].text, said);
    assert_eq!((report.merged.unwrap().nodes, report.cpu_time.total_s), (1, full().cpu_time.total_s));
}

// Requirement: SEE-35
#[test]
fn work_elsewhere_beyond_the_list_is_added_up_by_program() {
    let entry = |program: &str, target: String, count| StartedElsewhere {
        kind: ElsewhereKind::Host,
        program: program.into(),
        target: Some(target),
        count,
        followed: 0,
        in_tree: 0,
        reason: None,
        is_tracked: false,
    };
    let [mut first, mut second] = ["n1", "n2"].map(of_node);
    first.coverage.elsewhere = (0..1000).map(|n| entry("ssh", format!("host{n}"), 1)).collect();
    second.coverage.elsewhere =
        vec![entry("pdsh", "a".into(), 7), entry("pdsh", "b".into(), 2), entry("ssh", "host3".into(), 1)];
    let both = merged(&[first, second]).coverage.elsewhere;
    let beyond = StartedElsewhere { target: None, ..entry("pdsh", String::new(), 9) };
    assert!(both.contains(&beyond) && both.contains(&entry("ssh", "host3".into(), 2)), "{:?}", both.last());
    assert_eq!(both.iter().map(|entry| entry.count).sum::<u64>(), 1010);
}

// Requirement: SEE-35, HINT-18
#[test]
fn what_was_started_elsewhere_adds_up_without_nodes_that_have_a_report() {
    let entry = |kind, program: &str, target: &str, count| StartedElsewhere {
        kind,
        program: program.into(),
        target: Some(target.into()),
        count,
        followed: 0,
        reason: None,
        in_tree: 0,
        is_tracked: false,
    };
    let docker = |count| entry(ElsewhereKind::Container, "docker", "alpine", count);
    let orted = entry(ElsewhereKind::Node, "orted", "n2", 1);
    let [mut first, mut second] = ["n1", "n2.example.org"].map(of_node);
    for (report, uid) in [(&mut first, 7), (&mut second, 8)] {
        report.coverage.elsewhere = vec![docker(2), orted.clone()];
        report.coverage.other_users =
            vec![OtherUser { uid, processes: 3 }, OtherUser { uid: 9, processes: 1 }];
    }
    first.coverage.nodes = Some(Nodes { unseen: 1, unseen_names: vec!["n2".into()] });
    let both = merged(&[first.clone(), second]);
    assert_eq!(both.coverage.elsewhere, [docker(4)]);
    let users = both.coverage.other_users.iter().map(|user| (user.uid, user.processes));
    assert_eq!(users.collect::<Vec<_>>(), [(7, 3), (9, 2), (8, 3)]);
    assert!(both.hints.memory.is_some() && both.hints.withheld.is_none(), "{:?}", both.hints);
    // RAM that is known within bounds only is no limit that was hit.
    first.hints.memory.as_mut().unwrap().is_lower_bound = true;
    for alone in [as_merged(first.clone()), merged(&[first])] {
        assert_eq!(alone.coverage.elsewhere, [docker(2), orted.clone()]);
        let reason = alone.hints.withheld.unwrap();
        assert_eq!((alone.hints.memory, &*reason), (None, "not in this report: 1 node"));
    }
}

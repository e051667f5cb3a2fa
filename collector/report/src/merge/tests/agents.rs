//! Reports of agents, and of the launcher that they belong to.

use std::time::Duration;

use super::*;
use crate::model::report::{
    Coverage, CpuTime, Exit, Io, JobRank, NodePart, NodeState, Nodes, Topic, Warning,
};

/// A report of a run over several nodes, whose clock is so far ahead.
fn part(node: &str, is_agent: bool, clock_ahead_s: f64) -> Report {
    let mut report = of_node(node);
    report.node_part =
        Some(NodePart { is_agent, clock_ahead_s: Some(clock_ahead_s), ready_s: None, directory: None });
    report.started_at += Duration::from_secs_f64(clock_ahead_s);
    report.warnings = vec![Warning::new(Topic::OtherNodes, format!("{node} can't see others."))];
    report
}

// Requirement: NODE-10
#[test]
fn processes_of_agents_are_descendants_and_the_launchers_command_is_that_of_all() {
    let launcher = part("n1", false, 0.0);
    let mut agent = part("n2", true, 0.0);
    agent.command = vec!["orted".into()];
    agent.ending.exit = Exit { code: Some(1), signal: None };
    let (main, combined) = (launcher.max_ram.main.footprint_bytes, agent.max_ram.combined.footprint_bytes);
    let all = merged(&[agent, launcher.clone()]);
    assert_eq!((&all.command, &all.ending), (&launcher.command, &launcher.ending));
    assert_eq!(all.max_ram.main.footprint_bytes, main, "the agent has none");
    assert!(all.max_ram_at_most.descendants >= combined, "{:?}", all.max_ram_at_most);
    assert!(all.warnings.iter().all(|warning| !warning.text.contains("can't see")), "{:?}", all.warnings);
    // How its daemon ended stays with the node.
    assert_eq!(all.nodes[1].exit.code, Some(1));
    assert!(all.node_part.is_none());
}

// Requirement: NODE-10
#[test]
fn clocks_of_agents_are_put_right_by_the_launchers() {
    let launcher = part("n1", false, 0.5);
    let all = merged(&[launcher.clone(), part("n2", true, 4.2), part("n3", true, 100_000.0)]);
    let offsets: Vec<_> = all.nodes.iter().map(|node| node.clock_offset_s).collect();
    assert_eq!(offsets, [None, Some(3.7), Some(99_999.5)]);
    assert!((all.wall_s - launcher.wall_s).abs() < 0.001, "{}", all.wall_s);
    let agreed = merged(&[launcher, part("n2", true, 0.5), part("n3", true, 0.5)]);
    assert_eq!(all.max_ram, agreed.max_ram, "as with clocks that agree");
}

// Requirement: NODE-9
#[test]
fn offset_that_the_user_gives_for_the_launchers_node_leaves_its_agents_where_they_are() {
    let (ahead, agent) = (part("n1", false, 5.0), part("n2", true, 0.0));
    let mut head_of_ahead = Head::from_report(&ahead);
    head_of_ahead.set_clock_offset(5.0);
    let source = |file: &str, head: Head| Source { file: file.into(), head, content: None };
    let sources = vec![source("a", head_of_ahead), source("b", Head::from_report(&agent))];
    let mut merger = Merger::new(Plan::new(sources, Vec::new()));
    for (number, report) in [ahead, agent.clone()].into_iter().enumerate() {
        merger.add(number, ReadReport { report, note: None });
    }
    let all = merger.finish().unwrap().report;
    let offsets: Vec<_> = all.nodes.iter().map(|node| node.clock_offset_s).collect();
    assert_eq!(offsets, [Some(5.0), Some(0.0)]);
    let agreed = merged(&[part("n1", false, 0.0), agent]);
    assert_eq!((all.wall_s, all.max_ram), (agreed.wall_s, agreed.max_ram), "as with clocks that agree");
}

/// A report of an agent of Slurm, which has no command and saw no process.
fn idle_agent(node: &str) -> Report {
    let mut report = part(node, true, 0.0);
    report.command.clear();
    report.warnings.clear();
    report.coverage = Coverage { uncounted_reason: None, untracked_reason: None, ..Coverage::default() };
    (report.processes.total, report.processes.max_concurrent) = (0, Some(0));
    report.processes.by_command.clear();
    report.processes.heaviest.clear();
    (report.cpu_time, report.io) = (CpuTime::default(), Io::default());
    (report.max_ram.main, report.max_ram.descendants, report.max_ram.combined) = Default::default();
    (report.max_ram_at_most, report.mean_ram_bytes) = Default::default();
    report
}

// Requirement: NODE-14
#[test]
fn node_on_which_nothing_ran_has_used_nothing_and_leaves_the_figures_of_the_run() {
    let launcher = part("n1", false, 0.0);
    let mut agent = idle_agent("n2");
    // It was there before the command, and a little after it.
    agent.started_at -= Duration::from_secs(2);
    agent.wall_s = launcher.wall_s + 2.5;
    let all = merged(&[agent, launcher.clone()]);
    assert!((all.wall_s - launcher.wall_s).abs() < 0.001, "{} {}", all.wall_s, launcher.wall_s);
    assert_eq!(all.started_at, launcher.started_at);
    assert_eq!(all.cpu_time.user_s, launcher.cpu_time.user_s);
    assert_eq!(all.io, launcher.io);
    assert_eq!(all.max_ram_at_most.combined, launcher.max_ram_at_most.combined);
    assert!(all.mean_ram_bytes.combined.is_some());
    assert_eq!(all.nodes[1].state, NodeState::Final);
    assert_eq!(all.warnings.iter().filter(|warning| warning.topic == Topic::Tracking).count(), 0);
}

// Requirement: NODE-2
#[test]
fn ram_of_an_agent_at_times_outside_of_the_run_is_no_sum_of_its_moments() {
    let launcher = part("n1", false, 0.0);
    let largest = |report: &Report| report.max_ram.combined.footprint_bytes.unwrap();
    // Its clock is ahead, and no file time tells that: by a part of the run, and by more.
    for ahead_s in [launcher.wall_s / 2.0, launcher.wall_s * 2.0] {
        let mut agent = part("n2", true, ahead_s);
        agent.command.clear();
        agent.node_part =
            Some(NodePart { is_agent: true, clock_ahead_s: None, ready_s: None, directory: None });
        let all = merged(&[launcher.clone(), agent.clone()]);
        assert!((all.wall_s - launcher.wall_s).abs() < 0.001, "the run is the launcher's: {}", all.wall_s);
        let sum = largest(&launcher) + largest(&agent);
        assert!((largest(&launcher)..=sum).contains(&largest(&all)), "{} of {sum}, {ahead_s}", largest(&all));
        // No mean is above the largest value, in the last bin neither, which the run does not fill.
        let most = largest(&agent) as f64;
        let means = &all.nodes[1].series.mean_ram_bytes;
        assert!(means.iter().flatten().all(|mean| *mean <= most), "{means:?} {most}");
        let at_most = all.max_ram_at_most.combined.unwrap();
        let sum: u64 =
            [&launcher, &agent].map(|report| report.max_ram_at_most.combined.unwrap()).iter().sum();
        assert!((largest(&all)..=sum).contains(&at_most), "{at_most} of {sum}, {ahead_s}");
    }
}

// Requirement: NODE-14
#[test]
fn time_without_an_agent_is_said() {
    let launcher = part("n1", false, 0.0);
    let mut agent = idle_agent("n2");
    agent.started_at += Duration::from_secs(3);
    agent.wall_s = launcher.wall_s - 8.0;
    let launcher_io = launcher.io.read_bytes;
    let all = merged(&[agent, launcher]);
    let said = |text: &str| all.warnings.iter().any(|warning| warning.text.contains(text));
    assert!(said("n2: Tracked only from 3.0 s after the command's start on"), "{:?}", all.warnings);
    assert!(said("n2: 5.00 s before the end"), "{:?}", all.warnings);
    // Processes may have been there that no agent saw.
    assert_eq!((all.cpu_time.user_s, all.io.read_bytes), (None, launcher_io));
    assert_eq!(all.nodes[1].state, NodeState::LastHeard);
}

/// The first srun of a script waits for agents. An agent that came after it went on may have missed processes.
// Requirement: NODE-66
#[test]
fn agent_that_a_program_waited_for_is_not_late() {
    let mut launcher = part("n1", false, 0.0);
    let mut agent = idle_agent("n2");
    agent.started_at += Duration::from_secs(3);
    agent.wall_s = launcher.wall_s - 3.0;
    for (ready_s, is_late) in [(Some(3.2), false), (Some(2.9), true), (None, true)] {
        launcher.node_part.as_mut().unwrap().ready_s = ready_s;
        let all = merged(&[agent.clone(), launcher.clone()]);
        let is_said = all.warnings.iter().any(|warning| warning.text.contains("Tracked only from 3.0 s"));
        assert_eq!(is_said, is_late, "{ready_s:?}: {:?}", all.warnings);
        let expected = if is_late { None } else { launcher.cpu_time.user_s };
        assert_eq!(all.cpu_time.user_s, expected, "{ready_s:?}");
    }
}

// Requirement: NODE-15
#[test]
fn ranks_of_one_job_are_compared_and_idle_nodes_named_where_ranks_are_missing() {
    let rank = |job, rank, cpu_s| JobRank {
        rank: OwnRank { job, rank, of: 2, pid: None },
        cpu_s: Some(cpu_s),
        ..JobRank::default()
    };
    let mut launcher = part("n1", false, 0.0);
    launcher.job_ranks = vec![rank(1, 0, 9.0), rank(1, 1, 9.0), rank(2, 0, 1.0)];
    let all = merged(&[launcher, idle_agent("n2")]);
    let cpu = all.ranks.unwrap().cpu_s.unwrap();
    assert_eq!((cpu.imbalance, cpu.max_at.job), (Some(1.0), 1));
    let said = |text: &str| all.warnings.iter().any(|warning| warning.text.contains(text));
    assert!(said("No process was seen on 1 node (n2)."), "{:?}", all.warnings);
}

// Requirement: NODE-15
#[test]
fn ranks_that_ran_on_each_node_are_compared() {
    let with_ranks = |mut report: Report, ranks: [u32; 2]| {
        let rank = |rank| JobRank {
            rank: OwnRank { job: 7, rank, of: 5, pid: Some(100 + rank) },
            peak_ram_bytes: Some(100 + u64::from(rank)),
            cpu_s: Some(1.0),
            ..JobRank::default()
        };
        report.job_ranks = ranks.map(rank).into();
        report
    };
    let all =
        merged(&[with_ranks(part("n1", false, 0.0), [0, 1]), with_ranks(part("n2", true, 0.0), [2, 3])]);
    let ranks = all.ranks.unwrap();
    assert_eq!((ranks.seen, ranks.expected, ranks.missing), (4, 5, vec![4]));
    let largest = ranks.peak_ram_bytes.unwrap();
    assert_eq!((largest.max, largest.max_at.rank, &*largest.max_at.node), (103.0, 3, "n2"));
    assert_eq!(ranks.heaviest.iter().map(|rank| rank.place.rank).collect::<Vec<_>>(), [3, 2, 1, 0]);
    assert!(
        all.job_ranks.is_empty() && all.warnings.iter().any(|warning| warning.text.contains("1 of 5 ranks"))
    );
}

// Requirement: NODE-10
#[test]
fn reports_of_agents_alone_are_merged_as_any_others() {
    let (mut first, second) = (part("n1", true, 1.0), part("n2", true, 2.0));
    first.command = vec!["orted".into()];
    let all = merged(&[first, second]);
    assert!(all.nodes.iter().all(|node| node.clock_offset_s.is_none()));
    assert!(
        all.warnings.iter().any(|warning| warning.text.contains("different commands")),
        "{:?}",
        all.warnings
    );
}

// Requirement: NODE-6
#[test]
fn node_that_is_told_with_and_without_its_domain_is_missing_once() {
    let told = |node: &str, unseen: &str| {
        let mut report = of_node(node);
        report.coverage.nodes = Some(Nodes { unseen: 1, unseen_names: vec![unseen.to_owned()] });
        report
    };
    let all = merged(&[told("n1", "n3"), told("n2", "n3.example.org"), told("n4", "n2.example.org")]);
    let nodes = all.coverage.nodes.unwrap();
    assert_eq!((nodes.unseen, nodes.unseen_names), (1, vec!["n3".to_owned()]));
    // Addresses have no domain.
    let all = merged(&[told("10.0.0.1", "10.0.0.3"), told("10.0.0.2", "10.0.0.4")]);
    let nodes = all.coverage.nodes.unwrap();
    assert_eq!((nodes.unseen, nodes.unseen_names), (2, vec!["10.0.0.3".to_owned(), "10.0.0.4".into()]));
}

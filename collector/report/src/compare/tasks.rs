//! The tasks of several runs, compared by kind and name.

use super::{RunsOfWay, TaskMetrics, heaviest, metric};
use crate::model::report::{Report, TaskUsage};

/// Tasks that are compared one by one: those with most CPU time.
const MAX_TASKS: usize = 20;

/// Compares the tasks that used most CPU time.
pub(super) fn tasks(ways: &[RunsOfWay]) -> Vec<TaskMetrics> {
    let all = ways.iter().flat_map(|(_, runs)| runs.iter().flat_map(|run| &run.report.tasks));
    let used = all.filter(|task| task.is_task()).map(|task| (task.title(), task.cpu_s));
    let compared = |task: String| {
        let of_task = |name, unit, value: fn(&[&TaskUsage]) -> Option<f64>| {
            metric(ways, name, unit, |report| value(&named(report, &task)).filter(|value| value.is_finite()))
        };
        let metrics = vec![
            of_task("wall", "s", |tasks| joined(tasks, |task| task.wall_s, f64::max)),
            of_task("cpu", "s", |tasks| joined(tasks, |task| task.cpu_s, |a, b| a + b)),
            of_task("peak_ram", "bytes", |tasks| {
                joined(tasks, |task| task.peak_ram_bytes.map(|bytes| bytes as f64), f64::max)
            }),
        ];
        let runs = ways.iter().flat_map(|(_, runs)| runs.iter());
        let n_tasks = runs.map(|run| named(&run.report, &task).len()).max().unwrap_or(0);
        TaskMetrics { task, n_tasks, metrics }
    };
    heaviest(used, MAX_TASKS).map(compared).collect()
}

/// A figure of these tasks together. `None`: there are none, or that of one is unknown.
fn joined(
    tasks: &[&TaskUsage],
    figure: fn(&TaskUsage) -> Option<f64>,
    join: fn(f64, f64) -> f64,
) -> Option<f64> {
    let all: Option<Vec<f64>> = tasks.iter().map(|task| figure(task)).collect();
    all?.into_iter().reduce(join)
}

/// The tasks of this kind and name in a report. There can be several, such as the jobs 1 of two parallels.
fn named<'a>(report: &'a Report, title: &str) -> Vec<&'a TaskUsage> {
    report.tasks.iter().filter(|task| task.is_task() && task.title() == title).collect()
}

#[cfg(test)]
mod tests {
    use gpu_track_core::fixtures;

    use super::super::{Run, compare, text};
    use super::*;

    // Requirement: TASK-10
    #[test]
    fn tasks_of_one_name_are_compared() {
        let run = |cpu_s: Option<f64>| {
            let mut report = fixtures::full();
            report.tasks = fixtures::tasks();
            match cpu_s {
                Some(_) => report.tasks[0].cpu_s = cpu_s,
                None => drop(report.tasks.remove(0)),
            }
            Run { name: None, file: format!("{cpu_s:?}.json"), report }
        };
        let comparison = compare(&[run(Some(10.0)), run(Some(15.0)), run(None)]);
        let [rule, job] = &comparison.tasks[..] else { panic!("{:?}", comparison.tasks) };
        assert_eq!((&*rule.task, &*job.task), ("snakemake sort \"a,b\" > c", "parallel \u{1b}[2J"));
        assert_eq!(rule.metrics[1].ratios, [Some(1.0), Some(1.5), None], "the third run has no such task");
        assert_eq!(job.metrics[2].ratios, [Some(1.0); 3]);
        assert!(text(&comparison).contains(r"parallel \x1b[2J"));
        let mut twice = run(Some(10.0));
        twice.report.tasks.push(TaskUsage { cpu_s: None, ..twice.report.tasks[0].clone() });
        let comparison = compare(&[run(Some(10.0)), twice]);
        assert!(text(&comparison).contains(" > c (2 tasks)\n"), "{}", text(&comparison));
        let both = &comparison.tasks[0];
        assert_eq!((&*both.task, both.n_tasks), ("snakemake sort \"a,b\" > c", 2));
        assert_eq!(both.metrics[1].ratios, [Some(1.0), None], "one of the two is unknown");
    }

    // Requirement: TASK-10
    #[test]
    fn names_of_tasks_that_differ_at_their_ends_are_told_apart() {
        let mut report = fixtures::full();
        report.tasks = fixtures::tasks();
        let name = |wildcard| format!("work: /data/bin/align --threads 4 {wildcard}");
        report.tasks.truncate(1);
        report.tasks.push(report.tasks[0].clone());
        (report.tasks[0].name, report.tasks[1].name) = (name("a"), name("b"));
        let text = text(&compare(&[Run { name: None, file: "a.json".into(), report }]));
        for wildcard in ["a", "b"] {
            assert!(text.contains(&format!("\nsnakemake {}\n", name(wildcard))), "{text}");
        }
    }
}

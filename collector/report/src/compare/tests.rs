use gpu_track_core::fixtures::{full, killed};

use super::*;

/// A run of this name with this CPU time and RAM.
fn run(name: &str, cpu_s: Option<f64>, ram_bytes: u64) -> Run {
    let mut report = full();
    report.cpu_time.total_s = cpu_s;
    report.max_ram.combined.footprint_bytes = Some(ram_bytes);
    Run { name: Some(name.to_owned()), file: format!("{name}.json"), report }
}

fn metric<'a>(comparison: &'a Comparison, name: &str) -> &'a Metric {
    comparison.metrics.iter().find(|metric| metric.metric == name).unwrap()
}

#[test]
fn runs_of_one_name_are_a_way_with_mean_extremes_and_deviation() {
    let runs = [run("a", Some(1.0), 100), run("b", Some(4.0), 50), run("a", Some(3.0), 100)];
    let comparison = compare(&runs);
    let names: Vec<_> = comparison.ways.iter().map(|way| (way.name.as_str(), way.runs)).collect();
    assert_eq!(names, [("a", 2), ("b", 1)]);
    let cpu = metric(&comparison, "cpu");
    let expected = Summary {
        known: 2,
        mean: Some(2.0),
        min: Some(1.0),
        max: Some(3.0),
        standard_deviation: Some(std::f64::consts::SQRT_2),
    };
    assert_eq!((cpu.ways[0], cpu.ratios.clone()), (expected, vec![Some(1.0), Some(2.0)]));
    assert_eq!(metric(&comparison, "ram").ratios, [Some(1.0), Some(0.5)]);
    assert_eq!(comparison.commands[0].metrics[0].ratios, [Some(1.0), Some(1.0)]);
}

#[test]
fn run_without_a_name_is_a_way_by_itself_called_by_its_command_or_file() {
    let unnamed = |file: &str, report| Run { name: None, file: file.into(), report };
    let comparison = compare(&[
        unnamed("old.json", full()),
        unnamed("killed.json", killed()),
        unnamed("new.json", full()),
    ]);
    let names: Vec<&str> = comparison.ways.iter().map(|way| way.name.as_str()).collect();
    assert_eq!(names, ["old.json", &killed().command.join(" "), "new.json"]);
    // A run whose name is the command line of another is no run of that.
    let line = killed().command.join(" ");
    let named = Run { name: Some(line.clone()), file: "new.json".into(), report: full() };
    for runs in [[unnamed("old.json", killed()), named.clone()], [named, unnamed("old.json", killed())]] {
        let mut names: Vec<String> = compare(&runs).ways.into_iter().map(|way| way.name).collect();
        names.sort();
        assert_eq!(names, ["old.json", line.as_str()]);
    }
    let remarks = comparison.remarks.join("\n");
    assert!(remarks.contains("not succeed") || remarks.contains("so far"), "{remarks}");
}

#[test]
fn unknown_figure_is_said_and_never_within_a_limit() {
    let comparison = compare(&[run("a", Some(1.0), 100), run("b", None, 106), run("b", Some(1.0), 106)]);
    let cpu = metric(&comparison, "cpu");
    assert_eq!((cpu.ways[1].known, cpu.ways[1].mean), (1, Some(1.0)));
    assert!(text(&comparison).contains("(1 of 2)"), "{}", text(&comparison));
    let limit = |metric, percent| Limit { metric, percent };
    let lines = exceeded(&comparison, &[limit("cpu", 50.0), limit("ram", 5.0), limit("gpu_energy", 5.0)]);
    assert_eq!(
        lines,
        [
            "cpu of b can't be compared: it is not known in all runs",
            "ram of b is 6.0% above that of a; 5% are allowed",
            "gpu_energy of b can't be compared: it is not known in all runs",
        ]
    );
    assert_eq!(exceeded(&comparison, &[limit("ram", 6.5)]), [""; 0]);
}

#[test]
fn quantity_that_is_0_in_the_first_way_is_said_and_0_is_not_above_it() {
    let comparison = compare(&[run("a", Some(0.0), 0), run("b", Some(0.0), 5)]);
    let limits = ["cpu", "ram"].map(|metric| Limit { metric, percent: 5.0 });
    assert_eq!(exceeded(&comparison, &limits), ["ram of b can't be compared: it is 0 in all runs of a"]);
}

#[test]
fn text_has_a_column_for_each_way() {
    let runs = [run("first", Some(1.0), 100_000_000), run("second", Some(1.5), 50_000_000)];
    let text = text(&compare(&runs));
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0].split_whitespace().collect::<Vec<_>>(), ["first", "second"]);
    assert!(
        lines.iter().any(|line| line.starts_with("CPU time") && line.ends_with("1.50 s  x 1.50")),
        "{text}"
    );
    assert!(
        lines.iter().any(|line| line.starts_with("RAM peak") && line.ends_with("50.0 MB  x 0.50")),
        "{text}"
    );
}

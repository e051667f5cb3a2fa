//! `series` of the report: the run over time.

use serde_json::Value;

use crate::support::report::assert_within;
use crate::support::{Run, tracked};

/// A staircase of RAM and CPU: with each step 40 MiB more, and every second step busy. It prints for each step when it began and
/// ended on the wall clock, what the kernel says that it holds, and the CPU time that it used.
const STAIRCASE: &str = "
import json, time
held, steps = [], []
for number in range(4):
    held.append(bytearray(40 << 20))
    held[-1][::4096] = b'x' * len(range(0, 40 << 20, 4096))
    begin, cpu = time.time(), time.process_time()
    while time.time() < begin + 0.6:
        if number % 2 == 0: time.sleep(0.01)
    rss = int(open('/proc/self/statm').read().split()[1]) * 4096
    steps.append([begin, time.time(), rss, time.process_time() - cpu])
print(json.dumps(steps))
";

/// A point of a quantity: its begin and end, seconds after the command's start, and smallest, mean and largest value.
struct Point {
    start_s: f64,
    end_s: f64,
    min: Option<f64>,
    mean: Option<f64>,
    max: Option<f64>,
}

fn points(run: &Run, quantity: &str) -> Vec<Point> {
    let report = run.report();
    let list = |key: &str| -> Vec<Option<f64>> {
        report.array(&format!("series.{key}")).iter().map(Value::as_f64).collect()
    };
    let [starts, ends] = [list("start_s"), list("end_s")];
    let [min, mean, max] = ["min", "mean", "max"].map(|value| list(&format!("{quantity}.{value}")));
    let point = |at: usize| Point {
        start_s: starts[at].unwrap(),
        end_s: ends[at].unwrap(),
        min: min[at],
        mean: mean[at],
        max: max[at],
    };
    (0..starts.len()).map(point).collect()
}

fn length_s(point: &Point) -> f64 {
    point.end_s - point.start_s
}

/// The CPU time that the points from one time to another have, and how much of it may be from outside, seconds.
fn cpu_between(points: &[Point], start_s: f64, end_s: f64) -> (f64, f64) {
    let inside = |point: &Point| point.end_s.min(end_s) - point.start_s.max(start_s);
    let (mut sum_s, mut unsure_s) = (0.0, 0.0);
    for point in points.iter().filter(|point| inside(point) > 0.0) {
        let cpu_s = point.mean.unwrap_or(0.0) / 100.0 * length_s(point);
        sum_s += cpu_s;
        if inside(point) < length_s(point) {
            unsure_s += length_s(point).max(cpu_s);
        }
    }
    (sum_s, unsure_s)
}

// Requirement: TIME-7
#[test]
fn staircase_of_ram_and_cpu_is_reproduced_within_one_interval() {
    let run = tracked(["python3", "-c", STAIRCASE]).options(&["--st", "0.05"]).run();
    assert_eq!(run.status.code(), Some(0));
    let steps: Vec<[f64; 4]> = serde_json::from_str(&run.stdout).unwrap();
    let began = humantime::parse_rfc3339(run.report().at("started_at").as_str().unwrap()).unwrap();
    let began_s = began.duration_since(std::time::UNIX_EPOCH).unwrap().as_secs_f64();
    let (ram, cpu) = (points(&run, "ram_bytes.combined"), points(&run, "cpu_percent.combined"));
    for [begin, end, rss_bytes, cpu_s] in steps {
        let (begin_s, end_s) = (begin - began_s, end - began_s);
        // Times of the report are exact to a millisecond.
        let steady = |point: &&Point| point.start_s >= begin_s + 0.001 && point.end_s <= end_s - 0.001;
        // A sample that begins within the step shows its RAM at its end, too.
        let mut within = ram.iter().filter(steady).peekable();
        assert!(within.peek().is_some(), "no point between {begin_s} and {end_s}: {}", run.report());
        for point in within {
            for value in [point.min, point.mean, point.max] {
                assert_within("RAM of a step", value.unwrap(), rss_bytes, 3.0);
            }
        }
        let (ours_s, unsure_s) = cpu_between(&cpu, begin_s, end_s);
        assert!(
            (ours_s - cpu_s).abs() <= unsure_s + 0.02 * cpu_s + 0.02,
            "{ours_s} s of CPU time, {unsure_s} s of it unsure, {cpu_s} s by its own clock: {}",
            run.report()
        );
    }
}

// Requirement: TIME-7
#[test]
fn integral_of_cpu_is_the_cpu_time_of_a_run_of_milliseconds() {
    let run = tracked(["/bin/true"]).run();
    let points = points(&run, "cpu_percent.combined");
    let sum_s: f64 = points.iter().map(|point| point.mean.unwrap_or(0.0) / 100.0 * length_s(point)).sum();
    assert_within("integral of CPU", sum_s, run.report().f64("cpu_time.total_s"), 1.0);
    let largest = points.iter().filter_map(|point| point.max).fold(0.0, f64::max);
    assert_within("largest CPU", largest, run.report().f64("cpu.combined.max_sum_percent"), 1.0);
}

// Requirement: TIME-7
#[test]
fn integral_of_cpu_is_the_cpu_time_also_of_processes_shorter_than_an_interval() {
    let job = "for i in 1 2 3 4 5 6; do python3 -c 'for i in range(3_000_000): pass'; done";
    let run = tracked(["sh", "-c", job]).options(&["--st", "0.5"]).run();
    let points = points(&run, "cpu_percent.combined");
    let sum_s: f64 = points.iter().map(|point| point.mean.unwrap_or(0.0) / 100.0 * length_s(point)).sum();
    assert_within("integral of CPU", sum_s, run.report().f64("cpu_time.total_s"), 1.0);
    let mean_s = |means: &Value| -> f64 {
        let means = means.as_array().unwrap().iter().zip(&points);
        means.map(|(mean, point)| mean.as_f64().unwrap() / 100.0 * length_s(point)).sum()
    };
    // A process counts under the name that it has just then.
    let commands = run.report().array("series.commands");
    let listed_s: f64 = commands.iter().map(|command| mean_s(&command["mean_cpu_percent"])).sum();
    // `python3` can be a script that starts others.
    let others = run.report().at("series.other_commands");
    let sum_s = listed_s + if others.is_null() { 0.0 } else { mean_s(&others["mean_cpu_percent"]) };
    assert_within("integral of all commands' CPU", sum_s, run.report().f64("cpu_time.total_s"), 1.0);
    assert!(commands.iter().any(|command| command["command"] == "python3"), "{}", run.report());
}

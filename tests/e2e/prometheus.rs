//! `-o FILE.prom`: the report for node_exporter's textfile collector.

use std::path::Path;

use crate::support::gpu::{FakeGpus, GPU0};
use crate::support::wait_until;

/// The value of the only line that begins with the metric and has this part. `None`: there is none.
fn value(text: &str, metric: &str, part: &str) -> Option<f64> {
    let is_it = |line: &&str| line.starts_with(&format!("gpu_track_{metric}{{")) && line.contains(part);
    let mut found = text.lines().filter(is_it);
    let line = found.next()?;
    assert!(found.next().is_none(), "several lines of {metric} have {part}: {text}");
    line.rsplit_once(' ').unwrap().1.parse().ok()
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap()
}

// Requirement: OUT-40
#[test]
fn file_is_rewritten_while_the_command_runs_and_ends_with_the_reports_figures() {
    let gpus = FakeGpus::new(1, "0.samples ring 100 20000 37");
    let path = gpus.directory().join("run.prom");
    let stop = gpus.path("stop");
    // The file of an earlier run is replaced soon.
    std::fs::write(&path, "old").unwrap();
    let running = gpus
        .tracked(gpus.words(&["sampled", "hold:0:500000000,c", &format!("wait:{stop}")]))
        .options(&["-o", path.to_str().unwrap()])
        .start();
    wait_until("a report so far with the process", || {
        value(&read(&path), "gpu_memory_run_bytes", GPU0).is_some_and(|bytes| bytes > 0.0)
    });
    let first = read(&path);
    assert_eq!(value(&first, "stage", "stage=\"so_far\""), Some(1.0), "{first}");
    assert_eq!(value(&first, "gpu_memory_used_max_bytes", GPU0), Some(1e9));
    assert_eq!(value(&first, "gpu_memory_run_max_bytes", GPU0), Some(5e8));
    assert!(value(&first, "ram_bytes", "set=\"combined\"").is_some_and(|bytes| bytes > 0.0), "{first}");
    assert_eq!(value(&first, "exit_code", ""), None, "it runs");
    let wall_s = value(&first, "wall_seconds", "").unwrap();
    wait_until("a later one", || value(&read(&path), "wall_seconds", "").is_some_and(|s| s > wall_s));
    std::fs::write(stop, "").unwrap();
    let run = running.wait();
    let (report, last) = (run.assert_clean(0), read(&path));
    assert_eq!(value(&last, "stage", "stage=\"final\""), Some(1.0));
    for (metric, part, key) in [
        ("ram_max_bytes", "set=\"main\"", "max_ram.main.total_rss"),
        ("ram_max_bytes", "set=\"combined\"", "max_ram.combined.total_rss"),
        ("cpu_seconds_total", "", "cpu_time.total_s"),
        ("wall_seconds", "", "wall_s"),
        ("processes_total", "", "processes.total"),
        ("exit_code", "", "exit.code"),
    ] {
        assert_eq!(value(&last, metric, part), Some(report.f64(key)), "{metric}: {last}");
    }
    let max = report.gpu(GPU0).f64("utilization.max_percent");
    assert_eq!(value(&last, "gpu_utilization_max_ratio", GPU0), Some(max / 100.0));
    assert_eq!(value(&last, "ram_bytes", ""), None, "nothing runs any more");
    let labels = format!("command=\"gpu\",file=\"{}\"", path.file_stem().unwrap().to_str().unwrap());
    let samples = last.lines().filter(|line| !line.starts_with('#'));
    assert!(samples.clone().count() > 15 && samples.clone().all(|line| line.contains(&labels)), "{last}");
}

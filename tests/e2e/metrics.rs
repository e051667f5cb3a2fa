//! Metrics that a program tells, beside its figures: `gpu-track metrics`, and `--metrics` of `gpu-track report`.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use crate::python_module::{module, python};
use crate::support::gpu::{FakeGpus, GPU1};
use crate::support::or_skip;
use crate::support::run::BINARY;

fn companion(arguments: &[&str]) -> Output {
    let command = &mut Command::new(env!("CARGO_BIN_EXE_gpu-track"));
    command.args(arguments).stdin(Stdio::null()).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// What `gpu-track` prints as JSON, without a message.
fn json(arguments: &[&str]) -> Value {
    let done = companion(&[arguments, &["-f", "json"]].concat());
    assert_eq!((done.status.code(), text(&done.stderr)), (Some(0), String::new()));
    serde_json::from_slice(&done.stdout).unwrap()
}

/// A process tells what PyTorch has of its memory, as `gpu_track.torch_metrics()` does, and holds 2 GB by the driver's count.
// Requirement: GPU-87
#[test]
fn memory_of_pytorch_stands_beside_what_the_driver_counts() {
    let gpus = FakeGpus::new(2, "");
    let metrics = gpus.path("m.csv");
    let told = [("allocated", 300), ("reserved", 1500), ("inactive_split", 900)];
    let tell = |(name, mb)| format!("echo $$,torch_cuda3_{name}_bytes,$at,{mb}000000 >> {metrics}; ");
    let head = format!("at=$(date +%s.%N); echo process_id,name,timestamp,value > {metrics}; ");
    let line = head + &told.map(tell).concat() + "exec " + &gpus.line(&["hold:1:2000000000,c", "sampled"]);
    let run = gpus
        .tracked(["sh", "-c", &line])
        .options(&["--summary"])
        .with(move |command| command.env("GPU_TRACK_METRICS", metrics))
        .run();
    assert_eq!(run.status.code(), Some(0), "{}", run.stderr);
    let report = run.report();
    let gpu = report.gpu(GPU1);
    let expected = serde_json::json!({
        "live_bytes": 300_000_000, "reserved_bytes": 1_500_000_000, "fragmented_bytes": 900_000_000,
        "most_context_bytes": 500_000_000
    });
    assert_eq!(gpu.array("processes")[0]["torch"], expected);
    let text = &run.stderr;
    assert!(text.contains("GPU 1: PyTorch reserved 1,500,000,000 B"), "{text}");
    assert!(text.contains("GPU 1: 60 % of what PyTorch reserved is free parts of blocks in use"), "{text}");
    // Without the variable nothing is read.
    let run = gpus.run(&["hold:1:2000000000,c", "sampled"]);
    assert!(run.assert_clean(0).gpu(GPU1).array("processes")[0]["torch"].is_null());
}

/// A program holds GPU memory. Before that it tells a loss of 4, and afterwards one of 1.
// Requirement: PY-25, PY-26, PY-28
#[test]
fn loss_stands_beside_the_gpu_memory_of_its_time() {
    let python = or_skip!(python(&[])).join(" ");
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let [metrics, lines, rows, report, page] = ["m.csv", "t.jsonl", "t.csv", "r.json", "r.html"].map(path);
    let gpus = FakeGpus::new(1, "");
    let tell = |loss: u32| format!("{python} -B -c 'import gpu_track; gpu_track.metric(\"loss\", {loss})'");
    let program = gpus.line(&["hold:0:2000000000,c", "sampled", "sampled"]);
    let line = format!("{}; {program}; {}", tell(4), tell(1));
    let variables =
        [("GPU_TRACK_METRICS", metrics.clone()), ("PYTHONPATH", module().to_str().unwrap().to_owned())];
    let files = ["--tf", &lines, "--tf", &rows, "-o", &report];
    gpus.tracked(["sh", "-c", &line])
        .options(&files)
        .with(|command| command.envs(variables))
        .run()
        .assert_clean(0);

    // Two processes told it, so each has a row and a column.
    let told = json(&["metrics", &metrics]);
    let told = told["metrics"].as_array().unwrap();
    let figure = |key: &str| told.iter().map(|row| row[key].as_f64().unwrap()).sum::<f64>();
    assert_eq!((told.len(), figure("count"), figure("last"), figure("mean")), (2, 2.0, 5.0, 5.0), "{told:?}");
    for (file, memory) in [
        (&lines, "gpu0_memory_run_bytes"),
        (&rows, "gpus_memory_run_bytes"),
        (&report, "gpu0_memory_run_bytes"),
    ] {
        let shown = companion(&["report", file, "--every", "0.01", "--metrics", &metrics, "-f", "json"]);
        let shown: Value = serde_json::from_slice(&shown.stdout).unwrap();
        let points = shown["points"].as_array().unwrap();
        let columns: Vec<String> =
            told.iter().map(|row| format!("metric_pid{}_loss", row["process_id"])).collect();
        let with_memory: Vec<&Value> = points.iter().filter(|point| point[memory] == 2e9).collect();
        assert!(!with_memory.is_empty(), "{file}: {points:?}");
        let losses = |point: &Value| -> Vec<Option<f64>> {
            columns.iter().map(|column| point[column].as_f64()).collect()
        };
        for point in with_memory {
            assert_eq!(losses(point).into_iter().flatten().collect::<Vec<_>>(), [4.0], "{file}: {point}");
        }
        let last = losses(points.last().unwrap());
        assert_eq!(last.into_iter().flatten().sum::<f64>(), 5.0, "{file}");
    }
    let drawn = companion(&["report", &report, "--metrics", &metrics, "-o", &page]);
    assert_eq!((drawn.status.code(), text(&drawn.stderr)), (Some(0), String::new()));
    let page = fs::read_to_string(&page).unwrap();
    assert_eq!(page.matches("aria-label=\"loss of ").count(), 2, "{page}");
}

// Requirement: PY-25, PY-26, PY-27
#[test]
fn metrics_that_can_not_be_shown_are_refused_in_one_line() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let [metrics, marks, report] = ["m.csv", "marks.csv", "r.json"].map(&path);
    fs::write(&metrics, "process_id,name,timestamp,value\n7,loss,1.5,0.25\n7,lo").unwrap();
    fs::write(&marks, "process_id,code_block_name,position,timestamp\n").unwrap();
    let run = Command::new(BINARY).args(["-q", "-o", &report, "--", "true"]).status().unwrap();
    assert!(run.success() && Path::new(&report).is_file());
    for (arguments, status, line) in [
        (&["metrics", "/nowhere"][..], 2, "\"/nowhere\" cannot be read: No such file"),
        (&["metrics"], 2, "<FILE>... is missing"),
        (&["metrics", &marks], 2, &format!("\"{marks}\" is no file of metrics: it has no column \"name\"")),
        (&["metrics", &metrics], 0, &format!("\"{metrics}\" ends within a line: that line is left out")),
        (
            &["metrics", &metrics, "-o", &path("")],
            2,
            &format!("--output: \"{}\" is a directory: name a file in it", path("")),
        ),
        (&["report", &report, "--metrics", &metrics], 2, "--metrics: a report has none: give --every"),
        (&["report", &report, "--metrics", &metrics, "--list-events"], 2, "the argument '--metrics <FILE>'"),
        (&["report", &report, "--metrics", "/nowhere", "-f", "html"], 2, "\"/nowhere\" cannot be read: "),
    ] {
        let done = companion(arguments);
        let stderr = text(&done.stderr);
        assert_eq!(
            (done.status.code(), stderr.lines().count()),
            (Some(status), 1),
            "{arguments:?}: {stderr}"
        );
        assert!(stderr.starts_with(&format!("gpu-track: {line}")), "{arguments:?}: {stderr}");
    }
    let on_stdout = companion(&["metrics", "-o", "-", &metrics]).stdout;
    assert_eq!(text(&on_stdout), text(&companion(&["metrics", &metrics]).stdout));
    assert!(text(&on_stdout).contains("loss"), "{}", text(&on_stdout));
    let other = companion(&["report", &report, "--every", "1", "--metrics", &metrics, "-f", "csv"]);
    assert!(text(&other.stderr).contains("gpu-track: no metric is of the time of this run\n"), "{other:?}");
    assert!(!text(&other.stdout).contains("metric_"), "{other:?}");
}

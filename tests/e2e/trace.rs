//! `--tf FILE.pftrace`, read with Perfetto's own classes. scripts/lib/gpu_track_scripts/trace.py says what is wrong with a file.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::support::gpu::FakeGpus;
use crate::support::rows::JsonLines;
use crate::support::trace::{Kind, Trace};
use crate::support::{Run, or_skip, program, tracked};
use crate::tracking_file::JOB;

/// A Python that has the package `perfetto`.
fn python() -> Result<PathBuf, &'static str> {
    let path = std::env::var_os("GPU_TRACK_TEST_PERFETTO");
    path.map(PathBuf::from).ok_or("PyPI's perfetto is not installed (scripts/test)")
}

/// What the reader finds in a trace of this run.
fn found(python: &Path, trace: &Path, run: &Run) -> Value {
    let report = trace.with_extension("report");
    std::fs::write(&report, run.report().0.to_string()).unwrap();
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/lib");
    let read = Command::new(python)
        .args(["-B", "-m", "gpu_track_scripts.trace"])
        .args([trace, &report])
        .env("PYTHONPATH", scripts)
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&read.stderr);
    let found: Value =
        serde_json::from_slice(&read.stdout).unwrap_or_else(|error| panic!("{error}: {stderr}"));
    assert_eq!(read.status.success(), found["problems"] == serde_json::json!([]), "{stderr}");
    found
}

/// Reads a trace, in which nothing may be wrong, and nothing other than in the report.
#[track_caller]
fn read(python: &Path, trace: &Path, run: &Run) -> Value {
    let found = found(python, trace, run);
    assert_eq!(found["problems"], serde_json::json!([]));
    found
}

// Requirement: TIME-20
#[test]
fn trace_has_each_process_of_the_lines_and_the_largest_values_of_the_report() {
    let python = or_skip!(python());
    let directory = tempfile::tempdir().unwrap();
    let [trace, lines] = ["t.pftrace", "t.jsonl"].map(|name| directory.path().join(name));
    let files = ["--tf", trace.to_str().unwrap(), "--tf", lines.to_str().unwrap()];
    let run = tracked(["python3", "-c", JOB]).options(&["--st", "0.1"]).options(&files).run();
    run.assert_clean(0);
    let (found, lines) = (read(&python, &trace, &run), JsonLines::read(&lines));
    assert_eq!(found["rows"], serde_json::json!(lines.keys()));
    let processes = lines.of("process");
    for slice in found["processes"].as_array().unwrap() {
        let is_it = |process: &&&Value| {
            (&process["pid"], &process["start_ns"]) == (&slice["pid"], &slice["start_ns"])
        };
        let process = processes.iter().find(is_it).unwrap_or_else(|| panic!("{slice}"));
        for (name, key) in [
            ("name", "command"),
            ("parent pid", "ppid"),
            ("CPU time (s)", "cpu_s"),
            ("peak RSS (bytes)", "peak_rss_bytes"),
        ] {
            assert_eq!(slice[name], process[key], "{name}");
        }
        assert_eq!(
            [&slice["exit code"], &slice["signal"]],
            [&process["exit"]["code"], &process["exit"]["signal"]]
        );
        let wall_s = (slice["end_ns"].as_f64().unwrap() - slice["start_ns"].as_f64().unwrap()) / 1e9;
        assert!((wall_s - process["wall_s"].as_f64().unwrap()).abs() < 1e-6, "{slice}");
        // They are not known of each.
        let [shown, first] = [&slice["arguments"], &process["args"][0]].map(Value::as_str);
        assert!(
            shown.zip(first).map_or(shown == first, |(shown, first)| shown.starts_with(first)),
            "{slice}"
        );
    }
    let [end] = &found["ends"].as_array().unwrap()[..] else { panic!("{}", found["ends"]) };
    assert_eq!(end["exit code"], 0);
    assert_eq!(end["max RAM (bytes)"], *run.report().at("max_ram_bytes.combined.total_rss"));
}

// Requirement: TIME-20
#[test]
fn counters_of_each_gpu_have_the_reports_maxima() {
    let python = or_skip!(python());
    let gpus = FakeGpus::new(2, "*.samples 500000:0\n*.process_times");
    let changes = "0.memory_used 3000000000\n0.samples 500001:0 1500001:80 2500001:40\n0.power 250000\n\
                   1.samples 500001:0 1500001:0";
    let busy = format!("script:{}", gpus.script("busy", changes));
    let (directory, hold) = (tempfile::tempdir().unwrap(), "hold:0:2000000000,c,60");
    let trace = directory.path().join("t.pftrace");
    let words = gpus.words(&["sampled", hold, &busy, "sampled", "hold:1:500000000,c", "sampled"]);
    let run = gpus.tracked(words).options(&["--tf", trace.to_str().unwrap()]).run();
    run.assert_clean(0);
    let found = read(&python, &trace, &run);
    let counters = found["counters"].as_object().unwrap();
    let of_gpus = counters.iter().filter(|(name, _)| name.starts_with("GPU "));
    let of_gpus: Vec<&Value> = of_gpus.map(|(_, counters)| counters).collect();
    assert_eq!(of_gpus.len(), 2, "{counters:?}");
    for counters in of_gpus {
        assert_eq!(counters.as_object().unwrap().len(), 6, "{counters}");
    }
}

// Requirement: TIME-20
#[test]
fn processes_one_after_another_share_a_track_and_a_process_takes_200_bytes_at_most() {
    let python = or_skip!(python());
    let directory = tempfile::tempdir().unwrap();
    let trace = directory.path().join("t.pftrace");
    // Of the shells, each waits for the next.
    let job = format!("for i in $(seq 200); do {0}; done; sh -c 'sh -c \"{0}; :\"; :'; :", program("touch"));
    let run = tracked(["sh", "-c", &job]).options(&["--st", "1000", "--tf", trace.to_str().unwrap()]).run();
    let total = run.assert_clean(0).u64("processes.total");
    let found = read(&python, &trace, &run);
    let processes = found["processes"].as_array().unwrap();
    let tracks = |name: &str| {
        let of_name = processes.iter().filter(|process| process["name"] == name);
        of_name.map(|process| process["track"].as_u64()).collect::<BTreeSet<_>>().len()
    };
    assert_eq!((total, tracks("sh")), (205, 3));
    // Figures of some become final after those of later ones.
    assert!(tracks("touch") <= 20, "{} tracks", tracks("touch"));
    assert!(found["bytes"].as_u64().unwrap() < total * 200, "{} for {total}", found["bytes"]);
}

#[test]
fn reader_finds_what_is_missing_in_a_trace() {
    let python = or_skip!(python());
    let directory = tempfile::tempdir().unwrap();
    let trace = directory.path().join("t.pftrace");
    let run = tracked(["/bin/true"]).options(&["--tf", trace.to_str().unwrap()]).run();
    read(&python, &trace, &run);
    let packets = Trace::packets(&trace);
    for (kind, problem) in [
        (Kind::First, "needs texts of a sequence that has not begun"),
        (Kind::Track, "is below one that nothing declares"),
        (Kind::Begin, "0 processes, and 1 in the report"),
        (Kind::End, "a slice has no end"),
    ] {
        let place = packets.iter().position(|(one, _)| *one == kind).unwrap();
        let others = packets.iter().enumerate().filter(|(at, _)| *at != place);
        std::fs::write(&trace, others.flat_map(|(_, (_, bytes))| bytes.clone()).collect::<Vec<u8>>())
            .unwrap();
        let problems = found(&python, &trace, &run)["problems"].to_string();
        assert!(problems.contains(problem), "{kind:?} is missing: {problems}");
    }
}

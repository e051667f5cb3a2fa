//! gpu-track-run under gpu-track-run writes two reports, each for its own tree.

use std::path::Path;

use crate::support::report::Report;
use crate::support::run::BINARY;
use crate::support::truth::KernelRecorder;
use crate::support::{program, tracked};

// Requirement: SEE-14
#[test]
fn nested_runs_each_report_their_own_tree() {
    let directory = tempfile::tempdir().unwrap();
    let inner_file = directory.path().join("inner.json");
    let script = format!("{} 0.5; /bin/true; exit 4", program("burn"));
    let inner = [BINARY, "-f", "json", "-o", inner_file.to_str().unwrap(), "--", "sh", "-c", &script];
    let recorder = KernelRecorder::open();
    let run = match &recorder {
        Ok(recorder) => tracked(recorder.wrap(inner)).run(),
        Err(_) => tracked(inner).run(),
    };
    let outer = run.assert_clean(4);
    let inner = Report(serde_json::from_slice(&std::fs::read(&inner_file).unwrap()).unwrap());
    inner.assert_all_exact(3);
    inner.assert_cpu_between(0.5, 0.1);
    assert_eq!(inner.at("exit.code"), 4);
    // The inner launcher and its collector are processes of the outer tree, too.
    let total = outer.u64("processes.total");
    match recorder {
        Ok(recorder) => assert_eq!(total, recorder.close().processes()),
        Err(_) => assert!(total >= 4, "the inner launcher and its three processes, not {total}"),
    }
    // Two launchers and a collector, in a build without optimization.
    outer.assert_cpu_between(0.5, 0.6);
    assert_eq!(outer.command("burn").unwrap()["count"], 1);
}

// Requirement: SEE-14, SEE-37
#[test]
fn companion_is_left_out_of_the_run_that_it_is_in() {
    let companion = Path::new(BINARY).with_file_name("gpu-track");
    let script = format!("{0} gpus >/dev/null; {0} run -q -- /bin/true; exit 0", companion.display());
    for layers in ["preload,wait,subreaper,scan", "preload,wait,subreaper,scan,connector"] {
        let run = tracked(["sh", "-c", &script]).options(&["--layers", layers]).run();
        let report = run.assert_clean(0);
        assert!(report.command("gpu-track gpus").is_none(), "it only shows something");
        assert!(report.u64("coverage.helpers") >= 1, "it starts a lister of GPUs, too");
        assert_eq!(report.command("true").unwrap()["count"], 1, "the companion runs that");
    }
}

//! gpu-track-run under gpu-track-run writes two reports, each for its own tree.

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

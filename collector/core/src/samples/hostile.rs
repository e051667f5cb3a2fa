//! A report full of names that a terminal must not get.

use super::full;
use crate::model::report::Report;
use crate::model::report::*;
use crate::model::report::{Cause, DeadProcess, FatalSignal};
use crate::model::signal::Sender;

/// Makes a report whose names contain control characters, or are too long for a table.
pub fn hostile() -> Report {
    let evil = "evil\x1b]0;title\x07\r\n\u{202e}gpj\u{9b}2J";
    let mut report = full();
    report.command = vec![
        evil.into(),
        String::new(),
        "it's".into(),
        "x".repeat(100_000),
        "\u{fffd}not utf-8".into(),
        "last".into(),
    ];
    report.host.hostname = Some("node\x1b[31m".into());
    report.processes.still_running_processes[0].command = evil.into();
    report.processes.by_command.truncate(2);
    report.processes.by_command[0].command = evil.into();
    report.processes.by_command[1].command = "数据 \"quoted\" ".repeat(12);
    report.processes.heaviest[0].usage.args = Some(vec![evil.into(), "tab\there".into(), "y".repeat(300)]);
    report.processes.heaviest[1].usage.command = evil.into();
    report.coverage.static_executables = vec!["/tmp/new\nline: 7".into(), "/z".repeat(80)];
    report.coverage.records_untrusted = Some(format!("told of {evil}"));
    report.warnings =
        vec![Warning::new(Topic::Tracking, evil.into()), Warning::new(Topic::Figures, "word ".repeat(60))];
    report.peak.as_mut().expect("a full report has it").processes[0].command = evil.into();
    report.series.file_systems[0].directories[0].path = format!("/home/{evil}");
    report.cpu_time.kernel_s = None;
    report.cpu_time.kernel_s_reason = Some(evil.into());
    report.hints.gpus =
        Some(GpusHint { count: 1, given: 2, is_fitting: false, held_idle: vec![evil.into()] });
    report.hints.gpu_memory = Some(GpuMemoryHint {
        bytes: 14 << 30,
        basis_bytes: 12_000_000_000,
        device: evil.into(),
        capacity_bytes: Some(85_899_345_920),
        is_fitting: false,
    });
    report.hints.gpu_memory_reason = None;
    report.ending.exit = Exit { code: None, signal: Some(11) };
    report.ending.cause = Some(Cause::Signal(FatalSignal {
        process: DeadProcess {
            pid: 4242,
            command: evil.into(),
            args: Some(vec![evil.into(), "y".repeat(300)]),
            is_main: true,
            exit: report.ending.exit,
            at_s: 83.25,
            peak_rss_bytes: None,
            cpu_s: None,
        },
        signal: 11,
        signal_name: "SIGSEGV".into(),
        sender: Some(Sender { pid: Some(7), uid: 0, command: Some(evil.into()) }),
    }));
    report
}

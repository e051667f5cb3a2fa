//! The summary of ten kinds of run, and what holds for that of any run.

use proptest::prelude::*;

use super::compare;
use crate::model::quality::Quality;
use crate::model::report::*;
use crate::model::style::{Console, RamUnit, Style, TimeUnit};
use crate::{quote, text};
use gpu_track_core::fixtures::{causes, full, hostile, killed, over_time, unknown};
use gpu_track_core::random_seed::seeded;

const MB: u64 = 1_000_000;

/// `golden!(report, style, "name")` checks the summary of a report.
macro_rules! golden {
    ($report:expr, $style:expr, $name:literal) => {{
        let golden = include_str!(concat!("../../../../tests/golden/summary_", $name, ".txt"));
        compare(&text::text(&$report, &$style), concat!("summary_", $name, ".txt"), golden);
    }};
}

fn command(command: &str, count: u64, cpu_s: f64, peak_bytes: u64, wall_s: f64) -> CommandUsage {
    CommandUsage {
        command: command.into(),
        count,
        cpu_s: Some(cpu_s),
        peak_rss_bytes: Some(peak_bytes),
        wall_s,
        calls: None,
        gpu: None,
    }
}

fn ended(mut report: Report, code: Option<i32>, signal: Option<i32>) -> Report {
    report.ending.exit = Exit { code, signal };
    report
}

/// All processes are known exactly, and there is nothing to warn of.
fn exact(mut report: Report, processes: u64) -> Report {
    report.processes.total = processes;
    report.processes.max_concurrent = report.processes.max_concurrent.map(|most| most.min(processes));
    report.processes.still_running = Some(0);
    report.processes.still_running_processes.clear();
    let peaks = Peaks { exact: processes, ..Peaks::default() };
    report.coverage = Coverage { processes, exact: processes, peaks, ..Coverage::default() };
    report.warnings.clear();
    report
}

/// A build that succeeds on a machine without a GPU.
fn build() -> Report {
    let mut report = exact(full(), 26);
    report.command = ["make", "-s", "-j4"].map(str::to_owned).to_vec();
    report.wall_s = 3.184;
    report.processes.max_concurrent = Some(9);
    report.processes.by_command = vec![
        command("cc1plus", 8, 4.124, 85_900_000, 8.44),
        command("as", 8, 0.032, 4_800_000, 0.071),
        command("make", 1, 0.006, 2_500_000, 3.18),
        command("sh", 9, 0.004, 2_100_000, 1.0),
    ];
    report.cpu_time.total_s = Some(4.184);
    report.cpu_time.usable_percent = Some(65.7);
    report.usable.cores = UsableCores { count: 2.0, source: CoresSource::Machine };
    report.usable.memory.bytes = report.host.ram_bytes;
    report.usable.memory.source = Some(MemorySource::Machine);
    report.max_ram.combined.footprint_bytes = Some(271_400_000);
    report.mean_ram_bytes.combined = Some(152e6);
    report.series = over_time(3.184, 271_400_000);
    report.io = Io {
        read_bytes: Some(0),
        write_bytes: Some(307_200),
        cancelled_write_bytes: Some(0),
        ..Io::default()
    };
    report.peak = Some(peak(2.1, &[("cc1plus", 3, 85_700_000), ("sh", 4, 2_100_000), ("as", 1, 4_800_000)]));
    report.hints.cpus = report.hints.cpus.map(|cpus| CpusHint { count: 2, is_fitting: false, ..cpus });
    report
}

fn peak(at_s: f64, holders: &[(&str, u64, u64)]) -> Peak {
    let by_command = holders.iter().map(|(command, count, each_bytes)| CommandHolders {
        command: (*command).to_owned(),
        count: *count,
        added_bytes: count * each_bytes,
    });
    let footprint_bytes = by_command.clone().map(|command| command.added_bytes).sum();
    Peak {
        at_s,
        footprint_bytes,
        processes: Vec::new(),
        by_command: by_command.collect(),
        other_commands: None,
    }
}

/// One process that ended within a sampling interval.
fn short() -> Report {
    let mut report = exact(build(), 1);
    report.command = vec!["true".into()];
    report.wall_s = 0.0204;
    report.processes.by_command = vec![command("true", 1, 0.0007, 1_950_000, 0.02)];
    report.cpu_time.total_s = Some(0.000_68);
    report.cpu_time.usable_percent = Some(1.67);
    report.max_ram.combined.footprint_bytes = Some(1_950_000);
    report.series = Series::default();
    report.peak = Some(peak(0.001, &[("true", 1, 1_950_000)]));
    report.io =
        Io { read_bytes: Some(0), write_bytes: Some(0), cancelled_write_bytes: Some(0), ..Io::default() };
    report.hints.withheld = Some("the run took less than 1 s".into());
    report
}

/// A pool of workers of which some crashed.
fn crashed() -> Report {
    let crash = |signal: i32, name: &str, command: &str, count| Crash {
        command: Some(command.to_owned()),
        signal,
        signal_name: name.into(),
        count,
        is_probe: command == "conftest",
        places: Vec::new(),
    };
    let crashes = vec![
        crash(9, "SIGKILL", "python3 worker.py", 3),
        crash(11, "SIGSEGV", "solve", 1),
        crash(6, "SIGABRT", "conftest", 12),
    ];
    Report { crashes: Some(crashes), ..build() }
}

/// A training run that used one of two GPUs.
fn on_gpus() -> Report {
    let mut report = Report { crashes: Some(Vec::new()), ..exact(killed(), 5) };
    report.command = ["python3", "train.py", "--epochs", "10"].map(str::to_owned).to_vec();
    report.ending = Ending { exit: Exit { code: Some(0), signal: None }, ..Ending::default() };
    report.series = over_time(report.wall_s, 21_000_000_000);
    report.gpus[0].memory.max_combined_bytes = Some(61_200_000_000);
    report.gpus[1] =
        GpuDevice { id: "GPU-2".into(), visible: Some(true), used: Some(false), ..GpuDevice::default() };
    report.usable.gpus = UsableGpus { count: Some(2), source: Some(GpusSource::Environment) };
    report.hints = Hints {
        gpus: Some(GpusHint { count: 1, given: 2, is_fitting: false, held_idle: vec![] }),
        gpu_memory: Some(GpuMemoryHint {
            mig_profile: None,
            card_gb: None,
            bytes: 69 << 30,
            basis_bytes: 61_200_000_000,
            device: report.gpus[0].id.clone(),
            capacity_bytes: Some(85_899_345_920),
            is_fitting: true,
        }),
        gpu_memory_reason: None,
        ..full().hints
    };
    report
}

/// A script whose Python process ran out of memory.
fn out_of_memory() -> Report {
    let mut report = ended(exact(build(), 2), Some(1), None);
    report.command = ["sh", "run.sh"].map(str::to_owned).to_vec();
    report.wall_s = 0.104;
    report.processes.by_command = vec![
        command("python3 allo.py", 1, 0.06, 108_700_000, 0.09),
        command("sh run.sh", 1, 0.001, 2 * MB, 0.1),
    ];
    report.cpu_time.total_s = Some(0.061);
    report.cpu_time.usable_percent = Some(29.3);
    report.max_ram.combined.footprint_bytes = Some(110_600_000);
    report.usable.memory =
        UsableMemory { bytes: Some(104_857_600), source: Some(MemorySource::Cgroup), ..Default::default() };
    report.series = Series::default();
    report.peak = Some(peak(0.1, &[("python3 allo.py", 1, 108_700_000), ("sh run.sh", 1, 2 * MB)]));
    report.ending.cause = Some(Cause::OutOfMemory(OutOfMemory {
        process: Some(DeadProcess {
            pid: 23_095,
            command: "python3 allo.py".into(),
            args: Some(["python3", "allo.py", "300"].map(str::to_owned).to_vec()),
            is_main: false,
            exit: Exit { code: None, signal: Some(9) },
            at_s: 0.1,
            peak_rss_bytes: Some(108_700_000),
            cpu_s: Some(0.06),
        }),
        is_certain: true,
        oom_kills: 1,
        cgroup: Some("/nu".into()),
        limit_bytes: Some(104_857_600),
        peak_bytes: Some(104_857_600),
    }));
    report.hints = Hints { memory: killed().hints.memory, ..Hints::default() };
    report.warnings =
        vec![Warning::new(Topic::OutOfMemory, "Out of memory: the kernel killed 1 process.".into())];
    report
}

fn failed() -> Report {
    let mut report = ended(build(), Some(2), None);
    report.hints.withheld = Some("the command failed, and may need more than it used up to then".into());
    report
}

fn killed_by_signal() -> Report {
    let mut report = ended(exact(short(), 1), None, Some(11));
    report.command = vec!["./solve".into(), "input file.dat".into()];
    report.wall_s = 266_400.0;
    report.cpu_time.total_s = Some(260_000.0);
    report.cpu_time.usable_percent = Some(48.8);
    report.max_ram.combined.footprint_bytes = Some(1_480_000_000_000);
    report.mean_ram_bytes.combined = Some(1.1e12);
    report.usable.memory.bytes = Some(2_160_000_000_000);
    report.series = over_time(266_400.0, 1_480_000_000_000);
    report
}

/// Uninstrumented programs, and a collector that was killed.
fn partly_unknown() -> Report {
    let mut report = build();
    report.coverage.exact = 20;
    report.coverage.sampled = 4;
    report.coverage.unknown = 2;
    report.coverage.peaks = Peaks { exact: 21, bound: 1, unknown: 4, ..Peaks::default() };
    report.coverage.uncounted_reason = Some("short children of static programs are not counted".into());
    report.io = Io::default();
    report.processes.by_command[3].cpu_s = None;
    report.processes.by_command[3].peak_rss_bytes = None;
    report.processes.heaviest[0].usage.cpu_quality = Quality::Unknown;
    report.warnings = vec![
        Warning::new(
            Topic::Figures,
            "The CPU time of 4 processes is from the last sample: what was used after it is missing or unattributed.".into(),
        ),
        Warning::new(
            Topic::Tracking,
            "The collector was killed once and replaced. Nothing was sampled for 0.120 s in all: RAM peaks of that time, and \
             processes without the shim that lived only then, may be missing."
                .into(),
        ),
        Warning::new(Topic::Figures, "The RAM of 2 processes is unknown.".into()),
    ];
    report
}

// Requirement: OUT-16
#[test]
fn golden_summaries() {
    let style = Style::default();
    golden!(build(), style, "ok");
    golden!(failed(), style, "failed");
    golden!(out_of_memory(), style, "oom");
    golden!(killed_by_signal(), style, "signal");
    golden!(on_gpus(), style, "gpu");
    golden!(exact(full(), 2021), style, "no_gpu");
    golden!(partly_unknown(), style, "partly_unknown");
    golden!(short(), style, "short");
    golden!(crashed(), style, "crashed");
}

// Requirement: SEE-107
#[test]
fn cpu_time_and_ram_are_exact_each_for_itself() {
    let rows = |report: &Report| -> Vec<String> {
        let text = text::text(report, &Style::default());
        let from = text.lines().skip_while(|line| !line.starts_with("  Processes"));
        from.take_while(|line| !line.starts_with("  Command")).map(|line| line[17..].to_owned()).collect()
    };
    let mut report = build();
    assert_eq!(rows(&report), ["26, at most 9 at once, all exact"]);
    report.coverage.peaks = Peaks { exact: 23, unknown: 3, ..Peaks::default() };
    assert_eq!(rows(&report), ["26, at most 9 at once; CPU exact; RAM 23 exact, 3 unknown"]);
    (report.coverage.exact, report.coverage.sampled) = (20, 6);
    report.coverage.peaks = Peaks { exact: 26, ..Peaks::default() };
    assert_eq!(rows(&report), ["26, at most 9 at once; CPU 20 exact, 6 sampled; RAM exact"]);
    report = build();
    report.coverage.uncounted_reason = Some("short ones are not counted".into());
    assert_eq!(
        rows(&report),
        ["at least 26, at most 9 at once; short ones are not counted; these are exact"]
    );
}

/// The line of the summary with what to ask for next time.
fn next_job(report: &Report, hints: bool) -> Option<String> {
    let summary = text::text(report, &Style { hints, ..Style::default() });
    summary.lines().find(|line| line.contains("Next job")).map(str::to_owned)
}

// Requirement: HINT-4
#[test]
fn next_job_of_the_least_figures_is_shown_in_a_job_and_where_asked_for() {
    let mut least = build();
    least.allowed.batch_system = None;
    least.allowed.slurm.clear();
    least.hints.cpus = least.hints.cpus.map(|hint| CpusHint { count: 1, given: None, ..hint });
    least.hints.memory = least.hints.memory.map(|hint| MemoryHint { given_bytes: None, ..hint });
    assert_eq!(next_job(&least, false), None);
    assert!(next_job(&least, true).unwrap().ends_with("--cpus-per-task=1 --mem=1G --time=00:10:00"));
    let full = text::text(&least, &Style { full: true, ..Style::default() });
    assert!(full.contains("\nNext job:\n"), "{full}");
    let change = |change: fn(&mut Report)| {
        let mut report = least.clone();
        change(&mut report);
        next_job(&report, false)
    };
    let changes: [fn(&mut Report); 6] = [
        |report| report.allowed.batch_system = Some("pbs".into()),
        |report| report.hints.memory.as_mut().unwrap().given_bytes = Some(1 << 34),
        |report| report.hints.memory.as_mut().unwrap().bytes += 1 << 28,
        |report| report.hints.time.as_mut().unwrap().time_s = 900,
        |report| report.hints.cpus.as_mut().unwrap().count = 2,
        |report| {
            report.hints.gpus = Some(GpusHint { count: 1, given: 2, is_fitting: false, held_idle: vec![] });
        },
    ];
    for (number, of_change) in changes.into_iter().enumerate() {
        assert!(change(of_change).is_some(), "change {number}");
    }
}

// Requirement: HINT-3
#[test]
fn memory_of_a_gpu_is_a_remark_where_it_used_little_of_it() {
    let mut report = on_gpus();
    assert!(!next_job(&report, true).unwrap().contains("GPU memory"));
    let hint = report.hints.gpu_memory.as_mut().unwrap();
    (hint.bytes, hint.basis_bytes, hint.is_fitting) = (12 << 30, 9_800_000_000, false);
    let line = next_job(&report, false).unwrap();
    assert!(line.ends_with(" (GPU memory: 12G, as it held 9.80 GB of 85.9 GB)"), "{line}");
}

// Requirement: GPU-34
#[test]
fn mean_power_of_few_readings_has_its_time() {
    let mut report = on_gpus();
    report.gpus[0].power.mean_span_s = Some(90.0);
    let summary = text::text(&report, &Style::default());
    assert!(summary.contains("413 W mean of 1.50 min, 3.05 MJ\n"), "{summary}");
}

// Requirement: WHY-9, SEE-102
#[test]
fn first_line_has_crashes_and_an_interrupted_wait() {
    let mut report = crashed();
    report.ending.wait_interrupted = Some(true);
    let line = |full| {
        let text = text::text(&report, &Style { full, ..Style::default() });
        text.lines().find(|line| line.contains("after ")).unwrap().to_owned()
    };
    let [brief, full] = [false, true].map(line);
    assert!(brief.contains("exit 0, but 4 processes crashed, WAIT INTERRUPTED after "), "{brief}");
    assert!(
        full.contains("code 0, but 4 processes crashed, and --wait-all was interrupted, after "),
        "{full}"
    );
}

// Requirement: OUT-16
#[test]
fn long_figure_widens_its_column() {
    let mut report = build();
    report.processes.by_command[0].count = 12_345_678;
    let summary = text::text(&report, &Style::default());
    let table: Vec<_> = summary.lines().skip_while(|line| !line.starts_with("  Command ")).take(3).collect();
    let row = |cells: [&str; 5], bar: &str| {
        let [command, count, cpu, peak, wall] = cells;
        format!("  {command:<19} {count:>10} {cpu:>9} {peak:>9} {wall:>11}{bar}")
    };
    assert_eq!(table[0], row(["Command", "count", "CPU s", "peak MB", "wall sum s"], ""));
    let bar = format!("  {}   99 %", "█".repeat(12));
    assert_eq!(table[1], row(["cc1plus", "12,345,678", "4.124", "85.90", "8.440"], &bar));
    let bar = format!("{:14}    1 %", "");
    assert_eq!(table[2], row(["as", "8", "0.032", "4.80", "0.071"], &bar));
}

// Requirement: OUT-25
#[test]
fn names_are_as_wide_as_the_terminal_allows_and_stay_apart() {
    let mut report = build();
    let names = ["bash pyenv-version-name", "bash pyenv-version-file", "bash pyenv-versions"];
    let long =
        ["1", "2"].map(|part| format!("python3 -m analysis.of_all_the_reads_of_part_{part}.with_long_names"));
    let names = names.map(str::to_owned).into_iter().chain(long);
    report.processes.by_command = names.map(|name| command(&name, 8, 1.0, MB, 1.0)).collect();
    let shown = |columns| {
        let console = Console { columns, ..Console::default() };
        let text = text::text(&report, &Style { console, ..Style::default() });
        let rows = text.lines().skip_while(|line| !line.starts_with("  Command ")).skip(1).take(5);
        rows.map(|row| row.trim_start().split("  ").next().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(
        shown(60),
        [
            "bash py...on-name",
            "bash py...on-file",
            "bash py...ersions",
            "pytho...1.w...mes",
            "pytho...2.w...mes"
        ]
    );
    assert_eq!(
        shown(100),
        [
            "bash pyenv-version-name",
            "bash pyenv-version-file",
            "bash pyenv-versions",
            "python3 -m a...1.with_long_names",
            "python3 -m a...2.with_long_names"
        ]
    );
    assert_eq!(shown(120)[3], "python3 -m analysis.of_all_..._of_part_1.with_long_names");
}

// Requirement: OUT-16, OUT-17
#[test]
fn golden_summaries_of_other_terminals() {
    let narrow = Console { columns: 72, is_unicode: false, has_colour: false };
    golden!(partly_unknown(), Style { console: narrow, ..Style::default() }, "ascii");
    let colour = Console { has_colour: true, ..Console::default() };
    golden!(out_of_memory(), Style { console: colour, ..Style::default() }, "colour");
    golden!(unknown(), Style::default(), "unknown");
    golden!(hostile(), Style::default(), "hostile");
}

/// A report with many of everything, and hostile names.
fn large(base: usize, cause: usize, many: usize, text: &str) -> Report {
    let mut report = [build, on_gpus, unknown, hostile][base % 4]();
    if many.is_multiple_of(3) {
        report.gpus.iter_mut().for_each(|gpu| gpu.power.mean_span_s = Some(many as f64 * 100.0));
    }
    if let Some((exit, cause)) = causes().into_iter().chain(hostile_cause()).nth(cause) {
        report.ending = Ending { exit, cause: Some(cause), ..Ending::default() };
    }
    report.stage = [Stage::Over, Stage::SoFar, Stage::Recovered][many % 3];
    report.command = vec![text.to_owned(); many + 1];
    report.crashes = crashed().crashes.map(|kinds| kinds.into_iter().cycle().take(many % 9).collect());
    report.wall_s *= (many as f64).powi(4);
    report.processes.total += many as u64;
    report.processes.by_command = (0..many)
        .map(|i| command(&format!("{text}{i}"), 1 << (i % 60), 10f64.powi(i as i32 % 12), 1 << (i % 50), 1e6))
        .collect();
    report.peak = Some(peak(1e6, &[(text, 3, 1 << 50), ("other", 90, 5)]));
    report.warnings = (0..many)
        .map(|i| Warning::new([Topic::Tracking, Topic::Figures][i % 2], format!("{text}. {text}")))
        .collect();
    report.hints.gpus =
        Some(GpusHint { count: 1, given: 9, is_fitting: false, held_idle: vec![text.into(); many] });
    if let Some(gpu) = report.gpus.first().cloned() {
        report.gpus =
            vec![GpuDevice { name: Some(text.into()), id: text.into(), index: None, ..gpu }; many % 17];
        report.gpus.extend((0..many % 3).map(|_| GpuDevice {
            visible: Some(true),
            used: Some(false),
            ..GpuDevice::default()
        }));
    }
    report
}

fn hostile_cause() -> Option<(Exit, Cause)> {
    let hostile = hostile();
    Some((hostile.ending.exit, hostile.ending.cause?))
}

/// The columns of a line, without what sets its colours.
fn columns(line: &str) -> usize {
    let without = ["1", "1;32", "1;31", "33", "2", "0"];
    let plain = without.iter().fold(line.to_owned(), |line, code| line.replace(&format!("\x1b[{code}m"), ""));
    assert!(!plain.contains(|c: char| c.is_control() || c == '\u{202e}'), "{plain:?}");
    quote::width(&plain)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..seeded() })]

    // Requirement: OUT-9, OUT-16, OUT-17
    #[test]
    fn any_summary_fits_thirty_lines_and_the_terminal(
        (base, cause, many) in (0usize..4, 0usize..8, 0usize..300),
        text in prop_oneof!["[ -~]{0,300}", "(\\PC|\x1b|\n|\u{202e}|数| ){0,120}"],
        (columns_given, is_unicode, has_colour) in (0u16..200, any::<bool>(), any::<bool>()),
        unit in prop::option::of(0usize..4),
    ) {
        let report = large(base, cause, many, &text);
        let style = Style {
            console: Console { columns: columns_given, is_unicode, has_colour },
            ram_unit: unit.map(|unit| RamUnit::ALL[unit]),
            time_unit: unit.map(|unit| TimeUnit::ALL[unit]),
            hints: many % 2 == 0,
            ..Style::default()
        };
        let summary = text::text(&report, &style);
        prop_assert!(summary.lines().count() <= 30, "{summary}");
        for line in summary.lines() {
            let most = usize::from(columns_given).clamp(60, 120);
            prop_assert!(columns(line) <= most, "{} of {most}: {line:?}", columns(line));
            prop_assert!(is_unicode || line.is_ascii(), "{line:?}");
            prop_assert!(!line.ends_with(' '), "{line:?}");
        }
    }
}

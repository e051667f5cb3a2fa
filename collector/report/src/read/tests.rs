//! A report that is written and read back is the same, whatever is in it.

use std::collections::HashSet;

use proptest::prelude::*;
use serde_json::{Number, Value, json};

use super::*;
use crate::json::{gpu_tracker, json};
use crate::model::gpu::gpu_figure::GpuFigure;
use crate::model::groups::Groups;
use crate::model::quality::Quality;
use crate::model::report::*;
use crate::model::rule::{Quantity, Unit};
use crate::model::run_limit::LargestProcess;
use crate::model::style::{Console, RamUnit, Style, TimeUnit};
use crate::text::text;
use gpu_track_core::fixtures::{self, causes, killed};
use gpu_track_core::random_seed::seeded;

/// Forms in which the same report looks different.
fn styles() -> [Style; 4] {
    let narrow = Console { columns: 72, is_unicode: false, has_colour: true };
    [
        Style::default(),
        Style { full: true, ..Style::default() },
        Style {
            quiet: true,
            ram_unit: Some(RamUnit::Terabytes),
            time_unit: Some(TimeUnit::Days),
            ..Style::default()
        },
        Style { hints: true, console: narrow, gpu_ram_unit: Some(RamUnit::Bytes), ..Style::default() },
    ]
}

/// Written and read in each form: the report, its JSON and its text are the same.
fn assert_same_when_read_back(name: &str, report: &Report) {
    for style in styles() {
        let written = json(report, &style);
        let read = read(&written).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(read.report, *report, "{name}");
        assert_eq!(read.note, None);
        assert_eq!(json(&read.report, &style), written, "{name}");
        assert_eq!(text(&read.report, &style), text(report, &style), "{name}");
    }
}

/// A dead process of which all is known.
fn dead() -> DeadProcess {
    DeadProcess {
        pid: 7,
        command: "solve".into(),
        args: Some(vec!["solve".into()]),
        is_main: false,
        exit: Exit { code: Some(3), signal: None },
        at_s: 0.1,
        peak_rss_bytes: Some(1),
        cpu_s: Some(0.2),
    }
}

fn filled_causes() -> Vec<Cause> {
    let (process, signal_name) = (dead(), "SIGXCPU".to_owned());
    let sender = crate::model::signal::Sender { pid: Some(8), uid: 9, command: Some("kill".into()) };
    vec![
        Cause::OutOfMemory(OutOfMemory {
            process: Some(dead()),
            is_certain: false,
            oom_kills: 1,
            cgroup: Some("/a".into()),
            limit_bytes: Some(2),
            peak_bytes: Some(3),
        }),
        Cause::AddressSpaceLimit(AddressSpaceLimit { process: dead(), limit_bytes: 1, peak_bytes: 2 }),
        Cause::CpuTimeLimit(CpuTimeLimit { process: dead(), limit_s: Some(4) }),
        Cause::FileSizeLimit(FileSizeLimit { process: dead(), limit_bytes: Some(6) }),
        Cause::TimeLimit(TimeLimit {
            process: Some(dead()),
            signal: 15,
            signal_name: signal_name.clone(),
            set_by: TimeLimitSource::Timeout,
            limit_s: Some(1.5),
        }),
        Cause::Signal(FatalSignal { process, signal: 24, signal_name, sender: Some(sender) }),
        Cause::Limit(LimitExceeded {
            limit: "ram=8G".into(),
            quantity: Quantity::Ram,
            unit: Unit::Bytes,
            allowed: 8.5,
            amount: 9.5,
            at_s: Some(1.25),
            enforced_by: Enforcer::Samples,
            overshoot_bytes: Some(2),
            process: Some(LargestProcess {
                pid: Some(3),
                command: "b".into(),
                rss_bytes: 4,
                gpu_ram_bytes: Some(6),
            }),
            was_killed: Some(true),
            left: Some(5),
        }),
        Cause::GpuMemoryExhausted(GpuMemoryExhausted {
            device: "GPU-1".into(),
            used_bytes: 2,
            total_bytes: 3,
            at_s: 1.5,
            holders: vec![GpuHolder { pid: 4, command: "c".into(), bytes: 5 }],
        }),
        Cause::DiskFull(DiskFull { path: "/b".into(), role: DiskRole::Temporary, available_bytes: 5 }),
    ]
}

/// Reports in which every list has an entry and every figure is known, one for each cause.
fn filled() -> Vec<Report> {
    let mut report = killed();
    let device = report.gpus[0].clone();
    report.gpus = vec![GpuDevice {
        parent: Some("GPU-1".into()),
        lost_at_s: Some(1.25),
        missing: vec![GpuMissing { figure: "power".into(), reason: "no permission".into() }],
        ..device
    }];
    report.tasks = fixtures::tasks().into_iter().take(1).collect();
    for task in &mut report.tasks {
        (task.parent, task.gpu_ram_bytes) = (Some(7), Some(8));
        (task.why, task.node) = (Some("exit code 3".into()), Some("n1".into()));
    }
    report.containers.truncate(1);
    for container in &mut report.containers {
        (container.reason, container.node) = (Some("lower bound".into()), Some("n1".into()));
    }
    report.allowed.job.insert("LSB_JOBID".into(), "17".into());
    report.usable.memory.process_address_space_bytes = Some(1 << 40);
    for crash in report.crashes.iter_mut().flatten() {
        crash.places = vec![CrashPlace { node: "n1".into(), rank: Some(3) }];
    }
    let of_full = fixtures::full();
    report.hints = Hints {
        withheld: Some("it failed".into()),
        time: of_full.hints.time.map(|hint| TimeHint { given_s: Some(3600.0), ..hint }),
        cpus: of_full.hints.cpus,
        gpus: Some(GpusHint { count: 1, given: 2, is_fitting: false, held_idle: vec!["GPU-2".into()] }),
        gpu_memory: Some(GpuMemoryHint {
            mig_profile: Some(MigProfileHint {
                profile: "2g.20gb".into(),
                card: "H100 80 GB".into(),
                usable_bytes: 20_000_000_000,
                sm_percent: 28.5,
            }),
            card_gb: Some(24),
            bytes: 14 << 30,
            basis_bytes: 12_000_000_000,
            device: "GPU-1".into(),
            capacity_bytes: Some(85_899_345_920),
            is_fitting: false,
        }),
        ..report.hints
    };
    report.pressure.machine.cpu.full_s = Some(0.5);
    for reason in [&mut report.pressure.reason, &mut report.pressure.quota.reason, &mut report.swap.reason] {
        *reason = Some("not read".into());
    }
    (report.io.reason, report.io.calls_reason) = (Some("not read".into()), Some("not read".into()));
    report.run_limits.truncate(1);
    report.run_limits[0].reason = Some("no controller".into());
    report.run_limits[0].exceeded_at_s = Some(1.5);
    report.run_limits[0].amount = Some(2.5);
    report.alerts.truncate(1);
    report.alerts[0].reason = Some("not known".into());
    // The growth has nearly all figures.
    if let Some(events) = &mut report.events {
        events.list.retain(|event| event.rate_bytes_per_s.is_some());
        for event in &mut events.list {
            (event.pid, event.from) = (Some(6), Some(7.5));
            event.message = Some("it exited with status 1".into());
            (event.command, event.device) = (Some("d".into()), Some("GPU-1".into()));
        }
    }
    report.contention.reason = Some("not read".into());
    let time_spent = report.time_spent.as_mut().unwrap();
    time_spent.reason = Some("fewer than 20 samples".into());
    time_spent.verdict.as_mut().unwrap().next_step = Some("give it more cores".into());
    report.cpu_time.kernel_s_reason = Some("a process still runs".into());
    report.max_ram_proportional.reason = Some("not read".into());
    report.processes.still_running_processes = vec![Running { pid: 1, command: "sccache".into() }];
    report.processes.max_sm_percent = Some(Groups { main: 1.0, descendants: 2.0, combined: 3.0 });
    report.processes.by_command[0].gpu =
        Some(CommandGpu { count: 3, peak_ram_bytes: Some(12), max_sm_percent: Some(97.5) });
    report.processes.heaviest[0].usage.peak_quality = Quality::Bound;
    let cgroup = report.cgroup.as_mut().unwrap();
    cgroup.memory_peak_bytes = Some(1);
    let coverage = &mut report.coverage;
    coverage.layers.connector = Some(1);
    coverage.untracked_reason = Some("no room".into());
    coverage.uncounted_reason = Some("short children are not counted".into());
    coverage.ram_floor_bytes = Some(1);
    coverage.private_ram_reason = Some("not read".into());
    coverage.records_untrusted = Some("forged".into());
    report.warnings = vec![Warning::new(Topic::OutOfMemory, "Out of memory.".into())];
    let with = |cause| Report {
        ending: Ending {
            reason: None,
            exit: Exit { code: Some(1), signal: None },
            cause: Some(cause),
            wait_interrupted: Some(true),
        },
        ..report.clone()
    };
    filled_causes().into_iter().map(with).collect()
}

/// A place in a JSON value: keys and indices.
type Place = Vec<String>;

/// Every value inside of one, with its place. Of a list, the first entry stands for all.
fn places(value: &Value, at: &Place, all: &mut Vec<(Place, Value)>) {
    let inner: Vec<(String, &Value)> = match value {
        Value::Object(object) => object.iter().map(|(key, value)| (key.clone(), value)).collect(),
        Value::Array(list) => list.first().map(|value| ("0".to_owned(), value)).into_iter().collect(),
        _ => return,
    };
    for (key, value) in inner {
        let place: Place = at.iter().cloned().chain([key]).collect();
        all.push((place.clone(), value.clone()));
        places(value, &place, all);
    }
}

fn all_places(value: &Value) -> Vec<(Place, Value)> {
    let mut all = Vec::new();
    places(value, &Place::new(), &mut all);
    all
}

fn pointer(place: &[String]) -> String {
    place.iter().map(|key| format!("/{}", key.replace('~', "~0").replace('/', "~1"))).collect()
}

/// How often a number is put in another's place.
fn changed(value: &Value) -> Value {
    match value {
        Value::Number(number) if number.is_f64() => json!(number.as_f64().unwrap() + 0.1),
        Value::Number(number) => json!(number.as_i64().unwrap() + 1),
        Value::Bool(is) => json!(!is),
        Value::String(text) => json!(format!("{text}, and more")),
        _ => value.clone(),
    }
}

// Requirement: OUT-23
#[test]
fn goldens_are_the_same_when_read_back() {
    for (name, report) in fixtures::all() {
        assert_same_when_read_back(name, &report);
        for (exit, cause) in causes() {
            let ending = Ending { exit, cause: Some(cause), ..Ending::default() };
            assert_same_when_read_back(name, &Report { ending, ..report.clone() });
        }
        for stage in [Stage::SoFar, Stage::Over, Stage::Recovered] {
            assert_same_when_read_back(name, &Report { stage, ..report.clone() });
        }
    }
    for report in filled() {
        assert_same_when_read_back("filled", &report);
    }
}

/// No field is skipped, of whatever value: each value inside of a report is changed, and the change is there when it is read.
// Requirement: OUT-23
#[test]
fn every_value_of_a_report_is_read_back() {
    let mut count = 0;
    let mut tried = HashSet::new();
    for report in filled() {
        let whole = serde_json::to_value(&report).unwrap();
        for (place, value) in all_places(&whole) {
            if !tried.insert((place.clone(), value.to_string())) {
                continue;
            }
            let is_exit = place.len() > 1 && place[place.len() - 2] == "exit";
            let is_filled = !value.is_null() && value != json!([]) && value != json!({});
            assert!(is_filled || is_exit, "{place:?} is {value}: it must have a value here");
            let mut other = whole.clone();
            *other.pointer_mut(&pointer(&place)).unwrap() = changed(&value);
            match serde_json::from_value::<Report>(other.clone()) {
                Ok(read) => assert!(serde_json::to_value(&read).unwrap() == other, "{place:?}"),
                // A word of a list, or a time.
                Err(error) => assert!(value.is_string(), "{place:?}: {error}"),
            }
            count += usize::from(!value.is_object() && !value.is_array());
        }
    }
    assert!(count > 400, "only {count} values");
}

/// Puts other numbers in the place of all numbers with a fraction.
fn put_numbers(value: &mut Value, numbers: &mut impl Iterator<Item = f64>) {
    match value {
        Value::Number(number) if number.is_f64() => {
            *number = numbers.next().and_then(Number::from_f64).unwrap()
        }
        Value::Array(list) => list.iter_mut().for_each(|value| put_numbers(value, numbers)),
        Value::Object(object) => object.values_mut().for_each(|value| put_numbers(value, numbers)),
        _ => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..seeded() })]

    // Requirement: OUT-23
    #[test]
    fn numbers_of_any_size_and_any_text_are_read_back_exactly(
        numbers in prop::collection::vec(prop::num::f64::NORMAL | prop::num::f64::SUBNORMAL | prop::num::f64::ZERO, 20),
        bytes in any::<u64>(),
        name in "(\\PC|\\PC|\x1b|\n|\u{202e}|\u{0}|\")*",
    ) {
        let mut report = filled().swap_remove(0);
        report.max_ram.combined.footprint_bytes = Some(bytes);
        report.command.push(name.clone());
        report.allowed.slurm.insert(name.clone(), name);
        let mut value = serde_json::to_value(&report).unwrap();
        put_numbers(&mut value, &mut numbers.into_iter().cycle());
        let report: Report = serde_json::from_value(value.clone()).unwrap();
        prop_assert_eq!(serde_json::to_value(&report).unwrap(), value);
        let written = json(&report, &Style::default());
        let read = read(&written).unwrap().report;
        prop_assert_eq!(json(&read, &Style::default()), written);
        prop_assert_eq!(read, report);
    }
}

/// No number, word or entry is in it.
fn is_unknown(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(object) => object.values().all(is_unknown),
        _ => false,
    }
}

/// A figure of a GPU over time, unknown at each point.
fn is_unknown_track(place: &str, track: &Value) -> bool {
    let is_null = |list: &Value| {
        let list = list.as_array().unwrap();
        !list.is_empty() && list.iter().all(Value::is_null)
    };
    place.starts_with("/series/gpus/") && track.as_object().is_some_and(|lists| lists.values().all(is_null))
}

// Requirement: OUT-24
#[test]
fn missing_key_is_unknown_or_refused_by_its_name() {
    let (mut unknown, mut refused) = (0, 0);
    let mut tried = HashSet::new();
    for report in filled() {
        let whole: Value = serde_json::from_str(&json(&report, &Style::default())).unwrap();
        for (place, _) in all_places(&serde_json::to_value(&report).unwrap()) {
            let (key, above) = place.split_last().unwrap();
            let mut less = whole.clone();
            let Some(object) = less.pointer_mut(&pointer(above)).and_then(Value::as_object_mut) else {
                continue;
            };
            object.remove(key).unwrap();
            // An object of the same keys at the same place is of the same type.
            let others: Vec<String> = object.keys().cloned().collect();
            if !tried.insert((place.clone(), others)) {
                continue;
            }
            match read(&less.to_string()) {
                Ok(read) => {
                    let again = serde_json::to_value(&read.report).unwrap();
                    let value = again.pointer(&pointer(&place));
                    let is_track = |value| is_unknown_track(&pointer(&place), value);
                    assert!(
                        value.is_none_or(|value| is_unknown(value) || is_track(value)),
                        "{place:?} is {value:?}"
                    );
                    unknown += 1;
                }
                Err(error) => {
                    assert!(
                        error.to_string().contains(&format!("missing field `{key}`")),
                        "{place:?}: {error}"
                    );
                    refused += 1;
                }
            }
        }
    }
    assert!(unknown > 100 && refused > 50, "{unknown} {refused}");
}

// Requirement: OUT-24
#[test]
fn gpu_figure_that_an_earlier_release_did_not_write_is_unknown_at_each_point() {
    let original = fixtures::full();
    let written: Value = serde_json::from_str(&json(&original, &Style::default())).unwrap();
    for figure in GpuFigure::OVER_TIME {
        let mut older = written.clone();
        older["series"]["gpus"][0].as_object_mut().unwrap().remove(figure.name()).unwrap();
        let series = read(&older.to_string()).unwrap().report.series;
        for other in GpuFigure::OVER_TIME {
            let track = &series.gpus[0][other];
            if other == figure {
                // Those of performance counters are absent where they are unknown.
                let points = if figure.is_optional() { 0 } else { series.start_s.len() };
                let unknown = vec![None; points];
                assert_eq!([&track.min, &track.mean, &track.max], [&unknown; 3], "{figure:?}");
            } else {
                assert_eq!(*track, original.series.gpus[0][other], "{figure:?}");
            }
        }
    }
}

/// What is filled in takes no more than what the file has.
// Requirement: OUT-24
#[test]
fn gpu_figures_are_filled_in_only_where_all_lists_are_whole_and_few_are_missing() {
    let written: Value = serde_json::from_str(&json(&fixtures::full(), &Style::default())).unwrap();
    let damage = |change: &dyn Fn(&mut serde_json::Map<String, Value>)| {
        let mut damaged = written.clone();
        change(damaged["series"]["gpus"][0].as_object_mut().unwrap());
        read(&damaged.to_string()).unwrap_err().to_string()
    };
    let [first, second, third, ..] = GpuFigure::OVER_TIME;
    let uneven = damage(&|gpu| {
        gpu.remove(first.name());
        gpu[second.name()]["mean"] = vec![0; 100_000].into();
    });
    assert!(uneven.contains("differ in length"), "{uneven}");
    let few = damage(&|gpu| [first, second, third].iter().for_each(|figure| _ = gpu.remove(figure.name())));
    assert!(few.contains(&format!("missing field `{}`", third.name())), "{few}");
}

/// Puts a key that no version has into every object, except those whose keys are names of limits, variables and kinds.
fn put_unknown_keys(value: &mut Value) {
    match value {
        Value::Array(list) => list.iter_mut().for_each(put_unknown_keys),
        Value::Object(object) => {
            for (key, value) in object.iter_mut() {
                match key.as_str() {
                    "slurm" | "job" | "by_kind" => {}
                    "ulimits" => value.as_object_mut().unwrap().values_mut().for_each(put_unknown_keys),
                    _ => put_unknown_keys(value),
                }
            }
            object.insert("of_a_later_version".into(), json!({"a": [1, {"b": null}]}));
        }
        _ => {}
    }
}

// Requirement: OUT-24
#[test]
fn unknown_keys_are_ignored() {
    for report in filled() {
        let mut more: Value = serde_json::from_str(&json(&report, &Style::default())).unwrap();
        put_unknown_keys(&mut more);
        let read = read(&more.to_string()).unwrap();
        assert!(read.report == report && read.note.is_none());
    }
}

// Requirement: OUT-24
#[test]
fn report_of_schema_2_is_read_with_a_note() {
    let ReadReport { report, note } =
        read(include_str!("../../../../tests/golden/older/schema_2.json")).unwrap();
    assert_eq!(
        note.unwrap(),
        "Its schema_version is 2. It lacks: the run over time, RAM at its peak by command, processes that crashed."
    );
    // It was written from this one, in other units.
    let mut original = Report { crashes: None, ..killed() };
    original.peak = original.peak.map(|peak| Peak { by_command: Vec::new(), other_commands: None, ..peak });
    original.processes.heaviest.iter_mut().for_each(|process| process.start_s = None);
    original.processes.by_command.iter_mut().for_each(|command| command.calls = None);
    original.processes.calls_reason = None;
    for gpu in &mut original.gpus {
        (gpu.activity, gpu.findings, gpu.pcie.link_bytes_per_s) = (GpuActivity::default(), None, None);
        (gpu.throttle_span_s, gpu.pcie.span_s) = (None, None);
        gpu.processes.iter_mut().for_each(|process| process.torch = None);
        gpu.throttle.iter_mut().flatten().for_each(|throttle| throttle.mean_sm_mhz = None);
    }
    assert!((report.wall_s / original.wall_s - 1.0).abs() < 1e-12, "{}", report.wall_s);
    let expected = Report {
        series: Series::default(),
        io: Io {
            read_bytes: original.io.read_bytes,
            write_bytes: original.io.write_bytes,
            reason: original.io.reason,
            ..Io::default()
        },
        coverage: Coverage { elsewhere: Vec::new(), other_users: Vec::new(), ..original.coverage },
        wall_s: report.wall_s,
        contention: Contention::default(),
        time_spent: None,
        swap: Swap::default(),
        pressure: Pressure::default(),
        cgroup_memory: None,
        hints: Hints { gpu_memory_reason: None, ..original.hints },
        allowed: Allowed { batch_system: None, ..original.allowed },
        host: Host { boot_id: None, ..original.host },
        rank: None,
        tasks: Vec::new(),
        containers: Vec::new(),
        job_ranks: Vec::new(),
        node_part: None,
        run_limits: Vec::new(),
        alerts: Vec::new(),
        events: None,
        ..original
    };
    assert_eq!(report, expected);
}

// Requirement: OUT-24
#[test]
fn report_of_schema_1_is_read_with_a_note() {
    let ReadReport { report, note } =
        read(include_str!("../../../../tests/golden/older/schema_1.json")).unwrap();
    let expected = "Its schema_version is 1. It lacks: the run over time, what the command could use (shown are the expected \
                    cores), how long GPUs could not be read, what held the RAM at its peak, processes that \
                    crashed.";
    assert_eq!(note.unwrap(), expected);
    assert_eq!((report.stage, report.coverage.uninstrumented), (Stage::Over, 3));
    assert_eq!(report.max_ram.combined.private_bytes, Some(20_900_000_000));
    assert_eq!(report.usable.cores, UsableCores { count: 4.0, source: CoresSource::NExpectedCores });
    // What it lacks is not 0.
    assert_eq!((report.usable.memory, report.hints), (UsableMemory::default(), Hints::default()));
    assert_eq!((report.gpus[0].reading.count, report.max_ram_at_most), (None, Groups::default()));
    assert_eq!(report.peak.unwrap().processes, []);
}

// Requirement: OUT-24
#[test]
fn older_hint_of_cpus_is_no_lower_bound() {
    let mut older: Value =
        serde_json::from_str(include_str!("../../../../tests/golden/older/schema_2.json")).unwrap();
    let cpus =
        json!({"count": 2, "p95_busy_cores": 1.5, "given": null, "is_fitting": false, "is_serial": false});
    older["hints"]["cpus"] = cpus;
    let hint = read(&older.to_string()).unwrap().report.hints.cpus.unwrap();
    assert_eq!((hint.count, hint.is_lower_bound), (2, false));
}

// Requirement: OUT-24
#[test]
fn older_warnings_are_read_without_their_topics() {
    let mut older: Value =
        serde_json::from_str(include_str!("../../../../tests/golden/older/schema_2.json")).unwrap();
    older["warnings"] = json!(["One.", "Two."]);
    older["finished"] = json!(false);
    older["max_ram"]["main"]["total_rss"] = Value::Null;
    older.as_object_mut().unwrap().remove("max_gpu_ram");
    let ReadReport { report, note } = read(&older.to_string()).unwrap();
    let expected = "Its schema_version is 2. It lacks: whether it was recovered (shown as a report so far), the run over time, \
                    the topics of warnings (shown as warnings about figures), RAM at its peak by command, processes that crashed.";
    assert_eq!(note.unwrap(), expected);
    let texts: Vec<_> = report.warnings.iter().map(|warning| warning.text.as_str()).collect();
    assert_eq!((texts, report.stage), (vec!["One.", "Two."], Stage::SoFar));
    assert_eq!((report.max_ram.main.footprint_bytes, report.max_gpu_ram), (None, MaxGpuRam::default()));
}

// Requirement: OUT-24
#[test]
fn what_is_no_report_of_this_version_is_refused_in_one_line() {
    let written = json(&killed(), &Style::default());
    let newer = written.replacen("\"schema_version\": 3", "\"schema_version\": 4", 1);
    let gpu_trackers = gpu_tracker(&killed(), &Style::default());
    let hostile = written.replacen("\"out_of_memory\"", "\"x\\n\\u001b[2J\"", 1);
    let uneven = written.replacen("\"start_s\": [0.0, ", "\"start_s\": [", 1);
    assert!(hostile != written && uneven != written);
    for (text, reason) in [
        (newer.as_str(), "its schema_version is 4, and this gpu-track reads up to 3: use a newer gpu-track"),
        (&gpu_trackers, "it has no schema_version: "),
        ("[]", "it has no schema_version: "),
        ("\"text\"", "it has no schema_version: "),
        (r#"{"schema_version": 0}"#, "it has no schema_version: "),
        (r#"{"schema_version": "3"}"#, "it has no schema_version: "),
        (r#"{"schema_version": 3}"#, "its report is damaged: missing field `stage`"),
        (r#"{"schema_version": 1}"#, "its report is damaged: missing field `stage`"),
        (written.trim_end().trim_end_matches('}'), "it is no JSON: EOF while parsing"),
        ("", "it is no JSON: EOF while parsing"),
        (&hostile, r"its report is damaged: unknown variant `x\n\x1b[2J`"),
        (&uneven, "its report is damaged: the lists of `series` differ in length"),
    ] {
        let error = read(text).unwrap_err().to_string();
        assert!(error.starts_with(reason) && error.lines().count() == 1, "{error}");
    }
    // A position in the converted report is none of the text that was given.
    let older = read(r#"{"schema_version": 1}"#).unwrap_err().to_string();
    assert_eq!(older, "its report is damaged: missing field `stage`");
}

//! Limits, alerts and events of GPUs, through the fake NVIDIA driver.

use serde_json::Value;

use crate::support::gpu::{FakeGpus, GPU0, GPU1};
use crate::support::run::Run;

/// Longer than any test runs, milliseconds.
const LONG: &str = "for:1000000";

/// Runs the program `gpu` with these words, with its events. Readings of a busy machine may be half a second late.
fn run_with_events(gpus: &FakeGpus, words: &[&str], options: &[&str]) -> Run {
    let file = gpus.path("events.jsonl");
    let options = [&["--st", "0.3", "--events", &file], options].concat();
    gpus.tracked(gpus.words(words)).options(&options).run()
}

/// The events of a kind in the report, in their order.
fn events<'a>(run: &'a Run, kind: &str) -> Vec<&'a Value> {
    run.report().array("events.list").iter().filter(|event| event["kind"] == kind).collect()
}

/// From how many bytes to how many each step of a kind was, and on which GPU.
fn steps(run: &Run, kind: &str) -> Vec<(f64, f64, String)> {
    let bytes = |event: &Value, key: &str| event[key].as_f64().unwrap();
    let device = |event: &Value| event["device"].as_str().unwrap_or_default().to_owned();
    events(run, kind)
        .iter()
        .map(|event| (bytes(event, "from"), bytes(event, "amount"), device(event)))
        .collect()
}

// Requirement: ALERT-14
#[test]
fn memory_that_a_process_gets_and_frees_on_a_gpu_is_an_event() {
    let gpus = FakeGpus::new(2, "");
    let words = [
        "hold:0:2000000000,c",
        "sampled",
        // Less than a hundredth of the device's memory.
        "hold:0:2500000000,c",
        "hold:1:20000000000,c",
        "sampled",
        "free:0",
        "sampled",
    ];
    let run = run_with_events(&gpus, &words, &[]);
    run.assert_clean(0);
    assert_eq!(
        steps(&run, "allocation"),
        [(0.0, 2e9, GPU0.into()), (0.0, 2e10, GPU1.into())],
        "{}",
        run.report().at("events")
    );
    assert_eq!(steps(&run, "deallocation")[0], (2.5e9, 0.0, GPU0.into()), "then the process ends");
    assert_eq!(steps(&run, "jump"), [(0.0, 2e10, GPU1.into())]);
    let first = events(&run, "allocation")[0];
    assert_eq!(
        (&first["command"], &first["pid"], &first["unit"]),
        (&"gpu".into(), run.report().at("processes.heaviest.0.pid"), &"bytes".into())
    );
    let file = std::fs::read_to_string(gpus.path("events.jsonl")).unwrap();
    assert_eq!(file.matches("\"allocation\"").count(), 2, "{file}");
}

// Requirement: ALERT-5
#[test]
fn program_that_allocates_and_frees_in_each_iteration_does_not_fill_the_list() {
    let gpus = FakeGpus::new(1, "");
    let iteration = ["hold:0:9000000000,c", "samples:2", "hold:0:1000000000,c", "samples:2"];
    let words: Vec<&str> = std::iter::repeat_n(iteration, 20).flatten().collect();
    let run = run_with_events(&gpus, &words, &[]);
    run.assert_clean(0);
    let count = |kind: &str| (events(&run, kind).len(), run.report().u64(&format!("events.by_kind.{kind}")));
    for kind in ["allocation", "deallocation"] {
        let (listed, all) = count(kind);
        assert!((1..=2).contains(&listed) && all > 4, "{kind}: {listed} of {all}");
    }
}

// Requirement: ALERT-14
#[test]
fn memory_that_is_not_known_before_makes_no_event() {
    let gpus = FakeGpus::new(2, "");
    let lost = gpus.script("lost", "0.lost 15");
    let back = gpus.script("back", "");
    let words = [
        // The driver lists it without its memory.
        "hold:1:na,c",
        "sampled",
        "sampled",
        "hold:1:9000000000,c",
        "sampled",
        "hold:0:2000000000,c",
        "sampled",
        &format!("script:{lost}"),
        "sampled",
        "hold:0:9000000000,c",
        &format!("script:{back}"),
        "sampled",
    ];
    let run = run_with_events(&gpus, &words, &["--st", "0.1"]);
    assert_eq!(run.status.code(), Some(0), "{}", run.stderr);
    assert_eq!(steps(&run, "allocation"), [(0.0, 2e9, GPU0.into())], "{}", run.report().at("events"));
    let freed = steps(&run, "deallocation");
    assert!(freed.iter().all(|(from, to, _)| (*from, *to) == (9e9, 0.0)), "at its end alone: {freed:?}");
}

/// Ends the run with the status of a limit, and gives the cause.
fn ended_by_limit<'a>(run: &'a Run, quantity: &str) -> &'a Value {
    assert_eq!(run.status.code(), Some(124), "{}", run.stderr);
    let cause = run.report().at("exit.cause");
    assert_eq!((&cause["kind"], &cause["quantity"]), (&"limit".into(), &quantity.into()), "{cause}");
    cause
}

// Requirement: LIMIT-3, ALERT-15
#[test]
fn gpu_memory_above_its_limit_ends_the_tree_at_any_interval() {
    for (limit, allowed, holds, interval) in [
        ("gpu_ram=1G", 1_073_741_824.0, &["hold:0:600000000,c", "hold:1:600000000,c"][..], "0.02"),
        // Of the fullest GPU, with what the driver holds there. Each allocation exceeds it. GPUs are read one after another, and the
        // first reading that shows one decides. So the second allocation comes when the GPU of the first was read.
        ("gpu_ram=1%", 858_993_459.0, &["hold:1:900000000,c", "sampled", "hold:0:400000000,c"][..], "1"),
    ] {
        let gpus = FakeGpus::new(2, "");
        let words = gpus.words(&[holds, &[LONG]].concat());
        let run = gpus.tracked(words).options(&["--limit", limit, "--st", interval]).run();
        let cause = ended_by_limit(&run, "gpu_ram");
        assert_eq!(
            (&cause["allowed"], &cause["enforced_by"]),
            (&allowed.into(), &"samples".into()),
            "{cause}"
        );
        assert!(cause["amount"].as_f64().unwrap() > allowed, "{cause}");
        let most = match limit {
            "gpu_ram=1%" => 1_000_000_000.0,
            _ => run.report().f64("max_gpu_ram_bytes.combined"),
        };
        assert_eq!(cause["overshoot_bytes"].as_f64(), Some(most - allowed), "{cause}");
        assert!(cause["process"]["gpu_ram_bytes"].as_f64() >= Some(9e8), "{cause}");
        assert!(run.stderr.contains("held most GPU RAM, "), "{}", run.stderr);
    }
}

// Requirement: LIMIT-3
#[test]
fn gpu_memory_that_the_driver_does_not_tell_exceeds_no_limit() {
    let gpus = FakeGpus::new(1, "");
    let words = gpus.words(&["hold:0:na,c", "sampled"]);
    let run = gpus.tracked(words).options(&["--limit", "gpu_ram=1"]).run();
    run.assert_clean(0);
    assert!(run.report().at("run_limits.0.exceeded_at_s").is_null(), "{}", run.report().at("run_limits"));
}

// Requirement: LIMIT-9
#[test]
fn run_that_does_not_use_its_gpu_is_ended_or_told() {
    // An H200 samples itself each 0.2 s, so half of the run's samples have no new one.
    for samples in ["", "*.samples ring 70 200000 0"] {
        let gpus = FakeGpus::new(1, samples);
        let idle = gpus.words(&["hold:0:600000000,c", LONG]);
        let run = gpus.tracked(idle).options(&["--limit", "gpu_idle=1s"]).run();
        let cause = ended_by_limit(&run, "gpu_idle");
        assert_eq!((&cause["unit"], &cause["overshoot_bytes"]), (&"seconds".into(), &Value::Null), "{cause}");
    }
    let gpus = FakeGpus::new(1, "");
    // The signal ends it: it has no handler.
    let idle = gpus.words(&["hold:0:600000000,c", LONG]);
    let run = gpus.tracked(idle).options(&["--signal-at", "gpu_idle>1s=USR1"]).run();
    assert_eq!(run.report().at("exit.signal"), libc::SIGUSR1, "{}", run.stderr);
    assert!(run.report().at("run_limits.0.exceeded_at_s").is_number());
    // A GPU at work, and one whose use is not known.
    for samples in ["*.samples ring 100000000 10000 50 0 100000000000", "*.samples !3\n*.utilization !3"] {
        let gpus = FakeGpus::new(1, samples);
        let words = gpus.words(&["for:2500"]);
        let run = gpus.tracked(words).options(&["--limit", "gpu_idle=1s"]).run();
        assert_eq!(run.status.code(), Some(0), "{samples}: {}", run.stderr);
    }
}

// Requirement: ALERT-2, ALERT-15
#[test]
fn alerts_of_gpus_go_on_and_off() {
    let gpus = FakeGpus::new(2, "*.memory_held 1\n*.memory_used 0");
    let [file, on, off] = ["events.jsonl", "on", "off"].map(|name| gpus.path(name));
    // The second GPU is nearly full, by the run's own memory, until the alerts are on.
    let holder =
        gpus.line(&["hold:1:84000000000,c", &format!("wait:{on}"), "free:1", &format!("wait:{off}")]);
    let until = |kind: &str| format!("until grep -q '\"{kind}\"' {file}; do sleep 0.02; done");
    let command = format!(
        "{holder} & {}; {}; touch {on}; {}; touch {off}; wait",
        until("critical"),
        until("gpu_idle"),
        until("recovered")
    );
    let options = ["--alert", "gpu_ram>95%,gpu_ram>200G,gpu_idle>1s", "--events", &file, "--st", "0.5"];
    let run = gpus.tracked(["sh", "-c", &command]).options(&options).run();
    assert_eq!(run.status.code(), Some(0), "{}", run.stderr);
    let [critical] = events(&run, "critical")[..] else { panic!("{}", run.report().at("events")) };
    assert_eq!(
        (&critical["rule"], &critical["amount"], critical["allowed"].as_f64().map(f64::round)),
        (&"gpu_ram>95%".into(), &84e9.into(), Some(81_604_378_624.0))
    );
    let [recovered] = events(&run, "recovered")[..] else { panic!("{}", run.report().at("events")) };
    assert_eq!((&recovered["rule"], &recovered["amount"]), (&"gpu_ram>95%".into(), &0.0.into()));
    let [idle] = events(&run, "gpu_idle")[..] else { panic!("{}", run.report().at("events")) };
    assert!(idle["amount"].as_f64() > Some(1.0), "{idle}");
    let alerts = run.report().array("alerts");
    assert_eq!(alerts.iter().map(|alert| alert["times"].as_u64().unwrap()).collect::<Vec<_>>(), [1, 0, 1]);
    assert!(alerts.iter().all(|alert| alert["reason"].is_null()), "{alerts:?}");
    assert!(
        run.stderr.contains("alert gpu_ram>95%, ") && run.stderr.contains("no GPU worked for"),
        "{}",
        run.stderr
    );
}

// Requirement: LIMIT-9, ALERT-4
#[test]
fn rules_on_gpus_of_a_driver_that_fails_are_said_to_have_no_effect() {
    let gpus = FakeGpus::new(1, "init 9");
    let options = ["--limit", "gpu_ram=1G,gpu_idle=9s,wall=9s", "--alert", "gpu_ram>1G,ram>99%"];
    let run = gpus.tracked(gpus.words(&["for:300"])).options(&options).run();
    let warnings = run.report().warnings();
    for rules in
        ["Not held: gpu_", "gpu_idle=9s, since", "gpu_ram=1G, since", "Alerts not watched: gpu_ram>1G, since"]
    {
        assert!(warnings.contains(rules), "{warnings}");
    }
    assert!(!warnings.contains("wall=9s") && !warnings.contains("ram>99%"), "{warnings}");
    assert!(run.report().at("run_limits.0.reason").is_string(), "{}", run.report().at("run_limits"));
}

// Requirement: WHY-11
#[test]
fn limit_that_ended_the_run_is_its_cause_though_a_gpu_was_full() {
    let full = "0.memory_used 85000000000";
    let holds = ["hold:0:50000000000,c", "sampled", "sampled"];
    let gpus = FakeGpus::new(1, full);
    let words = gpus.words(&[&holds[..], &[LONG]].concat());
    let run = gpus.tracked(words).options(&["--limit", "wall=3s"]).run();
    ended_by_limit(&run, "wall");
    // A limit that was not exceeded is no cause.
    let gpus = FakeGpus::new(1, full);
    let line = format!("{}; exit 1", gpus.line(&holds));
    let run = gpus.tracked(["sh", "-c", &line]).options(&["--limit", "wall=1h,gpu_ram=99%"]).run();
    assert_eq!(run.status.code(), Some(1), "{}", run.stderr);
    assert_eq!(run.report().at("exit.cause.kind"), "gpu_memory_exhausted");
}

//! GPU utilization: from the driver's samples, by the driver's clock, or from its rate.

use crate::support::assert_within;
use crate::support::gpu::{FakeGpus, GPU0, GPU1};

// Requirement: GPU-3
#[test]
fn gpu_utilization_ignores_stale_samples_and_stops_at_100() {
    // Sample times are microseconds after the driver's start. The stale driver returns all samples at every call.
    let idle = "0.stale 1\n0.samples 500000:90\n0.process_times";
    let busy = "0.stale 1\n0.samples 500000:90 500001:0 2000001:105 2500001:20\n0.process_times 2500001";
    let (_, run) = FakeGpus::with_these_samples(1, idle, |gpus| {
        let script = format!("script:{}", gpus.script("busy", busy));
        gpus.run(&["hold:0:500,c,140", "sampled", &script, "sampled", "sampled"])
    });
    let report = run.assert_clean(0);
    let gpu = report.gpu(GPU0);
    assert_eq!(gpu.f64("utilization.max_percent"), 100.0);
    // The driver samples at least once a second while there is work: 0.5 s idle, 1 s at 100%, 0.5 s at 20%.
    assert_eq!((gpu.f64("utilization.active_s"), gpu.f64("utilization.mean_percent")), (1.1, 55.0));
    assert_eq!(gpu.f64("processes.0.max_sm_percent"), 100.0);
    // It was active in all samples, and idle with the device before them.
    assert_eq!(gpu.f64("processes.0.mean_sm_percent"), 75.0);
}

/// Each driver dates its samples by a clock of its own.
// Requirement: GPU-3
#[test]
fn gpu_utilization_is_exact_with_any_driver_clock() {
    for clock in ["boot", "-90000000", "7200000000"] {
        let script = |times: &str| format!("clock {clock}\n0.samples {times}\n0.process_times");
        let (_, run) = FakeGpus::with_these_samples(1, &script("500000:0"), |gpus| {
            let busy = gpus.script("busy", &(script("500001:0 1500001:80 2500001:40") + " 1000000"));
            gpus.run(&["hold:0:500,c,60", "sampled", &format!("script:{busy}"), "sampled", "sampled"])
        });
        let gpu = run.assert_clean(0).gpu(GPU0);
        assert_eq!((gpu.f64("utilization.active_s"), gpu.f64("utilization.mean_percent")), (1.2, 60.0));
        assert_eq!(gpu.f64("processes.0.max_sm_percent"), 60.0, "{clock}");
    }
}

/// No process used the GPU for minutes before the run, so the driver's newest samples are minutes old.
#[test]
fn first_gpu_samples_after_a_long_idle_time_count() {
    let gpus = FakeGpus::new(1, "0.samples 1:0\n0.process_times 1");
    std::fs::write(gpus.path("held/1.0"), "800 c 10").unwrap();
    let busy = gpus.script("busy", "0.samples 1:0 300000000:60\n0.process_times 300000000");
    let run = gpus.run(&["sampled", "hold:0:500,c,60", &format!("script:{busy}"), "sampled", "sampled"]);
    let gpu = run.assert_clean(0).gpu(GPU0);
    assert_eq!((gpu.f64("processes.0.max_sm_percent"), gpu.f64("utilization.max_percent")), (60.0, 60.0));
}

/// The driver counts each sample of a device for the process that is active then. Two that take turns share its utilization, and a
/// third has none.
// Requirement: GPU-3
#[test]
fn processes_that_take_turns_share_the_utilization() {
    let gpus = FakeGpus::new(1, "*.samples ring 70 50000 80\n*.process_times turns");
    let [first, second, done] = ["first", "second", "done"].map(|name| gpus.path(name));
    let turn = |held: &str, path: &str| gpus.line(&[held, &format!("touch:{path}"), &format!("wait:{done}")]);
    let both = [format!("wait:{first}"), format!("wait:{second}")];
    let idle = gpus.line(&["hold:0:100,c", &both[0], &both[1], "for:2500", &format!("touch:{done}")]);
    let turns = [turn("hold:0:300,c,1", &first), turn("hold:0:200,c,1", &second)];
    let run = gpus.tracked(["sh", "-c", &format!("{} & {} & {idle}; wait", turns[0], turns[1])]).run();
    let gpu = run.assert_clean(0).gpu(GPU0);
    let [a, b, none] = gpu.array("processes") else { panic!("{}", gpu.at("processes")) };
    let mut means = [a, b].map(|process| process["mean_sm_percent"].as_f64().unwrap());
    means.sort_by(f64::total_cmp);
    // The one that came first was alone for a while.
    assert_within("mean", means[0], 40.0, 20.0);
    assert!(means[1] < 70.0, "{means:?}");
    assert!(none["mean_sm_percent"].is_null(), "{none}");
}

/// While samples cannot be read, the rate is used. Neither source counts any time twice or counts time before the run.
#[test]
fn unreadable_gpu_samples_add_no_busy_time() {
    let gpus = FakeGpus::new(1, "0.utilization 0\n0.samples !999|500000:100 1500000:100 2500000:100");
    let gpu = gpus.run(&["sampled", "sampled"]).assert_clean(0).gpu(GPU0);
    assert!(
        gpu.at("utilization.active_s").is_null(),
        "the samples are older than the run, and a rate spans no time"
    );
    let gpus = FakeGpus::new(1, "0.utilization 100\n0.samples now:100|!999|!999|!999|now:100");
    let gpu = gpus.run(&["sampled", "samples:20"]).assert_clean(0).gpu(GPU0);
    assert_eq!(gpu.f64("utilization.mean_percent"), 100.0);
}

/// The driver takes samples only while a process uses the GPU.
#[test]
fn gpu_is_idle_while_its_driver_takes_no_samples() {
    let (_, run) = FakeGpus::with_these_samples(1, "0.utilization 0\n0.samples 1:0", |gpus| {
        let busy = gpus.script("busy", "0.utilization 0\n0.samples 2:0 1000002:80 9000002:40");
        gpus.run(&["sampled", &format!("script:{busy}"), "sampled", "sampled"])
    });
    let gpu = run.assert_clean(0).gpu(GPU0);
    // 1 s at 80%, 7 s idle, 1 s at 40%.
    assert_eq!(gpu.f64("utilization.active_s"), 1.2);
    assert_within("mean", gpu.f64("utilization.mean_percent"), 120.0 / 9.0, 1e-7);
}

#[test]
fn gpu_without_sample_support_uses_the_rate() {
    let gpus = FakeGpus::new(1, "0.samples");
    let run = gpus.run(&["hold:0:500,c", "sampled"]);
    let report = run.assert_clean(0);
    assert!(report.gpu(GPU0).at("utilization.max_percent").is_null());
    assert_eq!(
        report.warnings(),
        "GPU figures that are missing (no sample was taken in time): utilization of GPU-fake-0."
    );
    let gpus = FakeGpus::new(1, "0.samples !3\n0.utilization 35");
    let run = gpus.run(&["hold:0:500,c", "sampled"]);
    let report = run.assert_clean(0);
    assert_eq!(report.gpu(GPU0).f64("utilization.mean_percent"), 35.0);
    assert_eq!(report.f64("gpu_utilization.gpu_percentages.max_sum_percent"), 35.0);
}

// Requirement: GPU-5
#[test]
fn gpu_utilization_sum_is_null_if_one_gpu_has_none() {
    let gpus = FakeGpus::new(2, "0.samples now:80\n1.samples !4\n1.utilization !4\n1.process_times !4");
    let report = gpus.run(&["hold:0:700,c,60", "sampled", "samples:30"]).assert_clean(0).clone();
    assert!(report.at("gpu_utilization.gpu_percentages.max_sum_percent").is_null());
    assert!(report.at("processes").get("max_sm_percent").is_none_or(serde_json::Value::is_null));
    assert_eq!(report.gpu(GPU0).f64("utilization.max_percent"), 80.0);
    assert!(report.gpu(GPU1).at("utilization.max_percent").is_null());
}

/// 100 ms busy in each 2 s, with samples 20 ms apart; none while it is idle.
// Requirement: GPU-3
#[test]
fn gpu_sample_after_an_idle_time_stands_for_the_usual_time() {
    let gpus = FakeGpus::new(1, "0.utilization 0\n0.samples bursts 100 20000 100 100000 2000000");
    let run = gpus.tracked(gpus.words(&["for:6500"])).options(&["--st", "0.1"]).run();
    let gpu = run.assert_clean(0).gpu(GPU0);
    assert_eq!(gpu.f64("utilization.max_percent"), 100.0);
    // Three bursts; what was idle before the first one counts, too.
    let active_s = gpu.f64("utilization.active_s");
    assert!((0.15..0.45).contains(&active_s), "{active_s}");
    assert!(gpu.f64("utilization.mean_percent") < 10.0);
}

//! GPU figures that are integrals over time. The test derives the time between readings from the throttle reasons, so the
//! expected integrals are exact.

use crate::support::assert_within;
use crate::support::gpu::{FakeGpus, GPU0};
use crate::support::report::Report;

/// The rounding error of a sum of a few 64-bit numbers, in percent.
const ROUNDING_PERCENT: f64 = 1e-7;

/// Seconds in a throttle reason.
fn throttled_s(gpu: &Report, reason: &str) -> f64 {
    let entry = gpu.array("throttle").iter().find(|entry| entry["reason"] == reason);
    entry.unwrap_or_else(|| panic!("no {reason} in {}", gpu.at("throttle")))["time_s"].as_f64().unwrap()
}

/// The least and the most time between the first and the last reading in the report, by the fake driver's own clock.
fn bounds_s(gpus: &FakeGpus) -> [f64; 2] {
    let times = std::fs::read_to_string(gpus.path("times")).unwrap();
    let times: Vec<u64> = times.lines().map(|line| line.parse().unwrap()).collect();
    // The collector dates a reading before it begins, so after the previous reading, or after the driver's start. The last
    // reading may come too late for the report.
    let [start, first, .., before_last, _, last] = times.as_slice() else { panic!("{times:?}") };
    [before_last - first, last - start].map(|ns| ns as f64 / 1e9)
}

// Requirement: GPU-11
#[test]
fn gpu_power_and_throttling_over_time_are_exact() {
    // A throttle reason covers the time since the previous reading. Here: up to the last reading of 100 W, then up to
    // the first of 300 W, then the rest.
    let gpus = FakeGpus::new(
        1,
        "0.throttle 1|1|1|4|32\n0.power 100000|100000|100000|300000\n0.energy !3\n\
         0.sm_clock 500|500|500|1500\n0.memory_clock 800|800|800|2400\n0.memory_utilization 20|60\n\
         0.temperature 41|77|50\n0.pstate 8|2|5|3\n0.ecc_corrected 4|6\n0.ecc_uncorrected 0|1",
    );
    let run = gpus.run(&["samples:12"]);
    let report = run.assert_clean(0);
    let gpu = report.gpu(GPU0);
    let [low_s, rise_s, high_s] =
        ["idle", "software power cap", "software thermal slowdown"].map(|reason| throttled_s(&gpu, reason));
    assert_eq!(gpu.array("throttle").len(), 3);
    let sampled_s = low_s + rise_s + high_s;
    let [least_s, most_s] = bounds_s(&gpus);
    assert!((least_s..=most_s).contains(&sampled_s), "{sampled_s} s, not {least_s} to {most_s} s");
    let joules = 100.0 * low_s + 200.0 * rise_s + 300.0 * high_s;
    for (figure, expected) in [
        ("power.integrated_energy_j", joules),
        ("power.mean_w", joules / sampled_s),
        // Both clocks change at the same reading.
        ("clocks.mean_memory_mhz", 1.6 * gpu.f64("clocks.mean_sm_mhz")),
    ] {
        assert_within(figure, gpu.f64(figure), expected, ROUNDING_PERCENT);
    }
    // Without an energy counter, the mean is that of the readings.
    assert_eq!(gpu.f64("power.max_w"), 300.0);
    assert_within("span", gpu.f64("power.mean_span_s"), sampled_s, ROUNDING_PERCENT);
    assert_eq!((gpu.f64("clocks.max_sm_mhz"), gpu.f64("clocks.max_memory_mhz")), (1500.0, 2400.0));
    assert!((500.0..1500.0).contains(&gpu.f64("clocks.mean_sm_mhz")));
    assert_eq!(gpu.f64("utilization.max_memory_percent"), 60.0);
    assert_eq!(gpu.f64("max_temperature_c"), 77.0);
    assert_eq!((gpu.u64("pstate.fastest"), gpu.u64("pstate.slowest")), (2, 8));
    assert_eq!((gpu.u64("errors.ecc_corrected"), gpu.u64("errors.ecc_uncorrected")), (2, 1));
    assert_eq!(
        report.warnings(),
        "GPU-fake-0 had uncorrected memory errors (ECC).\n\
         GPU figures that are missing (not supported by this device): energy counter of GPU-fake-0."
    );
}

/// A counter that no board behind it feeds.
// Requirement: GPU-31
#[test]
fn gpu_energy_counter_that_stands_still_while_power_is_drawn_is_null() {
    let gpus = FakeGpus::new(1, "0.energy 5000000\n0.power 250000");
    let report = gpus.run(&["samples:8"]).assert_clean(0).clone();
    let power = report.gpu(GPU0).at("power").clone();
    assert!(power["energy_j"].is_null() && power["energy_span_s"].is_null(), "{power}");
    assert!(power["integrated_energy_j"].as_f64().unwrap() > 1.0, "{power}");
    assert_eq!(
        report.warnings(),
        "GPU figures that are missing (its counter stood still while power was drawn): energy counter of GPU-fake-0."
    );
    // Without power there is no energy.
    let gpus = FakeGpus::new(1, "0.energy 5000000\n0.power 0");
    assert_eq!(gpus.run(&["samples:8"]).assert_clean(0).gpu(GPU0).f64("power.energy_j"), 0.0);
}

/// Each throttle reason covers the whole time for which power was read.
#[test]
fn permanent_gpu_throttling_covers_all_sampled_time() {
    let gpus = FakeGpus::new(1, "0.throttle 511\n0.power 250000");
    let run = gpus.run(&["samples:8"]);
    let gpu = run.assert_clean(0).gpu(GPU0);
    assert_eq!(gpu.f64("power.mean_w"), 250.0);
    let sampled_s = gpu.f64("power.integrated_energy_j") / 250.0;
    let reasons: Vec<_> =
        gpu.array("throttle").iter().map(|entry| entry["reason"].as_str().unwrap()).collect();
    assert_eq!(
        reasons,
        [
            "application clocks",
            "display clocks",
            "hardware power brake",
            "hardware slowdown",
            "hardware thermal slowdown",
            "idle",
            "software power cap",
            "software thermal slowdown",
            "sync boost",
        ]
    );
    for reason in reasons {
        assert_within(reason, throttled_s(&gpu, reason), sampled_s, ROUNDING_PERCENT);
    }
}

/// Reads that fail between two successful ones do not matter to a counter.
// Requirement: GPU-11
#[test]
fn gpu_counters_survive_failed_reads() {
    let gpus = FakeGpus::new(
        1,
        "0.energy 1000000|!999|!999|1700000\n0.pcie_tx 1000|!999|!999|5000\n0.ecc_corrected 4|9",
    );
    let run = gpus.run(&["samples:8"]);
    let report = run.assert_clean(0);
    let gpu = report.gpu(GPU0);
    assert_eq!((gpu.f64("power.energy_j"), gpu.u64("pcie.tx_bytes")), (700.0, 4000));
    assert_eq!(gpu.u64("errors.ecc_corrected"), 5);
    assert_eq!(report.warnings(), "");
}

/// A driver can have samples of each device at different times. Here it has them of one device at every second reading,
/// and of the other one between.
#[test]
fn utilization_of_alternately_sampled_gpus_adds_up() {
    let samples_of = |percent: &str, is_first: bool| -> String {
        let sample = |n: u32| format!("{}000000{percent}", n.div_ceil(2));
        let readings: Vec<String> =
            (1..=8).map(|n| if (n % 2 == 1) == is_first { sample(n) } else { String::new() }).collect();
        readings.join("|")
    };
    let script = |gpu: u32, key: &str, samples: String| format!("{gpu}.{key} {samples}\n");
    let samples =
        script(0, "samples", samples_of(":80", true)) + &script(1, "samples", samples_of(":70", false));
    let gpus = FakeGpus::new(2, "*.samples\n*.process_times");
    let times =
        script(0, "process_times", samples_of("", true)) + &script(1, "process_times", samples_of("", false));
    let busy = gpus.script("busy", &(samples + &times));
    let words = ["hold:0:700,c,60", "hold:1:300,c,30", "sampled", &format!("script:{busy}"), "samples:30"];
    let run = gpus.run(&words);
    let report = run.assert_clean(0);
    let percentages = "gpu_utilization.gpu_percentages";
    assert_eq!(report.f64(&format!("{percentages}.max_sum_percent")), 150.0);
    assert_eq!(report.f64(&format!("{percentages}.mean_sum_percent")), 150.0);
    assert_eq!(report.f64("processes.max_sm_percent.main"), 90.0);
    assert_eq!(report.f64("processes.max_sm_percent.combined"), 90.0);
    assert_eq!(report.f64("processes.heaviest.0.gpu.max_sm_percent"), 60.0);
}

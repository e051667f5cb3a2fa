//! Not a test but a measurement, which prints the table of docs/GPU.md. By what the driver's calls cost, it shows how
//! often GPUs are read, and how far that is from the truth.
//!
//!     cargo test -p gpu-track-run --test e2e gpu_intervals -- --ignored --nocapture

use crate::support::gpu::FakeGpus;

/// In each run, processes hold this one after another, each on a GPU of its own.
const HELD_BYTES: u64 = 5_000_000_000;
const HOLDERS: usize = 8;
/// The GPUs are busy from 1 to 3 s after the driver's start, by samples 20 ms apart, of which it keeps 100.
const BUSY_S: f64 = 2.0;
const WATTS: f64 = 100.0;

#[test]
#[ignore = "a measurement"]
fn gpu_intervals_and_errors_by_the_cost_of_a_call() {
    println!(
        "| GPUs | a call | `--st` | driver busy | interval, mean (longest) | memory of 0.5 s seen | utilization | energy |"
    );
    println!("|---|---|---|---|---|---|---|---|");
    for cost_us in [50, 1000, 4500] {
        for count in [1, 8, 16] {
            for is_given in [false, true] {
                println!("{}", row(count, cost_us, is_given));
            }
        }
    }
}

fn row(count: usize, cost_us: u32, is_given: bool) -> String {
    let script = "*.memory_held 1\n*.samples ring 100 20000 100 1000000 3000000\n*.energy 5000000+100000/s\n*.power 100000";
    let gpus = FakeGpus::new(count, script);
    let hold = |n: usize| gpus.line(&[&format!("hold:{}:{HELD_BYTES},c", n % count), "for:500"]);
    let holders: Vec<String> = (0..HOLDERS).map(hold).collect();
    let command = format!("{}; {}", gpus.line(&["for:300"]), holders.join("; "));
    std::fs::write(gpus.path("spent"), "").unwrap();
    let tracked = gpus.tracked(["sh", "-c", &command]).without_option("--st");
    let run = if is_given { tracked.options(&["--st", "0.1"]) } else { tracked }
        .with(move |command| command.env("FAKE_NVML_COST_US", cost_us.to_string()))
        .run();
    let report = run.report();
    let all: Vec<_> = (0..count).map(|n| report.gpu(&format!("GPU-fake-{n}"))).collect();
    let held = report.array("processes.heaviest").iter();
    let seen = held.filter(|process| process["gpu"]["peak_ram_bytes"] == HELD_BYTES).count();
    let largest = |path: &str| all.iter().filter_map(|gpu| gpu.at(path).as_f64()).fold(0.0, f64::max);
    let [interval, longest] = ["reading.mean_interval_s", "reading.max_interval_s"].map(largest);
    let worst = |figure: &str, truth: f64| {
        let errors = all.iter().map(|gpu| (gpu.at(figure).as_f64().unwrap_or(0.0) / truth - 1.0) * 100.0);
        errors.fold(0.0, |worst: f64, error: f64| if error.abs() > worst.abs() { error } else { worst })
    };
    let joules = WATTS * report.f64("compute_time.time");
    format!(
        "| {count} | {} ms | {} | {:.0}% | {:.0} ms ({:.0}) | {seen} of {HOLDERS} | {:+.1}% | {:+.1}% |",
        f64::from(cost_us) / 1000.0,
        if is_given { "0.1" } else { "-" },
        gpus.busy_share(report) * 100.0,
        interval * 1000.0,
        longest * 1000.0,
        worst("utilization.active_s", BUSY_S),
        worst("power.energy_j", joules),
    )
}

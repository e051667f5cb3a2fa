//! Energy at rest, and what tracking costs.

use std::process::{Command, Stdio};
use std::time::Instant;

use super::check::{Answer, Check, ms};
use super::utilization::reading;
use crate::process;
use crate::report::{self, Power};
use crate::results::{Results, rounded};

const ENERGY_OFF: f64 = 0.02;
/// A command's start and end may be delayed by this much together.
const DELAY_MS: f64 = 50.0;
/// How a side of a comparison is tracked: the options, or not at all.
type Side = Option<&'static [&'static str]>;
/// Only GPUs of another maker are read.
const WITHOUT_NVML: Side = Some(&["--gb", "amd"]);

/// Energy at rest against the first device's counter.
pub(super) fn energy(results: &mut Results, check: &Check) {
    if check.nvml.energy_j().is_none() {
        return results.skip("energy", "this device has no counter");
    }
    std::thread::sleep(check.times.rest);
    let answer = Answer::new("energy");
    let arguments = [answer.path(), ms(check.times.energy)];
    let Some(report) = check.tracked(results, "energy", &arguments, &[]) else { return };
    if let (Some(gpu), [joules, seconds]) = (report.gpu(&check.nvml.uuid), answer.numbers().as_slice()) {
        judge_energy(results, &gpu.power, *joules, *seconds);
    }
}

/// Compares rates, because the report's time and that of the two readings differ by the driver's start. The counter moves
/// some ten times a second, so both can be half a percent off.
fn judge_energy(results: &mut Results, power: &Power, joules: f64, seconds: f64) {
    let ours_w = power.energy_j.zip(power.energy_span_s).map(|(joules, span_s)| joules / span_s);
    let ours_w = ours_w.filter(|watts| watts.is_finite());
    let by_hand_w = joules / seconds;
    let is_right = ours_w.is_some_and(|ours_w| joules > 0.0 && (ours_w / by_hand_w - 1.0).abs() < ENERGY_OFF);
    results.check(
        "energy a second at rest within 2% of the counter's",
        is_right,
        &format!(
            "{} W over {} s, and {by_hand_w:.2} W over {seconds:.2} s; by integrated power {} W, {} J of {} J",
            rounded(ours_w),
            rounded(power.energy_span_s),
            rounded(power.mean_w),
            rounded(power.integrated_energy_j),
            rounded(power.energy_j)
        ),
    );
}

/// The collector's CPU time, and how often it reads the GPU.
pub(super) fn collector(results: &mut Results, check: &Check) {
    for interval in ["0.1", "0.01"] {
        let answer = Answer::new("meter");
        let arguments = [answer.path(), ms(check.times.metered)];
        let Some(report) = check.tracked(results, "meter", &arguments, &["--st", interval]) else { continue };
        let readings = report.gpu(&check.nvml.uuid).map(reading).unwrap_or_default();
        match answer.numbers().as_slice() {
            [cpu_s, took_s] => {
                let percent = cpu_s / took_s * 100.0;
                results.note(&format!("--st {interval}: collector {percent:.2}% of a core; {readings}"));
            }
            _ => results.skip(&format!("the collector's CPU time (--st {interval})"), "it was not measured"),
        }
    }
}

/// A short command, and one with a CUDA context: alone, tracked, and tracked without NVML. The last tells what of the delay is that of
/// two programs that start the driver at one time.
pub(super) fn start_and_end(results: &mut Results, check: &Check) {
    for (what, command, rounds) in
        [("true", vec!["true".to_owned()], 21), ("a CUDA context", process::part("context", &[]), 7)]
    {
        let [direct, tracked, without_nvml] = medians(rounds, [None, Some(&[]), WITHOUT_NVML], |options| {
            let start = Instant::now();
            run(check, &command, options).then(|| start.elapsed().as_secs_f64() * 1e3)
        });
        let what = format!("start and end of {what}");
        let (Some(direct), Some(tracked)) = (direct, tracked) else {
            results.check(&what, false, "the command failed");
            continue;
        };
        let detail = format!(
            "{direct:.1} ms alone, {tracked:.1} ms under gpu-track-run, {} ms without NVML",
            rounded(without_nvml)
        );
        results.check(&what, tracked - direct < DELAY_MS, &detail);
    }
}

/// A loop of cuMemAlloc and cuMemFree, with and without tracking.
pub(super) fn allocations(results: &mut Results, check: &Check) {
    let (time, rounds) = check.times.loops;
    let answer = Answer::new("loop");
    let command = process::part("loop", &[answer.path(), ms(time)]);
    let [direct, tracked] = medians(rounds, [None, Some(&[])], |options| {
        run(check, &command, options).then(|| answer.numbers().first().map(|s| s * 1e6))?
    });
    let (Some(direct), Some(tracked)) = (direct, tracked) else {
        return results.skip("cuMemAlloc and cuMemFree", "the loop failed");
    };
    let percent = (tracked / direct - 1.0) * 100.0;
    results.note(&format!(
        "cuMemAlloc and cuMemFree of 1 MiB: {direct:.2} us alone, {tracked:.2} us under gpu-track-run ({percent:+.1}%)"
    ));
}

/// Runs a command to its end, tracked with these options or alone; whether it succeeded.
fn run(check: &Check, command: &[String], side: Side) -> bool {
    let log = report::unused();
    let front = |options: &[&str]| {
        let [tracker, log] = [check.tracker, log.as_path()].map(|path| path.display().to_string());
        let options = options.iter().map(|word| (*word).to_owned());
        [tracker, "-o".into(), log].into_iter().chain(options).chain(["--".into()]).collect::<Vec<_>>()
    };
    let words = [side.map(front).unwrap_or_default(), command.to_vec()].concat();
    let Some((program, arguments)) = words.split_first() else { return false };
    let status = Command::new(program).args(arguments).stdin(Stdio::null()).status();
    let _ = std::fs::remove_file(log);
    status.is_ok_and(|status| status.success())
}

/// Medians of alternating measurements of these sides; `None` where all failed.
fn medians<const N: usize>(
    rounds: u32,
    sides: [Side; N],
    mut measure: impl FnMut(Side) -> Option<f64>,
) -> [Option<f64>; N] {
    let mut measured = [(); N].map(|()| Vec::new());
    for _ in 0..rounds {
        for (all, side) in measured.iter_mut().zip(sides) {
            all.extend(measure(side));
        }
    }
    measured.map(|mut side| {
        side.sort_by(f64::total_cmp);
        side.get(side.len() / 2).copied()
    })
}

#[cfg(test)]
mod tests {
    use super::super::testing::failures;
    use super::*;

    fn judged(power: &Power, joules: f64) -> usize {
        failures(|results| judge_energy(results, power, joules, 20.0)).len()
    }

    #[test]
    fn energy_rates_within_two_percent_are_right() {
        // The power was read for less time than the counter.
        let known = |joules| Power {
            mean_w: Some(100.0),
            max_w: None,
            energy_j: Some(joules),
            energy_span_s: Some(joules / 100.0),
            integrated_energy_j: Some(0.9 * joules),
        };
        assert_eq!(
            (judged(&known(2000.0), 2000.0), judged(&known(3000.0), 1970.0)),
            (0, 0),
            "the times may differ"
        );
        assert_eq!((judged(&known(2000.0), 1950.0), judged(&known(2000.0), 0.0)), (1, 1));
        assert_eq!(judged(&Power { energy_j: None, ..known(1.0) }, 2000.0), 1);
        assert_eq!(judged(&Power { energy_span_s: None, ..known(2000.0) }, 2000.0), 1);
    }

    #[test]
    fn medians_are_of_each_side_and_without_failures() {
        let mut round = 0.0;
        let [direct, tracked] = medians(3, [None, Some(&[])], |options| {
            round += 1.0;
            (options.is_none() || round < 4.0).then_some(round)
        });
        assert_eq!((direct, tracked), (Some(3.0), Some(2.0)));
        assert_eq!(medians(1, [None, WITHOUT_NVML], |_| None), [None, None]);
    }
}

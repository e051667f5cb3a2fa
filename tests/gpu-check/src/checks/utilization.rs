//! Utilization of the device and by process.

use super::check::{Answer, Check, ms};
use crate::report::{Gpu, Report};
use crate::results::{Results, rounded, shown};

/// The driver's samples are up to a second long, and its first one may begin before the work.
const SAMPLE_S: f64 = 1.5;
/// One SM is no larger part of any device that has counters, percent.
const MOST_OF_ONE_SM: f64 = 10.0;
/// How far utilization may be off.
const POINTS: f64 = 5.0;

/// A device that is busy for a known time.
pub(super) fn busy(results: &mut Results, check: &Check) {
    let start = std::time::Instant::now();
    let Some(report) = check.tracked(results, "spin", &[ms(check.times.busy)], &[]) else { return };
    let took_s = start.elapsed().as_secs_f64();
    if let Some(gpu) = of_device(results, &report, &check.nvml.uuid) {
        judge_busy(results, gpu, check.times.busy.as_secs_f64(), took_s);
        judge_activity(results, gpu);
    }
}

/// The kernel that keeps the device busy is one thread of one block, so one SM works, and no tensor core.
fn judge_activity(results: &mut Results, gpu: &Gpu) {
    let activity = &gpu.activity;
    let Some(largest) = activity.max_sm_percent else {
        return results.skip("the activity of SMs", gpu.lacks("activity").unwrap_or("it is not known"));
    };
    results.check(
        "the SMs of a GPU that one thread keeps busy",
        largest < MOST_OF_ONE_SM,
        &format!("{largest}%"),
    );
    let tensor = activity.mean_tensor_percent;
    results.check(
        "its tensor cores",
        tensor.is_none_or(|percent| percent < 1.0),
        &format!("{}%", shown(tensor)),
    );
    results.note(&format!(
        "counters of {} s: SMs {}% in the mean, memory bandwidth {}%",
        rounded(activity.measured_s),
        rounded(activity.mean_sm_percent),
        rounded(activity.mean_memory_bandwidth_percent)
    ));
}

fn of_device<'a>(results: &mut Results, report: &'a Report, uuid: &str) -> Option<&'a Gpu> {
    let gpu = report.gpu(uuid);
    if gpu.is_none() {
        results.check("the GPU", false, &format!("{uuid} is not in the report"));
    }
    gpu
}

/// The device was busy for `busy_s` of a run of `took_s`.
fn judge_busy(results: &mut Results, gpu: &Gpu, busy_s: f64, took_s: f64) {
    let utilization = &gpu.utilization;
    match gpu.lacks("utilization") {
        Some(reason) => results.skip("utilization", reason),
        None => {
            let is_right = utilization.active_s.is_some_and(|s| s >= busy_s - SAMPLE_S && s <= took_s);
            let detail = format!(
                "{} s of {busy_s} in {took_s:.2} s; mean {}%",
                rounded(utilization.active_s),
                rounded(utilization.mean_percent)
            );
            results.check("a busy GPU's active time", is_right, &detail);
            let largest = utilization.max_percent.is_some_and(|percent| percent >= 90.0);
            results.check(
                "its largest utilization",
                largest,
                &format!("{}%", shown(utilization.max_percent)),
            );
        }
    }
    match gpu.lacks("utilization by process") {
        Some(reason) => results.skip("utilization by process", reason),
        None => {
            let largest =
                gpu.processes.iter().filter_map(|process| process.max_sm_percent).fold(0.0, f64::max);
            results.check("its process's largest utilization", largest > 0.0, &format!("{largest}%"));
        }
    }
    let process = |p: &crate::report::Process| {
        format!("pid {}, the driver's {}, {} bytes", p.pid, p.driver_pid, shown(p.peak_bytes))
    };
    let processes: Vec<String> = gpu.processes.iter().map(process).collect();
    match gpu.lacks("memory by process") {
        Some(reason) => results.skip("the busy process", reason),
        None => results.check("the busy process is known", processes.len() == 1, &processes.join("; ")),
    }
    results.note(&format!(
        "power mean {} W, max {} W; SM clock max {} MHz; temperature {} C; {}",
        rounded(gpu.power.mean_w),
        rounded(gpu.power.max_w),
        shown(gpu.clocks.max_sm_mhz),
        shown(gpu.max_temperature_c),
        reading(gpu)
    ));
    for missing in &gpu.missing {
        results.note(&format!("missing: {} ({})", missing.figure, missing.reason));
    }
}

/// How often the device was read.
pub(super) fn reading(gpu: &Gpu) -> String {
    let Some(reading) = &gpu.reading else { return "the report does not say how often it was read".into() };
    let rate = reading.mean_interval_s.filter(|s| *s > 0.0).map(|s| 1.0 / s);
    let (count, most) = (reading.count, reading.max_interval_s);
    format!("{count} readings, {} a second, at most {} s apart", rounded(rate), rounded(most))
}

/// A device that is busy half of the time.
pub(super) fn half_busy(results: &mut Results, check: &Check) {
    let answer = Answer::new("pulse");
    let arguments = [answer.path(), ms(check.times.pulse), check.times.pulses.to_string()];
    let Some(report) = check.tracked(results, "pulse", &arguments, &[]) else { return };
    if let (Some(gpu), [busy_s, took_s]) =
        (of_device(results, &report, &check.nvml.uuid), answer.numbers().as_slice())
    {
        judge_half_busy(results, gpu, *busy_s, *took_s);
    }
}

fn judge_half_busy(results: &mut Results, gpu: &Gpu, busy_s: f64, took_s: f64) {
    let what = "a GPU that is busy half of the time";
    match (gpu.lacks("utilization"), gpu.utilization.active_s) {
        (Some(reason), _) => results.skip(what, reason),
        (None, active_s) => {
            let points = active_s.map(|active_s| (active_s - busy_s) / took_s * 100.0);
            let detail = format!(
                "{} s of {busy_s:.2} in {took_s:.2} s, {} points off",
                rounded(active_s),
                rounded(points)
            );
            results.check(what, points.is_some_and(|points| points.abs() <= POINTS), &detail);
        }
    }
}

/// A busy process and an idle one on the same device are told apart.
pub(super) fn two_processes(results: &mut Results, check: &Check) {
    let answer = Answer::new("two");
    let arguments = [answer.path(), ms(check.times.busy)];
    let Some(report) = check.tracked(results, "two", &arguments, &[]) else { return };
    if let (Some(gpu), [busy, idle]) =
        (of_device(results, &report, &check.nvml.uuid), answer.numbers().as_slice())
    {
        judge_two(results, gpu, *busy as u32, *idle as u32);
    }
}

fn judge_two(results: &mut Results, gpu: &Gpu, busy: u32, idle: u32) {
    let what = "two processes on one GPU";
    if let Some(reason) = gpu.lacks("utilization by process").or(gpu.lacks("memory by process")) {
        return results.skip(what, reason);
    }
    let percent = |pid| gpu.process(pid).and_then(|process| process.mean_sm_percent);
    let is_right = percent(busy).is_some_and(|percent| percent >= 50.0)
        && gpu.process(idle).is_some_and(|process| process.mean_sm_percent.unwrap_or(0.0) <= POINTS);
    let detail = format!("busy {}%, idle {}%", rounded(percent(busy)), rounded(percent(idle)));
    results.check(what, is_right, &detail);
}

#[cfg(test)]
mod tests {
    use super::super::testing::{failures, gpu};
    use super::*;

    #[test]
    fn active_time_is_within_the_run() {
        let judged = |active_s: f64| {
            let mut gpu = gpu(&[(7, 1 << 30)]);
            gpu.utilization.active_s = Some(active_s);
            failures(|results| judge_busy(results, &gpu, 6.0, 6.5))
        };
        assert!(judged(6.0).is_empty());
        assert_eq!(judged(4.0), ["a busy GPU's active time"]);
        assert_eq!(judged(7.0), ["a busy GPU's active time"]);
    }

    #[test]
    fn one_thread_is_the_work_of_one_sm() {
        let judged = |sms: Option<f64>, tensor: Option<f64>| {
            let mut gpu = gpu(&[]);
            (gpu.activity.max_sm_percent, gpu.activity.mean_tensor_percent) = (sms, tensor);
            failures(|results| judge_activity(results, &gpu)).len()
        };
        assert_eq!([judged(Some(0.8), Some(0.0)), judged(Some(0.8), None), judged(None, None)], [0; 3]);
        assert_eq!([judged(Some(97.0), Some(0.0)), judged(Some(0.8), Some(40.0))], [1; 2]);
    }

    #[test]
    fn half_busy_gpu_may_be_five_points_off() {
        let judged = |active_s: f64| {
            let mut gpu = gpu(&[]);
            gpu.utilization.active_s = Some(active_s);
            failures(|results| judge_half_busy(results, &gpu, 4.0, 10.0))
        };
        assert!(judged(4.4).is_empty() && judged(3.6).is_empty());
        assert_eq!(judged(4.6).len() + judged(3.4).len(), 2);
    }

    #[test]
    fn two_processes_must_have_different_utilization() {
        let gpu = gpu(&[(7, 1), (8, 1)]);
        assert!(
            failures(|results| judge_two(results, &gpu, 7, 8)).contains(&"two processes on one GPU".into())
        );
        let mut apart = gpu.clone();
        apart.processes[1].mean_sm_percent = None;
        assert!(failures(|results| judge_two(results, &apart, 7, 8)).is_empty());
        assert_eq!(failures(|results| judge_two(results, &apart, 8, 7)).len(), 1);
    }
}

//! A GPU under load, against a second opinion: the nvml-wrapper crate.

use super::check::{Answer, Check, ms};
use super::memory::GRANULE;
use crate::opinion::{Energy, Opinion};
use crate::report::{Gpu, Power, Report};
use crate::results::{Results, rounded, shown};

/// How far the largest of two series of power readings may be apart.
const POWER_OFF: f64 = 0.1;
const ENERGY_OFF: f64 = 0.02;

/// Name, UUID, memory, power and energy of a GPU that is busy for a part of the run.
pub(super) fn under_load(results: &mut Results, check: &Check) {
    let answer = Answer::new("opinion");
    let arguments = [answer.path(), ms(check.times.held), ms(check.times.busy)];
    let Some(report) = check.tracked(results, "opinion", &arguments, &[]) else { return };
    let text = std::fs::read_to_string(&answer.0).unwrap_or_default();
    match serde_json::from_str(&text) {
        Ok(opinion) => judge(results, &opinion, &report),
        Err(error) => results.check("nvml-wrapper's readings", false, &error.to_string()),
    }
}

fn judge(results: &mut Results, opinion: &Opinion, report: &Report) {
    let ids: Vec<&str> = report.gpus.iter().map(|gpu| gpu.id.as_str()).collect();
    let gpu = match &opinion.uuid {
        Ok(uuid) => {
            results.check(
                "UUID by nvml-wrapper",
                ids.contains(&uuid.as_str()),
                &format!("{ids:?} and {uuid}"),
            );
            report.gpu(uuid)
        }
        Err(error) => {
            results.skip("UUID by nvml-wrapper", error);
            report.gpus.first()
        }
    };
    let Some(gpu) = gpu else { return };
    compare(results, "name", &gpu.name, &opinion.name, |ours, theirs| ours == theirs);
    compare(results, "memory", &gpu.memory.total_bytes, &opinion.total_bytes, |ours, theirs| ours == theirs);
    compare(results, "memory in use", &gpu.memory.max_used_bytes, &opinion.used_bytes, |ours, theirs| {
        ours.abs_diff(*theirs) <= 2 * GRANULE
    });
    compare(results, "largest power", &gpu.power.max_w, &opinion.power_w, |ours, theirs| {
        (ours / theirs - 1.0).abs() < POWER_OFF
    });
    match &opinion.energy {
        Ok(energy) => judge_energy(results, gpu, energy),
        Err(error) => results.skip(ENERGY, error),
    }
}

/// What the second opinion has, the report must have, too.
fn compare<T: std::fmt::Display>(
    results: &mut Results,
    figure: &str,
    ours: &Option<T>,
    theirs: &Result<T, String>,
    are_alike: impl Fn(&T, &T) -> bool,
) {
    let what = format!("{figure} by nvml-wrapper");
    match theirs {
        Ok(theirs) => {
            let is_right = ours.as_ref().is_some_and(|ours| are_alike(ours, theirs));
            results.check(&what, is_right, &format!("{} and {theirs}", shown(ours.as_ref())));
        }
        Err(error) => results.skip(&what, error),
    }
}

const ENERGY: &str = "energy under load within 2% of the counter's by nvml-wrapper";

/// The report's energy covers a little more or less time than the readings do. The GPU rests then.
fn judge_energy(results: &mut Results, gpu: &Gpu, theirs: &Energy) {
    if theirs.load_w <= theirs.rest_w {
        let detail = format!("{:.1} W at rest, {:.1} W under load", theirs.rest_w, theirs.load_w);
        return results.skip(ENERGY, &format!("the load draws no power ({detail})"));
    }
    let Power { energy_j, energy_span_s, .. } = gpu.power;
    let expected_j = energy_span_s.map(|span_s| theirs.joules + theirs.rest_w * (span_s - theirs.seconds));
    let off = energy_j.zip(expected_j).map(|(ours_j, expected_j)| ours_j / expected_j - 1.0);
    results.check(
        ENERGY,
        off.is_some_and(|off| off.abs() < ENERGY_OFF),
        &format!(
            "{} J over {} s, and {:.2} J over {:.2} s; {:.1} W at rest, {:.1} W under load",
            rounded(energy_j),
            rounded(energy_span_s),
            theirs.joules,
            theirs.seconds,
            theirs.rest_w,
            theirs.load_w
        ),
    );
}

#[cfg(test)]
mod tests {
    use super::super::testing::{failures, gpu};
    use super::*;
    use crate::report::MaxGpuRam;

    /// A run of 10 s at 100 W and 6 s at 400 W, which the report covers without 0.5 s at rest.
    fn judged(change: impl FnOnce(&mut Opinion, &mut Gpu)) -> Vec<String> {
        let energy = Energy { joules: 3400.0, seconds: 16.0, rest_w: 100.0, load_w: 400.0 };
        let mut opinion = Opinion {
            name: Ok("A".into()),
            uuid: Ok("GPU-1".into()),
            total_bytes: Ok(80 << 30),
            used_bytes: Ok(1 << 30),
            power_w: Ok(400.0),
            energy: Ok(energy),
        };
        let mut gpu = gpu(&[]);
        gpu.name = Some("A".into());
        (gpu.memory.total_bytes, gpu.memory.max_used_bytes) = (Some(80 << 30), Some((1 << 30) + 2 * GRANULE));
        (gpu.power.max_w, gpu.power.energy_j, gpu.power.energy_span_s) =
            (Some(390.0), Some(3350.0), Some(15.5));
        change(&mut opinion, &mut gpu);
        let report = Report { gpus: vec![gpu], max_gpu_ram: MaxGpuRam { combined: None }, warnings: vec![] };
        failures(|results| judge(results, &opinion, &report))
    }

    #[test]
    fn readings_that_agree_are_right() {
        assert!(judged(|_, _| {}).is_empty());
        assert!(judged(|_, gpu| gpu.power.energy_j = Some(3350.0 * 1.019)).is_empty());
        assert!(judged(|opinion, _| opinion.power_w = Err("not supported".into())).is_empty(), "no opinion");
        let at_rest = |opinion: &mut Opinion, gpu: &mut Gpu| {
            opinion.energy = Ok(Energy { joules: 1600.0, seconds: 16.0, rest_w: 100.0, load_w: 100.0 });
            gpu.power.energy_j = Some(3350.0);
        };
        assert!(judged(at_rest).is_empty(), "a load that draws no power says nothing");
    }

    #[test]
    fn readings_that_differ_are_wrong() {
        assert_eq!(judged(|_, gpu| gpu.power.energy_j = Some(3350.0 * 1.021)), [ENERGY]);
        assert_eq!(judged(|_, gpu| gpu.power.energy_span_s = Some(16.5)), [ENERGY]);
        assert_eq!(judged(|_, gpu| gpu.power.energy_j = None), [ENERGY]);
        assert_eq!(judged(|_, gpu| gpu.power.max_w = Some(0.4)), ["largest power by nvml-wrapper"]);
        assert_eq!(judged(|_, gpu| gpu.name = None), ["name by nvml-wrapper"]);
        assert_eq!(judged(|opinion, _| opinion.total_bytes = Ok(40 << 30)), ["memory by nvml-wrapper"]);
        assert_eq!(judged(|opinion, _| opinion.used_bytes = Ok(2 << 30)), ["memory in use by nvml-wrapper"]);
        assert_eq!(judged(|opinion, _| opinion.uuid = Ok("GPU-2".into())), ["UUID by nvml-wrapper"]);
    }
}

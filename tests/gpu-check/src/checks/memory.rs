//! Memory by process and by device.

use std::time::Duration;

use super::check::{Answer, Check, ms};
use crate::holders::{AllHeld, Held, Planned, installed};
use crate::process;
use crate::report::{self, Report};
use crate::results::{Results, shown};

const MIB: u64 = 1 << 20;
/// The driver maps device memory in pages of 2 MiB.
pub(super) const GRANULE: u64 = 2 * MIB;
/// What the short processes allocate: more than a bare context, which takes some 500 MiB on a large GPU.
const BRIEF_BYTES: u64 = 1024 * MIB;

/// Several processes at once: the first has nothing but a context, the others hold 300 MiB and more.
pub(super) fn all_kinds(results: &mut Results, check: &Check, is_quick: bool) {
    let mut kinds: Vec<(&str, Option<Vec<String>>)> =
        vec![("context", None), ("plain", None), ("plain", None), ("pool", None), ("managed", None)];
    let directory = std::env::temp_dir().join(format!("gpu-check.{}", std::process::id()));
    if is_quick {
        results.skip("nvcc, PyTorch, CuPy", "--quick");
    } else if std::fs::create_dir(&directory).is_ok() {
        for (name, program) in installed(&directory) {
            match program {
                Ok(program) => kinds.push((name, Some(program))),
                Err(reason) => results.skip(name, &reason),
            }
        }
    }
    let sizes = std::iter::once(0).chain((3..).map(|hundreds| hundreds * 100 * MIB));
    let planned = |((kind, program), bytes): ((&str, Option<Vec<String>>), u64)| Planned {
        bytes,
        kind: kind.to_owned(),
        program,
    };
    let plan: Vec<Planned> = kinds.into_iter().zip(sizes).map(planned).collect();
    let answer = Answer::new("held");
    let arguments = [serde_json::to_string(&plan).unwrap_or_default(), answer.path(), ms(check.times.held)];
    let report = check.tracked(results, "hold_all", &arguments, &[]);
    let held = std::fs::read_to_string(&answer.0).unwrap_or_default();
    let _ = std::fs::remove_dir_all(&directory);
    match (report, serde_json::from_str::<AllHeld>(&held)) {
        (Some(report), Ok(held)) => judge_all_kinds(results, &plan, &held, &report, &check.nvml.uuid),
        (Some(_), Err(error)) => results.check("the processes that hold memory", false, &error.to_string()),
        (None, _) => {}
    }
}

/// Compares each process's peak with its allocation, nvidia-smi, NVML, and the fall of free memory.
fn judge_all_kinds(results: &mut Results, plan: &[Planned], held: &AllHeld, report: &Report, uuid: &str) {
    for (planned, process) in plan.iter().zip(&held.processes) {
        if process.fallen_bytes.is_none() && planned.kind == "managed" {
            results.skip("managed memory", "it can't be allocated here");
        } else if process.fallen_bytes.is_none() {
            results.check(&format!("a process ({})", planned.kind), false, "it failed, see above");
        }
    }
    if !held.has_smi {
        results.skip("nvidia-smi", "not installed");
    }
    let combined = report.max_gpu_ram.combined;
    let reason = report.gpus.iter().find_map(|gpu| gpu.lacks("memory by process"));
    // The driver may name other pids than ours (containers, gVisor), or no memory by process (WSL; containers up to 560).
    let is_known = |bytes: u64| bytes > 0 && bytes != u64::MAX;
    if !held.processes.iter().any(|process| process.nvml_bytes.is_some_and(is_known)) {
        let detail = format!("{}; {}", shown(combined), shown(reason));
        let is_unknown = combined.is_none() && reason.is_some();
        return results.check("memory by process is unknown, and so is its sum", is_unknown, &detail);
    }
    if let Some(reason) = reason {
        return results.check("memory by process is known, as in NVML's list", false, reason);
    }
    let peak = |pid| {
        let on = report.gpus.iter().filter_map(|gpu| gpu.process(pid)?.peak_bytes);
        on.reduce(u64::saturating_add)
    };
    let context = held.processes.first().and_then(|first| peak(first.pid));
    for (planned, process) in plan.iter().zip(&held.processes) {
        if process.fallen_bytes.is_some() {
            judge_holder(results, planned, process, peak(process.pid), context);
        }
    }
    let sum: u64 = held.processes.iter().filter_map(|process| peak(process.pid)).sum();
    let slack = GRANULE * held.processes.len() as u64;
    let is_sum = combined.is_some_and(|combined| (combined - sum as f64).abs() <= slack as f64);
    results.check("combined is their sum", is_sum, &format!("{} and {sum}", shown(combined)));
    let used = report.gpu(uuid).and_then(|gpu| gpu.memory.max_used_bytes);
    let at_least = used.is_some_and(|used| used.saturating_add(slack) >= sum);
    results.check(
        "the GPU's memory holds them",
        at_least,
        &format!(
            "{} in use at most; by MemoryInfo (with the driver's own) {}",
            shown(used),
            shown(held.used_bytes)
        ),
    );
}

fn judge_holder(
    results: &mut Results,
    planned: &Planned,
    process: &Held,
    peak: Option<u64>,
    context: Option<u64>,
) {
    let kind = &planned.kind;
    let Some(peak) = peak else {
        return results.check(
            &format!("memory ({kind})"),
            false,
            &format!("pid {} has no peak", process.pid),
        );
    };
    let detail = format!("{peak} bytes for {} allocated", planned.bytes);
    if kind == "managed" {
        results.note(&format!("memory (managed), which drivers do not count by process: {detail}"));
    } else {
        results.check(&format!("memory ({kind})"), peak >= planned.bytes, &detail);
    }
    for (source, bytes) in [("nvidia-smi", process.smi_bytes), ("NVML's list", process.nvml_bytes)] {
        if let Some(bytes) = bytes {
            let what = format!("the same by {source} ({kind})");
            results.check(&what, peak.abs_diff(bytes) <= GRANULE, &format!("{peak} and {bytes}"));
        }
    }
    let fallen = process.fallen_bytes.unwrap_or_default();
    match context {
        // The context of such a process is like the first process's, so the rest is its allocation.
        Some(context) if ["plain", "pool"].contains(&kind.as_str()) => {
            let own = peak.saturating_sub(context);
            let detail = format!("{own} beyond a bare context's {context}, and {fallen}");
            results.check(
                &format!("the same by cuMemGetInfo ({kind})"),
                own.abs_diff(fallen) <= 2 * GRANULE,
                &detail,
            );
        }
        _ => results.note(&format!("free memory fell by {fallen} at that")),
    }
}

/// Memory that is held for 50, 200 and 500 ms. The longest must be seen.
pub(super) fn short_processes(results: &mut Results, check: &Check) {
    for held in [50, 200, 500].map(Duration::from_millis) {
        let arguments = [BRIEF_BYTES.to_string(), ms(held)];
        let Some(report) = check.tracked(results, "brief", &arguments, &[]) else { continue };
        judge_short(results, held, &report, &check.nvml.uuid);
    }
}

fn judge_short(results: &mut Results, held: Duration, report: &Report, uuid: &str) {
    let gpu = report.gpu(uuid);
    let peak = gpu.and_then(|gpu| gpu.processes.iter().filter_map(|process| process.peak_bytes).max());
    let interval = gpu.and_then(|gpu| gpu.reading.as_ref()?.max_interval_s);
    let what = format!("memory held for {} ms", held.as_millis());
    let detail =
        format!("{} bytes; the longest time between two readings: {} s", shown(peak), shown(interval));
    if let Some(reason) = gpu.and_then(|gpu| gpu.lacks("memory by process")) {
        results.skip(&what, reason);
    } else if peak.is_some_and(|peak| peak >= BRIEF_BYTES) || held.as_millis() >= 500 {
        results.check(&what, peak.is_some_and(|peak| peak >= BRIEF_BYTES), &detail);
    } else {
        results.note(&format!("{what}: not seen in full; {detail}"));
    }
}

/// The peak of a process that lives between two samples, by the driver's accounting.
pub(super) fn accounted(results: &mut Results, check: &Check, switches_on: bool) {
    let brief = process::part("brief", &[BRIEF_BYTES.to_string(), "0".into()]).join("' '");
    let command = ["sh", "-c", &format!("'{brief}'; sleep 3")].map(str::to_owned);
    let options: &[&str] = if switches_on { &["--gpu-accounting", "--st", "60"] } else { &["--st", "60"] };
    let Some(report) = report::tracked(results, check.tracker, options, &command, &[]) else { return };
    let processes = report.gpus.iter().flat_map(|gpu| &gpu.processes);
    let peaks: Vec<_> = processes.map(|process| (process.accounted, process.peak_bytes)).collect();
    let is_right = |(is_accounted, peak): &(bool, Option<u64>)| *is_accounted && *peak >= Some(BRIEF_BYTES);
    let detail = format!("by the driver's accounting, peak: {peaks:?}");
    results.check("a process that no sample saw", peaks.iter().any(is_right), &detail);
}

#[cfg(test)]
mod tests {
    use super::super::testing::{failures, gpu};
    use super::*;
    use crate::report::{MaxGpuRam, MissingFigure};

    const CONTEXT: u64 = 300 * MIB;

    /// A context, a plain process and PyTorch, with their peaks.
    fn judged(change: impl FnOnce(&mut AllHeld, &mut Report)) -> Vec<String> {
        let plan = [("context", 0), ("plain", 300 * MIB), ("torch", 400 * MIB)];
        let plan = plan.map(|(kind, bytes)| Planned { bytes, kind: kind.into(), program: None });
        let peaks = [(1, CONTEXT), (2, CONTEXT + 300 * MIB), (3, 2 * CONTEXT + 402 * MIB)];
        let held = |((pid, peak), fallen): ((u32, u64), u64)| Held {
            pid,
            fallen_bytes: Some(fallen),
            smi_bytes: Some(peak),
            nvml_bytes: Some(peak),
        };
        let processes = peaks.into_iter().zip([0, 300 * MIB, 402 * MIB]).map(held).collect();
        let mut held = AllHeld { processes, has_smi: true, used_bytes: None };
        let combined = peaks.iter().map(|(_, peak)| *peak).sum::<u64>() as f64;
        let mut report = Report {
            gpus: vec![gpu(&peaks)],
            max_gpu_ram: MaxGpuRam { combined: Some(combined) },
            warnings: Vec::new(),
        };
        change(&mut held, &mut report);
        failures(|results| judge_all_kinds(results, &plan, &held, &report, "GPU-1"))
    }

    #[test]
    fn peaks_that_agree_are_right() {
        assert!(judged(|_, _| {}).is_empty());
        assert!(
            judged(|held, _| held.processes[0].smi_bytes = Some(CONTEXT - GRANULE)).is_empty(),
            "by a page"
        );
    }

    #[test]
    fn peaks_that_differ_are_wrong() {
        let wrong = judged(|held, _| held.processes[0].smi_bytes = Some(CONTEXT - GRANULE - 1));
        assert_eq!(wrong, ["the same by nvidia-smi (context)"]);
        let wrong = judged(|held, _| held.processes[1].fallen_bytes = Some(305 * MIB));
        assert_eq!(wrong, ["the same by cuMemGetInfo (plain)"]);
        let wrong = judged(|held, _| held.processes[2].fallen_bytes = None);
        assert_eq!(wrong, ["a process (torch)"]);
        let wrong = judged(|_, report| report.gpus[0].processes[1].peak_bytes = None);
        assert_eq!(wrong, ["memory (plain)", "combined is their sum"]);
        let wrong = judged(|_, report| report.max_gpu_ram.combined = None);
        assert_eq!(wrong, ["combined is their sum"]);
    }

    #[test]
    fn without_our_pids_memory_must_be_unknown() {
        let forget = |held: &mut AllHeld| held.processes.iter_mut().for_each(|held| held.nvml_bytes = None);
        let what = ["memory by process is unknown, and so is its sum"];
        assert_eq!(judged(|held, _| forget(held)), what);
        let missing = MissingFigure { figure: "memory by process".into(), reason: "other pids".into() };
        let unknown = judged(|held, report| {
            forget(held);
            report.gpus[0].missing.push(missing.clone());
            report.max_gpu_ram.combined = None;
        });
        assert!(unknown.is_empty());
        let zeros = judged(|held, report| {
            held.processes.iter_mut().for_each(|held| held.nvml_bytes = Some(0));
            report.gpus[0].missing.push(missing.clone());
            report.max_gpu_ram.combined = None;
        });
        assert!(zeros.is_empty());
        let wrong = judged(|_, report| report.gpus[0].missing.push(missing.clone()));
        assert_eq!(wrong, ["memory by process is known, as in NVML's list"]);
    }

    #[test]
    fn only_memory_held_for_half_a_second_must_be_seen() {
        let judged = |ms: u64, processes: &[(u32, u64)]| {
            let report = Report {
                gpus: vec![gpu(processes)],
                max_gpu_ram: MaxGpuRam { combined: None },
                warnings: vec![],
            };
            failures(|results| judge_short(results, Duration::from_millis(ms), &report, "GPU-1")).len()
        };
        assert_eq!((judged(50, &[]), judged(500, &[]), judged(500, &[(1, BRIEF_BYTES)])), (0, 1, 0));
    }
}

//! How much memory a GPU needs: from the most that the run held on one GPU at a time.

use super::{GIB, Policy, fits};
use crate::build::warnings::gpu::MOST_REGULAR;
use crate::model::gpu::{Figure, Missing};
use crate::model::mig_profiles;
use crate::model::report::{GpuDevice, GpuMemoryHint, GpuReading, MigProfileHint, Report};

/// Memory of usual GPUs, GB, as people call it.
const CARDS_GB: [u32; 9] = [16, 24, 32, 40, 48, 80, 96, 141, 192];
/// The part of that which programs can use at least: an A30 of 24 GB has 23.4 GiB.
const USABLE_PART: f64 = 0.95;
/// A GPU that is busy for less of the time needs one slice, percent: Princeton's jobstats says so.
const BUSY_OF_ONE_SLICE: f64 = 15.0;

/// Makes the hint, or gives why there is none. GPUs differ in memory by whole gibibytes, so the hint is rounded up to a whole one.
/// `is_order_unsure`: see [`Basis`](super::Basis).
pub(super) fn gpu_memory(report: &Report, is_order_unsure: bool) -> Result<GpuMemoryHint, String> {
    if report.usable.gpus.count.is_none() {
        return Err("a GPU driver failed".into());
    }
    if report.gpus.is_empty() {
        return Err("there is no GPU".into());
    }
    // A process gets a part (MIG) only. The whole device's figure is over all parts, so it is left out.
    let has_used_part = |gpu: &GpuDevice| {
        report.gpus.iter().any(|other| other.parent.as_ref() == Some(&gpu.id) && other.used == Some(true))
    };
    let mut largest: Option<(u64, &GpuDevice)> = None;
    // Whatever the environment names, a GPU with a process of the run on it was used.
    let can_be_used = |gpu: &&GpuDevice| match gpu.used {
        Some(is_used) => is_used,
        None => is_order_unsure || gpu.visible != Some(false),
    };
    for gpu in report.gpus.iter().filter(can_be_used).filter(|gpu| !has_used_part(gpu)) {
        let bytes = held_bytes(gpu)?;
        if gpu.used.is_none() && bytes == 0 {
            return Err(format!("it is not known whether a process used {}", gpu.id));
        }
        if largest.is_none_or(|(most, _)| bytes > most) {
            largest = Some((bytes, gpu));
        }
    }
    let (basis_bytes, gpu) = largest.ok_or("no process of the run used a GPU")?;
    let capacity_bytes = gpu.memory.total_bytes;
    let wanted_bytes = ((basis_bytes as f64 * Policy::MEMORY_FACTOR) as u64).max(1);
    let mig_profile = mig_profile(gpu, wanted_bytes);
    Ok(GpuMemoryHint {
        card_gb: card_gb(wanted_bytes, capacity_bytes),
        mig_profile,
        bytes: wanted_bytes.div_ceil(GIB).saturating_mul(GIB),
        basis_bytes,
        device: gpu.id.clone(),
        capacity_bytes,
        is_fitting: capacity_bytes.is_some_and(|capacity| fits(basis_bytes as f64, capacity as f64)),
    })
}

/// The smallest usual memory, GB, in which this much has room. `None`: it is no smaller than the GPU's own, or none is large enough.
fn card_gb(wanted_bytes: u64, capacity_bytes: Option<u64>) -> Option<u32> {
    let usable = |gb: u32| f64::from(gb) * USABLE_PART * GIB as f64;
    let smallest = CARDS_GB.into_iter().find(|gb| usable(*gb) >= wanted_bytes as f64)?;
    let own = capacity_bytes.map(|bytes| bytes as f64)?;
    (usable(smallest) < own * USABLE_PART).then_some(smallest)
}

/// The smallest MIG profile of a GPU in which this much memory has room, and what its SMs did. `None`: there is none, or what the SMs did
/// is not known. A GPU that is a part already is no card.
fn mig_profile(gpu: &GpuDevice, wanted_bytes: u64) -> Option<MigProfileHint> {
    if gpu.parent.is_some() {
        return None;
    }
    let card = mig_profiles::card(gpu.name.as_deref()?, gpu.memory.total_bytes?)?;
    let busy = gpu.utilization.mean_percent?;
    let slices = if busy < BUSY_OF_ONE_SLICE {
        1.0
    } else {
        // While it was busy: what is idle between two kernels is so on a part, too.
        let sms = gpu.activity.mean_sm_percent?.min(busy) / busy;
        (sms * Policy::MEMORY_FACTOR * f64::from(card.slices)).ceil()
    };
    let has_room = |profile: &mig_profiles::Profile| {
        profile.usable_bytes >= wanted_bytes && f64::from(profile.slices) >= slices
    };
    card.profiles().find(has_room).map(|profile| MigProfileHint {
        profile: profile.name.to_owned(),
        card: card.name.to_owned(),
        usable_bytes: profile.usable_bytes,
        sm_percent: f64::from(profile.slices) / f64::from(card.slices) * 100.0,
    })
}

/// What the run held on a GPU at most, bytes, or why that is not known.
fn held_bytes(gpu: &GpuDevice) -> Result<u64, String> {
    let figure = Figure::ProcessMemory.name();
    if let Some(gap) = gpu.gaps.iter().find(|gap| gap.figure == figure) {
        let GpuReading { mean_interval_s, max_interval_s, .. } = gpu.reading;
        // A slow driver, and not one that did not answer once.
        let is_slow = |(mean, max): &(f64, f64)| {
            gap.reason == Missing::Unread.to_string() && *max <= mean * MOST_REGULAR
        };
        return Err(match mean_interval_s.zip(max_interval_s).filter(is_slow) {
            Some((mean, _)) => {
                format!("{figure} was read every {mean:.2} s only on {}, so a peak may be missing", gpu.id)
            }
            None => format!("{figure} was not read on {} for {:.1} s: {}", gpu.id, gap.time_s, gap.reason),
        });
    }
    if let Some(lost_at_s) = gpu.lost_at_s {
        return Err(format!("{} was lost at {lost_at_s:.1} s, and may have needed more later", gpu.id));
    }
    let missing = gpu.missing.iter().find(|missing| missing.figure == figure);
    let reason = missing.map_or("readings missed a process, or lack its memory", |missing| &missing.reason);
    gpu.memory.max_combined_bytes.ok_or_else(|| format!("{figure} is unknown on {}: {reason}", gpu.id))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::full;
    use crate::model::report::{GpuGap, GpuMissing, UsableGpus};

    const GB: u64 = 1_000_000_000;

    fn gpu(id: &str, used: Option<bool>, held_bytes: Option<u64>) -> GpuDevice {
        let mut gpu = GpuDevice { id: id.into(), used, ..GpuDevice::default() };
        gpu.memory.total_bytes = Some(80 * GIB);
        gpu.memory.max_combined_bytes = held_bytes;
        gpu
    }

    fn hint(gpus: Vec<GpuDevice>) -> Result<GpuMemoryHint, String> {
        let mut report = full();
        report.usable.gpus = UsableGpus { count: u32::try_from(gpus.len()).ok(), source: None };
        report.gpus = gpus;
        gpu_memory(&report, false)
    }

    // Requirement: HINT-3
    #[test]
    fn gpu_memory_is_a_fifth_more_than_the_most_on_one_gpu() {
        for (held, gib, is_fitting) in
            [(0, 1, false), (GB, 2, false), (10 * GB, 12, false), (70 * GB, 79, true)]
        {
            let gpus = vec![gpu("A", Some(true), Some(held / 2)), gpu("B", Some(true), Some(held))];
            let hint = hint(gpus).unwrap();
            assert_eq!((hint.bytes, hint.is_fitting), (gib * GIB, is_fitting), "{held}");
            assert_eq!((hint.basis_bytes, hint.capacity_bytes), (held, Some(80 * GIB)));
            assert_eq!(hint.device, if held == 0 { "A" } else { "B" });
        }
    }

    // Requirement: HINT-53
    #[test]
    fn smallest_part_of_the_card_that_has_room_is_named_and_never_the_whole() {
        let profile = |name: &str, gib: u64, held: u64, busy: f64, sms: Option<f64>| {
            let mut gpu = gpu("A", Some(true), Some(held));
            gpu.name = Some(name.into());
            gpu.memory.total_bytes = Some(gib * GIB);
            (gpu.utilization.mean_percent, gpu.activity.mean_sm_percent) = (Some(busy), sms);
            let hint = hint(vec![gpu]).unwrap();
            (hint.mig_profile.map(|profile| profile.profile), hint.card_gb)
        };
        let h100 = |held, busy, sms| profile("NVIDIA H100 80GB HBM3", 80, held, busy, sms);
        let part = |name: &str| Some(name.to_owned());
        assert_eq!(h100(5 * GB, 10.0, None), (part("1g.10gb"), Some(16)), "little work, as jobstats has it");
        // 1.2 times the memory must fit in what programs can use: 9.5 GiB, not 10 GB.
        assert_eq!(h100(9 * GB, 10.0, None).0, part("1g.20gb"));
        assert_eq!(h100(5 * GB, 90.0, Some(18.0)).0, part("2g.20gb"), "its SMs take two sevenths");
        assert_eq!(h100(5 * GB, 50.0, Some(49.0)).0, None, "while it is busy it takes them all");
        assert_eq!(h100(5 * GB, 50.0, None).0, None, "what the SMs do is not known");
        assert_eq!(h100(70 * GB, 10.0, None), (None, None), "the whole card");
        assert_eq!(h100(30 * GB, 10.0, None), (part("3g.40gb"), Some(40)));
        assert_eq!(profile("NVIDIA GeForce RTX 4090", 24, GB, 10.0, None), (None, Some(16)));
        assert_eq!(profile("NVIDIA A100-SXM4-40GB MIG 1g.5gb", 5, GB, 10.0, None).0, None);
    }

    // Requirement: HINT-3
    #[test]
    fn gpu_of_another_job_and_whole_gpu_of_a_used_part_do_not_count() {
        let part = GpuDevice { parent: Some("A".into()), ..gpu("MIG", Some(true), Some(5 * GB)) };
        let others = GpuDevice { visible: Some(false), ..gpu("hidden", None, Some(90 * GB)) };
        let gpus = vec![gpu("A", Some(true), Some(20 * GB)), part, others, gpu("B", Some(false), None)];
        assert_eq!(hint(gpus.clone()).unwrap().device, "MIG");
        let mut report = full();
        report.gpus = gpus;
        report.gpus[2].memory.max_combined_bytes = Some(0);
        let unsure = gpu_memory(&report, true).unwrap_err();
        assert_eq!(unsure, "it is not known whether a process used hidden");
        // The program chose a GPU that its environment does not name.
        (report.gpus[2].used, report.gpus[2].memory.max_combined_bytes) = (Some(true), Some(90 * GB));
        assert_eq!(gpu_memory(&report, false).unwrap().device, "hidden");
    }

    // Requirement: HINT-3
    #[test]
    fn without_all_readings_there_is_a_reason_instead() {
        let (used, known) = (Some(true), gpu("A", Some(true), Some(GB)));
        assert_eq!(hint(vec![]).unwrap_err(), "there is no GPU");
        assert_eq!(hint(vec![gpu("A", Some(false), None)]).unwrap_err(), "no process of the run used a GPU");
        let unread = hint(vec![known.clone(), gpu("B", None, Some(0))]).unwrap_err();
        assert_eq!(unread, "it is not known whether a process used B");
        let mut missing = gpu("B", used, None);
        assert!(hint(vec![known.clone(), missing.clone()]).unwrap_err().contains("unknown on B: readings"));
        let reason = GpuMissing { figure: "memory by process".into(), reason: "no permission".into() };
        missing.missing = vec![reason];
        let error = hint(vec![known.clone(), missing]).unwrap_err();
        assert_eq!(error, "memory by process is unknown on B: no permission");
        let gap = GpuGap { figure: "memory by process".into(), reason: "it hung".into(), time_s: 2.54 };
        let with_gap = GpuDevice { gaps: vec![gap], ..known.clone() };
        assert_eq!(
            hint(vec![with_gap.clone()]).unwrap_err(),
            "memory by process was not read on A for 2.5 s: it hung"
        );
        let mut slow = with_gap.clone();
        slow.gaps[0].reason = Missing::Unread.to_string();
        (slow.reading.mean_interval_s, slow.reading.max_interval_s) = (Some(0.6), Some(0.9));
        assert_eq!(
            hint(vec![slow]).unwrap_err(),
            "memory by process was read every 0.60 s only on A, so a peak may be missing"
        );
        let lost = GpuDevice { lost_at_s: Some(1.0), ..gpu("B", used, Some(GB)) };
        let error = hint(vec![known.clone(), lost]).unwrap_err();
        assert_eq!(error, "B was lost at 1.0 s, and may have needed more later");
        let mut report = full();
        report.usable.gpus.count = None;
        assert_eq!(gpu_memory(&report, false).unwrap_err(), "a GPU driver failed");
    }
}

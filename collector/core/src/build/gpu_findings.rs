//! What the figures of GPUs mean: facts with their figures, a line each. None is concluded from a difference of less than a tenth.

use crate::model::report::{GpuDevice, GpuFinding, GpuFindingKind, are_of_one_time};

/// Values of the rules, each with its reason.
struct Policy;

impl Policy {
    /// Less time of measuring says little, seconds.
    const SHORTEST_S: f64 = 1.0;
    /// A GPU that was busy for a smaller part of the time has no work whose kind matters, percent.
    const LEAST_BUSY_PERCENT: f64 = 10.0;
    /// No finding follows from less than this, percent.
    const TENTH_PERCENT: f64 = 10.0;
    /// SMs that had work in less than this part of the busy time are mostly idle: one kernel after another that fills few of them.
    const SMS_IDLE_PART: f64 = 0.5;
    /// Tensor cores that worked in less of the time were not used, percent.
    const UNUSED_PERCENT: f64 = 1.0;
    /// Memory traffic above this part of the most that is possible, while busy: programs reach some 0.9 at most.
    const BANDWIDTH_PART: f64 = 0.6;
    /// PCIe traffic above this part of what the link carries: programs reach some 0.8 at most.
    const PCIE_PART: f64 = 0.5;
    /// PyTorch can't give back more than this part of what it keeps, percent: stormlog warns from there on.
    const FRAGMENTED_PERCENT: f64 = 30.0;
    /// PyTorch takes memory in blocks of 2 and 20 MiB. Of fewer bytes than this, large parts are always free.
    const LEAST_RESERVED_BYTES: u64 = 256 << 20;
}

/// The driver's reasons that slow a GPU for heat or want of power. Being idle, and clocks that somebody set, are none.
const SLOWED: [&str; 4] =
    ["hardware slowdown", "software thermal slowdown", "hardware thermal slowdown", "hardware power brake"];
/// The driver's reason at the power limit.
const POWER_CAP: &str = "software power cap";

/// Adds to each GPU what its figures mean. `wall_s`: how long the run took, seconds.
pub(super) fn add_findings(gpus: &mut [GpuDevice], wall_s: f64) {
    let unbalanced = unbalanced(gpus);
    for (number, gpu) in gpus.iter_mut().enumerate() {
        let alone = [sms_idle(gpu), tensor_unused(gpu), bandwidth_bound(gpu), pcie_bound(gpu)];
        let slowed = [
            slowed(gpu, wall_s, GpuFindingKind::Throttled, &SLOWED),
            slowed(gpu, wall_s, GpuFindingKind::PowerCapped, &[POWER_CAP]),
        ];
        let beside =
            unbalanced.as_ref().filter(|(least, _)| *least == number).map(|(_, found)| found.clone());
        let held = fragmented(gpu);
        let all: Vec<GpuFinding> =
            alone.into_iter().chain(slowed).flatten().chain(beside).chain(held).collect();
        gpu.findings = Some(if gpu.used == Some(true) { all } else { Vec::new() });
    }
}

/// The mean utilization of a GPU that worked for long enough to say what it did, percent.
fn busy_percent(gpu: &GpuDevice) -> Option<f64> {
    let is_long = gpu.utilization.measured_s? >= Policy::SHORTEST_S;
    gpu.utilization.mean_percent.filter(|busy| is_long && *busy >= Policy::LEAST_BUSY_PERCENT)
}

/// A figure of the performance counters, if they were read for long enough, and in the time for which utilization is known, percent.
fn counted(gpu: &GpuDevice, percent: Option<f64>) -> Option<f64> {
    let (counted_s, busy_s) = (gpu.activity.measured_s?, gpu.utilization.measured_s?);
    percent.filter(|_| counted_s >= Policy::SHORTEST_S && are_of_one_time(&[counted_s, busy_s]))
}

/// Makes a finding of these figures, percent.
fn finding(kind: GpuFindingKind, percent: f64, of_percent: Option<f64>, text: String) -> Option<GpuFinding> {
    Some(GpuFinding { kind, percent, of_percent, text })
}

/// Busy, but its SMs had work in less than half of that time.
fn sms_idle(gpu: &GpuDevice) -> Option<GpuFinding> {
    let (busy, sms) = (busy_percent(gpu)?, counted(gpu, gpu.activity.mean_sm_percent)?);
    let is_idle = sms < busy * Policy::SMS_IDLE_PART && busy - sms >= Policy::TENTH_PERCENT;
    let text =
        format!("busy {busy:.0} % of the time, SMs {sms:.0} %: kernels are small, or one waits for another");
    finding(GpuFindingKind::SmsIdle, sms, Some(busy), text).filter(|_| is_idle)
}

/// The pipes for 32-bit numbers worked, and the tensor cores did not.
fn tensor_unused(gpu: &GpuDevice) -> Option<GpuFinding> {
    busy_percent(gpu)?;
    let tensor = counted(gpu, gpu.activity.mean_tensor_percent)?;
    let fp32 = counted(gpu, gpu.activity.mean_fp32_percent)?;
    let is_unused = tensor < Policy::UNUSED_PERCENT && fp32 >= Policy::TENTH_PERCENT;
    let text = format!(
        "FP32 pipes {fp32:.0} %, tensor cores {tensor:.0} %: neither TF32 nor half precision is used"
    );
    finding(GpuFindingKind::TensorUnused, tensor, Some(fp32), text).filter(|_| is_unused)
}

/// Its memory carried most of what it can while the GPU was busy.
fn bandwidth_bound(gpu: &GpuDevice) -> Option<GpuFinding> {
    let busy = busy_percent(gpu)?;
    let bandwidth = counted(gpu, gpu.activity.mean_memory_bandwidth_percent)?;
    let while_busy = (bandwidth / busy * 100.0).min(100.0);
    let text = format!(
        "memory traffic {while_busy:.0} % of the most that is possible while busy: bound by its memory"
    );
    finding(GpuFindingKind::BandwidthBound, while_busy, None, text)
        .filter(|_| while_busy >= Policy::BANDWIDTH_PART * 100.0)
}

/// PCIe carried most of what the link can, in the direction with more.
fn pcie_bound(gpu: &GpuDevice) -> Option<GpuFinding> {
    let link = gpu.pcie.link_bytes_per_s.filter(|link| *link > 0)? as f64;
    let seconds = gpu.pcie.span_s?;
    let bytes = gpu.pcie.tx_bytes.max(gpu.pcie.rx_bytes)? as f64;
    let part = if seconds >= Policy::SHORTEST_S { bytes / seconds / link } else { 0.0 };
    let percent = (part * 100.0).min(100.0);
    let text = format!("PCIe carried {percent:.0} % of what its link can: bound by transfers");
    finding(GpuFindingKind::PcieBound, percent, None, text).filter(|_| part >= Policy::PCIE_PART)
}

/// One of these reasons slowed it for a tenth of the run or more. If its clock is known, it was a tenth lower meanwhile.
fn slowed(gpu: &GpuDevice, wall_s: f64, kind: GpuFindingKind, reasons: &[&str]) -> Option<GpuFinding> {
    busy_percent(gpu)?;
    let all = gpu.throttle.iter().flatten().filter(|throttle| reasons.contains(&throttle.reason.as_str()));
    // Several reasons can hold at one time.
    let longest = all.max_by(|a, b| a.time_s.total_cmp(&b.time_s))?;
    let percent = (longest.time_s / wall_s.max(f64::MIN_POSITIVE) * 100.0).min(100.0);
    let clocks = longest.mean_sm_mhz.zip(gpu.clocks.max_sm_mhz).filter(|(_, most)| *most > 0.0);
    let lost_percent = clocks.map(|(mean, most)| (1.0 - mean / most) * 100.0);
    let is_slow = lost_percent.is_none_or(|lost| lost >= Policy::TENTH_PERCENT);
    let clock = clocks.map(|(mean, most)| format!(", at {mean:.0} of {most:.0} MHz")).unwrap_or_default();
    let text = format!("{} for {percent:.0} % of the time{clock}", longest.reason);
    finding(kind, percent, lost_percent, text).filter(|_| is_slow && percent >= Policy::TENTH_PERCENT)
}

/// PyTorch can't give back a large part of what it keeps on the GPU in all processes.
fn fragmented(gpu: &GpuDevice) -> Option<GpuFinding> {
    let told = gpu.processes.iter().filter_map(|process| process.torch.as_ref());
    let parts = told.filter_map(|torch| Some((torch.fragmented_bytes?, torch.reserved_bytes)));
    let (fragmented, reserved) = parts.reduce(|(a, b), (c, d)| (a.saturating_add(c), b.saturating_add(d)))?;
    let percent = fragmented as f64 / reserved.max(1) as f64 * 100.0;
    let text = format!("{percent:.0} % of what PyTorch reserved is free parts of blocks in use: fragmented");
    finding(GpuFindingKind::Fragmented, percent, None, text)
        .filter(|_| percent >= Policy::FRAGMENTED_PERCENT && reserved >= Policy::LEAST_RESERVED_BYTES)
}

/// The GPU that was busy least, by its place in the list, if another one was busy a tenth more. `None`: the run used fewer than two, or
/// how busy one was is not known.
fn unbalanced(gpus: &[GpuDevice]) -> Option<(usize, GpuFinding)> {
    let used = gpus.iter().enumerate().filter(|(_, gpu)| gpu.used == Some(true) && gpu.parent.is_none());
    let busy: Vec<(usize, f64)> =
        used.map(|(number, gpu)| Some((number, gpu.utilization.mean_percent?))).collect::<Option<_>>()?;
    let measured_s: Vec<f64> =
        busy.iter().filter_map(|(number, _)| gpus[*number].utilization.measured_s).collect();
    let is_long = measured_s.iter().all(|s| *s >= Policy::SHORTEST_S) && are_of_one_time(&measured_s);
    let (least, least_percent) = busy.iter().copied().min_by(|a, b| a.1.total_cmp(&b.1))?;
    let (most, most_percent) = busy.iter().copied().max_by(|a, b| a.1.total_cmp(&b.1))?;
    let name = gpus[most].number();
    let text = format!(
        "busy {least_percent:.0} % of the time, GPU {name} {most_percent:.0} %: their work is uneven"
    );
    let is_uneven = is_long && most_percent - least_percent >= Policy::TENTH_PERCENT;
    let found = finding(GpuFindingKind::Unbalanced, least_percent, Some(most_percent), text);
    found.filter(|_| is_uneven).map(|found| (least, found))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::report::{GpuProcess, GpuThrottle, GpuTorch};

    fn gpu(busy: f64) -> GpuDevice {
        let mut gpu =
            GpuDevice { id: "GPU-1".into(), index: Some(0), used: Some(true), ..GpuDevice::default() };
        (gpu.utilization.mean_percent, gpu.utilization.measured_s) = (Some(busy), Some(60.0));
        (gpu.activity.measured_s, gpu.pcie.span_s) = (Some(59.0), Some(59.0));
        gpu
    }

    fn process() -> GpuProcess {
        GpuProcess {
            pid: 7,
            driver_pid: 7,
            command: "python3".into(),
            is_main: true,
            peak_bytes: None,
            mean_sm_percent: None,
            max_sm_percent: None,
            accounted: false,
            torch: None,
        }
    }

    fn found(mut gpus: Vec<GpuDevice>) -> Vec<(GpuFindingKind, String)> {
        add_findings(&mut gpus, 60.0);
        gpus.iter()
            .flat_map(|gpu| gpu.findings.iter().flatten())
            .map(|found| (found.kind, found.text.clone()))
            .collect()
    }

    // Requirement: GPU-84
    #[test]
    fn busy_gpu_whose_sms_are_idle_runs_small_kernels() {
        let of = |busy, sms| {
            let mut gpu = gpu(busy);
            gpu.activity.mean_sm_percent = sms;
            found(vec![gpu])
        };
        let text = "busy 97 % of the time, SMs 18 %: kernels are small, or one waits for another";
        assert_eq!(of(97.0, Some(18.0)), [(GpuFindingKind::SmsIdle, text.to_owned())]);
        let mut part = gpu(97.0);
        (part.activity.mean_sm_percent, part.activity.measured_s) = (Some(18.0), Some(30.0));
        assert_eq!(found(vec![part]), [], "counters that were read for half of the time");
        // More than half, a difference of less than a tenth, hardly busy, and not known.
        for (busy, sms) in [(97.0, Some(60.0)), (15.0, Some(6.0)), (9.0, Some(0.0)), (97.0, None)] {
            assert_eq!(of(busy, sms), [], "{busy} {sms:?}");
        }
    }

    // Requirement: GPU-84
    #[test]
    fn unused_tensor_cores_bandwidth_and_pcie_are_told_where_they_matter() {
        let kinds = |change: &dyn Fn(&mut GpuDevice)| {
            let mut gpu = gpu(80.0);
            change(&mut gpu);
            found(vec![gpu]).into_iter().map(|(kind, _)| kind).collect::<Vec<_>>()
        };
        let pipes = |tensor, fp32| {
            kinds(&move |gpu| {
                (gpu.activity.mean_tensor_percent, gpu.activity.mean_fp32_percent) = (tensor, fp32);
            })
        };
        assert_eq!(pipes(Some(0.0), Some(35.0)), [GpuFindingKind::TensorUnused]);
        assert_eq!(pipes(Some(4.0), Some(35.0)), []);
        assert_eq!(pipes(Some(0.0), Some(5.0)), [], "it does not compute with floating-point numbers");
        assert_eq!(pipes(None, Some(35.0)), []);
        let bandwidth =
            |percent| kinds(&move |gpu| gpu.activity.mean_memory_bandwidth_percent = Some(percent));
        assert_eq!(bandwidth(70.0), [GpuFindingKind::BandwidthBound]);
        assert_eq!(bandwidth(40.0), []);
        let pcie = |bytes, link| {
            kinds(&move |gpu| (gpu.pcie.rx_bytes, gpu.pcie.link_bytes_per_s) = (Some(bytes), link))
        };
        assert_eq!(pcie(59 * 40_000_000_000, Some(64_000_000_000)), [GpuFindingKind::PcieBound]);
        assert_eq!(pcie(59 * 10_000_000_000, Some(64_000_000_000)), []);
        assert_eq!(pcie(59 * 40_000_000_000, None), []);
        let part = |gpu: &mut GpuDevice| {
            (gpu.pcie.rx_bytes, gpu.pcie.link_bytes_per_s) = (Some(24_000_000_000), Some(2_000_000_000));
            gpu.activity.measured_s = Some(20.0);
        };
        assert_eq!(kinds(&part), [], "its bytes are those of 59 s");
    }

    // Requirement: GPU-84
    #[test]
    fn lower_clocks_are_told_from_a_tenth_on_with_what_was_lost() {
        let of = |reason: &str, time_s, mean_sm_mhz| {
            let mut gpu = gpu(80.0);
            gpu.clocks.max_sm_mhz = Some(1980.0);
            gpu.throttle = Some(vec![GpuThrottle { reason: reason.into(), time_s, mean_sm_mhz }]);
            found(vec![gpu])
        };
        let text = "hardware thermal slowdown for 30 % of the time, at 1200 of 1980 MHz".to_owned();
        let hot = of("hardware thermal slowdown", 18.0, Some(1200.0));
        assert_eq!(hot, [(GpuFindingKind::Throttled, text)]);
        assert_eq!(of("software power cap", 30.0, Some(1500.0))[0].0, GpuFindingKind::PowerCapped);
        assert_eq!(of("software power cap", 30.0, Some(1900.0)), [], "its clocks were hardly lower");
        assert_eq!(of("software power cap", 5.0, Some(1200.0)), []);
        assert_eq!(of("idle", 60.0, Some(200.0)), []);
    }

    // Requirement: GPU-87
    #[test]
    fn memory_that_pytorch_cannot_give_back_is_told_from_30_percent_on() {
        let of = |fragmented_bytes, reserved_bytes| {
            let torch = GpuTorch { fragmented_bytes, reserved_bytes, ..GpuTorch::default() };
            let mut gpu = gpu(80.0);
            gpu.processes = vec![GpuProcess { torch: Some(torch), ..process() }];
            found(vec![gpu])
        };
        let text = "40 % of what PyTorch reserved is free parts of blocks in use: fragmented".to_owned();
        assert_eq!(of(Some(400 << 20), 1000 << 20), [(GpuFindingKind::Fragmented, text)]);
        for (fragmented, reserved) in
            [(Some(200 << 20), 1000 << 20), (Some(2 << 20), 4 << 20), (None, 1 << 30)]
        {
            assert_eq!(of(fragmented, reserved), []);
        }
    }

    // Requirement: GPU-84
    #[test]
    fn uneven_work_is_told_of_the_least_busy_gpu_that_is_used() {
        let of = |busy: &[f64]| {
            let mut gpus: Vec<GpuDevice> = busy.iter().map(|busy| gpu(*busy)).collect();
            gpus.iter_mut().zip(0..).for_each(|(gpu, index)| gpu.index = Some(index));
            found(gpus)
        };
        let text = "busy 20 % of the time, GPU 1 95 %: their work is uneven".to_owned();
        assert_eq!(of(&[60.0, 95.0, 20.0]), [(GpuFindingKind::Unbalanced, text)]);
        assert_eq!(of(&[90.0, 95.0]), []);
        assert_eq!(of(&[95.0]), []);
        let mut refused = gpu(20.0);
        refused.utilization.measured_s = Some(30.0);
        assert_eq!(found(vec![gpu(95.0), refused]), [], "half of its time is not known");
        let mut gpus = vec![gpu(95.0), GpuDevice { used: Some(false), ..gpu(0.0) }];
        add_findings(&mut gpus, 60.0);
        assert!(gpus.iter().all(|gpu| gpu.findings == Some(Vec::new())), "one that is not used has no share");
    }
}

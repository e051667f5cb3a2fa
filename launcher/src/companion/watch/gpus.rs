//! A GPU as the view shows it, and sums of several.

/// A GPU.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Gpu {
    /// The driver's number for it.
    pub(super) index: Option<u64>,
    /// Its UUID or PCI address.
    pub(super) id: String,
    /// Its product name; empty: not known.
    pub(super) name: String,
    /// Memory capacity, bytes.
    pub(super) total_bytes: Option<u64>,
    /// Memory in use by all processes of the machine, bytes.
    pub(super) used_bytes: Option<u64>,
    /// Memory of the run, bytes.
    pub(super) run_bytes: Option<u64>,
    /// Utilization, percent.
    pub(super) busy_percent: Option<f64>,
    /// Power, watts.
    pub(super) power_w: Option<f64>,
    /// Temperature, degrees Celsius.
    pub(super) temperature_c: Option<f64>,
}

/// GPUs whose figures can be added up.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct SummedGpus {
    /// How many.
    pub(super) count: usize,
    /// Sum of their utilization, percent of one GPU. `None`: unknown of one, or there is none.
    pub(super) busy_percent: Option<f64>,
    /// Memory of the run, bytes. `None`: unknown of one, or there is none.
    pub(super) run_bytes: Option<u64>,
    /// Memory in use by all processes, bytes. `None`: unknown of one, or there is none.
    pub(super) used_bytes: Option<u64>,
    /// Memory capacity, bytes. `None`: unknown of one, or there is none.
    pub(super) total_bytes: Option<u64>,
}

/// Adds up GPUs. A MIG instance is a part of a device, so instances are left out if any whole device is among the GPUs.
pub(super) fn gpu_sums(gpus: &[Gpu]) -> SummedGpus {
    let is_device = |gpu: &Gpu| !gpu.id.starts_with("MIG-");
    let has_devices = gpus.iter().any(is_device);
    let counted = || gpus.iter().filter(|gpu| is_device(gpu) || !has_devices);
    let sum = |bytes: fn(&Gpu) -> Option<u64>| {
        let sum = counted().map(bytes).try_fold(0_u64, |sum, bytes| Some(sum.saturating_add(bytes?)));
        sum.filter(|_| !gpus.is_empty())
    };
    let busy_percent = counted().map(|gpu| gpu.busy_percent).sum::<Option<f64>>();
    SummedGpus {
        count: counted().count(),
        busy_percent: busy_percent.filter(|_| !gpus.is_empty()),
        run_bytes: sum(|gpu| gpu.run_bytes),
        used_bytes: sum(|gpu| gpu.used_bytes),
        total_bytes: sum(|gpu| gpu.total_bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_gpu_count_once_and_unknown_is_no_zero() {
        let gpu = |id: &str, run_bytes, total_bytes| Gpu {
            id: id.into(),
            run_bytes,
            total_bytes,
            ..Gpu::default()
        };
        let both = [gpu("GPU-a", Some(5), Some(10)), gpu("MIG-b", Some(3), Some(5))];
        let sums = gpu_sums(&both);
        assert_eq!(
            (sums.count, sums.run_bytes, sums.total_bytes, sums.busy_percent),
            (1, Some(5), Some(10), None)
        );
        assert_eq!((gpu_sums(&both[1..]).count, gpu_sums(&both[1..]).run_bytes), (1, Some(3)));
        let partly = gpu_sums(&[gpu("GPU-a", None, Some(1)), gpu("GPU-b", Some(2), None)]);
        assert_eq!((partly.count, partly.run_bytes, partly.total_bytes), (2, None, None));
        assert_eq!(gpu_sums(&[]), SummedGpus::default());
    }
}

//! Names several GPUs in a few words, since a list of UUIDs would fill a screen.

use std::collections::BTreeSet;

use crate::model::sorting::InOrder;
use crate::run::gpu::GpuUsage;
use crate::run::gpu::usage::device::DeviceUsage;

/// Maximum number of devices that are named one by one.
const MOST_NAMED: usize = 2;

/// Names some devices of the run in a warning. Up to two are named by id, more as `all 16 GPUs` or `GPUs 0-3, 7`. If their numbers
/// are not unique, the first two ids are followed by how many more there are.
pub(super) fn names(usage: &GpuUsage, devices: &[&DeviceUsage]) -> String {
    let ids = || devices.iter().map(|gpu| gpu.device.id.as_str());
    if devices.len() <= MOST_NAMED {
        return ids().collect::<Vec<_>>().join(", ");
    }
    let has_parts = usage.devices.iter().any(|gpu| gpu.device.parent.is_some());
    if devices.len() == usage.devices.len() {
        return format!("all {} GPUs{}", devices.len(), if has_parts { " and parts" } else { "" });
    }
    // Each maker's driver numbers its own devices, so numbers name them only if all have one maker.
    let makers = usage.devices.iter().map(|gpu| gpu.device.vendor).ordered_set();
    let numbers: Option<BTreeSet<u32>> = devices.iter().map(|gpu| gpu.device.index).collect();
    match numbers.filter(|numbers| makers.len() == 1 && numbers.len() == devices.len()) {
        Some(numbers) => format!("GPUs {}", ranges(&numbers)),
        None => {
            let first: Vec<&str> = ids().take(MOST_NAMED).collect();
            format!("{} and {} more", first.join(", "), devices.len() - MOST_NAMED)
        }
    }
}

/// Writes numbers as ranges: `0-3, 7`.
fn ranges(numbers: &BTreeSet<u32>) -> String {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for number in numbers {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == *number => *last = *number,
            _ => ranges.push((*number, *number)),
        }
    }
    let text = |(first, last): &(u32, u32)| match last - first {
        0 => first.to_string(),
        1 => format!("{first}, {last}"),
        _ => format!("{first}-{last}"),
    };
    ranges.iter().map(text).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::model::gpu::{Device, Vendor};

    fn usage(indices: &[Option<u32>]) -> GpuUsage {
        let device = |(n, index): (usize, &Option<u32>)| {
            let (id, vendor) = (format!("GPU-{n}"), Some(Vendor::Nvidia));
            let mut gpu = DeviceUsage::default();
            gpu.device = Arc::new(Device { id, index: *index, vendor, ..Device::default() });
            gpu
        };
        let devices = indices.iter().enumerate().map(device).collect();
        GpuUsage { devices, ..GpuUsage::default() }
    }

    fn named(usage: &GpuUsage, which: &[usize]) -> String {
        names(usage, &which.iter().map(|n| &usage.devices[*n]).collect::<Vec<_>>())
    }

    // Requirement: GPU-30
    #[test]
    fn many_gpus_are_a_range_or_a_count() {
        let all = usage(&[Some(0), Some(1), Some(2), Some(3), Some(4), Some(5)]);
        assert_eq!(named(&all, &[1, 4]), "GPU-1, GPU-4");
        assert_eq!(named(&all, &[0, 1, 2, 3, 4, 5]), "all 6 GPUs");
        assert_eq!(named(&all, &[5, 0, 1, 2]), "GPUs 0-2, 5");
        assert_eq!(named(&all, &[0, 1, 3, 4]), "GPUs 0, 1, 3, 4");
        let parts = usage(&[Some(0), None, None, None]);
        assert_eq!(named(&parts, &[1, 2, 3]), "GPU-1, GPU-2 and 1 more");
    }
}

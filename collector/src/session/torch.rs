//! What the command's processes told of PyTorch's memory, from the file of metrics that the environment names.

use std::fs;
use std::path::Path;

use crate::model::gpu::TorchMemory;
use crate::report::metrics::MetricValue;
use crate::sub_tracking::read_metrics;

/// A larger file is not read: the report waits for it. Half a second, on two cores.
const MOST_BYTES: u64 = 64 << 20;
/// Maximum number of processes and devices, which bounds the memory.
const MOST_ENTRIES: usize = 1024;

/// Reads the largest amounts that processes told from `since_s` on, seconds since the epoch. There are none if the file can't be
/// read.
pub(super) fn memory(path: &Path, since_s: f64) -> Vec<TorchMemory> {
    let mut all: Vec<TorchMemory> = Vec::new();
    if fs::metadata(path).is_ok_and(|found| found.is_file() && found.len() <= MOST_BYTES) {
        // What is wrong with other lines is of no matter here.
        let _ = read_metrics(path, |value| add(&mut all, &value, since_s));
    }
    all
}

/// Takes in a value, if it is an amount of PyTorch's memory.
fn add(all: &mut Vec<TorchMemory>, value: &MetricValue, since_s: f64) {
    let named = value.name.strip_prefix("torch_cuda").and_then(|rest| rest.split_once('_'));
    let Some((device, suffix)) = named.filter(|_| value.timestamp_s >= since_s && value.value >= 0.0) else {
        return;
    };
    let (Ok(device), Ok(pid)) = (device.parse(), u32::try_from(value.process_id)) else { return };
    let mut told = TorchMemory { pid, device, ..TorchMemory::default() };
    if told.amount(suffix).is_none() {
        return;
    }
    let known = all.iter().position(|known| (known.pid, known.device) == (pid, device));
    let at = known.unwrap_or(all.len());
    if at == all.len() {
        if at == MOST_ENTRIES {
            return;
        }
        all.push(told);
    }
    if let Some(amount) = all[at].amount(suffix) {
        *amount = (*amount).max(Some(value.value as u64));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Requirement: GPU-87
    #[test]
    fn largest_amounts_of_each_process_and_device_count_and_other_metrics_do_not() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("m.csv");
        let lines = [
            "7,torch_cuda0_allocated_bytes,1.0,900",
            "7,torch_cuda0_allocated_bytes,2.5,300",
            "7,torch_cuda0_reserved_bytes,2.5,500",
            "7,torch_cuda0_reserved_bytes,3.5,400",
            "7,torch_cuda0_reserved_bytes,3.5,nan",
            "8,torch_cuda1_inactive_split_bytes,3.5,20",
            "-8,torch_cuda1_inactive_split_bytes,3.5,20",
            "7,torch_cudax_reserved_bytes,3.5,400",
            "7,torch_cuda0_other,3.5,400",
            "7,loss,3.5,0.5",
        ];
        fs::write(&path, format!("process_id,name,timestamp,value\n{}\n7,torch", lines.join("\n"))).unwrap();
        let of = |pid, device| TorchMemory { pid, device, ..TorchMemory::default() };
        let expected = [
            TorchMemory { live_bytes: Some(300), reserved_bytes: Some(500), ..of(7, 0) },
            TorchMemory { fragmented_bytes: Some(20), ..of(8, 1) },
        ];
        assert_eq!(memory(&path, 2.0), expected);
        fs::File::options().write(true).open(&path).unwrap().set_len(MOST_BYTES + 1).unwrap();
        for none in [path.clone(), path.with_extension("none"), directory.path().into(), "/dev/zero".into()] {
            assert_eq!(memory(&none, 2.0), [], "{none:?}");
        }
    }
}

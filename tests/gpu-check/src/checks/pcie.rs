//! Bytes over PCIe.

use super::check::{Check, ms};
use crate::report::Gpu;
use crate::results::{Results, rounded};

/// The counter has what the copies need besides: the headers of the packets, and the driver's own traffic.
const MAX_RATIO: f64 = 1.3;

/// A known number of bytes that is copied to the device.
pub(super) fn all(results: &mut Results, check: &Check) {
    if check.nvml.received_bytes().is_none() {
        return results.skip("PCIe bytes", "this device does not count them");
    }
    let (bytes, count, pause) = check.times.copies;
    let arguments = [bytes.to_string(), count.to_string(), ms(pause)];
    let Some(report) = check.tracked(results, "copy", &arguments, &[]) else { return };
    if let Some(gpu) = report.gpu(&check.nvml.uuid) {
        judge(results, gpu, (bytes * u64::from(count)) as f64);
    }
}

fn judge(results: &mut Results, gpu: &Gpu, copied: f64) {
    let what = "bytes received over PCIe";
    match (gpu.lacks("PCIe bytes received"), gpu.pcie.rx_bytes) {
        (Some(reason), None) => results.skip(what, reason),
        (_, received) => {
            let is_right = received.is_some_and(|received| (copied..copied * MAX_RATIO).contains(&received));
            results.check(what, is_right, &format!("{} for {copied} copied", rounded(received)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{failures, gpu};
    use super::*;
    use crate::report::MissingFigure;

    #[test]
    fn received_bytes_are_those_that_were_copied_and_a_little_more() {
        let judged = |received: Option<f64>, missing: &[&str]| {
            let mut gpu = gpu(&[]);
            gpu.pcie.rx_bytes = received;
            let reason = |figure: &&str| MissingFigure { figure: (*figure).into(), reason: "why".into() };
            gpu.missing = missing.iter().map(reason).collect();
            failures(|results| judge(results, &gpu, 1000.0)).len()
        };
        assert_eq!((judged(Some(1000.0), &[]), judged(Some(1299.0), &[])), (0, 0));
        assert_eq!((judged(Some(999.0), &[]), judged(Some(1300.0), &[]), judged(None, &[])), (1, 1, 1));
        assert_eq!(judged(None, &["PCIe bytes received"]), 0);
    }
}

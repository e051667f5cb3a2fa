//! Which GPUs count: `--guuids`, CUDA_VISIBLE_DEVICES, and GPUs that are left idle.

use super::check::{Check, ms};
use crate::process;
use crate::report::{self, Report};
use crate::results::{Results, shown};

pub(super) fn all(results: &mut Results, check: &Check) {
    let uuid = check.nvml.uuid.as_str();
    let hold = process::part("brief", &[(64_u64 << 20).to_string(), ms(check.times.held)]);
    let idle = ["sleep".to_owned(), check.times.held.as_secs_f64().to_string()];
    let run =
        |results: &mut Results, options: &[&str], command: &[String], visible: &str| -> Option<Report> {
            report::tracked(results, check.tracker, options, command, &[("CUDA_VISIBLE_DEVICES", visible)])
        };
    if let Some(report) = run(results, &["--guuids", uuid], &hold, uuid) {
        let ids: Vec<&str> = report.gpus.iter().map(|gpu| gpu.id.as_str()).collect();
        results.check("--guuids", ids == [uuid], &format!("{ids:?}"));
        let visible = report.gpu(uuid).and_then(|gpu| gpu.visible);
        results.check(
            "CUDA_VISIBLE_DEVICES by UUID",
            visible == Some(true),
            &format!("visible: {}", shown(visible)),
        );
        let is_idle = report.warnings.iter().any(|warning| warning.text.starts_with("Allocated but idle"));
        results.check("a GPU in use is not called idle", !is_idle, &format!("{is_idle}"));
    }
    for (list, expected) in [("0", Some(true)), ("", Some(false))] {
        let Some(report) = run(results, &[], &idle, list) else { continue };
        let visible = report.gpu(uuid).and_then(|gpu| gpu.visible);
        results.check(
            &format!("CUDA_VISIBLE_DEVICES={list:?}"),
            visible == expected,
            &format!("visible: {}", shown(visible)),
        );
        let warning = report.warnings.iter().find(|warning| warning.text.starts_with("Allocated but idle"));
        let lists = report.gpu(uuid).is_none_or(|gpu| gpu.lacks("memory by process").is_none());
        let is_right = warning.is_some() == (expected == Some(true) && lists);
        results.check(
            "a command that leaves its GPU idle",
            is_right,
            &shown(warning.map(|warning| &warning.text)),
        );
    }
}

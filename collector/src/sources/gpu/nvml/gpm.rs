//! Utilization of MIG instances by GPM (GPU performance monitoring, Hopper and later): NVML has no other call for it.
//!
//! A sample holds the hardware's counters; the metrics are computed from two samples.

use std::ffi::c_uint;

use nvml_wrapper_sys::bindings::{
    NVML_GPM_METRICS_GET_VERSION, NVML_GPM_SUPPORT_VERSION, nvmlDevice_t, nvmlGpmMetricsGet_t,
    nvmlGpmSample_t, nvmlGpmSupport_t,
};

use super::api::{Api, Plain, call, check, get};
use super::policy;
use crate::model::gpu::{Busy, Missing, Reading};
use crate::sys::clock;

/// nvml.h, `NVML_GPM_METRIC_GRAPHICS_UTIL`: time in which any compute or graphics work ran, percent.
const GRAPHICS_UTIL: c_uint = 1;

/// The samples of an instance. They are never freed: an instance is read until the collector ends.
pub(super) struct Gpm {
    /// The handle of the divided device.
    parent: nvmlDevice_t,
    /// The instance's id there.
    instance: c_uint,
    /// The latest sample, and the one that the next reading overwrites.
    samples: [nvmlGpmSample_t; 2],
    /// When the latest sample was taken, CLOCK_MONOTONIC nanoseconds; `None`: not yet.
    at_ns: Option<u64>,
}

impl Gpm {
    /// Prepares to read the instance `part` of the device `parent`. `None`: the device or the library does not have GPM.
    pub(super) fn start(api: &Api, parent: nvmlDevice_t, part: nvmlDevice_t) -> Option<Self> {
        let mut support = nvmlGpmSupport_t { version: NVML_GPM_SUPPORT_VERSION, isSupportedDevice: 0 };
        call!(api, nvmlGpmQueryDeviceSupport(parent, &mut support)).ok()?;
        if support.isSupportedDevice == 0 {
            return None;
        }
        let instance = get(|id| call!(api, nvmlDeviceGetGpuInstanceId(part, id))).ok()?;
        let mut samples = [std::ptr::null_mut(); 2];
        for sample in &mut samples {
            call!(api, nvmlGpmSampleAlloc(sample)).ok()?;
        }
        Some(Self { parent, instance, samples, at_ns: None })
    }

    /// Reads the utilization since the last reading. The result is empty at the first reading, and if the last one was too short ago.
    pub(super) fn read(&mut self, api: &Api) -> Reading<Vec<Busy>> {
        let now_ns = clock::monotonic_ns();
        let since_ns = self.at_ns.map(|at_ns| now_ns.saturating_sub(at_ns));
        if since_ns.is_some_and(|ns| ns < policy::GPM_INTERVAL_NS) {
            // It is too soon. The next reading covers this time, too.
            return Ok(Vec::new());
        }
        let [latest, next] = self.samples;
        call!(api, nvmlGpmMigSampleGet(self.parent, self.instance, next))?;
        (self.samples, self.at_ns) = ([next, latest], Some(now_ns));
        // The first sample has none to be compared with.
        let Some(since_ns) = since_ns else { return Ok(Vec::new()) };
        let mut metrics = Box::new(nvmlGpmMetricsGet_t {
            version: NVML_GPM_METRICS_GET_VERSION,
            numMetrics: 1,
            sample1: latest,
            sample2: next,
            ..nvmlGpmMetricsGet_t::zeroed()
        });
        metrics.metrics[0].metricId = GRAPHICS_UTIL;
        call!(api, nvmlGpmMetricsGet(&mut *metrics))?;
        check(metrics.metrics[0].nvmlReturn)?;
        let percent = metrics.metrics[0].value;
        if !(0.0..=f64::from(policy::MAX_PERCENT)).contains(&percent) {
            return Err(Missing::NotReported);
        }
        Ok(vec![Busy { us: since_ns / 1000, percent }])
    }
}

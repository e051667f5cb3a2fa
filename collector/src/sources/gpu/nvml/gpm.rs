//! What the hardware's performance counters show of a device (GPM, GPU performance monitoring: Hopper and later), and of MIG instances,
//! of which NVML has no other call for utilization.
//!
//! A sample holds the counters; the metrics are computed from two samples. Those of an instance are taken by the handle of its device:
//! after GPM calls by the instance's own handle, calls for its memory failed (H100, driver 535.129).

use std::ffi::c_uint;

use nvml_wrapper_sys::bindings::{
    NVML_GPM_METRICS_GET_VERSION, NVML_GPM_SUPPORT_VERSION, nvmlDevice_t, nvmlGpmMetric_t,
    nvmlGpmMetricsGet_t, nvmlGpmSample_t, nvmlGpmSupport_t,
};

use super::api::{Api, Plain, call, check, get};
use super::policy;
use crate::model::gpu::{Activity, Busy, DeviceSample, Figure, Missing, Reading};
use crate::sys::clock;

/// nvml.h, `NVML_GPM_METRIC_GRAPHICS_UTIL`: time in which any compute or graphics work ran, percent.
const GRAPHICS_UTIL: c_uint = 1;
/// nvml.h, `nvmlGpmMetricId_t`, the figure, and its unit as the driver has it.
const METRICS: [(c_uint, Figure, MetricUnit); 11] = [
    (2, Figure::SmActive, MetricUnit::Percent),
    (3, Figure::SmOccupancy, MetricUnit::Percent),
    (5, Figure::TensorActive, MetricUnit::Percent),
    (10, Figure::MemoryBandwidth, MetricUnit::Percent),
    (11, Figure::Fp64Active, MetricUnit::Percent),
    (12, Figure::Fp32Active, MetricUnit::Percent),
    (13, Figure::Fp16Active, MetricUnit::Percent),
    (20, Figure::PcieTxRate, MetricUnit::MibPerSecond),
    (21, Figure::PcieRxRate, MetricUnit::MibPerSecond),
    (61, Figure::NvlinkTxRate, MetricUnit::MibPerSecond),
    (60, Figure::NvlinkRxRate, MetricUnit::MibPerSecond),
];
/// Metrics in the largest `nvmlGpmMetricsGet_t` that a header has had (98, 210, 333, 477), all of which are of version 1. A library
/// may write as many as its own header has.
const MOST_METRICS: usize = 477;

/// The unit of a metric.
#[derive(Clone, Copy, PartialEq, Eq)]
enum MetricUnit {
    Percent,
    MibPerSecond,
}

/// The buffer of a call for metrics: its head, and room for the most metrics.
#[repr(C)]
struct Metrics {
    asked: nvmlGpmMetricsGet_t,
    room: [nvmlGpmMetric_t; MOST_METRICS],
}

/// What is read by one pair of samples.
enum Target {
    /// A whole device.
    Device(nvmlDevice_t),
    /// An instance: the handle of its device, and its id there.
    Instance(nvmlDevice_t, c_uint),
}

/// The samples of a device or an instance. They are freed only if the driver names the device anew: at the end of the
/// collector, the library may be on its way out.
pub(super) struct Gpm {
    target: Target,
    /// The latest sample, and the one that the next reading overwrites.
    samples: [nvmlGpmSample_t; 2],
    /// When the latest sample was taken, CLOCK_MONOTONIC nanoseconds; `None`: not yet.
    at_ns: Option<u64>,
}

/// What two samples show.
pub(super) struct Shown {
    /// The utilization of an instance. Empty for a device, and if there is no earlier sample.
    pub busy: Reading<Vec<Busy>>,
    /// The other figures.
    pub activity: Activity,
}

impl Gpm {
    /// Prepares to read a device; or, if `parent` is the handle of the device that it is a part of, the instance `raw`.
    ///
    /// # Errors
    /// If the device or the library does not have GPM.
    pub(super) fn start(api: &Api, raw: nvmlDevice_t, parent: Option<nvmlDevice_t>) -> Reading<Self> {
        let mut support = nvmlGpmSupport_t { version: NVML_GPM_SUPPORT_VERSION, isSupportedDevice: 0 };
        call!(api, nvmlGpmQueryDeviceSupport(parent.unwrap_or(raw), &mut support))?;
        if support.isSupportedDevice == 0 {
            return Err(Missing::NotSupported);
        }
        let target = match parent {
            Some(parent) => {
                Target::Instance(parent, get(|id| call!(api, nvmlDeviceGetGpuInstanceId(raw, id)))?)
            }
            None => Target::Device(raw),
        };
        let mut samples = [std::ptr::null_mut(); 2];
        for sample in &mut samples {
            call!(api, nvmlGpmSampleAlloc(sample))?;
        }
        Ok(Self { target, samples, at_ns: None })
    }

    /// Gives the samples back to the library. If that fails, they stay with it.
    pub(super) fn free(self, api: &Api) {
        for sample in self.samples {
            _ = call!(api, nvmlGpmSampleFree(sample));
        }
    }

    /// Reads what the counters show since the last reading. The result is empty at the first reading, and `None` if the last one was
    /// too short ago. The next reading covers this time, too, also after a failure.
    pub(super) fn read(&mut self, api: &Api) -> Reading<Option<Shown>> {
        let now_ns = clock::monotonic_ns();
        let since_ns = self.at_ns.map(|at_ns| now_ns.saturating_sub(at_ns));
        if since_ns.is_some_and(|ns| ns < policy::GPM_INTERVAL_NS) {
            return Ok(None);
        }
        let [latest, next] = self.samples;
        match self.target {
            Target::Device(device) => call!(api, nvmlGpmSampleGet(device, next))?,
            Target::Instance(parent, id) => call!(api, nvmlGpmMigSampleGet(parent, id, next))?,
        }
        (self.samples, self.at_ns) = ([next, latest], Some(now_ns));
        match since_ns {
            Some(since_ns) => self.shown(api, [latest, next], since_ns / 1000).map(Some),
            // The first sample has none to be compared with.
            None => Ok(Some(Shown { busy: Ok(Vec::new()), activity: Activity::default() })),
        }
    }

    /// Computes the metrics from two samples that are `us` microseconds apart, by one call for all.
    fn shown(&self, api: &Api, [first, second]: [nvmlGpmSample_t; 2], us: u64) -> Reading<Shown> {
        let mut metrics = Box::new(Metrics {
            asked: nvmlGpmMetricsGet_t {
                version: NVML_GPM_METRICS_GET_VERSION,
                numMetrics: METRICS.len() as c_uint,
                sample1: first,
                sample2: second,
                ..nvmlGpmMetricsGet_t::zeroed()
            },
            room: [nvmlGpmMetric_t::zeroed(); MOST_METRICS],
        });
        for (metric, (id, ..)) in metrics.asked.metrics.iter_mut().zip(METRICS) {
            metric.metricId = id;
        }
        let is_instance = matches!(self.target, Target::Instance(..));
        if is_instance {
            metrics.asked.metrics[METRICS.len()].metricId = GRAPHICS_UTIL;
            metrics.asked.numMetrics += 1;
        }
        let asked = (&raw mut *metrics).cast::<nvmlGpmMetricsGet_t>();
        call!(api, nvmlGpmMetricsGet(asked))?;
        let (read, last) = metrics.asked.metrics.split_at(METRICS.len());
        Ok(Shown::new(read, last.first().filter(|_| is_instance), us))
    }
}

impl Shown {
    /// Takes in the metrics of `us` microseconds: those of [`METRICS`], and the `utilization` of an instance.
    fn new(read: &[nvmlGpmMetric_t], utilization: Option<&nvmlGpmMetric_t>, us: u64) -> Self {
        let values =
            METRICS.iter().zip(read).map(|((_, figure, unit), metric)| (*figure, value(metric, *unit)));
        let activity = Activity { us, values: values.collect() };
        let busy = utilization.map(|metric| Ok(Busy { us, percent: value(metric, MetricUnit::Percent)? }));
        Self { busy: busy.into_iter().collect(), activity }
    }

    /// Puts the figures of an instance into its sample. Its utilization is the newest that can be known until as much time has passed again.
    pub(super) fn put_into(self, sample: &mut DeviceSample) {
        sample.busy_every_us = self.activity.us;
        (sample.busy, sample.activity) = (Some(self.busy), Some(Ok(self.activity)));
    }
}

/// The value of a metric in the figure's unit: percent, or bytes a second. A driver may give no number (NaN), and impossible ones.
fn value(metric: &nvmlGpmMetric_t, unit: MetricUnit) -> Reading<f64> {
    check(metric.nvmlReturn)?;
    let most = match unit {
        MetricUnit::Percent => f64::from(policy::MAX_PERCENT),
        MetricUnit::MibPerSecond => policy::MOST_MIB_PER_S,
    };
    if !(0.0..=most).contains(&metric.value) {
        return Err(Missing::NotReported);
    }
    Ok(match unit {
        MetricUnit::Percent => metric.value.min(100.0),
        MetricUnit::MibPerSecond => metric.value * f64::from(1 << 20),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    // Requirement: GPU-82
    #[test]
    fn instance_without_a_value_for_its_utilization_keeps_its_other_figures() {
        let metric = |value| nvmlGpmMetric_t { value, ..nvmlGpmMetric_t::zeroed() };
        let read = [metric(25.0); METRICS.len()];
        let failed = nvmlGpmMetric_t { nvmlReturn: 3, ..metric(0.0) };
        for (utilization, busy) in [
            (Some(metric(f64::NAN)), Err(Missing::NotReported)),
            (Some(failed), Err(Missing::NotSupported)),
            (Some(metric(40.0)), Ok(vec![Busy { us: 9, percent: 40.0 }])),
            (None, Ok(Vec::new())),
        ] {
            let shown = Shown::new(&read, utilization.as_ref(), 9);
            assert_eq!(shown.activity.values.first(), Some(&(Figure::SmActive, Ok(25.0))));
            // Samples have all of them for as long.
            let mut sample = DeviceSample::default();
            shown.put_into(&mut sample);
            assert_eq!((sample.busy, sample.busy_every_us), (Some(busy), 9));
        }
    }
}

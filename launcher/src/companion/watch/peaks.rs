//! The largest figures that were seen. The largest RAM is not here: the run itself keeps it.

use gpu_track_collector::model::gpu::gpu_figure::GpuFigure;
use gpu_track_collector::model::tree_sample::larger;

use super::gpus::{Gpu, gpu_sums};

/// The largest figures that were seen. `None`: none was known.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Peaks {
    /// CPU utilization over about a second, percent of one core.
    pub(super) cpu_percent: Option<f64>,
    /// Sum of the GPUs' utilization, percent of one.
    pub(super) gpu_busy_percent: Option<f64>,
    /// GPU memory of the run, bytes.
    pub(super) gpu_run_bytes: Option<u64>,
}

impl Peaks {
    /// Raises each figure to that of `other`, where that is larger.
    pub(super) fn raise(&mut self, other: &Self) {
        self.cpu_percent = larger(self.cpu_percent, other.cpu_percent);
        self.gpu_busy_percent = larger(self.gpu_busy_percent, other.gpu_busy_percent);
        self.gpu_run_bytes = self.gpu_run_bytes.max(other.gpu_run_bytes);
    }

    /// Raises the figures of GPUs to what these show together.
    pub(super) fn raise_gpus(&mut self, gpus: &[Gpu]) {
        let sums = gpu_sums(gpus);
        self.gpu_busy_percent = larger(self.gpu_busy_percent, sums.figures[GpuFigure::Utilization]);
        self.gpu_run_bytes = self.gpu_run_bytes.max(sums.run_bytes());
    }

    /// Raises the largest CPU utilization to `percent` (100: one core). `None` changes nothing.
    pub(super) fn raise_cpu(&mut self, percent: Option<f64>) {
        self.cpu_percent = larger(self.cpu_percent, percent);
    }
}

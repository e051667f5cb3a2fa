//! A GPU as the view shows it, and sums of several.

use gpu_track_collector::model::gpu::gpu_figure::{ByGpuFigure, GpuFigure};
use gpu_track_collector::model::gpu::{Named, short_names};

/// A GPU at the moment that is shown.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Gpu {
    /// The driver's number for it.
    pub(super) index: Option<u64>,
    /// Its UUID or PCI address.
    pub(super) id: String,
    /// Id of the GPU that it is a part of.
    pub(super) parent: Option<String>,
    /// Its product name; empty: not known.
    pub(super) name: String,
    /// Memory capacity, bytes.
    pub(super) total_bytes: Option<u64>,
    /// Its figures. `None`: not known.
    pub(super) figures: ByGpuFigure<Option<f64>>,
}

/// GPUs whose figures can be added up.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct SummedGpus {
    pub(super) count: usize,
    /// The sum of each figure. `None`: unknown of a GPU, or there is no GPU.
    pub(super) figures: ByGpuFigure<Option<f64>>,
    /// Memory capacity, bytes. `None`: unknown of a GPU, or there is no GPU.
    pub(super) total_bytes: Option<u64>,
}

impl SummedGpus {
    /// Memory of the run, bytes. `None`: unknown of a GPU, or there is no GPU.
    pub(super) fn run_bytes(&self) -> Option<u64> {
        self.figures[GpuFigure::MemoryRun].map(|bytes| bytes as u64)
    }
}

/// The short names of GPUs, in their order.
pub(super) fn names(gpus: &[Gpu]) -> Vec<String> {
    let named = gpus.iter().map(|gpu| Named { id: &gpu.id, index: gpu.index, parent: gpu.parent.as_deref() });
    short_names(&named.collect::<Vec<_>>())
}

/// Adds up GPUs. A GPU that is divided counts for its parts, except for figures that only these have.
pub(super) fn gpu_sums(gpus: &[Gpu]) -> SummedGpus {
    let is_part_of = |gpu: &Gpu, whole: &Gpu| gpu.parent.as_ref() == Some(&whole.id);
    let counted = || gpus.iter().filter(|gpu| !gpus.iter().any(|other| is_part_of(gpu, other)));
    let sum = |value: &dyn Fn(&Gpu) -> Option<f64>| {
        let of_parts = |whole: &Gpu| {
            let mut parts = gpus.iter().filter(|gpu| is_part_of(gpu, whole)).peekable();
            parts.peek()?;
            parts.map(value).sum::<Option<f64>>()
        };
        let all = counted().map(|gpu| value(gpu).or_else(|| of_parts(gpu)));
        all.sum::<Option<f64>>().filter(|_| !gpus.is_empty())
    };
    SummedGpus {
        count: counted().count(),
        figures: ByGpuFigure::new(|figure| sum(&|gpu| gpu.figures[figure])),
        total_bytes: sum(&|gpu| gpu.total_bytes.map(|bytes| bytes as f64)).map(|bytes| bytes as u64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_gpu_count_once_and_unknown_is_no_zero() {
        let gpu = |id: &str, run_bytes, total_bytes| Gpu {
            id: id.into(),
            parent: id.rsplit_once('/').map(|(parent, _)| parent.into()),
            figures: ByGpuFigure::default().with(GpuFigure::MemoryRun, run_bytes),
            total_bytes,
            ..Gpu::default()
        };
        let both = [gpu("GPU-a", Some(5.0), Some(10)), gpu("GPU-a/b", Some(3.0), Some(5))];
        let sums = gpu_sums(&both);
        assert_eq!(
            (sums.count, sums.run_bytes(), sums.total_bytes, sums.figures[GpuFigure::Utilization]),
            (1, Some(5), Some(10), None)
        );
        assert_eq!((gpu_sums(&both[1..]).count, gpu_sums(&both[1..]).run_bytes()), (1, Some(3)));
        // Only the instances of a divided GPU have the memory of the run.
        let divided =
            [gpu("a", None, Some(10)), gpu("a/b", Some(3.0), Some(5)), gpu("a/c", Some(4.0), Some(5))];
        assert_eq!((gpu_sums(&divided).run_bytes(), gpu_sums(&divided).total_bytes), (Some(7), Some(10)));
        assert_eq!(gpu_sums(&[&divided[..], &[gpu("a/d", None, None)]].concat()).run_bytes(), None);
        assert_eq!(names(&divided), ["GPU0", "MIG0.0", "MIG0.1"]);
        let card = "0000:03:00.0";
        let partitions = [card, "0000:03:00.0/0", "0000:03:00.0/1"].map(|id| gpu(id, Some(4.0), Some(8)));
        assert_eq!((gpu_sums(&partitions).count, gpu_sums(&partitions[1..]).count), (1, 2));
        let partly = gpu_sums(&[gpu("GPU-a", None, Some(1)), gpu("GPU-b", Some(2.0), None)]);
        assert_eq!((partly.count, partly.run_bytes(), partly.total_bytes), (2, None, None));
        assert_eq!(gpu_sums(&[]), SummedGpus::default());
    }
}

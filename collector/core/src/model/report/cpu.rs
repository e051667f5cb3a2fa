//! CPU time, utilization and threads.

use serde::{Deserialize, Serialize};

/// Utilization, percent of one core or GPU.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Percent {
    /// Largest in a window of `--st`, at least 0.1 s.
    #[serde(rename = "max_sum_percent")]
    pub max_sum: Option<f64>,
    /// Mean over the run.
    #[serde(rename = "mean_sum_percent")]
    pub mean_sum: Option<f64>,
}

impl Percent {
    /// [`Percent::max_sum`] divided by the number of units. `None`: either is unknown.
    pub fn max_hardware(self, units: Option<u32>) -> Option<f64> {
        Some(per_unit(self.max_sum?, units?))
    }

    /// [`Percent::mean_sum`] divided by the number of units. `None`: either is unknown.
    pub fn mean_hardware(self, units: Option<u32>) -> Option<f64> {
        Some(per_unit(self.mean_sum?, units?))
    }
}

/// Divides by the number of units. 0 without units, as gpu_tracker has it on a machine without a GPU.
fn per_unit(sum: f64, units: u32) -> f64 {
    if units == 0 { 0.0 } else { sum / f64::from(units) }
}

/// CPU utilization and thread counts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Cpu {
    /// Online processors.
    pub system_core_count: u32,
    /// `--nec`, else all.
    #[serde(rename = "n_expected_cores")]
    pub expected_cores: u32,
    /// The whole machine (/proc/stat).
    #[serde(default)]
    pub system: Percent,
    /// This part of the tree.
    #[serde(default)]
    pub main: Percent,
    /// This part of the tree.
    #[serde(default)]
    pub descendants: Percent,
    /// This part of the tree.
    #[serde(default)]
    pub combined: Percent,
    /// Most threads at a sample.
    #[serde(rename = "main_n_threads")]
    pub main_threads: Option<u64>,
    /// Most threads at a sample.
    #[serde(rename = "descendants_n_threads")]
    pub descendants_threads: Option<u64>,
    /// Most threads at a sample.
    #[serde(rename = "combined_n_threads")]
    pub combined_threads: Option<u64>,
}

/// CPU time of the tree, seconds. `None` if it is known of no process; in a merged report, all but `total_s` and `unattributed_s`
/// also if one report lacks it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CpuTime {
    /// The part in this mode, if known, seconds.
    pub user_s: Option<f64>,
    /// The part in this mode, if known, seconds.
    pub system_s: Option<f64>,
    /// The processes' own CPU times, and `unattributed_s`, seconds.
    pub total_s: Option<f64>,
    /// `total_s` over wall time and `usable.cores.count`, percent.
    pub usable_percent: Option<f64>,
    /// A check: the kernel's sum over reaped processes (RUSAGE_CHILDREN), seconds.
    pub kernel_s: Option<f64>,
    /// Why `kernel_s` is null.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel_s_reason: Option<String>,
    /// Children's CPU time that only a parent reported, seconds.
    pub unattributed_s: Option<f64>,
}

impl CpuTime {
    /// How far `total_s` is above the kernel's own sum, seconds. `None`: one is not known, or rounding and the time
    /// between two readings explain the difference.
    pub fn above_kernel_s(&self) -> Option<f64> {
        /// Rounding of each process's time to clock ticks, as a factor.
        const MOST_ROUNDING: f64 = 1.01;
        /// The two sums are read one after the other.
        const BETWEEN_READINGS_S: f64 = 0.005;
        let (total_s, kernel_s) = self.total_s.zip(self.kernel_s)?;
        (total_s > kernel_s * MOST_ROUNDING + BETWEEN_READINGS_S).then_some(total_s - kernel_s)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Requirement: CPU-9
    #[test]
    fn total_is_above_the_kernels_sum_beyond_one_percent_and_5_ms() {
        let above = |total_s, kernel_s| {
            let (user_s, system_s, usable_percent, unattributed_s) = (None, None, None, None);
            let kernel_s_reason = None;
            CpuTime { user_s, system_s, total_s, usable_percent, kernel_s, kernel_s_reason, unattributed_s }
                .above_kernel_s()
        };
        assert_eq!((above(Some(1.0149), Some(1.0)), above(Some(0.0049), Some(0.0))), (None, None));
        assert!(above(Some(1.016), Some(1.0)).is_some() && above(Some(0.0051), Some(0.0)).is_some());
        assert_eq!((above(Some(9.0), None), above(None, Some(0.0))), (None, None));
    }
}

//! The figures of a GPU over time, a row each. What keeps or shows a GPU over time takes them from here and adds its form only: the
//! points of a run, `series` of a report, `report --every`, traces, `gpu-track watch`.

use std::ops::Index;

use serde::{Deserialize, Serialize};

use super::Figure;
use crate::model::joining::Joining;
use crate::model::tree_sample::GpuSample;
use crate::named;

named! {
    /// A figure of a GPU over time. Its name has its unit.
    #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
    pub enum GpuFigure {
        /// Time in which anything ran, percent.
        Utilization = "utilization_percent",
        /// By all processes, bytes.
        MemoryUsed = "memory_used_bytes",
        /// By the run, bytes.
        MemoryRun = "memory_run_bytes",
        /// Temperature, degrees Celsius.
        Temperature = "temperature_c",
        /// Power, watts.
        Power = "power_w",
        /// Clock of the processors, MHz.
        SmClock = "sm_clock_mhz",
    }
}

/// What is known of a figure.
#[derive(Debug, Clone, Copy)]
pub struct Row {
    /// What people read.
    pub title: &'static str,
    /// The symbol of its unit; `None`: bytes, which are shown in several units.
    pub unit: Option<&'static str>,
    /// How several points become one.
    pub joining: Joining,
    /// Its value in a sample; `None`: not known.
    pub value: fn(&GpuSample) -> Option<f64>,
}

impl GpuFigure {
    /// What is known of it.
    pub const fn row(self) -> Row {
        use Joining::{Largest, Mean};
        let (title, unit, joining, value): (_, _, _, fn(&GpuSample) -> Option<f64>) = match self {
            Self::Utilization => ("Utilization", Some("%"), Mean, |gpu| gpu.busy_percent),
            Self::MemoryUsed => {
                ("Memory in use by all", None, Largest, |gpu| gpu.used_bytes.map(|bytes| bytes as f64))
            }
            Self::MemoryRun => {
                ("Memory of the run", None, Largest, |gpu| gpu.run_bytes.map(|bytes| bytes.combined as f64))
            }
            Self::Temperature => ("Temperature", Some("C"), Largest, |gpu| gpu.gauge(Figure::Temperature)),
            Self::Power => ("Power", Some("W"), Mean, |gpu| gpu.gauge(Figure::Power)),
            Self::SmClock => ("SM clock", Some("MHz"), Mean, |gpu| gpu.gauge(Figure::SmClock)),
        };
        Row { title, unit, joining, value }
    }
}

/// Number of figures.
const COUNT: usize = GpuFigure::ALL.len();

/// Something for each figure of a GPU.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct ByGpuFigure<T>([T; COUNT]);

impl<T> ByGpuFigure<T> {
    /// Makes it of what `of` gives for each figure.
    pub fn new(of: impl FnMut(GpuFigure) -> T) -> Self {
        Self(GpuFigure::ALL.map(of))
    }

    /// All of it, in the order of [`GpuFigure::ALL`].
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter()
    }

    /// All of it to be changed, in the order of [`GpuFigure::ALL`].
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.0.iter_mut()
    }

    /// Puts something in the place of what a figure has.
    #[must_use]
    pub fn with(mut self, figure: GpuFigure, value: T) -> Self {
        self.0[figure as usize] = value;
        self
    }
}

impl From<&GpuSample> for ByGpuFigure<Option<f64>> {
    /// The figures in a sample. `None`: not known.
    fn from(gpu: &GpuSample) -> Self {
        Self::new(|figure| (figure.row().value)(gpu))
    }
}

impl<T> Index<GpuFigure> for ByGpuFigure<T> {
    type Output = T;

    fn index(&self, figure: GpuFigure) -> &T {
        &self.0[figure as usize]
    }
}

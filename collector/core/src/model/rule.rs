//! Rules that the user sets for a run: limits (`--limit`, `--signal-at`) and alerts (`--alert`).

use serde::{Deserialize, Serialize};

use crate::named;

named! {
    /// The figure that a rule watches. It is of the whole tree.
    #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
    pub enum Quantity {
        /// The footprint.
        Ram = "ram",
        /// Memory on all GPUs; a percentage is of the fullest GPU that the run uses.
        GpuRam = "gpu_ram",
        /// CPU time; a percentage is of the cores that the run may use.
        Cpu = "cpu",
        /// Time since the start of the command.
        Wall = "wall",
        /// Live processes.
        Processes = "processes",
        /// Time without CPU time, block I/O and work on GPUs.
        Stall = "stall",
        /// Time without work on GPUs.
        GpuIdle = "gpu_idle",
        /// The smallest free space of the file systems that the run may write to.
        Disk = "disk",
        /// Memory that rises all the time: the footprint, or that on the fullest GPU.
        Growth = "growth",
    }
}

impl Quantity {
    /// Its unit in a report, but for a percentage of cores.
    pub fn unit(self) -> Unit {
        match self {
            Self::Ram | Self::GpuRam | Self::Disk | Self::Growth => Unit::Bytes,
            Self::Cpu | Self::Wall | Self::Stall | Self::GpuIdle => Unit::Seconds,
            Self::Processes => Unit::Processes,
        }
    }

    /// Whether its rules act below the threshold, not above.
    pub fn acts_below(self) -> bool {
        self == Self::Disk
    }
}

named! {
    /// The unit of a quantity in a report.
    #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
    pub enum Unit {
        /// Bytes.
        Bytes = "bytes",
        /// Seconds.
        Seconds = "seconds",
        /// Number of processes.
        Processes = "processes",
        /// Percent.
        Percent = "percent",
    }
}

impl Unit {
    /// An amount as reports have it; `amount` is in bytes, nanoseconds, processes or percent.
    pub fn of_report(self, amount: f64) -> f64 {
        if self == Self::Seconds { amount / 1e9 } else { amount }
    }
}

/// Where a rule acts.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub enum Threshold {
    /// Beyond this many bytes, nanoseconds or processes.
    Amount(u64),
    /// Beyond this part of what the run may use, percent.
    Percent(f64),
    /// Where the figure rises all the time.
    Rise,
}

/// What a rule does, and with it how long it holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Response {
    /// Every process of the tree is ended.
    End,
    /// The command's first process gets this signal.
    Signal(i32),
    /// The user is told. This can happen again and again; the others happen once.
    Tell,
}

/// A rule.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Rule {
    /// The user's words, such as `ram=8G` or `ram>80%`.
    pub words: String,
    /// The figure that it watches.
    pub quantity: Quantity,
    /// Where it acts.
    pub threshold: Threshold,
    /// What it does.
    pub response: Response,
}

impl Rule {
    /// Its unit in a report.
    pub fn unit(&self) -> Unit {
        match (self.quantity, self.threshold) {
            (Quantity::Cpu, Threshold::Percent(_)) => Unit::Percent,
            (quantity, _) => quantity.unit(),
        }
    }

    /// Whether it ends the tree.
    pub fn ends(&self) -> bool {
        self.response == Response::End
    }

    /// Whether the launcher holds it by a timer, so that it depends on no sample: a limit of wall time that ends the tree.
    pub fn is_held_by_timer(&self) -> bool {
        self.quantity == Quantity::Wall && self.ends()
    }
}

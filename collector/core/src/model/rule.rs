//! Rules that the user sets for a run: limits (`--limit`, `--signal-at`) and alerts (`--alert`).

use serde::{Deserialize, Serialize};

use crate::named;

named! {
    /// The figure that a rule watches. It is of the whole tree.
    #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
    pub enum Quantity {
        /// The footprint.
        Ram = "ram",
        /// Memory on GPUs.
        GpuRam = "gpu_ram",
        /// CPU time; in percent, utilization.
        Cpu = "cpu",
        /// Time since the start.
        Wall = "wall",
        /// Live processes.
        Processes = "processes",
        /// Time without CPU time, I/O and GPU work.
        Stall = "stall",
        /// Time without work on GPUs.
        GpuIdle = "gpu_idle",
        /// Smallest free space of a file system.
        Disk = "disk",
        /// Memory that rises all the time.
        Growth = "growth",
    }
}

/// How rules treat a quantity.
#[derive(Debug, Clone, Copy)]
pub struct Row {
    /// Its unit in a report. A rule on a percentage of cores has [`Unit::Percent`] instead.
    pub unit: Unit,
    /// Its rules act below the threshold, not above.
    pub acts_below: bool,
    /// A limit can watch it.
    pub is_limited: bool,
    /// An alert can watch it.
    pub is_alerted: bool,
    /// Why a run may not know it.
    pub unknown: &'static str,
    /// Why a limit of it has no effect where GPU drivers do not report it. `None`: no GPU driver is asked for it.
    pub untold: Option<&'static str>,
}

impl Quantity {
    /// How rules treat it.
    pub const fn row(self) -> Row {
        use Unit::{Bytes, Seconds};
        const RAM: &str = "the memory that the run may use is not known";
        const GPU_WORK: &str = "there is no GPU that the run may use, or one does not tell how busy it is";
        const NEVER: &str = "it was not known";
        const DRIVERS_OF_WORK: Option<&str> =
            Some("the drivers of the GPUs do not tell, or too seldom, how busy they are");
        const DRIVERS_OF_RAM: Option<&str> =
            Some("the drivers of the GPUs do not tell this memory, or too seldom");
        let (unit, [is_limited, is_alerted], unknown, untold) = match self {
            Self::Ram => (Bytes, [true, true], RAM, None),
            Self::GpuRam => (Bytes, [true, true], "no GPU told the memory of the run", DRIVERS_OF_RAM),
            Self::Cpu => (Seconds, [true, true], "no CPU utilisation was known", None),
            Self::Wall => (Seconds, [true, false], NEVER, None),
            Self::Processes => (Unit::Processes, [true, false], NEVER, None),
            Self::Stall => (Seconds, [true, false], GPU_WORK, DRIVERS_OF_WORK),
            Self::GpuIdle => (Seconds, [true, true], GPU_WORK, DRIVERS_OF_WORK),
            Self::Disk => (Bytes, [false, true], "no file system told its free space", None),
            Self::Growth => (Bytes, [false, true], RAM, None),
        };
        Row { unit, acts_below: matches!(self, Self::Disk), is_limited, is_alerted, unknown, untold }
    }

    /// Why a limit or an alert of it had no effect: because no sample knew the quantity, or samples did not for some seconds (`time_s`).
    pub fn why_not_held(self, time_s: Option<f64>) -> &'static str {
        let Row { unknown, untold, .. } = self.row();
        untold.map_or(unknown, |untold| time_s.map_or(untold, |_| "the GPUs were not read often enough"))
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
        /// Processes.
        Processes = "processes",
        /// Percent.
        Percent = "percent",
    }
}

impl Unit {
    /// An amount as reports have it; `amount` is in bytes, nanoseconds, processes or percent.
    pub fn in_report_unit(self, amount: f64) -> f64 {
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

/// What is done where a rule acts. `Tell` can be done again and again, the other two once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Response {
    /// Every process of the tree is ended.
    End,
    /// The command's first process gets this signal.
    Signal(i32),
    /// The user is told.
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
    /// The unit of its amounts in a report. A threshold in percent is converted to the quantity's unit, except for CPU.
    pub fn unit(&self) -> Unit {
        match (self.quantity, self.threshold) {
            (Quantity::Cpu, Threshold::Percent(_)) => Unit::Percent,
            (quantity, _) => quantity.row().unit,
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

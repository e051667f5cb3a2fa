//! The columns of `.csv`, and of the tables `static_data` and `data` of `.sqlite`. First come those of the Python program
//! gpu_tracker 5.0.1, whose readers users may go on using, then our own.
//!
//! A row has the largest value of each quantity since the row before, so the largest of a column is the report's maximum. The
//! last columns are ours. They include the key of the row, the largest RAM so far, and what shows that RAM; the last row has the
//! report's largest RAM. Each is a number that is always known, except for how the time was spent. Those cells are empty in a
//! row whose threads were not read. gpu_tracker's reader takes an empty cell for a number that is missing.

use std::fmt;

use super::intervals::Row;
use crate::model::groups::Groups;
use crate::model::report::Report;
use crate::model::style::{RamUnit, TimeUnit};
use crate::model::time_groups::TimeGroup;
use crate::model::tree_sample::{CpuSample, MaximumSource, RamMaximum, TreeSample};
use crate::sinks::sink::SinkContext;

/// A column, whose values are computed from an `S`.
pub(super) struct Column<S> {
    pub name: &'static str,
    pub kind: Kind,
    pub value: fn(&S) -> Value,
}

/// The type of a column's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Text,
    Integer,
    Number,
}

/// A value of a column.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Value {
    Unknown,
    Text(&'static str),
    Integer(u64),
    Number(f64),
    /// A time, microseconds since the epoch; written in seconds.
    Time(u64),
}

/// Writes a value as `.csv` has it: an unknown one as nothing. A [`Value::Number`] always has a fraction, as Python's reader needs.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown => Ok(()),
            Self::Text(text) => f.write_str(text),
            Self::Integer(number) => write!(f, "{number}"),
            Self::Number(number) => write!(f, "{number:?}"),
            Self::Time(us) => write!(f, "{}.{:06}", us / 1_000_000, us % 1_000_000),
        }
    }
}

impl From<Option<f64>> for Value {
    fn from(number: Option<f64>) -> Self {
        number.map_or(Self::Unknown, Self::Number)
    }
}

/// The units of the values, and figures of the machine that columns have or divide by.
#[derive(Debug, Clone, Copy)]
pub(super) struct Form {
    pub ram_unit: RamUnit,
    pub gpu_ram_unit: RamUnit,
    pub time_unit: TimeUnit,
    /// The machine's RAM.
    pub ram_bytes: Option<u64>,
    /// The machine's cores.
    pub cores: u32,
    /// The cores that the user expects the command to use; the machine's if no number is given.
    pub expected_cores: u32,
}

impl Form {
    /// The units that the user asked for, or gpu_tracker's default ones, and the figures of the machine.
    pub(super) fn from_context(context: &SinkContext) -> Self {
        let (tracking, style, host) =
            (&context.config.tracking, &context.config.report.style, &context.host.host);
        Self {
            ram_unit: style.ram_unit.unwrap_or(RamUnit::Gigabytes),
            gpu_ram_unit: style.gpu_ram_unit.unwrap_or(RamUnit::Gigabytes),
            time_unit: style.time_unit.unwrap_or(TimeUnit::Hours),
            ram_bytes: host.ram_bytes,
            cores: host.cores,
            expected_cores: tracking.expected_cores.unwrap_or(host.cores),
        }
    }

    /// Converts bytes of RAM to its unit.
    fn ram(&self, bytes: u64) -> Value {
        Value::Number(self.ram_unit.convert(bytes as f64))
    }
}

/// What the values of [`STATIC`] are computed from.
pub(super) struct Fixed {
    pub form: Form,
    /// Before the report it is the default, in which all is unknown.
    pub gpus: Gpus,
}

/// The report's figures of the GPUs.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Gpus {
    /// The memory of all of them.
    memory_bytes: Option<u64>,
    /// How many the machine has.
    of_system: Option<u64>,
    /// How many are tracked.
    expected: Option<u64>,
}

impl Gpus {
    /// Takes the figures of the GPUs from a report.
    pub(super) fn from_report(report: &Report) -> Self {
        Self {
            memory_bytes: report.max_gpu_ram.system_capacity_bytes,
            of_system: report.gpu.system_gpu_count.map(u64::from),
            expected: report.gpu.expected_gpus.map(u64::from),
        }
    }
}

/// What the values of [`DATA`] are computed from.
pub(super) struct DataRow {
    pub form: Form,
    pub interval: Row,
    /// CLOCK_REALTIME - CLOCK_MONOTONIC, nanoseconds.
    pub epoch_ns: u64,
}

/// Makes a list of columns. A line has the name, the kind, and the closure that computes the value.
macro_rules! columns {
    ($source:ty: $($name:literal $kind:ident = $value:expr,)*) => {
        &[$(Column::<$source> { name: $name, kind: Kind::$kind, value: $value }),*]
    };
}

/// What does not change during a run (gpu_tracker's `_StaticData`).
pub(super) const STATIC: &[Column<Fixed>] = columns! { Fixed:
    "ram_unit" Text = |fixed| Value::Text(fixed.form.ram_unit.name()),
    "gpu_ram_unit" Text = |fixed| Value::Text(fixed.form.gpu_ram_unit.name()),
    "time_unit" Text = |fixed| Value::Text(fixed.form.time_unit.name()),
    "ram_system_capacity" Number =
        |fixed| fixed.form.ram_bytes.map_or(Value::Unknown, |bytes| fixed.form.ram(bytes)),
    "gpu_ram_system_capacity" Number = |fixed| {
        fixed.gpus.memory_bytes.map(|bytes| fixed.form.gpu_ram_unit.convert(bytes as f64)).into()
    },
    "system_core_count" Integer = |fixed| Value::Integer(fixed.form.cores.into()),
    "n_expected_cores" Integer = |fixed| Value::Integer(fixed.form.expected_cores.into()),
    "system_gpu_count" Integer =
        |fixed| count(fixed.gpus.of_system),
    "n_expected_gpus" Integer = |fixed| count(fixed.gpus.expected),
};

/// The divisor of percentages that are sums over cores or devices.
const UNDIVIDED: u32 = 1;

/// gpu_tracker's columns (`_TimepointUsage`), then ours.
pub(super) const DATA: &[Column<DataRow>] = columns! { DataRow:
    "main_ram" Number = |row| row.form.ram(row.sample().footprint_bytes.main.max),
    "descendants_ram" Number = |row| row.form.ram(row.sample().footprint_bytes.descendants.max),
    "combined_ram" Number = |row| row.form.ram(row.sample().footprint_bytes.combined.max),
    "system_ram" Number = |row| row.form.ram(row.system_ram()),
    "main_gpu_ram" Number = |row| row.run_gpu_ram(|bytes| bytes.main),
    "descendants_gpu_ram" Number = |row| row.run_gpu_ram(|bytes| bytes.descendants),
    "combined_gpu_ram" Number = |row| row.run_gpu_ram(|bytes| bytes.combined),
    "system_gpu_ram" Number = |row| row.gpu_ram(row.sample().gpu.used_bytes),
    "gpu_sum_utilization_percent" Number = |row| row.gpu_percent(UNDIVIDED),
    "gpu_hardware_utilization_percent" Number = |row| row.gpu_percent(row.sample().gpu.expected),
    "main_n_threads" Integer = |row| Value::Integer(row.sample().threads.main.max),
    "descendants_n_threads" Integer = |row| Value::Integer(row.sample().threads.descendants.max),
    "combined_n_threads" Integer = |row| Value::Integer(row.sample().threads.combined.max),
    "cpu_system_sum_utilization_percent" Number = |row| rounded(row.system_percent(), UNDIVIDED),
    "cpu_system_hardware_utilization_percent" Number =
        |row| rounded(row.system_percent(), row.form.cores),
    "cpu_main_sum_utilization_percent" Number = |row| rounded(percent(row.sample().cpu.main), UNDIVIDED),
    "cpu_main_hardware_utilization_percent" Number =
        |row| rounded(percent(row.sample().cpu.main), row.form.expected_cores),
    "cpu_descendants_sum_utilization_percent" Number =
        |row| rounded(percent(row.sample().cpu.descendants), UNDIVIDED),
    "cpu_descendants_hardware_utilization_percent" Number =
        |row| rounded(percent(row.sample().cpu.descendants), row.form.expected_cores),
    "cpu_combined_sum_utilization_percent" Number =
        |row| rounded(percent(row.sample().cpu.combined), UNDIVIDED),
    "cpu_combined_hardware_utilization_percent" Number =
        |row| rounded(percent(row.sample().cpu.combined), row.form.expected_cores),
    "timestamp" Number = |row| Value::Time(row.time_us()),
    "n_samples" Integer = |row| Value::Integer(row.interval.count),
    "n_processes" Integer = |row| Value::Integer(row.sample().processes.max),
    "max_main_ram" Number = |row| row.form.ram(row.sample().max_ram.main.bytes),
    "max_descendants_ram" Number = |row| row.form.ram(row.sample().max_ram.descendants.bytes),
    "max_combined_ram" Number = |row| row.form.ram(row.sample().max_ram.combined.bytes),
    "max_ram_source" Integer = |row| Value::Integer(source_number(row.sample().max_ram)),
    "time_computing_percent" Number = |row| row.time_percent(TimeGroup::Computing),
    "time_waiting_for_core_percent" Number = |row| row.time_percent(TimeGroup::WaitingForCore),
    "time_storage_percent" Number = |row| row.time_percent(TimeGroup::Storage),
    "time_network_percent" Number = |row| row.time_percent(TimeGroup::Network),
    "time_locks_percent" Number = |row| row.time_percent(TimeGroup::Locks),
    "time_other_percent" Number = |row| row.time_percent(TimeGroup::Other),
    "at_ns" Integer = |row| Value::Integer(row.sample().at_ns),
};

impl DataRow {
    fn sample(&self) -> &TreeSample {
        &self.interval.sample
    }

    /// The time of the sample, microseconds since the epoch.
    pub(super) fn time_us(&self) -> u64 {
        self.sample().at_ns.saturating_add(self.epoch_ns) / 1000
    }

    /// The machine's memory in use, bytes. If that is unknown, it is the tree's, a lower bound.
    fn system_ram(&self) -> u64 {
        self.sample().system.ram_bytes.unwrap_or(self.sample().footprint_bytes.combined.max)
    }

    /// The machine's CPU utilization, percent of one core. If that is unknown, it is the tree's, a lower bound.
    fn system_percent(&self) -> f64 {
        self.sample().system.cpu_percent.unwrap_or(percent(self.sample().cpu.combined))
    }

    /// The part of the row's time that the run spent so, percent of what is known of that time.
    fn time_percent(&self, group: TimeGroup) -> Value {
        let shares = self.sample().time_ns.and_then(|ns| ns.shares());
        shares.map_or(Value::Unknown, |shares| rounded(shares.of(group) * 100.0, UNDIVIDED))
    }

    /// The GPU RAM of the processes that `group` picks, in its unit.
    fn run_gpu_ram(&self, group: impl Fn(Groups<u64>) -> u64) -> Value {
        self.gpu_ram(self.sample().gpu.run_bytes.map(group))
    }

    /// Converts bytes of GPU RAM to its unit.
    fn gpu_ram(&self, bytes: Option<u64>) -> Value {
        self.of_gpus(bytes.map(|bytes| self.form.gpu_ram_unit.convert(bytes as f64)))
    }

    /// The utilization of all GPUs together, divided by this number of devices.
    fn gpu_percent(&self, devices: u32) -> Value {
        self.of_gpus(self.sample().gpu.busy_percent.map(|sum| sum / f64::from(devices.max(1))))
    }

    /// Makes a cell of a figure of the GPUs, empty if it is unknown. Without a GPU it is 0, as in gpu_tracker.
    fn of_gpus(&self, value: Option<f64>) -> Value {
        let gpus = &self.sample().gpu;
        let has_none = gpus.devices.is_empty() && !gpus.are_devices_sought;
        if has_none { Value::Number(0.0) } else { value.into() }
    }
}

/// A count as a cell, empty if it is unknown.
fn count(count: Option<u64>) -> Value {
    count.map_or(Value::Unknown, Value::Integer)
}

/// A group's CPU utilization, percent of one core. It can be unknown in the first sample of a run, and is 0 then.
fn percent(cpu: CpuSample) -> f64 {
    cpu.percent.unwrap_or(0.0)
}

/// Makes a cell of a percentage, divided by `cores` and rounded to a thousandth, because clocks are no more exact.
fn rounded(percent: f64, cores: u32) -> Value {
    Value::Number((percent / f64::from(cores.max(1)) * 1000.0).round() / 1000.0)
}

/// The value of `max_ram_source`, which says what shows the largest RAM. If the groups differ, the last one in the order of
/// [`MaximumSource`] counts.
fn source_number(max_ram: Groups<RamMaximum>) -> u64 {
    // A sample, a record that came after its sample had closed, or a process that held this much at an unknown time.
    let last_source = max_ram.values().map(|max| max.source).into_iter().max();
    match last_source.unwrap_or_default() {
        MaximumSource::Sample => 0,
        MaximumSource::Revision => 1,
        MaximumSource::Floor => 2,
    }
}

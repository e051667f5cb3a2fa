//! The processes of one command name in several reports, or of several names in one: how each column of a command is added up.

use crate::model::quality::Quality;
use crate::model::report::{CommandCalls, CommandGpu, CommandUsage};

/// Sums of processes. Times are whole microseconds, so no sum depends on the order.
#[derive(Debug, Default)]
pub(crate) struct CommandSums {
    count: u64,
    /// The sum of the CPU times that are known. `None`: none is known.
    pub(crate) cpu_us: Option<u128>,
    peak_rss_bytes: Option<u64>,
    wall_us: u128,
    calls: Option<CommandCalls>,
    gpu: Option<CommandGpu>,
}

impl CommandSums {
    /// Adds the processes that are summed up in `usage`.
    pub(crate) fn add(&mut self, usage: &CommandUsage) {
        self.join(&Self {
            count: usage.count,
            cpu_us: usage.cpu_s.map(millionths),
            peak_rss_bytes: usage.peak_rss_bytes,
            wall_us: millionths(usage.wall_s),
            calls: usage.calls,
            gpu: usage.gpu.clone(),
        });
    }

    /// Adds the processes of other sums.
    pub(crate) fn join(&mut self, other: &Self) {
        self.count = self.count.saturating_add(other.count);
        self.cpu_us = self.cpu_us.into_iter().chain(other.cpu_us).reduce(u128::saturating_add);
        self.peak_rss_bytes = self.peak_rss_bytes.max(other.peak_rss_bytes);
        self.wall_us = self.wall_us.saturating_add(other.wall_us);
        self.calls = self.calls.into_iter().chain(other.calls).reduce(all_calls);
        if let Some(gpu) = &other.gpu {
            let all = self.gpu.get_or_insert_default();
            all.count = all.count.saturating_add(gpu.count);
            all.peak_ram_bytes = all.peak_ram_bytes.max(gpu.peak_ram_bytes);
            all.max_sm_percent = all.max_sm_percent.into_iter().chain(gpu.max_sm_percent).reduce(f64::max);
        }
    }

    /// Converts the sums to the usage of a command of this name.
    pub(crate) fn usage(&self, name: &str) -> CommandUsage {
        CommandUsage {
            command: name.to_owned(),
            count: self.count,
            cpu_s: self.cpu_us.map(|us| us as f64 / 1e6),
            peak_rss_bytes: self.peak_rss_bytes,
            wall_s: self.wall_us as f64 / 1e6,
            calls: self.calls,
            gpu: self.gpu.clone(),
        }
    }
}

/// Adds up what processes passed by calls. If that of some is not known, what is known of the others is a lower bound.
fn all_calls(one: CommandCalls, other: CommandCalls) -> CommandCalls {
    let sum = |field: fn(&CommandCalls) -> Option<u64>| {
        [field(&one), field(&other)].into_iter().flatten().reduce(u64::saturating_add)
    };
    let worst = one.quality.max(other.quality);
    let is_partly_known = one.quality.min(other.quality) != Quality::Unknown;
    CommandCalls {
        read_call_bytes: sum(|calls| calls.read_call_bytes),
        write_call_bytes: sum(|calls| calls.write_call_bytes),
        read_calls: sum(|calls| calls.read_calls),
        write_calls: sum(|calls| calls.write_calls),
        quality: if is_partly_known { worst.min(Quality::Sampled) } else { Quality::Unknown },
    }
}

/// Converts seconds to whole microseconds, and percent to whole millionths of a percent. Sums of whole numbers do not depend on
/// the order. A negative figure, which is forged, counts as 0.
pub(crate) fn millionths(number: f64) -> u128 {
    (number * 1e6).round().clamp(0.0, 1e24) as u128
}

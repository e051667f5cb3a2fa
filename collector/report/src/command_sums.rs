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
    calls: CallSums,
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
            calls: CallSums::of(usage),
            gpu: usage.gpu.clone(),
        });
    }

    /// Adds the processes of other sums.
    pub(crate) fn join(&mut self, other: &Self) {
        self.count = self.count.saturating_add(other.count);
        self.cpu_us = self.cpu_us.into_iter().chain(other.cpu_us).reduce(u128::saturating_add);
        self.peak_rss_bytes = self.peak_rss_bytes.max(other.peak_rss_bytes);
        self.wall_us = self.wall_us.saturating_add(other.wall_us);
        self.calls.join(&other.calls);
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
            calls: self.calls.in_all(),
            gpu: self.gpu.clone(),
        }
    }
}

/// What processes passed by calls. Each quality has a sum of its own, so the result does not depend on the order.
#[derive(Debug, Default)]
struct CallSums {
    exact: Option<CommandCalls>,
    at_least: Option<CommandCalls>,
    at_most: Option<CommandCalls>,
    /// Nothing is known of some.
    has_unknown: bool,
    /// A report has figures of calls. Those of older versions have none.
    has_figures: bool,
}

impl CallSums {
    /// The sums of one command of a report. A report of an older version says nothing of its processes.
    fn of(usage: &CommandUsage) -> Self {
        let mut sums = Self { has_figures: usage.calls.is_some(), ..Self::default() };
        match usage.calls.map_or(Quality::Unknown, |calls| calls.quality) {
            Quality::Exact => sums.exact = usage.calls,
            Quality::Sampled => sums.at_least = usage.calls,
            Quality::Bound => sums.at_most = usage.calls,
            Quality::Unknown => sums.has_unknown = usage.count > 0 || usage.calls.is_some(),
        }
        sums
    }

    /// Adds other sums.
    fn join(&mut self, other: &Self) {
        self.exact = plus(self.exact, other.exact);
        self.at_least = plus(self.at_least, other.at_least);
        self.at_most = plus(self.at_most, other.at_most);
        self.has_unknown |= other.has_unknown;
        self.has_figures |= other.has_figures;
    }

    /// The sum of all. If that of some is a lower bound or unknown, a lower bound, which has no upper ones in it. `None`: no report has
    /// such figures.
    fn in_all(&self) -> Option<CommandCalls> {
        let of_quality = |calls: Option<CommandCalls>, quality| {
            calls.map_or_else(CommandCalls::default, |calls| CommandCalls { quality, ..calls })
        };
        let is_complete = self.at_least.is_none() && !self.has_unknown;
        let all = match self.at_most {
            _ if !is_complete => of_quality(plus(self.exact, self.at_least), Quality::Sampled),
            Some(_) => of_quality(plus(self.exact, self.at_most), Quality::Bound),
            None => of_quality(self.exact, Quality::Exact),
        };
        Some(all).filter(|_| self.has_figures)
    }
}

/// Adds up two sums of calls; one alone is returned as it is. A figure that one of them lacks is unknown in the sum. The caller sets the
/// quality.
fn plus(one: Option<CommandCalls>, other: Option<CommandCalls>) -> Option<CommandCalls> {
    let (Some(a), Some(b)) = (one, other) else { return one.or(other) };
    let sum = |field: fn(&CommandCalls) -> Option<u64>| Some(field(&a)?.saturating_add(field(&b)?));
    Some(CommandCalls {
        read_call_bytes: sum(|calls| calls.read_call_bytes),
        write_call_bytes: sum(|calls| calls.write_call_bytes),
        read_calls: sum(|calls| calls.read_calls),
        write_calls: sum(|calls| calls.write_calls),
        quality: a.quality,
    })
}

/// Converts seconds to whole microseconds, and percent to whole millionths of a percent. Sums of whole numbers do not depend on
/// the order. A negative figure, which is forged, counts as 0.
pub(crate) fn millionths(number: f64) -> u128 {
    (number * 1e6).round().clamp(0.0, 1e24) as u128
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage(calls: Option<(Option<u64>, Quality)>) -> CommandUsage {
        let calls = calls.map(|(read_call_bytes, quality)| CommandCalls {
            read_call_bytes,
            quality,
            ..CommandCalls::default()
        });
        let (command, wall_s) = ("cat".to_owned(), 0.0);
        CommandUsage { command, count: 1, cpu_s: None, peak_rss_bytes: None, wall_s, calls, gpu: None }
    }

    // Requirement: IO-57
    #[test]
    fn sum_of_calls_is_as_good_as_the_worst_of_them_in_any_order() {
        let exact = Some((Some(1), Quality::Exact));
        let (least, most) = (Some((Some(10), Quality::Sampled)), Some((Some(100), Quality::Bound)));
        let unknown = Some((None, Quality::Unknown));
        for (all, expected) in [
            (vec![exact, exact], Some((Some(2), Quality::Exact))),
            (vec![exact, least], Some((Some(11), Quality::Sampled))),
            (vec![exact, most, exact], Some((Some(102), Quality::Bound))),
            (vec![most, least, exact], Some((Some(11), Quality::Sampled))),
            (vec![most, unknown], unknown),
            // A report of an older version says nothing of its processes.
            (vec![exact, None], Some((Some(1), Quality::Sampled))),
            (vec![None, None], None),
        ] {
            let in_all = |order: &mut dyn Iterator<Item = &Option<(Option<u64>, Quality)>>| {
                let mut sums = CommandSums::default();
                order.for_each(|calls| sums.add(&usage(*calls)));
                sums.usage("cat").calls.map(|calls| (calls.read_call_bytes, calls.quality))
            };
            let orders = [in_all(&mut all.iter()), in_all(&mut all.iter().rev())];
            assert_eq!(orders, [expected; 2], "{all:?}");
        }
    }
}

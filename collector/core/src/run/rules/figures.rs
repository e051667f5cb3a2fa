//! The figures that rules compare, and what they compare them with. Amounts are in the unit of the rule: bytes, nanoseconds,
//! processes or percent.

use super::{Moment, Rules};
use crate::model::rule::{Quantity, Response, Rule, Threshold};
use crate::model::tree_sample::GpuSums;

/// The figure of a rule at a sample, and its threshold.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Level {
    pub amount: f64,
    /// The threshold.
    pub allowed: f64,
}

impl Rules {
    /// The figure of a rule and its threshold. `None`: one of them is not known, or the rule is one of growth.
    pub(super) fn level(&self, rule: &Rule, moment: &Moment) -> Option<Level> {
        let amount = self.amount(rule, moment)?;
        Some(Level { amount, allowed: self.allowed(rule, &moment.sample.gpu)? })
    }

    /// The threshold of a rule. `None`: the rule is one of growth, or a percentage of an amount that is not known.
    pub(crate) fn allowed(&self, rule: &Rule, gpu: &GpuSums) -> Option<f64> {
        let percent = match rule.threshold {
            Threshold::Amount(amount) => return Some(amount as f64),
            Threshold::Percent(percent) => percent,
            Threshold::Rise => return None,
        };
        let part_of = |whole: u64| (whole as f64 * percent / 100.0).floor();
        match rule.quantity {
            Quantity::Ram => match rule.response {
                // An alert compares with the RAM above which a limit ends the run. Limits set that RAM themselves, so they compare with
                // all that the run may use.
                Response::End | Response::Signal(_) => self.usable.ram_bytes.map(part_of),
                Response::Tell => self.most_ram().map(part_of),
            },
            Quantity::GpuRam => gpu.fullest().map(|(_, memory)| part_of(memory)),
            Quantity::Cpu => Some(percent),
            _ => None,
        }
    }

    /// The figure of a rule. `None`: it is not known. Idleness is not known while the use of a GPU is unknown, since that GPU may be
    /// at work.
    fn amount(&self, rule: &Rule, moment: &Moment) -> Option<f64> {
        let Moment { start_ns, sample, .. } = *moment;
        let (gpu, now_ns) = (&sample.gpu, sample.at_ns);
        let is_gpu_use_known = || gpu.is_idle().is_some();
        let amount = match rule.quantity {
            // A limit compares the largest RAM so far, which includes what later records add to the time between two samples. So it
            // also sees a child that held too much for a moment and has ended.
            Quantity::Ram if rule.response == Response::Tell => sample.footprint_bytes.combined.end,
            Quantity::Ram => sample.max_ram.combined.bytes,
            Quantity::GpuRam => match rule.threshold {
                Threshold::Amount(_) => gpu.run_bytes?.combined,
                _ => gpu.fullest()?.0,
            },
            Quantity::Cpu => match rule.threshold {
                Threshold::Amount(_) => sample.cpu.combined.time_ns,
                _ => {
                    let percent = sample.cpu.combined.percent.filter(|_| self.usable.cores > 0.0)?;
                    return Some(percent / self.usable.cores);
                }
            },
            Quantity::Wall => now_ns.saturating_sub(start_ns),
            Quantity::Processes => sample.processes.max,
            Quantity::Stall if gpu.expected > 0 && !is_gpu_use_known() => return None,
            Quantity::Stall => now_ns.saturating_sub(self.idle.active_ns),
            Quantity::GpuIdle if gpu.expected == 0 || !is_gpu_use_known() => return None,
            Quantity::GpuIdle => now_ns.saturating_sub(self.idle.gpu_active_ns),
            Quantity::Disk => sample.file_systems.iter().filter_map(|system| system.free_bytes).min()?,
            Quantity::Growth => return None,
        };
        Some(amount as f64)
    }
}

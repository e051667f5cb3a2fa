//! Maxima, means and sums: what the samples and the settled processes add up to.

mod cpu;
mod ram;
#[cfg(test)]
mod tests;
mod totals;

pub use cpu::CpuUsage;
pub use ram::{MaxRss, RamUsage};
pub use totals::Totals;

//! Maxima, means and sums over the samples and the finalized processes.

mod busy;
mod cpu;
mod floors;
mod heaviest;
mod moments;
mod ram;
#[cfg(test)]
mod tests;
mod totals;

pub use cpu::CpuUsage;
pub(crate) use floors::Floor;
pub(crate) use moments::Largest;
pub(crate) use ram::MaxRss;
pub use ram::RamUsage;
pub(crate) use totals::Totals;

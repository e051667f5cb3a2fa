//! Maxima, means and sums over the samples and the finalized processes.

mod allowed_cores;
mod busy_cores;
mod cpu;
mod floors;
mod heaviest;
mod largest_by_sample;
mod peak_moment;
mod ram;
#[cfg(test)]
mod tests;
mod tolerance;
mod totals;

pub(crate) use allowed_cores::AllowedCores;
pub use cpu::CpuUsage;
pub(crate) use cpu::SHORTEST_WINDOW_NS;
pub(crate) use floors::Floor;
pub(crate) use largest_by_sample::Largest;
pub(crate) use ram::MaxFootprint;
pub use ram::RamUsage;
pub(crate) use totals::Totals;

//! One report of several nodes' reports: a pure function of them.
//!
//! 1. A first look at each file ([`Head`]) tells its time, node and job.
//! 2. A [`Plan`] of all first looks says which belong together: the grid of wall-clock time, the nodes, the order.
//! 3. A [`Merger`] takes the reports one by one in that order, and keeps only sums of them.
//!
//! Sums are of whole numbers, and the plan sorts the files. So the order in which files are named changes nothing.

mod agent_part;
mod assemble;
mod commands;
mod common;
mod cover;
mod ending;
mod grid;
mod head;
mod idle;
mod left;
mod machine;
mod merged_processes;
mod merged_tasks;
mod merger;
mod node;
mod node_warnings;
mod plan;
mod quantity;
mod rank_series;
mod ranks;
mod seen;
mod shape;
mod spread;
mod sum;
mod sums;
#[cfg(test)]
mod tests;
mod time_spent;
mod totals;
mod usable;
mod warnings;
mod words;

pub(crate) use ending::is_sent;
pub use head::Head;
pub use left::{note_left_reports, note_unseen, note_untracked_nodes};
pub use merger::{MergedReport, Merger};
pub use plan::{Plan, Source};
pub use quantity::MOST_CLOCK_OFFSET_S;
pub use ranks::csv as ranks_csv;
pub(crate) use ranks::ranks_of_report;

use crate::model::report::Report;
use crate::read::ReadReport;

/// Merges reports, each from the file of this name. `None`: there is none that can be merged.
pub fn merge(reports: &[(String, Report)]) -> Option<MergedReport> {
    let source = |(file, report): &(String, Report)| Source {
        file: file.clone(),
        head: Head::from_report(report),
        content: None,
    };
    let plan = Plan::new(reports.iter().map(source).collect(), Vec::new());
    // The number of each report in the plan, and its place in `reports`.
    let in_order: Vec<(usize, usize)> =
        plan.order().map(|(number, _)| (number, plan.place(number))).collect();
    let mut merger = Merger::new(plan);
    for (number, place) in in_order {
        merger.add(number, ReadReport { report: reports[place].1.clone(), note: None });
    }
    merger.finish().ok()
}

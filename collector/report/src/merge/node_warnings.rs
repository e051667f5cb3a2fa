//! The warnings of the reports that are merged, each once.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::words::counted;
use crate::model::report::{Report, Topic, Warning};

/// Maximum number of warnings of reports that are kept; more are only counted.
const MOST_KEPT: usize = 2000;
/// Maximum number of warnings of reports that are listed.
const MOST_LISTED: usize = 30;
/// Maximum number of characters of a warning.
const MOST_TEXT: usize = 1000;

/// The warnings of the reports so far.
#[derive(Debug, Default)]
pub(super) struct NodeWarnings {
    /// By topic and text: how many reports have it, and the node of the first one.
    kept: BTreeMap<(Topic, String), (u64, String)>,
    /// Warnings that were not kept, because there are too many.
    left_out: u64,
}

impl NodeWarnings {
    /// Adds the warnings of a report of this node. The same text of several reports is kept once.
    pub(super) fn add(&mut self, node: &str, report: &Report) {
        for warning in &report.warnings {
            let key = (warning.topic, warning.text.chars().take(MOST_TEXT).collect());
            if self.kept.len() < MOST_KEPT || self.kept.contains_key(&key) {
                self.kept.entry(key).or_insert_with(|| (0, node.to_owned())).0 += 1;
            } else {
                self.left_out += 1;
            }
        }
    }

    /// Lists the warnings by topic, and within a topic those of most reports first. A last warning counts those that are left out.
    pub(super) fn list(&self) -> Vec<Warning> {
        let mut all: Vec<_> = self.kept.iter().collect();
        all.sort_by_cached_key(|((topic, text), (count, _))| (*topic, Reverse(*count), text.clone()));
        let (listed, others) = all.split_at(all.len().min(MOST_LISTED));
        let listed = listed.iter().map(|((topic, text), (count, node))| {
            let others = match count {
                1 => String::new(),
                _ => format!(" and {}", counted(count - 1, "other report")),
            };
            Warning::new(*topic, format!("{node}{others}: {text}"))
        });
        let mut list: Vec<Warning> = listed.collect();
        let rest = others.len() as u64 + self.left_out;
        if rest > 0 {
            let text = format!("{rest} more warnings are in the reports of the nodes.");
            list.push(Warning::new(Topic::Figures, text));
        }
        list
    }
}

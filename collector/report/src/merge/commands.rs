//! The commands that the reports are of.

use crate::model::sorting::Sorting;
use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::head::cut;

/// Maximum number of commands that are told apart.
const MAX_COMMANDS: usize = 100;
/// Maximum number of words of a command that are kept.
const MOST_WORDS: usize = 100;

/// The commands so far, each with how many reports have it and the first start, microseconds since the epoch.
#[derive(Debug, Default)]
pub(super) struct Commands(BTreeMap<Vec<String>, (u64, i64)>);

impl Commands {
    /// Adds the command of a report that started at `start_us`, microseconds since the epoch. It is left out if there are too
    /// many others.
    pub(super) fn add(&mut self, words: &[String], start_us: i64) {
        let words: Vec<String> = words.iter().take(MOST_WORDS).map(|word| cut(word)).collect();
        if self.0.len() < MAX_COMMANDS || self.0.contains_key(&words) {
            let (count, first_us) = self.0.entry(words).or_insert((0, start_us));
            *count += 1;
            *first_us = start_us.min(*first_us);
        }
    }

    /// Lists the commands, each with how many reports have it: the most frequent first, of equally frequent ones the earliest.
    pub(super) fn list(&self) -> Vec<(&[String], u64)> {
        let mut all: Vec<_> = self.0.iter().collect();
        all.order_by_key(|(_, (count, first_us))| (Reverse(*count), *first_us));
        all.into_iter().map(|(words, (count, _))| (words.as_slice(), *count)).collect()
    }
}

//! What is wrong with the outputs of a run, for its report.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// What one output misses.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SinkTrouble {
    /// Why it was closed before the end of the run.
    pub failed: Option<String>,
    /// How much of it is lost: lines of a file.
    pub lost: u64,
    /// Why the first of them were; `None`: it was too slow.
    pub error: Option<String>,
}

/// The outputs with a trouble, by their names.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SinkTroubles(pub BTreeMap<String, SinkTrouble>);

impl SinkTroubles {
    /// Notes that an output failed. The first reason counts.
    pub(super) fn failed(&mut self, sink: &str, error: &str) {
        self.0.entry(sink.to_owned()).or_default().failed.get_or_insert_with(|| error.to_owned());
    }

    /// Notes that `lost` more lines of an output are lost. `error`: why; `None`: it was too slow. The first error is kept.
    pub(super) fn lost(&mut self, sink: &str, lost: u64, error: Option<&str>) {
        let trouble = self.0.entry(sink.to_owned()).or_default();
        trouble.lost = trouble.lost.saturating_add(lost);
        trouble.error = trouble.error.take().or_else(|| error.map(str::to_owned));
    }
}

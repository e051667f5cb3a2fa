//! Which outputs (sinks) of a run failed or lost something. Its report warns of these.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Why an output was closed early, and what it lost.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SinkTrouble {
    /// Why the output was closed before the end of the run. `None`: it was not.
    pub failed: Option<String>,
    /// Lines or samples that the output lost.
    pub lost: u64,
    /// The first error because of which it lost some. `None`: there was no error, so any that are lost were sent faster than the
    /// output took them.
    pub error: Option<String>,
}

/// The outputs that failed or lost something, by name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SinkTroubles(pub BTreeMap<String, SinkTrouble>);

impl SinkTroubles {
    /// Notes that an output failed, and why. Of several failures the first is kept.
    pub(super) fn failed(&mut self, sink: &str, error: &str) {
        self.0.entry(sink.to_owned()).or_default().failed.get_or_insert_with(|| error.to_owned());
    }

    /// Notes that an output lost `lost` more lines or samples. `error`: why; `None`: the output was too slow. The first error is
    /// kept.
    pub(super) fn lost(&mut self, sink: &str, lost: u64, error: Option<&str>) {
        let trouble = self.0.entry(sink.to_owned()).or_default();
        trouble.lost = trouble.lost.saturating_add(lost);
        trouble.error = trouble.error.take().or_else(|| error.map(str::to_owned));
    }
}

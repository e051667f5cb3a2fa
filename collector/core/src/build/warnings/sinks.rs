//! Outputs that failed, or miss something.

use crate::run::sink_troubles::{SinkTrouble, SinkTroubles};

/// Says which outputs lack something.
pub(super) fn troubles(SinkTroubles(troubles): &SinkTroubles) -> Option<String> {
    let sentences: Vec<String> =
        troubles.iter().flat_map(|(name, trouble)| sentences(name, trouble)).collect();
    (!sentences.is_empty()).then(|| sentences.join(" "))
}

/// Says what one output lacks, and why.
fn sentences(name: &str, trouble: &SinkTrouble) -> Vec<String> {
    let lost = (trouble.lost > 0).then(|| {
        let lines = if trouble.lost == 1 { "line" } else { "lines" };
        let why = trouble.error.as_deref().unwrap_or("it was written too slowly");
        format!("{name} lacks {} {lines}: {why}.", trouble.lost)
    });
    let failed = trouble
        .failed
        .as_ref()
        .map(|error| format!("{name} could not be written, and what came after that is missing: {error}."));
    lost.into_iter().chain(failed).collect()
}

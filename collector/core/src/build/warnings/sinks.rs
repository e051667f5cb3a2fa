//! Outputs that failed, or miss something.

use crate::run::sink_troubles::{SinkTrouble, SinkTroubles};

/// Says which outputs lack something. `None`: none does.
pub(super) fn troubles(SinkTroubles(troubles): &SinkTroubles) -> Option<String> {
    let all: Vec<_> = troubles.iter().flat_map(|(name, trouble)| sentences(name, trouble)).collect();
    (!all.is_empty()).then(|| all.join(" "))
}

/// Says what one output lacks, and why: the lines that it lost, and all that came after the moment when it failed.
fn sentences(name: &str, trouble: &SinkTrouble) -> Vec<String> {
    let mut sentences = Vec::new();
    if trouble.lost > 0 {
        let lines = if trouble.lost == 1 { "line" } else { "lines" };
        let why = trouble.error.as_deref().unwrap_or("it was written too slowly");
        sentences.push(format!("{name} lacks {} {lines}: {why}.", trouble.lost));
    }
    if let Some(error) = &trouble.failed {
        sentences.push(format!("{name} could not be written, and what came after that is missing: {error}."));
    }
    sentences
}

//! The run over time, in a bounded number of spans.

use serde::{Deserialize, Serialize};

/// The tree's RAM over a span of time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RamSpan {
    /// Its begin, seconds after the command's start.
    pub start_s: f64,
    /// Its end, seconds after the command's start.
    pub end_s: f64,
    /// Smallest RAM at a sample, bytes.
    pub min_bytes: u64,
    /// Mean RAM, bytes; `None` for a span of no length.
    pub mean_bytes: Option<f64>,
    /// Largest RAM at any time, bytes.
    pub max_bytes: u64,
}

/// The form of spans in a report: a list for each field, since there can be 2,000 spans.
pub mod columns {
    use serde::de::Error;
    use serde::{Deserializer, Serializer};

    use super::{Deserialize, RamSpan, Serialize};

    #[derive(Default, Serialize, Deserialize)]
    struct Columns {
        start_s: Vec<f64>,
        end_s: Vec<f64>,
        min_bytes: Vec<u64>,
        mean_bytes: Vec<Option<f64>>,
        max_bytes: Vec<u64>,
    }

    pub(in super::super) fn serialize<S: Serializer>(
        spans: &[RamSpan],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let mut columns = Columns::default();
        for RamSpan { start_s, end_s, min_bytes, mean_bytes, max_bytes } in spans {
            columns.start_s.push(*start_s);
            columns.end_s.push(*end_s);
            columns.min_bytes.push(*min_bytes);
            columns.mean_bytes.push(*mean_bytes);
            columns.max_bytes.push(*max_bytes);
        }
        columns.serialize(serializer)
    }

    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<RamSpan>, D::Error> {
        let Columns { start_s, end_s, min_bytes, mean_bytes, max_bytes } =
            Columns::deserialize(deserializer)?;
        let lengths = [end_s.len(), min_bytes.len(), mean_bytes.len(), max_bytes.len()];
        if lengths != [start_s.len(); 4] {
            return Err(D::Error::custom("the lists of `ram_over_time` differ in length"));
        }
        let bytes = min_bytes.into_iter().zip(mean_bytes).zip(max_bytes);
        let spans = start_s.into_iter().zip(end_s).zip(bytes);
        let span = |((start_s, end_s), ((min_bytes, mean_bytes), max_bytes))| RamSpan {
            start_s,
            end_s,
            min_bytes,
            mean_bytes,
            max_bytes,
        };
        Ok(spans.map(span).collect())
    }
}

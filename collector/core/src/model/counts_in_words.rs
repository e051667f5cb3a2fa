//! Counts in the words of reasons and warnings.

/// Writes "1 process", "2 processes".
pub fn processes(count: u64) -> String {
    if count == 1 { "1 process".into() } else { format!("{count} processes") }
}

/// Writes "1 event record", "2 event records".
pub fn records(count: u64) -> String {
    if count == 1 { "1 event record".into() } else { format!("{count} event records") }
}

/// Writes "once", "2 times".
pub fn times(count: u64) -> String {
    if count == 1 { "once".into() } else { format!("{count} times") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nouns_agree_with_their_counts() {
        assert_eq!([processes(1), processes(2)], ["1 process", "2 processes"]);
        assert_eq!([records(1), records(2)], ["1 event record", "2 event records"]);
        assert_eq!([times(1), times(2)], ["once", "2 times"]);
    }
}

//! Counts and lists of names, in words.

/// How many of several nodes, jobs, files or commands a warning names.
pub(super) const MAX_NAMED: usize = 3;

/// Names the first of several, and says how many more there are: `n1, n2 and 3 others`.
pub(super) fn named<'a>(names: impl ExactSizeIterator<Item = &'a str>) -> String {
    let all = names.len();
    let shown: Vec<&str> = names.take(MAX_NAMED).collect();
    match all.saturating_sub(shown.len()) {
        0 => shown.join(", "),
        1 => format!("{} and 1 other", shown.join(", ")),
        others => format!("{} and {others} others", shown.join(", ")),
    }
}

/// Writes `1 node`, `2 nodes`.
pub(super) fn counted(count: u64, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}

//! Analyses of several runs side by side: each quantity of the run and of its code blocks, by the runs' names.
//!
//! Blocks are matched by their names. Lines move when code is edited, so a block that is named `FILE:LINE` also matches one of
//! another line of that file. Such blocks match in the order of their lines.

use crate::model::sorting::Sorting;
use serde::Serialize;
use serde_json::Number;

use super::analysis::{Analysis, CodeBlock, Summary};
use super::ordered::Ordered;
use gpu_track_core::named;

named! {
    /// A figure of a quantity, by which runs can be compared.
    pub enum Statistic {
        /// The smallest value.
        Min = "min",
        /// The largest value.
        Max = "max",
        /// The mean.
        Mean = "mean",
        /// The standard deviation.
        Std = "std",
    }
}

impl Statistic {
    /// This statistic of a quantity. `None`: it is not known.
    fn value(self, summary: &Summary) -> Option<Number> {
        match self {
            Self::Min => summary.min.clone(),
            Self::Max => summary.max.clone(),
            Self::Mean => summary.mean.clone(),
            Self::Std => summary.std.clone(),
        }
    }
}

/// An analysis, and the name of its run.
#[derive(Debug, Clone)]
pub struct Session {
    /// The name that the user gave.
    pub name: String,
    /// What the run used.
    pub analysis: Analysis,
}

/// A figure of each run, by the run's name: the smallest first, unknown ones last.
pub(super) type RunFigures = Ordered<Option<Number>>;

/// Several runs side by side.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Comparison {
    /// For each quantity, its figures in the whole runs.
    pub overall_resource_usage: Ordered<RunFigures>,
    /// For each quantity, its figures in each block.
    pub code_block_resource_usage: Ordered<Ordered<RunFigures>>,
    /// For each block, how long its calls took, seconds.
    pub code_block_compute_time: Ordered<RunFigures>,
}

/// Compares runs by one statistic. Blocks are matched with those of the run whose name sorts first. Also returns a warning for each
/// two blocks that match although their names have different lines.
///
/// # Errors
/// If there is no run, or blocks can't be matched: in gpu_tracker's words, for the user.
pub fn compare(
    mut sessions: Vec<Session>,
    statistic: Statistic,
) -> Result<(Comparison, Vec<String>), String> {
    // In this order, blocks that match have the same place in each run. Otherwise `match_blocks` fails.
    for session in &mut sessions {
        session.analysis.code_block_results.order_by(|a, b| sort_key(&a.name).cmp(&sort_key(&b.name)));
    }
    let first = sessions.iter().min_by(|a, b| a.name.cmp(&b.name)).ok_or("no tracking session is given")?;
    let mut warnings = Vec::new();
    for session in sessions.iter().filter(|session| !std::ptr::eq(*session, first)) {
        warnings.extend(match_blocks(first, session)?);
    }
    // This comes after `match_blocks`, whose errors have gpu_tracker's words, so that users of both programs see the same.
    sessions.iter().try_for_each(check_names_are_unique)?;
    let measurements = || first.analysis.overall.iter().map(|(name, _)| name);
    let overall = measurements().map(|measurement| {
        let value = |session: &Session| statistic.value(session.analysis.overall.get(measurement)?);
        let values = sessions.iter().map(|session| (session.name.clone(), value(session)));
        (measurement.to_owned(), figures(values))
    });
    let count = first.analysis.code_block_results.len();
    // Without blocks there is no entry for any quantity.
    let used = measurements().filter(|_| count > 0).map(|measurement| {
        let value = |block: &CodeBlock| statistic.value(block.resource_usage.get(measurement)?);
        (measurement.to_owned(), block_figures(&sessions, count, &value))
    });
    let compute_time = |block: &CodeBlock| statistic.value(&block.compute_time.summary);
    let comparison = Comparison {
        overall_resource_usage: overall.collect(),
        code_block_resource_usage: used.collect(),
        code_block_compute_time: block_figures(&sessions, count, &compute_time),
    };
    Ok((comparison, warnings))
}

/// A value of each of the `count` blocks in all runs. Blocks that match have the same place in each run. Where their
/// names differ, the entry has all of them: `a.py:3 -> a.py:5`.
fn block_figures(
    sessions: &[Session],
    count: usize,
    value: &dyn Fn(&CodeBlock) -> Option<Number>,
) -> Ordered<RunFigures> {
    let entry = |at: usize| {
        let matched =
            || sessions.iter().map(move |session| (session, &session.analysis.code_block_results[at]));
        let mut names: Vec<&str> = matched().map(|(_, block)| block.name.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        let values = matched().map(|(session, block)| (session.name.clone(), value(block)));
        (names.join(" -> "), figures(values))
    };
    (0..count).map(entry).collect()
}

/// Sorts the values of runs, given with their names: the smallest first, unknown ones last. As in a column of pandas, whole
/// numbers become floats unless all values are whole.
fn figures(values: impl Iterator<Item = (String, Option<Number>)>) -> RunFigures {
    let mut values: Vec<(String, Option<Number>)> = values.collect();
    let is_whole = |value: &Option<Number>| value.as_ref().is_some_and(|value| !value.is_f64());
    if !values.iter().all(|(_, value)| is_whole(value)) {
        for (_, value) in &mut values {
            *value = value.as_ref().and_then(Number::as_f64).and_then(Number::from_f64);
        }
    }
    let key = |value: &Option<Number>| value.as_ref().and_then(Number::as_f64).unwrap_or(f64::INFINITY);
    values.order_by(|(_, a), (_, b)| a.is_none().cmp(&b.is_none()).then(key(a).total_cmp(&key(b))));
    values.into_iter().collect()
}

/// Splits a block's name `FILE:LINE` into file and line. `None`: it is no such name.
fn file_and_line(name: &str) -> Option<(&str, &str)> {
    let (file, line) = name.rsplit_once(':')?;
    (!line.is_empty() && line.bytes().all(|byte| byte.is_ascii_digit())).then_some((file, line))
}

/// Checks that no two blocks of a run have one name, because one of them would be lost. The blocks are sorted, so such two are
/// neighbours.
///
/// # Errors
/// If two blocks have one name, as when analyses were joined by hand: for the user.
fn check_names_are_unique(Session { name, analysis }: &Session) -> Result<(), String> {
    let mut neighbours = analysis.code_block_results.windows(2);
    neighbours.find(|pair| pair[0].name == pair[1].name).map_or(Ok(()), |pair| {
        let block = &pair[0].name;
        Err(format!("Code block name \"{block}\" of tracking session \"{name}\" is there more than once"))
    })
}

/// What a block is sorted by: its file or name, how many digits its line has, and the line. So the blocks of a file come by their
/// lines as numbers. Zeros before a line do not count as digits; they decide only between equal lines.
fn sort_key(name: &str) -> (&str, usize, &str, &str) {
    match file_and_line(name) {
        Some((file, line)) => {
            let digits = line.trim_start_matches('0');
            // The colon stays, so that the files stand as their names do.
            (&name[..=file.len()], digits.len(), digits, line)
        }
        None => (name, 0, "", ""),
    }
}

/// Checks that the blocks of two runs match, place by place. Returns a warning for each two whose names differ by the line.
///
/// # Errors
/// If the runs differ in the number of blocks, or in the name of one: for the user.
fn match_blocks(first: &Session, session: &Session) -> Result<Vec<String>, String> {
    let [ours, others] = [first, session].map(|session| &session.analysis.code_block_results);
    if ours.len() != others.len() {
        return Err(format!(
            "All sub-tracking results must have the same number of code blocks. The first has {} code blocks but tracking session \
             \"{}\" has {} code blocks.",
            ours.len(),
            session.name,
            others.len()
        ));
    }
    let mut warnings = Vec::new();
    for (a, b) in ours.iter().zip(others).filter(|(a, b)| a.name != b.name) {
        match (file_and_line(&a.name), file_and_line(&b.name)) {
            (Some((file, _)), Some((other, _))) if file == other => warnings.push(format!(
                "Code block name \"{}\" of tracking session \"{}\" matched with code block name \"{}\" of tracking session \
                 \"{}\" but they differ by line number. If these code blocks were not meant to match, their comparison will not \
                 be valid and their names must be disambiguated.",
                a.name, first.name, b.name, session.name
            )),
            _ => {
                return Err(format!(
                    "Code block name \"{}\" of tracking session \"{}\" does not match code block name \"{}\" of tracking session \
                     \"{}\"",
                    a.name, first.name, b.name, session.name
                ));
            }
        }
    }
    Ok(warnings)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A run in which each figure of each block is `value`.
    fn session(name: &str, value: &str, blocks: &[&str]) -> Session {
        let summary = format!("{{\"min\": {value}, \"max\": {value}, \"mean\": {value}, \"std\": {value}}}");
        let blocks = blocks.iter().map(|block| {
            format!(
                "{{\"name\": \"{block}\", \"num_timepoints\": 1, \"num_calls\": 1, \"num_non_empty_calls\": 1, \
                 \"compute_time\": {{\"min\": 1, \"max\": 1, \"mean\": {value}, \"std\": 1, \"total\": 1}}, \
                 \"resource_usage\": {{\"main_ram\": {summary}}}}}"
            )
        });
        let blocks: Vec<String> = blocks.collect();
        let json = format!(
            "{{\"overall\": {{\"main_ram\": {summary}}}, \"static_data\": {{}}, \"code_block_results\": [{}]}}",
            blocks.join(",")
        );
        Session { name: name.into(), analysis: serde_json::from_str(&json).unwrap() }
    }

    fn json(value: &impl Serialize) -> String {
        serde_json::to_string(value).unwrap()
    }

    // Requirement: CMD-43
    #[test]
    fn runs_stand_in_the_order_of_their_figures_and_unknown_ones_last() {
        let sessions =
            [("B", "null"), ("A", "2.5"), ("C", "1")].map(|(name, value)| session(name, value, &["x"]));
        let (compared, warnings) = compare(sessions.into(), Statistic::Mean).unwrap();
        assert_eq!(json(&compared.overall_resource_usage), r#"{"main_ram":{"C":1.0,"A":2.5,"B":null}}"#);
        assert_eq!(
            json(&compared.code_block_resource_usage),
            r#"{"main_ram":{"x":{"C":1.0,"A":2.5,"B":null}}}"#
        );
        assert_eq!(json(&compared.code_block_compute_time), r#"{"x":{"C":1.0,"A":2.5,"B":null}}"#);
        assert_eq!(warnings, [""; 0]);
        // Whole numbers stay such, and equal ones keep their order.
        let (compared, _) =
            compare(vec![session("B", "7", &[]), session("A", "7", &[])], Statistic::Max).unwrap();
        assert_eq!(json(&compared.overall_resource_usage), r#"{"main_ram":{"B":7,"A":7}}"#);
        assert!(compared.code_block_resource_usage.is_empty());
    }

    // Requirement: CMD-43
    #[test]
    fn blocks_of_one_file_match_in_the_order_of_their_lines() {
        let sessions = vec![
            session("A", "1", &["t.py:9", "t.py:38", "f"]),
            session("B", "2", &["f", "t.py:100", "t.py:7"]),
        ];
        let (compared, warnings) = compare(sessions, Statistic::Mean).unwrap();
        let names: Vec<_> = compared.code_block_compute_time.iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["f", "t.py:7 -> t.py:9", "t.py:100 -> t.py:38"]);
        assert_eq!(warnings.len(), 2);
        let begin = "Code block name \"t.py:9\" of tracking session \"A\" matched with code block name \"t.py:7\" of tracking";
        assert!(warnings[0].starts_with(begin), "{warnings:?}");
    }

    #[test]
    fn line_of_any_length_has_its_place() {
        let long = format!("t.py:{}7", "0".repeat(70_000));
        let longer = format!("t.py:{}", "1".repeat(70_000));
        let (compared, _) =
            compare(vec![session("A", "1", &[&longer, "t.py:8", &long, "t.py"])], Statistic::Mean).unwrap();
        let names: Vec<_> = compared.code_block_compute_time.iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["t.py", &long, "t.py:8", &longer]);
    }

    // Requirement: CMD-43
    #[test]
    fn blocks_that_do_not_match_are_named() {
        let refused = |blocks: &[&str]| {
            let sessions = vec![session("B", "1", blocks), session("A", "1", &["t.py:9", "x"])];
            compare(sessions, Statistic::Mean).unwrap_err().to_string()
        };
        let named = |ours: &str, block: &str| {
            format!(
                "Code block name \"{ours}\" of tracking session \"A\" does not match code block name \"{block}\" of tracking \
                 session \"B\""
            )
        };
        assert_eq!(refused(&["t.py:f", "x"]), named("t.py:9", "t.py:f"));
        assert_eq!(refused(&["s.py:9", "x"]), named("t.py:9", "s.py:9"));
        assert_eq!(
            refused(&["x"]),
            "All sub-tracking results must have the same number of code blocks. The first has 2 code blocks but tracking \
             session \"B\" has 1 code blocks."
        );
        assert_eq!(compare(Vec::new(), Statistic::Min), Err("no tracking session is given".to_owned()));
    }

    // Requirement: CMD-43
    #[test]
    fn no_block_is_lost_to_another_one_of_its_name_or_its_runs_name() {
        let refused = |sessions| compare(sessions, Statistic::Mean).unwrap_err();
        assert_eq!(
            refused(vec![session("A", "1", &["x", "y", "x"])]),
            "Code block name \"x\" of tracking session \"A\" is there more than once"
        );
        let same_name = vec![session("A", "1", &["x", "y"]), session("A", "2", &["x"])];
        assert!(refused(same_name).contains("has 2 code blocks but tracking session \"A\" has 1"));
    }
}

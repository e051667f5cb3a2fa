//! Analyses of several runs side by side: each quantity of the run and of its code blocks, by the runs' names.
//!
//! Blocks are matched by their names. Lines move when code is edited, so a block that is named `FILE:LINE` also matches one of
//! another line of that file. Such blocks match in the order of their lines.

use serde::Serialize;
use serde_json::Number;
use thiserror::Error;

use super::analysis::{Analysis, CodeBlock, Summary};
use super::ordered::Ordered;

/// The figures of a quantity that can be compared.
pub const STATISTICS: [Statistic; 4] = [Statistic::Min, Statistic::Max, Statistic::Mean, Statistic::Std];

/// A figure of a quantity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Statistic {
    /// The smallest value.
    Min,
    /// The largest value.
    Max,
    /// The mean.
    Mean,
    /// The standard deviation.
    Std,
}

impl Statistic {
    /// Its name, as [`Self::of_name`] takes it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Min => "min",
            Self::Max => "max",
            Self::Mean => "mean",
            Self::Std => "std",
        }
    }

    /// The statistic of this name. `None`: no statistic has it.
    pub fn of_name(name: &str) -> Option<Self> {
        STATISTICS.into_iter().find(|statistic| statistic.name() == name)
    }

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
type Figures = Ordered<Option<Number>>;

/// Several runs side by side.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Comparison {
    /// For each quantity, its figures in the whole runs.
    pub overall_resource_usage: Ordered<Figures>,
    /// For each quantity, its figures in each block.
    pub code_block_resource_usage: Ordered<Ordered<Figures>>,
    /// For each block, how long its calls took, seconds.
    pub code_block_compute_time: Ordered<Figures>,
}

/// Runs whose blocks can't be matched. Its texts are gpu_tracker's.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum Mismatch {
    /// There is no run.
    #[error("no tracking session is given")]
    NoSession,
    /// A run has more or fewer blocks.
    #[error(
        "All sub-tracking results must have the same number of code blocks. The first has {first} code blocks but tracking \
         session \"{session}\" has {count} code blocks."
    )]
    Count {
        /// Blocks of the first run.
        first: usize,
        /// The other run.
        session: String,
        /// Its blocks.
        count: usize,
    },
    /// A run has two blocks of one name, as when analyses were joined by hand.
    #[error("Code block name \"{block}\" of tracking session \"{session}\" is there more than once")]
    Twice {
        /// The run.
        session: String,
        /// The name.
        block: String,
    },
    /// A run has another block.
    #[error(
        "Code block name \"{first_block}\" of tracking session \"{first}\" does not match code block name \"{block}\" of tracking \
         session \"{session}\""
    )]
    Name {
        /// The first run.
        first: String,
        /// Its block.
        first_block: String,
        /// The other run.
        session: String,
        /// Its block.
        block: String,
    },
}

/// Compares runs by one statistic. Blocks of the others are matched with those of the run whose name sorts first. Also gives a
/// warning for each two blocks that match although their names have different lines.
///
/// # Errors
/// If blocks can't be matched.
pub fn compare(
    mut sessions: Vec<Session>,
    statistic: Statistic,
) -> Result<(Comparison, Vec<String>), Mismatch> {
    // Blocks that match have the same place in each run from now on, or `match_blocks` fails.
    for session in &mut sessions {
        sort_by_line(&mut session.analysis.code_block_results);
    }
    let first = sessions.iter().min_by(|a, b| a.name.cmp(&b.name)).ok_or(Mismatch::NoSession)?;
    let mut warnings = Vec::new();
    for session in sessions.iter().filter(|session| !std::ptr::eq(*session, first)) {
        warnings.extend(match_blocks(first, session)?);
    }
    // After the blocks were matched, so that runs which gpu_tracker refuses, too, get gpu_tracker's error.
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
) -> Ordered<Figures> {
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
/// numbers stay such only if all are.
fn figures(values: impl Iterator<Item = (String, Option<Number>)>) -> Figures {
    let mut values: Vec<(String, Option<Number>)> = values.collect();
    let is_whole = |value: &Option<Number>| value.as_ref().is_some_and(|value| !value.is_f64());
    if !values.iter().all(|(_, value)| is_whole(value)) {
        for (_, value) in &mut values {
            *value = value.as_ref().and_then(Number::as_f64).and_then(Number::from_f64);
        }
    }
    let key = |value: &Option<Number>| value.as_ref().and_then(Number::as_f64).unwrap_or(f64::INFINITY);
    values.sort_by(|(_, a), (_, b)| a.is_none().cmp(&b.is_none()).then(key(a).total_cmp(&key(b))));
    values.into_iter().collect()
}

/// Splits a block's name `FILE:LINE` into file and line. `None`: it is no such name.
fn file_and_line(name: &str) -> Option<(&str, &str)> {
    let (file, line) = name.rsplit_once(':')?;
    (!line.is_empty() && line.bytes().all(|byte| byte.is_ascii_digit())).then_some((file, line))
}

/// Sorts blocks by their names, and those of one file by their lines as numbers.
fn sort_by_line(blocks: &mut [CodeBlock]) {
    blocks.sort_by(|a, b| sort_key(&a.name).cmp(&sort_key(&b.name)));
}

/// Checks that no two blocks of a run have one name, because one of them would be lost. The blocks are sorted, so such two are
/// neighbours.
///
/// # Errors
/// If two blocks have one name.
fn check_names_are_unique(session: &Session) -> Result<(), Mismatch> {
    let blocks = &session.analysis.code_block_results;
    match blocks.iter().zip(blocks.iter().skip(1)).find(|(a, b)| a.name == b.name) {
        None => Ok(()),
        Some((twice, _)) => Err(Mismatch::Twice { session: session.name.clone(), block: twice.name.clone() }),
    }
}

/// What a block is sorted by: its file or name, how many digits its line has, and the line. Zeros before a line do not
/// count as digits; they decide only between equal lines.
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

/// Checks that the blocks of two runs match, place by place. Gives a warning for each two whose names differ by the line.
///
/// # Errors
/// If the runs differ in the number of blocks, or in the name of one.
fn match_blocks(first: &Session, session: &Session) -> Result<Vec<String>, Mismatch> {
    let [ours, others] = [first, session].map(|session| &session.analysis.code_block_results);
    if ours.len() != others.len() {
        let (first, count) = (ours.len(), others.len());
        return Err(Mismatch::Count { first, session: session.name.clone(), count });
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
                let [first_name, other_name] = [first, session].map(|session| session.name.clone());
                let [first_block, block] = [a, b].map(|block| block.name.clone());
                return Err(Mismatch::Name { first: first_name, first_block, session: other_name, block });
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
        assert_eq!(compare(Vec::new(), Statistic::Min), Err(Mismatch::NoSession));
    }

    // Requirement: CMD-43
    #[test]
    fn no_block_is_lost_to_another_one_of_its_name_or_its_runs_name() {
        let refused = |sessions| compare(sessions, Statistic::Mean).unwrap_err();
        assert_eq!(
            refused(vec![session("A", "1", &["x", "y", "x"])]).to_string(),
            "Code block name \"x\" of tracking session \"A\" is there more than once"
        );
        let same_name = vec![session("A", "1", &["x", "y"]), session("A", "2", &["x"])];
        assert!(matches!(refused(same_name), Mismatch::Count { first: 2, count: 1, .. }));
    }
}

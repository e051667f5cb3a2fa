//! A plan in TOML: the options of `gpu-track study` by their names.

use std::collections::BTreeMap;
use std::path::Path;

use gpu_track_collector::given_file::{self, MOST_OF_OPTIONS, NotReadable};
use gpu_track_collector::model::sorting::Sorting;
use gpu_track_collector::report::quote;
use gpu_track_collector::report::study::expand::{Parameter, Template};
use serde::Deserialize;
use thiserror::Error;
use toml::Spanned;

use super::given::{LEAST_RUNS, PlanArgs, number};

/// Why the file can't be used. The message follows the file's name.
#[derive(Debug, Error)]
pub(super) enum FileError {
    #[error(transparent)]
    Read(#[from] NotReadable),
    #[error("is no plan of a study: {problem} in line {line}")]
    Form { problem: String, line: usize },
    #[error("has a wrong {0}")]
    Value(String),
}

/// The content of the file, by its keys.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PlanFile {
    variant: Vec<FileVariant>,
    // The spans tell the order of the parameters in the file, which the map does not keep.
    #[serde(default)]
    parameters: BTreeMap<String, Spanned<Vec<Value>>>,
    runs: Option<i64>,
    warmup: Option<i64>,
    prepare: Option<String>,
    #[serde(default)]
    shell: bool,
    seed: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileVariant {
    name: String,
    command: String,
}

/// A value of a parameter.
#[derive(Deserialize)]
#[serde(untagged)]
enum Value {
    Text(String),
    Integer(i64),
    Number(f64),
    Boolean(bool),
}

/// Reads a plan in TOML.
///
/// # Errors
/// If the file can't be read, is no TOML, or has a key or a value that no plan can have.
pub(super) fn read(path: &Path) -> Result<PlanArgs, FileError> {
    parse(&given_file::read_text(path, MOST_OF_OPTIONS)?)
}

/// Parses a plan. Its parameters are in the order of the file.
fn parse(text: &str) -> Result<PlanArgs, FileError> {
    let file: PlanFile = toml::from_str(text).map_err(|error| {
        let begin = error.span().map_or(0, |span| span.start);
        let line = text.bytes().take(begin).filter(|byte| *byte == b'\n').count() + 1;
        FileError::Form { problem: quote::escape(error.message()), line }
    })?;
    let mut parameters: Vec<(String, Spanned<Vec<Value>>)> = file.parameters.into_iter().collect();
    parameters.order_by_key(|(_, values)| values.span().start);
    if let Some((name, _)) = parameters.iter().find(|(_, values)| values.get_ref().is_empty()) {
        return Err(FileError::Value(format!("parameter {name}: it has no values")));
    }
    let template = |FileVariant { name, command }| Template { name, command };
    let parameter = |(name, values): (String, Spanned<Vec<Value>>)| Parameter {
        name,
        values: values.into_inner().into_iter().map(Value::text).collect(),
    };
    // A number is parsed as its option is, so that both have the same bounds and messages.
    let number = |name: &str, given: Option<i64>, least: usize| {
        let number = given.map(|given| number(&given.to_string(), least)).transpose();
        number.map_err(|problem| FileError::Value(format!("{name}: {problem}")))
    };
    Ok(PlanArgs {
        variants: file.variant.into_iter().map(template).collect(),
        parameters: parameters.into_iter().map(parameter).collect(),
        runs: number("runs", file.runs, LEAST_RUNS)?,
        warmup: number("warmup", file.warmup, 0)?,
        prepare: file.prepare,
        shell: file.shell,
        seed: file.seed,
    })
}

impl Value {
    /// The text of the value for a command. A floating-point number keeps its point: 1.0 does not become 1.
    fn text(self) -> String {
        match self {
            Self::Text(text) => text,
            Self::Integer(number) => number.to_string(),
            Self::Number(number) => format!("{number:?}"),
            Self::Boolean(is_true) => is_true.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Requirement: CMD-31
    #[test]
    fn file_has_the_options_by_their_names_and_parameters_in_its_order() {
        let plan = parse(
            "runs = 3\nprepare = 'sync'\nseed = 7\n\n[parameters]\nrate = [0.5, 1.0]\nmodel = ['mlp', 2, true]\n\n\
             [[variant]]\nname = '{model}'\ncommand = '''train {model}\n{rate}'''\n",
        )
        .unwrap();
        let parameters: Vec<_> =
            plan.parameters.iter().map(|p| (p.name.as_str(), p.values.clone())).collect();
        let values = |values: &[&str]| values.iter().map(|value| (*value).to_owned()).collect::<Vec<_>>();
        assert_eq!(parameters, [("rate", values(&["0.5", "1.0"])), ("model", values(&["mlp", "2", "true"]))]);
        assert_eq!(plan.variants[0].command, "train {model}\n{rate}");
        assert_eq!((plan.runs, plan.warmup, plan.seed, plan.shell), (Some(3), None, Some(7), false));
        assert_eq!(plan.prepare.as_deref(), Some("sync"));
    }

    #[test]
    fn unknown_key_is_refused_with_its_name_and_line() {
        let variant = "[[variant]]\nname = 'a'\ncommand = 'b'\n";
        for (text, problem) in [
            (format!("rusn = 3\n{variant}"), "unknown field `rusn`, expected one of `variant`, "),
            (format!("{variant}prepare = 'x'\n"), "unknown field `prepare`, expected `name` or `command`"),
            ("runs = 3\n".into(), "missing field `variant`"),
            (format!("runs = 'x'\n{variant}"), "invalid type: string \"x\", expected i64"),
            (format!("runs = \n{variant}"), ""),
        ] {
            let error = parse(&text).unwrap_err().to_string();
            let expected = format!("is no plan of a study: {problem}");
            assert!(error.starts_with(&expected) && error.lines().count() == 1, "{error}");
        }
        let error = parse(&format!("{variant}rusn = 3\n")).unwrap_err().to_string();
        assert!(error.ends_with(" in line 4"), "{error}");
        for (line, problem) in [
            ("runs = 0", "has a wrong runs: \"0\" is not allowed: a whole number from 1 to 10000"),
            ("parameters.n = []", "has a wrong parameter n: it has no values"),
        ] {
            assert_eq!(parse(&format!("{line}\n{variant}")).unwrap_err().to_string(), problem);
        }
    }
}

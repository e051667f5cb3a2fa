//! The parts of a study's plan that the user gives, on the command line and in a file, and the plan that they make.

use std::hash::{BuildHasher, RandomState};

use clap::{ArgAction, Args};
use gpu_track_collector::report::study::Plan;
use gpu_track_collector::report::study::expand::{Parameter, Template, expand};
use gpu_track_collector::report::study::plan::MOST_RUNS;

use crate::cli::UsageError;

/// Runs of each variant if the user gives no number. With 5, differences from the first variant can be sure for up to 6 others. With 4,
/// only for one.
const DEFAULT_RUNS: usize = 5;
/// The least number of counted runs of a variant.
pub(super) const LEAST_RUNS: usize = 1;

/// The options that make a plan.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Plan")]
pub(super) struct PlanArgs {
    /// A way of doing the work; repeatable. The first is what the others are compared with. CMD is split into words as a shell does
    /// it. No shell runs it, and its stdin is empty
    #[arg(long = "variant", value_name = "NAME=CMD", action = ArgAction::Append, value_parser = template)]
    pub(super) variants: Vec<Template>,

    /// Put each VALUE in turn in the place of {PARAMETER} in NAME, CMD and --prepare; repeatable, for all combinations
    #[arg(short = 'L', long = "parameter", value_name = "PARAMETER=VALUE,...", action = ArgAction::Append,
          value_parser = parameter)]
    pub(super) parameters: Vec<Parameter>,

    /// Counted runs of each variant [default: 5]
    #[arg(long, value_name = "N", value_parser = |given: &str| number(given, LEAST_RUNS))]
    pub(super) runs: Option<usize>,

    /// Runs of each variant before them, which do not count [default: 0]
    #[arg(long, value_name = "N", value_parser = |given: &str| number(given, 0))]
    pub(super) warmup: Option<usize>,

    /// Run CMD before each run, untracked; it has to succeed
    #[arg(long, value_name = "CMD")]
    pub(super) prepare: Option<String>,

    /// Run each CMD by `sh -c`. The shell counts as a process of it
    #[arg(long)]
    pub(super) shell: bool,

    /// Seed of the random order of the runs. Each round has every variant once [default: a new one for each study]
    #[arg(long, value_name = "N")]
    pub(super) seed: Option<u64>,
}

/// Parses a variant, `NAME=CMD`.
fn template(given: &str) -> Result<Template, String> {
    match given.split_once('=') {
        Some((name, command)) if !name.is_empty() => {
            Ok(Template { name: name.to_owned(), command: command.to_owned() })
        }
        _ => Err(format!("\"{given}\" has no name: write it as NAME='CMD'")),
    }
}

/// Parses a parameter, `NAME=VALUE,...`.
fn parameter(given: &str) -> Result<Parameter, String> {
    match given.split_once('=') {
        Some((name, values)) if !name.is_empty() && !values.is_empty() => {
            Ok(Parameter { name: name.to_owned(), values: values.split(',').map(str::to_owned).collect() })
        }
        _ => Err(format!("\"{given}\" has no values: write it as NAME=VALUE,VALUE")),
    }
}

/// Parses a number of runs, at least `least`.
pub(super) fn number(given: &str, least: usize) -> Result<usize, String> {
    let allowed = least..=MOST_RUNS;
    let number = given.parse().ok().filter(|number| allowed.contains(number));
    number.ok_or_else(|| format!("\"{given}\" is not allowed: a whole number from {least} to {MOST_RUNS}"))
}

impl PlanArgs {
    /// Whether any part of a plan is given.
    pub(super) fn is_any(&self) -> bool {
        self.runs.is_some() || self.is_any_but_runs()
    }

    /// Whether any part of a plan is given other than the number of runs, which alone can change in a study that goes on.
    pub(super) fn is_any_but_runs(&self) -> bool {
        let is_named = !self.variants.is_empty() || !self.parameters.is_empty();
        is_named || self.warmup.is_some() || self.prepare.is_some() || self.shell || self.seed.is_some()
    }

    /// Whether there are variants.
    pub(super) fn has_variants(&self) -> bool {
        !self.variants.is_empty()
    }

    /// Adds the options of a plan's file to these, which are those of the command line. If both have an option, that of the command line
    /// counts. The command line's parameters come last, so their values change faster from variant to variant.
    ///
    /// # Errors
    /// If variants are in both places.
    pub(super) fn add(&mut self, file: Self) -> Result<(), UsageError> {
        if self.has_variants() {
            return Err(UsageError::of_option(
                "--variant",
                "the variants are those of the file: write it there",
            ));
        }
        let own = std::mem::take(&mut self.parameters);
        let is_own = |parameter: &Parameter| own.iter().any(|other| other.name == parameter.name);
        let mut parameters: Vec<Parameter> =
            file.parameters.into_iter().filter(|parameter| !is_own(parameter)).collect();
        parameters.extend(own);
        *self = Self {
            variants: file.variants,
            parameters,
            runs: self.runs.or(file.runs),
            warmup: self.warmup.or(file.warmup),
            prepare: self.prepare.take().or(file.prepare),
            shell: self.shell || file.shell,
            seed: self.seed.or(file.seed),
        };
        Ok(())
    }

    /// Makes the plan. If runs or seed are not given, those of `begun` are taken, the plan of the study that goes on.
    ///
    /// # Errors
    /// If there is no variant, a parameter can't be put in, or a command can't be split into words.
    pub(super) fn plan(self, begun: Option<&Plan>) -> Result<Plan, UsageError> {
        let variants =
            expand(&self.variants, self.prepare.as_deref(), &self.parameters).map_err(UsageError::new)?;
        // All commands are checked before the first run, so that no run of a started study has a wrong one.
        for variant in &variants {
            for line in [Some(&variant.command), variant.prepare.as_ref()].into_iter().flatten() {
                words(line, self.shell).map_err(|problem| {
                    UsageError::new(format_args!("the variant {}: \"{line}\" {problem}", variant.name))
                })?;
            }
        }
        let runs = self.runs.or(begun.map(|begun| begun.runs)).unwrap_or(DEFAULT_RUNS);
        // A random number of 32 bits, which every reader of JSON has exactly.
        let random = || RandomState::new().hash_one(()) >> 32;
        let seed = self.seed.or(begun.map(|begun| begun.seed)).unwrap_or_else(random);
        Ok(Plan::new(variants, runs, self.warmup.unwrap_or(0), self.shell, seed))
    }
}

/// The words of a command line: those that it is split into, or with `shell` those that run it by `sh -c`. There is at least one.
///
/// # Errors
/// If `line` has no word, a quote that is not closed, or a NUL byte.
pub(super) fn words(line: &str, shell: bool) -> Result<Vec<String>, &'static str> {
    if line.contains('\0') {
        return Err("contains a NUL byte");
    }
    let split =
        if shell { Ok(vec!["sh".into(), "-c".into(), line.into()]) } else { shell_words::split(line) };
    match split {
        Ok(words) if words.is_empty() || line.trim().is_empty() => Err("contains no command"),
        Ok(words) => Ok(words),
        Err(_) => Err("has a quote that is not closed: close it, or escape it with a backslash"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variants_parameters_and_numbers_are_parsed_or_refused_with_their_form() {
        let given = template("a=b=c d").unwrap();
        assert_eq!((given.name.as_str(), given.command.as_str()), ("a", "b=c d"));
        assert_eq!(template("./a b").unwrap_err(), "\"./a b\" has no name: write it as NAME='CMD'");
        let given = parameter("n=1,,x y").unwrap();
        assert_eq!((given.name.as_str(), given.values), ("n", vec!["1".into(), String::new(), "x y".into()]));
        assert_eq!(parameter("n=").unwrap_err(), "\"n=\" has no values: write it as NAME=VALUE,VALUE");
        assert_eq!((number("1", LEAST_RUNS), number("0", 0)), (Ok(1), Ok(0)));
        assert_eq!(
            number("0", LEAST_RUNS).unwrap_err(),
            "\"0\" is not allowed: a whole number from 1 to 10000"
        );
    }

    // Requirement: CMD-31
    #[test]
    fn command_is_split_as_a_shell_does_it_or_run_by_one() {
        assert_eq!(words("a 'b c' d", false).unwrap(), ["a", "b c", "d"]);
        assert_eq!(words("a 'b c' | d", true).unwrap(), ["sh", "-c", "a 'b c' | d"]);
        for (line, shell, problem) in [
            ("", false, "contains no command"),
            (" ", true, "contains no command"),
            ("a 'b", false, "has a quote that is not closed: close it, or escape it with a backslash"),
            ("a\0b", true, "contains a NUL byte"),
        ] {
            assert_eq!(words(line, shell), Err(problem));
        }
    }

    #[test]
    fn command_line_stands_above_the_file() {
        let file = PlanArgs {
            variants: vec![template("{m}=x {n}").unwrap()],
            parameters: vec![parameter("m=a,b").unwrap(), parameter("n=1,2").unwrap()],
            runs: Some(3),
            seed: Some(7),
            ..PlanArgs::default()
        };
        let mut given =
            PlanArgs { parameters: vec![parameter("n=5").unwrap()], runs: Some(4), ..PlanArgs::default() };
        given.add(file).unwrap();
        let plan = given.plan(None).unwrap();
        let names: Vec<_> = plan.variants.iter().map(|variant| variant.name.as_str()).collect();
        assert_eq!((names, plan.runs, plan.seed), (vec!["a-5", "b-5"], 4, 7));
        let mut given = PlanArgs { variants: vec![template("a=b").unwrap()], ..PlanArgs::default() };
        assert!(given.add(PlanArgs::default()).is_err());
    }
}

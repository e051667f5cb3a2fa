//! `gpu-track sub-track compare`: what the code blocks of several runs used, side by side.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{ArgAction, Args, ValueHint};
use gpu_track_collector::given_file::{self, MOST_OF_ANALYSIS, MOST_OF_OPTIONS};
use gpu_track_collector::report::sub_track::{
    Analysis, Ordered, Session, Statistic, compare, comparison_text,
};
use serde::Deserialize;

use super::super::place::PlaceArgs;
use crate::cli::{self, UsageError, pickles};
use crate::console::message;

/// The first byte of a pickle of Python's protocols 2 and later.
const PICKLE: u8 = 0x80;

/// The arguments of `gpu-track sub-track compare`.
#[derive(Debug, Args)]
pub(super) struct CompareArguments {
    /// An analysis in JSON, as `analyze -f json` writes it, and a name for its run; repeatable. The first name in the order of
    /// the alphabet is what the others are matched with
    #[arg(short, value_name = "NAME=FILE", action = ArgAction::Append, value_parser = mapping, value_hint = ValueHint::FilePath)]
    map: Vec<(String, PathBuf)>,

    /// A JSON file with `file_path_map`, an object of names and files, and `statistic`; options add to it
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    cconfig: Option<PathBuf>,

    /// The figure to compare [default: mean]
    #[arg(long, value_name = "STATISTIC", value_parser = cli::one_of(&Statistic::ALL, Statistic::name))]
    stat: Option<Statistic>,

    #[command(flatten)]
    place: PlaceArgs,
}

/// The file of `--cconfig`.
#[derive(Debug, Default, Deserialize)]
struct Config {
    #[serde(default)]
    file_path_map: Ordered<PathBuf>,
    statistic: Option<String>,
}

/// Parses `NAME=FILE`.
fn mapping(given: &str) -> Result<(String, PathBuf), String> {
    let named = given.split_once('=').filter(|(name, _)| !name.is_empty());
    let (name, file) = named.ok_or_else(|| format!("\"{given}\" has no name: write it as NAME=FILE"))?;
    Ok((name.to_owned(), file.into()))
}

/// Writes the comparison. `line`: this program's command line.
///
/// # Errors
/// If an analysis can't be read, blocks can't be matched, or the comparison can't be written to its place.
pub(super) fn serve(arguments: CompareArguments, line: &[OsString]) -> Result<ExitCode, UsageError> {
    let CompareArguments { map, cconfig, stat, place } = arguments;
    let (config_files, config_statistic) = match &cconfig {
        Some(path) => config(path).map_err(|problem| UsageError::of_file("--cconfig", path, problem))?,
        None => (Ordered::default(), None),
    };
    let statistic = stat.or(config_statistic).unwrap_or(Statistic::Mean);
    let files = config_files.iter().map(|(name, file)| (name.to_owned(), file.clone())).chain(map);
    let files: Ordered<PathBuf> = files.collect();
    if files.is_empty() {
        return Err(UsageError::new(
            "A mapping of tracking session name to file path must be provided either through the -m option or a config file.",
        ));
    }
    let place = place.find()?;
    let sessions = files.iter().map(|(name, path)| {
        read_analysis(path, line).map(|analysis| Session { name: name.to_owned(), analysis })
    });
    let (comparison, warnings) =
        compare(sessions.collect::<Result<_, _>>()?, statistic).map_err(UsageError::new)?;
    warnings.iter().for_each(message);
    Ok(place.write(&comparison, comparison_text))
}

/// Reads the file of `--cconfig`: the files of analyses by the names of their runs, and the figure to compare, if it names one.
///
/// # Errors
/// What is wrong with the file. The message follows the file's name.
fn config(path: &Path) -> Result<(Ordered<PathBuf>, Option<Statistic>), String> {
    let json = given_file::read(path, MOST_OF_OPTIONS).map_err(|error| error.to_string())?;
    let Config { file_path_map, statistic } =
        serde_json::from_slice(&json).map_err(|error| format!("is no configuration of compare: {error}"))?;
    let statistic = statistic.map(|name| cli::named(&name, &Statistic::ALL, Statistic::name)).transpose();
    Ok((file_path_map, statistic.map_err(|error| format!("has a wrong statistic: {error}"))?))
}

/// Reads an analysis. `line`: this program's command line. If the file is a pickle, and this program was called as gpu_tracker,
/// Python takes over with that line.
///
/// # Errors
/// If the file can't be read, or has no analysis in JSON.
pub(super) fn read_analysis(path: &Path, line: &[OsString]) -> Result<Analysis, UsageError> {
    let problem = |problem: String| UsageError::of_path(path, problem);
    let json = given_file::read(path, MOST_OF_ANALYSIS).map_err(|error| problem(error.to_string()))?;
    if json.first() == Some(&PICKLE) {
        pickles::hand_to_python(line);
        let text = "is a pickle, which only Python reads: write the analysis with analyze -f json";
        return Err(problem(text.to_owned()));
    }
    serde_json::from_slice(&json)
        .map_err(|error| problem(format!("is no analysis, as analyze -f json writes it: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    // Requirement: CMD-43
    #[test]
    fn mapping_has_a_name_before_the_first_equals_sign() {
        assert_eq!(mapping("A=a=b.json"), Ok(("A".to_owned(), "a=b.json".into())));
        assert_eq!(mapping("a.json").unwrap_err(), "\"a.json\" has no name: write it as NAME=FILE");
    }
}

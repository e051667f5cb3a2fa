//! nvidia-smi's options of `gpu-track gpus`: `--query-gpu=A,B`, `--query-compute-apps=A,B`, `--format=csv,noheader,nounits`.

use gpu_track_collector::model::gpu_query::{AppField, Column, Query};
use gpu_track_collector::model::gpu_trace::{CsvStyle, Field};

use super::values::ValueError;

/// Parses the value of `--query-gpu`.
///
/// # Errors
/// If a field is not one of nvidia-smi's. The error lists those that are read here.
pub(crate) fn gpus(given: &str) -> Result<Query, ValueError> {
    let all = || Field::ALL.into_iter().flat_map(Field::names);
    let find = |name: &str| Column::named(name).ok_or_else(|| ValueError::none_of(name, all()));
    given.split(',').map(|name| find(name.trim())).collect::<Result<_, _>>().map(Query::Gpus)
}

/// Parses the value of `--query-compute-apps`.
///
/// # Errors
/// As those of [`gpus`].
pub(crate) fn compute_apps(given: &str) -> Result<Query, ValueError> {
    let find = |name: &str| {
        let all = || AppField::ALL.into_iter().flat_map(AppField::names);
        AppField::named(name).ok_or_else(|| ValueError::none_of(name, all()))
    };
    given.split(',').map(|name| find(name.trim())).collect::<Result<_, _>>().map(Query::ComputeApps)
}

/// Parses the value of `--format` of a query: `csv`, with `noheader` and `nounits` in any order.
///
/// # Errors
/// If it has another word, or no `csv`.
pub(crate) fn csv_style(given: &str) -> Result<CsvStyle, ValueError> {
    let (mut style, mut is_csv) = (CsvStyle::default(), false);
    for word in given.split(',').map(str::trim) {
        if word == "csv" {
            is_csv = true;
        } else if !style.take(word) {
            return Err(ValueError::none_of(word, ["csv", "noheader", "nounits"]));
        }
    }
    if is_csv { Ok(style) } else { Err(ValueError::new(given, "csv[,noheader][,nounits]")) }
}

//! `--trace-gpu FILE[,every=TIME][,fields=A,B,...][,noheader][,nounits]`: what is logged of the GPUs, how often, and where to.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::Duration;

use gpu_track_collector::model::gpu_trace::{CsvStyle, Field};

use super::values::{Time, ValueError, split_at_key};

/// Time between two lines of a GPU if the user gives none: that of `nvidia-smi -l 1`.
const DEFAULT_EVERY: Duration = Duration::from_secs(1);
/// What can follow the file's name.
const KEYS: [&str; 4] = [",every=", ",fields=", ",noheader", ",nounits"];

/// A log that the user asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AskedTrace {
    /// The log's file as it was given, then the path that [`find_gpu_log`](super::tracking_files::find_gpu_log) finds for it.
    pub(super) file: PathBuf,
    /// The log goes to stdout. `find_gpu_log` finds that out, too.
    pub(super) is_stdout: bool,
    /// Time between two lines of a GPU.
    pub(super) every: Duration,
    /// The columns of the log.
    pub(super) fields: Vec<Field>,
    /// What a line looks like.
    pub(super) style: CsvStyle,
}

/// Parses the value of `--trace-gpu`.
///
/// # Errors
/// If there is no file, or a key, the interval or a field is not allowed.
pub(super) fn asked(given: &OsStr) -> Result<AskedTrace, ValueError> {
    let (file, rest) = split_at_key(given.as_bytes(), &KEYS);
    if file.is_empty() || (file.starts_with(b"-") && file != b"-") {
        // clap takes an option for the value: it has to, since "-,every=5s" begins as an option does. So options are refused here.
        return Err(ValueError(format!("\"{}\" names no file: FILE, ./-FILE or -", given.display())));
    }
    let mut asked = AskedTrace {
        file: OsStr::from_bytes(file).into(),
        is_stdout: false,
        every: DEFAULT_EVERY,
        fields: Vec::new(),
        style: CsvStyle::default(),
    };
    // A part is a key with its value, or a further field in the list that an earlier part has begun.
    let mut is_in_fields = false;
    for part in String::from_utf8_lossy(rest).split(',').skip(1) {
        if let Some(every) = part.strip_prefix("every=") {
            (asked.every, is_in_fields) = (Time::Pause.parse(every)?, false);
            continue;
        }
        if asked.style.take(part) {
            is_in_fields = false;
            continue;
        }
        let name = match part.strip_prefix("fields=") {
            Some(name) => name,
            None if is_in_fields => part,
            None => {
                let problem = format!(
                    "\"{part}\" is not allowed after FILE: every=TIME, fields=A,B,..., noheader or nounits"
                );
                return Err(ValueError(problem));
            }
        };
        is_in_fields = true;
        let field = field(name)?;
        if !asked.fields.contains(&field) {
            asked.fields.push(field);
        }
    }
    if asked.fields.is_empty() {
        asked.fields = Field::DEFAULT.to_vec();
    }
    Ok(asked)
}

/// Finds the field of this name.
fn field(name: &str) -> Result<Field, ValueError> {
    Field::named(name.trim())
        .ok_or_else(|| ValueError::none_of(name, Field::ALL.into_iter().flat_map(Field::names)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(given: &str) -> (String, u128, Vec<Field>) {
        let asked = asked(OsStr::new(given)).unwrap();
        (asked.file.to_str().unwrap().to_owned(), asked.every.as_millis(), asked.fields)
    }

    fn refused(given: &str) -> String {
        asked(OsStr::new(given)).unwrap_err().to_string()
    }

    // Requirement: TIME-21
    #[test]
    fn file_interval_and_fields_are_given_in_any_order() {
        let two = vec![Field::Power, Field::Index];
        assert_eq!(parsed("g.csv"), ("g.csv".into(), 1000, Field::DEFAULT.to_vec()));
        assert_eq!(parsed("a,b.csv,every=500ms"), ("a,b.csv".into(), 500, Field::DEFAULT.to_vec()));
        assert_eq!(parsed("-,fields=power.draw,index,every=5"), ("-".into(), 5000, two.clone()));
        let plain = asked(OsStr::new("x,noheader,fields=index,nounits,every=2")).unwrap();
        assert_eq!(plain.style, CsvStyle { no_header: true, no_units: true });
        assert_eq!(parsed("x,noheader.csv").0, "x,noheader.csv");
        assert_eq!((plain.fields, plain.every.as_secs()), (vec![Field::Index], 2));
        assert_eq!(parsed("x,every=1m,fields=power.draw, index,power.draw"), ("x".into(), 60_000, two));
    }

    // Requirement: TIME-21
    #[test]
    fn unknown_field_and_key_are_refused_with_what_can_be_had() {
        let line = refused("g.csv,fields=index,utilization.ofa");
        assert!(line.contains("\"utilization.ofa\"") && line.contains("temperature.gpu, "), "{line}");
        assert!(refused("--full").contains("names no file") && refused(",every=5").contains("names no file"));
        assert!(refused("g.csv,fields=").contains("\"\" is not allowed"));
        assert!(refused("g.csv,every=0.01").contains("\"0.01\" is not allowed"));
        assert!(refused("g.csv,every=1s,index").contains("\"index\" is not allowed"));
    }
}

//! `--record DIR[,keep=N][,max=BYTES][,tail=TIME]`: where bundles of evidence are made.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use gpu_track_collector::model::config::Bundles;

use super::values::{Time, ValueError, bytes, split_at_key};

/// The form of the option's value.
const FORM: &str = "DIR[,keep=N][,max=BYTES][,tail=TIME]";
/// What can follow the directory's name.
const KEYS: [&str; 3] = [",keep=", ",max=", ",tail="];
/// The values of keys that are not given.
const DEFAULT_KEEP: usize = 5;
const DEFAULT_MAX_BYTES: u64 = 256 << 20;
const DEFAULT_TAIL: Duration = Duration::from_secs(60);

/// Parses the value of `--record`.
///
/// # Errors
/// If there is no directory, or a key or its value is not allowed.
pub(crate) fn bundles(given: &OsStr) -> Result<Bundles, ValueError> {
    let (directory, rest) = split_at_key(given.as_bytes(), &KEYS);
    if directory.is_empty() {
        return Err(ValueError::new(&given.to_string_lossy(), FORM));
    }
    let mut bundles = Bundles {
        directory: OsStr::from_bytes(directory).into(),
        most: DEFAULT_KEEP,
        most_bytes: DEFAULT_MAX_BYTES,
        tail: DEFAULT_TAIL,
    };
    for part in String::from_utf8_lossy(rest).split(',').skip(1) {
        let refused = || ValueError::new(part, FORM);
        match part.split_once('=') {
            Some(("keep", count)) => {
                bundles.most = count.parse().ok().filter(|n| *n > 0).ok_or_else(refused)?
            }
            Some(("max", size)) => bundles.most_bytes = bytes(size)?,
            Some(("tail", length)) => bundles.tail = Time::Any.parse(length).map_err(|_| refused())?,
            _ => return Err(refused()),
        }
    }
    Ok(bundles)
}

#[cfg(test)]
mod tests {
    use super::*;

    // Requirement: RECORD-1
    #[test]
    fn directory_and_what_follows_it_are_read() {
        let parsed = |given: &str| bundles(OsStr::new(given));
        let plain = parsed("a,b/c").unwrap();
        assert_eq!(
            (plain.directory.to_str().unwrap(), plain.most, plain.tail),
            ("a,b/c", DEFAULT_KEEP, DEFAULT_TAIL)
        );
        let all = parsed("dir,keep=2,max=1M,tail=5m").unwrap();
        assert_eq!((all.directory.to_str().unwrap(), all.most, all.most_bytes), ("dir", 2, 1 << 20));
        assert_eq!(all.tail, Duration::from_secs(300));
        for wrong in ["", ",keep=2", "d,keep=0", "d,keep=x", "d,max=80%", "d,tail=-1", "d,keep=1,other=2"] {
            let error = parsed(wrong).unwrap_err().to_string();
            assert!(!error.contains('\n') && !error.contains("percentage"), "{wrong}: {error}");
        }
    }
}

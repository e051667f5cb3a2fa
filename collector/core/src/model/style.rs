//! How the user wants the report: how much of it, units and place.

use std::ffi::OsString;
use std::fmt;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::{named, with_defaults};

named! {
    /// Unit of RAM and of GPU RAM, smallest first. Its name on the command line and in the report is that of gpu_tracker.
    pub enum RamUnit {
        /// 1 byte.
        Bytes = "bytes",
        /// 1e3 bytes.
        Kilobytes = "kilobytes",
        /// 1e6 bytes.
        Megabytes = "megabytes",
        /// 1e9 bytes.
        Gigabytes = "gigabytes",
        /// 1e12 bytes.
        Terabytes = "terabytes",
    }
}

named! {
    /// Unit of time, shortest first. Its name on the command line and in the report is that of gpu_tracker.
    pub enum TimeUnit {
        /// 1 s.
        Seconds = "seconds",
        /// 60 s.
        Minutes = "minutes",
        /// 3,600 s.
        Hours = "hours",
        /// 86,400 s.
        Days = "days",
    }
}

with_defaults! {
    /// What the reader's terminal can show.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
    pub struct Console {
        /// Its columns.
        pub columns: u16 = 100,
        /// It shows UTF-8; else all text is ASCII.
        pub is_unicode: bool = true,
        /// It shows colours, and the user wants them.
        pub has_colour: bool = false,
    }
}

/// How the user wants a report written. The writer chooses a unit that was not given.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Style {
    /// Every section is written as text, not only a summary.
    pub full: bool,
    /// Nothing is written, unless tracking went wrong.
    pub quiet: bool,
    /// The hints on what to ask a batch system for are written even if this run says little about that.
    pub hints: bool,
    /// The summary says that the report is kept.
    pub is_kept: bool,
    /// Unit of RAM and I/O.
    pub ram_unit: Option<RamUnit>,
    /// Unit of GPU RAM.
    pub gpu_ram_unit: Option<RamUnit>,
    /// Unit of time.
    pub time_unit: Option<TimeUnit>,
    /// Where the text is shown.
    pub console: Console,
}

impl RamUnit {
    /// Its symbol, and how many bytes it is.
    fn symbol_and_bytes(self) -> (&'static str, f64) {
        match self {
            Self::Bytes => ("B", 1.0),
            Self::Kilobytes => ("kB", 1e3),
            Self::Megabytes => ("MB", 1e6),
            Self::Gigabytes => ("GB", 1e9),
            Self::Terabytes => ("TB", 1e12),
        }
    }

    /// Its symbol, for the head of a column.
    pub fn symbol(self) -> &'static str {
        self.symbol_and_bytes().0
    }

    /// One of this unit, bytes.
    pub fn bytes(self) -> f64 {
        self.symbol_and_bytes().1
    }

    /// Converts `bytes` to this unit.
    pub fn convert(self, bytes: f64) -> f64 {
        bytes / self.bytes()
    }

    /// The largest unit that is no larger than `bytes`.
    pub fn that_fits(bytes: f64) -> Self {
        Self::ALL.into_iter().rev().find(|unit| bytes >= unit.bytes()).unwrap_or(Self::Bytes)
    }
}

impl TimeUnit {
    /// Its symbol, and how many seconds it is.
    fn symbol_and_seconds(self) -> (&'static str, f64) {
        match self {
            Self::Seconds => ("s", 1.0),
            Self::Minutes => ("min", 60.0),
            Self::Hours => ("h", 3600.0),
            Self::Days => ("d", 86400.0),
        }
    }

    /// Its symbol, for the head of a column.
    pub fn symbol(self) -> &'static str {
        self.symbol_and_seconds().0
    }

    /// One of this unit, seconds.
    pub fn seconds(self) -> f64 {
        self.symbol_and_seconds().1
    }

    /// Converts `seconds` to this unit.
    pub fn convert(self, seconds: f64) -> f64 {
        seconds / self.seconds()
    }

    /// The unit in which a run of `seconds` reads well. That is never days, since batch systems count in hours.
    pub fn that_fits(seconds: f64) -> Self {
        /// A unit is used for at least this many of it.
        const LEAST_UNITS: f64 = 10.0;
        let units = [Self::Hours, Self::Minutes];
        units.into_iter().find(|unit| seconds >= LEAST_UNITS * unit.seconds()).unwrap_or(Self::Seconds)
    }
}

/// Where the report goes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Output {
    /// The default, since the command's stdout may be a pipe to another program.
    #[default]
    Stderr,
    /// `-o -`.
    Stdout,
    /// `-o FILE`: a regular file, replaced atomically. Its path has no symbolic links.
    #[serde(serialize_with = "path_to_bytes", deserialize_with = "path_from_bytes")]
    File(PathBuf),
    /// `-o FILE` where that is a terminal, a fifo, a device, or a file that a process has open (/dev/fd/3). The final report
    /// is appended to it; interim reports are not written.
    Stream(StreamFile),
}

impl Output {
    /// The path of a regular file that the report goes to. `None`: it goes elsewhere.
    pub fn file(&self) -> Option<&Path> {
        if let Self::File(path) = self { Some(path) } else { None }
    }
}

/// What a path stood for at the start of the run. Another user may replace it until the report is written.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamFile {
    /// As the user gave it, made absolute.
    #[serde(serialize_with = "path_to_bytes", deserialize_with = "path_from_bytes")]
    pub path: PathBuf,
    /// st_dev.
    pub device: u64,
    /// st_ino.
    pub inode: u64,
    /// The type in st_mode (S_IFMT).
    pub kind: u32,
}

/// Names the place as messages do.
impl fmt::Display for Output {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stderr => f.write_str("stderr"),
            Self::Stdout => f.write_str("stdout"),
            Self::File(path) | Self::Stream(StreamFile { path, .. }) => path.display().fmt(f),
        }
    }
}

/// Writes a path as bytes. It need not be UTF-8, but serde's strings must be.
pub(crate) fn path_to_bytes<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    path.as_os_str().as_encoded_bytes().serialize(serializer)
}

/// Reads a path that [`path_to_bytes`] wrote.
pub(crate) fn path_from_bytes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<PathBuf, D::Error> {
    Vec::deserialize(deserializer).map(|bytes| OsString::from_vec(bytes).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn largest_decimal_unit_that_fits_is_chosen() {
        assert_eq!(RamUnit::Gigabytes.convert(25_276_502_016.0), 25.276502016);
        assert_eq!(RamUnit::that_fits(0.0), RamUnit::Bytes);
        assert_eq!(RamUnit::that_fits(999_999.0), RamUnit::Kilobytes);
        assert_eq!(RamUnit::that_fits(200e6), RamUnit::Megabytes);
        assert_eq!(RamUnit::that_fits(1e15), RamUnit::Terabytes);
        assert_eq!(TimeUnit::that_fits(0.02), TimeUnit::Seconds);
        assert_eq!(TimeUnit::that_fits(599.9), TimeUnit::Seconds);
        assert_eq!(TimeUnit::that_fits(600.0), TimeUnit::Minutes);
        assert_eq!(TimeUnit::that_fits(36_000.0), TimeUnit::Hours);
        assert_eq!(TimeUnit::that_fits(1e6), TimeUnit::Hours);
    }

    #[test]
    fn style_is_unchanged_by_serialization() {
        let style = Style {
            ram_unit: Some(RamUnit::Megabytes),
            gpu_ram_unit: None,
            time_unit: Some(TimeUnit::Days),
            full: true,
            ..Style::default()
        };
        let sent = serde_json::to_string(&style).unwrap();
        assert_eq!(
            sent,
            r#"{"full":true,"quiet":false,"hints":false,"is_kept":false,"ram_unit":"megabytes","gpu_ram_unit":null,"time_unit":"days","console":{"columns":100,"is_unicode":true,"has_colour":false}}"#
        );
        assert_eq!(serde_json::from_str::<Style>(&sent).unwrap(), style);
    }
}

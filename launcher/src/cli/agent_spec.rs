//! `--agent`: what an agent on another node is told, in one word of a command line that passes several shells.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use thiserror::Error;

/// Stands for no segment.
const NONE: &str = "-";

/// What an agent is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AgentSpec {
    /// Tells the run from others.
    pub(crate) id: u64,
    /// Path of the segment that the environment of its ranks will name; `None`: they have the agent's own environment.
    pub(crate) segment: Option<PathBuf>,
    /// The directory of the nodes' reports.
    pub(crate) directory: PathBuf,
    /// Where the agent's report stays on its node, which does not see that directory. `None`: it does. The agent finds that out.
    pub(crate) left: Option<PathBuf>,
}

/// Not written by a launcher of this version.
#[derive(Debug, Error)]
#[error("\"{0}\" is nothing that a launcher of this version tells an agent")]
pub(crate) struct NotASpec(String);

/// Whether a word passes shells, and the launchers that put it in quotes, unchanged.
pub(crate) fn is_plain(word: &str) -> bool {
    !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/._-+,=@:".contains(&byte))
}

impl fmt::Display for AgentSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let segment = self.segment.as_ref().map_or(NONE.into(), |path| path.to_string_lossy());
        write!(f, "{:016x}:{segment}:{}", self.id, self.directory.display())
    }
}

impl FromStr for AgentSpec {
    type Err = NotASpec;

    fn from_str(text: &str) -> Result<Self, NotASpec> {
        let not_a_spec = || NotASpec(text.to_owned());
        let [id, segment, directory] =
            text.split(':').collect::<Vec<_>>().try_into().map_err(|_| not_a_spec())?;
        let is_absolute = |path: &str| is_plain(path) && path.starts_with('/');
        if !is_absolute(directory) || !(segment == NONE || is_absolute(segment)) {
            return Err(not_a_spec());
        }
        Ok(Self {
            id: u64::from_str_radix(id, 16).map_err(|_| not_a_spec())?,
            segment: (segment != NONE).then(|| segment.into()),
            directory: directory.into(),
            left: None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Requirement: NODE-10
    #[test]
    fn spec_is_one_plain_word_and_is_read_back() {
        for segment in [None, Some("/dev/shm/gpu-track.1000.17.00ff".into())] {
            let spec = AgentSpec { id: 0xfeed, segment, directory: "/home/me/a.json.d".into(), left: None };
            assert!(is_plain(&spec.to_string()));
            assert_eq!(spec.to_string().parse::<AgentSpec>().unwrap(), spec);
        }
        for other in ["", "1:-", "x:-:/a", "1:-:a", "1:a:/b", "1:-:/a b", "1:-:/a:b", "1:-:/$x"] {
            assert!(other.parse::<AgentSpec>().is_err(), "{other}");
        }
    }
}

//! `--agent`: what the launcher tells an agent (the launcher on another node), in one word of a command line that passes several
//! shells.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use thiserror::Error;

/// Stands for a segment that is not named.
const NONE: &str = "-";

/// What the launcher tells an agent, and what the agent adds for itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AgentSpec {
    /// Tells the run from others.
    pub(crate) id: u64,
    /// Path of the segment that the agent makes: the environment of the ranks on its node names it. `None`: the ranks get the agent's
    /// environment, so any path will do.
    pub(crate) segment: Option<PathBuf>,
    /// The directory of the nodes' reports.
    pub(crate) directory: PathBuf,
    /// The name by which ssh was called to reach the node. `None`: the agent was started in another way.
    pub(crate) host: Option<String>,
    /// Where the agent's report stays if its node does not see `directory`. The agent finds that out, so the word does not have it.
    pub(crate) left: Option<PathBuf>,
}

/// The error for a word that no launcher of this version writes.
#[derive(Debug, Error)]
#[error("\"{0}\" is nothing that a launcher of this version tells an agent")]
pub(crate) struct NotASpec(String);

/// Whether this can be the part of the word that names a host. It becomes a part of a file's name.
pub(crate) fn is_host(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
}

/// Whether a word stays unchanged on its way through shells, and through MPI launchers that put it in quotes.
pub(crate) fn is_plain(word: &str) -> bool {
    !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/._-+,=@:".contains(&byte))
}

impl fmt::Display for AgentSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let segment = self.segment.as_ref().map_or(NONE.into(), |path| path.to_string_lossy());
        write!(f, "{:016x}:{segment}:{}", self.id, self.directory.display())?;
        self.host.as_ref().map_or(Ok(()), |host| write!(f, ":{host}"))
    }
}

impl FromStr for AgentSpec {
    type Err = NotASpec;

    fn from_str(text: &str) -> Result<Self, NotASpec> {
        let not_a_spec = || NotASpec(text.to_owned());
        let parts: Vec<_> = text.split(':').collect();
        let (id, segment, directory, host) = match *parts.as_slice() {
            [id, segment, directory] => (id, segment, directory, None),
            [id, segment, directory, host] => (id, segment, directory, Some(host)),
            _ => return Err(not_a_spec()),
        };
        let is_absolute = |path: &str| is_plain(path) && path.starts_with('/');
        if !is_absolute(directory) || !(segment == NONE || is_absolute(segment)) || !host.is_none_or(is_host)
        {
            return Err(not_a_spec());
        }
        Ok(Self {
            id: u64::from_str_radix(id, 16).map_err(|_| not_a_spec())?,
            segment: (segment != NONE).then(|| segment.into()),
            directory: directory.into(),
            host: host.map(str::to_owned),
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
            let host = segment.is_none().then(|| "n2.example-1.org".to_owned());
            let directory = "/home/me/a.json.d".into();
            let spec = AgentSpec { id: 0xfeed, segment, directory, host, left: None };
            assert!(is_plain(&spec.to_string()));
            assert_eq!(spec.to_string().parse::<AgentSpec>().unwrap(), spec);
        }
        for other in [
            "",
            "1:-",
            "x:-:/a",
            "1:-:a",
            "1:a:/b",
            "1:-:/a b",
            "1:-:/a:b:c",
            "1:-:/a:",
            "1:-:/a:b/c",
            "1:-:/$x",
        ] {
            assert!(other.parse::<AgentSpec>().is_err(), "{other}");
        }
    }
}

//! Containers that a daemon runs for calls of the tree (`docker run`): what a source has seen of each.

use serde::{Deserialize, Serialize};

/// Maximum number of containers of a run that are kept. Those of other users of the daemon count, too.
pub const MOST_CONTAINERS: usize = 1000;

/// Maximum number of bytes of the file of [`ContainerNote`]s.
pub const MOST_OF_NOTES: u64 = 1 << 20;

/// How many of the last events of a container are remembered.
const MOST_APPLIED: usize = 16;

/// The daemon that a client asks to start containers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum ContainerDaemon {
    /// dockerd, or what answers on its socket.
    #[default]
    Docker,
    /// `podman system service`.
    Podman,
}

/// Whether the containers of a daemon can be followed: the path of its socket, or why not, as the end of a sentence about them.
pub type DaemonState = Result<String, String>;

/// Which containers a call of the tree can have a daemon run. A daemon tells of those of all its users, and only these are followed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ContainerWish {
    /// All of them: its arguments don't tell.
    All,
    /// The container of this name, or with an id that begins so.
    Named(String),
    /// Those of this image.
    Image(String),
    /// Those of docker compose: of this project, or of any.
    Compose(Option<String>),
}

impl ContainerWish {
    /// Whether it means this container.
    pub fn means(&self, seen: &ContainerSeen) -> bool {
        match self {
            Self::All => true,
            Self::Named(word) => seen.is_called(word),
            Self::Image(image) => plain_image(&seen.image) == plain_image(image),
            Self::Compose(None) => seen.compose.is_some(),
            Self::Compose(Some(wanted)) => {
                seen.compose.as_ref().is_some_and(|(project, _)| project == wanted)
            }
        }
    }
}

impl ContainerSeen {
    /// Whether a word is its name, or the beginning of its id. Clients take shorter beginnings, too. Those would match containers of others
    /// too often.
    pub(crate) fn is_called(&self, word: &str) -> bool {
        word == self.name || (word.len() >= 4 && self.id.starts_with(word))
    }
}

/// The name of an image without what stands for the default registry and tag, which podman adds.
pub(crate) fn plain_image(image: &str) -> &str {
    let image = ["docker.io/library/", "docker.io/", "localhost/"]
        .iter()
        .find_map(|registry| image.strip_prefix(registry))
        .unwrap_or(image);
    image.strip_suffix(":latest").unwrap_or(image)
}

/// Maximum number of wishes of a run. Beyond them, all containers are wished for.
const MOST_WISHES: usize = 1000;
/// Maximum number of files with the id of a container that are looked for.
const MOST_CIDFILES: usize = 100;

/// The containers that are to be followed, since calls of the tree can have asked a daemon for them.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WantedContainers {
    /// In the order of the calls, each once.
    pub wishes: Vec<(ContainerDaemon, ContainerWish)>,
    /// The files into which clients write the id of the container (`--cidfile`), with absolute paths. It is not known where a relative one
    /// leads.
    pub cidfiles: Vec<String>,
}

impl WantedContainers {
    /// Notes what a call has wished for of a daemon.
    pub(crate) fn add(&mut self, daemon: ContainerDaemon, wish: ContainerWish) {
        let wish = if self.wishes.len() < MOST_WISHES { wish } else { ContainerWish::All };
        let is_known = self
            .wishes
            .iter()
            .any(|(of, known)| *of == daemon && [&wish, &ContainerWish::All].contains(&known));
        if !is_known {
            self.wishes.push((daemon, wish));
        }
    }

    /// Notes a file of `--cidfile`.
    pub(crate) fn add_cidfile(&mut self, path: &str) {
        if self.cidfiles.len() < MOST_CIDFILES && !self.cidfiles.iter().any(|known| known == path) {
            self.cidfiles.push(path.to_owned());
        }
    }
}

/// A container, as the events of its daemon and the files of its cgroup show it. Times are CLOCK_MONOTONIC nanoseconds.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerSeen {
    /// Its daemon.
    pub daemon: ContainerDaemon,
    /// Its id, hexadecimal digits.
    pub id: String,
    /// Its name.
    pub name: String,
    /// Its image, as the daemon names it.
    pub image: String,
    /// The project and the service of docker compose.
    pub compose: Option<(String, String)>,
    /// The file of a call's `--cidfile` that has its id.
    pub cidfile: Option<String>,
    /// When it was created. `None`: before it was followed.
    pub created_ns: Option<u64>,
    /// When it was started first. `None`: it was not, or it ran before it was followed.
    pub started_ns: Option<u64>,
    /// When it was started last.
    pub last_started_ns: Option<u64>,
    /// When it had ended last. `None`: it runs, or was never started.
    pub ended_ns: Option<u64>,
    /// Exit code of its first process.
    pub exit_code: Option<i64>,
    /// The kernel has killed a process in it for lack of memory by now. `None`: not known.
    pub is_oom_killed: Option<bool>,
    /// Its CPU time, of all its starts. `None`: it was not read.
    pub cpu_us: Option<u64>,
    /// The part of `cpu_us` from before it was started last.
    pub earlier_cpu_us: u64,
    /// The largest memory that its cgroup was charged for, page cache included. `None`: it was not read.
    pub peak_bytes: Option<u64>,
    /// The figures are of a time before its end, which was missed, or the peak is one of readings.
    pub is_lower_bound: bool,
    /// Why figures are missing.
    pub missing: Option<MissingFigures>,
    /// Commands that were executed in it (`docker exec`). `None`: none.
    pub execs: Option<ContainerExecs>,
    /// When the daemon wrote the last events that count here, nanoseconds since 1970. They are not applied again. An event can come
    /// after one that was written later.
    pub applied_ns: Vec<u64>,
}

impl ContainerSeen {
    /// Notes that an event of this time is applied. Returns whether it was not before.
    pub fn note_event(&mut self, at_ns: u64) -> bool {
        let oldest_ns = self.applied_ns.iter().min().copied().unwrap_or(0);
        let is_full = self.applied_ns.len() >= MOST_APPLIED;
        if self.applied_ns.contains(&at_ns) || (is_full && at_ns < oldest_ns) {
            return false;
        }
        if is_full {
            self.applied_ns.retain(|applied_ns| *applied_ns != oldest_ns);
        }
        self.applied_ns.push(at_ns);
        true
    }
}

/// Commands that were executed in a container that ran.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerExecs {
    /// When the first one was announced, CLOCK_MONOTONIC nanoseconds.
    pub began_ns: u64,
    /// When the last one had ended, CLOCK_MONOTONIC nanoseconds. `None`: one runs.
    pub ended_ns: Option<u64>,
    /// How many began.
    pub began: u64,
    /// How many ended.
    pub ended: u64,
    /// Exit code of the last one that ended.
    pub exit_code: Option<i64>,
    /// CPU time of the container when the first one was announced. `None`: it was not read.
    pub before_us: Option<u64>,
    /// CPU time of the container when the last one had ended, or now. `None`: it was not read.
    pub after_us: Option<u64>,
}

/// Why figures of a container are missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum MissingFigures {
    /// Its cgroup was gone before it was read.
    TooShort,
    /// The cgroup of its process does not have its id in its name, or is not on this machine.
    NoCgroup,
}

/// What came of a container that a client of the tree asked for, with `--containers`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ContainerNote {
    /// A container was created so that its programs carry the shim.
    Tracked {
        /// Its id, hexadecimal digits.
        id: String,
        /// The name of the process that asked for it.
        client: String,
    },
    /// A container was created as the client asked for.
    NotTracked(NotTracked),
}

/// Why a container was created as its client asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum NotTracked {
    /// It is not removed at its end, and could be started after the run.
    Kept,
    /// No client is attached to it, so it can outlive the run, or be started first after it.
    Detached,
    /// What is mounted in it would hide the shim.
    Mounts,
    /// Image or call are for another machine than this one.
    Platform,
    /// Its runtime does not use this machine's kernel.
    Runtime,
    /// The request has what is not understood.
    Unusual,
    /// The daemon did not say what it is.
    DaemonUnknown,
    /// The daemon is on another machine.
    OtherMachine,
    /// SELinux keeps programs in containers from loading the shim.
    SeLinux,
    /// The daemon has refused the shim.
    Refused,
}

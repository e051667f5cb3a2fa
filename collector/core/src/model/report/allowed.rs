//! What the command was allowed to use, and the kernel's figures of its own cgroup.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::model::batch::Job;

/// A limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Limit {
    /// The largest value allowed.
    Known(u64),
    /// No limit applies.
    Unlimited,
    /// It could not be read.
    #[default]
    Unknown,
}

impl Limit {
    /// Its value, if it is set and known.
    pub fn known(self) -> Option<u64> {
        match self {
            Self::Known(value) => Some(value),
            Self::Unlimited | Self::Unknown => None,
        }
    }

    /// Parses a limit in a kernel file: "max" or a number. A number of at least `unlimited_from` means "no limit", too, as cgroup v1
    /// writes a huge one for that. `None`: the text is neither.
    pub fn parse(text: &str, unlimited_from: u64) -> Option<Self> {
        let text = text.trim();
        if text == "max" {
            return Some(Self::Unlimited);
        }
        let limit: u64 = text.parse().ok()?;
        Some(if limit >= unlimited_from { Self::Unlimited } else { Self::Known(limit) })
    }

    /// The stricter of two limits; an unknown one changes nothing.
    #[must_use]
    pub fn min(self, other: Self) -> Self {
        match (self, other) {
            (Self::Known(a), Self::Known(b)) => Self::Known(a.min(b)),
            (Self::Known(_), _) | (_, Self::Unknown) => self,
            _ => other,
        }
    }
}

/// Writes a number, "unlimited", or null.
impl Serialize for Limit {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Known(n) => serializer.serialize_u64(*n),
            Self::Unlimited => serializer.serialize_str("unlimited"),
            Self::Unknown => serializer.serialize_none(),
        }
    }
}

impl<'de> Deserialize<'de> for Limit {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Form {
            Number(u64),
            Word(String),
        }
        match Option::deserialize(deserializer)? {
            Some(Form::Number(n)) => Ok(Self::Known(n)),
            Some(Form::Word(word)) if word == "unlimited" => Ok(Self::Unlimited),
            Some(Form::Word(_)) => Err(serde::de::Error::custom("neither a number nor \"unlimited\"")),
            None => Ok(Self::Unknown),
        }
    }
}

/// A resource limit (getrlimit(2)), in the unit of its name.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SoftHard {
    /// This limit.
    pub soft: Limit,
    /// This limit.
    pub hard: Limit,
}

/// Limits that applied to the command. A cgroup's limit is the smallest of the group and those above it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Allowed {
    /// By memory.max (v1: memory.limit_in_bytes), bytes.
    pub memory_bytes: Limit,
    /// By cpu.max (v1: cpu.cfs_quota_us).
    pub cpu_millicores: Limit,
    /// Processes and threads (pids.max).
    pub tasks: Limit,
    /// The command's; the limits are the smallest of it and those above.
    pub cgroup: Option<String>,
    /// Out-of-memory kills in it during the run, of any process.
    pub oom_kills: Option<u64>,
    /// By sched_getaffinity.
    pub cpus: Option<Vec<u32>>,
    /// By name (getrlimit): `cpu_s`, numbers of `open_files` and `processes`, else bytes.
    pub ulimits: BTreeMap<String, SoftHard>,
    /// `slurm`, `pbs`, `lsf`, `sge`, `htcondor`, `flux`, `oar`, `cobalt`, `pjm` or `loadleveler`.
    pub batch_system: Option<String>,
    /// Slurm's variables.
    pub slurm: BTreeMap<String, String>,
    /// Variables of a PBS, LSF or Flux job; of hosts, the list with their slots: `n1 4 n2 4`.
    #[serde(default)]
    pub job: BTreeMap<String, String>,
}

impl Allowed {
    /// The job of a batch system, by its variables.
    pub fn job(&self) -> Job<'_> {
        Job::new(&self.slurm, &self.job)
    }
}

/// The kernel's figures of a cgroup (v2) that held the command alone. `reason` says why one is null.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Cgroup {
    /// Its directory.
    pub path: Option<String>,
    /// With page cache and kernel memory (memory.peak), bytes.
    pub memory_peak_bytes: Option<u64>,
    /// By memory.events.
    pub oom_kills: Option<u64>,
    /// By cpu.stat, seconds.
    pub cpu_usage_s: Option<f64>,
    /// The part in this mode, seconds.
    pub cpu_user_s: Option<f64>,
    /// The part in this mode, seconds.
    pub cpu_system_s: Option<f64>,
    /// By io.stat, bytes; stacked devices count once.
    pub io_read_bytes: Option<u64>,
    /// By io.stat, bytes; stacked devices count once.
    pub io_write_bytes: Option<u64>,
    /// Why a figure is null.
    pub reason: Option<String>,
}

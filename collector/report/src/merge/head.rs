//! What a first look at a report tells: its time, its node, its job. From that the plan concludes which reports belong together,
//! before any of them is kept in memory.
//!
//! In a run over several nodes (`--nodes`), the gpu-track-run that the user started is the launcher. On each other node, an agent
//! tracks what runs there: another gpu-track-run, which writes a report of its node.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Deserialize;
use serde::de::IgnoredAny;

use super::quantity::{MOST_CLOCK_OFFSET_S, Span};
use crate::json::SCHEMA_VERSION;
use crate::model::batch::Job;
use crate::model::report::{NodePart, Report};
use crate::model::timestamp;
use crate::read::{self, NotRead};

/// Maximum number of characters of a name that is kept: of a host, a command, a process.
const MOST_NAME: usize = 255;

/// What a first look at a report tells.
#[derive(Debug, Clone)]
pub struct Head {
    /// When the command ran.
    pub(super) span: Span,
    /// The name of the machine that the report is of. `None`: the report does not have it.
    pub hostname: Option<String>,
    pub(super) boot_id: Option<String>,
    /// How far the node's clock is ahead, seconds; `None`: unknown.
    pub(super) clock_offset_s: Option<f64>,
    /// The batch job.
    pub(super) job: Option<String>,
    /// The report was itself made of several.
    pub(super) is_merged: bool,
    /// Its part in a run over several nodes.
    pub(super) node_part: Option<NodePart>,
    /// The report is of a command. Otherwise it is of processes that joined an agent.
    pub(super) has_command: bool,
}

/// The keys that are looked at.
#[derive(Deserialize)]
struct HeadForm {
    schema_version: u64,
    #[serde(deserialize_with = "timestamp::deserialize")]
    started_at: SystemTime,
    wall_s: f64,
    #[serde(default)]
    command: Vec<IgnoredAny>,
    host: HostForm,
    limits: LimitsForm,
    merged: Option<IgnoredAny>,
    node_part: Option<NodePart>,
}

#[derive(Deserialize)]
struct HostForm {
    hostname: Option<String>,
    boot_id: Option<String>,
}

#[derive(Deserialize)]
struct LimitsForm {
    slurm: BTreeMap<String, String>,
    #[serde(default)]
    job: BTreeMap<String, String>,
}

impl Head {
    /// Looks at the text of a JSON report. Of one of this schema version, only the keys of [`HeadForm`] are parsed. One of an
    /// earlier version is converted as a whole.
    ///
    /// # Errors
    /// If it is no report, or one of a later schema version. Errors in other keys show only when the report is merged.
    pub fn read(json: &str) -> Result<Self, NotRead> {
        match serde_json::from_str::<HeadForm>(json) {
            Ok(form) if form.schema_version == SCHEMA_VERSION => Ok(form.into()),
            _ => Ok(Self::from_report(&read::read(json)?.report)),
        }
    }

    /// Looks at a report.
    pub fn from_report(report: &Report) -> Self {
        let host = &report.host;
        HeadForm {
            schema_version: SCHEMA_VERSION,
            started_at: report.started_at,
            wall_s: report.wall_s,
            command: report.command.iter().map(|_| IgnoredAny).collect(),
            host: HostForm { hostname: host.hostname.clone(), boot_id: host.boot_id.clone() },
            limits: LimitsForm { slurm: report.allowed.slurm.clone(), job: report.allowed.job.clone() },
            merged: report.merged.as_ref().map(|_| IgnoredAny),
            node_part: report.node_part.clone(),
        }
        .into()
    }

    /// Notes that the node's clock was ahead of the others by `offset_s` seconds, [`MOST_CLOCK_OFFSET_S`] at most, and corrects the
    /// times by that.
    pub fn set_clock_offset(&mut self, offset_s: f64) {
        let offset_s = offset_s.clamp(-MOST_CLOCK_OFFSET_S, MOST_CLOCK_OFFSET_S);
        self.span = self.span.earlier(offset_s);
        self.clock_offset_s = Some(offset_s);
    }

    /// Whether an agent made the report.
    pub(super) fn is_of_agent(&self) -> bool {
        self.node_part.as_ref().is_some_and(|part| part.is_agent)
    }

    /// Whether an agent without a command made the report. Such an agent should be there as long as the launcher's command runs.
    pub(super) fn is_watch(&self) -> bool {
        self.is_of_agent() && !self.has_command
    }

    /// How far the node's clock is ahead of that of the directory that the nodes shared, seconds; `None`: unknown.
    pub(super) fn clock_ahead_s(&self) -> Option<f64> {
        self.node_part.as_ref().and_then(|part| part.clock_ahead_s).filter(|ahead_s| ahead_s.is_finite())
    }
}

impl From<HeadForm> for Head {
    fn from(form: HeadForm) -> Self {
        let name = |name: Option<String>| name.filter(|name| !name.is_empty()).map(|name| cut(&name));
        let since_epoch = form.started_at.duration_since(UNIX_EPOCH).unwrap_or_default();
        let started_us = i64::try_from(since_epoch.as_micros()).unwrap_or(i64::MAX);
        Self {
            span: Span::new(started_us, form.wall_s),
            hostname: name(form.host.hostname),
            boot_id: name(form.host.boot_id),
            clock_offset_s: None,
            job: name(Job::new(&form.limits.slurm, &form.limits.job).id().map(str::to_owned)),
            is_merged: form.merged.is_some(),
            node_part: form.node_part,
            has_command: !form.command.is_empty(),
        }
    }
}

/// Shortens a name of more than [`MOST_NAME`] characters to these characters, with `...` after them.
pub(super) fn cut(name: &str) -> String {
    match name.char_indices().nth(MOST_NAME) {
        Some((at, _)) => format!("{}...", &name[..at]),
        None => name.to_owned(),
    }
}

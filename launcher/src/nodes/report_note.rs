//! The note in the directory of the nodes' reports of how the report of all is made. By it, others than the launcher can make that
//! report: [a process](super::merger) of the launcher's while the run goes on, and, where the launcher was killed, the last agent.

use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use gpu_track_collector::ProcRoot;
use gpu_track_collector::model::config::{Config, JointReport, ReportConfig};

use super::directory::{NOTE, NodeDirectory};
use super::joint_report;
use crate::cli::Options;
use crate::companion::report_files;
use crate::run::config;

/// Writes the note into the directory. `report`: the report of all nodes, as the user asked for it. Only its files are noted: terminals
/// and pipes are the launcher's.
///
/// # Errors
/// If the file can't be written.
pub(super) fn write(directory: &NodeDirectory, report: &ReportConfig) -> io::Result<()> {
    let targets = report.targets.iter().filter(|target| target.output.file().is_some()).cloned().collect();
    let joint = JointReport { directory: directory.path().to_owned(), targets, ..JointReport::default() };
    let noted = ReportConfig { joint: Some(joint), keep: None, ..report.clone() };
    fs::write(directory.path().join(NOTE), serde_json::to_vec(&noted)?)
}

/// Reads the note. `None`: there is none, or it can't be read.
pub(super) fn read(directory: &Path) -> Option<ReportConfig> {
    let refuses_links = true;
    let text = report_files::read(&directory.join(NOTE), refuses_links).ok()?;
    // As collectors read their configuration, so that the code is there once.
    serde_json::from_slice(text.as_bytes()).ok()
}

/// The place of an agent in the directory.
pub(crate) struct AgentPlace {
    pub(super) directory: NodeDirectory,
    /// A shared lock: while it lasts, the agent is a member of the run.
    pub(super) lock: OwnedFd,
}

impl AgentPlace {
    /// Makes the report of all nodes if no other member of the run is left to do so. To be called when the agent's own report is written.
    pub(crate) fn conclude(self, options: &Options) {
        if let Some(report) = read(self.directory.path()) {
            let config = Config { report, ..config::from_options(options, &ProcRoot::default()) };
            joint_report::conclude(&config, self.lock.as_fd(), true);
        }
    }
}

//! The account of a run whose tracking could not begin: what the launcher itself knows as the command's parent.

use std::io;
use std::time::Duration;

use gpu_track_abi::record::Origin;
use gpu_track_collector::{
    Config, KnownToParent, Layer, Message, ProcRoot, StoredRecord, clock, has_split_rss, untracked,
    write_everywhere,
};

use crate::cli::Options;
use crate::collector::Collector;
use crate::reap::ChildChange;
use crate::supervise::Account;
use crate::wakeups::Wakeups;
use crate::{config, console, signals};

/// Most orphans whose usage is kept: the first ones. Others are not counted.
const MOST_REAPED: usize = 10_000;

/// What becomes of the command, and the report's configuration.
pub(crate) struct Untracked {
    config: Config,
    known: KnownToParent,
    has_split_rss: bool,
    /// Children that this process had before, from the program that it was.
    before: Vec<u32>,
}

impl Untracked {
    /// Before the command is started. `reason`: why tracking could not begin.
    pub(crate) fn new(options: &Options, reason: String) -> Self {
        let root = ProcRoot::default();
        let mut config = config::of(options, &root);
        config.discovery.layers.retain(|layer| matches!(layer, Layer::Wait | Layer::Subreaper));
        config.discovery.untracked = Some(reason);
        Self {
            config,
            known: KnownToParent::default(),
            has_split_rss: has_split_rss(),
            before: root.children(std::process::id(), 1),
        }
    }
}

impl Account for Untracked {
    fn collector(&self) -> Option<&Collector> {
        None
    }

    fn messages(&self) -> &[Message] {
        &self.known.messages
    }

    fn tell(&mut self, message: Message) {
        self.known.messages.push(message);
    }

    fn is_foreign(&self, pid: u32) -> bool {
        self.before.contains(&pid)
    }

    fn foreign_ended(&mut self, _status: i32) {}

    fn child_ended(&mut self, ended: &ChildChange, is_main: bool) {
        let position = self.known.reaped.len();
        if position >= MOST_REAPED && !is_main {
            return;
        }
        let start = &self.config.start;
        let origin = Origin {
            pid: start.launcher_pid,
            pid_ns: start.pid_ns,
            monotonic_ns: clock::monotonic_ns(),
            ..Origin::default()
        };
        let event = ended.record(self.has_split_rss);
        self.known.reaped.push(StoredRecord { position: position as u64, origin, event });
    }

    fn attend(&mut self) -> Option<Duration> {
        None
    }

    /// Nobody else writes the report, so a second request to end (Ctrl-C) ends this process, whatever it waits for.
    fn conclude(&mut self, wakeups: &Wakeups) -> io::Result<()> {
        wakeups.discard_pending();
        signals::unblock_requests_to_end();
        self.known.left = ProcRoot::default().children(std::process::id(), 1);
        self.known.left.retain(|pid| !self.before.contains(pid));
        let report = untracked(&self.config, &self.known);
        if let Err(error) = write_everywhere(&self.config.report, &report) {
            console::message(error);
        }
        Ok(())
    }
}

//! A collector's way in: what it inherits from the launcher, and when it has nothing to do.

use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;

use super::error::SessionError;
use super::messages::Messages;
use super::orders::OrderPipe;
use super::own_process;
use super::run_loop::Session;
use crate::model::config::Config;
use crate::sources::connector::Subscription;
use crate::store::output_lock::OutputLock;
use crate::store::state_file::StateFile;
use crate::sys::segment::{Segment, live};

/// What the launcher hands to every collector of a run.
#[derive(Debug)]
pub struct Inheritance {
    /// Where the configuration and the messages come from.
    pub pipe: OwnedFd,
    /// Where orders for the launcher go.
    pub orders: OwnedFd,
    /// The segment's file.
    pub segment: OwnedFd,
    /// The state file.
    pub state: OwnedFd,
    /// The process connector.
    pub connector: Option<Subscription>,
    /// For each place of the report its lock, if it is a file that has one.
    pub output_locks: Vec<Option<OwnedFd>>,
    /// The segment's name.
    pub segment_path: PathBuf,
    /// The state file's name.
    pub state_path: PathBuf,
}

/// Serves one session: reads the configuration, goes on from what an earlier collector left, and works until the command
/// has ended. `after` is for what follows the report, also if that can't be written. It is left out where there is none to write.
///
/// # Errors
/// If there is no configuration or segment to work with, or the report can't be written.
pub fn serve(from: Inheritance, after: impl FnOnce(&Config)) -> Result<(), SessionError> {
    own_process::return_freed_memory();
    // The descriptors are not for children; there are none, but a library may start one some day.
    let connector = from.connector.iter().flat_map(|connector| [&connector.socket, &connector.inbox]);
    let always = [&from.pipe, &from.orders, &from.segment, &from.state];
    for fd in always.into_iter().chain(connector).chain(from.output_locks.iter().flatten()) {
        rustix::io::fcntl_setfd(fd, rustix::io::FdFlags::CLOEXEC).map_err(io::Error::from)?;
    }
    let mut messages = Messages::new(from.pipe);
    let Some(line) = messages.line()? else {
        // The launcher was killed before it could write anything: leave nothing behind.
        live::remove(&from.segment_path);
        let _ = std::fs::remove_file(from.segment_path);
        let _ = std::fs::remove_file(from.state_path);
        return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
    };
    let config: Config = serde_json::from_slice(&line)?;
    messages.never_wait()?;
    let targets = config.report.targets.iter().zip(from.output_locks);
    let _output_locks: Vec<_> =
        targets.filter_map(|(target, fd)| OutputLock::inherited(target.output.file()?, fd?)).collect();
    let segment = Arc::new(Segment::from_file(&from.segment_path, from.segment)?);
    let state = Arc::new(StateFile::from_file(&from.state_path, from.state)?);
    if state.is_reported() {
        // The collector before was killed while it cleaned up.
        live::remove(segment.named().path());
        let _ = segment.named().unlink();
        let _ = state.named().unlink();
        after(&config);
        return Ok(());
    }
    let orders = OrderPipe::new(from.orders)?;
    let mut session = Session::open(config.clone(), segment, state, from.connector, orders)?;
    session.work(&mut messages)?;
    let is_cancelled = session.is_cancelled();
    let finished = session.finish();
    if !is_cancelled {
        after(&config);
    }
    finished
}

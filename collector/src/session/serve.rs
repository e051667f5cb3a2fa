//! A collector's session from start to end: what it inherits from the launcher, and what it does if there is no run left to serve.

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
use crate::sys::own_stdout;
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
    /// The subscription to the process connector, if there is one.
    pub connector: Option<Subscription>,
    /// The lock of each target of the report, in the order of the configuration. `None`: the target has no lock.
    pub output_locks: Vec<Option<OwnedFd>>,
    /// The path of the segment's file.
    pub segment_path: PathBuf,
    /// The path of the state file.
    pub state_path: PathBuf,
}

/// Serves one session: reads the configuration, goes on from what an earlier collector left, works until the run is over, and
/// writes the report.
///
/// `after` is called when the report was written or could not be written. It is not called if the run has no report, because its
/// command could not be executed.
///
/// # Errors
/// If the configuration, the segment or the state file can't be had, the session can't be opened, or the report can't be written.
pub fn serve(from: Inheritance, after: impl FnOnce(&Config)) -> Result<(), SessionError> {
    own_process::return_freed_memory();
    close_at_exec(&from)?;
    let mut messages = Messages::new(from.pipe);
    let Some(line) = messages.line()? else {
        // The launcher was killed before it sent the configuration. Nothing of the run is left behind.
        live::remove(&from.segment_path);
        let _ = std::fs::remove_file(from.segment_path);
        let _ = std::fs::remove_file(from.state_path);
        return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
    };
    let config: Config = serde_json::from_slice(&line)?;
    if config.writes_to_stdout() {
        own_stdout::set_apart();
    }
    messages.never_wait()?;
    let targets = config.report.targets.iter().zip(from.output_locks);
    // Kept until this function returns, because dropping a lock removes its file.
    let _output_locks: Vec<_> =
        targets.filter_map(|(target, fd)| OutputLock::inherited(target.output.file()?, fd?)).collect();
    let segment = Arc::new(Segment::from_file(&from.segment_path, from.segment)?);
    let state = Arc::new(StateFile::from_file(&from.state_path, from.state)?);
    if state.is_reported() {
        // An earlier collector wrote the report and was killed while it cleaned up. This one ends the clean-up.
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
    // Other nodes may have joined.
    let config = session.config.clone();
    let finished = session.finish();
    if !is_cancelled {
        after(&config);
    }
    finished
}

/// Makes the kernel close the descriptors at exec. A GPU driver's library may start a program, which must not inherit them.
fn close_at_exec(from: &Inheritance) -> io::Result<()> {
    let mut descriptors = vec![&from.pipe, &from.orders, &from.segment, &from.state];
    if let Some(connector) = &from.connector {
        descriptors.extend([&connector.socket, &connector.inbox]);
    }
    descriptors.extend(from.output_locks.iter().flatten());
    for descriptor in descriptors {
        rustix::io::fcntl_setfd(descriptor, rustix::io::FdFlags::CLOEXEC)?;
    }
    Ok(())
}

//! What the launcher does when the core orders it.

use std::io::ErrorKind;

use gpu_track_collector::{Action, OrderResult};

use crate::console;

/// Carries an order out. `None`: that is not possible now, and the collector issues the order again.
pub(crate) fn obey(action: &Action) -> Option<OrderResult> {
    match action {
        Action::Tell(text) => match console::message_without_waiting(text) {
            Ok(()) => Some(OrderResult::Done),
            Err(error) if error.kind() == ErrorKind::WouldBlock => None,
            Err(error) => Some(OrderResult::Failed { errno: error.raw_os_error().unwrap_or(libc::EIO) }),
        },
    }
}

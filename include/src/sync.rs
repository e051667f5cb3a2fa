//! The atomics of [`crate::ring`] and [`crate::slot`]. In loom's models, loom's atomics take their place.

#[cfg(not(loom))]
pub(crate) use core::sync::atomic::{AtomicU64, Ordering, fence};
#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU64, Ordering, fence};

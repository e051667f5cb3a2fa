//! A run: from its [`start`], with a [`session`] and [`tracked`], or [`untracked`] where that fails, to its end. During the run, the
//! launcher [`supervise`]s its children.

pub(crate) mod config;
pub(crate) mod not_executed;
pub(crate) mod orders;
pub(crate) mod relay;
pub(crate) mod restart;
pub(crate) mod session;
pub(crate) mod start;
pub(crate) mod started;
pub(crate) mod supervise;
pub(crate) mod tracked;
pub(crate) mod untracked;
pub(crate) mod wakeups;

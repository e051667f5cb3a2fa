//! A collector's session: what it inherits, the loop that carries observations to the core and requests back, and the
//! report at the end.

mod ending;
mod error;
mod hand_on;
mod messages;
mod open;
mod orders;
mod own_process;
mod readers;
mod sample;
mod serve;
mod untracked;
mod work;

pub use serve::{Inheritance, serve};
pub use untracked::untracked;

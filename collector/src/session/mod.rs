//! A collector's session: what it inherits, the loop that carries observations to the core and requests back, and the
//! report at the end.

mod ending;
mod error;
mod kernel_limit;
mod messages;
mod open;
mod orders;
mod own_process;
mod readers;
mod run_loop;
mod sample;
mod serve;
mod to_sinks;
mod told;
mod torch;
mod untracked;
mod without_launcher;

pub use kernel_limit::limit_ram;
pub use serve::{Inheritance, serve};
pub use untracked::{KnownToParent, Left, untracked};

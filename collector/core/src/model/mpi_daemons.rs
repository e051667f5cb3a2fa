//! Daemons that MPI launchers start on other nodes.

use super::command::base_name;

/// Daemons of Open MPI 4 and 5, MPICH and Intel MPI, which start the ranks of their node.
pub const DAEMONS: [&str; 4] = ["orted", "prted", "hydra_pmi_proxy", "hydra_bstrap_proxy"];

/// Whether a word of a command line, which can have a directory before it, names a daemon.
pub fn is_daemon(word: &str) -> bool {
    DAEMONS.contains(&base_name(word))
}

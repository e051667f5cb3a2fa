//! The collector: from observations of a tracked process tree to samples and one report.
//!
//! `sys` has thin wrappers of kernel interfaces. `sources` turn what they read into observations, `sinks` write outputs, and `store`
//! keeps what outlives a collector. `session` carries observations to the core, and the core's requests back.
//!
//! The crate `gpu-track-core` has the data that all share (`model`) and concludes (`run`, `build`). The crate
//! `gpu-track-report` has the forms of a report. ARCHITECTURE.md says which module may know which.
//!
//! The launcher and the tests use `model` and `report` as they are. From the other modules, exactly what they use is public here.

mod bounded_lines;
mod database;
mod recording;
mod recover;
mod sample_passes;
mod session;
mod sinks;
mod sources;
mod store;
mod sub_tracking;
mod sys;
mod tree_end;

use gpu_track_core::{build, run};

pub use gpu_track_core::{model, named};
pub use gpu_track_report as report;

use bounded_lines::bounded_lines;
pub use recording::read as read_recording;
pub use recover::{NotRecorded, NotRecovered, Recovered, SoFar, recover, replay, so_far, was_killed};
pub use session::{Inheritance, KnownToParent, Left, limit_ram, serve, untracked};
pub use sinks::bundle;
pub use sinks::kept;
pub use sinks::output::{output_at, write_report};
pub use sinks::tracking;
pub use sinks::{has_files, live_cpu_percent, live_figures, write_everywhere, write_files};
pub use sources::allowed::host_file;
pub use sources::cgroup::{self, run_cgroup};
pub use sources::connector;
pub use sources::containers::socket as container_socket;
pub use sources::gpu::list::{Lister as GpuLister, Present as PresentGpus, present as present_gpus};
pub use store::output_lock::{NoLock, OutputLock};
pub use store::run_directory::{self, RunDirectory};
pub use store::session_name;
pub use store::stale;
pub use store::state_file::StateFile;
pub use sub_tracking::{
    Noted, analyze as analyze_code_blocks, blocks as code_blocks, combine as combine_sub_tracking,
    read_metrics, samples_of_database,
};
pub use sys::kernel::{MOST_SPLIT_RSS_KIB, has_split_rss};
pub use sys::proc_fs::{CommandLine, ProcRoot};
pub use sys::segment::named::KnownFile;
pub use sys::segment::{self, NewSession, Segment, SegmentError};
pub use sys::{clock, given_file, own_program, own_stdout, pidfd, priority, safe_path};
pub use tree_end::{ENDER, Member as TreeMember, TreeToEnd, of_exit_code as tree_end_of, serve_ender};

/// Parsers and parts of the core that tests hand garbage to.
pub mod hostile_input {
    pub use crate::model::command::command_of_args;
    pub use crate::model::journal::Journal;
    pub use crate::model::kernel_event::{KernelEvent, What};
    pub use crate::model::observation::Observation;
    pub use crate::model::record_or_event::{ENTRY_WORDS, Finding, ReadUpTo};
    pub use crate::run::RunState;
    pub use crate::run::tree::{RunContext, Tree};
    pub use crate::run::trust::Trust;
    pub use crate::run::usage::CpuUsage;
    pub use crate::sources::connector::{Members, parse as parse_event};
    pub use crate::sources::gpu::drm::fdinfo::Client;
    pub use crate::sys::proc_fs::{Stat, Statm, Status, parse_busy_ticks, parse_core_ticks, parse_rollup};
}

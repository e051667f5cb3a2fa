//! The collector: from observations of a tracked process tree to samples and one report.
//!
//! `sys` has thin wrappers of kernel interfaces. `sources` turn what they read into observations, `sinks` write outputs, and `store`
//! keeps what outlives a collector. `session` carries observations to the core, and the core's requests back.
//!
//! The crate `gpu-track-core` has the data that all share (`model`) and concludes (`run`, `build`). The crate
//! `gpu-track-report` has the forms of a report. ARCHITECTURE.md says which module may know which.
//!
//! All that the launcher and the tests use is public here, and nothing else.

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

use gpu_track_core::{build, model, run};
use gpu_track_report as report;

pub use bounded_lines::bounded_lines;
pub use model::alert::{AlertCommandFailure, Alerts, EventKind, Events, RunEvent};
pub use model::attached::{Attached, UsedBefore};
pub use model::batch::{self, system as batch_system};
pub use model::cgroup::{Cgroups, NoRunCgroup, RunCgroup};
pub use model::config::{
    Bundles, Config, DiscoveryConfig, JointReport, Keep, Layer, Message, ReportConfig, ReportTarget,
    SessionStart, SparePlaces, TrackingConfig,
};
pub use model::counts_in_words::processes as processes_in_words;
pub use model::gpu::listing::Listing;
pub use model::gpu::{Device, ENV_NVML_LIB, Figure, GpuConfig, Vendor};
pub use model::gpu_trace::{Field as GpuTraceField, GpuTrace};
pub use model::host_name::short as short_host_name;
pub use model::ids::Key;
pub use model::mpi_daemons;
pub use model::order::{self, Action, Order, OrderId, OrderResult, OrderedBy};
pub use model::policy::SamplingPolicy;
pub use model::record_or_event::StoredRecord;
pub use model::report::{Crash, ElsewhereKind, LeftReport, NodePart, Report, ReportFiles, Stage, Usable};
pub use model::rule::{Quantity, Response, Rule, Threshold, Unit};
pub use model::run_limit::{Exceeded, Excess, LargestProcess, RunLimits, TreeEnd};
pub use model::signal::{signal_name, signal_number};
pub use model::style::{Console, Output, RamUnit, StreamFile, Style, TimeUnit};
pub use model::tree_sample::{CommandSample, Event as TrackingEvent, GpuSample, TreeSample};
pub use recording::read as read_recording;
pub use recover::{NotRecorded, NotRecovered, Recovered, SoFar, recover, replay, so_far, was_killed};
pub use report::alerts_in_words::event_in_words;
pub use report::compare;
pub use report::events;
pub use report::figures;
pub use report::format::{self, render};
pub use report::merge;
pub use report::metrics;
pub use report::over_time;
pub use report::quote;
pub use report::read::{NotRead, ReadReport, read as read_report};
pub use report::rules_in_words::limit_in_words;
pub use report::runs;
pub use report::study;
pub use report::sub_track;
pub use report::tracking_line;
pub use session::{Inheritance, KnownToParent, Left, limit_ram, serve, untracked};
pub use sinks::bundle;
pub use sinks::kept;
pub use sinks::output::{output_at, write_report};
pub use sinks::tracking;
pub use sinks::{has_files, write_everywhere, write_files};
pub use sources::cgroup;
pub use sources::cgroup::run_cgroup;
pub use sources::connector;
pub use sources::gpu::list::{Lister as GpuLister, Present as PresentGpus, present as present_gpus};
pub use store::output_lock::{NoLock, OutputLock};
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
pub use sys::{clock, given_file, own_program, pidfd, priority, safe_path};
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

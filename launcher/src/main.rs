//! `gpu-track-run`: runs a command and reports what its whole process tree used.
//!
//! A run has three processes: the launcher, the [`collector`](collector_process) (the same executable again), and the command. The
//! launcher is the command's parent and subreaper: it forwards signals, reaps, and ends as the command ended. Where it would
//! inherit other processes, too, a [`relay`] stands before it.

mod alert_commands;
mod attach;
mod cli;
mod collector_process;
mod companion;
mod console;
mod containers;
mod keep;
mod name;
mod nodes;
mod nvml_lib;
mod process;
mod run;
mod shim_on_disk;
mod stand_in;
mod trusted;

use std::ffi::OsString;
use std::process::ExitCode;

use gpu_track_collector::kept::KEEPER;
use gpu_track_collector::{ENDER, serve_ender};

use crate::alert_commands::runner;
use crate::attach::Attachment;
use crate::attach::ready_fd::ReadyFd;
use crate::cli::{Options, PatternValues, Request, UsageError};
use crate::companion::{gpu_list, last, recover};
use crate::containers::podman::{self, HOOK};
use crate::containers::proxy::{self, PROXY};
use crate::nodes::{NodeRun, Prepared, RankLock};
use crate::process::{exit, own_stack};
use crate::run::relay::{self, Part};
use crate::run::start::{self, Held};

fn main() -> ExitCode {
    own_stack::with_enough(serve_by_name)
}

/// Does what the name of this process says. That is the work of the companion command, a stand-in for a shell or for ssh, a helper of
/// a run, or a launcher.
fn serve_by_name() -> ExitCode {
    // First: any argument may be the shell's, also one that would name a helper.
    if let Some(status) = stand_in::serve_if_started_as_one() {
        return status;
    }
    if let Some(status) = nodes::serve_if_started_as_ssh() {
        return status;
    }
    let (line, is_helper) = name::command_line();
    if is_helper {
        exit::after(|| Some(serve_helper(&line)));
    }
    if let Some(status) = nodes::serve_if_started_as_remote_shell(&line) {
        return status;
    }
    let served = if name::is_companion(line.first()) {
        companion::serve(line)
    } else {
        cli::parse(line, &PatternValues::here()).and_then(serve)
    };
    served.unwrap_or_else(|error| {
        console::error(&error);
        ExitCode::from(UsageError::status(name::is_this_gpu_tracker()))
    })
}

/// Does the work of a helper, and returns its exit status. A helper works on what another process of this program hands to it. If it
/// lacks that, it fails; it never becomes a launcher.
fn serve_helper(line: &[OsString]) -> i32 {
    let name = line.first().and_then(|name| name.to_str()).unwrap_or_default();
    let args = line.get(1..).unwrap_or_default();
    let status = match name {
        gpu_list::LISTER => gpu_list::serve_lister(args),
        KEEPER => keep::serve(args),
        ENDER => serve_ender(args),
        PROXY => proxy::serve(args),
        HOOK => podman::serve_hook(args),
        runner::RUNNER => runner::serve(args),
        nodes::STARTER => nodes::serve_starter(args),
        nodes::MERGER => nodes::serve_merger(args),
        name if name::is_collector(name) => collector_process::serve(args, nodes::make_joint_report),
        _ => None,
    };
    status.unwrap_or_else(|| {
        console::error(format_args!(
            "only gpu-track-run itself starts '{name}', and hands it what it works on"
        ));
        2
    })
}

/// Does what the command line asks for.
fn serve(request: Request) -> Result<ExitCode, UsageError> {
    match request {
        Request::Print(text) => Ok(console::print(&text)),
        Request::Refuse(text) => Ok(console::refuse(&text)),
        Request::Gpus(options) => {
            let mut warnings = Vec::new();
            let gpu = nvml_lib::with_environment(&options.gpu, &mut warnings);
            warnings.iter().for_each(console::message);
            Ok(gpu_list::print(&gpu, options.places.format()))
        }
        Request::Companion(line) => companion::serve(line),
        Request::Last(options) => last::show(&options.places, options.report.style),
        Request::Recover(mut options) => {
            options.report.style.console = console::of_stderr();
            recover::recover(&options)
        }
        Request::Run(options) => serve_run(*options),
    }
}

/// Runs a command, or attaches to a process. With `--attach` the launcher has no relay, because the process to attach to can be a
/// child of this one.
fn serve_run(mut options: Options) -> Result<ExitCode, UsageError> {
    if options.command.attach.is_none() {
        match relay::take_part() {
            Ok(Part::Launcher { relay }) => options.relay = relay,
            Ok(Part::Relay(status)) => return Ok(status),
            Err(error) => return Ok(start::become_command(&options, &error)),
        }
    }
    serve_as_launcher(options)
}

/// Sets where the report is kept for a person, and where it goes if no file can be written.
fn set_places_to_keep(options: &mut Options) {
    // A stand-in writes a report for each of many calls to a directory of its own. So none of them is kept for a person, too.
    let is_for_a_person = console::is_on_terminal() && options.command.behind.is_none();
    let keep = keep::of_run(&keep::own_variable, is_for_a_person, options.rank.is_some(), options.relay);
    options.report.keep = keep.unwrap_or_else(|problem| {
        console::message(problem);
        None
    });
    options.report.spare = keep::spare_places(&keep::own_variable);
}

/// Prepares a run in the order that its steps need, and runs it: first the descriptor of `--ready-fd`, the ranks' lock last.
fn serve_as_launcher(mut options: Options) -> Result<ExitCode, UsageError> {
    // First: the number of the descriptor must not be that of a file that this process has opened.
    let ready_fd = options.command.ready_fd.map(ReadyFd::take).transpose();
    let ready_fd = ready_fd.map_err(|problem| UsageError::of_option("--ready-fd", problem))?;
    let attachment = options.command.attach.map(Attachment::to).transpose();
    let attachment = attachment.map_err(|problem| UsageError::of_option("--attach", problem))?;
    options.gpu = nvml_lib::with_environment(&options.gpu, &mut options.report.warnings);
    options.report.style.console = console::of_stderr();
    set_places_to_keep(&mut options);
    // On another node of a run, this process is an agent. Otherwise this does nothing.
    let agent = match nodes::prepare_agent(&mut options) {
        Ok(Prepared::Goes(agent)) => agent,
        Ok(Prepared::Ends(status)) => return Ok(status),
        Err(error) => return Ok(start::not_executed(&options, &error)),
    };
    let lacks_nodes = options.preparations.lacks_nodes();
    let nodes_note =
        lacks_nodes.then(|| "--nodes: only this node is tracked: GPU_TRACK_NODES is \"never\"".to_owned());
    let notes = [options.without_effect.clone(), gpu_list::check_selected(&options.gpu)?, nodes_note];
    if !options.tracking.disable_logs {
        notes.iter().flatten().for_each(console::message);
    }
    // The places of a joint report of all ranks are locked only when it is written. A rank that joins none needs its own locks, below.
    let is_joint = options.joint_job.is_some();
    let mut locks = if is_joint { Vec::new() } else { cli::locks(&mut options.report)? };
    let nodes = nodes::are_tracked(&options);
    let nodes = nodes.then(|| NodeRun::prepare(&mut options)).flatten();
    let tracking = cli::make_tracking_files(&mut options)?;
    // Last: other ranks count on a rank that has joined them, so nothing may refuse its run from here on.
    let ranks = RankLock::prepare(&mut options);
    if is_joint {
        // The only place of a rank that has joined is its own file in the ranks' directory. No other run writes to that file.
        locks = if ranks.is_some() { vec![None] } else { cli::locks(&mut options.report)? };
    }
    Ok(start::run(
        &options,
        Held { locks: locks.into(), tracking, nodes, agent, ranks, attachment, ready_fd },
    ))
}

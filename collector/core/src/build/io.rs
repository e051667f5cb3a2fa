//! The report's I/O and page faults.

use super::{Inputs, attached, not_reaped};
use crate::model::counts_in_words::processes;
use crate::model::io_calls::IoCalls;
use crate::model::report::{Coverage, Faults, Io, Stage};
use crate::model::tree_sample::IoBytes;

/// Makes the report's I/O. No parent writes a REAPED record of a process that was attached to. So samples read its block I/O from
/// /proc. `if_exact` passes a count on, or makes it `None` where no usage is exact.
pub(super) fn io(inputs: &Inputs, if_exact: impl Fn(u64) -> Option<u64>) -> Io {
    let calls = calls_of_run(inputs);
    let by_calls = |count: fn(IoCalls) -> u64| calls.as_ref().ok().copied().map(count);
    let io = Io {
        read_call_bytes: by_calls(|calls| calls.read_bytes),
        write_call_bytes: by_calls(|calls| calls.write_bytes),
        read_calls: by_calls(|calls| calls.reads),
        write_calls: by_calls(|calls| calls.writes),
        calls_reason: calls.as_ref().err().cloned(),
        ..Io::default()
    };
    if inputs.config.attached.is_some() {
        let read = inputs.run.samples.storage.io();
        return Io {
            read_bytes: read.map(|io| io.bytes.read),
            write_bytes: read.map(|io| io.bytes.written),
            // What was cancelled before the attach is not known.
            cancelled_write_bytes: None,
            reason: read.is_none().then(|| attached::why_no_io(inputs.run)),
            ..io
        };
    }
    let own = &inputs.run.totals.own_usage;
    let IoBytes { read, written } = IoBytes::of_blocks(own.input_blocks, own.output_blocks);
    let read_bytes = if_exact(read);
    Io {
        read_bytes,
        write_bytes: if_exact(written),
        cancelled_write_bytes: inputs.run.samples.storage.cancelled_bytes().filter(|_| read_bytes.is_some()),
        reason: read_bytes.is_none().then(|| "the usage of no process is exactly known".to_owned()),
        ..io
    }
}

/// What all processes of the run passed by calls, or why it is unknown. The kernel adds up what a process did when its parent waits for
/// it. So the counts are complete if the launcher has reaped the tree.
pub(super) fn calls_of_run(inputs: &Inputs) -> Result<IoCalls, String> {
    let read = inputs.run.samples.storage.calls().map_err(|reason| reason.to_string());
    if inputs.config.attached.is_some() {
        return read;
    }
    if inputs.config.command.is_empty() {
        return Err("there was no command".into());
    }
    let exit = inputs.end.command_exit;
    if exit.is_none() && inputs.end.stage == Stage::Over {
        return Err("gpu-track-run was killed".into());
    }
    if exit.is_none() && inputs.config.restarts > 0 {
        // The launcher knows how much that was, and tells it at the end (`helper_calls`).
        return Err("a killed collector's own I/O is still in the counts, until the run ends".into());
    }
    let calls = read?;
    if let Some(reason) = not_reaped(inputs) {
        return Err(reason);
    }
    let joined = inputs.run.tree.counts().joined_unreaped;
    if joined > 0 {
        return Err(format!("joined the run without being a descendant: {}", processes(joined)));
    }
    Ok(calls.without(exit.map(|exit| exit.helper_calls).unwrap_or_default()))
}

/// Makes the report's page faults. In a run that attached to a process, faults known from samples count, too. `if_exact`: see
/// [`io`].
pub(super) fn faults(inputs: &Inputs, coverage: &Coverage, if_exact: impl Fn(u64) -> Option<u64>) -> Faults {
    let own = &inputs.run.totals.own_usage;
    let is_sampled = inputs.config.attached.is_some() && coverage.exact + coverage.sampled > 0;
    let known = |n: u64| if_exact(n).or_else(|| is_sampled.then_some(n));
    Faults { minor: known(own.minor_faults), major: known(own.major_faults) }
}

//! Arguments of events, which Perfetto calls debug annotations. A sequence (the packets of one collector) declares all their names in
//! its first packet.

use super::messages::{DebugAnnotation, InternedName, TrackEvent};
use crate::model::quality::Quality;
use crate::model::report::Exit;
use crate::model::tree_sample::MaximumSource;

gpu_track_core::named! {
    /// The name of an argument. Its number is its place, from 1 on.
    pub enum Name {
        Pid = "pid",
        ParentPid = "parent pid",
        /// CLOCK_MONOTONIC, nanoseconds. With the pid it is the key of the process.
        Start = "start (ns)",
        Arguments = "arguments",
        ExitCode = "exit code",
        Signal = "signal",
        StillRunning = "still running",
        CpuTime = "CPU time (s)",
        CpuQuality = "CPU time is",
        PeakRss = "peak RSS (bytes)",
        PeakQuality = "peak RSS is",
        MaxRam = "max RAM (bytes)",
        MaxRamSource = "max RAM is known by",
        /// With the last value of a row: its key, CLOCK_MONOTONIC nanoseconds.
        RowEnd = "end of the interval (ns)",
        /// With the last value of what became known later: the key of the sample that had it, CLOCK_MONOTONIC nanoseconds.
        Revised = "known later, of the sample (ns)",
        /// The number of a task in the run. With the start of its slice it is the key of the slice.
        Task = "task",
        Processes = "processes",
        Tries = "starts",
        FailedTries = "failed starts",
        PeakRam = "peak RAM (bytes)",
        PeakRamQuality = "peak RAM is",
        GpuRam = "GPU memory (bytes)",
        ReadBytes = "read (bytes)",
        WriteBytes = "written (bytes)",
        Why = "why",
    }
}

impl Name {
    /// The number by which packets of a sequence refer to the name (Perfetto's `iid`).
    pub(super) fn iid(self) -> u64 {
        self as u64 + 1
    }
}

/// All names with their numbers.
pub(super) fn names() -> Vec<InternedName> {
    Name::ALL.map(|name| InternedName { iid: Some(name.iid()), name: Some(name.name().into()) }).into()
}

/// Makes an argument of this name, without a value.
pub(super) fn named(name: Name) -> DebugAnnotation {
    DebugAnnotation { name_iid: Some(name.iid()), ..DebugAnnotation::default() }
}

/// Makes an argument that is a whole number. `None`: its value is not known.
pub(super) fn number(name: Name, value: Option<u64>) -> Option<DebugAnnotation> {
    value.map(|value| DebugAnnotation { uint_value: Some(value), ..named(name) })
}

/// Reads the whole number that an event has as the argument of this name. `None`: it has no such argument.
pub(super) fn argument(event: &TrackEvent, name: Name) -> Option<u64> {
    let iid = Some(name.iid());
    event.debug_annotations.iter().find(|annotation| annotation.name_iid == iid)?.uint_value
}

/// Makes an argument that is a number with a fraction. `None`: its value is not known.
pub(super) fn fraction(name: Name, value: Option<f64>) -> Option<DebugAnnotation> {
    value.map(|value| DebugAnnotation { double_value: Some(value), ..named(name) })
}

/// Makes an argument that is a text.
pub(super) fn text(name: Name, value: &str) -> DebugAnnotation {
    DebugAnnotation { string_value: Some(value.into()), ..named(name) }
}

/// Makes an argument that is true, if `holds`. Otherwise the event has no such argument.
pub(super) fn mark(name: Name, holds: bool) -> Option<DebugAnnotation> {
    holds.then(|| DebugAnnotation { bool_value: Some(true), ..named(name) })
}

/// Makes the arguments that tell how a process or the run ended: exit code and signal, each if it is known.
pub(super) fn exit(exit: Exit) -> [Option<DebugAnnotation>; 2] {
    let code = |value: i32| DebugAnnotation { int_value: Some(value.into()), ..named(Name::ExitCode) };
    let signal = |value: i32| DebugAnnotation { int_value: Some(value.into()), ..named(Name::Signal) };
    [exit.code.map(code), exit.signal.map(signal)]
}

/// Makes an argument that tells how well a figure is known. `None`: it is exact, which needs no word.
pub(super) fn quality(name: Name, quality: Quality) -> Option<DebugAnnotation> {
    let how_known = match quality {
        Quality::Exact => return None,
        Quality::Sampled => "at least that (sampled)",
        Quality::Bound => "at most that (bound)",
        Quality::Unknown => "unknown",
    };
    Some(text(name, how_known))
}

/// Makes the argument that tells what shows the largest RAM.
pub(super) fn source(source: MaximumSource) -> DebugAnnotation {
    let shown_by = match source {
        MaximumSource::Sample => "a sample",
        MaximumSource::Revision => "a record that came after its sample",
        MaximumSource::Floor => "one process, at an unknown time",
    };
    text(Name::MaxRamSource, shown_by)
}

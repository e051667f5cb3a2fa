//! Loads a run from the files of its session: from the snapshot and the journal in the state file, and the records in the segment. The
//! segment has a ring, and an overflow area for records that found the ring full. The files are not changed.

use std::sync::atomic::Ordering;

use gpu_track_abi::layout::FILE_SIZE;
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::{NotRecovered, VERSION};
use crate::model::config::Config;
use crate::model::host_info::HostInfo;
use crate::model::journal::Journal;
use crate::model::kernel_event::KernelEvent;
use crate::model::observation::Observation;
use crate::model::record_or_event::{Damage, Finding, StoredRecord};
use crate::run::RunState;
use crate::sources::overflow::Overflow;
use crate::sources::records::RecordReader;
use crate::store::checkpoint;
use crate::store::state_file::StateFile;
use crate::sys::pidfd;
use crate::sys::proc_fs::ProcRoot;
use crate::sys::segment::named::NamedFile;
use crate::sys::segment::{Segment, SegmentError};

/// A run, and what else the files of its session have.
pub(super) struct LoadedRun {
    pub(super) config: Config,
    pub(super) host: HostInfo,
    /// `None`: its name was removed, or a process of the tree has overwritten its header.
    pub(super) segment: Option<Segment>,
    /// The run, up to the last record and event in its files.
    pub(super) run: Box<RunState>,
    /// Whether the segment's file was truncated.
    pub(super) is_cut_short: bool,
}

/// Whether the run still has a collector, which reads records from the segment and journals them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Collector {
    /// It is gone: segment and state don't change any more.
    Gone,
    /// It may live. The state is read after the segment was copied, so the collector can have read all records of the copy by then.
    Reads,
}

/// Loads the newest snapshot, then applies the journal, records and kernel events after it. A state in which no process is known is an
/// error. `segment_file`: the segment, or a copy of it; `None`: its name was removed. `now_ns`: when records and events are applied,
/// CLOCK_MONOTONIC nanoseconds.
pub(super) fn load_run(
    state: &StateFile,
    segment_file: Option<&NamedFile>,
    collector: Collector,
    now_ns: u64,
) -> Result<LoadedRun, NotRecovered> {
    if state.is_reported() {
        return Err(NotRecovered::Reported);
    }
    let (config, host) = noted(state)?;
    // Without a segment, every record is in the journal: the name was removed when the report was about to be written.
    let segment = segment_file.map_or(Ok(None), map)?;
    let is_spoilt = segment_file.is_some() && segment.is_none();
    let is_cut_short = segment_file.is_some_and(|file| file.length() < FILE_SIZE as u64);

    let empty_run = || RunState::of_run(&config, &host);
    let (snapshot_number, mut run) = checkpoint::load(state, segment.as_ref(), now_ns, empty_run);
    // A copy is not read if the state has all of its records. `head`: the ring position up to which processes have claimed slots.
    // `found`: how far the run had read the ring and the overflow area.
    let head = |segment: &Segment| segment.header().head.0.load(Ordering::Relaxed);
    let has_unread = |segment: &&Segment| {
        let found = run.found;
        collector == Collector::Gone || head(segment) > found.position || segment.appended() > found.overflow
    };
    let unread = segment.as_ref().filter(has_unread);
    let mut position = run.found.position;
    if collector == Collector::Reads
        && let Some(segment) = unread
    {
        // The collector can have read more of the ring than the copy has.
        position = position.min(head(segment));
    }
    read_rest(unread, position, state, &mut run, now_ns);
    // An overwritten segment may have had records that nothing else has.
    run.health.damage.is_untrusted |= is_spoilt;
    // A collector had read records and removed them from the ring, but no snapshot (number 0: there is none) has what they said.
    let is_lost = snapshot_number == 0 && run.health.is_state_lost;
    let has_no_process = run.tree.counts().created == 0;
    if is_lost || has_no_process {
        let is_damaged = snapshot_number == 0 && state.has_snapshot();
        return Err(if is_damaged { NotRecovered::Damaged } else { NotRecovered::Nothing });
    }
    Ok(LoadedRun { config, host, segment, run, is_cut_short })
}

/// Maps the segment's file privately. `None`: a process of the tree has overwritten its header.
fn map(file: &NamedFile) -> Result<Option<Segment>, NotRecovered> {
    match Segment::copy_of(file.try_clone()?) {
        Ok(segment) => Ok(Some(segment)),
        Err(SegmentError::Foreign { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Reads what the collector noted at the start of the run: the configuration and the machine.
fn noted(state: &StateFile) -> Result<(Config, HostInfo), NotRecovered> {
    let is_empty = state.named().length() == 0;
    let bytes =
        state.load_run().ok_or(if is_empty { NotRecovered::Nothing } else { NotRecovered::Damaged })?;
    // The version is read first. The configuration of another version may have other fields, which would look like damage.
    let (version, ..): (String, IgnoredAny, IgnoredAny) = parse(&bytes)?;
    if version != VERSION {
        return Err(NotRecovered::OtherVersion(version));
    }
    let (_, config, host): (IgnoredAny, Config, HostInfo) = parse(&bytes)?;
    Ok((config, host))
}

fn parse<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, NotRecovered> {
    serde_json::from_slice(bytes).map_err(|_| NotRecovered::Damaged)
}

/// Applies the records that no collector had read, and the kernel's process events that a collector had read but not yet applied.
/// Both are merged as a collector does: records in the order of their positions, each after the events that happened before it.
/// Without a segment there are only events. `position`: that of the first unread record in the ring.
fn read_rest(segment: Option<&Segment>, position: u64, state: &StateFile, run: &mut RunState, now_ns: u64) {
    let events = state.events(run.found.events);
    let mut events = events.iter().filter_map(|slot| KernelEvent::decode(slot)).peekable();
    let mut findings = Vec::new();
    if let Some(segment) = segment {
        let mut reader = RecordReader::resume(segment, position);
        let mut overflow = Overflow::resume(run.found.overflow);
        // A live collector postpones records that are younger than a given time. Here none is.
        let latest_ns = u64::MAX;
        overflow.note_appended(segment, latest_ns);
        let mut hand_on = |record: StoredRecord| {
            while let Some(event) = events.next_if(|event| event.at_ns <= record.origin.monotonic_ns) {
                findings.push(Finding::Kernel(event));
            }
            findings.push(Finding::Record(record));
        };
        reader.drain_rest(segment, |batch| {
            for (record, _) in batch {
                // Records that found the ring full were written before this one.
                while let Some((earlier, _)) = overflow.next_before(segment, record.position) {
                    hand_on(earlier);
                }
                hand_on(*record);
            }
        });
        // The records of the overflow area that come after the ring's last one.
        while let Some((record, _)) = overflow.next_before(segment, u64::MAX) {
            hand_on(record);
        }
        let damage = Damage {
            events: reader.damaged() + u64::from(overflow.is_damaged()),
            is_untrusted: reader.is_untrusted() || overflow.is_damaged(),
        };
        run.health.damage = run.health.damage.plus(damage);
    }
    // The events after the last record.
    findings.extend(events.map(Finding::Kernel));
    run.apply(now_ns, &Observation::Findings(findings));
}

/// Notes the end of each process of the run that no longer runs. Its time is that of the kernel's exit event. Without such an event it
/// is `known_ns`, the last time at which anything is known of the run. `now_ns`: the present. A process without a known pid is passed
/// over. Returns whether a process still runs.
pub(super) fn note_the_dead(
    run: &mut RunState,
    host: &HostInfo,
    root: &ProcRoot,
    known_ns: u64,
    now_ns: u64,
) -> bool {
    let mut has_living = false;
    for id in run.tree.alive().to_vec() {
        let Some(process) = run.tree.get(id) else { continue };
        let Some(target) = process.target() else { continue };
        // Another process may have its pid by now. Its start tells that, or the inode of its pidfd if one was noted.
        let is_same_process =
            |start_ns| target.identity.can_be_shown(start_ns, || pidfd::inode(target.pid).unwrap_or(0));
        let stat = root.stat(target.pid);
        if stat.is_some_and(|stat| !stat.is_over() && is_same_process(stat.start_ns(host.tick_us()))) {
            has_living = true;
        } else {
            let at_ns = process.end.kernel_exit.map_or(known_ns, |exit| exit.at_ns);
            // It counts as gone from /proc. Figures of a zombie (`remains`) were not read.
            let ended = Observation::Ended { id, at_ns, gone_ns: Some(at_ns), remains: None };
            run.apply(now_ns, &ended);
        }
    }
    has_living
}

//! The live ring: the latest samples in the live file beside the segment, for programs that watch the run.

use std::io;
use std::path::PathBuf;

use gpu_track_abi::sample::Sample;

use super::sink::{Place, Resume, Sink};
use crate::model::tree_sample::TreeSample;
use crate::sys::segment::live::{self, LiveFile};

struct LiveRing {
    path: PathBuf,
    session_id: u64,
    file: Option<LiveFile>,
}

/// Gives the sink. Every run has it.
pub(super) fn make(place: &Place) -> Vec<Box<dyn Sink>> {
    let (segment, session_id) = place.segment;
    vec![Box::new(LiveRing { path: live::path_of(segment), session_id, file: None })]
}

impl Sink for LiveRing {
    fn name(&self) -> String {
        "The live file".into()
    }

    fn open(&mut self, resume: Resume) -> io::Result<()> {
        let left = (resume == Resume::Continued).then(|| LiveFile::resume(&self.path, self.session_id));
        self.file = Some(match left {
            // The collector before was killed before it had made one.
            None | Some(Err(_)) => LiveFile::create(&self.path, self.session_id)?,
            Some(Ok(file)) => file,
        });
        Ok(())
    }

    /// Appends the open sample. A reader tells by its time that it is the last one, which can still change.
    fn sample(&mut self, now: &TreeSample) -> io::Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        file.push(Sample {
            monotonic_ns: now.at_ns,
            main_bytes: now.footprint_bytes.main.end,
            descendants_bytes: now.footprint_bytes.descendants.end,
            combined_bytes: now.footprint_bytes.combined.end,
            cpu_ns: now.cpu.combined.time_ns,
            processes: now.processes.end,
            threads: now.threads.combined.end,
        });
        if file.is_lost() { Err(io::Error::other("its file was truncated")) } else { Ok(()) }
    }
}

impl Drop for LiveRing {
    /// Nothing is left behind; a collector that is killed leaves it to the next one.
    fn drop(&mut self) {
        if let Some(file) = &self.file {
            let _ = file.named().unlink();
        }
    }
}

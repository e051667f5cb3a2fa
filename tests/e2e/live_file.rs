//! The live file, read by a program of other make: the crate `shared_memory` maps it by its name.

use std::sync::atomic::Ordering;

use gpu_track_abi::layout::HEADER_SIZE;
use gpu_track_abi::live::{LIVE_SIZE, LiveHeader};
use gpu_track_abi::sample::{Sample, SampleSlot};
use shared_memory::{Shmem, ShmemConf};

use crate::support::{tracked, wait_until};

/// Samples that are compared.
const SAMPLES: u64 = 5;

fn header(mapping: &Shmem) -> &LiveHeader {
    // SAFETY: a page-aligned mapping that is as long as a live file and lives as long as the result. What the collector
    // changes in it is atomic.
    unsafe { &*mapping.as_ptr().cast::<LiveHeader>() }
}

/// The sample of this number, from the place at which gpu_track.h says that it is.
fn sample(mapping: &Shmem, number: u64) -> Option<Sample> {
    let slot = number % u64::from(header(mapping).capacity);
    let offset = HEADER_SIZE + slot as usize * size_of::<SampleSlot>();
    assert!(offset + size_of::<SampleSlot>() <= mapping.len());
    // SAFETY: inside the mapping, as asserted, and aligned to the slot's size. Its fields are atomic.
    unsafe { &*mapping.as_ptr().add(offset).cast::<SampleSlot>() }.read()
}

// Requirement: TIME-6
#[test]
fn another_crate_that_maps_it_by_name_reads_the_same_samples_and_leaves_it_in_place() {
    let mut running = tracked(["sh", "-c", "read line"]).piped_stdin().start();
    let ours = running.live();
    let name = ours.named().path().file_name().unwrap().to_str().unwrap();
    let mapping = ShmemConf::new().os_id(format!("/{name}")).open().unwrap();
    assert_eq!((mapping.len(), mapping.is_owner()), (LIVE_SIZE, false));
    assert!(header(&mapping).is_compatible());
    let count = || header(&mapping).samples.0.load(Ordering::Acquire);
    wait_until("samples of the shell", || {
        let oldest = count().checked_sub(SAMPLES).and_then(|first| sample(&mapping, first));
        oldest.is_some_and(|sample| sample.processes == 1 && sample.combined_bytes > 0)
    });
    let end = count();
    let read: Vec<_> = (end - SAMPLES..end).map(|number| sample(&mapping, number).unwrap()).collect();
    let by_us: Vec<_> = (end - SAMPLES..end).map(|number| ours.sample(number).unwrap()).collect();
    assert_eq!(read, by_us);
    drop(mapping);
    assert!(ours.named().path().exists(), "it was removed with the mapping");
    wait_until("a sample after that", || ours.count() > end);
    drop(running.stdin());
    let run = running.wait();
    let peak_bytes = run.report().u64("max_ram_bytes.combined.total_rss");
    let largest_bytes = read.iter().map(|sample| sample.combined_bytes).max().unwrap();
    assert!((1..=peak_bytes).contains(&largest_bytes), "{largest_bytes} in the file, {peak_bytes} reported");
}

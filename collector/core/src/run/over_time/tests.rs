use proptest::prelude::*;

use super::*;
use crate::model::tree_sample::{CpuSample, GpuSample, GpuSums, IoBytes, SystemSample};
use crate::random_seed::{self, seeded};

const S: u64 = 1_000_000_000;

/// A sample at each second, with this much RAM since the one before, and this CPU time so far.
fn sample(number: u64, bytes: u64, cpu_ns: u64) -> TreeSample {
    TreeSample {
        from_ns: number * S,
        at_ns: (number + 1) * S,
        footprint_bytes: Groups { combined: Span::at_end(bytes), ..Groups::default() },
        footprint_byte_s: Groups { combined: bytes as f64, ..Groups::default() },
        cpu: Groups { combined: CpuSample { time_ns: cpu_ns, percent: None }, ..Groups::default() },
        ..TreeSample::default()
    }
}

fn over_time(values: &[u64]) -> OverTime {
    let mut over_time = OverTime::default();
    let mut cpu_ns = 0;
    for (number, bytes) in (0..).zip(values) {
        cpu_ns += bytes * 1000;
        over_time.push(&sample(number, *bytes, cpu_ns), &[]);
    }
    over_time
}

fn integral(over_time: &OverTime, track: &Track) -> f64 {
    let points = over_time.points().iter().enumerate();
    points.map(|(at, point)| f64::from(track.get(at).unwrap().mean) * point.length_s()).sum()
}

fn maxima(track: &Track, points: usize) -> Vec<f32> {
    (0..points).map(|at| track.get(at).unwrap().extremes.unwrap().max).collect()
}

#[test]
fn late_maximum_is_in_the_point_of_its_time() {
    let mut over_time = over_time(&[5, 5, 5]);
    // A key is the end of its sample's time.
    for (at_ns, combined) in [(2 * S, 9), (S / 2, 7), (99 * S, 8)] {
        let footprint_bytes = Groups { combined, ..Groups::default() };
        over_time.raise(&Revision { at_ns, footprint_bytes, processes: 3 });
    }
    assert_eq!(maxima(&over_time.ram_bytes.groups.combined, 3), [7.0, 9.0, 8.0]);
    assert_eq!(maxima(&over_time.processes, 3), [3.0; 3]);
    let footprint_bytes = Groups::default();
    OverTime::default().raise(&Revision { at_ns: S, footprint_bytes, processes: 1 });
}

#[test]
fn late_use_is_in_the_means_of_its_time() {
    let mut over_time = over_time(&[0, 0, 0]);
    let time = Stretch { start_ns: S / 2, end_ns: 2 * S };
    let combined = |amount| Groups { combined: amount, ..Groups::default() };
    over_time.add_late(&LateUse { time, byte_s: combined(300.0), cpu_ns: combined(1.5e9) });
    // The sample that told it has it in its sums, and 40 byte-seconds and a second of CPU time of its own.
    over_time.push(&sample(3, 340, 2_500_000_000), &[]);
    let means = |track: &Track| (0..4).map(|at| track.get(at).unwrap().mean).collect::<Vec<_>>();
    assert_eq!(means(&over_time.ram_bytes.groups.combined), [100.0, 200.0, 0.0, 40.0]);
    assert_eq!(means(&over_time.cpu_percent.groups.combined), [50.0, 100.0, 0.0, 100.0]);
}

// Requirement: RAM-12
#[test]
fn long_run_has_few_points_and_keeps_its_maximum() {
    let mut values = vec![10; 100_000];
    values[54_321] = 1_000_000;
    let over_time = over_time(&values);
    let points = over_time.points();
    assert!((MOST_POINTS / 2..=MOST_POINTS).contains(&points.len()), "{}", points.len());
    let maxima = maxima(&over_time.ram_bytes.groups.combined, points.len());
    let peak = maxima.iter().position(|max| *max == 1e6).unwrap();
    assert!((points[peak].start_ns..points[peak].end_ns).contains(&(54_321 * S)));
    assert_eq!(over_time.ram_bytes.groups.combined.get(peak).unwrap().extremes.unwrap().min, 10.0);
    // Of equal length, so that no part of the run is coarser than another.
    let lengths = points[..points.len() - 1].iter().map(|point| point.end_ns - point.start_ns);
    assert_eq!(lengths.clone().min(), lengths.max());
}

// Requirement: RAM-12
#[test]
fn long_run_takes_no_more_memory_than_a_short_one() {
    let stored = |samples: u64| {
        let mut over_time = OverTime::default();
        let gpu = GpuSample { busy_percent: Some(50.0), used_bytes: Some(1 << 30), ..GpuSample::default() };
        for number in 0..samples {
            let gpu = GpuSums { devices: vec![gpu.clone(); 2], ..GpuSums::default() };
            let system = SystemSample { read_ns: 1, ram_bytes: Some(9), cpu_percent: Some(1.0) };
            let io = Some(IoSample { read_ns: number * S, bytes: IoBytes { read: number, written: 7 } });
            let free = FileSystemSample { free_bytes: Some(number), ..FileSystemSample::default() };
            let sample =
                TreeSample { gpu, system, io, file_systems: vec![free; 3], ..sample(number, 10, number) };
            let command = format!("command{}", number % 100);
            let command = CommandSample { command: command.into(), processes: 1, added_bytes: 10, cpu_ns: 1 };
            over_time.push(&sample, &[command]);
        }
        postcard::to_stdvec(&over_time).unwrap().len()
    };
    let (short, long) = (stored(4_000), stored(random_seed::samples(100_000)));
    assert!(long < short * 3 / 2, "{short} and {long} bytes");
    assert!(long < 1_000_000, "{long} bytes");
}

// Requirement: SLOW-11
#[test]
fn parts_of_time_are_of_all_of_it_and_unread_samples_have_none() {
    let ms = |computing: u64, locks: u64| {
        let (computing, locks) = (computing * 1_000_000, locks * 1_000_000);
        Some(ByTimeGroup { computing, locks, ..ByTimeGroup::default() })
    };
    let divided = [ms(1000, 0), None, None, ms(250, 750)];
    let samples = (0..).zip(divided).map(|(number, time_ns)| TreeSample { time_ns, ..sample(number, 0, 0) });
    let mut over_time = OverTime::of_samples(&samples.collect::<Vec<_>>());
    let means = |over_time: &OverTime, group| {
        let track = over_time.time.0.of(group);
        (0..over_time.points().len()).map(|at| track.get(at).unwrap().mean).collect::<Vec<_>>()
    };
    assert_eq!(means(&over_time, TimeGroup::Computing), [1.0, 0.0, 0.0, 0.25]);
    over_time.tracks().for_each(|track| track.halve(&[1.0; 4]));
    let halved = [TimeGroup::Computing, TimeGroup::Locks].map(|group| {
        let track = over_time.time.0.of(group);
        [0, 1].map(|at| track.get(at).unwrap().mean)
    });
    assert_eq!(halved, [[0.5, 0.125], [0.0, 0.375]]);
}

// Requirement: RAM-12
#[test]
fn restored_run_goes_on_as_before() {
    let mut before = over_time(&vec![3; MOST_POINTS * 3]);
    let bytes = postcard::to_stdvec(&before).unwrap();
    let mut after: OverTime = postcard::from_bytes(&bytes).unwrap();
    for over_time in [&mut before, &mut after] {
        for number in MOST_POINTS as u64 * 3..20_000 {
            over_time.push(&sample(number, number, number * 1000), &[]);
        }
    }
    assert_eq!(before, after);
}

#[test]
fn gpu_that_appears_later_and_a_figure_that_fails_are_unknown_then() {
    let mut over_time = OverTime::default();
    let busy = |percent| GpuSample { busy_percent: percent, ..GpuSample::default() };
    for (number, devices) in [(0, vec![]), (1, vec![busy(Some(30.0))]), (2, vec![busy(None)])] {
        let gpu = GpuSums { devices, ..GpuSums::default() };
        over_time.push(&TreeSample { gpu, ..sample(number, 0, 0) }, &[]);
    }
    let means = (0..3).map(|at| over_time.gpus[0][GpuFigure::Utilization].get(at).map(|values| values.mean));
    assert_eq!(means.collect::<Vec<_>>(), [None, Some(30.0), None]);
    assert!((0..3).all(|at| over_time.gpus[0][GpuFigure::Power].get(at).is_none()));
}

// Requirement: IO-2
#[test]
fn io_is_in_the_points_between_its_readings() {
    let mut over_time = OverTime::default();
    let reading = |at_ns, read| {
        let bytes = IoBytes { read, written: 7 };
        Some(IoSample { read_ns: at_ns, bytes })
    };
    // The first sample comes before the first reading, and the last reading is in the middle of the last sample.
    let readings = [None, reading(S, 100), reading(S, 100), reading(3 * S, 500), reading(7 * S / 2, 600)];
    for (number, io) in (0..).zip(readings) {
        over_time.push(&TreeSample { io, ..sample(number, 0, 0) }, &[]);
    }
    let values = |track: &Track| {
        let value =
            |at| track.get(at).map(|values| (values.mean, values.extremes.map(|extremes| extremes.max)));
        (0..5).map(value).collect::<Vec<_>>()
    };
    let rate = |mean, max| Some((mean, Some(max)));
    assert_eq!(
        values(&over_time.io.read),
        [rate(100.0, 100.0), rate(200.0, 200.0), rate(200.0, 200.0), rate(100.0, 200.0), None]
    );
    assert!(values(&over_time.io.written)[1..4].iter().all(|value| value.unwrap().0 == 0.0));
}

proptest! {
    #![proptest_config(seeded())]

    // Requirement: RAM-12
    #[test]
    fn joining_keeps_extremes_and_integral(values in prop::collection::vec(0u64..1000, 1..4000)) {
        let over_time = over_time(&values);
        let points = over_time.points();
        let ram = &over_time.ram_bytes.groups.combined;
        prop_assert!(points.len() <= MOST_POINTS);
        let extremes = || (0..points.len()).map(|at| ram.get(at).unwrap().extremes.unwrap());
        let largest = extremes().map(|extremes| extremes.max as u64).max();
        let smallest = extremes().map(|extremes| extremes.min as u64).min();
        prop_assert_eq!((smallest, largest), (values.iter().copied().min(), values.iter().copied().max()));
        let sum = values.iter().sum::<u64>() as f64;
        let close = |integral: f64, truth: f64| (integral - truth).abs() <= truth * 1e-6;
        prop_assert!(close(integral(&over_time, ram), sum));
        prop_assert!(close(integral(&over_time, &over_time.cpu_percent.groups.combined) * 1e7, sum * 1000.0));
        prop_assert_eq!((points[0].start_ns, points[points.len() - 1].end_ns), (0, values.len() as u64 * S));
        for pair in points.windows(2) {
            prop_assert_eq!(pair[0].end_ns, pair[1].start_ns);
        }
    }
}

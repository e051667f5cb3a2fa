//! The contract: what the processes of a session (one tracked run) must agree on, and nothing else.
//!
//! The processes of a session share one file-backed segment. The launcher creates it and writes REAPED records, the
//! shim writes records in every tracked process, and the collector reads them.
//!
//! - [`layout`]: the segment and its header
//! - [`ring`]: the lock-free event ring
//! - [`overflow`]: records that find the ring full
//! - [`record`]: the fields of a record
//! - [`live`], [`sample`], [`table`]: the live file, its ring of samples and its tables; [`words`]: what these consist of;
//!   [`slot`]: their sequence lock
//! - [`preload`]: the shim's entry in LD_PRELOAD; [`path`]: names in paths
//! - [`rank`]: ranks of MPI jobs and Slurm steps
//! - [`task`]: tasks of a pipeline; [`fixed_text`]: their names in a record
//! - [`client`]: programs that hand work to a daemon or to another host
//! - [`script`]: what an interpreter runs, for command names
//!
//! `gpu_track_abi.h` beside this crate has the same for C. The crate is `no_std` and has no dependencies, because it is
//! also loaded into other people's programs.
#![cfg_attr(not(any(test, loom)), no_std)]
#![cfg_attr(test, allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do"))]

pub mod client;
pub mod fixed_text;
pub mod layout;
pub mod live;
pub mod overflow;
pub mod path;
pub mod preload;
pub mod rank;
pub mod record;
pub mod ring;
pub mod sample;
pub mod script;
pub mod slot;
mod sync;
pub mod table;
pub mod task;
mod usage;
pub mod words;

/// Environment variable that names the session: a colon-separated list of segment paths, outermost session first.
/// A nested run appends its own, so that each run gets its report.
pub const ENV_SESSION: &str = "GPU_TRACK_SESSION";

/// The dynamic linker's list of libraries to load first (ld.so(8)).
pub const ENV_PRELOAD: &str = "LD_PRELOAD";

/// Maximum number of sessions that one process writes to: the outermost ones. Four levels of nesting are more than is met in
/// practice.
pub const MAX_SESSIONS: usize = 4;

/// Longest segment path in bytes, without its terminating NUL.
pub const MAX_PATH: usize = 127;

#[cfg(all(test, not(loom)))]
mod tests {
    use core::mem::offset_of;

    use super::*;
    use layout::Header;
    use sample::{Sample, SampleSlot};
    use table::{GpuEntry, ProcessEntry, Text};
    use words::Words;

    /// The C header with the values of this crate.
    fn c_header() -> String {
        let mut header = include_str!("../gpu_track_abi.h").to_owned();
        let text = |value: &str| format!("\"{value}\"");
        let number = |value: usize| format!("{value}u");
        let flag = |value: u32| format!("{value}u");
        let values = [
            ("ENV_SESSION", text(ENV_SESSION)),
            ("SHIM_PREFIX", text(preload::SHIM_PREFIX)),
            ("MAGIC", format!("{:#x}ull", layout::MAGIC)),
            ("ABI_VERSION", flag(record::ABI_VERSION)),
            ("HEADER_SIZE", number(layout::HEADER_SIZE)),
            ("RECORD_WORDS", number(record::RECORD_WORDS)),
            ("RING_CAPACITY", number(layout::RING_CAPACITY)),
            ("FILE_SIZE", number(layout::FILE_SIZE)),
            ("OVERFLOW_SLOT", number(overflow::SLOT)),
            ("FLAG_PIDFS", flag(layout::FLAG_PIDFS)),
            ("FLAG_NO_ENV_REPAIR", flag(layout::FLAG_NO_ENV_REPAIR)),
            ("FLAG_NO_WAIT_RECORDS", flag(layout::FLAG_NO_WAIT_RECORDS)),
            ("FLAG_SPLIT_RSS", flag(layout::FLAG_SPLIT_RSS)),
            ("STATE_OPEN", flag(layout::STATE_OPEN)),
            ("STATE_CLOSED", flag(layout::STATE_CLOSED)),
            ("STATE_RESTING", flag(layout::STATE_RESTING)),
            ("LIVE_SUFFIX", text(live::SUFFIX)),
            ("LIVE_MAGIC", format!("{:#x}ull", live::LIVE_MAGIC)),
            ("LIVE_VERSION", flag(live::LIVE_VERSION)),
            ("LIVE_SIZE", number(live::LIVE_SIZE)),
            ("SAMPLE_CAPACITY", number(sample::SAMPLE_CAPACITY)),
            ("SAMPLE_SLOT", number(size_of::<sample::SampleSlot>())),
            ("GPU_CAPACITY", number(table::GPU_CAPACITY)),
            ("PROCESS_CAPACITY", number(table::PROCESS_CAPACITY)),
            ("SUMMARY_CAPACITY", number(table::SUMMARY_CAPACITY)),
            ("UNKNOWN", format!("{:#x}ull", words::UNKNOWN)),
        ];
        assert_eq!(header.matches("#define GPU_TRACK_").count(), values.len() + 1, "and GPU_TRACK_H");
        for (name, value) in values {
            let define = format!("#define GPU_TRACK_{name} ");
            let start = header.find(&define).unwrap() + define.len();
            let length = header[start..].find(char::is_whitespace).unwrap();
            header.replace_range(start..start + length, &value);
        }
        header
    }

    /// `BLESS=1 cargo test -p gpu-track-abi` writes the values of this crate into the C header.
    // Requirement: HOST-2
    #[test]
    fn c_header_has_the_same_constants() {
        let header = c_header();
        if std::env::var_os("BLESS").is_some() {
            std::fs::write(concat!(env!("CARGO_MANIFEST_DIR"), "/gpu_track_abi.h"), &header).unwrap();
            return;
        }
        assert_eq!(header, include_str!("../gpu_track_abi.h"));
    }

    // Requirement: HOST-2
    #[test]
    fn c_header_has_the_same_structs() {
        macro_rules! offsets {
            ($struct:ty: $($field:ident)*) => {
                (vec![$((stringify!($field), offset_of!($struct, $field))),*], size_of::<$struct>())
            };
        }
        let header = offsets!(Header:
            magic abi_version record_words ring_capacity flags session_id launcher_pid launcher_pid_ns
            created_monotonic_ns created_realtime_ns state doorbell head tail dropped unreachable filtered task_names task_baseline
            nodes
        );
        assert_eq!(c_struct("gpu_track_header"), header);
        let section = offsets!(live::Section: offset size entry_size capacity);
        assert_eq!(c_struct("gpu_track_live_section"), section);
        let (mut live, size) = offsets!(live::LiveHeader:
            magic version section_count session_id file_size samples sections
        );
        let (_, sections) = live.pop().unwrap();
        let named = ["sample_ring", "gpu_table", "process_table", "summary_table"];
        let each = named.into_iter().zip((sections..).step_by(size_of::<live::Section>()));
        assert_eq!(c_struct("gpu_track_live_header"), (live.into_iter().chain(each).collect(), size));
        // A slot is an array of numbers: the sequence, then the fields in the order in which they are written.
        macro_rules! slot {
            ($($field:ident)*) => {{
                let Sample { $($field: _),* } = Sample::default();
                let word = |sample: Sample| sample.words().position(|value| value == 1).unwrap() + 1;
                let words = [$((stringify!($field), word(Sample { $field: 1, ..Sample::default() }))),*];
                [("sequence", 0)].into_iter().chain(words).map(|(name, word)| (name, word * 8)).collect()
            }};
        }
        let words: Vec<(&str, usize)> =
            slot!(monotonic_ns main_bytes descendants_bytes combined_bytes cpu_ns processes threads);
        assert_eq!(c_struct("gpu_track_sample"), (words, size_of::<SampleSlot>()));
    }

    // Requirement: HOST-2
    #[test]
    fn c_header_has_the_same_tables() {
        /// The place of each field in an entry, by the first word that changes with it.
        macro_rules! entry {
            ($entry:ty: $($field:ident = $value:expr,)*) => {{
                let none: Vec<u64> = <$entry>::default().words().collect();
                let at = |entry: $entry| entry.words().zip(&none).position(|(one, other)| one != *other).unwrap() * 8;
                let fields = vec![$((stringify!($field), at(<$entry>::of($value, |entry, value| entry.$field = value)))),*];
                (fields, none.len() * 8)
            }};
        }
        trait Of: Sized + Default {
            fn of<T>(value: T, set: impl Fn(&mut Self, T)) -> Self {
                let mut entry = Self::default();
                set(&mut entry, value);
                entry
            }
        }
        impl Of for GpuEntry {}
        impl Of for ProcessEntry {}
        let gpu = entry!(GpuEntry:
            index = Some(1), read_ns = Some(1), total_bytes = Some(1), used_bytes = Some(1), run_bytes = Some(1),
            utilization_percent = Some(1.0), power_w = Some(1.0), temperature_c = Some(1.0),
            sm_clock_mhz = Some(1.0), uuid = Text::new("a"), name = Text::new("a"),
        );
        assert_eq!(c_struct("gpu_track_gpu"), gpu);
        let process = entry!(ProcessEntry:
            pid = Some(1), parent_pid = Some(1), start_ns = Some(1), rss_bytes = Some(1), cpu_ns = Some(1),
            gpu_bytes = Some(1), command = Text::new("a"),
        );
        assert_eq!(c_struct("gpu_track_process"), process);
        let head = [("sequence", 0), ("at_ns", 8), ("count", 16), ("others", 24)];
        assert_eq!(c_struct("gpu_track_table"), (head.to_vec(), (table::HEAD_WORDS + 1) * 8));
    }

    /// The fields of a struct of the C header with their offsets, and its size.
    fn c_struct(name: &str) -> (Vec<(&'static str, usize)>, usize) {
        let begin = format!("struct {name} {{");
        let c = include_str!("../gpu_track_abi.h").split_once(&begin).unwrap().1;
        let mut offset = 0;
        let mut offsets = Vec::new();
        for declaration in c.split_once('}').unwrap().0.split_terminator(';') {
            let declaration = declaration.trim();
            let Some((kind, names)) = declaration.trim_start_matches("struct ").split_once(' ') else {
                continue;
            };
            let size = match kind {
                "char" => 1,
                "uint32_t" => 4,
                "uint64_t" | "double" => 8,
                "gpu_track_live_section" => 16,
                other => panic!("{other}"),
            };
            for name in names.split(", ") {
                let (name, count) = name.split_once('[').unwrap_or((name, "1]"));
                offsets.push((name, offset));
                offset += size * count.trim_end_matches(']').parse::<usize>().unwrap();
            }
        }
        offsets.retain(|(name, _)| !name.starts_with("pad_"));
        (offsets, offset)
    }
}

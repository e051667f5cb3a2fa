//! The recorder of page frames with the processes of tests/programs/pages.c, whose memory is known. Needs root and a
//! cgroup (v2).
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

use gpu_track_truth::footprint::{Footprints, Recorder};
use gpu_track_truth::relatives::descendants;

const MIB: f64 = 1048576.0;
/// What a process has mapped of its libraries differs from run to run. At a fault the kernel maps the pages around it
/// that are in the cache (16 at a time). It leaves out those that another CPU has locked at that moment.
const TOLERANCE_MIB: f64 = 0.6;

fn pages() -> &'static str {
    static PROGRAM: OnceLock<String> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../programs/pages.c");
        let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("pages.{}", std::process::id()));
        assert!(
            Command::new("cc")
                .args(["-O1", "-pthread", "-o"])
                .args([&program, &source])
                .status()
                .unwrap()
                .success()
        );
        program.into_os_string().into_string().unwrap()
    })
}

/// A tree of processes that holds its memory until this is dropped.
struct Tree {
    child: Child,
}

impl Tree {
    fn start(words: &[&str]) -> Self {
        let mut command = Command::new(pages());
        command.args(words).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut line = [0; 6];
        child.stdout.as_mut().unwrap().read_exact(&mut line).unwrap();
        assert_eq!(&line, b"ready\n");
        Self { child }
    }

    fn pids(&self) -> Result<Vec<u32>, String> {
        let main = self.child.id();
        Ok([vec![main], descendants(main)?].concat())
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let status = self.child.wait().unwrap();
        assert!(status.success() || std::thread::panicking(), "{status}");
    }
}

/// Opens the recorder. If that is impossible here, writes a line that scripts/test counts, and gives `None`.
fn recorder() -> Option<Recorder> {
    // SAFETY: geteuid has no preconditions.
    let result = match unsafe { libc::geteuid() } {
        0 => Recorder::open(),
        _ => Err("needs root (page frames)".to_owned()),
    };
    if let Err(reason) = &result {
        let name = std::thread::current().name().unwrap_or("?").to_owned();
        // Written to the descriptor directly, because cargo captures what a passing test prints.
        drop(std::io::stderr().write_all(format!("SKIPPED {name}: {reason}\n").as_bytes()));
    }
    result.ok()
}

/// Bytes of main, descendants and combined, then what is private of the last two.
type Figures = [f64; 5];

fn figures(footprints: Footprints) -> Figures {
    let Footprints { main, descendants, combined } = footprints;
    [
        main.total_bytes,
        descendants.total_bytes,
        combined.total_bytes,
        descendants.private_bytes,
        combined.private_bytes,
    ]
    .map(|bytes| bytes as f64)
}

/// Asserts what each figure grows by when the mode's memory grows by one byte.
fn assert_growth(mode: &str, children: &str, file: &str, expected: Figures) {
    let measured = ["8", "40"].map(|mib| figures_of(&[mode, mib, children, file]));
    let [Some(small), Some(large)] = measured else { return };
    for ((small, large), expected) in small.iter().zip(large).zip(expected) {
        let mib = (large - small) / MIB;
        let is_right = (mib - 32.0 * expected).abs() < TOLERANCE_MIB;
        assert!(is_right, "{mode}: {mib} MiB, not 32 x {expected}; {measured:?}");
    }
}

fn figures_of(words: &[&str]) -> Option<Figures> {
    let recorder = recorder()?;
    let tree = Tree::start(words);
    Some(figures(recorder.read(|| tree.pids()).unwrap()))
}

#[test]
fn private_memory_and_copies_on_write() {
    assert_growth("fork", "3", "", [1.0, 1.0, 1.0, 0.0, 0.0]);
    // Each child has a half of its own and shares the other with the parent. The parent alone has the first half.
    assert_growth("cow", "2", "", [1.0, 1.5, 2.0, 1.0, 1.5]);
    assert_growth("exec", "3", "", [0.0, 3.0, 3.0, 3.0, 3.0]);
    assert_growth("moved", "2", "", [0.0, 2.0, 2.0, 2.0, 2.0]);
}

#[test]
fn shared_memory_counts_once() {
    assert_growth("anonymous", "3", "", [0.0, 1.0, 1.0, 0.0, 0.0]);
    // Of the first and of the last child, one half of the window is nobody else's.
    assert_growth("memfd", "3", "", [0.0, 2.0, 2.0, 1.0, 1.0]);
}

#[test]
fn huge_pages_count_as_their_pages() {
    // A child has a page for each 2 MiB of a half, which is 1/1024 of the half.
    let own = 1.0 / 1024.0;
    assert_growth("thp", "2", "", [1.0, 1.0, 1.0 + own, own, own]);
}

#[test]
fn processes_of_one_address_space_count_once() {
    assert_growth("threads", "2", "", [1.0, 0.0, 1.0, 0.0, 1.0]);
    // The third child is a fork child, and both have a quarter of their own.
    assert_growth("threads", "3", "", [1.0, 1.0, 1.25, 0.25, 0.5]);
}

#[test]
fn file_counts_whatever_strangers_map_it() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let random = std::fs::File::open("/dev/urandom").unwrap();
    std::io::copy(&mut random.take(40 << 20), &mut file.as_file()).unwrap();
    let path = file.path().to_str().unwrap();
    assert_growth("file", "1", path, [1.0, 1.0, 1.0, 0.0, 0.0]);
    for mode in ["slices", "parts"] {
        assert_growth(mode, "2", path, [0.0, 1.0, 1.0, 1.0, 1.0]);
    }
    let _stranger = Tree::start(&["file", "40", "0", path]);
    assert_growth("file", "0", path, [1.0, 0.0, 1.0, 0.0, 0.0]);
    assert_growth("child_file", "1", path, [0.0, 1.0, 1.0, 0.0, 0.0]);
    assert_growth("file_write", "2", path, [0.0, 1.5, 1.5, 1.0, 1.0]);
    for mode in ["slices", "parts"] {
        assert_growth(mode, "2", path, [0.0, 1.0, 1.0, 0.0, 0.0]);
    }
    // The file and an anonymous mapping, each twice in each child.
    assert_growth("twice", "2", path, [0.0, 2.0, 2.0, 0.0, 0.0]);
}

//! A session without a launcher: a segment file, the built shim, and C programs that run under it.
// Each test file uses a part of it. Clippy allows unwrap in #[test] functions, but not in their helpers.
#![allow(dead_code, clippy::unwrap_used)]

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{LazyLock, Mutex, PoisonError, mpsc};
use std::time::Duration;

use gpu_track_abi::layout::{HEADER_SIZE, Header, MAGIC, RING_CAPACITY, RING_SIZE, STATE_OPEN, TRACKED_SIZE};
use gpu_track_abi::overflow;
use gpu_track_abi::preload::SHIM_PREFIX;
use gpu_track_abi::record::{ABI_VERSION, Event, NAME_BYTES, Origin, RECORD_WORDS};
use gpu_track_abi::ring::{Pop, Ring};
use gpu_track_abi::{ENV_PRELOAD, ENV_SESSION};
use tempfile::TempDir;

/// Longer than any of the programs needs: a program that hangs is killed, and its test fails.
const WATCHDOG: Duration = Duration::from_secs(120);

/// The built library, under the name that the launcher gives it.
pub static SHIM: LazyLock<PathBuf> = LazyLock::new(|| {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("shim");
    let mut cargo = Command::new(env!("CARGO"));
    for name in ["RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS", "RUSTC_WORKSPACE_WRAPPER", "CARGO_BUILD_BUILD_DIR"] {
        cargo.env_remove(name);
    }
    cargo.args(["build", "--offline", "--quiet", "--profile", "shim", "--package", "gpu-track-shim"]);
    cargo.arg("--target-dir").arg(&target).current_dir(env!("CARGO_MANIFEST_DIR"));
    assert!(cargo.status().unwrap().success(), "{cargo:?}");
    let named = target.join(format!("{SHIM_PREFIX}test.so"));
    install(&target.join("shim/libgpu_track_shim.so"), &named);
    named
});

/// By rename, because another test process may be using the old file.
fn install(from: &Path, to: &Path) {
    let part = to.with_extension(std::process::id().to_string());
    fs::copy(from, &part).unwrap();
    fs::rename(&part, to).unwrap();
}

/// Compiles `tests/programs/NAME.c` with these flags.
pub fn program(name: &str, flags: &[&str]) -> PathBuf {
    compile("cc", name, flags)
}

pub fn compile(compiler: &str, name: &str, flags: &[&str]) -> PathBuf {
    static DONE: LazyLock<Mutex<HashMap<String, PathBuf>>> = LazyLock::new(Mutex::default);
    let key = format!("{compiler} {name} {}", flags.join(" "));
    let mut done = DONE.lock().unwrap_or_else(PoisonError::into_inner);
    let next = done.len();
    done.entry(key)
        .or_insert_with(|| {
            static DIR: LazyLock<PathBuf> = LazyLock::new(|| {
                let dir = Path::new(env!("CARGO_TARGET_TMPDIR"))
                    .join(format!("programs.{}", env!("CARGO_CRATE_NAME")));
                fs::create_dir_all(&dir).unwrap();
                dir
            });
            let source =
                Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(format!("{name}.c"));
            let built = DIR.join(format!("{}.{next}", name.rsplit('/').next().unwrap()));
            let mut cc = Command::new(compiler);
            cc.args(["-O1", "-Wall", "-pthread", "-o"]).arg(&built).arg(&source).args(flags);
            assert!(cc.status().unwrap().success(), "{cc:?}");
            built
        })
        .clone()
}

/// A segment, as the launcher would make it.
pub struct Session {
    dir: TempDir,
    pub path: PathBuf,
    map: *mut u8,
}

impl Session {
    pub fn new() -> Self {
        Self::with_flags(0)
    }

    pub fn with_flags(flags: u32) -> Self {
        Self::in_directory(tempfile::tempdir().unwrap(), flags)
    }

    pub fn in_directory(dir: tempfile::TempDir, flags: u32) -> Self {
        let path = dir.path().join("segment");
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, &vec![0; TRACKED_SIZE], 0).unwrap();
        let map = map(&file);
        let session = Self { dir, path, map };
        // SAFETY: it is mapped while the session lives, and has no other user yet.
        let header = unsafe { &mut *session.map.cast::<Header>() };
        header.magic = MAGIC;
        header.abi_version = ABI_VERSION;
        header.record_words = RECORD_WORDS as u32;
        header.ring_capacity = RING_CAPACITY as u32;
        header.flags = flags;
        header.state.store(STATE_OPEN, Ordering::Relaxed);
        session
    }

    pub fn header(&self) -> &Header {
        // SAFETY: it is mapped and large enough. Processes change only its atomics.
        unsafe { &*self.map.cast::<Header>() }
    }

    pub fn header_mut(&mut self) -> &mut Header {
        // SAFETY: as above. Tests change it before they start a process.
        unsafe { &mut *self.map.cast::<Header>() }
    }

    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub fn ring(&self) -> Ring<'_, RECORD_WORDS> {
        // SAFETY: the ring follows the header page in the mapping.
        let words = unsafe {
            std::slice::from_raw_parts(
                self.map.add(HEADER_SIZE).cast::<AtomicU64>(),
                RING_SIZE / size_of::<u64>(),
            )
        };
        let header = self.header();
        Ring::new(&header.head.0, &header.tail.0, &header.dropped.0, words).unwrap()
    }

    /// Reads all records and releases their slots.
    pub fn events(&self) -> Vec<(Origin, Event)> {
        let mut events = Vec::new();
        let mut position = self.header().tail.0.load(Ordering::Relaxed);
        loop {
            match self.ring().peek(position) {
                Pop::Record(record) => events.push(Event::decode(&record).expect("a known kind")),
                Pop::Empty => return events,
                other => panic!("{other:?} at {position}"),
            }
            self.ring().release(position);
            position += 1;
        }
    }

    /// The records that were appended after the segment, each with the ring's head.
    pub fn appended(&self) -> Vec<((Origin, Event), u64)> {
        let file = fs::read(&self.path).unwrap();
        let slots = file.get(overflow::START as usize..).unwrap_or_default().chunks(overflow::SLOT);
        slots
            .map(|slot| {
                let (record, head) = overflow::record(slot);
                (Event::decode(&record).expect("a known kind"), head)
            })
            .collect()
    }

    /// How many records were dropped.
    pub fn dropped(&self) -> u64 {
        self.header().dropped.0.load(Ordering::Relaxed)
    }

    /// A tracked command.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command.env(ENV_PRELOAD, &*SHIM).env(ENV_SESSION, &self.path);
        command
    }

    /// Runs a case of a C program. Returns its events, output and status.
    pub fn case(&self, program: &Path, args: &[&str]) -> (Vec<(Origin, Event)>, Output) {
        let output = run(self.command(program).args(args));
        (self.events(), output)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // SAFETY: no reference into the mapping outlives the session.
        unsafe { libc::munmap(self.map.cast(), TRACKED_SIZE) };
    }
}

fn map(file: &File) -> *mut u8 {
    use std::os::fd::AsRawFd;
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping of an open file, at an address that the kernel chooses.
    let map = unsafe {
        libc::mmap(std::ptr::null_mut(), TRACKED_SIZE, protection, libc::MAP_SHARED, file.as_raw_fd(), 0)
    };
    assert_ne!(map, libc::MAP_FAILED);
    map.cast()
}

/// Runs a command to its end, or kills it after the watchdog's time.
pub fn run(command: &mut Command) -> Output {
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let pid = child.id().cast_signed();
    let (done, ended) = mpsc::channel::<()>();
    let watchdog = std::thread::spawn(move || {
        if ended.recv_timeout(WATCHDOG) == Err(mpsc::RecvTimeoutError::Timeout) {
            // SAFETY: takes numbers; the child is not reaped yet.
            unsafe { libc::kill(pid, libc::SIGKILL) };
        }
    });
    let output = child.wait_with_output().unwrap();
    drop(done);
    watchdog.join().unwrap();
    output
}

/// Asserts status 0 and an empty stderr.
pub fn assert_clean(output: &Output) {
    assert!(
        output.status.success() && output.stderr.is_empty(),
        "{:?}\nstdout: {}\nstderr: {}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

pub fn status_of(code: i32) -> ExitStatus {
    ExitStatus::from_raw(code << 8)
}

/// The names in a START, as text.
pub fn names(names: &[u8; NAME_BYTES]) -> String {
    String::from_utf8_lossy(names).trim_end_matches('\0').replace('\0', "|")
}

/// The kinds of events as letters: START S, FORK F, EXEC x, EXIT E, REAPED R, SPAWN_FAILED f, PROGRAM P.
pub fn kinds(events: &[(Origin, Event)]) -> String {
    events
        .iter()
        .map(|(_, event)| match event {
            Event::Start { .. } => 'S',
            Event::Fork { .. } => 'F',
            Event::Exec { .. } => 'x',
            Event::Exit { .. } => 'E',
            Event::Reaped { .. } => 'R',
            Event::SpawnFailed { .. } => 'f',
            Event::Program { .. } => 'P',
        })
        .collect()
}

pub fn count(events: &[(Origin, Event)], kind: char) -> usize {
    kinds(events).matches(kind).count()
}

/// (reaper, child, status) of each REAPED.
pub fn reaped(events: &[(Origin, Event)]) -> Vec<(u32, u32, i32)> {
    let reaped = |(origin, event): &(Origin, Event)| match event {
        Event::Reaped { child, status, .. } => Some((origin.pid, *child, *status)),
        _ => None,
    };
    events.iter().filter_map(reaped).collect()
}

/// (pid, status, flags) of each EXIT.
pub fn exits(events: &[(Origin, Event)]) -> Vec<(u32, i32, u8)> {
    let exit = |(origin, event): &(Origin, Event)| match event {
        Event::Exit { status, .. } => Some((origin.pid, *status, origin.flags)),
        _ => None,
    };
    events.iter().filter_map(exit).collect()
}

/// The names of each START.
pub fn starts(events: &[(Origin, Event)]) -> Vec<String> {
    let start = |(_, event): &(Origin, Event)| match event {
        Event::Start { names: n, .. } => Some(names(n)),
        _ => None,
    };
    events.iter().filter_map(start).collect()
}

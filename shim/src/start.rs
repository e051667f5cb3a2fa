//! The constructor: finds the next definitions, joins the sessions, writes START.
//!
//! It avoids /proc where it can, because the kernel creates inodes for each process that is read there.
//!
//! A seccomp filter that a program without the shim installed before its exec may kill the process for any of these system calls. The
//! constructor can't do without them, so they are few and ordinary. To open and map the segment it makes those that the loader makes,
//! too:
//!
//! - newfstatat, openat, fstat, pread64, mmap, close: [`segments`]. The user is known without a call, from the auxiliary vector.
//! - statx, fstatfs: only if the segment is another user's, as in some containers.
//! - fcntl: who holds the lock on the segment tells whether this is the launcher's pid namespace. Without it, each process would need
//!   the calls of the last item below.
//! - madvise: malloc makes it, too.
//! - getpid, getppid, getrusage, clock_gettime: what START is about. A first call of the vDSO's clock costs page faults.
//! - getpgid: only below GNU parallel, which makes each job a process group. Programs that it runs itself have the job's variables, too.
//! - pidfd_open, ioctl, or newfstatat on /proc: in another pid namespace only. Processes there can't be told apart without it.

use core::ffi::{CStr, c_char, c_int};
use core::sync::atomic::Ordering::Relaxed;

use gpu_track_abi::fixed_text::FixedText;
use gpu_track_abi::path::file_name;
use gpu_track_abi::record::{Event, NAME_BYTES};
use gpu_track_abi::script::{Found, Search};
use gpu_track_abi::task::{self, ArgumentMark, Marks};

use crate::hooks::{exit, fork};
use crate::{emit, environment, identity, next, segments, state, sys};

// In .init_array, because glibc passes argc and argv to these functions.
#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: unsafe extern "C" fn(c_int, *const *const c_char) = constructor;

/// Joins the sessions that the environment names, and writes START. Without a session the shim stays inert. The state is filled before
/// handlers are registered and records are written, since both rely on it.
unsafe extern "C" fn constructor(argc: c_int, argv: *const *const c_char) {
    // The hooks call the next definitions in a process without a session, too.
    next::resolve();
    // The constructor of another library may have installed a filter.
    if !state::may_call_kernel() {
        return;
    }
    // SAFETY: libc sets its environment up before any constructor runs.
    let values = unsafe { environment::Strings::new(environment::environ) }.start_values();
    let Some(list) = values.sessions else { return };
    segments::map_all(list);
    if !state::is_active() {
        return;
    }
    let preload = values.preload.unwrap_or_default();
    environment::remember(list, preload);
    state::IS_UNDER_VALGRIND.store(names_valgrind(preload), Relaxed);
    let pid = sys::getpid();
    state::PID.store(pid, Relaxed);
    let may_be_in_another_namespace = true;
    let pidfd_inode = identity::identify(pid, may_be_in_another_namespace);
    exit::register();
    fork::register();

    // Only glibc passes main's arguments to constructors.
    let (names, argument) = if next::GLIBC_VERSION.get().is_some() {
        // SAFETY: glibc passes main's arguments to the constructor.
        let arguments = unsafe { Arguments::new(argc, argv) };
        (argument_names(arguments), argument_mark(arguments))
    } else {
        (cmdline_names(), ArgumentMark::None)
    };
    let max_rss_kib = sys::getrusage(libc::RUSAGE_SELF).ru_maxrss as u64;
    state::MAX_RSS_KIB.store(max_rss_kib, Relaxed);
    state::WROTE_START.store(true, Relaxed);
    let origin = emit::origin_by_syscall(pid, sys::getppid());
    let realtime_ns = sys::clock_ns(libc::CLOCK_REALTIME);
    let rank = values.rank();
    let mut marks = Marks { variables: values.tasks, argument };
    if marks.is_of_parallel() && sys::getpgrp() != pid {
        marks = marks.without_parallel();
    }
    // Each session has its own names of `--by-env`.
    for header in state::sessions() {
        // SAFETY: libc sets its environment up before any constructor runs.
        let variable = |name: &[u8]| unsafe { environment::Strings::new(environment::environ) }.value(name);
        // A copy, since every tracked process can write the header.
        let list = task::copy_of_names(&header.task_names);
        let task = marks.keys(list.iter().flat_map(task::names), variable, &header.task_baseline);
        let start = Event::Start { realtime_ns, pidfd_inode, max_rss_kib, names, rank, task };
        emit::emit_to(header, &origin, &start);
    }
}

/// Main's arguments, from argv\[0\] on.
#[derive(Clone, Copy)]
struct Arguments {
    argv: *const *const c_char,
    left: usize,
}

impl Arguments {
    /// Wraps an array, of which nothing is read yet.
    ///
    /// # Safety
    /// `argv` must be null or an array of at least `argc` strings, as main gets it, and outlive every use.
    unsafe fn new(argc: c_int, argv: *const *const c_char) -> Self {
        let left = if argv.is_null() { 0 } else { usize::try_from(argc).unwrap_or(0) };
        Self { argv, left }
    }
}

impl Iterator for Arguments {
    type Item = &'static [u8];

    fn next(&mut self) -> Option<&'static [u8]> {
        self.left = self.left.checked_sub(1)?;
        // SAFETY: promised to `new`. An element of argv is a string, or null at the array's end.
        unsafe {
            let argument = self.argv.read();
            self.argv = self.argv.add(1);
            (!argument.is_null()).then(|| CStr::from_ptr(argument).to_bytes())
        }
    }
}

/// The mark of a task in main's arguments.
fn argument_mark(mut arguments: Arguments) -> ArgumentMark<'static> {
    arguments.next().map_or(ArgumentMark::None, |first| task::argument_mark(first, arguments))
}

/// Whether an LD_PRELOAD names valgrind's library. Valgrind 3.20 does not know pidfd_open, and prints five lines for each call.
fn names_valgrind(preload: &[u8]) -> bool {
    const LIBRARY: &[u8] = b"/vgpreload_core";
    preload.windows(LIBRARY.len()).any(|part| part == LIBRARY)
}

/// The names for the START record from main's arguments: see [`Names`].
fn argument_names(mut arguments: Arguments) -> [u8; NAME_BYTES] {
    let mut names = Names::default();
    // `any` stops where `add` needs no further argument.
    let _ = arguments.any(|argument| names.add(argument));
    names.text.bytes
}

/// The names for the START record from /proc/self/cmdline, where the constructor gets no arguments (musl).
fn cmdline_names() -> [u8; NAME_BYTES] {
    let mut buffer = [0u8; 1024];
    let mut names = Names::default();
    if let Some(fd) = sys::open(c"/proc/self/cmdline", libc::O_RDONLY) {
        let length = sys::read(fd, &mut buffer);
        sys::close(fd);
        let text = buffer.get(..length).unwrap_or_default();
        let text = text.strip_suffix(b"\0").unwrap_or(text);
        // `any` stops where `add` needs no further argument.
        let _ = text.split(|b| *b == 0).any(|argument| names.add(argument));
    }
    names.text.bytes
}

/// The names of a START record: the base name of argv\[0\], NUL, and what an interpreter runs (a script, a class or a module: `-m NAME`)
/// or which subcommand a program.
#[derive(Default)]
struct Names {
    text: FixedText<NAME_BYTES>,
    /// The search for what the program runs. `None`: argv\[0\] comes next.
    search: Option<Search>,
}

/// Maximum number of bytes of the program's name if another name follows, which so has space after a long one.
const MAX_PROGRAM_BYTES: usize = 31;

impl Names {
    /// Takes the next argument. Returns true when no further one is needed.
    fn add(&mut self, argument: &[u8]) -> bool {
        let Some(search) = &mut self.search else {
            let name = file_name(argument);
            let search = Search::of_program(name);
            let is_followed = search.has_language();
            self.search = Some(search);
            self.text.put(&[name], if is_followed { MAX_PROGRAM_BYTES } else { NAME_BYTES });
            self.text.end_part();
            return !is_followed;
        };
        match search.add(argument) {
            Found::NotYet => return false,
            Found::Nothing => {}
            Found::Script(name) | Found::Subcommand(name) => self.text.put(&[file_name(name)], NAME_BYTES),
            Found::Module(module) => {
                self.text.put(&[b"-m "], NAME_BYTES);
                self.text.put(&[module], NAME_BYTES);
            }
        }
        true
    }
}

//! The constructor: finds the next definitions, joins the sessions, writes START.
//!
//! It avoids /proc where it can, because the kernel creates inodes for each process that is read there.
//!
//! A seccomp filter that a program without the shim installed before its exec may kill the process for any of these system calls. The
//! constructor can't do without them, so they are few and ordinary. To open and map the segment it makes those that the loader makes,
//! too:
//!
//! - newfstatat, openat, fstat, pread64, mmap, close: [`segments`]. The user is known without a call, from the auxiliary vector.
//! - fcntl: who holds the lock on the segment tells whether this is the launcher's pid namespace. Without it, each process would need
//!   the calls of the last item below.
//! - madvise: malloc makes it, too.
//! - getpid, getppid, getrusage, clock_gettime: what START is about. A first call of the vDSO's clock costs page faults.
//! - pidfd_open, ioctl, or newfstatat on /proc: in another pid namespace only. Processes there can't be told apart without it.

use core::ffi::{CStr, c_char, c_int};
use core::sync::atomic::Ordering::Relaxed;

use gpu_track_abi::preload::file_name;
use gpu_track_abi::record::{Event, NAME_BYTES};
use gpu_track_abi::script::{Found, Search};

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
    let names = if next::GLIBC_VERSION.get().is_some() {
        // SAFETY: glibc passes main's arguments to the constructor.
        unsafe { argument_names(argc, argv) }
    } else {
        cmdline_names()
    };
    let max_rss_kib = sys::getrusage(libc::RUSAGE_SELF).ru_maxrss as u64;
    state::MAX_RSS_KIB.store(max_rss_kib, Relaxed);
    state::WROTE_START.store(true, Relaxed);
    let origin = emit::origin_by_syscall(pid, sys::getppid());
    let realtime_ns = sys::clock_ns(libc::CLOCK_REALTIME);
    let rank = values.rank();
    let start = Event::Start { realtime_ns, pidfd_inode, max_rss_kib, names, rank };
    emit::emit(&origin, &start, emit::TO_ALL);
}

/// Whether an LD_PRELOAD names valgrind's library. Valgrind 3.20 does not know pidfd_open, and prints five lines for each call.
fn names_valgrind(preload: &[u8]) -> bool {
    const LIBRARY: &[u8] = b"/vgpreload_core";
    preload.windows(LIBRARY.len()).any(|part| part == LIBRARY)
}

/// The names for the START record from main's arguments: see [`Names`].
///
/// # Safety
/// `argv` must be an array of at least `argc` strings, as main gets it.
unsafe fn argument_names(argc: c_int, argv: *const *const c_char) -> [u8; NAME_BYTES] {
    let mut names = Names::default();
    if !argv.is_null() {
        for i in 0..usize::try_from(argc).unwrap_or(0) {
            // SAFETY: promised by the caller.
            let argument = unsafe { argv.add(i).read() };
            // SAFETY: an element of argv is a string, or null at the array's end.
            if argument.is_null() || names.add(unsafe { CStr::from_ptr(argument) }.to_bytes()) {
                break;
            }
        }
    }
    names.text
}

/// The names where the constructor gets no arguments (musl), from /proc.
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
    names.text
}

/// The names of a START record: the base name of argv\[0\], NUL, and what an interpreter runs. That is a script, a class or a module
/// (`-m NAME`).
struct Names {
    text: [u8; NAME_BYTES],
    /// Bytes of `text` that are written.
    used: usize,
    /// The search for what an interpreter runs. `None`: argv\[0\] comes next.
    search: Option<Search>,
}

/// Maximum number of bytes of an interpreter's name, so that the script's name has space after a long one.
const MAX_PROGRAM_BYTES: usize = 31;

impl Default for Names {
    fn default() -> Self {
        Self { text: [0; NAME_BYTES], used: 0, search: None }
    }
}

impl Names {
    /// Takes the next argument. Returns true when no further one is needed.
    fn add(&mut self, argument: &[u8]) -> bool {
        let Some(search) = &mut self.search else {
            let name = file_name(argument);
            let search = Search::of_program(name);
            let is_interpreter = search.has_language();
            self.search = Some(search);
            self.put(name, if is_interpreter { MAX_PROGRAM_BYTES } else { NAME_BYTES });
            // The name's NUL: `text` is zero there.
            self.used += 1;
            return !is_interpreter;
        };
        match search.add(argument) {
            Found::NotYet => return false,
            Found::Nothing => {}
            Found::Script(script) => self.put(file_name(script), NAME_BYTES),
            Found::Module(module) => {
                self.put(b"-m ", NAME_BYTES);
                self.put(module, NAME_BYTES);
            }
        }
        true
    }

    /// Adds a name, at most `most` bytes and as far as there is room. If it is too long, `...` takes the place of its middle, because
    /// names often differ at their ends.
    fn put(&mut self, bytes: &[u8], most: usize) {
        const MARK: &[u8] = b"...";
        let room = most.min(NAME_BYTES.saturating_sub(self.used));
        if bytes.len() <= room || room <= MARK.len() {
            self.append(bytes.iter().take(room));
            return;
        }
        let end = (room - MARK.len()) / 2;
        self.append(bytes.iter().take(room - MARK.len() - end));
        self.append(MARK.iter());
        self.append(bytes.iter().skip(bytes.len() - end));
    }

    /// Adds bytes, as far as there is room.
    fn append<'a>(&mut self, bytes: impl Iterator<Item = &'a u8>) {
        let free = self.text.get_mut(self.used..).unwrap_or_default();
        for (to, from) in free.iter_mut().zip(bytes) {
            *to = *from;
            self.used += 1;
        }
    }
}

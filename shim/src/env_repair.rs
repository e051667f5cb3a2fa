//! Environment repair: if the environment of a new program lacks the shim or the session (`env -i`, a hand-made
//! envp), they are put back. A foreign LD_PRELOAD is kept after the shim, and every other byte stays as it is.
//!
//! If the new program can't see the shim's file (bubblewrap, chroot), the dynamic linker would print an error line. Such a program
//! gets an LD_PRELOAD without the shim, and is counted. So does a program that is started under a seccomp filter, which may kill it
//! for the system calls of the shim's constructor. The filter may kill this process, too, so nothing here makes a system call then.
//!
//! Where the dynamic linker only lists the libraries of a program (ldd), the shim is left out, too: packagers take that list. So it is
//! for QEMU, which hands LD_PRELOAD to a dynamic linker of another machine.
//!
//! The new pointer array is on the stack if it takes at most 8 KiB. A larger one is in a mapping that is kept and used again. A new
//! mapping each time would leak: a vfork child can't unmap it after a successful exec, so it would stay in the parent.

use core::ffi::{c_char, c_int, c_void};
use core::mem::MaybeUninit;
use core::ptr;
use core::sync::atomic::{AtomicUsize, Ordering};

use gpu_track_abi::layout::{FLAG_NO_ENV_REPAIR, Header, Line};
use gpu_track_abi::preload::{ENV_LIST, around_shim, shim_in, shows_preloaded};
use gpu_track_abi::{ENV_PRELOAD, ENV_SESSION};

use crate::environment::{PRELOAD, SESSION, Text, environ};
use crate::readable::strings;
use crate::visibility::Visible;
use crate::{state, sys};

/// The largest array on the stack: small even for a thread with the smallest stack (PTHREAD_STACK_MIN, 16 KiB).
const MAX_STACK_BYTES: usize = 8192;
/// The kept mapping grows by multiples of this, so that it is seldom replaced.
const MAPPING_UNIT_BYTES: usize = 64 << 10;

/// What a new program is to find of gpu-track in its environment.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wanted {
    ShimAndSession,
    /// The session, without the shim.
    SessionOnly,
    /// No shim. A session that is there stays, but none is added.
    NoShim,
}

/// How an environment is to be repaired.
struct Repair {
    /// Number of entries of the old environment.
    entries: usize,
    /// The session's variable is added.
    adds_session: bool,
    /// `None`: LD_PRELOAD stays as it is.
    preload: Option<NewPreload>,
}

/// A new LD_PRELOAD entry.
struct NewPreload {
    /// Index of the entry that it replaces; `None` if it is added.
    replaces: Option<usize>,
    /// The text of the new entry, in parts.
    parts: [&'static [u8]; 5],
}

impl NewPreload {
    /// An entry with the shim, in place of `found`: index and value of the LD_PRELOAD in effect, if there is one. `None`:
    /// `found` has the shim, or the path of the shim is not known.
    fn instead_of(found: Option<(usize, &'static [u8])>) -> Option<Self> {
        let value = found.map_or(&b""[..], |(_, value)| value);
        if shim_in(value).is_some() {
            return None;
        }
        let shim = PRELOAD.text().value_of(ENV_PRELOAD)?;
        let colon: &[u8] = if value.is_empty() { b"" } else { b":" };
        let name = ENV_PRELOAD.as_bytes();
        Some(Self { replaces: found.map(|(index, _)| index), parts: [name, b"=", shim, colon, value] })
    }

    /// An entry without the shim, in place of `found`: index and value of the LD_PRELOAD in effect. `None`: there is no such
    /// entry, or no shim in it.
    fn without_shim(found: Option<(usize, &'static [u8])>) -> Option<Self> {
        let (index, value) = found?;
        let (before, after) = around_shim(value)?;
        let name = ENV_PRELOAD.as_bytes();
        Some(Self { replaces: Some(index), parts: [name, b"=", before, after, b""] })
    }

    /// The size of the text with its NUL, bytes.
    fn size(&self) -> usize {
        self.parts.iter().map(|part| part.len()).sum::<usize>() + 1
    }

    /// Writes the text and its NUL.
    ///
    /// # Safety
    /// `text` must have [`NewPreload::size`] bytes, none of them in one of the parts.
    unsafe fn write(&self, mut text: *mut u8) {
        // SAFETY: promised by the caller.
        unsafe {
            for part in self.parts {
                text.copy_from_nonoverlapping(part.as_ptr(), part.len());
                text = text.add(part.len());
            }
            text.write(0);
        }
    }
}

impl Repair {
    /// Finds how an environment is to be repaired. The session is added if its variable is missing. If there are several LD_PRELOADs,
    /// the last one is in effect. `None`: a pointer in it leads nowhere, so it is left to the kernel, which fails with EFAULT.
    ///
    /// # Safety
    /// As [`strings`]. The strings are read until the repaired environment has been used.
    unsafe fn new(environment: *const *const c_char, mut wanted: Wanted) -> Option<Self> {
        let (mut entries, mut has_session, mut preload) = (0, false, None);
        // SAFETY: promised by the caller.
        for entry in unsafe { strings(environment) } {
            let entry = entry?;
            match entry.first_byte() {
                b'G' => has_session |= entry.value_of(ENV_SESSION).is_some(),
                b'L' if entry.value_of(ENV_LIST).is_some() => wanted = Wanted::NoShim,
                b'L' => preload = entry.value_of(ENV_PRELOAD).map(|value| (entries, value)).or(preload),
                _ => {}
            }
            entries += 1;
        }
        let adds_session =
            !has_session && wanted != Wanted::NoShim && SESSION.text().value_of(ENV_SESSION).is_some();
        let preload = match wanted {
            Wanted::ShimAndSession => NewPreload::instead_of(preload),
            Wanted::SessionOnly | Wanted::NoShim => NewPreload::without_shim(preload),
        };
        Some(Self { entries, adds_session, preload })
    }

    /// The size of the new array and of the new LD_PRELOAD's text after it, bytes. The array has room for the old entries, two
    /// new ones, and the null.
    fn size(&self) -> usize {
        let array = (self.entries + 3) * size_of::<usize>();
        array + self.preload.as_ref().map_or(0, NewPreload::size)
    }

    /// Writes the repaired array: the old entries, the new ones, the null, then the text of the new LD_PRELOAD.
    ///
    /// # Safety
    /// `array` must have [`Repair::size`] bytes, and `old` be the environment that this repair is for.
    unsafe fn write(&self, old: *const *const c_char, array: *mut *const c_char) {
        // SAFETY: promised by the caller; `old` is not read if it has no entries.
        unsafe {
            if self.entries != 0 {
                array.copy_from_nonoverlapping(old, self.entries);
            }
            let mut end = array.add(self.entries);
            if self.adds_session {
                end.write(SESSION.as_ptr());
                end = end.add(1);
            }
            if let Some(preload) = &self.preload {
                let text = array.add(self.entries + 3).cast::<u8>();
                preload.write(text);
                match preload.replaces {
                    Some(index) => array.add(index).write(text.cast()),
                    None => {
                        end.write(text.cast());
                        end = end.add(1);
                    }
                }
            }
            end.write(ptr::null());
        }
    }
}

/// Calls one of libc's exec or spawn functions with an environment. A result of 0 is success.
type Call<'a> = &'a dyn Fn(*const *const c_char) -> c_int;

/// A counter of a segment.
type Counter = fn(&Header) -> &Line;

/// Makes the call with `environment`, or with a repaired copy if it needs a repair. `ask_visible` finds what the new program can
/// see; it is not called under a seccomp filter. A program that can't see the shim or the session, or does not get it because of a
/// filter, is counted, unless the call fails.
///
/// # Safety
/// `argv` and `environment` must be as for [`strings`].
pub(crate) unsafe fn with_repaired(
    argv: *const *const c_char,
    environment: *const *const c_char,
    ask_visible: fn() -> Visible,
    call: Call<'_>,
) -> c_int {
    let (wanted, counter): (_, Option<Counter>) = if !state::may_call_kernel() {
        (Wanted::NoShim, Some(|header| &header.filtered))
    } else if state::sessions().all(|header| header.flags & FLAG_NO_ENV_REPAIR != 0) {
        // This is the way without a session, too: `all` is true then.
        return call(environment);
        // SAFETY: promised by the caller.
    } else if shows_preloaded(unsafe { strings(argv) }.map_while(|word| word.map(Text::bytes))) {
        (Wanted::NoShim, None)
    } else {
        let visible = ask_visible();
        let wanted = if visible.shim { Wanted::ShimAndSession } else { Wanted::SessionOnly };
        let is_reachable = visible.shim && visible.session;
        (wanted, if is_reachable { None } else { Some(|header| &header.unreachable) })
    };
    // SAFETY: promised by the caller.
    let Some(repair) = (unsafe { Repair::new(environment, wanted) }) else { return call(environment) };
    // Counted before the call, since a successful exec does not return. Taken back below if it fails.
    add(counter, 1);
    // SAFETY: the repair is for this environment.
    let result = unsafe {
        if !repair.adds_session && repair.preload.is_none() {
            call(environment)
        } else if repair.size() <= MAX_STACK_BYTES {
            on_stack(&repair, environment, call)
        } else {
            in_mapping(&repair, environment, call)
        }
    };
    if result != 0 {
        add(counter, u64::MAX);
    }
    result
}

/// Adds to a counter in each session, modulo 2^64. `None`: there is nothing to count.
fn add(counter: Option<Counter>, number: u64) {
    if let Some(counter) = counter {
        state::sessions().for_each(|header| {
            counter(header).0.fetch_add(number, Ordering::Relaxed);
        });
    }
}

/// Prepares for execs under a seccomp filter, where no memory can be mapped: if the program's environment is too large for the stack,
/// makes the kept mapping large enough for it.
pub(crate) fn prepare_for_filter() {
    // SAFETY: libc's environment.
    let repair = unsafe { Repair::new(environ, Wanted::NoShim) };
    if let Some(bytes) = repair.map(|repair| repair.size())
        && bytes > MAX_STACK_BYTES
        && let Some(mapping) = Mapping::take(bytes)
    {
        mapping.give_back();
    }
}

/// Makes the call with the repaired environment on the stack. It is not inlined, so that only a call that needs the array pays for
/// it.
///
/// # Safety
/// `old` must be the environment that the repair is for, and [`Repair::size`] at most [`MAX_STACK_BYTES`].
#[inline(never)]
unsafe fn on_stack(repair: &Repair, old: *const *const c_char, call: Call<'_>) -> c_int {
    let mut array = MaybeUninit::<[*const c_char; MAX_STACK_BYTES / size_of::<usize>()]>::uninit();
    let array = array.as_mut_ptr().cast::<*const c_char>();
    // SAFETY: the caller checked the size.
    unsafe { repair.write(old, array) };
    call(array)
}

/// Makes the call with the repaired environment in a mapping. If there is no memory for that, the environment is not repaired.
///
/// # Safety
/// `old` must be the environment that the repair is for.
#[inline(never)]
unsafe fn in_mapping(repair: &Repair, old: *const *const c_char, call: Call<'_>) -> c_int {
    let Some(mapping) = Mapping::take(repair.size()) else { return call(old) };
    // SAFETY: the mapping is at least that large, page-aligned, and used by this thread alone.
    unsafe { repair.write(old, mapping.address.cast()) };
    let result = call(mapping.address.cast());
    mapping.give_back();
    result
}

/// Address of the kept mapping; 0: there is none yet.
static KEPT: AtomicUsize = AtomicUsize::new(0);
/// Size of the kept mapping, bytes.
static KEPT_BYTES: AtomicUsize = AtomicUsize::new(0);
/// The value of pthread_self of the thread that uses the kept mapping; 0 if it is free. A vfork child has the same
/// value as the parent thread that waits for it. So a mapping that the child took and did not free can be used by that thread and its
/// next child.
static OWNER: AtomicUsize = AtomicUsize::new(0);

/// Notes that no thread uses the kept mapping. Only a fork child may call this: the parent's other threads, one of which may have used
/// the mapping, do not exist there.
pub(crate) fn forget_owner() {
    OWNER.store(0, Ordering::Relaxed);
}

/// Memory for one environment: the kept mapping, or another one that is unmapped after use.
struct Mapping {
    address: *mut c_void,
    bytes: usize,
    is_kept: bool,
}

impl Mapping {
    /// Takes the kept mapping for this thread, or makes another one if another thread uses the kept one. A kept mapping that is too
    /// small is replaced. `None`: there is no memory, or getting it would need a system call that is not allowed.
    fn take(bytes: usize) -> Option<Self> {
        // SAFETY: takes no arguments.
        let thread = unsafe { libc::pthread_self() } as usize;
        // SYNC POINT: acquires what the last owner stored about the mapping.
        let is_kept = match OWNER.compare_exchange(0, thread, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => true,
            Err(owner) => owner == thread,
        };
        let is_large_enough = is_kept && KEPT_BYTES.load(Ordering::Relaxed) >= bytes;
        if !is_large_enough && !state::may_call_kernel() {
            if is_kept {
                OWNER.store(0, Ordering::Release);
            }
            return None;
        }
        if !is_kept {
            // Only a vfork child that execs successfully leaks this mapping.
            return sys::mmap(bytes, None).map(|address| Self { address, bytes, is_kept });
        }
        if !is_large_enough {
            let old = KEPT.load(Ordering::Relaxed) as *mut c_void;
            // SAFETY: this thread owns the mapping.
            unsafe { sys::munmap(old, KEPT_BYTES.load(Ordering::Relaxed)) };
            KEPT_BYTES.store(0, Ordering::Relaxed);
            let bytes = bytes.checked_next_multiple_of(MAPPING_UNIT_BYTES)?;
            let Some(address) = sys::mmap(bytes, None) else {
                OWNER.store(0, Ordering::Release);
                return None;
            };
            KEPT.store(address as usize, Ordering::Relaxed);
            KEPT_BYTES.store(bytes, Ordering::Relaxed);
        }
        Some(Self { address: KEPT.load(Ordering::Relaxed) as *mut c_void, bytes, is_kept })
    }

    /// Frees the kept mapping for other threads, or unmaps another mapping.
    fn give_back(self) {
        if self.is_kept {
            OWNER.store(0, Ordering::Release);
        } else {
            // SAFETY: the call that used it has returned.
            unsafe { sys::munmap(self.address, self.bytes) };
        }
    }
}

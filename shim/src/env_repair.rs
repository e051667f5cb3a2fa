//! Environment repair: an exec'd program gets the shim and the session back, if its environment lost them (`env -i`,
//! a hand-made envp). A foreign LD_PRELOAD is kept behind ours; every byte of the rest is kept. A 32-bit program is led to a
//! library of its own class (`elf32`).
//!
//! The new pointer array lies on the stack, up to 8 KiB. A larger one lies in a mapping that is kept and used again:
//! a vfork child that execs leaves no chance to unmap, and would leak into its parent.

use core::ffi::{c_char, c_int, c_void};
use core::mem::MaybeUninit;
use core::ptr;
use core::sync::atomic::{AtomicUsize, Ordering};

use gpu_track_abi::layout::FLAG_NO_ENV_REPAIR;
use gpu_track_abi::preload::{for_elf32, shim_in};
use gpu_track_abi::{ENV_PRELOAD, ENV_SESSION};

use crate::elf32::Program;
use crate::environment::{PRELOAD, SESSION, Strings, value_of};
use crate::{state, sys};

/// What an environment lacks.
struct Lack {
    entries: usize,
    session: bool,
    preload: Option<Preload>,
}

/// An LD_PRELOAD that is to be: the text that these make, in the place of an entry or in a new one.
struct Preload {
    place: Option<usize>,
    parts: [&'static [u8]; 7],
}

impl Preload {
    /// What must become of the LD_PRELOAD that counts, if anything: its place and value.
    fn instead_of(found: Option<(usize, &'static [u8])>, elf32: bool) -> Option<Self> {
        let value = found.map_or(&b""[..], |(_, value)| value);
        let narrow = |preload| if elf32 { for_elf32(preload) } else { None };
        let ([before, platform, after], rest) = if shim_in(value).is_some() {
            (narrow(value)?, &b""[..])
        } else {
            let own = value_of(PRELOAD.bytes(), ENV_PRELOAD)?;
            (narrow(own).unwrap_or([own, b"", b""]), value)
        };
        let colon: &[u8] = if rest.is_empty() { b"" } else { b":" };
        let name = ENV_PRELOAD.as_bytes();
        Some(Self {
            place: found.map(|(place, _)| place),
            parts: [name, b"=", before, platform, after, colon, rest],
        })
    }

    fn text(&self) -> impl Iterator<Item = &'static u8> {
        self.parts.into_iter().flatten().chain(b"\0")
    }
}

impl Lack {
    fn of(environment: Strings, elf32: bool) -> Self {
        let mut lack = Self { entries: 0, session: !SESSION.bytes().is_empty(), preload: None };
        let mut preload = None;
        for entry in environment.iter() {
            if value_of(entry, ENV_SESSION).is_some() {
                lack.session = false;
            } else if let Some(value) = value_of(entry, ENV_PRELOAD) {
                preload = Some((lack.entries, value));
            }
            lack.entries += 1;
        }
        lack.preload = Preload::instead_of(preload, elf32);
        lack
    }

    /// Bytes of the new array, with room for the new LD_PRELOAD behind it.
    fn size(&self) -> usize {
        let array = (self.entries + 3) * size_of::<usize>();
        array + self.preload.as_ref().map_or(0, |preload| preload.text().count())
    }

    /// # Safety
    /// `room` must have [`Lack::size`] bytes, and `old` be the environment that this is the lack of.
    unsafe fn fill(&self, old: *const *const c_char, room: *mut *const c_char) {
        // SAFETY: promised by the caller; `old` is not read where it has no entries.
        unsafe {
            for i in 0..self.entries {
                room.add(i).write(old.add(i).read());
            }
            let mut end = room.add(self.entries);
            if self.session {
                end.write(SESSION.pointer());
                end = end.add(1);
            }
            if let Some(preload) = &self.preload {
                let text = room.add(self.entries + 3).cast::<u8>();
                preload.text().enumerate().for_each(|(i, byte)| text.add(i).write(*byte));
                match preload.place {
                    Some(place) => room.add(place).write(text.cast()),
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

/// What is called with the environment: one of libc's exec functions, or of its spawns.
type Call<'a> = &'a dyn Fn(*const *const c_char) -> c_int;

/// Call with `environment`, or with a copy of it that is repaired for the `program` to be executed.
///
/// # Safety
/// `environment` must be null or an array of strings that ends with null, and `program` name one.
pub unsafe fn with_repaired(environment: *const *const c_char, program: Program, call: Call<'_>) -> c_int {
    if state::sessions().all(|header| header.flags & FLAG_NO_ENV_REPAIR != 0) {
        return call(environment);
    }
    // SAFETY: promised by the caller.
    let lack = unsafe { Lack::of(Strings::new(environment), program.is_elf32()) };
    if !lack.session && lack.preload.is_none() {
        return call(environment);
    }
    // SAFETY: the lack of this environment.
    unsafe {
        if lack.size() <= STACK_BYTES {
            on_stack(&lack, environment, call)
        } else {
            in_mapping(&lack, environment, call)
        }
    }
}

const STACK_BYTES: usize = 8192;

#[inline(never)]
unsafe fn on_stack(lack: &Lack, old: *const *const c_char, call: Call<'_>) -> c_int {
    let mut room = MaybeUninit::<[*const c_char; STACK_BYTES / size_of::<usize>()]>::uninit();
    let room = room.as_mut_ptr().cast::<*const c_char>();
    // SAFETY: the caller looked at the size.
    unsafe { lack.fill(old, room) };
    call(room)
}

#[inline(never)]
unsafe fn in_mapping(lack: &Lack, old: *const *const c_char, call: Call<'_>) -> c_int {
    let Some(room) = Room::take(lack.size()) else { return call(old) };
    // SAFETY: at least that large, page-aligned, and ours alone.
    unsafe { lack.fill(old, room.address.cast()) };
    let result = call(room.address.cast());
    room.give_back();
    result
}

/// The kept mapping, and whose it is: a value of pthread_self, which a vfork child has in common with the parent
/// thread that waits for it. So what a vfork child left taken is free again for that thread and its next child.
static KEPT: AtomicUsize = AtomicUsize::new(0);
static KEPT_BYTES: AtomicUsize = AtomicUsize::new(0);
static OWNER: AtomicUsize = AtomicUsize::new(0);

/// Fork child only: its parent's other threads are not here to give anything back.
pub fn forget_owner() {
    OWNER.store(0, Ordering::Relaxed);
}

struct Room {
    address: *mut c_void,
    bytes: usize,
    kept: bool,
}

impl Room {
    fn take(bytes: usize) -> Option<Self> {
        if !state::may_call() {
            return None;
        }
        // SAFETY: takes nothing.
        let me = unsafe { libc::pthread_self() } as usize;
        // Acquire: what the last owner stored about the mapping.
        let kept = match OWNER.compare_exchange(0, me, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => true,
            Err(owner) => owner == me,
        };
        if !kept {
            // Another thread is at it just now. Only a vfork child that execs successfully leaves this behind.
            return sys::mmap(bytes, None).map(|address| Self { address, bytes, kept });
        }
        if KEPT_BYTES.load(Ordering::Relaxed) < bytes {
            let old = KEPT.load(Ordering::Relaxed) as *mut c_void;
            // SAFETY: ours alone.
            unsafe { sys::munmap(old, KEPT_BYTES.load(Ordering::Relaxed)) };
            KEPT_BYTES.store(0, Ordering::Relaxed);
            let bytes = bytes.checked_next_multiple_of(1 << 16)?;
            let Some(address) = sys::mmap(bytes, None) else {
                OWNER.store(0, Ordering::Release);
                return None;
            };
            KEPT.store(address as usize, Ordering::Relaxed);
            KEPT_BYTES.store(bytes, Ordering::Relaxed);
        }
        Some(Self { address: KEPT.load(Ordering::Relaxed) as *mut c_void, bytes, kept })
    }

    fn give_back(self) {
        if self.kept {
            OWNER.store(0, Ordering::Release);
        } else {
            // SAFETY: the call that used it returned.
            unsafe { sys::munmap(self.address, self.bytes) };
        }
    }
}

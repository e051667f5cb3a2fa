//! Environment variables: libc's own array, those of others, and the entries that the constructor found.

use core::cell::UnsafeCell;
use core::ffi::{CStr, c_char};

use gpu_track_abi::preload::shim_in;
use gpu_track_abi::{ENV_PRELOAD, ENV_SESSION, MAX_PATH, MAX_SESSIONS};

unsafe extern "C" {
    /// libc's environment.
    pub static environ: *const *const c_char;
}

/// A NULL-terminated array of strings; a null array is an empty one, as for execve(2).
#[derive(Clone, Copy)]
pub struct Strings(*const *const c_char);

impl Strings {
    /// # Safety
    /// `array` must be null or an array of strings that ends with null, and outlive every use.
    pub unsafe fn new(array: *const *const c_char) -> Self {
        Self(array)
    }

    pub(crate) fn iter(self) -> impl Iterator<Item = &'static [u8]> {
        let mut next = self.0;
        core::iter::from_fn(move || {
            // SAFETY: promised to `new`; nothing is read behind the null.
            unsafe {
                let string = next.as_ref().copied().filter(|s| !s.is_null())?;
                next = next.add(1);
                Some(CStr::from_ptr(string).to_bytes())
            }
        })
    }

    /// The value of a variable; of several, the first one, as getenv(3) does it.
    pub fn first_value(self, name: &str) -> Option<&'static [u8]> {
        self.iter().find_map(|entry| value_of(entry, name))
    }

    /// The value of a variable; of several, the last one, as the dynamic linker does it.
    pub fn value(self, name: &str) -> Option<&'static [u8]> {
        self.iter().filter_map(|entry| value_of(entry, name)).last()
    }
}

pub(crate) fn value_of<'a>(entry: &'a [u8], name: &str) -> Option<&'a [u8]> {
    entry.strip_prefix(name.as_bytes())?.strip_prefix(b"=")
}

/// `NAME=value` with its NUL, written by the constructor; all zero if there is nothing to put back.
pub(crate) struct Entry<const N: usize>(UnsafeCell<[u8; N]>);

// SAFETY: written only by the constructor, before any other thread exists.
unsafe impl<const N: usize> Sync for Entry<N> {}

impl<const N: usize> Entry<N> {
    const fn new() -> Self {
        Self(UnsafeCell::new([0; N]))
    }

    pub(crate) fn bytes(&self) -> &'static [u8] {
        // SAFETY: never written again after the constructor; zero-filled, so it ends within N.
        unsafe { CStr::from_ptr(self.0.get().cast::<c_char>()) }.to_bytes()
    }

    pub(crate) fn pointer(&self) -> *const c_char {
        self.0.get().cast::<c_char>()
    }

    fn set(&self, name: &str, value: &[u8]) {
        if name.len() + 1 + value.len() + 1 > N {
            return;
        }
        // SAFETY: the constructor is alone.
        let room = unsafe { &mut *self.0.get() };
        let from = name.as_bytes().iter().chain(b"=").chain(value);
        room.iter_mut().zip(from).for_each(|(to, from)| *to = *from);
    }
}

pub(crate) static SESSION: Entry<{ ENV_SESSION.len() + 2 + MAX_SESSIONS * (MAX_PATH + 1) }> = Entry::new();
pub(crate) static PRELOAD: Entry<{ ENV_PRELOAD.len() + 2 + 255 }> = Entry::new();

/// Constructor only: what is to be put back.
pub fn remember(sessions: &[u8], preload: &[u8]) {
    SESSION.set(ENV_SESSION, sessions);
    if let Some(shim) = shim_in(preload) {
        PRELOAD.set(ENV_PRELOAD, shim);
    }
}

/// The segments' paths, as the session's variable lists them.
pub fn session_paths() -> impl Iterator<Item = &'static [u8]> {
    let list = value_of(SESSION.bytes(), ENV_SESSION).unwrap_or_default();
    list.split(|b| *b == b':')
}

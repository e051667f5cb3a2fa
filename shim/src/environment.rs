//! Environment variables: how they are read, and the two that the constructor keeps a copy of.

use core::cell::UnsafeCell;
use core::ffi::{CStr, c_char};
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use gpu_track_abi::preload::{around_shim, shim_in};
use gpu_track_abi::rank::{self, Rank};
use gpu_track_abi::task;
use gpu_track_abi::{ENV_PRELOAD, ENV_SESSION, MAX_PATH, MAX_SESSIONS};

unsafe extern "C" {
    /// libc's environment.
    pub(crate) static environ: *const *const c_char;
}

/// A NULL-terminated array of strings. A null array is an empty one, as for execve(2).
#[derive(Clone, Copy)]
pub(crate) struct Strings(*const *const c_char);

impl Strings {
    /// Wraps an array, of which nothing is read yet.
    ///
    /// # Safety
    /// `array` must be null or a null-terminated array of strings, and outlive every use.
    pub(crate) unsafe fn new(array: *const *const c_char) -> Self {
        Self(array)
    }

    /// The strings, up to the null.
    pub(crate) fn iter(self) -> impl Iterator<Item = Text> {
        let mut next = self.0;
        core::iter::from_fn(move || {
            // SAFETY: promised to `new`; nothing is read after the null.
            unsafe {
                let string = next.as_ref().copied().filter(|s| !s.is_null())?;
                next = next.add(1);
                Some(Text(string))
            }
        })
    }

    /// Reads what the constructor needs, in one pass: the session's variable, LD_PRELOAD, and the variables of ranks and
    /// tasks. Most other entries are skipped by their first two letters.
    pub(crate) fn start_values(self) -> StartValues {
        let mut values = StartValues::default();
        for entry in self.iter() {
            match entry.first_two() {
                [b'G', b'P'] => values.sessions = entry.value_of(ENV_SESSION).or(values.sessions),
                [b'L', b'D'] => values.preload = entry.value_of(ENV_PRELOAD).or(values.preload),
                // OMPI_, PMI_, PMIX_; FLUX_; RANK, MASTER_PORT; WORLD_SIZE, LOCAL_RANK
                [b'O' | b'P', b'M'] | [b'F', b'L'] | [b'R' | b'M', b'A'] | [b'W' | b'L', b'O'] => {
                    values.note_rank(entry);
                }
                // NXF_; PARALLEL_, PYTEST_
                [b'N', b'X'] | [b'P', b'A' | b'Y'] => values.note_task(entry),
                // SLURM_
                [b'S', b'L'] => values.note_slurm(entry),
                _ => {}
            }
        }
        values
    }

    /// The value of the first entry of this name, as getenv(3) finds it.
    pub(crate) fn value(self, name: &[u8]) -> Option<&'static [u8]> {
        self.iter().find_map(|entry| entry.value_of(name))
    }
}

/// Values of the environment variables that the constructor needs. `None`: the variable is not set.
#[derive(Default)]
pub(crate) struct StartValues {
    /// The paths of the segments. If several entries have this name, the last one counts, as it does for the dynamic linker.
    pub sessions: Option<&'static [u8]>,
    /// LD_PRELOAD. The last entry counts here, too.
    pub preload: Option<&'static [u8]>,
    /// The values of [`rank::VARIABLES`]. The first entry of a name counts.
    ranks: [Option<&'static [u8]>; rank::VARIABLES.len()],
    /// The values of [`task::VARIABLES`], as in `ranks`.
    pub tasks: [Option<&'static [u8]>; task::VARIABLES.len()],
}

impl StartValues {
    /// Takes in an entry that may be a variable of ranks.
    fn note_rank(&mut self, entry: Text) {
        for (value, name) in self.ranks.iter_mut().zip(rank::VARIABLES) {
            *value = value.or_else(|| entry.value_of(name));
        }
    }

    /// Takes in an entry that may be a variable of tasks.
    fn note_task(&mut self, entry: Text) {
        for (value, name) in self.tasks.iter_mut().zip(task::VARIABLES) {
            *value = value.or_else(|| entry.value_of(name));
        }
    }

    /// Takes in an entry that may be Slurm's. A step has some hundred of them, and the byte after `SLURM_` rules out most.
    fn note_slurm(&mut self, entry: Text) {
        let Some(rest) = entry.after(SLURM) else { return };
        if !matches!(rest.first_byte(), b'J' | b'P' | b'S') {
            return;
        }
        let of_ranks = self.ranks.iter_mut().zip(rank::VARIABLES).skip(rank::FIRST_OF_SLURM);
        let of_ranks = of_ranks.take(rank::VARIABLES_OF_WAY);
        let of_tasks = self.tasks.iter_mut().zip(task::VARIABLES).take(task::VARIABLES_OF_SLURM);
        for (value, name) in of_ranks.chain(of_tasks) {
            let name = name.as_bytes().get(SLURM.len()..).unwrap_or_default();
            *value = value.or_else(|| rest.value_of(name));
        }
    }

    /// The process's rank, by the first way in which the environment names one. Without one, [`Rank::count`] is 0.
    pub(crate) fn rank(&self) -> Rank {
        rank::ranks(&self.ranks).into_iter().flatten().next().unwrap_or_default()
    }
}

/// What the names of Slurm's variables begin with.
const SLURM: &[u8] = b"SLURM_";

/// One string of an environment, or of arguments. Its length is not known, because only few strings need to be read to their end.
#[derive(Clone, Copy)]
pub(crate) struct Text(*const c_char);

impl Text {
    /// Wraps a string, of which nothing is read yet.
    ///
    /// # Safety
    /// `string` must be a string, and outlive every use.
    pub(crate) unsafe fn new(string: *const c_char) -> Self {
        Self(string)
    }

    /// All bytes without the NUL.
    pub(crate) fn bytes(self) -> &'static [u8] {
        // SAFETY: promised to `new`.
        unsafe { CStr::from_ptr(self.0) }.to_bytes()
    }

    /// The first byte, which is the NUL of an empty string.
    pub(crate) fn first_byte(self) -> u8 {
        // SAFETY: a string has at least its NUL.
        unsafe { self.0.cast::<u8>().read() }
    }

    /// The first two bytes. Those of an empty string are NULs.
    fn first_two(self) -> [u8; 2] {
        match self.first_byte() {
            0 => [0; 2],
            // SAFETY: the first byte is not the NUL, so there is another one.
            first => [first, unsafe { self.0.cast::<u8>().add(1).read() }],
        }
    }

    /// The value, if this is `NAME=value` with this name. No entry has a name with a NUL.
    pub(crate) fn value_of(self, name: impl AsRef<[u8]>) -> Option<&'static [u8]> {
        Some(self.after(name.as_ref())?.after(b"=")?.bytes())
    }

    /// What follows these bytes, if the string begins with them. `None`: it does not, or one of them is a NUL.
    fn after(self, start: &[u8]) -> Option<Self> {
        let mut at = self.0.cast::<u8>();
        for wanted in start {
            // SAFETY: all bytes before were those of `start` and no NULs, so none of them was the string's end.
            unsafe {
                if *wanted == 0 || at.read() != *wanted {
                    return None;
                }
                at = at.add(1);
            }
        }
        // What is left is the end of the string, with its NUL.
        Some(Self(at.cast()))
    }
}

/// Memory for `NAME=value` and its NUL, which the constructor writes. It stays all zero if the variable is not set or too long.
pub(crate) struct Entry<const N: usize>(UnsafeCell<[u8; N]>);

// SAFETY: only the constructor writes it, before any other thread exists.
unsafe impl<const N: usize> Sync for Entry<N> {}

impl<const N: usize> Entry<N> {
    const fn new() -> Self {
        Self(UnsafeCell::new([0; N]))
    }

    /// The entry as a string. It is not written after the constructor, and its last byte is zero.
    pub(crate) fn text(&self) -> Text {
        Text(self.as_ptr())
    }

    /// The address of the entry, for an environment array.
    pub(crate) fn as_ptr(&self) -> *const c_char {
        self.0.get().cast::<c_char>()
    }

    /// Writes `NAME=value`. If that is too long, writes nothing.
    fn set(&self, name: &str, value: &[u8]) {
        if name.len() + 1 + value.len() + 1 > N {
            return;
        }
        // SAFETY: only the constructor calls this; no other reference exists yet.
        let entry = unsafe { &mut *self.0.get() };
        let from = name.as_bytes().iter().chain(b"=").chain(value);
        entry.iter_mut().zip(from).for_each(|(to, from)| *to = *from);
    }
}

/// The session variable as the process was started with.
pub(crate) static SESSION: Entry<{ ENV_SESSION.len() + 2 + MAX_SESSIONS * (MAX_PATH + 1) }> = Entry::new();
/// `LD_PRELOAD=` and the path of the shim alone, at most 255 bytes.
pub(crate) static PRELOAD: Entry<{ ENV_PRELOAD.len() + 2 + 255 }> = Entry::new();

/// Address of the value of LD_PRELOAD with which the process was started.
static PRELOAD_AT_START: AtomicUsize = AtomicUsize::new(0);

/// Keeps copies of the session variable's value, and of the shim's path in LD_PRELOAD. Only the constructor may call this.
pub(crate) fn remember(sessions: &[u8], preload: &[u8]) {
    SESSION.set(ENV_SESSION, sessions);
    if let Some(shim) = shim_in(preload) {
        PRELOAD.set(ENV_PRELOAD, shim);
    }
    PRELOAD_AT_START.store(preload.as_ptr().addr(), Relaxed);
}

/// The length of that value before [`hide_shim`] shortened it, bytes; 0: the shim is not hidden.
static LENGTH_BEFORE_HIDING: AtomicUsize = AtomicUsize::new(0);

/// The value of LD_PRELOAD in effect, if it is the one with which the process was started. The kernel has put that on the stack, so it
/// can be written, at the returned address. A value that the program has set itself may be a constant.
fn writable_preload() -> Option<(*mut u8, &'static [u8])> {
    // SAFETY: libc's environment.
    let environment = unsafe { Strings::new(environ) };
    let last = environment.iter().filter_map(|entry| Some((entry, entry.value_of(ENV_PRELOAD)?))).last();
    let (entry, value) = last.filter(|(_, value)| value.as_ptr().addr() == PRELOAD_AT_START.load(Relaxed))?;
    // SAFETY: the value follows the name and `=`.
    let address = unsafe { entry.0.cast_mut().cast::<u8>().add(ENV_PRELOAD.len() + 1) };
    Some((address, value))
}

/// Takes the shim out of the program's own environment, where the programs that inherit it would be harmed. This is for libc's
/// `system` and `popen`, which start programs without passing a hook. The hooked functions put it back where it does no harm.
pub(crate) fn hide_shim() {
    if let Some((address, value)) = writable_preload()
        && let Some((before, after)) = around_shim(value)
    {
        LENGTH_BEFORE_HIDING.store(value.len(), Relaxed);
        let (to, from, length) = (before.len(), value.len() - after.len(), after.len() + 1);
        // SAFETY: what is after the shim moves to its place, with the NUL, within the value.
        unsafe { address.add(to).copy_from(address.add(from), length) };
    }
}

/// Undoes [`hide_shim`]. The shim is first then, as where [`crate::env_repair`] adds it.
#[cold]
pub(crate) fn show_shim() {
    let length = LENGTH_BEFORE_HIDING.swap(0, Relaxed);
    let shim = PRELOAD.text().value_of(ENV_PRELOAD).unwrap_or_default();
    let Some((address, rest)) = writable_preload() else { return };
    let separator: &[u8] = if rest.is_empty() { b"" } else { b":" };
    // True if the shim is not hidden, or the program has lengthened the value since.
    if shim.is_empty() || shim.len() + separator.len() + rest.len() > length {
        return;
    }
    let rest_bytes = rest.len() + 1;
    // SAFETY: the value had at least this length before, and a NUL. The rest moves with its NUL behind the shim.
    unsafe {
        address.add(shim.len() + separator.len()).copy_from(address, rest_bytes);
        address.add(shim.len()).copy_from_nonoverlapping(separator.as_ptr(), separator.len());
        address.copy_from_nonoverlapping(shim.as_ptr(), shim.len());
    }
}

/// The paths of the segments, the outermost session's first.
pub(crate) fn session_paths() -> impl Iterator<Item = &'static [u8]> {
    let list = SESSION.text().value_of(ENV_SESSION).unwrap_or_default();
    list.split(|b| *b == b':')
}

//! The variables by which an MPI launcher starts agents on other nodes. They are added to the environment of such a launcher alone: other
//! programs could hand them on to a batch job that they submit, where Open MPI would start its daemons without a shell.

use core::ffi::c_char;
use core::ptr;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use gpu_track_abi::layout::{Header, NODES_BY_MPI, NODES_BY_SSH};
use gpu_track_abi::mpi::{MOST, is_mpi_launcher, is_wanted};

use crate::environment::Text;
use crate::readable::strings;
use crate::state;

/// The longest name of a variable, bytes.
const MOST_NAME_BYTES: usize = 64;

/// The variables that an environment gets, as pointers into the header of a session.
pub(crate) struct Added {
    entries: [*const c_char; MOST],
    count: usize,
}

impl Added {
    pub(crate) const NONE: Self = Self { entries: [ptr::null(); MOST], count: 0 };

    /// Finds what a program with these arguments and this environment gets. Has the program's own programs tell the launcher before one
    /// starts an agent.
    ///
    /// # Safety
    /// `argv` and `environment` must be as for [`strings`], until the environment has been used.
    pub(crate) unsafe fn new(argv: *const *const c_char, environment: *const *const c_char) -> Self {
        // SAFETY: promised by the caller.
        let first = unsafe { strings(argv) }.next().flatten();
        if first.is_some_and(|program| is_mpi_launcher(program.bytes())) {
            // SAFETY: promised by the caller.
            unsafe { Self::for_launcher(argv, environment) }
        } else {
            Self::NONE
        }
    }

    /// As [`Self::new`], for an MPI launcher.
    ///
    /// # Safety
    /// As [`Self::new`].
    #[cold]
    unsafe fn for_launcher(argv: *const *const c_char, environment: *const *const c_char) -> Self {
        // SAFETY: promised by the caller.
        let arguments = || unsafe { strings(argv) }.map_while(|word| word.map(Text::bytes));
        // SAFETY: promised by the caller.
        let value = |name: &[u8]| unsafe { strings(environment) }.find_map(|entry| entry?.value_of(name));
        // The outermost session's, since its launcher has agents on all nodes.
        let Some(header) = state::sessions().find(|header| has_any(header)) else { return Self::NONE };
        let mut added = Self::NONE;
        let mut at = 0;
        while let Some((name, end)) = variable_at(header, at) {
            let is_new = is_wanted(name.bytes(), arguments, value);
            if is_new && let Some(entry) = added.entries.get_mut(added.count) {
                let text = header.nodes_environment.as_ptr().cast::<c_char>();
                // SAFETY: `at` is within the array.
                *entry = unsafe { text.add(at) };
                added.count += 1;
            }
            at = end + 1;
        }
        if added.count != 0 {
            let _ = header.nodes.compare_exchange(NODES_BY_MPI, NODES_BY_SSH, Release, Relaxed);
        }
        added
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The variables.
    pub(crate) fn entries(&self) -> &[*const c_char] {
        self.entries.get(..self.count).unwrap_or_default()
    }
}

/// Whether a session has such variables.
fn has_any(header: &Header) -> bool {
    matches!(header.nodes.load(Acquire), NODES_BY_MPI | NODES_BY_SSH) && header.is_open()
}

/// The beginning of a variable's name.
struct Name {
    bytes: [u8; MOST_NAME_BYTES],
    length: usize,
}

impl Name {
    fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }
}

/// The name of the variable at this place of a session's header, and the place of its NUL. `None`: there is none. The name is copied,
/// since every tracked process can write the header.
fn variable_at(header: &Header, at: usize) -> Option<(Name, usize)> {
    let byte = |at: usize| header.nodes_environment.get(at).map(|byte| byte.load(Relaxed));
    let mut name = Name { bytes: [0; MOST_NAME_BYTES], length: 0 };
    let mut is_name = true;
    let mut end = at;
    loop {
        match byte(end)? {
            0 if end == at => return None,
            0 => return Some((name, end)),
            b'=' => is_name = false,
            letter if is_name => {
                *name.bytes.get_mut(name.length)? = letter;
                name.length += 1;
            }
            _ => {}
        }
        end += 1;
    }
}

//! The next definition of each hooked function, and libc functions that not every libc has.
//!
//! `dlsym` is not async-signal-safe, may allocate, and would make the shim need glibc 2.34. So the constructor searches the objects
//! after this library, once, by their own hash tables (System V gABI "Hash Table"; DT_GNU_HASH as in glibc's dl-lookup.c).

use core::ffi::{CStr, c_char, c_int, c_long, c_ulong, c_void};
use core::marker::PhantomData;
use core::mem::transmute_copy;
use core::ptr;
use core::sync::atomic::{
    AtomicBool, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};

use crate::{state, sys};

/// A function to find. Its address is the first field, because assembly jumps through it.
#[repr(C)]
pub(crate) struct Symbol<F> {
    entry: Entry,
    signature: PhantomData<F>,
}

/// A symbol to find, by name and kind.
#[repr(C)]
struct Entry {
    /// Its address; 0: not found.
    address: AtomicUsize,
    /// The hash of its name in DT_GNU_HASH.
    gnu_hash: u32,
    /// STT_FUNC or STT_OBJECT.
    kind: u8,
    name: &'static CStr,
}

impl Entry {
    const fn new(name: &'static CStr, kind: u8) -> Self {
        Self { address: AtomicUsize::new(0), gnu_hash: gnu_hash(name), kind, name }
    }
}

impl<F: Copy> Symbol<F> {
    const fn new(name: &'static CStr) -> Self {
        Self { entry: Entry::new(name, STT_FUNC), signature: PhantomData }
    }

    /// The function. `None`: no object after this one defines it.
    #[inline]
    pub(crate) fn get(&self) -> Option<F> {
        const { assert!(size_of::<Option<F>>() == size_of::<usize>()) };
        // Constructors of other libraries may run before ours and call a hook.
        // SYNC POINT: a thread that sees this flag sees the addresses.
        if !RESOLVED.load(Acquire) {
            resolve();
        }
        let address = self.entry.address.load(Relaxed);
        // SAFETY: F is a function pointer, so None is the null address. It is the type that libc declares for the name.
        unsafe { transmute_copy::<usize, Option<F>>(&address) }
    }
}

type Argv = *const *const c_char;
/// The type that the libc crate declares for the same parameter of some functions.
type MutArgv = *const *mut c_char;
type Spawn<Out> = unsafe extern "C" fn(
    *mut Out,
    *const c_char,
    *const libc::posix_spawn_file_actions_t,
    *const libc::posix_spawnattr_t,
    MutArgv,
    MutArgv,
) -> c_int;

/// Declares a [`Symbol`] for each function, and the list of all. If a function is `in libc`, the compiler compares its signature with
/// the one that the libc crate declares.
macro_rules! symbols {
    ($($symbol:ident = $name:ident $(in $libc:ident)?: $signature:ty;)*) => {
        $(#[doc = concat!("The next `", stringify!($name), "`.")]
        pub(crate) static $symbol: Symbol<$signature> = Symbol::new(c_str(concat!(stringify!($name), "\0")));
        $(const _: $signature = $libc::$name;)?)*
        static ALL: &[&Entry] = &[$(&$symbol.entry),*];
    };
}

/// Fails to compile if the text does not end with its only NUL.
const fn c_str(text: &'static str) -> &'static CStr {
    match CStr::from_bytes_with_nul(text.as_bytes()) {
        Ok(name) => name,
        Err(_) => panic!(),
    }
}

symbols! {
    WAIT4 = wait4 in libc: unsafe extern "C" fn(c_int, *mut c_int, c_int, *mut libc::rusage) -> c_int;
    WAITID = waitid in libc: unsafe extern "C" fn(libc::idtype_t, libc::id_t, *mut libc::siginfo_t, c_int) -> c_int;
    UNDERSCORE_EXIT = _exit in libc: unsafe extern "C" fn(c_int) -> !;
    QUICK_EXIT = quick_exit: unsafe extern "C" fn(c_int) -> !;
    UNDERSCORE_FORK = _Fork: unsafe extern "C" fn() -> c_int;
    EXECV = execv in libc: unsafe extern "C" fn(*const c_char, Argv) -> c_int;
    EXECVE = execve in libc: unsafe extern "C" fn(*const c_char, Argv, Argv) -> c_int;
    EXECVP = execvp in libc: unsafe extern "C" fn(*const c_char, Argv) -> c_int;
    EXECVPE = execvpe in libc: unsafe extern "C" fn(*const c_char, Argv, Argv) -> c_int;
    FEXECVE = fexecve in libc: unsafe extern "C" fn(c_int, Argv, Argv) -> c_int;
    EXECVEAT = execveat in libc: unsafe extern "C" fn(c_int, *const c_char, MutArgv, MutArgv, c_int) -> c_int;
    POSIX_SPAWN = posix_spawn in libc: Spawn<libc::pid_t>;
    POSIX_SPAWNP = posix_spawnp in libc: Spawn<libc::pid_t>;
    PIDFD_SPAWN = pidfd_spawn: Spawn<c_int>;
    PIDFD_SPAWNP = pidfd_spawnp: Spawn<c_int>;
    PRCTL = prctl: unsafe extern "C" fn(c_int, usize, usize, usize, usize) -> c_int;
    SYSCALL = syscall: unsafe extern "C" fn(c_long, usize, usize, usize, usize, usize, usize) -> c_long;
    ON_EXIT = on_exit: unsafe extern "C" fn(extern "C" fn(c_int, *mut c_void), *mut c_void) -> c_int;
    AT_QUICK_EXIT = __cxa_at_quick_exit: unsafe extern "C" fn(extern "C" fn(*mut c_void), *mut c_void) -> c_int;
    REGISTER_ATFORK = __register_atfork: unsafe extern "C" fn(
        Option<extern "C" fn()>, Option<extern "C" fn()>, Option<extern "C" fn()>, *mut c_void) -> c_int;
    PTHREAD_ATFORK = pthread_atfork in libc: unsafe extern "C" fn(
        Option<unsafe extern "C" fn()>, Option<unsafe extern "C" fn()>, Option<unsafe extern "C" fn()>) -> c_int;
    GETAUXVAL = getauxval in libc: unsafe extern "C" fn(c_ulong) -> c_ulong;
    GLIBC_VERSION = gnu_get_libc_version in libc: unsafe extern "C" fn() -> *const c_char;
}

/// The vDSO's clock_gettime: no system call, and not intercepted by a library such as faketime.
static VDSO_CLOCK: Symbol<unsafe extern "C" fn(libc::clockid_t, *mut libc::timespec) -> c_int> =
    Symbol::new(if cfg!(target_arch = "aarch64") {
        c"__kernel_clock_gettime"
    } else {
        c"__vdso_clock_gettime"
    });

/// The loader's list of objects for debuggers. musl has none by this name.
static LOADER_LIST: Entry = Entry::new(c"_r_debug", STT_OBJECT);

/// The address of the loader's list of objects; `None`: this libc has none.
pub(crate) fn loader_list() -> Option<usize> {
    let address = LOADER_LIST.address.load(Relaxed);
    (address != 0).then_some(address)
}

/// Whether [`resolve`] has run.
static RESOLVED: AtomicBool = AtomicBool::new(false);

/// Finds the addresses of all symbols. A second call changes nothing.
#[cold]
#[inline(never)]
pub(crate) fn resolve() {
    let mut seen_self = false;
    // SAFETY: the callback casts its argument back to a bool and keeps no pointer to it.
    unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut seen_self).cast()) };
    RESOLVED.store(true, Release);
}

/// The effective user with which the process was started. The kernel puts it into each program's auxiliary vector, so it takes
/// no system call; before glibc 2.16 no function reads that.
pub(crate) fn effective_user() -> u32 {
    match GETAUXVAL.get() {
        // SAFETY: libc's function takes a number.
        Some(getauxval) => unsafe { getauxval(libc::AT_EUID) as u32 },
        None => sys::geteuid(),
    }
}

/// Reads a clock as clock_gettime(2) does, nanoseconds; 0 if there is no vDSO and system calls are not allowed. (Where the
/// machine's clock can't be read in user mode, as with the clock source hpet, the vDSO itself makes the system call. Nothing tells that
/// beforehand. CLOCK_MONOTONIC_COARSE never needs one, but orders records wrongly.)
pub(crate) fn clock_ns(clock: libc::clockid_t) -> u64 {
    match VDSO_CLOCK.get() {
        Some(clock_gettime) => {
            let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
            // SAFETY: the function writes one timespec.
            unsafe { clock_gettime(clock, &raw mut time) };
            time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
        }
        None if state::may_call_kernel() => sys::clock_ns(clock),
        None => 0,
    }
}

/// The hash of DT_GNU_HASH (Bernstein's, glibc's dl_new_hash).
const fn gnu_hash(name: &CStr) -> u32 {
    let bytes = name.to_bytes();
    let (mut hash, mut i) = (5381u32, 0);
    while i < bytes.len() {
        hash = hash.wrapping_mul(33).wrapping_add(bytes[i] as u32);
        i += 1;
    }
    hash
}

/// The hash of DT_HASH (System V gABI).
fn sysv_hash(name: &CStr) -> u32 {
    name.to_bytes().iter().fold(0u32, |hash, byte| {
        let hash = (hash << 4).wrapping_add(u32::from(*byte));
        let high = hash & 0xf000_0000;
        (hash ^ (high >> 24)) & !high
    })
}

/// Searches one loaded object: for all symbols if it comes after this library, else for the vDSO's only. dl_iterate_phdr calls this
/// for each object. The result of 0 makes it go on. `_size`, the size of `info`, is not needed: every libc has the fields that are
/// read here.
unsafe extern "C" fn visit(info: *mut libc::dl_phdr_info, _size: usize, seen_self: *mut c_void) -> c_int {
    // SAFETY: the loader passes a valid info, and `resolve` a bool.
    let (info, seen_self) = unsafe { (&*info, &mut *seen_self.cast::<bool>()) };
    // SAFETY: the loader passes the address and number of the program headers.
    let headers = unsafe { core::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum as usize) };
    let base = info.dlpi_addr as usize;
    let own_address = ptr::from_ref(&RESOLVED) as usize;
    let is_self = headers.iter().any(|h| {
        let start = base.wrapping_add(h.p_vaddr as usize);
        h.p_type == libc::PT_LOAD && (start..start.wrapping_add(h.p_memsz as usize)).contains(&own_address)
    });
    if is_self {
        *seen_self = true;
        return 0;
    }
    let Some(dynamic) = headers.iter().find(|h| h.p_type == libc::PT_DYNAMIC) else { return 0 };
    // SAFETY: the dynamic section of a loaded object is mapped and ends with DT_NULL.
    let Some(tables) = (unsafe { Tables::new(base, dynamic.p_vaddr as usize) }) else { return 0 };
    // Every object is searched for the vDSO's function: the vDSO comes before preloaded libraries, and no other object defines it.
    tables.fill(&VDSO_CLOCK.entry);
    if *seen_self {
        ALL.iter().for_each(|entry| tables.fill(entry));
        tables.fill(&LOADER_LIST);
    }
    0
}

/// The symbol table of a loaded ELF object, and its indexes (elf(5)).
struct Tables {
    base: usize,
    symbols: *const Elf64Sym,
    strings: *const c_char,
    versions: *const u16,
    gnu_hash: *const u32,
    sysv_hash: *const u32,
}

#[repr(C)]
struct Elf64Sym {
    name: u32,
    info: u8,
    other: u8,
    section: u16,
    value: u64,
    size: u64,
}

// elf.h.
const DT_NULL: usize = 0;
const DT_HASH: usize = 4;
const DT_STRTAB: usize = 5;
const DT_SYMTAB: usize = 6;
const DT_GNU_HASH: usize = 0x6fff_fef5;
const DT_VERSYM: usize = 0x6fff_fff0;
const SHN_UNDEF: u16 = 0;
const STT_OBJECT: u8 = 1;
const STT_FUNC: u8 = 2;
/// Bit of a DT_VERSYM entry: not the default version of the symbol, kept for programs that were linked with it.
const VERSION_HIDDEN: u16 = 0x8000;

impl Tables {
    /// Finds the tables of an object by its dynamic section. `None`: the object has no symbols.
    ///
    /// # Safety
    /// `base + dynamic` must be the dynamic section of a loaded object.
    unsafe fn new(base: usize, dynamic: usize) -> Option<Self> {
        let mut tables = Self {
            base,
            symbols: ptr::null(),
            strings: ptr::null(),
            versions: ptr::null(),
            gnu_hash: ptr::null(),
            sysv_hash: ptr::null(),
        };
        let mut entry = base.wrapping_add(dynamic) as *const [usize; 2];
        loop {
            // SAFETY: promised by the caller; the section ends with DT_NULL.
            let [tag, value] = unsafe { entry.read() };
            // glibc relocates these addresses in place. musl does not, and in the read-only vDSO no libc does.
            let address = if value < base { base.wrapping_add(value) } else { value };
            match tag {
                DT_NULL => break,
                DT_SYMTAB => tables.symbols = address as *const Elf64Sym,
                DT_STRTAB => tables.strings = address as *const c_char,
                DT_VERSYM => tables.versions = address as *const u16,
                DT_GNU_HASH => tables.gnu_hash = address as *const u32,
                DT_HASH => tables.sysv_hash = address as *const u32,
                _ => {}
            }
            entry = entry.wrapping_add(1);
        }
        (!tables.symbols.is_null() && !tables.strings.is_null()).then_some(tables)
    }

    /// Stores the address of the entry's symbol, if this object defines it and no earlier object did.
    fn fill(&self, entry: &Entry) {
        if entry.address.load(Relaxed) != 0 {
            return;
        }
        // SAFETY: the tables of a loaded object are consistent; the loader itself relies on them.
        let found =
            unsafe { if self.gnu_hash.is_null() { self.find_sysv(entry) } else { self.find_gnu(entry) } };
        if let Some(address) = found {
            entry.address.store(address, Relaxed);
        }
    }

    /// Finds the address of an entry's symbol by DT_GNU_HASH. Its Bloom filter excludes most names that the object does not define.
    /// `None`: the object does not define the symbol.
    ///
    /// # Safety
    /// The object's tables must be consistent, and include DT_GNU_HASH.
    unsafe fn find_gnu(&self, entry: &Entry) -> Option<usize> {
        let hash = entry.gnu_hash;
        // SAFETY: the table is a header of four words, a Bloom filter of 64-bit words, buckets, and chains of hashes. A
        // chain's last hash is odd. Indexes that come from the table stay within it.
        unsafe {
            let [buckets, first, bloom_words, bloom_shift] = self.gnu_hash.cast::<[u32; 4]>().read();
            let bloom = self.gnu_hash.add(4).cast::<u64>();
            let word = bloom.add(((hash / 64) & bloom_words.wrapping_sub(1)) as usize).read_unaligned();
            let both_bits = (1u64 << (hash % 64)) | (1u64 << (hash.wrapping_shr(bloom_shift) % 64));
            if word & both_bits != both_bits {
                return None;
            }
            let bucket = bloom.add(bloom_words as usize).cast::<u32>();
            let mut index = bucket.add(hash.checked_rem(buckets)? as usize).read();
            let chain = bucket.add(buckets as usize);
            if index < first {
                return None;
            }
            loop {
                let other = chain.add((index - first) as usize).read();
                if other | 1 == hash | 1
                    && let Some(address) = self.definition_at(index, entry)
                {
                    return Some(address);
                }
                if other & 1 == 1 {
                    return None;
                }
                index = index.wrapping_add(1);
            }
        }
    }

    /// Finds the address of an entry's symbol by DT_HASH. `None`: the object does not define the symbol, or has no such table.
    ///
    /// # Safety
    /// The object's tables must be consistent.
    unsafe fn find_sysv(&self, entry: &Entry) -> Option<usize> {
        if self.sysv_hash.is_null() {
            return None;
        }
        // SAFETY: the table is two counts, buckets, and chains that end with 0. Indexes from it stay within it.
        unsafe {
            let [buckets, _] = self.sysv_hash.cast::<[u32; 2]>().read();
            let bucket = self.sysv_hash.add(2);
            let chain = bucket.add(buckets as usize);
            let mut index = bucket.add(sysv_hash(entry.name).checked_rem(buckets)? as usize).read();
            while index != 0 {
                if let Some(address) = self.definition_at(index, entry) {
                    return Some(address);
                }
                index = chain.add(index as usize).read();
            }
            None
        }
    }

    /// The address of symbol `index`, if it is the default version of a definition with the entry's name and kind.
    ///
    /// # Safety
    /// `index` must be in the symbol table.
    unsafe fn definition_at(&self, index: u32, entry: &Entry) -> Option<usize> {
        // SAFETY: promised by the caller. Names are NUL-terminated strings in the string table.
        unsafe {
            let symbol = &*self.symbols.add(index as usize);
            let is_hidden =
                !self.versions.is_null() && self.versions.add(index as usize).read() & VERSION_HIDDEN != 0;
            // The low half of `info` is the type (ELF64_ST_TYPE).
            let is_defined = symbol.section != SHN_UNDEF && symbol.value != 0;
            let is_wanted = is_defined && !is_hidden && symbol.info & 0xf == entry.kind;
            if !is_wanted || CStr::from_ptr(self.strings.add(symbol.name as usize)) != entry.name {
                return None;
            }
            Some(self.base.wrapping_add(symbol.value as usize))
        }
    }
}

/// Whether the libc is a glibc of at least this minor version (2.`minor`).
pub(crate) fn glibc_at_least(minor: u32) -> bool {
    let Some(version) = GLIBC_VERSION.get() else { return false };
    // SAFETY: the function takes no arguments and returns a static string such as "2.36".
    let version = unsafe { CStr::from_ptr(version()) }.to_bytes();
    let digits = version.strip_prefix(b"2.").unwrap_or_default();
    digits
        .iter()
        .take_while(|b| b.is_ascii_digit())
        .fold(0u32, |n, b| n.wrapping_mul(10) + u32::from(b - b'0'))
        >= minor
}

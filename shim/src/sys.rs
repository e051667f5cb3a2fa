//! System calls without libc: they leave errno alone, are no cancellation points, and pass by whatever other
//! preloaded libraries interpose.

use core::ffi::{CStr, c_char, c_int, c_long, c_void};
use core::mem::{MaybeUninit, size_of};
use core::sync::atomic::AtomicU32;

/// Issue a system call; an error comes back as -errno.
///
/// # Safety
/// The arguments must be what the kernel expects of this call.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub unsafe fn call(number: c_long, args: [usize; 6]) -> isize {
    let result: isize;
    // SAFETY: the kernel's calling convention; it clobbers rcx and r11 only.
    unsafe {
        core::arch::asm!("syscall", inlateout("rax") number as isize => result,
            in("rdi") args[0], in("rsi") args[1], in("rdx") args[2],
            in("r10") args[3], in("r8") args[4], in("r9") args[5],
            lateout("rcx") _, lateout("r11") _, options(nostack));
    }
    result
}

/// Issue a system call; an error comes back as -errno.
///
/// # Safety
/// The arguments must be what the kernel expects of this call.
#[cfg(target_arch = "aarch64")]
#[inline(always)]
pub unsafe fn call(number: c_long, args: [usize; 6]) -> isize {
    let result: isize;
    // SAFETY: the kernel's calling convention; it preserves all other registers.
    unsafe {
        core::arch::asm!("svc 0", in("x8") number, inlateout("x0") args[0] => result,
            in("x1") args[1], in("x2") args[2], in("x3") args[3], in("x4") args[4], in("x5") args[5],
            options(nostack));
    }
    result
}

/// What libc's `syscall` does with a result: errno and -1 on an error.
pub fn into_errno(result: isize) -> isize {
    if !(-4095..0).contains(&result) {
        return result;
    }
    // SAFETY: the address of the calling thread's errno.
    unsafe { *libc::__errno_location() = -result as c_int };
    -1
}

/// End the process.
pub fn exit_group(status: c_int) -> ! {
    loop {
        // SAFETY: takes a number.
        unsafe { call(libc::SYS_exit_group, [status as usize, 0, 0, 0, 0, 0]) };
    }
}

/// clock_gettime(2) in nanoseconds, as a system call: a process that never asks the time pays less for one than for
/// the page faults of its first call into the vDSO.
pub fn clock_ns(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes one timespec.
    unsafe { call(libc::SYS_clock_gettime, [clock as usize, (&raw mut time) as usize, 0, 0, 0, 0]) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// The process's pid, as the kernel says now.
pub fn getpid() -> u32 {
    // SAFETY: takes nothing.
    unsafe { call(libc::SYS_getpid, [0; 6]) as u32 }
}

/// The parent's pid; 0 if it is in another pid namespace.
pub fn getppid() -> u32 {
    // SAFETY: takes nothing.
    unsafe { call(libc::SYS_getppid, [0; 6]) as u32 }
}

/// getrusage(2); zeros if the kernel refuses.
pub fn getrusage(who: c_int) -> libc::rusage {
    // SAFETY: all-zero is a valid rusage, and the kernel writes one.
    unsafe {
        let mut usage = MaybeUninit::<libc::rusage>::zeroed();
        call(libc::SYS_getrusage, [who as usize, usage.as_mut_ptr() as usize, 0, 0, 0, 0]);
        usage.assume_init()
    }
}

/// open(2), close-on-exec. `None` on any error.
pub fn open(path: &CStr, flags: c_int) -> Option<usize> {
    open_at(libc::AT_FDCWD, path.as_ptr(), flags)
}

/// openat(2), close-on-exec. `None` on any error, which a path that can't be read is, too.
pub fn open_at(directory: c_int, path: *const c_char, flags: c_int) -> Option<usize> {
    let flags = (flags | libc::O_CLOEXEC) as usize;
    // SAFETY: the kernel alone reads the path.
    let fd = unsafe { call(libc::SYS_openat, [directory as usize, path as usize, flags, 0, 0, 0]) };
    usize::try_from(fd).ok()
}

/// Whether there is a regular file at a path that somebody may execute; with an empty one, behind the descriptor.
pub fn is_program(directory: c_int, path: *const c_char) -> bool {
    let mut stat = MaybeUninit::<libc::stat>::zeroed();
    let (path, into) = (path as usize, stat.as_mut_ptr() as usize);
    // SAFETY: as in `fstat`; on an error it stays zero. The kernel alone reads the path.
    let mode = unsafe {
        call(libc::SYS_newfstatat, [directory as usize, path, into, libc::AT_EMPTY_PATH as usize, 0, 0]);
        stat.assume_init().st_mode
    };
    mode & libc::S_IFMT == libc::S_IFREG && mode & 0o111 != 0
}

/// close(2).
pub fn close(fd: usize) {
    // SAFETY: a descriptor that the caller opened.
    unsafe { call(libc::SYS_close, [fd, 0, 0, 0, 0, 0]) };
}

/// read(2) into `buffer`; the bytes that came, 0 on an error.
pub fn read(fd: usize, buffer: &mut [u8]) -> usize {
    // SAFETY: the kernel writes at most `len` bytes.
    let n = unsafe { call(libc::SYS_read, [fd, buffer.as_mut_ptr() as usize, buffer.len(), 0, 0, 0]) };
    usize::try_from(n).unwrap_or(0)
}

/// pread(2) of one number; `None` if it is not there.
pub fn read_number(fd: usize, at: usize) -> Option<u64> {
    let mut number = 0u64;
    let size = size_of::<u64>();
    // SAFETY: the kernel writes at most the number.
    let n = unsafe { call(libc::SYS_pread64, [fd, (&raw mut number) as usize, size, at, 0, 0]) };
    (n == size as isize).then_some(number)
}

/// write(2); whether all was written.
pub fn write(fd: usize, bytes: &[u8]) -> bool {
    // SAFETY: so many bytes are there.
    unsafe {
        call(libc::SYS_write, [fd, bytes.as_ptr() as usize, bytes.len(), 0, 0, 0]) == bytes.len() as isize
    }
}

/// Whether the caller may make files of some size only.
pub fn has_file_size_limit() -> bool {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    let resource = libc::RLIMIT_FSIZE as usize;
    // SAFETY: the kernel writes one rlimit.
    unsafe { call(libc::SYS_prlimit64, [0, resource, 0, (&raw mut limit) as usize, 0, 0]) };
    limit.rlim_cur != libc::RLIM_INFINITY
}

/// Whether the caller has no other thread, as far as /proc says so.
pub fn is_single_threaded() -> bool {
    let mut stat = MaybeUninit::<libc::stat>::zeroed();
    let path = c"/proc/self/task".as_ptr() as usize;
    // SAFETY: as in `fstat`; on an error it stays zero.
    let links = unsafe {
        call(libc::SYS_newfstatat, [libc::AT_FDCWD as usize, path, stat.as_mut_ptr() as usize, 0, 0, 0]);
        stat.assume_init().st_nlink
    };
    // "." and ".." and one for each thread.
    links == 3
}

/// fstat(2).
pub fn fstat(fd: usize) -> Option<libc::stat> {
    let mut stat = MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: on 64-bit Linux libc's stat is the kernel's; all-zero is a valid one.
    unsafe {
        (call(libc::SYS_fstat, [fd, stat.as_mut_ptr() as usize, 0, 0, 0, 0]) == 0).then(|| stat.assume_init())
    }
}

/// Inode of the caller's pid namespace; 0 if /proc does not say. The kernel makes three /proc inodes for it.
pub fn pid_namespace() -> u32 {
    let mut stat = MaybeUninit::<libc::stat>::zeroed();
    let path = c"/proc/self/ns/pid".as_ptr() as usize;
    // SAFETY: as in `fstat`; on an error it stays zero.
    unsafe {
        call(libc::SYS_newfstatat, [libc::AT_FDCWD as usize, path, stat.as_mut_ptr() as usize, 0, 0, 0]);
        stat.assume_init().st_ino as u32
    }
}

/// The pid, as the caller's pid namespace has it, of the process whose record lock (fcntl(2)) keeps a file from being
/// locked; 0 if there is none, or the namespace has no pid for it.
pub fn lock_holder(fd: usize) -> u32 {
    // SAFETY: all-zero is a valid flock, and the kernel writes one.
    unsafe {
        let mut lock: libc::flock = core::mem::zeroed();
        lock.l_type = libc::F_WRLCK as _;
        let result = call(libc::SYS_fcntl, [fd, libc::F_GETLK as usize, (&raw mut lock) as usize, 0, 0, 0]);
        if result == 0 && lock.l_type != libc::F_UNLCK as _ { lock.l_pid.max(0).cast_unsigned() } else { 0 }
    }
}

/// A pidfd of the caller.
pub fn pidfd_open(pid: u32) -> Option<usize> {
    // SAFETY: takes numbers.
    usize::try_from(unsafe { call(libc::SYS_pidfd_open, [pid as usize, 0, 0, 0, 0, 0]) }).ok()
}

/// Inode of the pid namespace of a pidfd's process; 0 before Linux 6.11.
pub fn pid_namespace_of(pidfd: usize) -> u32 {
    /// linux/pidfd.h: `_IO(0xFF, 5)`.
    const PIDFD_GET_PID_NAMESPACE: usize = 0xff05;
    // SAFETY: takes numbers.
    let fd = unsafe { call(libc::SYS_ioctl, [pidfd, PIDFD_GET_PID_NAMESPACE, 0, 0, 0, 0]) };
    let Ok(fd) = usize::try_from(fd) else { return 0 };
    let inode = fstat(fd).map_or(0, |s| s.st_ino as u32);
    close(fd);
    inode
}

/// mmap(2): `fd` shared, or anonymous private memory without one.
pub fn mmap(length: usize, fd: Option<usize>) -> Option<*mut c_void> {
    let protection = (libc::PROT_READ | libc::PROT_WRITE) as usize;
    let flags = if fd.is_some() { libc::MAP_SHARED } else { libc::MAP_PRIVATE | libc::MAP_ANONYMOUS };
    // SAFETY: a new mapping where the kernel likes; nothing existing is touched.
    let address =
        unsafe { call(libc::SYS_mmap, [0, length, protection, flags as usize, fd.unwrap_or(usize::MAX), 0]) };
    (!(-4095..=0).contains(&address)).then_some(address as *mut c_void)
}

/// munmap(2).
///
/// # Safety
/// Nobody may use the mapping any more.
pub unsafe fn munmap(address: *mut c_void, length: usize) {
    // SAFETY: promised by the caller.
    unsafe { call(libc::SYS_munmap, [address as usize, length, 0, 0, 0, 0]) };
}

/// Keep a mapping out of core dumps.
pub fn dont_dump(address: *mut c_void, length: usize) {
    // SAFETY: advice that changes no content.
    unsafe { call(libc::SYS_madvise, [address as usize, length, libc::MADV_DONTDUMP as usize, 0, 0, 0]) };
}

/// Give the page at `address` back, as far as this process is concerned (MADV_DONTNEED); whether the kernel would.
///
/// # Safety
/// It must belong to a shared mapping: of any other the content is lost.
pub unsafe fn give_back(address: *mut c_void) -> bool {
    // SAFETY: promised by the caller.
    unsafe { call(libc::SYS_madvise, [address as usize, 1, libc::MADV_DONTNEED as usize, 0, 0, 0]) == 0 }
}

/// Wake whoever sleeps on a futex in shared memory.
pub fn futex_wake(word: &AtomicU32) {
    // SAFETY: the address of a live word.
    unsafe {
        call(
            libc::SYS_futex,
            [word.as_ptr() as usize, libc::FUTEX_WAKE as usize, c_int::MAX as usize, 0, 0, 0],
        )
    };
}

/// Whether the kernel reaps the caller's children by itself.
pub fn ignores_sigchld() -> bool {
    // The kernel's struct: handler, flags, restorer, mask; one word each.
    let mut action = [0usize; 4];
    // SAFETY: the kernel writes a sigaction with an eight-byte mask.
    let result = unsafe {
        call(
            libc::SYS_rt_sigaction,
            [libc::SIGCHLD as usize, 0, action.as_mut_ptr() as usize, size_of::<u64>(), 0, 0],
        )
    };
    result == 0 && (action[0] == libc::SIG_IGN || action[1] & libc::SA_NOCLDWAIT as usize != 0)
}

/// wait4(2).
///
/// # Safety
/// The pointers must be null or valid for writing, as for the libc function.
pub unsafe fn wait4(pid: c_int, status: *mut c_int, options: c_int, usage: *mut libc::rusage) -> isize {
    // SAFETY: promised by the caller.
    unsafe { call(libc::SYS_wait4, [pid as usize, status as usize, options as usize, usage as usize, 0, 0]) }
}

/// waitid(2) with the rusage argument that the libc function does not have.
///
/// # Safety
/// The pointers must be null or valid for writing.
pub unsafe fn waitid(
    id_type: libc::idtype_t,
    id: libc::id_t,
    info: *mut libc::siginfo_t,
    options: c_int,
    usage: *mut libc::rusage,
) -> isize {
    let args = [id_type as usize, id as usize, info as usize, options as usize, usage as usize, 0];
    // SAFETY: promised by the caller.
    unsafe { call(libc::SYS_waitid, args) }
}

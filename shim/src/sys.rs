//! System calls without libc. They leave errno alone, are no cancellation points, and do not pass through the hooks of
//! other preloaded libraries.

use core::ffi::{CStr, c_char, c_int, c_long, c_void};
use core::mem::{MaybeUninit, size_of};
use core::sync::atomic::AtomicU32;

/// The kernel returns errors as -1 to -4095 (MAX_ERRNO in linux/err.h).
const MAX_ERRNO: isize = 4095;

/// Issues a system call. Returns -errno on an error.
///
/// # Safety
/// The arguments must be valid for this system call.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(crate) unsafe fn call(number: c_long, args: [usize; 6]) -> isize {
    let result: isize;
    // SAFETY: the kernel's calling convention: it clobbers only rcx and r11.
    unsafe {
        core::arch::asm!("syscall", inlateout("rax") number as isize => result,
            in("rdi") args[0], in("rsi") args[1], in("rdx") args[2],
            in("r10") args[3], in("r8") args[4], in("r9") args[5],
            lateout("rcx") _, lateout("r11") _, options(nostack));
    }
    result
}

/// Issues a system call. Returns -errno on an error.
///
/// # Safety
/// The arguments must be valid for this system call.
#[cfg(target_arch = "aarch64")]
#[inline(always)]
pub(crate) unsafe fn call(number: c_long, args: [usize; 6]) -> isize {
    let result: isize;
    // SAFETY: the kernel's calling convention: it preserves all other registers.
    unsafe {
        core::arch::asm!("svc 0", in("x8") number, inlateout("x0") args[0] => result,
            in("x1") args[1], in("x2") args[2], in("x3") args[3], in("x4") args[4], in("x5") args[5],
            options(nostack));
    }
    result
}

/// Converts a result to libc's convention: on an error it sets errno and returns -1.
pub(crate) fn into_errno(result: isize) -> isize {
    if !(-MAX_ERRNO..0).contains(&result) {
        return result;
    }
    // SAFETY: `__errno_location` returns the address of the calling thread's errno.
    unsafe { *libc::__errno_location() = -result as c_int };
    -1
}

/// exit_group(2): ends all threads of the process.
pub(crate) fn exit_group(status: c_int) -> ! {
    loop {
        // SAFETY: the call takes no pointer.
        unsafe { call(libc::SYS_exit_group, [status as usize, 0, 0, 0, 0, 0]) };
    }
}

/// clock_gettime(2), nanoseconds. For a single reading, the system call costs less than the page faults of the
/// process's first call into the vDSO.
pub(crate) fn clock_ns(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes one timespec.
    unsafe { call(libc::SYS_clock_gettime, [clock as usize, (&raw mut time) as usize, 0, 0, 0, 0]) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// getpid(2).
pub(crate) fn getpid() -> u32 {
    // SAFETY: the call takes no arguments.
    unsafe { call(libc::SYS_getpid, [0; 6]) as u32 }
}

/// getpgrp(2).
pub(crate) fn getpgrp() -> u32 {
    // SAFETY: 0 is the calling process.
    unsafe { call(libc::SYS_getpgid, [0; 6]) as u32 }
}

/// geteuid(2).
pub(crate) fn geteuid() -> u32 {
    // SAFETY: the call takes no arguments.
    unsafe { call(libc::SYS_geteuid, [0; 6]) as u32 }
}

/// getppid(2); 0 if the parent is in another pid namespace.
pub(crate) fn getppid() -> u32 {
    // SAFETY: the call takes no arguments.
    unsafe { call(libc::SYS_getppid, [0; 6]) as u32 }
}

/// getrusage(2); all zero on an error.
pub(crate) fn getrusage(who: c_int) -> libc::rusage {
    // SAFETY: all-zero is a valid rusage, and the kernel writes one.
    unsafe {
        let mut usage = MaybeUninit::<libc::rusage>::zeroed();
        call(libc::SYS_getrusage, [who as usize, usage.as_mut_ptr() as usize, 0, 0, 0, 0]);
        usage.assume_init()
    }
}

/// open(2), close-on-exec. `None` on any error.
pub(crate) fn open(path: &CStr, flags: c_int) -> Option<usize> {
    let flags = (flags | libc::O_CLOEXEC) as usize;
    let args = [libc::AT_FDCWD as usize, path.as_ptr() as usize, flags, 0, 0, 0];
    // SAFETY: the path is a string.
    let fd = unsafe { call(libc::SYS_openat, args) };
    usize::try_from(fd).ok()
}

/// faccessat(2): whether there is a file of this path, and with `mode` R_OK, whether the process may read it. On an error that says
/// nothing about the file, the answer is yes.
pub(crate) fn is_there(path: *const c_char, mode: c_int) -> bool {
    let args = [libc::AT_FDCWD as usize, path as usize, mode as usize, 0, 0, 0];
    // SAFETY: only the kernel reads the path.
    let result = unsafe { call(libc::SYS_faccessat, args) };
    !says_no_file(result)
}

/// openat(2): whether the process can open this file with these flags. On an error that says nothing about the file, the answer is yes.
pub(crate) fn can_open(path: *const c_char, flags: c_int) -> bool {
    let args = [libc::AT_FDCWD as usize, path as usize, (flags | libc::O_CLOEXEC) as usize, 0, 0, 0];
    // SAFETY: only the kernel reads the path.
    let fd = unsafe { call(libc::SYS_openat, args) };
    if let Ok(fd) = usize::try_from(fd) {
        close(fd);
    }
    !says_no_file(fd)
}

/// Whether a result says that there is no such file, or that the process may not use it.
fn says_no_file(result: isize) -> bool {
    [libc::ENOENT, libc::ENOTDIR, libc::EACCES].contains(&(-result as c_int))
}

/// newfstatat(2); all zero on an error.
#[inline(always)]
pub(crate) fn stat_at(directory: c_int, path: *const c_char, flags: c_int) -> libc::stat {
    let mut stat = MaybeUninit::<libc::stat>::zeroed();
    let into = stat.as_mut_ptr() as usize;
    // SAFETY: on 64-bit Linux libc's stat is the kernel's, and all-zero is a valid one. Only the kernel reads the path.
    unsafe {
        call(libc::SYS_newfstatat, [directory as usize, path as usize, into, flags as usize, 0, 0]);
        stat.assume_init()
    }
}

/// close(2).
pub(crate) fn close(fd: usize) {
    // SAFETY: the caller opened this descriptor.
    unsafe { call(libc::SYS_close, [fd, 0, 0, 0, 0, 0]) };
}

/// read(2). Returns the number of bytes read; 0 on an error.
pub(crate) fn read(fd: usize, buffer: &mut [u8]) -> usize {
    // SAFETY: the kernel writes at most `buffer.len()` bytes.
    let n = unsafe { call(libc::SYS_read, [fd, buffer.as_mut_ptr() as usize, buffer.len(), 0, 0, 0]) };
    usize::try_from(n).unwrap_or(0)
}

/// pread(2) of one number at offset `at`. `None` on an error, or if the file ends before.
pub(crate) fn read_number(fd: usize, at: usize) -> Option<u64> {
    let mut number = 0u64;
    let size = size_of::<u64>();
    // SAFETY: the kernel writes at most `size` bytes.
    let n = unsafe { call(libc::SYS_pread64, [fd, (&raw mut number) as usize, size, at, 0, 0]) };
    (n == size as isize).then_some(number)
}

/// write(2). Returns whether all bytes were written.
pub(crate) fn write(fd: usize, bytes: &[u8]) -> bool {
    // SAFETY: the kernel reads at most `bytes.len()` bytes.
    unsafe {
        call(libc::SYS_write, [fd, bytes.as_ptr() as usize, bytes.len(), 0, 0, 0]) == bytes.len() as isize
    }
}

/// Whether RLIMIT_FSIZE limits the size of the files that the caller writes. Also true if the limit can't be read.
pub(crate) fn has_file_size_limit() -> bool {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    let resource = libc::RLIMIT_FSIZE as usize;
    // SAFETY: the kernel writes one rlimit.
    unsafe { call(libc::SYS_prlimit64, [0, resource, 0, (&raw mut limit) as usize, 0, 0]) };
    limit.rlim_cur != libc::RLIM_INFINITY
}

/// Whether the calling thread is the only one of its process. False if /proc can't be read.
pub(crate) fn is_single_threaded() -> bool {
    // ".", ".." and one link per thread (fs/proc/base.c, proc_task_getattr).
    stat_at(libc::AT_FDCWD, c"/proc/self/task".as_ptr(), 0).st_nlink == 3
}

/// fstat(2). `None` on an error.
pub(crate) fn fstat(fd: usize) -> Option<libc::stat> {
    let mut stat = MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: as in `stat_at`.
    unsafe {
        (call(libc::SYS_fstat, [fd, stat.as_mut_ptr() as usize, 0, 0, 0, 0]) == 0).then(|| stat.assume_init())
    }
}

/// statx(2): whether a file is the root of a mount. False on an error, and before Linux 5.8.
#[cold]
pub(crate) fn is_mount_root(directory: c_int, path: *const c_char, flags: c_int) -> bool {
    let mut found = MaybeUninit::<libc::statx>::zeroed();
    let into = found.as_mut_ptr() as usize;
    // SAFETY: all-zero is a valid statx, and the kernel writes one. Only the kernel reads the path.
    let found = unsafe {
        call(libc::SYS_statx, [directory as usize, path as usize, flags as usize, 0, into, 0]);
        found.assume_init()
    };
    found.stx_attributes & libc::STATX_ATTR_MOUNT_ROOT as u64 != 0
}

/// fstatfs(2): whether an open file is in shared memory. False on an error.
#[cold]
pub(crate) fn is_on_tmpfs(fd: usize) -> bool {
    let mut found = MaybeUninit::<libc::statfs>::zeroed();
    // SAFETY: all-zero is a valid statfs, and the kernel writes one.
    let found = unsafe {
        call(libc::SYS_fstatfs, [fd, found.as_mut_ptr() as usize, 0, 0, 0, 0]);
        found.assume_init()
    };
    found.f_type == libc::TMPFS_MAGIC
}

/// Inode of the caller's pid namespace; 0 if /proc can't be read. Expensive: the kernel creates three /proc inodes
/// for it.
pub(crate) fn pid_namespace() -> u32 {
    stat_at(libc::AT_FDCWD, c"/proc/self/ns/pid".as_ptr(), 0).st_ino as u32
}

/// The pid, in the caller's pid namespace, of the process that holds a record lock (fcntl(2)) on the file. 0 if there
/// is none, or if that process has no pid in this namespace.
pub(crate) fn lock_holder(fd: usize) -> u32 {
    // SAFETY: all-zero is a valid flock, and the kernel writes one.
    unsafe {
        let mut lock: libc::flock = core::mem::zeroed();
        lock.l_type = libc::F_WRLCK as _;
        let result = call(libc::SYS_fcntl, [fd, libc::F_GETLK as usize, (&raw mut lock) as usize, 0, 0, 0]);
        if result == 0 && lock.l_type != libc::F_UNLCK as _ { lock.l_pid.max(0).cast_unsigned() } else { 0 }
    }
}

/// pidfd_open(2). `None` on an error.
pub(crate) fn pidfd_open(pid: u32) -> Option<usize> {
    // SAFETY: the call takes no pointer.
    usize::try_from(unsafe { call(libc::SYS_pidfd_open, [pid as usize, 0, 0, 0, 0, 0]) }).ok()
}

/// Inode of the pid namespace of a pidfd's process; 0 on an error, as before Linux 6.11.
pub(crate) fn pid_namespace_of(pidfd: usize) -> u32 {
    /// linux/pidfd.h: `_IO(0xFF, 5)`.
    const PIDFD_GET_PID_NAMESPACE: usize = 0xff05;
    // SAFETY: this request takes no pointer.
    let fd = unsafe { call(libc::SYS_ioctl, [pidfd, PIDFD_GET_PID_NAMESPACE, 0, 0, 0, 0]) };
    let Ok(fd) = usize::try_from(fd) else { return 0 };
    let inode = fstat(fd).map_or(0, |s| s.st_ino as u32);
    close(fd);
    inode
}

/// mmap(2): a shared mapping of the file `fd` from its start, or private anonymous memory if there is no `fd`. `None` on an error.
pub(crate) fn mmap(length: usize, fd: Option<usize>) -> Option<*mut c_void> {
    let protection = (libc::PROT_READ | libc::PROT_WRITE) as usize;
    let flags = if fd.is_some() { libc::MAP_SHARED } else { libc::MAP_PRIVATE | libc::MAP_ANONYMOUS };
    // Without a file, the descriptor is -1, which is `usize::MAX` here.
    // SAFETY: the kernel chooses the address, so no existing mapping is replaced.
    let address =
        unsafe { call(libc::SYS_mmap, [0, length, protection, flags as usize, fd.unwrap_or(usize::MAX), 0]) };
    (!(-MAX_ERRNO..=0).contains(&address)).then_some(address as *mut c_void)
}

/// munmap(2).
///
/// # Safety
/// The mapping must not be used afterwards.
pub(crate) unsafe fn munmap(address: *mut c_void, length: usize) {
    // SAFETY: promised by the caller.
    unsafe { call(libc::SYS_munmap, [address as usize, length, 0, 0, 0, 0]) };
}

/// Excludes a mapping from core dumps.
pub(crate) fn dont_dump(address: *mut c_void, length: usize) {
    // SAFETY: this advice changes no content.
    unsafe { call(libc::SYS_madvise, [address as usize, length, libc::MADV_DONTDUMP as usize, 0, 0, 0]) };
}

/// Drops the page at `address` from this process's page table (MADV_DONTNEED); the mapping stays. The kernel rounds the length of 1
/// up to a page. Returns whether the page was dropped.
///
/// # Safety
/// The page must belong to a shared mapping: the content of a private one would be lost.
pub(crate) unsafe fn unmap_page(address: *mut c_void) -> bool {
    // SAFETY: promised by the caller.
    unsafe { call(libc::SYS_madvise, [address as usize, 1, libc::MADV_DONTNEED as usize, 0, 0, 0]) == 0 }
}

/// Wakes all waiters of a futex in shared memory.
pub(crate) fn futex_wake(word: &AtomicU32) {
    // SAFETY: the reference keeps the word's address valid.
    unsafe {
        call(
            libc::SYS_futex,
            [word.as_ptr() as usize, libc::FUTEX_WAKE as usize, c_int::MAX as usize, 0, 0, 0],
        )
    };
}

/// Waits on a futex in shared memory while it has this value, at most until `deadline_ns`, CLOCK_MONOTONIC nanoseconds, or until a
/// signal comes. Returns whether it may be waited for again.
pub(crate) fn futex_wait(word: &AtomicU32, value: u32, deadline_ns: u64) -> bool {
    let deadline = [deadline_ns / 1_000_000_000, deadline_ns % 1_000_000_000];
    let operation = libc::FUTEX_WAIT_BITSET as usize;
    let any = libc::FUTEX_BITSET_MATCH_ANY as u32 as usize;
    // SAFETY: the reference keeps the word's address valid, and the kernel reads a struct timespec, which is two words.
    let result = unsafe {
        call(
            libc::SYS_futex,
            [word.as_ptr() as usize, operation, value as usize, deadline.as_ptr() as usize, 0, any],
        )
    };
    result == 0 || result == -(libc::EINTR as isize) || result == -(libc::EAGAIN as isize)
}

/// Sends a signal to a process. Returns whether that worked.
pub(crate) fn kill(pid: u32, signal: c_int) -> bool {
    // SAFETY: the call takes no pointer.
    unsafe { call(libc::SYS_kill, [pid as usize, signal as usize, 0, 0, 0, 0]) == 0 }
}

/// Whether the kernel reaps the caller's children itself (SIGCHLD ignored, or SA_NOCLDWAIT; wait(2)).
pub(crate) fn ignores_sigchld() -> bool {
    // The kernel's struct sigaction: handler, flags, restorer, mask, one word each.
    let mut action = [0usize; 4];
    // SAFETY: the kernel writes a struct sigaction with an eight-byte mask.
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
/// The pointers must be null or valid for writing.
pub(crate) unsafe fn wait4(
    pid: c_int,
    status: *mut c_int,
    options: c_int,
    usage: *mut libc::rusage,
) -> isize {
    // SAFETY: promised by the caller.
    unsafe { call(libc::SYS_wait4, [pid as usize, status as usize, options as usize, usage as usize, 0, 0]) }
}

/// waitid(2) with its fifth argument, which the libc function does not have.
///
/// # Safety
/// The pointers must be null or valid for writing.
pub(crate) unsafe fn waitid(
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

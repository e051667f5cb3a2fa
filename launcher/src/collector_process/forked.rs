//! A collector that is forked from the launcher without exec, which saves loading and relocating this program a second time.
//!
//! To other processes it is as one that was executed: name, command line, descriptors, signals and streams are the same. The
//! kernel lets a process set its command line without privilege (PR_SET_MM_MAP), if it was built with CONFIG_CHECKPOINT_RESTORE.
//! Where that fails, the child executes this program.

use std::ffi::{OsStr, OsString};
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::ptr;
use std::{env, fs};

use gpu_track_abi::ENV_SESSION;
use gpu_track_collector::own_program;
use rustix::process::{PrctlMmMap, configure_virtual_memory_map};

use super::{Child, MakeJointReport, prepare, serve};
use crate::process::exit;
use crate::{console, name};

/// Whether the child of a fork can go on as a collector. It can't if this process has another thread, which the child lacks, and
/// which could hold a lock for ever.
///
/// It can't under LD_AUDIT: an executed collector is started without that variable, but here its library is loaded already. It can't inside
/// another run, whose report names a process by its exec: it would show the collector as a copy of the launcher.
pub(super) fn is_possible() -> bool {
    let has = |variable| env::var_os(variable).is_some();
    // Two links of the directory itself, and one of each thread.
    let has_one_thread = || fs::metadata("/proc/self/task").is_ok_and(|tasks| tasks.nlink() == 3);
    !has("LD_AUDIT") && !has(ENV_SESSION) && has_one_thread()
}

/// Forks a collector. Returns its pid.
///
/// # Errors
/// If no process can be made.
pub(super) fn start(child: &Child, make_joint_report: MakeJointReport) -> io::Result<u32> {
    // SAFETY: this process has one thread, so the child can do all that this process can. It ends in `become_collector`, so nothing of the
    // launcher's is dropped there.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => become_collector(child, make_joint_report),
        pid => Ok(pid.cast_unsigned()),
    }
}

/// Does the work of a collector in the child of the fork, and ends this process.
fn become_collector(child: &Child, make_joint_report: MakeJointReport) -> ! {
    let work = || {
        name::become_collector();
        let set_up = set_command_line(&child.args).and_then(|()| {
            prepare(&child.inherited, child.null.as_raw_fd(), child.streams())?;
            close_as_exec_does()
        });
        match set_up {
            Ok(()) => serve(&child.args, make_joint_report),
            Err(_) => {
                // Executes this program instead, and returns only if that fails.
                let error = child.command().exec();
                console::error(format_args!("cannot start the collector: {error}"));
                None
            }
        }
    };
    // A panic would go on in the launcher's functions, and drop what is the launcher's.
    exit::after(work)
}

/// Gives this process the command line of a collector with these arguments, as an executed one has.
fn set_command_line(args: &[OsString]) -> io::Result<()> {
    let command = own_program::command(name::of_collectors());
    let name = [OsStr::new(name::of_collectors())];
    let words = name.into_iter().chain(command.get_args()).chain(args.iter().map(OsString::as_os_str));
    let line: Vec<u8> = words.flat_map(|word| word.as_bytes().iter().copied().chain([0])).collect();
    // The kernel reads it as long as the process lives.
    let line = Vec::leak(line).as_ptr_range();
    let stat = fs::read_to_string("/proc/self/stat")?;
    let mut map = memory_map(&stat, line.start.addr()..line.end.addr()).ok_or(io::ErrorKind::Unsupported)?;
    // Read last: to allocate and to free can move it.
    // SAFETY: sbrk(0) changes nothing.
    map.brk = unsafe { libc::sbrk(0) }.addr() as u64;
    // SAFETY: the addresses are those that the kernel has now, except the command line's, which is never freed.
    Ok(unsafe { configure_virtual_memory_map(&map) }?)
}

/// The memory map of this process with another command line, and with 0 for the end of its heap (`brk`), which the caller sets.
/// `stat`: the text of /proc/self/stat (proc_pid_stat(5)).
fn memory_map(stat: &str, command_line: Range<usize>) -> Option<PrctlMmMap> {
    // The command name can hold any character. The field after it is the third.
    let (_, after) = stat.rsplit_once(") ")?;
    let fields: Vec<&str> = after.split_ascii_whitespace().collect();
    let field = |number: usize| fields.get(number - 3)?.parse().ok();
    Some(PrctlMmMap {
        start_code: field(26)?,
        end_code: field(27)?,
        start_stack: field(28)?,
        start_data: field(45)?,
        end_data: field(46)?,
        start_brk: field(47)?,
        brk: 0,
        arg_start: command_line.start as u64,
        arg_end: command_line.end as u64,
        env_start: field(50)?,
        env_end: field(51)?,
        auxv: ptr::null_mut(),
        auxv_size: 0,
        exe_fd: -1,
    })
}

/// Closes the descriptors that an exec would close.
fn close_as_exec_does() -> io::Result<()> {
    let entries = fs::read_dir("/proc/self/fd")?;
    let numbers: Vec<RawFd> =
        entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect();
    for fd in numbers {
        // SAFETY: what the launcher owns is used no more in this process, and dropped by nothing. The directory's is closed already.
        unsafe {
            let flags = libc::fcntl(fd, libc::F_GETFD);
            if flags != -1 && flags & libc::FD_CLOEXEC != 0 {
                libc::close(fd);
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_map_is_read_behind_a_name_of_any_characters() {
        let numbers: Vec<String> = (4..=52).map(|number| (number * 1000).to_string()).collect();
        let stat = format!("7 (a) b ) S {}\n", numbers.join(" "));
        let map = memory_map(&stat, 1..2).unwrap();
        assert_eq!([map.start_code, map.end_code, map.start_stack], [26_000, 27_000, 28_000]);
        assert_eq!([map.start_data, map.end_data, map.start_brk], [45_000, 46_000, 47_000]);
        assert_eq!([map.arg_start, map.arg_end, map.env_start, map.env_end], [1, 2, 50_000, 51_000]);
        assert!(memory_map("7 (a) S 1 2 3", 1..2).is_none());
    }
}

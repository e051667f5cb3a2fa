//! The memory of a process and its descendants: the union of the page frames that they have mapped. Needs root.
//!
//! Processes that share one address space (vfork, CLONE_VM) count once, with the first of them.

use std::io::Error;

use crate::frames::{Frame, FrameTables, page_bytes};
use crate::freezer::Freezer;

/// kcmp(2): compares the address spaces.
const KCMP_VM: u64 = 1;

/// The memory of a set of processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Footprint {
    /// The distinct page frames that the set has mapped.
    pub total_bytes: u64,
    /// What one process of the set alone has mapped, alone in the whole system: the sum of USS.
    pub private_bytes: u64,
}

impl Footprint {
    /// What is not private, counted once.
    pub fn shared_bytes(&self) -> u64 {
        self.total_bytes - self.private_bytes
    }
}

/// The memory of a process, of its descendants, and of both together.
#[derive(Debug, Clone, Copy)]
pub struct Footprints {
    /// The first process.
    pub main: Footprint,
    /// All others.
    pub descendants: Footprint,
    /// All.
    pub combined: Footprint,
}

/// Reads page frames.
#[derive(Debug)]
pub struct Recorder {
    tables: FrameTables,
    freezer: Freezer,
}

impl Recorder {
    /// Opens what is needed. The error is the reason why that is impossible here.
    pub fn open() -> Result<Self, String> {
        Ok(Self { tables: FrameTables::open()?, freezer: Freezer::create()? })
    }

    /// Stops the processes that `list` gives, the first process before its descendants, and reads their page frames.
    pub fn read(mut self, list: impl Fn() -> Result<Vec<u32>, String>) -> Result<Footprints, String> {
        self.freezer.stop(&list)?;
        let pids = list()?;
        let mut spaces = Vec::with_capacity(pids.len());
        for (at, pid) in pids.iter().enumerate() {
            let is_counted = has_space_of_one(*pid, &pids[..at])?;
            spaces.push(if is_counted { Vec::new() } else { self.tables.mapped_by(*pid)? });
        }
        let (main, descendants) = spaces.split_first().ok_or("no process")?;
        Ok(Footprints {
            main: union(std::slice::from_ref(main)),
            descendants: union(descendants),
            combined: union(&spaces),
        })
    }
}

/// Whether a process shares its address space with one of these.
fn has_space_of_one(pid: u32, others: &[u32]) -> Result<bool, String> {
    for other in others {
        // SAFETY: a plain system call.
        match unsafe { libc::syscall(libc::SYS_kcmp, pid, *other, KCMP_VM, 0, 0) } {
            0 => return Ok(true),
            -1 => return Err(format!("kcmp: {}", Error::last_os_error())),
            _ => {}
        }
    }
    Ok(false)
}

fn union(spaces: &[Vec<Frame>]) -> Footprint {
    let mut all: Vec<Frame> = spaces.iter().flatten().copied().collect();
    all.sort_unstable();
    // The kernel counts each entry that refers to a frame. So a frame that two of the spaces have is not mapped once.
    all.dedup_by_key(|frame| frame.number);
    let bytes = |frames: usize| frames as u64 * page_bytes();
    Footprint {
        total_bytes: bytes(all.len()),
        private_bytes: bytes(all.iter().filter(|frame| frame.is_mapped_once).count()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_of_two_spaces_count_once() {
        let frame = |number, is_mapped_once| Frame { number, is_mapped_once };
        let one = vec![frame(7, true), frame(8, false), frame(9, false)];
        let other = vec![frame(3, true), frame(8, false)];
        let pages = |total, private| Footprint {
            total_bytes: total * page_bytes(),
            private_bytes: private * page_bytes(),
        };
        assert_eq!(union(&[one.clone(), other]), pages(4, 2));
        assert_eq!(union(&[one]), pages(3, 1));
        assert_eq!(union(&[]), Footprint::default());
        assert_eq!(pages(4, 1).shared_bytes(), 3 * page_bytes());
    }
}

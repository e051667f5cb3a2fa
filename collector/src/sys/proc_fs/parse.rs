//! Parsers of /proc files. The result is `None` if the text lacks a number. A number that some kernels lack or hide is 0 instead,
//! where the doc of the field or parser says so.

use std::ops::Range;

use crate::model::exit_account::StatCounts;
use crate::model::io_calls::IoCalls;
use crate::model::observation::{CoreTicks, FileMapping, Mappings, Rollup, TaskTimes};
use crate::sys::clock;

/// The fields of /proc/PID/stat that are used (proc_pid_stat(5)).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stat {
    /// Process state: R, S, D, T, Z, X ...
    pub state: u8,
    /// Pid of the parent.
    pub ppid: u32,
    /// PF_* flags of the kernel (linux/sched.h).
    pub flags: u64,
    /// CPU time and faults.
    pub counts: StatCounts,
    /// Number of threads.
    pub threads: u64,
    /// Start time, clock ticks after boot.
    pub start_ticks: u64,
    /// Address space, bytes; 0 if the line ends before it.
    pub virtual_bytes: u64,
    /// Address of the bottom of the stack. An exec changes it if address randomisation is on; a fork does not.
    ///
    /// 0 if hidden: another user's process, a process that is not dumpable, a zombie.
    pub start_stack: u64,
}

impl Stat {
    /// Parses the file's one line.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let (state, mut fields) = state_and_fields(text)?;
        // The number of the field that was read last (proc_pid_stat(5)); `state` is the third.
        let mut number = 3;
        // Returns the number in the field `wanted`. Fields must be asked for in ascending order.
        let mut field = |wanted: usize| {
            fields.skip(wanted - number - 1);
            number = wanted;
            fields.number()
        };
        Some(Self {
            state,
            ppid: u32::try_from(field(4)?).ok()?,
            flags: field(9)?,
            counts: StatCounts {
                minor_faults: field(10)?,
                major_faults: field(12)?,
                user_ticks: field(14)?,
                system_ticks: field(15)?,
            },
            threads: field(20)?,
            start_ticks: field(22)?,
            virtual_bytes: field(23).unwrap_or(0),
            start_stack: field(28).unwrap_or(0),
        })
    }

    /// The start time, CLOCK_MONOTONIC nanoseconds, rounded down to a clock tick. `tick_us`: a tick, microseconds.
    ///
    /// The file counts on CLOCK_BOOTTIME. If the machine was suspended after the start, the result is too early by that
    /// time.
    pub fn start_ns(&self, tick_us: u64) -> u64 {
        let since_boot = i128::from(self.start_ticks) * i128::from(tick_us) * 1000;
        u64::try_from(since_boot - clock::boot_offset_ns()).unwrap_or(0)
    }

    /// Whether the process is exiting (PF_EXITING) or dead.
    pub fn is_ending(&self) -> bool {
        const PF_EXITING: u64 = 4;
        self.is_dead() || self.flags & PF_EXITING != 0
    }

    /// Whether all threads are dead, so that CPU time and faults are final.
    pub fn is_over(&self) -> bool {
        self.is_dead() && self.threads <= 1
    }

    /// Whether it is a thread of the kernel (PF_KTHREAD).
    pub fn is_of_kernel(&self) -> bool {
        const PF_KTHREAD: u64 = 0x0020_0000;
        self.flags & PF_KTHREAD != 0
    }

    /// Whether the first thread is a zombie or is being removed.
    pub fn is_dead(&self) -> bool {
        matches!(self.state, b'Z' | b'X' | b'x')
    }
}

/// The fields of /proc/PID/io: I/O of a process and of the children that it waited for. /proc/PID/task/TID/io has that of a thread
/// alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Io {
    /// Read from storage.
    pub read: u64,
    /// Written, to be put on storage.
    pub written: u64,
    /// Written, and truncated or removed before it was on storage. `None`: the kernel does not tell it.
    pub cancelled: Option<u64>,
    /// What was passed by calls.
    pub calls: IoCalls,
}

impl Io {
    /// Parses the file.
    pub(crate) fn parse(text: &[u8]) -> Option<Self> {
        let number = |key: &[u8]| parse_u64(line(text, key)?);
        let count = |key: &[u8]| number(key).unwrap_or(0);
        let calls = IoCalls {
            read_bytes: count(b"rchar:"),
            write_bytes: count(b"wchar:"),
            reads: count(b"syscr:"),
            writes: count(b"syscw:"),
        };
        let (read, written) = (number(b"read_bytes:")?, number(b"write_bytes:")?);
        Some(Self { read, written, cancelled: number(b"cancelled_write_bytes:"), calls })
    }
}

/// The fields of /proc/PID/statm that are used, in pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Statm {
    /// Pages of address space; 0 once an exiting process has released its memory.
    pub size: u64,
    /// Resident pages.
    pub resident: u64,
    /// Resident pages that belong to files or shared memory.
    pub shared: u64,
}

impl Statm {
    /// Parses the file's one line.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let mut fields = Fields { rest: text };
        Some(Self { size: fields.number()?, resident: fields.number()?, shared: fields.number()? })
    }
}

/// Parses /proc/PID/smaps_rollup. `Pss_Anon`, which kernels before 5.3 lack (commit ee2ad71b0756), and `Private_Hugetlb` count as 0
/// if they are missing. `None`: another line is missing, as in an empty file, which some kernels give for a process without memory.
pub fn parse_rollup(text: &[u8]) -> Option<Rollup> {
    let private_bytes = bytes_of(text, b"Private_Clean:")?.saturating_add(bytes_of(text, b"Private_Dirty:")?);
    let hugetlb_bytes = bytes_of(text, b"Private_Hugetlb:").unwrap_or(0);
    Some(Rollup {
        rss_bytes: bytes_of(text, b"Rss:")?,
        pss_bytes: bytes_of(text, b"Pss:")?,
        pss_anon_bytes: bytes_of(text, b"Pss_Anon:").unwrap_or(0),
        private_bytes: private_bytes.saturating_add(hugetlb_bytes),
        anonymous_bytes: bytes_of(text, b"Anonymous:")?,
        ..Rollup::default()
    })
}

/// Parts of a mapping, bytes from its beginning.
pub(super) type Pieces = Vec<Range<u64>>;

/// A mapping is divided into its resident pieces only if at least this many bytes of its file are resident. Of smaller ones,
/// processes have nearly the same pages.
const DIVIDED_FROM_BYTES: u64 = 1 << 20;

/// One mapping of smaps while its lines are read, or of maps. Sizes and offsets are in bytes.
#[derive(Debug, Default)]
pub(super) struct Mapping {
    /// Where it begins in the address space.
    pub address: u64,
    /// Device and inode of the file. If the inode is 0, the mapping has no file.
    pub file: (u64, u64),
    /// Where the mapped part of the file begins.
    start: u64,
    /// Where the mapped part of the file ends.
    end: u64,
    /// What its pages are, as far as pagemap does not mark them as a file's.
    pub kind: MappingKind,
    pub rss: u64,
    pub pss: u64,
    /// The pages that only this process has.
    private: u64,
    /// Those of `private` that are dirty.
    private_dirty: u64,
    anonymous: u64,
    hugetlb_private: u64,
    hugetlb_shared: u64,
}

/// What the permissions and the path of a mapping say of its pages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum MappingKind {
    /// Written pages are anonymous.
    #[default]
    Private,
    /// No page is anonymous.
    Shared,
    /// Huge pages of hugetlbfs without a file of the user's. They are not in the RSS, and count as pages of a file.
    AnonymousHugetlb,
    /// Neither readable nor writable nor executable: it reserves addresses, and has no pages.
    Reserved,
}

impl MappingKind {
    /// Tells the kind by the permissions, such as `rw-p`, and the path in the mapping's line.
    fn new(permissions: &str, path: &str) -> Self {
        if permissions.starts_with("---") {
            Self::Reserved
        } else if path.starts_with("/anon_hugepage") {
            Self::AnonymousHugetlb
        } else if permissions.ends_with('s') {
            Self::Shared
        } else {
            Self::Private
        }
    }
}

impl Mapping {
    pub(super) fn addresses(&self) -> Range<u64> {
        self.address..self.address.saturating_add(self.end - self.start)
    }

    /// Parses the first line: addresses, permissions, offset, device, inode, path.
    pub(super) fn header(line: &[u8]) -> Option<Self> {
        let text = String::from_utf8_lossy(line);
        let mut fields = text.split_ascii_whitespace();
        let hex = |text: &str| u64::from_str_radix(text, 16).ok();
        let (from, to) = fields.next()?.split_once('-')?;
        let address = hex(from)?;
        let permissions = fields.next()?;
        let start = hex(fields.next()?)?;
        let (major, minor) = fields.next()?.split_once(':')?;
        let device = hex(major)? << 32 | hex(minor)?;
        let inode = fields.next()?.parse().ok()?;
        let end = start.saturating_add(hex(to)?.saturating_sub(address));
        let kind = MappingKind::new(permissions, fields.next().unwrap_or_default());
        Some(Self { address, file: (device, inode), start, end, kind, ..Self::default() })
    }

    /// Adds the mapping's figures to the sums. `resident_pieces`: as for [`parse_smaps`].
    fn add_to(&self, mappings: &mut Mappings, resident_pieces: impl FnMut(&Range<u64>) -> Option<Pieces>) {
        let is_file = self.file.1 != 0;
        // Without a file, all pages are anonymous.
        let private_anon = if is_file { self.private_anon_of_file() } else { self.private };
        mappings.private_anon_bytes += private_anon;
        let rollup = &mut mappings.rollup;
        rollup.rss_bytes += self.rss;
        rollup.pss_bytes += self.pss;
        rollup.private_bytes += self.private + self.hugetlb_private;
        rollup.anonymous_bytes += self.anonymous;
        if !is_file {
            rollup.pss_anon_bytes += self.pss;
            return;
        }
        let shared_anon = self.anonymous - private_anon;
        let anonymous_pss = private_anon + self.estimated_pss(shared_anon);
        rollup.pss_anon_bytes += anonymous_pss;
        mappings.estimated_bytes += shared_anon;
        self.add_pages_of_file(mappings, anonymous_pss, resident_pieces);
    }

    /// The private anonymous pages of a mapping with a file, bytes. smaps does not count them. They are the dirty ones: copies that
    /// writes made of the file's pages. A page of the file can be dirty, too, so they are at most "Anonymous".
    fn private_anon_of_file(&self) -> u64 {
        self.private_dirty.min(self.anonymous)
    }

    /// The PSS of shared anonymous pages of this size, bytes. smaps does not say it. The estimate assumes that they have as many
    /// sharers as the mapping's other shared pages.
    fn estimated_pss(&self, shared_anon: u64) -> u64 {
        let shared_pss = self.pss.saturating_sub(self.private);
        scaled(shared_pss, shared_anon, self.rss.saturating_sub(self.private))
    }

    /// Adds the pages that a mapping has of its file: all but the anonymous ones, whose PSS is `anonymous_pss` bytes. If the
    /// mapping is divided, each resident piece is added as a mapping of its own. `resident_pieces`: as for [`parse_smaps`].
    pub(super) fn add_pages_of_file(
        &self,
        mappings: &mut Mappings,
        anonymous_pss: u64,
        mut resident_pieces: impl FnMut(&Range<u64>) -> Option<Pieces>,
    ) {
        // RSS and PSS leave huge pages of hugetlbfs out.
        let hugetlb = self.hugetlb_private + self.hugetlb_shared;
        let rss_bytes = self.rss.saturating_sub(self.anonymous) + hugetlb;
        if rss_bytes == 0 {
            return;
        }
        let pss_bytes = self.pss.saturating_sub(anonymous_pss) + self.hugetlb_private;
        let Self { file, start, end, .. } = *self;
        let length = end - start;
        // A mapping that is wholly resident would be one piece, and a small one is not worth the time.
        let is_divided = hugetlb == 0 && (DIVIDED_FROM_BYTES..length).contains(&rss_bytes);
        let pieces = is_divided.then(|| resident_pieces(&self.addresses())).flatten();
        let mapping = FileMapping { file, start, end, rss_bytes, pss_bytes };
        match pieces.filter(|pieces| !pieces.is_empty()) {
            Some(pieces) => mappings.files.extend(split(mapping, &pieces)),
            None => mappings.files.push(mapping),
        }
    }
}

/// Splits a mapping into its resident pieces. Each gets a part of the PSS in proportion to its length.
fn split(mapping: FileMapping, resident_pieces: &[Range<u64>]) -> impl Iterator<Item = FileMapping> {
    let length = |piece: &Range<u64>| piece.end - piece.start;
    let resident_bytes: u64 = resident_pieces.iter().map(length).sum();
    resident_pieces.iter().map(move |piece| FileMapping {
        start: mapping.start + piece.start,
        end: mapping.start + piece.end,
        rss_bytes: length(piece),
        pss_bytes: scaled(mapping.pss_bytes, length(piece), resident_bytes),
        ..mapping
    })
}

/// `bytes` times `part` / `whole`; 0 for a `whole` of 0.
fn scaled(bytes: u64, part: u64, whole: u64) -> u64 {
    (u128::from(bytes) * u128::from(part)).checked_div(u128::from(whole)).unwrap_or(0) as u64
}

/// Parses /proc/PID/smaps. `resident_pieces` finds the parts of a mapping's addresses that are resident pages of its file. They are
/// offsets from the first address, bytes. `None`: it can't tell, so the mapping is not divided.
///
/// A line that is missing or can't be parsed adds nothing. If it is the first line of a mapping, the mapping's pages count as pages
/// without a file.
pub fn parse_smaps(text: &[u8], mut resident_pieces: impl FnMut(&Range<u64>) -> Option<Pieces>) -> Mappings {
    let mut mappings = Mappings::default();
    // The mapping whose lines are being read.
    let mut mapping = Mapping::default();
    for line in text.split(|b| *b == b'\n') {
        // The first line of a mapping begins with an address, each other line with the name of a figure.
        if line.first().is_some_and(|byte| byte.is_ascii_digit() || byte.is_ascii_lowercase()) {
            mapping.add_to(&mut mappings, &mut resident_pieces);
            mapping = Mapping::header(line).unwrap_or_default();
            continue;
        }
        let Some(colon) = line.iter().position(|byte| *byte == b':') else { continue };
        let (name, value) = line.split_at(colon);
        let bytes = kib_to_bytes(&value[1..]).unwrap_or(0);
        let figure = match name {
            b"Rss" => &mut mapping.rss,
            b"Pss" => &mut mapping.pss,
            b"Private_Clean" => &mut mapping.private,
            b"Private_Dirty" => {
                mapping.private_dirty = bytes;
                &mut mapping.private
            }
            b"Anonymous" => &mut mapping.anonymous,
            b"Private_Hugetlb" => &mut mapping.hugetlb_private,
            b"Shared_Hugetlb" => &mut mapping.hugetlb_shared,
            _ => continue,
        };
        *figure = figure.saturating_add(bytes);
    }
    mapping.add_to(&mut mappings, resident_pieces);
    mappings
}

/// The fields of /proc/PID/status that are used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    /// VmHWM, bytes; `None` for a process without memory (a zombie, a kernel thread).
    pub hwm: Option<u64>,
    /// HugetlbPages, bytes; 0 on kernels without them. Neither RSS nor PSS includes them.
    pub hugetlb: u64,
    /// VmSwap, bytes; 0 on kernels without swap.
    pub swap: u64,
    /// Pid of the process; in the file of a thread it differs from the thread's id.
    pub tgid: Option<u32>,
    /// Effective user.
    pub user: Option<u32>,
    /// Pid in each pid namespace, from the reader's down to the process's own.
    pub ns_pids: Vec<u32>,
    /// Whether a SIGKILL is pending.
    pub is_killed: bool,
}

impl Status {
    /// Parses the file.
    pub fn parse(text: &[u8]) -> Self {
        const SIGKILL: u64 = 1 << (libc::SIGKILL - 1);
        let ns_pids = line(text, b"NSpid:").unwrap_or_default();
        let has_kill = |key: &[u8]| {
            let mask = line(text, key).and_then(|mask| str::from_utf8(mask.trim_ascii()).ok());
            mask.and_then(|mask| u64::from_str_radix(mask, 16).ok()).is_some_and(|mask| mask & SIGKILL != 0)
        };
        Self {
            is_killed: has_kill(b"SigPnd:") || has_kill(b"ShdPnd:"),
            hwm: bytes_of(text, b"VmHWM:"),
            hugetlb: bytes_of(text, b"HugetlbPages:").unwrap_or(0),
            swap: bytes_of(text, b"VmSwap:").unwrap_or(0),
            tgid: line(text, b"Tgid:").and_then(parse_u64).and_then(|tgid| tgid.try_into().ok()),
            // Real, effective, saved, file system.
            user: line(text, b"Uid:")
                .and_then(|users| users.split(u8::is_ascii_whitespace).filter_map(parse_u64).nth(1))
                .and_then(|user| user.try_into().ok()),
            ns_pids: ns_pids
                .split(u8::is_ascii_whitespace)
                .filter_map(parse_u64)
                .filter_map(|pid| pid.try_into().ok())
                .collect(),
        }
    }
}

/// The fields of a line, with a space between two of them.
///
/// Every byte is looked at once. By the standard library's split and parse, a sample of busy processes spent a fifteenth of its time on them.
struct Fields<'a> {
    /// The fields that were not read yet.
    rest: &'a [u8],
}

impl Fields<'_> {
    /// Skips so many fields, or all that there are.
    fn skip(&mut self, count: usize) {
        for _ in 0..count {
            let space = self.rest.iter().position(|byte| *byte == b' ');
            self.rest = space.and_then(|space| self.rest.get(space + 1..)).unwrap_or_default();
        }
    }

    /// Reads the next field. `None`: it is no number of 64 bits without a sign, or there is none.
    fn number(&mut self) -> Option<u64> {
        let mut number = None::<u64>;
        for (at, byte) in self.rest.iter().enumerate() {
            match byte {
                b'0'..=b'9' => {
                    let tens = number.unwrap_or(0).checked_mul(10)?;
                    number = Some(tens.checked_add(u64::from(byte - b'0'))?);
                }
                b' ' | b'\n' => {
                    self.rest = self.rest.get(at + 1..).unwrap_or_default();
                    return number;
                }
                _ => return None,
            }
        }
        self.rest = &[];
        number
    }
}

/// The state in the text of /proc/PID/stat, which is the third field, and the fields after it. The command name before it is in
/// parentheses and can hold any byte, so what follows the last closing parenthesis counts.
fn state_and_fields(text: &[u8]) -> Option<(u8, Fields<'_>)> {
    // A name has at most 64 bytes, those of kernel threads included. The fields after it have no parenthesis.
    const LONGEST_START: usize = 100;
    let start = text.get(..text.len().min(LONGEST_START))?;
    let after = start.iter().rposition(|byte| *byte == b')')?;
    let (state, rest) = text.get(after + 2..)?.split_first()?;
    Some((*state, Fields { rest: rest.strip_prefix(b" ")? }))
}

/// What follows `key` in the first line that begins with it.
pub(super) fn line<'a>(text: &'a [u8], key: &[u8]) -> Option<&'a [u8]> {
    text.split(|b| *b == b'\n').find_map(|line| line.strip_prefix(key))
}

/// The value of the line `KEY   123 kB`, in bytes.
pub(super) fn bytes_of(text: &[u8], key: &[u8]) -> Option<u64> {
    kib_to_bytes(line(text, key)?)
}

/// Parses `123 kB` into bytes. The kernel's kB is 1024 bytes.
fn kib_to_bytes(text: &[u8]) -> Option<u64> {
    let value = text.trim_ascii();
    let digits = value.strip_suffix(b"kB").unwrap_or(value);
    parse_u64(digits)?.checked_mul(1024)
}

pub(super) fn parse_u64(text: &[u8]) -> Option<u64> {
    str::from_utf8(text.trim_ascii()).ok()?.parse().ok()
}

/// The busy time of all cores since boot, clock ticks, from the text of /proc/stat. That is all but idle, iowait and steal
/// time. Guest time is included, because the kernel counts it as user time.
pub fn parse_busy_ticks(text: &[u8]) -> Option<u64> {
    let mut fields = Fields { rest: line(text, b"cpu ")?.trim_ascii_start() };
    let mut next = || fields.number();
    let (user, nice, system) = (next()?, next()?, next()?);
    let (_idle, _iowait) = (next()?, next()?);
    // Steal time comes next. It is not added, because another machine's work took it.
    let (irq, softirq) = (next()?, next()?);
    Some([user, nice, system, irq, softirq].into_iter().fold(0, u64::saturating_add))
}

/// Adds up the busy and the stolen time of some cores since boot, clock ticks, from the text of /proc/stat. Busy is user (with
/// guest), nice and system time; [`CoreTicks`] says why interrupts are left out. `cpus`: the numbers of the cores, ascending. `None`:
/// the text has no line of these cores.
pub fn parse_core_ticks(text: &[u8], cpus: &[u32]) -> Option<CoreTicks> {
    let mut sum = CoreTicks::default();
    for line in text.split(|b| *b == b'\n') {
        // The lines of cores are the first ones of the file, one after another.
        let Some(line) = line.strip_prefix(b"cpu") else { break };
        let mut fields = Fields { rest: line };
        // The first line is that of all cores, and has no number.
        let Some(cpu) = fields.number() else { continue };
        if u32::try_from(cpu).ok().is_none_or(|cpu| cpus.binary_search(&cpu).is_err()) {
            continue;
        }
        let mut next = || fields.number();
        let (user, nice, system) = (next()?, next()?, next()?);
        let (_idle, _iowait, _irq, _softirq) = (next()?, next()?, next()?, next()?);
        sum.cores += 1;
        sum.busy = [user, nice, system].into_iter().fold(sum.busy, u64::saturating_add);
        sum.stolen = sum.stolen.saturating_add(next()?);
    }
    (sum.cores > 0).then_some(sum)
}

/// How long a thread ran, and how long it waited for a core, from the text of its schedstat. Both are 0 if the kernel does
/// not count them.
pub(super) fn parse_task_times(text: &[u8]) -> Option<TaskTimes> {
    let mut fields = Fields { rest: text };
    Some(TaskTimes { ran_ns: fields.number()?, waited_ns: fields.number()? })
}

/// How many processes and threads were created since boot, from the text of /proc/stat. `None`: there is no such number, or
/// it is 0.
pub(super) fn parse_fork_count(text: &[u8]) -> Option<u64> {
    parse_u64(line(text, b"processes ")?).filter(|count| *count > 0)
}

/// The length of the arguments with which a program was started, bytes, from /proc/PID/stat. 0: it is hidden, as
/// [`Stat::start_stack`] is.
pub fn arguments_bytes(stat: &[u8]) -> u64 {
    let fields = || {
        let (_, mut fields) = state_and_fields(stat)?;
        // Arg_start is field 48, arg_end the next one (proc_pid_stat(5)).
        fields.skip(48 - 4);
        let start = fields.number()?;
        fields.number()?.checked_sub(start)
    };
    fields().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stat_counts_fields_from_the_last_parenthesis() {
        let text = b"12 (a) b (c) R) Z 7 12 12 0 -1 4194304 101 2 3 4 50 60 7 8 20 0 9 0 555 1000 200 18446744073709551615 1 2 140727100000000\n";
        let stat = Stat::parse(text).unwrap();
        let expected = Stat {
            state: b'Z',
            ppid: 7,
            flags: 4_194_304,
            counts: StatCounts { user_ticks: 50, system_ticks: 60, minor_faults: 101, major_faults: 3 },
            threads: 9,
            start_ticks: 555,
            virtual_bytes: 1000,
            start_stack: 140_727_100_000_000,
        };
        assert_eq!(stat, expected);
        assert!(stat.is_dead() && stat.is_ending());
        let line = [&text[..text.len() - 1], &b" 0".repeat(19), b" 4000 4100 4100 4200 0\n"].concat();
        assert_eq!((arguments_bytes(&line), arguments_bytes(text)), (100, 0));
        let running = Stat { state: b'R', ..expected };
        assert!(!running.is_ending() && Stat { flags: 4_194_308, ..running }.is_ending());
        assert_eq!(Stat::parse(b"12 (x) R 7"), None);
        assert_eq!(Stat::parse(b""), None);
    }

    #[test]
    fn field_is_a_number_of_64_bits_or_none() {
        let mut fields = Fields { rest: b"7 18446744073709551615 18446744073709551616 -1 x 8\n9" };
        let mut next = || fields.number();
        assert_eq!([next(), next()], [Some(7), Some(u64::MAX)]);
        assert_eq!(next(), None, "it is too large");
        fields.skip(1);
        assert_eq!(fields.number(), None, "it has a sign");
        fields.skip(2);
        assert_eq!([fields.number(), fields.number(), fields.number()], [Some(8), Some(9), None]);
        fields.skip(3);
        assert_eq!(fields.number(), None);
    }

    #[test]
    fn pending_sigkill_is_seen() {
        let status =
            |set: &str| Status::parse(format!("SigQ:\t1/2\nSigPnd:\t0\nShdPnd:\t{set}\n").as_bytes());
        assert!(status("0000000000000100").is_killed);
        assert!(!status("0000000000010000").is_killed && !Status::parse(b"").is_killed);
    }

    // Requirement: CPU-11
    #[test]
    fn core_ticks_are_those_of_the_allowed_cores_without_interrupts() {
        let text = b"cpu  999 999 999 999\ncpu0 10 20 30 7 7 7 7 4 5 5\ncpu1 900 0 0 0 0 0 0 900 0 0\n\
            cpu12 1 2 3 7 7 7 7 5 5 5\nintr 5\ncpu3 900\n";
        let read = |cpus: &[u32]| parse_core_ticks(text, cpus);
        assert_eq!(read(&[0, 2, 12]), Some(CoreTicks { cores: 2, busy: 66, stolen: 9 }));
        assert_eq!((read(&[2, 3]), parse_core_ticks(b"cpu0 1 2 x", &[0])), (None, None));
    }

    // Requirement: CPU-11
    #[test]
    fn task_times_are_the_first_two_figures() {
        let times = parse_task_times(b"1253000254 852305897 526\n");
        assert_eq!(times, Some(TaskTimes { ran_ns: 1_253_000_254, waited_ns: 852_305_897 }));
        assert_eq!((parse_task_times(b"5"), parse_task_times(b"5 x 1")), (None, None));
    }

    #[test]
    fn absent_fields_are_none() {
        assert_eq!(Status::parse(b"Name:\tx\nState:\tZ (zombie)\n").hwm, None);
        assert_eq!(Statm::parse(b"12"), None);
    }

    #[test]
    fn written_pages_of_a_file_mapping_are_anonymous() {
        let smaps = b"1000-9000 rw-p 00002000 fe:00 7      /lib/a b.so
Rss:                  32 kB
Pss:                  20 kB
Shared_Clean:          0 kB
Shared_Dirty:         16 kB
Private_Clean:        12 kB
Private_Dirty:         4 kB
Anonymous:            20 kB
VmFlags: rd wr
a000-c000 rw-p 00000000 00:00 0      [heap]
Rss:                   8 kB
Pss:                   6 kB
Private_Dirty:         4 kB
Anonymous:             8 kB
";
        let mappings = parse_smaps(smaps, |_| None);
        // The clean pages are the file's, whoever has the anonymous ones, too.
        assert_eq!(mappings.private_anon_bytes, (4 + 4) << 10);
        let file = FileMapping {
            file: (0xfe << 32, 7),
            start: 0x2000,
            end: 0xa000,
            rss_bytes: 12 << 10,
            // 4 of the 16 KiB that are shared are this process's part, all of it anonymous.
            pss_bytes: 12 << 10,
        };
        assert_eq!(mappings.files, [file]);
    }
}

//! How far figures of different sources may disagree, how late records may come, and how much is kept.

/// The thresholds of the process tree, each with its reason.
pub(in crate::run) struct Tolerance;

impl Tolerance {
    /// How far two sources may differ about a start. /proc rounds start times down to a clock tick (10 ms at 100 Hz); the kernel's
    /// event may be one more tick late.
    pub(crate) const START_ROUNDING_NS: u64 = 20_000_000;

    /// How long after its exec a program may write its START. The dynamic loader has run the shim's constructor by then, except on a
    /// loaded machine. A START that comes later still counts.
    pub(crate) const TIME_TO_REPORT_NS: u64 = 50_000_000;

    /// How long before the first news of a process its program can have been announced: its loader reads libraries first, and a network
    /// file system can be slow. An older announcement is of an earlier process of the pid.
    pub(crate) const ANNOUNCED_EARLY_NS: u64 = 10_000_000_000;

    /// How far a process's clock may be ahead of the kernel's sums. The clock (nanoseconds) and the sums (rounded per thread) are
    /// read at different moments of its end.
    pub(crate) const CLOCK_AHEAD_US: u64 = 1000;

    /// CPU time that the kernel takes to tear down each MiB of a process's memory. Measured: 0.1 ms per MB.
    pub(crate) const TEARDOWN_US_PER_MIB: u64 = 100;

    /// An uninstrumented program is young, and sampled often, up to this age.
    pub(crate) const YOUNG_NS: u64 = 1_000_000_000;

    /// How far sums of waited-for children may be off: they are rounded once per child.
    pub(crate) const CHILD_ROUNDING_US: u64 = 100;

    /// How much more its children may have used than a process's sum of waited-for children has. Two clock ticks (at 100 Hz) are no
    /// sign that the kernel reaped one of them.
    pub(crate) const CHILDREN_TEARDOWN_US: u64 = 20_000;

    /// A fork child reads its parent's programs and libraries in again, which grows its RSS by no more than this.
    pub(crate) const FILE_PAGES_BYTES: u64 = 4 << 20;

    /// A process with fewer minor faults held at most 1 MiB of its own, a page of 4 KiB for each.
    pub(crate) const FEW_FAULTS: u64 = 256;

    /// How far figures of a small process's RSS differ, bytes: each CPU counts a batch of pages before it adds them to the RSS.
    pub(crate) const RSS_BYTES: u64 = 1 << 20;

    /// How far figures of a large process's RSS differ: one part in this many.
    pub(crate) const RSS_PART: u64 = 100;

    /// How long after a process left /proc its REAPED may follow: the reaper writes it after the kernel has released the pid.
    pub(crate) const REAPED_AFTER_GONE_NS: u64 = 200_000_000;

    /// The kernel's account of an exit may wait this long for the thread that reads it. A pid is used again much later.
    pub(crate) const ACCOUNT_READ_LATE_NS: u64 = 200_000_000;

    /// A process of another pid namespace whose pid in the collector's is unknown can't be looked up in /proc. Its reaper has
    /// this long after its end to write REAPED.
    pub(crate) const REAPED_AFTER_UNSEEN_END_NS: u64 = 2_000_000_000;

    /// A REAPED record that comes this late after its process was finalized is about a later process of that pid.
    pub(crate) const REAPED_AFTER_FINALIZED_NS: u64 = 10_000_000_000;

    /// Number of finalized processes that are kept for late records, which come within milliseconds.
    pub(crate) const FINALIZED_KEPT: usize = 4096;

    /// Number of processes of one pid that the tree keeps. Where the pid was used again that often, the oldest was reaped long ago.
    pub(crate) const MOST_OF_ONE_PID: usize = 64;

    /// Number of execs of unknown processes that are kept until the launcher reports the command. Before that, only the command and
    /// collectors exec.
    pub(crate) const MOST_EARLY_EXECS: usize = 16;

    /// Number of claims (see `claims`) that a process keeps until its sums decide them. If there are many, the sums can't tell which
    /// of them they contain.
    pub(crate) const MOST_CLAIMS: usize = 64;

    /// Number of SPAWN_FAILED records that are kept for their child: without the connector, most children are never known.
    pub(crate) const MOST_FAILED_SPAWNS: usize = 64;

    /// Number of ancestors that are followed: records can claim a circle.
    pub(crate) const MOST_ANCESTORS: usize = 64;

    /// How far two readings of the same RSS may differ, bytes.
    pub(crate) const fn rss(rss_bytes: u64) -> u64 {
        let part = rss_bytes / Self::RSS_PART;
        if part > Self::RSS_BYTES { part } else { Self::RSS_BYTES }
    }
}

//! When samples are taken and what they may cost: every value with its reason. docs/ACCURACY.md has what each buys.

use serde::{Deserialize, Serialize};

use crate::with_defaults;

with_defaults! {
    /// When samples are taken besides those at the regular interval, and when a sample waits.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(default)]
    pub struct SamplingPolicy {
        /// While the tree's RAM grows beyond what it ever was, the next sample comes after this time, nanoseconds. Only
        /// a sample shows how much several processes hold at once. 0: no such samples.
        pub growing_ns: u64 = 25_000_000,
        /// These samples take at most 1/N of a core, where N is this.
        pub share_of_growing: u64 = 100,
        /// Growth counts if in one interval it is more than 1/N of the largest RAM so far, where N is this.
        pub notable_growth: u64 = 100,
        /// The tree counts as growing for this long after it last grew, nanoseconds: on a busy machine, programs wait
        /// for a CPU.
        pub growth_pause_ns: u64 = 500_000_000,
        /// While the tree grows, a sample waits for this long after the end of a large process, nanoseconds. Processes
        /// that end together do so within such a time. A survivor's RSS at the moment the others exited is unknown;
        /// only the previous sample's is known. 0: it never waits.
        pub together_ns: u64 = 20_000_000,
        /// An end is large if it frees more than 1/N of the largest RAM so far, where N is this.
        pub notable_end: u64 = 1000,
        /// The least that a large end frees, bytes.
        pub notable_end_bytes: u64 = 16 << 20,
        /// Ends delay a sample by this much at most, nanoseconds.
        pub longest_delay_ns: u64 = 100_000_000,
        /// Ends delay a sample by at most this many times the time since the sample before.
        pub longest_delay: u64 = 3,
        /// A program that has written no record by this age most likely can't write one, so that only samples show its
        /// memory. Samples come at this age, nanoseconds, and each time that the age has doubled.
        pub unreported_ns: u64 = 3_000_000,
        /// The longest time between such samples, nanoseconds: the program may grow at any time, and be gone soon
        /// after. 0: there are no such samples.
        pub unreported_rest_ns: u64 = 10_000_000,
        /// Samples of unreported programs take at most 1/N of a core, where N is this.
        pub share_of_unreported: u64 = 100,
        /// CPU time that can be saved up for samples of unreported programs, nanoseconds: most of these are few and
        /// short.
        pub saved_for_unreported_ns: u64 = 50_000_000,
        /// A sample is taken at once if more than this many programs have ended, or were replaced by exec, since the
        /// last one. The core keeps each of them until a sample.
        pub most_waiting: usize = 8192,
        /// What expensive reads may cost.
        pub budget: BudgetPolicy = BudgetPolicy::default(),
    }
}

with_defaults! {
    /// What expensive reads may cost.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(default)]
    pub struct BudgetPolicy {
        /// They take at most this part of one core, percent.
        pub percent: u64 = 1,
        /// CPU time that can be saved up, nanoseconds.
        pub saved_ns: i64 = 20_000_000,
        /// CPU time that can be owed for a sample that would set a new peak, nanoseconds.
        pub credit_ns: i64 = 250_000_000,
        /// How much of `credit_ns` can be owed for memory that still grows, nanoseconds, since the next sample would
        /// read it again. The rest is for the memory at its largest: to read five processes with 500 MB takes 100 ms on
        /// a busy machine.
        pub growing_credit_ns: i64 = 50_000_000,
        /// CPU time that is kept for reading the tree's footprint, nanoseconds. Private and proportional sizes are read
        /// only if more is left.
        pub reserved_ns: i64 = 10_000_000,
    }
}

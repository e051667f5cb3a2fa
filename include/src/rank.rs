//! Ranks of MPI jobs, Flux jobs and Slurm steps, as the environment of their processes names them.
//!
//! `mpirun` and `srun` start many processes with the same command line, on this machine and others. Each gets variables
//! with its rank and the number of ranks.

/// A process's rank in a job of several ranks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Rank {
    /// A hash of the job's ids, if the environment has any. It tells the jobs of a run apart.
    pub job: u32,
    /// The rank, from 0.
    pub rank: u32,
    /// Number of ranks.
    pub count: u32,
}

impl Rank {
    /// Whether this is one of several ranks. False for the default value, which stands for a process without a rank.
    pub fn is_of_several(&self) -> bool {
        self.count > 1 && self.rank < self.count
    }
}

/// In how many ways a job can name its ranks.
pub const WAYS: usize = 5;
/// How many variables each way has.
pub const VARIABLES_OF_WAY: usize = 4;
/// Flux's way. Its ranks have those of PMI, too, unless `-o pmi=off` is given.
pub const FLUX: usize = 2;
/// The place of the first of Slurm's variables in [`VARIABLES`].
pub const FIRST_OF_SLURM: usize = (TORCH - 1) * VARIABLES_OF_WAY;
/// The way of torchrun, deepspeed and the like. Its port names no job for good: a later job can have the same one.
pub const TORCH: usize = WAYS - 1;

/// For each way: rank, number of ranks, and up to two ids of the job. Open MPI and PMI (MPICH, Intel MPI) come first:
/// a rank that mpirun starts inherits Flux's and Slurm's variables of another process. Slurm's are those of a step: a batch script,
/// which starts once, also has SLURM_PROCID and SLURM_NTASKS. torchrun's names are not its alone, so they count last, and only where
/// the last variable is the rank's number on its node.
pub const VARIABLES: [&str; WAYS * VARIABLES_OF_WAY] = [
    "OMPI_COMM_WORLD_RANK",
    "OMPI_COMM_WORLD_SIZE",
    "PMIX_NAMESPACE",
    "",
    "PMI_RANK",
    "PMI_SIZE",
    "PMI_JOBID",
    "",
    "FLUX_TASK_RANK",
    "FLUX_JOB_SIZE",
    "FLUX_JOB_ID",
    "",
    "SLURM_PROCID",
    "SLURM_STEP_NUM_TASKS",
    "SLURM_JOB_ID",
    "SLURM_STEP_ID",
    "RANK",
    "WORLD_SIZE",
    "MASTER_PORT",
    "LOCAL_RANK",
];

/// The variables with the ids of the job in one of the [`WAYS`].
///
/// # Panics
/// If there is no such way.
pub fn job_variables(way: usize) -> impl Iterator<Item = &'static str> {
    let (ways, _) = VARIABLES.as_chunks::<VARIABLES_OF_WAY>();
    let [_, _, ids @ ..] = &ways[way];
    ids.iter().copied().filter(|name| !name.is_empty())
}

/// For each way, the rank that the values of [`VARIABLES`] name. The first rank in the result is the process's own; others may be
/// inherited from another process. `None`: the variables of this way are not set, or name no rank of several.
pub fn ranks(values: &[Option<&[u8]>; VARIABLES.len()]) -> [Option<Rank>; WAYS] {
    let (ways, _) = values.as_chunks::<VARIABLES_OF_WAY>();
    let mut ranks = [None; WAYS];
    for ((found, [rank, count, ids @ ..]), way_number) in ranks.iter_mut().zip(ways).zip(1..) {
        let (Some(rank), Some(count)) = (rank.and_then(number), count.and_then(number)) else { continue };
        let mut ids = ids.as_slice();
        if usize::from(way_number) > TORCH {
            let [port, local] = ids else { continue };
            if local.and_then(number).is_none_or(|local| local > rank) {
                continue;
            }
            ids = core::slice::from_ref(port);
        }
        let rank = Rank { job: job_hash(way_number, ids), rank, count };
        *found = Some(rank).filter(Rank::is_of_several);
    }
    ranks
}

/// A hash of the job's ids, and of which launcher's variables have them (`way_number`). It stands for the job, since a [`Rank`] has no
/// room for the ids.
fn job_hash(way_number: u8, ids: &[Option<&[u8]>]) -> u32 {
    /// FNV-1a's hash of no bytes.
    const EMPTY: u32 = 0x811c_9dc5;
    let mut hash = hashed(EMPTY, &way_number);
    for id in ids {
        for byte in id.unwrap_or_default() {
            hash = hashed(hash, byte);
        }
        // This marks the end of an id: without it, `1`, `23` and `12`, `3` would have the same hash.
        hash = hashed(hash, &0xff);
    }
    hash
}

/// A hash with a byte added (FNV-1a).
fn hashed(hash: u32, byte: &u8) -> u32 {
    (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193)
}

/// Parses a decimal number. `None`: the text is no number, or the number is too large.
fn number(text: &[u8]) -> Option<u32> {
    if text.is_empty() {
        return None;
    }
    let mut value: u32 = 0;
    for byte in text {
        if !byte.is_ascii_digit() {
            return None;
        }
        value = value.checked_mul(10)?.checked_add(u32::from(byte - b'0'))?;
    }
    Some(value)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn ranks_in(variables: &[(&str, &str)]) -> [Option<Rank>; WAYS] {
        let value =
            |name: &str| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| value.as_bytes());
        ranks(&VARIABLES.map(value))
    }

    fn first(variables: &[(&str, &str)]) -> Option<(u32, u32)> {
        ranks_in(variables).into_iter().flatten().next().map(|rank| (rank.rank, rank.count))
    }

    #[test]
    fn jobs_of_different_launchers_have_different_hashes() {
        let id = |text: &'static str| [Some(text.as_bytes()), None];
        assert_ne!(job_hash(1, &id("2")), job_hash(2, &id("1")));
        assert_ne!(job_hash(3, &[Some(b"1"), Some(b"23")]), job_hash(3, &[Some(b"12"), Some(b"3")]));
    }

    // Requirement: OUT-12
    #[test]
    fn ranks_of_each_kind_of_job_are_read() {
        let slurm = [("SLURM_PROCID", "5"), ("SLURM_STEP_NUM_TASKS", "8"), ("SLURM_NTASKS", "9")];
        assert_eq!(first(&slurm), Some((5, 8)));
        assert_eq!(first(&[("PMI_RANK", "1"), ("PMI_SIZE", "2"), slurm[0], slurm[1]]), Some((1, 2)));
        let open_mpi = [("OMPI_COMM_WORLD_RANK", "0"), ("OMPI_COMM_WORLD_SIZE", "4"), ("PMI_RANK", "1")];
        assert_eq!(first(&open_mpi), Some((0, 4)));
        let flux = [("FLUX_TASK_RANK", "3"), ("FLUX_JOB_SIZE", "4")];
        assert_eq!(first(&flux), Some((3, 4)));
        assert_eq!(ranks_in(&flux)[FLUX].map(|rank| rank.rank), Some(3));
        // A batch script, a job of one, and what is no rank.
        assert_eq!(first(&[("SLURM_PROCID", "0"), ("SLURM_NTASKS", "8")]), None);
        for (rank, size) in [("0", "1"), ("2", "2"), ("", "2"), ("0", ""), ("-1", "2"), ("0", "4294967296")] {
            assert_eq!(first(&[("PMI_RANK", rank), ("PMI_SIZE", size)]), None, "{rank} of {size}");
        }
    }

    // Requirement: OUT-12
    #[test]
    fn ranks_of_torchrun_need_all_their_variables_and_count_last() {
        let torch = |rank, size, local| [("RANK", rank), ("WORLD_SIZE", size), ("LOCAL_RANK", local)];
        assert_eq!(first(&torch("5", "8", "1")), Some((5, 8)));
        for (rank, size, local) in [
            ("5", "8", ""),
            ("5", "8", "x"),
            ("1", "8", "2"),
            ("8", "8", "0"),
            ("0", "1", "0"),
            ("a", "8", "0"),
        ] {
            assert_eq!(first(&torch(rank, size, local)), None, "{rank} of {size}, {local}");
        }
        assert_eq!(first(&[("RANK", "1"), ("WORLD_SIZE", "2")]), None, "of something else");
        let slurm = [("SLURM_PROCID", "1"), ("SLURM_STEP_NUM_TASKS", "2")];
        assert_eq!(first(&[&torch("5", "8", "1")[..], &slurm].concat()), Some((1, 2)));
        let job = |port, local| {
            ranks_in(&[&torch("5", "8", local)[..], &[("MASTER_PORT", port)]].concat())[TORCH]
                .map(|rank| rank.job)
        };
        assert_eq!(job("29500", "1"), job("29500", "2"));
        assert_ne!(job("29500", "1"), job("29501", "1"));
    }

    #[test]
    fn jobs_are_told_apart_by_their_ids() {
        let job =
            |id| ranks_in(&[("SLURM_PROCID", "1"), ("SLURM_STEP_NUM_TASKS", "2"), ("SLURM_STEP_ID", id)])[3];
        assert_eq!(job("0"), job("0"));
        assert_ne!(job("0"), job("1"));
        let by_two = ranks_in(&[("PMI_RANK", "1"), ("PMI_SIZE", "2"), ("SLURM_PROCID", "1")]);
        assert_ne!(by_two[1].map(|rank| rank.job), job("0").map(|rank| rank.job));
    }
}

//! Pressure (PSI) of the machine and of the run's cgroup, and what a CPU quota withheld. With them, the memory that the run's own cgroup
//! is charged for.
//!
//! The kernel adds all of it up, so two readings are enough: one at [`FIRST_NS`], and one at the end. A shorter run has none.

use std::path::{Path, PathBuf};

use super::cgroup::{Groups, memory_charge, throttling};
use crate::model::cgroup::RunCgroup;
use crate::model::observation::Observation;
use crate::model::stalls::{StallReading, StallTime, Stalls};
use crate::sys::proc_fs::ProcRoot;

/// The first reading is not taken before this age of the run, nanoseconds: it takes about 0.2 ms, too much for shorter runs.
const FIRST_NS: u64 = 50_000_000;

/// Reads the kernel's counts.
#[derive(Debug)]
pub(crate) struct StallReader {
    root: ProcRoot,
    /// The process whose groups are read. `None`: this one.
    pid: Option<u32>,
    /// The directory of the run's own cgroup, if it has one.
    own: Option<PathBuf>,
    /// The part of a group's name that shows it to be of the run's batch job (`job_123` for Slurm), and so to hold nothing else.
    job: Option<String>,
    /// The groups, from the first reading on.
    groups: Option<Groups>,
}

impl StallReader {
    /// Prepares the first reading. `pid`: the process whose groups are read; `None`: this one. `own`: the run's own cgroup. `job`: the
    /// id of its Slurm job.
    pub(crate) fn new(root: ProcRoot, pid: Option<u32>, own: Option<&RunCgroup>, job: Option<&str>) -> Self {
        let job = job.map(|id| format!("/job_{id}/"));
        Self { root, pid, own: own.map(|own| own.dir.clone()), job, groups: None }
    }

    /// Takes the first reading if it is due when the run has lasted for `age_ns`, nanoseconds. If `is_last`, takes the last one instead.
    /// `None`: no reading is due, or there was no first one.
    pub(crate) fn read(&mut self, age_ns: u64, is_last: bool) -> Option<Observation> {
        let was_read = self.groups.is_some();
        if was_read != is_last || age_ns < FIRST_NS {
            return None;
        }
        let groups = self.groups.get_or_insert_with(|| Groups::read(&self.root, self.pid));
        // The root group's pressure is the machine's. It alone has no such file.
        let is_no_root = |dir: &&Path| dir.join("cgroup.events").exists();
        let of_run = self.own.as_deref().or(groups.v2_dir().filter(is_no_root));
        let own_name = || self.own.as_ref().map(|dir| dir.display().to_string());
        let is_of_job = Option::zip(self.job.as_deref(), groups.name())
            .is_some_and(|(job, name)| format!("{name}/").contains(job));
        let memory_dir = self.own.as_deref().or(groups.memory_dir().filter(|_| is_of_job));
        let memory_name = || own_name().or(groups.name().map(str::to_owned));
        Some(Observation::Stalls(Box::new(StallReading {
            machine: stalls(|resource| self.root.top_path("pressure").join(resource)),
            cgroup: of_run.map_or_else(Stalls::default, |dir| {
                stalls(|resource| dir.join(format!("{resource}.pressure")))
            }),
            cgroup_name: of_run.and_then(|_| own_name().or(groups.v2_name().map(str::to_owned))),
            quotas: groups.cpu_quotas().filter_map(|(name, dir)| Some((name, throttling(dir)?))).collect(),
            memory: memory_dir.zip(memory_name()).and_then(|(dir, name)| memory_charge(dir, name)),
        })))
    }
}

/// Reads the stalls by resource. `file`: makes a path of the name of a resource.
fn stalls(file: impl Fn(&str) -> PathBuf) -> Stalls {
    let time = |resource| stall_time(&file(resource));
    Stalls { cpu: time("cpu"), memory: time("memory"), io: time("io") }
}

/// Reads one file of pressure. `None`: it can't be read (no PSI, or switched off).
fn stall_time(file: &Path) -> Option<StallTime> {
    let text = std::fs::read_to_string(file).ok()?;
    let total = |kind: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(kind))?;
        line.split_once("total=")?.1.trim().parse().ok()
    };
    Some(StallTime { some_us: total("some ")?, full_us: total("full ") })
}

#[cfg(test)]
mod tests {
    use super::super::cgroup::tests::{put, tree};
    use super::*;

    fn reading(observation: Option<Observation>) -> StallReading {
        match observation {
            Some(Observation::Stalls(reading)) => *reading,
            other => panic!("{other:?}"),
        }
    }

    // Requirement: STALL-1, STALL-3, RAM-93
    #[test]
    fn counts_are_read_once_at_50_ms_and_at_the_end() {
        let (dir, root) = tree("0::/job_7/step\n", "30 20 0:26 / TOP/fs rw - cgroup2 cgroup2 rw\n");
        put(
            &dir,
            "pressure/memory",
            "some avg10=0.00 avg60=0.00 avg300=0.00 total=70\nfull avg10=0 total=7\n",
        );
        put(&dir, "pressure/cpu", "some avg10=0.00 avg60=0.00 avg300=0.00 total=5\n");
        put(&dir, "fs/job_7/step/io.pressure", "some avg10=0.00 total=9\nfull avg10=0.00 total=3\n");
        put(&dir, "fs/job_7/step/cgroup.events", "populated 1\n");
        put(&dir, "fs/job_7/step/cpu.max", "max 100000\n");
        put(&dir, "fs/job_7/cpu.max", "50000 100000\n");
        put(&dir, "fs/job_7/cpu.stat", "usage_usec 1\nnr_periods 8\nnr_throttled 4\nthrottled_usec 900\n");
        put(&dir, "fs/job_7/step/memory.stat", "anon 5\nfile 4096\nshmem 50\nfile_mapped 60\n");
        let mut reader = StallReader::new(root.clone(), None, None, Some("7"));
        assert!(reader.read(FIRST_NS - 1, false).is_none());
        assert!(reader.read(FIRST_NS, true).is_none(), "one reading tells nothing");
        let first = reading(reader.read(FIRST_NS, false));
        assert_eq!(first.machine.memory, Some(StallTime { some_us: 70, full_us: Some(7) }));
        assert_eq!(first.machine.cpu, Some(StallTime { some_us: 5, full_us: None }));
        assert_eq!(first.cgroup.io, Some(StallTime { some_us: 9, full_us: Some(3) }));
        assert_eq!((first.cgroup.memory, first.cgroup_name.as_deref()), (None, Some("/job_7/step")));
        let (name, throttling) = &first.quotas[0];
        assert_eq!(
            (name.as_str(), throttling.throttled_periods, throttling.throttled_us),
            ("/job_7", 4, 900)
        );
        let memory = first.memory.unwrap();
        assert_eq!((memory.cgroup.as_str(), memory.page_cache_bytes), ("/job_7/step", Some(4096)));
        assert_eq!((memory.shmem_bytes, memory.mapped_file_bytes), (Some(50), Some(60)));
        assert!(reader.read(2 * FIRST_NS, false).is_none());
        assert!(reader.read(2 * FIRST_NS, true).is_some());
        let mut alone = StallReader::new(root, None, None, None);
        assert_eq!(reading(alone.read(FIRST_NS, false)).memory, None, "others may be in the group");
    }

    // Requirement: STALL-2, RAM-93
    #[test]
    fn version_1_has_the_quota_and_the_memory_in_files_of_other_names() {
        let (dir, root) = tree(
            "4:memory:/job_7\n3:cpu,cpuacct:/job_7\n",
            "30 20 0:26 / TOP/memory rw - cgroup cgroup rw,memory\n31 20 0:27 / TOP/cpu rw - cgroup cgroup rw,cpu\n",
        );
        put(&dir, "cpu/job_7/cpu.cfs_quota_us", "50000\n");
        put(&dir, "cpu/job_7/cpu.cfs_period_us", "100000\n");
        put(&dir, "cpu/job_7/cpu.stat", "nr_periods 8\nnr_throttled 4\nthrottled_time 900000\n");
        put(
            &dir,
            "memory/job_7/memory.stat",
            "cache 1\ntotal_cache 70\ntotal_shmem 7\ntotal_mapped_file 3\n",
        );
        let read = reading(StallReader::new(root, None, None, Some("7")).read(FIRST_NS, false));
        assert_eq!((read.quotas[0].1.throttled_us, read.quotas[0].0.as_str()), (900, "/job_7"));
        let memory = read.memory.unwrap();
        assert_eq!((memory.page_cache_bytes, memory.shmem_bytes), (Some(70), Some(7)));
        assert!(read.machine.is_none() && read.cgroup.is_none() && read.cgroup_name.is_none());
    }
}

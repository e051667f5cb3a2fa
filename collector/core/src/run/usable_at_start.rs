//! The cores and the memory that the command may use, as far as they are known when it starts. The strictest limit counts, and
//! is named.

use crate::model::config::Config;
use crate::model::host_info::HostInfo;
use crate::model::report::{
    Allowed, CoresSource, Host, MemorySource, Usable, UsableCores, UsableGpus, UsableMemory,
};

/// The cores and the memory that the command may use. GPUs are not known when it starts.
pub fn usable_at_start(config: &Config, host_info: &HostInfo) -> Usable {
    let HostInfo { host, allowed, .. } = host_info;
    Usable {
        cores: cores(host, allowed, config.tracking.expected_cores),
        memory: memory(host, allowed),
        gpus: UsableGpus::default(),
    }
}

/// The cores that the run may use: what the user said, else the least of affinity, the batch job, a quota and the machine.
fn cores(host: &Host, allowed: &Allowed, expected: Option<u32>) -> UsableCores {
    if let Some(expected) = expected {
        return UsableCores { count: f64::from(expected), source: CoresSource::NExpectedCores };
    }
    let quota = allowed.cpu_millicores.known().map(|millicores| millicores as f64 / 1000.0);
    let of_job = if allowed.job.is_empty() { CoresSource::Slurm } else { CoresSource::BatchSlots };
    let bounds = [
        (allowed.cpus.as_ref().map(|cpus| cpus.len() as f64), CoresSource::Affinity),
        (allowed.job().cpus_here().map(|cpus| cpus as f64), of_job),
        (quota, CoresSource::CgroupQuota),
    ];
    let mut least = UsableCores { count: f64::from(host.cores), source: CoresSource::Machine };
    for (count, source) in bounds {
        if let Some(count) = count.filter(|count| *count > 0.0 && *count < least.count) {
            least = UsableCores { count, source };
        }
    }
    least
}

/// The memory that the run may use, bytes: the least of the cgroup's limit, Slurm's and the machine's.
fn memory(host: &Host, allowed: &Allowed) -> UsableMemory {
    let all = [
        (allowed.memory_bytes.known(), MemorySource::Cgroup),
        (allowed.job().memory_here_bytes(), MemorySource::Slurm),
        (host.ram_bytes, MemorySource::Machine),
    ];
    // `min_by_key` returns the first of equal ones, so a limit is named rather than the machine.
    let least = all.into_iter().filter_map(|(bytes, source)| Some((bytes?, source))).min_by_key(|(b, _)| *b);
    let address_space = allowed.ulimits.get("address_space_bytes").and_then(|limit| limit.soft.known());
    UsableMemory {
        bytes: least.map(|(bytes, _)| bytes),
        source: least.map(|(_, source)| source),
        process_address_space_bytes: address_space,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::report::{Limit, SoftHard};

    fn host() -> Host {
        Host { hostname: None, kernel: None, cores: 8, ram_bytes: Some(64 << 30), boot_id: None }
    }

    fn allowed(slurm: &[(&str, &str)]) -> Allowed {
        let slurm = slurm.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Allowed { slurm, ..Allowed::default() }
    }

    // Requirement: USE-1
    #[test]
    fn strictest_limit_of_cores_counts_and_is_named() {
        type Case = (&'static [u32], Limit, &'static str, Option<u32>, f64, CoresSource);
        let cases: [Case; 7] = [
            (&[0, 1, 2, 3, 4, 5, 6, 7], Limit::Unlimited, "", None, 8.0, CoresSource::Machine),
            (&[0, 4], Limit::Unlimited, "", None, 2.0, CoresSource::Affinity),
            (&[0, 4], Limit::Known(1500), "", None, 1.5, CoresSource::CgroupQuota),
            (&[0, 4], Limit::Known(2500), "4", None, 2.0, CoresSource::Affinity),
            (&[0, 1, 2, 3], Limit::Unknown, "3", None, 3.0, CoresSource::Slurm),
            (&[0, 4], Limit::Known(1500), "1", Some(6), 6.0, CoresSource::NExpectedCores),
            (&[], Limit::Known(0), "many", None, 8.0, CoresSource::Machine),
        ];
        for (cpus, quota, slurm, expected, count, source) in cases {
            let allowed = Allowed {
                cpus: Some(cpus.to_vec()),
                cpu_millicores: quota,
                ..allowed(&[("SLURM_CPUS_ON_NODE", slurm)])
            };
            let result = cores(&host(), &allowed, expected);
            assert_eq!(result, UsableCores { count, source }, "{cpus:?} {quota:?} {slurm} {expected:?}");
        }
    }

    // Requirement: USE-1
    #[test]
    fn strictest_limit_of_memory_counts_and_is_named() {
        type Case = (Limit, &'static [(&'static str, &'static str)], u64, MemorySource);
        let gib = |n: u64| n << 30;
        let cases: [Case; 8] = [
            (Limit::Unlimited, &[], gib(64), MemorySource::Machine),
            (Limit::Unknown, &[], gib(64), MemorySource::Machine),
            (Limit::Known(gib(16)), &[], gib(16), MemorySource::Cgroup),
            (Limit::Known(gib(128)), &[], gib(64), MemorySource::Machine),
            (Limit::Known(gib(16)), &[("SLURM_MEM_PER_NODE", "8192")], gib(8), MemorySource::Slurm),
            (Limit::Known(gib(8)), &[("SLURM_MEM_PER_NODE", "8192")], gib(8), MemorySource::Cgroup),
            (Limit::Unlimited, &[("SLURM_MEM_PER_NODE", "0")], gib(64), MemorySource::Machine),
            (
                Limit::Unlimited,
                &[("SLURM_MEM_PER_CPU", "2048"), ("SLURM_CPUS_ON_NODE", "4")],
                gib(8),
                MemorySource::Slurm,
            ),
        ];
        for (cgroup, slurm, bytes, source) in cases {
            let result = memory(&host(), &Allowed { memory_bytes: cgroup, ..allowed(slurm) });
            assert_eq!((result.bytes, result.source), (Some(bytes), Some(source)), "{cgroup:?} {slurm:?}");
        }
        let of_gpus = allowed(&[("SLURM_MEM_PER_GPU", "1024"), ("SLURM_GPUS_ON_NODE", "2")]);
        assert_eq!(memory(&host(), &of_gpus).bytes, Some(gib(2)));
        let unknown = memory(&Host { ram_bytes: None, ..host() }, &allowed(&[]));
        assert_eq!((unknown.bytes, unknown.source), (None, None));
    }

    // Requirement: USE-1
    #[test]
    fn address_space_limit_is_that_of_each_process() {
        let limit = SoftHard { soft: Limit::Known(1 << 30), hard: Limit::Unlimited };
        let ulimits = [("address_space_bytes".to_owned(), limit)].into();
        let result = memory(&host(), &Allowed { ulimits, ..Allowed::default() });
        assert_eq!(result.process_address_space_bytes, Some(1 << 30));
        assert_eq!(result.source, Some(MemorySource::Machine), "the tree may use more than one process");
    }
}

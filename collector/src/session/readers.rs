//! What reads /proc and the drivers when the loop asks.

use crate::model::config::Config;
use crate::model::host::HostInfo;
use crate::passes::Passes;
use crate::sources::exit_watch::ExitWatch;
use crate::sources::gpu::monitor::GpuMonitor;
use crate::sources::membership::Membership;
use crate::sources::sampler::Sampler;
use crate::sources::scan::Scanner;
use crate::sys::proc_fs::ProcRoot;

pub(super) struct Readers {
    pub(super) membership: Membership,
    pub(super) scanner: Scanner,
    pub(super) exits: ExitWatch,
    pub(super) passes: Passes,
    pub(super) gpu: GpuMonitor,
}

impl Readers {
    pub(super) fn open(
        config: &Config,
        host: &HostInfo,
        root: &ProcRoot,
        membership: Membership,
        sampled_ns: u64,
    ) -> Self {
        let tick_us = host.tick_us();
        let sampler = Sampler::new(root.clone(), host.page_bytes, tick_us);
        Self {
            membership,
            scanner: Scanner::new(root.clone(), tick_us),
            exits: ExitWatch::default(),
            passes: Passes::new(sampler, config.policy.budget, sampled_ns),
            gpu: GpuMonitor::start(&config.gpu, root),
        }
    }
}

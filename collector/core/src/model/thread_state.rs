//! What a thread does at a sample, by its state in /proc and the kernel function in which it sleeps (`wchan`).
//!
//! Kernels 6.1, 6.12, 6.18 and 7.2 were seen to show these functions on x86-64, and 5.10 in `/proc/PID/stack`. Others are by the kernel's
//! source. A function of a newer kernel, or of a driver that is not here, leaves the state unknown. Before 5.16, `wchan` is 0 on x86-64 with the ORC unwinder, as of Debian's 5.10 (the kernel's commit
//! bc9bbb81730e). A suffix such as `.constprop.0`, which a compiler adds, does not count.

use serde::{Deserialize, Serialize};

use super::report::TimeState;

/// What a thread does at a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ThreadState {
    /// It has a core, or waits for one.
    Ready,
    /// It waits for a child. What that does decides what the run waits for.
    Child,
    /// It waits for events and has a child, whose end can be one of them, as of make. What the child does decides, if it does anything.
    ChildOrEvents,
    /// It waits for the other end of a pipe, which is of the run and decides.
    InnerPipe,
    /// It waits for the other end of a local (Unix) socket, which can be of the run.
    LocalSocket,
    /// It waits on a futex, and has used little of its process's CPU time: mostly a thread of a pool that has no work.
    Pooled,
    /// It is blocked.
    In(TimeState),
}

/// In what a thread sleeps, as far as the name of a kernel function tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// In this state.
    In(TimeState),
    /// For a child process.
    Child,
    /// For events, beside a child whose end can be one of them.
    ChildOrEvents,
    /// For the other end of a pipe, which may be a process of the run.
    Pipe,
    /// For the other end of a local (Unix) socket.
    LocalSocket,
    /// For input of a socket or of a terminal: both use one function.
    SocketOrTerminal,
}

/// What a kernel function tells of a thread that sleeps in it. Names are separated by blanks. One that ends in `*` stands for all that
/// begin so. Longer names come before shorter ones that stand for them, too.
const FUNCTIONS: &[(&str, Wait)] = &[
    // The most frequent ones first.
    (
        "hrtimer_nanosleep do_nanosleep common_nsleep* alarm_timer_nsleep timerfd_read*",
        Wait::In(TimeState::Sleeping),
    ),
    ("futex_* rt_mutex_* __rt_mutex_* __futex_*", Wait::In(TimeState::Lock)),
    ("do_wait kernel_wait* wait_for_vfork_done kernel_clone _do_fork", Wait::Child),
    (
        "do_epoll_wait ep_poll poll_schedule_timeout do_select do_poll* do_sys_poll",
        Wait::In(TimeState::Events),
    ),
    ("anon_pipe_* pipe_* fifo_open wait_for_partner ipipe_prep opipe_prep", Wait::Pipe),
    ("wait_woken", Wait::SocketOrTerminal),
    ("unix_* __unix_*", Wait::LocalSocket),
    (
        "__do_sys_pause sys_pause __x64_sys_pause do_sigtimedwait sigsuspend __se_sys_pause \
         do_cpu_nanosleep alarmtimer_do_nsleep",
        Wait::In(TimeState::Sleeping),
    ),
    // `do_wait_intr_irq`: of an eventfd, or of a timerfd.
    (
        "io_cqring_wait* __io_cqring_wait* __do_sys_io_uring_enter core_sys_select eventfd_* \
         do_wait_intr_irq signalfd_* inotify_read fanotify_read userfaultfd_* fuse_dev_do_read \
         fuse_dev_read do_msgrcv do_msgsnd wq_sleep perf_read* devkmsg_read kernfs_fop_poll",
        Wait::In(TimeState::Events),
    ),
    ("do_semtimedop __do_semtimedop do_semop", Wait::In(TimeState::Lock)),
    (
        "sk_wait_* sk_stream_wait_* inet_* __inet_* __skb_wait_* skb_wait_* sock_* tcp_* udp_* netlink_* \
         vsock_* virtio_transport_* sctp_* rds_* mptcp_* smc_* packet_* ib_uverbs_* rdma_* ucma_*",
        Wait::In(TimeState::Network),
    ),
    (
        "locks_lock_* flock_lock_* posix_lock_* fcntl_setlk* nlmclnt_* __break_lease nfs4_proc_lock \
         fcntl_*",
        Wait::In(TimeState::FileLock),
    ),
    ("n_tty_* tty_* read_chan job_control", Wait::In(TimeState::Terminal)),
    (
        "do_swap_page swap_* __swap_* read_swap_* swapin_* reclaim_throttle throttle_direct_reclaim \
         shrink_* try_to_free_* mem_cgroup_* __mem_cgroup_* congestion_wait",
        Wait::In(TimeState::Swap),
    ),
    (
        "folio_wait_* __folio_* folio_* wait_on_page_* __wait_on_page_* put_and_wait_on_page_* \
         io_schedule* submit_bio_* bio_await __submit_bio* blkdev_* __blkdev_* __sync_dirty_buffer sync_* \
         __wait_on_buffer wait_on_bit* out_of_line_wait_on_bit* bit_wait* __wait_on_bit* jbd2_* __jbd2_* \
         do_get_write_access start_this_handle wait_transaction_* add_transaction_credits ext4_* __ext4_* \
         xfs_* _xfs_* __xfs_* xlog_* btrfs_* wait_for_commit wait_current_trans f2fs_* cv_wait_* __cv_* \
         zil_* txg_* zio_* nfs_* nfs4_* nfs3_* rpc_* __rpc_* request_wait_answer fuse_* __fuse_* ll_* \
         cl_* ptlrpc_* osc_* obd_* ldlm_* mdc_* lov_* ceph_* cifs_* smb2_* wait_for_response v9fs_* p9_* \
         netfs_* afs_* gfs2_* ocfs2_* ovl_* wb_* balance_dirty_pages* writeback_* vfs_fsync* dio_* \
         __iomap_* iomap_* generic_file_* filemap_* __filemap_* blk_* rq_qos_wait wbt_* get_request \
         __bio_* loop_* nvme_* scsi_* dm_* md_* raid5_* read_events do_io_getevents __lock_buffer \
         __flush_work bh_* __bread*",
        Wait::In(TimeState::Storage),
    ),
    (
        "nv_* _nv* nvidia_* uvm_* os_acquire_* os_delay* rm_* amdgpu_* kfd_* drm_* dma_fence_* i915_* \
         xe_* ttm_* dma_resv_* hl_*",
        Wait::In(TimeState::Gpu),
    ),
    // From `vm_mmap_pgoff` on: for the lock of a process's memory map.
    (
        "rwsem_* down_* __down* vm_mmap_pgoff lock_mm_and_find_vma __vm_munmap do_mprotect_pkey \
         __mm_populate __vma_start_exclude_readers madvise_lock do_madvise do_mremap __do_sys_mremap \
         do_user_addr_fault m_start do_mlock __x64_sys_munlock __do_sys_brk dup_mmap copy_process \
         vma_expand __split_vma process_vm_rw_core show_smaps_rollup",
        Wait::In(TimeState::Lock),
    ),
    // For the other cores: in `D`, but not for storage.
    ("synchronize_rcu_normal __wait_rcu_gp", Wait::In(TimeState::Unknown)),
    (
        "do_signal_stop ptrace_* do_freezer_trap __refrigerator get_signal do_jobctl_trap",
        Wait::In(TimeState::Stopped),
    ),
];

impl Wait {
    /// What the function tells in which a thread sleeps. `None`: it is not known.
    pub fn in_function(name: &str) -> Option<Self> {
        let name = name.split('.').next().unwrap_or(name);
        let is = |pattern: &str| match pattern.strip_suffix('*') {
            Some(start) => name.starts_with(start),
            None => name == pattern,
        };
        FUNCTIONS.iter().find(|(names, _)| names.split(' ').any(is)).map(|(_, wait)| *wait)
    }

    /// What the state in /proc/PID/stat tells of a thread that sleeps, if no function does. `D` is an uninterruptible sleep: nearly
    /// always one for storage.
    pub fn in_state(letter: u8) -> Self {
        Self::In(match letter {
            b'D' => TimeState::Storage,
            b'T' | b't' => TimeState::Stopped,
            _ => TimeState::Unknown,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Requirement: SLOW-2
    #[test]
    fn functions_of_known_kernels_tell_the_state() {
        for (name, state) in [
            ("futex_do_wait", TimeState::Lock),
            ("futex_wait_queue_me", TimeState::Lock),
            ("do_mprotect_pkey", TimeState::Lock),
            ("__vm_munmap", TimeState::Lock),
            ("process_vm_rw_core.constprop.0", TimeState::Lock),
            ("hrtimer_nanosleep", TimeState::Sleeping),
            ("do_sigtimedwait.isra.0", TimeState::Sleeping),
            ("do_cpu_nanosleep", TimeState::Sleeping),
            ("poll_schedule_timeout.constprop.0", TimeState::Events),
            ("do_wait_intr_irq", TimeState::Events),
            ("__do_sys_io_uring_enter", TimeState::Events),
            ("inet_csk_accept", TimeState::Network),
            ("__skb_wait_for_more_packets", TimeState::Network),
            ("sock_alloc_send_pskb", TimeState::Network),
            ("fcntl_setlk", TimeState::FileLock),
            ("locks_lock_inode_wait", TimeState::FileLock),
            ("folio_wait_bit_common", TimeState::Storage),
            ("wait_on_page_bit_killable", TimeState::Storage),
            ("submit_bio_wait", TimeState::Storage),
            ("bio_await", TimeState::Storage),
            ("jbd2_log_wait_commit", TimeState::Storage),
            ("request_wait_answer", TimeState::Storage),
            ("rpc_wait_bit_killable", TimeState::Storage),
            ("do_signal_stop", TimeState::Stopped),
            ("n_tty_read", TimeState::Terminal),
            ("uvm_va_block_service", TimeState::Gpu),
            ("__wait_rcu_gp", TimeState::Unknown),
        ] {
            assert_eq!(Wait::in_function(name), Some(Wait::In(state)), "{name}");
        }
        assert_eq!(Wait::in_function("do_wait"), Some(Wait::Child));
        assert_eq!(Wait::in_function("unix_stream_read_generic"), Some(Wait::LocalSocket));
        assert_eq!(Wait::in_function("anon_pipe_write"), Some(Wait::Pipe));
        assert_eq!(Wait::in_function("wait_woken"), Some(Wait::SocketOrTerminal));
        assert_eq!(Wait::in_function("snafu_wait"), None);
        assert_eq!(Wait::in_state(b'D'), Wait::In(TimeState::Storage));
        assert_eq!(Wait::in_state(b'S'), Wait::In(TimeState::Unknown));
    }

    #[test]
    fn no_function_is_hidden_by_a_pattern_before_it() {
        let all = FUNCTIONS.iter().flat_map(|(names, wait)| names.split(' ').map(move |name| (name, wait)));
        for (name, wait) in all {
            let shortest = name.trim_end_matches('*');
            assert_eq!(Wait::in_function(shortest), Some(*wait), "{name}");
        }
    }
}

/* gpu-track: the contract between the processes of a session, for C. The Rust crate beside this file has the same
 * constants and layout, with explanations; its tests compare them, and write the constants (CONTRIBUTING.md). */
#ifndef GPU_TRACK_ABI_H
#define GPU_TRACK_ABI_H

#include <stdint.h>

#define GPU_TRACK_ENV_SESSION "GPU_TRACK_SESSION" /* colon-separated segment paths, outermost session first */
#define GPU_TRACK_SHIM_PREFIX "libgpu_track_shim.v8."

#define GPU_TRACK_MAGIC 0x6b63617274757067ull /* "gputrack", little-endian */
#define GPU_TRACK_ABI_VERSION 8u
#define GPU_TRACK_HEADER_SIZE 4096u
#define GPU_TRACK_RECORD_WORDS 48u
#define GPU_TRACK_RING_CAPACITY 2048u
#define GPU_TRACK_FILE_SIZE 790528u /* records that find the ring full are appended from this offset on */
#define GPU_TRACK_OVERFLOW_SLOT 256u /* bytes of each: the record's words, the ring's head, zeros */

#define GPU_TRACK_FLAG_PIDFS 1u
#define GPU_TRACK_FLAG_NO_ENV_REPAIR 2u
#define GPU_TRACK_FLAG_NO_WAIT_RECORDS 4u
#define GPU_TRACK_FLAG_SPLIT_RSS 8u

#define GPU_TRACK_STATE_OPEN 1u
#define GPU_TRACK_STATE_CLOSED 2u
#define GPU_TRACK_STATE_RESTING 3u /* open, too */

/* The live file beside the segment, with the segment's name and this suffix. It has a version of its own. */
#define GPU_TRACK_LIVE_SUFFIX ".live"
#define GPU_TRACK_LIVE_MAGIC 0x6576696c74757067ull /* "gputlive", little-endian */
#define GPU_TRACK_LIVE_VERSION 2u
#define GPU_TRACK_LIVE_SIZE 176832u
#define GPU_TRACK_SAMPLE_CAPACITY 1024u
#define GPU_TRACK_SAMPLE_SLOT 64u /* bytes of a sample */
#define GPU_TRACK_GPU_CAPACITY 64u
#define GPU_TRACK_PROCESS_CAPACITY 256u
#define GPU_TRACK_SUMMARY_CAPACITY 65536u /* bytes of JSON */
#define GPU_TRACK_UNKNOWN 0xffffffffffffffffull /* a whole number that is not known; a double is NaN then */

/* At offset 0 of a segment, in the machine's byte order. state and doorbell are 32-bit atomics. Each of head, tail,
 * dropped, unreachable and filtered is a 64-bit atomic on a cache line of its own. */
struct gpu_track_header {
    uint64_t magic;
    uint32_t abi_version;
    uint32_t record_words;
    uint32_t ring_capacity;
    uint32_t flags;
    uint64_t session_id;
    uint32_t launcher_pid;
    uint32_t launcher_pid_ns;
    uint64_t created_monotonic_ns;
    uint64_t created_realtime_ns;
    uint32_t state;
    uint32_t doorbell;
    uint64_t head, pad_head[7];
    uint64_t tail, pad_tail[7];
    uint64_t dropped, pad_dropped[7];
    uint64_t unreachable, pad_unreachable[7];
    uint64_t filtered, pad_filtered[7];
    char task_names[256];
    uint32_t task_baseline[7];
    uint32_t nodes, pad_end[8];
};

/* The live file: what a run does now. Map it read-only. Refuse it unless magic, version and the file's length are as above; then
 * all of the following holds. docs/examples/live.c is a reader, and docs/FILES.md has the keys of the summary. Times are
 * CLOCK_MONOTONIC nanoseconds. */

/* Where a section of a live file is: its first byte, its bytes, bytes of an entry, and most entries. */
struct gpu_track_live_section {
    uint32_t offset, size, entry_size, capacity;
};

/* At offset 0 of a live file. Only samples changes, a 64-bit atomic: sample n is in slot n % capacity of the ring, and
 * samples - 1 is the latest. */
struct gpu_track_live_header {
    uint64_t magic;
    uint32_t version, section_count;
    uint64_t session_id, file_size, pad_size[4];
    uint64_t samples, pad_samples[7];
    struct gpu_track_live_section sample_ring, gpu_table, process_table, summary_table;
};

/* Each slot of the ring, and each table, begins with its sequence: a 64-bit atomic that is odd while the collector writes, and 0
 * before the first time. Read it, the rest, and it again: all belongs together if it is the same even number. It stays odd if
 * the collector was killed in the middle, until the next one writes; so try a bounded number of times. */

/* A slot of the ring: the tree at a sample. */
struct gpu_track_sample {
    uint64_t sequence;
    uint64_t monotonic_ns;
    uint64_t main_bytes, descendants_bytes, combined_bytes;
    uint64_t cpu_ns;
    uint64_t processes, threads;
};

/* The begin of a table. at_ns: the sample that it is of. count entries follow; of the summary, count bytes of JSON. others: how
 * many more GPUs or processes there are. */
struct gpu_track_table {
    uint64_t sequence;
    uint64_t at_ns;
    uint64_t count;
    uint64_t others, pad_others[4];
};

/* A GPU: the largest figures since the sample before or, if nothing was read since, the last ones. They are unknown once they
 * are older than two readings should be. index is the driver's own; uuid is a PCI address where there is no UUID. used_bytes is
 * the memory of all processes of the machine, run_bytes that of the run's. */
struct gpu_track_gpu {
    uint64_t index;
    uint64_t read_ns;
    uint64_t total_bytes, used_bytes, run_bytes;
    double utilization_percent, power_w, temperature_c, sm_clock_mhz;
    char uuid[80], name[48];
};

/* A live process, as the sample found it; the largest by RSS come first. Pids are those of the collector's namespace. The parent
 * is the process that made it, while that is there. A command can have control characters. */
struct gpu_track_process {
    uint64_t pid, parent_pid;
    uint64_t start_ns;
    uint64_t rss_bytes;
    uint64_t cpu_ns;
    uint64_t gpu_bytes;
    char command[64];
};

#endif

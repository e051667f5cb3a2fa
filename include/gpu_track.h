/* gpu-track: the contract between the processes of a session, for C. The Rust crate beside this file has the same
 * constants and layout, with explanations; its tests compare them, and write the constants (CONTRIBUTING.md). */
#ifndef GPU_TRACK_H
#define GPU_TRACK_H

#include <stdint.h>

#define GPU_TRACK_ENV_SESSION "GPU_TRACK_SESSION" /* colon-separated segment paths, outermost session first */
#define GPU_TRACK_SHIM_PREFIX "libgpu_track_shim.v5."

#define GPU_TRACK_MAGIC 0x6b63617274757067ull /* "gputrack", little-endian */
#define GPU_TRACK_ABI_VERSION 5u
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

/* The live file beside the segment, with the segment's name and this suffix. It has a version of its own. */
#define GPU_TRACK_LIVE_SUFFIX ".live"
#define GPU_TRACK_LIVE_MAGIC 0x6576696c74757067ull /* "gputlive", little-endian */
#define GPU_TRACK_LIVE_VERSION 1u
#define GPU_TRACK_LIVE_SIZE 69632u
#define GPU_TRACK_SAMPLE_CAPACITY 1024u
#define GPU_TRACK_SAMPLE_SLOT 64u /* bytes of a sample */

/* At offset 0 of a segment, in the machine's byte order. state and doorbell are 32-bit atomics. Each of head, tail,
 * dropped and unreachable is a 64-bit atomic on a cache line of its own. */
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
};

/* At offset 0 of a live file. samples is a 64-bit atomic. Its slots begin at first_slot; sample n is in slot n % capacity. */
struct gpu_track_live_header {
    uint64_t magic;
    uint32_t version;
    uint32_t slot_size;
    uint32_t capacity;
    uint32_t first_slot;
    uint64_t session_id, pad_session[4];
    uint64_t samples, pad_samples[7];
};

/* A slot of the live file: sequence is odd while the slot is written, and 0 before the first time. Read it, the fields, and
 * it again: the fields belong together if it is the same even number. Times are CLOCK_MONOTONIC nanoseconds. */
struct gpu_track_sample {
    uint64_t sequence;
    uint64_t monotonic_ns;
    uint64_t main_bytes, descendants_bytes, combined_bytes;
    uint64_t cpu_ns;
    uint64_t processes, threads;
};

#endif

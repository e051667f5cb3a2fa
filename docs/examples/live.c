/* Prints what a run does now, from its live file: all but the earlier samples.
 *     cc -I include -o live live.c && ./live /dev/shm/gpu-track.*.live
 * It exits with 2 if the file is none of this version, and with 3 if nothing is written yet or a killed collector left a section
 * half-written; the next collector writes that anew. */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include "gpu_track_abi.h"

static union { struct gpu_track_sample sample; struct gpu_track_table table; char bytes[GPU_TRACK_LIVE_SIZE]; } copy;

/* Copies what begins with a sequence. 0: it was never written, or its writer was killed in the middle. */
static int take(const char *from, size_t size) {
    const uint64_t *sequence = (const void *)from;
    for (int tries = 0; tries < 200; tries++, usleep(1000)) {
        uint64_t before = __atomic_load_n(sequence, __ATOMIC_ACQUIRE);
        memcpy(&copy, from, size);
        __atomic_thread_fence(__ATOMIC_ACQUIRE);
        if (before % 2 == 0 && __atomic_load_n(sequence, __ATOMIC_RELAXED) == before) return before != 0;
    }
    return 0;
}

int main(int argc, char **argv) {
    struct stat status;
    int fd = argc == 2 ? open(argv[1], O_RDONLY) : -1;
    if (fd < 0 || fstat(fd, &status) || status.st_size != GPU_TRACK_LIVE_SIZE) return 2;
    const char *file = mmap(NULL, GPU_TRACK_LIVE_SIZE, PROT_READ, MAP_SHARED, fd, 0);
    const struct gpu_track_live_header *header = (const void *)file;
    if (file == MAP_FAILED || header->magic != GPU_TRACK_LIVE_MAGIC || header->version != GPU_TRACK_LIVE_VERSION) return 2;

    uint64_t samples = __atomic_load_n(&header->samples, __ATOMIC_ACQUIRE);
    const char *ring = file + header->sample_ring.offset;
    if (!samples || !take(ring + (samples - 1) % GPU_TRACK_SAMPLE_CAPACITY * GPU_TRACK_SAMPLE_SLOT, GPU_TRACK_SAMPLE_SLOT)) return 3;
    printf("tree %" PRIu64 " %" PRIu64 "\n", copy.sample.combined_bytes, copy.sample.processes);

    if (!take(file + header->gpu_table.offset, header->gpu_table.size)) return 3;
    const struct gpu_track_gpu *gpu = (const void *)(&copy.table + 1); /* as signed numbers, what is not known is -1 */
    for (uint64_t i = 0; i < copy.table.count && i < GPU_TRACK_GPU_CAPACITY; i++, gpu++)
        printf("gpu %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 " %g %g %g %g %.80s\n", gpu->index, gpu->used_bytes, gpu->run_bytes,
               gpu->total_bytes, gpu->utilization_percent, gpu->power_w, gpu->temperature_c, gpu->sm_clock_mhz, gpu->uuid);

    if (!take(file + header->process_table.offset, header->process_table.size)) return 3;
    const struct gpu_track_process *one = (const void *)(&copy.table + 1);
    for (uint64_t i = 0; i < copy.table.count && i < GPU_TRACK_PROCESS_CAPACITY; i++, one++)
        printf("process %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 " %.64s\n", one->pid, one->parent_pid,
               one->rss_bytes, one->cpu_ns, one->gpu_bytes, one->command);

    if (!take(file + header->summary_table.offset, header->summary_table.size)) return 3;
    if (copy.table.count > GPU_TRACK_SUMMARY_CAPACITY) return 3;
    printf("%.*s\n", (int)copy.table.count, (const char *)(&copy.table + 1));
    return 0;
}

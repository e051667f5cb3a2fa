// The least that a preloaded library can do and still register its process: the limit that row 1 of scripts/bench
// holds the shim against. It opens and maps the session's segment as the shim does, asks for its rusage, and writes
// nothing. Without a session in the environment it is an empty library.

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

// gpu_track.h: GPU_TRACK_TRACKED_SIZE.
#ifndef TRACKED_SIZE
#error "give -DTRACKED_SIZE"
#endif

__attribute__((constructor)) static void start(void) {
    const char *session = getenv("GPU_TRACK_SESSION");
    if (session == NULL)
        return;
    int fd = open(session, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return;
    (void)mmap(NULL, TRACKED_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
}

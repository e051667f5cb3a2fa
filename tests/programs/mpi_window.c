/* mpi_window MIB
 *
 * The ranks of a node share a window of MIB, which each of them touches, and each has MIB of its own. Rank 0 writes
 * "ready", and all hold their memory until its standard input ends. They touch and give back the window in step, so that
 * it is never one rank's alone. */
#include "common.h"
#include <mpi.h>

/* A barrier costs several turns of all ranks on a busy machine. */
#define STEP ((size_t)1 << 20)

/* MPI_Barrier computes while it waits. */
static void rest(void) {
    MPI_Request request;
    int done = 0;
    MPI_Ibarrier(MPI_COMM_WORLD, &request);
    for (;;) {
        MPI_Test(&request, &done, MPI_STATUS_IGNORE);
        if (done) return;
        hold_ms(10);
    }
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    if (argc != 2) return 97;
    size_t bytes = strtoul(argv[1], NULL, 10) << 20;
    int rank, unit;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Win window;
    char *memory;
    MPI_Win_allocate_shared(rank ? 0 : (MPI_Aint)bytes, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &window);
    MPI_Aint size;
    MPI_Win_shared_query(window, 0, &size, &unit, &memory);
    for (size_t at = 0; at < bytes; at += STEP) {
        touch_pages(memory + at, bytes - at < STEP ? bytes - at : STEP);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    char *own = map_touched(bytes, MAP_PRIVATE);
    MPI_Barrier(MPI_COMM_WORLD);
    if (!rank) {
        puts("ready");
        fflush(stdout);
        for (char byte; read(0, &byte, 1) > 0;) {}
    }
    rest();
    /* MPI's own shared memory becomes private to the last rank that has it. */
    munmap(own, bytes);
    /* Only whole pages can be given back. */
    char *page = (char *)(((size_t)memory + 4095) & ~(size_t)4095);
    for (size_t at = 0; at + STEP < bytes; at += STEP) {
        madvise(page + at, STEP, MADV_DONTNEED);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    MPI_Win_free(&window);
    MPI_Finalize();
    return 0;
}

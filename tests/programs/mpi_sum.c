/* mpi_sum SECONDS BYTES
 *
 * Each rank burns SECONDS of CPU and touches BYTES; rank 0 prints how many ranks took part. */
#include "common.h"
#include <mpi.h>

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    if (argc != 3) return 97;
    map_touched(strtoul(argv[2], NULL, 10), MAP_PRIVATE);
    burn_cpu(atof(argv[1]));
    int one = 1, sum = 0, rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Reduce(&one, &sum, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
    if (!rank) printf("ranks %d\n", sum);
    MPI_Finalize();
    return 0;
}

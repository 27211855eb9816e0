/* gradpool-bench-mpi: a rank of Open MPI in a comparison. This separate program is built only if
 * libmpi is installed. mpirun starts it with the conductor's address. */
#include "bench/compare/seat.h"
#include "bench/lib/host.h"

#include <errno.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

struct peer {
    float *gradient, *result;
    int elements;
};

static int resize(void *context, uint64_t bytes, uint32_t tensors, float **ret_gradient,
                  float **ret_result)
{
    (void)tensors;
    struct peer *p = context;
    free(p->gradient);
    free(p->result);
    p->elements = (int)(bytes / sizeof(float));
    p->gradient = malloc(bytes);
    p->result = malloc(bytes);
    *ret_gradient = p->gradient;
    *ret_result = p->result;
    return p->gradient && p->result ? 0 : -ENOMEM;
}

static int all_reduce(void *context)
{
    const struct peer *p = context;
    int r = MPI_Allreduce(p->gradient, p->result, p->elements, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    return r == MPI_SUCCESS ? 0 : -EIO;
}

/* Waits for all ranks. A rank transfers data only inside MPI calls, so no rank may leave before all
 * have finished. */
static int settle(void *context) { return MPI_Barrier(MPI_COMM_WORLD) == MPI_SUCCESS ? 0 : -EIO; }

int main(int argc, char **argv)
{
    static const struct seat_work verbs = {resize, all_reduce, settle};
    struct peer p = {0};
    int rank, workers;
    if (argc != 2) {
        fprintf(stderr, "gradpool-bench-mpi is started by `gradpool-bench compare`\n");
        return 2;
    }
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &workers);
    process_bind((uint32_t)rank + 1);
    const struct seat seat = {argv[1], (uint32_t)rank, (uint32_t)workers};
    int r = seat_run(&seat, &verbs, &p);
    MPI_Finalize();
    return r < 0 ? 1 : 0;
}

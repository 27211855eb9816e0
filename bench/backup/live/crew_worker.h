/* One worker process of a crew, and the memory that all workers of a run share. */
#ifndef GRADPOOL_BENCH_BACKUP_LIVE_CREW_WORKER_H
#define GRADPOOL_BENCH_BACKUP_LIVE_CREW_WORKER_H

#include "bench/backup/live/crew.h"

/* Log of one worker, which is read after the worker's end. The arrays have the number of the round
 * as index. */
struct crew_log {
    /* digests of the parameters; 0: the worker skipped the round */
    uint64_t digests[CREW_ROUNDS_MAX];
    uint8_t counted[CREW_ROUNDS_MAX]; /* number of gradients in the round; 0: unknown */
    uint64_t ends, dropped, absence, last;
    float parameters[CREW_FLOATS]; /* parameters after round `last` */
};

struct crew_board {
    /* Number of the round at which all ranks stop; 0: the target was not reached yet. */
    uint64_t stop_round;
    /* times on rank 0: start of the run, and when the target was reached (0: not yet) */
    double begun_s, reached_s;
    uint64_t reached_round;
    struct crew_log logs[CREW_WORKERS];
};

/* Trains as this rank. Returns the exit code of the process: 0 or 1, with a text on standard
 * error. */
int crew_work(const struct crew_setting *setting, uint32_t rank, struct crew_board *board);

#endif

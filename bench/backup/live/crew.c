/* Owns the processes of a run and their shared memory. Compares the parameters of the ranks after
 * each round. */
#include "bench/backup/live/crew_worker.h"

#include "bench/lib/host.h"
#include "svc/base/clock.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define RUN_NS (120 * NS_PER_S)

/* Returns the digest of the parameters after the round, as stored by a rank; 0: no rank has stored
 * a digest. `ret_ranks`: number of ranks with a digest of the round. */
static uint64_t crew_digest(const struct crew_board *board, size_t round, unsigned *ret_ranks,
                            bool *ret_equal)
{
    uint64_t first = 0;
    *ret_ranks = 0;
    for (size_t i = 0; i < CREW_WORKERS; i++) {
        uint64_t digest = board->logs[i].digests[round];
        if (digest == 0)
            continue;
        first = first ? first : digest;
        *ret_equal &= digest == first;
        ++*ret_ranks;
    }
    return first;
}

/* Returns whether the parameters of all ranks that ended with the same round are equal in every
 * byte. */
static bool crew_ends_are_equal(const struct crew_board *board)
{
    for (size_t i = 0; i < CREW_WORKERS; i++) {
        for (size_t k = i + 1; k < CREW_WORKERS; k++) {
            const struct crew_log *a = &board->logs[i], *b = &board->logs[k];
            if (a->last == b->last && memcmp(a->parameters, b->parameters, sizeof a->parameters))
                return false;
        }
    }
    return true;
}

static void crew_look(const struct crew_board *board, struct crew_result *ret_result)
{
    uint64_t gradients = 0, known = 0, dropped = 0, rounds = 0;
    unsigned ranks;
    *ret_result = (struct crew_result){.seconds = NAN, .bits_equal = crew_ends_are_equal(board)};
    for (size_t r = 1; r < CREW_ROUNDS_MAX; r++) {
        uint8_t counted = 0;
        if (crew_digest(board, r, &ranks, &ret_result->bits_equal))
            rounds = r;
        ret_result->compared += ranks > 1;
        for (size_t i = 0; i < CREW_WORKERS && counted == 0; i++)
            counted = board->logs[i].counted[r];
        gradients += counted;
        known += counted > 0;
    }
    for (size_t i = 0; i < CREW_WORKERS; i++) {
        dropped += board->logs[i].dropped;
        if (board->logs[i].absence > ret_result->absence)
            ret_result->absence = board->logs[i].absence;
    }
    ret_result->rounds = board->reached_round;
    ret_result->k_mean = known > 0 ? (double)gradients / (double)known : NAN;
    ret_result->dropped = rounds > 0 ? (double)dropped / (double)(rounds * CREW_WORKERS) : NAN;
    if (board->reached_s > 0)
        ret_result->seconds = board->reached_s - board->begun_s;
}

static int crew_run_on(const struct crew_setting *setting, struct crew_board *board)
{
    pid_t pids[CREW_WORKERS] = {0};
    uint64_t deadline_ns = clock_now_ns() + RUN_NS;
    int error = 0;
    for (uint32_t rank = 0; rank < CREW_WORKERS; rank++) {
        pids[rank] = process_fork(SIGKILL);
        if (pids[rank] == 0)
            _exit(crew_work(setting, rank, board));
        error = pids[rank] < 0 ? -EIO : error;
    }
    for (uint32_t rank = 0; rank < CREW_WORKERS; rank++) {
        if (pids[rank] > 0 && process_reap(pids[rank], deadline_ns) != 0)
            error = -EIO;
    }
    return error;
}

int live_crew_run(const struct crew_setting *setting, struct crew_result *ret_result)
{
    struct crew_board *board =
        mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (board == MAP_FAILED)
        return -ENOMEM;
    int error = crew_run_on(setting, board);
    if (error == 0)
        crew_look(board, ret_result);
    munmap(board, sizeof *board);
    return error;
}

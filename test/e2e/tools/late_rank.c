/* A rank of a tensor whose rounds need two ranks. Each rank pushes the number of the round, so each
 * element of a result must be the round that the lane has named. All ranks but 0 and 1 announce a
 * round only after ranks 0 and 1 have its result: they are always late, and never in a set.
 * Usage: late_rank ENDPOINT RANK RANKS ROUNDS, where ROUNDS is a file with the newest round of each
 * rank. Prints a line for each push: beginning and end of the push (CLOCK_MONOTONIC, in s), round,
 * number of false elements. Runs until it is killed. */
#include "client/gradpool.h"
#include "client/lib/job/job.h"
#include "client/lib/job/piece.h"
#include "svc/base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define RANKS_MAX 9
#define BOUND 2             /* ranks in each set */
#define ELEMENTS (2u << 20) /* 8 MiB, two pieces with many chunks */
#define WAIT_MS 600000      /* also counts while the test has stopped this process */
#define WAIT_NS (WAIT_MS * NS_PER_MS)

static _Atomic uint64_t *rounds; /* newest round of each rank */
static float *gradient, *result;

#define must(call)                                                                \
    do {                                                                          \
        int must_error_ = (call);                                                 \
        if (must_error_ < 0) {                                                    \
            printf("failed: line %d: %s: %d, %s\n", __LINE__, #call, must_error_, \
                   gp_last_error());                                              \
            exit(1);                                                              \
        }                                                                         \
    } while (0)

static double seconds(void) { return (double)clock_now_ns() / 1e9; }

static void open_rounds(const char *path)
{
    int file = open(path, O_RDWR | O_CLOEXEC);
    size_t bytes = RANKS_MAX * sizeof *rounds;
    rounds = file < 0 ? MAP_FAILED : mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (rounds == MAP_FAILED) {
        printf("failed: no access to %s\n", path);
        exit(1);
    }
    close(file);
}

/* Waits until the other ranks have the result of the round. */
static void await_others(uint64_t round)
{
    const struct timespec moment = {.tv_nsec = NS_PER_MS};
    uint64_t deadline_ns = clock_now_ns() + WAIT_NS;
    while ((rounds[0] < round || rounds[1] < round) && clock_now_ns() < deadline_ns)
        nanosleep(&moment, NULL);
}

static bool is_committed(void *tensor)
{
    const struct gp_tensor *t = tensor;
    return t->without_commit == 0 || t->failure.code != 0;
}

/* Waits until the lanes have named the round of each piece. gp_wait() for a copied result returns
 * earlier. */
static void await_commit(struct gp_tensor *t)
{
    struct gp_job *job = t->job;
    pthread_mutex_lock(&job->lock);
    bool is_over = engine_run(&job->engine, clock_now_ns() + WAIT_NS, is_committed, t);
    pthread_mutex_unlock(&job->lock);
    if (is_over && t->failure.code == 0)
        return;
    printf("failed: no commit of round %llu\n", (unsigned long long)t->round);
    exit(1);
}

/* Returns the number of elements that are not the round that the lane has named. */
static uint64_t count_false(const struct gp_tensor *t)
{
    uint64_t count = 0;
    for_each_piece (p, t) {
        for (uint64_t e = p->first; e < p->first + p->elements; e++)
            count += result[e] != (float)p->committed;
    }
    return count;
}

static void push(struct gp_tensor *t, uint32_t rank)
{
    gp_request *request;
    for (uint64_t e = 0; e < ELEMENTS; e++) {
        gradient[e] = (float)(t->round + 1);
        result[e] = -1;
    }
    double began = seconds();
    must(gp_push_pull(t, gradient, result, GP_MEAN, &request));
    must(gp_wait(request, WAIT_MS));
    await_commit(t);
    double ended = seconds();
    printf("%.6f %.6f %llu %llu\n", began, ended, (unsigned long long)t->round,
           (unsigned long long)count_false(t));
    rounds[rank] = t->round;
}

/* Returns the number in a word of one digit; 0: the word is no such number. */
static uint32_t digit(const char *word)
{
    return word[0] >= '0' && word[0] <= '9' && !word[1] ? (uint32_t)(word[0] - '0') : 0;
}

int main(int argc, char **argv)
{
    gp_client *client;
    gp_job *job;
    gp_tensor *t;
    if (argc != 5 || digit(argv[3]) <= digit(argv[2]))
        return 2;
    setvbuf(stdout, NULL, _IOLBF, 0);
    uint32_t rank = digit(argv[2]), ranks = digit(argv[3]);
    open_rounds(argv[4]);
    gradient = malloc(ELEMENTS * sizeof *gradient);
    result = malloc(ELEMENTS * sizeof *result);
    if (!gradient || !result)
        return 2;
    must(gp_connect(argv[1], NULL, &client));
    must(gp_job_join(client, &(gp_job_spec){.name = "late", .rank = rank, .workers = ranks}, &job));
    must(gp_tensors_declare(job,
                            &(gp_tensor_spec){.name = "first",
                                              .dtype = GP_F32,
                                              .elements = ELEMENTS,
                                              .quorum = GP_FIRST,
                                              .bound = BOUND},
                            1, &t));
    for (;;) {
        if (rank >= BOUND)
            await_others(t->round + 1);
        push(t, rank);
    }
}

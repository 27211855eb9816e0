/* One lane and some workers in one thread, over a real fabric. The test runs them step by step and
 * sends their messages one by one. */
#ifndef GRADPOOL_TEST_LANE_RIG_H
#define GRADPOOL_TEST_LANE_RIG_H

#include "svc/fabric/fabric.h"
#include "svc/fabric/region.h"
#include "svc/lane/chunk/transfer_types.h"
#include "svc/lane/lane.h"
#include "svc/wire/record.h"

#define RIG_WORKERS_MAX 12
#define RIG_JOB 7
#define RIG_LANE 3
#define RIG_INCARNATION UINT64_C(0xfeed)
/* The cache is so small that sums of long tensors bypass the cache (A18), and sums of short tensors
 * do not. */
#define RIG_CACHE_BYTES (64u << 10)
/* Bytes of memory of a worker. Inputs begin at the start of this memory, landing areas in the
 * middle. */
#define RIG_REGION_BYTES (8u << 20)
#define RIG_LANDING (RIG_REGION_BYTES / 2)

struct rig_worker {
    struct fabric *fabric;
    struct fabric_conn *conn;
    struct region region;
    bool is_open, is_closed;
    int close_error;
    uint32_t refused; /* reason of the refusal */
    uint32_t words[4096];
    int words_count;
    uint32_t commits[4096];
    int commits_count;
    struct record_error error;
    int errors_count;
    struct record_missing missing;
    int missing_count;
    struct record_closed closed[16];
    int closed_count;
    struct record_backed backed;
    int backed_count;
    struct record_clocks clocks;
    int clocks_count;
    struct record_chosen chosen;
    int chosen_count;
    struct record_chosen passed;
    int passed_count;
    struct record_measure measure;
    int measures_count;
    struct record_go_on go_on;
    int go_on_count;
    struct record_logged logged;
    int logged_count;
    int chosen_before_word; /* value of chosen_count when the last word or CLOSED arrived */
    struct record_connect next_ticket;
    bool is_stopped; /* this worker is not polled */
};

struct rig {
    const char *kind; /* "shm" or "ofi" */
    struct arena *arena;
    struct fabric *fabric;
    struct lane *lane;
    char address[FABRIC_ADDRESS_BYTES_MAX];
    struct rig_worker workers[RIG_WORKERS_MAX];
    uint32_t count;
    size_t region_bytes; /* bytes of memory of a worker that connects; 0: RIG_REGION_BYTES */
    uint64_t clock_ns;   /* time that the lane's turns use; 0: the real time */
    bool is_dead;        /* the lane is not polled, as if its process had ended */
    uint32_t failures;   /* number of failed jobs reported by the lane */
    uint32_t entered;    /* `entered` of the tickets */
    uint32_t rests;      /* number of reports by the lane that a released piece is idle */
};

/* An announcement. For a field with the value 0, rig_say() sends a default. */
struct say {
    uint32_t piece, word;
    uint64_t round;
    uint64_t elements;
    uint8_t operation; /* 0: RECORD_SUM */
    uint8_t dtype;     /* 0: f32 */
    uint8_t standing;
    uint32_t root;
    uint32_t epoch; /* 0: 1 */
    uint32_t priority;
    uint16_t stalled;
    uint32_t weight; /* 0: RECORD_WEIGHT, unless `has_no_weight` */
    bool has_no_weight;
    uint64_t offset; /* offset in bytes from the start of the input area and of the landing area */
    bool has_no_input, has_no_output, is_inline;
    uint32_t input_blocks, output_blocks; /* numbers of consecutive blocks; 0 means 1 */
    uint64_t stride;  /* bytes from one slot of a gradient to the next; 0: one slot */
    uint8_t gradient; /* number of gradients in the slots; 0 means 1 */
};

void rig_start(struct rig *rig, const char *kind);
void rig_start_policy(struct rig *rig, const char *kind, enum lane_policy policy);
void rig_stop(struct rig *rig);
/* Places pieces with numbers from `first` on, with `elements` f32 each, for a job of `workers`
 * workers. */
void rig_place(struct rig *rig, uint32_t job, uint32_t workers, uint32_t first, uint32_t count,
               uint64_t elements, bool recovering);
/* Places one piece with its terms and its set of ranks. */
void rig_place_piece(struct rig *rig, uint32_t workers, struct lane_piece piece, bool recovering);
/* Returns the counters of RIG_JOB in the lane. */
struct lane_job_use rig_use(struct rig *rig);
/* Returns a ticket that the lane will accept. */
struct record_connect rig_ticket(struct rig *rig, uint32_t job, uint32_t rank);
/* Connects worker i and shares its region. For a holder of copies, `rank` includes the flag
 * RECORD_HOLDER. */
void rig_connect(struct rig *rig, uint32_t i, uint32_t job, uint32_t rank);
/* Starts RIG_JOB with `count` connected workers. */
void rig_start_job(struct rig *rig, const char *kind, uint32_t count, uint32_t pieces,
                   uint64_t elements);
float *rig_input(struct rig *rig, uint32_t i, uint64_t offset);
float *rig_landing(struct rig *rig, uint32_t i, uint64_t offset);
/* Takes a page of worker i's memory away from the lane: the page that contains the byte `at`. Only
 * for shm. */
void rig_break_page(struct rig *rig, uint32_t i, const void *at);
void rig_say(struct rig *rig, uint32_t i, struct say say);
/* Polls only the lane until chunks are in progress. The test fails after a minute. */
void rig_until_busy(struct rig *rig);
/* Polls lane and workers until nothing more happens. */
void rig_settle(struct rig *rig);
/* Returns whether the last error of the worker has this code and these words. */
bool rig_says(const struct rig_worker *w, int code, const char *words);
/* Polls until the condition holds. The test fails after a minute. */
#define rig_until(rig, condition)                                   \
    do {                                                            \
        uint64_t rig_deadline_ = rig_now() + UINT64_C(60000000000); \
        while (!(condition)) {                                      \
            rig_turn_gently(rig);                                   \
            if (rig_now() > rig_deadline_)                          \
                fail_msg("never: %s", #condition);                  \
        }                                                           \
    } while (0)
/* Polls all fabrics once. Returns whether an event occurred, or work remains. */
bool rig_turn(struct rig *rig);
/* Like rig_turn(). Also yields the core if nothing happened. */
void rig_turn_gently(struct rig *rig);
uint64_t rig_now(void);

#endif

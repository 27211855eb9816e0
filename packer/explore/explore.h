/* explore: decides which pieces of one job move to other lanes because a lane is slow, and whether
 * the change stays or is undone. Pure: no clock, no randomness. The caller owns the state, which
 * begins as all zeros. RULES.md: X1 to X10. The rule is our own reconstruction.
 *
 * Each call of explore_tick() passes the counts since the previous call, and returns at most one
 * decision. The caller does the moves, and then calls explore_moved(). */
#ifndef GRADPOOL_PACKER_EXPLORE_EXPLORE_H
#define GRADPOOL_PACKER_EXPLORE_EXPLORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define EXPLORE_ROUNDS 50 /* minimum number of rounds in a window */
/* minimum number of calls of explore_tick() that report rounds in a window */
#define EXPLORE_SAMPLES 4
#define EXPLORE_LANES_MAX 32 /* a job on more lanes gets no decision (X9) */
/* a move is made only if its expected gain is at least this number of millionths of the round
 * time */
#define EXPLORE_GAIN_PPM 20000
/* the slowest lane counts as slow if its time exceeds this number of millionths of the equal time
 * (X3) */
#define EXPLORE_UNEVEN_PPM 1100000
/* random tries (X6) begin only if workers wait for more than this part of the round */
#define EXPLORE_STALL_PPM 150000
#define EXPLORE_CHANCE_MOST_PPM 100000 /* highest probability of a random try in a window (X6) */
/* number of windows in which a method is not tried after its first failed try */
#define EXPLORE_HOLD_WINDOWS 4
/* each further failed try in a row doubles EXPLORE_HOLD_WINDOWS, up to this many times */
#define EXPLORE_HOLDS_MAX 5
/* a longer time between two calls of explore_tick() ends the window */
#define EXPLORE_GAP_NS UINT64_C(30000000000)

enum explore_method {
    /* pieces move until the number of bytes on each lane is in proportion to the lane's rate */
    EXPLORE_EVEN,
    EXPLORE_OUT, /* the job gets one more lane */
    /* all pieces leave the slowest lane and all lanes with less than half of the highest rate */
    EXPLORE_IN,
    EXPLORE_SHIFT, /* pieces leave the slowest lane until its time is a tenth shorter */
    EXPLORE_METHODS,
};

enum explore_verb {
    EXPLORE_NOTHING,
    EXPLORE_MOVE, /* try method `method` with `moves` */
    EXPLORE_KEEP, /* the last experiment was successful, so its moves are kept */
    EXPLORE_BACK, /* move all pieces of the last try back to their former lanes */
};

/* Options of a job. A field with the value 0 gets its default. */
struct explore_options {
    /* minimum numbers of rounds and calls in a window; 0: EXPLORE_ROUNDS, EXPLORE_SAMPLES */
    uint32_t rounds, samples;
    /* true (baseline): the only method is EXPLORE_EVEN, and no pieces move back (X10) */
    bool is_blind;
};

struct explore_lane {
    uint32_t id;
    /* Counts since the previous call of explore_tick(). handled_ns: time in which the job had work
     * on the lane (X3). stalled_ns: time that workers waited because the last result came from this
     * lane, summed over the workers. */
    uint64_t handled_ns, stalled_ns;
    /* number of further bytes of the job for which the lane has memory; 0: none */
    uint64_t room_bytes;
};

struct explore_piece {
    uint32_t lane; /* lane of the piece: a position in `lanes` */
    uint64_t bytes;
};

struct explore_seen {
    /* A number that changes with workers or tensors, and when another part of the service moves
     * pieces. After a change of this number all measurements restart (X8). */
    uint64_t membership;
    uint32_t workers;
    uint64_t rounds,
        elapsed_ns; /* number of rounds and time since the previous call of explore_tick() */
    const struct explore_lane *lanes; /* sorted by id */
    size_t lanes_count;
    const struct explore_piece *pieces;
    size_t pieces_count;
};

struct explore_move {
    uint32_t piece, lane; /* positions of the piece and of its new lane */
};

struct explore_decision {
    enum explore_verb verb;
    enum explore_method method;
    size_t moves_count;
    double before_ns, after_ns; /* round time before and during the try; for KEEP and BACK only */
    char reason[256];           /* reason in one sentence, also for EXPLORE_NOTHING */
};

/* Mean and variance of weighted samples. */
struct explore_meter {
    double weight, mean, squares;
    uint32_t samples;
};

struct explore_rate {
    uint32_t id;
    /* time for which the lane had work of the job in a round, in nanoseconds */
    struct explore_meter handled;
    struct explore_meter stalled; /* time for which one worker waited in a round, in nanoseconds */
};

enum explore_phase { EXPLORE_WATCHING, EXPLORE_MOVING, EXPLORE_TRYING, EXPLORE_RETURNING };

struct explore {
    enum explore_phase phase;
    enum explore_method method; /* method of the current try */
    uint64_t membership, last_ns;
    uint64_t windows,
        /* number of windows and of tries since the start; explore_reset() does not change these
         * numbers */
        tries;
    /* ignores the counts of the next call, because they include a time before a change */
    bool ignores_next;
    struct explore_meter round;  /* round time in this window */
    struct explore_meter before; /* round time in the last window before the try */
    struct explore_rate rates[EXPLORE_LANES_MAX];
    size_t rates_count;
    struct {
        uint32_t failed; /* number of consecutive tries that brought no gain */
        uint64_t until;  /* first window in which the method may be tried again */
    } methods[EXPLORE_METHODS];
};

/* Evaluates the counts since the previous call, and makes at most one decision. `ret_moves` has
 * room for all pieces. -EINVAL: `seen` is inconsistent; the state is unchanged. */
int explore_tick(struct explore *explore, const struct explore_options *options,
                 const struct explore_seen *seen, uint64_t seed, uint64_t now_ns,
                 struct explore_move *ret_moves, struct explore_decision *ret_decision);
/* Reports that the moves of an EXPLORE_MOVE or EXPLORE_BACK have ended. `has_moved`: false if the
 * tasks are still on their former lanes. */
void explore_moved(struct explore *explore, bool has_moved);
/* Deletes all measurements and the current try. */
void explore_reset(struct explore *explore);
const char *explore_method_name(enum explore_method method);

/* --- meter.c --- */

void explore_meter_add(struct explore_meter *meter, double weight, double value);
/* Returns half of the 95 % confidence interval of the mean; HUGE with fewer than two samples. */
double explore_meter_half(const struct explore_meter *meter);

/* --- plan.c: the moves of a method --- */

struct explore_view {
    const struct explore *explore;
    const struct explore_seen *seen;
    /* number of bytes of the job on each lane, after planned moves */
    double load[EXPLORE_LANES_MAX];
    double rate[EXPLORE_LANES_MAX]; /* bytes per nanosecond; 0: unknown (no pieces of the job) */
    double all_bytes, all_rate;
    size_t slowest; /* lane with the longest time for a round */
};

/* Fills the view. False: no lane has a known rate. */
bool explore_view_make(const struct explore *explore, const struct explore_seen *seen,
                       struct explore_view *ret_view);
/* Returns the time that the lane needs in a round for its load, in ns; 0 for a lane without a
 * rate. */
double explore_view_time(const struct explore_view *view, size_t lane);
/* Returns the equal time: the round time if all lanes needed equally long (X3). */
double explore_view_even_time(const struct explore_view *view);
/* Returns the longest time of a lane for a round, after planned moves. */
double explore_view_longest(const struct explore_view *view);
/* Plans the moves of the method and applies them to `view`. Returns the number of moves. */
size_t explore_plan(enum explore_method method, struct explore_view *view,
                    struct explore_move *ret_moves);

#endif

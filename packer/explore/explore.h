/* explore: decides which pieces of one job change lanes because a lane is slow, and whether the
 * change stays. PURE: no clock, no randomness; the caller owns the state, which begins as all
 * zeros. RULES.md: X1 to X10. A reconstruction, not a published rule.
 *
 * explore_tick() gets the counts since the call before (a look), and returns at most one decision.
 * The caller carries it out and then calls explore_moved(). */
#ifndef GRADPOOL_PACKER_EXPLORE_EXPLORE_H
#define GRADPOOL_PACKER_EXPLORE_EXPLORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define EXPLORE_ROUNDS 50              /* least rounds of a window */
#define EXPLORE_SAMPLES 4              /* least looks with rounds of a window */
#define EXPLORE_LANES_MAX 32           /* a job on more lanes gets no decision (X9) */
#define EXPLORE_GAIN_PPM 20000         /* least gain of a move, in parts of the round */
#define EXPLORE_UNEVEN_PPM 1100000     /* a slowest lane above this times the even time is slow */
#define EXPLORE_STALL_PPM 150000       /* workers wait more than this part of the round: X6 */
#define EXPLORE_CHANCE_MOST_PPM 100000 /* highest chance of a try by X6 in a window */
#define EXPLORE_HOLD_WINDOWS 4         /* windows without an arm after its first roll-back */
#define EXPLORE_HOLDS_MAX 5            /* roll-backs in a row that double EXPLORE_HOLD_WINDOWS */
#define EXPLORE_GAP_NS UINT64_C(30000000000) /* a longer time between looks ends the window */

enum explore_arm {
    EXPLORE_EVEN,  /* bytes in proportion to the rate of each lane */
    EXPLORE_OUT,   /* one more lane for the job */
    EXPLORE_IN,    /* no pieces on the slowest lane and on lanes of less than half the best rate */
    EXPLORE_SHIFT, /* a tenth less on the slowest lane */
    EXPLORE_ARMS,
};

enum explore_verb {
    EXPLORE_NOTHING,
    EXPLORE_MOVE, /* try `arm` by `moves` */
    EXPLORE_KEEP, /* the last try stays */
    EXPLORE_BACK, /* move all pieces of the last try back to their former lanes */
};

/* 0 in a field means its default. */
struct explore_options {
    uint32_t rounds, samples; /* EXPLORE_ROUNDS, EXPLORE_SAMPLES */
    bool is_blind;            /* baseline: EXPLORE_EVEN only, no roll-back (X10) */
};

struct explore_lane {
    uint32_t id;
    /* Since the look before: time with work of the job on the lane (X3), and the sum over the
     * workers of their waits for a result that came last from this lane. */
    uint64_t handled_ns, stalled_ns;
    uint64_t room_bytes; /* more bytes of the job that the lane may take; 0: none */
};

struct explore_piece {
    uint32_t lane; /* position in `lanes` */
    uint64_t bytes;
};

struct explore_seen {
    /* A number that changes when workers or tensors come or go, or when another part of the service
     * moves pieces: then everything begins anew (X8). */
    uint64_t membership;
    uint32_t workers;
    uint64_t rounds, elapsed_ns;      /* since the look before */
    const struct explore_lane *lanes; /* ascending ids */
    size_t lanes_count;
    const struct explore_piece *pieces;
    size_t pieces_count;
};

struct explore_move {
    uint32_t piece, lane; /* positions */
};

struct explore_decision {
    enum explore_verb verb;
    enum explore_arm arm;
    size_t moves_count;
    double before_ns, after_ns; /* round before and during the try; with KEEP and BACK only */
    char reason[256];           /* one sentence, for EXPLORE_NOTHING too */
};

/* Mean and variance of weighted samples. */
struct explore_meter {
    double weight, mean, squares;
    uint32_t samples;
};

struct explore_rate {
    uint32_t id;
    struct explore_meter handled; /* ns a round */
    struct explore_meter stalled; /* ns a round, for one worker */
};

enum explore_phase { EXPLORE_WATCHING, EXPLORE_MOVING, EXPLORE_TRYING, EXPLORE_RETURNING };

struct explore {
    enum explore_phase phase;
    enum explore_arm arm; /* arm of the current try */
    uint64_t membership, last_ns;
    uint64_t windows, tries;     /* numbers since the start; explore_reset() keeps them */
    bool passes_over;            /* skip the next look: its counts began before a change */
    struct explore_meter round;  /* round time in this window */
    struct explore_meter before; /* round time in the window before the try */
    struct explore_rate rates[EXPLORE_LANES_MAX];
    size_t rates_count;
    struct {
        uint32_t failed; /* tries in a row without gain */
        uint64_t until;  /* first window in which the arm may be tried again */
    } arms[EXPLORE_ARMS];
};

/* `ret_moves` has room for all pieces. -EINVAL: `seen` is inconsistent, the state is unchanged. */
int explore_tick(struct explore *explore, const struct explore_options *options,
                 const struct explore_seen *seen, uint64_t seed, uint64_t now_ns,
                 struct explore_move *ret_moves, struct explore_decision *ret_decision);
/* Reports the end of the moves of an EXPLORE_MOVE or EXPLORE_BACK. `has_moved`: false if the tasks
 * are on their former lanes. */
void explore_moved(struct explore *explore, bool has_moved);
/* Drops all measurements and the current try. */
void explore_reset(struct explore *explore);
const char *explore_arm_name(enum explore_arm arm);

/* --- meter.c --- */

void explore_meter_add(struct explore_meter *meter, double weight, double value);
/* Half of the 95 % interval of the mean; HUGE with fewer than two samples. */
double explore_meter_half(const struct explore_meter *meter);

/* --- plan.c: the moves of an arm --- */

struct explore_view {
    const struct explore *explore;
    const struct explore_seen *seen;
    double load[EXPLORE_LANES_MAX]; /* bytes of the job on each lane, planned moves included */
    double rate[EXPLORE_LANES_MAX]; /* bytes a ns; 0: not known (no pieces of the job) */
    double all_bytes, all_rate;
    size_t slowest; /* lane with the longest time a round */
};

/* False: no lane has a known rate. */
bool explore_view_make(const struct explore *explore, const struct explore_seen *seen,
                       struct explore_view *ret_view);
/* Time a round of the lane with its load, in ns; 0 for a lane without a rate. */
double explore_view_time(const struct explore_view *view, size_t lane);
/* Time a round of each lane if all took equally long. */
double explore_view_even_time(const struct explore_view *view);
/* Longest time a round of a lane, planned moves included. */
double explore_view_longest(const struct explore_view *view);
/* Plans the arm's moves and applies them to `view`. Returns their number. */
size_t explore_plan(enum explore_arm arm, struct explore_view *view,
                    struct explore_move *ret_moves);

#endif

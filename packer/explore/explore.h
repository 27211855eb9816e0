/* Which pieces of one job should change lanes because a lane is slow, and whether what was changed
 * stays. PURE: no clock, no randomness; the state is the caller's plain struct, all zero to begin
 * with. README.md: X1 to X10. Our reconstruction, not a paper's rule.
 *
 * One call a look: what was counted since the look before goes in, at most one decision comes out.
 * The caller carries it out, and says with explore_moved() when that is done. */
#ifndef GRADPOOL_PACKER_EXPLORE_EXPLORE_H
#define GRADPOOL_PACKER_EXPLORE_EXPLORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define EXPLORE_ROUNDS 50      /* of a window, at least; */
#define EXPLORE_SAMPLES 4      /* and so many looks that saw some */
#define EXPLORE_LANES_MAX 32   /* a job on more lanes is left alone */
#define EXPLORE_GAIN_PPM 20000 /* of a round: less is not worth a move */
#define EXPLORE_UNEVEN_PPM 1100000
#define EXPLORE_STALL_PPM 150000 /* of a round stalled although lanes are even: arms are tried */
#define EXPLORE_CHANCE_MOST_PPM 100000
#define EXPLORE_HOLD_WINDOWS 4 /* after a change that did not help; doubles, */
#define EXPLORE_HOLDS_MAX 5    /* so often */
#define EXPLORE_GAP_NS UINT64_C(30000000000)

enum explore_arm {
    EXPLORE_EVEN,  /* in proportion to what each lane does in a time */
    EXPLORE_OUT,   /* onto one more lane */
    EXPLORE_IN,    /* the slowest, and who is as slow, have nothing of it any more */
    EXPLORE_SHIFT, /* a tenth off the slowest lane */
    EXPLORE_ARMS,
};

enum explore_verb {
    EXPLORE_NOTHING,
    EXPLORE_MOVE, /* try `arm` by `moves` */
    EXPLORE_KEEP, /* what was tried stays */
    EXPLORE_BACK, /* all that was moved for the last try goes back where it was */
};

/* 0 in a field: its default. */
struct explore_options {
    uint32_t rounds, samples;
    bool is_blind; /* a baseline: EXPLORE_EVEN alone, and whatever was moved stays */
};

struct explore_lane {
    uint32_t id;
    /* Since the look before: time in which the job had something to be done here, handed in and not
     * yet answered; time that its workers, together, waited for what came from this lane last. */
    uint64_t handled_ns, stalled_ns;
    uint64_t room_bytes; /* how much more of the job it may take; 0: nothing */
};

struct explore_piece {
    uint32_t lane; /* position */
    uint64_t bytes;
};

struct explore_seen {
    uint64_t
        membership; /* workers, lanes that others changed: another number, and all begins anew */
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
    double before_ns, after_ns; /* of a round; of KEEP and BACK */
    char reason[256];           /* one sentence, for EXPLORE_NOTHING too */
};

/* Mean and spread of samples of different weight. */
struct explore_meter {
    double weight, mean, squares;
    uint32_t samples;
};

struct explore_rate {
    uint32_t id;
    struct explore_meter handled, stalled; /* ns a round; stalled: of one worker */
};

enum explore_phase { EXPLORE_WATCHING, EXPLORE_MOVING, EXPLORE_TRYING, EXPLORE_RETURNING };

struct explore {
    enum explore_phase phase;
    enum explore_arm arm; /* that is tried */
    uint64_t membership, last_ns;
    uint64_t windows, tries; /* ever */
    bool passes_over;        /* the next look saw lanes as they were before a change */
    struct explore_meter round, before;
    struct explore_rate rates[EXPLORE_LANES_MAX];
    size_t rates_count;
    struct {
        uint32_t failed; /* in a row */
        uint64_t until;  /* not before this window */
    } arms[EXPLORE_ARMS];
};

/* `ret_moves` has room for all pieces. -EINVAL: what is seen makes no sense, nothing is changed. */
int explore_tick(struct explore *explore, const struct explore_options *options,
                 const struct explore_seen *seen, uint64_t seed, uint64_t now_ns,
                 struct explore_move *ret_moves, struct explore_decision *ret_decision);
/* The moves of an EXPLORE_MOVE or EXPLORE_BACK are over: tasks have moved, or they stay where they
 * were. */
void explore_moved(struct explore *explore, bool has_moved);
/* Forgets all, also what is tried. */
void explore_reset(struct explore *explore);
const char *explore_arm_name(enum explore_arm arm);

/* --- explore_meter.c --- */

void explore_meter_add(struct explore_meter *meter, double weight, double value);
/* Half of the 95 % interval of the mean; HUGE with fewer than two samples. */
double explore_meter_half(const struct explore_meter *meter);

/* --- explore_plan.c: which moves an arm is --- */

struct explore_view {
    const struct explore *explore;
    const struct explore_seen *seen;
    double load[EXPLORE_LANES_MAX]; /* bytes, as after the moves */
    double rate[EXPLORE_LANES_MAX]; /* bytes a ns; 0: not known, it has nothing of the job */
    double all_bytes, all_rate;
    size_t slowest; /* by time a round */
};

/* False: there is no lane to speak of. */
bool explore_view_make(const struct explore *explore, const struct explore_seen *seen,
                       struct explore_view *ret_view);
/* By its load: ns a round; 0 for a lane without a rate. */
double explore_view_time(const struct explore_view *view, size_t lane);
/* When all lanes take equally long. */
double explore_view_even_time(const struct explore_view *view);
/* The longest that a lane takes after the moves that were put into `view`. */
double explore_view_longest(const struct explore_view *view);
/* Puts the arm's moves into `view` too. Returns how many. */
size_t explore_plan(enum explore_arm arm, struct explore_view *view,
                    struct explore_move *ret_moves);

#endif

/* State of the stages of a job, for the files of this room. */
#ifndef GRADPOOL_COORDINATOR_STAGE_INTERNAL_H
#define GRADPOOL_COORDINATOR_STAGE_INTERNAL_H

#include "svc/coordinator/stage/choose.h"
#include "svc/coordinator/stage/stage.h"
#include "svc/wire/ranks.h"

/* State of a rank before the next border. */
struct stage_rank {
    uint64_t wait; /* number of the wait for the rank's request; 0: the rank does not wait */
    bool wait_is_end;
    bool has_ended; /* the rank is a member and has ended its part of the stage */
    bool is_asking; /* the rank has asked for the next stage */
    uint32_t visits;
};

enum stage_lane_state { STAGE_LANE_DUE, STAGE_LANE_ASKED, STAGE_LANE_TOLD };
struct stage_lane {
    uint32_t lane;
    enum stage_lane_state state;
};

/* Search for the best number of workers of a stage. A stage is recognized by its name. */
struct stage_plan {
    struct list link;
    char name[STAGE_NAME_BYTES_MAX + 1];
    struct parallel search;
};

/* Terms and counts of the next stage, collected from members that have ended the present stage, and
 * from ranks that have asked for the next stage. */
struct stage_next {
    /* largest values of the members that have ended their part; 0: none has ended */
    uint64_t first_clock, cursor;
    struct stage_terms terms; /* terms in the first request, which came from rank `rank` */
    uint32_t rank, count;     /* `count`: number of ranks that have asked for the next stage */
    /* values from a recording: the ranks (empty: no recording), and the number of steps of a
     * trial */
    uint64_t ranks[RANKS_WORDS];
    uint32_t trial_steps;
};

struct stage_times {
    uint64_t began_ns; /* time at which the present stage began; 0: no stage has begun */
    uint64_t ended_ns; /* time at which the former stage ended */
    /* time from the end of the former stage to the begin of the present one */
    uint64_t hand_over_ns;
};

struct stages {
    struct job *job;
    /* number of the stage's row in the store, from job.next_tensor; 0: not stored yet */
    uint32_t row;
    uint64_t number; /* number of the present stage; 0: no stage has begun */
    /* first clock of the present stage; after the stage's end, of the next stage */
    uint64_t first_clock;
    uint64_t cursor; /* number of units of work that a continued stage has completed */
    uint64_t members[RANKS_WORDS]; /* members of the present stage */
    struct stage_terms *terms;     /* terms of the present stage; without a name: all ranks work */
    bool is_open;                  /* some member has not ended its part */
    bool is_told;                  /* all lanes have received the members */
    bool continues;                /* the ended stage has units of work left */
    uint32_t trial_steps;          /* number of steps of the present trial; 0: no trial */
    double unit_ns; /* largest time of a unit over the members that have ended; 0: unknown */
    bool is_done;   /* some member has no unit of work left */
    struct stage_next *next;
    struct stage_times *times;
    struct timer timer; /* fires when requests to lanes are to be repeated */
    struct stage_lane *lanes;
    size_t lanes_count;
    struct list plans;
    struct stage_rank *ranks; /* array of job.workers ranks */
};

/* store.c */

/* Returns the stages of the job, and creates them at the first call. NULL: memory is missing. */
struct stages *stages_of(struct job *job);
/* Stores the present stage in one transaction. */
int stages_put(struct stages *s, struct err *err);

/* lanes.c: sends the members to every lane with a table of the job, and repeats refused requests.
 * Calls stages_told() when all lanes have received the members. */
void stages_tell_lanes(struct stages *s);
/* Ends the requests of stages_tell_lanes(), because all lanes have the members, and calls
 * stages_told(). */
void stages_end_telling(struct stages *s);

/* border.c: answers all ranks that wait for the present stage. */
void stages_told(struct stages *s);

/* plan.c */

/* Returns the search for the stage with these terms. If the bounds have changed, the search begins
 * anew. NULL: memory is missing. */
struct stage_plan *stages_plan(struct stages *s, const struct stage_terms *terms, uint32_t least,
                               uint32_t most);
/* Adds the time of a unit of the ended stage to the search for this stage. */
void stages_measure(struct stages *s);

#endif

/* State of the stages of a job, for the files of this room. */
#ifndef GRADPOOL_COORDINATOR_STAGE_INTERNAL_H
#define GRADPOOL_COORDINATOR_STAGE_INTERNAL_H

#include "svc/coordinator/stage/choose.h"
#include "svc/coordinator/stage/stage.h"
#include "svc/wire/ranks.h"

/* A rank at the next border. */
struct stage_rank {
    uint64_t wait; /* number of the wait of its request; 0: none */
    bool wait_is_end;
    bool has_ended; /* a member has ended its part of the stage */
    bool is_asking; /* the rank has asked for the next stage */
    uint32_t visits;
};

enum stage_lane_state { STAGE_LANE_DUE, STAGE_LANE_ASKED, STAGE_LANE_TOLD };
struct stage_lane {
    uint32_t lane;
    enum stage_lane_state state;
};

/* The search for the number of workers of one stage, by the name of the stage. */
struct stage_plan {
    struct list link;
    char name[STAGE_NAME_BYTES_MAX + 1];
    struct parallel search;
};

/* The next stage, as far as members of the present one have ended, and ranks have asked for it. */
struct stage_next {
    uint64_t first_clock, cursor; /* largest ones of the ended members; 0: none has ended */
    struct stage_terms terms;     /* from rank `rank`, the first one */
    uint32_t rank, count;         /* `count`: ranks that have asked */
    /* from a recording: the ranks (none: not recorded), and the steps of a trial */
    uint64_t ranks[RANKS_WORDS];
    uint32_t trial_steps;
};

struct stage_times {
    uint64_t began_ns;     /* the present stage began; 0: before the first one */
    uint64_t ended_ns;     /* the former stage ended */
    uint64_t hand_over_ns; /* from that end to this begin */
};

struct stages {
    struct job *job;
    uint32_t row;    /* number of its row in the store, from job.next_tensor; 0: not stored yet */
    uint64_t number; /* of the present stage; 0: before the first one */
    uint64_t first_clock;          /* of the present stage, or, after its end, of the next */
    uint64_t cursor;               /* units that are done, of a stage that continues */
    uint64_t members[RANKS_WORDS]; /* of the present stage */
    struct stage_terms *terms;     /* of the present stage; without a name: all ranks work */
    bool is_open;                  /* a member has not ended its part */
    bool is_told;                  /* all lanes know the members */
    bool continues;                /* the ended stage has units left */
    uint32_t trial_steps;          /* 0: no trial */
    double unit_ns;                /* largest time of a unit of the ended members; 0: unknown */
    bool is_done;                  /* a member has no unit left */
    struct stage_next *next;
    struct stage_times *times;
    struct timer timer; /* repeats requests to lanes */
    struct stage_lane *lanes;
    size_t lanes_count;
    struct list plans;
    struct stage_rank *ranks; /* job.workers of them */
};

/* store.c */

/* Returns the stages of the job, created at the first call. NULL: no memory is left. */
struct stages *stages_of(struct job *job);
/* Stores the present stage in one transaction. */
int stages_put(struct stages *s, struct err *err);

/* lanes.c: sends the members to every lane with a table of the job, and repeats refused requests.
 * Calls stages_told() when all lanes have them. */
void stages_tell_lanes(struct stages *s);
/* Ends these requests, because all lanes have the members, and calls stages_told(). */
void stages_end_telling(struct stages *s);

/* border.c: answers all ranks that wait for the present stage. */
void stages_told(struct stages *s);

/* plan.c */

/* Returns the search for the stage with these terms; a search with other bounds begins anew. NULL:
 * no memory is left. */
struct stage_plan *stages_plan(struct stages *s, const struct stage_terms *terms, uint32_t least,
                               uint32_t most);
/* Adds the time of a unit of the ended stage to its search. */
void stages_measure(struct stages *s);

#endif

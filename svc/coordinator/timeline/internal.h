/* One timeline under way: what timeline.c (its life) and sources.c (who records, and what
 * has come) share. Nobody else includes this. */
#ifndef GRADPOOL_COORDINATOR_TIMELINE_INTERNAL_H
#define GRADPOOL_COORDINATOR_TIMELINE_INTERNAL_H

#include "svc/coordinator/service.h"
#include "svc/coordinator/timeline/timeline.h"

/* A worker, or an aggregator; by number, for it may be gone at any time. */
struct timeline_source {
    struct list link;
    bool is_aggregator, is_here, has_answered;
    bool is_dry; /* what was asked last, behind the end, brought the rest */
    uint32_t number, pid;
    char node[HOST_NAME_MAX + 1];
    uint64_t asked_ns;            /* and not answered since; 0: it has */
    int64_t offset_ns;            /* from its clock to ours, ... */
    uint64_t error_ns, judged_ns; /* ... wrong by so much at most, when it was judged; 0: never */
    WIRE(TimelineTaken) * held;   /* to be told to who asked; NULL: nothing */
    char failure[ERR_TEXT_BYTES]; /* "": it records */
};

struct timeline {
    struct list link; /* in works.timelines */
    struct service *service;
    struct peer *peer;
    uint64_t id, begun_ns, end_ns;
    uint64_t ended_ns;    /* nothing is recorded since; 0: it is */
    uint32_t job, tensor; /* tensor: the last that was told */
    struct timer silence; /* of who asked */
    struct list sources;
};

/* Who takes part now: known from then on, and asked for what was recorded since it was last asked
 * (unless that is still to be told). Without a job nobody is here any more. */
void timeline_ask(struct timeline *tl, struct job *job);
/* Nothing waits anywhere; or who has not answered will not. */
bool timeline_is_dry(const struct timeline *tl);
void timeline_forget_sources(struct timeline *tl, bool tells);
struct timeline *timeline_find(struct service *s, uint64_t id);
/* What a worker has said. */
void timeline_take_told(struct timeline *tl, uint32_t rank, const WIRE(TimelineTaken) * taken);

#endif

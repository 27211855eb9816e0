/* One timeline in progress: the state that only timeline.c and sources.c use. */
#ifndef GRADPOOL_COORDINATOR_TIMELINE_INTERNAL_H
#define GRADPOOL_COORDINATOR_TIMELINE_INTERNAL_H

#include "svc/coordinator/service.h"
#include "svc/coordinator/timeline/timeline.h"

/* A source of records: a worker or an aggregator. Its number is stored, because it may be gone at
 * any time. */
struct timeline_source {
    struct list link;
    bool is_aggregator, is_here, has_answered;
    bool is_dry; /* the last request, after the end, has returned the remaining records */
    uint32_t number, pid;
    char node[HOST_NAME_MAX + 1];
    uint64_t asked_ns; /* time at which the unanswered request was sent; 0: none */
    int64_t offset_ns; /* offset from its clock to the coordinator's clock */
    /* error_ns: bound of the error of offset_ns at the time judged_ns. judged_ns 0: the offset is
     * unknown. */
    uint64_t error_ns, judged_ns;
    WIRE(TimelineTaken) * held;   /* records for the caller; NULL: none */
    char failure[ERR_TEXT_BYTES]; /* "": the source is recording */
};

struct timeline {
    struct list link; /* node in works.timelines */
    struct service *service;
    struct peer *peer;
    uint64_t id, begun_ns, end_ns;
    uint64_t ended_ns;    /* end of the recording; 0: still recording */
    uint32_t job, tensor; /* tensor: number of the last tensor whose name the caller has */
    struct timer silence; /* timer that limits the caller's silence */
    struct list sources;
};

/* Adds the present workers and lanes as sources, and requests records from each source for which a
 * request is due. `job` NULL: the job has ended, so there are no present sources. */
void timeline_ask(struct timeline *tl, struct job *job);
/* Returns whether all records have arrived and were passed on, or late sources have used up their
 * time. */
bool timeline_is_dry(const struct timeline *tl);
void timeline_forget_sources(struct timeline *tl, bool tells);
struct timeline *timeline_find(struct service *s, uint64_t id);
/* Handles a message with records of a worker. */
void timeline_take_told(struct timeline *tl, uint32_t rank, const WIRE(TimelineTaken) * taken);

#endif

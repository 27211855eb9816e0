/* A timeline in progress. Private to timeline.c and sources.c. */
#ifndef GRADPOOL_COORDINATOR_TIMELINE_INTERNAL_H
#define GRADPOOL_COORDINATOR_TIMELINE_INTERNAL_H

#include "svc/coordinator/service.h"
#include "svc/coordinator/timeline/timeline.h"

/* A worker or an aggregator that sends records. The struct has its number instead of a pointer,
 * because the worker or aggregator may end at any time. */
struct timeline_source {
    struct list link;
    bool is_aggregator, is_here, has_answered;
    /* the source has returned its last records, in the answer to a request after the end of the
     * recording */
    bool is_dry;
    uint32_t number, pid;
    char node[HOST_NAME_MAX + 1];
    uint64_t asked_ns; /* time at which the open request was sent; 0: none */
    /* offset that is added to a time of the source's clock to get the time of the coordinator's
     * clock */
    int64_t offset_ns;
    /* error_ns: largest error of offset_ns, as estimated at judged_ns. judged_ns 0: the offset is
     * unknown. */
    uint64_t error_ns, judged_ns;
    WIRE(TimelineTaken) * held;   /* records for the caller; NULL: none */
    char failure[ERR_TEXT_BYTES]; /* text of the failure; "": the source is recording */
};

struct timeline {
    struct list link; /* node in works.timelines */
    struct service *service;
    struct peer *peer;
    uint64_t id, begun_ns, end_ns;
    uint64_t ended_ns;    /* end of the recording; 0: still recording */
    uint32_t job, tensor; /* tensor: number of the last tensor whose name the caller has received */
    struct timer silence; /* limits the time until the caller's next request */
    struct list sources;
};

/* Adds the present workers and lanes as sources. Sends each source a request for records if one is
 * due. `job` is NULL if the job has ended; no source is added then. */
void timeline_ask(struct timeline *tl, struct job *job);
/* Returns whether all records were received and sent to the caller, or the deadline of late sources
 * has passed. */
bool timeline_is_dry(const struct timeline *tl);
void timeline_forget_sources(struct timeline *tl, bool tells);
struct timeline *timeline_find(struct service *s, uint64_t id);
/* Stores the records that a worker has sent. */
void timeline_take_told(struct timeline *tl, uint32_t rank, const WIRE(TimelineTaken) * taken);

#endif

/* What workers lend to a lane, held against what they may (A17). */
#ifndef GRADPOOL_LANE_WORKER_LENDING_H
#define GRADPOOL_LANE_WORKER_LENDING_H

#include <stdbool.h>
#include <stdint.h>

struct fabric;
struct worker;

struct lent {
    uint64_t bytes;
    uint32_t regions;
    uint32_t end; /* no region of this number, or of a higher one, was lent */
};

/* Of one worker. */
struct lending {
    struct lent lent;       /* as last counted */
    struct lent promised;   /* is being mapped, and not in that yet */
    uint64_t refused_bytes; /* of a region that was beyond its tenant's share (A76) */
    int descriptors;        /* of its connection */
    bool is_mapped;         /* its memory is mapped here: its connection is shared memory */
};

/* What it lends now. */
struct lent lending_count(const struct worker *w);
/* For fabric_options.may_lend: -EDQUOT when the worker's tenant may not lend so much more to this
 * process; lending_refused() then ends its job, once the connection has ended. */
int lending_may(void *worker, uint64_t bytes);
void lending_refused(struct worker *w);
/* Descriptors of a connection that the worker opens (1) or has closed (-1). -EDQUOT: more than its
 * tenant's share; nothing is taken then. */
int lending_connect(struct worker *w, const struct fabric *fabric);
void lending_disconnect(struct worker *w);
/* The worker has lent a region: its job ends when that is too much. */
void lending_check(struct worker *w);
/* Its regions are gone with its connection. */
void lending_forget(struct worker *w);

#endif

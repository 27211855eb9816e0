/* Memory that workers lend to a lane, checked against the limits of their job and tenant (A17). */
#ifndef GRADPOOL_LANE_WORKER_LENDING_H
#define GRADPOOL_LANE_WORKER_LENDING_H

#include <stdbool.h>
#include <stdint.h>

struct fabric;
struct worker;

struct lent {
    uint64_t bytes;
    uint32_t regions;
    uint32_t end; /* no region of this number or a higher one is lent */
};

/* Lendings of one worker. */
struct lending {
    struct lent lent;       /* as counted last */
    struct lent promised;   /* regions that are being mapped, not in `lent` yet */
    uint64_t refused_bytes; /* length of a region that was refused for its tenant's share (A76) */
    int descriptors;        /* descriptors of its connection */
    bool is_mapped; /* the connection is shared memory: lent memory is mapped by this process */
};

/* Counts what the worker lends now. */
struct lent lending_count(const struct worker *w);
/* Callback for fabric_options.may_lend, within a poll of the lane. -EDQUOT: the worker's tenant may
 * not lend `bytes` more to this process; the connection ends, and lending_refused() then fails the
 * job. */
int lending_may(void *worker, uint64_t bytes);
void lending_refused(struct worker *w);
/* Counts the descriptors of a new connection, until lending_disconnect(). -EDQUOT: beyond the
 * tenant's share, and nothing is counted. */
int lending_connect(struct worker *w, const struct fabric *fabric);
void lending_disconnect(struct worker *w);
/* The worker has lent a region: fails its job if a limit is exceeded. */
void lending_check(struct worker *w);
/* The connection has ended, and its regions with it. */
void lending_forget(struct worker *w);

#endif

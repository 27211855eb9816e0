/* Memory that workers lend to a lane, compared with the limits of their job and tenant (A17). */
#ifndef GRADPOOL_LANE_WORKER_LENDING_H
#define GRADPOOL_LANE_WORKER_LENDING_H

#include <stdbool.h>
#include <stdint.h>

struct fabric;
struct worker;

struct lent {
    uint64_t bytes;
    uint32_t regions;
    uint32_t end; /* regions with this number or a higher one are not lent */
};

/* Memory that one worker lends. */
struct lending {
    struct lent lent;     /* values of the last count */
    struct lent promised; /* regions that are being mapped and are not in `lent` yet */
    /* length of a region that was refused because of its tenant's share (A76) */
    uint64_t refused_bytes;
    int descriptors; /* number of descriptors of its connection */
    /* the connection uses shared memory, so lent memory is mapped by this process */
    bool is_mapped;
};

/* Counts what the worker lends now. */
struct lent lending_count(const struct worker *w);
/* Callback for fabric_options.may_lend, called within a poll of the lane. -EDQUOT: the worker's
 * tenant may not lend `bytes` more to this process; the connection ends, and lending_refused() then
 * fails the job. */
int lending_may(void *worker, uint64_t bytes);
void lending_refused(struct worker *w);
/* Counts the descriptors of a new connection, until lending_disconnect(). -EDQUOT: beyond the
 * tenant's share; nothing is counted then. */
int lending_connect(struct worker *w, const struct fabric *fabric);
void lending_disconnect(struct worker *w);
/* The worker has lent a region: fails its job if a limit is exceeded. */
void lending_check(struct worker *w);
/* The connection has ended, and with it the lending of its regions. */
void lending_forget(struct worker *w);

#endif

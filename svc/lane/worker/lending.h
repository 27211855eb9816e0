/* Memory that workers lend to a lane, and its limits for job and tenant (A17). */
#ifndef GRADPOOL_LANE_WORKER_LENDING_H
#define GRADPOOL_LANE_WORKER_LENDING_H

#include <stdbool.h>
#include <stdint.h>

struct fabric;
struct worker;

struct lent {
    uint64_t bytes;
    uint32_t regions;
    uint32_t end; /* regions from this number on are not lent */
};

/* Memory that one worker lends. */
struct lending {
    struct lent lent; /* memory of all lent regions at the last count */
    /* memory in regions whose mapping is in progress; `lent` does not include these regions */
    struct lent promised;
    /* length of a region that exceeded its tenant's share (A76) */
    uint64_t refused_bytes;
    int descriptors; /* number of descriptors of the worker's connection */
    /* the connection uses shared memory, so this process maps the lent memory */
    bool is_mapped;
};

/* Counts the memory that the worker lends now. */
struct lent lending_count(const struct worker *w);
/* Callback fabric_options.may_lend, called during a poll of the lane. Returns 0, or -EDQUOT if the
 * worker's tenant may not lend `bytes` more to this process. The connection then ends, and
 * lending_refused() fails the job. */
int lending_may(void *worker, uint64_t bytes);
void lending_refused(struct worker *w);
/* Counts the descriptors of a new connection, until lending_disconnect(). Returns 0, or -EDQUOT if
 * the tenant's share would be exceeded. After -EDQUOT the descriptors are not counted. */
int lending_connect(struct worker *w, const struct fabric *fabric);
void lending_disconnect(struct worker *w);
/* Called when the worker has lent a region. Fails its job if a limit is exceeded. */
void lending_check(struct worker *w);
/* Removes the worker's regions from the counts, because its connection has ended. */
void lending_forget(struct worker *w);

#endif

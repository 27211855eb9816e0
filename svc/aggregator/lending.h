/* What workers lend to a lane, held against what they may (A17). */
#ifndef GRADPOOL_AGGREGATOR_LENDING_H
#define GRADPOOL_AGGREGATOR_LENDING_H

#include <stdint.h>

struct worker;

struct lent {
    uint64_t bytes;
    uint32_t regions;
    uint32_t end; /* no region of this number, or of a higher one, was lent */
};

/* What it lends now. */
struct lent lending_count(const struct worker *w);
/* The worker has lent a region: its job ends when that is too much. */
void lending_check(struct worker *w);
/* Its regions are gone with its connection. */
void lending_forget(struct worker *w);

#endif

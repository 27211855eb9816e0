/* Report of a service: cores that it owns, uses and saves, now and since its start. */
#ifndef GRADPOOL_OPS_REPORT_REPORT_H
#define GRADPOOL_OPS_REPORT_REPORT_H

#include "svc/ops/snapshot/history.h"
#include "svc/ops/snapshot/snapshot.h"

#include <stdio.h>

/* Prints one JSON object. `history` NULL: past values are left out. Returns 0, -ENOMEM or -EIO. */
int report_json(const struct snapshot *s, const struct history *history, FILE *out);

/* Prints one HTML page without scripts, which loads no fonts or pictures. Returns 0 or -EIO. */
int report_page(const struct snapshot *s, const struct history *history, FILE *out);

int ops_top_json(const struct snapshot *s, FILE *out);

#endif

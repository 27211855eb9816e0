/* The report of a service: cores in use by the service, used and saved, now and since the start. */
#ifndef GRADPOOL_OPS_REPORT_REPORT_H
#define GRADPOOL_OPS_REPORT_REPORT_H

#include "svc/ops/snapshot/history.h"
#include "svc/ops/snapshot/snapshot.h"

#include <stdio.h>

/* Prints one JSON object. `history` NULL: without values of the past. -ENOMEM, -EIO. */
int report_json(const struct snapshot *s, const struct history *history, FILE *out);

/* Prints one HTML page that needs nothing else: no script, no font or picture from elsewhere.
 * -EIO. */
int report_page(const struct snapshot *s, const struct history *history, FILE *out);

int ops_top_json(const struct snapshot *s, FILE *out);

#endif

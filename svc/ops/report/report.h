/* The report: what the service holds, uses and saves, now and since it started. */
#ifndef GRADPOOL_OPS_REPORT_REPORT_H
#define GRADPOOL_OPS_REPORT_REPORT_H

#include "svc/ops/snapshot/history.h"
#include "svc/ops/snapshot/snapshot.h"

#include <stdio.h>

/* One JSON object; `history` NULL: without. -ENOMEM, -EIO. */
int report_json(const struct snapshot *s, const struct history *history, FILE *out);

/* One HTML page that needs nothing else: no script, no font, no picture from elsewhere. -EIO. */
int report_page(const struct snapshot *s, const struct history *history, FILE *out);

int ops_top_json(const struct snapshot *s, FILE *out);

#endif

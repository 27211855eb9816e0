/* Chart for report pages. */
#ifndef GRADPOOL_OPS_REPORT_CHART_H
#define GRADPOOL_OPS_REPORT_CHART_H

#include "svc/view/run.h"

#include <stdio.h>

/* Prints the numbers of cores over time as lines, in inline SVG. */
void page_chart(const struct view_moment *moments, size_t count, FILE *out);

#endif

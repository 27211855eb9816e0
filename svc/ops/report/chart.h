/* The chart of the pages. */
#ifndef GRADPOOL_OPS_REPORT_CHART_H
#define GRADPOOL_OPS_REPORT_CHART_H

#include "svc/view/run.h"

#include <stdio.h>

/* Prints the lines of cores over time as inline SVG. */
void page_chart(const struct view_moment *moments, size_t count, FILE *out);

#endif

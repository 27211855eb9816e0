/* Parts of report pages: text, tables, one chart, data for programs. A page has no script and loads
 * nothing. */
#ifndef GRADPOOL_OPS_REPORT_PAGE_H
#define GRADPOOL_OPS_REPORT_PAGE_H

#include "svc/ops/snapshot/figures.h"
#include "svc/view/run.h"

#include <stdio.h>

void page_begin(const char *title, FILE *out);
void page_end(FILE *out);
/* Writes `text`, which may contain any characters, with escapes for HTML. */
void page_text(const char *text, FILE *out);

/* Writes a value with its name above it. The name is also the id of the element. */
void page_tile(const char *name, enum figure_unit unit, double value, FILE *out);
void page_cell(const char *text, bool is_name, FILE *out);
/* Writes a job's name. A long name is divided into lines, so that the other columns stay
 * visible. */
void page_name(const char *name, FILE *out);
void page_number(uint64_t number, FILE *out);
void page_figure(enum figure_unit unit, double value, FILE *out);

/* Write sections of a page. */
void page_cores_over_time(const struct view_moment *moments, size_t count, FILE *out);
void page_losses(const double *losses, size_t count, FILE *out);
void page_events(const struct view_event *events, size_t count, FILE *out);
void page_facts(const char *title, const struct view_fact *facts, size_t count, FILE *out);
/* Writes JSON into the page, in an element with the id "data". */
void page_data(const char *json, FILE *out);

#define PAGE_LOSS_BINS 9
/* Upper bounds of all bins except the last, from 0 to 1. A loss that equals a bound belongs to the
 * next bin. */
extern const double page_loss_ends[PAGE_LOSS_BINS - 1];
void page_count_losses(const double *losses, size_t count, size_t ret_jobs[PAGE_LOSS_BINS]);

#endif

/* Contents of a timeline's file: events of a trace. Owns the names of tensors and rows. Private to
 * this folder. README: E3, E4. */
#ifndef GRADPOOL_TIMELINE_PICTURE_H
#define GRADPOOL_TIMELINE_PICTURE_H

#include "svc/timeline/timeline_file.h"

#include <stdio.h>

struct picture {
    FILE *out; /* text of the current batch */
    uint64_t begun_ns;
    bool has_events;
    struct named *names;
    size_t names_count, names_room;
    struct party *parties;
    size_t parties_count;
    struct timeline_totals totals;
};

/* Escapes a text for JSON; the caller frees it. Returns NULL if memory is missing. */
char *picture_escape(const char *text);
/* Writes the events of a batch to pic->out. */
void picture_add(struct picture *pic, const Gradpool__Wire__TimelineNext *next);
/* Copies the failure of the first worker or aggregator that does not record to totals.failure. */
void picture_name_failure(struct picture *pic);
void picture_fini(struct picture *pic);

#endif

/* A line of those who wait for a lane's time: they take turns,
 * and one that has used clearly more time than the others lets them pass. Owns nothing. README:
 * A77. */
#ifndef GRADPOOL_LANE_TURN_LINE_H
#define GRADPOOL_LANE_TURN_LINE_H

#include "svc/base/list.h"

#include <stdint.h>

struct line_entry {
    struct list link;
    uint64_t used_ns; /* on the line's scale: idle time earns nothing */
};

struct line {
    struct list light; /* have come after a pause, with time to spare: before the rest */
    struct list rest;
    uint64_t base_ns;  /* whoever waits has used as much, at least */
    uint64_t ahead_ns; /* an entry may be so far ahead of that; 0: time does not count */
};

void line_init(struct line *line, uint64_t ahead_ns);
static inline bool line_is_empty(const struct line *line)
{
    return list_is_empty(&line->light) && list_is_empty(&line->rest);
}
static inline bool line_has(const struct line_entry *entry) { return !list_is_empty(&entry->link); }
/* A member has something to do, and had not before. */
void line_join(struct line *line, struct line_entry *entry);
/* A member has had its turn, and has more to do. */
static inline void line_join_again(struct line *line, struct line_entry *entry)
{
    list_append(&line->rest, &entry->link);
}
/* Takes the next one out; NULL: nobody waits. */
struct line_entry *line_next(struct line *line);

#endif

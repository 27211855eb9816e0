/* Queue of tenants or jobs for a lane's time. Members take turns. A member that has used clearly
 * more time than the other members misses some turns. The queue does not own its members. RULES.md:
 * A77. */
#ifndef GRADPOOL_LANE_TURN_LINE_H
#define GRADPOOL_LANE_TURN_LINE_H

#include "svc/base/list.h"

#include <stdint.h>

struct line_entry {
    struct list link;
    /* time used by the member; after a pause it starts at base_ns */
    uint64_t used_ns;
};

struct line {
    /* members that return after a pause and have used little time; they are served before `rest` */
    struct list light;
    struct list rest;
    uint64_t base_ns;  /* least time used by a waiting member */
    uint64_t ahead_ns; /* time by which a member may exceed base_ns; 0: time is ignored */
};

void line_init(struct line *line, uint64_t ahead_ns);
static inline bool line_is_empty(const struct line *line)
{
    return list_is_empty(&line->light) && list_is_empty(&line->rest);
}
static inline bool line_has(const struct line_entry *entry) { return !list_is_empty(&entry->link); }
/* Appends a member that has work again after a pause. */
void line_join(struct line *line, struct line_entry *entry);
/* Appends a member that has more work after its turn. */
static inline void line_join_again(struct line *line, struct line_entry *entry)
{
    list_append(&line->rest, &entry->link);
}
/* Removes and returns the next member, or returns NULL if the queue is empty. */
struct line_entry *line_next(struct line *line);

#endif

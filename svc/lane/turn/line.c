/* Members take turns of one chunk. A member that has used much time misses turns. Members with
 * equal costs therefore alternate, and a member with more expensive turns (long chunks, polls of
 * many connections) has fewer turns. RULES.md: A77. */
#include "svc/lane/turn/line.h"

#include <stddef.h>

/* Largest debt of a member, in units of ahead_ns. If a lane loses its core during a turn, the job
 * of this turn has a large debt. Without the limit this job would miss turns for too long. */
#define DEBT_MOST 8

void line_init(struct line *line, uint64_t ahead_ns)
{
    list_init(&line->light);
    list_init(&line->rest);
    line->base_ns = 0;
    line->ahead_ns = ahead_ns;
}

static struct line_entry *entry_of(struct list *node)
{
    return list_entry(node, struct line_entry, link);
}

static void limit(const struct line *line, struct line_entry *entry)
{
    uint64_t most_ns = line->base_ns + DEBT_MOST * line->ahead_ns;
    if (entry->used_ns < line->base_ns)
        entry->used_ns = line->base_ns;
    else if (entry->used_ns > most_ns)
        entry->used_ns = most_ns;
}

void line_join(struct line *line, struct line_entry *entry)
{
    limit(line, entry);
    bool is_light = line->ahead_ns > 0 && entry->used_ns <= line->base_ns + line->ahead_ns / 2;
    list_append(is_light ? &line->light : &line->rest, &entry->link);
}

static bool may_go(const struct line *line, const struct line_entry *entry)
{
    return line->ahead_ns == 0 || entry->used_ns <= line->base_ns + line->ahead_ns;
}

/* Returns the first member whose used time is at most base_ns + ahead_ns, and moves the members
 * before this member to the end. Returns NULL if all members have used more time. */
static struct line_entry *find(struct line *line)
{
    struct list *stop = NULL, *node;
    uint64_t least_ns = UINT64_MAX;
    while ((node = list_first(&line->rest)) != stop) {
        struct line_entry *entry = entry_of(node);
        limit(line, entry);
        if (may_go(line, entry))
            return entry;
        least_ns = entry->used_ns < least_ns ? entry->used_ns : least_ns;
        stop = stop ? stop : node;
        list_remove(node);
        list_append(&line->rest, node);
    }
    if (stop)
        line->base_ns = least_ns;
    return NULL;
}

struct line_entry *line_next(struct line *line)
{
    struct list *node = list_first(&line->light);
    struct line_entry *entry = node ? entry_of(node) : find(line);
    if (!entry)
        /* find() has raised base_ns to the least used time of all members */
        entry = find(line);
    if (entry)
        list_remove(&entry->link);
    return entry;
}

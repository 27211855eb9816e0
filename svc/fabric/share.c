/* Divides the events of a poll among the members of a list, and rotates lists. */
#include "svc/fabric/share.h"

#include <stddef.h>

/* Events of one poll: the least number for each group before the next group follows (W10). */
#define SHARE_LEAST 16

static size_t share_count(const struct list *head, size_t most)
{
    size_t count = 0;

    for (const struct list *node = head->next; node != head && count < most; node = node->next)
        count++;
    return count;
}

int fabric_share(const struct list *groups, int events_max)
{
    if (groups->next == groups->previous)
        return events_max;
    int share = events_max / (int)share_count(groups, SHARE_LEAST);
    return share < SHARE_LEAST ? SHARE_LEAST : share;
}

void fabric_begin_at(struct list *head, struct list *node)
{
    list_remove(head);
    list_insert_before(node, head);
}

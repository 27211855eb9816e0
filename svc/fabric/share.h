/* Shares of a poll's events among groups that take turns. */
#ifndef GRADPOOL_FABRIC_SHARE_H
#define GRADPOOL_FABRIC_SHARE_H

#include "svc/base/list.h"

/* Returns the number of events that each member of the list may have in this poll, at least 16. A
 * single member may have all. */
int fabric_share(const struct list *groups, int events_max);
/* Makes the next poll begin with this member. */
void fabric_begin_at(struct list *head, struct list *node);

#endif

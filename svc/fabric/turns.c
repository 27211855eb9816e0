/* Order in which a poll reads connections. A poll reads one tenant after the other. Within a
 * tenant, it reads one job after the other. From each job it reads a few connections. The next poll
 * begins where the last poll has stopped. S15 of svc/fabric/shm/README.md, O35 of
 * svc/fabric/ofi/README.md. */
#include "svc/fabric/turns.h"

#include <limits.h>

/* Minimum number of events of a group in one poll, before the next group follows (W10). */
#define EVENTS_PER_GROUP_LEAST 16
/* Maximum number of a tenant's connections that one poll checks. */
#define LOOKS_PER_TENANT (2 * FABRIC_GROUP_LOOKS_MAX)

/* Makes the next poll begin at this node. */
static void turns_begin_at(struct list *head, struct list *node)
{
    list_remove(head);
    list_insert_before(node, head);
}

static int turns_take_conns(fabric_take_fn *take, struct list *members, struct fabric_event *events,
                            int events_max, int *looks)
{
    int n = 0;

    list_for_each_safe (node, members) {
        if (n == events_max || *looks == 0) {
            turns_begin_at(members, node);
            break;
        }
        int more = take(node, events + n, events_max - n);
        if (more < 0)
            continue;
        --*looks;
        n += more;
    }
    return n;
}

static size_t turns_count(const struct list *head, size_t most)
{
    size_t count = 0;

    for (const struct list *node = head->next; node != head && count < most; node = node->next)
        count++;
    return count;
}

/* Returns the number of events that each group of the list may have. A single group may have all
 * events. */
static int turns_share(const struct list *groups, int events_max)
{
    if (groups->next == groups->previous)
        return events_max;
    int share = events_max / (int)turns_count(groups, EVENTS_PER_GROUP_LEAST);
    return share < EVENTS_PER_GROUP_LEAST ? EVENTS_PER_GROUP_LEAST : share;
}

/* Calls take() for the jobs of a tenant, one after the other. Each job gets a share of the
 * remaining events. */
static int turns_take_jobs(fabric_take_fn *take, struct fabric_turn *tenant,
                           struct fabric_event *events, int events_max)
{
    int n = 0, looks_left = LOOKS_PER_TENANT;
    int share = turns_share(&tenant->members, events_max);

    list_for_each_safe (node, &tenant->members) {
        int room = events_max - n;
        int most = looks_left < FABRIC_GROUP_LOOKS_MAX ? looks_left : FABRIC_GROUP_LOOKS_MAX;
        int looks = most;

        if (room == 0 || most == 0) {
            turns_begin_at(&tenant->members, node);
            break;
        }
        n += turns_take_conns(take, &list_entry(node, struct fabric_turn, link)->members,
                              events + n, room < share ? room : share, &looks);
        looks_left -= most - looks;
    }
    return n;
}

int fabric_turns_take(struct fabric_turns *turns, fabric_take_fn *take, struct fabric_event *events,
                      int events_max)
{
    int all = INT_MAX, n = turns_take_conns(take, &turns->loose, events, events_max, &all);
    int share = turns_share(&turns->tenants, events_max);

    list_for_each_safe (node, &turns->tenants) {
        int room = events_max - n;

        if (room == 0) {
            turns_begin_at(&turns->tenants, node);
            break;
        }
        n += turns_take_jobs(take, list_entry(node, struct fabric_turn, link), events + n,
                             room < share ? room : share);
    }
    return n;
}

static void turns_enter(struct fabric_turns *turns, struct fabric_turn *turn)
{
    for (; turn && list_is_empty(&turn->link); turn = turn->above)
        list_append(turn->above ? &turn->above->members : &turns->tenants, &turn->link);
}

void fabric_turns_join(struct fabric_turns *turns, struct fabric_turn *job, struct list *node)
{
    list_append(job ? &job->members : &turns->loose, node);
    turns_enter(turns, job);
}

void fabric_turns_leave(struct fabric_turn *job, struct list *node)
{
    list_remove(node);
    for (; job && list_is_empty(&job->members); job = job->above)
        list_remove(&job->link);
}

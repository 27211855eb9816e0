/* Order in which a lane checks its connections: by tenant, then by job, a few of each. The next
 * scan begins where this one has stopped. S15 of svc/fabric/shm/README.md. */
#include "svc/fabric/shm/scan.h"

#include "svc/fabric/shm/events.h"

#include <limits.h>

/* Events of one poll: minimum for each group before the next group follows (W10), and maximum for
 * one connection. */
#define EVENTS_PER_GROUP_LEAST 16
#define EVENTS_PER_CONN_MAX 32
/* Maximum number of a tenant's connections that one poll checks. */
#define LOOKS_PER_TENANT (2 * FABRIC_GROUP_LOOKS_MAX)

/* Makes the next scan begin at this node. */
static void scan_begin_at(struct list *head, struct list *node)
{
    list_remove(head);
    list_insert_before(node, head);
}

static int scan_conns(struct list *members, struct fabric_event *events, int events_max, int *looks)
{
    int n = 0;

    list_for_each_safe (node, members) {
        int room = events_max - n;

        if (room == 0 || *looks == 0) {
            scan_begin_at(members, node);
            break;
        }
        --*looks;
        n += shm_events_take(list_entry(node, struct shm_conn, scan_link), events + n,
                             room < EVENTS_PER_CONN_MAX ? room : EVENTS_PER_CONN_MAX);
    }
    return n;
}

static size_t scan_length(const struct list *head, size_t most)
{
    size_t count = 0;

    for (const struct list *node = head->next; node != head && count < most; node = node->next)
        count++;
    return count;
}

/* Returns the number of events that each group of the list may have. A single group may have all
 * events. */
static int scan_share(const struct list *groups, int events_max)
{
    if (groups->next == groups->previous)
        return events_max;
    int share = events_max / (int)scan_length(groups, EVENTS_PER_GROUP_LEAST);
    return share < EVENTS_PER_GROUP_LEAST ? EVENTS_PER_GROUP_LEAST : share;
}

/* Collects events of each job in turn, up to a share of the remaining events. */
static int scan_jobs(struct fabric_group *tenant, struct fabric_event *events, int events_max)
{
    int n = 0, looks_left = LOOKS_PER_TENANT;
    int share = scan_share(&tenant->members, events_max);

    list_for_each_safe (node, &tenant->members) {
        int room = events_max - n;
        int most = looks_left < FABRIC_GROUP_LOOKS_MAX ? looks_left : FABRIC_GROUP_LOOKS_MAX;
        int looks = most;

        if (room == 0 || most == 0) {
            scan_begin_at(&tenant->members, node);
            break;
        }
        n += scan_conns(&list_entry(node, struct fabric_group, link)->members, events + n,
                        room < share ? room : share, &looks);
        looks_left -= most - looks;
    }
    return n;
}

int shm_scan(struct shm_fabric *f, struct fabric_event *events, int events_max)
{
    int all = INT_MAX, n = scan_conns(&f->ungrouped, events, events_max, &all);
    int share = scan_share(&f->tenants, events_max);

    list_for_each_safe (node, &f->tenants) {
        int room = events_max - n;

        if (room == 0) {
            scan_begin_at(&f->tenants, node);
            break;
        }
        n += scan_jobs(list_entry(node, struct fabric_group, link), events + n,
                       room < share ? room : share);
    }
    return n;
}

static void scan_enter(struct shm_fabric *f, struct fabric_group *group)
{
    if (!list_is_empty(&group->link))
        return;
    list_append(group->above ? &group->above->members : &f->tenants, &group->link);
    if (group->above)
        scan_enter(f, group->above);
}

void shm_scan_join(struct fabric_conn *base, struct fabric_group *group)
{
    struct shm_conn *c = shm_conn(base);

    if (c->state >= SHM_ENDED)
        return;
    shm_conn_leave_group(c);
    c->group = group;
    list_append(&group->members, &c->scan_link);
    scan_enter(shm_owner(c), group);
}

/* In which order a lane looks at its connections: by tenant, then by job, a few of each. Where it
 * has to stop, the next scan begins. Owns the lists of groups. Invariant S15 of
 * svc/wire/README.md. */
#include "svc/wire/shm_scan.h"

#include <limits.h>

/* Events that a group may fill of a poll, at least, before others get their turn (W10); and a
 * connection at most. */
#define EVENTS_PER_GROUP_LEAST 16
#define EVENTS_PER_CONN_MAX 32
/* Connections of a tenant that one poll looks at. */
#define LOOKS_PER_TENANT (2 * FABRIC_GROUP_LOOKS_MAX)

/* The member behind the node is first the next time. */
static void begin_at(struct list *head, struct list *node)
{
    list_remove(head);
    list_insert_before(node, head);
}

static int scan_conns(struct fabric_group *group, struct fabric_event *events, int events_max,
                      int *looks)
{
    int n = 0;

    list_for_each_safe (node, &group->members) {
        int room = events_max - n;

        if (room == 0 || *looks == 0) {
            begin_at(&group->members, node);
            break;
        }
        --*looks;
        n += shm_conn_take(list_entry(node, struct shm_conn, scan_link), events + n,
                           room < EVENTS_PER_CONN_MAX ? room : EVENTS_PER_CONN_MAX);
    }
    return n;
}

static size_t length(const struct list *head, size_t most)
{
    size_t count = 0;

    for (const struct list *node = head->next; node != head && count < most; node = node->next)
        count++;
    return count;
}

/* Of so many events, for each group of the list; one alone gets all. */
static int share_of(const struct list *groups, int events_max)
{
    if (groups->next == groups->previous)
        return events_max;
    int share = events_max / (int)length(groups, EVENTS_PER_GROUP_LEAST);
    return share < EVENTS_PER_GROUP_LEAST ? EVENTS_PER_GROUP_LEAST : share;
}

/* A group's share of what is left, for each member in turn. */
static int scan_jobs(struct fabric_group *tenant, struct fabric_event *events, int events_max)
{
    int n = 0, looks_left = LOOKS_PER_TENANT;
    int share = share_of(&tenant->members, events_max);

    list_for_each_safe (node, &tenant->members) {
        int room = events_max - n;
        int most = looks_left < FABRIC_GROUP_LOOKS_MAX ? looks_left : FABRIC_GROUP_LOOKS_MAX;
        int looks = most;

        if (room == 0 || most == 0) {
            begin_at(&tenant->members, node);
            break;
        }
        n += scan_conns(list_entry(node, struct fabric_group, link), events + n,
                        room < share ? room : share, &looks);
        looks_left -= most - looks;
    }
    return n;
}

int shm_scan(struct shm_fabric *f, struct fabric_event *events, int events_max)
{
    int all = INT_MAX, n = scan_conns(&f->ungrouped, events, events_max, &all);
    int share = share_of(&f->tenants, events_max);

    list_for_each_safe (node, &f->tenants) {
        int room = events_max - n;

        if (room == 0) {
            begin_at(&f->tenants, node);
            break;
        }
        n += scan_jobs(list_entry(node, struct fabric_group, link), events + n,
                       room < share ? room : share);
    }
    return n;
}

static void leave(struct fabric_group *group)
{
    while (group && list_is_empty(&group->members)) {
        list_remove(&group->link);
        group = group->above;
    }
}

void shm_scan_remove(struct shm_conn *c)
{
    list_remove(&c->scan_link);
    leave(c->group);
    c->group = NULL;
}

static void enter(struct shm_fabric *f, struct fabric_group *group)
{
    if (!list_is_empty(&group->link))
        return;
    list_append(group->above ? &group->above->members : &f->tenants, &group->link);
    if (group->above)
        enter(f, group->above);
}

void shm_scan_join(struct fabric_conn *base, struct fabric_group *group)
{
    struct shm_conn *c = shm_conn(base);

    if (c->state >= SHM_ENDED)
        return;
    shm_scan_remove(c);
    c->group = group;
    list_append(&group->members, &c->scan_link);
    enter(shm_owner(c), group);
}

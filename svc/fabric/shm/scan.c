/* Order in which a lane checks its connections: by tenant, then by job, a few of each. The next
 * scan begins where this one has stopped. S15 of svc/fabric/shm/README.md. */
#include "svc/fabric/shm/scan.h"

#include "svc/fabric/share.h"
#include "svc/fabric/shm/events.h"
#include "svc/fabric/shm/map/mapper.h"

#include <limits.h>

/* Maximum number of events of one connection in one poll. */
#define EVENTS_PER_CONN_MAX 32
/* Maximum number of a tenant's connections that one poll checks. */
#define LOOKS_PER_TENANT (2 * FABRIC_GROUP_LOOKS_MAX)

static int scan_conns(struct list *members, struct fabric_event *events, int events_max, int *looks)
{
    int n = 0;

    list_for_each_safe (node, members) {
        int room = events_max - n;

        if (room == 0 || *looks == 0) {
            fabric_begin_at(members, node);
            break;
        }
        --*looks;
        n += shm_events_take(list_entry(node, struct shm_conn, scan_link), events + n,
                             room < EVENTS_PER_CONN_MAX ? room : EVENTS_PER_CONN_MAX);
    }
    return n;
}

/* Collects events of each job in turn, up to a share of the remaining events. */
static int scan_jobs(struct fabric_group *tenant, struct fabric_event *events, int events_max)
{
    int n = 0, looks_left = LOOKS_PER_TENANT;
    int share = fabric_share(&tenant->members, events_max);

    list_for_each_safe (node, &tenant->members) {
        int room = events_max - n;
        int most = looks_left < FABRIC_GROUP_LOOKS_MAX ? looks_left : FABRIC_GROUP_LOOKS_MAX;
        int looks = most;

        if (room == 0 || most == 0) {
            fabric_begin_at(&tenant->members, node);
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
    int share = fabric_share(&f->tenants, events_max);

    list_for_each_safe (node, &f->tenants) {
        int room = events_max - n;

        if (room == 0) {
            fabric_begin_at(&f->tenants, node);
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
    shm_toll_join(shm_mapper_tolls(shm_owner(c)->mapper), group);
    list_append(&group->members, &c->scan_link);
    scan_enter(shm_owner(c), group);
}

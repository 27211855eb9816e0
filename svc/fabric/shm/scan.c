/* Reads connections of fabric_shm in turns: in its turn, each connection may report a few events.
 * S15 of README.md. */
#include "svc/fabric/shm/scan.h"

#include "svc/fabric/shm/events.h"
#include "svc/fabric/shm/map/mapper.h"

/* Maximum number of events of one connection in one poll. */
#define EVENTS_PER_CONN_MAX 32

int shm_scan_take(struct list *node, struct fabric_event *events, int events_max)
{
    return shm_events_take(list_entry(node, struct shm_conn, scan_link), events,
                           events_max < EVENTS_PER_CONN_MAX ? events_max : EVENTS_PER_CONN_MAX);
}

void shm_scan_join(struct fabric_conn *base, struct fabric_group *group)
{
    struct shm_conn *c = shm_conn(base);

    if (c->state >= SHM_ENDED)
        return;
    shm_conn_leave_group(c);
    c->group = group;
    shm_toll_join(shm_mapper_tolls(shm_owner(c)->mapper), group);
    fabric_turns_join(&shm_owner(c)->turns, &group->turns[FABRIC_TURN_SHM], &c->scan_link);
}

/* A toll is freed when its last connection has left and its last memory is unmapped. If memory of a
 * job is unmapped after the job's last connection has left, the time is charged to no job. */
#include "svc/fabric/shm/map/toll.h"

#include <stdlib.h>

static void toll_release(struct shm_toll *toll)
{
    if (atomic_fetch_sub(&toll->users, 1) == 1)
        free(toll);
}

static struct shm_toll *toll_create(struct list *tolls, struct fabric_group *group)
{
    struct shm_toll *toll = calloc(1, sizeof *toll);
    if (!toll)
        return NULL;
    toll->group = group;
    list_append(tolls, &toll->link);
    return toll;
}

static struct shm_toll *toll_find(struct list *tolls, const struct fabric_group *group)
{
    if (!tolls)
        return NULL;
    list_for_each_entry (struct shm_toll, toll, tolls, link)
        if (toll->group == group)
            return toll;
    return NULL;
}

void shm_toll_join(struct list *tolls, struct fabric_group *group)
{
    struct shm_toll *toll = toll_find(tolls, group);
    if (!toll && tolls)
        toll = toll_create(tolls, group);
    if (!toll)
        return;
    toll->conns++;
    atomic_fetch_add(&toll->users, 1);
}

void shm_toll_leave(struct list *tolls, const struct fabric_group *group)
{
    struct shm_toll *toll = group ? toll_find(tolls, group) : NULL;
    if (!toll)
        return;
    if (--toll->conns == 0)
        list_remove(&toll->link);
    toll_release(toll);
}

struct shm_toll *shm_toll_share(struct list *tolls, const struct fabric_group *group)
{
    struct shm_toll *toll = toll_find(tolls, group);
    if (toll)
        atomic_fetch_add(&toll->users, 1);
    return toll;
}

void shm_toll_pay(struct shm_toll *toll, uint64_t spent_ns)
{
    if (!toll)
        return;
    atomic_fetch_add(&toll->spent_ns, spent_ns);
    toll_release(toll);
}

struct shm_toll *shm_toll_next(struct list *tolls, uint64_t *ret_ns)
{
    list_for_each_entry (struct shm_toll, toll, tolls, link) {
        if (atomic_load_explicit(&toll->spent_ns, memory_order_relaxed) == 0)
            continue;
        *ret_ns = atomic_exchange(&toll->spent_ns, 0);
        return toll;
    }
    return NULL;
}

/* Owns struct door, the listeners, and the parties of connections without a tenant. Other files of
 * this room add peers to the lists of the door. */
#include "svc/coordinator/peer/door.h"

#include "svc/coordinator/service.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>

/* Share of the coordinator's thread for a party while other parties wait, in percent. */
#define OPERATORS_PERCENT 50
#define STRANGERS_PERCENT 25

static void door_init_parties(struct party *parties)
{
    party_init(&parties[DOOR_OPERATORS], PARTY_OPERATORS, OPERATORS_PERCENT);
    party_init(&parties[DOOR_AGGREGATORS], PARTY_AGGREGATORS, 100);
    party_init(&parties[DOOR_OTHERS], PARTY_OTHERS, STRANGERS_PERCENT);
    for (int i = DOOR_STRANGERS; i < DOOR_PARTIES; i++)
        party_init(&parties[i], PARTY_OTHERS, STRANGERS_PERCENT);
}

static struct listener *door_listener(void)
{
    struct listener *l = calloc(1, sizeof *l);
    if (l)
        l->source.fd = -1;
    return l;
}

int door_create(struct service *s)
{
    struct door *d = s->door = calloc(1, sizeof *d);
    if (!d)
        return -ENOMEM;
    list_init(&d->peers);
    list_init(&d->tenants);
    list_init(&d->waits);
    list_init(&d->frames_waiting);
    list_init(&d->visitors);
    d->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    d->tcp = door_listener();
    d->local = door_listener();
    d->parties = calloc(DOOR_PARTIES, sizeof *d->parties);
    if (!d->tcp || !d->local || !d->parties)
        return -ENOMEM;
    door_init_parties(d->parties);
    return 0;
}

void door_close(struct service *s)
{
    if (s->door && s->door->tcp)
        listener_close(s->door->tcp);
    if (s->door && s->door->local)
        listener_close(s->door->local);
}

void door_destroy(struct service *s)
{
    if (!s->door)
        return;
    if (s->door->spare_fd >= 0)
        close(s->door->spare_fd);
    free(s->door->tcp);
    free(s->door->local);
    free(s->door->parties);
    free(s->door);
}

/* Connections of fabric_ofi that polls read, and their order. */
#include "svc/fabric/ofi/provider/turn.h"

#include <rdma/fabric.h>
#include <stdlib.h>

struct ofi_turns *ofi_turns_create(void)
{
    struct ofi_turns *turns = calloc(1, sizeof *turns);
    if (turns == NULL)
        return NULL;
    list_init(&turns->active);
    fabric_turns_init(&turns->all);
    turns->moves_apart = FI_MAJOR(fi_version()) < 2;
    return turns;
}

struct ofi_place *ofi_place_create(struct ofi_conn *c)
{
    struct ofi_place *place = calloc(1, sizeof *place);
    if (place == NULL)
        return NULL;
    place->conn = c;
    list_init(&place->in_active);
    list_init(&place->in_turn);
    return place;
}

static struct fabric_turn *turn_of_job(const struct ofi_place *place)
{
    return place->group ? &place->group->turns[FABRIC_TURN_OFI] : NULL;
}

void ofi_turn_begin(struct ofi_conn *c)
{
    struct ofi_turns *turns = ofi_fabric_of(c)->turns;
    if (!list_is_empty(&c->place->in_active))
        return;
    list_append(&turns->active, &c->place->in_active);
    fabric_turns_join(&turns->all, turn_of_job(c->place), &c->place->in_turn);
}

void ofi_turn_end(struct ofi_conn *c)
{
    list_remove(&c->place->in_active);
    fabric_turns_leave(turn_of_job(c->place), &c->place->in_turn);
}

void ofi_turn_join(struct ofi_conn *c, struct fabric_group *group)
{
    bool was_active = !list_is_empty(&c->place->in_active);
    ofi_turn_end(c);
    c->place->group = group;
    if (was_active)
        ofi_turn_begin(c);
}

/* Creates groups of connections, and moves them between tenants. Connections join and leave groups
 * elsewhere. */
#include "svc/fabric/group.h"

void fabric_group_init(struct fabric_group *group, struct fabric_group *above)
{
    *group = (struct fabric_group){.above = above};
    for (int kind = 0; kind < FABRIC_TURNS; kind++) {
        list_init(&group->turns[kind].link);
        list_init(&group->turns[kind].members);
        group->turns[kind].above = above ? &above->turns[kind] : NULL;
    }
}

static void turn_move(struct fabric_turn *turn, struct fabric_turn *above)
{
    struct fabric_turn *before = turn->above;
    turn->above = above;
    if (list_is_empty(&turn->link))
        return;
    list_remove(&turn->link);
    list_append(&above->members, &turn->link);
    if (list_is_empty(&above->link))
        list_append(&before->link, &above->link); /* adds `above` to the list of tenants */
    if (list_is_empty(&before->members))
        list_remove(&before->link);
}

void fabric_group_move(struct fabric_group *group, struct fabric_group *above)
{
    group->above = above;
    for (int kind = 0; kind < FABRIC_TURNS; kind++)
        turn_move(&group->turns[kind], &above->turns[kind]);
}

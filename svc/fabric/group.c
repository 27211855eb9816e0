/* Creates groups of connections, and moves them between tenants. Connections join and leave groups
 * elsewhere. */
#include "svc/fabric/group.h"

void fabric_group_init(struct fabric_group *group, struct fabric_group *above)
{
    *group = (struct fabric_group){.above = above};
    list_init(&group->link);
    list_init(&group->members);
}

void fabric_group_move(struct fabric_group *group, struct fabric_group *above)
{
    struct fabric_group *before = group->above;
    group->above = above;
    if (list_is_empty(&group->link))
        return;
    list_remove(&group->link);
    list_append(&above->members, &group->link);
    if (list_is_empty(&above->link))
        list_append(&before->link, &above->link); /* adds `above` to the list of tenants */
    if (list_is_empty(&before->members))
        list_remove(&before->link);
}

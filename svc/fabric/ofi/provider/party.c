/* Parties are created with their first connection, and freed after their last one. A party refers
 * to the group of the lane only as long as it has connections, or until the next poll, in which the
 * lane has taken its bill. */
#include "svc/fabric/ofi/provider/party.h"

#include <stdlib.h>

/* --- connections that polls read ------------------------------------------------------------- */

static void party_enter_turn(struct ofi_turns *turns, struct ofi_party *party)
{
    for (; party && list_is_empty(&party->in_turn); party = party->above)
        list_append(party->above ? &party->above->members : &turns->tenants, &party->in_turn);
}

static void party_leave_turn(struct ofi_party *party)
{
    for (; party && list_is_empty(&party->members); party = party->above)
        list_remove(&party->in_turn);
}

void ofi_party_activate(struct ofi_conn *c)
{
    struct ofi_turns *turns = ofi_fabric_of(c)->turns;
    struct ofi_party *party = c->place->party;
    if (!list_is_empty(&c->place->in_active))
        return;
    list_append(party ? &party->members : &turns->active, &c->place->in_active);
    party_enter_turn(turns, party);
}

void ofi_party_rest(struct ofi_conn *c)
{
    list_remove(&c->place->in_active);
    party_leave_turn(c->place->party);
}

bool ofi_party_is_any_active(const struct ofi_fabric *f)
{
    return !list_is_empty(&f->turns->active) || !list_is_empty(&f->turns->tenants);
}

static bool party_all_of(struct ofi_fabric *f, struct list *members,
                         bool (*may_rest)(struct ofi_fabric *f, struct ofi_conn *c))
{
    list_for_each_safe (node, members)
        if (!may_rest(f, list_entry(node, struct ofi_place, in_active)->conn))
            return false;
    return true;
}

bool ofi_party_all(struct ofi_fabric *f, bool (*may_rest)(struct ofi_fabric *f, struct ofi_conn *c))
{
    if (!party_all_of(f, &f->turns->active, may_rest))
        return false;
    list_for_each_safe_entry (struct ofi_party, tenant, &f->turns->tenants, in_turn)
        list_for_each_safe_entry (struct ofi_party, job, &tenant->members, in_turn)
            if (!party_all_of(f, &job->members, may_rest))
                return false;
    return true;
}

/* --- creation and end ------------------------------------------------------------------------ */

static struct ofi_party *party_find(struct ofi_turns *turns, const struct fabric_group *group,
                                    const struct ofi_party *above)
{
    list_for_each_entry (struct ofi_party, party, &turns->parties, in_all)
        if (party->group == group && party->above == above)
            return party;
    return NULL;
}

static struct ofi_party *party_create(struct ofi_turns *turns, struct fabric_group *group,
                                      struct ofi_party *above)
{
    struct ofi_party *party = calloc(1, sizeof *party);
    if (party == NULL)
        return NULL;
    party->group = group;
    party->above = above;
    list_init(&party->in_turn);
    list_init(&party->members);
    list_init(&party->in_bill);
    list_append(&turns->parties, &party->in_all);
    if (above)
        above->users++;
    return party;
}

static void party_retire(struct ofi_turns *turns, struct ofi_party *party)
{
    list_remove(&party->in_all);
    list_append(&turns->old_parties, &party->in_all);
}

/* Ends parties without users, from the party of a job upwards. */
static void party_drop(struct ofi_turns *turns, struct ofi_party *party)
{
    while (party && party->users == 0) {
        struct ofi_party *above = party->above;
        party_retire(turns, party);
        if (above)
            above->users--;
        party = above;
    }
}

static struct ofi_party *party_of(struct ofi_turns *turns, struct fabric_group *group,
                                  struct ofi_party *above)
{
    struct ofi_party *party = party_find(turns, group, above);
    return party ? party : party_create(turns, group, above);
}

void ofi_party_join(struct ofi_conn *c, struct fabric_group *group)
{
    struct ofi_turns *turns = ofi_fabric_of(c)->turns;
    bool was_active = !list_is_empty(&c->place->in_active);
    bool may_join = c->phase != OFI_GONE && c->place->party == NULL;
    struct ofi_party *tenant = may_join ? party_of(turns, group->above, NULL) : NULL;
    if (tenant == NULL)
        return;
    struct ofi_party *party = party_of(turns, group, tenant);
    if (party == NULL) {
        party_drop(turns, tenant);
        return;
    }
    ofi_party_rest(c);
    c->place->party = party;
    party->users++;
    if (was_active)
        ofi_party_activate(c);
}

void ofi_party_leave(struct ofi_conn *c)
{
    struct ofi_party *party = c->place->party;
    ofi_party_rest(c);
    c->place->party = NULL;
    if (party == NULL)
        return;
    party->users--;
    party_drop(ofi_fabric_of(c)->turns, party);
}

struct ofi_place *ofi_place_create(struct ofi_conn *c)
{
    struct ofi_place *place = calloc(1, sizeof *place);
    if (place == NULL)
        return NULL;
    place->conn = c;
    list_init(&place->in_active);
    return place;
}

struct ofi_turns *ofi_turns_create(void)
{
    struct ofi_turns *turns = calloc(1, sizeof *turns);
    if (turns == NULL)
        return NULL;
    list_init(&turns->active);
    list_init(&turns->tenants);
    list_init(&turns->parties);
    list_init(&turns->old_parties);
    list_init(&turns->bills);
    return turns;
}

static void party_free_list(struct list *parties)
{
    list_for_each_safe_entry (struct ofi_party, party, parties, in_all) {
        list_remove(&party->in_bill);
        list_remove(&party->in_all);
        free(party);
    }
}

void ofi_party_free_old(struct ofi_turns *turns) { party_free_list(&turns->old_parties); }

void ofi_turns_destroy(struct ofi_turns *turns)
{
    if (turns == NULL)
        return;
    party_free_list(&turns->old_parties);
    party_free_list(&turns->parties);
    free(turns);
}

/* --- bills ----------------------------------------------------------------------------------- */

void ofi_party_bill(struct ofi_turns *turns, struct ofi_party *party, uint64_t ns)
{
    party->owed_ns += ns;
    if (ns > 0 && list_is_empty(&party->in_bill))
        list_append(&turns->bills, &party->in_bill);
}

bool ofi_party_next_charge(struct fabric *base, struct fabric_charge *ret_charge)
{
    struct list *node = list_first(&((struct ofi_fabric *)base)->turns->bills);
    if (node == NULL)
        return false;
    struct ofi_party *party = list_entry(node, struct ofi_party, in_bill);
    list_remove(node);
    *ret_charge = (struct fabric_charge){.group = party->group, .polled_ns = party->owed_ns};
    party->owed_ns = 0;
    return true;
}

/* Distributes the pieces so that each lane gets pieces from all parts of the request. Gradients
 * become ready one after the other: a lane with only the last pieces would first be idle and then
 * finish late (P14). Uses only lanes with pieces of the placement, and never exceeds the room of a
 * lane. */
#include "packer/placement/deal.h"

#include <errno.h>
#include <stdlib.h>

/* A lane that gets pieces. */
struct hand {
    size_t lane;
    double quota_ns; /* lane time of this placement on the lane before the distribution */
    double dealt_ns; /* lane time of pieces assigned so far */
};

/* A piece to place. */
struct card {
    uint64_t first, elements, lane_ns;
    uint32_t tensor; /* position of the tensor */
    bool is_crumb;   /* the lane time is below `crumb_ns`, so the piece is placed last */
};

struct deal {
    struct placement *placement;
    const double *room_ns;
    struct card *cards;
    size_t count;
    struct hand *hands;
    size_t hands_count;
};

static int compare_position(const struct card *x, const struct card *y)
{
    if (x->tensor != y->tensor)
        return x->tensor < y->tensor ? -1 : 1;
    return (x->first > y->first) - (x->first < y->first);
}

static int compare_in_order(const void *a, const void *b)
{
    const struct card *x = a, *y = b;

    return x->is_crumb != y->is_crumb ? x->is_crumb - y->is_crumb : compare_position(x, y);
}

static int compare_largest_first(const void *a, const void *b)
{
    const struct card *x = a, *y = b;

    if (!x->is_crumb && !y->is_crumb && x->lane_ns != y->lane_ns)
        return x->lane_ns > y->lane_ns ? -1 : 1;
    return compare_in_order(a, b);
}

static void take_hands(struct deal *deal)
{
    const struct placement *placement = deal->placement;

    for (size_t i = 0; i < placement->request->lanes_count; i++) {
        uint64_t before_ns = placement->request->lanes[i].job_lane_ns;
        uint64_t now_ns = placement->lanes[i].job_lane_ns;

        if (now_ns > before_ns)
            deal->hands[deal->hands_count++] =
                (struct hand){.lane = i, .quota_ns = (double)(now_ns - before_ns)};
    }
}

/* Returns the lane with the smallest ratio of lane time (assigned plus this piece) to quota; NULL:
 * no lane has room. */
static struct hand *choose(const struct deal *deal, const struct placement_need *need)
{
    const struct placement *placement = deal->placement;
    struct hand *best = NULL;
    double ns = (double)need->lane_ns;

    for (size_t i = 0; i < deal->hands_count; i++) {
        struct hand *hand = &deal->hands[i];
        double taken_ns = (double)placement->lanes[hand->lane].job_lane_ns;

        if (taken_ns + ns > deal->room_ns[hand->lane] ||
            !placement_lane_fits(placement, hand->lane, need))
            continue;
        if (!best ||
            (hand->dealt_ns + ns) * best->quota_ns < (best->dealt_ns + ns) * hand->quota_ns)
            best = hand;
    }
    return best;
}

/* Distributes all pieces. -ENOSPC: no lane has room for a piece. */
static int deal_all(struct deal *deal, int (*compare)(const void *, const void *))
{
    int error = 0;

    qsort(deal->cards, deal->count, sizeof(*deal->cards), compare);
    placement_reset(deal->placement);
    for (size_t i = 0; i < deal->hands_count; i++)
        deal->hands[i].dealt_ns = 0;
    for (size_t i = 0; i < deal->count && error == 0; i++) {
        const struct card *card = &deal->cards[i];
        struct placement_need need = placement_need(deal->placement, card->tensor, card->elements);
        struct hand *hand = choose(deal, &need);

        if (!hand)
            return -ENOSPC;
        hand->dealt_ns += (double)need.lane_ns;
        error =
            placement_put(deal->placement, card->tensor, hand->lane, card->first, card->elements);
    }
    return error;
}

static int deal_init(struct deal *deal, double crumb_ns)
{
    struct placement *placement = deal->placement;

    deal->count = placement->pieces_count;
    deal->hands = calloc(placement->request->lanes_count + 1, sizeof(*deal->hands));
    deal->cards = calloc(deal->count + 1, sizeof(*deal->cards));
    if (!deal->hands || !deal->cards)
        return placement_refuse(placement, -ENOMEM,
                                "the packer has no memory to choose lanes for %zu pieces",
                                deal->count);
    for (size_t i = 0; i < deal->count; i++) {
        const struct packer_piece *piece = &placement->pieces[i];
        uint64_t ns = placement_need(placement, piece->tensor, piece->elements).lane_ns;

        deal->cards[i] = (struct card){.first = piece->first,
                                       .elements = piece->elements,
                                       .lane_ns = ns,
                                       .tensor = piece->tensor,
                                       .is_crumb = (double)ns < crumb_ns};
    }
    take_hands(deal);
    return 0;
}

int deal_in_order(struct placement *placement, const double *room_ns, double crumb_ns)
{
    struct deal deal = {.placement = placement, .room_ns = room_ns};
    int error = deal_init(&deal, crumb_ns);

    if (error == 0 && deal.hands_count > 1) {
        error = deal_all(&deal, compare_in_order);
        if (error == -ENOSPC)
            error = deal_all(&deal, compare_largest_first);
    }
    free(deal.hands);
    free(deal.cards);
    return error;
}

/* Owns the state of one placement: the checked request, load and free room of each lane, and the
 * placed pieces. Nothing reaches the caller before placement_finish() (P2). The policies choose
 * lanes. */
#include "packer/placement/placement.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#define LOAD_STEP_PPM 250000
#define CACHE_LINE_BYTES 64
#define NS_PER_S UINT64_C(1000000000)

int placement_refuse(struct placement *placement, int error, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(placement->reason, placement->reason_bytes, format, arguments);
    va_end(arguments);
    return error;
}

static uint64_t add_saturated(uint64_t a, uint64_t b)
{
    uint64_t sum;

    return __builtin_add_overflow(a, b, &sum) ? UINT64_MAX : sum;
}

/* Returns the number of elements of the largest possible piece of a tensor, at least 1. */
static uint64_t elements_max(const struct placement *placement, size_t tensor)
{
    const struct packer_tensor *t = &placement->request->tensors[tensor];

    if (t->is_whole)
        return t->elements ? t->elements : 1;
    return placement->piece_bytes_max / t->element_bytes;
}

static int check_lane(struct placement *placement, const struct packer_lane *lane)
{
    const struct packer_request *request = placement->request;

    if (lane != request->lanes && lane[0].id <= lane[-1].id)
        return placement_refuse(placement, -EINVAL,
                                "lanes must be in ascending order: lane %" PRIu32
                                " comes after lane %" PRIu32,
                                lane[0].id, lane[-1].id);
    if (request->nodes_count > 0 && lane->node >= request->nodes_count)
        return placement_refuse(placement, -EINVAL,
                                "lane %" PRIu32 " is on node %" PRIu32 ", there are %zu", lane->id,
                                lane->node, request->nodes_count);
    for (size_t i = 0; i < lane->residents_count; i++)
        if (lane->residents[i].timing.period_ns == 0 ||
            lane->residents[i].timing.period_ns > PACKER_PERIOD_NS_MAX)
            return placement_refuse(placement, -EINVAL,
                                    "job %" PRIu64 " on lane %" PRIu32 " has a period of %" PRIu64
                                    " ns; expected 1 to 2^53",
                                    lane->residents[i].job, lane->id,
                                    lane->residents[i].timing.period_ns);
    return 0;
}

static int check_lanes(struct placement *placement)
{
    const struct packer_request *request = placement->request;

    if (request->timing.period_ns > PACKER_PERIOD_NS_MAX)
        return placement_refuse(placement, -EINVAL,
                                "the job has a period of %" PRIu64 " ns; expected at most 2^53",
                                request->timing.period_ns);
    if (request->lanes_count > PLACEMENT_LANES_MAX)
        return placement_refuse(placement, -EINVAL, "%zu lanes: at most %" PRIu32 " can be used",
                                request->lanes_count, PLACEMENT_LANES_MAX);
    for (size_t i = 0; i < request->lanes_count; i++) {
        int error = check_lane(placement, &request->lanes[i]);

        if (error < 0)
            return error;
    }
    return 0;
}

static int count_tensor(struct placement *placement, size_t tensor)
{
    const struct packer_tensor *t = &placement->request->tensors[tensor];
    uint64_t bytes, largest;

    if (t->element_bytes == 0 || t->element_bytes > placement->piece_bytes_max)
        return placement_refuse(placement, -EINVAL,
                                "tensor %" PRIu32 " has elements of %" PRIu32
                                " bytes; expected 1 to %" PRIu64 ", the size of a piece",
                                t->id, t->element_bytes, placement->piece_bytes_max);
    if (__builtin_mul_overflow(t->elements, (uint64_t)t->element_bytes, &bytes) ||
        __builtin_add_overflow(placement->total_bytes, bytes, &placement->total_bytes))
        return placement_refuse(placement, -EINVAL,
                                "tensor %" PRIu32 " of %" PRIu64 " elements is beyond 2^64 bytes",
                                t->id, t->elements);
    largest = elements_max(placement, tensor);
    placement->total_pieces += t->elements == 0 ? 1 : (t->elements - 1) / largest + 1;
    if (placement->total_pieces > PLACEMENT_PIECES_MAX)
        return placement_refuse(placement, -EINVAL,
                                "tensor %" PRIu32 " of %" PRIu64
                                " bytes would be cut into more than %" PRIu32 " pieces of %" PRIu64
                                " bytes",
                                t->id, bytes, PLACEMENT_PIECES_MAX, placement->piece_bytes_max);
    return 0;
}

static int check_tensors(struct placement *placement)
{
    if (placement->request->tensors_count > PLACEMENT_PIECES_MAX)
        return placement_refuse(placement, -EINVAL,
                                "%zu tensors: at most %" PRIu32 " in one request",
                                placement->request->tensors_count, PLACEMENT_PIECES_MAX);
    for (size_t i = 0; i < placement->request->tensors_count; i++) {
        int error = count_tensor(placement, i);

        if (error < 0)
            return error;
    }
    return 0;
}

static int check_room(struct placement *placement)
{
    const struct packer_request *request = placement->request;
    uint64_t spare_bytes = 0, needed_bytes = 0;

    if (request->tensors_count == 0)
        return 0; /* an empty request needs no lane */
    if (request->lanes_count == 0)
        return placement_refuse(placement, -ENOSPC,
                                "%zu tensors of %" PRIu64
                                " bytes need a lane, but the service has none",
                                request->tensors_count, placement->total_bytes);
    for (size_t i = 0; i < request->lanes_count; i++)
        spare_bytes = add_saturated(spare_bytes, request->lanes[i].memory_bytes);
    for (size_t i = 0; i < request->tensors_count; i++)
        needed_bytes = add_saturated(
            needed_bytes, placement_need(placement, i, request->tensors[i].elements).memory_bytes);
    if (spare_bytes < needed_bytes)
        return placement_refuse(placement, -ENOSPC,
                                "the tensors need %" PRIu64
                                " bytes, but the %zu lanes have only %" PRIu64 " bytes free",
                                needed_bytes, request->lanes_count, spare_bytes);
    return 0;
}

void placement_reset(struct placement *placement)
{
    const struct packer_request *request = placement->request;

    for (size_t i = 0; i < request->lanes_count; i++) {
        const struct packer_lane *lane = &request->lanes[i];

        placement->lanes[i] = (struct placement_lane){
            .bytes = lane->load_bytes,
            .memory_bytes = lane->memory_bytes,
            .load_step = lane->load_ppm / LOAD_STEP_PPM,
            .nic_bytes_per_s = lane->nic_bytes_per_s ? lane->nic_bytes_per_s : UINT64_MAX,
            .job_lane_ns = lane->job_lane_ns,
            .usable = true,
            .hosts_job = lane->job_bytes > 0 || lane->job_lane_ns > 0,
        };
    }
    for (size_t i = 0; i < request->nodes_count; i++)
        placement->nodes[i] = request->nodes[i];
    placement->pieces_count = 0;
}

static int open_books(struct placement *placement)
{
    const struct packer_request *request = placement->request;

    if (request->lanes_count == 0)
        return 0;
    placement->lanes = calloc(request->lanes_count, sizeof(*placement->lanes));
    placement->shares = calloc(request->lanes_count, sizeof(*placement->shares));
    placement->nodes = calloc(request->nodes_count + 1, sizeof(*placement->nodes));
    if (!placement->lanes || !placement->shares || !placement->nodes)
        return placement_refuse(placement, -ENOMEM, "the packer has no memory for %zu lanes",
                                request->lanes_count);
    placement_reset(placement);
    return 0;
}

int placement_init(struct placement *placement, const struct packer_request *request, char *reason,
                   size_t reason_bytes)
{
    int error;

    *placement = (struct placement){
        .request = request,
        .piece_bytes_max =
            request->piece_bytes_max ? request->piece_bytes_max : PACKER_PIECE_BYTES_MAX,
        .reason = reason,
        .reason_bytes = reason_bytes,
    };
    error = check_lanes(placement);
    if (error == 0)
        error = check_tensors(placement);
    if (error == 0)
        error = check_room(placement);
    if (error == 0)
        error = open_books(placement);
    return error;
}

void placement_fini(struct placement *placement)
{
    free(placement->lanes);
    free(placement->shares);
    free(placement->nodes);
    free(placement->pieces);
    placement->lanes = NULL;
    placement->shares = NULL;
    placement->nodes = NULL;
    placement->pieces = NULL;
}

uint64_t placement_piece_elements(const struct placement *placement, size_t tensor,
                                  uint64_t elements)
{
    uint64_t element_bytes = placement->request->tensors[tensor].element_bytes;
    uint64_t largest = elements_max(placement, tensor), line, even;

    if (elements == 0)
        return 1;
    even = (elements - 1) / ((elements - 1) / largest + 1) + 1;
    if (CACHE_LINE_BYTES % element_bytes != 0)
        return even;
    /* Pieces start at a cache line of the tensor if the maximum size permits (P5). */
    line = CACHE_LINE_BYTES / element_bytes;
    even = (even - 1) / line * line + line;
    return even < largest ? even : largest;
}

/* Returns number * part / whole, rounded up. */
static uint64_t part_of(uint64_t number, uint64_t part, uint64_t whole)
{
    if (part >= whole)
        return number;
    return (uint64_t)(((unsigned __int128)number * part + whole - 1) / whole);
}

/* Returns the bytes per second for `bytes` in each round, rounded up; 0 for an unmeasured job. */
static uint64_t per_second(uint64_t bytes, uint64_t period_ns)
{
    unsigned __int128 rate;

    if (period_ns == 0)
        return 0;
    rate = ((unsigned __int128)bytes * NS_PER_S + period_ns - 1) / period_ns;
    return rate < UINT64_MAX ? (uint64_t)rate : UINT64_MAX - 1;
}

struct placement_need placement_need(const struct placement *placement, size_t tensor,
                                     uint64_t elements)
{
    const struct packer_tensor *t = &placement->request->tensors[tensor];
    uint64_t bytes = elements * t->element_bytes;

    return (struct placement_need){
        .bytes = bytes,
        .memory_bytes = t->state_bytes ? part_of(t->state_bytes, elements, t->elements) : bytes,
        .nic_bytes_per_s = per_second(part_of(t->wire_bytes, elements, t->elements),
                                      placement->request->timing.period_ns),
        .lane_ns = part_of(t->lane_ns, elements, t->elements),
    };
}

static struct packer_node *node_of(const struct placement *placement, size_t lane)
{
    const struct packer_request *request = placement->request;

    return request->nodes_count ? &placement->nodes[request->lanes[lane].node] : NULL;
}

uint64_t placement_memory_left(const struct placement *placement, size_t lane)
{
    const struct packer_node *node = node_of(placement, lane);
    uint64_t left = placement->lanes[lane].memory_bytes;

    return node && node->memory_bytes < left ? node->memory_bytes : left;
}

uint64_t placement_nic_left(const struct placement *placement, size_t lane)
{
    const struct packer_node *node = node_of(placement, lane);
    uint64_t left = placement->lanes[lane].nic_bytes_per_s;

    return node && node->nic_bytes_per_s < left ? node->nic_bytes_per_s : left;
}

bool placement_lane_fits(const struct placement *placement, size_t lane,
                         const struct placement_need *need)
{
    return placement->lanes[lane].usable &&
           placement_memory_left(placement, lane) >= need->memory_bytes &&
           placement_nic_left(placement, lane) >= need->nic_bytes_per_s;
}

uint64_t placement_tensor_bytes(const struct placement *placement, size_t tensor)
{
    const struct packer_tensor *t = &placement->request->tensors[tensor];

    return t->elements * t->element_bytes;
}

int placement_refuse_lanes(struct placement *placement, size_t tensor,
                           const struct placement_need *need)
{
    uint32_t id = placement->request->tensors[tensor].id;
    uint64_t most_bytes = 0, most_nic = 0;

    for (size_t i = 0; i < placement->request->lanes_count; i++) {
        if (!placement->lanes[i].usable)
            continue;
        if (placement_memory_left(placement, i) > most_bytes)
            most_bytes = placement_memory_left(placement, i);
        if (placement_nic_left(placement, i) > most_nic)
            most_nic = placement_nic_left(placement, i);
    }
    if (need->memory_bytes > most_bytes || need->nic_bytes_per_s == 0)
        return placement_refuse(
            placement, -ENOSPC,
            "tensor %" PRIu32 " needs %" PRIu64
            " bytes on one lane, but the lane with the most free memory has only %" PRIu64 " bytes",
            id, need->memory_bytes, most_bytes);
    return placement_refuse(
        placement, -ENOSPC,
        "tensor %" PRIu32 " needs %" PRIu64 " bytes and %" PRIu64
        " bytes/s of network on one lane; the most free memory of a lane is %" PRIu64
        " bytes, and the most free network of a lane is %" PRIu64 " bytes/s",
        id, need->memory_bytes, need->nic_bytes_per_s, most_bytes, most_nic);
}

static void take(uint64_t *left, uint64_t amount)
{
    if (*left != UINT64_MAX)
        *left -= amount;
}

static int refuse_charge(struct placement *placement, size_t tensor, size_t lane,
                         const struct placement_need *need)
{
    const struct packer_request *request = placement->request;

    if (placement_memory_left(placement, lane) < need->memory_bytes)
        return placement_refuse(placement, -ENOSPC,
                                "lane %" PRIu32 " would have to take %" PRIu64
                                " bytes of tensor %" PRIu32 ", but has only %" PRIu64 " bytes",
                                request->lanes[lane].id, need->memory_bytes,
                                request->tensors[tensor].id,
                                placement_memory_left(placement, lane));
    return placement_refuse(placement, -ENOSPC,
                            "lane %" PRIu32 " needs %" PRIu64
                            " bytes/s of network for tensor %" PRIu32 ", but has only %" PRIu64
                            " bytes/s",
                            request->lanes[lane].id, need->nic_bytes_per_s,
                            request->tensors[tensor].id, placement_nic_left(placement, lane));
}

static int charge(struct placement *placement, size_t tensor, size_t lane, uint64_t elements)
{
    struct placement_need need = placement_need(placement, tensor, elements);
    struct placement_lane *l = &placement->lanes[lane];
    struct packer_node *node = node_of(placement, lane);

    if (!placement_lane_fits(placement, lane, &need))
        return refuse_charge(placement, tensor, lane, &need);
    l->bytes = add_saturated(l->bytes, need.bytes);
    l->job_lane_ns = add_saturated(l->job_lane_ns, need.lane_ns);
    take(&l->memory_bytes, need.memory_bytes);
    take(&l->nic_bytes_per_s, need.nic_bytes_per_s);
    if (node) {
        take(&node->memory_bytes, need.memory_bytes);
        take(&node->nic_bytes_per_s, need.nic_bytes_per_s);
    }
    l->hosts_job = true;
    l->taken = true;
    return 0;
}

static int append(struct placement *placement, const struct packer_piece *piece)
{
    if (placement->pieces_count == PLACEMENT_PIECES_MAX)
        return placement_refuse(placement, -EINVAL, "the plan has more than %" PRIu32 " pieces",
                                PLACEMENT_PIECES_MAX);
    if (placement->pieces_count == placement->pieces_capacity) {
        size_t capacity = placement->pieces_capacity ? 2 * placement->pieces_capacity : 64;
        struct packer_piece *pieces;

        pieces = reallocarray(placement->pieces, capacity, sizeof(*pieces));
        if (!pieces)
            return placement_refuse(placement, -ENOMEM,
                                    "the packer has no memory for a plan of %zu pieces", capacity);
        placement->pieces = pieces;
        placement->pieces_capacity = capacity;
    }
    placement->pieces[placement->pieces_count++] = *piece;
    return 0;
}

int placement_put(struct placement *placement, size_t tensor, size_t lane, uint64_t first,
                  uint64_t elements)
{
    uint64_t step = placement_piece_elements(placement, tensor, elements);
    int error = charge(placement, tensor, lane, elements);

    if (error < 0)
        return error;
    do {
        struct packer_piece piece = {
            .tensor = (uint32_t)tensor,
            .lane = (uint32_t)lane,
            .first = first,
            .elements = elements < step ? elements : step,
        };

        error = append(placement, &piece);
        if (error < 0)
            return error;
        first += piece.elements;
        elements -= piece.elements;
    } while (elements > 0);
    return 0;
}

static int compare_pieces(const void *a, const void *b)
{
    const struct packer_piece *x = a, *y = b;

    if (x->tensor != y->tensor)
        return x->tensor < y->tensor ? -1 : 1;
    return (x->first > y->first) - (x->first < y->first);
}

/* Moves the shares of lanes with pieces of this plan to the front. Returns their number. */
static size_t gather_shares(struct placement *placement)
{
    size_t count = 0;

    for (size_t i = 0; i < placement->request->lanes_count; i++) {
        const struct packer_lane *lane = &placement->request->lanes[i];

        if (!placement->lanes[i].taken)
            continue;
        placement->shares[count] = placement->shares[i];
        placement->shares[count].lane = lane->id;
        placement->shares[count].state = lane->state;
        placement->shares[count++].lane_ns = placement->lanes[i].job_lane_ns;
    }
    return count;
}

void placement_finish(struct placement *placement, struct packer_plan *ret_plan)
{
    const struct packer_request *request = placement->request;

    if (placement->pieces_count > 1)
        qsort(placement->pieces, placement->pieces_count, sizeof(*placement->pieces),
              compare_pieces);
    for (size_t i = 0; i < placement->pieces_count; i++) {
        struct packer_piece *piece = &placement->pieces[i];

        piece->tensor = request->tensors[piece->tensor].id;
        piece->lane = request->lanes[piece->lane].id;
    }
    *ret_plan = (struct packer_plan){placement->pieces, placement->pieces_count, placement->shares,
                                     gather_shares(placement)};
    placement->pieces = NULL;
    placement->shares = NULL;
}

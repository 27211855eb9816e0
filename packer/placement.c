/* Owns the books of one placement: the checked request, what each lane carries and may still take,
 * the pieces put so far. All or nothing (P2): nothing reaches the caller before
 * placement_finish(). Must never choose a lane: that is the policies' part. */
#include "packer/placement.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#define LOAD_STEP_PPM 250000
#define CACHE_LINE_BYTES 64

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

/* Largest piece of a tensor, in elements. */
static uint64_t elements_max(const struct placement *placement, size_t tensor)
{
    return placement->piece_bytes_max / placement->request->tensors[tensor].element_bytes;
}

static int check_lanes(struct placement *placement)
{
    const struct packer_request *request = placement->request;

    if (request->lanes_count > PLACEMENT_LANES_MAX)
        return placement_refuse(placement, -EINVAL, "%zu lanes: at most %" PRIu32 " can be used",
                                request->lanes_count, PLACEMENT_LANES_MAX);
    for (size_t i = 1; i < request->lanes_count; i++) {
        const struct packer_lane *lane = &request->lanes[i];

        if (lane[0].id <= lane[-1].id)
            return placement_refuse(placement, -EINVAL,
                                    "lanes must be in ascending order: %" PRIu32
                                    " comes after %" PRIu32,
                                    lane[0].id, lane[-1].id);
    }
    return 0;
}

/* Adds a tensor to the totals. */
static int count_tensor(struct placement *placement, size_t tensor)
{
    const struct packer_tensor *t = &placement->request->tensors[tensor];
    uint64_t bytes, largest;

    if (t->element_bytes == 0 || t->element_bytes > placement->piece_bytes_max)
        return placement_refuse(placement, -EINVAL,
                                "tensor %" PRIu32 " has elements of %" PRIu32
                                " bytes: 1 to %" PRIu64 " (a whole piece) can be placed",
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
                                "tensor %" PRIu32 " of %" PRIu64 " bytes makes more than %" PRIu32
                                " pieces of %" PRIu64 " bytes",
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
        int r = count_tensor(placement, i);

        if (r < 0)
            return r;
    }
    return 0;
}

static int check_room(struct placement *placement)
{
    const struct packer_request *request = placement->request;
    uint64_t spare_bytes = 0;

    if (request->tensors_count == 0)
        return 0; /* nothing to place needs nothing */
    if (request->lanes_count == 0)
        return placement_refuse(placement, -ENOSPC,
                                "%zu tensors of %" PRIu64 " bytes need a lane, there is none",
                                request->tensors_count, placement->total_bytes);
    for (size_t i = 0; i < request->lanes_count; i++)
        spare_bytes = add_saturated(spare_bytes, request->lanes[i].memory_bytes);
    if (spare_bytes < placement->total_bytes)
        return placement_refuse(placement, -ENOSPC,
                                "the tensors need %" PRIu64 " bytes, the %zu lanes have %" PRIu64
                                " bytes to spare",
                                placement->total_bytes, request->lanes_count, spare_bytes);
    return 0;
}

static int open_lanes(struct placement *placement)
{
    const struct packer_request *request = placement->request;

    if (request->lanes_count == 0)
        return 0;
    placement->lanes = calloc(request->lanes_count, sizeof(*placement->lanes));
    if (!placement->lanes)
        return placement_refuse(placement, -ENOMEM, "no memory for the books of %zu lanes",
                                request->lanes_count);
    for (size_t i = 0; i < request->lanes_count; i++) {
        const struct packer_lane *lane = &request->lanes[i];

        placement->lanes[i] = (struct placement_lane){
            .bytes = lane->load_bytes,
            .memory_bytes = lane->memory_bytes,
            .load_step = lane->load_ppm / LOAD_STEP_PPM,
            .usable = true,
            .hosts_job = lane->job_bytes > 0,
        };
    }
    return 0;
}

int placement_init(struct placement *placement, const struct packer_request *request, char *reason,
                   size_t reason_bytes)
{
    int r;

    *placement = (struct placement){
        .request = request,
        .piece_bytes_max =
            request->piece_bytes_max ? request->piece_bytes_max : PACKER_PIECE_BYTES_MAX,
        .reason = reason,
        .reason_bytes = reason_bytes,
    };
    r = check_lanes(placement);
    if (r == 0)
        r = check_tensors(placement);
    if (r == 0)
        r = check_room(placement);
    if (r == 0)
        r = open_lanes(placement);
    return r;
}

void placement_fini(struct placement *placement)
{
    free(placement->lanes);
    free(placement->pieces);
    placement->lanes = NULL;
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
    /* P5: pieces start on a cache line of the tensor, where the limit lets them. */
    line = CACHE_LINE_BYTES / element_bytes;
    even = (even - 1) / line * line + line;
    return even < largest ? even : largest;
}

bool placement_lane_fits(const struct placement *placement, size_t lane, uint64_t bytes)
{
    return placement->lanes[lane].usable && placement->lanes[lane].memory_bytes >= bytes;
}

uint64_t placement_tensor_bytes(const struct placement *placement, size_t tensor)
{
    const struct packer_tensor *t = &placement->request->tensors[tensor];

    return t->elements * t->element_bytes;
}

int placement_refuse_memory(struct placement *placement, size_t tensor, uint64_t bytes)
{
    uint64_t most_bytes = 0;

    for (size_t i = 0; i < placement->request->lanes_count; i++)
        if (placement->lanes[i].usable && placement->lanes[i].memory_bytes > most_bytes)
            most_bytes = placement->lanes[i].memory_bytes;
    return placement_refuse(placement, -ENOSPC,
                            "tensor %" PRIu32 " needs %" PRIu64
                            " bytes on one lane, the roomiest has %" PRIu64 " bytes left",
                            placement->request->tensors[tensor].id, bytes, most_bytes);
}

static int charge(struct placement *placement, size_t tensor, size_t lane, uint64_t bytes)
{
    struct placement_lane *l = &placement->lanes[lane];

    if (!placement_lane_fits(placement, lane, bytes))
        return placement_refuse(placement, -ENOSPC,
                                "lane %" PRIu32 " would have to take %" PRIu64
                                " bytes of tensor %" PRIu32 ", it has %" PRIu64 " bytes left",
                                placement->request->lanes[lane].id, bytes,
                                placement->request->tensors[tensor].id, l->memory_bytes);
    l->bytes = add_saturated(l->bytes, bytes);
    if (l->memory_bytes != UINT64_MAX)
        l->memory_bytes -= bytes;
    l->hosts_job = true;
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
            return placement_refuse(placement, -ENOMEM, "no memory for a plan of %zu pieces",
                                    capacity);
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
    int r = charge(placement, tensor, lane,
                   elements * placement->request->tensors[tensor].element_bytes);

    if (r < 0)
        return r;
    do {
        struct packer_piece piece = {
            .tensor = (uint32_t)tensor,
            .lane = (uint32_t)lane,
            .first = first,
            .elements = elements < step ? elements : step,
        };

        r = append(placement, &piece);
        if (r < 0)
            return r;
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
    *ret_plan = (struct packer_plan){placement->pieces, placement->pieces_count};
    placement->pieces = NULL;
}

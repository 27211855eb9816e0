/* Requests for placement in tests, and a check of the plans of all policies. */
#ifndef GRADPOOL_TEST_PACKER_FIXTURE_H
#define GRADPOOL_TEST_PACKER_FIXTURE_H

#include <errno.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "packer/packer.h"

#define FIXTURE_LANES_MAX 64
#define FIXTURE_TENSORS_MAX 16384
#define MIB (UINT64_C(1) << 20)

/* A request that tests change, and its result. Ids intentionally differ from positions. */
struct fixture {
    struct packer_lane lanes[FIXTURE_LANES_MAX];
    struct packer_tensor tensors[FIXTURE_TENSORS_MAX];
    struct packer_request request;
    struct packer_plan plan;
    char reason[256];
};

static inline struct fixture *fixture_new(size_t lanes_count, size_t tensors_count)
{
    struct fixture *f = calloc(1, sizeof(*f));

    assert_non_null(f);
    for (size_t i = 0; i < lanes_count; i++)
        f->lanes[i] =
            (struct packer_lane){.id = (uint32_t)(10 + 3 * i), .memory_bytes = UINT64_MAX};
    for (size_t i = 0; i < tensors_count; i++)
        f->tensors[i] = (struct packer_tensor){.id = (uint32_t)(1000 + i), .element_bytes = 4};
    f->request = (struct packer_request){.workers = 1,
                                         .lanes = f->lanes,
                                         .lanes_count = lanes_count,
                                         .tensors = f->tensors,
                                         .tensors_count = tensors_count};
    return f;
}

static inline void fixture_free(struct fixture *f)
{
    packer_plan_fini(&f->plan);
    free(f);
}

static inline size_t fixture_lane_position(const struct fixture *f, uint32_t id)
{
    for (size_t i = 0; i < f->request.lanes_count; i++)
        if (f->lanes[i].id == id)
            return i;
    fail_msg("the plan names lane %" PRIu32 ", which is not in the request", id);
    return 0;
}

static inline uint64_t fixture_piece_bytes(const struct fixture *f, const struct packer_piece *p)
{
    return p->elements * f->tensors[p->tensor - 1000].element_bytes;
}

/* Returns the bytes placed on the lane at this position. */
static inline uint64_t fixture_lane_bytes(const struct fixture *f, size_t lane)
{
    uint64_t bytes = 0;

    for (size_t i = 0; i < f->plan.pieces_count; i++)
        if (f->plan.pieces[i].lane == f->lanes[lane].id)
            bytes += fixture_piece_bytes(f, &f->plan.pieces[i]);
    return bytes;
}

static inline size_t fixture_lane_pieces(const struct fixture *f, size_t lane)
{
    size_t count = 0;

    for (size_t i = 0; i < f->plan.pieces_count; i++)
        count += f->plan.pieces[i].lane == f->lanes[lane].id;
    return count;
}

/* Returns the position of the lane of a tensor's first piece. */
static inline size_t fixture_lane_of(const struct fixture *f, size_t tensor)
{
    for (size_t i = 0; i < f->plan.pieces_count; i++)
        if (f->plan.pieces[i].tensor == f->tensors[tensor].id)
            return fixture_lane_position(f, f->plan.pieces[i].lane);
    fail_msg("tensor %zu has no piece", tensor);
    return 0;
}

/* Checks the pieces of one tensor, starting at position `at` of the plan. Returns the position of
 * the next tensor. */
static inline size_t fixture_check_tensor(const struct fixture *f, size_t tensor, size_t at)
{
    const struct packer_tensor *t = &f->tensors[tensor];
    uint64_t limit =
        f->request.piece_bytes_max ? f->request.piece_bytes_max : PACKER_PIECE_BYTES_MAX;
    uint64_t first = 0;

    do {
        const struct packer_piece *piece = &f->plan.pieces[at];

        assert_true(at < f->plan.pieces_count);
        assert_int_equal(piece->tensor, t->id);
        assert_int_equal(piece->first, first);
        assert_true(piece->elements > 0 || t->elements == 0);
        assert_true(piece->elements <= t->elements - first);
        assert_true(t->is_whole || piece->elements <= limit / t->element_bytes);
        first += piece->elements;
        at++;
    } while (first < t->elements);
    return at;
}

/* Checks P3, P4 and P7: each element is placed once and in order, no piece is too large, and no
 * lane exceeds its memory. */
static inline void fixture_check_plan(const struct fixture *f)
{
    size_t at = 0;

    for (size_t i = 0; i < f->request.tensors_count; i++)
        at = fixture_check_tensor(f, i, at);
    assert_int_equal(at, f->plan.pieces_count);
    for (size_t i = 0; i < f->plan.pieces_count; i++)
        fixture_lane_position(f, f->plan.pieces[i].lane);
    for (size_t i = 0; i < f->request.lanes_count; i++)
        assert_true(fixture_lane_bytes(f, i) <= f->lanes[i].memory_bytes);
}

static inline void fixture_place(struct fixture *f, const char *policy)
{
    int r;

    packer_plan_fini(&f->plan);
    f->request.policy = policy;
    r = packer_place(&f->request, &f->plan, f->reason, sizeof(f->reason));
    if (r < 0)
        fail_msg("%s: %d, %s", policy ? policy : "the default", r, f->reason);
    fixture_check_plan(f);
}

/* Checks that the request is refused with this code. The reason must contain `part`, and the plan
 * must be unchanged. */
static inline void fixture_refuse(struct fixture *f, const char *policy, int error,
                                  const char *part)
{
    struct packer_piece mark;
    struct packer_plan plan = {&mark, 4711};

    f->request.policy = policy;
    snprintf(f->reason, sizeof(f->reason), "%s", "");
    assert_int_equal(packer_place(&f->request, &plan, f->reason, sizeof(f->reason)), error);
    if (!strstr(f->reason, part))
        fail_msg("\"%s\" does not say \"%s\"", f->reason, part);
    assert_ptr_equal(plan.pieces, &mark);
    assert_int_equal(plan.pieces_count, 4711);
}

#endif

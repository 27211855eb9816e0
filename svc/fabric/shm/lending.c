/* Lent memory on the lane's side. The mapper's thread maps regions, and also the pages that a
 * record names for the first time. Until these pages are mapped, the record and all later records
 * of its connection wait. A region with missing pages ends its connection, because the kernel would
 * charge the lane for these pages. All bytes and descriptors from a worker are checked (W9). S12
 * and S14 of svc/fabric/shm/README.md. */
#include "svc/fabric/shm/lending.h"

#include "svc/base/clock.h"
#include "svc/fabric/shm/map/mapper.h"
#include "svc/fabric/shm/map/warmth.h"
#include "svc/wire/record.h"

#include <errno.h>
#include <string.h>

struct lending_span {
    uint32_t region;
    uint64_t offset, bytes;
};

static struct shm_lent *lending_region(const struct shm_conn *c, uint32_t id)
{
    return id < FABRIC_REGIONS_MAX ? c->regions[id] : NULL;
}

/* ---- shares of the mapper's time ---- */

/* A job may use a quarter of a second of the mapper's time without a pause, then an eighth of the
 * time; a tenant may use half a second, then a quarter of the time. */
#define MAPPING_AHEAD_NS (2 * NS_PER_S)
#define JOB_TIMES 8
#define TENANT_TIMES 4

static uint64_t lending_due_ns(const struct fabric_group *group)
{
    uint64_t due_ns = 0;
    for (; group; group = group->above)
        if (group->until_ns[FABRIC_BILL_MAPPING] > due_ns + MAPPING_AHEAD_NS)
            due_ns = group->until_ns[FABRIC_BILL_MAPPING] - MAPPING_AHEAD_NS;
    return due_ns;
}

static void lending_charge(struct fabric_group *group, uint64_t spent_ns)
{
    uint64_t now_ns = clock_now_ns();
    for (uint64_t times = JOB_TIMES; group; group = group->above, times = TENANT_TIMES) {
        if (group->until_ns[FABRIC_BILL_MAPPING] < now_ns)
            group->until_ns[FABRIC_BILL_MAPPING] = now_ns;
        group->until_ns[FABRIC_BILL_MAPPING] += times * spent_ns;
    }
}

/* Charges jobs for the time of unmapping, which delays later mappings of these jobs. */
void shm_lending_charge_unmapped(struct shm_fabric *f)
{
    uint64_t ns;
    for (const struct shm_toll *toll; (toll = shm_mapper_next_toll(f->mapper, &ns));) {
        lending_charge(toll->group, ns);
        fabric_group_charge(toll->group, 0, ns);
    }
}

static void lending_give(struct shm_conn *c, struct shm_lent *lent)
{
    c->waits = lent;
    lent->spent_ns = 0;
    lent->due_ns = lending_due_ns(c->group);
    shm_warmth_allow(lent->warmth, c->group);
    shm_mapper_give(shm_owner(c)->mapper, lent);
}

/* ---- LEND ---- */

/* Receives the descriptor of the region. The lengths in the record, the packet and the descriptor
 * must be equal. */
static int lending_take_region(struct shm_conn *c, uint32_t id, uint64_t bytes)
{
    struct shm_packet packet;
    int fds[SHM_PACKET_FDS_MAX];
    size_t fds_count;
    struct shm_lent *lent;
    int error = shm_packet_receive(c->socket, &packet, fds, &fds_count);

    if (error < 0)
        /* the worker sends the packet before the record, so a missing packet is a mistake of the
         * worker */
        return -EBADMSG;
    if (packet.kind == SHM_PACKET_LEND && packet.word == id && packet.bytes == bytes &&
        fds_count == 1)
        error = shm_lent_create(id, fds[0], bytes, &c->is_poisoned, &lent);
    else
        error = -EBADMSG;
    if (error < 0) {
        shm_fds_close(fds, fds_count);
        return error;
    }
    lent->toll = shm_toll_share(shm_mapper_tolls(shm_owner(c)->mapper), c->group);
    c->mapped_bytes += bytes;
    lending_give(c, lent);
    return 0;
}

int shm_lending_begin(struct shm_conn *c, const struct shm_record *record)
{
    uint64_t bytes;

    memcpy(&bytes, record->body, sizeof bytes);
    if (record->bytes != sizeof bytes || record->word >= FABRIC_REGIONS_MAX ||
        c->regions[record->word])
        return -EBADMSG;
    if (bytes > shm_owner(c)->mapped_bytes_max - c->mapped_bytes)
        return -ENOSPC;
    int error = shm_owner(c)->may_lend ? shm_owner(c)->may_lend(c->owner, bytes) : 0;
    return error < 0 ? error : lending_take_region(c, record->word, bytes);
}

int shm_lending_withdraw(struct shm_conn *c, uint32_t id)
{
    struct shm_lent *lent = lending_region(c, id);

    if (!lent)
        return -EBADMSG;
    c->regions[id] = NULL;
    c->mapped_bytes -= lent->bytes;
    shm_warmth_charge(lent->warmth, c->group);
    shm_mapper_end(shm_owner(c)->mapper, lent);
    return 0;
}

void shm_lending_end(struct shm_conn *c)
{
    struct shm_mapper *mapper = shm_owner(c)->mapper;

    if (c->waits && lending_region(c, c->waits->id) != c->waits)
        shm_mapper_end(mapper, c->waits);
    c->waits = NULL;
    for (uint32_t id = 0; id < FABRIC_REGIONS_MAX; id++) {
        shm_mapper_end(mapper, c->regions[id]);
        c->regions[id] = NULL;
    }
}

/* ---- memory that records name ---- */

static struct lending_span lending_span(uint32_t region, uint64_t offset, uint64_t bytes,
                                        uint64_t stride, uint32_t count)
{
    uint64_t before = 0, whole;

    if (count > 1 && __builtin_mul_overflow(stride, count - 1, &before))
        return (struct lending_span){0};
    if (__builtin_add_overflow(before, bytes, &whole))
        return (struct lending_span){0};
    return (struct lending_span){region, offset, whole};
}

static size_t lending_spans_of_ready(const struct shm_record *record, struct lending_span spans[2])
{
    struct record_ready ready;
    const struct record_output *output = &ready.output[0];

    memcpy(&ready, record->body, sizeof ready);
    uint32_t blocks = ready.outputs && output->count ? output->count : 1;
    spans[0] = lending_span(ready.input_region, ready.input_offset, ready.input_bytes,
                            ready.input_stride, ready.input_stride ? blocks : 1);
    spans[1] = ready.outputs ? lending_span(output->region, output->offset, output->bytes,
                                            output->stride, blocks)
                             : (struct lending_span){0};
    return 2;
}

/* Writes the range of a copy in lent memory: two places of the same length, of which the first has
 * the lower offset. Returns 1, or 0 if the record is malformed. */
static size_t lending_spans_of_backup(const struct shm_record *record, struct lending_span spans[2])
{
    struct record_backup told;

    memcpy(&told, record->body, sizeof told);
    if (told.offset[1] <= told.offset[0])
        return 0;
    uint64_t half = told.offset[1] - told.offset[0];
    spans[0] = lending_span(told.region, told.offset[0], half, half, 2);
    return 1;
}

/* Returns the ranges that a record names. A malformed record has no ranges; the lane, which knows
 * the piece, refuses the record. */
static size_t lending_spans(const struct shm_record *record, struct lending_span spans[2])
{
    uint8_t kind = record->bytes > 0 ? record->body[0] : 0;

    if (kind == RECORD_READY && record->bytes == sizeof(struct record_ready))
        return lending_spans_of_ready(record, spans);
    if (kind == RECORD_BACKUP && record->bytes == sizeof(struct record_backup))
        return lending_spans_of_backup(record, spans);
    return 0;
}

static bool lending_is_new(const struct shm_conn *c, const struct lending_span *span)
{
    const struct shm_lent *lent = lending_region(c, span->region);

    return lent && span->bytes > 0 && span->offset <= lent->bytes &&
           span->bytes <= lent->bytes - span->offset &&
           !shm_lent_knows(lent, span->offset, span->bytes);
}

bool shm_lending_waits(struct shm_conn *c, struct shm_record *record)
{
    struct lending_span spans[2];
    size_t count = lending_spans(record, spans);

    for (size_t i = 0; i < count; i++) {
        if (!lending_is_new(c, &spans[i]))
            continue;
        struct shm_lent *lent = lending_region(c, spans[i].region);
        lent->offset = spans[i].offset;
        lent->wanted = spans[i].bytes;
        lent->record = record;
        lending_give(c, lent);
        return true;
    }
    return false;
}

/* ---- the mapper's results ---- */

static int lending_resume_lend(struct shm_conn *c, struct shm_lent *lent,
                               struct fabric_event *event)
{
    int error = lent->result;

    if (error < 0) {
        c->mapped_bytes -= lent->bytes;
        shm_mapper_end(shm_owner(c)->mapper, lent); /* also frees `lent` */
        return error;
    }
    c->regions[lent->id] = lent;
    *event = (struct fabric_event){.kind = FABRIC_EVENT_REGION,
                                   .conn = &c->base,
                                   .owner = c->owner,
                                   .word = lent->id,
                                   .bytes = lent->bytes,
                                   .spent_ns = lent->spent_ns};
    return 1;
}

int shm_lending_resume(struct shm_conn *c, struct fabric_event *event,
                       struct shm_record **ret_record)
{
    struct shm_lent *lent = c->waits;

    *ret_record = NULL;
    if (!lent || !shm_lent_is_done(lent))
        return 0;
    c->waits = NULL;
    lending_charge(c->group, lent->spent_ns);
    shm_warmth_charge(lent->warmth, c->group);
    if (lending_region(c, lent->id) != lent)
        return lending_resume_lend(c, lent, event);
    struct shm_record *record = lent->record;
    lent->record = NULL;
    if (lent->result < 0)
        return lent->result;
    if (!shm_lending_waits(c, record))
        *ret_record = record;
    return 0;
}

bool shm_lending_is_stuck(const struct shm_conn *c)
{
    return c->waits && !shm_lent_is_done(c->waits);
}

bool shm_lending_is_warm(const struct shm_conn *c)
{
    if (c->waits)
        return false;
    for (uint32_t id = 0; id < FABRIC_REGIONS_MAX; id++)
        if (c->regions[id] &&
            !atomic_load_explicit(&c->regions[id]->warmth->is_warm, memory_order_relaxed))
            return false;
    return true;
}

/* ---- addresses ---- */

void *shm_lending_place(const struct shm_conn *c, uint32_t id, uint64_t offset, size_t bytes)
{
    struct shm_lent *lent = lending_region(c, id);

    if (!lent || offset > lent->bytes || bytes > lent->bytes - offset)
        return NULL;
    return shm_lent_is_there(lent, offset, bytes, shm_owner(c)->polls) ? (char *)lent->base + offset
                                                                       : NULL;
}

/* Functions of an open connection of fabric_shm. They never allocate, never lock, and copy each
 * lent byte at most once. Only the functions that lend and withdraw a region make system calls. */
#include "svc/fabric/shm/verbs.h"

#include "svc/fabric/region.h"
#include "svc/fabric/shm/lending.h"
#include "svc/fabric/shm/map/lent.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

/* Returns 0, or the error that every function returns for this connection. */
static int verb_check_conn(const struct shm_conn *c)
{
    if (c->state == SHM_OPEN && !c->hung_up && !c->is_poisoned)
        return 0;
    return c->state == SHM_ASKED || c->state == SHM_ASKING ? -ENOTCONN : -ECONNRESET;
}

static int verb_try_later(struct shm_conn *c)
{
    c->room_wanted = true;
    return -EAGAIN;
}

/* Converts the result of adding a record to the ring into the result of the function that has added
 * the record. `error`: 0, -EAGAIN if the ring is full, or an error that ends the connection. */
static int verb_verdict(struct shm_conn *c, int error)
{
    if (error == 0)
        return 0;
    if (error == -EAGAIN)
        return verb_try_later(c);
    shm_conn_end(c, error, (uint32_t)-error);
    return -ECONNRESET;
}

static int verb_push(struct shm_conn *c, enum shm_record_kind kind, uint32_t word, const void *body,
                     size_t bytes)
{
    int error = verb_verdict(c, shm_push(&c->out, kind, word, body, bytes));

    if (error == 0) {
        c->pushed = true;
        shm_conn_note(c);
    }
    return error;
}

int shm_verb_send(struct fabric_conn *base, const void *header, size_t header_bytes,
                  const void *payload, size_t payload_bytes)
{
    struct shm_conn *c = shm_conn(base);
    int error = verb_check_conn(c);

    if (error < 0)
        return error;
    if (payload_bytes > 0)
        return -EMSGSIZE;
    return verb_push(c, SHM_RECORD_MESSAGE, 0, header, header_bytes);
}

void shm_verb_message_done(struct fabric_conn *base, const void *data)
{
    struct shm_conn *c = shm_conn(base);
    const struct shm_record *record = container_of(data, struct shm_record, body);
    size_t slot = (size_t)(record - c->messages);

    assert(slot < SHM_MESSAGES_MAX && !(c->messages_free >> slot & 1));
    c->messages_free |= UINT64_C(1) << slot;
}

/* Sends the descriptor before the record, so that the lane finds the descriptor when it reads the
 * record (S5). */
static int verb_send_region(struct shm_conn *c, const struct region *region, uint32_t id)
{
    struct shm_packet lend = {.kind = SHM_PACKET_LEND, .word = id, .bytes = region->bytes};
    int error = shm_packet_send(c->socket, &lend, &region->fd, 1);

    if (error == -EAGAIN) {
        c->socket_full = true;
        return verb_try_later(c);
    }
    if (error < 0)
        return error;
    c->lent |= UINT64_C(1) << id;
    return verb_push(c, SHM_RECORD_LEND, id, &lend.bytes, sizeof lend.bytes);
}

int shm_verb_lend(struct fabric_conn *base, const struct region *region, uint32_t id)
{
    struct shm_conn *c = shm_conn(base);
    int error = verb_check_conn(c);

    if (error < 0)
        return error;
    if (region->fd < 0)
        return -ENOTSUP;
    if (c->lent & (UINT64_C(1) << id))
        return -EEXIST;
    error = verb_verdict(c, shm_reserve(&c->out));
    return error < 0 ? error : verb_send_region(c, region, id);
}

void shm_verb_withdraw_rest(struct shm_conn *c)
{
    while (c->withdrawals != 0) {
        uint32_t id = (uint32_t)__builtin_ctzll(c->withdrawals);

        if (verb_push(c, SHM_RECORD_WITHDRAW, id, NULL, 0) < 0)
            return;
        c->withdrawals &= ~(UINT64_C(1) << id);
        c->lent &= ~(UINT64_C(1) << id);
    }
}

void shm_verb_withdraw(struct fabric_conn *base, uint32_t id)
{
    struct shm_conn *c = shm_conn(base);

    if (verb_check_conn(c) < 0 || id >= FABRIC_REGIONS_MAX)
        return;
    c->withdrawals |= c->lent & (UINT64_C(1) << id);
    shm_verb_withdraw_rest(c);
}

void *shm_verb_map(struct fabric_conn *base, uint32_t id, uint64_t offset, size_t bytes)
{
    return shm_lending_place(shm_conn(base), id, offset, bytes);
}

bool shm_verb_is_sound(const struct fabric_conn *base)
{
    return !((const struct shm_conn *)base)->is_poisoned;
}

bool shm_verb_is_warm(const struct fabric_conn *base)
{
    return shm_lending_is_warm((const struct shm_conn *)base);
}

uint64_t shm_verb_region_bytes(const struct fabric_conn *base, uint32_t id)
{
    const struct shm_conn *c = (const struct shm_conn *)base;

    return id < FABRIC_REGIONS_MAX && c->regions[id] ? c->regions[id]->bytes : 0;
}

/* Returns 0 if the connection can be used and has room for one more completion. */
static int verb_check_room(struct shm_conn *c)
{
    int error = verb_check_conn(c);

    if (error == 0 && c->completions_tail - c->completions_head == SHM_COMPLETIONS_MAX)
        error = verb_try_later(c);
    return error;
}

static void verb_complete(struct shm_conn *c, enum fabric_event_kind kind, void *context)
{
    c->completions[c->completions_tail++ % SHM_COMPLETIONS_MAX] =
        (struct shm_completion){kind, context};
}

int shm_verb_read(struct fabric_conn *base, uint32_t id, uint64_t offset, void *local, size_t bytes,
                  void *context)
{
    struct shm_conn *c = shm_conn(base);
    const void *source = shm_lending_place(c, id, offset, bytes);
    int error = verb_check_room(c);

    if (error < 0)
        return error;
    if (!source)
        return -EFAULT;
    memcpy(local, source, bytes);
    verb_complete(c, FABRIC_EVENT_READ, context);
    return 0;
}

int shm_verb_write(struct fabric_conn *base, uint32_t id, uint64_t offset, const void *local,
                   size_t bytes, void *context)
{
    struct shm_conn *c = shm_conn(base);
    void *target = shm_lending_place(c, id, offset, bytes);
    int error = verb_check_room(c);

    if (error < 0)
        return error;
    if (!target)
        return -EFAULT;
    memcpy(target, local, bytes);
    verb_complete(c, FABRIC_EVENT_WRITTEN, context);
    return 0;
}

int shm_verb_write_word(struct fabric_conn *base, uint32_t id, uint64_t offset, const void *local,
                        size_t bytes, uint32_t word, void *context)
{
    struct shm_conn *c = shm_conn(base);
    void *target = shm_lending_place(c, id, offset, bytes);
    int error = verb_check_room(c);

    if (error < 0)
        return error;
    if (!target)
        return -EFAULT;
    error = verb_verdict(c, shm_reserve(&c->out));
    if (error < 0)
        return error;
    memcpy(target, local, bytes);
    error = verb_push(c, SHM_RECORD_WORD, word, NULL, 0);
    if (error == 0)
        verb_complete(c, FABRIC_EVENT_WRITTEN, context);
    return error;
}

/* Writes the word directly to the peer's memory, so no completion event follows. */
int shm_verb_notify(struct fabric_conn *base, uint32_t word, void *context)
{
    struct shm_conn *c = shm_conn(base);
    int error = verb_check_conn(c);

    (void)context;
    if (error == 0)
        error = verb_push(c, SHM_RECORD_WORD, word, NULL, 0);
    return error < 0 ? error : 1;
}

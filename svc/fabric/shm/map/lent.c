/* Mapped pages of a region that a worker lends, and the steps that map the region. No page is
 * allocated, because the worker has to be charged for pages. S12 and S14 of
 * svc/fabric/shm/README.md. */
#include "svc/fabric/shm/map/lent.h"

#include "svc/base/clock.h"
#include "svc/fabric/shm/map/absent.h"
#include "svc/fabric/shm/map/memory.h"
#include "svc/fabric/shm/map/toll.h"
#include "svc/fabric/shm/map/warmth.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#define SLICE_BYTES (UINT64_C(16) << 20)

#define LOOKS 2

/* Ranges that were checked since the last poll. */
struct shm_looks {
    struct {
        uint64_t offset, bytes;
    } at[LOOKS];
    uint32_t next, poll;
};

static uint64_t lent_page_bytes(void) { return (uint64_t)sysconf(_SC_PAGESIZE); }

int shm_lent_create(uint32_t id, int fd, uint64_t bytes, _Atomic bool *poisoned,
                    struct shm_lent **ret_lent)
{
    struct shm_lent *lent = calloc(1, sizeof *lent);
    uint64_t words = bytes / lent_page_bytes() / SHM_LENT_WORD_PAGES + 1;
    if (!lent)
        return -ENOMEM;
    *lent = (struct shm_lent){.id = id,
                              .fd = -1,
                              .bytes = bytes,
                              .known = calloc(words, sizeof *lent->known),
                              .looks = calloc(1, sizeof *lent->looks),
                              .warmth = shm_warmth_create(lent),
                              .poisoned = poisoned};
    list_init(&lent->link);
    if (!lent->known || !lent->looks || !lent->warmth) {
        shm_lent_destroy(lent);
        return -ENOMEM;
    }
    lent->fd = fd;
    *ret_lent = lent;
    return 0;
}

void shm_lent_destroy(struct shm_lent *lent)
{
    if (!lent)
        return;
    uint64_t began_ns = clock_thread_cpu_ns();
    shm_memory_unmap(lent->base, lent->bytes);
    if (lent->fd >= 0)
        close(lent->fd);
    free(lent->known);
    free(lent->looks);
    shm_warmth_destroy(lent->warmth);
    shm_toll_pay(lent->toll, clock_thread_cpu_ns() - began_ns);
    free(lent);
}

/* Maps the region. The descriptor stays open only if each access needs a check. */
static int lent_map(struct shm_lent *lent)
{
    int error = shm_memory_map_guarded(lent->fd, lent->bytes, lent->poisoned, &lent->base);
    if (error < 0)
        return error;
    lent->fails = shm_absent_fail(lent->base, lent->bytes);
    if (lent->fails) {
        close(lent->fd);
        lent->fd = -1;
    }
    return 0;
}

/* Sets the bits of whole pages, from the page of `offset` to `end`. */
static void lent_note(struct shm_lent *lent, uint64_t offset, uint64_t end)
{
    uint64_t page = lent_page_bytes();
    uint64_t last = end >= lent->bytes ? (lent->bytes + page - 1) / page : end / page;
    for (uint64_t i = offset / page; i < last; i++)
        lent->known[i / SHM_LENT_WORD_PAGES] |= UINT64_C(1) << (i % SHM_LENT_WORD_PAGES);
    shm_warmth_note(lent->warmth, offset / page, last);
    if (offset <= lent->known_end && last * page > lent->known_end)
        lent->known_end = last * page < lent->bytes ? last * page : lent->bytes;
}

static uint64_t lent_fill(struct shm_lent *lent, uint64_t offset, uint64_t bytes)
{
    uint64_t filled =
        shm_absent_fill((char *)lent->base + offset, bytes, lent->fails, lent->fd, offset);
    lent_note(lent, offset, offset + filled);
    return filled;
}

static uint64_t lent_slice_of(const struct shm_lent *lent, uint64_t offset, uint64_t most)
{
    uint64_t left = lent->bytes - offset;
    uint64_t slice = SLICE_BYTES - offset % SLICE_BYTES;
    slice = slice < most ? slice : most;
    return slice < left ? slice : left;
}

/* Maps the requested range, in which no page may be missing. */
static int lent_fill_wanted(struct shm_lent *lent)
{
    uint64_t page = lent_page_bytes(), before = lent->offset % page;
    uint64_t from = lent->offset - before;
    uint64_t whole = (before + lent->wanted + page - 1) / page * page;
    uint64_t slice = lent_slice_of(lent, from, whole);
    if (lent_fill(lent, from, slice) < slice)
        return -EFAULT;
    lent->offset = from + slice;
    lent->wanted =
        whole - slice < lent->bytes - lent->offset ? whole - slice : lent->bytes - lent->offset;
    return 0;
}

/* Maps pages in advance, directly after the mapped pages, because workers allocate memory from the
 * beginning of a region on. */
static bool lent_fill_ahead(struct shm_lent *lent)
{
    uint64_t slice = lent_slice_of(lent, lent->ahead, SLICE_BYTES);
    if (slice == 0 || lent_fill(lent, lent->ahead, slice) < slice)
        return false;
    lent->ahead += slice;
    return lent->ahead < lent->bytes;
}

static int lent_work(struct shm_lent *lent)
{
    lent->result = lent->base ? 0 : lent_map(lent);
    if (lent->result == 0 && lent->wanted > 0) {
        lent->result = lent_fill_wanted(lent);
        lent->ahead = lent->offset;
        return lent->result == 0 ? -EAGAIN : 0;
    }
    return lent->result == 0 && lent_fill_ahead(lent) ? -EAGAIN : 0;
}

int shm_lent_work(struct shm_lent *lent)
{
    uint64_t began_ns = clock_thread_cpu_ns();
    int error = lent_work(lent);
    lent->spent_ns += clock_thread_cpu_ns() - began_ns;
    return error;
}

bool shm_lent_knows_pages(const struct shm_lent *lent, uint64_t offset, uint64_t bytes)
{
    uint64_t page = lent_page_bytes(), i = offset / page, end = (offset + bytes + page - 1) / page;
    while (i < end) {
        uint64_t word = lent->known[i / SHM_LENT_WORD_PAGES] >> (i % SHM_LENT_WORD_PAGES);
        uint64_t rest = SHM_LENT_WORD_PAGES - i % SHM_LENT_WORD_PAGES,
                 count = end - i < rest ? end - i : rest;
        uint64_t all = count == SHM_LENT_WORD_PAGES ? UINT64_MAX : (UINT64_C(1) << count) - 1;
        if ((word & all) != all)
            return false;
        i += count;
    }
    return true;
}

static bool lent_was_looked_at(const struct shm_looks *looks, uint64_t offset, uint64_t bytes,
                               uint32_t poll)
{
    for (uint32_t i = 0; i < LOOKS && looks->poll == poll; i++)
        if (looks->at[i].offset == offset && looks->at[i].bytes == bytes)
            return true;
    return false;
}

static void lent_note_look(struct shm_looks *looks, uint64_t offset, uint64_t bytes, uint32_t poll)
{
    for (uint32_t i = 0; i < LOOKS && looks->poll != poll; i++)
        looks->at[i].bytes = 0;
    looks->poll = poll;
    looks->at[looks->next].offset = offset;
    looks->at[looks->next].bytes = bytes;
    looks->next = (looks->next + 1) % LOOKS;
}

bool shm_lent_is_there(struct shm_lent *lent, uint64_t offset, uint64_t bytes, uint32_t poll)
{
    if (lent->fails || bytes == 0 || lent_was_looked_at(lent->looks, offset, bytes, poll))
        return true;
    if (shm_absent_look((char *)lent->base + offset, bytes, lent->fd, offset) < bytes)
        return false;
    lent_note_look(lent->looks, offset, bytes, poll);
    return true;
}

/* Extendible hashing over pages of ordered entries. Owns directory and pages; reads rows for their
 * keys only, and never changes a row. */
#include "svc/lane/table/index.h"

#include <assert.h>
#include <errno.h>
#include <stdbool.h>
#include <string.h>

/* Removes the bits of the shard's number. The order of keys within the shard stays the same. */
static uint64_t index_hash(const struct table_index *index, uint64_t mixed)
{
    return mixed << index->shard_bits;
}

static uint32_t index_tag(uint64_t slot) { return (uint32_t)(slot >> 32); }
static uint32_t index_row(uint64_t slot) { return (uint32_t)slot; }
static bool index_is_empty(uint64_t slot) { return slot == 0; }

/* A page with its depth, which is the number of top bits, after the bits of the shard, that all
 * keys of the page share. */
struct index_leaf {
    struct index_page *page;
    uint32_t depth;
};

#define INDEX_PAGE_MASK (sizeof(struct index_page) - 1)
/* Maximum depth of a page, because each split reads the next bit of the tag. */
#define INDEX_TAG_BITS 32

static struct index_leaf index_leaf_at(const struct table_index *index, size_t place)
{
    uint64_t entry = index->directory[place];
    return (struct index_leaf){.page = (void *)(uintptr_t)(entry & ~INDEX_PAGE_MASK),
                               .depth = (uint32_t)(entry & INDEX_PAGE_MASK)};
}

static void index_set_leaf(struct table_index *index, size_t place, struct index_leaf leaf)
{
    index->directory[place] = (uint64_t)(uintptr_t)leaf.page | leaf.depth;
}

static size_t index_directory_bytes(uint32_t depth) { return sizeof(uint64_t) << depth; }

/* Returns the entry of the directory. The shift has two parts, because a shift by 64 is
 * undefined. */
static size_t index_place(const struct table_index *index, uint64_t hash)
{
    return (size_t)(hash >> 1 >> (63 - index->depth));
}

static struct index_leaf index_leaf_of(const struct table_index *index, uint64_t hash)
{
    return index_leaf_at(index, index_place(index, hash));
}

/* Returns the home slot of a tag. The slot is proportional to the tag's bits after the bits that
 * all keys of the page share. */
static uint32_t index_home(uint32_t tag, uint32_t depth)
{
    uint32_t varying = (uint32_t)((uint64_t)tag << depth);
    return (uint32_t)((uint64_t)varying * INDEX_SLOTS >> 32);
}

/* Returns the first slot whose tag is at least `tag`. If the page has no entry with this tag, the
 * result may also be an empty slot, or INDEX_SLOTS. */
static uint32_t index_seek(struct index_leaf leaf, uint32_t tag)
{
    const uint64_t *slots = leaf.page->slots;
    uint32_t slot = index_home(tag, leaf.depth);
    if (index_is_empty(slots[slot]))
        return slot;
    if (index_tag(slots[slot]) >= tag) {
        while (slot > 0 && !index_is_empty(slots[slot - 1]) && index_tag(slots[slot - 1]) >= tag)
            slot--;
        return slot;
    }
    while (slot < INDEX_SLOTS && !index_is_empty(slots[slot]) && index_tag(slots[slot]) < tag)
        slot++;
    return slot;
}

static bool index_has_tag(const struct index_page *page, uint32_t slot, uint32_t tag)
{
    return slot < INDEX_SLOTS && !index_is_empty(page->slots[slot]) &&
           index_tag(page->slots[slot]) == tag;
}

/* Returns the slot of the key, or, for an absent key, the slot after all smaller keys. Searches the
 * entries with the key's tag by bisection. With random keys there is one such entry; with crafted
 * keys, a whole page may have the same tag. */
static uint32_t index_slot(const struct table_index *index, struct index_leaf leaf, uint64_t mixed)
{
    uint32_t tag = (uint32_t)(index_hash(index, mixed) >> 32), slot = index_seek(leaf, tag);
    uint32_t end = slot;
    while (index_has_tag(leaf.page, end, tag))
        end++;
    while (slot < end) {
        uint32_t middle = slot + (end - slot) / 2;
        if (rows_key(index->rows, index_row(leaf.page->slots[middle])) < mixed)
            slot = middle + 1;
        else
            end = middle;
    }
    return slot;
}

static bool index_is_at(const struct table_index *index, const struct index_page *page,
                        uint32_t slot, uint64_t mixed)
{
    return index_has_tag(page, slot, (uint32_t)(index_hash(index, mixed) >> 32)) &&
           rows_key(index->rows, index_row(page->slots[slot])) == mixed;
}

static int index_page_create(struct table_index *index, struct index_page **ret_page)
{
    void *page;
    int error = allowance_alloc(index->allowance, sizeof **ret_page, &page);
    if (error < 0)
        return error;
    assert(((uintptr_t)page & INDEX_PAGE_MASK) == 0);
    *ret_page = page;
    index->pages++;
    return 0;
}

int table_index_init(struct table_index *index, struct allowance *allowance,
                     const struct table_rows *rows, uint32_t shard_bits, uint64_t rows_hint)
{
    struct index_page *page;
    void *directory;
    *index = (struct table_index){
        .allowance = allowance, .rows = rows, .rows_hint = rows_hint, .shard_bits = shard_bits};
    int error = allowance_alloc(allowance, index_directory_bytes(0), &directory);
    if (error < 0)
        return error;
    error = index_page_create(index, &page);
    if (error < 0) {
        allowance_free(allowance, directory, index_directory_bytes(0));
        return error;
    }
    index->directory = directory;
    index_set_leaf(index, 0, (struct index_leaf){page, 0});
    return 0;
}

/* Returns the number of directory entries for the page at `place`; these entries are neighbours. */
static size_t index_aliases(const struct table_index *index, size_t place)
{
    return (size_t)1 << (index->depth - index_leaf_at(index, place).depth);
}

void table_index_fini(struct table_index *index)
{
    size_t entries = index->directory ? (size_t)1 << index->depth : 0, next;
    for (size_t place = 0; place < entries; place = next) {
        next = place + index_aliases(index, place);
        allowance_free(index->allowance, index_leaf_at(index, place).page,
                       sizeof(struct index_page));
    }
    if (index->directory)
        allowance_free(index->allowance, index->directory, index_directory_bytes(index->depth));
    *index = (struct table_index){.allowance = index->allowance};
}

uint32_t table_index_find(const struct table_index *index, uint64_t mixed)
{
    struct index_leaf leaf = index_leaf_of(index, index_hash(index, mixed));
    uint32_t slot = index_slot(index, leaf, mixed);
    bool is_found = index_is_at(index, leaf.page, slot, mixed);
    return is_found ? index_row(leaf.page->slots[slot]) : ROWS_NONE;
}

void table_index_prefetch(const struct table_index *index, uint64_t mixed)
{
    uint64_t hash = index_hash(index, mixed);
    struct index_leaf leaf = index_leaf_of(index, hash);
    __builtin_prefetch(&leaf.page->slots[index_home((uint32_t)(hash >> 32), leaf.depth)]);
}

uint32_t table_index_guess(const struct table_index *index, uint64_t mixed)
{
    uint64_t hash = index_hash(index, mixed);
    struct index_leaf leaf = index_leaf_of(index, hash);
    uint32_t tag = (uint32_t)(hash >> 32), slot = index_seek(leaf, tag);
    return index_has_tag(leaf.page, slot, tag) ? index_row(leaf.page->slots[slot]) : ROWS_NONE;
}

/* Stores an entry before the one at `slot`, or in `slot` if this slot is empty. The page must have
 * an empty slot. */
static void index_put(struct index_page *page, uint32_t slot, uint64_t entry)
{
    uint64_t *slots = page->slots;
    uint32_t gap = slot;
    if (slot > 0 && slot < INDEX_SLOTS && !index_is_empty(slots[slot]) &&
        index_is_empty(slots[slot - 1]))
        gap = --slot; /* the empty slot before the greater key becomes the entry's slot */
    while (gap < INDEX_SLOTS && !index_is_empty(slots[gap]))
        gap++;
    if (gap < INDEX_SLOTS) {
        memmove(&slots[slot + 1], &slots[slot], (gap - slot) * sizeof *slots);
        slots[slot] = entry;
        return;
    }
    for (gap = slot - 1; !index_is_empty(slots[gap]);)
        gap--;
    memmove(&slots[gap], &slots[gap + 1], (slot - 1 - gap) * sizeof *slots);
    slots[slot - 1] = entry;
}

/* Fills an empty page with ordered entries. Each entry is stored as near to its home as the earlier
 * entries permit, so that all later entries still fit. */
static void index_spread(struct index_leaf leaf, const uint64_t *entries, uint32_t count)
{
    uint32_t next = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t slot = index_home(index_tag(entries[i]), leaf.depth);
        uint32_t last = INDEX_SLOTS - (count - i);
        slot = slot < next ? next : slot;
        slot = slot > last ? last : slot;
        leaf.page->slots[slot] = entries[i];
        next = slot + 1;
    }
    leaf.page->count = count;
}

static int index_double_directory(struct table_index *index)
{
    void *memory;
    int error = allowance_alloc(index->allowance, index_directory_bytes(index->depth + 1), &memory);
    if (error < 0)
        return error;
    uint64_t *directory = memory;
    for (size_t place = 0; place < (size_t)1 << index->depth; place++)
        directory[2 * place] = directory[2 * place + 1] = index->directory[place];
    allowance_free(index->allowance, index->directory, index_directory_bytes(index->depth));
    index->directory = directory;
    index->depth++;
    return 0;
}

/* Returns whether random keys could have filled a page at this depth. If the result is false,
 * somebody has chosen the keys to fill the page. */
static bool index_may_split(const struct table_index *index, uint32_t depth)
{
    uint64_t rows = index->count > index->rows_hint ? index->count : index->rows_hint;
    uint64_t full_pages = rows / INDEX_PAGE_ROWS_MAX;
    uint32_t bits = full_pages ? 64 - (uint32_t)__builtin_clzll(full_pages) : 0;
    uint32_t most = bits + INDEX_DEPTH_SLACK;
    most = most < INDEX_DEPTH_FREE ? INDEX_DEPTH_FREE : most;
    return depth < (most < INDEX_TAG_BITS ? most : INDEX_TAG_BITS);
}

/* Moves the keys whose next bit is 1 from `page` to `upper`. `depth`: depth of `page` before the
 * split. */
static void index_divide(struct index_page *page, struct index_page *upper, uint32_t depth)
{
    uint64_t entries[INDEX_SLOTS];
    uint32_t count = 0, lower = 0, bit = UINT32_C(1) << (31 - depth);
    for (uint32_t slot = 0; slot < INDEX_SLOTS; slot++)
        if (!index_is_empty(page->slots[slot]))
            entries[count++] = page->slots[slot];
    while (lower < count && !(index_tag(entries[lower]) & bit))
        lower++;
    memset(page->slots, 0, sizeof page->slots);
    index_spread((struct index_leaf){page, depth + 1}, entries, lower);
    index_spread((struct index_leaf){upper, depth + 1}, entries + lower, count - lower);
}

/* Splits the page of `hash`. An error changes no page. */
static int index_split(struct table_index *index, uint64_t hash)
{
    struct index_leaf leaf = index_leaf_of(index, hash);
    struct index_page *upper;
    int error = 0;
    if (!index_may_split(index, leaf.depth))
        return -ENOSPC;
    if (leaf.depth == index->depth)
        error = index_double_directory(index);
    if (error == 0)
        error = index_page_create(index, &upper);
    if (error < 0)
        return error;
    size_t aliases = (size_t)1 << (index->depth - leaf.depth);
    size_t first = index_place(index, hash) / aliases * aliases, half = first + aliases / 2;
    for (size_t place = first; place < first + aliases; place++)
        index_set_leaf(index, place,
                       (struct index_leaf){place < half ? leaf.page : upper, leaf.depth + 1});
    index_divide(leaf.page, upper, leaf.depth);
    return 0;
}

int table_index_add(struct table_index *index, uint64_t mixed, uint32_t row)
{
    uint64_t hash = index_hash(index, mixed);
    assert(row != ROWS_NONE);
    while (index_leaf_of(index, hash).page->count >= INDEX_PAGE_ROWS_MAX) {
        int error = index_split(index, hash);
        if (error < 0)
            return error;
    }
    struct index_leaf leaf = index_leaf_of(index, hash);
    index_put(leaf.page, index_slot(index, leaf, mixed), hash >> 32 << 32 | row);
    leaf.page->count++;
    index->count++;
    return 0;
}

/* Closes the gap at `slot`. A neighbouring entry moves by one slot into the gap if its home is at
 * the gap or on the other side of the gap. */
static void index_close_gap(struct index_leaf leaf, uint32_t slot)
{
    uint64_t *slots = leaf.page->slots;
    bool is_moved = false;
    for (; slot + 1 < INDEX_SLOTS && !index_is_empty(slots[slot + 1]) &&
           index_home(index_tag(slots[slot + 1]), leaf.depth) <= slot;
         slot++, is_moved = true)
        slots[slot] = slots[slot + 1];
    for (; !is_moved && slot > 0 && !index_is_empty(slots[slot - 1]) &&
           index_home(index_tag(slots[slot - 1]), leaf.depth) >= slot;
         slot--)
        slots[slot] = slots[slot - 1];
    slots[slot] = 0;
}

void table_index_remove(struct table_index *index, uint64_t mixed)
{
    struct index_leaf leaf = index_leaf_of(index, index_hash(index, mixed));
    uint32_t slot = index_slot(index, leaf, mixed);
    assert(index_is_at(index, leaf.page, slot, mixed));
    index_close_gap(leaf, slot);
    leaf.page->count--;
    index->count--;
}

size_t table_index_walk(const struct table_index *index, uint64_t from, uint32_t *ret_rows,
                        size_t most)
{
    size_t count = 0, entries = (size_t)1 << index->depth, aliases = 1;
    size_t place = index_place(index, index_hash(index, from));
    uint32_t slot = index_slot(index, index_leaf_at(index, place), from);
    for (; place < entries; place = (place / aliases + 1) * aliases, slot = 0) {
        const uint64_t *slots = index_leaf_at(index, place).page->slots;
        for (; slot < INDEX_SLOTS; slot++) {
            if (index_is_empty(slots[slot]))
                continue;
            if (count == most)
                return count;
            ret_rows[count++] = index_row(slots[slot]);
        }
        aliases = index_aliases(index, place);
    }
    return count;
}

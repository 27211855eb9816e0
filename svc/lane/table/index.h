/* Index of one shard: mixed key -> row, by extendible hashing. The top bits of a key name an entry
 * of the directory, which names a page; a full page splits into two, and no other page changes.
 *
 * A page keeps its entries in the order of their mixed keys, with gaps: an entry lies at its home,
 * which is proportional to the key, or beside; all slots between entry and home are full. So
 * lookups end at the first greater key, a walk in the order of mixed keys needs no sort, and a
 * split reads no row. Sources: Fagin et al., "Extendible Hashing", ACM TODS 1979; Celis, "Robin
 * Hood Hashing", 1986. Thread: the lane's. */
#ifndef GRADPOOL_LANE_TABLE_INDEX_H
#define GRADPOOL_LANE_TABLE_INDEX_H

#include "svc/lane/table/rows.h"

#define INDEX_SLOTS 511
#define INDEX_PAGE_ROWS_MAX 448 /* a page with so many entries splits at the next one */
/* Greatest depth of any page. Keys that collide beyond are crafted, and refused: so the directory
 * has at most 2^18 entries (2 MiB), or 32 entries a full page of rows, the larger of both. Births
 * in the order of mixed keys, as of a copied shard, make the first pages as deep as all pages will
 * be: 18 levels are 80 million rows, `rows_hint` allows for more. */
#define INDEX_DEPTH_FREE 18
#define INDEX_DEPTH_SLACK 4 /* levels beyond those of the full pages */

struct index_page {
    uint64_t count;
    uint64_t slots[INDEX_SLOTS]; /* tag: the next 32 top bits of the key; row: 32 bits; 0: empty */
};
_Static_assert(sizeof(struct index_page) == 4096, "one page");

/* The caller reads the counters; all else is for index.c. */
struct table_index {
    struct allowance *allowance;
    const struct table_rows *rows;
    uint64_t count, pages; /* entries; pages in use */
    uint64_t rows_hint;
    uint32_t shard_bits, depth;
    /* 2^depth entries: address of a page, plus the page's own depth in the low bits. So a lookup
     * touches one cache line of a page, not the page's head as well. */
    uint64_t *directory;
};

/* Allocates a directory and a page. All keys have the same top `shard_bits` bits, 0 .. 12. The rows
 * of entries are read from `rows`, lent until table_index_fini(), as is the allowance. `rows_hint`:
 * rows that will be, 0: unknown. Errors of allowance_alloc(); nothing stays allocated. */
int table_index_init(struct table_index *index, struct allowance *allowance,
                     const struct table_rows *rows, uint32_t shard_bits, uint64_t rows_hint);
/* Frees all pages. A zeroed index is fine. */
void table_index_fini(struct table_index *index);

/* Row of the key; ROWS_NONE: absent. Reads the row's key. */
uint32_t table_index_find(const struct table_index *index, uint64_t mixed);
/* Adds a key that is absent; its row has the key already. -ENOSPC: crafted keys have filled the
 * page (INDEX_DEPTH_FREE); others: allowance_alloc(). After an error the entries are as before. */
int table_index_add(struct table_index *index, uint64_t mixed, uint32_t row);
/* Removes a key that is present: only to undo table_index_add(). Pages stay. */
void table_index_remove(struct table_index *index, uint64_t mixed);

/* Loads the entry's part of the page into the cache, without a wait. */
void table_index_prefetch(const struct table_index *index, uint64_t mixed);
/* Row that the key has if it is present: the first row with the same tag; ROWS_NONE: absent.
 * Touches no row. */
uint32_t table_index_guess(const struct table_index *index, uint64_t mixed);

/* Rows of the smallest keys from `from` on, in ascending order, at most `most`. Returns their
 * number; less than `most`: there are no more. */
size_t table_index_walk(const struct table_index *index, uint64_t from, uint32_t *ret_rows,
                        size_t most);

#endif

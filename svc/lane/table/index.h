/* Index of one shard: finds the row of a mixed key by extendible hashing. The top bits of a key
 * select an entry of the directory, which names a page. A full page splits into two, and no other
 * page changes.
 *
 * The entries of a page are in the order of their mixed keys, with empty slots between them. The
 * home of an entry is a slot in proportion to its key; all slots from the home to the entry are
 * full. A lookup therefore ends at the first greater key, a walk in the order of mixed keys needs
 * no sort, and a split reads no row. Sources: Fagin et al., "Extendible Hashing", ACM TODS 1979;
 * Celis, "Robin Hood Hashing", 1986. All functions must run on the lane's thread. */
#ifndef GRADPOOL_LANE_TABLE_INDEX_H
#define GRADPOOL_LANE_TABLE_INDEX_H

#include "svc/lane/table/rows.h"

#define INDEX_SLOTS 511
#define INDEX_PAGE_ROWS_MAX 448 /* number of entries with which a page is full */
/* Greatest depth of a page. Only keys that somebody has chosen to fill a page need a deeper page,
 * so they are refused. The directory therefore has at most 2^18 entries (2 MiB), or 32 entries for
 * each full page of rows if this is more. A copied shard adds rows in the order of mixed keys, so
 * its first pages are at once as deep as all pages will be: 18 levels suffice for 80 million rows,
 * and `rows_hint` permits more levels. */
#define INDEX_DEPTH_FREE 18
#define INDEX_DEPTH_SLACK 4 /* number of levels beyond the levels that full pages need */

struct index_page {
    uint64_t count;
    /* each slot has the row in the low 32 bits, and above it the tag, which is the top 32 bits of
     * the key after the bits of the shard; 0: the slot is empty */
    uint64_t slots[INDEX_SLOTS];
};
_Static_assert(sizeof(struct index_page) == 4096, "one page");

/* The caller may read the counters; the other fields are private to index.c. */
struct table_index {
    struct allowance *allowance;
    const struct table_rows *rows;
    uint64_t count, pages; /* number of entries, and number of pages in use */
    uint64_t rows_hint;
    uint32_t shard_bits, depth;
    /* 2^depth entries, each the address of a page with the depth of this page in its low bits. A
     * lookup therefore reads one cache line of a page, without the head of the page. */
    uint64_t *directory;
};

/* Allocates a directory and a page. All keys have the same top `shard_bits` bits (0 to 12). `rows`
 * has the rows of all entries; `rows` and `allowance` must stay valid until table_index_fini().
 * `rows_hint`: expected number of rows; 0: unknown. Returns 0 or an error of allowance_alloc();
 * after an error nothing stays allocated. */
int table_index_init(struct table_index *index, struct allowance *allowance,
                     const struct table_rows *rows, uint32_t shard_bits, uint64_t rows_hint);
/* Frees all pages. A zeroed index is allowed. */
void table_index_fini(struct table_index *index);

/* Returns the row of the key, or ROWS_NONE. Reads the key in the row. */
uint32_t table_index_find(const struct table_index *index, uint64_t mixed);
/* Adds an absent key, which its row contains already. Returns 0, -ENOSPC if crafted keys have
 * filled the page (INDEX_DEPTH_FREE), or an error of allowance_alloc(). After an error the entries
 * are unchanged. */
int table_index_add(struct table_index *index, uint64_t mixed, uint32_t row);
/* Removes a key, only to undo table_index_add(). No page is freed. */
void table_index_remove(struct table_index *index, uint64_t mixed);

/* Begins to load the entry's part of the page into the cache. */
void table_index_prefetch(const struct table_index *index, uint64_t mixed);
/* Returns the first row with the key's tag: the key's row, if no other key has this tag. ROWS_NONE:
 * the key is absent. Reads no row. */
uint32_t table_index_guess(const struct table_index *index, uint64_t mixed);

/* Writes the rows of the smallest keys from `from` on, in ascending order, at most `most`. Returns
 * their number, which is less than `most` only at the end. */
size_t table_index_walk(const struct table_index *index, uint64_t from, uint32_t *ret_rows,
                        size_t most);

#endif

/* Intrusive hash table. An entry contains a struct hash_link for each table to which it belongs.
 * The caller owns the entries, and compares entries with equal hashes:
 *   hash_for_each (struct tensor, t, &job->by_name, hash, by_name)
 *       if (strcmp(t->name, name) == 0)
 *           return t; */
#ifndef GRADPOOL_BASE_HASH_H
#define GRADPOOL_BASE_HASH_H

#include "svc/base/list.h"

#include <stddef.h>
#include <stdint.h>

struct hash_link {
    struct hash_link *next; /* next entry in the same bucket */
    uint32_t hash;
};

/* A zeroed table is empty and uses no memory. */
struct hash_table {
    struct hash_link **buckets;
    size_t size; /* number of buckets, a power of two */
    size_t count;
};

/* hash_bytes() returns the FNV-1a hash of bytes, hash_text() that of a text without its terminator.
 * The hash is the same on every host. */
uint32_t hash_bytes(const void *bytes, size_t count);
uint32_t hash_text(const char *text);

/* Grows the table for one more entry, with memory from calloc(). Returns 0, or -ENOMEM if the table
 * has no buckets and memory is missing. If a table with buckets cannot grow, the function returns
 * 0, and the chains become longer. */
int hash_reserve(struct hash_table *table);
/* Moves all entries to `size` zeroed buckets, for owners with their own memory. Returns the former
 * buckets, which the owner frees, or NULL. */
struct hash_link **hash_move(struct hash_table *table, struct hash_link **buckets, size_t size);
/* Frees the buckets that hash_reserve() has allocated. */
void hash_fini(struct hash_table *table);

/* Adds an entry. The table must have buckets. */
void hash_add(struct hash_table *table, struct hash_link *link, uint32_t hash);
/* Removes an entry, which must be in the table. */
void hash_remove(struct hash_table *table, struct hash_link *link);

static inline struct hash_link *hash_match(struct hash_link *link, uint32_t hash)
{
    while (link && link->hash != hash)
        link = link->next;
    return link;
}

/* Returns the first entry with this hash, or NULL. */
static inline struct hash_link *hash_first(const struct hash_table *table, uint32_t hash)
{
    return table->size ? hash_match(table->buckets[hash & (table->size - 1)], hash) : NULL;
}

/* Returns the next entry with the same hash, or NULL. */
static inline struct hash_link *hash_next(const struct hash_link *link)
{
    return hash_match(link->next, link->hash);
}

/* Loops over the entries with this hash. The loop body must not change the table. */
#define hash_for_each(type, entry, table, value, member)                          \
    for (struct hash_link *entry##_link = hash_first(table, value); entry##_link; \
         entry##_link = hash_next(entry##_link))                                  \
        for (type *entry = list_entry(entry##_link, type, member); entry; entry = NULL)

#endif

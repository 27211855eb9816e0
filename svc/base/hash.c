/* Hash tables of chained entries. The number of buckets doubles when the number of entries reaches
 * the number of buckets. */
#include "svc/base/hash.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define SIZE_FIRST 16

uint32_t hash_bytes(const void *bytes, size_t count)
{
    uint32_t hash = UINT32_C(2166136261);
    for (const uint8_t *at = bytes, *end = at + count; at < end; at++)
        hash = (hash ^ *at) * UINT32_C(16777619);
    return hash;
}

uint32_t hash_text(const char *text) { return hash_bytes(text, strlen(text)); }

static struct hash_link **bucket(const struct hash_table *table, uint32_t hash)
{
    return &table->buckets[hash & (table->size - 1)];
}

static void push(struct hash_table *table, struct hash_link *link)
{
    struct hash_link **first = bucket(table, link->hash);
    link->next = *first;
    *first = link;
}

struct hash_link **hash_move(struct hash_table *table, struct hash_link **buckets, size_t size)
{
    struct hash_table former = *table;
    table->buckets = buckets;
    table->size = size;
    for (size_t i = 0; i < former.size; i++) {
        for (struct hash_link *link = former.buckets[i], *next; link; link = next) {
            next = link->next;
            push(table, link);
        }
    }
    return former.buckets;
}

int hash_reserve(struct hash_table *table)
{
    if (table->count < table->size)
        return 0;
    size_t size = table->size ? 2 * table->size : SIZE_FIRST;
    struct hash_link **buckets = calloc(size, sizeof *buckets);
    if (!buckets)
        return table->size ? 0 : -ENOMEM;
    free(hash_move(table, buckets, size));
    return 0;
}

void hash_fini(struct hash_table *table)
{
    free(table->buckets);
    *table = (struct hash_table){0};
}

void hash_add(struct hash_table *table, struct hash_link *link, uint32_t hash)
{
    link->hash = hash;
    push(table, link);
    table->count++;
}

void hash_remove(struct hash_table *table, struct hash_link *link)
{
    struct hash_link **at = bucket(table, link->hash);
    while (*at != link)
        at = &(*at)->next;
    *at = link->next;
    table->count--;
}

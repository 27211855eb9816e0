/* Tests hash tables: entries are found after growth, after removals, and after the table was moved
 * in memory. */
#include "svc/base/hash.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define ENTRIES 5000

struct entry {
    struct hash_link link;
    uint32_t number;
};

static bool fails;
void *__real_calloc(size_t count, size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);

void *__wrap_calloc(size_t count, size_t bytes)
{
    return fails ? NULL : __real_calloc(count, bytes);
}

/* Three consecutive numbers have equal hashes. */
static uint32_t hash_of(uint32_t number) { return number / 3 * 2654435761u; }

static struct entry *find(const struct hash_table *table, uint32_t number)
{
    hash_for_each (struct entry, entry, table, hash_of(number), link)
        if (entry->number == number)
            return entry;
    return NULL;
}

static void add(struct hash_table *table, struct entry *entries, uint32_t number)
{
    assert_int_equal(hash_reserve(table), 0);
    entries[number].number = number;
    hash_add(table, &entries[number].link, hash_of(number));
}

static void the_hash_is_fnv_1a(void **state)
{
    assert_int_equal(hash_text(""), 0x811c9dc5);
    assert_int_equal(hash_text("a"), 0xe40c292c);
    assert_int_equal(hash_text("foobar"), 0xbf9cf968);
    assert_int_equal(hash_text("\xff"), (0x811c9dc5u ^ 0xff) * 16777619u); /* the byte is hashed as
                                                                            * unsigned */
    assert_int_equal(hash_bytes("foobar!", 6), hash_text("foobar"));
}

static void an_empty_table_has_no_entry(void **state)
{
    struct hash_table table = {0};
    assert_null(hash_first(&table, 0));
    hash_fini(&table);
}

static void entries_are_found_while_the_table_grows(void **state)
{
    struct hash_table table = {0};
    struct entry *entries = calloc(ENTRIES, sizeof *entries);
    for (uint32_t i = 0; i < ENTRIES; i++) {
        add(&table, entries, i);
        assert_ptr_equal(find(&table, i / 2), &entries[i / 2]);
        assert_null(find(&table, i + 1));
    }
    assert_int_equal(table.count, ENTRIES);
    assert_in_range(table.size, ENTRIES, 2 * ENTRIES);
    for (uint32_t i = 0; i < ENTRIES; i++)
        assert_ptr_equal(find(&table, i), &entries[i]);
    hash_fini(&table);
    assert_null(table.buckets);
    free(entries);
}

static void a_removed_entry_leaves_entries_of_equal_hash(void **state)
{
    struct hash_table table = {0};
    struct entry entries[30];
    for (uint32_t i = 0; i < 30; i++)
        add(&table, entries, i);
    for (uint32_t i = 0; i < 30; i += 2)
        hash_remove(&table, &entries[i].link);
    for (uint32_t i = 0; i < 30; i++)
        assert_ptr_equal(find(&table, i), i % 2 ? &entries[i] : NULL);
    assert_int_equal(table.count, 15);
    hash_fini(&table);
}

static void an_owner_moves_the_table_to_its_own_memory(void **state)
{
    struct hash_table table = {0};
    struct entry entries[30];
    struct hash_link *own[8] = {0};
    for (uint32_t i = 0; i < 30; i++)
        add(&table, entries, i);
    free(hash_move(&table, own, 8));
    for (uint32_t i = 0; i < 30; i++)
        assert_ptr_equal(find(&table, i), &entries[i]);
    assert_ptr_equal(table.buckets, own);
}

static void without_memory_chains_get_longer(void **state)
{
    struct hash_table table = {0};
    struct entry entries[100];
    fails = true;
    assert_int_equal(hash_reserve(&table), -ENOMEM);
    fails = false;
    add(&table, entries, 0);
    size_t size = table.size;
    fails = true;
    for (uint32_t i = 1; i < 100; i++)
        add(&table, entries, i);
    fails = false;
    assert_int_equal(table.size, size);
    for (uint32_t i = 0; i < 100; i++)
        assert_ptr_equal(find(&table, i), &entries[i]);
    hash_fini(&table);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_hash_is_fnv_1a),
        cmocka_unit_test(an_empty_table_has_no_entry),
        cmocka_unit_test(entries_are_found_while_the_table_grows),
        cmocka_unit_test(a_removed_entry_leaves_entries_of_equal_hash),
        cmocka_unit_test(an_owner_moves_the_table_to_its_own_memory),
        cmocka_unit_test(without_memory_chains_get_longer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

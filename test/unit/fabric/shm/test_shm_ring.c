/* Tests the record ring and the bell: order, room, checks of counters, and wake-ups, of which none
 * may be lost. Both sides are threads on one mapping, which the thread sanitizer can check. */
#include "svc/base/clock.h"
#include "svc/base/text.h"
#include "svc/fabric/shm/peer/bell.h"
#include "svc/fabric/shm/peer/ring.h"

#include <errno.h>
#include <inttypes.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

struct pair {
    struct shm_ring *ring;
    struct shm_producer producer;
    struct shm_consumer consumer;
};

/* Makes a pair. Both counters start at `first`. */
static struct pair make_pair(uint32_t first)
{
    void *memory = NULL;

    assert_int_equal(posix_memalign(&memory, 128, sizeof(struct shm_ring)), 0);
    memset(memory, 0, sizeof(struct shm_ring));
    struct shm_ring *ring = memory;
    atomic_store(&ring->tail, first);
    atomic_store(&ring->head, first);
    return (struct pair){ring, {ring, first, first}, {ring, first}};
}

static void push(struct pair *p, uint32_t word)
{
    assert_int_equal(shm_push(&p->producer, SHM_RECORD_WORD, word, &word, sizeof word), 0);
}

static void take(struct pair *p, uint32_t word)
{
    struct shm_record record;

    assert_int_equal(shm_take(&p->consumer, &record), 1);
    assert_int_equal(record.kind, SHM_RECORD_WORD);
    assert_int_equal(record.word, word);
    assert_int_equal(record.bytes, sizeof word);
    assert_memory_equal(record.body, &word, sizeof word);
}

static void records_come_out_as_they_went_in(void **state)
{
    struct pair p = make_pair(0);
    struct shm_record record;
    uint8_t body[SHM_BODY_BYTES_MAX];

    for (size_t i = 0; i < sizeof body; i++)
        body[i] = (uint8_t)(i + 1);
    assert_int_equal(shm_take(&p.consumer, &record), 0);
    for (size_t bytes = 0; bytes <= sizeof body; bytes++)
        assert_int_equal(shm_push(&p.producer, SHM_RECORD_MESSAGE, 9, body, bytes), 0);
    for (size_t bytes = 0; bytes <= sizeof body; bytes++) {
        assert_int_equal(shm_take(&p.consumer, &record), 1);
        assert_int_equal(record.kind, SHM_RECORD_MESSAGE);
        assert_int_equal(record.bytes, bytes);
        assert_memory_equal(record.body, body, bytes);
    }
    assert_int_equal(shm_take(&p.consumer, &record), 0);
    free(p.ring);
}

static void a_full_ring_refuses_and_requests_a_wake_up(void **state)
{
    struct pair p = make_pair(0);
    bool room = true;

    for (uint32_t i = 0; i < SHM_RING_RECORDS; i++)
        push(&p, i);
    assert_false(shm_consumer_starves_peer(&p.consumer));
    assert_int_equal(shm_push(&p.producer, SHM_RECORD_WORD, 0, NULL, 0), -EAGAIN);
    assert_true(shm_consumer_starves_peer(&p.consumer));
    assert_int_equal(shm_producer_room(&p.producer, &room), 0);
    assert_false(room);
    free(p.ring);
}

static void room_counts_only_when_the_consumer_has_published_it(void **state)
{
    struct pair p = make_pair(0);

    for (uint32_t i = 0; i < SHM_RING_RECORDS; i++)
        push(&p, i);
    take(&p, 0);
    assert_int_equal(shm_reserve(&p.producer), -EAGAIN);
    shm_consumer_publish(&p.consumer);
    assert_int_equal(shm_reserve(&p.producer), 0);
    assert_false(shm_consumer_starves_peer(&p.consumer));
    push(&p, SHM_RING_RECORDS);
    assert_int_equal(shm_reserve(&p.producer), -EAGAIN);
    for (uint32_t i = 1; i <= SHM_RING_RECORDS; i++)
        take(&p, i);
    free(p.ring);
}

static void counters_may_wrap(void **state)
{
    struct pair p = make_pair(UINT32_MAX - 3 * SHM_RING_RECORDS / 2);

    for (uint32_t i = 0; i < 5 * SHM_RING_RECORDS; i++) {
        push(&p, i);
        push(&p, ~i);
        take(&p, i);
        take(&p, ~i);
        shm_consumer_publish(&p.consumer);
    }
    free(p.ring);
}

static void an_impossible_tail_is_refused(void **state)
{
    static const uint32_t tails[] = {SHM_RING_RECORDS + 11, UINT32_MAX, 9, 0, 1u << 31};
    struct shm_record record;

    for (size_t i = 0; i < sizeof tails / sizeof tails[0]; i++) {
        struct pair p = make_pair(10);
        atomic_store(&p.ring->tail, tails[i]);
        assert_int_equal(shm_take(&p.consumer, &record), -EBADMSG);
        free(p.ring);
    }
}

static void an_impossible_head_is_refused(void **state)
{
    static const uint32_t heads[] = {9, 15, 0, UINT32_MAX, 1u << 31};
    bool room;

    for (size_t i = 0; i < sizeof heads / sizeof heads[0]; i++) {
        struct pair p = make_pair(10);
        for (uint32_t n = 0; n < 4; n++)
            push(&p, n);
        atomic_store(&p.ring->head, heads[i]);
        assert_int_equal(shm_producer_room(&p.producer, &room), -EBADMSG);
        free(p.ring);
    }
}

static void a_length_that_does_not_fit_is_refused(void **state)
{
    struct pair p = make_pair(0);
    struct shm_record record;

    push(&p, 1);
    p.ring->records[0].bytes = SHM_BODY_BYTES_MAX + 1;
    assert_int_equal(shm_take(&p.consumer, &record), -EBADMSG);
    free(p.ring);
}

/* Each side uses its own copy of the counter that it publishes, and never reads the published
 * counter, because the other side may have changed it. */
static void a_side_never_reads_its_own_published_counter(void **state)
{
    struct pair p = make_pair(0);

    push(&p, 1);
    atomic_store(&p.ring->tail, 500);
    push(&p, 2);
    take(&p, 1);
    atomic_store(&p.ring->head, 900);
    take(&p, 2);
    free(p.ring);
}

/* A hostile peer writes any value to any place. No call may access memory outside the ring. */
static void random_memory_never_leads_out_of_the_ring(void **state)
{
    const char *given = getenv("GRADPOOL_TEST_SEED");
    uint64_t start = clock_now_ns() & UINT32_MAX;
    struct pair p = make_pair(0);
    struct shm_record record;
    bool room;

    if (given)
        assert_int_equal(text_parse_u64(given, 0, UINT32_MAX, &start), 0);
    print_message("# GRADPOOL_TEST_SEED=%" PRIu64 "\n", start);
    unsigned seed = (unsigned)start;
    for (int i = 0; i < 200000; i++) {
        uint32_t *words = (uint32_t *)p.ring;
        words[(unsigned)rand_r(&seed) % (sizeof *p.ring / 4)] = (uint32_t)rand_r(&seed) * 3;
        if (i % 3 == 0)
            atomic_store(&p.ring->tail, p.consumer.head + (uint32_t)rand_r(&seed) % 2048);
        if (i % 5 == 0)
            atomic_store(&p.ring->head, p.producer.head + (uint32_t)rand_r(&seed) % 2048);
        int r = shm_take(&p.consumer, &record);
        assert_true(r == 0 || r == -EBADMSG || (r == 1 && record.bytes <= SHM_BODY_BYTES_MAX));
        r = shm_push(&p.producer, SHM_RECORD_MESSAGE, 0, "hello", 5);
        assert_true(r == 0 || r == -EAGAIN || r == -EBADMSG);
        r = shm_producer_room(&p.producer, &room);
        assert_true(r == 0 || r == -EBADMSG);
    }
    free(p.ring);
}

static void one_of_several_wakers_rings_the_bell(void **state)
{
    struct shm_bell bell = {0};

    shm_bell_wake(&bell);
    assert_int_equal(shm_bell_value(&bell), 0);
    shm_bell_lie_down(&bell);
    assert_true(shm_bell_is_asleep(&bell));
    shm_bell_wake(&bell);
    shm_bell_wake(&bell);
    assert_int_equal(shm_bell_value(&bell), 1);
    shm_bell_ring(&bell);
    assert_int_equal(shm_bell_value(&bell), 2);
}

/* --- two threads, each asleep without work (W8) --------------------------------------------- */

#define PASSES 300000u
#define LOST_WAKE_UP_S 5

struct crossing {
    struct pair pair;
    struct shm_bell producer_bell, consumer_bell;
    bool overslept;
};

/* Returns false if the bell did not ring during the longest allowed sleep. */
static bool sleep_on(struct shm_bell *bell, uint32_t value)
{
    struct timespec limit = {LOST_WAKE_UP_S, 0};
    long r = syscall(SYS_futex, &bell->word, FUTEX_WAIT, value, &limit, NULL, 0);

    shm_bell_get_up(bell);
    return r == 0 || errno != ETIMEDOUT;
}

static bool await_room(struct crossing *x)
{
    uint32_t value = shm_bell_value(&x->producer_bell);
    bool room = false;

    shm_bell_lie_down(&x->producer_bell);
    if (shm_producer_room(&x->pair.producer, &room) == 0 && room) {
        shm_bell_get_up(&x->producer_bell);
        return true;
    }
    return sleep_on(&x->producer_bell, value);
}

static void *produce(void *argument)
{
    struct crossing *x = argument;

    for (uint32_t i = 0; i < PASSES && !x->overslept;) {
        int r = shm_push(&x->pair.producer, SHM_RECORD_MESSAGE, i, &i, sizeof i);

        if (r == 0) {
            i++;
            shm_fence();
            shm_bell_wake(&x->consumer_bell);
        } else if (r != -EAGAIN || !await_room(x)) {
            x->overslept = true;
        }
    }
    return NULL;
}

static bool await_record(struct crossing *x)
{
    uint32_t value = shm_bell_value(&x->consumer_bell);

    shm_bell_lie_down(&x->consumer_bell);
    if (!shm_consumer_is_empty(&x->pair.consumer)) {
        shm_bell_get_up(&x->consumer_bell);
        return true;
    }
    return sleep_on(&x->consumer_bell, value);
}

static void give_room(struct crossing *x)
{
    shm_consumer_publish(&x->pair.consumer);
    shm_fence();
    if (shm_consumer_starves_peer(&x->pair.consumer))
        shm_bell_wake(&x->producer_bell);
}

static void no_record_and_no_wake_up_is_lost_between_two_threads(void **state)
{
    struct crossing x = {.pair = make_pair(UINT32_MAX - PASSES / 2)};
    struct shm_record record;
    pthread_t thread;
    uint32_t got = 0, wrong = 0;
    bool awake = true;

    assert_int_equal(pthread_create(&thread, NULL, produce, &x), 0);
    while (got < PASSES && awake) {
        int r = shm_take(&x.pair.consumer, &record);

        if (r == 1) {
            wrong += record.word != got || memcmp(record.body, &got, sizeof got) != 0;
            got++;
        }
        if (r == 0 || got % 64 == 0)
            give_room(&x);
        if (r == 0)
            awake = await_record(&x);
        assert_true(r >= 0);
    }
    pthread_join(thread, NULL);
    assert_true(awake);
    assert_false(x.overslept);
    assert_int_equal(got, PASSES);
    assert_int_equal(wrong, 0);
    free(x.pair.ring);
}

/* Tests only the race between a sleeper and a waker (W8). Both sides start at the same moment.
 * Either the waker detects the sleeper, or the sleeper detects the record. If one of the two memory
 * fences is missing, this test fails even on x86. */
#define DUELS 200000u

struct duel {
    struct shm_ring *ring;
    struct shm_bell bell;
    _Atomic uint32_t waker_steps, sleeper_steps;
    bool saw_sleeper;
};

/* Returns when both threads have reached this step. */
static void meet(_Atomic uint32_t *mine, _Atomic uint32_t *other, uint32_t step)
{
    atomic_store(mine, step);
    for (int looks = 1; atomic_load(other) < step; looks++)
        if (looks % 1024 == 0)
            sched_yield();
}

static void *publish_and_look(void *argument)
{
    struct duel *d = argument;
    struct shm_producer producer = {d->ring, 0, 0};

    for (uint32_t round = 1; round <= DUELS; round++) {
        meet(&d->waker_steps, &d->sleeper_steps, 2 * round);
        shm_push(&producer, SHM_RECORD_WORD, round, NULL, 0);
        shm_fence();
        d->saw_sleeper = shm_bell_is_asleep(&d->bell);
        meet(&d->waker_steps, &d->sleeper_steps, 2 * round + 1);
    }
    return NULL;
}

static void waker_and_sleeper_never_miss_each_other(void **state)
{
    struct pair p = make_pair(0);
    struct duel d = {.ring = p.ring};
    struct shm_record record;
    uint32_t missed = 0;
    pthread_t thread;

    assert_int_equal(pthread_create(&thread, NULL, publish_and_look, &d), 0);
    for (uint32_t round = 1; round <= DUELS; round++) {
        meet(&d.sleeper_steps, &d.waker_steps, 2 * round);
        shm_bell_lie_down(&d.bell);
        bool saw_record = !shm_consumer_is_empty(&p.consumer);
        meet(&d.sleeper_steps, &d.waker_steps, 2 * round + 1);
        missed += !saw_record && !d.saw_sleeper;
        shm_bell_get_up(&d.bell);
        assert_int_equal(shm_take(&p.consumer, &record), 1);
        shm_consumer_publish(&p.consumer);
    }
    pthread_join(thread, NULL);
    assert_int_equal(missed, 0);
    free(p.ring);
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(records_come_out_as_they_went_in),
        cmocka_unit_test(a_full_ring_refuses_and_requests_a_wake_up),
        cmocka_unit_test(room_counts_only_when_the_consumer_has_published_it),
        cmocka_unit_test(counters_may_wrap),
        cmocka_unit_test(an_impossible_tail_is_refused),
        cmocka_unit_test(an_impossible_head_is_refused),
        cmocka_unit_test(a_length_that_does_not_fit_is_refused),
        cmocka_unit_test(a_side_never_reads_its_own_published_counter),
        cmocka_unit_test(random_memory_never_leads_out_of_the_ring),
        cmocka_unit_test(one_of_several_wakers_rings_the_bell),
        cmocka_unit_test(no_record_and_no_wake_up_is_lost_between_two_threads),
        cmocka_unit_test(waker_and_sleeper_never_miss_each_other),
    };
    return cmocka_run_group_tests_name("shm_ring", cases, NULL, NULL);
}

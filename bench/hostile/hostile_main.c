/* A tenant that attacks the service. The program runs all attacks in random order repeatedly, or
 * one named attack. Each attack is a process, which is killed at the end of its time; a pause
 * follows. Owns the process of the attack. Prints a line with name and count after each attack, and
 * "ready" when a named attack has begun. SIGTERM ends the program after the next line. */
#include "bench/hostile/tenant.h"

#include "svc/base/clock.h"
#include "svc/base/system/descriptors.h"
#include "svc/base/text.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define SLOT_MS_MAX 600000

static const struct attack attacks[] = {
    {"plans", 2, PLANS / 8, attack_plans},
    {"lists", 2, LISTS, attack_lists},
    {"halves", 2, HALVES, attack_halves},
    {"greetings", 2, GREETINGS, attack_greetings},
    {"storms", 2, STORMS, attack_storms},
    {"untouched", 3, 1, attack_untouched},
    {"lends", 2, 2 * LENDS, attack_lends},
    {"punches", 2, 1 + PUNCHED_RANKS, attack_punches},
    {"wide", 4, 1 + WIDE, attack_wide},
    {"strangers", 2, 1, attack_strangers},
    {"junk", 2, 1, attack_junk},
    {"narrow", 0, 1 + NARROW, attack_narrow}, /* harmless, for comparison with `wide` */
};

#define KINDS (sizeof attacks / sizeof *attacks)
#define ATTACKS (KINDS - 1)
#define LOOK_US 10000

static volatile sig_atomic_t is_over;

static void end(int signal)
{
    (void)signal;
    is_over = 1;
}

static bool goes_on(const struct tenant *t) { return tenant_has_time(t) && !is_over; }

static void say_ready(const struct tenant *t, const struct attack *attack)
{
    while (goes_on(t) && atomic_load(t->done) < attack->begun)
        tenant_pause_us(LOOK_US);
    if (!goes_on(t))
        return;
    puts("ready");
    fflush(stdout);
}

/* Runs one attack until its time has ended, or until a signal. */
static void run(struct tenant *t, const struct attack *attack, uint64_t ms, bool says_ready)
{
    const pid_t parent = getpid();
    atomic_store(t->done, 0);
    t->until_ns = clock_now_ns() + ms * NS_PER_MS;
    t->random++;
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() == parent)
            attack->run(t);
        _exit(0);
    }
    if (says_ready)
        say_ready(t, attack);
    while (goes_on(t))
        tenant_pause_us(LOOK_US);
    if (pid > 0) {
        kill(pid, SIGKILL);
        while (waitpid(pid, NULL, 0) < 0 && errno == EINTR) {
        }
    }
    printf("%s %llu\n", attack->name, (unsigned long long)atomic_load(t->done));
    fflush(stdout);
}

static void run_all(struct tenant *t, uint64_t slot_ms, uint64_t rest_ms)
{
    while (!is_over) {
        const struct attack *left[ATTACKS];
        for (size_t i = 0; i < ATTACKS; i++)
            left[i] = &attacks[i];
        for (size_t count = ATTACKS; count > 0 && !is_over; count--) {
            uint32_t at = tenant_draw(t, (uint32_t)count);
            const struct attack *attack = left[at];
            left[at] = left[count - 1];
            run(t, attack, attack->slots * slot_ms, false);
            tenant_pause_us(rest_ms * 1000); /* in this pause other processes use the cores */
        }
    }
}

static const struct attack *find(const char *name)
{
    for (size_t i = 0; i < KINDS; i++)
        if (strcmp(attacks[i].name, name) == 0)
            return &attacks[i];
    return NULL;
}

struct order {
    const struct attack *attack; /* the named attack; NULL: all attacks, one after the other */
    uint64_t ms, rest_ms;        /* length of the attack or of a slot; pause after each attack */
};

static bool parse(int argc, char **argv, uint64_t *ret_seed, struct order *ret_order)
{
    *ret_order = (struct order){0};
    if (argc != 5 || text_parse_u64(argv[2], 0, UINT64_MAX, ret_seed) < 0)
        return false;
    ret_order->attack = find(argv[3]);
    if (ret_order->attack)
        return text_parse_u64(argv[4], 1, SLOT_MS_MAX, &ret_order->ms) == 0;
    return text_parse_u64(argv[3], 1, SLOT_MS_MAX, &ret_order->ms) == 0 &&
           text_parse_u64(argv[4], 0, SLOT_MS_MAX, &ret_order->rest_ms) == 0;
}

int main(int argc, char **argv)
{
    const struct sigaction ends = {.sa_handler = end};
    struct tenant t = {0};
    struct order order;
    struct err err = {0};
    if (!parse(argc, argv, &t.random, &order)) {
        fprintf(stderr, "Usage: gradpool-bench-hostile ENDPOINT SEED SLOT_MS REST_MS\n"
                        "       gradpool-bench-hostile ENDPOINT SEED ATTACK MS\n");
        return 2;
    }
    t.done = mmap(NULL, sizeof *t.done, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (endpoint_parse(argv[1], &t.endpoint, &err) < 0 || key_from_environment(&t.key, &err) != 1 ||
        t.endpoint.is_unix || !endpoint_is_loopback(&t.endpoint) || t.done == MAP_FAILED) {
        fprintf(stderr, "gradpool-bench-hostile: give a key and a TCP endpoint of this host%s%s\n",
                *err.text ? ": " : "", err.text);
        return 1;
    }
    (void)descriptors_raise(0, "the hostile tenant", &err);
    sigaction(SIGTERM, &ends, NULL);
    if (order.attack)
        run(&t, order.attack, order.ms, true);
    else
        run_all(&t, order.ms, order.rest_ms);
    return 0;
}

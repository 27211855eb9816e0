/* A tenant that takes what it can: draws one attack after the other, all of them before any comes
 * again, each in a process that is killed when its time is over, and rests after each. Owns that
 * process. Prints a line for each attack: its name, and how much it did. */
#include "bench/hostile/tenant.h"

#include "svc/base/clock.h"
#include "svc/base/system/descriptors.h"
#include "svc/base/text.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define SLOT_MS_MAX 600000

static const struct attack attacks[] = {
    {"plans", 2, attack_plans},   {"lists", 2, attack_lists},
    {"halves", 2, attack_halves}, {"greetings", 2, attack_greetings},
    {"storms", 2, attack_storms}, {"untouched", 3, attack_untouched},
    {"lends", 2, attack_lends},   {"punches", 2, attack_punches},
    {"wide", 4, attack_wide},     {"strangers", 2, attack_strangers},
    {"junk", 2, attack_junk},
};

#define ATTACKS (sizeof attacks / sizeof *attacks)

/* Returns when its time is over, or it has ended by itself. */
static void run(struct tenant *t, const struct attack *attack, uint64_t slot_ms)
{
    const pid_t parent = getpid();
    atomic_store(t->done, 0);
    t->until_ns = clock_now_ns() + attack->slots * slot_ms * NS_PER_MS;
    t->random++;
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() == parent)
            attack->run(t);
        _exit(0);
    }
    while (tenant_has_time(t))
        tenant_pause_us((t->until_ns - clock_now_ns()) / NS_PER_US + 1);
    if (pid > 0) {
        kill(pid, SIGKILL);
        while (waitpid(pid, NULL, 0) < 0 && errno == EINTR) {
        }
    }
    printf("%s %llu\n", attack->name, (unsigned long long)atomic_load(t->done));
    fflush(stdout);
}

static _Noreturn void run_all(struct tenant *t, uint64_t slot_ms, uint64_t rest_ms)
{
    for (;;) {
        const struct attack *left[ATTACKS];
        for (size_t i = 0; i < ATTACKS; i++)
            left[i] = &attacks[i];
        for (size_t count = ATTACKS; count > 0; count--) {
            uint32_t at = tenant_draw(t, (uint32_t)count);
            const struct attack *attack = left[at];
            left[at] = left[count - 1];
            run(t, attack, slot_ms);
            tenant_pause_us(rest_ms * 1000); /* others have the cores for a while */
        }
    }
}

int main(int argc, char **argv)
{
    struct tenant t = {0};
    struct err err = {0};
    uint64_t slot_ms = 0, rest_ms = 0;
    if (argc != 5 || text_parse_u64(argv[2], 0, UINT64_MAX, &t.random) < 0 ||
        text_parse_u64(argv[3], 1, SLOT_MS_MAX, &slot_ms) < 0 ||
        text_parse_u64(argv[4], 0, SLOT_MS_MAX, &rest_ms) < 0) {
        fprintf(stderr, "Usage: gradpool-bench-hostile ENDPOINT SEED SLOT_MS REST_MS\n");
        return 2;
    }
    t.done = mmap(NULL, sizeof *t.done, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (endpoint_parse(argv[1], &t.endpoint, &err) < 0 || key_from_environment(&t.key, &err) != 1 ||
        t.endpoint.is_unix || !endpoint_is_loopback(&t.endpoint) || t.done == MAP_FAILED) {
        fprintf(stderr, "gradpool-bench-hostile: needs a key and a TCP endpoint of this host%s%s\n",
                *err.text ? ": " : "", err.text);
        return 1;
    }
    (void)descriptors_raise(0, "the hostile tenant", &err);
    run_all(&t, slot_ms, rest_ms);
}

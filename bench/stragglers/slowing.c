/* Sleeps in proportion to the bytes that a lane has summed. A mapping is never removed. */
#include "bench/stragglers/slowing.h"

#include "svc/base/clock.h"

#include <fcntl.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* shortest useful sleep: a shorter sleep would take equally long */
#define SLEEP_NS_LEAST (100 * (int64_t)NS_PER_US)
/* longest sleep, because a lane must answer pings */
#define SLEEP_NS_MOST (100 * (int64_t)NS_PER_MS)

const struct slowing_numbers *slowing_map(const char *path)
{
    struct stat about = {0};
    void *map = MAP_FAILED;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return NULL;
    if (fstat(fd, &about) == 0 && (size_t)about.st_size >= sizeof(struct slowing_numbers))
        map = mmap(NULL, sizeof(struct slowing_numbers), PROT_READ, MAP_SHARED, fd, 0);
    close(fd);
    return map == MAP_FAILED ? NULL : map;
}

static uint32_t now(const uint32_t *number) { return __atomic_load_n(number, __ATOMIC_RELAXED); }

void slowing_owe(struct slowing *s, uint64_t bytes)
{
    if (s->numbers && s->lane < SLOWING_LANES)
        s->debt_ns += (int64_t)(bytes * now(&s->numbers->ns_per_kib[s->lane]) / 1024);
}

void slowing_owe_task(struct slowing *s, uint32_t task)
{
    if (s->numbers && now(&s->numbers->task) == task)
        s->debt_ns += now(&s->numbers->task_ns);
}

void slowing_pay(struct slowing *s)
{
    if (s->debt_ns < SLEEP_NS_LEAST)
        return;
    int64_t ns = s->debt_ns < SLEEP_NS_MOST ? s->debt_ns : SLEEP_NS_MOST;
    uint64_t began_ns = clock_now_ns();
    const struct timespec nap = {0, ns};
    nanosleep(&nap, NULL);
    /* the excess of a sleep that was too long shortens later sleeps */
    s->debt_ns -= (int64_t)(clock_now_ns() - began_ns);
}

/* The slow lane that tests and benches need (A35): sleeps for what the lane has summed, as a file
 * that they write says. Owns the mapping. Does nothing, and costs a look at a pointer, where
 * GRADPOOL_TEST_SLOW is not set. */
#include "svc/lane/turn/slowing.h"

#include "svc/base/clock.h"
#include "svc/base/log.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define SLEEP_NS_LEAST (100 * (int64_t)NS_PER_US) /* shorter ones take as long */
#define SLEEP_NS_MOST (100 * (int64_t)NS_PER_MS)  /* a lane must answer pings */

#define TASK_NUMBERS 2

void slowing_open(size_t lanes, struct slowing_file *ret_file)
{
    const char *path = getenv("GRADPOOL_TEST_SLOW");
    struct stat about = {0};
    void *map = MAP_FAILED;
    *ret_file = (struct slowing_file){.lanes = lanes};
    if (!path || !*path)
        return;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd >= 0 && fstat(fd, &about) == 0 && (size_t)about.st_size >= lanes * sizeof(uint32_t))
        map = mmap(NULL, (size_t)about.st_size, PROT_READ, MAP_SHARED, fd, 0);
    if (fd >= 0)
        close(fd);
    if (map != MAP_FAILED) {
        ret_file->numbers = map;
        ret_file->count = (size_t)about.st_size / sizeof(uint32_t);
        return;
    }
    log_warn("GRADPOOL_TEST_SLOW=%s: not a file with a 32-bit number for each of %zu lanes", path,
             lanes);
}

void slowing_close(struct slowing_file *file)
{
    if (file->numbers)
        munmap((void *)file->numbers, file->count * sizeof *file->numbers);
    file->numbers = NULL;
}

struct slowing slowing_of(const struct slowing_file *file, size_t lane)
{
    struct slowing s = {0};
    if (!file->numbers)
        return s;
    s.ns_per_kib = file->numbers + lane;
    if (file->count >= file->lanes + TASK_NUMBERS)
        s.task = file->numbers + file->lanes;
    return s;
}

void slowing_owe(struct slowing *s, uint64_t bytes)
{
    if (s->ns_per_kib)
        s->debt_ns += (int64_t)(bytes * __atomic_load_n(s->ns_per_kib, __ATOMIC_RELAXED) / 1024);
}

void slowing_pay(struct slowing *s)
{
    if (s->debt_ns < SLEEP_NS_LEAST)
        return;
    int64_t ns = s->debt_ns < SLEEP_NS_MOST ? s->debt_ns : SLEEP_NS_MOST;
    uint64_t began_ns = clock_now_ns();
    const struct timespec nap = {0, ns};
    nanosleep(&nap, NULL);
    s->debt_ns -= (int64_t)(clock_now_ns() - began_ns); /* more than was due counts for later */
}

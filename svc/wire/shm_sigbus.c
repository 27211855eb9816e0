/* The process's handler for SIGBUS and the table of mappings that it looks in. The handler takes no
 * lock and calls nothing but mmap; a slot that it reads is either empty or complete. */
#include "svc/wire/shm_sigbus.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The table grows by chunks, which stay: the handler may be looking at them. What bounds mappings
 * is the kernel (vm.max_map_count), and what jobs may lend (A17 of svc/aggregator). */
#define CHUNK_SLOTS 1024
#define CHUNKS_MAX 4096

struct slot {
    _Atomic uintptr_t base; /* 0: empty */
    uint64_t bytes;
    _Atomic bool *poisoned;
    struct slot *next_empty;
};

static struct slot *_Atomic chunks[CHUNKS_MAX];
static _Atomic uint32_t chunks_count; /* stored after the chunk itself */
/* Of everything below, and of who changes the table. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct slot *empty;
static struct sigaction before;
static uintptr_t page_bytes;

static bool slot_has(const struct slot *slot, uintptr_t address)
{
    uintptr_t base = atomic_load_explicit(&slot->base, memory_order_acquire);

    return base && address >= base && address - base < slot->bytes;
}

static struct slot *find(uintptr_t address)
{
    uint32_t count = atomic_load_explicit(&chunks_count, memory_order_acquire);

    for (uint32_t c = 0; c < count; c++) {
        struct slot *chunk = atomic_load_explicit(&chunks[c], memory_order_relaxed);
        for (uint32_t i = 0; i < CHUNK_SLOTS; i++)
            if (slot_has(&chunk[i], address))
                return &chunk[i];
    }
    return NULL;
}

/* Straight to the kernel: a sanitizer's wrapper is no place to be in a signal handler. */
static bool replace_page(uintptr_t address)
{
    long r = syscall(SYS_mmap, address / page_bytes * page_bytes, page_bytes,
                     PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    return r != -1;
}

/* Not our fault: as if we had not been there. The instruction runs again when we return, so that
 * with the default action the process dies of it where it stands. */
static void pass_on(int signal_number, siginfo_t *info, void *context)
{
    if (before.sa_flags & SA_SIGINFO)
        before.sa_sigaction(signal_number, info, context);
    else if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN)
        before.sa_handler(signal_number);
    else
        sigaction(SIGBUS, &(struct sigaction){.sa_handler = SIG_DFL}, NULL);
}

static void handle(int signal_number, siginfo_t *info, void *context)
{
    int saved = errno;
    struct slot *slot = find((uintptr_t)info->si_addr);

    if (slot && replace_page((uintptr_t)info->si_addr))
        atomic_store_explicit(slot->poisoned, true, memory_order_relaxed);
    else
        pass_on(signal_number, info, context);
    errno = saved;
}

/* Looked at with each mapping, not once: another part of the process may have put its own handler
 * over ours since. Under the lock. */
static void install(void)
{
    struct sigaction action = {.sa_sigaction = handle, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    struct sigaction current;

    sigemptyset(&action.sa_mask);
    sigaction(SIGBUS, NULL, &current);
    if (!(current.sa_flags & SA_SIGINFO) || current.sa_sigaction != handle) {
        page_bytes = (uintptr_t)sysconf(_SC_PAGESIZE);
        before = current;
        sigaction(SIGBUS, &action, NULL);
    }
}

static int grow(void)
{
    uint32_t count = atomic_load_explicit(&chunks_count, memory_order_relaxed);
    struct slot *chunk = count < CHUNKS_MAX ? calloc(CHUNK_SLOTS, sizeof *chunk) : NULL;

    if (!chunk)
        return -ENOMEM;
    for (uint32_t i = CHUNK_SLOTS; i-- > 0;) {
        chunk[i].next_empty = empty;
        empty = &chunk[i];
    }
    atomic_store_explicit(&chunks[count], chunk, memory_order_relaxed);
    atomic_store_explicit(&chunks_count, count + 1, memory_order_release);
    return 0;
}

int shm_sigbus_guard(void *base, uint64_t bytes, _Atomic bool *poisoned)
{
    int error = 0;

    pthread_mutex_lock(&lock);
    install();
    if (!empty)
        error = grow();
    if (error == 0) {
        struct slot *slot = empty;
        empty = slot->next_empty;
        slot->bytes = bytes;
        slot->poisoned = poisoned;
        atomic_store_explicit(&slot->base, (uintptr_t)base, memory_order_release);
    }
    pthread_mutex_unlock(&lock);
    return error;
}

static struct slot *find_base(void *base)
{
    uint32_t count = atomic_load_explicit(&chunks_count, memory_order_relaxed);

    for (uint32_t c = 0; c < count; c++) {
        struct slot *chunk = atomic_load_explicit(&chunks[c], memory_order_relaxed);
        for (uint32_t i = 0; i < CHUNK_SLOTS; i++)
            if (atomic_load_explicit(&chunk[i].base, memory_order_relaxed) == (uintptr_t)base)
                return &chunk[i];
    }
    return NULL;
}

void shm_sigbus_release(void *base)
{
    pthread_mutex_lock(&lock);
    struct slot *slot = find_base(base);
    if (slot) {
        atomic_store_explicit(&slot->base, 0, memory_order_release);
        slot->next_empty = empty;
        empty = slot;
    }
    pthread_mutex_unlock(&lock);
}

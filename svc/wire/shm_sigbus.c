/* The process's handler for SIGBUS and the table of mappings that it looks in. The handler takes no
 * lock and calls nothing but mmap; a slot that it reads is either empty or complete. */
#include "svc/wire/shm_sigbus.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/* All lanes of a process together: thousands of connections with a few regions each. */
#define SLOTS_MAX 16384

struct slot {
    _Atomic uintptr_t base; /* 0: empty; TAKEN: being filled */
    uint64_t bytes;
    _Atomic bool *poisoned;
};
#define TAKEN ((uintptr_t)1)

static struct slot slots[SLOTS_MAX];
static _Atomic uint32_t slots_used; /* none beyond has ever been filled */
static struct sigaction before;
static uintptr_t page_bytes;

static struct slot *find(uintptr_t address)
{
    uint32_t used = atomic_load_explicit(&slots_used, memory_order_acquire);

    for (uint32_t i = 0; i < used; i++) {
        uintptr_t base = atomic_load_explicit(&slots[i].base, memory_order_acquire);
        if (base > TAKEN && address >= base && address - base < slots[i].bytes)
            return &slots[i];
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
 * over ours since. */
static void install(void)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    struct sigaction action = {.sa_sigaction = handle, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    struct sigaction current;

    sigemptyset(&action.sa_mask);
    pthread_mutex_lock(&lock);
    sigaction(SIGBUS, NULL, &current);
    if (!(current.sa_flags & SA_SIGINFO) || current.sa_sigaction != handle) {
        page_bytes = (uintptr_t)sysconf(_SC_PAGESIZE);
        before = current;
        sigaction(SIGBUS, &action, NULL);
    }
    pthread_mutex_unlock(&lock);
}

static void note_used(uint32_t used)
{
    uint32_t now = atomic_load_explicit(&slots_used, memory_order_relaxed);

    while (now < used && !atomic_compare_exchange_weak_explicit(
                             &slots_used, &now, used, memory_order_release, memory_order_relaxed))
        ;
}

int shm_sigbus_guard(void *base, uint64_t bytes, _Atomic bool *poisoned)
{
    install();
    for (uint32_t i = 0; i < SLOTS_MAX; i++) {
        uintptr_t empty = 0;
        if (!atomic_compare_exchange_strong_explicit(&slots[i].base, &empty, TAKEN,
                                                     memory_order_acquire, memory_order_relaxed))
            continue;
        slots[i].bytes = bytes;
        slots[i].poisoned = poisoned;
        atomic_store_explicit(&slots[i].base, (uintptr_t)base, memory_order_release);
        note_used(i + 1);
        return 0;
    }
    return -ENOSPC;
}

void shm_sigbus_release(void *base)
{
    uint32_t used = atomic_load_explicit(&slots_used, memory_order_acquire);

    for (uint32_t i = 0; i < used; i++) {
        if (atomic_load_explicit(&slots[i].base, memory_order_relaxed) != (uintptr_t)base)
            continue;
        atomic_store_explicit(&slots[i].base, 0, memory_order_release);
        return;
    }
}

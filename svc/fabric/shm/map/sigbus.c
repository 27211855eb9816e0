/* The process's handler of SIGBUS, and its table of mappings. The handler locks nothing and calls
 * only mmap(). Each slot that the handler reads is either empty or complete. */
#include "svc/fabric/shm/map/sigbus.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The table grows by chunks, which are never freed, because the handler may be reading them. The
 * table is large enough for the kernel's limit on mappings (vm.max_map_count), and for the
 * memory that jobs may lend (A17 of svc/lane). */
#define CHUNK_SLOTS 1024
#define CHUNKS_MAX 4096

struct sigbus_slot {
    _Atomic uintptr_t base; /* 0: empty */
    uint64_t bytes;
    _Atomic bool *poisoned;
    struct sigbus_slot *next_empty;
};

static struct sigbus_slot *_Atomic chunks[CHUNKS_MAX];
static _Atomic uint32_t chunks_count; /* stored after the new chunk */
/* Protects the table against changes by two threads, and the variables below. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct sigbus_slot *empty;
static struct sigaction before;
static uintptr_t page_bytes;
/* Jump target of shm_sigbus_touch() after a fault; NULL: this thread is not in that function. Only
 * the program that contains lanes installs the handler. In a program, unlike a library, access to a
 * thread-local variable needs no function call. */
static _Thread_local sigjmp_buf *volatile resume;

static bool sigbus_slot_has(const struct sigbus_slot *slot, uintptr_t address)
{
    uintptr_t base = atomic_load_explicit(&slot->base, memory_order_acquire);

    return base && address >= base && address - base < slot->bytes;
}

static struct sigbus_slot *sigbus_find(uintptr_t address)
{
    uint32_t count = atomic_load_explicit(&chunks_count, memory_order_acquire);

    for (uint32_t c = 0; c < count; c++) {
        struct sigbus_slot *chunk = atomic_load_explicit(&chunks[c], memory_order_relaxed);
        for (uint32_t i = 0; i < CHUNK_SLOTS; i++)
            if (sigbus_slot_has(&chunk[i], address))
                return &chunk[i];
    }
    return NULL;
}

/* Replaces the page at `address` by a page of zeros. Uses a direct system call, because a signal
 * handler must not run a sanitizer's wrapper of mmap(). */
static bool sigbus_replace_page(uintptr_t address)
{
    long r = syscall(SYS_mmap, address / page_bytes * page_bytes, page_bytes,
                     PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    return r != -1;
}

/* Passes a fault outside the protected mappings to the former handler. If the former handler is the
 * default action, the faulting instruction is executed again and ends the process. */
static void sigbus_pass_on(int signal_number, siginfo_t *info, void *context)
{
    if (before.sa_flags & SA_SIGINFO)
        before.sa_sigaction(signal_number, info, context);
    else if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN)
        before.sa_handler(signal_number);
    else
        sigaction(SIGBUS, &(struct sigaction){.sa_handler = SIG_DFL}, NULL);
}

static void sigbus_handle(int signal_number, siginfo_t *info, void *context)
{
    int saved = errno;
    if (resume)
        siglongjmp(*resume, 1);
    struct sigbus_slot *slot = sigbus_find((uintptr_t)info->si_addr);

    if (slot && sigbus_replace_page((uintptr_t)info->si_addr))
        atomic_store_explicit(slot->poisoned, true, memory_order_relaxed);
    else
        sigbus_pass_on(signal_number, info, context);
    errno = saved;
}

/* Installs the handler again for each mapping, because other code of the process may have replaced
 * the handler. The caller holds the lock. */
static void sigbus_install(void)
{
    struct sigaction action = {.sa_sigaction = sigbus_handle, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    struct sigaction current;

    sigemptyset(&action.sa_mask);
    sigaction(SIGBUS, NULL, &current);
    if (!(current.sa_flags & SA_SIGINFO) || current.sa_sigaction != sigbus_handle) {
        page_bytes = (uintptr_t)sysconf(_SC_PAGESIZE);
        before = current;
        sigaction(SIGBUS, &action, NULL);
    }
}

static int sigbus_grow(void)
{
    uint32_t count = atomic_load_explicit(&chunks_count, memory_order_relaxed);
    struct sigbus_slot *chunk = count < CHUNKS_MAX ? calloc(CHUNK_SLOTS, sizeof *chunk) : NULL;

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
    sigbus_install();
    if (!empty)
        error = sigbus_grow();
    if (error == 0) {
        struct sigbus_slot *slot = empty;
        empty = slot->next_empty;
        slot->bytes = bytes;
        slot->poisoned = poisoned;
        atomic_store_explicit(&slot->base, (uintptr_t)base, memory_order_release);
    }
    pthread_mutex_unlock(&lock);
    return error;
}

static struct sigbus_slot *sigbus_find_base(void *base)
{
    uint32_t count = atomic_load_explicit(&chunks_count, memory_order_relaxed);

    for (uint32_t c = 0; c < count; c++) {
        struct sigbus_slot *chunk = atomic_load_explicit(&chunks[c], memory_order_relaxed);
        for (uint32_t i = 0; i < CHUNK_SLOTS; i++)
            if (atomic_load_explicit(&chunk[i].base, memory_order_relaxed) == (uintptr_t)base)
                return &chunk[i];
    }
    return NULL;
}

void shm_sigbus_release(void *base)
{
    pthread_mutex_lock(&lock);
    struct sigbus_slot *slot = sigbus_find_base(base);
    if (slot) {
        atomic_store_explicit(&slot->base, 0, memory_order_release);
        slot->next_empty = empty;
        empty = slot;
    }
    pthread_mutex_unlock(&lock);
}

/* Reads the bytes and drops them. The thread sanitizer would report each read as a race. */
__attribute__((no_sanitize("thread"))) void shm_sigbus_touch(const void *start, uint64_t bytes)
{
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    const volatile char *volatile at = start;
    const volatile char *end = at + bytes;
    sigjmp_buf here;

    if (sigsetjmp(here, 1) != 0)
        at += page; /* the access to this page has raised SIGBUS, so the page is skipped */
    resume = &here;
    for (; at < end; at += page)
        (void)*at;
    resume = NULL;
}

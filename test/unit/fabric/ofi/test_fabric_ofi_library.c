/* Tests when and how a process loads libfabric. Each case runs in a child process, because a
 * process loads a library once. The linker passes dlopen() and dlvsym() through this file. */
#include "svc/base/system/shortage.h"
#include "svc/fabric/fabric.h"
#include "svc/fabric/ofi/library/library.h"
#include "test/lib/kept_log.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <rdma/fabric.h>
#include <rdma/fi_errno.h>
#include <semaphore.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define THREADS 4

static bool is_missing, is_another_version, is_forking;
static sem_t has_begun; /* posted when a thread begins to load */

/* Forks as a constructor may. No thread can end the load, so the fork must not wait for the end. */
static void fork_in_constructor(void)
{
    struct timespec began, ended;
    clock_gettime(CLOCK_MONOTONIC, &began);
    pid_t pid = fork();
    if (pid == 0)
        _exit(0);
    clock_gettime(CLOCK_MONOTONIC, &ended);
    if (waitpid(pid, NULL, 0) != pid || ended.tv_sec - began.tv_sec > 1)
        _exit(1);
}

void *__real_dlopen(const char *name, int flags);
void *__wrap_dlopen(const char *name, int flags);
void *__wrap_dlopen(const char *name, int flags)
{
    sem_post(&has_begun);
    if (is_forking)
        fork_in_constructor();
    return __real_dlopen(is_missing ? "libfabric.so.missing" : name, flags);
}

void *__real_dlvsym(void *library, const char *name, const char *version);
void *__wrap_dlvsym(void *library, const char *name, const char *version);
void *__wrap_dlvsym(void *library, const char *name, const char *version)
{
    return __real_dlvsym(library, name, is_another_version ? "FABRIC_0.9" : version);
}

/* Runs a case in a child, whose failed assertions end the child. */
static void in_child(void (*run)(void))
{
    int status;
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        run();
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

#define EXPECT(condition)                                                \
    do {                                                                 \
        if (!(condition)) {                                              \
            fprintf(stderr, "%d: not true: %s\n", __LINE__, #condition); \
            _exit(1);                                                    \
        }                                                                \
    } while (0)

static bool is_mapped(void)
{
    char line[4096];
    bool is_found = false;
    FILE *maps = fopen("/proc/self/maps", "r");
    EXPECT(maps != NULL);
    while (fgets(line, sizeof line, maps))
        is_found |= strstr(line, "libfabric") != NULL;
    fclose(maps);
    return is_found;
}

/* Returns the bytes that this process has read with read(). */
static uint64_t read_bytes(void)
{
    unsigned long long bytes = 0;
    FILE *io = fopen("/proc/self/io", "r");
    EXPECT(io != NULL && fscanf(io, "rchar: %llu", &bytes) == 1);
    fclose(io);
    return bytes;
}

/* Returns the length of the table of the kernel's symbols; 0: the kernel has none. */
static uint64_t kernel_symbols_bytes(void)
{
    char block[1 << 16];
    uint64_t bytes = 0;
    FILE *symbols = fopen("/proc/kallsyms", "r");
    while (symbols && !feof(symbols))
        bytes += fread(block, 1, sizeof block, symbols);
    if (symbols)
        fclose(symbols);
    return bytes;
}

static void *load(void *ret_error)
{
    *(int *)ret_error = ofi_library_load();
    return NULL;
}

static void begin_without(void)
{
    struct fi_info *info = NULL;
    struct fabric *shm;
    EXPECT(fabric_open("shm", NULL, &shm) == 0);
    fabric_close(shm);
    EXPECT(fabric_load("shm") == 0 && fabric_load("mem") == -EINVAL);
    EXPECT(!is_mapped());
    EXPECT(fi_getinfo(fi_version(), NULL, NULL, 0, NULL, &info) == -FI_ENOSYS && !info);
    EXPECT(fi_version() == 0 && !fi_allocinfo() && fi_fabric(NULL, NULL, NULL) == -FI_ENOSYS);
    EXPECT(strcmp(fi_strerror(1), "libfabric is not loaded") == 0);
    fi_freeinfo(NULL);
}

static void load_in_threads(void)
{
    pthread_t threads[THREADS];
    int errors[THREADS];
    begin_without();
    for (size_t i = 0; i < THREADS; i++)
        EXPECT(pthread_create(&threads[i], NULL, load, &errors[i]) == 0);
    for (size_t i = 0; i < THREADS; i++)
        EXPECT(pthread_join(threads[i], NULL) == 0 && errors[i] == 0);
    EXPECT(is_mapped() && fi_version() != 0);
    struct fi_info *info = fi_allocinfo();
    EXPECT(info != NULL);
    fi_freeinfo(info);
}

static void shm_needs_no_libfabric_and_threads_load_it_together(void **state)
{
    in_child(load_in_threads);
}

static void load_reads_little(void)
{
    uint64_t table = kernel_symbols_bytes(), before = read_bytes();
    EXPECT(ofi_library_load() == 0);
    EXPECT(table == 0 || read_bytes() - before < table / 2);
    EXPECT(kernel_symbols_bytes() == table); /* this program can read the file again */
}

static void loading_does_not_read_the_symbols_of_the_kernel(void **state)
{
    in_child(load_reads_little);
}

static void on_signal(int number) { _exit(number); }

static void load_with_handlers(void)
{
    static const int numbers[] = {SIGINT, SIGTERM, SIGABRT, SIGBUS, SIGILL, SIGSEGV};
    struct sigaction ours = {.sa_handler = on_signal, .sa_flags = SA_RESTART}, now;
    sigset_t before = {0}, after = {0};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        EXPECT(sigaction(numbers[i], &ours, NULL) == 0);
    EXPECT(pthread_sigmask(SIG_SETMASK, NULL, &before) == 0);
    EXPECT(fabric_load("ofi") == 0);
    EXPECT(pthread_sigmask(SIG_SETMASK, NULL, &after) == 0);
    EXPECT(memcmp(&before, &after, sizeof before) == 0);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        EXPECT(sigaction(numbers[i], NULL, &now) == 0);
        EXPECT(now.sa_handler == on_signal && (now.sa_flags & SA_RESTART));
    }
}

static void loading_changes_no_signal(void **state) { in_child(load_with_handlers); }

static void fork_during_load(void)
{
    struct sigaction ours = {.sa_handler = on_signal}, now;
    static int error; /* of a thread that may end last */
    pthread_t thread;
    int status;
    EXPECT(sigaction(SIGTERM, &ours, NULL) == 0);
    EXPECT(pthread_create(&thread, NULL, load, &error) == 0 && pthread_detach(thread) == 0);
    EXPECT(sem_wait(&has_begun) == 0);
    pid_t pid = fork();
    if (pid == 0) {
        EXPECT(fi_version() != 0 && fabric_load("ofi") == 0);
        EXPECT(sigaction(SIGTERM, NULL, &now) == 0 && now.sa_handler == on_signal);
        _exit(0);
    }
    EXPECT(waitpid(pid, &status, 0) == pid && status == 0);
    EXPECT(fabric_load("ofi") == 0);
}

static void a_fork_waits_for_the_end_of_a_load(void **state) { in_child(fork_during_load); }

static void load_with_fork(void)
{
    is_forking = true;
    EXPECT(fabric_load("ofi") == 0 && fi_version() != 0);
}

static void a_fork_of_the_loading_thread_does_not_wait(void **state) { in_child(load_with_fork); }

static void expect_advice(int error, const char *words)
{
    char text[SHORTAGE_BYTES];
    EXPECT(strstr(shortage_text(error, SHORTAGE_OTHER, text, sizeof text), words) != NULL);
}

static void load_without_library(void)
{
    struct fabric *fabric = NULL;
    kept_log_begin();
    is_missing = true;
    EXPECT(fabric_open("ofi", NULL, &fabric) == -ELIBACC && !fabric && fi_version() == 0);
    kept_log_expect("library=libfabric.so.1 error=\"loading the library failed: "
                    "libfabric.so.missing: cannot open");
    kept_log_expect("install libfabric (Debian: libfabric1)");
    EXPECT(fabric_load("ofi") == -ELIBACC && kept_log_count("library=libfabric.so.1") == 1);
    expect_advice(-ELIBACC, "libfabric, which moves data between hosts; install it (Debian: "
                            "libfabric1), or name its folder in LD_LIBRARY_PATH");
    is_missing = false;
    EXPECT(fabric_open("ofi", NULL, &fabric) == 0);
    fabric_close(fabric);
}

static void a_missing_library_is_an_error_in_words_and_tried_again(void **state)
{
    in_child(load_without_library);
}

static void load_another_version(void)
{
    struct fabric *fabric = NULL;
    kept_log_begin();
    is_another_version = true;
    EXPECT(fabric_open("ofi", NULL, &fabric) == -ELIBBAD && !fabric && fi_version() == 0);
    kept_log_expect("the library has no function ");
    kept_log_expect(" fi_getinfo of version ");
    expect_advice(-ELIBBAD, "libfabric lacks functions for which gradpool was compiled; install "
                            "the version that gradpool doctor names, or a later one");
}

static void a_library_without_the_version_of_the_build_is_not_used(void **state)
{
    in_child(load_another_version);
}

static void load_without_descriptors(void)
{
    struct rlimit limit, none;
    EXPECT(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    none = (struct rlimit){0, limit.rlim_max};
    kept_log_begin();
    EXPECT(setrlimit(RLIMIT_NOFILE, &none) == 0);
    EXPECT(fabric_load("ofi") == -EMFILE);
    EXPECT(kept_log_count("loading the library failed") == 0);
    EXPECT(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    EXPECT(fabric_load("ofi") == 0);
}

static void a_lack_of_descriptors_is_not_a_missing_library(void **state)
{
    in_child(load_without_descriptors);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shm_needs_no_libfabric_and_threads_load_it_together),
        cmocka_unit_test(loading_does_not_read_the_symbols_of_the_kernel),
        cmocka_unit_test(loading_changes_no_signal),
        cmocka_unit_test(a_fork_waits_for_the_end_of_a_load),
        cmocka_unit_test(a_fork_of_the_loading_thread_does_not_wait),
        cmocka_unit_test(a_missing_library_is_an_error_in_words_and_tried_again),
        cmocka_unit_test(a_library_without_the_version_of_the_build_is_not_used),
        cmocka_unit_test(a_lack_of_descriptors_is_not_a_missing_library),
    };
    sem_init(&has_begun, 0, 0);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Replays a fuzz target without a fuzzer: every file of a corpus folder, then a number of mutations
 * from a seed. Owns the present input. After a crash it prints the name of a file that contains the
 * input. Only the target judges inputs. See test/fuzz/README.md. */
#include "test/lib/fuzz.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define INPUT_BYTES_MAX 65536
#define CORPUS_FILES_MAX 512
#define MUTATIONS 20000
#define MUTATIONS_LONG 2000000

struct input {
    char name[64];
    uint8_t *data;
    size_t bytes;
};

static struct input corpus[CORPUS_FILES_MAX];
static size_t corpus_count;
static uint8_t current[INPUT_BYTES_MAX];
static size_t current_bytes;
static char crash_name[64];

/* Calls only functions that are safe in a signal handler. */
static void save_current(void)
{
    static const char said[] = "# the input that crashed is saved in the working folder: ";
    int fd = open(crash_name, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0666);
    if (fd < 0)
        return;
    if (write(fd, current, current_bytes) < 0 || write(1, said, sizeof said - 1) < 0 ||
        write(1, crash_name, strlen(crash_name)) < 0 || write(1, "\n", 1) < 0)
        _exit(99);
    close(fd);
}

static void on_signal(int number)
{
    save_current();
    /* raises the signal again, which ends the process now, because SA_RESETHAND restored the
     * default action */
    raise(number);
}

/* NULL in a program without a sanitizer */
extern void __sanitizer_set_death_callback(void (*callback)(void)) __attribute__((weak));

static void save_on_death(void)
{
    static const int deaths[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGALRM};
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESETHAND | SA_NODEFER};
    if (__sanitizer_set_death_callback) {
        __sanitizer_set_death_callback(save_current);
        return;
    }
    for (size_t i = 0; i < sizeof deaths / sizeof deaths[0]; i++)
        sigaction(deaths[i], &action, NULL);
}

static void die(const char *what)
{
    perror(what);
    exit(2);
}

static void load(const char *folder, const char *name)
{
    char path[4096];
    struct stat about;
    struct input *in = &corpus[corpus_count];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &about) < 0 || about.st_size > INPUT_BYTES_MAX)
        die(path);
    in->bytes = (size_t)about.st_size;
    in->data = malloc(in->bytes + 1);
    if (!in->data || read(fd, in->data, in->bytes) != (ssize_t)in->bytes)
        die(path);
    snprintf(in->name, sizeof in->name, "%.63s", name);
    close(fd);
    corpus_count++;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct input *)a)->name, ((const struct input *)b)->name);
}

static void load_all(const char *folder)
{
    DIR *dir = opendir(folder);
    if (!dir)
        die(folder);
    for (struct dirent *entry; (entry = readdir(dir)) && corpus_count < CORPUS_FILES_MAX;)
        if (entry->d_name[0] != '.')
            load(folder, entry->d_name);
    closedir(dir);
    /* the order of the inputs then depends only on the seed */
    qsort(corpus, corpus_count, sizeof corpus[0], by_name);
}

static void run(const uint8_t *data, size_t bytes)
{
    memcpy(current, data, bytes);
    current_bytes = bytes;
    /* a copy in an allocation of exact size, so that the address sanitizer detects an access
     * beyond it */
    uint8_t *exact = malloc(bytes ? bytes : 1);
    if (!exact)
        die("malloc");
    memcpy(exact, data, bytes);
    LLVMFuzzerTestOneInput(exact, bytes);
    free(exact);
}

static void mutate_and_run(struct fuzz_random *random, size_t count)
{
    static uint8_t changed[INPUT_BYTES_MAX];
    for (size_t i = 0; i < count; i++) {
        const struct input *from = &corpus[fuzz_random_below(random, corpus_count)];
        const struct input *other = &corpus[fuzz_random_below(random, corpus_count)];
        memcpy(changed, from->data, from->bytes);
        size_t bytes =
            fuzz_mutate(random, changed, from->bytes, sizeof changed, other->data, other->bytes);
        run(changed, bytes);
    }
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: %s CORPUS-FOLDER\n", argv[0]);
        return 2;
    }
    const char *wanted = getenv("GRADPOOL_TEST_SEED");
    uint64_t seed = wanted ? strtoull(wanted, NULL, 10) : 1;
    size_t count = getenv("GRADPOOL_TEST_LONG") ? MUTATIONS_LONG : MUTATIONS;
    snprintf(crash_name, sizeof crash_name, "crash-%llu", (unsigned long long)seed);
    setvbuf(stdout, NULL, _IOLBF, 0);
    save_on_death();
    load_all(argv[1]);
    printf("# GRADPOOL_TEST_SEED=%llu\n1..%zu\n", (unsigned long long)seed, corpus_count + 1);
    for (size_t i = 0; i < corpus_count; i++) {
        run(corpus[i].data, corpus[i].bytes);
        printf("ok %zu - %s is survived\n", i + 1, corpus[i].name);
    }
    struct fuzz_random random = {.state = seed};
    if (corpus_count)
        mutate_and_run(&random, count);
    printf("%s %zu - %zu mutations are survived (seed %llu)\n", corpus_count ? "ok" : "not ok",
           corpus_count + 1, count, (unsigned long long)seed);
    return corpus_count ? 0 : 1;
}

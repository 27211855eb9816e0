/* Prints a comparison as text and as JSON. */
#include "bench/compare/compare.h"
#include "svc/base/text.h"

#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#define GIB ((double)(1 << 30))

struct figures {
    double cpu_s_per_gib, server_cpu_s_per_gib, round_us_p50, round_us_p99, gib_per_s;
};

static int compare_numbers(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static struct figures summarise(struct cell *cell)
{
    double bytes = (double)cell->load.tensor_bytes * (double)cell->load.tensors;
    double gib = (double)cell->workers * bytes * (double)cell->rounds / GIB;
    size_t count = cell->round_ns_count;
    qsort(cell->round_ns, count, sizeof *cell->round_ns, compare_numbers);
    return (struct figures){
        .cpu_s_per_gib = (double)(cell->worker_cpu_ns + cell->server_cpu_ns) / 1e9 / gib,
        .server_cpu_s_per_gib = (double)cell->server_cpu_ns / 1e9 / gib,
        .round_us_p50 = (double)cell->round_ns[count / 2] / 1e3,
        .round_us_p99 = (double)cell->round_ns[count * 99 / 100] / 1e3,
        .gib_per_s = gib / ((double)cell->elapsed_ns / 1e9),
    };
}

/* Reads one line of a small file, without the line feed; "?" if there is no file. */
static const char *read_line(const char *path, char *buffer, int buffer_bytes)
{
    FILE *file = fopen(path, "r");
    if (!file || !fgets(buffer, buffer_bytes, file))
        snprintf(buffer, (size_t)buffer_bytes, "?");
    if (file)
        fclose(file);
    buffer[strcspn(buffer, "\n")] = 0;
    return buffer;
}

static void print_machine(void)
{
    struct utsname host;
    char congestion[64], rmem[64], wmem[64], load[64];
    uname(&host);
    fprintf(stderr,
            "%ld cores, Linux %s, %s; tcp: %s, rmem %s, wmem %s; load %s\n"
            "GiB: of gradients, workers x bytes x rounds. CPU: all processes, user and system. For "
            "each pushed byte a server transfers 2 bytes, a ring of 4 workers 1.5, a ring of 2 "
            "workers 1.\n",
            sysconf(_SC_NPROCESSORS_ONLN), host.release, host.machine,
            read_line("/proc/sys/net/ipv4/tcp_congestion_control", congestion, sizeof congestion),
            read_line("/proc/sys/net/ipv4/tcp_rmem", rmem, sizeof rmem),
            read_line("/proc/sys/net/ipv4/tcp_wmem", wmem, sizeof wmem),
            read_line("/proc/loadavg", load, sizeof load));
}

void compare_report_start(const struct compare_options *options)
{
    print_machine();
    if (!options->is_json)
        printf("%-19s %3s %12s %7s %6s %9s %9s %7s %10s %10s %7s\n", "system", "N", "tensor",
               "rounds", "wrong", "CPU s/GiB", "server", "/floor", "p50 us", "p99 us", "GiB/s");
}

static void print_json(const struct cell *c, const struct figures *f)
{
    printf("{\"system\": \"%s\", \"transport\": \"%s\", \"workers\": %u, \"tensor_bytes\": %llu, "
           "\"tensors\": %u, \"rounds\": %llu, \"wrong\": %llu, \"cpu_s_per_gib\": %.5f, "
           "\"server_cpu_s_per_gib\": %.5f, \"round_us_p50\": %.1f, \"round_us_p99\": %.1f, "
           "\"gib_per_s\": %.6f}\n",
           c->system->name, c->system->transport, c->workers,
           (unsigned long long)c->load.tensor_bytes, c->load.tensors, (unsigned long long)c->rounds,
           (unsigned long long)c->wrong, f->cpu_s_per_gib, f->server_cpu_s_per_gib, f->round_us_p50,
           f->round_us_p99, f->gib_per_s);
}

static const char *text_load(const struct compare_load *load, char *buffer, size_t buffer_bytes)
{
    char size[24];
    text_bytes(load->tensor_bytes, size, sizeof size);
    if (load->tensors == 1)
        snprintf(buffer, buffer_bytes, "%s", size);
    else
        snprintf(buffer, buffer_bytes, "%u x %s", load->tensors, size);
    return buffer;
}

static void print_row(const struct cell *c, const struct figures *f, double floor)
{
    char name[32], load[40], ratio[16] = "";
    snprintf(name, sizeof name, "%s %s", c->system->name, c->system->transport);
    if (floor > 0)
        snprintf(ratio, sizeof ratio, "%.2f", f->cpu_s_per_gib / floor);
    printf("%-19s %3u %12s %7llu %6llu %9.3f %9.3f %7s %10.1f %10.1f %7.2f\n", name, c->workers,
           text_load(&c->load, load, sizeof load), (unsigned long long)c->rounds,
           (unsigned long long)c->wrong, f->cpu_s_per_gib, f->server_cpu_s_per_gib, ratio,
           f->round_us_p50, f->round_us_p99, f->gib_per_s);
}

void compare_report(const struct compare_options *options, struct cell *cells, size_t cells_count)
{
    struct figures f[SYSTEMS_MAX];
    double floor = 0;
    for (size_t i = 0; i < cells_count; i++) {
        f[i] = summarise(&cells[i]);
        if (strcmp(cells[i].system->name, "sockets") == 0)
            floor = f[i].cpu_s_per_gib;
    }
    for (size_t i = 0; i < cells_count; i++)
        options->is_json ? print_json(&cells[i], &f[i]) : print_row(&cells[i], &f[i], floor);
    if (!options->is_json)
        putchar('\n');
    fflush(stdout);
}

/* Attacks on lanes: huge memory; memory that is shared and withdrawn; memory that loses its pages;
 * very many ranks; peers without a ticket; invalid records and rings. Each attack owns its fabric,
 * and sends only to the lanes of its own job. */
#include "bench/hostile/tenant.h"

#include "svc/base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define UNTOUCHED_BYTES (UINT64_C(1) << 40)
#define UNTOUCHED_RANKS 4
#define LENT_BYTES (16u << 20)
#define LENT_REGIONS 15
#define PUNCHED_BYTES (1u << 20)
#define WIDE_BYTES (256u << 10)
#define STRANGERS 64 /* number of connections before a pause; the kernel queues no more */

static struct fabric *open_fabric(const char *kind)
{
    const struct fabric_options options = {0};
    struct fabric *f = NULL;
    return fabric_open(kind, &options, &f) < 0 ? NULL : f;
}

/* Connects all ranks of one job. Returns the number of connected ranks. */
static size_t take_seats(struct tenant *t, struct fabric *f, const char *job, struct seat *seats,
                         uint32_t ranks, uint64_t bytes)
{
    size_t taken = 0;
    while (taken < ranks && seat_take(t, f, job, (uint32_t)taken, ranks, bytes, &seats[taken])) {
        taken++;
        ++*t->done;
    }
    return taken;
}

/* --- memory --- */

static struct region make_untouched(void)
{
    int fd = memfd_create("hostile", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    struct region region = {.base = (void *)4096, .bytes = UNTOUCHED_BYTES, .fd = fd};
    if (fd >= 0 && (ftruncate(fd, (off_t)UNTOUCHED_BYTES) < 0 ||
                    fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0)) {
        close(fd);
        region.fd = -1;
    }
    return region;
}

void attack_untouched(struct tenant *t)
{
    static struct seat seats[UNTOUCHED];
    struct fabric *f = open_fabric("shm");
    const struct region region = make_untouched();
    size_t count = 0;
    while (f && region.fd >= 0 && tenant_has_time(t)) {
        char job[TENANT_JOB_BYTES];
        tenant_name_job("untouched", count / UNTOUCHED_RANKS, job);
        if (count < UNTOUCHED && seat_take(t, f, job, count % UNTOUCHED_RANKS, UNTOUCHED_RANKS,
                                           WIDE_BYTES, &seats[count])) {
            fabric_lend(seats[count].lane, &region, 0);
            seat_announce(&seats[count]);
            count++;
            ++*t->done;
        }
        seat_look(f, seats, count);
        tenant_pause_us(count < UNTOUCHED ? 0 : 1000);
    }
}

void attack_lends(struct tenant *t)
{
    char job[TENANT_JOB_BYTES];
    struct seat seats[LENDS] = {0};
    struct region region;
    struct fabric *f = open_fabric("shm");
    if (!f || region_create(LENT_BYTES, &region) < 0)
        return;
    memset(region.base, 1, region.bytes);
    size_t count = take_seats(t, f, tenant_name_job("lends", 0, job), seats, LENDS, WIDE_BYTES);
    while (tenant_has_time(t)) {
        struct seat *seat = &seats[tenant_draw(t, count > 0 ? (uint32_t)count : 1)];
        for (uint32_t id = 1; id <= LENT_REGIONS && seat->lane && !seat->is_over; id++)
            *t->done += fabric_lend(seat->lane, &region, id) == 0;
        fabric_flush(f);
        for (uint32_t id = 1; id <= LENT_REGIONS && seat->lane && !seat->is_over; id++)
            fabric_withdraw(seat->lane, id);
        seat_look(f, seats, count);
        tenant_pause_us(100);
    }
}

/* --- rounds --- */

static bool all_announce(struct seat *seats, size_t count)
{
    bool all = count > 0;
    for (size_t i = 0; i < count; i++)
        all &= seat_announce(&seats[i]);
    return all;
}

static bool is_any_over(const struct seat *seats, size_t count)
{
    bool any = false;
    for (size_t i = 0; i < count; i++)
        any |= seats[i].is_over;
    return any;
}

/* Waits for results. Returns false if a rank has lost its lane, or if the time has ended. The lane
 * may have read the memory of the first rank before `punches` removes pages, so this rank may stay
 * connected after the end of the job. */
static bool await_results(struct tenant *t, struct fabric *f, struct seat *seats, size_t count)
{
    size_t words = 0;
    while (words < count && !is_any_over(seats, count) && tenant_has_time(t)) {
        words += seat_look(f, seats, count);
        tenant_pause_us(50);
    }
    return words == count;
}

static bool all_lend(struct seat *seats, size_t count, const struct region *region)
{
    bool all = true;
    for (size_t i = 0; i < count; i++)
        all &= fabric_lend(seats[i].lane, region, 0) == 0;
    return all;
}

/* Runs rounds until the time has ended. `punches`: whether to remove pages while the lane reads and
 * writes them. */
static void run_rounds(struct tenant *t, const char *name, uint32_t ranks, uint64_t bytes,
                       bool punches)
{
    static struct seat seats[WIDE];
    struct region region;
    struct fabric *f = open_fabric("shm");
    if (!f || region_create(2 * bytes, &region) < 0)
        return;
    for (uint32_t turn = 0; tenant_has_time(t); turn++) {
        char job[TENANT_JOB_BYTES];
        tenant_name_job(name, turn, job);
        size_t count = take_seats(t, f, job, seats, ranks, bytes);
        bool goes_on = count == ranks && all_lend(seats, count, &region);
        while (goes_on && all_announce(seats, count)) {
            fabric_flush(f);
            if (punches)
                (void)fallocate(region.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
                                (off_t)region.bytes);
            goes_on = await_results(t, f, seats, count);
            *t->done += goes_on;
            memset(region.base, 1, bytes);
        }
        for (size_t i = 0; i < count; i++)
            seat_leave(f, &seats[i]);
        /* the attack counts even if the lane has ended the job because of it */
        *t->done += punches;
    }
}

void attack_punches(struct tenant *t)
{
    run_rounds(t, "punches", PUNCHED_RANKS, PUNCHED_BYTES, true);
}

void attack_wide(struct tenant *t) { run_rounds(t, "wide", WIDE, WIDE_BYTES, false); }

void attack_narrow(struct tenant *t) { run_rounds(t, "narrow", NARROW, WIDE_BYTES, false); }

/* --- strangers --- */

static int connect_abstract(const char *name)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t bytes = strnlen(name + 1, sizeof address.sun_path - 1);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    memcpy(address.sun_path + 1, name + 1, bytes);
    if (fd < 0 || connect(fd, (const struct sockaddr *)&address,
                          (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + bytes)) == 0)
        return fd;
    close(fd);
    return -1;
}

static int connect_tcp(const struct tenant *t, const char *address)
{
    struct endpoint e;
    struct err err;
    int fd;
    if (endpoint_parse(address, &e, &err) < 0 || !endpoint_is_loopback(&e) ||
        endpoint_connect(&e, t->until_ns, &fd, &err) < 0)
        return -1;
    return fd;
}

static void knock(struct tenant *t, int fd)
{
    uint8_t junk[64];
    if (fd < 0)
        return;
    for (size_t i = 0; i < sizeof junk; i++)
        junk[i] = (uint8_t)tenant_draw(t, 256);
    if (tenant_draw(t, 4) == 0)
        (void)!send(fd, junk, sizeof junk, MSG_DONTWAIT | MSG_NOSIGNAL);
    close(fd);
    ++*t->done;
}

void attack_strangers(struct tenant *t)
{
    uint8_t ticket[FABRIC_TICKET_BYTES_MAX];
    char job[TENANT_JOB_BYTES];
    struct seat seat;
    while (!seat_join(t, tenant_name_job("strangers", 0, job), 0, 1, WIDE_BYTES, &seat, ticket))
        if (!tenant_has_time(t))
            return;
    while (tenant_has_time(t)) {
        for (size_t i = 0; i < STRANGERS && seat.shm[0] == '@'; i++)
            knock(t, connect_abstract(seat.shm));
        if (seat.ofi[0])
            knock(t, connect_tcp(t, seat.ofi));
        tenant_pause_us(100);
    }
}

/* --- junk --- */

/* Sends an announcement with a few changed bytes, so that it often passes the first checks.
 * Sometimes sends random bytes. */
static void send_junk(struct tenant *t, struct seat *seat)
{
    uint8_t record[FABRIC_MESSAGE_BYTES_MAX];
    size_t bytes = seat_write(seat, record);
    bool has_rules = tenant_draw(t, 64) > 0;
    for (uint32_t left = has_rules ? tenant_draw(t, 3) : FABRIC_MESSAGE_BYTES_MAX; left > 0; left--)
        record[tenant_draw(t, (uint32_t)bytes)] = (uint8_t)tenant_draw(t, 256);
    seat->round += tenant_draw(t, 2);
    *t->done += fabric_send(seat->lane, record, bytes, NULL, 0) == 0;
}

/* Finds the memory that this process shares with its lane, by the name of its file. */
static bool find_rings(uintptr_t *ret_first, uintptr_t *ret_end)
{
    char line[512];
    bool is_found = false;
    FILE *maps = fopen("/proc/self/maps", "re");
    while (maps && !is_found && fgets(line, sizeof line, maps))
        is_found = strstr(line, "memfd:gradpool-rings") &&
                   sscanf(line, "%lx-%lx", ret_first, ret_end) == 2;
    if (maps)
        fclose(maps);
    return is_found;
}

static void scribble(struct tenant *t)
{
    uintptr_t first, end;
    if (!find_rings(&first, &end))
        return;
    for (int i = 0; i < 4096; i++) {
        uint32_t at = tenant_draw(t, (uint32_t)((end - first) / sizeof(uint32_t)));
        /* every fourth value is written to the first cache lines, which contain the counters */
        volatile uint32_t *word = (volatile uint32_t *)first + (i % 4 ? at : at % 128);
        *word = tenant_draw(t, UINT32_MAX);
    }
    ++*t->done;
}

void attack_junk(struct tenant *t)
{
    struct region region;
    if (region_create(2 * WIDE_BYTES, &region) < 0)
        return;
    for (uint32_t turn = 0; tenant_has_time(t); turn++) {
        bool is_shared = tenant_draw(t, 4) > 0;
        struct fabric *f = open_fabric(is_shared ? "shm" : "ofi");
        struct seat seat = {0};
        char job[TENANT_JOB_BYTES];
        tenant_name_job("junk", turn, job);
        if (!f || !seat_take(t, f, job, 0, 1, WIDE_BYTES, &seat)) {
            fabric_close(f);
            continue;
        }
        fabric_lend(seat.lane, &region, 0);
        for (int i = 0; i < 256 && !seat.is_over && tenant_has_time(t); i++) {
            send_junk(t, &seat);
            fabric_flush(f);
            seat_look(f, &seat, 1);
            tenant_pause_us(50);
        }
        if (is_shared && !seat.is_over)
            scribble(t);
        fabric_flush(f);
        tenant_pause_us(2000);
        channel_destroy(seat.control);
        fabric_close(f);
    }
}

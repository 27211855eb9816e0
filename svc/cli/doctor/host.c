/* Checks the kernel and the configuration of this host. */
#include "svc/base/clock.h"
#include "svc/base/text.h"
#include "svc/cli/doctor/doctor.h"
#include "svc/fabric/region.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <linux/futex.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define CLOCK_CALLS 100
#define CLOCK_BATCHES 20
#define CLOCK_NS_MAX 300 /* longest reading of a clock that needs no system call */
/* start of 2024; an earlier time means that the clock was never set */
#define WALL_LEAST_S 1704067200L
/* number of open files that a coordinator, or an aggregator with some lanes, needs */
#define FILES_LEAST 128
#define FILES_ENOUGH 4096
#define SHM_ENOUGH_BYTES (UINT64_C(256) << 20)

static void read_clock_source(char *buffer, size_t buffer_bytes)
{
    FILE *file = fopen("/sys/devices/system/clocksource/clocksource0/current_clocksource", "re");
    snprintf(buffer, buffer_bytes, "unknown");
    if (file && fgets(buffer, (int)buffer_bytes, file))
        buffer[strcspn(buffer, "\n")] = '\0';
    if (file)
        fclose(file);
}

/* Returns the time for reading the clock: the minimum over several batches, because other processes
 * may use this core. Returns 0 if the clock went backwards. */
static uint64_t clock_cost_ns(void)
{
    uint64_t least = UINT64_MAX;
    for (int batch = 0; batch < CLOCK_BATCHES; batch++) {
        uint64_t begin = clock_now_ns(), last = begin;
        for (int i = 0; i < CLOCK_CALLS; i++) {
            uint64_t now = clock_now_ns();
            if (now < last)
                return 0;
            last = now;
        }
        least = last - begin < least ? last - begin : least;
    }
    return 1 + least / CLOCK_CALLS;
}

static void check_clock(struct view_checks *checks)
{
    char source[64];
    uint64_t cost_ns = clock_cost_ns();
    read_clock_source(source, sizeof source);
    if (cost_ns == 0)
        doctor_say(
            checks, "clock", VIEW_FAIL,
            "deadlines need this clock; report the fault to the administrator of this machine",
            "the monotonic clock goes backwards (source %s)", source);
    else if (time(NULL) < WALL_LEAST_S)
        doctor_say(checks, "clock", VIEW_WARN, "set the clock, or start an NTP client",
                   "the time of day was never set: times in logs are wrong");
    else if (cost_ns > CLOCK_NS_MAX)
        doctor_say(checks, "clock", VIEW_WARN,
                   "choose tsc or kvm-clock in /sys/devices/system/clocksource/clocksource0",
                   "one reading of the clock takes %" PRIu64
                   " ns (source %s), and each round reads the clock",
                   cost_ns, source);
    else
        doctor_say(checks, "clock", VIEW_OK, NULL, "%s, %" PRIu64 " ns a reading", source, cost_ns);
}

static void check_files(struct view_checks *checks)
{
    struct rlimit limit = {0};
    const char *advice = "raise it: ulimit -Hn, /etc/security/limits.conf, LimitNOFILE= of a unit, "
                         "--ulimit nofile= of a container";
    getrlimit(RLIMIT_NOFILE, &limit);
    bool is_enough = limit.rlim_max >= FILES_ENOUGH;
    if (limit.rlim_max == RLIM_INFINITY)
        doctor_say(checks, "nofile", VIEW_OK, NULL, "open files are not limited");
    else
        doctor_say(checks, "nofile",
                   is_enough                       ? VIEW_OK
                   : limit.rlim_max >= FILES_LEAST ? VIEW_WARN
                                                   : VIEW_FAIL,
                   is_enough ? NULL : advice, "%" PRIu64 " open files are allowed%s",
                   (uint64_t)limit.rlim_max,
                   is_enough ? "" : "; a service opens some files for each worker");
}

static bool has_rdma(void)
{
    DIR *devices = opendir("/sys/class/infiniband");
    bool found = false;
    const struct dirent *entry;
    while (devices && !found && (entry = readdir(devices)))
        found = entry->d_name[0] != '.';
    if (devices)
        closedir(devices);
    return found;
}

/* Only RDMA needs locked memory; shared memory and the tcp provider do not. */
static void check_locked_memory(struct view_checks *checks)
{
    struct rlimit limit = {0};
    char size[32] = "any amount";
    getrlimit(RLIMIT_MEMLOCK, &limit);
    bool is_short = limit.rlim_cur != RLIM_INFINITY && has_rdma();
    if (limit.rlim_cur != RLIM_INFINITY)
        text_bytes(limit.rlim_cur, size, sizeof size);
    doctor_say(checks, "memlock", is_short ? VIEW_WARN : VIEW_OK,
               is_short ? "before an RDMA provider is used (--provider): ulimit -l unlimited, or "
                          "LimitMEMLOCK=infinity in the unit"
                        : NULL,
               "%s of memory may be locked; %s", size,
               is_short ? "this host has RDMA devices, which lock all memory that workers lend"
                        : "shared memory and tcp lock none");
}

/* gradpool uses memfds, which the size of /dev/shm does not limit. */
static void check_shared_memory(struct view_checks *checks)
{
    struct statvfs file_system;
    char size[32];
    const char *advice = "--shm-size 1g of a container, or mount -o remount,size=1g /dev/shm";
    if (statvfs("/dev/shm", &file_system) < 0) {
        doctor_say(checks, "dev-shm", VIEW_WARN, advice,
                   "/dev/shm cannot be used: %s; PyTorch's DataLoader needs /dev/shm",
                   strerror(errno));
        return;
    }
    uint64_t bytes = (uint64_t)file_system.f_blocks * file_system.f_frsize;
    bool is_enough = bytes >= SHM_ENOUGH_BYTES;
    doctor_say(
        checks, "dev-shm", is_enough ? VIEW_OK : VIEW_WARN, is_enough ? NULL : advice,
        "/dev/shm holds %s%s", text_bytes(bytes, size, sizeof size),
        is_enough ? "" : ", which is little for PyTorch's DataLoader (gradpool itself needs none)");
}

static void check_memfd(struct view_checks *checks)
{
    const size_t bytes = 1 << 20;
    struct region region;
    int error = region_create(bytes, &region);
    if (error < 0) {
        doctor_say(checks, "memfd", VIEW_FAIL,
                   "allow memfd_create and fcntl(F_ADD_SEALS) in the seccomp profile; see the "
                   "memory limit of the cgroup",
                   "the kernel cannot make a sealed memfd: %s", err_text(error));
        return;
    }
    if (region.fd < 0) {
        region_destroy(&region);
        doctor_say(
            checks, "memfd", VIEW_WARN,
            "allow memfd_create in the seccomp profile; until then workers and lanes of "
            "one host use TCP",
            "the system call memfd_create is refused: workers and lanes cannot share memory");
        return;
    }
    memset(region.base, 1, bytes);
    region_destroy(&region);
    doctor_say(checks, "memfd", VIEW_OK, NULL,
               "the kernel makes a sealed memfd, and this process can write to it");
}

static void check_pidfd(struct view_checks *checks)
{
    int fd = (int)syscall(SYS_pidfd_open, getpid(), 0), error = -errno;
    if (fd < 0) {
        doctor_say(checks, "pidfd", VIEW_WARN,
                   "allow pidfd_open in the seccomp profile (Docker 20.10.1 does)",
                   "the system call pidfd_open is refused (%s): the service detects the end of a "
                   "process only at the end of its connection, which may be later",
                   err_text(error));
        return;
    }
    close(fd);
    doctor_say(checks, "pidfd", VIEW_OK, NULL, "the service can watch the end of a process");
}

static void check_futex(struct view_checks *checks)
{
    uint32_t word = 1;
    const struct timespec soon = {.tv_nsec = 1000};
    bool sees = syscall(SYS_futex, &word, FUTEX_WAIT, 0, &soon, NULL, 0) < 0 && errno == EAGAIN;
    bool sleeps =
        sees && syscall(SYS_futex, &word, FUTEX_WAIT, 1, &soon, NULL, 0) < 0 && errno == ETIMEDOUT;
    if (sleeps && syscall(SYS_futex, &word, FUTEX_WAKE, 1, NULL, NULL, 0) == 0)
        doctor_say(checks, "futex", VIEW_OK, NULL,
                   "a thread can wait on a futex, and another can wake it");
    else
        doctor_say(checks, "futex", VIEW_FAIL, "allow futex in the seccomp profile",
                   "the system call futex failed: %s", strerror(errno));
}

void doctor_host(struct view_checks *checks)
{
    check_clock(checks);
    check_files(checks);
    check_locked_memory(checks);
    check_shared_memory(checks);
    check_memfd(checks);
    check_pidfd(checks);
    check_futex(checks);
}

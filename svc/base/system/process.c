/* Identity and state of processes, from /proc. Owns nothing. */
#include "svc/base/system/process.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static size_t read_file(const char *path, char *buffer, size_t buffer_bytes)
{
    FILE *file = fopen(path, "re");
    if (!file)
        return 0;
    size_t got = fread(buffer, 1, buffer_bytes - 1, file);
    fclose(file);
    buffer[got] = 0;
    return got;
}

static size_t read_of(uint32_t pid, const char *name, char *buffer, size_t buffer_bytes)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%u/%s", pid, name);
    return read_file(path, buffer, buffer_bytes);
}

static uint64_t hash(uint64_t seed, const char *text)
{
    uint64_t value = seed ^ UINT64_C(0xcbf29ce484222325);
    for (; *text; text++)
        value = (value ^ (uint8_t)*text) * UINT64_C(0x100000001b3);
    return value;
}

/* Returns the rest of /proc/PID/stat that begins with the closing parenthesis after the name, or
 * NULL if there is no such process. The name, which is the second field, may contain any character.
 * The fields are therefore counted from the end of the name. */
static const char *read_stat(uint32_t pid, char line[1024])
{
    return read_of(pid, "stat", line, 1024) ? strrchr(line, ')') : NULL;
}

char process_state(uint32_t pid)
{
    char line[1024];
    const char *at = read_stat(pid, line);
    return at && at[1] == ' ' ? at[2] : 0;
}

/* Returns field 22: the start of the process in ticks since boot. */
static uint64_t start_ticks(uint32_t pid)
{
    char line[1024];
    const char *at = read_stat(pid, line);
    for (int field = 2; at && field < 22; field++)
        at = strchr(at + 1, ' ');
    unsigned long long ticks = 0;
    return at && sscanf(at, "%llu", &ticks) == 1 ? ticks : 0;
}

uint64_t process_identity(uint32_t pid)
{
    char boot[64];
    uint64_t ticks = pid ? start_ticks(pid) : 0;
    if (!ticks || !read_file("/proc/sys/kernel/random/boot_id", boot, sizeof boot))
        return 0;
    uint64_t identity = hash(ticks, boot);
    return identity ? identity : 1;
}

uint64_t process_namespace(void)
{
    char self[32];
    struct stat namespace;
    ssize_t bytes = readlink("/proc/self", self, sizeof self - 1);
    if (bytes < 0 || stat("/proc/self/ns/pid", &namespace) < 0)
        return 0;
    self[bytes] = 0;
    return strtol(self, NULL, 10) == getpid() ? namespace.st_ino : 0;
}

/* Reads the line NSpid of /proc/PID/status. The line has one number for each PID namespace; the
 * last number is the one in the process's own namespace. */
uint32_t process_own_number(uint32_t pid)
{
    char status
        [1
         << 16]; /* the list of the user's groups, before the line that is searched, may be long */
    if (!read_of(pid, "status", status, sizeof status))
        return 0;
    const char *line = strstr(status, "\nNSpid:");
    if (!line)
        return 0;
    line += strlen("\nNSpid:");
    size_t bytes = strcspn(line, "\n");
    while (bytes > 0 && line[bytes - 1] != '\t' && line[bytes - 1] != ' ')
        bytes--;
    return (uint32_t)strtoul(line + bytes, NULL, 10);
}

#include "base/system/memory_limit.h"

#include "base/system/launcher.h"
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { PATH_BYTES = 4096 };

static uint64_t least(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

/* Bytes that a file of one number holds; UINT64_MAX when it is not there or says "max". */
static uint64_t read_number(const char *path) {
    FILE *file = fopen(path, "r");
    unsigned long long value = 0;
    bool read = file && fscanf(file, "%llu", &value) == 1;
    if (file) fclose(file);
    return read ? value : UINT64_MAX;
}

/* The numbers behind these keys (count) in a file of lines "key number"; 0 where there is none. */
static void read_entries(const char *path, const char *const *keys, uint64_t *values, int count) {
    memset(values, 0, (size_t)count * sizeof *values);
    FILE *file = fopen(path, "r");
    if (!file) return;
    char line[256];
    for (int found = 0; found < count && fgets(line, sizeof line, file);) {
        for (int i = 0; i < count; i++) {
            size_t length = strlen(keys[i]);
            if (strncmp(line, keys[i], length) != 0 || (line[length] != ' ' && line[length] != ':')) continue;
            values[i] = strtoull(line + length + 1, NULL, 10);
            found++;
        }
    }
    fclose(file);
}

static uint64_t read_entry(const char *path, const char *key) {
    uint64_t value;
    read_entries(path, &key, &value, 1);
    return value;
}

/* What one group leaves. `names`: files of its limit and its use, and the entry of memory.stat that can be given up. */
static uint64_t left_in(const char *group, const char *const names[3]) {
    char path[PATH_BYTES + 64];
    snprintf(path, sizeof path, "%s/%s", group, names[0]);
    uint64_t limit = read_number(path);
    if (limit == UINT64_MAX) return UINT64_MAX;
    snprintf(path, sizeof path, "%s/%s", group, names[1]);
    uint64_t used = read_number(path);
    snprintf(path, sizeof path, "%s/memory.stat", group);
    uint64_t cache = read_entry(path, names[2]);
    if (used == UINT64_MAX) return limit;
    used = used > cache ? used - cache : 0;
    return limit > used ? limit - used : 0;
}

/* A group's limit holds for all below it, so every one from the process's own up to the mount counts. Inside a
 * container the path may name groups that are not mounted; its own then lies at the mount. */
static uint64_t left_above(const char *mount, const char *own, const char *const names[3]) {
    char group[PATH_BYTES];
    uint64_t left = UINT64_MAX;
    size_t root = (size_t)snprintf(group, sizeof group, "%s", mount);
    snprintf(group + root, sizeof group - root, "%s", own);
    for (size_t length = strlen(group); length >= root; group[length] = '\0') {
        left = least(left, left_in(group, names));
        while (length > root && group[length - 1] != '/') length--;
        if (length <= root) break;
        length--;
    }
    return least(left, left_in(mount, names));
}

static uint64_t left_by_groups(const char *root) {
    static const char *const unified[3] = {"memory.max", "memory.current", "inactive_file"};
    static const char *const legacy[3] = {"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"};
    char path[PATH_BYTES / 2], mount[PATH_BYTES / 2], line[PATH_BYTES / 2];
    snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    FILE *file = fopen(path, "r");
    if (!file) return UINT64_MAX;
    uint64_t left = UINT64_MAX;
    while (fgets(line, sizeof line, file)) { /* hierarchy:controllers:path */
        line[strcspn(line, "\n")] = '\0';
        char *controllers = strchr(line, ':'), *own = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!own) continue;
        *own++ = '\0';
        if (strcmp(own, "/") == 0) own = "";
        bool is_unified = strcmp(controllers, ":") == 0;
        if (!is_unified && !strstr(controllers, "memory")) continue;
        snprintf(mount, sizeof mount, "%s/sys/fs/cgroup%s", root, is_unified ? "" : "/memory");
        left = least(left, left_above(mount, own, is_unified ? unified : legacy));
    }
    fclose(file);
    return left;
}

static uint64_t available(const char *root) {
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "%s/proc/meminfo", root);
    return read_entry(path, "MemAvailable") * 1024;
}

uint64_t ups_memory_free_below(const char *root) {
    return least(available(root), left_by_groups(root));
}

static uint64_t left_by_ulimit(void) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return UINT64_MAX;
    uint64_t used = read_number("/proc/self/statm"); /* pages of address space */
    if (used == UINT64_MAX) return limit.rlim_cur;
    used *= (uint64_t)sysconf(_SC_PAGESIZE);
    return limit.rlim_cur > used ? limit.rlim_cur - used : 0;
}

uint64_t ups_memory_free(void) {
    return least(ups_memory_free_below("") / (uint64_t)ups_launch_processes_here(), left_by_ulimit());
}

ups_memory_use ups_memory_used(void) {
    static const char *const keys[] = {"VmRSS", "VmHWM"};
    uint64_t kibibytes[2];
    read_entries("/proc/self/status", keys, kibibytes, 2);
    return (ups_memory_use){.resident = kibibytes[0] * 1024, .peak = kibibytes[1] * 1024};
}

#include "base/system/numa.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* "0-3,8,10-11" to a set; false where it is something else. */
static bool parse_list(const char *text, cpu_set_t *set) {
    CPU_ZERO(set);
    while (*text && *text != '\n') {
        char *end;
        long first = strtol(text, &end, 10), last = first;
        if (end == text || first < 0) return false;
        if (*end == '-') {
            text = end + 1;
            last = strtol(text, &end, 10);
            if (end == text) return false;
        }
        if (last < first || last >= CPU_SETSIZE) return false;
        for (long i = first; i <= last; i++) CPU_SET((size_t)i, set);
        text = *end == ',' ? end + 1 : end;
        if (end == text && *end && *end != '\n') return false;
    }
    return true;
}

static bool read_list(const char *path, cpu_set_t *set) {
    char line[4096];
    FILE *file = fopen(path, "re");
    if (!file) return false;
    bool read = fgets(line, sizeof line, file) && parse_list(line, set);
    fclose(file);
    return read;
}

int ups_numa_nodes(const char *directory, cpu_set_t *nodes) {
    cpu_set_t own, online;
    char path[512];
    int count = 0;
    snprintf(path, sizeof path, "%s/online", directory);
    if (sched_getaffinity(0, sizeof own, &own) != 0 || !read_list(path, &online)) return 0;
    for (int node = 0; node < CPU_SETSIZE && count < UPS_NUMA_MOST_NODES; node++) {
        if (!CPU_ISSET((size_t)node, &online)) continue;
        snprintf(path, sizeof path, "%s/node%d/cpulist", directory, node);
        if (!read_list(path, &nodes[count])) return 0;
        CPU_AND(&nodes[count], &nodes[count], &own);
        count += CPU_COUNT(&nodes[count]) > 0;
    }
    return count;
}

int ups_numa_node_of(int number, int threads, const cpu_set_t *nodes, int count) {
    if (count < 2 || threads < count) return -1;
    int processors = 0, node = 0;
    for (int i = 0; i < count; i++) processors += CPU_COUNT(&nodes[i]);
    int processor = (int)((int64_t)(number % threads) * processors / threads);
    while (node < count - 1 && processor >= CPU_COUNT(&nodes[node])) processor -= CPU_COUNT(&nodes[node++]);
    return node;
}

static cpu_set_t machine[UPS_NUMA_MOST_NODES];
static int machine_nodes;

static void look(void) {
    machine_nodes = ups_numa_nodes("/sys/devices/system/node", machine);
}

void ups_numa_spread(int number, int threads) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, look);
    int node = ups_numa_node_of(number, threads, machine, machine_nodes);
    if (node < 0) return;
    /* a wish: a thread that may not be bound works where it is */
    (void)pthread_setaffinity_np(pthread_self(), sizeof *machine, &machine[node]);
}

#include "train/comm/seat.h"

#include "base/log.h"
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void ups_seat_choose_card(int64_t number) {
    const char *seen = getenv("CUDA_VISIBLE_DEVICES");
    char card[64];
    snprintf(card, sizeof card, "%lld", (long long)number);
    for (int64_t i = 0; seen && i < number; i++) {
        seen = strchr(seen, ',');
        if (!seen) return; /* the launcher gave each process its own */
        seen++;
    }
    if (seen) snprintf(card, sizeof card, "%.*s", (int)strcspn(seen, ","), seen);
    setenv("CUDA_VISIBLE_DEVICES", card, 1);
}

void ups_seat_find(ups_seat *seat) {
    memset(seat, 0, sizeof *seat);
    gethostname(seat->host, sizeof seat->host - 1);
    cpu_set_t processors;
    if (sched_getaffinity(0, sizeof processors, &processors) == 0) seat->processors = processors;
}

int ups_seat_count_sharing(const ups_seat *own, const ups_seat *all, int count) {
    int sharing = 0;
    for (int i = 0; i < count; i++) {
        cpu_set_t both;
        CPU_AND(&both, &own->processors, &all[i].processors);
        const bool shares = CPU_COUNT(&both) > 0 || CPU_EQUAL(&own->processors, &all[i].processors);
        sharing += shares && strcmp(own->host, all[i].host) == 0;
    }
    return sharing;
}

void ups_seat_warn_of_binding(const ups_seat *own, int processes) {
    const int bound = CPU_COUNT(&own->processors), part = (int)sysconf(_SC_NPROCESSORS_ONLN) / processes;
    if (bound == 0 || 2 * bound > part) return;
    ups_log(UPS_LOG_WARNING,
            "the launcher bound each process to %d of this machine's processors, where %d would be its part; `mpirun "
            "--bind-to none`, or `--map-by slot:PE=%d`, gives it those",
            bound, part, part);
}

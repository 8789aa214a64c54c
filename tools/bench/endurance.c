#include "tools/bench/endurance.h"

#include "base/json.h"
#include "base/system/threads.h"
#include "tools/bench/go_on.h"
#include "tools/command.h"
#include <dirent.h>
#include <stdio.h>

enum {
    PARTS = 10,      /* looks, after the first */
    SETTLING = 1000, /* batches before the first: all slots, buffers and stacks have been used by then */
};

typedef struct look {
    int64_t batch;
    double seconds;
    int64_t resident, anonymous; /* bytes */
    int descriptors;
} look;

/* Anonymous memory is the process's own; the resident set also counts pages of programs and libraries, which come when
 * they are first run. */
static void look_at_memory(look *now) {
    char line[128];
    long kib;
    FILE *file = fopen("/proc/self/status", "r");
    while (file && fgets(line, sizeof line, file)) {
        if (sscanf(line, "VmRSS: %ld kB", &kib) == 1) now->resident = (int64_t)kib << 10;
        if (sscanf(line, "RssAnon: %ld kB", &kib) == 1) now->anonymous = (int64_t)kib << 10;
    }
    if (file) fclose(file);
}

static int count_descriptors(void) {
    enum { OTHERS = 3 }; /* ".", ".." and the one that lists */
    int count = -OTHERS;
    DIR *directory = opendir("/proc/self/fd");
    while (directory && readdir(directory)) count++;
    if (directory) closedir(directory);
    return count;
}

/* How far the maximum is above the first, in parts of it. */
static double growth(const look looks[PARTS + 1], bool anonymous) {
    int64_t first = anonymous ? looks[0].anonymous : looks[0].resident, maximum = first;
    for (int i = 1; i <= PARTS; i++) {
        int64_t now = anonymous ? looks[i].anonymous : looks[i].resident;
        if (now > maximum) maximum = now;
    }
    return first > 0 ? (double)(maximum - first) / (double)first : 0.0;
}

static void print(const look looks[PARTS + 1], bool as_json) {
    bool same = true;
    for (int i = 1; i <= PARTS; i++) same = same && looks[i].descriptors == looks[0].descriptors;
    if (as_json) {
        json_t *rows = json_array();
        for (int i = 0; i <= PARTS; i++) {
            json_array_append_new(rows, json_pack("{s:I, s:f, s:I, s:I, s:i}", "batch", (json_int_t)looks[i].batch,
                                                  "seconds", looks[i].seconds, "resident_bytes",
                                                  (json_int_t)looks[i].resident, "anonymous_bytes",
                                                  (json_int_t)looks[i].anonymous, "descriptors", looks[i].descriptors));
        }
        json_t *facts = json_pack("{s:o, s:f, s:f, s:b}", "looks", rows, "resident_growth", growth(looks, false),
                                  "anonymous_growth", growth(looks, true), "descriptors_constant", same);
        ups_print_json(facts, JSON_REAL_PRECISION(6));
        json_decref(facts);
        return;
    }
    printf("%10s %9s %14s %14s %12s\n", "batch", "s", "resident, KiB", "anonymous, KiB", "descriptors");
    for (int i = 0; i <= PARTS; i++) {
        printf("%10lld %9.2f %14lld %14lld %12d\n", (long long)looks[i].batch, looks[i].seconds,
               (long long)looks[i].resident >> 10, (long long)looks[i].anonymous >> 10, looks[i].descriptors);
    }
    printf("resident set grew by %.2f %%, anonymous memory by %.2f %%; descriptors %s\n", 100 * growth(looks, false),
           100 * growth(looks, true), same ? "constant" : "changed");
}

static ups_status draw(ups_loader *loader, int64_t batches, look looks[PARTS + 1], ups_error *error) {
    double began = ups_now();
    int64_t settled = batches / PARTS < SETTLING ? batches / PARTS : SETTLING;
    int next = 0;
    for (int64_t taken = 1; taken <= batches; taken++) {
        const ups_batch *batch = NULL;
        UPS_TRY(ups_bench_go_on(error));
        UPS_TRY(ups_loader_next(loader, &batch, error));
        ups_loader_release(loader, batch);
        int64_t due = next == 0 ? settled : (int64_t)((double)batches * next / PARTS);
        if (taken < due || next > PARTS) continue;
        looks[next] = (look){.batch = taken, .seconds = ups_now() - began, .descriptors = count_descriptors()};
        look_at_memory(&looks[next++]);
    }
    return UPS_OK;
}

ups_status ups_bench_endure(const ups_loader_options *options, const ups_loader_task *task, int64_t batches,
                            bool as_json, ups_error *error) {
    look looks[PARTS + 1] = {0};
    ups_loader *loader = NULL;
    UPS_TRY(ups_loader_open(options, task, 1, &loader, error));
    ups_status status = draw(loader, batches, looks, error);
    if (status == UPS_OK) print(looks, as_json);
    ups_loader_close(loader);
    return status;
}

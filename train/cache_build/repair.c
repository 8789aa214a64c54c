#include "train/cache_build/repair.h"

#include "train/cache_build/encode.h"
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

ups_status ups_repair_find_config(const char *path, char **config, ups_error *error) {
    struct stat info;
    *config = NULL;
    if (stat(path, &info) != 0) return ups_fail_errno(error, "%s", path);
    *config = S_ISDIR(info.st_mode) ? ups_run_find(path) : strdup(path);
    if (*config) return UPS_OK;
    return ups_fail(error, UPS_ERR_ARGUMENT,
                    "%s: no config.yaml of a run lies in it or above it; give the configuration that the cache was "
                    "built with: ups cache verify --repair CONFIG",
                    path);
}

/* Which task and split of the run lies in `group`. */
static ups_status find_split(const ups_session *session, const char *group, const ups_task **task, ups_split *split,
                             ups_error *error) {
    char *cache = ups_run_cache_directory(session->config), wanted[PATH_MAX], here[PATH_MAX];
    if (!cache) return ups_fail(error, UPS_ERR_MEMORY, "out of memory");
    *task = NULL;
    for (int i = 0; i < session->tasks->count * UPS_SPLIT_COUNT && !*task && realpath(group, wanted); i++) {
        const ups_task *candidate = &session->tasks->task[i / UPS_SPLIT_COUNT];
        char *path = NULL;
        *split = (ups_split)(i % UPS_SPLIT_COUNT);
        if (asprintf(&path, "%s/%s/%s", cache, candidate->name, ups_split_name(*split)) < 0) path = NULL;
        if (path && realpath(path, here) && strcmp(here, wanted) == 0) *task = candidate;
        free(path);
    }
    ups_status status = UPS_OK;
    if (!*task) {
        status = ups_fail(error, UPS_ERR_ARGUMENT,
                          "%s: cannot be repaired: this run's cache is %s, and has no task and split in that directory",
                          group, cache);
    }
    free(cache);
    return status;
}

/* Findings outside shards: documents and small arrays. Once they are repaired, more of the shards can be examined. */
static bool hides_shards(const ups_verify_report *report) {
    return report->finding_count > 0 && report->findings[0].shard < 0; /* which come first */
}

/* Builds again what `found` tells of, then looks at what was built, or at everything where less was seen before. */
static ups_status repair_once(const ups_session *session, const char *group, const ups_task *task, ups_split split,
                              const ups_verify_report *found, ups_pool *pool, ups_repair_report *report,
                              ups_error *error) {
    const ups_verify_finding *unread = ups_verify_unread(found);
    if (unread) { /* what cannot be read may be sound: nothing is given up for it */
        return ups_fail(error, UPS_ERR_IO,
                        "%s: not repaired, since not all of it could be read: %.500s. Make it readable%s", group,
                        unread->message, unread->shard >= 0 ? ", or remove that file to have it built again" : "");
    }
    int64_t *shards = malloc(((size_t)found->finding_count + 1) * sizeof *shards), count;
    if (!shards) return ups_fail(error, UPS_ERR_MEMORY, "out of memory");
    ups_verify_broken_shards(found, shards, &count);
    ups_encode_options options = {.wait = true, .repair = true, .broken = shards, .broken_count = count};
    ups_encode_report encoded;
    ups_status status = ups_encode_split(session, task, split, options, &encoded, error);
    if (status == UPS_OK) {
        report->shards += count;
        report->encoded += encoded.encoded;
        status = hides_shards(found) ? ups_cache_verify(group, pool, NULL, NULL, &report->after, error)
                                     : ups_cache_verify_shards(group, shards, count, pool, &report->after, error);
    }
    free(shards);
    return status;
}

ups_status ups_repair_group(const ups_session *session, const char *group, const ups_verify_report *found,
                            ups_pool *pool, ups_repair_report *report, ups_error *error) {
    const ups_task *task;
    ups_split split;
    *report = (ups_repair_report){0};
    UPS_TRY(find_split(session, group, &task, &split, error));
    UPS_TRY(repair_once(session, group, task, split, found, pool, report, error));
    if (!hides_shards(found) || report->after.finding_count == 0) return UPS_OK;
    ups_verify_report shown = report->after; /* once the documents were repaired */
    report->after = (ups_verify_report){0};
    ups_status status = repair_once(session, group, task, split, &shown, pool, report, error);
    ups_verify_report_free(&shown);
    return status;
}

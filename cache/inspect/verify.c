#include "cache/inspect/verify.h"

#include "base/files.h"
#include "base/system/cancel.h"
#include "cache/store/document.h"
#include "cache/store/reader.h"
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

typedef struct examination {
    const ups_cache_group *group;
    const int64_t *shards; /* (shard_count) those to examine; NULL: all */
    int64_t shard_count;
    ups_cache_reader **readers; /* one a thread */
    pthread_mutex_t mutex;      /* guards all below */
    ups_verify_report *report;
    int64_t capacity, shards_done;
    void (*progress)(void *context, int64_t shards_done, int64_t shards);
    void *context;
} examination;

/* Records a finding; `error` holds its story. */
static ups_status record(examination *x, int64_t shard, int64_t sample, const ups_error *story, ups_error *error) {
    if (story->code == UPS_ERR_MEMORY || story->code == UPS_ERR_CANCELLED) { /* tells of us, not of the cache */
        return ups_fail(error, story->code, "%s", story->message);
    }
    ups_status status = UPS_OK;
    pthread_mutex_lock(&x->mutex);
    ups_verify_report *report = x->report;
    if (report->finding_count == x->capacity) {
        int64_t larger = x->capacity ? 2 * x->capacity : 16;
        ups_verify_finding *moved = realloc(report->findings, (size_t)larger * sizeof *moved);
        if (moved) {
            report->findings = moved;
            x->capacity = larger;
        } else {
            status = ups_fail(error, UPS_ERR_MEMORY, "no memory for the findings");
        }
    }
    if (status == UPS_OK) {
        ups_verify_finding *finding = &report->findings[report->finding_count++];
        bool unread = story->code == UPS_ERR_IO && !ups_errno_is_absent(story->number);
        *finding = (ups_verify_finding){.shard = shard, .sample = sample, .code = story->code, .unread = unread};
        memcpy(finding->message, story->message, sizeof finding->message);
    }
    pthread_mutex_unlock(&x->mutex);
    return status;
}

/* Rounding keeps order, so the extremes of the rounded values are the rounded extremes. */
static ups_status check_range(const ups_cache_group *group, int64_t shard, int64_t sample, const ups_f16 *latents,
                              const ups_cache_statistics *row, ups_error *error) {
    float extremes[2] = {(float)row->minimum, (float)row->maximum}, piece[2048];
    ups_f16 rounded[2];
    ups_f32_to_f16(extremes, rounded, 2);
    ups_f16_to_f32(rounded, extremes, 2);
    size_t count = ups_chunk_raw_bytes(group->shape.trajectory) / sizeof(ups_f16);
    float minimum = INFINITY, maximum = -INFINITY;
    for (size_t start = 0; start < count; start += 2048) {
        size_t n = count - start < 2048 ? count - start : 2048;
        ups_f16_to_f32(latents + start, piece, n);
        ups_f32_range_result range = ups_f32_range(piece, n);
        if (range.non_finite) {
            return ups_fail(error, UPS_ERR_NUMERIC, "%s, shard %lld, sample %lld: its latents hold NaN or Inf",
                            group->directory, (long long)shard, (long long)sample);
        }
        minimum = fminf(minimum, range.minimum);
        maximum = fmaxf(maximum, range.maximum);
    }
    if (minimum == extremes[0] && maximum == extremes[1]) return UPS_OK;
    return ups_fail(
        error, UPS_ERR_FORMAT,
        "%s, shard %lld, sample %lld: its values run from %g to %g, but the build recorded %g to %g: this is not "
        "the trajectory that belongs here",
        group->directory, (long long)shard, (long long)sample, minimum, maximum, extremes[0], extremes[1]);
}

/* Sample by sample, of a shard whose index is sound. `rows` NULL: the statistics are lost, there is nothing to hold the
 * trajectories against. */
static ups_status examine_samples(examination *x, int64_t shard, ups_cache_reader *reader,
                                  const ups_cache_statistics *rows, ups_error *error) {
    const ups_cache_group *group = x->group;
    int64_t first = shard * group->shape.samples_per_shard, skipped = 0, examined = 0;
    ups_status status = UPS_OK;
    for (int64_t i = 0; i < ups_cache_shard_samples(group->shape, shard) && status == UPS_OK; i++) {
        ups_error story;
        ups_cache_trajectory trajectory;
        ups_status found = ups_cache_read(reader, first + i, &trajectory, &story);
        examined++;
        if (found == UPS_OK && !trajectory.present) skipped++;
        if (found == UPS_OK && trajectory.present && rows) {
            found = check_range(group, shard, first + i, trajectory.latents, &rows[i], &story);
        }
        if (found != UPS_OK) status = record(x, shard, first + i, &story, error);
    }
    pthread_mutex_lock(&x->mutex);
    x->report->samples += examined;
    x->report->skipped += skipped;
    pthread_mutex_unlock(&x->mutex);
    return status;
}

static ups_status examine_shard(void *context, int64_t index, int thread, ups_error *error) {
    examination *x = context;
    int64_t shard = x->shards ? x->shards[index] : index;
    const ups_cache_group *group = x->group;
    if (ups_cancel_requested()) return ups_fail(error, UPS_ERR_CANCELLED, "verification was interrupted");
    ups_cache_shape shape = group->shape;
    ups_cache_statistics *rows = malloc((size_t)shape.samples_per_shard * sizeof *rows);
    ups_chunk_place *places = malloc((size_t)shape.samples_per_shard * sizeof *places);
    char *path = ups_cache_shard_path(group->directory, shard);
    ups_status status = UPS_OK;
    if (!rows || !places || !path) {
        status = ups_fail(error, UPS_ERR_MEMORY, "%s: no memory", group->directory);
        goto cleanup;
    }
    ups_error story;
    uint64_t size = 0;
    bool whole = true, has_rows = true;
    if (ups_path_is_absent(path)) {
        whole = false;
        if (group->complete) { /* otherwise the one finding that the build is unfinished says it all */
            ups_fail(&story, UPS_ERR_FORMAT, "%s: shard %lld is missing, and with it samples %lld to %lld", path,
                     (long long)shard, (long long)(shard * shape.samples_per_shard),
                     (long long)(shard * shape.samples_per_shard + ups_cache_shard_samples(shape, shard) - 1));
            status = record(x, shard, -1, &story, error);
        }
        goto done;
    }
    if (ups_cache_read_statistics(group, shard, rows, &story) != UPS_OK) {
        has_rows = false;
        status = record(x, shard, -1, &story, error);
    }
    ups_shard_facts facts = {0};
    if (status == UPS_OK && ups_cache_read_index(group, shard, places, &facts, &story) != UPS_OK) {
        whole = false;
        if (ups_file_size(path, &size, NULL) != UPS_OK) size = 1; /* it was looked at */
        status = record(x, shard, -1, &story, error);
    }
    if (whole) size = facts.bytes;
    ups_small_array statistics = ups_cache_statistics_array(shape);
    if (status == UPS_OK && whole && has_rows &&
        facts.statistics_crc != ups_small_chunk_crc(&statistics, shard, rows)) {
        has_rows = false;
        ups_fail(&story, UPS_ERR_CHECKSUM,
                 "%s: was not made with its statistics, %s/" UPS_CACHE_STATISTICS
                 "/c/%lld/0: one of them is another cache's",
                 path, group->directory, (long long)shard);
        status = record(x, shard, -1, &story, error);
    }
    if (status == UPS_OK && whole) {
        status = examine_samples(x, shard, x->readers[thread], has_rows ? rows : NULL, error);
    }
done:
    pthread_mutex_lock(&x->mutex);
    x->report->shards += size > 0;
    x->report->bytes += size;
    x->shards_done++;
    if (x->progress) x->progress(x->context, x->shards_done, x->shard_count);
    pthread_mutex_unlock(&x->mutex);
cleanup:
    free(path);
    free(places);
    free(rows);
    return status;
}

static int by_place(const void *a, const void *b) {
    const ups_verify_finding *p = a, *q = b;
    if (p->shard != q->shard) return p->shard < q->shard ? -1 : 1;
    return p->sample < q->sample ? -1 : p->sample > q->sample;
}

/* The directory above, by its name: links may lead elsewhere. Takes `path` and gives another; NULL: out of memory. */
static char *parent_of(char *path) {
    char *parent = NULL;
    if (!path) return NULL;
    size_t length = strlen(path);
    while (length > 1 && path[length - 1] == '/') path[--length] = '\0';
    char *slash = strrchr(path, '/');
    const char *last = slash ? slash + 1 : path;
    if (*last == '\0' || strcmp(last, ".") == 0 || strcmp(last, "..") == 0) {
        if (asprintf(&parent, "%s/..", path) < 0) parent = NULL;
    } else {
        parent = slash ? strndup(path, slash == path ? 1 : (size_t)(slash - path)) : strdup(".");
    }
    free(path);
    return parent;
}

/* Opening the group has checked its documents; here those of statistics, and what is above: that it lies where it
 * belongs, and that Zarr readers find their way down to it. */
static ups_status check_surroundings(examination *x, ups_error *error) {
    const ups_cache_group *group = x->group;
    ups_small_array array = ups_cache_statistics_array(group->shape);
    ups_error story;
    if (ups_small_check_metadata(group->directory, &array, &story) != UPS_OK) UPS_TRY(record(x, -1, -1, &story, error));
    if (ups_cache_is_exported(group)) return UPS_OK;
    if (ups_cache_check_place(group, &story) != UPS_OK) return record(x, -1, -1, &story, error);
    ups_status status = UPS_OK;
    char *above = strdup(group->directory);
    for (int up = 1; up <= 2 && status == UPS_OK; up++) {
        if (!(above = parent_of(above))) return ups_fail(error, UPS_ERR_MEMORY, "%s: no memory", group->directory);
        if (ups_document_check_parent(above, &story) != UPS_OK) status = record(x, -1, -1, &story, error);
    }
    free(above);
    return status;
}

/* What a finished build promised, against what was found. */
static ups_status check_counts(examination *x, ups_error *error) {
    const ups_cache_group *group = x->group;
    ups_error story;
    if (!group->complete) {
        ups_fail(&story, UPS_ERR_FORMAT,
                 "%s: the build did not finish: %lld of %lld shards are there; run `ups cache build` again, it goes on "
                 "where it "
                 "stopped",
                 group->directory, (long long)x->report->shards, (long long)ups_cache_shard_count(group->shape));
        return record(x, -1, -1, &story, error);
    }
    const json_t *result = json_object_get(group->attributes, "result");
    int64_t kept, found = x->report->samples - x->report->skipped;
    if (ups_json_integer(result, "kept", group->directory, &kept, &story) != UPS_OK)
        return record(x, -1, -1, &story, error);
    if (kept == found || x->shards || x->report->finding_count > 0) return UPS_OK;
    ups_fail(&story, UPS_ERR_FORMAT, "%s: %lld samples are there; the build recorded %lld", group->directory,
             (long long)found, (long long)kept);
    return record(x, -1, -1, &story, error);
}

static ups_status examine(const char *directory, ups_pool *pool, examination x, ups_error *error) {
    ups_verify_report *report = x.report;
    *report = (ups_verify_report){0};
    pthread_mutex_init(&x.mutex, NULL);
    ups_cache_group *group = NULL;
    ups_error story;
    ups_status status = UPS_OK;
    int threads = ups_pool_threads(pool);
    if (ups_cache_group_open(directory, &group, &story) != UPS_OK) {
        status = record(&x, -1, -1, &story, error);
        goto cleanup;
    }
    x.group = group;
    if (!x.shards) x.shard_count = ups_cache_shard_count(group->shape);
    x.readers = calloc((size_t)threads, sizeof(ups_cache_reader *));
    if (!x.readers) status = ups_fail(error, UPS_ERR_MEMORY, "%s: no memory to verify it", directory);
    for (int i = 0; i < threads && status == UPS_OK; i++) {
        x.readers[i] = ups_cache_reader_create(group);
        if (!x.readers[i]) status = ups_fail(error, UPS_ERR_MEMORY, "%s: no memory to verify it", directory);
    }
    if (status == UPS_OK) status = check_surroundings(&x, error);
    if (status == UPS_OK) status = ups_pool_run(pool, x.shard_count, examine_shard, &x, error);
    if (status == UPS_OK) status = check_counts(&x, error);
    for (int i = 0; x.readers && i < threads; i++) ups_cache_reader_destroy(x.readers[i]);
    free(x.readers);
cleanup:
    ups_cache_group_close(group);
    pthread_mutex_destroy(&x.mutex);
    if (report->finding_count > 1)
        qsort(report->findings, (size_t)report->finding_count, sizeof *report->findings, by_place);
    if (status != UPS_OK) ups_verify_report_free(report);
    return status;
}

ups_status ups_cache_verify(const char *directory, ups_pool *pool,
                            void (*progress)(void *context, int64_t shards_done, int64_t shards), void *context,
                            ups_verify_report *report, ups_error *error) {
    return examine(directory, pool, (examination){.report = report, .progress = progress, .context = context}, error);
}

ups_status ups_cache_verify_shards(const char *directory, const int64_t *shards, int64_t count, ups_pool *pool,
                                   ups_verify_report *report, ups_error *error) {
    return examine(directory, pool, (examination){.report = report, .shards = shards, .shard_count = count}, error);
}

const ups_verify_finding *ups_verify_unread(const ups_verify_report *report) {
    for (int64_t i = 0; i < report->finding_count; i++)
        if (report->findings[i].unread) return &report->findings[i];
    return NULL;
}

void ups_verify_broken_shards(const ups_verify_report *report, int64_t *shards, int64_t *count) {
    *count = 0;
    for (int64_t i = 0; i < report->finding_count; i++) { /* in the order of shards */
        int64_t shard = report->findings[i].shard;
        if (shard >= 0 && !report->findings[i].unread && (*count == 0 || shards[*count - 1] != shard))
            shards[(*count)++] = shard;
    }
}

void ups_verify_report_free(ups_verify_report *report) {
    free(report->findings);
    *report = (ups_verify_report){0};
}

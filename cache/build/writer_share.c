/* Taking part: which shards this process builds, and what the others have done meanwhile. */
#include "base/files.h"
#include "base/system/cancel.h"
#include "cache/build/writer_state.h"
#include "cache/store/document.h"
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define GROUP_LEASE "group"

enum { LEASE_BYTES = 40, LOCK_PAUSE_NS = 20000000 };

ups_status ups_writer_lock_group(ups_cache_writer *writer, ups_error *error) {
    for (bool ours = false;;) {
        UPS_TRY(ups_leases_take(writer->leases, GROUP_LEASE, &ours, error));
        if (ours) return UPS_OK;
        if (ups_cancel_requested()) {
            return ups_fail(error, UPS_ERR_CANCELLED, "%s: stopped while another process wrote its documents",
                            writer->directory);
        }
        nanosleep(&(struct timespec){0, LOCK_PAUSE_NS}, NULL);
    }
}

void ups_writer_unlock_group(ups_cache_writer *writer) {
    ups_leases_release(writer->leases, GROUP_LEASE);
}

static void name_lease(int64_t shard, char name[LEASE_BYTES]) {
    snprintf(name, LEASE_BYTES, "shard-%lld", (long long)shard);
}

/* A sample that is absent was skipped, and then its statistics say so (writer_put.c), or its shard was made when the
 * group ended before it: then the row is zero, or, when a build that was killed had come as far, that of a good sample.
 */
static bool was_skipped(const ups_cache_statistics *row) {
    return ups_cache_statistics_bad(row) || row->minimum > row->maximum;
}

/* The statistics of a shard; *there is false where they are lost or damaged. */
static ups_status read_rows(const ups_cache_writer *writer, int64_t shard, ups_cache_statistics *rows, bool *there,
                            ups_error *error) {
    ups_small_array statistics = ups_cache_statistics_array(writer->shape);
    ups_error story;
    ups_status status = ups_small_read_chunk(writer->directory, &statistics, shard, rows, &story);
    *there = status == UPS_OK;
    bool is_damage = status == UPS_ERR_FORMAT || status == UPS_ERR_CHECKSUM ||
                     (status == UPS_ERR_IO && ups_errno_is_absent(story.number));
    return status == UPS_OK || is_damage ? UPS_OK : ups_fail(error, status, "%s", story.message);
}

/* The shards with which an earlier build ended stand or fall by their digests, up to where an extension goes on. */
static bool is_as_recorded(const ups_cache_writer *writer, int64_t shard, const ups_shard_facts *facts) {
    if (shard >= writer->digest_count) return true;
    const uint64_t *digest = writer->digests[shard];
    return digest[0] == facts->digest.low && digest[1] == facts->digest.high;
}

ups_status ups_writer_shard_is_whole(const ups_cache_writer *writer, int64_t shard, bool *whole, ups_error *error) {
    *whole = false;
    ups_cache_shape shape = writer->shape;
    ups_small_array statistics = ups_cache_statistics_array(shape);
    char *path = ups_cache_shard_path(writer->directory, shard);
    if (!path) return ups_writer_no_memory(writer, error);
    if (ups_path_is_absent(path)) {
        free(path);
        return UPS_OK;
    }
    ups_chunk_place *places = malloc((size_t)shape.samples_per_shard * sizeof *places);
    ups_cache_statistics *rows = malloc((size_t)shape.samples_per_shard * sizeof *rows);
    ups_status status = places && rows ? UPS_OK : ups_writer_no_memory(writer, error);
    bool has_rows = false;
    if (status == UPS_OK) status = read_rows(writer, shard, rows, &has_rows, error);
    if (status == UPS_OK && has_rows) {
        ups_shard_identity identity = ups_document_identity(writer->attributes, shard);
        ups_shard_facts facts;
        status = ups_shard_read_index(path, &identity, shape.samples_per_shard, shard * shape.samples_per_shard, places,
                                      &facts, error);
        if (status != UPS_OK) {
            ups_fail_within(error, "cannot resume the build; `ups cache verify --repair` builds this shard again");
        }
        *whole = status == UPS_OK && facts.statistics_crc == ups_small_chunk_crc(&statistics, shard, rows) &&
                 is_as_recorded(writer, shard, &facts);
        for (int64_t i = 0; *whole && i < ups_cache_shard_samples(shape, shard); i++) {
            *whole = ups_chunk_present(places[i]) || was_skipped(&rows[i]);
        }
    }
    free(rows);
    free(places);
    free(path);
    return status;
}

void ups_writer_adopt(ups_cache_writer *writer, int64_t shard) {
    int64_t first = shard * writer->shape.samples_per_shard;
    for (int64_t i = first; i < first + ups_cache_shard_samples(writer->shape, shard); i++) {
        writer->done += writer->state[i] != SAMPLE_DONE;
        writer->state[i] = SAMPLE_DONE;
    }
    writer->shards[shard].missing = 0;
    writer->shards[shard].held = false;
}

void ups_writer_release_shard(ups_cache_writer *writer, int64_t shard) {
    char name[LEASE_BYTES];
    name_lease(shard, name);
    ups_leases_release(writer->leases, name);
}

/* Of a shard that nothing was put into yet. */
static bool is_untouched(const pending_shard *shard) {
    return shard->missing > 0 && !shard->held && !shard->bytes;
}

static ups_status adopt_if_whole(ups_cache_writer *writer, int64_t shard, bool *whole, ups_error *error) {
    *whole = false;
    if (writer->shards[shard].broken) return UPS_OK;
    UPS_TRY(ups_writer_shard_is_whole(writer, shard, whole, error));
    pthread_mutex_lock(&writer->mutex);
    if (*whole && (is_untouched(&writer->shards[shard]) || writer->shards[shard].held)) ups_writer_adopt(writer, shard);
    pthread_mutex_unlock(&writer->mutex);
    return UPS_OK;
}

/* Lists the samples of a shard that are yet to be put. */
static void list_open(ups_cache_writer *writer, int64_t shard, int64_t *samples, int64_t *count) {
    int64_t first = shard * writer->shape.samples_per_shard;
    for (int64_t i = first; i < first + ups_cache_shard_samples(writer->shape, shard); i++) {
        if (writer->state[i] == SAMPLE_OPEN) samples[(*count)++] = i;
    }
}

int64_t ups_cache_writer_room(const ups_cache_writer *writer, int64_t most) {
    return most > writer->shape.samples_per_shard ? most : writer->shape.samples_per_shard;
}

ups_status ups_cache_writer_take(ups_cache_writer *writer, int64_t most, int64_t *samples, int64_t *count,
                                 ups_error *error) {
    int64_t shards = ups_cache_shard_count(writer->shape);
    *count = 0;
    pthread_mutex_lock(&writer->mutex);
    int64_t begin = writer->cursor;
    pthread_mutex_unlock(&writer->mutex);
    for (int64_t k = 0; k < shards; k++) {
        int64_t s = (begin + k) % shards;
        pthread_mutex_lock(&writer->mutex);
        bool wanted = is_untouched(&writer->shards[s]);
        writer->cursor = s;
        pthread_mutex_unlock(&writer->mutex);
        if (!wanted) continue;
        if (*count > 0 && *count + ups_cache_shard_samples(writer->shape, s) > most) break;
        char name[LEASE_BYTES];
        bool ours, whole;
        name_lease(s, name);
        UPS_TRY(ups_leases_take(writer->leases, name, &ours, error));
        if (!ours) continue;
        UPS_TRY(adopt_if_whole(writer, s, &whole, error)); /* its lease was free because it is done */
        if (whole) {
            ups_leases_release(writer->leases, name);
            continue;
        }
        pthread_mutex_lock(&writer->mutex);
        writer->shards[s].held = true;
        list_open(writer, s, samples, count);
        pthread_mutex_unlock(&writer->mutex);
    }
    return UPS_OK;
}

/* A shard's directory is made just before the shard gets its name, so one listing tells where to look. */
ups_status ups_cache_writer_refresh(ups_cache_writer *writer, ups_error *error) {
    char *folder = NULL;
    if (asprintf(&folder, "%s/" UPS_CACHE_LATENT "/c", writer->directory) < 0) {
        return ups_writer_no_memory(writer, error);
    }
    DIR *stream = opendir(folder);
    ups_status status = stream ? UPS_OK : ups_fail_errno(error, "%s: the directory cannot be read", folder);
    for (struct dirent *entry; status == UPS_OK && (entry = readdir(stream));) {
        char *end;
        long long shard = strtoll(entry->d_name, &end, 10);
        if (end == entry->d_name || *end || shard < 0 || shard >= ups_cache_shard_count(writer->shape)) continue;
        pthread_mutex_lock(&writer->mutex);
        bool unknown = is_untouched(&writer->shards[shard]);
        pthread_mutex_unlock(&writer->mutex);
        bool whole;
        if (unknown) status = adopt_if_whole(writer, shard, &whole, error);
    }
    if (stream) closedir(stream);
    free(folder);
    return status;
}

ups_cache_writer_state ups_cache_writer_look(ups_cache_writer *writer) {
    ups_cache_writer_state state = {.samples = writer->shape.samples,
                                    .others = ups_leases_look(writer->leases).count,
                                    .extended_from = writer->extended_from};
    pthread_mutex_lock(&writer->mutex);
    state.done = writer->done;
    state.publishing = writer->publishing;
    state.publishing_processor = writer->publishing_processor;
    for (int64_t s = 0; s < ups_cache_shard_count(writer->shape); s++)
        state.untaken += is_untouched(&writer->shards[s]);
    pthread_mutex_unlock(&writer->mutex);
    return state;
}

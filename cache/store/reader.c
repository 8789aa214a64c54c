#include "cache/store/reader.h"

#include "base/arena.h"
#include "base/files.h"
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

struct ups_cache_reader {
    const ups_cache_group *group;
    int64_t shard; /* the open one; −1 */
    int fd;
    char *path;
    ups_chunk_place *places; /* of the open shard */
    uint8_t *bytes;          /* an encoded chunk */
    size_t capacity;
    void *scratch;
    ups_f16 *latents;
};

static void close_shard(ups_cache_reader *reader) {
    if (reader->fd >= 0) close(reader->fd);
    free(reader->path);
    reader->path = NULL;
    reader->fd = -1;
    reader->shard = -1;
}

void ups_cache_reader_destroy(ups_cache_reader *reader) {
    if (!reader) return;
    close_shard(reader);
    free(reader->places);
    free(reader->bytes);
    ups_aligned_free(reader->scratch);
    ups_aligned_free(reader->latents);
    free(reader);
}

ups_cache_reader *ups_cache_reader_create(const ups_cache_group *group) {
    ups_cache_reader *reader = calloc(1, sizeof *reader);
    if (!reader) return NULL;
    reader->group = group;
    reader->shard = -1;
    reader->fd = -1;
    reader->places = malloc((size_t)group->shape.samples_per_shard * sizeof *reader->places);
    if (reader->places) return reader;
    ups_cache_reader_destroy(reader);
    return NULL;
}

static ups_status open_shard(ups_cache_reader *reader, int64_t shard, ups_error *error) {
    if (reader->shard == shard) return UPS_OK;
    close_shard(reader);
    reader->path = ups_cache_shard_path(reader->group->directory, shard);
    if (!reader->path) return ups_fail(error, UPS_ERR_MEMORY, "%s: no memory", reader->group->directory);
    UPS_TRY(ups_cache_read_index(reader->group, shard, reader->places, NULL, error));
    UPS_TRY(ups_open_regular(reader->path, O_RDONLY, &reader->fd, error));
    reader->shard = shard;
    return UPS_OK;
}

ups_status ups_cache_reader_room(ups_cache_reader *reader, ups_f16 **latents, ups_error *error) {
    const ups_cache_group *group = reader->group;
    size_t bytes = ups_chunk_raw_bytes(group->shape.trajectory);
    if (!reader->latents) reader->latents = ups_aligned_alloc(64, bytes); /* written past caches */
    *latents = reader->latents;
    if (reader->latents) return UPS_OK;
    return ups_fail(error, UPS_ERR_MEMORY, "%s: no memory for a trajectory of %zu bytes", group->directory, bytes);
}

/* For a trajectory and for decoding it, once it is known that a chunk can hold so much. */
static ups_status make_room(ups_cache_reader *reader, uint64_t chunk_bytes, ups_f16 **latents, ups_error *error) {
    const ups_cache_group *group = reader->group;
    UPS_TRY(ups_cache_check_claim(group, reader->path, chunk_bytes, error));
    UPS_TRY(ups_cache_reader_room(reader, latents, error));
    if (!reader->scratch) {
        reader->scratch = ups_aligned_alloc(64, ups_chunk_scratch_bytes(group->codec, group->shape.trajectory));
    }
    return reader->scratch ? UPS_OK : ups_fail(error, UPS_ERR_MEMORY, "%s: no memory to decode it", group->directory);
}

static int commonest(const ups_latent_orders *orders) {
    int best = 0;
    for (int order = 1; order <= UPS_RANS_MAX_ORDER; order++)
        if (orders->blocks[order] > orders->blocks[best]) best = order;
    return best;
}

ups_status ups_cache_read(ups_cache_reader *reader, int64_t index, ups_cache_trajectory *trajectory, ups_error *error) {
    const ups_cache_group *group = reader->group;
    UPS_TRY(open_shard(reader, index / group->shape.samples_per_shard, error));
    ups_chunk_place place = reader->places[index % group->shape.samples_per_shard];
    *trajectory = (ups_cache_trajectory){.present = ups_chunk_present(place), .order = -1};
    if (!trajectory->present) return UPS_OK;
    UPS_TRY(make_room(reader, place.length, &trajectory->latents, error));
    trajectory->stored_bytes = place.length;
    if (place.length > reader->capacity) {
        uint8_t *larger = realloc(reader->bytes, place.length);
        if (!larger) return ups_fail(error, UPS_ERR_MEMORY, "%s: no memory", group->directory);
        reader->bytes = larger;
        reader->capacity = place.length;
    }
    UPS_TRY(ups_read_at(reader->fd, reader->path, place.offset, reader->bytes, place.length, error));
    bool finite;
    ups_latent_orders orders = {0};
    ups_status status = ups_chunk_check_place(place, reader->bytes, place.length, error);
    if (status == UPS_OK) {
        status = ups_chunk_decode(group->codec, group->shape.trajectory, reader->bytes, place.length, 0,
                                  group->shape.trajectory.times, reader->scratch, UPS_F16, reader->latents, &finite,
                                  &orders, error);
    }
    if (status != UPS_OK) {
        ups_fail_within(error, "%s, sample %lld", reader->path, (long long)index);
        return status;
    }
    if (!group->codec.portable) trajectory->order = commonest(&orders);
    return UPS_OK;
}

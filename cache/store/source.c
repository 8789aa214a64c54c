#include "cache/store/source.h"

#include "base/arena.h"
#include "cache/codec/chunk.h"
#include "cache/store/group.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct entry {
    int64_t sample; /* in the cache, skipped ones counted */
    uint32_t shard;
    ups_chunk_place place;
    const char *name;
} entry;

typedef struct latent_source {
    ups_source base;
    ups_cache_group *group;
    ups_arena *arena; /* entries, names, paths */
    entry *entries;   /* (base.count) */
} latent_source;

static const latent_source *self(const ups_source *source) {
    return (const latent_source *)source;
}

static ups_status describe(const ups_source *source, int64_t index, ups_sample *sample, ups_error *error) {
    const latent_source *s = self(source);
    const ups_cache_group *g = s->group;
    const entry *e = &s->entries[index];
    ups_chunk_shape shape = g->shape.trajectory;
    *sample = (ups_sample){
        .name = e->name,
        .times = shape.times,
        .channels = shape.dim,
        .dims = 1,
        .grid = {shape.tokens, 1, 1},
        .order = UPS_CHANNELS_LAST,
        .dtype = UPS_F16,
        .time = g->time + (g->time_per_sample ? e->sample * shape.times : 0),
        .parameters = g->parameters ? g->parameters + e->sample * g->parameter_count : NULL,
    };
    return UPS_OK;
}

static ups_status extents(const ups_source *source, int64_t index, ups_frames frames, ups_extent *list, int64_t *count,
                          ups_error *error) {
    const entry *e = &self(source)->entries[index];
    list[0] = (ups_extent){e->shard, e->place.offset, e->place.length};
    *count = 1;
    return UPS_OK;
}

static ups_status decode_as(const ups_source *source, int64_t index, ups_frames frames, const ups_piece *pieces,
                            int64_t count, void *scratch, ups_dtype dtype, void *out, bool *finite, ups_error *error) {
    const latent_source *s = self(source);
    const entry *e = &s->entries[index];
    ups_status status =
        count == 1 ? ups_chunk_check_place(e->place, pieces[0].bytes, pieces[0].length, error)
                   : ups_fail(error, UPS_ERR_ARGUMENT, "a latent trajectory is one piece, not %lld", (long long)count);
    if (status == UPS_OK) {
        status = ups_chunk_decode(s->group->codec, s->group->shape.trajectory, pieces[0].bytes, pieces[0].length,
                                  frames.start, frames.count, scratch, dtype, out, finite, NULL, error);
    }
    if (status != UPS_OK) {
        ups_fail_within(error, "%s, sample %lld", source->files[e->shard], (long long)e->sample);
    }
    return status;
}

static ups_status decode(const ups_source *source, int64_t index, ups_frames frames, const ups_piece *pieces,
                         int64_t count, void *scratch, void *out, ups_error *error) {
    bool finite;
    return decode_as(source, index, frames, pieces, count, scratch, UPS_F16, out, &finite, error);
}

static ups_status decode_f32(const ups_source *source, int64_t index, ups_frames frames, const ups_piece *pieces,
                             int64_t count, void *scratch, float *out, bool *finite, ups_error *error) {
    return decode_as(source, index, frames, pieces, count, scratch, UPS_F32, out, finite, error);
}

static void close_source(ups_source *source) {
    latent_source *s = (latent_source *)source;
    ups_cache_group_close(s->group);
    ups_arena_destroy(s->arena);
    free(s);
}

static const ups_source_class latent_class = {
    .kind = "latent",
    .describe = describe,
    .extents = extents,
    .decode = decode,
    .decode_f32 = decode_f32,
    .close = close_source,
};

/* Reads the index of every shard; fills entries, files, count and limits. */
static ups_status read_indexes(latent_source *s, ups_error *error) {
    ups_cache_shape shape = s->group->shape;
    int64_t shards = ups_cache_shard_count(shape);
    const char **files = UPS_ARENA_ARRAY(s->arena, const char *, shards);
    ups_chunk_place *places = UPS_ARENA_ARRAY(s->arena, ups_chunk_place, shape.samples_per_shard);
    s->entries = UPS_ARENA_ARRAY(s->arena, entry, shape.samples);
    s->base.files = files;
    s->base.file_count = shards;
    uint64_t largest = 0;
    for (int64_t shard = 0; shard < shards; shard++) {
        int64_t first = shard * shape.samples_per_shard;
        char *path = ups_cache_shard_path(s->group->directory, shard);
        if (!path) return ups_fail(error, UPS_ERR_MEMORY, "%s: no memory", s->group->directory);
        files[shard] = ups_arena_strdup(s->arena, path);
        free(path);
        UPS_TRY(ups_cache_read_index(s->group, shard, places, NULL, error));
        for (int64_t i = 0; i < ups_cache_shard_samples(shape, shard); i++) {
            if (!ups_chunk_present(places[i])) continue;
            s->entries[s->base.count++] = (entry){first + i, (uint32_t)shard, places[i],
                                                  ups_arena_printf(s->arena, "latent[%lld]", (long long)(first + i))};
            if (places[i].length > largest) largest = places[i].length;
            UPS_TRY(ups_cache_check_claim(s->group, files[shard], places[i].length, error));
        }
    }
    s->base.limits = (ups_source_limits){
        .extents = 1,
        .stored_bytes = largest,
        .decoded_bytes = ups_chunk_raw_bytes(shape.trajectory),
        .scratch_bytes = ups_chunk_scratch_bytes(s->group->codec, shape.trajectory),
    };
    return UPS_OK;
}

ups_status ups_cache_source_open(const char *directory, const ups_fingerprint *expected, ups_source **source,
                                 ups_error *error) {
    *source = NULL;
    ups_cache_group *group;
    UPS_TRY(ups_cache_group_open(directory, &group, error));
    ups_status status = expected ? ups_cache_check_place(group, error) : UPS_OK;
    if (status == UPS_OK && expected) {
        status = ups_fingerprint_compare(expected, &group->fingerprint, directory, error);
    }
    if (status == UPS_OK && !group->complete) {
        status = ups_fail(
            error, UPS_ERR_FORMAT,
            "%s: the build of this cache did not finish; run `ups cache build` again, it goes on where it stopped",
            directory);
    }
    latent_source *s = status == UPS_OK ? calloc(1, sizeof *s) : NULL;
    if (s) s->arena = ups_arena_create(0);
    if (status == UPS_OK && (!s || !s->arena)) status = ups_fail(error, UPS_ERR_MEMORY, "%s: no memory", directory);
    if (status != UPS_OK) {
        free(s);
        ups_cache_group_close(group);
        return status;
    }
    s->group = group;
    s->base.class = &latent_class;
    s->base.channels = group->shape.trajectory.dim;
    s->base.parameter_count = group->parameter_count;
    s->base.parameter_names = group->parameter_names;
    status = read_indexes(s, error);
    if (status == UPS_OK && s->base.count == 0) {
        status = ups_fail(error, UPS_ERR_FORMAT, "%s: every sample of this cache was skipped; there is nothing to read",
                          directory);
    }
    if (status != UPS_OK) {
        close_source(&s->base);
        return status;
    }
    *source = &s->base;
    return UPS_OK;
}

const json_t *ups_cache_source_attributes(const ups_source *source) {
    return self(source)->group->attributes;
}

int64_t ups_cache_source_origin(const ups_source *source, int64_t sample) {
    const latent_source *s = self(source);
    return s->group->source_samples[s->entries[sample].sample];
}

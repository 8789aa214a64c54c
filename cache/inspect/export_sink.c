#include "cache/inspect/export.h"

#include "base/system/cancel.h"
#include "base/system/threads.h"
#include "cache/inspect/export_sink.h"
#include <stdlib.h>
#include <string.h>

#define F16_NAN 0x7e00

/* As many rows as there are threads are decoded together, then written in order. */
typedef struct lot {
    const ups_export_sink *to;
    int64_t first;
    ups_cache_reader **readers;         /* (threads): row first + k has reader k, whose buffer it lies in */
    ups_cache_trajectory *trajectories; /* (threads) */
} lot;

static ups_status decode_row(void *context, int64_t index, int thread, ups_error *error) {
    lot *rows = context;
    const ups_export_sink *to = rows->to;
    const size_t count = ups_chunk_raw_bytes(to->group->shape.trajectory) / sizeof(ups_f16);
    ups_cache_trajectory *trajectory = &rows->trajectories[index];
    UPS_TRY(ups_cache_read(rows->readers[index], ups_export_index(to, rows->first + index), trajectory, error));
    if (trajectory->present) return UPS_OK;
    UPS_TRY(ups_cache_reader_room(rows->readers[index], &trajectory->latents, error));
    for (size_t k = 0; k < count; k++) trajectory->latents[k] = F16_NAN;
    return UPS_OK;
}

static ups_status export_lots(ups_export_sink *to, ups_pool *pool, lot *rows, ups_error *error) {
    const ups_export_request *request = to->request;
    const int64_t most = ups_pool_threads(pool);
    for (int64_t done = 0; done < to->samples;) {
        if (ups_cancel_requested())
            return ups_fail(error, UPS_ERR_CANCELLED, "the export was interrupted; nothing was left at %s",
                            request->path);
        const int64_t count = to->samples - done < most ? to->samples - done : most;
        rows->first = done;
        UPS_TRY(ups_pool_run(pool, count, decode_row, rows, error));
        for (int64_t k = 0; k < count; k++) UPS_TRY(to->write(to, done + k, &rows->trajectories[k], error));
        done += count;
        if (request->progress) request->progress(request->context, done, to->samples);
    }
    return UPS_OK;
}

ups_status ups_export_each(ups_export_sink *to, ups_error *error) {
    ups_pool *pool = ups_pool_create(0);
    const int threads = pool ? ups_pool_threads(pool) : 0;
    lot rows = {.to = to,
                .readers = calloc((size_t)threads + 1, sizeof(ups_cache_reader *)),
                .trajectories = calloc((size_t)threads + 1, sizeof(ups_cache_trajectory))};
    bool ready = pool && rows.readers && rows.trajectories;
    for (int t = 0; ready && t < threads; t++) ready = (rows.readers[t] = ups_cache_reader_create(to->group)) != NULL;
    ups_status status = ready ? export_lots(to, pool, &rows, error)
                              : ups_fail(error, UPS_ERR_MEMORY, "%s: no memory to export it", to->group->directory);
    for (int t = 0; rows.readers && t < threads; t++) ups_cache_reader_destroy(rows.readers[t]);
    free(rows.readers);
    free(rows.trajectories);
    ups_pool_destroy(pool);
    return status;
}

void *ups_export_rows(const ups_export_sink *to, const void *values, size_t row_bytes) {
    char *rows = malloc((size_t)to->samples * row_bytes + 1);
    for (int64_t i = 0; rows && i < to->samples; i++) {
        memcpy(rows + (size_t)i * row_bytes, (const char *)values + (size_t)ups_export_index(to, i) * row_bytes,
               row_bytes);
    }
    return rows;
}

/* ---- NPY, format 1.0 (numpy.lib.format) ---- */

static ups_status write_npy(ups_export_sink *to, int64_t row, ups_cache_trajectory *trajectory, ups_error *error) {
    return ups_publish_append(to->publication, trajectory->latents, ups_chunk_raw_bytes(to->group->shape.trajectory),
                              error);
}

static ups_status write_npy_header(ups_export_sink *to, ups_error *error) {
    enum { PREFIX = 10, ALIGNMENT = 64 };
    char header[4 * ALIGNMENT], dictionary[3 * ALIGNMENT];
    ups_cache_shape shape = to->group->shape;
    int used = snprintf(dictionary, sizeof dictionary,
                        "{'descr': '<f2', 'fortran_order': False, 'shape': (%lld, %lld, %lld, %lld), }",
                        (long long)to->samples, (long long)shape.trajectory.times, (long long)shape.trajectory.tokens,
                        (long long)shape.trajectory.dim);
    size_t total = ((size_t)used + 1 + PREFIX + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    size_t length = total - PREFIX;
    memset(header, ' ', total);
    memcpy(header, "\x93NUMPY\x01\x00", 8);
    header[8] = (char)(length & 255);
    header[9] = (char)(length >> 8);
    memcpy(header + PREFIX, dictionary, (size_t)used);
    header[total - 1] = '\n';
    return ups_publish_append(to->publication, header, total, error);
}

static ups_status export_npy(ups_export_sink *to, ups_error *error) {
    to->write = write_npy;
    UPS_TRY(write_npy_header(to, error));
    return ups_export_each(to, error);
}

/* ---- all of them ---- */

static ups_status check_request(const ups_cache_group *group, const ups_export_request *request, ups_error *error) {
    if (!group->complete) {
        return ups_fail(error, UPS_ERR_FORMAT,
                        "%s: the build of this cache did not finish; run `ups cache build` again before exporting it",
                        group->directory);
    }
    for (int64_t i = 0; request->samples && i < request->sample_count; i++) {
        if (request->samples[i] >= 0 && request->samples[i] < group->shape.samples) continue;
        return ups_fail(error, UPS_ERR_ARGUMENT, "%s: there is no sample %lld; the last is %lld", group->directory,
                        (long long)request->samples[i], (long long)group->shape.samples - 1);
    }
    return UPS_OK;
}

/* A file, under a temporary name until it is whole. */
static ups_status export_file(ups_export_sink *to, ups_error *error) {
    ups_remove_partials_of(to->request->path);
    UPS_TRY(ups_publish_begin(to->request->path, &to->publication, error));
    ups_status status = to->request->format == UPS_EXPORT_HDF5 ? ups_export_hdf5(to, error) : export_npy(to, error);
    if (status == UPS_OK) return ups_publish_commit(to->publication, error);
    ups_publish_abandon(to->publication);
    return status;
}

ups_status ups_cache_export(const char *directory, const ups_export_request *request, ups_error *error) {
    ups_cache_group *group;
    UPS_TRY(ups_cache_group_open(directory, &group, error));
    ups_export_sink to = {
        .group = group, .request = request, .samples = request->samples ? request->sample_count : group->shape.samples};
    ups_status status = check_request(group, request, error);
    if (status == UPS_OK) {
        status = request->format == UPS_EXPORT_ZARR ? ups_export_zarr(&to, error) : export_file(&to, error);
    }
    ups_cache_group_close(group);
    return status;
}

#include "tools/rollout_file.h"

#include "base/files.h"
#include "pipeline/hdf5/driver.h"
#include "pipeline/hdf5/writing.h"
#include "pipeline/layouts/layouts.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { MAXIMUM_RANK = UPS_MAX_GRID_DIMS + 2 };
static const char *const axis_names[UPS_MAX_GRID_DIMS] = {"x", "y", "z"};

/* ---- one thing at a time: each says whether it was written ----------------------------------------------------- */

static hid_t create_dataset(hid_t place, const char *name, int rank, const int64_t *shape) {
    hsize_t size[MAXIMUM_RANK];
    for (int a = 0; a < rank; a++) size[a] = (hsize_t)shape[a];
    hid_t space = H5Screate_simple(rank, size, NULL);
    hid_t creation = H5Pcreate(H5P_DATASET_CREATE), set = H5I_INVALID_HID;
    if (H5Pset_obj_track_times(creation, false) >= 0) /* the same prediction makes the same bytes */
        set = H5Dcreate2(place, name, H5T_IEEE_F32LE, space, H5P_DEFAULT, creation, H5P_DEFAULT);
    H5Pclose(creation);
    H5Sclose(space);
    return set;
}

static bool write_dataset(hid_t place, const char *name, int rank, const int64_t *shape, hid_t type,
                          const void *values) {
    hid_t set = create_dataset(place, name, rank, shape);
    if (set < 0) return false;
    bool written = H5Dwrite(set, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >= 0;
    return H5Dclose(set) >= 0 && written;
}

static bool write_attribute(hid_t place, const char *name, hid_t type, const void *value) {
    hid_t space = H5Screate(H5S_SCALAR);
    hid_t attribute = H5Acreate2(place, name, type, space, H5P_DEFAULT, H5P_DEFAULT);
    bool written = attribute >= 0 && H5Awrite(attribute, type, value) >= 0;
    if (attribute >= 0 && H5Aclose(attribute) < 0) written = false;
    H5Sclose(space);
    return written;
}

/* Of variable length: h5py reads it as str. */
static bool write_text(hid_t place, const char *name, const char *text) {
    hid_t type = H5Tcopy(H5T_C_S1);
    bool written = H5Tset_size(type, H5T_VARIABLE) >= 0 && H5Tset_cset(type, H5T_CSET_UTF8) >= 0 &&
                   write_attribute(place, name, type, &text);
    H5Tclose(type);
    return written;
}

static bool write_parameters(hid_t place, const ups_rollouts *rollouts, const ups_rollout *rollout) {
    const ups_source *source = rollouts->task->source;
    bool fine = true;
    for (int p = 0; p < source->parameter_count && fine; p++) {
        double value = rollout->sample.parameters[p];
        if (isfinite(value)) fine = write_attribute(place, source->parameter_names[p], H5T_NATIVE_DOUBLE, &value);
    }
    return fine;
}

/* In words that the layouts read back to the same `periodic`. */
static const char *boundary_of(const ups_rollouts *rollouts, const ups_rollout_origin *origin,
                               const ups_rollout *rollout) {
    if (rollout->sample.periodic) return "periodic";
    const char *text = ups_layout_boundary(rollouts->task->source, origin->samples[rollout->position]);
    return strcasecmp(text, "periodic") == 0 ? "not periodic" : text;
}

static bool write_description(hid_t place, const ups_rollouts *rollouts, const ups_rollout_origin *origin,
                              const ups_rollout *rollout) {
    return write_parameters(place, rollouts, rollout) &&
           write_text(place, "bc", boundary_of(rollouts, origin, rollout));
}

static bool write_coordinates(hid_t place, const char *const names[UPS_MAX_GRID_DIMS], const ups_rollouts *rollouts) {
    bool fine = true;
    for (int a = 0; a < rollouts->task->geometry.dims && fine; a++) {
        int64_t count = rollouts->grid[a];
        double *values = malloc((size_t)count * sizeof *values);
        if (!values) return false;
        for (int64_t i = 0; i < count; i++) values[i] = ups_rollouts_coordinate(rollouts, a, i);
        fine = write_dataset(place, names[a], 1, &count, H5T_NATIVE_DOUBLE, values);
        free(values);
    }
    return fine;
}

/* A `tensor` file has one time grid, one boundary and one set of PDE parameters. Trajectories from several files may
 * differ. */
static bool fit_one_tensor(const ups_rollouts *rollouts, const ups_rollout_origin *origin) {
    const ups_sample *geometry = &rollouts->task->geometry;
    bool fit = geometry->dims == 1 && geometry->channels == 1;
    const ups_rollout *first = &rollouts->list[0];
    for (int64_t i = 1; i < rollouts->count && fit; i++) {
        const ups_rollout *other = &rollouts->list[i];
        size_t parameters = (size_t)rollouts->task->source->parameter_count * sizeof *first->sample.parameters;
        fit = strcmp(boundary_of(rollouts, origin, first), boundary_of(rollouts, origin, other)) == 0 &&
              memcmp(first->time, other->time, (size_t)rollouts->frames * sizeof *first->time) == 0 &&
              (!parameters || memcmp(first->sample.parameters, other->sample.parameters, parameters) == 0);
    }
    return fit;
}

/* ---- the two layouts ------------------------------------------------------------------------------------------- */

/* Trajectories one after the other into a dataset whose first axis counts them. */
static bool write_stacked(hid_t file, const char *name, const ups_rollouts *rollouts, int64_t frames, bool truth) {
    const int64_t shape[3] = {rollouts->count, frames, rollouts->points};
    hid_t set = create_dataset(file, name, 3, shape);
    bool fine = set >= 0;
    for (int64_t i = 0; i < rollouts->count && fine; i++) {
        hsize_t start[3] = {(hsize_t)i, 0, 0}, count[3] = {1, (hsize_t)frames, (hsize_t)rollouts->points};
        hid_t space = H5Dget_space(set), memory = H5Screate_simple(3, count, NULL);
        const float *values = truth ? rollouts->list[i].truth : rollouts->list[i].prediction;
        fine = H5Sselect_hyperslab(space, H5S_SELECT_SET, start, NULL, count, NULL) >= 0 &&
               H5Dwrite(set, H5T_NATIVE_FLOAT, memory, space, H5P_DEFAULT, values) >= 0;
        H5Sclose(memory);
        H5Sclose(space);
    }
    if (set >= 0 && H5Dclose(set) < 0) fine = false;
    return fine;
}

static bool write_tensor(hid_t file, const ups_rollouts *rollouts, const ups_rollout_origin *origin) {
    static const char *const names[UPS_MAX_GRID_DIMS] = {"x-coordinate", NULL, NULL};
    bool fine = write_stacked(file, "tensor", rollouts, rollouts->frames, false);
    if (rollouts->truth_frames > 0) fine = fine && write_stacked(file, "truth", rollouts, rollouts->truth_frames, true);
    fine = fine && write_coordinates(file, names, rollouts);
    fine = fine && write_dataset(file, "t-coordinate", 1, &rollouts->frames, H5T_NATIVE_DOUBLE, rollouts->list[0].time);
    return fine && write_description(file, rollouts, origin, &rollouts->list[0]);
}

static bool write_seed(hid_t group, const ups_rollouts *rollouts, const ups_rollout_origin *origin,
                       const ups_rollout *rollout) {
    const ups_sample *geometry = &rollouts->task->geometry;
    int64_t shape[MAXIMUM_RANK] = {rollouts->frames};
    int rank = 1;
    for (int a = 0; a < geometry->dims; a++) shape[rank++] = rollouts->grid[a];
    shape[rank++] = geometry->channels;
    bool fine = write_dataset(group, "data", rank, shape, H5T_NATIVE_FLOAT, rollout->prediction);
    shape[0] = rollouts->truth_frames;
    if (rollout->truth) fine = fine && write_dataset(group, "truth", rank, shape, H5T_NATIVE_FLOAT, rollout->truth);
    hid_t grid = H5Gcreate2(group, "grid", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    if (grid < 0) return false;
    fine = fine && write_coordinates(grid, axis_names, rollouts);
    fine = fine && write_dataset(grid, "t", 1, &rollouts->frames, H5T_NATIVE_DOUBLE, rollout->time);
    if (H5Gclose(grid) < 0) fine = false;
    return fine && write_description(group, rollouts, origin, rollout) &&
           write_text(group, "ups.sample", rollout->sample.name);
}

static bool write_seed_groups(hid_t file, const ups_rollouts *rollouts, const ups_rollout_origin *origin) {
    bool fine = true;
    for (int64_t i = 0; i < rollouts->count && fine; i++) {
        char name[32];
        snprintf(name, sizeof name, "%04lld", (long long)i);
        hid_t group = H5Gcreate2(file, name, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
        fine = group >= 0 && write_seed(group, rollouts, origin, &rollouts->list[i]);
        if (group >= 0 && H5Gclose(group) < 0) fine = false;
    }
    return fine;
}

/* ---- the file -------------------------------------------------------------------------------------------------- */

/* "a, b, c": names of the fields, or of the samples that were rolled out. Free with free(). */
static char *join(const ups_rollouts *rollouts, bool samples) {
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    if (!out) return NULL;
    int64_t count = samples ? rollouts->count : rollouts->task->geometry.channels;
    for (int64_t i = 0; i < count; i++) {
        const char *name = samples ? rollouts->list[i].sample.name : rollouts->task->source->channel_names[i];
        fprintf(out, "%s%s", i ? ", " : "", name);
    }
    if (fclose(out) == 0) return text;
    free(text);
    return NULL;
}

/* Of a model that lies in no run there is nothing to be told. */
static bool write_training(hid_t file, const json_t *training) {
    const char *run = json_string_value(json_object_get(training, "run"));
    const char *config = json_string_value(json_object_get(training, "config"));
    if (!run || !config) return true;
    return write_text(file, "ups.training_run", run) && write_text(file, "ups.training_config", config);
}

static bool write_origin(hid_t file, const ups_rollouts *rollouts, const ups_rollout_origin *origin) {
    char *fields = join(rollouts, false), *samples = join(rollouts, true);
    bool fine = fields && samples && write_text(file, "ups.task", rollouts->task->name) &&
                write_text(file, "ups.fields", fields) && write_text(file, "ups.split", origin->split) &&
                write_text(file, "ups.samples", samples) &&
                write_text(file, "ups.autoencoder", origin->files->autoencoder_hash) &&
                write_text(file, "ups.operator", origin->files->operator_hash) &&
                write_text(file, "ups.config", origin->config) && write_training(file, origin->training);
    free(fields);
    free(samples);
    return fine;
}

/* The library is not thread-safe: a loader may be reading through it. */
static ups_status write_file(const char *temporary, const char *path, const ups_rollouts *rollouts,
                             const ups_rollout_origin *origin, ups_error *error) {
    ups_hdf5_enter_to_write();
    hid_t file = H5Fcreate(temporary, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    bool fine = file >= 0 && write_origin(file, rollouts, origin) &&
                (fit_one_tensor(rollouts, origin) ? write_tensor(file, rollouts, origin)
                                                  : write_seed_groups(file, rollouts, origin));
    ups_status status = fine ? UPS_OK : ups_hdf5_write_failed(path, "the file", error);
    if (file >= 0 && H5Fclose(file) < 0 && status == UPS_OK) status = ups_hdf5_write_failed(path, "the file", error);
    ups_hdf5_leave();
    return status;
}

ups_status ups_rollout_file_write(const char *path, const ups_rollouts *rollouts, const ups_rollout_origin *origin,
                                  ups_error *error) {
    ups_publication *publication = NULL;
    ups_remove_partials_of(path);
    UPS_TRY(ups_publish_begin(path, &publication, error));
    ups_status status = write_file(ups_publish_temporary(publication), path, rollouts, origin, error);
    if (status == UPS_OK) return ups_publish_commit(publication, error);
    ups_publish_abandon(publication);
    return status;
}

#include "tools/rollout_file.h"

#include "base/files.h"
#include "pipeline/hdf5/driver.h"
#include "pipeline/hdf5/writing.h"
#include "tools/rollout_facts.h"
#include "train/objectives/field.h"
#include <hdf5_hl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAXIMUM_RANK = UPS_MAX_GRID_DIMS + 2, AXIS_NAME = 96 };

/* ---- one thing at a time: each says whether it was written ----------------------------------------------------- */

static hid_t create_typed(hid_t place, const char *name, int rank, const int64_t *shape, hid_t type) {
    hsize_t size[MAXIMUM_RANK];
    for (int a = 0; a < rank; a++) size[a] = (hsize_t)shape[a];
    hid_t space = H5Screate_simple(rank, size, NULL);
    hid_t creation = H5Pcreate(H5P_DATASET_CREATE), set = H5I_INVALID_HID;
    if (H5Pset_obj_track_times(creation, false) >= 0) /* the same prediction makes the same bytes */
        set = H5Dcreate2(place, name, type, space, H5P_DEFAULT, creation, H5P_DEFAULT);
    H5Pclose(creation);
    H5Sclose(space);
    return set;
}

static hid_t create_dataset(hid_t place, const char *name, int rank, const int64_t *shape) {
    return create_typed(place, name, rank, shape, H5T_IEEE_F32LE);
}

static bool write_and_close(hid_t set, hid_t type, const void *values) {
    if (set < 0) return false;
    bool written = H5Dwrite(set, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >= 0;
    return H5Dclose(set) >= 0 && written;
}

static bool write_dataset(hid_t place, const char *name, int rank, const int64_t *shape, hid_t type,
                          const void *values) {
    return write_and_close(create_dataset(place, name, rank, shape), type, values);
}

/* Coordinates along axis `axis`: of a uniform grid in single precision, as PDEBench's are; the data's own as they are.
 */
static bool write_places(hid_t place, const char *name, const ups_rollouts *rollouts, int axis) {
    double *values = ups_rollout_coordinates(rollouts, axis);
    const hid_t type = rollouts->centres[axis] ? H5T_IEEE_F64LE : H5T_IEEE_F32LE;
    bool fine =
        values && write_and_close(create_typed(place, name, 1, &rollouts->grid[axis], type), H5T_NATIVE_DOUBLE, values);
    free(values);
    return fine;
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

/* ---- names of dimensions ---------------------------------------------------------------------------------------- */

/* Whether an axis of this name would hide something else of the file. */
static bool is_taken(char (*names)[AXIS_NAME], int count, const char *name) {
    static const char *const others[] = {".",     "data",   "truth",      "grid",         "t",           "t_truth",
                                         "field", "tensor", "trajectory", "x-coordinate", "t-coordinate"};
    bool taken = false;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) taken |= strcmp(others[i], name) == 0;
    for (int i = 0; i < count; i++) taken |= strcmp(names[i], name) == 0;
    return taken;
}

/* What the data call the grid's axes, so that each is an object of its own in a group. */
static void name_axes(const ups_rollouts *rollouts, char names[UPS_MAX_GRID_DIMS][AXIS_NAME]) {
    static const char *const usual[UPS_MAX_GRID_DIMS] = {"x", "y", "z"};
    const ups_sample *geometry = &rollouts->task->geometry;
    for (int a = 0; a < geometry->dims; a++) {
        const char *name = geometry->axis_names[a];
        snprintf(names[a], AXIS_NAME - UPS_MAX_GRID_DIMS, "%s", name && name[0] ? name : usual[a]);
        for (char *c = names[a]; *c; c++) *c = *c == '/' ? '_' : *c;
        while (is_taken(names, a, names[a])) strcat(names[a], "_");
    }
}

/* `place`/NAME, a list of coordinates that was written or not, becomes a dimension. −1 where it failed. */
static hid_t make_scale(hid_t place, const char *name, bool written) {
    hid_t scale = written ? H5Dopen2(place, name, H5P_DEFAULT) : H5I_INVALID_HID;
    if (scale >= 0 && H5DSset_scale(scale, name) >= 0) return scale;
    if (scale >= 0) H5Dclose(scale);
    return H5I_INVALID_HID;
}

/* The names of the fields, along the last axis of `data`. */
static hid_t make_field_scale(hid_t place, const ups_rollouts *rollouts) {
    hsize_t count = (hsize_t)rollouts->task->geometry.channels;
    hid_t space = H5Screate_simple(1, &count, NULL), type = H5Tcopy(H5T_C_S1);
    hid_t creation = H5Pcreate(H5P_DATASET_CREATE), scale = H5I_INVALID_HID;
    bool fine = H5Tset_size(type, H5T_VARIABLE) >= 0 && H5Tset_cset(type, H5T_CSET_UTF8) >= 0 &&
                H5Pset_obj_track_times(creation, false) >= 0;
    if (fine) scale = H5Dcreate2(place, "field", type, space, H5P_DEFAULT, creation, H5P_DEFAULT);
    fine = scale >= 0 &&
           H5Dwrite(scale, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, rollouts->task->source->channel_names) >= 0 &&
           H5DSset_scale(scale, "field") >= 0;
    H5Pclose(creation);
    H5Tclose(type);
    H5Sclose(space);
    if (fine) return scale;
    if (scale >= 0) H5Dclose(scale);
    return H5I_INVALID_HID;
}

/* Gives axis `axis` of place/NAME the dimension's name and coordinates. */
static bool attach(hid_t place, const char *name, int axis, hid_t scale, const char *label) {
    hid_t set = H5Dopen2(place, name, H5P_DEFAULT);
    bool fine =
        set >= 0 && H5DSattach_scale(set, scale, (unsigned)axis) >= 0 && H5DSset_label(set, (unsigned)axis, label) >= 0;
    if (set >= 0 && H5Dclose(set) < 0) fine = false;
    return fine;
}

/* One dimension of `first`, and of `second` where that is not NULL: `place`/NAME, which was written or not. */
static bool name_axis(hid_t place, const char *first, const char *second, int axis, const char *name, bool written) {
    hid_t scale = make_scale(place, name, written);
    bool fine =
        scale >= 0 && attach(place, first, axis, scale, name) && (!second || attach(place, second, axis, scale, name));
    if (scale >= 0 && H5Dclose(scale) < 0) fine = false;
    return fine;
}

static bool write_numbers(hid_t place, const char *name, int64_t count, const double *values) {
    return write_dataset(place, name, 1, &count, H5T_NATIVE_DOUBLE, values);
}

/* Time of a dataset and of its truth, which has a dimension of its own, t_truth, where it is shorter. */
static bool name_times(hid_t place, const char *data, int axis, const ups_rollouts *rollouts, const double *time) {
    int64_t frames = rollouts->frames, known = rollouts->truth_frames;
    const char *also = known == frames ? "truth" : NULL;
    if (!name_axis(place, data, also, axis, "t", write_numbers(place, "t", frames, time))) return false;
    if (known == frames || known == 0) return true;
    return name_axis(place, "truth", NULL, axis, "t_truth", write_numbers(place, "t_truth", known, time));
}

static bool name_grid(hid_t place, const char *data, int first, const ups_rollouts *rollouts) {
    const char *also = rollouts->truth_frames > 0 ? "truth" : NULL;
    char names[UPS_MAX_GRID_DIMS][AXIS_NAME];
    bool fine = true;
    name_axes(rollouts, names);
    for (int a = 0; a < rollouts->task->geometry.dims && fine; a++)
        fine = name_axis(place, data, also, first + a, names[a], write_places(place, names[a], rollouts, a));
    return fine;
}

static bool name_fields(hid_t place, int axis, const ups_rollouts *rollouts) {
    hid_t scale = make_field_scale(place, rollouts);
    bool fine = scale >= 0 && attach(place, "data", axis, scale, "field") &&
                (rollouts->truth_frames == 0 || attach(place, "truth", axis, scale, "field"));
    if (scale >= 0 && H5Dclose(scale) < 0) fine = false;
    return fine;
}

/* Trajectories by their places in the task's data. */
static bool name_trajectories(hid_t file, const ups_rollouts *rollouts, const ups_rollout_origin *origin) {
    double *places = malloc((size_t)rollouts->count * sizeof *places);
    for (int64_t i = 0; places && i < rollouts->count; i++)
        places[i] = (double)origin->samples[rollouts->list[i].position];
    bool fine = places && name_axis(file, "tensor", rollouts->truth_frames > 0 ? "truth" : NULL, 0, "trajectory",
                                    write_numbers(file, "trajectory", rollouts->count, places));
    free(places);
    return fine;
}

/* ---- what is told of them ---------------------------------------------------------------------------------------- */

static bool write_parameters(hid_t place, const ups_rollouts *rollouts, const ups_rollout *rollout) {
    const ups_source *source = rollouts->task->source;
    bool fine = true;
    for (int p = 0; p < source->parameter_count && fine; p++) {
        double value = rollout->sample.parameters[p];
        if (isfinite(value)) fine = write_attribute(place, source->parameter_names[p], H5T_NATIVE_DOUBLE, &value);
    }
    return fine;
}

static bool write_description(hid_t place, const ups_rollouts *rollouts, const ups_rollout_origin *origin,
                              const ups_rollout *rollout) {
    return write_parameters(place, rollouts, rollout) &&
           write_text(place, "bc", ups_rollout_boundary(rollouts, origin, rollout));
}

static bool write_grid(hid_t place, const ups_rollouts *rollouts) {
    char names[UPS_MAX_GRID_DIMS][AXIS_NAME];
    bool fine = true;
    name_axes(rollouts, names);
    for (int a = 0; a < rollouts->task->geometry.dims && fine; a++) fine = write_places(place, names[a], rollouts, a);
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
        fit =
            strcmp(ups_rollout_boundary(rollouts, origin, first), ups_rollout_boundary(rollouts, origin, other)) == 0 &&
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
    bool fine = write_stacked(file, "tensor", rollouts, rollouts->frames, false);
    if (rollouts->truth_frames > 0) fine = fine && write_stacked(file, "truth", rollouts, rollouts->truth_frames, true);
    fine = fine && write_places(file, "x-coordinate", rollouts, 0);
    fine = fine && write_dataset(file, "t-coordinate", 1, &rollouts->frames, H5T_NATIVE_DOUBLE, rollouts->list[0].time);
    return fine && name_trajectories(file, rollouts, origin) &&
           name_times(file, "tensor", 1, rollouts, rollouts->list[0].time) && name_grid(file, "tensor", 2, rollouts) &&
           write_description(file, rollouts, origin, &rollouts->list[0]);
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
    fine = fine && write_grid(grid, rollouts);
    fine = fine && write_dataset(grid, "t", 1, &rollouts->frames, H5T_NATIVE_DOUBLE, rollout->time);
    if (H5Gclose(grid) < 0) fine = false;
    fine = fine && name_times(group, "data", 0, rollouts, rollout->time) && name_grid(group, "data", 1, rollouts) &&
           name_fields(group, rank - 1, rollouts);
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

/* ---- points that lie anywhere ---------------------------------------------------------------------------------- */

static bool have_own_points(const ups_rollouts *rollouts) {
    return rollouts->list[0].sample.points->own;
}

static bool have_own_times(const ups_rollouts *rollouts) {
    const size_t bytes = (size_t)rollouts->frames * sizeof *rollouts->list[0].time;
    bool own = false;
    for (int64_t i = 1; i < rollouts->count; i++)
        own |= memcmp(rollouts->list[0].time, rollouts->list[i].time, bytes) != 0;
    return own;
}

static bool any_moves(const ups_rollouts *rollouts) {
    bool any = false;
    for (int64_t i = 0; i < rollouts->count; i++) any |= rollouts->list[i].sample.points->moving;
    return any;
}

/* Where any points move: (sample, time, point, d), by the fields that tell them. */
static bool write_moving_places(hid_t place, const ups_rollouts *rollouts, bool truth) {
    const ups_task *task = rollouts->task;
    const int64_t frames = truth ? rollouts->truth_frames : rollouts->frames, channels = task->geometry.channels;
    const int64_t dims = rollouts->list[0].sample.points->dims, points = rollouts->points;
    const int64_t shape[4] = {rollouts->count, frames, points, dims};
    float *places = malloc((size_t)((rollouts->count * frames + 1) * points * dims) * sizeof *places), *to = places;
    if (!places) return false;
    float *frame = places + rollouts->count * frames * points * dims;
    int64_t channel[UPS_MAX_POINT_DIMS] = {0};
    for (int64_t a = 0; a < dims; a++) channel[a] = ups_field_channel(task, rollouts->list[0].sample.points->names[a]);
    for (int64_t i = 0; i < rollouts->count; i++) {
        const ups_rollout *rollout = &rollouts->list[i];
        const ups_points *of = rollout->sample.points;
        const float *from = truth ? rollout->truth : rollout->prediction;
        for (int64_t f = 0; f < frames; f++, to += points * dims, from += points * channels) {
            for (int64_t k = 0; k < points; k++)
                for (int64_t a = 0; a < dims; a++) frame[k * dims + a] = from[k * channels + channel[a]];
            ups_points_unsort(of, dims, sizeof *to, frame, to);
        }
    }
    const bool fine = write_dataset(place, "points", 4, shape, H5T_NATIVE_FLOAT, places);
    free(places);
    return fine;
}

/* (point, d), or (sample, point, d) where they differ; in the order of the data's file, as all that follows. */
static bool write_points_places(hid_t file, const ups_rollouts *rollouts) {
    if (any_moves(rollouts)) return write_moving_places(file, rollouts, false);
    const ups_points *points = rollouts->list[0].sample.points;
    const bool own = have_own_points(rollouts);
    const int64_t shape[3] = {rollouts->count, points->count, points->dims}, each = points->count * points->dims;
    double *places = malloc((size_t)((own ? rollouts->count : 1) * each) * sizeof *places);
    if (!places) return false;
    for (int64_t i = 0; i < (own ? rollouts->count : 1); i++) {
        const ups_points *of = rollouts->list[i].sample.points;
        ups_points_unsort(of, of->dims, sizeof *places, of->coordinates, places + i * each);
    }
    bool fine = write_and_close(create_typed(file, "points", own ? 3 : 2, own ? shape : shape + 1, H5T_IEEE_F64LE),
                                H5T_NATIVE_DOUBLE, places);
    free(places);
    return fine;
}

/* `count` (sample), where samples differ in their number of points. */
static bool write_counts(hid_t file, const ups_rollouts *rollouts) {
    bool differ = false;
    int64_t *counts = malloc((size_t)rollouts->count * sizeof *counts);
    for (int64_t i = 0; i < rollouts->count && counts; i++) {
        counts[i] = rollouts->list[i].sample.points->distinct;
        differ |= counts[i] != rollouts->points;
    }
    const bool fine =
        counts && (!differ || write_and_close(create_typed(file, "count", 1, &rollouts->count, H5T_STD_I64LE),
                                              H5T_NATIVE_INT64, counts));
    free(counts);
    return fine;
}

static bool write_cells(hid_t file, const ups_points *points) {
    if (points->cell_count == 0) return true;
    const int64_t shape[2] = {points->cell_count, points->corners}, corners = points->cell_count * points->corners;
    int32_t *cells = malloc((size_t)corners * sizeof *cells);
    if (!cells) return false;
    for (int64_t i = 0; i < corners; i++)
        cells[i] = points->stored ? points->stored[points->cells[i]] : points->cells[i];
    bool fine = write_and_close(create_typed(file, "cells", 2, shape, H5T_STD_I32LE), H5T_NATIVE_INT32, cells);
    free(cells);
    return fine;
}

static bool write_scattered_times(hid_t file, const ups_rollouts *rollouts) {
    const int64_t shape[2] = {rollouts->count, rollouts->frames}, frames = rollouts->frames;
    if (!have_own_times(rollouts))
        return write_and_close(create_typed(file, "t", 1, &frames, H5T_IEEE_F64LE), H5T_NATIVE_DOUBLE,
                               rollouts->list[0].time);
    double *times = malloc((size_t)(rollouts->count * frames) * sizeof *times);
    if (!times) return false;
    for (int64_t i = 0; i < rollouts->count; i++)
        memcpy(times + i * frames, rollouts->list[i].time, (size_t)frames * sizeof *times);
    bool fine = write_and_close(create_typed(file, "t", 2, shape, H5T_IEEE_F64LE), H5T_NATIVE_DOUBLE, times);
    free(times);
    return fine;
}

/* One field of all trajectories: (sample, time, point). */
static bool write_scattered_field(hid_t place, const ups_rollouts *rollouts, int64_t channel, bool truth) {
    const int64_t frames = truth ? rollouts->truth_frames : rollouts->frames, points = rollouts->points;
    const int64_t channels = rollouts->task->geometry.channels, shape[3] = {rollouts->count, frames, points};
    float *values = malloc((size_t)((rollouts->count * frames + 1) * points) * sizeof *values), *to = values;
    if (!values) return false;
    float *frame = values + rollouts->count * frames * points;
    for (int64_t i = 0; i < rollouts->count; i++) {
        const ups_rollout *rollout = &rollouts->list[i];
        const float *from = (truth ? rollout->truth : rollout->prediction) + channel;
        /* files of one task may have the same points in other orders: `points` has that of the first trajectory's */
        const ups_points *of = rollout->sample.points->own ? rollout->sample.points : rollouts->list[0].sample.points;
        for (int64_t f = 0; f < frames; f++, to += points) {
            for (int64_t p = 0; p < points; p++) frame[p] = from[(f * points + p) * channels];
            ups_points_unsort(of, 1, sizeof *to, frame, to);
        }
    }
    bool fine =
        write_dataset(place, rollouts->task->source->channel_names[channel], 3, shape, H5T_NATIVE_FLOAT, values);
    free(values);
    return fine;
}

/* Whether a field says where points lie, which `points` does. */
static bool is_place(const ups_rollouts *rollouts, int64_t channel) {
    const ups_points *points = rollouts->list[0].sample.points;
    bool found = false;
    for (int axis = 0; axis < points->dims && have_own_points(rollouts); axis++)
        found |= strcmp(points->names[axis], rollouts->task->source->channel_names[channel]) == 0;
    return found;
}

static bool write_scattered_fields(hid_t place, const ups_rollouts *rollouts, bool truth) {
    bool fine = true;
    for (int64_t c = 0; c < rollouts->task->geometry.channels && fine; c++)
        fine = is_place(rollouts, c) || write_scattered_field(place, rollouts, c, truth);
    return fine;
}

/* `parameters/NAME` (sample). */
static bool write_own_parameters(hid_t file, const ups_rollouts *rollouts) {
    const ups_source *source = rollouts->task->source;
    if (source->parameter_count == 0) return true;
    hid_t group = H5Gcreate2(file, "parameters", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    double *values = malloc((size_t)rollouts->count * sizeof *values);
    bool fine = group >= 0 && values;
    for (int p = 0; p < source->parameter_count && fine; p++) {
        bool known = true;
        for (int64_t i = 0; i < rollouts->count; i++) {
            values[i] = rollouts->list[i].sample.parameters[p];
            known = known && isfinite(values[i]);
        }
        if (known)
            fine = write_and_close(create_typed(group, source->parameter_names[p], 1, &rollouts->count, H5T_IEEE_F64LE),
                                   H5T_NATIVE_DOUBLE, values);
    }
    free(values);
    if (group >= 0 && H5Gclose(group) < 0) fine = false;
    return fine;
}

/* As the layout `points` reads it back (pipeline/layouts/points.c); the truth in a group of its own. */
static bool write_points(hid_t file, const ups_rollouts *rollouts, const ups_rollout_origin *origin) {
    bool fine = write_points_places(file, rollouts) &&
                (have_own_points(rollouts) ? write_counts(file, rollouts)
                                           : write_cells(file, rollouts->list[0].sample.points)) &&
                write_scattered_times(file, rollouts) && write_scattered_fields(file, rollouts, false) &&
                write_own_parameters(file, rollouts) &&
                write_text(file, "bc", ups_rollout_boundary(rollouts, origin, &rollouts->list[0]));
    if (!fine || rollouts->truth_frames == 0) return fine;
    hid_t group = H5Gcreate2(file, "truth", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    fine = group >= 0 && write_scattered_fields(group, rollouts, true) &&
           (!any_moves(rollouts) || write_moving_places(group, rollouts, true));
    if (group >= 0 && H5Gclose(group) < 0) fine = false;
    return fine;
}

/* ---- the file -------------------------------------------------------------------------------------------------- */

static bool write_layout(hid_t file, const ups_rollouts *rollouts, const ups_rollout_origin *origin) {
    if (rollouts->task->geometry.points) return write_points(file, rollouts, origin);
    return fit_one_tensor(rollouts, origin) ? write_tensor(file, rollouts, origin)
                                            : write_seed_groups(file, rollouts, origin);
}

static bool write_fact(void *context, const char *name, const char *text) {
    return write_text(*(const hid_t *)context, name, text);
}

/* The library is not thread-safe: a loader may be reading through it. */
static ups_status write_file(const char *temporary, const char *path, const ups_rollouts *rollouts,
                             const ups_rollout_origin *origin, ups_error *error) {
    ups_hdf5_enter_to_write();
    hid_t file = H5Fcreate(temporary, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    bool fine =
        file >= 0 && ups_rollout_tell(rollouts, origin, write_fact, &file) && write_layout(file, rollouts, origin);
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

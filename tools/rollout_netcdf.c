#include "tools/rollout_netcdf.h"

#include <string.h>
#include <strings.h>

bool ups_rollout_is_netcdf(const char *path) {
    const char *dot = strrchr(path, '.');
    return dot && strcasecmp(dot, ".nc") == 0;
}

#if defined(UPS_HAVE_NETCDF)

#include "base/files.h"
#include "pipeline/hdf5/library.h"
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <netcdf.h>
#include <stdio.h>
#include <stdlib.h>

ups_status ups_rollout_netcdf_available(const char *path, ups_error *error) {
    (void)path;
    (void)error;
    return UPS_OK;
}

enum { RANK = UPS_MAX_GRID_DIMS + 2, NAME = NC_MAX_NAME + 1 };

typedef struct writing {
    const ups_rollouts *rollouts;
    const ups_rollout_origin *origin;
    int file, result; /* the first failure of the library; NC_NOERR */
    int number;       /* errno, as it was then */
    int dimension[RANK], coordinate[RANK];
    char names[RANK][NAME]; /* of the dimensions */
    int dims;               /* of the grid */
    bool same_times;        /* of all trajectories */
    int times;              /* t (trajectory, time), where they differ */
} writing;

/* Whether all went well so far, this call included. */
static bool did(writing *w, int result) {
    if (w->result == NC_NOERR && result != NC_NOERR) {
        w->result = result;
        w->number = errno;
    }
    return w->result == NC_NOERR;
}

static bool put_text(writing *w, int variable, const char *name, const char *text) {
    return did(w, nc_put_att_text(w->file, variable, name, strlen(text), text));
}

static bool put_fact(void *context, const char *name, const char *text) {
    return put_text(context, NC_GLOBAL, name, text);
}

/* ---- dimensions -------------------------------------------------------------------------------------------------- */

/* A name that CF permits: letters, digits and underscores. It leaves room for "_truth" and what tells it apart. */
static void clean_name(const char *name, char clean[NAME]) {
    enum { REST = 64 };
    size_t length = 0;
    if (!isalpha((unsigned char)name[0])) clean[length++] = 'v';
    for (const char *c = name; *c && length + REST < NAME; c++)
        clean[length++] = (char)(isalnum((unsigned char)*c) ? *c : '_');
    clean[length] = '\0';
}

typedef struct known_axis {
    const char *name, *axis, *standard, *units; /* the standard name goes with these units */
} known_axis;
static const known_axis known_axes[] = {
    {"x", "X", NULL, NULL},
    {"lon", "X", "longitude", "degrees_east"},
    {"longitude", "X", "longitude", "degrees_east"},
    {"y", "Y", NULL, NULL},
    {"lat", "Y", "latitude", "degrees_north"},
    {"latitude", "Y", "latitude", "degrees_north"},
    {"z", "Z", NULL, NULL},
    {"depth", "Z", NULL, NULL},
    {"height", "Z", NULL, NULL},
};

static bool describe_axis(writing *w, int variable, const char *name, const char *units) {
    const known_axis *known = NULL;
    for (size_t i = 0; i < sizeof known_axes / sizeof *known_axes; i++) {
        if (strcasecmp(known_axes[i].name, name) == 0) known = &known_axes[i];
    }
    if (known) put_text(w, variable, "axis", known->axis);
    if (known && known->standard && units && strcmp(units, known->units) == 0)
        put_text(w, variable, "standard_name", known->standard);
    if (units) put_text(w, variable, "units", units);
    return put_text(w, variable, "long_name", name);
}

/* Whether a variable of this name is there, or a dimension. */
static bool is_taken(const writing *w, const char *name) {
    int id;
    return nc_inq_varid(w->file, name, &id) == NC_NOERR || nc_inq_dimid(w->file, name, &id) == NC_NOERR;
}

/* `name`, with an underscore behind it while another has it. */
static void make_free(const writing *w, char name[NAME]) {
    while (is_taken(w, name) && strlen(name) + 2 < NAME) strcat(name, "_");
}

static bool define_dimension(writing *w, int at, const char *name, int64_t length, nc_type type) {
    clean_name(name, w->names[at]);
    make_free(w, w->names[at]);
    return did(w, nc_def_dim(w->file, w->names[at], (size_t)length, &w->dimension[at])) &&
           did(w, nc_def_var(w->file, w->names[at], type, 1, &w->dimension[at], &w->coordinate[at]));
}

static bool define_dimensions(writing *w) {
    static const char *const usual[] = {"x", "y", "z"};
    const ups_sample *geometry = &w->rollouts->task->geometry;
    if (!define_dimension(w, 0, "trajectory", w->rollouts->count, NC_INT64) ||
        !define_dimension(w, 1, "time", w->rollouts->frames, NC_DOUBLE))
        return false;
    put_text(w, w->coordinate[0], "standard_name", "realization");
    put_text(w, w->coordinate[0], "long_name", "place of the trajectory in the task's data");
    put_text(w, w->coordinate[0], "units", "1");
    put_text(w, w->coordinate[1], "axis", "T");
    put_text(w, w->coordinate[1], "long_name", w->same_times ? "time" : "frame; t tells its time");
    if (w->same_times && geometry->time_units) put_text(w, w->coordinate[1], "units", geometry->time_units);
    for (int a = 0; a < w->dims; a++) {
        const char *name = geometry->axis_names[a] ? geometry->axis_names[a] : usual[a];
        if (!define_dimension(w, 2 + a, name, w->rollouts->grid[a], NC_DOUBLE)) return false;
        describe_axis(w, w->coordinate[2 + a], name, geometry->axis_units[a]);
    }
    if (!w->same_times) {
        did(w, nc_def_var(w->file, "t", NC_DOUBLE, 2, w->dimension, &w->times));
        put_text(w, w->times, "long_name", "time");
        if (geometry->time_units) put_text(w, w->times, "units", geometry->time_units);
    }
    return w->result == NC_NOERR;
}

static bool write_dimensions(writing *w) {
    const ups_rollouts *r = w->rollouts;
    for (size_t i = 0; i < (size_t)r->count; i++) {
        long long place = (long long)w->origin->samples[r->list[i].position];
        did(w, nc_put_var1_longlong(w->file, w->coordinate[0], &i, &place));
        size_t start[2] = {i, 0}, count[2] = {1, (size_t)r->frames};
        if (!w->same_times) did(w, nc_put_vara_double(w->file, w->times, start, count, r->list[i].time));
    }
    for (size_t i = 0; i < (size_t)r->frames; i++) {
        double value = w->same_times ? r->list[0].time[i] : (double)i;
        did(w, nc_put_var1_double(w->file, w->coordinate[1], &i, &value));
    }
    for (int a = 0; a < w->dims; a++) {
        double *values = ups_rollout_coordinates(r, a);
        did(w, values ? nc_put_var_double(w->file, w->coordinate[2 + a], values) : NC_ENOMEM);
        free(values);
    }
    return w->result == NC_NOERR;
}

/* ---- fields ------------------------------------------------------------------------------------------------------ */

static bool define_field(writing *w, const char *name, int64_t channel, bool truth, int *variable) {
    const char *field = w->rollouts->task->source->channel_names[channel];
    char told[300];
    const float fill = NAN;
    bool fine = did(w, nc_def_var(w->file, name, NC_FLOAT, 2 + w->dims, w->dimension, variable)) &&
                did(w, nc_def_var_fill(w->file, *variable, NC_FILL, &fill));
    snprintf(told, sizeof told, "%.200s, %s", field, truth ? "as the data have it" : "predicted");
    if (!w->same_times) fine = fine && put_text(w, *variable, "coordinates", "t");
    return fine && put_text(w, *variable, "long_name", told);
}

/* One channel of a trajectory's frames. */
static bool write_field(writing *w, int variable, size_t trajectory, int64_t frames, const float *values,
                        int64_t channel, float *room) {
    const ups_rollouts *r = w->rollouts;
    int64_t channels = r->task->geometry.channels;
    for (int64_t i = 0; i < frames * r->points; i++) room[i] = values[i * channels + channel];
    size_t start[RANK] = {trajectory}, count[RANK] = {1, (size_t)frames};
    for (int a = 0; a < w->dims; a++) count[2 + a] = (size_t)r->grid[a];
    return did(w, nc_put_vara_float(w->file, variable, start, count, room));
}

/* Puts underscores behind the last of `count` names while another of them, or what the file has, is called so. */
static void tell_apart(const writing *w, char (*names)[NAME], int64_t count) {
    char *last = names[count - 1];
    make_free(w, last);
    for (int64_t other = 0; other < count - 1 && strlen(last) + 2 < NAME;) {
        if (strcmp(names[other++], last) != 0) continue;
        strcat(last, "_");
        make_free(w, last);
        other = 0;
    }
}

/* Names of the fields' variables: (channels), and as many of the truth's, behind those of all fields: a field may be
 * called u_truth beside u. Free with free(). */
static char (*name_fields(writing *w))[NAME] {
    const ups_source *source = w->rollouts->task->source;
    int64_t channels = w->rollouts->task->geometry.channels;
    char(*names)[NAME] = calloc(2 * (size_t)channels, sizeof *names);
    for (int64_t c = 0; names && c < channels; c++) {
        clean_name(source->channel_names[c], names[c]);
        tell_apart(w, names, c + 1);
    }
    for (int64_t c = 0; names && c < channels; c++) {
        snprintf(names[channels + c], NAME, "%.*s_truth", NAME - 8, names[c]);
        tell_apart(w, names, channels + c + 1);
    }
    return names;
}

/* ---- what is told ------------------------------------------------------------------------------------------------ */

/* Whether all trajectories have the same value of the parameter. */
static bool is_same(const ups_rollouts *r, int parameter) {
    for (int64_t i = 1; i < r->count; i++) {
        if (memcmp(&r->list[0].sample.parameters[parameter], &r->list[i].sample.parameters[parameter],
                   sizeof(double)) != 0)
            return false;
    }
    return true;
}

static bool define_parameter(writing *w, int parameter, int *variable) {
    const ups_rollouts *r = w->rollouts;
    const char *told = r->task->source->parameter_names[parameter];
    const double value = r->list[0].sample.parameters[parameter], fill = NAN;
    char name[NAME];
    clean_name(told, name);
    *variable = -1;
    if (is_same(r, parameter))
        return !isfinite(value) || did(w, nc_put_att_double(w->file, NC_GLOBAL, name, NC_DOUBLE, 1, &value));
    make_free(w, name);
    return did(w, nc_def_var(w->file, name, NC_DOUBLE, 1, w->dimension, variable)) &&
           did(w, nc_def_var_fill(w->file, *variable, NC_FILL, &fill)) && put_text(w, *variable, "long_name", told);
}

static bool define_facts(writing *w) {
    const ups_rollouts *r = w->rollouts;
    char title[300];
    bool same = true;
    const char *boundary = ups_rollout_boundary(r, w->origin, &r->list[0]);
    for (int64_t i = 1; i < r->count && same; i++)
        same = strcmp(boundary, ups_rollout_boundary(r, w->origin, &r->list[i])) == 0;
    snprintf(title, sizeof title, "%.200s: trajectories predicted from their first frames", r->task->name);
    put_text(w, NC_GLOBAL, "Conventions", "CF-1.11");
    put_text(w, NC_GLOBAL, "title", title);
    put_text(w, NC_GLOBAL, "source", "UPS, the Universal Physics Stack: a neural operator trained on simulations");
    if (same) put_text(w, NC_GLOBAL, "bc", boundary);
    if (!ups_rollout_tell(r, w->origin, put_fact, w)) did(w, NC_ENOMEM);
    return w->result == NC_NOERR;
}

/* ---- the file ---------------------------------------------------------------------------------------------------- */

static bool have_same_times(const ups_rollouts *r) {
    for (int64_t i = 1; i < r->count; i++) {
        if (memcmp(r->list[0].time, r->list[i].time, (size_t)r->frames * sizeof *r->list[0].time) != 0) return false;
    }
    return true;
}

static bool write_contents(writing *w, int *variables, int *parameters, float *room) {
    const ups_rollouts *r = w->rollouts;
    int64_t channels = r->task->geometry.channels, sets = r->truth_frames > 0 ? 2 : 1;
    if (!define_facts(w) || !define_dimensions(w)) return false;
    for (int p = 0; p < r->task->source->parameter_count; p++) define_parameter(w, p, &parameters[p]);
    char(*names)[NAME] = name_fields(w);
    if (!names) did(w, NC_ENOMEM);
    for (int64_t v = 0; v < sets * channels && w->result == NC_NOERR; v++)
        define_field(w, names[v], v % channels, v >= channels, &variables[v]);
    free(names);
    if (w->result != NC_NOERR || !did(w, nc_enddef(w->file)) || !write_dimensions(w)) return false;
    for (size_t i = 0; i < (size_t)r->count; i++) {
        const ups_rollout *rollout = &r->list[i];
        for (int p = 0; p < r->task->source->parameter_count; p++) {
            if (parameters[p] >= 0)
                did(w, nc_put_var1_double(w->file, parameters[p], &i, &rollout->sample.parameters[p]));
        }
        for (int64_t c = 0; c < channels; c++) {
            write_field(w, variables[c], i, r->frames, rollout->prediction, c, room);
            if (rollout->truth) write_field(w, variables[channels + c], i, r->truth_frames, rollout->truth, c, room);
        }
    }
    return w->result == NC_NOERR;
}

/* Where HDF5 failed below it, the library does not tell why; the system's last word is of a write that failed, if it is
 * one that writes fail with. */
static ups_status fail(const char *path, int result, int number, ups_error *error) {
    bool of_write = number == ENOSPC || number == EFBIG || number == EDQUOT || number == EIO || number == EROFS;
    bool of_hdf5 = result <= NC4_FIRST_ERROR && result >= NC4_LAST_ERROR; /* of an attribute, a variable, or whatever */
    if ((of_hdf5 || result == EACCES) && of_write) result = number;       /* EACCES: of whatever creating met */
    if (result == NC_ENOMEM) return ups_fail(error, UPS_ERR_MEMORY, "%s: no memory to write it", path);
    if (result > 0) { /* the system's own */
        errno = result;
        return ups_fail_errno(error, "%s: cannot be written", path);
    }
    return ups_fail(error, UPS_ERR_IO, "%s: cannot be written by the NetCDF library: %s", path, nc_strerror(result));
}

/* The libraries are not thread-safe: a loader may be reading through them. */
static ups_status write_file(const char *temporary, const char *path, const ups_rollouts *rollouts,
                             const ups_rollout_origin *origin, ups_error *error) {
    writing w = {.rollouts = rollouts, .origin = origin, .dims = rollouts->task->geometry.dims};
    size_t channels = (size_t)rollouts->task->geometry.channels;
    size_t frames = (size_t)(rollouts->frames > rollouts->truth_frames ? rollouts->frames : rollouts->truth_frames);
    int *variables = calloc(2 * channels, sizeof *variables);
    int *parameters = calloc((size_t)rollouts->task->source->parameter_count + 1, sizeof *parameters);
    float *room = malloc(frames * (size_t)rollouts->points * sizeof *room);
    w.same_times = have_same_times(rollouts);
    bool had = variables && parameters && room;
    errno = 0;
    ups_hdf5_enter();
    if (had && did(&w, nc_create(temporary, NC_NETCDF4 | NC_CLOBBER, &w.file))) {
        write_contents(&w, variables, parameters, room);
        did(&w, nc_close(w.file));
    }
    ups_hdf5_leave();
    free(variables);
    free(parameters);
    free(room);
    if (!had) w.result = NC_ENOMEM;
    return w.result == NC_NOERR ? UPS_OK : fail(path, w.result, w.number, error);
}

ups_status ups_rollout_netcdf_write(const char *path, const ups_rollouts *rollouts, const ups_rollout_origin *origin,
                                    ups_error *error) {
    ups_publication *publication = NULL;
    ups_remove_partials_of(path);
    UPS_TRY(ups_publish_begin(path, &publication, error));
    ups_status status = write_file(ups_publish_temporary(publication), path, rollouts, origin, error);
    if (status == UPS_OK) return ups_publish_commit(publication, error);
    ups_publish_abandon(publication);
    return status;
}

#else

ups_status ups_rollout_netcdf_available(const char *path, ups_error *error) {
    return ups_fail(error, UPS_ERR_UNSUPPORTED,
                    "%s: this build is without the NetCDF-C library, which writes such files: install it (Debian: "
                    "libnetcdf-dev) and build UPS again, or write HDF5 (-o FILE.h5)",
                    path);
}

ups_status ups_rollout_netcdf_write(const char *path, const ups_rollouts *rollouts, const ups_rollout_origin *origin,
                                    ups_error *error) {
    (void)rollouts;
    (void)origin;
    return ups_rollout_netcdf_available(path, error);
}

#endif

/* Small HDF5 files in the layouts and storage forms that tests want, written with the library itself. */
#ifndef UPS_TESTS_PIPELINE_HDF5_WRITER_H
#define UPS_TESTS_PIPELINE_HDF5_WRITER_H

#include <hdf5.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct written_form {
    const char *name;
    bool chunked, gzip, shuffle, fletcher32, compact, big_endian, float64, latest;
    bool lzf;    /* chunks written by hand, as streams of runs */
    bool narrow; /* addresses and lengths of 4 bytes */
} written_form;

/* A value that tells where it stands. */
static inline double written_value(int64_t sample, int64_t frame, int64_t point) {
    return (double)(sample * 100 + frame) + (double)(point / 4) / 64.0;
}

/* An attribute of `count` values (0: a scalar), which lie in memory as in the file; and those of a text, a number, and
 * a truth value as h5py writes it. */
void write_attribute(hid_t object, const char *name, hid_t type, hsize_t count, const void *values);
void write_text_attribute(hid_t object, const char *name, const char *text);
void write_number(hid_t object, const char *name, double value);
void write_flag(hid_t object, const char *name, bool value);

/* (samples, times, points) as `tensor`, with coordinates (one time too many), in `form`. */
void write_tensor_file(const char *path, const written_form *form, int64_t samples, int64_t times, int64_t points);

/* `nu` (samples, x, y), `tensor` (samples, 1, x, y): nu = written_value(s, 0, p), u = written_value(s, 1, p). */
void write_darcy_file(const char *path, const written_form *form, int64_t samples, int64_t x, int64_t y);

/* Groups 0000, …: `data` (times, points, channels) = written_value(seed, t, point * channels + c), and a config. */
void write_seed_file(const char *path, const written_form *form, int64_t seeds, int64_t times, int64_t points,
                     int64_t channels);

/* `density`, `pressure`, `Vx`, `Vy` (samples, times, x, y) = written_value(s, t, p) + the field's number, and eta. */
void write_compressible_file(const char *path, const written_form *form, int64_t samples, int64_t times, int64_t x,
                             int64_t y);

/* The Well's layout: `pressure` (samples, times, x, y) = written_value(s, t, p) and `velocity` (samples, times, x, y,
 * 2) = written_value(s, t, 2p + c); a scalar for each sample, and a boundary that wraps around in x. */
void write_well_file(const char *path, const written_form *form, int64_t samples, int64_t times, int64_t x, int64_t y);

#endif

/* Long trajectories of few samples, as PDEBench's incompressible flow keeps them: what a window of frames reads, what a
 * source needs to know for it, and a file that several threads ask. */
#include "tests/base/testing.h"

#include "pipeline/hdf5/storage.h"
#include "pipeline/layouts/layouts.h"
#include "tests/pipeline/hdf5_writer.h"
#include <pthread.h>

enum { SAMPLES = 2, TIMES = 40, X = 12, Y = 9, POINTS = X * Y };

static void write_chunked(hid_t file, const char *name, int rank, const hsize_t *shape, const hsize_t *chunk,
                          const float *values) {
    hid_t space = H5Screate_simple(rank, shape, NULL), list = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_chunk(list, rank, chunk);
    H5Pset_shuffle(list);
    H5Pset_deflate(list, 1);
    hid_t dataset = H5Dcreate2(file, name, H5T_IEEE_F32LE, space, H5P_DEFAULT, list, H5P_DEFAULT);
    assert_true(dataset >= 0);
    assert_true(H5Dwrite(dataset, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >= 0);
    H5Dclose(dataset);
    H5Pclose(list);
    H5Sclose(space);
}

static float flow_value(int64_t sample, int64_t frame, int64_t point, int64_t channel) {
    return (float)(sample * 1000 + frame * 10 + channel) + (float)point / 256;
}

static float force_value(int64_t sample, int64_t point, int64_t component) {
    return (float)(sample * 2 + component) - (float)point;
}

/* A chunk a frame, of velocity (2 components), particles (1) and the force, which has no time. */
static void write_flow(const char *path) {
    static float velocity[SAMPLES * TIMES * POINTS * 2], particles[SAMPLES * TIMES * POINTS], t[SAMPLES * TIMES],
        force[SAMPLES * POINTS * 2];
    for (int64_t f = 0; f < SAMPLES * TIMES; f++) {
        t[f] = (float)f;
        for (int64_t p = 0; p < POINTS; p++) {
            for (int64_t c = 0; c < 2; c++) velocity[(f * POINTS + p) * 2 + c] = flow_value(f / TIMES, f % TIMES, p, c);
            particles[f * POINTS + p] = flow_value(f / TIMES, f % TIMES, p, 2);
        }
    }
    for (int64_t i = 0; i < SAMPLES * POINTS * 2; i++) force[i] = force_value(i / (POINTS * 2), i / 2 % POINTS, i % 2);
    H5dont_atexit();
    hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    write_chunked(file, "velocity", 5, (hsize_t[]){SAMPLES, TIMES, X, Y, 2}, (hsize_t[]){1, 1, X, Y, 2}, velocity);
    write_chunked(file, "particles", 5, (hsize_t[]){SAMPLES, TIMES, X, Y, 1}, (hsize_t[]){1, 1, X, Y, 1}, particles);
    write_chunked(file, "force", 4, (hsize_t[]){SAMPLES, X, Y, 2}, (hsize_t[]){1, 1, Y, 2}, force);
    write_chunked(file, "t", 2, (hsize_t[]){SAMPLES, TIMES}, (hsize_t[]){1, 1}, t);
    H5Fclose(file);
}

static ups_source *open_flow(void) {
    ups_source *source;
    ups_error error;
    write_flow(scratch("flow.h5"));
    if (ups_layout_open(scratch("flow.h5"), NULL, &source, &error) != UPS_OK) fail_msg("%s", error.message);
    return source;
}

static void a_window_of_a_long_flow_is_its_frames_with_the_force_in_each(void **state) {
    ups_source *source = open_flow();
    for (int64_t start = 0; start < TIMES; start += 7) {
        for (int64_t count = 1; start + count <= TIMES && count < 6; count += 2) {
            float *out = malloc((size_t)count * POINTS * 5 * sizeof *out);
            assert_int_equal(ups_source_read(source, 1, (ups_frames){start, count}, out, NULL), UPS_OK);
            for (int64_t i = 0; i < count * POINTS * 5; i++) {
                int64_t frame = start + i / (POINTS * 5), point = i / 5 % POINTS, channel = i % 5;
                float expected =
                    channel < 3 ? flow_value(1, frame, point, channel) : force_value(1, point, channel - 3);
                assert_true(out[i] == expected);
            }
            free(out);
        }
    }
    ups_source_close(source);
}

static void a_window_reads_the_chunks_of_its_own_frames_and_the_force_once(void **state) {
    ups_source *source = open_flow();
    ups_extent *extents = calloc((size_t)source->limits.extents, sizeof *extents);
    int64_t count;
    assert_int_equal(source->limits.extents, 2 * TIMES + X);
    assert_int_equal(source->class->extents(source, 1, (ups_frames){5, 3}, extents, &count, NULL), UPS_OK);
    assert_int_equal(count, 3 + 3 + X); /* velocity, particles; the force is stored in X chunks */
    free(extents);
    ups_source_close(source);
}

static void limits_of_a_window_are_reached_and_never_passed(void **state) {
    ups_source *source = open_flow();
    ups_extent *extents = calloc((size_t)source->limits.extents, sizeof *extents);
    for (int64_t frames = 1; frames <= TIMES; frames += 3) {
        ups_source_limits limits = ups_source_window_limits(source, frames);
        int64_t most_extents = 0;
        uint64_t most_bytes = 0;
        for (int64_t sample = 0; sample < SAMPLES; sample++) {
            for (int64_t start = 0; start + frames <= TIMES; start++) {
                int64_t count;
                uint64_t bytes = 0;
                source->class->extents(source, sample, (ups_frames){start, frames}, extents, &count, NULL);
                for (int64_t i = 0; i < count; i++) bytes += extents[i].length;
                if (count > most_extents) most_extents = count;
                if (bytes > most_bytes) most_bytes = bytes;
            }
        }
        assert_int_equal(limits.extents, most_extents);
        assert_in_range(limits.stored_bytes, most_bytes, most_bytes + most_bytes / 4); /* the parts' maxima, added */
        assert_int_equal(limits.decoded_bytes, (uint64_t)frames * POINTS * 5 * sizeof(float));
    }
    ups_source_limits whole = ups_source_window_limits(source, TIMES);
    assert_int_equal(whole.stored_bytes, source->limits.stored_bytes);
    free(extents);
    ups_source_close(source);
}

static void each_sample_has_its_own_times(void **state) {
    ups_source *source = open_flow();
    ups_sample sample;
    assert_int_equal(ups_source_describe(source, 1, &sample, NULL), UPS_OK);
    assert_string_equal(sample.name, "sample[1]");
    assert_true(sample.time[0] == TIMES && sample.time[TIMES - 1] == 2 * TIMES - 1);
    assert_string_equal(source->channel_names[3], "force_x");
    ups_source_close(source);
}

/* ---- one file, several threads ---- */

typedef struct reader {
    ups_hdf5_file *file;
    bool right;
} reader;

static void *read_axes(void *context) {
    reader *r = context;
    ups_arena *arena = ups_arena_create(0);
    r->right = true;
    for (int i = 0; i < 40 && r->right; i++) {
        double *values;
        int64_t count;
        r->right = ups_hdf5_read_axis(r->file, i % 2 ? "x-coordinate" : "t-coordinate", 1 << 20, arena, &values, &count,
                                      NULL) == UPS_OK &&
                   count == (i % 2 ? 20 : 7) && values[count - 1] == 0.5 * (double)(count - 1);
    }
    ups_arena_destroy(arena);
    return NULL;
}

/* A coordinate read through the library must not make the file forget that an array needs the library too. */
static void map_among_readers(const char *path) {
    enum { READERS = 3 };
    ups_hdf5_file *file;
    assert_int_equal(ups_hdf5_open(path, NULL, false, &file, NULL), UPS_OK);
    pthread_t threads[READERS];
    reader readers[READERS];
    ups_arena *arena = ups_arena_create(0);
    for (int i = 0; i < READERS; i++) {
        readers[i] = (reader){.file = file};
        assert_int_equal(pthread_create(&threads[i], NULL, read_axes, &readers[i]), 0);
    }
    ups_stored_array array;
    assert_int_equal(ups_hdf5_map(file, "tensor", 0, arena, &array, NULL), UPS_OK);
    assert_int_equal(array.storage, UPS_STORAGE_LIBRARY);
    for (int i = 0; i < READERS; i++) {
        pthread_join(threads[i], NULL);
        assert_true(readers[i].right);
    }
    ups_hdf5_settle(file);
    float out[20];
    ups_region row = {{2, 3, 0}, {1, 1, 20}};
    int64_t used;
    assert_int_equal(ups_array_decode(&array, &row, NULL, 0, NULL, out, &used, NULL), UPS_OK);
    assert_true(out[19] == (float)written_value(2, 3, 19));
    ups_arena_destroy(arena);
    ups_hdf5_close(file);
}

static void threads_read_coordinates_of_one_file_while_others_map_its_arrays(void **state) {
    write_tensor_file(scratch("shared.h5"), &(written_form){.compact = true}, 3, 6, 20);
    for (int round = 0; round < 30; round++) map_among_readers(scratch("shared.h5"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_window_of_a_long_flow_is_its_frames_with_the_force_in_each),
        cmocka_unit_test(a_window_reads_the_chunks_of_its_own_frames_and_the_force_once),
        cmocka_unit_test(limits_of_a_window_are_reached_and_never_passed),
        cmocka_unit_test(each_sample_has_its_own_times),
        cmocka_unit_test(threads_read_coordinates_of_one_file_while_others_map_its_arrays),
    };
    return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}

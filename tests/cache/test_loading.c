/* Cached latents through the loader: the way that training takes. */
#include "base/arena.h"
#include "cache/store/source.h"
#include "fixture.h"
#include "pipeline/loader/loader.h"
#include "tests/base/testing.h"

#define SAMPLES 11
#define TIMES 20
#define TOKENS 6
#define DIM 16
#define FRAME (TOKENS * DIM)

static ups_source *open_cache(bool portable) {
    const char *root = fixture_directory();
    ups_cache_description d = fixture_description(SAMPLES, TIMES, TOKENS, DIM, 4);
    d.codec.portable = portable;
    fixture_must_build(root, &d, 2);
    ups_source *source;
    ups_error error;
    if (ups_cache_source_open(fixture_join(root, "waves/train"), NULL, &source, &error) != UPS_OK)
        fail_msg("%s", error.message);
    return source;
}

static ups_loader_options pairs(ups_io_engine io) {
    return (ups_loader_options){.seed = 5,
                                .batch = 6,
                                .windows_per_draw = 2,
                                .window = 2,
                                .stride = 3,
                                .dtype = UPS_F16,
                                .batch_count = 20,
                                .ranks = 1,
                                .io = io,
                                .decode_threads = 2};
}

static void check_window(const ups_batch *batch, int64_t w, int64_t stride) {
    float latents[TIMES * FRAME];
    ups_f16 expected[TIMES * FRAME];
    const ups_window *window = &batch->window[w];
    fixture_latents(window->sample, TIMES, TOKENS, DIM, latents);
    ups_f32_to_f16(latents, expected, TIMES * FRAME);
    for (int64_t frame = 0; frame < batch->frames; frame++) {
        const ups_f16 *found = (const ups_f16 *)batch->data + (w * batch->frames + frame) * FRAME;
        assert_memory_equal(found, expected + (window->start + frame * stride) * FRAME, FRAME * sizeof *found);
    }
    assert_true(window->parameters[0] == 0.1 * (double)window->sample);
}

static void the_loader_delivers_cached_pairs_bit_for_bit_by_both_engines(void **state) {
    for (int portable = 0; portable < 2; portable++) {
        ups_source *source = open_cache(portable);
        ups_loader_task task = {.name = "waves", .source = source, .sample_count = source->count};
        static const ups_io_engine engines[] = {UPS_IO_AUTO, UPS_IO_THREADS};
        for (int e = 0; e < 2; e++) {
            ups_loader_options options = pairs(engines[e]);
            ups_loader *loader;
            ups_error error;
            if (ups_loader_open(&options, &task, 1, &loader, &error) != UPS_OK) fail_msg("%s", error.message);
            int64_t windows = 0;
            for (const ups_batch *batch;;) {
                if (ups_loader_next(loader, &batch, &error) != UPS_OK) fail_msg("%s", error.message);
                if (!batch) break;
                assert_int_equal(batch->frame_elements, FRAME);
                for (int64_t w = 0; w < batch->windows; w++) check_window(batch, w, options.stride);
                windows += batch->windows;
                ups_loader_release(loader, batch);
            }
            assert_int_equal(windows, 20 * 6);
            ups_loader_close(loader);
        }
        ups_source_close(source);
    }
}

static void damage_met_while_training_names_file_and_sample(void **state) {
    ups_source *source = open_cache(false);
    write_over(source->files[1], 30, "damage", 6); /* in the shard's first trajectory: sample 4 */
    ups_loader_task task = {.name = "waves", .source = source, .sample_count = source->count};
    ups_loader_options options = pairs(UPS_IO_AUTO);
    ups_loader *loader;
    ups_error error;
    assert_int_equal(ups_loader_open(&options, &task, 1, &loader, &error), UPS_OK);
    ups_status status = UPS_OK;
    for (const ups_batch *batch = NULL; status == UPS_OK;) {
        status = ups_loader_next(loader, &batch, &error);
        if (status == UPS_OK && !batch) break;
        if (batch && status == UPS_OK) ups_loader_release(loader, batch);
    }
    assert_int_equal(status, UPS_ERR_CHECKSUM);
    assert_contains(error.message, "latent/c/1/0/0/0, sample 4");
    ups_loader_close(loader);
    ups_source_close(source);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_loader_delivers_cached_pairs_bit_for_bit_by_both_engines),
        cmocka_unit_test(damage_met_while_training_names_file_and_sample),
    };
    return cmocka_run_group_tests(tests, NULL, fixture_clear);
}

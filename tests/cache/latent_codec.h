/* For tests: ups.latent with all that it needs for trajectories of one shape. */
#ifndef UPS_TESTS_CACHE_LATENT_CODEC_H
#define UPS_TESTS_CACHE_LATENT_CODEC_H

#include "base/arena.h"
#include "cache/codec/codec.h"
#include "tests/base/testing.h"

typedef struct latent_codec {
    int64_t times, series;
    ups_latent_encoder *encoder;
    void *scratch;
    uint8_t *encoded;
    size_t length;
} latent_codec;

static inline latent_codec latent_codec_create(int64_t times, int64_t series) {
    return (latent_codec){.times = times,
                          .series = series,
                          .encoder = ups_latent_encoder_create(times, series),
                          .scratch = ups_aligned_alloc(64, ups_latent_scratch_bytes(times)),
                          .encoded = malloc(ups_latent_bound(times, series))};
}

static inline void latent_codec_destroy(latent_codec *c) {
    ups_latent_encoder_destroy(c->encoder);
    ups_aligned_free(c->scratch);
    free(c->encoded);
}

static inline void latent_encode(latent_codec *c, const ups_f16 *latents) {
    c->length = ups_latent_encode(c->encoder, latents, c->encoded);
}

/* Of what was encoded, `count` frames from `start` on. */
static inline ups_status latent_decode(const latent_codec *c, int64_t start, int64_t count, ups_dtype dtype, void *out,
                                       ups_error *error) {
    return ups_latent_decode(c->encoded, c->length, c->times, c->series, start, count, c->scratch, dtype, out, NULL,
                             NULL, error);
}

/* All of it, which must give these latents bit for bit. */
static inline void assert_decodes_to(const latent_codec *c, const ups_f16 *latents) {
    size_t bytes = (size_t)(c->times * c->series) * sizeof *latents;
    ups_f16 *back = malloc(bytes);
    memset(back, 0xee, bytes);
    assert_int_equal(latent_decode(c, 0, c->times, UPS_F16, back, NULL), UPS_OK);
    assert_memory_equal(back, latents, bytes);
    free(back);
}

#endif

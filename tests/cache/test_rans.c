/* Prediction and entropy coding: the same bytes and values from every instruction set, whatever the bits. */
#include "base/random.h"
#include "base/system/cpu_features.h"
#include "latent_codec.h"

static const int64_t shapes[][2] = {{1, 1},   {1, 64},   {2, 64},    {2, 16384}, {15, 65},  {16, 63},   {16, 64},
                                    {17, 64}, {17, 130}, {101, 192}, {201, 320}, {37, 999}, {600, 1000}};
#define SHAPES (sizeof shapes / sizeof shapes[0])
enum { MOST_FORMS = 4, KINDS = 5 };

/* Noise of all bits, noise of some bits, lines of many slopes with a little noise, and series that stand still with
 * sudden noise, and multiples of 1/512: NaN and Inf are among the first. */
static ups_f16 *make_latents(int kind, int64_t times, int64_t series) {
    ups_f16 *latents = malloc((size_t)(times * series) * sizeof *latents);
    ups_random stream = ups_random_stream(3, UPS_RANDOM_TEST, (uint32_t)kind);
    for (int64_t i = 0; i < times * series; i++) {
        uint32_t noise = ups_random_u32(stream, (uint64_t)i);
        int64_t t = i / series, s = i % series;
        if (kind == 0) latents[i] = (ups_f16)noise;
        if (kind == 1) latents[i] = (ups_f16)(noise % 1000);
        if (kind == 2) latents[i] = (ups_f16)(0xbc00 + t * (s % 7) + noise % 3);
        float multiple = (float)((int)(noise % 3001) - 1500) / 512;
        if (kind == 4) ups_f32_to_f16(&multiple, &latents[i], 1);
        if (kind == 3) latents[i] = (ups_f16)(0x3c00 + s + (t % 50 == 3 ? noise % 5000 : 0));
    }
    return latents;
}

/* The claims below run every form that runs here, and pass over the others: here it is said which those are. */
static void this_form_is_among_those_compared(void **state) {
    const char *wanted = *state;
    bool is = false, runs_here = true;
    if (strcmp(wanted, "avx512") == 0) runs_here = ups_runs_x86_64_v4();
    if (strcmp(wanted, "avx2") == 0) runs_here = ups_runs_x86_64_v3();
    for (int form = 0; ups_rans_use(form); form++) {
        assert_true(form < MOST_FORMS);
        is = is || strcmp(ups_rans_instruction_set(), wanted) == 0;
    }
    assert_int_equal(is, runs_here);
    if (!is) skip_because("the form for %s does not run on this processor", wanted);
}

static int fastest(void **state) {
    return ups_rans_use(0) ? 0 : -1;
}

static void any_latents_come_back_and_every_form_makes_the_same_bytes(void **state) {
    for (size_t i = 0; i < SHAPES * KINDS; i++) {
        int64_t times = shapes[i / KINDS][0], series = shapes[i / KINDS][1];
        ups_f16 *latents = make_latents(i % KINDS, times, series);
        latent_codec c = latent_codec_create(times, series);
        uint8_t *first = NULL;
        size_t first_length = 0;
        for (int form = 0; form < MOST_FORMS; form++) {
            if (!ups_rans_use(form)) continue; /* not on this machine */
            latent_encode(&c, latents);
            assert_true(c.length <= ups_latent_bound(times, series));
            if (!first) first = memcpy(malloc(c.length), c.encoded, first_length = c.length);
            assert_int_equal(c.length, first_length);
            assert_memory_equal(first, c.encoded, c.length);
            assert_decodes_to(&c, latents);
        }
        latent_codec_destroy(&c);
        free(latents);
        free(first);
    }
}

static void every_form_decodes_any_run_of_frames_into_either_type(void **state) {
    for (size_t i = 0; i < SHAPES; i++) {
        int64_t times = shapes[i][0], series = shapes[i][1];
        size_t room = (size_t)(times * series) * sizeof(float);
        ups_f16 *latents = make_latents(i % KINDS, times, series);
        float *floats = ups_aligned_alloc(64, room), *expected = malloc(room);
        latent_codec c = latent_codec_create(times, series);
        latent_encode(&c, latents);
        for (int64_t start = 0; start < times; start += 1 + times / 3) {
            int64_t count = 1 + (times - start - 1) / 2;
            for (int form = 0; form < MOST_FORMS; form++) {
                if (!ups_rans_use(form)) continue;
                assert_int_equal(latent_decode(&c, start, count, UPS_F32, floats, NULL), UPS_OK);
                ups_f16_to_f32(latents + start * series, expected, (size_t)(count * series));
                assert_memory_equal(floats, expected, (size_t)(count * series) * sizeof *floats);
                assert_int_equal(latent_decode(&c, start, count, UPS_F16, floats, NULL), UPS_OK);
                assert_memory_equal(floats, latents + start * series, (size_t)(count * series) * sizeof *latents);
            }
        }
        latent_codec_destroy(&c);
        ups_aligned_free(floats);
        free(expected);
        free(latents);
    }
}

/* What a form made of some words. */
typedef struct outcome {
    _Alignas(64) float frames[50 * UPS_RANS_LANES]; /* or ups_f16 */
    uint32_t state[UPS_RANS_LANES];
    size_t left;
    bool finite;
} outcome;

/* What any words decode to is the same everywhere, also when they run out: nothing depends on who wrote them. Frames
 * are of any width, all of them or some, of either type, through caches or past them. */
static void every_form_makes_the_same_of_words_that_nobody_encoded(void **state) {
    enum { TIMES = 50, WORDS = 2000, ROUNDS = 240 };
    static const int widths[] = {1, 7, UPS_RANS_FEW_LANES, 33, UPS_RANS_LANES, UPS_RANS_LANES};
    ups_random stream = ups_random_stream(8, UPS_RANDOM_TEST, 0);
    static ups_rans_histogram frequencies;
    static outcome first, other;
    uint32_t *tables = malloc(UPS_RANS_DECODER_ENTRIES * sizeof *tables);
    uint16_t *words = malloc(WORDS * sizeof *words);
    int came_to_an_end = 0, were_finite = 0;
    for (uint64_t round = 0; round < ROUNDS; round++) {
        /* of some rounds nearly all codes are small, so that frames without extra bits are among them */
        int small = round % 7 < 3 ? 4000 : 1, width = widths[round % 6];
        memset(frequencies, 0, sizeof frequencies);
        for (int c = 0; c < UPS_RANS_CONTEXTS; c++)
            for (int i = 0; i < UPS_RANS_USED_TOKENS; i++)
                frequencies[c][i] =
                    (round % 3 == 0 && c % 2 ? 0 : ups_random_u32(stream, round * 2000 + c * 40 + i) % 99) *
                    (i < UPS_RANS_PLAIN_TOKENS ? small : 1);
        ups_rans_normalise(frequencies);
        ups_rans_decoder_tables(frequencies, 0, tables);
        for (int i = 0; i < WORDS; i++) words[i] = (uint16_t)ups_random_u32(stream, 1000000 + round * WORDS + i);
        /* no byte past the end is there, for who would look at it */
        size_t bytes = round % 4 == 0 ? WORDS * sizeof *words : ups_random_u32(stream, 9000000 + round) % 4000;
        const uint8_t *end = (const uint8_t *)(words + WORDS), *start = end - bytes;
        for (int kind = 0; kind < 8; kind++) {
            ups_dtype dtype = kind % 2 ? UPS_F32 : UPS_F16;
            int64_t skipped = kind / 4 * (1 + (int64_t)(round % 20));
            for (int form = 0; form < MOST_FORMS; form++) {
                if (!ups_rans_use(form)) continue;
                outcome *made = form == 0 ? &first : &other;
                memset(made, 0, sizeof *made);
                made->finite = true;
                for (int i = 0; i < UPS_RANS_LANES; i++)
                    made->state[i] = ups_random_u32(stream, 8000000 + 64 * round + i) >> (round % 5 == 0 ? i % 20 : 0);
                ups_rans_frames to = {dtype, kind / 2 % 2, skipped, TIMES - skipped, UPS_RANS_LANES, made->frames};
                made->left = (size_t)(end - ups_rans_decode(tables, start, end, TIMES, width, (int)(round / 6 % 3), to,
                                                            made->state, &made->finite));
                assert_memory_equal(made, &first, sizeof first);
            }
            came_to_an_end += first.left == 0, were_finite += first.finite;
        }
    }
    assert_in_range(came_to_an_end, 1, 8 * ROUNDS - 1);
    assert_in_range(were_finite, 1, 8 * ROUNDS - 1);
    free(tables);
    free(words);
}

static void a_single_nan_or_infinity_is_noticed_wherever_it_is(void **state) {
    enum { TIMES = 19, SERIES = 150 };
    ups_f16 latents[TIMES * SERIES] = {0}, back[TIMES * SERIES];
    latent_codec c = latent_codec_create(TIMES, SERIES);
    for (int form = 0; form < MOST_FORMS; form++) {
        if (!ups_rans_use(form)) continue;
        for (int at = 0; at < TIMES * SERIES; at += 7) {
            for (int huge = 0; huge < 2; huge++) {
                bool finite;
                latents[at] = huge ? 0x7bff : at % 2 ? 0x7c00 : 0xfe01; /* the largest number there is; or none */
                latent_encode(&c, latents);
                assert_int_equal(ups_latent_decode(c.encoded, c.length, TIMES, SERIES, 0, TIMES, c.scratch, UPS_F16,
                                                   back, &finite, NULL, NULL),
                                 UPS_OK);
                assert_int_equal(finite, huge);
            }
            latents[at] = 0;
        }
    }
    latent_codec_destroy(&c);
}

/* By hand: 0.0, 1.0 (0x3c00), 2.0 (0x4000), −0.0 (0x8000) map to 0, 15360, 16384, −1. First differences 0, 15360, 1024,
 * −16385; second ones 0, 15360, −14336, −17409; zigzagged 0, 30720, 28671, 34817. */
static void codes_and_tokens_are_those_of_the_format_document(void **state) {
    static const ups_f16 latents[4] = {0x0000, 0x3c00, 0x4000, 0x8000};
    uint16_t codes[4];
    ups_rans_histogram counts = {0};
    ups_rans_residuals(latents, 1, 4, 1, 2, codes);
    assert_memory_equal(codes, ((uint16_t[]){0, 30720, 28671, 34817}), sizeof codes);
    ups_rans_count(codes, 4, 1, counts);
    assert_int_equal(counts[31][0], 1); /* 2 · 65535 + 65535 has 18 bits */
    assert_int_equal(counts[29][37],
                     2); /* 2 · 0 + 65535 has 16, 2 · 30720 + 0 too; 30720 and 28671 have 15, the second a 1 */
    assert_int_equal(counts[30][38], 1); /* 2 · 28671 + 30720 has 17; 34817 has 16, the second a 0 */
}

static void the_order_chosen_is_the_one_that_fits(void **state) {
    enum { TIMES = 64, SERIES = 128 };
    ups_f16 *noise = make_latents(0, TIMES, SERIES), latents[TIMES * SERIES];
    latent_codec c = latent_codec_create(TIMES, SERIES);
    for (int order = 0; order <= UPS_RANS_MAX_ORDER; order++) {
        for (int i = 0; i < TIMES * SERIES; i++) {
            if (order == 0) latents[i] = noise[i] & 0x803f; /* of either sign: nothing to predict */
            if (order == 1) latents[i] = (ups_f16)((i < SERIES ? 0x3c00 : latents[i - SERIES]) + noise[i] % 64 - 32);
            if (order == 2) latents[i] = (ups_f16)(0x3c00 + i % SERIES + (i / SERIES) * (i % SERIES)); /* many slopes */
        }
        ups_latent_orders orders;
        latent_encode(&c, latents);
        assert_int_equal(ups_latent_decode(c.encoded, c.length, TIMES, SERIES, 0, TIMES, c.scratch, UPS_F16, noise,
                                           NULL, &orders, NULL),
                         UPS_OK);
        assert_int_equal(orders.blocks[order], 1);
        free(noise);
        noise = make_latents(0, TIMES, SERIES);
    }
    latent_codec_destroy(&c);
    free(noise);
}

static void frequencies_come_back_and_unsound_ones_are_refused(void **state) {
    static ups_rans_histogram counts, back;
    ups_random stream = ups_random_stream(9, UPS_RANDOM_TEST, 0);
    uint8_t bytes[UPS_RANS_MAX_TABLE_BYTES];
    for (int c = 0; c < UPS_RANS_CONTEXTS; c++)
        for (int i = 0; i < UPS_RANS_USED_TOKENS; i++)
            counts[c][i] = c % 3 == 1   ? 0
                           : c % 3 == 2 ? i == c
                                        : 1u << ups_random_u32(stream, (uint64_t)(64 * c + i)) % 20;
    ups_rans_normalise(counts);
    size_t length = ups_rans_write_frequencies(counts, bytes);
    assert_int_equal(ups_rans_read_frequencies(bytes, length, back), length);
    assert_memory_equal(counts, back, sizeof counts);
    for (size_t shorter = 0; shorter < length; shorter++)
        assert_int_equal(ups_rans_read_frequencies(bytes, shorter, back), 0);
    bytes[5]++; /* no longer 1024 in all */
    assert_int_equal(ups_rans_read_frequencies(bytes, length, back), 0);
    bytes[5]--;
    bytes[4] = UPS_RANS_USED_TOKENS + 1;
    assert_int_equal(ups_rans_read_frequencies(bytes, length, back), 0);
}

static void latents_that_cannot_be_compressed_are_stored(void **state) {
    enum { TIMES = 100, SERIES = 640 };
    ups_f16 *latents = make_latents(0, TIMES, SERIES);
    latent_codec c = latent_codec_create(TIMES, SERIES);
    latent_encode(&c, latents);
    assert_int_equal(c.length, ups_latent_bound(TIMES, SERIES));
    latent_codec_destroy(&c);
    free(latents);
}

static char *program; /* this one */

/* The instruction set that this program uses when UPS_CPU is `wanted`. Where it is emulated, UPS_TEST_LAUNCHER says how
 * to start one that is, too. */
static const char *chosen_for(const char *wanted) {
    static char name[32];
    char command[4096];
    const char *launcher = getenv("UPS_TEST_LAUNCHER");
    assert_in_range(snprintf(command, sizeof command, "UPS_CPU='%s' %s '%s' --instruction-set", wanted,
                             launcher ? launcher : "", program),
                    1, sizeof command - 1);
    FILE *output = popen(command, "r");
    assert_non_null(output);
    assert_non_null(fgets(name, sizeof name, output));
    assert_int_equal(pclose(output), 0);
    return name;
}

static void the_environment_names_a_lesser_instruction_set(void **state) {
    char best[32];
    ups_rans_use(0);
    snprintf(best, sizeof best, "%s", ups_rans_instruction_set());
    for (int form = 0; form < MOST_FORMS && ups_rans_use(form); form++)
        assert_string_equal(chosen_for(ups_rans_instruction_set()), ups_rans_instruction_set());
    assert_string_equal(chosen_for("amx"), best);
    assert_string_equal(chosen_for(""), best);
}

int main(int argc, char **argv) {
    program = argv[0];
    if (argc == 2 && strcmp(argv[1], "--instruction-set") == 0) return fputs(ups_rans_instruction_set(), stdout) < 0;
#define form(name)                                                                                                     \
    { "a_form_for_" name "_is_among_those_compared", this_form_is_among_those_compared, NULL, fastest, name }
    const struct CMUnitTest tests[] = {
        form("baseline"),
#if defined(__x86_64__)
        form("avx2"),
        form("avx512"),
#endif
        cmocka_unit_test_teardown(any_latents_come_back_and_every_form_makes_the_same_bytes, fastest),
        cmocka_unit_test_teardown(every_form_decodes_any_run_of_frames_into_either_type, fastest),
        cmocka_unit_test_teardown(every_form_makes_the_same_of_words_that_nobody_encoded, fastest),
        cmocka_unit_test_teardown(a_single_nan_or_infinity_is_noticed_wherever_it_is, fastest),
        cmocka_unit_test(codes_and_tokens_are_those_of_the_format_document),
        cmocka_unit_test(the_order_chosen_is_the_one_that_fits),
        cmocka_unit_test(frequencies_come_back_and_unsound_ones_are_refused),
        cmocka_unit_test(latents_that_cannot_be_compressed_are_stored),
        cmocka_unit_test_teardown(the_environment_names_a_lesser_instruction_set, fastest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

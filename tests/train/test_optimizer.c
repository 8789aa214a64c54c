/* AdamW, clipping, decay and the moving average against a plain float64 account of several steps (Loshchilov & Hutter,
 * arXiv 1711.05101). */
#include "base/half.h"
#include "base/random.h"
#include "tests/base/testing.h"
#include "train/learning_rate.h"
#include "train/optimizer.h"

#include "model/parameters.h"
#include <math.h>

enum { STEPS = 7, TENSORS = 5 };
static const int64_t sizes[TENSORS] = {130, 64, 7, 1, 333};
static const bool undecayed[TENSORS] = {false, true, true, false, false};

typedef struct trained {
    ups_device *device;
    ups_parameters *parameters;
    ups_optimizer *optimizer;
} trained;

static void ok(ups_status status, const ups_error *error) {
    if (status != UPS_OK) fail_msg("%s", error->message);
}

static trained begin(const ups_optimizer_config *config, ups_dtype compute) {
    trained t = {.parameters = ups_parameters_create()};
    ups_error error;
    ok(ups_device_open(&(ups_device_options){.name = "cpu", .threads = 1}, &t.device, &error), &error);
    for (int i = 0; i < TENSORS; i++) {
        char name[] = "tensor0";
        name[6] += (char)i;
        ups_parameters_add(t.parameters, name, 1, &sizes[i],
                           (ups_init){.kind = UPS_INIT_NORMAL, .scale = 1, .no_decay = undecayed[i]});
    }
    ok(ups_parameters_allocate(t.parameters, t.device, true, compute, 11, &error), &error);
    ok(ups_optimizer_create(config, t.device, t.parameters, &t.optimizer, &error), &error);
    return t;
}

static void end(trained *t) {
    ups_optimizer_destroy(t->optimizer);
    ups_parameters_destroy(t->parameters);
    ups_device_close(t->device);
}

static int64_t elements(const trained *t) {
    return ups_parameters_elements(t->parameters);
}

/* Parameter an element of the flat buffers belongs to; NULL for padding. */
static const ups_parameter *owner(const trained *t, int64_t element) {
    for (int32_t i = 0; i < TENSORS; i++) {
        const ups_parameter *p = ups_parameters_get(t->parameters, i);
        if (element >= p->offset && element < p->offset + p->elements) return p;
    }
    return NULL;
}

static float gradient_of(int64_t element, int64_t step, float size) {
    return size * (float)ups_random_normal(ups_random_stream(3, UPS_RANDOM_TEST, (uint32_t)step), (uint64_t)element);
}

static void put_gradients(const trained *t, int64_t step, float size) {
    float *gradients = ups_parameters_gradients(t->parameters);
    for (int64_t i = 0; i < elements(t); i++) gradients[i] = owner(t, i) ? gradient_of(i, step, size) : 0;
}

static void near(const char *what, int64_t element, double found, double expected) {
    if (!(fabs(found - expected) <= 2e-6 * (1 + fabs(expected)))) {
        fail_msg("%s of element %lld is %.9g where %.9g was expected", what, (long long)element, found, expected);
    }
}

/* Steps the optimizer and the plain account side by side. */
static const ups_loss_scale unscaled;

static void check(ups_optimizer_config config, float gradient_size, ups_dtype compute) {
    trained t = begin(&config, compute);
    int64_t count = elements(&t);
    double *value = calloc((size_t)count, sizeof *value), *m = calloc((size_t)count, sizeof *m);
    double *v = calloc((size_t)count, sizeof *v), *average = calloc((size_t)count, sizeof *average);
    const float *values = ups_parameters_values(t.parameters);
    for (int64_t i = 0; i < count; i++) value[i] = average[i] = (double)values[i];
    for (int64_t step = 0; step < STEPS; step++) {
        ups_optimizer_result result;
        ups_error error;
        put_gradients(&t, step, gradient_size);
        double squares = 0;
        for (int64_t i = 0; i < count; i++) {
            double g = owner(&t, i) ? (double)gradient_of(i, step, gradient_size) : 0;
            squares += g * g;
        }
        double norm = sqrt(squares), scale = config.clip > 0 && norm > config.clip ? config.clip / norm : 1;
        double rate = ups_schedule_rate(&config, step, STEPS);
        for (int64_t i = 0; i < count; i++) {
            const ups_parameter *p = owner(&t, i);
            if (!p) continue;
            double g = scale * (double)gradient_of(i, step, gradient_size);
            m[i] = config.beta1 * m[i] + (1 - config.beta1) * g;
            v[i] = config.beta2 * v[i] + (1 - config.beta2) * g * g;
            double m_hat = m[i] / (1 - pow(config.beta1, (double)(step + 1)));
            double v_hat = v[i] / (1 - pow(config.beta2, (double)(step + 1)));
            double decay = p->init.no_decay ? 0 : config.weight_decay;
            value[i] -= rate * (m_hat / (sqrt(v_hat) + config.epsilon) + decay * value[i]);
            average[i] = config.ema_decay * average[i] + (1 - config.ema_decay) * value[i];
        }
        ok(ups_optimizer_step(t.optimizer, step, STEPS, &unscaled, &result, &error), &error);
        assert_int_equal(result.non_finite, 0);
        near("the gradient norm", 0, result.gradient_norm, norm);
        for (int64_t i = 0; i < count; i++) {
            near("the value", i, (double)values[i], value[i]);
            near("the first moment", i, (double)ups_optimizer_first_moment(t.optimizer)[i], m[i]);
            near("the second moment", i, (double)ups_optimizer_second_moment(t.optimizer)[i], v[i]);
            if (config.ema_decay > 0) {
                near("the average", i, (double)ups_optimizer_average(t.optimizer)[i], owner(&t, i) ? average[i] : 0);
            }
        }
    }
    const uint16_t *copy = ups_parameters_weights(t.parameters)->compute;
    if (copy) {
        uint16_t *expected = calloc((size_t)count, sizeof *expected);
        (compute == UPS_F16 ? ups_f32_to_f16 : ups_f32_to_bf16)(values, expected, (size_t)count);
        assert_memory_equal(copy, expected, (size_t)count * sizeof *expected);
        free(expected);
    }
    assert_int_equal(copy != NULL, compute != UPS_F32);
    if (config.ema_decay <= 0) assert_null(ups_optimizer_average(t.optimizer));
    free(value), free(m), free(v), free(average);
    end(&t);
}

static const ups_optimizer_config usual = {.learning_rate = 0.01,
                                           .weight_decay = 0.1,
                                           .beta1 = 0.9,
                                           .beta2 = 0.99,
                                           .epsilon = 1e-8,
                                           .ema_decay = 0.9,
                                           .schedule = UPS_SCHEDULE_COSINE,
                                           .warmup_steps = 2,
                                           .final_fraction = 0.1};

static void steps_are_those_of_adamw_with_its_average(void **state) {
    check(usual, 0.1f, UPS_F32);
}

static void gradients_beyond_the_limit_are_scaled_down_to_it_and_others_left_alone(void **state) {
    ups_optimizer_config config = usual;
    config.clip = 1;
    check(config, 3, UPS_F32);     /* norm of about 70 */
    check(config, 0.01f, UPS_F32); /* of about 0.2 */
}

static void the_compute_copy_follows_the_values(void **state) {
    check(usual, 0.1f, UPS_BF16);
    check(usual, 0.1f, UPS_F16);
}

static void without_an_average_none_is_kept(void **state) {
    ups_optimizer_config config = usual;
    config.ema_decay = 0;
    check(config, 0.1f, UPS_F32);
}

/* The third step is skipped: the scaled optimizer takes it for no update, the plain one never sees it. */
static void scaled_gradients_give_the_bits_of_plain_ones_and_skipped_steps_are_no_updates(void **state) {
    ups_optimizer_config config = usual;
    config.clip = 1;
    config.schedule = UPS_SCHEDULE_CONSTANT;
    config.warmup_steps = 0;
    trained plain = begin(&config, UPS_F32), scaled = begin(&config, UPS_F32);
    ups_loss_scale scale = ups_loss_scale_begin(UPS_F16);
    ups_optimizer_result expected, found;
    ups_error error;
    for (int64_t step = 0; step < STEPS; step++) {
        bool skipped = step == 2;
        put_gradients(&scaled, step, 3 * ups_loss_scale_factor(&scale));
        if (skipped) ups_parameters_gradients(scaled.parameters)[0] = INFINITY;
        ok(ups_optimizer_step(scaled.optimizer, step, STEPS, &scale, &found, &error), &error);
        if (skipped) assert_true(ups_loss_scale_skip(&scale));
        if (skipped) continue;
        put_gradients(&plain, step, 3);
        ok(ups_optimizer_step(plain.optimizer, step - scale.skipped, STEPS, &unscaled, &expected, &error), &error);
        assert_true(found.gradient_norm == expected.gradient_norm);
    }
    assert_true(scale.scale == UPS_LOSS_SCALE_FIRST / 2 && scale.skipped == 1);
    assert_memory_equal(ups_parameters_values(scaled.parameters), ups_parameters_values(plain.parameters),
                        (size_t)elements(&plain) * sizeof(float));
    end(&plain);
    end(&scaled);
}

/* Without gradients nothing but decay moves a weight. */
static void gains_and_biases_are_not_decayed_and_matrices_are(void **state) {
    ups_optimizer_config config = usual;
    trained t = begin(&config, UPS_F32);
    ups_optimizer_result result;
    ups_error error;
    float *values = ups_parameters_values(t.parameters), *before = malloc((size_t)elements(&t) * sizeof *before);
    memcpy(before, values, (size_t)elements(&t) * sizeof *before);
    put_gradients(&t, 0, 0);
    ok(ups_optimizer_step(t.optimizer, 0, STEPS, &unscaled, &result, &error), &error);
    double rate = ups_schedule_rate(&config, 0, STEPS);
    for (int64_t i = 0; i < elements(&t); i++) {
        const ups_parameter *p = owner(&t, i);
        if (p && !p->init.no_decay)
            near("the value", i, (double)values[i], (1 - rate * config.weight_decay) * (double)before[i]);
        else
            assert_true(values[i] == before[i]);
    }
    free(before);
    end(&t);
}

static void gradients_that_are_not_finite_are_counted_and_change_nothing(void **state) {
    trained t = begin(&usual, UPS_F32);
    ups_optimizer_result result;
    ups_error error;
    size_t bytes = (size_t)elements(&t) * sizeof(float);
    float *before = malloc(bytes);
    memcpy(before, ups_parameters_values(t.parameters), bytes);
    put_gradients(&t, 0, 1);
    ups_parameters_gradients(t.parameters)[ups_parameters_get(t.parameters, 0)->offset] = NAN;
    ups_parameters_gradients(t.parameters)[ups_parameters_get(t.parameters, 4)->offset + 9] = -INFINITY;
    ok(ups_optimizer_step(t.optimizer, 0, STEPS, &unscaled, &result, &error), &error);
    assert_int_equal(result.non_finite, 2);
    assert_memory_equal(before, ups_parameters_values(t.parameters), bytes);
    for (int64_t i = 0; i < elements(&t); i++) assert_true(ups_optimizer_first_moment(t.optimizer)[i] == 0);
    free(before);
    end(&t);
}

static void its_memory_is_known_before_it_is_created(void **state) {
    ups_optimizer_config config = usual;
    trained t = begin(&config, UPS_F32);
    size_t buffer = (size_t)elements(&t) * sizeof(float);
    assert_int_equal(ups_optimizer_bytes(&config, t.parameters), 3 * buffer);
    config.ema_decay = 0;
    assert_int_equal(ups_optimizer_bytes(&config, t.parameters), 2 * buffer);
    end(&t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_are_those_of_adamw_with_its_average),
        cmocka_unit_test(gradients_beyond_the_limit_are_scaled_down_to_it_and_others_left_alone),
        cmocka_unit_test(the_compute_copy_follows_the_values),
        cmocka_unit_test(scaled_gradients_give_the_bits_of_plain_ones_and_skipped_steps_are_no_updates),
        cmocka_unit_test(without_an_average_none_is_kept),
        cmocka_unit_test(gains_and_biases_are_not_decayed_and_matrices_are),
        cmocka_unit_test(gradients_that_are_not_finite_are_counted_and_change_nothing),
        cmocka_unit_test(its_memory_is_known_before_it_is_created),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

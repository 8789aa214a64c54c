/* AdamW, clipping, decay and the moving average against a plain float64 account of several steps (Loshchilov & Hutter,
 * arXiv 1711.05101). */
#include "base/half.h"
#include "base/random.h"
#include "tests/model/claims.h"
#include "tests/model/on_device.h"
#include "tests/train/buffers.h"
#include "train/learning_rate.h"
#include "train/optimizer.h"

#include "model/devices/devices.h"
#include "model/parameters/parameters.h"
#include <math.h>

enum { STEPS = 7, TENSORS = 5 };
static const int64_t sizes[TENSORS] = {130, 64, 7, 1, 333};
static const bool undecayed[TENSORS] = {false, true, true, false, false};
static const int32_t sets[TENSORS] = {1, 0, 1, 0, 2}; /* of a model whose graphs train different parameters */

typedef struct trained {
    const ups_optimizer_config *config;
    ups_device *device;
    ups_parameters *parameters;
    ups_optimizer *optimizer;
} trained;

static trained begin_divided(const ups_optimizer_config *config, ups_dtype compute, const int32_t *set_of) {
    trained t = {.config = config, .parameters = ups_parameters_create()};
    ok(ups_device_open(&(ups_device_options){.name = "auto", .threads = 1}, &t.device, &failure));
    for (int i = 0; i < TENSORS; i++) {
        char name[] = "tensor0";
        name[6] += (char)i;
        ups_parameters_add(t.parameters, name, 1, &sizes[i],
                           (ups_init){.kind = UPS_INIT_NORMAL, .scale = 1, .no_decay = undecayed[i]});
    }
    if (set_of) ups_parameters_divide(t.parameters, set_of);
    ok(ups_parameters_allocate(t.parameters, t.device, true, compute, 11, &failure));
    ok(ups_optimizer_create(config, t.device, t.parameters, NULL, &t.optimizer, &failure));
    return t;
}

static trained begin(const ups_optimizer_config *config, ups_dtype compute) {
    return begin_divided(config, compute, NULL);
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
    size_t bytes = (size_t)elements(t) * sizeof(float);
    float *gradients = malloc(bytes);
    for (int64_t i = 0; i < elements(t); i++) gradients[i] = owner(t, i) ? gradient_of(i, step, size) : 0;
    write_device(t->device, ups_parameters_gradients(t->parameters), gradients, bytes);
    free(gradients);
}

/* One gradient of a parameter. */
static void put_gradient(const trained *t, int32_t parameter, int64_t element, float value) {
    float *there = ups_parameters_gradients(t->parameters) + ups_parameters_get(t->parameters, parameter)->offset;
    write_device(t->device, there + element, &value, sizeof value);
}

static float *flat(const trained *t, const float *buffer) {
    return read_device(t->device, buffer, (size_t)elements(t) * sizeof(float));
}

/* One step of some sets, NULL: of all, read at once. */
static ups_update step_of(const trained *t, int64_t step, const bool *sets_trained) {
    ups_update update;
    ups_update_input input = {
        .step = step, .share = 1, .learning_rate = (float)ups_schedule_rate(t->config, step, STEPS, 0)};
    ok(ups_optimizer_begin(t->optimizer, &input, &failure));
    ok(ups_optimizer_step(t->optimizer, sets_trained, &failure));
    ok(ups_optimizer_result(t->optimizer, &update, &failure));
    return update;
}

static ups_update step_now(const trained *t, int64_t step) {
    return step_of(t, step, NULL);
}

static void near(const char *what, int64_t element, double found, double expected) {
    if (!(fabs(found - expected) <= 2e-6 * (1 + fabs(expected)))) {
        fail_msg("%s of element %lld is %.9g where %.9g was expected", what, (long long)element, found, expected);
    }
}

/* Steps the optimizer and the plain account side by side. With `set_of` a step trains a part of the sets, now and then
 * none, though gradients of all lie there. */
static void check_divided(ups_optimizer_config config, float gradient_size, ups_dtype compute, const int32_t *set_of) {
    trained t = begin_divided(&config, compute, set_of);
    int taken[TENSORS] = {0}; /* steps, by set */
    int64_t count = elements(&t);
    double *value = calloc((size_t)count, sizeof *value), *m = calloc((size_t)count, sizeof *m);
    double *v = calloc((size_t)count, sizeof *v), *average = calloc((size_t)count, sizeof *average);
    float *values = flat(&t, ups_parameters_values(t.parameters));
    for (int64_t i = 0; i < count; i++) value[i] = average[i] = (double)values[i];
    for (int64_t step = 0; step < STEPS; step++) {
        put_gradients(&t, step, gradient_size * ups_optimizer_state(t.optimizer).loss_scale);
        double squares = 0;
        const bool trains[TENSORS] = {step % 2 == 1, step % 4 != 0, step > 3 && step % 2 == 1};
        for (int set = 0; set < TENSORS; set++) taken[set] += !set_of || trains[set];
        for (int64_t i = 0; i < count; i++) {
            if (set_of && owner(&t, i) && !trains[owner(&t, i)->set]) continue;
            double g = owner(&t, i) ? (double)gradient_of(i, step, gradient_size) : 0;
            squares += g * g;
        }
        double norm = sqrt(squares), scale = config.clip > 0 && norm > config.clip ? config.clip / norm : 1;
        double rate = ups_schedule_rate(&config, step, STEPS, 0);
        for (int64_t i = 0; i < count; i++) {
            const ups_parameter *p = owner(&t, i);
            if (!p || (set_of && !trains[p->set])) continue;
            double g = scale * (double)gradient_of(i, step, gradient_size);
            m[i] = config.beta1 * m[i] + (1 - config.beta1) * g;
            v[i] = config.beta2 * v[i] + (1 - config.beta2) * g * g;
            double m_hat = m[i] / (1 - pow(config.beta1, taken[p->set]));
            double v_hat = v[i] / (1 - pow(config.beta2, taken[p->set]));
            double decay = p->init.no_decay ? 0 : config.weight_decay;
            value[i] -= rate * (m_hat / (sqrt(v_hat) + config.epsilon) + decay * value[i]);
            double follow = fmin(config.ema_decay, (double)taken[p->set] / (double)(9 + taken[p->set]));
            average[i] = follow * average[i] + (1 - follow) * value[i];
        }
        ups_update_result result = step_of(&t, step, set_of ? trains : NULL).result;
        assert_int_equal(result.non_finite, 0);
        near("the gradient norm", 0, result.gradient_norm, norm);
        free(values);
        values = flat(&t, ups_parameters_values(t.parameters));
        ups_parameter_buffer kept[UPS_OPTIMIZER_MAX_BUFFERS];
        ups_optimizer_buffers(t.optimizer, kept);
        float *first = flat(&t, kept[0].values), *second = flat(&t, kept[1].values);
        float *ema = config.ema_decay > 0 ? flat(&t, ups_optimizer_average(t.optimizer)) : NULL;
        for (int64_t i = 0; i < count; i++) {
            near("the value", i, (double)values[i], value[i]);
            near("the first moment", i, (double)first[i], m[i]);
            near("the second moment", i, (double)second[i], v[i]);
            if (ema) near("the average", i, (double)ema[i], owner(&t, i) ? average[i] : 0);
        }
        free(first), free(second), free(ema);
    }
    const ups_weights *weights = ups_parameters_weights(t.parameters);
    uint16_t *copy = weights->compute ? read_device(t.device, weights->compute, (size_t)count * sizeof *copy) : NULL;
    if (copy) {
        uint16_t *expected = calloc((size_t)count, sizeof *expected);
        (compute == UPS_F16 ? ups_f32_to_f16 : ups_f32_to_bf16)(values, expected, (size_t)count);
        assert_memory_equal(copy, expected, (size_t)count * sizeof *expected);
        free(expected);
    }
    assert_int_equal(copy != NULL, compute != UPS_F32);
    free(copy);
    if (config.ema_decay <= 0) assert_null(ups_optimizer_average(t.optimizer));
    free(value), free(m), free(v), free(average), free(values);
    end(&t);
}

static void check(ups_optimizer_config config, float gradient_size, ups_dtype compute) {
    check_divided(config, gradient_size, compute, NULL);
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

CLAIM(steps_are_those_of_adamw_with_its_average) {
    check(usual, 0.1f, UPS_F32);
}

CLAIM(gradients_beyond_the_limit_are_scaled_down_to_it_and_others_left_alone) {
    ups_optimizer_config config = usual;
    config.clip = 1;
    check(config, 3, UPS_F32);     /* norm of about 70 */
    check(config, 0.01f, UPS_F32); /* of about 0.2 */
}

CLAIM(the_compute_copy_follows_the_values) {
    check(usual, 0.1f, UPS_BF16);
    check(usual, 0.1f, UPS_F16);
}

CLAIM(sets_that_a_step_does_not_train_stay_as_they_are_and_do_not_count_it) {
    ups_optimizer_config config = usual;
    config.clip = 1;
    check_divided(config, 3, UPS_F32, sets);
    check_divided(usual, 0.1f, UPS_BF16, sets);
    config.ema_decay = 0;
    check_divided(config, 0.1f, UPS_F32, (int32_t[TENSORS]){0, 1, 1, 1, 0});
}

static const ups_device_class *counted;
static int calls;

static ups_status count_call(ups_device *device, const ups_optimizer_call *call, ups_error *error) {
    calls++;
    return counted->optimize(device, call, error);
}

/* Once call by call, once for the capture, and then as a whole; anew where the rules change. */
CLAIM(a_device_that_captures_is_given_a_steps_calls_twice) {
    trained t = begin_divided(&usual, UPS_F32, sets);
    ups_device_class counting = *t.device->class;
    counted = t.device->class;
    counting.optimize = count_call;
    t.device->class = &counting;
    const bool captures = counted->capture_begin != NULL, some[TENSORS] = {true}, *const which[] = {NULL, some, NULL};
    put_gradients(&t, 0, 0.1f);
    for (int round = 0; round < 3; round++) {
        if (round == 2) ok(ups_optimizer_scale_losses(t.optimizer, 1, 100, &failure));
        calls = 0;
        step_of(&t, (int64_t)4 * round, which[round]);
        const int once = calls;
        assert_true(once > 0);
        for (int64_t step = 1; step < 4; step++) step_of(&t, (int64_t)4 * round + step, which[round]);
        assert_int_equal(calls, captures ? 2 * once : 4 * once);
    }
    t.device->class = counted;
    end(&t);
}

enum { MATRICES = 6, SIDE = 12, KINDS = 1 << MATRICES /* selections of their sets */, KEPT = 32 /* captured */ };

/* A matrix a set. Without `captures` steps are issued call by call, as by the class `by_calls`. */
static trained begin_matrices(const ups_optimizer_config *config, bool captures, ups_device_class *by_calls) {
    trained t = {.config = config, .parameters = ups_parameters_create()};
    ok(ups_device_open(&(ups_device_options){.name = "auto", .threads = 1}, &t.device, &failure));
    for (int i = 0; i < MATRICES; i++) {
        char name[] = "matrix0";
        name[6] += (char)i;
        ups_parameters_add(t.parameters, name, 2, (int64_t[]){SIDE, SIDE + i},
                           (ups_init){.kind = UPS_INIT_NORMAL, .scale = 0.1f, .matrices = 1});
    }
    ups_parameters_divide(t.parameters, (int32_t[MATRICES]){0, 1, 2, 3, 4, 5});
    ok(ups_parameters_allocate(t.parameters, t.device, true, UPS_F32, 11, &failure));
    *by_calls = *t.device->class;
    by_calls->capture_begin = NULL;
    if (!captures) t.device->class = by_calls;
    ok(ups_optimizer_create(config, t.device, t.parameters, NULL, &t.optimizer, &failure));
    return t;
}

/* Selection `kind` trains set i where its bit i is 1. */
static void step_of_kind(const trained *t, int64_t step, int64_t kind) {
    bool selection[MATRICES];
    for (int set = 0; set < MATRICES; set++) selection[set] = kind >> set & 1;
    step_of(t, step % STEPS, selection);
}

/* The weights after two rounds of steps of every selection, one of them thrice; the caller frees. */
static float *weights_after(const ups_optimizer_config *config, bool captures, size_t *bytes) {
    ups_device_class by_calls;
    trained t = begin_matrices(config, captures, &by_calls);
    *bytes = (size_t)elements(&t) * sizeof(float);
    float *gradients = malloc(*bytes);
    for (int64_t step = 0; step < 2 * KINDS; step++) {
        for (size_t i = 0; i < *bytes / sizeof(float); i++) gradients[i] = gradient_of((int64_t)i, step, 1);
        write_device(t.device, ups_parameters_gradients(t.parameters), gradients, *bytes);
        for (int again = 0; again < (step % KINDS == 5 ? 3 : 1); again++) step_of_kind(&t, step, step % KINDS);
    }
    float *weights = flat(&t, ups_parameters_values(t.parameters));
    for (size_t i = 0; i < *bytes / sizeof(float); i++) assert_true(isfinite(weights[i]));
    free(gradients);
    end(&t);
    return weights;
}

static int calls_of(const trained *t, int64_t kind) {
    calls = 0;
    step_of_kind(t, 0, kind);
    return calls;
}

CLAIM(of_captured_steps_those_used_last_are_kept) {
    ups_device_class class;
    trained t = begin_matrices(&usual, true, &class);
    counted = t.device->class;
    class = *counted;
    class.optimize = count_call;
    t.device->class = &class;
    float *zeros = calloc((size_t)elements(&t), sizeof *zeros);
    write_device(t.device, ups_parameters_gradients(t.parameters), zeros, (size_t)elements(&t) * sizeof *zeros);
    free(zeros);
    if (counted->capture_begin) {
        for (int64_t kind = 1; kind <= KEPT; kind++)
            for (int use = 0; use < 3; use++) assert_int_equal(calls_of(&t, kind) > 0, use < 2);
        assert_int_equal(calls_of(&t, 1), 0);
        assert_true(calls_of(&t, KEPT + 1) > 0); /* in the place of 2 */
        assert_int_equal(calls_of(&t, 1), 0);
        assert_int_equal(calls_of(&t, 3), 0);
        assert_true(calls_of(&t, 2) > 0);
    } else {
        assert_true(calls_of(&t, 1) > 0);
    }
    t.device->class = counted;
    end(&t);
}

CLAIM(steps_that_are_launched_as_a_whole_have_the_bits_of_their_calls) {
    ups_optimizer_config config = usual;
    config.clip = 1;
    config.momentum = 0.95;
    const int kinds[] = {UPS_OPTIMIZER_ADAMW, UPS_OPTIMIZER_MUON};
    for (int k = 0; k < 2; k++) {
        config.kind = kinds[k];
        size_t bytes;
        float *whole = weights_after(&config, true, &bytes), *by_calls = weights_after(&config, false, &bytes);
        assert_memory_equal(whole, by_calls, bytes);
        free(whole), free(by_calls);
    }
}

CLAIM(parameters_lie_set_by_set) {
    trained t = begin_divided(&usual, UPS_F32, sets);
    int64_t end_of_last = 0;
    int32_t set = 0;
    assert_int_equal(ups_parameters_sets(t.parameters), 3);
    for (int32_t i = 0; i < TENSORS; i++) {
        const ups_parameter *p = ups_parameters_get(t.parameters, ups_parameters_placed(t.parameters, i));
        assert_int_equal(p->offset, end_of_last);
        assert_true(p->set >= set);
        end_of_last += ups_parameter_extent(p);
        set = p->set;
    }
    assert_int_equal(end_of_last, elements(&t));
    end(&t);
}

CLAIM(without_an_average_none_is_kept) {
    ups_optimizer_config config = usual;
    config.ema_decay = 0;
    check(config, 0.1f, UPS_F32);
}

/* Without gradients nothing but decay moves a weight. */
CLAIM(gains_and_biases_are_not_decayed_and_matrices_are) {
    ups_optimizer_config config = usual;
    trained t = begin(&config, UPS_F32);
    float *before = flat(&t, ups_parameters_values(t.parameters));
    put_gradients(&t, 0, 0);
    step_now(&t, 0);
    float *values = flat(&t, ups_parameters_values(t.parameters));
    double rate = ups_schedule_rate(&config, 0, STEPS, 0);
    for (int64_t i = 0; i < elements(&t); i++) {
        const ups_parameter *p = owner(&t, i);
        if (p && !p->init.no_decay)
            near("the value", i, (double)values[i], (1 - rate * config.weight_decay) * (double)before[i]);
        else
            assert_true(values[i] == before[i]);
    }
    free(before), free(values);
    end(&t);
}

/* The weights and the first moment are what they were. */
static void assert_untouched(const trained *t, const float *values) {
    float *after = flat(t, ups_parameters_values(t->parameters));
    ups_parameter_buffer kept[UPS_OPTIMIZER_MAX_BUFFERS];
    ups_optimizer_buffers(t->optimizer, kept);
    float *moment = flat(t, kept[0].values);
    assert_memory_equal(after, values, (size_t)elements(t) * sizeof *after);
    for (int64_t i = 0; i < elements(t); i++) assert_true(moment[i] == 0);
    free(after), free(moment);
}

CLAIM(gradients_that_are_not_finite_are_counted_and_neither_they_nor_later_ones_change_a_weight) {
    trained t = begin(&usual, UPS_F32);
    float *before = flat(&t, ups_parameters_values(t.parameters));
    put_gradients(&t, 0, 1);
    put_gradient(&t, 0, 0, NAN);
    put_gradient(&t, 4, 9, -INFINITY);
    ups_update_result result = step_now(&t, 0).result;
    assert_int_equal(result.non_finite, 2);
    assert_true(result.failed && result.skipped);
    assert_untouched(&t, before);
    put_gradients(&t, 1, 1); /* issued before the failure was read */
    assert_true(step_now(&t, 1).result.failed);
    assert_untouched(&t, before);
    free(before);
    end(&t);
}

CLAIM(the_loss_scale_grows_after_good_steps_and_halves_at_an_overflow_whose_step_is_skipped) {
    trained t = begin(&usual, UPS_F32), plain = begin(&usual, UPS_F32);
    size_t bytes = (size_t)elements(&t) * sizeof(float);
    ok(ups_optimizer_scale_losses(t.optimizer, 8, 2, &failure));
    const bool overflows[STEPS] = {false, true, false, false, true, false, false};
    const float scales[STEPS + 1] = {8, 8, 4, 4, 8, 4, 4, 8};
    int64_t taken = 0;
    for (int64_t step = 0; step < STEPS; step++) {
        assert_true(ups_optimizer_state(t.optimizer).loss_scale == scales[step]);
        put_gradients(&t, step, scales[step] * 0.1f);
        if (overflows[step]) put_gradient(&t, 2, 1, INFINITY);
        ups_update update = step_now(&t, step);
        assert_int_equal(update.result.skipped, overflows[step]);
        assert_false(update.result.failed);
        assert_int_equal(update.state.skipped, step + 1 - (taken += !overflows[step]));
    }
    assert_true(ups_optimizer_state(t.optimizer).loss_scale == scales[STEPS]);
    /* Powers of 2 change no bit; the learning rate is the step's, the bias corrections are of the steps taken. */
    taken = 0;
    for (int64_t step = 0; step < STEPS; step++) {
        if (overflows[step]) continue;
        ups_update_state fixed = {.loss_scale = 1, .skipped = step - taken, .taken = {taken}};
        taken++;
        ok(ups_optimizer_restore(plain.optimizer, &fixed, &failure));
        put_gradients(&plain, step, 0.1f);
        step_now(&plain, step);
    }
    float *scaled = flat(&t, ups_parameters_values(t.parameters));
    float *unscaled = flat(&plain, ups_parameters_values(plain.parameters));
    assert_memory_equal(scaled, unscaled, bytes);
    free(scaled), free(unscaled);
    end(&t);
    end(&plain);
}

CLAIM(the_loss_scale_is_of_fp16_and_stays_below_its_maximum) {
    trained t = begin(&usual, UPS_F16), bf16 = begin(&usual, UPS_BF16);
    assert_true(ups_optimizer_scales_losses(t.optimizer) && !ups_optimizer_scales_losses(bf16.optimizer));
    assert_true(ups_optimizer_state(t.optimizer).loss_scale == UPS_LOSS_SCALE_FIRST);
    ok(ups_optimizer_scale_losses(t.optimizer, UPS_LOSS_SCALE_MAXIMUM / 2, 1, &failure));
    for (int64_t step = 0; step < 3; step++) {
        put_gradients(&t, step, 1);
        assert_true(step_now(&t, step).state.loss_scale == UPS_LOSS_SCALE_MAXIMUM);
    }
    end(&t);
    end(&bf16);
}

CLAIM(a_loss_scale_that_cannot_shrink_makes_an_overflow_a_failure) {
    trained t = begin(&usual, UPS_F32);
    ok(ups_optimizer_scale_losses(t.optimizer, 2, 100, &failure));
    for (int64_t step = 0; step < 2; step++) {
        put_gradients(&t, step, 1);
        put_gradient(&t, 0, 0, NAN);
        ups_update update = step_now(&t, step);
        assert_true(update.result.skipped);
        assert_int_equal(update.result.failed, step == 1); /* at a scale of 2 it shrinks, at 1 it cannot */
    }
    end(&t);
}

/* Some of the tensors are matrices that Muon moves. */
static trained begin_muon(const ups_optimizer_config *config, ups_dtype compute) {
    static const int64_t shapes[][3] = {{3, 24, 24}, {4, 17, 1}, {40, 30, 1}};
    trained t = {.config = config, .parameters = ups_parameters_create()};
    ok(ups_device_open(&(ups_device_options){.name = "auto", .threads = 2}, &t.device, &failure));
    for (int i = 0; i < 3; i++) {
        char name[] = "tensor0";
        name[6] += (char)i;
        ups_parameters_add(
            t.parameters, name, i == 0 ? 3 : 2, shapes[i],
            (ups_init){.kind = UPS_INIT_NORMAL, .scale = 1, .no_decay = i == 0, .matrices = i == 0 ? 3 : i == 2});
    }
    ok(ups_parameters_allocate(t.parameters, t.device, true, compute, 11, &failure));
    ok(ups_optimizer_create(config, t.device, t.parameters, NULL, &t.optimizer, &failure));
    return t;
}

static float *first_moment(const trained *t) {
    ups_parameter_buffer kept[UPS_OPTIMIZER_MAX_BUFFERS];
    ups_optimizer_buffers(t->optimizer, kept);
    return flat(t, kept[0].values);
}

static void fill_gradients(const trained *t, int64_t step, float size) {
    for (int32_t i = 0; i < ups_parameters_count(t->parameters); i++) {
        const ups_parameter *p = ups_parameters_get(t->parameters, i);
        for (int64_t k = 0; k < p->elements; k++) put_gradient(t, i, k, gradient_of(p->offset + k, step, size));
    }
}

static ups_optimizer_config muon(void) {
    ups_optimizer_config config = usual;
    config.kind = UPS_OPTIMIZER_MUON;
    config.momentum = 0.95;
    config.warmup_steps = 0;
    return config;
}

CLAIM(muon_skips_the_steps_that_adamw_skips) {
    ups_optimizer_config config = muon();
    trained t = begin_muon(&config, UPS_F32), plain = begin_muon(&config, UPS_F32);
    size_t bytes = (size_t)elements(&t) * sizeof(float);
    ok(ups_optimizer_scale_losses(t.optimizer, 8, 100, &failure));
    fill_gradients(&t, 0, 0.8f), fill_gradients(&plain, 0, 0.1f);
    assert_false(step_now(&t, 0).result.skipped);
    step_now(&plain, 0);
    put_gradient(&t, 2, 5, INFINITY);
    assert_true(step_now(&t, 1).result.skipped);
    fill_gradients(&t, 2, 0.4f), fill_gradients(&plain, 2, 0.1f); /* the scale is 4 now */
    ok(ups_optimizer_restore(plain.optimizer, &(ups_update_state){.loss_scale = 1, .skipped = 1, .taken = {1}},
                             &failure));
    step_now(&t, 2), step_now(&plain, 2);
    float *found = flat(&t, ups_parameters_values(t.parameters)), *moments = first_moment(&t);
    float *expected = flat(&plain, ups_parameters_values(plain.parameters)), *others = first_moment(&plain);
    for (int64_t i = 0; i < elements(&t); i++) assert_true(isfinite(found[i]) && isfinite(moments[i]));
    assert_memory_equal(moments, others, bytes); /* powers of 2 change no bit */
    assert_memory_equal(found, expected, bytes);
    free(found), free(moments), free(expected), free(others);
    end(&t), end(&plain);
}

CLAIM(after_a_gradient_that_is_not_finite_muon_changes_nothing_any_more) {
    ups_optimizer_config config = muon();
    trained t = begin_muon(&config, UPS_BF16);
    float *before = flat(&t, ups_parameters_values(t.parameters));
    fill_gradients(&t, 0, 1);
    put_gradient(&t, 0, 7, NAN);
    assert_true(step_now(&t, 0).result.failed);
    assert_untouched(&t, before);
    fill_gradients(&t, 1, 1);
    assert_true(step_now(&t, 1).result.failed);
    assert_untouched(&t, before);
    free(before);
    end(&t);
}

CLAIM(without_gradients_muon_decays_and_moves_nothing_else) {
    ups_optimizer_config config = muon();
    trained t = begin_muon(&config, UPS_F32);
    float *before = flat(&t, ups_parameters_values(t.parameters));
    for (int32_t i = 0; i < 3; i++) {
        for (int64_t k = 0; k < ups_parameters_get(t.parameters, i)->elements; k++) put_gradient(&t, i, k, 0);
    }
    assert_false(step_now(&t, 0).result.skipped);
    float *after = flat(&t, ups_parameters_values(t.parameters));
    const ups_parameter *modes = ups_parameters_get(t.parameters, 0), *matrix = ups_parameters_get(t.parameters, 2);
    const double keep = 1 - ups_schedule_rate(&config, 0, STEPS, 0) * config.weight_decay;
    for (int64_t k = 0; k < modes->elements; k++) assert_true(after[modes->offset + k] == before[modes->offset + k]);
    for (int64_t k = 0; k < matrix->elements; k++)
        near("the value", k, (double)after[matrix->offset + k], keep * (double)before[matrix->offset + k]);
    free(before), free(after);
    end(&t);
}

CLAIM(the_copy_and_the_average_follow_what_muon_moves) {
    ups_optimizer_config config = muon();
    trained t = begin_muon(&config, UPS_BF16);
    fill_gradients(&t, 0, 1);
    float *before = flat(&t, ups_parameters_values(t.parameters));
    step_now(&t, 0);
    float *values = flat(&t, ups_parameters_values(t.parameters)),
          *average = flat(&t, ups_optimizer_average(t.optimizer));
    size_t count = (size_t)elements(&t);
    const ups_weights *weights = ups_parameters_weights(t.parameters);
    uint16_t *copy = read_device(t.device, weights->compute, count * sizeof *copy);
    uint16_t *expected = calloc(count, sizeof *expected);
    ups_f32_to_bf16(values, expected, count);
    assert_memory_equal(copy, expected, count * sizeof *copy);
    for (size_t i = 0; i < count; i++)
        near("the average", (int64_t)i, (double)average[i], 0.1 * (double)before[i] + 0.9 * (double)values[i]);
    free(before), free(values), free(average), free(copy), free(expected);
    end(&t);
}

/* A matrix has one moment; products take a workspace. */
CLAIM(muon_keeps_less_than_adamw) {
    ups_optimizer_config config = muon();
    trained t = begin_muon(&config, UPS_F32);
    size_t all = (size_t)elements(&t) * sizeof(float), matrices = 0;
    ups_optimizer_memory muons, adamw;
    for (int32_t i = 0; i < 3; i++) {
        const ups_parameter *p = ups_parameters_get(t.parameters, i);
        if (p->init.matrices > 0) matrices += (size_t)ups_parameter_extent(p) * sizeof(float);
    }
    const ups_matrices shapes[] = {{.count = 3, .rows = 24, .columns = 24}, {.count = 1, .rows = 40, .columns = 30}};
    const size_t modes = t.device->class->matrices_workspace(t.device, &shapes[0], 1, UPS_F32);
    const size_t largest = t.device->class->matrices_workspace(t.device, &shapes[1], 1, UPS_F32);
    const size_t workspace = t.device->class->matrices_workspace(t.device, shapes, 2, UPS_F32);
    assert_true(modes > 0 && largest > 0 && workspace >= modes && workspace >= largest);
    ok(ups_optimizer_measure(&config, t.device, t.parameters, NULL, UPS_F32, &muons, &failure));
    assert_int_equal(muons.all, 3 * all - matrices + workspace);
    config.kind = UPS_OPTIMIZER_ADAMW;
    ok(ups_optimizer_measure(&config, t.device, t.parameters, NULL, UPS_F32, &adamw, &failure));
    assert_int_equal(adamw.all, 3 * all);
    end(&t);
}

CLAIM(its_memory_is_known_before_it_is_created) {
    ups_optimizer_config config = usual;
    trained t = begin(&config, UPS_F32);
    size_t buffer = (size_t)elements(&t) * sizeof(float);
    ups_optimizer_memory memory;
    ok(ups_optimizer_measure(&config, t.device, t.parameters, NULL, UPS_F32, &memory, &failure));
    assert_int_equal(memory.all, 3 * buffer);
    assert_int_equal(memory.offloaded, 0);
    config.ema_decay = 0;
    ok(ups_optimizer_measure(&config, t.device, t.parameters, NULL, UPS_F32, &memory, &failure));
    assert_int_equal(memory.all, 2 * buffer);
    config.offload = true;
    ok(ups_optimizer_measure(&config, t.device, t.parameters, NULL, UPS_F32, &memory, &failure));
    assert_int_equal(memory.all, 2 * buffer);
    assert_int_equal(memory.offloaded, t.device->class->memory ? 2 * buffer : 0); /* the CPU's is the host's */
    end(&t);
}

/* Weights and moments after some steps, by checkpoints' copies of them; `bytes` of it. */
static char *after_steps(ups_optimizer_config config, bool offload, size_t *bytes) {
    config.offload = offload;
    trained t = config.kind == UPS_OPTIMIZER_MUON ? begin_muon(&config, UPS_F32) : begin(&config, UPS_F32);
    ups_parameter_buffer buffers[UPS_OPTIMIZER_MAX_BUFFERS];
    const size_t each = (size_t)elements(&t) * sizeof(float);
    float *gradients = malloc(each);
    for (int64_t step = 0; step < 3; step++) {
        for (int64_t i = 0; i < elements(&t); i++) gradients[i] = gradient_of(i, step, 1);
        write_device(t.device, ups_parameters_gradients(t.parameters), gradients, each);
        assert_false(step_now(&t, step).result.skipped);
    }
    free(gradients);
    const int count = ups_optimizer_buffers(t.optimizer, buffers);
    char *all = calloc((size_t)count + 1, each);
    *bytes = ((size_t)count + 1) * each;
    ok(t.device->class->download(t.device, all, ups_parameters_values(t.parameters), each, &failure));
    for (int b = 0; b < count; b++) { /* parameter by parameter, as they are written to a file */
        for (int32_t i = 0; i < ups_parameters_count(t.parameters); i++) {
            const ups_parameter *p = ups_parameters_get(t.parameters, i);
            const int64_t at = place_in(&buffers[b], t.parameters, i);
            if (at < 0) continue;
            ok(t.device->class->download(t.device, all + (size_t)(b + 1) * each + (size_t)p->offset * sizeof(float),
                                         buffers[b].values + at, (size_t)p->elements * sizeof(float), &failure));
        }
    }
    end(&t);
    return all;
}

CLAIM(moments_in_host_memory_change_no_bit) {
    const ups_optimizer_config rules[] = {usual, muon()};
    trained t = begin(&rules[0], UPS_F32);
    const bool offloads = t.device->class->offloads;
    end(&t);
    if (!offloads) skip(); /* the CPU's memory is the host's */
    for (int rule = 0; rule < 2; rule++) {
        size_t bytes, other;
        char *own = after_steps(rules[rule], false, &bytes), *offloaded = after_steps(rules[rule], true, &other);
        assert_int_equal(bytes, other);
        assert_memory_equal(own, offloaded, bytes);
        free(own);
        free(offloaded);
    }
}

int main(void) {
    return run_claims(NULL, NULL, NULL);
}

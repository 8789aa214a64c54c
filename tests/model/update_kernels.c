#include "tests/model/update_kernels.h"

#include "base/half.h"
#include "base/random.h"
#include "tests/model/claims.h"
#include "tests/model/on_device.h"
#include "tests/model/op_fixture.h"
#include "tests/model/op_tally.h"
#include <limits.h>
#include <math.h>

/* `rested`: steps of a run that did not move these weights, before those that do. */
static void check_adamw(ups_dtype compute, int64_t rested) {
    enum { COUNT = 5003, STEPS = 3, SET = 2 };
    float *buffers[5];
    double w[COUNT], m[COUNT] = {0}, v[COUNT] = {0}, ema[COUNT];
    uint16_t *copy = device_memory(COUNT * sizeof *copy), host_copy[COUNT];
    float host[COUNT], values[COUNT];
    for (int i = 0; i < 5; i++) buffers[i] = device_memory(sizeof host);
    ups_random_fill_normal(ups_random_stream(1, UPS_RANDOM_TEST, 1), 1.0f, host, COUNT);
    for (int i = 0; i < COUNT; i++) w[i] = ema[i] = (double)host[i];
    device->class->upload(device, buffers[0], host, sizeof host, &failure);
    enum { FIRST = COUNT / 2 + 2 }; /* three more than fours of them */
    /* What is kept of the first half lies behind that of the second. */
    const ups_range halves[] = {{0, FIRST, COUNT - FIRST, 0}, {FIRST, COUNT - FIRST, 0, FIRST}};
    for (int i = 0; i < 2; i++)
        write_device(device, buffers[4] + halves[i].kept, host + halves[i].offset,
                     (size_t)halves[i].count * sizeof *host);
    ups_range *ranges = device_memory(sizeof halves);
    device->class->upload(device, ranges, halves, sizeof halves, &failure);
    /* Gradients that carry a loss scale of 2 are halved. */
    ok(ups_update_restore(channel, &(ups_update_state){.loss_scale = 2}, &failure));
    for (int64_t step = 1; step <= STEPS; step++) {
        ups_random_fill_normal(ups_random_stream(1, UPS_RANDOM_TEST, 1 + (uint32_t)step), 0.01f, host, COUNT);
        device->class->upload(device, buffers[1], host, sizeof host, &failure);
        ups_update *update = ups_update_memory(channel);
        ups_optimizer_call call = {.ranges = ranges,
                                   .range_count = 2,
                                   .range_elements = COUNT,
                                   .values = buffers[0],
                                   .gradients = buffers[1],
                                   .moments = {buffers[2], buffers[3]},
                                   .update = update};
        call.ema = buffers[4];
        call.compute = copy;
        call.compute_dtype = compute;
        call.beta1 = 0.9f, call.beta2 = 0.95f, call.epsilon = 1e-8f;
        call.weight_decay = 0.1f, call.ema_decay = 0.99f;
        call.set = SET;
        ups_update_input input = {.step = step - 1 + rested, .learning_rate = 1e-2f};
        ups_update_rules rules = {.trained = {[SET] = true}};
        give(&input);
        ok(device->class->decide(device, &rules, update, &failure));
        ok(device->class->optimize(device, &call, &failure));
        for (int i = 0; i < COUNT; i++) {
            double g = 0.5 * (double)host[i], b1 = (double)call.beta1, b2 = (double)call.beta2;
            m[i] = b1 * m[i] + (1 - b1) * g;
            v[i] = b2 * v[i] + (1 - b2) * g * g;
            double m_hat = m[i] / (1 - pow(b1, (double)step)), v_hat = v[i] / (1 - pow(b2, (double)step));
            w[i] -= (double)input.learning_rate *
                    (m_hat / (sqrt(v_hat) + (double)call.epsilon) + (double)call.weight_decay * w[i]);
            double decay = fmin((double)call.ema_decay, (double)step / (double)(9 + step));
            ema[i] = decay * ema[i] + (1 - decay) * w[i];
        }
    }
    device->class->download(device, values, buffers[0], sizeof values, &failure);
    for (int i = 0; i < 2; i++)
        device->class->download(device, host + halves[i].offset, buffers[4] + halves[i].kept,
                                (size_t)halves[i].count * sizeof *host, &failure);
    device->class->download(device, host_copy, copy, sizeof host_copy, &failure);
    for (int i = 0; i < COUNT; i++) {
        float rounded;
        (compute == UPS_F16 ? ups_f16_to_f32 : ups_bf16_to_f32)(&host_copy[i], &rounded, 1);
        assert_true(fabs((double)values[i] - w[i]) < 1e-6 * (1.0 + fabs(w[i])));
        assert_true(fabs((double)host[i] - ema[i]) < 1e-6 * (1.0 + fabs(ema[i])));
        assert_true(fabs((double)rounded - w[i]) < (compute == UPS_F16 ? 5e-4 : 4e-3) * fabs(w[i]) + 1e-6);
    }
    for (int i = 0; i < 5; i++) device->class->release(device, buffers[i]);
    device->class->release(device, copy);
    device->class->release(device, ranges);
    ok(ups_update_restore(channel, &(ups_update_state){.loss_scale = 1}, &failure));
}

CLAIM(adamw_follows_the_paper) {
    check_adamw(UPS_BF16, 0);
    check_adamw(UPS_BF16, 40);
    check_adamw(UPS_F16, 0);
}

enum {
    MUON_STEPS = 2,
    MUON_BUFFERS = 4,
    MUON_SKIPPED = 3 /* elements before a matrix that begins at no multiple of 4 */
};

/* Values, momentum, average and copy of two matrices that begin at `offset`, after some steps; momentum and average
 * begin somewhere else. */
static void *moved_by_muon(int64_t offset, int64_t rows, int64_t columns, ups_dtype compute, size_t *bytes) {
    const int64_t count = 2 * rows * columns, beyond = 2 * offset;
    const ups_matrices matrices = {offset, 2, rows, columns, beyond};
    const ups_range host_range = {offset, count, beyond, 0};
    const size_t each = (size_t)count * sizeof(float), all = (size_t)(beyond + count) * sizeof(float);
    float *buffers[MUON_BUFFERS], *host = malloc(each); /* values, gradients, momentum, average */
    for (int i = 0; i < MUON_BUFFERS; i++) buffers[i] = device_memory(all);
    uint16_t *copy = device_memory(all / 2);
    ups_range *range = device_memory(sizeof host_range);
    void *workspace = device_memory(device->class->matrices_workspace(device, &matrices, 1, compute));
    write_device(device, range, &host_range, sizeof host_range);
    ups_random_fill_normal(ups_random_stream(1, UPS_RANDOM_TEST, 1), 0.1f, host, count);
    write_device(device, buffers[0] + offset, host, each);
    write_device(device, buffers[3] + beyond, host, each);
    ok(ups_update_restore(channel, &(ups_update_state){.loss_scale = 1}, &failure)); /* which counts no step yet */
    for (int step = 0; step < MUON_STEPS; step++) {
        ups_random_fill_normal(ups_random_stream(1, UPS_RANDOM_TEST, 2 + (uint32_t)step), 0.01f, host, count);
        write_device(device, buffers[1] + offset, host, each);
        ups_update *update = ups_update_memory(channel);
        ups_optimizer_call call = {.rule = UPS_RULE_MUON,
                                   .ranges = range,
                                   .range_count = 1,
                                   .range_elements = count,
                                   .matrices = &matrices,
                                   .matrices_count = 1,
                                   .workspace = workspace,
                                   .values = buffers[0],
                                   .gradients = buffers[1],
                                   .moments = {buffers[2]},
                                   .ema = buffers[3],
                                   .compute = compute == UPS_F32 ? NULL : copy,
                                   .compute_dtype = compute,
                                   .beta1 = 0.95f,
                                   .weight_decay = 0.1f,
                                   .ema_decay = 0.99f,
                                   .update = update};
        ups_update_input input = {.step = step, .learning_rate = 1e-2f};
        give(&input);
        ok(device->class->decide(device, &(ups_update_rules){.trained = {true}}, update, &failure));
        ok(device->class->optimize(device, &call, &failure));
        ok(device->class->synchronize(device, &failure));
    }
    *bytes = 3 * each + each / 2;
    uint8_t *results = malloc(*bytes);
    const float *const left[] = {buffers[0] + offset, buffers[2] + beyond, buffers[3] + beyond};
    for (int i = 0; i < 3; i++)
        ok(device->class->download(device, results + (size_t)i * each, left[i], each, &failure));
    ok(device->class->download(device, results + 3 * each, copy + offset, each / 2, &failure));
    for (int i = 0; i < MUON_BUFFERS; i++) device->class->release(device, buffers[i]);
    device->class->release(device, copy);
    device->class->release(device, range);
    device->class->release(device, workspace);
    free(host);
    return results;
}

/* Some shapes allow wide accesses everywhere, some of matrices but not of their squares; one has more elements than the
 * blocks that take its norm. */
CLAIM(muon_moves_matrices_to_the_same_bits_wherever_they_lie) {
    static const int64_t shapes[][2] = {{48, 40}, {24, 6}, {20, 20}, {96, 200}};
    skip_where_nothing_is_compared();
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        for (int k = 0; k < 2; k++) {
            const ups_dtype compute = k ? UPS_BF16 : UPS_F32;
            size_t bytes;
            void *here = moved_by_muon(0, shapes[i][0], shapes[i][1], compute, &bytes);
            void *there = moved_by_muon(MUON_SKIPPED, shapes[i][0], shapes[i][1], compute, &bytes);
            assert_memory_equal(there, here, bytes);
            free(here);
            free(there);
        }
    }
}

/* Wherever the gradients begin. */
CLAIM(the_norm_counts_what_is_not_finite) {
    enum { COUNT = 300003 };
    float *host = malloc(COUNT * sizeof *host), *x = device_memory(COUNT * sizeof *x);
    ups_random_fill_normal(ups_random_stream(1, UPS_RANDOM_TEST, 9), 3.0f, host, COUNT);
    for (int64_t begin = 0; begin < 2; begin++) {
        double expected = 0.0;
        for (int64_t i = begin; i < COUNT; i++) expected += (double)host[i] * (double)host[i];
        ok(device->class->upload(device, x, host, COUNT * sizeof *x, &failure));
        give(&(ups_update_input){.seed = SEED, .item = ITEM}); /* results are cleared */
        ok(device->class->norm(device, x + begin, COUNT - begin, ups_update_memory(channel), &failure));
        ups_update_result found = take().result;
        assert_int_equal(found.non_finite, 0);
        assert_true(fabs(found.squared_norm - expected) < 1e-12 * expected);
    }
    host[5] = NAN, host[70000] = -INFINITY, host[270001] = INFINITY, host[COUNT - 1] = INFINITY;
    ok(device->class->upload(device, x, host, COUNT * sizeof *x, &failure));
    give(&(ups_update_input){.seed = SEED, .item = ITEM});
    ok(device->class->norm(device, x, COUNT, ups_update_memory(channel), &failure));
    assert_int_equal(take().result.non_finite, 4);
    device->class->release(device, x);
    free(host);
}

CLAIM(losses_are_added_by_task_and_by_loss) {
    enum { WINDOWS = 300, TERMS = 5, TASKS = 7, ROUNDS = 2 };
    static const int loss_of[TERMS] = {0, 3, 3, 0, UPS_UPDATE_MAX_LOSSES - 1};
    ups_update *update = ups_update_memory(channel);
    ups_losses_call call = {.term_count = TERMS, .windows = WINDOWS, .update = update};
    double by_task[TASKS] = {0}, by_loss[UPS_UPDATE_MAX_LOSSES] = {0};
    int64_t windows[TASKS] = {0};
    float *terms[TERMS], host[WINDOWS];
    int32_t *tasks = device_memory(WINDOWS * sizeof *tasks), host_tasks[WINDOWS];
    for (int i = 0; i < WINDOWS; i++) {
        host_tasks[i] = (int32_t)ups_random_below(ups_random_stream(1, UPS_RANDOM_TEST, 20), (uint64_t)i, TASKS);
        windows[host_tasks[i]] += ROUNDS;
    }
    ok(device->class->upload(device, tasks, host_tasks, sizeof host_tasks, &failure));
    for (int term = 0; term < TERMS; term++) {
        call.weights[term] = 0.25f * (float)(term + 1);
        call.loss_of[term] = loss_of[term];
        call.terms[term] = terms[term] = device_memory(sizeof host);
        ups_random_fill_uniform(ups_random_stream(1, UPS_RANDOM_TEST, 21 + (uint32_t)term), 0, 1, host, WINDOWS);
        for (int i = 0; i < WINDOWS; i++) {
            double value = ROUNDS * (double)call.weights[term] * (double)host[i];
            by_task[host_tasks[i]] += value;
            by_loss[loss_of[term]] += value;
        }
        ok(device->class->upload(device, terms[term], host, sizeof host, &failure));
        ok(device->class->synchronize(device, &failure));
    }
    call.tasks = tasks;
    give(&(ups_update_input){.micro_batch = 0});
    for (int round = 0; round < ROUNDS; round++) ok(device->class->add_losses(device, &call, &failure));
    ups_update_result found = take().result;
    for (int task = 0; task < TASKS; task++) {
        assert_int_equal(found.windows[task], windows[task]);
        assert_true(fabs(found.loss[task] - by_task[task]) < 1e-6 * by_task[task]);
    }
    for (int loss = 0; loss < UPS_UPDATE_MAX_LOSSES; loss++) {
        assert_int_equal(found.part_windows[loss], by_loss[loss] > 0 ? ROUNDS * WINDOWS : 0);
        assert_true(fabs(found.part[loss] - by_loss[loss]) <= 1e-6 * by_loss[loss]);
    }
    assert_int_equal(found.bad_micro_batch, 0);
    host[WINDOWS - 1] = INFINITY;
    ok(device->class->upload(device, terms[1], host, sizeof host, &failure));
    give(&(ups_update_input){.micro_batch = 2});
    for (int round = 0; round < ROUNDS; round++) ok(device->class->add_losses(device, &call, &failure));
    assert_int_equal(take().result.bad_micro_batch, 3);
    for (int term = 0; term < TERMS; term++) device->class->release(device, terms[term]);
    device->class->release(device, tasks);
}

void enter_update_claims(void (*enter)(const char *name, CMUnitTestFunction test, int line)) {
    for (int i = 0; i < claim_count; i++) enter(claims[i].name, claims[i].test_func, INT_MAX);
}

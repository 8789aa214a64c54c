/* Steps on the CPU: run options mean what they say, weights may be bound, memory is what was promised, and nothing is
 * allocated once training runs. */
#include "base/half.h"
#include "model/differentiate.h"
#include "tests/model/claims.h"
#include "tests/model/step_models.h"

#include <errno.h>
#include <malloc.h>
#include <stdatomic.h>

/* Watches the C library's allocator by standing in front of it, for the whole process, libraries included. Sanitizers
 * bring their own. */
#if !defined(UPS_SANITIZED) && defined(__GLIBC__)
#define WATCHES_ALLOCATIONS 1
extern void *__libc_malloc(size_t bytes);
extern void *__libc_calloc(size_t count, size_t bytes);
extern void *__libc_realloc(void *old, size_t bytes);
extern void *__libc_memalign(size_t alignment, size_t bytes);

static atomic_long allocations;

#define WATCH() atomic_fetch_add(&allocations, 1)

void *malloc(size_t bytes) {
    WATCH();
    return __libc_malloc(bytes);
}
void *calloc(size_t count, size_t bytes) {
    WATCH();
    return __libc_calloc(count, bytes);
}
void *realloc(void *old, size_t bytes) {
    WATCH();
    return __libc_realloc(old, bytes);
}
void *aligned_alloc(size_t alignment, size_t bytes) {
    WATCH();
    return __libc_memalign(alignment, bytes);
}
int posix_memalign(void **memory, size_t alignment, size_t bytes) {
    WATCH();
    *memory = __libc_memalign(alignment, bytes);
    return *memory ? 0 : ENOMEM;
}
#endif

CLAIM(a_step_run_again_gives_the_same_bits) {
    ups_operator_options options = small_operator();
    options.drop_path = 0.5f;
    model m = operator_model(UPS_BF16, options, 6);
    run(&m, train);
    float first = loss_of(&m), *gradients = gradients_of(&m);
    settings other = train;
    other.item = 1;
    run(&m, other);
    assert_true(loss_of(&m) != first); /* other branches were dropped */
    other = train;
    other.training = false;
    run(&m, other);
    assert_true(loss_of(&m) != first); /* none was */
    run(&m, train);
    float *again = gradients_of(&m);
    assert_true(loss_of(&m) == first);
    assert_memory_equal(again, gradients, sizeof(float) * (size_t)ups_parameters_elements(m.parameters));
    free(again);
    free(gradients);
    end(m);
}

/* The weights of `from`, in buffers of their own: all, or [offset, offset + count). */
static ups_weights copy_weights(const model *from, int64_t offset, int64_t count, bool gradients) {
    ups_weights weights;
    ok(ups_weights_allocate(device, offset, count, from->graph->compute, gradients, &weights, &failure));
    float *host = values_of(from);
    ok(device->class->upload(device, weights.values, host + offset, sizeof *host * (size_t)count, &failure));
    ok(ups_weights_refresh(device, &weights, &failure));
    ok(device->class->synchronize(device, &failure));
    free(host);
    return weights;
}

/* `averaged` lends its values: a run with them is a run of that model, and the way back is exact, too. */
CLAIM(a_step_bound_to_other_weights_gives_the_bits_of_a_model_that_has_them) {
    static const ups_dtype computes[] = {UPS_F32, UPS_BF16, UPS_F16};
    settings forward = train;
    forward.backward = false;
    for (int i = 0; i < 3; i++) {
        model m = operator_model(computes[i], small_operator(), 4),
              other = operator_model(computes[i], small_operator(), 4);
        int64_t elements = ups_parameters_elements(m.parameters);
        float *values = values_of(&m);
        for (int64_t e = 0; e < elements; e++) values[e] *= 0.75f;
        upload_values(&other, values);
        run(&m, train);
        float own = loss_of(&m), *own_gradients = gradients_of(&m);
        run(&other, train);
        float *expected = gradients_of(&other);

        ups_weights average = copy_weights(&other, 0, elements, false),
                    teacher = copy_weights(&other, 0, elements, true);
        ok(ups_step_bind(m.step, &average, &failure));
        run(&m, forward);
        assert_true(loss_of(&m) == loss_of(&other) && loss_of(&m) != own);
        refused(try_run(&m, train, &failure), UPS_ERR_ARGUMENT, "weights that have no gradients");
        ok(ups_step_bind(m.step, &teacher, &failure));
        run(&m, train);
        float *taught = read_device(device, teacher.gradients, sizeof *expected * (size_t)elements);
        float *kept = gradients_of(&m);
        assert_memory_equal(taught, expected, sizeof *expected * (size_t)elements);
        assert_memory_equal(kept, own_gradients, sizeof *own_gradients * (size_t)elements);
        free(taught), free(kept);
        ok(ups_step_bind(m.step, ups_parameters_weights(m.parameters), &failure));
        run(&m, train);
        assert_true(loss_of(&m) == own);
        ups_weights_release(device, &average);
        ups_weights_release(device, &teacher);
        free(expected), free(own_gradients), free(values);
        end(other);
        end(m);
    }
}

CLAIM(a_step_runs_on_a_slice_that_holds_its_parameters_and_refuses_another) {
    model m = begin(UPS_BF16);
    ups_value x = ups_graph_input(m.graph, "x", UPS_F32, UPS_SHAPE(2, 4));
    ups_parameters_add(m.parameters, "elsewhere", 1, (int64_t[]){100}, (ups_init){.kind = UPS_INIT_ONES});
    ups_value w = ups_graph_parameter(m.graph, "w", UPS_SHAPE(4, 4), small);
    ups_parameters_add(m.parameters, "behind", 1, (int64_t[]){100}, (ups_init){.kind = UPS_INIT_ONES});
    m.loss = mean_square(m.graph, ups_linear(m.graph, x, w, UPS_NO_VALUE, true), x);
    ups_graph_differentiate(m.graph, m.loss);
    ready(&m);
    upload_random(&m, "x", 1);
    run(&m, train);
    float expected = loss_of(&m);
    const ups_parameter *p = ups_parameters_get(m.parameters, ups_parameters_find(m.parameters, "w"));
    assert_true(p->offset > 0);
    ups_weights slice = copy_weights(&m, p->offset, p->elements, true), off = slice, f32 = slice;
    ok(ups_step_bind(m.step, &slice, &failure));
    run(&m, train);
    assert_true(loss_of(&m) == expected);
    const size_t bytes = sizeof(float) * (size_t)p->elements;
    float *sliced = read_device(device, slice.gradients, bytes);
    float *whole = read_device(device, ups_parameters_gradients(m.parameters) + p->offset, bytes);
    assert_memory_equal(sliced, whole, bytes);
    free(sliced), free(whole);
    off.count--;
    refused(ups_step_bind(m.step, &off, &failure), UPS_ERR_ARGUMENT, "'w' lies outside");
    f32.compute = NULL;
    refused(ups_step_bind(m.step, &f32, &failure), UPS_ERR_ARGUMENT, "no bfloat16 copy");
    run(&m, train); /* still bound as before */
    assert_true(loss_of(&m) == expected);
    ups_weights_release(device, &slice);
    end(m);
}

/* Devices may read the rounded copy of a bias, of which only a float32 result shows that it was rounded. */
CLAIM(a_bias_is_added_as_the_result_holds_it) {
    enum { ROWS = 4, WIDTH = 16 };
    const ups_init zeros = {.kind = UPS_INIT_ZEROS};
    for (int f32 = 0; f32 < 2; f32++) {
        model m = begin(UPS_BF16);
        ups_value x = float_input(&m, "x", UPS_SHAPE(ROWS, WIDTH));
        ups_value w = ups_graph_parameter(m.graph, "w", UPS_SHAPE(WIDTH, WIDTH), zeros);
        ups_value first = ups_graph_parameter(m.graph, "first", UPS_SHAPE(WIDTH), small);
        ups_value second = ups_graph_parameter(m.graph, "second", UPS_SHAPE(WIDTH), small);
        ups_value y = ups_linear(m.graph, ups_linear(m.graph, x, w, first, false), w, second, f32);
        ups_graph_keep(m.graph, y);
        ready(&m);
        upload_random(&m, "x", 1);
        ok(ups_step_run(m.step, &(ups_step_run_options){0}, &failure));
        float *values = values_of(&m), made[ROWS * WIDTH];
        const float *bias =
            values + ups_parameters_get(m.parameters, ups_parameters_find(m.parameters, "second"))->offset;
        ups_bf16 rounded[WIDTH], bits[ROWS * WIDTH];
        ups_f32_to_bf16(bias, rounded, WIDTH);
        ok(ups_step_download(m.step, y, f32 ? (void *)made : bits, f32 ? sizeof made : sizeof bits, &failure));
        for (int row = 0; row < ROWS; row++) {
            if (f32)
                assert_memory_equal(made + row * WIDTH, bias, sizeof *made * WIDTH);
            else
                assert_memory_equal(bits + row * WIDTH, rounded, sizeof rounded);
        }
        free(values);
        end(m);
    }
}

/* Who is told of complete gradients, and takes those that are new: by a copy that goes behind what was issued. */
typedef struct follower {
    const model *m;
    float *copy;            /* host memory of the device's own */
    int64_t complete, last; /* by now, and when it was told last but for the end */
    int told;               /* of more than before */
} follower;

static void follow(void *context, int64_t complete) {
    follower *f = context;
    const size_t bytes = sizeof(float) * (size_t)(complete - f->complete);
    assert_true(complete >= f->complete && complete <= ups_parameters_elements(f->m->parameters));
    if (bytes == 0) return;
    ok(device->class->download_later(device, f->copy + f->complete,
                                     ups_parameters_gradients(f->m->parameters) + f->complete, bytes, &failure));
    if (f->told++ > 0) f->last = f->complete;
    f->complete = complete;
}

static int follow_run(follower *f, settings how) {
    const int64_t elements = ups_parameters_elements(f->m->parameters);
    memset(f->copy, 0xff, sizeof(float) * (size_t)elements);
    f->complete = 0;
    f->told = 0;
    run(f->m, how);
    ok(device->class->synchronize(device, &failure));
    assert_int_equal(f->complete, elements);
    return f->told;
}

/* Call by call, captured, and launched again; among runs that nobody watches, and with a watch that wants to know less.
 */
CLAIM(gradients_that_a_watch_is_told_of_are_final) {
    model m = operator_model(UPS_BF16, small_operator(), 1);
    const int64_t elements = ups_parameters_elements(m.parameters);
    const size_t bytes = sizeof(float) * (size_t)elements;
    follower f = {.m = &m};
    ok(device->class->allocate_host(device, bytes, (void **)&f.copy, &failure));
    run(&m, train);
    float *expected = gradients_of(&m);
    const int64_t every[] = {elements / 8, elements / 8, elements / 8, elements / 2, elements / 200, elements / 200};
    int told[6];
    for (int i = 0; i < 6; i++) {
        const ups_gradient_watch watch = {follow, &f, every[i]};
        settings watched = train;
        watched.watch = &watch;
        told[i] = follow_run(&f, watched);
        assert_memory_equal(f.copy, expected, bytes);
        if (i % 2 == 0) continue;
        run(&m, train);
        float *unwatched = gradients_of(&m);
        assert_memory_equal(unwatched, expected, bytes);
        free(unwatched);
    }
    assert_true(told[0] > 8);
    if (device->class->capture_begin) {
        assert_true(told[1] > 2 && told[1] <= 9 && told[2] == told[1]);
        assert_true(told[3] == 2);
        assert_true(told[4] > told[1] && told[4] <= 32); /* as many parts as a run may have, to its end */
        assert_true(told[5] == told[4] && f.last > elements / 10 * 9);
    }
    device->class->release_host(device, f.copy);
    free(expected);
    end(m);
}

CLAIM(nothing_is_allocated_after_the_first_step) {
#ifndef WATCHES_ALLOCATIONS
    skip_because("a sanitizer's allocator, or one that is not glibc's, cannot be watched");
#else
    if (strcmp(device->class->name, "cpu") != 0) skip_because("the test's own device allocates its queue");
    enum { STEPS = 10 };
    ups_dtype computes[] = {UPS_F32, UPS_BF16, UPS_F16};
    for (int i = 0; i < 3; i++) {
        model m = operator_model(computes[i], small_operator(), 4);
        run(&m, train);
        size_t in_use = mallinfo2().uordblks + mallinfo2().hblkhd;
        long before = atomic_load(&allocations);
        assert_true(before > 0); /* it does watch */
        for (int k = 0; k < STEPS; k++) run(&m, train);
        assert_int_equal(atomic_load(&allocations), before);
        assert_true(mallinfo2().uordblks + mallinfo2().hblkhd <= in_use);
        end(m);
    }
#endif
}

CLAIM(the_memory_of_a_step_is_known_before_it_is_created) {
    model m = operator_graph(UPS_BF16, small_operator(), 4);
    ups_plan_memory promised, taken;
    ok(ups_step_measure(m.graph, device, &promised, &failure));
    ready(&m);
    taken = ups_step_memory(m.step);
    assert_memory_equal(&promised, &taken, sizeof taken);
    assert_int_equal(taken.inputs, (size_t)device->class->input_sets * (2 * sizeof(float) * 4 * 16 * 32 + 64));
    assert_int_equal(taken.parameters, 10 * (size_t)ups_parameters_elements(m.parameters));
    assert_true(taken.activations > 0 && taken.lower_bound <= taken.activations);
    end(m);
}

/* A step, with the inputs it has in operator_model; its loss. */
static float run_again(model m, ups_step *step) {
    m.step = step;
    upload_operator(&m);
    run(&m, train);
    return loss_of(&m);
}

CLAIM(steps_made_together_share_the_largest_arena_and_give_the_bits_they_give_alone) {
    ups_operator_options deeper = small_operator();
    deeper.depth = 5;
    model one = operator_model(UPS_BF16, small_operator(), 6), other = operator_model(UPS_BF16, deeper, 4);
    run(&one, train);
    run(&other, train);
    float loss = loss_of(&one), other_loss = loss_of(&other);
    const ups_graph *graphs[] = {one.graph, other.graph};
    ups_step *steps[2];
    ups_plan_memory both, a = ups_step_memory(one.step), b = ups_step_memory(other.step);
    ok(ups_step_measure_together(graphs, 2, device, &both, &failure));
    assert_int_equal(both.activations, a.activations > b.activations ? a.activations : b.activations);
    assert_int_equal(both.workspace, a.workspace > b.workspace ? a.workspace : b.workspace);
    assert_int_equal(both.inputs, a.inputs + b.inputs);
    ok(ups_step_create_together(graphs, 2, device, steps, &failure));
    for (int turn = 0; turn < 2; turn++) {
        assert_true(run_again(one, steps[0]) == loss);
        assert_true(run_again(other, steps[1]) == other_loss);
    }
    ups_step_destroy(steps[0]);
    assert_true(run_again(other, steps[1]) == other_loss);
    ups_step_destroy(steps[1]);
    end(one);
    end(other);
}

CLAIM(values_that_are_not_kept_cannot_be_read) {
    model m = tangled_model(0);
    float host[72];
    ups_value first = m.graph->nodes[0].output;
    refused(ups_step_download(m.step, first, host, sizeof host, &failure), UPS_ERR_ARGUMENT, "not kept");
    assert_null(ups_step_data(m.step, first));
    assert_non_null(ups_step_data(m.step, m.loss));
    assert_int_equal(ups_step_upload(m.step, first, host, sizeof host, &failure), UPS_ERR_ARGUMENT);
    ups_value x = ups_graph_find(m.graph, "x");
    refused(ups_step_upload(m.step, x, host, sizeof host - 4, &failure), UPS_ERR_ARGUMENT,
            "'x' has 288 bytes; 284 were given");
    end(m);
}

CLAIM(steps_that_cannot_be_are_refused_with_the_reason) {
    ups_step *step;
    model m = begin(UPS_BF16);
    ups_graph *g = m.graph;
    ups_value x = ups_graph_input(g, "x", UPS_F32, UPS_SHAPE(2, 4));
    ups_value w = ups_graph_parameter(g, "w", UPS_SHAPE(4, 4), small);
    m.loss = mean_square(g, ups_linear(g, x, w, UPS_NO_VALUE, true), x);
    refused(ups_step_create(g, device, &step, &failure), UPS_ERR_ARGUMENT, "must be allocated");
    assert_null(step);
    ok(ups_parameters_allocate(m.parameters, device, false, UPS_F32, 1, &failure));
    refused(ups_step_create(g, device, &step, &failure), UPS_ERR_ARGUMENT, "no bfloat16 copy");
    ups_graph_differentiate(g, m.loss);
    refused(ups_step_create(g, device, &step, &failure), UPS_ERR_ARGUMENT, "gradients");
    end(m);

    m = begin(UPS_F32);
    ups_value y = ups_gelu(m.graph, ups_graph_input(m.graph, "x", UPS_F32, UPS_SHAPE(2, 4)));
    ups_graph_keep(m.graph, y);
    ready(&m);
    refused(try_run(&m, train, &failure), UPS_ERR_ARGUMENT, "not differentiated");
    refused(ups_step_run(m.step, &(ups_step_run_options){.training = true}, &failure), UPS_ERR_ARGUMENT,
            "needs an update");
    end(m);
}

CLAIM(a_profile_has_time_in_the_ops_that_ran_and_in_no_others) {
    model m = operator_model(UPS_F32, small_operator(), 2);
    ups_step_profile_enable(m.step, true);
    run(&m, train);
    ups_step_profile profile = {0};
    ups_step_profile_add(m.step, &profile);
    assert_true(profile.of[UPS_OP_LINEAR].forward > 0 && profile.of[UPS_OP_LINEAR].backward > 0);
    assert_true(profile.of[UPS_OP_ATTENTION].forward > 0 && profile.of[UPS_OP_ATTENTION].backward > 0);
    assert_true(profile.of[UPS_OP_PATCHIFY].forward == 0 && profile.of[UPS_OP_PATCHIFY].backward == 0);
    end(m);
}

int main(void) {
    return run_claims(open_device, close_device, NULL);
}

/* A rollout whose applications are each taught by themselves: its gradient is the sum of those of single applications
 * that begin where the rollout had come, and differs from the one through all of them. */
#include "base/random.h"
#include "model/differentiate.h"
#include "tests/model/claims.h"
#include "tests/model/step_models.h"

#include <math.h>

enum { BATCH = 2, APPLICATIONS = 3 };

typedef struct rollout {
    model m;
    ups_value states[APPLICATIONS];
} rollout;

/* The mean squared errors of all states against inputs `target0`, …, summed. */
static rollout roll(bool pushforward, int applications) {
    ups_operator_options o = small_operator();
    o.pushforward = pushforward;
    o.drop_path = 0;
    rollout r = {.m = begin(UPS_F32)};
    model m = r.m;
    const ups_shape latents = UPS_SHAPE(BATCH, o.tokens, o.dim);
    ups_value z = ups_graph_input(m.graph, "z", UPS_F32, latents), terms[APPLICATIONS];
    ups_value dt = ups_graph_input(m.graph, "dt", UPS_F32, UPS_SHAPE(BATCH, 1));
    ups_operator_rollout(m.graph, &o, &z, dt, UPS_NO_VALUE, UPS_NO_VALUE, applications, r.states);
    const float ones[APPLICATIONS] = {1, 1, 1};
    for (int k = 0; k < applications; k++) {
        char name[16];
        snprintf(name, sizeof name, "target%d", k);
        ups_graph_keep(m.graph, r.states[k]);
        terms[k] = mean_square(m.graph, r.states[k], ups_graph_input(m.graph, name, UPS_F32, latents));
    }
    m.loss = ups_weighted_sum(m.graph, terms, ones, applications);
    ups_graph_differentiate(m.graph, m.loss);
    ready(&m);
    upload_random(&m, "z", 0);
    upload_random(&m, "dt", 1);
    for (int k = 0; k < applications; k++) {
        char name[16];
        snprintf(name, sizeof name, "target%d", k);
        upload_random(&m, name, 2 + (uint32_t)k);
    }
    r.m = m;
    return r;
}

/* Of a single application from where `at` applications lead, against the target of the next. */
static float *gradients_from(int at) {
    const rollout r = roll(false, 1);
    const model *m = &r.m;
    const ups_operator_options o = small_operator();
    const size_t count = (size_t)(BATCH * o.tokens * o.dim), bytes = count * sizeof(float);
    float *frame = malloc(bytes);
    for (int k = 0; k < at; k++) {
        run(m, train);
        ok(ups_step_download(m->step, r.states[0], frame, bytes, &failure));
        ok(ups_step_upload(m->step, ups_graph_find(m->graph, "z"), frame, bytes, &failure));
        ok(ups_step_wait_uploaded(m->step, &failure));
    }
    ups_random_fill_normal(ups_random_stream(9, UPS_RANDOM_TEST, 2 + (uint32_t)at), 1, frame, count);
    ok(ups_step_upload(m->step, ups_graph_find(m->graph, "target0"), frame, bytes, &failure));
    ok(ups_step_wait_uploaded(m->step, &failure));
    run(m, train);
    float *gradients = gradients_of(m);
    free(frame);
    end(r.m);
    return gradients;
}

static double distance(const float *a, const float *b, size_t count, double *size) {
    double apart = 0;
    *size = 0;
    for (size_t i = 0; i < count; i++) {
        apart += pow((double)a[i] - (double)b[i], 2);
        *size += pow((double)b[i], 2);
    }
    *size = sqrt(*size);
    return sqrt(apart);
}

CLAIM(each_application_is_taught_by_itself) {
    const rollout pushed_out = roll(true, APPLICATIONS), rolled = roll(false, APPLICATIONS);
    const model pushed = pushed_out.m, through = rolled.m;
    const size_t count = (size_t)ups_parameters_elements(pushed.parameters);
    run(&pushed, train);
    run(&through, train);
    assert_memory_equal(&(float){loss_of(&pushed)}, &(float){loss_of(&through)}, sizeof(float));
    float *found = gradients_of(&pushed), *whole = gradients_of(&through), *sum = calloc(count, sizeof *sum);
    for (int k = 0; k < APPLICATIONS; k++) {
        float *one = gradients_from(k);
        for (size_t i = 0; i < count; i++) sum[i] += one[i];
        free(one);
    }
    double size;
    assert_true(distance(found, sum, count, &size) < 1e-5 * size);
    assert_true(distance(whole, sum, count, &size) > 0.01 * size);
    free(sum);
    free(whole);
    free(found);
    end(through);
    end(pushed);
}

int main(void) {
    return run_claims(open_device, close_device, NULL);
}

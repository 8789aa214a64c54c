#include "tests/model/op_fixture.h"

#include "base/half.h"
#include "base/random.h"
#include "model/devices/devices.h"
#include "tests/model/claims.h"

ups_device *device;
ups_update_channel *channel;

void give(const ups_update_input *input) {
    ok(ups_update_give(channel, input, &failure));
}

ups_update take(void) {
    ups_update update;
    ok(ups_update_take(channel, &failure));
    ok(ups_update_read(channel, &update, &failure));
    return update;
}

ups_status open_device(const char *name, int threads, ups_error *error) {
    UPS_TRY(ups_device_open(&(ups_device_options){.name = name, .threads = threads}, &device, error));
    UPS_TRY(ups_update_open(device, &channel, error));
    return ups_update_give(channel, &(ups_update_input){.seed = SEED, .item = ITEM}, error);
}

void close_device(void) {
    ups_update_close(channel);
    ups_device_close(device);
}

static ups_dtype dtype_of(operand_kind kind, ups_dtype compute) {
    switch (kind) {
    case COMPUTE:
        return compute;
    case INDEX:
        return UPS_I32;
    case HALF:
        return UPS_F16;
    default:
        return UPS_F32;
    }
}

void *device_memory(size_t bytes) {
    void *memory = NULL;
    ok(device->class->allocate(device, bytes, &memory, &failure));
    return memory;
}

/* Rounds the first `drawn` values to the dtype, in place, and uploads them, again and again until all is filled. */
static void upload(twin *t, size_t drawn) {
    size_t count = (size_t)ups_shape_elements(t->tensor.shape), size = ups_dtype_size(t->tensor.dtype);
    float *single = malloc(drawn * sizeof *single + 1);
    int32_t *host = malloc(drawn * size + 1);
    for (size_t i = 0; i < drawn; i++) single[i] = (float)t->values[i];
    if (t->tensor.dtype == UPS_BF16) {
        ups_f32_to_bf16(single, (ups_bf16 *)host, drawn);
        ups_bf16_to_f32((ups_bf16 *)host, single, drawn);
    } else if (t->tensor.dtype == UPS_F16) {
        ups_f32_to_f16(single, (ups_f16 *)host, drawn);
        ups_f16_to_f32((ups_f16 *)host, single, drawn);
    } else if (t->tensor.dtype == UPS_I32) {
        for (size_t i = 0; i < drawn; i++) host[i] = (int32_t)single[i];
    } else {
        memcpy(host, single, drawn * size);
    }
    for (size_t i = 0; i < drawn; i++) t->values[i] = (double)single[i];
    for (size_t at = 0; at < count; at += drawn) {
        const size_t some = count - at < drawn ? count - at : drawn;
        ok(device->class->upload(device, (char *)t->tensor.data + at * size, host, some * size, &failure));
    }
    ok(device->class->synchronize(device, &failure));
    free(single);
    free(host);
}

/* Numbers of a stream are the same in every case: they are drawn once. */
static const double *normal_numbers(uint32_t stream, size_t count) {
    enum { STREAMS = 256 };
    static struct {
        double *values;
        size_t count;
    } drawn[STREAMS];
    assert_true(stream < STREAMS);
    if (count > drawn[stream].count) {
        drawn[stream].values = realloc(drawn[stream].values, count * sizeof(double));
        assert_non_null(drawn[stream].values);
        ups_random random = ups_random_stream(7, UPS_RANDOM_TEST, stream);
        for (size_t i = drawn[stream].count; i < count; i++) drawn[stream].values[i] = ups_random_normal(random, i);
        drawn[stream].count = count;
    }
    return drawn[stream].values;
}

twin twin_create(const operand *o, ups_dtype compute, uint32_t stream) {
    twin t = {{.dtype = dtype_of(o->kind, compute), .shape = o->shape}, NULL};
    if (o->kind == ABSENT) return (twin){0};
    size_t count = (size_t)ups_shape_elements(o->shape);
    t.tensor.data = device_memory(count * ups_dtype_size(t.tensor.dtype));
    enum { COMPARED = 1 << 20 }; /* a larger one is timed alone: to draw all of it would take seconds */
    const size_t drawn = count < COMPARED ? count : COMPARED;
    t.values = calloc(drawn, sizeof *t.values);
    ups_random random = ups_random_stream(7, UPS_RANDOM_TEST, stream);
    const double *normal = o->kind == INDEX || o->kind == STATE ? NULL : normal_numbers(stream, drawn);
    for (size_t i = 0; i < drawn; i++) {
        if (o->kind == INDEX)
            t.values[i] = (double)ups_random_below(random, i, (uint64_t)o->bound);
        else if (o->kind != STATE)
            t.values[i] = (o->spread > 0.0f ? (double)o->spread : 1.0) * normal[i];
    }
    upload(&t, drawn);
    if (drawn == count) return t;
    free(t.values);
    t.values = NULL;
    return t;
}

static void twin_destroy(twin *t) {
    if (t->tensor.data) device->class->release(device, t->tensor.data);
    free(t->values);
}

void download(const ups_tensor *tensor, double *values) {
    size_t count = (size_t)ups_shape_elements(tensor->shape), bytes = count * ups_dtype_size(tensor->dtype);
    void *host = malloc(bytes + 1);
    float *single = malloc(count * sizeof *single + 1);
    ok(device->class->download(device, host, tensor->data, bytes, &failure));
    if (tensor->dtype == UPS_BF16)
        ups_bf16_to_f32(host, single, count);
    else if (tensor->dtype == UPS_F16)
        ups_f16_to_f32(host, single, count);
    else
        memcpy(single, host, bytes);
    for (size_t i = 0; i < count; i++) values[i] = (double)single[i];
    free(host);
    free(single);
}

bool wants_gradient(const op_case *c, int input) {
    operand_kind kind = c->inputs[input].kind;
    return (ups_op_describe(c->kind)->gradient_inputs >> input & 1) && kind != ABSENT && kind != INDEX && kind != HALF;
}

void fixture_destroy(fixture *f) {
    for (int i = 0; i < f->c->input_count; i++) {
        twin_destroy(&f->inputs[i]);
        twin_destroy(&f->gradients[i]);
    }
    twin_destroy(&f->output);
    twin_destroy(&f->output_gradient);
    for (int i = 0; i < UPS_MAX_SAVED; i++) {
        if (f->c->saved[i].rank > 0) device->class->release(device, f->call.saved[i].data);
    }
    if (f->kernel.release) f->kernel.release(f->kernel.state);
    if (f->workspace) device->class->release(device, f->workspace);
}

bool fixture_create(fixture *f, const op_case *c, ups_dtype compute) {
    *f = (fixture){.c = c, .compute = compute};
    f->call = (ups_op_call){.kind = c->kind,
                            .attributes = &c->attributes,
                            .input_count = c->input_count,
                            .training = c->training,
                            .update = ups_update_memory(channel)};
    f->reference = (ups_reference){c->kind, &c->attributes, c->input_count, .training = c->training, .seed = SEED};
    f->reference.step = ITEM;
    for (int i = 0; i < c->input_count; i++) {
        f->inputs[i] = twin_create(&c->inputs[i], compute, (uint32_t)i + 1);
        f->call.inputs[i] = f->inputs[i].tensor;
        f->reference.shapes[i] = f->inputs[i].tensor.shape;
        f->reference.inputs[i] = f->inputs[i].values;
    }
    f->output = twin_create(&c->output, compute, 100);
    f->output_gradient = twin_create(&c->output, compute, 101);
    f->call.output = f->output.tensor;
    f->reference.output_shape = c->output.shape;
    f->reference.output = f->output.values;
    f->reference.output_gradient = f->output_gradient.values;
    for (int i = 0; i < UPS_MAX_SAVED && c->saved[i].rank > 0; i++) {
        ups_dtype dtype = ups_op_describe(c->kind)->saved_like_output ? f->output.tensor.dtype : UPS_F32;
        size_t bytes = (size_t)ups_shape_elements(c->saved[i]) * ups_dtype_size(dtype);
        f->call.saved[i] = (ups_tensor){.data = device_memory(bytes), .dtype = dtype, .shape = c->saved[i]};
    }
    ups_op_call shapes = f->call;
    for (int i = 0; i < c->input_count; i++) shapes.inputs[i].data = NULL;
    shapes.output.data = NULL;
    for (int i = 0; i < UPS_MAX_SAVED; i++) shapes.saved[i].data = NULL;
    ups_status status = device->class->kernel(device, &shapes, true, &f->kernel, &failure);
    if (status == UPS_ERR_UNSUPPORTED && c->attributes.fp8 && strstr(failure.message, "compute capability")) {
        printf("%s: left out, %s\n", c->name, failure.message);
        fixture_destroy(f);
        return false;
    }
    ok(status);
    f->call.state = f->kernel.state;
    f->workspace = f->call.workspace = device_memory(f->kernel.workspace_bytes);
    if (f->kernel.forward) return true;
    fixture_destroy(f);
    return false;
}

void run_forward(fixture *f) {
    if (f->kernel.forward(device, &f->call, &failure) != UPS_OK) fail_msg("%s: %s", f->c->name, failure.message);
}

void prepare_backward_call_for(fixture *f, unsigned gradients) {
    for (int i = 0; i < f->c->input_count; i++)
        if (!(ups_op_backward_inputs(f->c->kind, gradients) >> i & 1)) f->call.inputs[i].data = NULL;
    if (!ups_op_describe(f->c->kind)->backward_output) f->call.output.data = NULL;
    f->call.output_gradient = f->output_gradient.tensor;
}

void prepare_backward_call(fixture *f) {
    prepare_backward_call_for(f, ups_op_describe(f->c->kind)->gradient_inputs);
}

void run_backward(fixture *f) {
    if (f->kernel.backward(device, &f->call, &failure) != UPS_OK) fail_msg("%s: %s", f->c->name, failure.message);
}

void give_gradient(fixture *f, int i, uint32_t stream) {
    operand o = f->c->inputs[i];
    if ((ups_op_describe(f->c->kind)->compute_inputs >> i & 1)) o.kind = STREAM;
    f->gradients[i] = twin_create(&o, f->compute, stream);
    f->call.input_gradients[i] = f->gradients[i].tensor;
}

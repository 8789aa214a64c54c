/* What is too large for a kernel is refused when a step is built, with a sentence; what is just small enough is not.
 * The device plans for an absent card: nothing of these sizes is there. */
#include "model/devices/devices.h"
#include "tests/model/claims.h"

static ups_device *device;

static int open_to_plan(void **state) {
    ok(ups_device_open(&(ups_device_options){.name = "cuda", .planned_memory = (uint64_t)80 << 30}, &device, &failure));
    return 0;
}

static int close_plan(void **state) {
    ups_device_close(device);
    return 0;
}

static ups_status prepare(const ups_op_call *call, bool backward, ups_error *error) {
    ups_kernel kernel;
    ups_status status = device->class->kernel(device, call, backward, &kernel, error);
    if (status == UPS_OK && kernel.release) kernel.release(kernel.state);
    return status;
}

static ups_tensor tensor(ups_dtype dtype, ups_shape shape) {
    return (ups_tensor){.dtype = dtype, .shape = shape};
}

/* Refused, with a sentence that holds `words`, or not. */
static void check(const ups_op_call *call, bool backward, bool fits, const char *words) {
    if (fits)
        ok(prepare(call, backward, &failure));
    else
        refused(prepare(call, backward, &failure), UPS_ERR_UNSUPPORTED, words);
}

CLAIM(rows_of_norms_fit_into_shared_memory) {
    const ups_op_attributes attributes = {.epsilon = 1e-5f};
    for (int backward = 0; backward < 2; backward++) {
        for (int over = 0; over < 2; over++) {
            const int64_t width = (48 * 1024 - 1024) / 4 / (backward ? 2 : 1) + over;
            ups_op_call call = {.kind = UPS_OP_LAYER_NORM, .attributes = &attributes, .input_count = 3};
            call.inputs[0] = call.output = tensor(UPS_F32, UPS_SHAPE(2, width));
            call.inputs[1] = call.inputs[2] = tensor(UPS_F32, UPS_SHAPE(width));
            call.saved[0] = tensor(UPS_F32, UPS_SHAPE(2, 2));
            check(&call, backward, !over, "at most");
        }
    }
}

CLAIM(fields_have_fewer_than_two_to_the_31_numbers) {
    for (int over = 0; over < 2; over++) {
        const int64_t edge = over ? 46344 : 46336; /* 8 x 8 patches: 2^31 is 46340.95^2 */
        const ups_op_attributes attributes = {.dims = 2, .grid = {edge, edge}, .patch = {8, 8}, .channels = 1};
        ups_op_call call = {.kind = UPS_OP_PATCHIFY, .attributes = &attributes, .input_count = 2};
        call.inputs[0] = tensor(UPS_F32, UPS_SHAPE(1, edge * edge));
        call.output = tensor(UPS_F32, UPS_SHAPE(1, edge * edge / 64, 64));
        check(&call, true, !over, "on CUDA it has at most 2^31 - 1");
    }
}

CLAIM(points_are_fewer_than_two_to_the_31) {
    for (int over = 0; over < 2; over++) {
        const int64_t queries = ((int64_t)1 << 31) - 1 + over;
        const ups_op_attributes attributes = {.channels = 1};
        ups_op_call call = {.kind = UPS_OP_GATHER_POINTS, .attributes = &attributes, .input_count = 3};
        call.inputs[0] = tensor(UPS_F32, UPS_SHAPE(1, 100));
        call.inputs[1] = tensor(UPS_I32, UPS_SHAPE(queries));
        call.output = tensor(UPS_F32, UPS_SHAPE(1, queries, 1));
        check(&call, true, !over, "below 2^31");
    }
}

CLAIM(convolutions_have_fewer_than_two_to_the_31_threads) {
    for (int over = 0; over < 2; over++) {
        const int64_t batch = over ? (int64_t)1 << 20 : 1 << 10, width = 1 << 12;
        const ups_op_attributes attributes = {.dims = 1, .grid = {64}, .patch = {3}};
        ups_op_call call = {.kind = UPS_OP_DEPTHWISE, .attributes = &attributes, .input_count = 2};
        call.inputs[0] = call.output = tensor(UPS_F32, UPS_SHAPE(batch, 64, width));
        call.inputs[1] = tensor(UPS_F32, UPS_SHAPE(3, width));
        check(&call, true, !over, "a smaller batch would do");
    }
}

CLAIM(modes_are_no_more_than_a_batch_of_products_has) {
    for (int over = 0; over < 2; over++) {
        const int64_t modes = over ? 65536 : 65535, cells = 2 * modes;
        const ups_op_attributes attributes = {.dims = 1, .modes = {modes}};
        ups_op_call call = {.kind = UPS_OP_SPECTRAL, .attributes = &attributes, .input_count = 3};
        call.inputs[0] = call.output = tensor(UPS_F32, UPS_SHAPE(1, cells, 4));
        call.inputs[1] = tensor(UPS_F32, UPS_SHAPE(modes, 8, 4));
        call.inputs[2] = tensor(UPS_F32, UPS_SHAPE(2 * modes, cells));
        call.saved[0] = tensor(UPS_F32, UPS_SHAPE(1, 2 * modes, 4));
        check(&call, true, !over, "model.operator.modes");
    }
}

CLAIM(errors_are_of_no_more_groups_than_a_grid_has_rows) {
    for (int over = 0; over < 2; over++) {
        const int64_t groups = over ? (int64_t)1 << 20 : 1000;
        const ups_op_attributes attributes = {.factor = 1e-3f};
        ups_op_call call = {.kind = UPS_OP_LOSS_GROUPED, .attributes = &attributes, .input_count = 4};
        call.inputs[0] = call.inputs[1] = tensor(UPS_F32, UPS_SHAPE(2, 70, 30));
        call.inputs[2] = tensor(UPS_I32, UPS_SHAPE(2100));
        call.inputs[3] = tensor(UPS_F32, UPS_SHAPE(groups, 2));
        call.output = tensor(UPS_F32, UPS_SHAPE(2));
        check(&call, true, !over, "groups: on CUDA there are at most");
    }
}

int main(void) {
    return run_claims(open_to_plan, close_plan, NULL);
}

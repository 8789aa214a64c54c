/* `nu` (sample, x, y) and `tensor` (sample, 1, x, y): PDEBench's steady 2D Darcy flow. The map ν ↦ u is presented as a
 * trajectory of two frames with two channels, (ν, 0) → (ν, u), so that an operator that advances time learns it as it
 * learns any other. The zeros are not stored. */
#include "pipeline/layouts/source.h"

static bool recognises(ups_hdf5_file *file) {
    return ups_hdf5_kind_of(file, "tensor") == UPS_HDF5_DATASET && ups_hdf5_kind_of(file, "nu") == UPS_HDF5_DATASET;
}

static ups_status check_shapes(const ups_layout_builder *builder, const ups_stored_array *nu,
                               const ups_stored_array *tensor, ups_error *error) {
    const char *path = builder->path;
    if (tensor->shape[1] != 1)
        return ups_fail(
            error, UPS_ERR_FORMAT,
            "%s: dataset 'tensor' has %lld steps on its second axis; a Darcy solution has 1: (sample, 1, x, y)", path,
            (long long)tensor->shape[1]);
    if (nu->shape[0] != tensor->shape[0] || nu->shape[1] != tensor->shape[2] || nu->shape[2] != tensor->shape[3])
        return ups_fail(
            error, UPS_ERR_FORMAT,
            "%s: 'nu' (%lld, %lld, %lld) and 'tensor' (%lld, 1, %lld, %lld) differ in samples or grid; they "
            "must agree",
            path, (long long)nu->shape[0], (long long)nu->shape[1], (long long)nu->shape[2],
            (long long)tensor->shape[0], (long long)tensor->shape[2], (long long)tensor->shape[3]);
    if (nu->dtype != tensor->dtype)
        return ups_fail(error, UPS_ERR_FORMAT, "%s: 'nu' is %s and 'tensor' is %s; store both in one type", path,
                        ups_dtype_name(nu->dtype), ups_dtype_name(tensor->dtype));
    return UPS_OK;
}

static ups_status describe(ups_layout_builder *builder, ups_error *error) {
    static const char *const channel_names[] = {"nu", "u"};
    static const double time[] = {0, 1};
    ups_stored_array *nu, *tensor;
    ups_layout_member *member;
    UPS_TRY(ups_layout_map(builder, "nu", 3, 3, "(sample, x, y)", &nu, error));
    UPS_TRY(ups_layout_map(builder, "tensor", 4, 4, "(sample, 1, x, y)", &tensor, error));
    UPS_TRY(check_shapes(builder, nu, tensor, error));
    UPS_TRY(ups_layout_set_channels(builder, 2, channel_names, error));
    UPS_TRY(ups_layout_add_member(builder, &member, error));
    ups_sample *sample = &member->sample;
    *sample = (ups_sample){.times = 2,
                           .channels = 2,
                           .dims = 2,
                           .grid = {nu->shape[1], nu->shape[2], 1},
                           .order = UPS_CHANNELS_FIRST,
                           .dtype = nu->dtype,
                           .periodic = false,
                           .time = time};
    member->name = "tensor";
    member->numbered = true;
    member->samples = tensor->shape[0];
    member->boundary = "not periodic: u is zero there";
    const ups_layout_part parts[] = {
        {.array = nu, .by_sample = true, .first_frame = 0, .first_channel = 0},
        {.array = tensor, .by_sample = true, .unit_axes = 1, .first_frame = 1, .first_channel = 1},
    };
    ups_layout_set_parts(builder, member, parts, 2);
    UPS_TRY(
        ups_layout_read_optional_coordinate(builder, "x-coordinate", sample->grid[0], &sample->coordinates[0], error));
    UPS_TRY(
        ups_layout_read_optional_coordinate(builder, "y-coordinate", sample->grid[1], &sample->coordinates[1], error));
    UPS_TRY(ups_layout_read_parameters(builder, "", &member->found, error));
    UPS_TRY(ups_layout_read_parameters(builder, "tensor", &member->found, error));
    return ups_layout_split_by_parameters(builder, error);
}

static const ups_source_class source_class = UPS_LAYOUT_CLASS("pdebench.darcy");

const ups_layout ups_layout_darcy = {
    .kind = "pdebench.darcy",
    .title = "Darcy flow",
    .reason = "datasets 'nu' (sample, x, y) and 'tensor' (sample, 1, x, y)",
    .looks_for = {"nu", "tensor"},
    .recognises = recognises,
    .describe = describe,
    .class = &source_class,
};

/* `nu` (sample, x, y) and `tensor` (sample, 1, x, y): PDEBench's steady 2D Darcy flow. The map ν ↦ u is presented as a
 * trajectory of two frames with two channels, (ν, 0) → (ν, u), so that an operator that advances time learns it as it
 * learns any other. The zeros are not stored. */
#include "pipeline/layout_source.h"

static bool recognises(ups_hdf5_file *file) {
    return ups_hdf5_kind_of(file, "tensor") == UPS_HDF5_DATASET && ups_hdf5_kind_of(file, "nu") == UPS_HDF5_DATASET;
}

static ups_status check_shapes(const ups_layout_builder *builder, const ups_stored_array *nu,
                               const ups_stored_array *tensor, ups_error *error) {
    const char *path = ups_hdf5_path(builder->file);
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

static ups_status read_optional(ups_layout_builder *builder, const char *name, int64_t length, const double **values,
                                ups_error *error) {
    if (ups_hdf5_kind_of(builder->file, name) != UPS_HDF5_DATASET) return UPS_OK;
    return ups_layout_read_coordinate(builder, name, length, 0, values, error);
}

static ups_status describe(ups_layout_builder *builder, ups_error *error) {
    static const char *const channel_names[] = {"nu", "u"};
    static const double time[] = {0, 1};
    ups_stored_array *nu, *tensor;
    UPS_TRY(ups_layout_map(builder, "nu", 3, 3, "(sample, x, y)", &nu, error));
    UPS_TRY(ups_layout_map(builder, "tensor", 4, 4, "(sample, 1, x, y)", &tensor, error));
    UPS_TRY(check_shapes(builder, nu, tensor, error));
    ups_layout_member *member = ups_layout_add_member(builder);
    if (!member) return ups_fail(error, UPS_ERR_MEMORY, "no memory for the list of samples");
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
    member->samples = tensor->shape[0];
    member->part_count = 2;
    member->parts[0] = (ups_layout_part){.array = nu, .by_sample = true, .first_frame = 0, .first_channel = 0};
    member->parts[1] = (ups_layout_part){.array = tensor, .by_sample = true, .first_frame = 1, .first_channel = 1};
    builder->channels = 2;
    builder->channel_names = channel_names;
    UPS_TRY(read_optional(builder, "x-coordinate", sample->grid[0], &sample->coordinates[0], error));
    UPS_TRY(read_optional(builder, "y-coordinate", sample->grid[1], &sample->coordinates[1], error));
    UPS_TRY(ups_layout_read_parameters(builder, "", &member->found, error));
    return ups_layout_read_parameters(builder, "tensor", &member->found, error);
}

static const ups_source_class source_class = UPS_LAYOUT_CLASS("pdebench.darcy");

const ups_layout ups_layout_darcy = {
    .kind = "pdebench.darcy",
    .reason = "datasets 'nu' (sample, x, y) and 'tensor' (sample, 1, x, y)",
    .recognises = recognises,
    .describe = describe,
    .class = &source_class,
};

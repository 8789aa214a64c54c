/* `tensor` (sample, t, x): PDEBench's 1D advection and Burgers (arXiv 2210.07182, data_gen/…/AdvectionEq, BurgersEq).
 * The generator stores the edges of the time steps, so that `t-coordinate` often has one entry more than the data; the
 * last is cut off. Both are periodic. */
#include "pipeline/layout_source.h"

static bool recognises(ups_hdf5_file *file) {
    return ups_hdf5_kind_of(file, "tensor") == UPS_HDF5_DATASET && ups_hdf5_kind_of(file, "nu") != UPS_HDF5_DATASET;
}

static ups_status describe(ups_layout_builder *builder, ups_error *error) {
    static const char *const channel_names[] = {"u"};
    ups_stored_array *tensor;
    UPS_TRY(ups_layout_map(builder, "tensor", 3, 3, "(sample, t, x)", &tensor, error));
    ups_layout_member *member = ups_layout_add_member(builder);
    if (!member) return ups_fail(error, UPS_ERR_MEMORY, "no memory for the list of samples");
    ups_sample *sample = &member->sample;
    *sample = (ups_sample){.times = tensor->shape[1],
                           .channels = 1,
                           .dims = 1,
                           .grid = {tensor->shape[2], 1, 1},
                           .order = UPS_CHANNELS_LAST,
                           .dtype = tensor->dtype,
                           .periodic = true};
    member->name = "tensor";
    member->samples = tensor->shape[0];
    member->part_count = 1;
    member->parts[0] = (ups_layout_part){.array = tensor, .by_sample = true, .by_time = true};
    builder->channels = 1;
    builder->channel_names = channel_names;
    UPS_TRY(ups_layout_read_coordinate(builder, "t-coordinate", sample->times, 1, &sample->time, error));
    UPS_TRY(ups_layout_read_coordinate(builder, "x-coordinate", sample->grid[0], 0, &sample->coordinates[0], error));
    UPS_TRY(ups_layout_read_parameters(builder, "", &member->found, error));
    return ups_layout_read_parameters(builder, "tensor", &member->found, error);
}

static const ups_source_class source_class = UPS_LAYOUT_CLASS("pdebench.tensor");

const ups_layout ups_layout_tensor = {
    .kind = "pdebench.tensor",
    .reason = "dataset 'tensor' (sample, t, x) and no dataset 'nu'",
    .recognises = recognises,
    .describe = describe,
    .class = &source_class,
};

/* `tensor` (sample, t, x): PDEBench's 1D advection, Burgers and reaction–diffusion (arXiv 2210.07182, data_gen/…/
 * AdvectionEq, BurgersEq, ReactionDiffusionEq). The generator stores the edges of the time steps, so that
 * `t-coordinate` often has one entry more than the data; the last is cut off. All are
 * periodic, unless an attribute `bc` says otherwise. */
#include "pipeline/layouts/source.h"

static bool recognises(ups_hdf5_file *file) {
    return ups_hdf5_kind_of(file, "tensor") == UPS_HDF5_DATASET && ups_hdf5_kind_of(file, "nu") != UPS_HDF5_DATASET;
}

static ups_status describe(ups_layout_builder *builder, ups_error *error) {
    static const char *const channel_names[] = {"u"};
    ups_stored_array *tensor;
    ups_layout_member *member;
    UPS_TRY(ups_layout_map(builder, "tensor", 3, 3, "(sample, t, x)", &tensor, error));
    const char *const *told = ups_layout_told_fields(builder, 1);
    const char *const *axis = ups_layout_axis_labels(builder, "tensor", 2, 1);
    UPS_TRY(ups_layout_set_channels(builder, 1, told ? told : channel_names, error));
    UPS_TRY(ups_layout_add_member(builder, &member, error));
    ups_sample *sample = &member->sample;
    *sample = (ups_sample){.times = tensor->shape[1],
                           .channels = 1,
                           .dims = 1,
                           .grid = {tensor->shape[2], 1, 1},
                           .order = UPS_CHANNELS_LAST,
                           .dtype = tensor->dtype,
                           .periodic = true,
                           .axis_names = {axis ? axis[0] : NULL}};
    member->name = "tensor";
    member->numbered = true;
    member->samples = tensor->shape[0];
    member->boundary = "periodic";
    ups_layout_set_parts(builder, member, &(ups_layout_part){.array = tensor, .by_sample = true, .by_time = true}, 1);
    UPS_TRY(ups_layout_read_coordinate(builder, "t-coordinate", sample->times, 1, &sample->time, error));
    UPS_TRY(ups_layout_read_coordinate(builder, "x-coordinate", sample->grid[0], 0, &sample->coordinates[0], error));
    UPS_TRY(ups_layout_read_description(builder, "", member, error));
    UPS_TRY(ups_layout_read_parameters(builder, "tensor", &member->found, error));
    return ups_layout_split_by_parameters(builder, error);
}

static const ups_source_class source_class = UPS_LAYOUT_CLASS("pdebench.tensor");

const ups_layout ups_layout_tensor = {
    .kind = "pdebench.tensor",
    .title = "a tensor file",
    .reason = "dataset 'tensor' (sample, t, x) and no dataset 'nu'",
    .looks_for = {"tensor", "t-coordinate", "x-coordinate"},
    .recognises = recognises,
    .describe = describe,
    .class = &source_class,
};

#include "tools/solvers/writer/file_layout.h"

#include <assert.h>
#include <stddef.h>

void ups_file_add_array(ups_file_layout *layout, const char *name, int64_t times, int dims, int64_t cells,
                        int64_t channels) {
    assert(layout->array_count < UPS_FILE_ARRAYS && dims >= 0 && dims <= 3);
    layout->arrays[layout->array_count++] = (ups_file_array){name, times, dims, cells, channels};
}

static void add_coordinate(ups_file_layout *layout, ups_file_coordinate coordinate) {
    assert(layout->coordinate_count < UPS_FILE_COORDINATES);
    layout->coordinates[layout->coordinate_count++] = coordinate;
}

void ups_file_add_centres(ups_file_layout *layout, const char *name, int64_t cells, double begin, double end) {
    add_coordinate(layout, (ups_file_coordinate){name, cells, begin, end, 0.5, cells});
}

void ups_file_add_times(ups_file_layout *layout, const char *name, int64_t count, int64_t steps, double end) {
    add_coordinate(layout, (ups_file_coordinate){name, count, 0.0, end, 0.0, steps - 1});
}

void ups_file_add_table(ups_file_layout *layout, const char *name, ups_file_table_type type, int64_t rows,
                        int64_t columns, const void *values) {
    assert(layout->table_count < UPS_FILE_TABLES && !layout->seed_groups);
    layout->tables[layout->table_count++] = (ups_file_table){name, type, rows, columns, values};
}

static void add_attribute(ups_file_layout *layout, ups_file_attribute attribute) {
    assert(layout->attribute_count < UPS_FILE_ATTRIBUTES);
    layout->attributes[layout->attribute_count++] = attribute;
}

void ups_file_add_attribute(ups_file_layout *layout, const char *name, double value) {
    add_attribute(layout, (ups_file_attribute){name, value, NULL});
}

void ups_file_add_text(ups_file_layout *layout, const char *name, const char *text) {
    add_attribute(layout, (ups_file_attribute){name, 0.0, text});
}

void ups_file_describe_tensor(ups_file_layout *layout, int64_t steps, int64_t cells, double t_end) {
    ups_file_add_centres(layout, "x-coordinate", cells, 0.0, 1.0);
    ups_file_add_times(layout, "t-coordinate", steps + 1, steps, t_end);
    ups_file_add_array(layout, "tensor", steps, 1, cells, 0);
}

double ups_file_coordinate_at(const ups_file_coordinate *coordinate, int64_t index) {
    const double along = ((double)index + coordinate->offset) / (double)coordinate->intervals;
    return coordinate->begin + (coordinate->end - coordinate->begin) * along;
}

int64_t ups_file_frames(const ups_file_array *array) {
    return array->times > 0 ? array->times : 1;
}

int64_t ups_file_frame_values(const ups_file_array *array) {
    int64_t values = array->channels > 0 ? array->channels : 1;
    for (int axis = 0; axis < array->dims; axis++) values *= array->cells;
    return values;
}

int64_t ups_file_sample_values(const ups_file_array *array) {
    return ups_file_frames(array) * ups_file_frame_values(array);
}

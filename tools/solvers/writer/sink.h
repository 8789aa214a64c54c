/* Where a solver puts its frames, one by one: checked, rounded to float32, and passed on in large pieces. A solver
 * never holds a whole sample; what a sink holds is bounded, however large the file. One sink belongs to one thread. */
#ifndef UPS_TOOLS_SOLVERS_WRITER_SINK_H
#define UPS_TOOLS_SOLVERS_WRITER_SINK_H

#include "base/error.h"
#include "tools/solvers/writer/file_layout.h"

typedef struct ups_sink ups_sink;

/* Takes `count` values of `array`, from value `first` of sample `sample` on. */
typedef ups_status (*ups_sink_write)(void *context, int array, int64_t sample, int64_t first, const float *values,
                                     int64_t count, ups_error *error);

/* NULL when out of memory. `layout` and `context` stay the caller's and must outlive it. */
ups_sink *ups_sink_create(const ups_file_layout *layout, ups_sink_write write, void *context);
void ups_sink_destroy(ups_sink *sink); /* NULL is fine */

/* Before and after a sample. `end` passes on what is held; UPS_ERR_ARGUMENT when a frame of any array was not put. */
void ups_sink_begin(ups_sink *sink, int64_t sample);
ups_status ups_sink_end(ups_sink *sink, ups_error *error);

/* Frame `frame` of array number `array` (in the order of the layout): cells^dims values, the last axis fastest. Each
 * array's frames come in order, 0 first. UPS_ERR_NUMERIC when a value is no float32; UPS_ERR_CANCELLED after Ctrl-C, so
 * that a solver that puts frames now and then need not ask. */
ups_status ups_sink_put(ups_sink *sink, int array, int64_t frame, const double *values, ups_error *error);

/* The same for an array with channels: one plane of cells^dims values for each, woven here into (…, channel). */
ups_status ups_sink_put_channels(ups_sink *sink, int array, int64_t frame, const double *const *planes,
                                 ups_error *error);

#endif

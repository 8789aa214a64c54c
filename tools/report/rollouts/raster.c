#include "tools/report/rollouts/raster.h"

#include "train/objectives/field.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LONGEST_SIDE = 192, MIX = 3 };

/* What a cell of the grid shows: a mixture of points. No point: nothing. */
typedef struct mixture {
    int32_t point[MIX];
    float weight[MIX];
} mixture;

typedef struct canvas {
    ups_points points;     /* as they lie in the frame that is drawn */
    int64_t width, height; /* cells along x, and along y */
    double low[2], cell[2];
    mixture *mixtures; /* (width, height) */
} canvas;

static double place(const ups_points *points, int64_t point, int axis) {
    return axis < points->dims ? points->coordinates[point * points->dims + axis] : 0;
}

static double middle(const canvas *c, int axis, int64_t cell) {
    return c->low[axis] + ((double)cell + 0.5) * c->cell[axis];
}

/* ---- cells of a mesh ----------------------------------------------------------------------------------------------
 */

static int64_t clamp(double cell, int64_t cells) {
    return cell < 0 ? 0 : cell > (double)(cells - 1) ? cells - 1 : (int64_t)cell;
}

/* Fills the cells of the grid whose middle is in the triangle, or on its border. */
static void fill_triangle(const canvas *c, const int32_t corner[3]) {
    const double edge = 1e-9; /* of the triangle: rounding */
    double x[3], y[3];
    for (int i = 0; i < 3; i++) x[i] = place(&c->points, corner[i], 0), y[i] = place(&c->points, corner[i], 1);
    const double twice = (x[1] - x[0]) * (y[2] - y[0]) - (x[2] - x[0]) * (y[1] - y[0]);
    if (twice == 0) return;
    const int64_t left = clamp((fmin(x[0], fmin(x[1], x[2])) - c->low[0]) / c->cell[0] - 0.5, c->width);
    const int64_t right = clamp((fmax(x[0], fmax(x[1], x[2])) - c->low[0]) / c->cell[0] + 0.5, c->width);
    const int64_t bottom = clamp((fmin(y[0], fmin(y[1], y[2])) - c->low[1]) / c->cell[1] - 0.5, c->height);
    const int64_t top = clamp((fmax(y[0], fmax(y[1], y[2])) - c->low[1]) / c->cell[1] + 0.5, c->height);
    for (int64_t i = left; i <= right; i++) {
        for (int64_t j = bottom; j <= top; j++) {
            const double px = middle(c, 0, i), py = middle(c, 1, j);
            const double first = ((x[1] - px) * (y[2] - py) - (x[2] - px) * (y[1] - py)) / twice;
            const double second = ((x[2] - px) * (y[0] - py) - (x[0] - px) * (y[2] - py)) / twice;
            const double third = 1 - first - second;
            if (first < -edge || second < -edge || third < -edge) continue;
            c->mixtures[i * c->height + j] =
                (mixture){{corner[0], corner[1], corner[2]}, {(float)first, (float)second, (float)third}};
        }
    }
}

static void fill_cells(const canvas *c) {
    const int corners = c->points.corners;
    for (int64_t k = 0; k < c->points.cell_count; k++) {
        const int32_t *cell = c->points.cells + k * corners;
        for (int i = 1; i + 1 < corners; i++) fill_triangle(c, (const int32_t[]){cell[0], cell[i], cell[i + 1]});
    }
}

/* ---- points alone -------------------------------------------------------------------------------------------------
 */

/* Each point's cell of the grid, and those around it, take it where no other is nearer. */
static ups_status fill_nearest(const canvas *c, ups_error *error) {
    const ups_points *points = &c->points;
    const int64_t cells = c->width * c->height;
    double *nearest = malloc((size_t)cells * sizeof *nearest), volume = 1, level = 0;
    if (!nearest) return ups_fail(error, UPS_ERR_MEMORY, "no memory for a picture of %lld cells", (long long)cells);
    for (int64_t k = 0; k < cells; k++) nearest[k] = INFINITY;
    volume = (double)c->width * c->cell[0] * (double)c->height * c->cell[1];
    if (points->dims == 3) { /* the plane in the middle */
        double low = INFINITY, high = -INFINITY;
        for (int64_t p = 0; p < points->count; p++) {
            if (!isfinite(place(points, p, 2))) continue;
            low = fmin(low, place(points, p, 2));
            high = fmax(high, place(points, p, 2));
        }
        volume *= high > low ? high - low : 1;
        level = 0.5 * (low + high);
    }
    const double reach = 1.5 * pow(volume / (double)points->distinct, 1.0 / points->dims);
    const int64_t far_x = clamp(ceil(reach / c->cell[0]), c->width), far_y = clamp(ceil(reach / c->cell[1]), c->height);
    for (int64_t p = 0; p < points->count; p++) {
        const double x = place(points, p, 0), y = place(points, p, 1), off = place(points, p, 2) - level;
        if (!isfinite(x) || !isfinite(y) || !isfinite(off)) continue;
        const int64_t i = clamp((x - c->low[0]) / c->cell[0], c->width);
        const int64_t j = clamp((y - c->low[1]) / c->cell[1], c->height);
        if (points->dims == 3 && fabs(off) > reach) continue;
        for (int64_t a = i < far_x ? 0 : i - far_x; a <= i + far_x && a < c->width; a++) {
            for (int64_t b = j < far_y ? 0 : j - far_y; b <= j + far_y && b < c->height; b++) {
                const double distance = hypot(hypot(middle(c, 0, a) - x, middle(c, 1, b) - y), off);
                if (distance > reach || distance >= nearest[a * c->height + b]) continue;
                nearest[a * c->height + b] = distance;
                c->mixtures[a * c->height + b] = (mixture){{(int32_t)p, -1, -1}, {1, 0, 0}};
            }
        }
    }
    free(nearest);
    return UPS_OK;
}

/* ---- the grid -----------------------------------------------------------------------------------------------------
 */

/* Where points lie that move, by what a frame (points, channels) tells: (points, dims) into `coordinates`. */
static void take_places(const ups_task *task, const ups_points *points, const float *frame, double *coordinates) {
    for (int axis = 0; axis < points->dims; axis++) {
        const int64_t channels = task->geometry.channels, channel = ups_field_channel(task, points->names[axis]);
        for (int64_t p = 0; p < points->count; p++)
            coordinates[p * points->dims + axis] = (double)frame[p * channels + channel];
    }
}

static void widen(const ups_points *points, double low[2], double high[2]) {
    for (int axis = 0; axis < 2; axis++) {
        for (int64_t p = 0; p < points->count; p++) {
            if (!isfinite(place(points, p, axis))) continue; /* of a prediction that is none any more */
            low[axis] = fmin(low[axis], place(points, p, axis));
            high[axis] = fmax(high[axis], place(points, p, axis));
        }
    }
}

/* Takes the box further to where a prediction has points that move, by half its sides at most. */
static void follow(const ups_rollouts *rollouts, const ups_rollout *rollout, canvas *c, double *coordinates,
                   double low[2], double high[2]) {
    const int64_t elements = rollouts->points * rollouts->task->geometry.channels;
    double seen_low[2] = {INFINITY, INFINITY}, seen_high[2] = {-INFINITY, -INFINITY};
    for (int64_t f = 0; f < rollouts->frames; f++) {
        take_places(rollouts->task, &c->points, rollout->prediction + f * elements, coordinates);
        widen(&c->points, seen_low, seen_high);
    }
    for (int axis = 0; axis < 2; axis++) {
        const double side = high[axis] - low[axis];
        low[axis] = fmax(fmin(low[axis], seen_low[axis]), low[axis] - 0.5 * side);
        high[axis] = fmin(fmax(high[axis], seen_high[axis]), high[axis] + 0.5 * side);
    }
}

/* Square cells, LONGEST_SIDE along the longer side of the box that holds all points, where they move in all frames.
 * Points on a line have one row. */
static ups_status cover(const ups_rollouts *rollouts, const ups_rollout *rollout, double *coordinates, canvas *c,
                        ups_error *error) {
    double low[2] = {INFINITY, INFINITY}, high[2] = {-INFINITY, -INFINITY}, longest = 0;
    const int64_t elements = rollouts->points * rollouts->task->geometry.channels;
    *c = (canvas){.points = *rollout->sample.points};
    widen(&c->points, low, high);
    if (c->points.moving) c->points.coordinates = coordinates;
    for (int64_t f = 0; f < rollouts->truth_frames && c->points.moving; f++) {
        take_places(rollouts->task, &c->points, rollout->truth + f * elements, coordinates);
        widen(&c->points, low, high);
    }
    if (c->points.moving) follow(rollouts, rollout, c, coordinates, low, high);
    for (int axis = 0; axis < 2; axis++) {
        longest = fmax(longest, high[axis] - low[axis]);
        c->low[axis] = low[axis];
    }
    const double cell = longest > 0 ? longest / LONGEST_SIDE : 1;
    c->cell[0] = c->cell[1] = cell;
    c->width = 1 + clamp((high[0] - low[0]) / cell - 1e-6, LONGEST_SIDE);
    c->height = 1 + clamp((high[1] - low[1]) / cell - 1e-6, LONGEST_SIDE);
    c->mixtures = malloc((size_t)(c->width * c->height) * sizeof *c->mixtures);
    if (c->mixtures) return UPS_OK;
    return ups_fail(error, UPS_ERR_MEMORY, "no memory for a picture of %lld by %lld cells", (long long)c->width,
                    (long long)c->height);
}

static ups_status fill(const canvas *c, ups_error *error) {
    for (int64_t k = 0; k < c->width * c->height; k++) c->mixtures[k] = (mixture){{-1, -1, -1}, {0, 0, 0}};
    if (c->points.dims != 2 || c->points.corners < 3) return fill_nearest(c, error);
    fill_cells(c);
    return UPS_OK;
}

static void mix(const canvas *c, const float *frame, int64_t channels, float *out) {
    for (int64_t i = 0; i < c->width * c->height; i++) {
        const mixture *mixed = &c->mixtures[i];
        for (int64_t channel = 0; channel < channels; channel++) {
            float value = mixed->point[0] < 0 ? NAN : 0;
            for (int m = 0; m < MIX && mixed->point[m] >= 0; m++)
                value += mixed->weight[m] * frame[mixed->point[m] * channels + channel];
            out[i * channels + channel] = value;
        }
    }
}

/* (frames, width, height, channels) of (frames, points, channels). */
static float *draw(const canvas *c, const ups_task *task, const float *fields, int64_t frames, double *coordinates,
                   ups_error *error) {
    const int64_t channels = task->geometry.channels, each = c->width * c->height * channels;
    float *out = malloc((size_t)(frames * each + 1) * sizeof *out);
    ups_status status =
        out ? UPS_OK : ups_fail(error, UPS_ERR_MEMORY, "no memory for a picture of %lld frames", (long long)frames);
    for (int64_t f = 0; f < frames && status == UPS_OK; f++) {
        const float *frame = fields + f * c->points.count * channels;
        if (c->points.moving) take_places(task, &c->points, frame, coordinates);
        if (c->points.moving || f == 0) status = fill(c, error);
        if (status == UPS_OK) mix(c, frame, channels, out + f * each);
    }
    if (status == UPS_OK) return out;
    free(out);
    return NULL;
}

ups_status ups_rollout_raster_make(const ups_rollouts *rollouts, int64_t index, ups_rollout_raster *raster,
                                   ups_error *error) {
    const ups_rollout *from = &rollouts->list[index];
    const ups_points *points = from->sample.points;
    canvas c = {0};
    *raster = (ups_rollout_raster){.rollouts = *rollouts, .task = *rollouts->task, .rollout = *from};
    double *coordinates = malloc((size_t)(points->count * points->dims) * sizeof *coordinates);
    ups_status status = coordinates ? cover(rollouts, from, coordinates, &c, error)
                                    : ups_fail(error, UPS_ERR_MEMORY, "no memory for a picture's points");
    raster->rollout.prediction = raster->rollout.truth = NULL;
    if (status == UPS_OK) {
        const ups_task *task = rollouts->task;
        raster->rollout.prediction = draw(&c, task, from->prediction, rollouts->frames, coordinates, error);
        if (from->truth)
            raster->rollout.truth = draw(&c, task, from->truth, rollouts->truth_frames, coordinates, error);
        if (!raster->rollout.prediction || (from->truth && !raster->rollout.truth)) status = UPS_ERR_MEMORY;
    }
    raster->task.geometry.points = raster->rollout.sample.points = NULL;
    raster->task.geometry.dims = 2;
    ups_rollouts *made = &raster->rollouts;
    made->task = &raster->task;
    made->list = &raster->rollout;
    made->count = 1;
    const int64_t cells[] = {c.width, c.height, 1};
    for (int axis = 0; axis < UPS_MAX_GRID_DIMS; axis++) {
        made->grid[axis] = raster->task.geometry.grid[axis] = cells[axis];
        raster->task.geometry.axis_names[axis] = points->names[axis];
    }
    for (int axis = 0; axis < 2; axis++) {
        made->low[axis] = c.low[axis];
        made->high[axis] = c.low[axis] + (double)cells[axis] * c.cell[axis];
    }
    made->points = c.width * c.height;
    free(c.mixtures);
    free(coordinates);
    if (status != UPS_OK) ups_rollout_raster_free(raster);
    return status;
}

void ups_rollout_raster_free(ups_rollout_raster *raster) {
    free(raster->rollout.prediction);
    free(raster->rollout.truth);
    raster->rollout.prediction = raster->rollout.truth = NULL;
}

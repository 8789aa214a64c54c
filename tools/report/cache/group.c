#include "tools/report/cache/group.h"

#include "base/even.h"
#include "base/system/cancel.h"
#include "tools/report/cache/charts.h"
#include "tools/report/cache/facts.h"
#include "tools/report/pictures.h"
#include "tools/report/rollouts/raster.h"
#include "tools/report/rollouts/subject.h"
#include "train/networks.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MEASURED = 64, SKIPPED_LISTED = 100, DEAD_LISTED = 40, SOURCES_LISTED = 50 };
enum { FRAMES_1D = 64, FRAMES_2D = 3, CHANNELS_SHOWN = 4 };

/* ---- latents ---- */

static void write_dead_channels(ups_html *html, const ups_latent_measurement *m, int64_t dim) {
    if (m->dead == 0) {
        ups_html_markup(html, "<p>No dead channels: each of the %lld varies.</p>\n", (long long)dim);
        return;
    }
    ups_html_markup(html,
                    "<p class=\"warn\">%lld of %lld channels are dead (they vary less than a thousandth of the "
                    "typical one):",
                    (long long)m->dead, (long long)dim);
    int64_t listed = 0;
    for (int64_t d = 0; d < dim && listed < DEAD_LISTED; d++) {
        if (!ups_channel_is_dead(m, d)) continue;
        ups_html_markup(html, "%s %lld", listed++ ? "," : "", (long long)d);
    }
    ups_html_markup(html, "%s.</p>\n", m->dead > listed ? ", …" : "");
}

static ups_status write_latents(ups_html *html, const ups_cache_group *group, const ups_latent_measurement *m,
                                ups_error *error) {
    int64_t dim = group->shape.trajectory.dim;
    ups_html_markup(html, "<h3>Latents</h3>\n<p class=\"note\">Measured on %lld trajectories, spread evenly",
                    (long long)m->trajectories);
    if (m->non_finite > 0) ups_html_markup(html, "; %lld values are NaN or infinite", (long long)m->non_finite);
    ups_html_markup(html, ".</p>\n<h4>How often each value occurs</h4>\n");
    ups_chart_histogram(html, m->bins, UPS_LATENT_BINS, m->low, m->high, "value of the latent",
                        "Histogram of latent values");
    ups_chart_band *bands = malloc((size_t)dim * sizeof *bands);
    if (!bands) return ups_fail(error, UPS_ERR_MEMORY, "no memory for a page");
    for (int64_t d = 0; d < dim; d++) {
        const ups_channel_statistics *c = &m->channel[d];
        bands[d] = (ups_chart_band){c->minimum, c->maximum, c->mean, c->deviation};
    }
    ups_html_markup(html,
                    "<h4>Channel by channel</h4>\n<p class=\"note\">Line: mean; dark band: one standard deviation "
                    "to either side; light band: smallest to largest value.</p>\n");
    ups_chart_bands(html, bands, dim, "channel", "value", "Mean, standard deviation and range of every latent channel");
    free(bands);
    write_dead_channels(html, m, dim);
    return UPS_OK;
}

/* One trajectory, as `ups cache inspect --png` draws it. */
static ups_status write_latent_picture(ups_html *html, const ups_cache_group *group, const ups_f16 *latents,
                                       int64_t sample, ups_error *error) {
    char title[80];
    snprintf(title, sizeof title, "Latents of sample %lld", (long long)sample);
    const ups_chunk_shape shape = group->shape.trajectory;
    const double *time = group->time + (group->time_per_sample ? sample * shape.times : 0);
    const ups_latent_picture picture = {title, shape.times, shape.tokens, shape.dim, latents, time};
    ups_figure figure;
    UPS_TRY(ups_draw_latents(&figure, UPS_FIGURE_SVG, &picture, error));
    ups_figure_embed(&figure, html, "picture",
                     "Maps of token and channel at up to four times, and the channels of one token over time");
    return UPS_OK;
}

/* ---- compression ---- */

static ups_status write_compression(ups_html *html, const ups_cache_group *group, const ups_cache_survey *survey,
                                    const json_t *facts, ups_error *error) {
    int64_t samples = group->shape.samples;
    double *ratio = malloc((size_t)samples * sizeof *ratio), *rounding = malloc((size_t)samples * sizeof *rounding);
    if (!ratio || !rounding) {
        free(ratio);
        free(rounding);
        return ups_fail(error, UPS_ERR_MEMORY, "no memory for a page");
    }
    double raw = (double)ups_chunk_raw_bytes(group->shape.trajectory);
    for (int64_t i = 0; i < samples; i++) {
        const ups_surveyed_sample *sample = &survey->samples[i];
        bool present = sample->state == UPS_SAMPLE_PRESENT;
        ratio[i] = present && sample->stored_bytes > 0 ? raw / (double)sample->stored_bytes : NAN;
        rounding[i] = present ? sample->statistics.error_rms : NAN;
    }
    ups_html_markup(html,
                    "<h3>Compression by sample</h3>\n<p class=\"note\">Bytes as FP16 over bytes stored; the whole "
                    "group: ");
    ups_html_number(html, 3, ups_fact_real(facts, "ratio"));
    bool many = survey->present > 1;
    ups_html_markup(html, many ? ".</p>\n" : ", which is one sample.</p>\n");
    if (many) {
        const ups_chart_outliers far =
            ups_chart_items(html, ratio, samples, "sample", "ratio", "Compression ratio of every sample");
        if (far.found > 0) {
            ups_html_markup(html, "<p class=\"note\">Far from the others, the farthest first:");
            for (int64_t i = 0; i < far.named; i++)
                ups_html_markup(html, "%s %lld", i ? "," : "", (long long)far.index[i]);
            ups_html_markup(html, far.found > far.named ? ", and %lld more.</p>\n" : ".</p>\n",
                            (long long)(far.found - far.named));
        }
    }
    ups_html_markup(html, "<h3>Rounding to FP16 by sample</h3>\n<p class=\"note\">Root mean square of what rounding "
                          "changed, in the units of the latents");
    if (!many) {
        ups_html_markup(html, ": ");
        ups_html_number(html, 3, survey->totals.error_rms);
    }
    ups_html_markup(html, ".</p>\n");
    if (many) ups_chart_items(html, rounding, samples, "sample", "rms error", "FP16 rounding error of every sample");
    free(ratio);
    free(rounding);
    return UPS_OK;
}

/* ---- fields ---- */

/* From half a step before the first of some numbers to half a step behind the last. */
static ups_axis axis_between(double first, double last, int64_t count, const char *label) {
    const double half = 0.5 * (last - first) / (double)(count > 1 ? count - 1 : 1);
    return (ups_axis){.low = first - half, .high = last + half, .label = label};
}

/* The y axis of a field over space and time: times where they are evenly spaced, else the frames' numbers. */
static ups_axis time_axis(const ups_reconstruction *r, char label[UPS_AXIS_LABEL]) {
    const int64_t first = r->frame[0], last = r->frame[r->frames - 1];
    if (ups_is_even(r->time + first, last - first + 1))
        return axis_between(r->time[first], r->time[last], r->frames,
                            ups_axis_label(label, "time t", r->task->geometry.time_units));
    ups_axis axis = axis_between((double)first, (double)last, r->frames, "frame");
    axis.whole = true;
    ups_plot_part(&axis.low, &axis.high);
    return axis;
}

/* From one point of the grid to the next along an axis, in numbers. */
static int64_t stride_of(const ups_sample *geometry, int axis) {
    int64_t stride = geometry->channels;
    for (int a = axis + 1; a < geometry->dims; a++) stride *= geometry->grid[a];
    return stride;
}

static const char *name_of_axis(const ups_sample *geometry, int a) {
    static const char *const usual[] = {"x", "y", "z"};
    return geometry->axis_names[a] ? geometry->axis_names[a] : usual[a];
}

/* An axis of the grid: coordinates where there are any that do not turn back, else the points' numbers. `edges`,
 * malloc'ed, where cells are no even ones that rise. */
static ups_axis grid_axis(const ups_sample *geometry, int a, char label[UPS_AXIS_LABEL], double **edges) {
    const char *name = name_of_axis(geometry, a);
    const double *x = geometry->coordinates[a];
    const int64_t count = geometry->grid[a];
    const bool even = x && ups_is_even(x, count);
    *edges = x && !(even && x[0] < x[count - 1]) ? ups_axis_edges(x, count) : NULL;
    if (*edges)
        return (ups_axis){.low = fmin((*edges)[0], (*edges)[count]),
                          .high = fmax((*edges)[0], (*edges)[count]),
                          .label = ups_axis_label(label, name, geometry->axis_units[a]),
                          .edges = *edges};
    if (even) return axis_between(x[0], x[count - 1], count, ups_axis_label(label, name, geometry->axis_units[a]));
    return (ups_axis){
        .low = -0.5, .high = (double)count - 0.5, .label = ups_axis_label(label, name, "grid point"), .whole = true};
}

/* Of points that lie anywhere, drawn on a grid. */
static ups_axis raster_axis(const ups_rollouts *raster, int a, char label[UPS_AXIS_LABEL]) {
    return (ups_axis){.low = raster->low[a],
                      .high = raster->high[a],
                      .label = ups_axis_label(label, name_of_axis(&raster->task->geometry, a), NULL)};
}

/* One field read back, as it was, and the error: a row a frame (2D), or over space and time (1D). Of three axes the
 * middle of one is shown. */
static void write_field(ups_html *html, const ups_reconstruction *r, const ups_rollouts *raster, int64_t channel) {
    const ups_sample *geometry = &r->task->geometry;
    const int64_t channels = geometry->channels, points = ups_task_points(r->task);
    const ups_rollout_view view = ups_rollout_view_of(geometry);
    const int64_t plane = geometry->dims == 3 ? geometry->grid[view.across] / 2 * stride_of(geometry, view.across) : 0;
    const bool line = geometry->dims == 1;
    ups_comparison_row rows[FRAMES_2D];
    char names[FRAMES_2D][48], title[160], labels[2][UPS_AXIS_LABEL];
    double *edges[2] = {NULL, NULL};
    const int count = line ? 1 : (int)r->frames;
    for (int f = 0; f < count; f++) {
        const int64_t at = f * points * channels + plane + channel;
        const char *units = geometry->time_units;
        snprintf(names[f], sizeof names[f], "t = %.4g%s%s", r->time[r->frame[f]], units ? " " : "", units ? units : "");
        rows[f] = (ups_comparison_row){.name = !line && geometry->times > 1 ? names[f] : NULL,
                                       .prediction = r->decoded + at,
                                       .truth = r->truth + at};
    }
    snprintf(title, sizeof title, "%.80s of sample %lld", r->channel[channel].name, (long long)r->sample);
    ups_comparison comparison = {.title = title,
                                 .prediction_name = "read back",
                                 .truth_name = "field",
                                 .rows = rows,
                                 .row_count = count,
                                 .height = line ? r->frames : geometry->grid[view.up],
                                 .width = geometry->grid[view.right],
                                 .row_stride = line ? points * channels : stride_of(geometry, view.up),
                                 .column_stride = stride_of(geometry, view.right),
                                 .x = grid_axis(geometry, view.right, labels[0], &edges[0]),
                                 .stretched = line};
    comparison.y = line ? time_axis(r, labels[1]) : grid_axis(geometry, view.up, labels[1], &edges[1]);
    if (raster) {
        comparison.x = raster_axis(raster, view.right, labels[0]);
        comparison.y = raster_axis(raster, view.up, labels[1]);
        comparison.outside = true;
    }
    ups_figure figure;
    ups_draw_comparison(&figure, UPS_FIGURE_SVG, &comparison);
    for (int a = 0; a < 2; a++) free(edges[a]);
    snprintf(title + strlen(title), sizeof title - strlen(title), ": read back, as it was, and the error");
    ups_figure_embed(&figure, html, "picture", title);
}

static void write_field_numbers(ups_html *html, const ups_reconstruction *r) {
    ups_html_markup(html,
                    "<div class=\"wide\" role=\"region\" tabindex=\"0\" aria-label=\"errors of the fields\"><table>"
                    "<caption>What the cache keeps of sample %lld's fields (%lld frames)</caption><thead><tr>"
                    "<th scope=\"col\">field</th><th scope=\"col\">deviation</th><th scope=\"col\">nRMSE read back"
                    "</th><th scope=\"col\">FP16, rms</th><th scope=\"col\">FP16, max</th></tr></thead><tbody>",
                    (long long)r->sample, (long long)r->frames);
    for (int64_t c = 0; c < r->task->geometry.channels; c++) {
        const ups_reconstructed_channel *channel = &r->channel[c];
        ups_html_markup(html, "<tr><th scope=\"row\">");
        ups_html_text(html, channel->name);
        const double numbers[] = {channel->deviation, channel->nrmse, channel->fp16_rms, channel->fp16_max};
        for (int i = 0; i < 4; i++) {
            ups_html_markup(html, i ? "<td>" : "</th><td>");
            ups_html_number(html, 3, numbers[i]);
            ups_html_markup(html, "</td>");
        }
        ups_html_markup(html, "</tr>");
    }
    ups_html_markup(html, "</tbody></table></div>\n");
}

/* Fields on points that lie anywhere, drawn on a grid. */
static ups_status write_points(ups_html *html, const ups_reconstruction *r, int64_t shown, ups_error *error) {
    ups_rollout one = {.sample = r->task->geometry, .prediction = r->decoded, .truth = r->truth};
    const ups_rollouts all = {.task = r->task,
                              .frames = r->frames,
                              .truth_frames = r->frames,
                              .points = r->points->count,
                              .list = &one,
                              .count = 1};
    ups_rollout_raster raster;
    one.sample.points = r->points;
    UPS_TRY(ups_rollout_raster_make(&all, 0, &raster, error));
    ups_reconstruction drawn = *r;
    drawn.task = &raster.task;
    drawn.decoded = raster.rollout.prediction;
    drawn.truth = raster.rollout.truth;
    for (int64_t c = 0; c < shown; c++) write_field(html, &drawn, &raster.rollouts, c);
    ups_rollout_raster_free(&raster);
    return UPS_OK;
}

static ups_status write_sample_fields(ups_html *html, const ups_reconstruction *r, const char *why, ups_error *error) {
    const int64_t channels = r->task->geometry.channels;
    const int64_t shown = channels < CHANNELS_SHOWN ? channels : CHANNELS_SHOWN;
    ups_html_markup(html, "<h4>Sample %lld, ", (long long)r->sample);
    ups_html_text(html, why);
    ups_html_markup(html, " (");
    ups_html_text(html, r->name);
    ups_html_markup(html, ")</h4>\n");
    write_field_numbers(html, r);
    if (r->points) UPS_TRY(write_points(html, r, shown, error));
    for (int64_t c = 0; c < shown && !r->points; c++) write_field(html, r, NULL, c);
    if (shown < channels) {
        ups_html_markup(html, "<p class=\"note\">Pictures are of the first %lld of %lld fields.</p>\n",
                        (long long)shown, (long long)channels);
    }
    return UPS_OK;
}

/* Indices of the samples with the median and the smallest compression; −1 where there is none. */
static void choose_samples(const ups_cache_group *group, const ups_cache_survey *survey, int64_t *typical,
                           int64_t *hardest) {
    *typical = *hardest = -1;
    double mean = survey->present ? (double)survey->stored_bytes / (double)survey->present : 0, nearest = INFINITY;
    for (int64_t i = 0; i < group->shape.samples; i++) {
        if (survey->samples[i].state != UPS_SAMPLE_PRESENT) continue;
        double bytes = (double)survey->samples[i].stored_bytes;
        if (fabs(bytes - mean) < nearest) {
            nearest = fabs(bytes - mean);
            *typical = i;
        }
        if (*hardest < 0 || survey->samples[i].stored_bytes > survey->samples[*hardest].stored_bytes) *hardest = i;
    }
    if (*hardest == *typical) *hardest = -1;
}

static ups_status write_fields(ups_html *html, const ups_cache_group *group, const ups_cache_survey *survey,
                               ups_cache_reader *reader, ups_reconstructor *reconstructor, ups_error *error) {
    static const char *const why[] = {"of the usual size", "the hardest to compress"};
    int64_t sample[2];
    choose_samples(group, survey, &sample[0], &sample[1]);
    ups_html_markup(html,
                    "<h3>Fields, and what the cache keeps of them</h3>\n<p class=\"note\">Latents from the cache, "
                    "decoded by the run's autoencoder at the points of the data's own grid. <em>FP16</em> is the "
                    "part of the error that storing latents in half precision adds.</p>\n");
    for (int i = 0; i < 2; i++) {
        if (sample[i] < 0) continue;
        ups_cache_trajectory trajectory;
        ups_reconstruction r;
        UPS_TRY(ups_cache_read(reader, sample[i], &trajectory, error));
        int64_t frames = ups_reconstructor_dims(reconstructor, group) == 1 ? FRAMES_1D : FRAMES_2D;
        UPS_TRY(ups_reconstruct(reconstructor, group, sample[i], trajectory.latents, frames, &r, error));
        ups_status status = write_sample_fields(html, &r, why[i], error);
        ups_reconstruction_free(&r);
        if (status != UPS_OK) return status;
    }
    return UPS_OK;
}

/* ---- what made it ---- */

static void write_skipped(ups_html *html, const json_t *facts) {
    const json_t *skipped = json_object_get(facts, "skipped");
    size_t count = json_array_size(skipped), listed = count < SKIPPED_LISTED ? count : SKIPPED_LISTED;
    ups_html_markup(html, "<h3>Skipped samples</h3>\n");
    if (count == 0) {
        ups_html_markup(html, "<p>%s</p>\n",
                        ups_fact_integer(facts, "skipped_count") ? "Their reasons are told when the build is finished."
                                                                 : "None.");
        return;
    }
    ups_html_markup(html,
                    "<div class=\"wide\" role=\"region\" tabindex=\"0\" aria-label=\"skipped samples\"><table>"
                    "<caption>%s%zu of them</caption><thead><tr><th scope=\"col\">sample</th><th scope=\"col\">in the "
                    "source</th><th scope=\"col\" class=\"words\">reason</th></tr></thead><tbody>",
                    listed < count ? "The first 100 of " : "All ", count);
    for (size_t i = 0; i < listed; i++) {
        const json_t *entry = json_array_get(skipped, i);
        const char *reason = ups_fact_text(entry, "reason");
        ups_html_markup(html, "<tr><th scope=\"row\">%lld</th><td>%lld</td><td class=\"words\">",
                        ups_fact_integer(entry, "sample"), ups_fact_integer(entry, "source_sample"));
        ups_html_text(html, reason ? reason : "");
        ups_html_markup(html, "</td></tr>");
    }
    ups_html_markup(html, "</tbody></table></div>\n");
}

static void write_origin(ups_html *html, const json_t *facts) {
    ups_html_markup(html, "<h3>What made it</h3>\n<div class=\"wide\" role=\"region\" tabindex=\"0\" "
                          "aria-label=\"fingerprint\"><table><caption>Parts of the fingerprint</caption><thead><tr>"
                          "<th scope=\"col\">part</th><th scope=\"col\" class=\"words\">hash</th></tr></thead><tbody>");
    const char *key;
    json_t *value;
    json_object_foreach(json_object_get(facts, "fingerprint"), key, value) {
        ups_html_markup(html, "<tr><th scope=\"row\">");
        ups_html_text(html, key);
        ups_html_markup(html, "</th><td class=\"words\"><code>");
        if (json_is_integer(value))
            ups_html_markup(html, "%lld", (long long)json_integer_value(value));
        else
            ups_html_text(html, json_string_value(value));
        ups_html_markup(html, "</code></td></tr>");
    }
    ups_html_markup(html, "</tbody></table></div>\n");
    const json_t *source = json_object_get(facts, "source");
    size_t files = json_array_size(source);
    if (files > 0) {
        ups_html_markup(html, "<details><summary>%zu source file%s</summary><ul>", files, files == 1 ? "" : "s");
        for (size_t i = 0; i < files && i < SOURCES_LISTED; i++) {
            ups_html_markup(html, "<li><code>");
            ups_html_text(html, json_string_value(json_array_get(source, i)));
            ups_html_markup(html, "</code></li>");
        }
        ups_html_markup(html, "%s</ul></details>\n", files > SOURCES_LISTED ? "<li>…</li>" : "");
    }
    char *encoder = json_dumps(json_object_get(facts, "encoder"), JSON_INDENT(2));
    if (encoder) {
        ups_html_markup(html, "<details><summary>Encoder</summary><pre>");
        ups_html_text(html, encoder);
        ups_html_markup(html, "</pre></details>\n");
    }
    free(encoder);
}

/* ---- the section ---- */

static ups_status write_body(ups_html *html, const ups_cache_group *group, const ups_cache_survey *survey,
                             const json_t *facts, ups_reconstructor *reconstructor, ups_error *error) {
    int64_t typical, hardest;
    choose_samples(group, survey, &typical, &hardest);
    if (typical < 0) {
        ups_html_markup(html, "<p>No trajectory is there yet.</p>\n");
        return UPS_OK;
    }
    ups_latent_measurement m;
    UPS_TRY(ups_latent_measure(group, survey, MEASURED, &m, error));
    ups_cache_reader *reader = ups_cache_reader_create(group);
    ups_cache_trajectory trajectory;
    ups_status status = reader ? ups_cache_read(reader, typical, &trajectory, error)
                               : ups_fail(error, UPS_ERR_MEMORY, "no memory for a page");
    if (status == UPS_OK) status = write_compression(html, group, survey, facts, error);
    if (status == UPS_OK) status = write_latents(html, group, &m, error);
    if (status == UPS_OK) status = write_latent_picture(html, group, trajectory.latents, typical, error);
    const char *unavailable = ups_fact_text(json_object_get(facts, "decoded"), "unavailable");
    if (status == UPS_OK && reconstructor && !unavailable) {
        status = write_fields(html, group, survey, reader, reconstructor, error);
    } else if (status == UPS_OK) {
        ups_html_markup(html, "<h3>Fields, and what the cache keeps of them</h3>\n<p class=\"note\">Not shown: ");
        ups_html_text(html, unavailable ? unavailable : "no autoencoder was given to decode latents with");
        ups_html_markup(html, "</p>\n");
    }
    ups_cache_reader_destroy(reader);
    ups_latent_measurement_free(&m);
    return status;
}

ups_status ups_report_group(ups_html *html, const char *id, const json_t *facts, ups_reconstructor *reconstructor,
                            ups_error *error) {
    if (ups_cancel_requested()) return ups_fail(error, UPS_ERR_CANCELLED, "interrupted; no page was written");
    const json_t *broken = json_object_get(facts, "error");
    ups_html_markup(html, "<section id=\"%s\" aria-labelledby=\"%s-title\"><h2 id=\"%s-title\">", id, id, id);
    if (broken) {
        ups_html_text(html, ups_fact_text(facts, "directory"));
        ups_html_markup(html, "</h2><p class=\"warn\">Broken: ");
        ups_html_text(html, ups_fact_text(broken, "message"));
        ups_html_markup(html, "</p></section>\n");
        return UPS_OK;
    }
    ups_html_textf(html, "%s / %s", ups_fact_text(facts, "task"), ups_fact_text(facts, "split"));
    ups_html_markup(html, "</h2>\n<p class=\"note\"><code>");
    ups_html_text(html, ups_fact_text(facts, "directory"));
    ups_html_markup(html, "</code></p>\n");
    ups_cache_group *group;
    ups_cache_survey survey;
    UPS_TRY(ups_cache_group_open(ups_fact_text(facts, "directory"), &group, error));
    ups_status status = ups_cache_survey_take(group, &survey, error);
    if (status == UPS_OK) {
        status = write_body(html, group, &survey, facts, reconstructor, error);
        ups_cache_survey_free(&survey);
    }
    ups_cache_group_close(group);
    if (status != UPS_OK) return status;
    write_skipped(html, facts);
    write_origin(html, facts);
    ups_html_markup(html, "</section>\n");
    return UPS_OK;
}

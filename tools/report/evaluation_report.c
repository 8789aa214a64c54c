#include "tools/report/evaluation_report.h"

#include "tools/report/cache/charts.h"
#include "tools/report/cache/facts.h"
#include "tools/report/line_chart.h"
#include "tools/report/page.h"
#include "tools/report/plot.h"
#include "train/evaluation/scores/forecast.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { WIDTH = 640, HEIGHT = 290, SMALL_WIDTH = 400, SMALL_HEIGHT = 320 };
#define LOGARITHMIC_FROM 20.0 /* ratio of the largest to the smallest value from which on decades show more */
#define SPECTRUM_DECADES 12.0 /* below the largest: what single precision has */

static const ups_colour truth_colour = {38, 38, 38}, outer = {222, 235, 247}, inner = {165, 200, 234};

static ups_colour forecast_colour(int forecast) {
    static const int line[UPS_FORECASTS] = {0, 7, 2};
    return ups_colour_line(line[forecast]);
}

/* Of the task's forecasts, the first so many are there: predictions of another model have no reconstruction. */
static int forecasts_of(const json_t *task) {
    const json_t *horizons = json_object_get(task, "horizons");
    for (size_t i = 0; i < json_array_size(horizons); i++)
        if (json_object_get(json_array_get(horizons, i), ups_forecast_names[UPS_FORECAST_RECONSTRUCTION]))
            return UPS_FORECASTS;
    return UPS_FORECAST_RECONSTRUCTION;
}

/* Numbers of a list, NaN where it has null; freed by the caller. NULL: no memory. */
static double *numbers(const json_t *list, size_t count) {
    double *values = malloc((count + 1) * sizeof *values);
    for (size_t i = 0; i < count && values; i++) {
        const json_t *value = json_array_get(list, i);
        values[i] = json_is_number(value) ? json_number_value(value) : NAN;
    }
    return values;
}

/* The lists that a chart is of, released together. */
enum { MOST_LISTS = 12 };
typedef struct lists {
    double *list[MOST_LISTS];
    int count;
    size_t length;
    bool failed;
} lists;

static const double *take(lists *all, const json_t *list) {
    double *values = all->count < MOST_LISTS ? numbers(list, all->length) : NULL;
    if (!values) {
        all->failed = true;
        return NULL;
    }
    return all->list[all->count++] = values;
}

static void release(lists *all, ups_html *html) {
    for (int i = 0; i < all->count; i++) free(all->list[i]);
    if (all->failed && !html->failure) html->failure = "no memory";
}

/* ---- the table -------------------------------------------------------------------------------------------------- */

static void write_cell(ups_html *html, const json_t *value) {
    ups_html_markup(html, "<td>");
    ups_html_number(html, 3, json_is_number(value) ? json_number_value(value) : NAN);
    ups_html_markup(html, "</td>");
}

static void write_ahead(ups_html *html, const json_t *horizon) {
    const long long steps = ups_fact_integer(horizon, "steps");
    if (json_is_true(json_object_get(horizon, "whole")))
        ups_html_markup(html, "whole rollout, %lld step%s", steps, steps == 1 ? "" : "s");
    else
        ups_html_markup(html, "after %lld step%s", steps, steps == 1 ? "" : "s");
}

static void write_horizon(ups_html *html, const json_t *horizon) {
    static const char *const columns[] = {"nrmse", "vrmse", "rmse", "crmse", "max", "brmse"};
    static const char *const bands[] = {"low", "middle", "high"};
    for (int f = 0; f < UPS_FORECASTS; f++) {
        const json_t *metrics = json_object_get(horizon, ups_forecast_names[f]);
        if (!metrics) continue;
        ups_html_markup(html, "<tr><th scope=\"row\">");
        write_ahead(html, horizon);
        ups_html_markup(html, "</th><td class=\"words\">%s</td>", ups_forecast_names[f]);
        for (size_t i = 0; i < sizeof columns / sizeof *columns; i++)
            write_cell(html, json_object_get(metrics, columns[i]));
        for (size_t i = 0; i < sizeof bands / sizeof *bands; i++)
            write_cell(html, json_object_get(json_object_get(metrics, "frmse"), bands[i]));
        ups_html_markup(html, "</tr>\n");
    }
}

static void write_table(ups_html *html, const json_t *task) {
    static const char *const columns[] = {"horizon", "forecast", "nRMSE",     "VRMSE",        "RMSE",      "cRMSE",
                                          "max",     "bRMSE",    "fRMSE low", "fRMSE middle", "fRMSE high"};
    ups_html_markup(
        html,
        "<div class=\"wide\" role=\"region\" tabindex=\"0\" aria-label=\"metrics\"><table><caption>"
        "Errors of fields in physical units, mean over the fields that change in time. "
        "<em>persistence</em> repeats the start%s.</caption><thead><tr>",
        forecasts_of(task) > UPS_FORECAST_RECONSTRUCTION ? "; <em>reconstruction</em> is the autoencoder alone" : "");
    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++)
        ups_html_markup(html, "<th scope=\"col\"%s>%s</th>", i == 1 ? " class=\"words\"" : "", columns[i]);
    ups_html_markup(html, "</tr></thead><tbody>\n");
    const json_t *horizons = json_object_get(task, "horizons");
    for (size_t i = 0; i < json_array_size(horizons); i++) write_horizon(html, json_array_get(horizons, i));
    ups_html_markup(html, "</tbody></table></div>\n");
}

static void write_field(ups_html *html, const json_t *task, const char *field) {
    const json_t *horizons = json_object_get(task, "horizons");
    for (int f = 0; f < forecasts_of(task); f++) {
        ups_html_markup(html, "<tr><th scope=\"row\">");
        ups_html_text(html, field);
        ups_html_markup(html, "</th><td class=\"words\">%s</td>", ups_forecast_names[f]);
        for (size_t i = 0; i < json_array_size(horizons); i++) {
            const json_t *fields = json_object_get(json_array_get(horizons, i), "fields");
            const json_t *metrics = json_object_get(json_object_get(fields, field), ups_forecast_names[f]);
            if (fields) write_cell(html, json_object_get(metrics, "nrmse"));
        }
        ups_html_markup(html, "</tr>\n");
    }
}

/* Where there are several fields, which their mean may hide. */
static void write_by_field(ups_html *html, const json_t *task) {
    const json_t *names = json_object_get(task, "solution_fields"), *horizons = json_object_get(task, "horizons");
    if (json_array_size(names) < 2) return;
    ups_html_markup(html, "<div class=\"wide\" role=\"region\" tabindex=\"0\" aria-label=\"nRMSE by field\"><table>"
                          "<caption>nRMSE of each field that changes in time, of which the errors above are "
                          "means.</caption><thead><tr><th scope=\"col\">field</th><th scope=\"col\" "
                          "class=\"words\">forecast</th>");
    for (size_t i = 0; i < json_array_size(horizons); i++) {
        const json_t *horizon = json_array_get(horizons, i);
        if (!json_object_get(horizon, "fields")) continue;
        ups_html_markup(html, "<th scope=\"col\">");
        write_ahead(html, horizon);
        ups_html_markup(html, "</th>");
    }
    ups_html_markup(html, "</tr></thead><tbody>\n");
    for (size_t i = 0; i < json_array_size(names); i++)
        write_field(html, task, json_string_value(json_array_get(names, i)));
    ups_html_markup(html, "</tbody></table></div>\n");
}

/* ---- the gates -------------------------------------------------------------------------------------------------- */

/* The worst trajectory, or why there is none. */
static void write_worst(ups_html *html, const json_t *result) {
    const json_t *worst = json_object_get(result, "worst"), *step = json_object_get(worst, "step");
    const char *reason = json_string_value(json_object_get(result, "reason")),
               *field = json_string_value(json_object_get(worst, "field"));
    if (reason) ups_html_text(html, reason);
    if (!worst) return;
    if (reason) ups_html_markup(html, ": ");
    ups_html_text(html, field ? field : "the velocity");
    ups_html_markup(html, " of ");
    ups_html_text(html, ups_fact_text(worst, "sample"));
    ups_html_markup(html, " in <code>");
    ups_html_text(html, ups_fact_text(worst, "file"));
    ups_html_markup(html, "</code>");
    if (json_is_integer(step)) ups_html_markup(html, ", step %lld", (long long)json_integer_value(step));
}

static void write_gates(ups_html *html, json_t *gates) {
    ups_html_markup(html, "<h3>Gates</h3>\n<div class=\"wide\" role=\"region\" tabindex=\"0\" aria-label=\"gates\">"
                          "<table><caption>Whether whole rollouts are physically admissible: of each gate the worst "
                          "value over all trajectories and fields, and its limit.</caption><thead><tr>"
                          "<th scope=\"col\">gate</th><th scope=\"col\">worst</th><th scope=\"col\">limit</th>"
                          "<th scope=\"col\" class=\"words\">result</th><th scope=\"col\" "
                          "class=\"words\">where</th></tr></thead><tbody>\n");
    const char *gate;
    json_t *result;
    json_object_foreach(gates, gate, result) {
        ups_html_markup(html, "<tr><th scope=\"row\">");
        ups_html_text(html, gate);
        ups_html_markup(html, "</th>");
        write_cell(html, json_object_get(result, "value"));
        write_cell(html, json_object_get(result, "limit"));
        const char *state = ups_fact_text(result, "state");
        ups_html_markup(html, "<td class=\"words\">");
        if (state) ups_html_text(html, state);
        ups_html_markup(html, "</td><td class=\"words\">");
        write_worst(html, result);
        ups_html_markup(html, "</td></tr>\n");
    }
    ups_html_markup(html, "</tbody></table></div>\n");
}

/* ---- over time -------------------------------------------------------------------------------------------------- */

/* What the charts of one task share. */
typedef struct task_charts {
    ups_html *html;
    const json_t *task, *over_time;
    const char *name; /* of the task */
    char time_label[UPS_AXIS_LABEL];
    size_t frames;
} task_charts;

static const json_t *whole_of(const json_t *task) {
    const json_t *horizons = json_object_get(task, "horizons");
    for (size_t i = 0; i < json_array_size(horizons); i++) {
        const json_t *horizon = json_array_get(horizons, i);
        if (json_is_true(json_object_get(horizon, "whole"))) return horizon;
    }
    return NULL;
}

/* A chart of WIDTH by HEIGHT over the time. */
static ups_line_chart over_time(const task_charts *s, lists *all, const char *y_label, const char *description) {
    return (ups_line_chart){.x_label = s->time_label,
                            .y_label = y_label,
                            .description = description,
                            .width = WIDTH,
                            .height = HEIGHT,
                            .mark = NAN,
                            .x = take(all, json_object_get(s->over_time, "time")),
                            .count = (int64_t)s->frames};
}

static void chart_error(const task_charts *s) {
    lists all = {.length = s->frames};
    char description[160];
    snprintf(description, sizeof description, "%.60s: nRMSE over time, with quantiles over trajectories", s->name);
    const json_t *means = json_object_get(whole_of(s->task), "nrmse_by_frame"),
                 *quantiles = json_object_get(s->over_time, "nrmse_quantiles");
    ups_line_chart chart = over_time(s, &all, "nRMSE", description);
    const ups_chart_range ranges[] = {{"5 to 95 %", take(&all, json_object_get(quantiles, "0.05")),
                                       take(&all, json_object_get(quantiles, "0.95")), outer},
                                      {"25 to 75 %", take(&all, json_object_get(quantiles, "0.25")),
                                       take(&all, json_object_get(quantiles, "0.75")), inner}};
    ups_chart_line lines[UPS_FORECASTS];
    const int count = forecasts_of(s->task);
    for (int f = 0; f < count; f++) { /* the model last, on top */
        const int forecast = count - 1 - f;
        lines[f] = (ups_chart_line){ups_forecast_names[forecast],
                                    take(&all, json_object_get(means, ups_forecast_names[forecast])),
                                    forecast_colour(forecast), forecast != UPS_FORECAST_MODEL};
    }
    chart.ranges = ranges;
    chart.range_count = 2;
    chart.lines = lines;
    chart.line_count = count;
    chart.high_y = 1e-30; /* with 0 */
    for (int f = 0; f < count && !all.failed; f++)
        chart.logarithmic_y = chart.logarithmic_y || ups_chart_spreads(lines[f].y, chart.count, LOGARITHMIC_FROM);
    if (!all.failed) ups_chart_lines(s->html, &chart);
    release(&all, s->html);
}

static void chart_correlation(const task_charts *s) {
    lists all = {.length = s->frames};
    char description[160];
    snprintf(description, sizeof description, "%.60s: correlation with the truth over time", s->name);
    ups_line_chart chart = over_time(s, &all, "correlation", description);
    const json_t *correlation = json_object_get(s->over_time, "correlation");
    ups_chart_line lines[UPS_FORECASTS];
    const int count = forecasts_of(s->task);
    for (int f = 0; f < count; f++) {
        const int forecast = count - 1 - f;
        lines[f] = (ups_chart_line){ups_forecast_names[forecast],
                                    take(&all, json_object_get(correlation, ups_forecast_names[forecast])),
                                    forecast_colour(forecast), forecast != UPS_FORECAST_MODEL};
    }
    chart.lines = lines;
    chart.line_count = count;
    chart.mark = ups_fact_real(json_object_get(s->over_time, "correlation_time"), "threshold");
    chart.low_y = 0;
    chart.high_y = 1;
    if (!all.failed) ups_chart_lines(s->html, &chart);
    release(&all, s->html);
}

static void chart_mean(const task_charts *s, const char *field, const json_t *change) {
    lists all = {.length = s->frames};
    char description[160], title[96];
    snprintf(description, sizeof description, "%.50s: change of the mean of %.50s over time", s->name, field);
    snprintf(title, sizeof title, "%.60s", field);
    ups_line_chart chart = over_time(s, &all, "change of the mean / RMS", description);
    const ups_chart_line lines[] = {
        {"truth", take(&all, json_object_get(change, "truth")), truth_colour, true},
        {"model", take(&all, json_object_get(change, "model")), forecast_colour(UPS_FORECAST_MODEL), false}};
    chart.title = title;
    chart.width = SMALL_WIDTH;
    chart.lines = lines;
    chart.line_count = 2;
    chart.high_y = 1e-30;
    if (!all.failed) ups_chart_lines(s->html, &chart);
    release(&all, s->html);
}

static void chart_spectrum(const task_charts *s, const json_t *spectrum, const char *field, const json_t *energies) {
    static const char *const names[] = {"reconstruction", "model", "truth"};
    const int absent = UPS_FORECASTS - forecasts_of(s->task);
    const size_t shells = json_array_size(json_object_get(energies, "truth"));
    if (shells < 2) return;
    lists all = {.length = shells};
    char description[192], title[128];
    const long long step = ups_fact_integer(spectrum, "step");
    snprintf(description, sizeof description, "%.50s: energy of %.50s by wave number at step %lld", s->name, field,
             step);
    snprintf(title, sizeof title, "%.60s, step %lld", field, step);
    double *waves = malloc(shells * sizeof *waves);
    ups_chart_line lines[3];
    for (int i = absent; i < 3; i++) {
        const double *values = take(&all, json_object_get(energies, names[i]));
        lines[i] = (ups_chart_line){names[i], values ? values + 1 : NULL,
                                    i == 2   ? truth_colour
                                    : i == 1 ? forecast_colour(UPS_FORECAST_MODEL)
                                             : forecast_colour(UPS_FORECAST_RECONSTRUCTION),
                                    i != 1};
    }
    for (size_t k = 1; k < shells && waves; k++) waves[k - 1] = (double)k;
    const ups_line_chart chart = {.x_label = "wave number k",
                                  .y_label = "energy",
                                  .title = title,
                                  .description = description,
                                  .width = SMALL_WIDTH,
                                  .height = SMALL_HEIGHT,
                                  .logarithmic_x = true,
                                  .logarithmic_y = true,
                                  .decades = SPECTRUM_DECADES,
                                  .mark = NAN,
                                  .x = waves,
                                  .count = (int64_t)shells - 1,
                                  .lines = lines + absent,
                                  .line_count = 3 - absent};
    all.failed = all.failed || !waves;
    if (!all.failed) ups_chart_lines(s->html, &chart);
    free(waves);
    release(&all, s->html);
}

static void write_lost(ups_html *html, const json_t *found, double threshold) {
    const json_t *steps = json_object_get(found, "steps");
    if (!json_is_number(steps)) {
        ups_html_markup(html, "never falls below %g", threshold);
        return;
    }
    ups_html_markup(html, "falls below %g at step %g (time ", threshold, json_number_value(steps));
    ups_html_number(html, 4, ups_fact_real(found, "time"));
    ups_html_markup(html, ")");
}

static void write_over_time(const task_charts *s) {
    ups_html *html = s->html;
    ups_html_markup(html,
                    "<h3>Error over time</h3>\n<p>Lines are means, bands quantiles over trajectories; time counts "
                    "from the last given frame.</p>\n<div class=\"wide\">");
    chart_error(s);
    const json_t *lost = json_object_get(s->over_time, "correlation_time");
    const double threshold = ups_fact_real(lost, "threshold");
    ups_html_markup(html, "</div>\n<h3>Correlation with the truth</h3>\n<p>Over space, mean over trajectories. The "
                          "model's ");
    write_lost(html, json_object_get(lost, "model"), threshold);
    ups_html_markup(html, ", that of persistence ");
    write_lost(html, json_object_get(lost, "persistence"), threshold);
    ups_html_markup(html, ". %lld of %lld trajectories stay above to the end.</p>\n<div class=\"wide\">",
                    ups_fact_integer(lost, "never"), ups_fact_integer(s->task, "trajectories"));
    chart_correlation(s);
    ups_html_markup(html, "</div>\n<h3>Means over space</h3>\n<p>Change since the last given frame as a share of the "
                          "field's root mean square, root mean square over trajectories. What the equation conserves "
                          "stays at 0 in the truth; what the model adds to it is drift.</p>\n<div class=\"row\">");
    const char *field;
    json_t *change;
    json_object_foreach(json_object_get(s->over_time, "mean_change"), field, change) {
        chart_mean(s, field, change);
    }
    ups_html_markup(html, "</div>\n");
}

static void write_spectra(const task_charts *s) {
    const json_t *spectra = json_object_get(s->over_time, "spectra");
    ups_html_markup(s->html, "<h3>Spectra</h3>\n<p>Energy by radial wave number, mean over trajectories.%s</p>\n",
                    forecasts_of(s->task) > UPS_FORECAST_RECONSTRUCTION
                        ? " Where the reconstruction leaves the truth, the autoencoder is what limits the model."
                        : "");
    const char *field;
    json_t *unused;
    json_object_foreach(json_object_get(json_array_get(spectra, 0), "fields"), field, unused) {
        ups_html_markup(s->html, "<div class=\"row\">");
        for (size_t i = 0; i < json_array_size(spectra); i++) {
            const json_t *spectrum = json_array_get(spectra, i);
            chart_spectrum(s, spectrum, field, json_object_get(json_object_get(spectrum, "fields"), field));
        }
        ups_html_markup(s->html, "</div>\n");
    }
}

static void write_trajectories(const task_charts *s) {
    const json_t *by_trajectory = json_object_get(s->task, "by_trajectory"),
                 *errors = json_object_get(by_trajectory, "nrmse");
    lists all = {.length = json_array_size(errors)};
    char description[160];
    snprintf(description, sizeof description, "%.60s: nRMSE of each trajectory's whole rollout", s->name);
    const double *values = take(&all, errors);
    ups_html_markup(s->html, "<h3>Trajectories</h3>\n<p>nRMSE of each one's whole rollout, in the order of the split; "
                             "those far from the others are named.</p>\n<div class=\"wide\">");
    if (!all.failed && all.length > 0)
        ups_chart_items(s->html, values, (int64_t)all.length, "trajectory", "nRMSE", description);
    ups_html_markup(s->html, "</div>\n");
    release(&all, s->html);
}

/* ---- the page --------------------------------------------------------------------------------------------------- */

static void write_names(ups_html *html, const json_t *list) {
    for (size_t i = 0; i < json_array_size(list); i++) {
        if (i) ups_html_markup(html, ", ");
        ups_html_text(html, json_string_value(json_array_get(list, i)));
    }
}

static void write_task(ups_html *html, const json_t *task, size_t index) {
    task_charts s = {.html = html, .task = task, .over_time = json_object_get(task, "over_time")};
    s.name = ups_fact_text(task, "task");
    s.frames = json_array_size(json_object_get(s.over_time, "time"));
    const long long trajectories = ups_fact_integer(task, "trajectories"), given = ups_fact_integer(task, "given");
    ups_axis_label(s.time_label, "time since the last given frame", ups_fact_text(s.over_time, "time_unit"));
    ups_html_markup(html, "<section><h2 id=\"t%zu\">", index);
    ups_html_text(html, s.name);
    ups_html_markup(html, "</h2>\n<p>");
    write_names(html, json_object_get(task, "solution_fields"));
    ups_html_markup(html, " on ");
    const json_t *grid = json_object_get(task, "grid");
    for (size_t a = 0; a < json_array_size(grid); a++)
        ups_html_markup(html, "%s%lld", a ? " × " : "", (long long)json_integer_value(json_array_get(grid, a)));
    ups_html_markup(html, " points; %lld %s trajector%s of %lld steps behind %lld given frame%s.</p>\n", trajectories,
                    ups_fact_text(task, "split"), trajectories == 1 ? "y" : "ies", ups_fact_integer(task, "steps"),
                    given, given == 1 ? "" : "s");
    write_table(html, task);
    write_by_field(html, task);
    if (json_object_get(task, "gates")) write_gates(html, json_object_get(task, "gates"));
    if (s.frames > 1) write_over_time(&s);
    if (s.frames > 0) {
        write_spectra(&s);
        write_trajectories(&s);
    } else {
        ups_html_markup(html, "<p class=\"note\">Nothing over time: no horizon of evaluation.horizons is 0, the whole "
                              "rollout.</p>\n");
    }
    ups_html_markup(html, "</section>\n");
}

/* What was evaluated: a model, or files of predictions. */
static void write_origin(ups_html *html, const json_t *document) {
    const json_t *predictions = json_object_get(document, "predictions");
    if (!predictions) {
        ups_html_markup(html, "<p>Operator <code>");
        ups_html_text(html, ups_fact_text(json_object_get(document, "operator"), "file"));
        ups_html_markup(html, "</code></p>\n");
    }
    for (size_t i = 0; i < json_array_size(predictions); i++) {
        const json_t *entry = json_array_get(predictions, i);
        ups_html_markup(html, "<p>Predictions of ");
        ups_html_text(html, ups_fact_text(entry, "task"));
        ups_html_markup(html, ": <code>");
        write_names(html, json_object_get(entry, "files"));
        ups_html_markup(html, "</code></p>\n");
    }
}

static void write_summary(ups_html *html, const json_t *document) {
    char text[64];
    const json_t *tasks = json_object_get(document, "tasks");
    long long trajectories = 0;
    for (size_t i = 0; i < json_array_size(tasks); i++)
        trajectories += ups_fact_integer(json_array_get(tasks, i), "trajectories");
    ups_html_markup(html, "<dl class=\"cards\">");
    snprintf(text, sizeof text, "%zu", json_array_size(tasks));
    ups_page_card(html, "tasks", text);
    snprintf(text, sizeof text, "%lld", trajectories);
    ups_page_card(html, "trajectories", text);
    snprintf(text, sizeof text, "%zu", json_array_size(json_object_get(document, "worse_than_persistence")));
    ups_page_card(html, "horizons worse than persistence", text);
    snprintf(text, sizeof text, "%zu", json_array_size(json_object_get(document, "failed_gates")));
    ups_page_card(html, "gates that fail", text);
    ups_html_markup(html, "</dl>\n");
    write_origin(html, document);
    if (json_array_size(tasks) < 2) return;
    ups_html_markup(html, "<p>");
    for (size_t i = 0; i < json_array_size(tasks); i++) {
        ups_html_markup(html, "%s<a href=\"#t%zu\">", i ? " · " : "", i);
        ups_html_text(html, ups_fact_text(json_array_get(tasks, i), "task"));
        ups_html_markup(html, "</a>");
    }
    ups_html_markup(html, "</p>\n");
}

void ups_evaluation_sections(ups_html *html, const json_t *document) {
    const json_t *tasks = json_object_get(document, "tasks");
    write_summary(html, document);
    for (size_t i = 0; i < json_array_size(tasks); i++) write_task(html, json_array_get(tasks, i), i);
}

ups_status ups_evaluation_report(const json_t *document, const char *subject, const char *path, ups_error *error) {
    ups_html html = {0};
    ups_page_begin(&html, "Evaluation", subject);
    ups_evaluation_sections(&html, document);
    ups_page_end(&html, "The numbers behind the charts are in evaluation.json; <code>ups eval --help</code> says what "
                        "they mean.");
    ups_status status = ups_html_publish(&html, path, error);
    ups_html_free(&html);
    return status;
}

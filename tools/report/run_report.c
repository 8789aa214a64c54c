#include "tools/report/run_report.h"

#include "base/log.h"
#include "tools/report/cache/facts.h"
#include "tools/report/evaluation_report.h"
#include "tools/report/line_chart.h"
#include "tools/report/page.h"
#include "train/run/summary.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WIDTH = 400, HEIGHT = 260 };
enum { MOST_LINES = 16, MOST_POINTS = 800 /* of a line: more cannot be told apart */ };
#define LOGARITHMIC_FROM 10.0 /* ratio of the largest to the smallest value from which on decades show more */

/* ---- curves ------------------------------------------------------------------------------------------------------ */

/* What lines of metrics.jsonl say of a stage under one key, by step: a number, or an object of numbers by name. */
typedef struct curves {
    double *x, *y[MOST_LINES];
    const char *name[MOST_LINES];
    int lines;
    int64_t count;
    bool failed;
} curves;

static bool is_of(const json_t *line, const char *stage, const char *key) {
    const char *own = json_string_value(json_object_get(line, "stage"));
    const json_t *value = json_object_get(line, key);
    return own && strcmp(own, stage) == 0 && (json_is_number(value) || json_is_object(value));
}

static int find_line(curves *c, const char *name) {
    int found = 0;
    while (found < c->lines && strcmp(c->name[found], name) != 0) found++;
    if (found == c->lines && c->lines < MOST_LINES) c->name[c->lines++] = name;
    return found;
}

/* Names first, so that a task that enters late has a line from its beginning on. */
static int64_t count_points(const json_t *metrics, const char *stage, const char *key, curves *c) {
    int64_t points = 0;
    size_t index;
    json_t *line, *unused;
    const char *name;
    json_array_foreach((json_t *)metrics, index, line) {
        if (!is_of(line, stage, key)) continue;
        points++;
        json_t *value = json_object_get(line, key);
        if (json_is_number(value)) find_line(c, key);
        json_object_foreach(value, name, unused) {
            find_line(c, name);
        }
    }
    return points;
}

static double number_of(const json_t *value, const char *name) {
    const json_t *number = json_is_object(value) ? json_object_get(value, name) : value;
    return json_is_number(number) ? json_number_value(number) : NAN;
}

/* Every n-th point of a long run, its last one among them. */
static curves find_curves(const json_t *metrics, const char *stage, const char *key, double unit) {
    curves c = {0};
    const int64_t points = count_points(metrics, stage, key, &c), each = (points + MOST_POINTS - 1) / MOST_POINTS;
    c.x = malloc((size_t)(MOST_POINTS + 1) * sizeof *c.x);
    c.failed = !c.x;
    for (int l = 0; l < c.lines; l++) {
        c.y[l] = malloc((size_t)(MOST_POINTS + 1) * sizeof *c.y[l]);
        c.failed = c.failed || !c.y[l];
    }
    size_t index;
    json_t *line;
    int64_t seen = 0;
    json_array_foreach((json_t *)metrics, index, line) {
        if (c.failed || !is_of(line, stage, key)) continue;
        if ((points - 1 - seen++) % each != 0) continue;
        c.x[c.count] = json_number_value(json_object_get(line, "step"));
        for (int l = 0; l < c.lines; l++) c.y[l][c.count] = number_of(json_object_get(line, key), c.name[l]) / unit;
        c.count++;
    }
    return c;
}

static void release(curves *c, ups_html *html) {
    for (int l = 0; l < c->lines; l++) free(c->y[l]);
    free(c->x);
    if (c->failed && !html->failure) html->failure = "no memory";
}

typedef struct chart_of {
    const char *key, *y_label, *title;
    bool from_zero;
    double unit; /* in which values are shown */
} chart_of;

/* Draws a chart, or nothing where the metrics have fewer than two points of it. Whether it did. */
static bool draw(ups_html *html, const json_t *metrics, const char *stage, const chart_of *wanted) {
    curves c = find_curves(metrics, stage, wanted->key, wanted->unit);
    const bool drawn = c.count > 1 && !c.failed;
    char description[200];
    snprintf(description, sizeof description, "%.60s: %.100s by step", stage, wanted->y_label);
    ups_chart_line lines[MOST_LINES];
    ups_line_chart chart = {.x_label = "step",
                            .y_label = wanted->y_label,
                            .title = wanted->title,
                            .description = description,
                            .width = WIDTH,
                            .height = HEIGHT,
                            .mark = NAN,
                            .x = c.x,
                            .count = c.count,
                            .lines = lines,
                            .line_count = c.lines};
    if (wanted->from_zero) chart.high_y = 1e-30;
    for (int l = 0; l < c.lines && drawn; l++) { /* the first one on top */
        lines[c.lines - 1 - l] = (ups_chart_line){.name = c.name[l], .y = c.y[l], .colour = ups_colour_line(l)};
        chart.logarithmic_y =
            !wanted->from_zero && (chart.logarithmic_y || ups_chart_spreads(c.y[l], c.count, LOGARITHMIC_FROM));
    }
    if (drawn) ups_chart_lines(html, &chart);
    release(&c, html);
    return drawn;
}

/* ---- a stage ----------------------------------------------------------------------------------------------------- */

/* The last line of a stage that has a key; NULL: none. */
static const json_t *last_line(const json_t *metrics, const char *stage, const char *key) {
    for (size_t i = json_array_size(metrics); i-- > 0;) {
        const json_t *line = json_array_get(metrics, i);
        const char *own = json_string_value(json_object_get(line, "stage"));
        if (own && strcmp(own, stage) == 0 && json_object_get(line, key)) return line;
    }
    return NULL;
}

static void card(ups_html *html, const char *name, const char *format, double value) {
    char text[40];
    snprintf(text, sizeof text, format, value);
    ups_page_card(html, name, text);
}

/* A card of a number that the stage's summary has. */
static void number_card(ups_html *html, const json_t *summary, const char *key, const char *name, const char *format,
                        double unit) {
    const json_t *number = json_object_get(summary, key);
    if (json_is_number(number)) card(html, name, format, json_number_value(number) / unit);
}

static void write_cards(ups_html *html, const json_t *metrics, const char *stage) {
    json_t *summary = ups_stage_summary(metrics, stage);
    const char *precision = ups_fact_text(summary, "precision");
    ups_html_markup(html, "<dl class=\"cards\">");
    number_card(html, summary, "steps", "steps", "%.0f", 1);
    number_card(html, summary, "parameters", "parameters, millions", "%.3g", 1e6);
    number_card(html, summary, "batch_size", "windows a micro-batch", "%.0f", 1);
    if (precision) ups_page_card(html, "precision", precision);
    number_card(html, summary, "training_s", "training, s", "%.4g", 1);
    number_card(html, summary, "samples_per_s", "windows a second",
                ups_fact_real(summary, "samples_per_s") < 100 ? "%.3g" : "%.0f", 1);
    number_card(html, summary, "mfu", "MFU, %", "%.1f", 0.01);
    number_card(html, summary, "data_wait_share", "waiting for data, %", "%.1f", 0.01);
    number_card(html, summary, "best", "best validation", "%.4g", 1);
    number_card(html, summary, "best_step", "of step", "%.0f", 1);
    ups_html_markup(html, "</dl>\n");
    json_decref(summary);
}

/* The last losses, a row a task. */
static void write_losses(ups_html *html, const json_t *metrics, const char *stage) {
    const json_t *trained = last_line(metrics, stage, "task_loss"),
                 *validated = last_line(metrics, stage, "validation");
    const json_t *training = json_object_get(trained, "task_loss"),
                 *validation = json_object_get(validated, "validation");
    const char *name;
    json_t *unused;
    if (json_object_size(validation) == 0) return;
    ups_html_markup(html,
                    "<div class=\"wide\" role=\"region\" tabindex=\"0\" aria-label=\"losses\"><table><caption>Losses "
                    "at the end: of the last steps that were logged, and of the last validation."
                    "</caption><thead><tr><th scope=\"col\">task</th><th scope=\"col\">training</th>"
                    "<th scope=\"col\">validation</th></tr></thead><tbody>\n");
    json_object_foreach((json_t *)validation, name, unused) {
        ups_html_markup(html, "<tr><th scope=\"row\">");
        ups_html_text(html, name);
        ups_html_markup(html, "</th><td>");
        ups_html_number(html, 4, number_of(training, name));
        ups_html_markup(html, "</td><td>");
        ups_html_number(html, 4, number_of(validation, name));
        ups_html_markup(html, "</td></tr>\n");
    }
    ups_html_markup(html, "</tbody></table></div>\n");
}

static void write_stage(ups_html *html, const json_t *metrics, const char *stage) {
    static const chart_of charts[] = {{"task_loss", "loss", "Training", false, 1},
                                      {"validation", "loss", "Validation", false, 1},
                                      {"losses", "loss, without weights", "Losses by name", false, 1},
                                      {"learning_rate", "learning rate", "Learning rate", true, 1},
                                      {"gradient_norm", "norm", "Gradient", false, 1},
                                      {"samples_per_s", "windows a second", "Throughput", true, 1},
                                      {"flops_per_s", "GFLOP/s", "Arithmetic", true, 1e9},
                                      {"mfu", "MFU, %", "Share of the card's peak", true, 0.01},
                                      {"memory", "MB", "Memory", true, 1e6}};
    ups_html_markup(html, "<section><h2>Training: ");
    ups_html_text(html, stage);
    ups_html_markup(html, "</h2>\n");
    write_cards(html, metrics, stage);
    write_losses(html, metrics, stage);
    bool any = false;
    ups_html_markup(html, "<div class=\"row chart\">");
    for (size_t i = 0; i < sizeof charts / sizeof *charts; i++) any = draw(html, metrics, stage, &charts[i]) || any;
    ups_html_markup(html, "</div>\n");
    if (!any)
        ups_html_markup(html, "<p class=\"note\">Nothing over steps: fewer than two of them were logged (log_every, "
                              "validate_every).</p>\n");
    ups_html_markup(html, "</section>\n");
}

/* In the order in which they began. */
static void write_stages(ups_html *html, const json_t *metrics) {
    enum { MOST_STAGES = 16 };
    const char *written[MOST_STAGES] = {NULL};
    int count = 0;
    size_t index;
    json_t *line;
    json_array_foreach((json_t *)metrics, index, line) {
        const char *stage = json_string_value(json_object_get(line, "stage"));
        bool known = !stage || count == MOST_STAGES;
        for (int i = 0; i < count && !known; i++) known = strcmp(written[i], stage) == 0;
        if (known) continue;
        written[count++] = stage;
        write_stage(html, metrics, stage);
    }
    if (count == 0) ups_html_markup(html, "<p class=\"note\">No stage of this run has begun to train.</p>\n");
}

/* ---- the page --------------------------------------------------------------------------------------------------- */

static void write_evaluation(ups_html *html, const ups_run_facts *facts) {
    ups_html_markup(html, "<section><h2 id=\"evaluation\">Evaluation</h2>\n");
    if (facts->evaluation) {
        ups_evaluation_sections(html, facts->evaluation);
    } else {
        ups_html_markup(html, "<p class=\"note\">");
        ups_html_text(html, facts->unevaluated);
        ups_html_markup(html, "</p>");
    }
    ups_html_markup(html, "</section>\n");
}

static void write_links(ups_html *html, const ups_run_facts *facts) {
    ups_html_markup(html, "<p><a href=\"#training\">Training</a> · <a href=\"#evaluation\">Evaluation</a> · ");
    if (facts->show_fields) ups_html_markup(html, "<a href=\"#fields\">Fields</a> · ");
    ups_html_markup(html, "<a href=\"#configuration\">Configuration</a></p>\n");
}

static ups_status write_fields(ups_html *html, const ups_run_facts *facts, ups_error *error) {
    if (!facts->show_fields) return UPS_OK;
    ups_html_markup(html,
                    "<section><h2 id=\"fields\">Fields</h2>\n<p>The first held-out trajectory of each task, rolled "
                    "out from its given frames.</p>\n");
    ups_error failure;
    const ups_status status = facts->show_fields(facts->context, html, &failure);
    if (status != UPS_OK) { /* the rest of the page is worth having */
        if (status == UPS_ERR_CANCELLED) return ups_fail(error, status, "%s", failure.message);
        ups_log(UPS_LOG_WARNING, "the page lacks fields: %s", failure.message);
        ups_html_markup(html, "<p class=\"note\">");
        ups_html_text(html, failure.message);
        ups_html_markup(html, "</p>\n");
    }
    ups_html_markup(html, "</section>\n");
    return UPS_OK;
}

static void write_configuration(ups_html *html, const ups_run_facts *facts) {
    ups_html_markup(html,
                    "<section><h2 id=\"configuration\">Configuration</h2>\n<details><summary>config.yaml</summary>"
                    "<pre>");
    ups_html_text(html, facts->configuration);
    ups_html_markup(html, "</pre></details></section>\n");
}

ups_status ups_run_report(const ups_run_facts *facts, const char *path, ups_error *error) {
    ups_html html = {0};
    ups_page_begin(&html, "Run", facts->run);
    write_links(&html, facts);
    ups_html_markup(&html, "<div id=\"training\">");
    write_stages(&html, facts->metrics);
    ups_html_markup(&html, "</div>\n");
    write_evaluation(&html, facts);
    ups_status status = write_fields(&html, facts, error);
    write_configuration(&html, facts);
    ups_page_end(&html, "The numbers behind the charts are in the run's metrics.jsonl and evaluation.json.");
    if (status == UPS_OK) status = ups_html_publish(&html, path, error);
    ups_html_free(&html);
    return status;
}

#include "tools/report/cache/report.h"

#include "tools/report/cache/facts.h"
#include "tools/report/cache/group.h"
#include "tools/report/page.h"
#include <stdio.h>

enum { MAXIMUM_SECTIONS = 40 };

static void write_summary(ups_html *html, const json_t *facts) {
    long long samples = 0, skipped = 0, raw = 0, stored = 0, broken = 0, unfinished = 0;
    for (size_t i = 0; i < json_array_size(facts); i++) {
        const json_t *group = json_array_get(facts, i);
        if (json_object_get(group, "error")) {
            broken++;
            continue;
        }
        samples += ups_fact_integer(group, "present");
        skipped += ups_fact_integer(group, "skipped_count");
        raw += ups_fact_integer(group, "raw_bytes");
        stored += ups_fact_integer(group, "stored_bytes");
        unfinished += !json_is_true(json_object_get(group, "complete"));
    }
    char text[64], size[24];
    ups_html_markup(html, "<dl class=\"cards\">");
    snprintf(text, sizeof text, "%zu", json_array_size(facts));
    ups_page_card(html, "tasks and splits", text);
    snprintf(text, sizeof text, "%lld", samples);
    ups_page_card(html, "trajectories", text);
    ups_page_card(html, "stored", ups_size_text((uint64_t)stored, size));
    ups_page_card(html, "as plain FP16", ups_size_text((uint64_t)raw, size));
    snprintf(text, sizeof text, stored > 0 ? "%.2f" : "–", stored > 0 ? (double)raw / (double)stored : 0.0);
    ups_page_card(html, "ratio", text);
    snprintf(text, sizeof text, "%lld", skipped);
    ups_page_card(html, "skipped", text);
    snprintf(text, sizeof text,
             broken       ? "%lld broken"
             : unfinished ? "%lld unfinished"
                          : "complete",
             broken ? broken : unfinished);
    ups_page_card(html, "state", text);
    ups_html_markup(html, "</dl>\n");
}

static void write_orders(ups_html *html, const json_t *facts) {
    const json_t *orders = json_object_get(json_object_get(facts, "codec"), "orders");
    long long looked = ups_fact_integer(orders, "looked_at"), written = 0;
    for (size_t o = 0; o < 3 && looked > 0; o++) {
        long long count = json_integer_value(json_array_get(json_object_get(orders, "counts"), o));
        if (count > 0)
            ups_html_markup(html, "%s%zu: %.0f %%", written++ ? ", " : "", o, 100.0 * (double)count / (double)looked);
    }
    if (written == 0) ups_html_markup(html, "–");
}

static void write_row(ups_html *html, const json_t *facts, size_t index) {
    ups_html_markup(html, "<tr><th scope=\"row\"><a href=\"#g%zu\">", index);
    if (json_object_get(facts, "error")) {
        ups_html_text(html, ups_fact_text(facts, "directory"));
        ups_html_markup(html, "</a></th><td colspan=\"9\" class=\"words warn\">broken</td></tr>\n");
        return;
    }
    const json_t *shape = json_object_get(facts, "shape"), *range = json_object_get(facts, "range");
    char size[24];
    double share = ups_fact_decoded_share(facts);
    ups_html_textf(html, "%s / %s", ups_fact_text(facts, "task"), ups_fact_text(facts, "split"));
    ups_html_markup(html, "</a></th><td>%lld</td><td>%lld × %lld × %lld</td><td>", ups_fact_integer(facts, "present"),
                    ups_fact_integer(shape, "times"), ups_fact_integer(shape, "tokens"),
                    ups_fact_integer(shape, "dim"));
    ups_html_text(html, ups_size_text((uint64_t)ups_fact_integer(facts, "stored_bytes"), size));
    ups_html_markup(html, "</td><td>");
    ups_html_number(html, 3, ups_fact_real(facts, "ratio"));
    ups_html_markup(html, "</td><td>");
    write_orders(html, facts);
    ups_html_markup(html, "</td><td>");
    if (json_is_number(json_array_get(range, 0))) {
        ups_html_number(html, 3, json_number_value(json_array_get(range, 0)));
        ups_html_markup(html, " to ");
        ups_html_number(html, 3, json_number_value(json_array_get(range, 1)));
    } else {
        ups_html_markup(html, "–");
    }
    ups_html_markup(html, "</td><td>");
    ups_html_number(html, 2, ups_fact_real(json_object_get(facts, "fp16_rounding_error"), "rms"));
    ups_html_markup(html, "</td><td>");
    if (share >= 0)
        ups_html_number(html, 2, share);
    else
        ups_html_markup(html, "–");
    bool complete = json_is_true(json_object_get(facts, "complete"));
    ups_html_markup(html, "</td><td%s>%s</td></tr>\n", complete ? "" : " class=\"warn\"",
                    complete ? "complete" : "not complete");
}

static void write_table(ups_html *html, const json_t *facts) {
    static const char *const columns[] = {
        "task / split", "samples",         "time × token × channel", "stored", "ratio", "prediction order",
        "values",       "FP16 error, rms", "in decoded fields",      "state"};
    ups_html_markup(html,
                    "<div class=\"wide\" role=\"region\" tabindex=\"0\" aria-label=\"groups of the cache\"><table>"
                    "<caption>Every task and split. The FP16 error is that of the latents; <em>in decoded "
                    "fields</em> it is the largest share of a field's standard deviation.</caption><thead><tr>");
    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++) {
        ups_html_markup(html, "<th scope=\"col\">%s</th>", columns[i]);
    }
    ups_html_markup(html, "</tr></thead><tbody>\n");
    for (size_t i = 0; i < json_array_size(facts); i++) write_row(html, json_array_get(facts, i), i);
    ups_html_markup(html, "</tbody></table></div>\n");
}

ups_status ups_cache_report(const ups_report_request *request, ups_error *error) {
    ups_html html = {0};
    const json_t *facts = request->facts;
    size_t groups = json_array_size(facts), sections = groups < MAXIMUM_SECTIONS ? groups : MAXIMUM_SECTIONS;
    ups_page_begin(&html, "Latent cache", request->directory);
    write_summary(&html, facts);
    write_table(&html, facts);
    ups_status status = UPS_OK;
    for (size_t i = 0; i < sections && status == UPS_OK; i++) {
        char id[24];
        snprintf(id, sizeof id, "g%zu", i);
        status = ups_report_group(&html, id, json_array_get(facts, i), request->reconstructor, error);
    }
    if (sections < groups) {
        ups_html_markup(&html,
                        "<p class=\"note\">Details are of the first %zu of %zu groups; inspect a task alone to see "
                        "the others.</p>\n",
                        sections, groups);
    }
    ups_page_end(&html, "Statistics are measured on some trajectories of each group, spread evenly; the text says how "
                        "many. <code>ups cache verify</code> reads every byte.");
    if (status == UPS_OK) status = ups_html_publish(&html, request->path, error);
    ups_html_free(&html);
    return status;
}

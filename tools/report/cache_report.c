#include "tools/report/cache_report.h"

#include "tools/report/cache_facts.h"
#include "tools/report/cache_report_group.h"
#include "tools/report/html.h"
#include <stdio.h>
#include <time.h>

enum { MAXIMUM_SECTIONS = 40 };

static const char style[] =
    ":root{color-scheme:light dark;--paper:#fff;--ink:#1c232d;--soft:#566272;--rule:#d8dee6;--card:#f4f6f9;"
    "--accent:#1f62aa;--band:#a9cbec;--light:#dfebf7;--warn:#a83a08}\n"
    "@media (prefers-color-scheme:dark){:root{--paper:#12161c;--ink:#e5e9ef;--soft:#9ba8b9;--rule:#303a47;"
    "--card:#1b2129;--accent:#86bdf3;--band:#33587f;--light:#20344a;--warn:#ffa26b}}\n"
    "*{box-sizing:border-box}\n"
    "body{margin:0 auto;max-width:70rem;padding:1.2rem 1rem 3rem;background:var(--paper);color:var(--ink);"
    "font:16px/1.5 system-ui,-apple-system,'Segoe UI',Roboto,sans-serif}\n"
    "h1{font-size:1.6rem;line-height:1.25;margin:.3rem 0}h2{font-size:1.3rem;margin:2.6rem 0 .2rem;padding-top:.8rem;"
    "border-top:2px solid var(--rule)}h3{font-size:1.08rem;margin:1.8rem 0 .3rem}h4{font-size:1rem;margin:1.2rem 0 "
    ".2rem}\n"
    "p{margin:.35rem 0 .7rem}a{color:var(--accent)}code,pre{font-family:ui-monospace,Menlo,Consolas,monospace;"
    "font-size:.88em;overflow-wrap:anywhere}pre{background:var(--card);padding:.7rem;border-radius:.4rem;overflow:auto}"
    "\n"
    ".note{color:var(--soft);font-size:.92rem}.warn{color:var(--warn)}\n"
    ".cards{display:grid;grid-template-columns:repeat(auto-fit,minmax(7.5rem,1fr));gap:.7rem;margin:1rem 0;padding:0}\n"
    ".cards div{background:var(--card);border-radius:.5rem;padding:.6rem .8rem}.cards dt{color:var(--soft);"
    "font-size:.85rem}.cards dd{margin:0;font-size:1.2rem;font-variant-numeric:tabular-nums}\n"
    ".wide{overflow-x:auto;margin:.6rem 0}.wide:focus-visible{outline:2px solid var(--accent)}\n"
    "table{border-collapse:collapse;width:100%;font-size:.9rem;font-variant-numeric:tabular-nums}"
    "caption{max-width:calc(100vw - 2.5rem);text-align:left;color:var(--soft);padding-bottom:.3rem}\n"
    "th,td{padding:.32rem .45rem;text-align:right;border-bottom:1px solid var(--rule);white-space:nowrap}"
    "th[scope=row],th:first-child,.words{text-align:left}td.words{white-space:normal;min-width:16rem}"
    "thead th{color:var(--soft);font-weight:600;white-space:normal;vertical-align:bottom}tbody th{font-weight:500}\n"
    "svg{display:block;width:100%;min-width:34rem;height:auto;background:#fff;border-radius:.4rem;"
    "image-rendering:pixelated}.picture svg{min-width:48rem}\n"
    "@media (prefers-color-scheme:dark){.chart svg{filter:invert(.92) hue-rotate(180deg)}}\n"
    "details{margin:.5rem 0}summary{cursor:pointer}footer{margin-top:3rem;color:var(--soft);font-size:.88rem}\n"
    "@media print{.wide{overflow:visible}body{max-width:none}}\n";

static void write_card(ups_html *html, const char *name, const char *value) {
    ups_html_markup(html, "<div><dt>%s</dt><dd>", name);
    ups_html_text(html, value);
    ups_html_markup(html, "</dd></div>");
}

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
    write_card(html, "tasks and splits", text);
    snprintf(text, sizeof text, "%lld", samples);
    write_card(html, "trajectories", text);
    write_card(html, "stored", ups_size_text((uint64_t)stored, size));
    write_card(html, "as plain FP16", ups_size_text((uint64_t)raw, size));
    snprintf(text, sizeof text, stored > 0 ? "%.2f" : "–", stored > 0 ? (double)raw / (double)stored : 0.0);
    write_card(html, "ratio", text);
    snprintf(text, sizeof text, "%lld", skipped);
    write_card(html, "skipped", text);
    snprintf(text, sizeof text,
             broken       ? "%lld broken"
             : unfinished ? "%lld unfinished"
                          : "complete",
             broken ? broken : unfinished);
    write_card(html, "state", text);
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

static void write_head(ups_html *html, const ups_report_request *request) {
    char date[40];
    time_t now = time(NULL);
    struct tm utc;
    gmtime_r(&now, &utc);
    strftime(date, sizeof date, "%Y-%m-%d %H:%M UTC", &utc);
    ups_html_markup(html, "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
                          "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">"
                          "<meta name=\"color-scheme\" content=\"light dark\"><title>Latent cache ");
    ups_html_text(html, request->directory);
    ups_html_markup(html, "</title><style>\n");
    ups_html_markup(html, "%s", style);
    ups_html_markup(html, "</style></head>\n<body><header><h1>Latent cache</h1><p><code>");
    ups_html_text(html, request->directory);
    ups_html_markup(html, "</code></p><p class=\"note\">As it was on %s; ups " UPS_VERSION ".</p></header>\n<main>\n",
                    date);
}

ups_status ups_cache_report(const ups_report_request *request, ups_error *error) {
    ups_html html = {0};
    const json_t *facts = request->facts;
    size_t groups = json_array_size(facts), sections = groups < MAXIMUM_SECTIONS ? groups : MAXIMUM_SECTIONS;
    write_head(&html, request);
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
    ups_html_markup(&html,
                    "</main>\n<footer>Statistics are measured on some trajectories of each group, spread evenly; the "
                    "text says how many. <code>ups cache verify</code> reads every byte.</footer></body></html>\n");
    if (status == UPS_OK) status = ups_html_publish(&html, request->path, error);
    ups_html_free(&html);
    return status;
}

#include "tools/report/page.h"

#include <time.h>

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
    "caption{max-width:min(calc(100vw - 2.5rem),68rem);text-align:left;color:var(--soft);padding-bottom:.3rem}\n"
    "th,td{padding:.32rem .45rem;text-align:right;border-bottom:1px solid var(--rule);white-space:nowrap}"
    "th[scope=row],th:first-child,.words{text-align:left}td.words{white-space:normal}td.words:last-child{min-width:"
    "16rem}"
    "thead th{color:var(--soft);font-weight:600;white-space:normal;vertical-align:bottom}tbody th{font-weight:500}\n"
    "svg{display:block;width:100%;min-width:34rem;height:auto;background:#fff;border-radius:.4rem;"
    "image-rendering:pixelated}.picture svg{min-width:48rem}\n"
    "@media (prefers-color-scheme:dark){.chart svg{filter:invert(.92) hue-rotate(180deg)}}\n"
    ".row{display:grid;grid-template-columns:repeat(auto-fit,minmax(19rem,1fr));gap:.7rem}.row svg{min-width:0}\n"
    "details{margin:.5rem 0}summary{cursor:pointer}footer{margin-top:3rem;color:var(--soft);font-size:.88rem}\n"
    "@media print{.wide{overflow:visible}body{max-width:none}}\n";

void ups_page_card(ups_html *html, const char *name, const char *value) {
    ups_html_markup(html, "<div><dt>%s</dt><dd>", name);
    ups_html_text(html, value);
    ups_html_markup(html, "</dd></div>");
}

void ups_page_begin(ups_html *html, const char *kind, const char *subject) {
    char date[40];
    time_t now = time(NULL);
    struct tm utc;
    gmtime_r(&now, &utc);
    strftime(date, sizeof date, "%Y-%m-%d %H:%M UTC", &utc);
    ups_html_markup(html,
                    UPS_PAGE_BEGINNING UPS_VERSION
                    "\">"
                    "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">"
                    "<meta name=\"color-scheme\" content=\"light dark\"><title>%s ",
                    kind);
    ups_html_text(html, subject);
    ups_html_markup(html, "</title><style>\n");
    ups_html_markup(html, "%s", style);
    ups_html_markup(html, "</style></head>\n<body><header><h1>%s</h1><p><code>", kind);
    ups_html_text(html, subject);
    ups_html_markup(html, "</code></p><p class=\"note\">As it was on %s; ups " UPS_VERSION ".</p></header>\n<main>\n",
                    date);
}

void ups_page_end(ups_html *html, const char *footer) {
    ups_html_markup(html, "</main>\n<footer>%s</footer></body></html>\n", footer);
}

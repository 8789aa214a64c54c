/* A page while it is written: text that is always escaped, markup that never is, figures as inline SVG. Nothing on the
 * page asks for anything outside it. The first failure is remembered and told at the end, so that writing needs no
 * checks. */
#ifndef UPS_TOOLS_REPORT_HTML_H
#define UPS_TOOLS_REPORT_HTML_H

#include "base/error.h"
#include <stddef.h>

typedef struct ups_html {
    char *text;
    size_t length, capacity;
    const char *failure; /* what went wrong, as static text; nothing is added any more */
    int figures;         /* on the page so far */
} ups_html;              /* begins as {0} */

/* Markup as it is; numbers may be formatted in. Never hand it text that came from a file. */
void ups_html_markup(ups_html *html, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Text: & < > " ' are escaped, so it may stand in an element or in a quoted attribute. Bytes that are no UTF-8, and
 * control characters, become U+FFFD. */
void ups_html_text(ups_html *html, const char *text);
void ups_html_textf(ups_html *html, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* "%.*g" of a finite number, else an en dash. */
void ups_html_number(ups_html *html, int digits, double value);
/* A whole SVG document as cairo writes it, inlined: its names are made the page's own, where those of two figures would
 * be taken for each other. `class` is that of the <svg> (page.c has the style), `description` its text for
 * those who cannot see it. */
void ups_html_svg(ups_html *html, const char *svg, const char *class, const char *description);

/* Publishes the page at `path`. UPS_ERR_MEMORY when writing it failed. */
ups_status ups_html_publish(const ups_html *html, const char *path, ups_error *error);
void ups_html_free(ups_html *html);

#endif

/* What all pages share: head, style, the boxes of figures at the top, and the end. */
#ifndef UPS_TOOLS_REPORT_PAGE_H
#define UPS_TOOLS_REPORT_PAGE_H

#include "tools/report/html.h"

/* Every page begins with it; the version follows. */
#define UPS_PAGE_BEGINNING                                                                                             \
    "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"generator\" content=\"UPS "

/* Up to the beginning of <main>. `kind` is the heading, markup of the caller's own ("Latent cache"); `subject` is text:
 * what the page is of. */
void ups_page_begin(ups_html *html, const char *kind, const char *subject);
void ups_page_end(ups_html *html, const char *footer); /* `footer` is markup of the caller's own */

/* One box within a <dl class="cards">: `name` is markup of the caller's own, `value` is text. */
void ups_page_card(ups_html *html, const char *name, const char *value);

#endif

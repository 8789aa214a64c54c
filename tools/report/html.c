#include "tools/report/html.h"

#include "base/files.h"
#include "base/printable.h"
#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Room for `more` bytes and a NUL. */
static int reserve(ups_html *html, size_t more) {
    if (html->failure) return 0;
    if (html->length + more < html->capacity) return 1;
    size_t capacity = 2 * (html->length + more) + 4096;
    char *larger = realloc(html->text, capacity);
    if (!larger) {
        html->failure = "no memory";
        return 0;
    }
    html->text = larger;
    html->capacity = capacity;
    return 1;
}

static void append(ups_html *html, const char *bytes, size_t length) {
    if (!reserve(html, length)) return;
    memcpy(html->text + html->length, bytes, length);
    html->length += length;
    html->text[html->length] = '\0';
}

void ups_html_markup(ups_html *html, const char *format, ...) {
    va_list list, again;
    va_start(list, format);
    va_copy(again, list);
    int length = vsnprintf(NULL, 0, format, list);
    if (length > 0 && reserve(html, (size_t)length)) {
        vsnprintf(html->text + html->length, (size_t)length + 1, format, again);
        html->length += (size_t)length;
    }
    va_end(again);
    va_end(list);
}

static void append_character(ups_html *html, const char *text, size_t length) {
    if (length != 1) {
        append(html, text, length);
        return;
    }
    switch (*text) {
    case '&':
        append(html, "&amp;", 5);
        break;
    case '<':
        append(html, "&lt;", 4);
        break;
    case '>':
        append(html, "&gt;", 4);
        break;
    case '"':
        append(html, "&quot;", 6);
        break;
    case '\'':
        append(html, "&#39;", 5);
        break;
    default:
        if ((unsigned char)*text >= 0x20 && *text != 0x7f)
            append(html, text, 1);
        else if (*text == '\n' || *text == '\t')
            append(html, text, 1);
        else
            append(html, "\xef\xbf\xbd", 3);
    }
}

void ups_html_text(ups_html *html, const char *text) {
    const char *end = text ? text + strlen(text) : NULL;
    while (text < end) {
        const int length = ups_utf8_length(text, (size_t)(end - text));
        if (length <= 0) {
            append(html, "\xef\xbf\xbd", 3);
            text++;
            continue;
        }
        append_character(html, text, (size_t)length);
        text += length;
    }
}

void ups_html_textf(ups_html *html, const char *format, ...) {
    char *text = NULL;
    va_list list;
    va_start(list, format);
    if (vasprintf(&text, format, list) < 0) {
        text = NULL;
        html->failure = "no memory";
    }
    va_end(list);
    ups_html_text(html, text);
    free(text);
}

void ups_html_number(ups_html *html, int digits, double value) {
    if (isfinite(value))
        ups_html_markup(html, "%.*g", digits, value);
    else
        ups_html_markup(html, "\u2013");
}

/* The value of viewBox, of which cairo writes one in the first tag. */
static const char *view_box(const char *svg, int *length) {
    static const char name[] = "viewBox=\"";
    const char *value = strstr(svg, name);
    if (!value) return NULL;
    value += strlen(name);
    *length = (int)strcspn(value, "\"");
    return value;
}

void ups_html_svg(ups_html *html, const char *svg, const char *class, const char *description) {
    /* a name stands after ` id="` and after every #: cairo writes colours as rgb(), and pictures in base64 */
    const char *tag = strstr(svg, "<svg"), *body = tag ? strchr(tag, '>') : NULL;
    int length = 0;
    const char *box = body ? view_box(tag, &length) : NULL;
    if (!box) {
        html->failure = "cairo wrote an SVG of another form";
        return;
    }
    ups_html_markup(html, "<div class=\"wide %s\" role=\"region\" tabindex=\"0\" aria-label=\"", class);
    ups_html_text(html, description);
    ups_html_markup(html,
                    "\"><svg xmlns=\"http://www.w3.org/2000/svg\" xmlns:xlink=\"http://www.w3.org/1999/xlink\" "
                    "viewBox=\"%.*s\" style=\"max-width:%.0fpx\" role=\"img\" aria-label=\"",
                    length, box, strtod(box + strspn(box, "0 "), NULL));
    ups_html_text(html, description);
    ups_html_markup(html, "\">");
    const char *written = body + 1;
    for (const char *at = written; (at = strpbrk(at, "#\"")); at++) {
        const bool name = *at == '#' || (at - written >= 5 && memcmp(at - 4, " id=", 4) == 0);
        if (!name) continue;
        append(html, written, (size_t)(at + 1 - written));
        ups_html_markup(html, "f%d-", html->figures);
        written = at + 1;
    }
    append(html, written, strlen(written));
    ups_html_markup(html, "</div>\n");
    html->figures++;
}

ups_status ups_html_publish(const ups_html *html, const char *path, ups_error *error) {
    if (html->failure) return ups_fail(error, UPS_ERR_MEMORY, "%s: the page: %s", path, html->failure);
    ups_remove_partials_of(path);
    return ups_publish_bytes(path, html->text, html->length, error);
}

void ups_html_free(ups_html *html) {
    free(html->text);
    *html = (ups_html){0};
}

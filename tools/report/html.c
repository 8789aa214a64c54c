#include "tools/report/html.h"

#include "base/files.h"
#include "base/printable.h"
#include <math.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Room for `more` bytes and a NUL. */
static int reserve(ups_html *html, size_t more) {
    if (html->failed) return 0;
    if (html->length + more < html->capacity) return 1;
    size_t capacity = 2 * (html->length + more) + 4096;
    char *larger = realloc(html->text, capacity);
    if (!larger) {
        html->failed = 1;
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
        html->failed = 1;
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

void ups_html_png(ups_html *html, const void *bytes, size_t length) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const uint8_t *in = bytes;
    ups_html_markup(html, "data:image/png;base64,");
    if (!reserve(html, (length + 2) / 3 * 4)) return;
    char *out = html->text + html->length;
    for (size_t i = 0; i < length; i += 3) {
        uint32_t word = (uint32_t)in[i] << 16;
        if (i + 1 < length) word |= (uint32_t)in[i + 1] << 8;
        if (i + 2 < length) word |= in[i + 2];
        *out++ = digits[word >> 18];
        *out++ = digits[word >> 12 & 63];
        *out++ = i + 1 < length ? digits[word >> 6 & 63] : '=';
        *out++ = i + 2 < length ? digits[word & 63] : '=';
    }
    *out = '\0';
    html->length = (size_t)(out - html->text);
}

ups_status ups_html_publish(const ups_html *html, const char *path, ups_error *error) {
    if (html->failed) return ups_fail(error, UPS_ERR_MEMORY, "%s: no memory for the page", path);
    ups_remove_partials_of(path);
    return ups_publish_bytes(path, html->text, html->length, error);
}

void ups_html_free(ups_html *html) {
    free(html->text);
    *html = (ups_html){0};
}

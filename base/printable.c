#include "base/printable.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

int ups_utf8_length(const char *text, size_t length) {
    static const struct {
        unsigned char low, high, second_low, second_high;
        int length;
    } forms[] = {{0xc2, 0xdf, 0x80, 0xbf, 2}, {0xe0, 0xe0, 0xa0, 0xbf, 3}, {0xe1, 0xec, 0x80, 0xbf, 3},
                 {0xed, 0xed, 0x80, 0x9f, 3}, {0xee, 0xef, 0x80, 0xbf, 3}, {0xf0, 0xf0, 0x90, 0xbf, 4},
                 {0xf1, 0xf3, 0x80, 0xbf, 4}, {0xf4, 0xf4, 0x80, 0x8f, 4}};
    const unsigned char *bytes = (const unsigned char *)text;
    if (bytes[0] < 0x80) return 1;
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        if (bytes[0] < forms[i].low || bytes[0] > forms[i].high) continue;
        if (length < 2) return -1;
        if (bytes[1] < forms[i].second_low || bytes[1] > forms[i].second_high) return 0;
        for (int k = 2; k < forms[i].length; k++) {
            if ((size_t)k >= length) return -1;
            if (bytes[k] < 0x80 || bytes[k] > 0xbf) return 0;
        }
        return forms[i].length;
    }
    return 0;
}

static uint32_t code_point(const unsigned char *bytes, int length) {
    if (length == 1) return bytes[0];
    uint32_t value = bytes[0] & (0x7fu >> length);
    for (int i = 1; i < length; i++) value = value << 6 | (bytes[i] & 0x3f);
    return value;
}

/* C0 but for line ends and tabs, DEL, C1; and marks of direction, embedding, override and isolation (Unicode UAX #9).
 */
static bool is_harmful(uint32_t c) {
    if (c < 0x20) return c != '\n' && c != '\t';
    return (c >= 0x7f && c <= 0x9f) || c == 0x61c || c == 0x200e || c == 0x200f || (c >= 0x202a && c <= 0x202e) ||
           (c >= 0x2066 && c <= 0x2069);
}

size_t ups_printable(const char *text, size_t length, char *out, size_t room) {
    size_t used = 0;
    for (size_t at = 0; at < length;) {
        const unsigned char *bytes = (const unsigned char *)text + at;
        const int found = ups_utf8_length(text + at, length - at);
        char escaped[UPS_PRINTABLE_ROOM + 1];
        const char *as = text + at;
        size_t as_length = found > 0 ? (size_t)found : 0;
        if (found <= 0) {
            as_length = (size_t)snprintf(escaped, sizeof escaped, "\\x%02x", bytes[0]);
            as = escaped;
        } else if (is_harmful(code_point(bytes, found))) {
            as_length =
                (size_t)snprintf(escaped, sizeof escaped, "\\u%04x", (unsigned)code_point(bytes, found) & 0xffff);
            as = escaped;
        }
        if (as_length >= room - used) break;
        memcpy(out + used, as, as_length);
        used += as_length;
        at += found > 0 ? (size_t)found : 1;
    }
    out[used] = '\0';
    return used;
}

/* Text that others wrote (names in files, names of files) as a terminal may show it. An escape sequence in it could set
 * the window's title, clear the screen, or hide what stands beside it. */
#ifndef UPS_BASE_PRINTABLE_H
#define UPS_BASE_PRINTABLE_H

#include <stddef.h>

/* Bytes of the well-formed UTF-8 sequence (RFC 3629) that `text` of `length` ≥ 1 bytes begins with; 0: there is none,
 * −1: there may be one, of which the end is missing. */
int ups_utf8_length(const char *text, size_t length);

enum { UPS_PRINTABLE_ROOM = 6 }; /* bytes that a character becomes at most */

/* Writes `length` bytes of `text` to `out` and ends them with a NUL: control characters, and those that turn the
 * direction of writing, as \u001b (as JSON has it, so that JSON stays what it is), bytes that are no UTF-8 as \x9b;
 * line ends and tabs stay. What does not fit into `room` ≥ 1 bytes is cut. Returns the bytes written, without the NUL.
 */
size_t ups_printable(const char *text, size_t length, char *out, size_t room);

#endif

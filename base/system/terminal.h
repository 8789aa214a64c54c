/* What a terminal is good for, by what people agreed on: TERM, COLUMNS, NO_COLOR (no-color.org), CLICOLOR. */
#ifndef UPS_BASE_SYSTEM_TERMINAL_H
#define UPS_BASE_SYSTEM_TERMINAL_H

#include <stdbool.h>

bool ups_terminal_is_capable(int descriptor); /* a terminal that understands escape codes: TERM is not "dumb" */
/* Such a terminal, and neither NO_COLOR (with any text) nor CLICOLOR=0 says that colours are unwanted. */
bool ups_terminal_has_colours(int descriptor);
int ups_terminal_columns(int descriptor); /* 0: it is no terminal, or does not say */

#endif

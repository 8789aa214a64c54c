#include "base/system/terminal.h"

#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

static bool is(const char *variable, const char *value) {
    const char *text = getenv(variable);
    return text && strcmp(text, value) == 0;
}

bool ups_terminal_is_capable(int descriptor) {
    return isatty(descriptor) && !is("TERM", "dumb");
}

bool ups_terminal_has_colours(int descriptor) {
    const char *unwanted = getenv("NO_COLOR");
    return ups_terminal_is_capable(descriptor) && !(unwanted && *unwanted) && !is("CLICOLOR", "0");
}

int ups_terminal_columns(int descriptor) {
    struct winsize size;
    return ioctl(descriptor, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

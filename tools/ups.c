/* `ups COMMAND …`: the table of commands, and nothing else. A new command is a file cmd_X.c, a prototype in commands.h
 * and a line here. */
#include "base/cancel.h"
#include "tools/command.h"
#include "tools/commands.h"
#include <stdio.h>
#include <string.h>

#define LIST(table) (table), sizeof(table) / sizeof((table)[0])

static const ups_command commands[] = {
    {"data", "look into simulation files: inspect, dump", ups_cmd_data},
    {"datagen", "make simulation files with our own solvers", ups_cmd_datagen},
    {"config", "configurations: show, check, keys", ups_cmd_config},
    {"doctor", "what this machine can do, and what to change", ups_cmd_doctor},
    {"completion", "print a completion script for bash, zsh or fish", ups_cmd_completion},
};

static const ups_command_group ups = {
    "",
    "ups - the Universal Physics Stack: neural surrogates of partial differential equations, trained in a latent space",
    LIST(commands),
    "Begin with 'ups doctor', then ./tools/quickstart; the manual is docs/ups.1.",
};

int main(int argc, char **argv) {
    if (argc > 1 && (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "version") == 0)) {
        puts("ups " UPS_VERSION);
        return UPS_EXIT_OK;
    }
    ups_cancel_install();
    return ups_command_dispatch(&ups, argc, argv);
}

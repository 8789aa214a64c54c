/* `ups doctor`: the findings of machine.h, for a person or a script. */
#include "base/json.h"
#include "base/system/terminal.h"
#include "tools/command.h"
#include "tools/commands/commands.h"
#include "tools/machine.h"
#include "train/precision.h"
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { BRIEF };
static const ups_option options[] = {
    [BRIEF] = {"brief", 'b', NULL, "only what could be better"},
};
static const ups_usage usage = {
    .command = "doctor",
    .arguments = "[DIR]",
    .summary = "says what this machine can do for UPS and what to change",
    .options = options,
    .option_count = 1,
    .details = "DIR is where data and runs are kept (default: the working directory).\n"
               "Exit code 1 when there is a problem; notes are about speed and do not count.",
};

static void print_json(const ups_findings *findings, int problems) {
    json_t *list = json_array();
    for (int i = 0; i < findings->count; i++) {
        const ups_finding *f = &findings->items[i];
        json_array_append_new(list,
                              json_pack("{s:s, s:s, s:s, s:s, s:s}", "group", f->group, "topic", f->topic, "level",
                                        ups_finding_level_name(f->level), "text", f->text, "remedy", f->remedy));
    }
    json_t *document =
        json_pack("{s:i, s:s, s:o}", "problems", problems, "precision",
                  ups_precision_name(ups_precision_resolve(UPS_PRECISION_AUTO, "auto")), "findings", list);
    ups_print_json(document, JSON_INDENT(2));
    json_decref(document);
}

static void print_text(const ups_findings *findings, bool brief) {
    static const char *const plain[] = {"ok     ", "note   ", "PROBLEM"};
    static const char *const coloured[] = {"\033[32mok\033[0m     ", "\033[33mnote\033[0m   ",
                                           "\033[31mPROBLEM\033[0m"};
    const char *const *marks = ups_terminal_has_colours(STDOUT_FILENO) ? coloured : plain;
    const char *group = "";
    int shown = 0;
    for (int i = 0; i < findings->count; i++) {
        const ups_finding *f = &findings->items[i];
        if (brief && f->level == UPS_FINDING_OK) continue;
        if (!brief && strcmp(group, f->group) != 0) {
            printf("%s%s\n", i ? "\n" : "", f->group);
            group = f->group;
        }
        printf("  %s  %-14s %s\n", marks[f->level], f->topic, f->text);
        if (f->remedy[0]) printf("           %-14s -> %s\n", "", f->remedy);
        shown++;
    }
    if (brief && shown == 0) puts("  nothing to change");
}

int ups_cmd_doctor(int argc, char **argv) {
    ups_arguments arguments;
    ups_arguments_begin(&arguments, &usage, argc, argv);
    bool brief = false;
    while (ups_arguments_next(&arguments) >= 0) brief = true;
    if (arguments.stop) return ups_arguments_end(&arguments);
    if (arguments.operand_count > 1) return ups_command_usage_error(&arguments, "one directory was expected");

    ups_findings findings;
    ups_machine_examine(arguments.operand_count ? arguments.operands[0] : ".", &findings);
    int problems = 0, notes = 0;
    for (int i = 0; i < findings.count; i++) {
        problems += findings.items[i].level == UPS_FINDING_PROBLEM;
        notes += findings.items[i].level == UPS_FINDING_NOTE;
    }
    if (arguments.json) {
        print_json(&findings, problems);
    } else {
        print_text(&findings, brief);
        if (!brief)
            printf("\n%d problem%s, %d note%s\n", problems, problems == 1 ? "" : "s", notes, notes == 1 ? "" : "s");
    }
    return problems ? UPS_EXIT_FAILURE : UPS_EXIT_OK;
}

#include "tools/commands/refused_run.h"

#include <stdio.h>
#include <string.h>

static void print_json(const ups_run_differences *refused, const ups_error *error) {
    json_t *list = json_array();
    for (size_t i = 0; i < refused->count; i++) {
        const ups_run_difference *row = &refused->list[i];
        json_array_append_new(list, json_pack("{s:s, s:s, s:s}", "key", row->key, "run", row->run, "now", row->now));
    }
    json_t *document = json_pack("{s:{s:s, s:s, s:o}}", "error", "code", ups_status_name(error->code), "message",
                                 error->message, "differences", list);
    ups_print_json(document, JSON_INDENT(2));
    json_decref(document);
}

static void print_table(const ups_run_differences *refused) {
    int key = 3, run = 3;
    for (size_t i = 0; i < refused->count; i++) {
        const ups_run_difference *row = &refused->list[i];
        if ((int)strlen(row->key) > key) key = (int)strlen(row->key);
        if ((int)strlen(row->run) > run) run = (int)strlen(row->run);
    }
    fprintf(stderr, "  %-*s   %-*s   %s\n", key, "key", run, "run", "now");
    for (size_t i = 0; i < refused->count; i++) {
        const ups_run_difference *row = &refused->list[i];
        fprintf(stderr, "  %-*s   %-*s   %s\n", key, row->key, run, row->run, row->now);
    }
}

int ups_command_fail_refused(const ups_arguments *arguments, const ups_run_differences *refused,
                             const ups_error *error) {
    ups_arguments plain = *arguments;
    if (arguments->json)
        print_json(refused, error);
    else
        print_table(refused);
    plain.json = false;
    return ups_command_fail(&plain, error);
}

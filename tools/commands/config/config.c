/* `ups config`: what a configuration really says. show prints it with defaults and overrides in place, check says
 * whether it would load, keys lists every key there is. */
#include "base/config/as_json.h"
#include "base/json.h"
#include "base/nearest.h"
#include "tools/command.h"
#include "tools/commands/commands.h"
#include "tools/commands/config_mistakes.h"
#include "train/config/load.h"
#include "train/precision.h"
#include "train/run_precision.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SET, WITHOUT_PATHS };
static const ups_option options[] = {
    [SET] = {"set", 's', "KEY=VALUE", "overrides a key of the configuration; may be given several times"},
    [WITHOUT_PATHS] = {"without-paths", 0, NULL, "leaves out whether files and folders are there"},
};

/* What a check found nothing wrong with. */
static json_t *describe(const char *path) {
    return json_pack("{s:s}", "config", path);
}

/* {"config": file, "values": {…}, "yaml": text, "resolved": {…}}; resolved: what `auto` means here. */
static json_t *describe_values(const char *path, const ups_run_config *config, const char *text,
                               ups_precision precision) {
    json_t *document = describe(path);
    json_object_set_new(document, "values", ups_config_as_json(&ups_run_schema, config));
    json_object_set_new(document, "yaml", json_string(text));
    json_object_set_new(document, "resolved", json_pack("{s:s}", "precision", ups_precision_name(precision)));
    return document;
}

static void print_json(json_t *document) {
    json_dumpf(document, stdout, JSON_INDENT(2));
    putchar('\n');
    json_decref(document);
}

/* Reads the options; false when the command ends here. */
static bool begin(const ups_usage *usage, int argc, char **argv, ups_arguments *arguments, bool *without_paths) {
    ups_arguments_begin(arguments, usage, argc, argv);
    for (int option; (option = ups_arguments_next(arguments)) >= 0;) {
        if (option == SET) ups_arguments_override(arguments);
        if (option == WITHOUT_PATHS) *without_paths = true;
    }
    return !arguments->stop;
}

/* What `auto` means here and now stands beside it, as a comment. */
static void print_commented(const char *text, const ups_run_config *config, ups_precision resolved) {
    static const char line[] = "precision: auto\n";
    const char *place = config->precision == UPS_PRECISION_AUTO ? strstr(text, line) : NULL;
    if (!place) {
        fputs(text, stdout);
        return;
    }
    char meaning[120];
    ups_precision_explain(resolved, config->device.name, meaning, sizeof meaning);
    int before = (int)(place - text + (ptrdiff_t)strlen(line) - 1);
    printf("%.*s # here %s%s", before, text, meaning, text + before);
}

static int run_show(int argc, char **argv) {
    static const ups_usage usage = {"config show",
                                    "CONFIG|RUN",
                                    "prints the configuration as it will run",
                                    options,
                                    1,
                                    "Example:\n  ups config show configs/quickstart.yaml --set seed=7\n"};
    ups_arguments arguments;
    ups_error error;
    int exit_code = UPS_EXIT_OK;
    bool without_paths = false;
    if (!begin(&usage, argc, argv, &arguments, &without_paths)) return ups_arguments_end(&arguments);
    ups_run_config *config = NULL;
    ups_precision precision = UPS_PRECISION_AUTO;
    char *text = NULL;
    if (arguments.operand_count != 1) {
        exit_code = ups_command_no_config(&arguments);
    } else if (ups_run_config_load(arguments.operands[0], arguments.overrides, arguments.override_count, &config,
                                   &error) != UPS_OK) {
        exit_code = ups_command_fail_on_config(&arguments, UPS_PATHS_READ, &error);
    } else if (ups_precision_of_run(config, &precision, &error) != UPS_OK ||
               ups_config_print(&ups_run_schema, config, &text, &error) != UPS_OK) {
        exit_code = ups_command_fail(&arguments, &error);
    } else if (arguments.json) {
        print_json(describe_values(arguments.operands[0], config, text, precision));
    } else {
        print_commented(text, config, precision);
    }
    free(text);
    ups_run_config_free(config);
    return exit_code;
}

/* Says what is wrong with one; a document of its own with --json, or an entry of `list`. */
static int check_one(const ups_arguments *arguments, const char *path, ups_config_paths paths, json_t *list) {
    ups_config_mistakes *mistakes = NULL;
    ups_error error;
    int exit_code = UPS_EXIT_FAILURE;
    if (ups_look_for_mistakes(arguments, path, paths, &mistakes, &error) != UPS_OK) {
        if (list)
            json_array_append_new(list, json_pack("{s:s, s:s}", "config", path, "error", error.message));
        else
            exit_code = ups_command_fail(arguments, &error);
    } else if (mistakes->count > 0) {
        if (list)
            json_array_append_new(list, ups_mistakes_of_check(mistakes));
        else
            exit_code = ups_tell_mistakes(arguments, mistakes);
    } else {
        exit_code = UPS_EXIT_OK;
        if (list)
            json_array_append_new(list, describe(path));
        else if (arguments->json)
            print_json(describe(path));
        else if (!arguments->quiet)
            printf("%s: no mistakes found\n", path);
    }
    ups_config_mistakes_destroy(mistakes);
    return exit_code;
}

/* All are looked at, whatever is wrong with one. */
static int run_check(int argc, char **argv) {
    static const ups_usage usage = {
        "config check",
        "CONFIG...",
        "lists all mistakes of configurations: file, line, key and what would be right",
        options,
        2,
        "Every path is looked at, too: data.root and the tasks' files have to be there, output and cache.directory to\n"
        "be folders or such as can be made. Where all that is right, data are opened as `ups train` opens them, and\n"
        "held against what the stages are to do with them.\n"
        "A configuration for another machine is checked with --without-paths.\n"
        "\nExample:\n  ups config check configs/*.yaml --without-paths\n"};
    ups_arguments arguments;
    int exit_code = UPS_EXIT_OK;
    bool without_paths = false;
    if (!begin(&usage, argc, argv, &arguments, &without_paths)) return ups_arguments_end(&arguments);
    if (arguments.operand_count == 0) exit_code = ups_command_usage_error(&arguments, "a CONFIG was expected");
    json_t *list = arguments.json && arguments.operand_count > 1 ? json_array() : NULL;
    for (int i = 0; i < arguments.operand_count; i++) {
        ups_config_paths paths = without_paths ? UPS_PATHS_NONE : UPS_PATHS_OPENED;
        int found = check_one(&arguments, arguments.operands[i], paths, list);
        if (found != UPS_EXIT_OK) exit_code = found;
    }
    if (list) print_json(list);
    return exit_code;
}

/* Keys that are printed: all, or those of a section. */
typedef struct listing {
    json_t *list;        /* with --json */
    const char *section; /* "tasks", "model.operator"; NULL: all */
    int found;
} listing;

/* Whether a key's path is the section's own or within it: "tasks[].name" is within "tasks" and within "tasks[]". */
static bool is_in(const char *path, const char *section) {
    for (; *section; path++) {
        bool item = path[0] == '[' && path[1] == ']';
        if (item && *section != '[') {
            path++;
            continue;
        }
        if (*path != *section++) return false;
    }
    return !*path || *path == '.' || *path == '[';
}

static void print_key(void *context, const char *path, const char *expected, const ups_config_key *key) {
    listing *listed = context;
    json_t *list = listed->list;
    if (listed->section && !is_in(path, listed->section)) return;
    listed->found++;
    if (list) {
        json_t *entry = json_object();
        json_object_set_new(entry, "key", json_string(path));
        json_object_set_new(entry, "expected", json_string(expected));
        json_object_set_new(entry, "default", key->default_value ? json_string(key->default_value) : json_null());
        json_object_set_new(entry, "required", json_boolean(ups_config_is_required(key)));
        json_object_set_new(entry, "neutral", json_boolean(key->neutral));
        json_object_set_new(entry, "help", json_string(key->help ? key->help : ""));
        json_array_append_new(list, entry);
        return;
    }
    if (!key->help) return; /* sections */
    bool required = ups_config_is_required(key);
    printf("%-44s %s\n", path, key->help);
    printf("%-44s   %s; %s%s%s\n", "", expected, required ? "required" : "default ", required ? "" : key->default_value,
           key->neutral ? "; no result depends on it" : "");
}

/* "data, tasks, model, …" */
static void name_sections(char *text, size_t bytes) {
    size_t used = 0;
    text[0] = '\0';
    for (const ups_config_key *key = ups_run_schema.keys; key->name && used < bytes; key++) {
        if (key->type != UPS_CONFIG_SECTION) continue;
        used += (size_t)snprintf(text + used, bytes - used, "%s%s", used ? ", " : "", key->name);
    }
}

typedef struct guess {
    ups_nearest nearest;
    char name[160]; /* paths live only while they are visited */
} guess;

static void try_key(void *context, const char *path, const char *expected, const ups_config_key *key) {
    guess *g = context;
    ups_nearest_try(&g->nearest, path);
    if (g->nearest.name != path) return;
    snprintf(g->name, sizeof g->name, "%s", path);
    g->nearest.name = g->name;
}

static int unknown_section(const ups_arguments *arguments, const char *name) {
    guess g = {.nearest.word = name};
    ups_config_each_key(&ups_run_schema, try_key, &g);
    if (g.nearest.name)
        return ups_command_usage_error(arguments, "there is no section or key '%s'; did you mean '%s'?", name, g.name);
    char sections[200];
    name_sections(sections, sizeof sections);
    return ups_command_usage_error(arguments, "there is no section or key '%s'; the sections are %s", name, sections);
}

static int run_keys(int argc, char **argv) {
    static const ups_usage usage = {
        .command = "config keys",
        .arguments = "[SECTION]...",
        .summary = "lists every key, or those of sections: what it does, what it takes, its default",
        .details = "Examples:\n  ups config keys tasks\n  ups config keys model.operator operator.optimizer\n"};
    ups_arguments arguments;
    ups_arguments_begin(&arguments, &usage, argc, argv);
    while (ups_arguments_next(&arguments) >= 0) continue;
    if (arguments.stop) return ups_arguments_end(&arguments);
    int exit_code = UPS_EXIT_OK, count = arguments.operand_count;
    listing listed = {.list = arguments.json ? json_array() : NULL};
    for (int i = 0; i < (count > 0 ? count : 1) && exit_code == UPS_EXIT_OK; i++) {
        listed.section = count > 0 ? arguments.operands[i] : NULL;
        listed.found = 0;
        ups_config_each_key(&ups_run_schema, print_key, &listed);
        if (listed.found == 0) exit_code = unknown_section(&arguments, listed.section);
    }
    if (listed.list && exit_code == UPS_EXIT_OK) ups_print_json(listed.list, JSON_INDENT(2));
    json_decref(listed.list);
    return exit_code;
}

static int run_schema(int argc, char **argv) {
    static const ups_usage usage = {
        .command = "config schema",
        .arguments = "",
        .summary = "prints a JSON Schema of configurations, with which editors complete and check them",
        .details = "An editor with a YAML language server takes it from a configuration's first line:\n"
                   "  ups config schema > ups.schema.json\n"
                   "  # yaml-language-server: $schema=ups.schema.json\n"};
    ups_arguments arguments;
    ups_arguments_begin(&arguments, &usage, argc, argv);
    while (ups_arguments_next(&arguments) >= 0) continue;
    if (arguments.stop) return ups_arguments_end(&arguments);
    if (arguments.operand_count > 0) return ups_command_usage_error(&arguments, "no operand was expected");
    print_json(ups_config_json_schema(&ups_run_schema, "UPS: the configuration of a run"));
    return UPS_EXIT_OK;
}

int ups_cmd_config(int argc, char **argv) {
    static const ups_command commands[] = {
        {"init", "writes one for data files", ups_cmd_config_init},
        {"show", "the configuration as it will run", run_show},
        {"check", "all its mistakes", run_check},
        {"keys", "every key there is, or those of a section", run_keys},
        {"schema", "a JSON Schema for editors", run_schema},
    };
    static const ups_command_group group = {"config", "ups config - looks into configurations", commands,
                                            sizeof commands / sizeof *commands, NULL};
    return ups_command_dispatch(&group, argc, argv);
}

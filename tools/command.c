/* Subcommands' common ground; see command.h. getopt_long does the parsing; its messages are replaced by sentences that
 * say what would be right. The tables built for it live as long as the process, which is one command. */
#include "tools/command.h"
#include "base/files.h"
#include "base/json.h"
#include "base/nearest.h"
#include "base/printable.h"
#include "base/progress.h"
#include "base/system/cancel.h"
#include "tools/help.h"
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COMMON_HELP, COMMON_JSON, COMMON_QUIET, COMMON_COUNT };
static const ups_option common_options[COMMON_COUNT] = {
    [COMMON_HELP] = {"help", 'h', NULL, "show this help"},
    [COMMON_JSON] = {"json", 0, NULL, "print results (and errors) as JSON on standard output"},
    [COMMON_QUIET] = {"quiet", 'q', NULL, "no progress bars"},
};

/* getopt's value of a long option: above every character. */
enum { LONG_BASE = 1000 };

const ups_option *ups_usage_option(const ups_usage *usage, size_t index) {
    if (index < usage->option_count) return &usage->options[index];
    index -= usage->option_count;
    return index < COMMON_COUNT ? &common_options[index] : NULL;
}

/* ---- help ---- */

static void print_option(const ups_option *option) {
    enum { COLUMN = 32 };
    char term[96], letter[8] = "    ";
    if (option->letter) snprintf(letter, sizeof(letter), "-%c, ", option->letter);
    snprintf(term, sizeof(term), "%s--%s%s%s", letter, option->name, option->argument ? " " : "",
             option->argument ? option->argument : "");
    ups_help_print_entry(term, option->help, COLUMN);
}

static void print_help(const ups_usage *usage) {
    char summary[400];
    snprintf(summary, sizeof summary, "ups %s - %s", usage->command, usage->summary);
    ups_help_print(summary);
    printf("\nUsage: ups %s%s%s%s\n\nOptions:\n", usage->command, usage->option_count ? " [OPTION]..." : "",
           usage->arguments[0] ? " " : "", usage->arguments);
    const ups_option *option;
    for (size_t i = 0; (option = ups_usage_option(usage, i)); i++) print_option(option);
    if (!usage->details) return;
    putchar('\n');
    ups_help_print(usage->details);
}

/* ---- failures ---- */

void ups_print_json(const json_t *document, size_t flags) {
    json_dumpf(document, stdout, flags);
    putchar('\n');
}

static void print_json_error(const char *code, const char *message, json_t *mistakes) {
    json_t *error = json_pack("{s:s, s:o}", "code", code, "message", ups_json_printable(message));
    if (mistakes) json_object_set_new(error, "mistakes", mistakes);
    json_t *document = json_pack("{s:o}", "error", error);
    if (!document) return;
    ups_print_json(document, JSON_INDENT(2));
    json_decref(document);
}

/* One line, whatever stands in the names that it tells. */
static void print_line(const char *line) {
    char printable[UPS_PRINTABLE_ROOM * sizeof((ups_error *)NULL)->message];
    ups_printable(line, strlen(line), printable, sizeof printable);
    for (char *at = printable; (at = strchr(at, '\n'));) *at = ' ';
    fprintf(stderr, "%s\n", printable);
}

void ups_command_print_error(const ups_error *error) {
    print_json_error(ups_status_name(error->code), error->message, NULL);
}

int ups_command_fail(const ups_arguments *arguments, const ups_error *error) {
    fflush(stdout);
    if (arguments && arguments->json) ups_command_print_error(error);
    char line[sizeof error->message + 8];
    snprintf(line, sizeof line, "ups: %s", error->message);
    print_line(line);
    return error->code == UPS_ERR_CANCELLED ? UPS_EXIT_SIGNAL + ups_cancel_signal() : UPS_EXIT_FAILURE;
}

int ups_command_fail_each(const ups_arguments *arguments, const ups_error *error, const char *const *sentences,
                          json_t *mistakes) {
    if (arguments->json)
        print_json_error(ups_status_name(error->code), error->message, mistakes);
    else
        json_decref(mistakes);
    ups_command_fail(&(ups_arguments){.json = false}, error);
    for (; *sentences; sentences++) print_line(*sentences);
    return UPS_EXIT_FAILURE;
}

static int usage_failure(const char *command, bool json, const char *message) {
    fflush(stdout);
    if (json) print_json_error("usage", message, NULL);
    const char *space = command[0] ? " " : "";
    char line[640];
    snprintf(line, sizeof line, "ups%s%s: %s", space, command, message);
    print_line(line);
    fprintf(stderr, "Try 'ups%s%s --help'.\n", space, command);
    return UPS_EXIT_USAGE;
}

int ups_command_usage_error(const ups_arguments *arguments, const char *format, ...) {
    char message[512];
    va_list list;
    va_start(list, format);
    vsnprintf(message, sizeof(message), format, list);
    va_end(list);
    return usage_failure(arguments->usage->command, arguments->json, message);
}

/* Other programs take KEY=VALUE as it is, and a configuration as an option's value. */
int ups_command_no_config(const ups_arguments *arguments) {
    for (int i = 0; i < arguments->operand_count; i++) {
        const char *operand = arguments->operands[i];
        const char *equals = strchr(operand, '=');
        if (!equals || memchr(operand, '/', (size_t)(equals - operand)) || ups_path_exists(operand)) continue;
        return ups_command_usage_error(arguments,
                                       "'%.200s' is not the name of a file; a key of the configuration is overridden "
                                       "with --set %.200s",
                                       operand, operand + strspn(operand, "+"));
    }
    return ups_command_usage_error(arguments, "one CONFIG, or the directory of a RUN, was expected");
}

static void __attribute__((format(printf, 2, 3))) stop_line(ups_arguments *arguments, const char *format, ...) {
    if (arguments->stop) return; /* the first mistake is the one reported */
    char message[512];
    va_list list;
    va_start(list, format);
    vsnprintf(message, sizeof(message), format, list);
    va_end(list);
    arguments->stop = true;
    arguments->exit_code = usage_failure(arguments->usage->command, arguments->json, message);
}

/* ---- the line ---- */

/* Where not NULL, commands are not run but shown: each begins to read its line, which ends there as --help would end
 * it.
 */
static const ups_command_visitor *visitor;

void ups_arguments_begin(ups_arguments *arguments, const ups_usage *usage, int argc, char **argv) {
    *arguments = (ups_arguments){.usage = usage, .argc = argc, .argv = argv, .current = -1};
    if (visitor) {
        visitor->usage(visitor->context, usage);
        arguments->stop = true;
        return;
    }
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) { /* known before the first mistake is reported */
        if (strcmp(argv[i], "--json") == 0) arguments->json = true;
    }
    const size_t count = usage->option_count + COMMON_COUNT;
    arguments->long_options = calloc(count + 1, sizeof(*arguments->long_options));
    arguments->letters = calloc(2 * count + 2, 1);
    if (!arguments->long_options || !arguments->letters) {
        stop_line(arguments, "out of memory");
        arguments->exit_code = UPS_EXIT_FAILURE;
        return;
    }
    char *letter = arguments->letters;
    *letter++ = ':'; /* tell a missing value from an unknown option */
    for (size_t i = 0; i < count; i++) {
        const ups_option *option = ups_usage_option(usage, i);
        arguments->long_options[i] = (struct option){
            .name = option->name,
            .has_arg = option->argument ? required_argument : no_argument,
            .val = LONG_BASE + (int)i,
        };
        if (option->letter) {
            *letter++ = option->letter;
            if (option->argument) *letter++ = ':';
        }
    }
    optind = 0; /* GNU: begin anew */
    opterr = 0;
}

static void refuse(ups_arguments *arguments, int found) {
    const char *text = optind > 0 ? arguments->argv[optind - 1] : "";
    if (found == ':') {
        stop_line(arguments, "option %s needs a value", text);
        return;
    }
    if (optopt > 0 && optopt < LONG_BASE) {
        size_t i = 0;
        const ups_option *option;
        while ((option = ups_usage_option(arguments->usage, i)) && option->name[0] != optopt) i++;
        stop_line(arguments, option ? "unknown option -%c; did you mean --%s?" : "unknown option -%c", optopt,
                  option ? option->name : "");
        return;
    }
    if (optopt >= LONG_BASE) {
        stop_line(arguments, "option --%s takes no value",
                  ups_usage_option(arguments->usage, (size_t)(optopt - LONG_BASE))->name);
        return;
    }
    char word[64];
    snprintf(word, sizeof(word), "%s", text + strspn(text, "-"));
    word[strcspn(word, "=")] = '\0';
    ups_nearest nearest = {.word = word};
    const ups_option *option;
    for (size_t i = 0; (option = ups_usage_option(arguments->usage, i)); i++) ups_nearest_try(&nearest, option->name);
    if (nearest.name) {
        stop_line(arguments, "unknown option --%s; did you mean --%s?", word, nearest.name);
    } else {
        stop_line(arguments, "unknown option %s", text);
    }
}

int ups_arguments_next(ups_arguments *arguments) {
    const ups_usage *usage = arguments->usage;
    while (!arguments->stop) {
        const int found =
            getopt_long(arguments->argc, arguments->argv, arguments->letters, arguments->long_options, NULL);
        if (found == -1) break;
        if (found == '?' || found == ':') {
            refuse(arguments, found);
            break;
        }
        size_t index = 0;
        if (found >= LONG_BASE) {
            index = (size_t)(found - LONG_BASE);
        } else {
            while (ups_usage_option(usage, index)->letter != found) index++;
        }
        if (index < usage->option_count) {
            arguments->current = (int)index;
            arguments->value = optarg;
            return (int)index;
        }
        switch (index - usage->option_count) {
        case COMMON_HELP:
            print_help(usage);
            arguments->stop = true;
            arguments->exit_code = UPS_EXIT_OK;
            break;
        case COMMON_JSON:
            arguments->json = true;
            break;
        default:
            arguments->quiet = true;
            break;
        }
    }
    arguments->operands = arguments->argv + optind;
    arguments->operand_count = arguments->argc - optind;
    if (arguments->json || arguments->quiet) ups_progress_enable(false);
    free(arguments->long_options);
    free(arguments->letters);
    arguments->long_options = NULL;
    arguments->letters = NULL;
    return -1;
}

int ups_arguments_end(ups_arguments *arguments) {
    free(arguments->long_options);
    free(arguments->letters);
    arguments->long_options = NULL;
    arguments->letters = NULL;
    return arguments->exit_code;
}

/* ---- values ---- */

void ups_arguments_integer(ups_arguments *arguments, int64_t minimum, int64_t maximum, int64_t *value) {
    const char *name = arguments->usage->options[arguments->current].name;
    char *end = NULL;
    errno = 0;
    const long long number = strtoll(arguments->value, &end, 10);
    if (end == arguments->value || *end != '\0') {
        stop_line(arguments, "--%s: '%s' is not a whole number", name, arguments->value);
    } else if (errno == ERANGE || number < minimum || number > maximum) {
        if (maximum == INT64_MAX) {
            stop_line(arguments, "--%s: %s is out of range; at least %lld was expected", name, arguments->value,
                      (long long)minimum);
        } else {
            stop_line(arguments, "--%s: %s is out of range; %lld to %lld was expected", name, arguments->value,
                      (long long)minimum, (long long)maximum);
        }
    } else {
        *value = number;
    }
}

void ups_arguments_real(ups_arguments *arguments, double minimum, double maximum, double *value) {
    const char *name = arguments->usage->options[arguments->current].name;
    char *end = NULL;
    const double number = strtod(arguments->value, &end);
    if (end == arguments->value || *end != '\0' || isnan(number)) {
        stop_line(arguments, "--%s: '%s' is not a number", name, arguments->value);
    } else if (number < minimum || number > maximum) {
        stop_line(arguments, "--%s: %s is out of range; %g to %g was expected", name, arguments->value, minimum,
                  maximum);
    } else {
        *value = number;
    }
}

void ups_arguments_duration(ups_arguments *arguments, const char *unit, double minimum, double *seconds) {
    static const struct {
        const char *name;
        double seconds;
    } units[] = {{"s", 1}, {"m", 60}, {"min", 60}, {"h", 3600}, {"d", 86400}, {"w", 604800}};
    static const double longest = 1e9;
    const char *name = arguments->usage->options[arguments->current].name;
    char *end = NULL;
    const double number = strtod(arguments->value, &end);
    const bool is_number = end != arguments->value && !isnan(number);
    const char *given = *end == '\0' ? unit : end;
    const size_t count = sizeof units / sizeof *units;
    size_t i = 0;
    while (i < count && strcmp(units[i].name, given) != 0) i++;
    if (!is_number || i == count) {
        stop_line(arguments, "--%s: '%.80s' is not a time; 90s, 10m, 1.5h, 7d and 2w are", name, arguments->value);
    } else if (number * units[i].seconds < minimum || number * units[i].seconds > longest) {
        stop_line(arguments, "--%s: %.80s is out of range; %g to %g seconds were expected", name, arguments->value,
                  minimum, longest);
    } else {
        *seconds = number * units[i].seconds;
    }
}

void ups_arguments_choice(ups_arguments *arguments, int *index) {
    const ups_option *option = &arguments->usage->options[arguments->current];
    char words[256], list[256] = "";
    snprintf(words, sizeof words, "%s", option->argument);
    ups_nearest nearest = {.word = arguments->value};
    int i = 0;
    for (char *rest = words, *word; (word = strsep(&rest, "|")); i++) {
        if (strcmp(word, arguments->value) == 0) {
            *index = i;
            return;
        }
        ups_nearest_try(&nearest, word);
        const size_t used = strlen(list);
        snprintf(list + used, sizeof(list) - used, "%s%s", i ? ", " : "", word);
    }
    if (nearest.name)
        stop_line(arguments, "--%s: '%s' is not one of %s; did you mean '%s'?", option->name, arguments->value, list,
                  nearest.name);
    else
        stop_line(arguments, "--%s: '%s' is not one of %s", option->name, arguments->value, list);
}

/* They live as long as the program. */
static void add_override(ups_arguments *arguments, const char *pair) {
    static const char **given;
    const char **longer = pair ? realloc(given, (arguments->override_count + 1) * sizeof *given) : NULL;
    if (!longer) {
        stop_line(arguments, "out of memory");
        return;
    }
    arguments->overrides = given = longer;
    given[arguments->override_count++] = pair;
}

void ups_arguments_override(ups_arguments *arguments) {
    const char *equals = strchr(arguments->value, '=');
    if (!equals || equals == arguments->value) {
        stop_line(arguments, "--%s: '%s' is not of the form KEY=VALUE, such as seed=7",
                  arguments->usage->options[arguments->current].name, arguments->value);
        return;
    }
    add_override(arguments, arguments->value);
}

void ups_arguments_key(ups_arguments *arguments, const char *key) {
    char *pair = NULL;
    if (!arguments->stop) add_override(arguments, asprintf(&pair, "%s=%s", key, arguments->value) < 0 ? NULL : pair);
}

/* ---- groups ---- */

static void print_group(const ups_command_group *group) {
    enum { COLUMN = 14 };
    const char *space = group->name[0] ? " " : "";
    ups_help_print(group->summary);
    printf("\nUsage: ups%s%s COMMAND [OPTION]...\n\nCommands:\n", space, group->name);
    for (size_t i = 0; i < group->count; i++)
        ups_help_print_entry(group->commands[i].name, group->commands[i].summary, COLUMN);
    printf("\n'ups%s%s COMMAND --help' explains a command.\n", space, group->name);
    if (!group->details) return;
    putchar('\n');
    ups_help_print(group->details);
}

static const ups_command *find_command(const ups_command_group *group, const char *name) {
    for (size_t i = 0; i < group->count; i++) {
        if (strcmp(group->commands[i].name, name) == 0) return &group->commands[i];
    }
    return NULL;
}

static int visit_commands(const ups_command_group *group) {
    for (size_t i = 0; i < group->count; i++) {
        char *line[] = {(char *)group->commands[i].name, NULL};
        visitor->command(visitor->context, group->name, &group->commands[i]);
        group->commands[i].run(1, line);
    }
    return UPS_EXIT_OK;
}

void ups_command_visit(const ups_command_group *group, const ups_command_visitor *by) {
    visitor = by;
    visit_commands(group);
    visitor = NULL;
}

int ups_command_dispatch(const ups_command_group *group, int argc, char **argv) {
    if (visitor) return visit_commands(group);
    if (argc < 2) {
        print_group(group);
        return UPS_EXIT_USAGE;
    }
    const char *word = argv[1];
    const bool help = strcmp(word, "help") == 0;
    if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0 || (help && argc == 2)) {
        print_group(group);
        return UPS_EXIT_OK;
    }
    if (help) word = argv[2];
    const ups_command *command = find_command(group, word);
    if (command && help) {
        char flag[] = "--help";
        char *line[] = {argv[2], argc > 3 ? argv[3] : flag, argc > 3 ? flag : NULL, NULL};
        return command->run(argc > 3 ? 3 : 2, line);
    }
    if (command) return command->run(argc - 1, argv + 1);

    bool json = false;
    for (int i = 1; i < argc; i++) json = json || strcmp(argv[i], "--json") == 0;
    ups_nearest nearest = {.word = word};
    const char *kind = "command";
    if (word[0] == '-') {
        kind = "option";
        ups_nearest_try(&nearest, "--help");
        if (!group->name[0]) ups_nearest_try(&nearest, "--version");
    }
    for (size_t i = 0; word[0] != '-' && i < group->count; i++) ups_nearest_try(&nearest, group->commands[i].name);
    char message[256];
    int used = snprintf(message, sizeof(message), "unknown %s '%.60s'", kind, word);
    if (nearest.name) snprintf(message + used, sizeof(message) - (size_t)used, "; did you mean '%s'?", nearest.name);
    return usage_failure(group->name, json, message);
}

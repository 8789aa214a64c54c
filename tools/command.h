/* What every subcommand shares: options, help, numbers, and how a failure reaches the person or the script that asked.
 *
 *     enum { SAMPLE, OUTPUT };
 *     static const ups_option options[] = {
 *         [SAMPLE] = {"sample", 0, "I", "trajectory to write, counted from 0 (default 0)"},
 *         [OUTPUT] = {"output", 'o', "FILE", "where to write it"},
 *     };
 *     static const ups_usage usage = {"data dump", "FILE...", "writes one trajectory as NPY", options, 2, "Example:\n
 * ..."};
 *
 *     int ups_cmd_dump(int argc, char **argv) {
 *         ups_arguments arguments;
 *         ups_arguments_begin(&arguments, &usage, argc, argv);
 *         int64_t sample = 0;
 *         for (int option; (option = ups_arguments_next(&arguments)) >= 0;) {
 *             if (option == SAMPLE) ups_arguments_integer(&arguments, 0, INT64_MAX, &sample);
 *             if (option == OUTPUT) output = arguments.value;
 *         }
 *         if (arguments.stop) return ups_arguments_end(&arguments);
 *         if (arguments.operand_count != 1) return ups_command_usage_error(&arguments, "one FILE was expected");
 *         …
 *         if (dump(…, &error) != UPS_OK) return ups_command_fail(&arguments, &error);
 *
 * Every command also understands --help, --json (results as JSON on standard output, no progress) and --quiet.
 * Results go to standard output; progress, logs and errors to standard error; with --json an error is an object on
 * standard output as well, so that a script reads one stream:  {"error": {"code": "format", "message": "…"}}. */
#ifndef UPS_TOOLS_COMMAND_H
#define UPS_TOOLS_COMMAND_H

#include "base/error.h"
#include "base/json.h"
#include <getopt.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What a signal stopped ends with 128 and its number, as shells say it: 130 after SIGINT, 143 after SIGTERM. */
enum { UPS_EXIT_OK = 0, UPS_EXIT_FAILURE = 1, UPS_EXIT_USAGE = 2, UPS_EXIT_SIGNAL = 128 };

/* `argument` says what the value is: alternatives with "|" between them, words that stand for themselves in small
 * letters ("npy|hdf5|zarr"), kinds of values in capitals ("best|latest|FILE"). Help shows it, ups_arguments_choice
 * takes its words, and completion (commands/completion.c) offers words and what is known of the kinds. */
typedef struct ups_option {
    const char *name;     /* long name without dashes */
    char letter;          /* short name, the same option's in all commands; or 0 */
    const char *argument; /* NULL: a flag */
    const char *help;     /* one line; say the default */
} ups_option;

typedef struct ups_usage {
    const char *command;   /* as typed after "ups": "data dump" */
    const char *arguments; /* operands as shown in the help: "FILE..."; "" when there are none */
    const char *summary;   /* one sentence without the full stop */
    const ups_option *options;
    size_t option_count;
    const char *details; /* what is printed, examples; or NULL */
} ups_usage;

/* The command line of one subcommand while it is read. */
typedef struct ups_arguments {
    const ups_usage *usage;
    const char *value; /* of the option just returned; NULL for a flag */
    char **operands;   /* after the last option; point into argv */
    int operand_count;
    bool json, quiet;
    bool stop; /* help was printed, or the line was wrong: return ups_arguments_end() */
    int exit_code;
    int argc;
    char **argv;
    int current;            /* index of the option just returned */
    const char **overrides; /* KEY=VALUE of --set and of ups_arguments_key; NULL where there are none */
    size_t override_count;
    struct option *long_options;
    char *letters;
} ups_arguments;

/* argv[0] is the subcommand's own name. Options and operands may be mixed; "--" ends the options. */
void ups_arguments_begin(ups_arguments *arguments, const ups_usage *usage, int argc, char **argv);
/* Index into usage->options, or -1 when there are no more (then `operands` is set) or `stop` became true. */
int ups_arguments_next(ups_arguments *arguments);
int ups_arguments_end(ups_arguments *arguments); /* the exit code of a stopped line */

/* Reads the current option's value as a number in [minimum, maximum]; a wrong one stops the line with a sentence. */
void ups_arguments_integer(ups_arguments *arguments, int64_t minimum, int64_t maximum, int64_t *value);
void ups_arguments_real(ups_arguments *arguments, double minimum, double maximum, double *value);
/* The same of a time, 90s, 10m, 1.5h, 7d or 2w, in seconds; a number alone is of `unit`, "s" to "w". */
void ups_arguments_duration(ups_arguments *arguments, const char *unit, double minimum, double *seconds);
/* Which of the words of the option's `argument` the value is, counted from 0. */
void ups_arguments_choice(ups_arguments *arguments, int *index);

/* Adds the current option's value, KEY=VALUE, to `overrides`, which live as long as the process. */
void ups_arguments_override(ups_arguments *arguments);
/* The same for an option that stands for one key: --device cuda for device.name=cuda. */
void ups_arguments_key(ups_arguments *arguments, const char *key);

/* Prints a result on a line or lines of its own; `flags` are Jansson's. */
void ups_print_json(const json_t *document, size_t flags);

/* {"error": …} on standard output. */
void ups_command_print_error(const ups_error *error);

/* All return the exit code, for `return ups_command_…`. */
int ups_command_fail(const ups_arguments *arguments,
                     const ups_error *error); /* "ups: message"; 1, or UPS_EXIT_SIGNAL + N when cancelled */
/* Several at once: `error` says of what, and `sentences`, which NULL ends, follow a line each. With --json the error
 * has `mistakes` as well, a list that is taken over. */
int ups_command_fail_each(const ups_arguments *arguments, const ups_error *error, const char *const *sentences,
                          json_t *mistakes);
int ups_command_no_config(const ups_arguments *arguments); /* not one operand where CONFIG|RUN was expected; 2 */
int ups_command_usage_error(const ups_arguments *arguments, const char *format, ...)
    __attribute__((format(printf, 2, 3))); /* "ups data dump: message", where help is; 2 */

/* Commands that belong together: all of `ups`, or those under `ups cache`. */
typedef struct ups_command {
    const char *name;                  /* the word typed */
    const char *summary;               /* one line of the group's help */
    int (*run)(int argc, char **argv); /* argv[0] is `name` */
} ups_command;

typedef struct ups_command_group {
    const char *name;    /* "" for `ups` itself, else "cache" */
    const char *summary; /* a paragraph above the list */
    const ups_command *commands;
    size_t count;
    const char *details; /* below the list; or NULL */
} ups_command_group;

/* Runs the command named by argv[1]; help on --help or `help [COMMAND]`; an unknown name is answered with the nearest
 * one. */
int ups_command_dispatch(const ups_command_group *group, int argc, char **argv);

/* Shows every command of a group and of the groups within it, each group's own before the next. No command runs. What
 * `usage` gets lives only during its call. */
typedef struct ups_command_visitor {
    void (*command)(void *context, const char *group, const ups_command *command);
    void (*usage)(void *context, const ups_usage *usage);
    void *context;
} ups_command_visitor;
void ups_command_visit(const ups_command_group *group, const ups_command_visitor *visitor);
/* The options of a command, those that all have at the end; NULL behind the last. */
const ups_option *ups_usage_option(const ups_usage *usage, size_t index);

#endif

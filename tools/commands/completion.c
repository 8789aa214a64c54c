/* `ups completion SHELL`: a script that asks, at every Tab, `ups completion --words -- WORD...` what the last WORD can
 * be. The answers come from what commands are made of: the tables of commands and options (their `argument` says what a
 * value is), of configuration keys, of solvers, of ops; names of tasks come from the configuration on the line. The
 * scripts only carry questions and answers.
 *
 * An answer is a line: a word, a tab and what it means; or, where a file can stand, ":" and a pattern (":*.yaml"; ":/"
 * are directories alone), a line each where there are several, since shells know best how files are written. */
#include "base/nearest.h"
#include "model/op.h"
#include "tools/command.h"
#include "tools/commands/commands.h"
#include "tools/solvers/solver.h"
#include "train/config/load.h"
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct script {
    const char *shell, *text;
} script;

/* bash has cut the line at "=" and ":" as well, and replaces the last piece alone. */
static const script scripts[] = {
    {"bash", "# ups completion for bash: eval \"$(ups completion bash)\"\n"
             "_ups() {\n"
             "    local i word answer prefix whole=1\n"
             "    local -a words=()\n"
             "    for ((i = 1; i <= COMP_CWORD; i++)); do\n"
             "        word=${COMP_WORDS[i]}\n"
             "        if ((${#words[@]})) && [[ $word == [=:]* || ! $whole ]]; then words[-1]+=$word; else "
             "words+=(\"$word\"); fi\n"
             "        whole=1; [[ $word == [=:] ]] && whole=\n"
             "    done\n"
             "    [[ $whole ]] || word=\n"
             "    prefix=${words[-1]%\"$word\"}\n"
             "    COMPREPLY=()\n"
             "    while IFS= read -r answer; do\n"
             "        case $answer in\n"
             "            :/) compopt -o filenames 2>/dev/null; mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen "
             "-d -- \"$word\") ;;\n"
             "            :\\*) compopt -o filenames 2>/dev/null; mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen "
             "-f -- \"$word\") ;;\n"
             "            :*) compopt -o filenames 2>/dev/null; mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen "
             "-d -- \"$word\"; compgen -f -X \"!${answer#:}\" -- \"$word\") ;;\n"
             "            *) answer=${answer%%$'\\t'*}; [[ $answer == *[=.] ]] && compopt -o nospace 2>/dev/null\n"
             "               COMPREPLY+=(\"${answer#\"$prefix\"}\") ;;\n"
             "        esac\n"
             "    done < <(\"${COMP_WORDS[0]/#\\~\\//$HOME/}\" completion --words -- \"${words[@]}\" 2>/dev/null)\n"
             "}\n"
             "complete -F _ups ups\n"},
    {"zsh", "#compdef ups\n"
            "# ups completion for zsh: source <(ups completion zsh)\n"
            "_ups() {\n"
            "    local answer word\n"
            "    local -a found open files globs\n"
            "    for answer in \"${(@f)$(\"${words[1]/#\\~\\//$HOME/}\" completion --words -- "
            "\"${(@Q)words[2,CURRENT]}\" 2>/dev/null)}\"; do\n"
            "        word=${answer%%$'\\t'*}\n"
            "        case $answer in\n"
            "            '') ;;\n"
            "            :/) files=(-/) ;;\n"
            "            :*) globs+=(\"${answer#:}\") ;;\n"
            "            *[=.]$'\\t'*) open+=(\"${word//:/\\\\:}:${answer#*$'\\t'}\") ;;\n"
            "            *) found+=(\"${word//:/\\\\:}:${answer#*$'\\t'}\") ;;\n"
            "        esac\n"
            "    done\n"
            "    (($#globs == 1)) && files=(-g \"$globs\")\n"
            "    (($#globs > 1)) && files=(-g \"(${(j:|:)globs})\")\n"
            "    (($#found)) && _describe word found\n"
            "    (($#open)) && _describe word open -S ''\n"
            "    (($#files)) && { compset -P '--*='; _files $files; }\n"
            "}\n"
            "if [[ ${funcstack[1]} == _ups ]]; then _ups \"$@\"; else compdef _ups ups; fi\n"},
    {"fish", "# ups completion for fish: ups completion fish | source\n"
             "function __ups_answers\n"
             "    set -l words (commandline -opc)\n"
             "    set -l word (commandline -ct)\n"
             "    for answer in (command $words[1] completion --words -- $words[2..-1] \"$word\" 2>/dev/null)\n"
             "        switch $answer\n"
             "            case ':/'\n"
             "                __fish_complete_directories \"$word\" ''\n"
             "            case ':*'\n"
             "                set -l suffix (string replace ':*' '' -- $answer)\n"
             "                set -l option (string match -r -- '^--[^=]*=' $word)\n"
             "                set -l begin (string replace -- \"$option\" '' $word)\n"
             "                for path in $begin*\n"
             "                    if test -d $path; echo \"$option$path/\"; else if string match -q -- \"*$suffix\" "
             "$path; echo \"$option$path\"; end\n"
             "                end\n"
             "            case '*'\n"
             "                echo $answer\n"
             "        end\n"
             "    end\n"
             "end\n"
             "complete -c ups -f -a '(__ups_answers)'\n"},
};

/* ---- the question ---------------------------------------------------------------------------------------------- */

typedef struct question {
    char **words; /* behind "ups"; the last is asked for */
    int last;
    char path[80];  /* of the command as far as the words before the last have been followed: "cache build" */
    int followed;   /* so many of them */
    char *operand;  /* the first, NULL where there is none */
    size_t before;  /* bytes of the last word before what is completed: "--stage=" */
    char said[200]; /* the last answer */
} question;

static const char *typed(const question *q) {
    return q->words[q->last] + q->before;
}

/* A word that can stand there, once. */
static void answer(question *q, const char *word, const char *meaning) {
    if (strncmp(word, typed(q), strlen(typed(q))) != 0 || strcmp(word, q->said) == 0) return;
    snprintf(q->said, sizeof q->said, "%s", word);
    printf("%.*s%s\t%s\n", (int)q->before, q->words[q->last], word, meaning ? meaning : "");
}

/* ---- what values can be ---------------------------------------------------------------------------------------- */

/* A key as it is written: "tasks[].name" with the item that was typed, or the first. */
static void write_key(const char *path, const char *given, char *key, size_t bytes) {
    bool same = true; /* what was typed goes on as the key does */
    size_t used = 0;
    for (; *path && used + 24 < bytes; path++) {
        if (path[0] == '[' && path[1] == ']') {
            size_t digits = same && *given == '[' ? strspn(given + 1, "0123456789") : 0;
            used += (size_t)snprintf(key + used, bytes - used, "[%.*s]", digits ? (int)digits : 1,
                                     digits ? given + 1 : "0");
            same = digits > 0 && given[1 + digits] == ']';
            given += same ? digits + 2 : 0;
            path++;
        } else {
            same = same && *given == *path;
            given += same;
            key[used++] = *path;
        }
    }
    key[used] = '\0';
}

/* KEY=VALUE, a step at a time: "model.", "model.operator.", "model.operator.depth=", and what is known of the value. */
static void answer_setting(void *context, const char *path, const char *expected, const ups_config_key *entry) {
    question *q = context;
    char key[160], word[200];
    if (entry->type == UPS_CONFIG_SECTION || entry->type == UPS_CONFIG_REMOVED) return;
    write_key(path, typed(q), key, sizeof key);
    const size_t length = strlen(typed(q)), whole = strlen(key);
    if (strncmp(typed(q), key, whole) != 0 || typed(q)[whole] != '=') {
        char *dot = length < whole && strncmp(key, typed(q), length) == 0 ? strchr(key + length, '.') : NULL;
        if (dot) dot[1] = '\0';
        snprintf(word, sizeof word, "%s%s", key, dot ? "" : "=");
        answer(q, word, dot ? "" : entry->help);
        return;
    }
    static const char *const truths[] = {"true", "false", NULL};
    const char *const *values = entry->type == UPS_CONFIG_BOOL ? truths : entry->choices;
    for (; values && *values; values++) {
        snprintf(word, sizeof word, "%s=%s", key, *values);
        answer(q, word, "");
    }
    if (!entry->word || entry->type == UPS_CONFIG_YAML) return;
    snprintf(word, sizeof word, "%s=%s", key, entry->word);
    answer(q, word, "");
}

static void answer_settings(question *q) {
    ups_config_each_key(&ups_run_schema, answer_setting, q);
}

static void answer_section(void *context, const char *path, const char *expected, const ups_config_key *entry) {
    char name[160];
    snprintf(name, sizeof name, "%s", path);
    for (char *list; (list = strstr(name, "[]"));) memmove(list, list + 2, strlen(list + 2) + 1);
    if (entry->type == UPS_CONFIG_SECTION) answer(context, name, entry->help);
}

static void answer_sections(question *q) {
    ups_config_each_key(&ups_run_schema, answer_section, q);
}

static void answer_tasks(question *q) {
    ups_run_config *config = NULL;
    if (!q->operand || ups_run_config_load(q->operand, NULL, 0, &config, NULL) != UPS_OK) return;
    for (unsigned t = 0; t < config->task_count; t++) answer(q, config->tasks[t].name, "");
    ups_run_config_free(config);
}

static void answer_solvers(question *q) {
    int count;
    const ups_solver *const *solvers = ups_solvers(&count);
    for (int i = 0; i < count; i++) answer(q, solvers[i]->name, solvers[i]->summary);
}

static void answer_parameters(question *q) {
    const ups_solver *solver = q->operand ? ups_solver_find(q->operand) : NULL;
    for (int i = 0; solver && i < solver->parameter_count; i++) {
        char word[80];
        snprintf(word, sizeof word, "%s=", solver->parameters[i].name);
        answer(q, word, solver->parameters[i].help);
    }
}

/* Names with commas between them: the last is asked for. */
static void answer_ops(question *q) {
    const char *comma = strrchr(typed(q), ',');
    if (comma) q->before += (size_t)(comma + 1 - typed(q));
    for (int kind = 0; kind < UPS_OP_COUNT; kind++) answer(q, ups_op_name((ups_op_kind)kind), "");
}

/* The kinds of values that arguments name in capitals. Of others nothing is known: numbers, lists. */
static const struct {
    const char *name;
    void (*answer)(question *q);
    const char *files;   /* patterns, with blanks between them */
    const char *command; /* that it means this in; NULL: any. The first that fits counts */
} kinds[] = {
    {"KEY=VALUE", answer_settings, NULL, NULL},
    {"SECTION", answer_sections, NULL, NULL},
    {"TASK", answer_tasks, NULL, NULL},
    {"OP,OP", answer_ops, NULL, NULL},
    {"SOLVER", answer_solvers, NULL, NULL},
    {"NAME=VALUE", answer_parameters, NULL, NULL},
    {"CONFIG", NULL, "*.yaml", NULL},
    {"FILE", NULL, "*", NULL},
    {"PATH", NULL, "*", NULL},
    {"DIR", NULL, "/", NULL},
    {"RUN", NULL, "/", NULL},
    {"A", NULL, "*.yaml *.json", "compare"},
    {"B", NULL, "*.yaml *.json", "compare"},
    {"A", NULL, "*.yaml", NULL},
    {"B", NULL, "*.yaml", NULL},
};

/* `argument` is an option's, or the word for an operand: "CONFIG|RUN", "[DIR]...", "FILE.png", "npy|hdf5|zarr". */
static void answer_argument(question *q, const char *argument, size_t length) {
    char parts[200], pattern[40] = "";
    snprintf(parts, sizeof parts, "%.*s", (int)length, argument);
    for (char *rest = parts, *part; (part = strsep(&rest, "|"));) {
        part += *part == '[';
        part[strcspn(part, "]")] = '\0';
        char *dots = strstr(part, "..."), *dot;
        if (dots) *dots = '\0';
        if (!isupper((unsigned char)*part)) {
            answer(q, part, "");
        } else if ((dot = strchr(part, '.'))) {
            snprintf(pattern, sizeof pattern, "*%s", dot);
        }
        for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
            if (strcmp(part, kinds[k].name) != 0 || (kinds[k].command && strcmp(q->path, kinds[k].command) != 0))
                continue;
            if (kinds[k].answer) kinds[k].answer(q);
            if (kinds[k].files && (!*pattern || strcmp(pattern, "/") == 0))
                snprintf(pattern, sizeof pattern, "%s", kinds[k].files);
        }
    }
    for (char *rest = pattern, *one; *pattern && (one = strsep(&rest, " "));)
        printf(":%s\n", one); /* with a pattern come directories: files may lie in them */
}

/* The word for operand `index`; the last may stand for all that follow. */
static void answer_operand(question *q, const char *operands, int index) {
    for (;;) {
        const size_t length = strcspn(operands, " ");
        if (length == 0 || *operands == '-') return;
        const bool many = length > 3 && (strncmp(operands + length - 3, "...", 3) == 0 ||
                                         strncmp(operands + length - 4, "...]", 4) == 0);
        if (index == 0 || many) {
            answer_argument(q, operands, length);
            return;
        }
        operands += length + (operands[length] == ' ');
        index--;
    }
}

/* ---- following the line ---------------------------------------------------------------------------------------- */

static void follow_command(void *context, const char *group, const ups_command *command) {
    question *q = context;
    if (strcmp(group, q->path) != 0) return;
    if (q->followed == q->last) {
        answer(q, command->name, command->summary);
    } else if (strcmp(command->name, q->words[q->followed]) == 0) {
        const size_t used = strlen(q->path);
        snprintf(q->path + used, sizeof q->path - used, "%s%s", used ? " " : "", command->name);
        q->followed++;
    }
}

/* The option that a word names, the last of several letters: "--stage", "--stage=x", "-fo"; NULL where there is none.
 * *value: where its value begins in the word, NULL where that has none. */
static const ups_option *option_of(const ups_usage *usage, const char *word, const char **value) {
    const ups_option *option;
    *value = NULL;
    const size_t length = strcspn(word, "=");
    for (size_t i = 0; (option = ups_usage_option(usage, i)); i++) {
        if (word[1] == '-' && strlen(option->name) == length - 2 && strncmp(option->name, word + 2, length - 2) == 0) {
            if (word[length]) *value = word + length + 1;
            return option;
        }
    }
    for (const char *letter = word + 1; word[1] != '-' && *letter; letter++) { /* letters behind one another */
        for (size_t i = 0; (option = ups_usage_option(usage, i)) && option->letter != *letter;) i++;
        if (!option) return NULL;
        if (option->argument && letter[1]) *value = letter + 1;
        if (option->argument || !letter[1]) return option;
    }
    return NULL;
}

static void follow_usage(void *context, const ups_usage *usage) {
    question *q = context;
    if (strcmp(usage->command, q->path) != 0) return;
    const ups_option *waiting = NULL; /* for its value */
    const char *value;
    int operands = 0;
    bool options = true;
    for (int i = q->followed; i < q->last; i++) {
        char *word = q->words[i];
        if (waiting) {
            waiting = NULL;
        } else if (options && strcmp(word, "--") == 0) {
            options = false;
        } else if (options && word[0] == '-' && word[1]) {
            waiting = option_of(usage, word, &value);
            if (waiting && (value || !waiting->argument)) waiting = NULL;
        } else if (operands++ == 0) {
            q->operand = word;
        }
    }
    const char *last = q->words[q->last];
    const ups_option *option = options && !waiting && last[0] == '-' ? option_of(usage, last, &value) : NULL;
    if (option && option->argument && value) {
        q->before = (size_t)(value - last);
        waiting = option;
    }
    if (waiting) {
        answer_argument(q, waiting->argument, strlen(waiting->argument));
    } else if (options && last[0] == '-') {
        char word[80];
        for (size_t i = 0; (option = ups_usage_option(usage, i)); i++) {
            snprintf(word, sizeof word, "--%s", option->name);
            answer(q, word, option->help);
        }
    } else {
        answer_operand(q, usage->arguments, operands);
    }
}

static void print_answers(char **words, int count) {
    char empty[] = "", *nothing[] = {empty};
    question q = {.words = count > 0 ? words : nothing, .last = count > 0 ? count - 1 : 0};
    if (q.last > 0 && strcmp(q.words[0], "help") == 0) {
        q.words++;
        q.last--;
    }
    ups_command_visit(&ups_commands, &(ups_command_visitor){follow_command, follow_usage, &q});
    if (q.path[0] == '\0' && q.last == 0) {
        answer(&q, "help", "explains a command");
        if (typed(&q)[0] == '-') answer(&q, "--help", "show what there is");
        if (typed(&q)[0] == '-') answer(&q, "--version", "show the version");
    }
}

enum { WORDS };
static const ups_option options[] = {
    [WORDS] = {"words", 0, NULL, "what the scripts ask: all that the last WORD can be, a line each"},
};
static const ups_usage usage = {
    .command = "completion",
    .arguments = "bash|zsh|fish",
    .summary = "prints a script that completes ups command lines",
    .options = options,
    .option_count = sizeof options / sizeof *options,
    .details =
        "It completes commands, options and their values, keys of configurations with what they can be, stages,\n"
        "solvers and their parameters, tasks of the configuration on the line, files. Add to the shell's\n"
        "start-up file:\n"
        "  eval \"$(ups completion bash)\"      in ~/.bashrc\n"
        "  source <(ups completion zsh)       in ~/.zshrc, behind compinit\n"
        "  ups completion fish | source       in ~/.config/fish/config.fish",
};

int ups_cmd_completion(int argc, char **argv) {
    ups_arguments arguments;
    bool words = false;
    ups_arguments_begin(&arguments, &usage, argc, argv);
    while (ups_arguments_next(&arguments) >= 0) words = true;
    if (arguments.stop) return ups_arguments_end(&arguments);
    if (words) {
        print_answers(arguments.operands, arguments.operand_count);
        return UPS_EXIT_OK;
    }
    if (arguments.operand_count != 1)
        return ups_command_usage_error(&arguments, "the shell's name was expected: bash, zsh or fish");
    ups_nearest nearest = {.word = arguments.operands[0]};
    for (size_t i = 0; i < sizeof scripts / sizeof *scripts; i++) {
        ups_nearest_try(&nearest, scripts[i].shell);
        if (strcmp(arguments.operands[0], scripts[i].shell) != 0) continue;
        fputs(scripts[i].text, stdout);
        return UPS_EXIT_OK;
    }
    if (nearest.name)
        return ups_command_usage_error(&arguments, "no completion for '%s'; did you mean '%s'?", nearest.word,
                                       nearest.name);
    return ups_command_usage_error(&arguments, "no completion for '%s'; bash, zsh and fish have one",
                                   arguments.operands[0]);
}

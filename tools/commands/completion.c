/* `ups completion SHELL`: the tables of commands and options as a script. The table is the same for every shell, one
 * call of `_ups_add PATH WORD MEANING [VALUE]` a word; what stands around it tells the shell what to do with it. */
#include "tools/command.h"
#include "tools/commands/commands.h"
#include <stdio.h>
#include <string.h>

typedef struct script {
    const char *shell, *begin, *end;
} script;

/* `-g`, since completions may be loaded from within a function. */
static const script scripts[] = {
    {"bash",
     "# ups completion for bash: eval \"$(ups completion bash)\"\n"
     "declare -gA _ups_words=()\n"
     "_ups_add() { _ups_words[$1]+=\" $2\"; }\n",
     "_ups() {\n"
     "    local current=${COMP_WORDS[COMP_CWORD]} at=ups i\n"
     "    for ((i = 1; i < COMP_CWORD; i++)); do\n"
     "        [[ -n ${_ups_words[\"$at ${COMP_WORDS[i]}\"]} ]] && at+=\" ${COMP_WORDS[i]}\"\n"
     "    done\n"
     "    if [[ $current == -* || ${_ups_words[$at]} != \" -\"* ]]; then\n"
     "        COMPREPLY=($(compgen -W \"${_ups_words[$at]}\" -- \"$current\"))\n"
     "    else\n"
     "        COMPREPLY=($(compgen -f -- \"$current\"))\n"
     "    fi\n"
     "}\n"
     "complete -o filenames -F _ups ups\n"},
    {"zsh",
     "#compdef ups\n"
     "# ups completion for zsh: source <(ups completion zsh)\n"
     "typeset -gA _ups_words\n"
     "_ups_words=()\n"
     "_ups_add() { _ups_words[$1]+=\"$2:${3//:/\\\\:}\"$'\\n' }\n",
     "_ups() {\n"
     "    local at=ups word\n"
     "    local -a list\n"
     "    for word in ${words[2,CURRENT-1]}; do\n"
     "        [[ -n ${_ups_words[$at $word]} ]] && at+=\" $word\"\n"
     "    done\n"
     "    list=(${(f)_ups_words[$at]})\n"
     "    if [[ ${words[CURRENT]} == -* || ${list[1]} != -* ]]; then _describe word list; else _files; fi\n"
     "}\n"
     "if [[ ${funcstack[1]} == _ups ]]; then _ups \"$@\"; else compdef _ups ups; fi\n"},
    {"fish",
     "# ups completion for fish: ups completion fish | source\n"
     "set -g __ups_paths\n"
     "function __ups_at\n"
     "    set -l at ups\n"
     "    for word in (commandline -opc)[2..-1]\n"
     "        contains -- \"$at $word\" $__ups_paths; and set at \"$at $word\"\n"
     "    end\n"
     "    test \"$at\" = \"$argv[1]\"\n"
     "end\n"
     "function _ups_add\n"
     "    if string match -q -- '--*' $argv[2]\n"
     "        complete -c ups -n \"__ups_at '$argv[1]'\" -l (string sub -s 3 -- $argv[2]) $argv[4..-1] -d $argv[3]\n"
     "    else\n"
     "        set -ga __ups_paths \"$argv[1] $argv[2]\"\n"
     "        complete -c ups -n \"__ups_at '$argv[1]'\" -f -a $argv[2] -d $argv[3]\n"
     "    end\n"
     "end\n",
     ""},
};

/* A word of any of the shells, whatever stands in it. */
static void print_quoted(const char *text) {
    fputs(" '", stdout);
    for (; *text; text++) {
        if (*text == '\'')
            fputs("'\\''", stdout);
        else
            putchar(*text);
    }
    putchar('\'');
}

static void print_command(const char *group, const ups_command *command) {
    printf("_ups_add 'ups%s%s' %s", group[0] ? " " : "", group, command->name);
    print_quoted(command->summary);
    putchar('\n');
}

static void print_option(const ups_usage *usage, const ups_option *option) {
    printf("_ups_add 'ups %s' --%s", usage->command, option->name);
    print_quoted(option->help);
    puts(option->argument ? " -r" : "");
}

static const ups_usage usage = {
    .command = "completion",
    .arguments = "bash|zsh|fish",
    .summary = "prints a script that completes ups command lines",
    .details = "Add to the shell's start-up file:\n"
               "  eval \"$(ups completion bash)\"      in ~/.bashrc\n"
               "  source <(ups completion zsh)       in ~/.zshrc\n"
               "  ups completion fish | source       in ~/.config/fish/config.fish",
};

int ups_cmd_completion(int argc, char **argv) {
    ups_arguments arguments;
    ups_arguments_begin(&arguments, &usage, argc, argv);
    while (ups_arguments_next(&arguments) >= 0) {
    }
    if (arguments.stop) return ups_arguments_end(&arguments);
    if (arguments.operand_count != 1)
        return ups_command_usage_error(&arguments, "the shell's name was expected: bash, zsh or fish");
    for (size_t i = 0; i < sizeof scripts / sizeof *scripts; i++) {
        if (strcmp(arguments.operands[0], scripts[i].shell) != 0) continue;
        fputs(scripts[i].begin, stdout);
        ups_command_visit(&ups_commands, &(ups_command_visitor){print_command, print_option});
        fputs(scripts[i].end, stdout);
        return UPS_EXIT_OK;
    }
    return ups_command_usage_error(&arguments, "no completion for '%s'; bash, zsh and fish have one",
                                   arguments.operands[0]);
}

/* `ups completion SHELL`: a script that asks `ups --help` for the commands and `ups COMMAND --help` for the options, so
 * that it is never out of date. */
#include "tools/command.h"
#include "tools/commands/commands.h"
#include <stdio.h>
#include <string.h>

/* Words of the list under "Commands:"; long options of a command's help. Both are what the help prints anyway. */
#define COMMANDS_OF "sed -n '/^Commands:/,/^$/s/^  \\([a-z0-9-]*\\)  *.*/\\1/p'"
#define OPTIONS_OF "grep -o -- '^  *\\(-[a-z], \\)\\?--[a-z-]*' | grep -o -- '--[a-z-]*'"

static const char bash_script[] =
    "# ups completion for bash: eval \"$(ups completion bash)\"\n"
    "_ups() {\n"
    "    local current=${COMP_WORDS[COMP_CWORD]} words=() i\n"
    "    for ((i = 1; i < COMP_CWORD; i++)); do\n"
    "        [[ ${COMP_WORDS[i]} == -* ]] && break\n"
    "        words+=(\"${COMP_WORDS[i]}\")\n"
    "        ((${#words[@]} == 2)) && break\n"
    "    done\n"
    "    local help commands\n"
    "    help=$(ups \"${words[@]}\" --help 2>/dev/null)\n"
    "    commands=$(" COMMANDS_OF " <<<\"$help\")\n"
    "    if [[ $current == -* ]]; then\n"
    "        COMPREPLY=($(compgen -W \"$(" OPTIONS_OF " <<<\"$help\")\" -- \"$current\"))\n"
    "    elif [[ -n $commands ]]; then\n"
    "        COMPREPLY=($(compgen -W \"$commands\" -- \"$current\"))\n"
    "    else\n"
    "        COMPREPLY=($(compgen -f -- \"$current\"))\n"
    "    fi\n"
    "}\n"
    "complete -o filenames -F _ups ups\n";

static const char zsh_script[] = "#compdef ups\n"
                                 "# ups completion for zsh: source <(ups completion zsh)\n"
                                 "_ups() {\n"
                                 "    local help\n"
                                 "    local -a given list\n"
                                 "    given=(${words[2,CURRENT-1]:#-*})\n"
                                 "    help=$(ups ${given[1,2]} --help 2>/dev/null)\n"
                                 "    if [[ ${words[CURRENT]} == -* ]]; then\n"
                                 "        list=(${(f)\"$(" OPTIONS_OF " <<<\"$help\")\"})\n"
                                 "        compadd -- $list\n"
                                 "        return\n"
                                 "    fi\n"
                                 "    list=(${(f)\"$(" COMMANDS_OF " <<<\"$help\")\"})\n"
                                 "    if ((${#list})); then compadd -- $list; else _files; fi\n"
                                 "}\n"
                                 "compdef _ups ups\n";

static const char fish_script[] = "# ups completion for fish: ups completion fish | source\n"
                                  "function __ups_help\n"
                                  "    set -l given (commandline -opc | string match -v -- '-*')\n"
                                  "    ups $given[2..3] --help 2>/dev/null\n"
                                  "end\n"
                                  "complete -c ups -f -n '__ups_help | grep -q ^Commands:' -a '(__ups_help | "
                                  "sed -n \"/^Commands:/,/^\\$/s/^  \\([a-z0-9-]*\\)  *.*/\\1/p\""
                                  ")'\n"
                                  "complete -c ups -n 'string match -q -- \"-*\" (commandline -ct)' -a '(__ups_help | "
                                  "string match -r -a -- \"--[a-z-]+\" | sort -u)'\n";

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
    const char *shell = arguments.operands[0];
    if (strcmp(shell, "bash") == 0) {
        fputs(bash_script, stdout);
    } else if (strcmp(shell, "zsh") == 0) {
        fputs(zsh_script, stdout);
    } else if (strcmp(shell, "fish") == 0) {
        fputs(fish_script, stdout);
    } else {
        return ups_command_usage_error(&arguments, "no completion for '%s'; bash, zsh and fish have one", shell);
    }
    return UPS_EXIT_OK;
}

/* The subcommands of `ups`: one file each, in tools/commands and tools/bench, listed in the table of tools/ups.c. Each
 * takes its own name as argv[0] and returns the process's exit code (see command.h). */
#ifndef UPS_TOOLS_COMMANDS_COMMANDS_H
#define UPS_TOOLS_COMMANDS_COMMANDS_H

#include "tools/command.h"

extern const ups_command_group ups_commands; /* all of them */

int ups_cmd_data(int argc, char **argv);
int ups_cmd_datagen(int argc, char **argv);
int ups_cmd_cache_build(int argc, char **argv);
int ups_cmd_cache_inspect(int argc, char **argv);
int ups_cmd_cache_verify(int argc, char **argv);
int ups_cmd_cache_list(int argc, char **argv);
int ups_cmd_cache_diff(int argc, char **argv);
int ups_cmd_cache_prune(int argc, char **argv);
int ups_cmd_cache_export(int argc, char **argv);
int ups_cmd_train(int argc, char **argv);
int ups_cmd_eval(int argc, char **argv);
int ups_cmd_compare(int argc, char **argv);
int ups_cmd_rollout(int argc, char **argv);
int ups_cmd_export(int argc, char **argv);
int ups_cmd_report(int argc, char **argv);
int ups_cmd_bench_io(int argc, char **argv);
int ups_cmd_bench_codec(int argc, char **argv);
int ups_cmd_bench_loader(int argc, char **argv);
int ups_cmd_bench_encode(int argc, char **argv);
int ups_cmd_bench_step(int argc, char **argv);
int ups_cmd_config(int argc, char **argv);
int ups_cmd_config_init(int argc, char **argv);
int ups_cmd_doctor(int argc, char **argv);
int ups_cmd_test_ops(int argc, char **argv);
int ups_cmd_completion(int argc, char **argv);

#endif

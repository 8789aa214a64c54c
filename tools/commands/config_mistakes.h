/* All mistakes of a configuration, told at once: by `ups config check`, and by commands that cannot begin with it. */
#ifndef UPS_TOOLS_COMMANDS_CONFIG_MISTAKES_H
#define UPS_TOOLS_COMMANDS_CONFIG_MISTAKES_H

#include "base/config/mistakes.h"
#include "tools/command.h"

/* Which of its paths are looked at: none, those of data, or what is written as well; and whether, where nothing is
 * wrong so far, data are opened, too. */
typedef enum ups_config_paths { UPS_PATHS_NONE, UPS_PATHS_READ, UPS_PATHS_ALL, UPS_PATHS_OPENED } ups_config_paths;

/* Reads and checks a configuration or a run's with the overrides of `arguments`. *mistakes is the caller's, on an error
 * too (may be NULL); they come by line. */
ups_status ups_look_for_mistakes(const ups_arguments *arguments, const char *path, ups_config_paths paths,
                                 ups_config_mistakes **mistakes, ups_error *error);

/* Tells one or more; returns the exit code. With --json: an error object whose `mistakes` have file, line, key and
 * message. */
int ups_tell_mistakes(const ups_arguments *arguments, const ups_config_mistakes *mistakes);
/* {"config": path, "error": the first, "mistakes": all}. */
json_t *ups_mistakes_of_check(const ups_config_mistakes *mistakes);

/* As ups_command_fail, for a command that could not begin with the configuration that is its operand: where that has
 * mistakes, all are told instead of the first. */
int ups_command_fail_on_config(const ups_arguments *arguments, ups_config_paths paths, const ups_error *error);
/* The same, of another configuration than the operand. */
int ups_command_fail_on_config_at(const ups_arguments *arguments, const char *path, ups_config_paths paths,
                                  const ups_error *error);

#endif

/* The file of the running program, and that of libups where a program loaded it: what belongs to it is looked for from
 * where it lies. */
#ifndef UPS_BASE_SYSTEM_PROGRAM_H
#define UPS_BASE_SYSTEM_PROGRAM_H

#include <stdbool.h>

/* Its path, without symbolic links, in `path` (PATH_MAX bytes). False where the system does not tell it. */
bool ups_program_path(char *path);

/* A module of the program's, FILE: where the environment's `variable` says; else, where this code is in a shared
 * library, beside that, or installed (in ups/ or ../ups/ from there); beside the program, installed (../lib/ups), or in
 * `built`, a folder from the program's in the build. Its path in `path` (PATH_MAX bytes). */
bool ups_program_find_module(const char *variable, const char *file, const char *built, char *path);

#endif

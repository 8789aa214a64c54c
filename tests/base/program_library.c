/* A shared library with this code in it, as libups is one. */
#include "base/system/program.h"

bool find_from_library(const char *file, char *path);

bool find_from_library(const char *file, char *path) {
    return ups_program_find_module("UPS_TEST_MODULE", file, "../nowhere", path);
}

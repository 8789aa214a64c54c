/* For libups with HDF5's archive in it (tools/archives.cmake). Archives are compiled for programs: they take the
 * address of stderr as if it were in the same file, which a shared library cannot have. The linker is told to let them
 * have these instead (--wrap). */
#include <stdio.h>

extern FILE *__real_stdin, *__real_stdout, *__real_stderr;
__attribute__((visibility("hidden"))) FILE *__wrap_stdin, *__wrap_stdout, *__wrap_stderr;

__attribute__((constructor)) static void take_streams(void) {
    __wrap_stdin = __real_stdin;
    __wrap_stdout = __real_stdout;
    __wrap_stderr = __real_stderr;
}

/* `ups test-ops`: becomes the program that compares every op of a device with float64, as git runs its external
 * commands. The reference and its test library are thus no part of `ups`, which builds where they are not. What is
 * asked for goes by the environment (tests/model/test_ops.c). */
#include "base/nearest.h"
#include "base/system/program.h"
#include "model/devices/cuda.h"
#include "model/devices/devices.h"
#include "model/op.h"
#include "tools/command.h"
#include "tools/commands/commands.h"
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { DEVICE, OPS, SEED };
static const ups_option options[] = {
    [DEVICE] = {"device", 0, "auto|cpu|cuda", "what computes (default auto)"},
    [OPS] = {"ops", 0, "OP,OP", "these ops alone (default: all)"},
    [SEED] = {"seed", 0, "N", "what random shapes are drawn from (default 1)"},
};
static const ups_usage usage = {
    "test-ops",
    "",
    "says whether a device computes every op right",
    options,
    sizeof options / sizeof *options,
    "Each op runs forward and backward in float32, bfloat16 and float16, on odd and on random shapes, and is compared\n"
    "with float64; without --ops the optimizer, losses and norms of a step are, too. Printed is, of each op, the "
    "worst\n"
    "error as part of what is allowed. Exit code 1 where something is wrong. It takes some twenty seconds on a\n"
    "processor.\n\n"
    "The comparison is a program of its own, test_ops, which builds with tests and packages of tools/package have.\n\n"
    "Examples:\n  ups test-ops --device cuda\n  ups test-ops --ops gelu,layer_norm --seed 7\n"};

/* From the program's folder: beside it, installed, built. */
static const char *const places[] = {"", "../libexec/ups/", "../tests/model/"};
enum { PLACES = sizeof places / sizeof *places };

/* The comparison, in `path` (PATH_MAX). It has what follows "ups" in this program's own name: ups_emulated has a device
 * of its own, and so has test_ops_emulated, which lies beside it. */
static ups_status find_program(char *path, ups_error *error) {
    char program[PATH_MAX];
    char *slash = ups_program_path(program) ? strrchr(program, '/') : NULL;
    if (!slash)
        return ups_fail(error, UPS_ERR_IO, "/proc/self/exe does not say where ups lies, and so where test_ops is");
    *slash = '\0';
    const char *name = slash + 1, *variant = strncmp(name, "ups_", 4) == 0 ? name + 3 : "";
    for (size_t i = 0; i < PLACES; i++) {
        if (snprintf(path, PATH_MAX, "%s/%stest_ops%s", program, places[i], variant) < PATH_MAX &&
            access(path, X_OK) == 0)
            return UPS_OK;
    }
    return ups_fail(
        error, UPS_ERR_UNSUPPORTED,
        "there is no program test_ops%s, which compares ops with float64, in %.200s nor, from there, in %s "
        "and %s; a build with tests has it (cmake -DBUILD_TESTING=ON), and so has a folder of tools/package",
        variant, program, places[1], places[2]);
}

/* Refuses the first of the names that is no op's. */
static bool names_ops(const ups_arguments *arguments, const char *names) {
#define AND_NAME(KIND, name) ", " #name
    static const char every[] = UPS_OPS(AND_NAME);
#undef AND_NAME
    _Static_assert(sizeof every < 420, "the sentence of ups_command_usage_error has room for it");
    for (const char *at = names; at; at = strchr(at, ','), at += at != NULL) {
        char name[40], meant[40] = "";
        snprintf(name, sizeof name, "%.*s", (int)strcspn(at, ","), at);
        ups_nearest nearest = {.word = name};
        bool found = false;
        for (int kind = 0; kind < UPS_OP_COUNT; kind++) {
            found |= strcmp(ups_op_name((ups_op_kind)kind), name) == 0;
            ups_nearest_try(&nearest, ups_op_name((ups_op_kind)kind));
        }
        if (found) continue;
        if (nearest.name) snprintf(meant, sizeof meant, "; did you mean '%s'?", nearest.name);
        ups_command_usage_error(arguments, "--ops: '%s' is not one of %s%s", name, every + 2, meant);
        return false;
    }
    return true;
}

/* A device that cannot be opened is refused here, in the words of every command. */
static ups_status try_device(const char *name, ups_error *error) {
    ups_device *device;
    UPS_TRY(ups_device_open(&(ups_device_options){.name = name}, &device, error));
    ups_device_close(device);
    return UPS_OK;
}

/* What was set before does not count: a command is what its line says. */
static void say(const char *variable, const char *value) {
    if (value)
        setenv(variable, value, 1);
    else
        unsetenv(variable);
}

int ups_cmd_test_ops(int argc, char **argv) {
    static const char *const devices[] = {"auto", "cpu", "cuda"};
    ups_arguments arguments;
    ups_arguments_begin(&arguments, &usage, argc, argv);
    const char *ops = NULL;
    int device = 0;
    int64_t seed = -1;
    for (int option; (option = ups_arguments_next(&arguments)) >= 0;) {
        if (option == DEVICE) ups_arguments_choice(&arguments, &device);
        if (option == OPS) ops = arguments.value;
        if (option == SEED) ups_arguments_integer(&arguments, 0, INT64_MAX, &seed);
    }
    if (arguments.stop) return ups_arguments_end(&arguments);
    if (arguments.operand_count > 0) return ups_command_usage_error(&arguments, "no operands were expected");
    if (!names_ops(&arguments, ops)) return UPS_EXIT_USAGE;

    char path[PATH_MAX], module[PATH_MAX], number[24];
    ups_error error = {0};
    const char *name = device ? devices[device] : ups_device_automatic();
    if (find_program(path, &error) != UPS_OK || try_device(name, &error) != UPS_OK)
        return ups_command_fail(&arguments, &error);
    snprintf(number, sizeof number, "%lld", (long long)seed);
    say("UPS_TEST_DEVICE", name);
    say("UPS_TEST_OPS", ops);
    say("UPS_TEST_SEED", seed >= 0 ? number : NULL);
    say("UPS_TEST_JSON", arguments.json ? "1" : NULL);
    if (ups_cuda_module_path(module)) say("UPS_CUDA_MODULE", module); /* which lies where ups looks, not test_ops */
    execv(path, (char *[]){path, NULL});
    ups_fail_errno(&error, "%s cannot be run", path);
    return ups_command_fail(&arguments, &error);
}

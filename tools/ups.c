/* `ups COMMAND …`: the table of commands, and nothing else. A new command is a file tools/commands/X.c, a prototype in
 * commands.h and a line here. */
#include "base/system/cancel.h"
#include "base/system/exhausted.h"
#include "pipeline/hdf5/storage.h"
#include "tools/command.h"
#include "tools/commands/commands.h"
#include "tools/openmp_wait.h"
#include "tools/standard_output.h"
#include <signal.h>
#include <stdio.h>
#include <string.h>

#define LIST(table) (table), sizeof(table) / sizeof((table)[0])

static const ups_command cache_commands[] = {
    {"build", "encode raw fields with the run's trained encoder", ups_cmd_cache_build},
    {"inspect", "what a cache holds and what made it", ups_cmd_cache_inspect},
    {"verify", "read and check every byte of a cache", ups_cmd_cache_verify},
    {"export", "write a cache's latents as HDF5, NPY or portable Zarr", ups_cmd_cache_export},
    {"diff", "how two caches differ", ups_cmd_cache_diff},
    {"list", "all caches below directories, with size and state", ups_cmd_cache_list},
    {"prune", "list leftovers of killed builds and stale caches; --yes removes them", ups_cmd_cache_prune},
};

static int run_cache(int argc, char **argv) {
    static const ups_command_group group = {
        "cache", "ups cache - the latent cache: builds it, looks into it, checks it", LIST(cache_commands), NULL};
    return ups_command_dispatch(&group, argc, argv);
}

static const ups_command bench_commands[] = {
    {"codec", "compression of latents: ratio and speed", ups_cmd_bench_codec},
    {"encode", "the reference encoder: fields to latents", ups_cmd_bench_encode},
    {"io", "random reads: io_uring and threads", ups_cmd_bench_io},
    {"loader", "trajectories a second from disk to batches", ups_cmd_bench_loader},
    {"step", "a training step of the reference operator", ups_cmd_bench_step},
};

static int run_bench(int argc, char **argv) {
    static const ups_command_group group = {"bench", "ups bench - measures one part of UPS alone", LIST(bench_commands),
                                            NULL};
    return ups_command_dispatch(&group, argc, argv);
}

static const ups_command commands[] = {
    {"data", "look into simulation files: inspect, dump", ups_cmd_data},
    {"datagen", "make simulation files with our own solvers", ups_cmd_datagen},
    {"cache", "the latent cache: build, inspect, verify, export, diff, list, prune", run_cache},
    {"train", "run the stages of a configuration that are not finished", ups_cmd_train},
    {"eval", "errors of the trained operator on held-out trajectories", ups_cmd_eval},
    {"compare", "hold two runs against each other: errors, speed, memory, learning", ups_cmd_compare},
    {"rollout", "predict trajectories: HDF5, NetCDF and pictures", ups_cmd_rollout},
    {"export", "write a trained model as one file, for Python, C and PyTorch", ups_cmd_export},
    {"report", "a run as a page of HTML: curves of training, errors, fields", ups_cmd_report},
    {"config", "configurations: init, show, check, keys, schema", ups_cmd_config},
    {"bench", "measure one part alone: codec, encode, io, loader, step", run_bench},
    {"doctor", "what this machine can do, and what to change", ups_cmd_doctor},
    {"test-ops", "whether a device computes every op right, against float64", ups_cmd_test_ops},
    {"completion", "print a completion script for bash, zsh or fish", ups_cmd_completion},
};

const ups_command_group ups_commands = {
    "",
    "ups - the Universal Physics Stack: neural surrogates of partial differential equations, trained in a latent space",
    LIST(commands),
    "Begin with 'ups doctor'. A run is the directory that a configuration names as `output`. The manual: man ups.",
};

int main(int argc, char **argv) {
    ups_openmp_wait_briefly(argv);
    ups_standard_output_begin();
    if (argc > 1 && (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "version") == 0)) {
        puts("ups " UPS_VERSION);
        return ups_standard_output_end(UPS_EXIT_OK);
    }
    ups_cancel_install();
    ups_exit_when_out_of_memory(UPS_EXIT_FAILURE);
    signal(SIGXFSZ, SIG_IGN); /* writing beyond `ulimit -f` then fails with EFBIG, as any write may fail */
    ups_hdf5_quiet_at_exit();
    return ups_standard_output_end(ups_command_dispatch(&ups_commands, argc, argv));
}

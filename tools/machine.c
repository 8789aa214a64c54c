/* See machine.h. A capability is tried, not guessed from version numbers: a ring is set up, a file is opened with
 * O_DIRECT, the kernel is asked for AMX, the driver for its GPUs. */
#include "tools/machine.h"
#include "base/system/cpu_features.h"
#include "base/system/threads.h"
#include "model/devices/cuda.h"
#include "pipeline/io/io.h"
#include "pipeline/netcdf/library.h"
#include "pipeline/storage/compressors.h"
#include "train/comm/comm.h"
#include "train/precision.h"
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <hdf5.h>
#include <math.h>
#include <omp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>
#include <zstd.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

static const double gib = 1024.0 * 1024.0 * 1024.0, mib = 1024.0 * 1024.0;

const char *ups_finding_level_name(ups_finding_level level) {
    return level == UPS_FINDING_OK ? "ok" : level == UPS_FINDING_NOTE ? "note" : "problem";
}

/* The next finding, filled with printf-style text; its remedy is empty. */
static ups_finding *__attribute__((format(printf, 5, 6)))
add(ups_findings *findings, const char *group, const char *topic, ups_finding_level level, const char *format, ...) {
    ups_finding *finding =
        &findings->items[findings->count < UPS_FINDINGS_MAXIMUM ? findings->count++ : findings->count - 1];
    *finding = (ups_finding){.group = group, .topic = topic, .level = level};
    va_list list;
    va_start(list, format);
    vsnprintf(finding->text, sizeof(finding->text), format, list);
    va_end(list);
    return finding;
}

static void __attribute__((format(printf, 2, 3))) advise(ups_finding *finding, const char *format, ...) {
    va_list list;
    va_start(list, format);
    vsnprintf(finding->remedy, sizeof(finding->remedy), format, list);
    va_end(list);
}

/* The first line of a file under /proc or /sys, without its newline; false when it cannot be read. */
static bool first_line(const char *path, char *line, size_t size) {
    FILE *file = fopen(path, "r");
    if (!file) return false;
    const bool read = fgets(line, (int)size, file) != NULL;
    fclose(file);
    if (read) line[strcspn(line, "\n")] = '\0';
    return read;
}

/* The value after "name:" in a file of such lines; false when there is none. */
static bool named_line(const char *path, const char *name, char *value, size_t size) {
    FILE *file = fopen(path, "r");
    if (!file) return false;
    char line[512];
    bool found = false;
    while (!found && fgets(line, sizeof(line), file)) {
        if (strncmp(line, name, strlen(name)) != 0) continue;
        const char *start = strchr(line, ':');
        if (!start) continue;
        start += 1 + strspn(start + 1, " \t");
        snprintf(value, size, "%.*s", (int)strcspn(start, "\n"), start);
        found = true;
    }
    fclose(file);
    return found;
}

/* ---- processor ---- */

#if defined(__x86_64__)
static bool amx_bf16_present(void) {
    unsigned a, b, c, d;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return false;
    const unsigned amx_bf16 = 1u << 22, amx_tile = 1u << 24;
    return (d & amx_bf16) && (d & amx_tile);
}

static bool amx_granted(void) {
    enum { REQUEST_PERMISSION = 0x1023 /* ARCH_REQ_XCOMP_PERM */, TILE_DATA = 18 /* XFEATURE_XTILEDATA */ };
    return syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0;
}

static void examine_vector_units(ups_findings *findings) {
    const char *group = "Processor";
    if (!ups_runs_x86_64_v3()) {
        advise(add(findings, group, "vector units", UPS_FINDING_NOTE,
                   "no AVX2, or not all of x86-64-v3: kernels fall back to SSE"),
               "use a processor of 2013 or later; a virtual machine may need its CPU type set to 'host'");
        return;
    }
    if (ups_runs_x86_64_v4()) {
        add(findings, group, "vector units", UPS_FINDING_OK, "AVX2, AVX-512%s",
            ups_runs_avx512_bf16() ? " with products of bf16" : "");
    } else {
        add(findings, group, "vector units", UPS_FINDING_OK, "AVX2; no AVX-512");
    }
    if (!amx_bf16_present()) {
        add(findings, group, "AMX", UPS_FINDING_OK, "none: %s",
            ups_multiplies_bf16_fast() ? "AVX-512 multiplies bf16 instead; fp16 is slower"
                                       : "bf16 and fp16 training work, slower than f32");
    } else if (!amx_granted()) {
        const int cause = errno;
        advise(add(findings, group, "AMX", UPS_FINDING_NOTE, "the processor has AMX, the kernel refuses it: %s",
                   strerror(cause)),
               "Linux 5.16 or later grants it; a container's seccomp profile may forbid arch_prctl");
    } else {
        add(findings, group, "AMX", UPS_FINDING_OK,
            "bf16 matrix products in hardware, granted by the kernel; fp16 is slower");
    }
}
#else
static void examine_vector_units(ups_findings *findings) {
    add(findings, "Processor", "vector units", UPS_FINDING_NOTE,
        "not x86-64: portable kernels, which nobody has tuned");
}
#endif

static void examine_processor(ups_findings *findings) {
    const char *group = "Processor";
    char model[160], quota[64];
    ups_cpu_model(model, sizeof(model));
    add(findings, group, "model", UPS_FINDING_OK, "%s", model);
    const int cores = ups_cpu_count();
    const long online = sysconf(_SC_NPROCESSORS_ONLN);
    ups_finding *finding = add(findings, group, "cores", UPS_FINDING_OK, "%d of %ld usable, %d OpenMP threads", cores,
                               online, omp_get_max_threads());
    double microseconds, period;
    if (first_line("/sys/fs/cgroup/cpu.max", quota, sizeof(quota)) &&
        sscanf(quota, "%lf %lf", &microseconds, &period) == 2 && microseconds / period < cores) {
        finding->level = UPS_FINDING_NOTE;
        snprintf(finding->text, sizeof(finding->text), "%d usable, but the container may use the time of %.1f", cores,
                 microseconds / period);
        advise(finding, "raise the container's CPU limit, or set OMP_NUM_THREADS=%d",
               (int)(microseconds / period + 0.999));
    } else if (omp_get_max_threads() > cores) {
        finding->level = UPS_FINDING_NOTE;
        advise(finding, "OMP_NUM_THREADS is above the number of cores; unset it or set it to %d", cores);
    }
    examine_vector_units(findings);
    char meaning[120];
    ups_precision_explain(ups_precision_resolve(UPS_PRECISION_AUTO, "cpu"), "cpu", meaning, sizeof(meaning));
    add(findings, group, "precision", UPS_FINDING_OK, "on the processor, auto means %s", meaning);
}

/* ---- memory ---- */

static void examine_memory(ups_findings *findings) {
    const char *group = "Memory";
    char text[64];
    double total = 0, available = 0, limit;
    if (named_line("/proc/meminfo", "MemTotal", text, sizeof(text))) total = strtod(text, NULL) * 1024;
    if (named_line("/proc/meminfo", "MemAvailable", text, sizeof(text))) available = strtod(text, NULL) * 1024;
    ups_finding *finding = add(findings, group, "memory", UPS_FINDING_OK, "%.1f GiB, %.1f GiB of it available",
                               total / gib, available / gib);
    if (first_line("/sys/fs/cgroup/memory.max", text, sizeof(text)) && (limit = strtod(text, NULL)) > 0 &&
        limit < total) {
        snprintf(finding->text, sizeof(finding->text), "%.1f GiB for this container (the machine has %.1f GiB)",
                 limit / gib, total / gib);
        available = limit < available ? limit : available;
    }
    if (available < 1 * gib) {
        finding->level = UPS_FINDING_PROBLEM;
        advise(
            finding,
            "training the smallest configuration takes about 1 GiB: end other programs or raise the container's limit");
    } else if (available < 4 * gib) {
        finding->level = UPS_FINDING_NOTE;
        advise(finding,
               "'ups train CONFIG --plan' says what a configuration will take; 'batch_size: auto' fits itself in");
    }

    struct rlimit lock;
    getrlimit(RLIMIT_MEMLOCK, &lock);
    const double wanted = 256 * mib; /* a loader's ring of read buffers, generously */
    if (lock.rlim_cur == RLIM_INFINITY) {
        add(findings, group, "locked memory", UPS_FINDING_OK, "unlimited");
    } else {
        const bool enough = (double)lock.rlim_cur >= wanted || geteuid() == 0;
        finding = add(findings, group, "locked memory", enough ? UPS_FINDING_OK : UPS_FINDING_NOTE, "limit %.0f MiB%s",
                      (double)lock.rlim_cur / mib, geteuid() == 0 ? ", which does not bind root" : "");
        if (!enough) {
            advise(finding,
                   "read buffers are not registered with the kernel above it, which costs a little speed: 'ulimit -l "
                   "unlimited', LimitMEMLOCK=infinity in systemd, --ulimit memlock=-1 in Docker");
        }
    }

    if (!first_line("/sys/kernel/mm/transparent_hugepage/enabled", text, sizeof(text))) return;
    if (strstr(text, "[never]")) {
        advise(add(findings, group, "huge pages", UPS_FINDING_NOTE, "transparent huge pages are off"),
               "as root: echo madvise > /sys/kernel/mm/transparent_hugepage/enabled (large buffers then cost fewer TLB "
               "misses)");
    } else {
        add(findings, group, "huge pages", UPS_FINDING_OK, "%s",
            strstr(text, "[always]") ? "always" : "where asked for (madvise)");
    }
}

/* ---- storage ---- */

static const char *file_system_name(long type) {
    switch (type) {
    case 0xEF53:
        return "ext4";
    case 0x58465342:
        return "XFS";
    case 0x9123683E:
        return "Btrfs";
    case 0x2FC12FC1:
        return "ZFS";
    case 0x01021994:
        return "tmpfs (memory)";
    case 0x6969:
        return "NFS";
    case 0x0BD00BD0:
        return "Lustre";
    case 0x47504653:
        return "GPFS";
    case 0x00C36400:
        return "CephFS";
    case 0x65735546:
        return "FUSE";
    case 0x794C7630:
        return "overlayfs";
    case 0x01021997:
        return "9P";
    case 0x6A656A63:
        return "virtiofs";
    default:
        return "unknown file system";
    }
}

static void examine_directory(ups_findings *findings, const char *directory) {
    const char *group = "Storage";
    struct statvfs room;
    struct statfs kind;
    if (statvfs(directory, &room) != 0 || statfs(directory, &kind) != 0) {
        const int cause = errno;
        advise(add(findings, group, "directory", UPS_FINDING_PROBLEM, "%s: %s", directory, strerror(cause)),
               "give the directory of data and runs as argument: ups doctor DIR");
        return;
    }
    const double available = (double)room.f_bavail * (double)room.f_frsize;
    ups_finding *finding = add(findings, group, "directory", UPS_FINDING_OK, "%s: %s, %.1f GiB available", directory,
                               file_system_name(kind.f_type), available / gib);
    if (access(directory, W_OK) != 0) {
        finding->level = UPS_FINDING_PROBLEM;
        snprintf(finding->text, sizeof(finding->text), "%s cannot be written to: %s", directory, strerror(errno));
        advise(finding,
               "runs, caches and checkpoints need a directory you may write: set 'output' in the configuration to one");
        return;
    }
    if (available < 0.25 * gib) {
        finding->level = UPS_FINDING_PROBLEM;
        advise(
            finding,
            "too little for a cache and checkpoints: make room, or set 'output' in the configuration to another disk");
    } else if (available < 5 * gib) {
        finding->level = UPS_FINDING_NOTE;
        advise(finding, "enough for the quickstart; a latent cache of a PDEBench task takes some gigabytes");
    }

    char path[4096];
    snprintf(path, sizeof(path), "%s/.ups-doctor-XXXXXX", directory);
    const int fd = mkostemp(path, O_CLOEXEC);
    if (fd < 0) {
        advise(add(findings, group, "O_DIRECT", UPS_FINDING_PROBLEM, "no file can be made in %s: %s", directory,
                   strerror(errno)),
               "check its rights and quota");
        return;
    }
    const int direct = open(path, O_RDONLY | O_DIRECT | O_CLOEXEC);
    if (direct >= 0) {
        add(findings, group, "O_DIRECT", UPS_FINDING_OK, "large files can be read past the page cache");
        close(direct);
    } else {
        advise(add(findings, group, "O_DIRECT", UPS_FINDING_NOTE, "refused here: reads go through the page cache"),
               "keep data that do not fit in memory on a local disk with ext4 or XFS");
    }
    close(fd);
    unlink(path);
}

static void examine_reading(ups_findings *findings) {
    const char *group = "Storage";
    char reason[200];
    if (ups_io_uring_available(reason)) {
        add(findings, group, "io_uring", UPS_FINDING_OK, "a ring was set up and read from");
    } else if (!ups_io_uring_version()) {
        add(findings, group, "io_uring", UPS_FINDING_OK, "not tried: this build has no liburing");
    } else {
        advise(add(findings, group, "io_uring", UPS_FINDING_NOTE, "refused (%s): threads read instead, somewhat slower",
                   reason),
               "Linux 5.11 or later; as root: sysctl kernel.io_uring_disabled=0; Docker, Podman: --security-opt "
               "seccomp=unconfined or a "
               "profile that allows io_uring_setup, io_uring_enter and io_uring_register");
    }

    struct rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    const double least = 128, comfortable = 1024;
    const double limit = files.rlim_cur == RLIM_INFINITY ? 1e18 : (double)files.rlim_cur;
    ups_finding *finding = add(findings, group, "open files",
                               limit < least         ? UPS_FINDING_PROBLEM
                               : limit < comfortable ? UPS_FINDING_NOTE
                                                     : UPS_FINDING_OK,
                               limit > 1e17 ? "unlimited" : "limit %.0f", limit);
    if (limit < comfortable)
        advise(finding, "'ulimit -n 4096' before starting ups: data files and shards stay open while training");

    struct statvfs shared;
    if (statvfs("/dev/shm", &shared) == 0) {
        add(findings, group, "/dev/shm", UPS_FINDING_OK, "%.1f GiB; UPS itself does not use it",
            (double)shared.f_bavail * (double)shared.f_frsize / gib);
    } else {
        add(findings, group, "/dev/shm", UPS_FINDING_OK, "not there; UPS itself does not use it");
    }
}

/* ---- libraries ---- */

static void examine_libraries(ups_findings *findings) {
    const char *group = "Libraries";
    unsigned major = 0, minor = 0, release = 0;
    H5get_libversion(&major, &minor, &release);
    if (major == H5_VERS_MAJOR && minor == H5_VERS_MINOR) {
        add(findings, group, "HDF5", UPS_FINDING_OK, "%u.%u.%u", major, minor, release);
    } else {
        advise(add(findings, group, "HDF5", UPS_FINDING_PROBLEM, "built with %d.%d, but %u.%u.%u is loaded",
                   H5_VERS_MAJOR, H5_VERS_MINOR, major, minor, release),
               "rebuild UPS, or correct LD_LIBRARY_PATH (conda and module systems often put their own HDF5 first)");
    }
    const char *netcdf = ups_netcdf_library_version();
    if (netcdf) {
        add(findings, group, "NetCDF-C", UPS_FINDING_OK, "%.*s", (int)strcspn(netcdf, " "), netcdf);
    } else {
        add(findings, group, "NetCDF-C", UPS_FINDING_OK,
            "not in this build; files are read without it, but for variables of NetCDF-4 that end within a chunk; "
            "`ups rollout -o X.nc` needs it");
    }
    add(findings, group, "zstd", UPS_FINDING_OK, "%s", ZSTD_versionString());
    static const struct {
        const char *name, *package;
        ups_compressor compressor;
    } compressors[] = {{"Blosc", "libblosc-dev", UPS_COMPRESSOR_BLOSC}, {"LZ4", "liblz4-dev", UPS_COMPRESSOR_LZ4}};
    for (size_t i = 0; i < sizeof compressors / sizeof *compressors; i++) {
        if (ups_compressor_is_there(compressors[i].compressor)) {
            add(findings, group, compressors[i].name, UPS_FINDING_OK, "for Zarr stores");
            continue;
        }
        advise(add(findings, group, compressors[i].name, UPS_FINDING_NOTE,
                   "not in this build: Zarr stores that it compressed are refused"),
               "on Debian: apt-get install %s, then build UPS again in a new folder", compressors[i].package);
    }
    const char *liburing = ups_io_uring_version();
    if (liburing) {
        add(findings, group, "liburing", UPS_FINDING_OK, "%s", liburing);
    } else {
        advise(add(findings, group, "liburing", UPS_FINDING_NOTE, "not in this build: threads read, somewhat slower"),
               "on Debian: apt-get install liburing-dev, then build UPS again in a new folder");
    }
}

/* ---- GPUs and other machines ---- */

/* Number of GPUs the NVIDIA driver shows, the first one's name in `name`; -1 when there is no driver. */
static int count_gpus(char *name, int size) {
    void *driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
    if (!driver) return -1;
    int (*initialise)(unsigned) = NULL, (*get_count)(int *) = NULL, (*get_name)(char *, int, int) = NULL;
    *(void **)&initialise = dlsym(driver, "cuInit");
    *(void **)&get_count = dlsym(driver, "cuDeviceGetCount");
    *(void **)&get_name = dlsym(driver, "cuDeviceGetName");
    int count = 0;
    if (!initialise || !get_count || !get_name || initialise(0) != 0 || get_count(&count) != 0) count = 0;
    if (count > 0 && get_name(name, size, 0) != 0) snprintf(name, (size_t)size, "GPU");
    dlclose(driver);
    return count;
}

/* Opens the card, as `device: cuda` would. */
static void examine_card(ups_findings *findings, const char *group, const ups_cuda_module *module) {
    ups_device *card = NULL;
    ups_error error;
    uint64_t all = 0, left = 0;
    ups_status status = module->open(&card, &error);
    if (status == UPS_OK) status = card->class->memory(card, &all, &left, &error);
    if (status == UPS_OK)
        add(findings, group, "CUDA", UPS_FINDING_OK,
            "the card opens, with %.1f of %.1f GiB free; kernels for %d of %d ops; the device 'auto' is the card",
            ldexp((double)left, -30), ldexp((double)all, -30), module->kernel_count, module->op_count);
    else
        advise(add(findings, group, "CUDA", UPS_FINDING_NOTE, "device: cuda cannot be used: %s", error.message),
               "nothing to set: the device 'auto' is the CPU");
    ups_device_close(card);
}

/* What processes that train together exchange gradients by. `module`: NULL where there is no card. */
static void examine_ranks(ups_findings *findings, const char *group, const ups_cuda_module *module) {
    char library[120];
    ups_error error;
    if (ups_comm_find_library(library, sizeof library, &error) == UPS_OK)
        add(findings, group, "MPI", UPS_FINDING_OK, "%s: mpirun -n 4 ups train CONFIG trains in four processes",
            library);
    else
        add(findings, group, "MPI", UPS_FINDING_OK, "not used, a training is one process: %s", error.message);
    if (!module)
        add(findings, group, "NCCL", UPS_FINDING_OK, "not used: there is no card");
    else if (module->peers->library(library, sizeof library, &error) == UPS_OK)
        add(findings, group, "NCCL", UPS_FINDING_OK, "%s: processes with a card each sum gradients by it", library);
    else
        advise(add(findings, group, "NCCL", UPS_FINDING_NOTE,
                   "not used, processes with a card each sum gradients in the host's memory: %s", error.message),
               "nothing to change for one card");
}

static void examine_accelerators(ups_findings *findings) {
    const char *group = "GPUs and other machines";
    char name[100] = "";
    const int gpus = count_gpus(name, sizeof(name));
    const ups_cuda_module *module;
    ups_error error;
    ups_status loaded = ups_cuda_load(&module, &error);
    if (gpus > 0) {
        add(findings, group, "GPU", UPS_FINDING_OK, "%d x %s", gpus, name);
    } else {
        add(findings, group, "GPU", UPS_FINDING_OK, "none (%s); training runs on the CPU",
            gpus < 0 ? "no NVIDIA driver" : "the NVIDIA driver shows no device");
    }
    if (loaded == UPS_OK)
        examine_card(findings, group, module);
    else
        add(findings, group, "CUDA", UPS_FINDING_OK, "not used: %s", error.message);
    examine_ranks(findings, group, loaded == UPS_OK ? module : NULL);
}

void ups_machine_examine(const char *directory, ups_findings *findings) {
    findings->count = 0;
    char *whole = realpath(directory, NULL); /* "." says little in a report */
    if (whole) directory = whole;
    examine_processor(findings);
    examine_memory(findings);
    examine_directory(findings, directory);
    examine_reading(findings);
    examine_libraries(findings);
    examine_accelerators(findings);
    free(whole);
}

#include "base/system/cpu_features.h"

#include <stdio.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Those whose names clang 14 does not know. */
static bool has_the_unnamed(void) {
    unsigned a, b, c, d;
    const unsigned first = bit_CMPXCHG16B | bit_MOVBE | bit_F16C, extended = bit_LAHF_LM | bit_LZCNT;
    if (!__get_cpuid(1, &a, &b, &c, &d) || (c & first) != first) return false;
    return __get_cpuid(0x80000001, &a, &b, &c, &d) && (c & extended) == extended;
}

bool ups_runs_x86_64_v3(void) {
    return __builtin_cpu_supports("sse3") && __builtin_cpu_supports("ssse3") && __builtin_cpu_supports("sse4.1") &&
           __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("popcnt") && __builtin_cpu_supports("avx") &&
           __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2") &&
           __builtin_cpu_supports("fma") && has_the_unnamed();
}

bool ups_runs_x86_64_v4(void) {
    return ups_runs_x86_64_v3() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vl");
}

bool ups_gathers_fast(void) {
    enum { AVX_VNNI_BIT = 4 };
    unsigned a, b, c, d;
    return ups_runs_x86_64_v3() && __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a >> AVX_VNNI_BIT & 1);
}

bool ups_runs_avx512_bf16(void) {
    enum { AVX512_BF16_BIT = 5 };
    unsigned a, b, c, d;
    return ups_runs_x86_64_v4() && __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a >> AVX512_BF16_BIT & 1);
}

bool ups_multiplies_bf16_fast(void) {
    return ups_runs_avx512_bf16() && __builtin_cpu_is("amd");
}

bool ups_runs_amx_bf16(void) {
    enum { REQUEST_PERMISSION = 0x1023, TILE_DATA = 18, AMX_BF16_BIT = 22, AMX_TILE_BIT = 24 };
    unsigned a, b, c, d;
    if (!ups_runs_avx512_bf16() || !__get_cpuid_count(7, 0, &a, &b, &c, &d)) return false;
    if (!(d >> AMX_BF16_BIT & 1) || !(d >> AMX_TILE_BIT & 1)) return false;
    return syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0;
}
#else
bool ups_runs_x86_64_v3(void) {
    return false;
}

bool ups_runs_x86_64_v4(void) {
    return false;
}

bool ups_gathers_fast(void) {
    return false;
}

bool ups_runs_avx512_bf16(void) {
    return false;
}

bool ups_multiplies_bf16_fast(void) {
    return false;
}

bool ups_runs_amx_bf16(void) {
    return false;
}
#endif

void ups_cpu_model(char *name, size_t size) {
    static const char key[] = "model name";
    char line[512];
    snprintf(name, size, "unknown");
    FILE *file = fopen("/proc/cpuinfo", "r");
    if (!file) return;
    while (fgets(line, sizeof line, file)) {
        const char *value = strncmp(line, key, sizeof key - 1) == 0 ? strchr(line, ':') : NULL;
        if (!value) continue;
        value += 1 + strspn(value + 1, " \t");
        snprintf(name, size, "%.*s", (int)strcspn(value, "\n"), value);
        break;
    }
    fclose(file);
}

/* Whether what is compiled for a level of x86-64 runs on this processor, under this system: everything that the level
 * lets a compiler use is there (System V ABI, AMD64 supplement, "Micro-Architecture Levels"), and the system keeps the
 * registers. All of it is asked for, since a hypervisor may hide any part. False on other processors. */
#ifndef UPS_BASE_SYSTEM_CPU_FEATURES_H
#define UPS_BASE_SYSTEM_CPU_FEATURES_H

#include <stdbool.h>
#include <stddef.h>

bool ups_runs_x86_64_v3(void); /* AVX2, BMI, F16C, FMA, LZCNT, MOVBE */
bool ups_runs_x86_64_v4(void); /* and AVX-512 F, BW, CD, DQ, VL */

/* The same and bf16 products of vectors (VDPBF16PS). */
bool ups_runs_avx512_bf16(void);

/* Whether a vector product of bf16 takes no longer than one of half as many float32: on AMD's processors that have it
 * (from Zen 4 on), and on none of Intel's, which do one such instruction where they do two of float32. */
bool ups_multiplies_bf16_fast(void);

/* The same and bf16 products on AMX tiles. Asks the kernel for its permission, which AMX needs before first use (Linux,
 * Documentation/arch/x86/xstate.rst). */
bool ups_runs_amx_bf16(void);

/* Whether one instruction that looks up a vector's lanes in memory is faster than a load a lane. Many processors do it
 * by microcode, and those of Intel until the eleventh generation hold it up, so that it does not leak what it reads
 * (CVE-2022-40982; Linux, Documentation/admin-guide/hw-vuln/gather_data_sampling.rst): true of those that have
 * AVX-VNNI, which came later. */
bool ups_gathers_fast(void);

/* The processor's name as /proc/cpuinfo has it ("model name"); "unknown" where that tells none. */
void ups_cpu_model(char *name, size_t size);

#endif

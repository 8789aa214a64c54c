#include "train/precision.h"

#include "model/cpu/device.h"
#include "model/devices/devices.h"
#include <stdio.h>
#include <string.h>

static const char *const names[] = {
    [UPS_PRECISION_AUTO] = "auto", [UPS_PRECISION_F32] = "f32",  [UPS_PRECISION_TF32] = "tf32",
    [UPS_PRECISION_BF16] = "bf16", [UPS_PRECISION_F16] = "fp16", [UPS_PRECISION_FP8] = "fp8"};

const char *ups_precision_name(ups_precision precision) {
    return names[precision];
}

bool ups_precision_find(const char *name, ups_precision *precision) {
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strcmp(names[i], name) != 0) continue;
        *precision = (ups_precision)i;
        return true;
    }
    return false;
}

static bool is_card(const char *device) {
    if (device && strcmp(device, "auto") == 0) device = ups_device_automatic();
    return device && strcmp(device, "cuda") == 0;
}

ups_precision ups_precision_resolve(ups_precision precision, const char *device) {
    if (precision != UPS_PRECISION_AUTO) return precision;
    return is_card(device) || ups_cpu_bf16_is_fast() ? UPS_PRECISION_BF16 : UPS_PRECISION_F32;
}

ups_dtype ups_precision_dtype(ups_precision precision) {
    if (precision == UPS_PRECISION_BF16 || precision == UPS_PRECISION_FP8) return UPS_BF16;
    return precision == UPS_PRECISION_F16 ? UPS_F16 : UPS_F32;
}

bool ups_precision_allows_tf32(ups_precision precision) {
    return precision == UPS_PRECISION_TF32;
}

bool ups_precision_allows_fp8(ups_precision precision) {
    return precision == UPS_PRECISION_FP8;
}

bool ups_precision_is_slow(ups_precision precision, const char *device) {
    if (is_card(device)) return false;
    const ups_dtype dtype = ups_precision_dtype(precision);
    return dtype != UPS_F32 && dtype != ups_precision_dtype(ups_precision_resolve(UPS_PRECISION_AUTO, device));
}

void ups_precision_explain(ups_precision precision, const char *device, char *text, size_t bytes) {
    bool fast = ups_cpu_bf16_is_fast(), half = precision == UPS_PRECISION_BF16;
    const char *unit = strcmp(ups_cpu_instruction_set(), "amx") == 0 ? "AMX" : "AVX-512";
    char why[120];
    if (is_card(device))
        snprintf(why, sizeof why,
                 precision == UPS_PRECISION_F32 ? "a card's tensor cores would multiply tf32 and bf16 faster"
                                                : "a card's tensor cores multiply it");
    else if (precision == UPS_PRECISION_TF32)
        snprintf(why, sizeof why, "processors compute it as f32");
    else if (precision == UPS_PRECISION_FP8)
        snprintf(why, sizeof why, "processors compute it as bf16%s", fast ? "" : "; f32 would be faster");
    else if (precision == UPS_PRECISION_F16)
        snprintf(why, sizeof why, "processors compute it in float32; %s would be faster", fast ? "bf16" : "f32");
    else if (fast)
        snprintf(why, sizeof why, half ? "%s multiplies it" : "%s would multiply bf16 faster", unit);
    else
        snprintf(why, sizeof why, "nothing here multiplies bf16 faster; %s",
                 half ? "f32 would be faster" : "bf16 would be slower");
    snprintf(text, bytes, "%s (%s)", ups_precision_name(precision), why);
}

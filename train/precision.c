#include "train/precision.h"

#include "base/files.h"
#include "base/log.h"
#include "model/cpu/device.h"
#include "train/checkpoint.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const names[] = {[UPS_PRECISION_AUTO] = "auto",
                                    [UPS_PRECISION_F32] = "f32",
                                    [UPS_PRECISION_BF16] = "bf16",
                                    [UPS_PRECISION_F16] = "fp16"};

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

ups_precision ups_precision_resolve(ups_precision precision) {
    if (precision != UPS_PRECISION_AUTO) return precision;
    return ups_cpu_bf16_is_fast() ? UPS_PRECISION_BF16 : UPS_PRECISION_F32;
}

ups_dtype ups_precision_dtype(ups_precision precision) {
    return precision == UPS_PRECISION_BF16 ? UPS_BF16 : precision == UPS_PRECISION_F16 ? UPS_F16 : UPS_F32;
}

bool ups_precision_is_slow(ups_precision precision) {
    return precision != UPS_PRECISION_F32 && precision != ups_precision_resolve(UPS_PRECISION_AUTO);
}

void ups_precision_explain(ups_precision precision, char *text, size_t bytes) {
    bool fast = ups_cpu_bf16_is_fast(), half = precision == UPS_PRECISION_BF16, fp16 = precision == UPS_PRECISION_F16;
    const char *why = fp16 && fast   ? "processors compute it in float32; bf16 would be faster"
                      : fp16         ? "processors compute it in float32; f32 would be faster"
                      : fast && half ? "AMX multiplies it"
                      : fast         ? "AMX would multiply bf16 faster"
                      : half         ? "there is no AMX to use here; f32 would be faster"
                                     : "there is no AMX to use here; bf16 would be slower";
    snprintf(text, bytes, "%s (%s)", ups_precision_name(precision), why);
}

ups_status ups_precision_recorded(const ups_run_config *config, ups_precision *recorded, ups_error *error) {
    *recorded = UPS_PRECISION_AUTO;
    char *path = ups_run_path(config, "config.yaml");
    if (!path) return ups_fail(error, UPS_ERR_MEMORY, "out of memory");
    ups_run_config *run = NULL;
    ups_status status = UPS_OK;
    if (ups_path_exists(path)) {
        status = ups_run_config_load(path, NULL, 0, &run, error);
        if (status == UPS_OK)
            *recorded = run->precision;
        else if (status != UPS_ERR_MEMORY) { /* checkpoints record it, too; only those of an earlier version do not */
            if (config->precision == UPS_PRECISION_AUTO)
                ups_log(UPS_LOG_WARNING, "the precision that the run began in is not known from its config.yaml: %s",
                        error->message);
            status = UPS_OK;
        }
    }
    ups_run_config_free(run);
    free(path);
    return status;
}

ups_status ups_precision_of_run(const ups_run_config *config, ups_precision *precision, ups_error *error) {
    ups_precision recorded, configured = config->precision; /* *precision may be the configuration's own */
    UPS_TRY(ups_precision_recorded(config, &recorded, error));
    *precision = ups_precision_resolve(configured != UPS_PRECISION_AUTO ? configured : recorded);
    return UPS_OK;
}

ups_status ups_precision_of_checkpoint(const char *checkpoint, ups_precision configured, ups_precision recorded,
                                       ups_precision *precision, ups_error *error) {
    ups_precision told = UPS_PRECISION_AUTO;
    UPS_TRY(ups_checkpoint_precision(checkpoint, &told, error));
    if (told == UPS_PRECISION_AUTO) told = recorded; /* a checkpoint of an earlier version records none */
    if (configured != UPS_PRECISION_AUTO && told != UPS_PRECISION_AUTO && told != configured) {
        const char *began = ups_precision_name(told);
        return ups_fail(error, UPS_ERR_STALE,
                        "%s: the checkpoint is of a run in %s, and `precision: %s` is configured; go on with "
                        "`precision: %s` (or auto), or begin anew with --restart",
                        checkpoint, began, ups_precision_name(configured), began);
    }
    *precision = ups_precision_resolve(told != UPS_PRECISION_AUTO ? told : configured);
    return UPS_OK;
}

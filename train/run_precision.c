#include "train/run_precision.h"

#include "base/files.h"
#include "base/log.h"
#include "train/checkpoint.h"
#include "train/config/load.h"
#include <stdlib.h>

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
    *precision = ups_precision_resolve(configured != UPS_PRECISION_AUTO ? configured : recorded, config->device.name);
    return UPS_OK;
}

ups_status ups_precision_of_checkpoint(const char *checkpoint, ups_precision configured, ups_precision recorded,
                                       const char *device, ups_precision *precision, ups_error *error) {
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
    *precision = ups_precision_resolve(told != UPS_PRECISION_AUTO ? told : configured, device);
    return UPS_OK;
}

#include "train/run/provenance.h"

#include "base/files.h"
#include "train/config/config.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_BYTES = 16 << 20 };

static ups_status describe(const char *run, json_t **provenance, ups_error *error) {
    char *config = NULL, *state = NULL, *text = NULL;
    size_t length = 0;
    json_t *stages = NULL;
    bool had = asprintf(&config, "%s/config.yaml", run) >= 0 && asprintf(&state, "%s/state.json", run) >= 0;
    ups_status status = had ? ups_read_file(config, MOST_BYTES, &text, &length, error)
                            : ups_fail(error, UPS_ERR_MEMORY, "out of memory");
    if (status == UPS_OK && ups_path_exists(state)) status = ups_json_read(state, &stages, error);
    if (status == UPS_OK)
        *provenance = json_pack("{s:s, s:s%, s:O?}", "run", run, "config", text, length, "stages", stages);
    if (status == UPS_OK && !*provenance)
        status = ups_fail(error, UPS_ERR_FORMAT, "%s: is no text in UTF-8; restore the file", config);
    json_decref(stages);
    free(text);
    free(config);
    free(state);
    return status;
}

ups_status ups_run_provenance(const char *model, json_t **provenance, ups_error *error) {
    char *folder = strdup(model), *slash = folder ? strrchr(folder, '/') : NULL;
    *provenance = NULL;
    if (!folder) return ups_fail(error, UPS_ERR_MEMORY, "out of memory");
    if (slash) slash[slash == folder ? 1 : 0] = '\0';
    char *run = ups_run_find(slash ? folder : ".");
    ups_status status = run ? describe(run, provenance, error) : UPS_OK;
    if (!run) *provenance = json_null();
    free(run);
    free(folder);
    return status;
}

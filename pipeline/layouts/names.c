#include "pipeline/layouts/names.h"

#include <stddef.h>
#include <strings.h>

static bool is_one_of(const char *name, const char *const *names) {
    for (; *names; names++) {
        if (strcasecmp(name, *names) == 0) return true;
    }
    return false;
}

bool ups_name_is_time(const char *name) {
    static const char *const names[] = {"time",     "t",         "times",     "nt",    "ntime",  "time_counter",
                                        "timestep", "time_step", "timesteps", "frame", "frames", NULL};
    return is_one_of(name, names);
}

bool ups_name_is_sample(const char *name) {
    static const char *const names[] = {"sample",       "samples",     "nsample",      "nsamples",   "n_samples",
                                        "ensemble",     "ens",         "member",       "members",    "realization",
                                        "realizations", "realisation", "realisations", "trajectory", "trajectories",
                                        "simulation",   "simulations", "run",          "runs",       "batch",
                                        "case",         "cases",       "seed",         "seeds",      NULL};
    return is_one_of(name, names);
}

bool ups_name_is_channel(const char *name) {
    static const char *const names[] = {"channel",  "channels",  "component", "components", "field", "fields",
                                        "variable", "variables", "feature",   "features",   NULL};
    return is_one_of(name, names);
}

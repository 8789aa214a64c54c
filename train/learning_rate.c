#include "train/learning_rate.h"

#include <math.h>

int64_t ups_schedule_decay_start(const ups_optimizer_config *config, int64_t steps) {
    if (config->schedule != UPS_SCHEDULE_WSD) return steps;
    int64_t decay = (int64_t)llround(config->decay_fraction * (double)steps);
    return steps - (decay < 1 ? 1 : decay > steps ? steps : decay);
}

/* Of the peak, at a share of the decay between 0 and 1. */
static double decayed(const ups_optimizer_config *config, double remaining) {
    return config->final_fraction + (1 - config->final_fraction) * remaining;
}

static double cosine(const ups_optimizer_config *config, int64_t step, int64_t warmup, int64_t steps) {
    if (steps - warmup <= 1) return 1;
    double progress = (double)(step - warmup) / (double)(steps - warmup - 1);
    return decayed(config, 0.5 * (1 + cos(M_PI * (progress > 1 ? 1 : progress))));
}

static double wsd(const ups_optimizer_config *config, int64_t step, int64_t steps) {
    const int64_t start = ups_schedule_decay_start(config, steps);
    if (step < start) return 1;
    double progress = (double)(step - start + 1) / (double)(steps - start);
    if (progress > 1) progress = 1;
    return decayed(config, 1 - (config->decay_shape == UPS_DECAY_LINEAR ? progress : sqrt(progress)));
}

/* Of the peak, after so many cuts. */
static double cut(const ups_optimizer_config *config, int64_t cuts) {
    return fmax(pow(config->plateau_factor, (double)cuts), config->final_fraction);
}

double ups_schedule_rate(const ups_optimizer_config *config, int64_t step, int64_t steps, int64_t cuts) {
    const double peak = config->learning_rate;
    const int64_t warmup = config->warmup_steps < steps ? config->warmup_steps : steps;
    if (step < warmup) return peak * (double)(step + 1) / (double)warmup;
    switch (config->schedule) {
    case UPS_SCHEDULE_CONSTANT:
        break;
    case UPS_SCHEDULE_COSINE:
        return peak * cosine(config, step, warmup, steps);
    case UPS_SCHEDULE_WSD:
        return peak * wsd(config, step, steps);
    case UPS_SCHEDULE_PLATEAU:
        return peak * cut(config, cuts);
    }
    return peak;
}

bool ups_plateau_note(ups_plateau *plateau, const ups_optimizer_config *config, double min_delta, int64_t step,
                      double score) {
    if (config->schedule != UPS_SCHEDULE_PLATEAU || !isfinite(score)) return false;
    if (!plateau->begun || score < plateau->best - min_delta) {
        plateau->begun = true;
        plateau->best = score;
        plateau->stale = 0;
        return false;
    }
    if (step < config->warmup_steps || cut(config, plateau->cuts + 1) >= cut(config, plateau->cuts)) return false;
    if (++plateau->stale < config->plateau_patience) return false;
    plateau->cuts++;
    plateau->stale = 0;
    return true;
}

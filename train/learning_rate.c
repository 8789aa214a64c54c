#include "train/learning_rate.h"

#include <math.h>

double ups_schedule_rate(const ups_optimizer_config *config, int64_t step, int64_t steps) {
    int64_t warmup = config->warmup_steps < steps ? config->warmup_steps : steps;
    if (step < warmup) return config->learning_rate * (double)(step + 1) / (double)warmup;
    if (config->schedule == UPS_SCHEDULE_CONSTANT || steps - warmup <= 1) return config->learning_rate;
    double progress = (double)(step - warmup) / (double)(steps - warmup - 1);
    if (progress > 1) progress = 1;
    double cosine = 0.5 * (1 + cos(M_PI * progress));
    return config->learning_rate * (config->final_fraction + (1 - config->final_fraction) * cosine);
}

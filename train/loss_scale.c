#include "train/loss_scale.h"

ups_loss_scale ups_loss_scale_begin(ups_dtype compute) {
    return (ups_loss_scale){.scale = compute == UPS_F16 ? UPS_LOSS_SCALE_FIRST : 0};
}

float ups_loss_scale_factor(const ups_loss_scale *scale) {
    return scale->scale > 0 ? (float)scale->scale : 1.0f;
}

void ups_loss_scale_keep(ups_loss_scale *scale) {
    if (scale->scale <= 0 || ++scale->good_steps < UPS_LOSS_SCALE_GOOD_STEPS) return;
    scale->good_steps = 0;
    if (scale->scale < UPS_LOSS_SCALE_MAXIMUM) scale->scale *= 2;
}

bool ups_loss_scale_skip(ups_loss_scale *scale) {
    if (scale->scale <= UPS_LOSS_SCALE_MINIMUM) return false;
    scale->scale /= 2;
    scale->good_steps = 0;
    scale->skipped++;
    return true;
}

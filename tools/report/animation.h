/* An animated PNG (APNG, a part of the third edition of PNG): figures one after the other, for ever. Browsers, Python's
 * Pillow and ffmpeg show it; what knows PNG alone shows the first frame.
 *
 * All pixels are kept as they were drawn. Of a frame only the rectangle that differs from the one before is stored. */
#ifndef UPS_TOOLS_REPORT_ANIMATION_H
#define UPS_TOOLS_REPORT_ANIMATION_H

#include "tools/report/figure.h"

typedef struct ups_animation ups_animation;

/* Of `frames` figures, each shown for 1 / rate seconds, the last one for a second. */
ups_status ups_animation_begin(int frames, int rate, ups_animation **animation, ups_error *error);
/* Ends a figure of the kind FRAME and takes it for the next one. All have the same size. */
ups_status ups_animation_add(ups_animation *animation, ups_figure *figure, ups_error *error);
/* Publishes it, complete or absent, once all frames were added. */
ups_status ups_animation_publish(ups_animation *animation, const char *path, ups_error *error);
void ups_animation_free(ups_animation *animation); /* NULL is fine */

#endif

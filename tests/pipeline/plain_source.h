/* A source whose every byte is known: trajectories kept as plain arrays in two files, cut into chunks of frames. The
 * value of an element tells sample, frame and place, and is a whole number that float16 holds exactly. */
#ifndef UPS_TESTS_PLAIN_SOURCE_H
#define UPS_TESTS_PLAIN_SOURCE_H

#include "pipeline/source.h"

typedef struct plain_options {
    const char *directory;
    const char *name; /* of its files, and of the task in messages */
    ups_dtype dtype;
    int64_t samples, times, elements; /* elements: of a frame, one channel */
    int64_t chunk_frames;             /* 0: one extent a trajectory */
    bool scattered;                   /* chunks lie in reverse order: no two extents are neighbours */
    bool without_extents;             /* decode reads by itself */
    bool as_stored;                   /* frames lie as decode writes them: any range is one extent of its own */
    int64_t bad_sample, bad_frame;    /* this frame holds one NaN; −1: none */
    bool bad_onward;                  /* in all samples from bad_sample on */
    int64_t undecodable;              /* decoding this sample fails; −1: none */
    double slowing;                   /* seconds by which a step is longer than the one before; the first takes 0.25 */
} plain_options;

/* Writes the files and opens them; aborts when it cannot. Closing the source removes them. */
ups_source *plain_source(const plain_options *options);

float plain_value(int64_t sample, int64_t frame, int64_t element);

#endif

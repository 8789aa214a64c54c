/* Caches to test on: smooth synthetic evolutions of latents, the same on every run, and a directory that is gone
 * afterwards. */
#ifndef UPS_TESTS_CACHE_FIXTURE_H
#define UPS_TESTS_CACHE_FIXTURE_H

#include "cache/build/writer.h"

/* latents (times, tokens, dim) of trajectory `sample`: in every channel two waves whose amplitude, frequency and phase
 * are drawn for (token, dim) and drift with the sample. Values stay within about ±4. */
void fixture_latents(int64_t sample, int64_t times, int64_t tokens, int64_t dim, float *latents);

/* A description of `samples` trajectories for task "waves", split "train", with two parameters and uniform times; the
 * arrays it points to are static. */
ups_cache_description fixture_description(int64_t samples, int64_t times, int64_t tokens, int64_t dim,
                                          int64_t samples_per_shard);

/* Puts what is not done yet, on `threads` threads, then finishes. */
ups_status fixture_build(const char *directory, const ups_cache_description *description, int threads,
                         ups_error *error);

char *fixture_directory(void);                    /* a fresh temporary directory; malloc */
void fixture_remove(char *directory);             /* removes it with all below, and frees the name */
char *fixture_join(const char *a, const char *b); /* "a/b"; malloc */

/* Fails the test unless both trees hold the same files with the same bytes. */
void fixture_assert_same_tree(const char *a, const char *b);
int64_t fixture_count_partials(const char *directory); /* temporary names below it */

#endif

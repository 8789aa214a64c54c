/* Caches to test on: smooth synthetic evolutions of latents, the same on every run, in directories that are gone
 * afterwards. */
#ifndef UPS_TESTS_CACHE_FIXTURE_H
#define UPS_TESTS_CACHE_FIXTURE_H

#include "cache/build/writer.h"
#include "cache/inspect/verify.h"
#include "cache/store/group.h"

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

/* Or fails the test. */
void fixture_must_build(const char *directory, const ups_cache_description *description, int threads);

/* A build step by step; each fails the test when it cannot be done. Latents are fixture_latents'. */
ups_cache_writer *fixture_writer(const char *directory, const ups_cache_description *description);
void fixture_put(ups_cache_writer *writer, const ups_cache_description *description, int64_t sample);
void fixture_finish(ups_cache_writer *writer); /* and closes */

/* The group waves/train of a cache, to be closed; and what verify finds in a group, good until the next call. */
ups_cache_group *fixture_group(const char *directory);
const ups_verify_report *fixture_verify(const char *group);

/* Paths, directories and bytes are the fixture's: it frees and removes them as the tear-down of a group of tests. */
int fixture_clear(void **state);
char *fixture_directory(void);                            /* fresh, temporary */
char *fixture_join(const char *a, const char *b);         /* "a/b" */
char *fixture_read(const char *path, size_t *length);     /* the bytes of a file */
void fixture_copy(const char *directory, const char *to); /* with all below */

/* Fails the test unless both trees hold the same files with the same bytes. */
void fixture_assert_same_tree(const char *a, const char *b);
int64_t fixture_count_partials(const char *directory); /* temporary names below it */

#endif

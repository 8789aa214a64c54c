/* Random changes to the files of a run's cache, one at a time, each asked three questions in this process:
 *
 *   does verify find it?  does training refuse the cache, or read exactly what it read before?
 *   does a repair leave every file with the bytes that it had?
 *
 *   attack CHANGES SEED CONFIG SIBLING...    a SIBLING is another cache, from which files are taken
 *
 * Prints a line for each change that gets a wrong answer, and at the end what was done; exit code 1 when one did. */
#include "base/files.h"
#include "base/log.h"
#include "base/progress.h"
#include "base/random.h"
#include "base/system/threads.h"
#include "cache/inspect/find.h"
#include "cache/store/group.h"
#include "cache/store/source.h"
#include "train/cache_build/repair.h"
#include "train/data/latents.h"
#include "train/session.h"

#include <fts.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_BYTES = 1 << 24, MOST_KINDS = 12 };

typedef struct kept_file {
    char *path, *bytes;
    size_t length;
} kept_file;

typedef struct kept_tree {
    kept_file *file;
    size_t count;
} kept_tree;

/* What training reads of one task and split. */
typedef struct kept_group {
    const ups_task *task;
    ups_split split;
    int64_t samples;
    size_t bytes; /* of a sample */
    char *latents;
} kept_group;

typedef struct attack {
    ups_session session;
    ups_pool *pool;
    char *cache;
    kept_tree tree, sibling;
    kept_group group[64];
    int groups;
    ups_found_paths found; /* groups, and what verify said of each */
    ups_verify_report report[64];
    ups_random stream;
    uint64_t draws;
    int64_t refused_training, served_training, by_kind[MOST_KINDS];
} attack;

static void must(ups_status status, const ups_error *error) {
    if (status == UPS_OK) return;
    printf("attack: %s\n", error->message);
    exit(2);
}

static size_t below(attack *a, size_t bound) {
    return (size_t)ups_random_below(a->stream, a->draws++, bound);
}

/* ---- files as they were ---- */

static void keep_tree(kept_tree *tree, const char *folder) {
    char *paths[] = {(char *)folder, NULL};
    FTS *walk = fts_open(paths, FTS_PHYSICAL | FTS_NOCHDIR, NULL);
    ups_error error;
    for (FTSENT *entry; (entry = fts_read(walk));) {
        if (entry->fts_info != FTS_F) continue;
        tree->file = realloc(tree->file, (tree->count + 1) * sizeof *tree->file);
        kept_file *file = &tree->file[tree->count++];
        file->path = strdup(entry->fts_path);
        must(ups_read_regular(file->path, MOST_BYTES, &file->bytes, &file->length, &error), &error);
    }
    fts_close(walk);
}

static void forget_tree(kept_tree *tree) {
    for (size_t i = 0; i < tree->count; i++) {
        free(tree->file[i].path);
        free(tree->file[i].bytes);
    }
    free(tree->file);
}

static bool is_as_kept(const kept_file *file) {
    char *bytes;
    size_t length;
    if (ups_read_regular(file->path, MOST_BYTES, &bytes, &length, NULL) != UPS_OK) return false;
    bool same = length == file->length && memcmp(bytes, file->bytes, length) == 0;
    free(bytes);
    return same;
}

static void write_file(const char *path, const char *bytes, size_t length) {
    FILE *file = fopen(path, "wb");
    if (!file || fwrite(bytes, 1, length, file) != length || fclose(file) != 0) {
        printf("attack: %s cannot be written\n", path);
        exit(2);
    }
}

/* ---- changes ---- */

static bool is_document(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash && strcmp(slash, "/zarr.json") == 0;
}

/* Another digit, letter or word for one of a document. */
static void alter_value(attack *a, char *bytes, size_t length) {
    for (int tries = 0; tries < 1000; tries++) {
        char *at = bytes + below(a, length);
        if (*at >= '0' && *at <= '9') {
            *at = (char)('0' + (*at - '0' + 1 + (int)below(a, 9)) % 10);
            return;
        }
        if (*at >= 'a' && *at <= 'z') {
            *at = (char)('a' + (*at - 'a' + 1 + (int)below(a, 25)) % 26);
            return;
        }
    }
}

static const char *const kind_names[MOST_KINDS] = {"bit",      "byte",      "truncated",
                                                   "appended", "swapped",   "deleted",
                                                   "doubled",  "sibling's", "same place of a sibling",
                                                   "value",    "garbage",   "spliced"};

/* Makes one change, and tells of it in `story`. */
static int change(attack *a, char story[1000]) {
    static const char *const garbage[] = {"", "{}", "{", "null", "[]", "{\"zarr_format\": 3}", "\xff\xfe\x00garbage"};
    kept_file *file = &a->tree.file[below(a, a->tree.count)], *other = &a->tree.file[below(a, a->tree.count)];
    const kept_file *taken = &a->sibling.file[below(a, a->sibling.count)];
    int kind = (int)below(a, MOST_KINDS);
    if (kind == 9) {
        while (!is_document(file->path)) file = &a->tree.file[below(a, a->tree.count)];
    }
    const char *inner = file->path + strlen(a->cache);
    if (kind == 8) { /* the same file of a sibling, where it has one */
        for (size_t i = 0, n = below(a, a->sibling.count); i < a->sibling.count; i++) {
            const kept_file *candidate = &a->sibling.file[(n + i) % a->sibling.count];
            size_t length = strlen(candidate->path), tail = strlen(inner);
            if (length > tail && strcmp(candidate->path + length - tail, inner) == 0) {
                taken = candidate;
                break;
            }
        }
    }
    char *bytes = malloc(file->length + 65);
    memcpy(bytes, file->bytes, file->length);
    size_t length = file->length, at = length ? below(a, length) : 0;
    snprintf(story, 1000, "%s, %s at %zu (%s)", inner, kind_names[kind], at, taken->path);
    switch (kind) {
    case 0:
        if (length) bytes[at] = (char)(bytes[at] ^ (1 << below(a, 8)));
        break;
    case 1:
        if (length) bytes[at] = (char)below(a, 256);
        break;
    case 2:
        length = at;
        break;
    case 3:
        for (size_t n = 1 + below(a, 64); n > 0; n--) bytes[length++] = (char)below(a, 256);
        break;
    case 4:
        snprintf(story, 1000, "%s, swapped with %s", inner, other->path);
        write_file(other->path, file->bytes, file->length);
        write_file(file->path, other->bytes, other->length);
        free(bytes);
        return kind;
    case 5:
        unlink(file->path);
        free(bytes);
        return kind;
    case 6:
        snprintf(story, 1000, "%s, as %s", inner, other->path);
        write_file(file->path, other->bytes, other->length);
        free(bytes);
        return kind;
    case 7:
    case 8:
        write_file(file->path, taken->bytes, taken->length);
        free(bytes);
        return kind;
    case 9:
        alter_value(a, bytes, length);
        break;
    case 10: {
        const char *text = garbage[below(a, sizeof garbage / sizeof *garbage)];
        write_file(file->path, text, strlen(text));
        free(bytes);
        return kind;
    }
    default: { /* bytes of another file in the middle of this one */
        size_t n = length - at < taken->length ? length - at : taken->length;
        memcpy(bytes + at, taken->bytes, n);
    }
    }
    write_file(file->path, bytes, length);
    free(bytes);
    return kind;
}

static bool is_changed(const attack *a) {
    for (size_t i = 0; i < a->tree.count; i++)
        if (!is_as_kept(&a->tree.file[i])) return true;
    return false;
}

/* Puts back what differs, and removes what came to it; how many files did. */
static int restore(attack *a) {
    int differing = 0;
    kept_tree now = {0};
    keep_tree(&now, a->cache);
    for (size_t i = 0; i < now.count; i++) {
        bool known = false;
        for (size_t k = 0; k < a->tree.count && !known; k++)
            known = strcmp(now.file[i].path, a->tree.file[k].path) == 0;
        if (!known) {
            unlink(now.file[i].path);
            differing++;
        }
        free(now.file[i].path);
        free(now.file[i].bytes);
    }
    free(now.file);
    for (size_t i = 0; i < a->tree.count; i++) {
        if (is_as_kept(&a->tree.file[i])) continue;
        write_file(a->tree.file[i].path, a->tree.file[i].bytes, a->tree.file[i].length);
        differing++;
    }
    return differing;
}

/* ---- the three questions ---- */

/* True when training reads all of it, and exactly what it was; false when it is refused. Anything else is a failure. */
static bool trains(attack *a, kept_group *group, bool keep, bool *wrong) {
    ups_source *source;
    ups_error error;
    if (ups_latents_open(a->session.config, group->task, group->split, &source, &error) != UPS_OK) return false;
    ups_sample sample;
    must(ups_source_describe(source, 0, &sample, &error), &error);
    size_t bytes = (size_t)sample.times * ups_sample_frame_bytes(&sample);
    if (keep) {
        group->samples = source->count;
        group->bytes = bytes;
        group->latents = malloc((size_t)source->count * bytes);
    }
    *wrong = source->count != group->samples || bytes != group->bytes;
    char *read = malloc(bytes);
    bool whole = true;
    for (int64_t i = 0; i < source->count && whole && !*wrong; i++) {
        whole = ups_source_read(source, i, (ups_frames){0, sample.times}, read, &error) == UPS_OK;
        if (keep) memcpy(group->latents + (size_t)i * bytes, read, bytes);
        if (whole && memcmp(group->latents + (size_t)i * bytes, read, bytes) != 0) *wrong = true;
    }
    free(read);
    ups_source_close(source);
    return whole;
}

static bool all_train(attack *a, bool keep, bool *wrong) {
    bool all = true;
    for (int g = 0; g < a->groups; g++) {
        bool other = false;
        all = trains(a, &a->group[g], keep, &other) && all;
        *wrong = *wrong || other;
    }
    return all;
}

/* Verifies every group; how many findings there were. The reports are for repair_all. */
static int64_t examine(attack *a) {
    int64_t findings = 0;
    ups_error error;
    must(ups_cache_find_all(a->cache, &a->found, &error), &error);
    if (a->found.count < a->groups) findings++;
    for (int64_t g = 0; g < a->found.count; g++) {
        must(ups_cache_verify(a->found.path[g], a->pool, NULL, NULL, &a->report[g], &error), &error);
        findings += a->report[g].finding_count;
    }
    return findings;
}

/* Repairs what was found; `failed` says what could not be. */
static void repair_all(attack *a, ups_error *failed) {
    ups_error error;
    failed->code = UPS_OK;
    for (int64_t g = 0; g < a->found.count; g++) {
        ups_repair_report repaired = {0};
        if (a->report[g].finding_count == 0) {
            ups_verify_report_free(&a->report[g]);
            continue;
        }
        if (ups_repair_group(&a->session, a->found.path[g], &a->report[g], a->pool, &repaired, &error) != UPS_OK) {
            *failed = error;
        } else if (repaired.after.finding_count > 0) {
            ups_fail(failed, UPS_ERR_FORMAT, "still: %.900s", repaired.after.findings[0].message);
        }
        ups_verify_report_free(&repaired.after);
        ups_verify_report_free(&a->report[g]);
    }
    ups_found_paths_free(&a->found);
}

static int attack_once(attack *a) {
    char story[1000];
    int kind;
    do {
        kind = change(a, story);
    } while (!is_changed(a));
    a->by_kind[kind]++;
    ups_error failed;
    const char *answer = NULL;
    bool wrong = false;
    if (examine(a) == 0) answer = "verify did not find it";
    bool trained = all_train(a, false, &wrong);
    a->served_training += trained;
    a->refused_training += !trained;
    if (wrong) answer = "training read something else";
    repair_all(a, &failed);
    if (failed.code != UPS_OK) answer = failed.message;
    int differing = restore(a);
    if (differing > 0 && !answer) answer = "files are not as they were after the repair";
    if (!answer) return 0;
    printf("%s: %s\n", story, answer);
    fflush(stdout);
    return 1;
}

int main(int argc, char **argv) {
    if (argc < 5) {
        printf("usage: attack CHANGES SEED CONFIG SIBLING...\n");
        return 2;
    }
    attack a = {.pool = ups_pool_create(1)};
    ups_error error;
    int64_t changes = strtoll(argv[1], NULL, 10), wrong_answers = 0;
    a.stream = ups_random_stream(strtoull(argv[2], NULL, 10), UPS_RANDOM_TEST, 0);
    ups_progress_enable(false);
    ups_log_set_level(UPS_LOG_ERROR);
    must(ups_session_open(argv[3], NULL, 0, true, &a.session, &error), &error);
    a.cache = ups_run_cache_directory(a.session.config);
    keep_tree(&a.tree, a.cache);
    for (int i = 4; i < argc; i++) keep_tree(&a.sibling, argv[i]);
    for (int i = 0; i < a.session.tasks->count * UPS_SPLIT_COUNT; i++)
        a.group[a.groups++] = (kept_group){.task = &a.session.tasks->task[i / UPS_SPLIT_COUNT],
                                           .split = (ups_split)(i % UPS_SPLIT_COUNT)};
    bool wrong = false;
    if (!all_train(&a, true, &wrong) || examine(&a) > 0) {
        printf("attack: %s is not sound to begin with\n", a.cache);
        return 2;
    }
    repair_all(&a, &error);
    double began = ups_now();
    for (int64_t i = 0; i < changes; i++) wrong_answers += attack_once(&a);
    printf("%lld changes of %zu files in %.0f s: %lld wrong answers; training refused %lld, read what it was in %lld\n",
           (long long)changes, a.tree.count, ups_now() - began, (long long)wrong_answers, (long long)a.refused_training,
           (long long)a.served_training);
    for (int k = 0; k < MOST_KINDS; k++) printf("  %s: %lld\n", kind_names[k], (long long)a.by_kind[k]);
    forget_tree(&a.tree);
    forget_tree(&a.sibling);
    for (int g = 0; g < a.groups; g++) free(a.group[g].latents);
    free(a.cache);
    ups_session_close(&a.session);
    ups_pool_destroy(a.pool);
    return wrong_answers > 0;
}

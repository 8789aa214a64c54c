#include "train/run/staged_cache.h"

#include "base/files.h"
#include "base/json.h"
#include "cache/store/group.h"
#include "train/data/latents.h"
#include "train/run/own.h"
#include "train/run/replace.h"
#include "train/state.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const char owner_name[] = "owner.json";

static ups_status no_memory(ups_error *error) {
    return ups_fail(error, UPS_ERR_MEMORY, "out of memory");
}

/* ---- whose it is ------------------------------------------------------------------------------------------------- */

/* The directory above; NULL: none. Free with free(). */
static char *above(const char *path) {
    char *parent = strdup(path), *slash = parent ? strrchr(parent, '/') : NULL;
    if (slash && slash != parent) {
        *slash = '\0';
        return parent;
    }
    free(parent);
    return NULL;
}

/* The run that owner.json names; NULL: none does. Free with free(). */
static char *read_owner(const char *next_cache) {
    char *path = NULL, *owner = NULL;
    json_t *json = NULL;
    if (asprintf(&path, "%s/%s", next_cache, owner_name) < 0) return NULL;
    if (ups_path_exists(path) && ups_json_read(path, &json, NULL) == UPS_OK) {
        const char *run = json_string_value(json_object_get(json, "run"));
        if (run) owner = strdup(run);
    }
    json_decref(json);
    free(path);
    return owner;
}

static ups_status write_owner(const char *directory, const char *output, ups_error *error) {
    char *path = NULL, *run = ups_path_absolute(output);
    json_t *json = run ? json_pack("{s:s}", "run", run) : NULL;
    ups_status status = json && asprintf(&path, "%s/%s", directory, owner_name) >= 0
                            ? ups_json_publish(path, json, error)
                            : no_memory(error);
    json_decref(json);
    free(run);
    free(path);
    return status;
}

/* The run RUN whose RUN/cache/.next it is; NULL: none. Free with free(). */
static char *run_around(const char *next_cache) {
    char *cache = above(next_cache), *run = cache ? above(cache) : NULL;
    const char *slash = cache ? strrchr(cache, '/') : NULL;
    if (run && (strcmp(slash, "/cache") != 0 || !ups_run_is_there(run))) {
        free(run);
        run = NULL;
    }
    free(cache);
    return run;
}

/* A cache within the run's own directory is nobody else's, wherever the run was moved, unless it is a link. */
static bool is_apart(const ups_run_config *config) {
    struct stat entry;
    if (config->cache.directory[0]) return true;
    char *cache = ups_run_path(config, "cache");
    const bool linked = cache && lstat(cache, &entry) == 0 && S_ISLNK(entry.st_mode);
    free(cache);
    return linked;
}

/* The other run that has it; NULL: none. Free with free(). */
static char *find_other(const ups_run_config *config, const char *next_cache) {
    char *owner = is_apart(config) ? read_owner(next_cache) : NULL, *own = ups_path_absolute(config->output);
    if (owner && own && (strcmp(owner, own) == 0 || ups_path_is_same(owner, own))) {
        free(owner);
        owner = NULL;
    }
    free(own);
    return owner;
}

static ups_status check_owner(const ups_run_config *config, const char *next_cache, ups_error *error) {
    char *other = find_other(config, next_cache);
    ups_status status = UPS_OK;
    if (other && ups_run_has_next(other)) {
        status = ups_fail(error, UPS_ERR_ARGUMENT,
                          "%s: the run %s is building its new cache there, and two cannot; end that one (ups train %s "
                          "--resume), or remove %s/next to give it up",
                          next_cache, other, other, other);
    }
    free(other);
    return status;
}

/* ---- what lies there --------------------------------------------------------------------------------------------- */

typedef struct encoders {
    char former[33], next[33]; /* hashes of the run's autoencoder, and of RUN/next's; "": none */
} encoders;

static void hash_of(const ups_run_config *config, const char *output, char hex[33]) {
    ups_run_config run = *config;
    ups_error error;
    run.output = (char *)output;
    if (ups_run_autoencoder_hash(&run, hex, &error) != UPS_OK) hex[0] = '\0';
}

/* What cannot be read is damaged, and nobody's loss. */
static bool is_made_by(const char *group, const char *one, const char *other) {
    ups_cache_group *opened = NULL;
    ups_error error;
    if (!ups_path_exists(group) || ups_cache_group_open(group, &opened, &error) != UPS_OK) return true;
    const char *made = opened->fingerprint.encoder_weights;
    bool same = strcmp(made, one) == 0 || strcmp(made, other) == 0;
    ups_cache_group_close(opened);
    return same;
}

static ups_status check_group(const ups_run_config *config, const char *cache, const char *next_cache, const char *name,
                              const encoders *e, ups_error *error) {
    char *old = NULL, *new = NULL;
    ups_status status = asprintf(&old, "%s/%s", cache, name) >= 0 && asprintf(&new, "%s/%s", next_cache, name) >= 0
                            ? UPS_OK
                            : no_memory(error);
    if (status == UPS_OK && !is_made_by(old, e->former, e->next)) {
        status =
            ups_fail(error, UPS_ERR_ARGUMENT,
                     "%s: was made by another encoder than that of the run %s, so it may be another run's cache, and "
                     "is not replaced; give this run another cache.directory, or move that cache elsewhere, or "
                     "remove it if nobody needs it",
                     old, config->output);
    }
    if (status == UPS_OK && e->next[0] && !is_made_by(new, e->next, e->next)) {
        status = ups_fail(error, UPS_ERR_ARGUMENT,
                          "%s: was made by another encoder than that of %s/next; remove both to give up what was begun "
                          "there",
                          new, config->output);
    }
    free(old);
    free(new);
    return status;
}

static ups_status check(const ups_run_config *config, bool finished, ups_error *error) {
    encoders e = {0};
    if (!is_apart(config)) return UPS_OK;
    char *next = ups_run_next(config->output), *cache = ups_run_cache_directory(config);
    char *next_cache = cache ? ups_run_next_cache(cache) : NULL;
    ups_status status = next && next_cache ? check_owner(config, next_cache, error) : no_memory(error);
    if (status == UPS_OK) hash_of(config, config->output, e.former);
    if (status == UPS_OK && finished) hash_of(config, next, e.next);
    for (unsigned i = 0; i < config->task_count * UPS_SPLIT_COUNT && status == UPS_OK; i++) {
        char name[128]; /* names of tasks have at most 64 letters */
        snprintf(name, sizeof name, "%s/%s", config->tasks[i / UPS_SPLIT_COUNT].name,
                 ups_split_name((ups_split)(i % UPS_SPLIT_COUNT)));
        status = check_group(config, cache, next_cache, name, &e, error);
    }
    free(next);
    free(cache);
    free(next_cache);
    return status;
}

ups_status ups_staged_cache_check(const ups_run_config *config, ups_error *error) {
    return check(config, false, error);
}

ups_status ups_staged_cache_check_finished(const ups_run_config *config, ups_error *error) {
    return check(config, true, error);
}

/* ---- taking it --------------------------------------------------------------------------------------------------- */

/* It appears with its owner in it. */
static ups_status make(const ups_run_config *config, const char *cache, const char *next_cache, ups_error *error) {
    ups_directory_publication *publication = NULL;
    UPS_TRY(ups_make_directories(cache, error));
    UPS_TRY(ups_publish_directory_begin(next_cache, &publication, error));
    ups_status status = write_owner(ups_publish_directory_temporary(publication), config->output, error);
    if (status == UPS_OK) return ups_publish_directory_commit(publication, error);
    ups_publish_directory_abandon(publication);
    return status;
}

/* Whether RUN/next says that its cache has been built. */
static bool was_built(const ups_run_config *config) {
    char *next = ups_run_next(config->output);
    ups_run_config staged = *config;
    ups_run_state state;
    ups_error error;
    staged.output = next;
    bool built = next && ups_run_state_read(&staged, &state, &error) == UPS_OK && state.stage[UPS_STAGE_CACHE].finished;
    free(next);
    return built;
}

ups_status ups_staged_cache_claim(const ups_run_config *config, bool fresh, ups_error *error) {
    char *cache = ups_run_cache_directory(config), *next_cache = cache ? ups_run_next_cache(cache) : NULL;
    ups_status status = next_cache ? check_owner(config, next_cache, error) : no_memory(error);
    char *other = status == UPS_OK ? find_other(config, next_cache) : NULL;
    bool there = next_cache && ups_path_exists(next_cache), built = !fresh && was_built(config);
    if (status == UPS_OK && there && (fresh || (other && !built))) {
        status = ups_remove_tree_at_once(next_cache, error); /* given up */
        there = false;
    }
    if (status == UPS_OK && !there && built) {
        status = ups_fail(error, UPS_ERR_ARGUMENT,
                          "%s: the cache that was built there for %s/next is gone; remove %s/next to give it up",
                          next_cache, config->output, config->output);
    }
    if (status == UPS_OK) {
        status = there ? write_owner(next_cache, config->output, error) : make(config, cache, next_cache, error);
    }
    free(other);
    free(cache);
    free(next_cache);
    return status;
}

ups_status ups_staged_cache_clear(const ups_run_config *config, ups_error *error) {
    char *cache = ups_run_cache_directory(config), *next_cache = cache ? ups_run_next_cache(cache) : NULL;
    char *owner = next_cache && is_apart(config) ? read_owner(next_cache) : NULL,
         *other = next_cache ? find_other(config, next_cache) : NULL;
    bool own = !is_apart(config) || (owner && !other);
    ups_status status = next_cache ? UPS_OK : no_memory(error);
    if (status == UPS_OK && own && ups_path_exists(next_cache)) status = ups_remove_tree_at_once(next_cache, error);
    free(other);
    free(owner);
    free(cache);
    free(next_cache);
    return status;
}

bool ups_staged_cache_is_given_up(const char *next_cache, char reason[600]) {
    char *around = run_around(next_cache), *owner = read_owner(next_cache);
    /* A run may have been moved since; its cache may be a link to where others build, too. */
    const char *whose = owner ? owner : around;
    const bool given_up = whose && !ups_run_has_next(whose) && !(around && ups_run_has_next(around));
    if (given_up)
        snprintf(reason, 600, "it was built to replace the cache of %.300s, which has no `next` any more: given up",
                 around ? around : whose);
    free(owner);
    free(around);
    return given_up;
}

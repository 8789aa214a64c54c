/* `ups cache prune`: says what of the caches below some directories can go, and with --yes removes it. */
#include "cache/inspect/prune.h"
#include "base/files.h"
#include "tools/command.h"
#include "tools/commands/commands.h"
#include "tools/commands/config_mistakes.h"
#include "tools/report/cache/facts.h"
#include "train/cache_build/latents_writer.h"
#include "train/data/latents.h"
#include "train/data/normalisation.h"
#include "train/run/staged_cache.h"
#include "train/session.h"
#include "train/state.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { YES, OLDER, CONFIG, SET, DRY, OPTION_COUNT };
static const ups_option options[OPTION_COUNT] = {
    [YES] = {"yes", 'y', NULL, "remove it; without this nothing is touched"},
    [OLDER] = {"older-than", 0, "AGE",
               "give up unfinished builds in which nothing changed for so long: 90m, 12h, 7d "
               "(default 7d)"},
    [CONFIG] = {"config", 0, "CONFIG", "caches of this run that something else made than what it would use now"},
    [SET] = {"set", 's', "KEY=VALUE", "overrides a key of the configuration; may be given several times"},
    [DRY] = {"dry-run", 0, NULL, "only say what would be removed: what happens without --yes"},
};

static const ups_usage usage = {
    "cache prune",
    "DIR...",
    "removes what nobody needs: files of dead builds, unfinished caches, stale ones",
    options,
    OPTION_COUNT,
    "Without --yes it only says what would go. Files of builds that run, of other hosts, and groups that hold anything "
    "that\n"
    "is no part of a cache are kept. With --config alone, DIR is that run's cache.\n\n"
    "Examples:\n"
    "  ups cache prune /data/runs\n"
    "  ups cache prune --config configs/quickstart.yaml --yes",
};

/* ---- the run that says what is stale ---- */

typedef struct run {
    ups_session session;
    char *cache;
    ups_status status; /* of the last question, when it could not be answered */
    ups_error error;
} run;

static bool same_place(const char *a, const char *b) {
    struct stat x, y;
    return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

/* Where other source data are all that differs, they may be the same ones and more. */
static bool can_be_extended(const run *r, const ups_task *task, ups_split split, const ups_cache_group *group,
                            const ups_fingerprint *expected) {
    ups_fingerprint rest = *expected;
    ups_error error;
    rest.source[0] = '\0';
    return ups_fingerprint_compare(&rest, &group->fingerprint, "it", &error) == UPS_OK &&
           ups_latents_check_extension(r->session.config, task, split, group->directory, group->fingerprint.device,
                                       &error) == UPS_OK;
}

static bool is_stale_split(run *r, const ups_task *task, ups_split split, const char *directory, bool *kept,
                           char reason[600]) {
    ups_fingerprint expected = {0};
    ups_cache_group *group = NULL;
    ups_error error;
    r->status = ups_latents_fingerprint(r->session.config, task, split, &expected, &r->error);
    if (r->status != UPS_OK || ups_cache_group_open(directory, &group, &error) != UPS_OK) return false;
    bool stale = ups_fingerprint_compare(&expected, &group->fingerprint, "it", &error) == UPS_ERR_STALE;
    *kept = stale && can_be_extended(r, task, split, group, &expected);
    ups_cache_group_close(group);
    if (stale) snprintf(reason, 600, "%.599s", error.message);
    if (*kept)
        snprintf(reason, 600, "source files were added since it was built: can be extended by `ups cache build`");
    return stale;
}

/* Only groups at the places of this run's tasks are asked about; what lies elsewhere is another run's. */
static bool is_stale(void *context, const char *directory, bool *kept, char reason[600]) {
    run *r = context;
    for (int t = 0; t < r->session.tasks->count && r->status == UPS_OK; t++) {
        const ups_task *task = &r->session.tasks->task[t];
        for (int s = 0; s < UPS_SPLIT_COUNT; s++) {
            char *place = NULL;
            if (asprintf(&place, "%s/%s/%s", r->cache, task->name, ups_split_name((ups_split)s)) < 0) continue;
            bool asked = task->splits.count[s] > 0 && same_place(place, directory);
            free(place);
            if (asked) return is_stale_split(r, task, (ups_split)s, directory, kept, reason);
        }
    }
    return false;
}

/* As the caches of the run were made: by what its autoencoder tells. Nothing is measured or written here. */
static ups_status normalise(const ups_session *session, ups_error *error) {
    char *model = ups_run_model_path(session->config, UPS_STAGE_AUTOENCODER);
    ups_status status = model ? ups_tasks_normalise_by_model(session->tasks, model, error)
                              : ups_fail(error, UPS_ERR_MEMORY, "out of memory");
    free(model);
    return status;
}

static ups_status open_run(const char *config, const char *const *overrides, size_t count, run *r, ups_error *error) {
    char hex[33];
    UPS_TRY(ups_session_open(config, overrides, count, false, &r->session, error));
    ups_status status =
        ups_run_autoencoder_hash(r->session.config, hex, error); /* without it nothing is known to be stale */
    if (status == UPS_OK) status = normalise(&r->session, error);
    if (status == UPS_OK && !(r->cache = ups_run_cache_directory(r->session.config))) {
        status = ups_fail(error, UPS_ERR_MEMORY, "out of memory");
    }
    if (status != UPS_OK) ups_session_close(&r->session);
    return status;
}

/* ---- what is found ---- */

static json_t *item_json(const ups_prune_item *item, bool removed) {
    return json_pack("{s:s, s:s, s:I, s:f, s:b, s:b, s:s}", "path", item->path, "kind", ups_prune_kind_name(item->kind),
                     "bytes", (json_int_t)item->bytes, "age_seconds", item->age, "removable", item->removable,
                     "removed", removed, "reason", item->reason);
}

static void print_item(const ups_prune_item *item, bool removed) {
    char size[24], age[24];
    printf("%-7s  %9s  %8s  %-10s  %s\n%*s%s\n",
           removed           ? "removed"
           : item->removable ? "remove"
                             : "keep",
           ups_size_text(item->bytes, size), ups_age_text(item->age, age), ups_prune_kind_name(item->kind), item->path,
           9, "", item->reason);
}

static ups_status work(const ups_prune_list *list, bool yes, json_t *result, uint64_t *freed, ups_error *error) {
    for (int64_t i = 0; i < list->count; i++) {
        const ups_prune_item *item = &list->item[i];
        bool remove = yes && item->removable;
        if (remove) UPS_TRY(ups_prune_remove(item, error));
        if (remove) *freed += item->bytes;
        if (result)
            json_array_append_new(result, item_json(item, remove));
        else
            print_item(item, remove);
    }
    return UPS_OK;
}

static void print_sum(const ups_prune_list *list, bool yes, uint64_t freed) {
    char size[24];
    if (list->count == 0)
        printf("nothing to remove\n");
    else if (yes)
        printf("%s freed\n", ups_size_text(freed, size));
    else if (list->bytes > 0)
        printf("%s would be freed; --yes removes it\n", ups_size_text(list->bytes, size));
    else
        printf("nothing can be removed\n");
}

typedef struct request {
    const char *config;
    bool yes;
    double older;
} request;

static ups_status prune(const request *wanted, const ups_arguments *arguments, ups_error *error) {
    run r = {0};
    ups_prune_list list = {0};
    ups_prune_options how = {.incomplete_age = wanted->older, .given_up = ups_staged_cache_is_given_up};
    uint64_t freed = 0;
    if (wanted->config) {
        UPS_TRY(open_run(wanted->config, arguments->overrides, arguments->override_count, &r, error));
        how.stale = is_stale;
        how.context = &r;
    }
    ups_status status = UPS_OK;
    json_t *result = arguments->json ? json_array() : NULL;
    for (int i = 0; i < arguments->operand_count && status == UPS_OK; i++) {
        status = ups_prune_find(arguments->operands[i], &how, &list, error);
    }
    if (arguments->operand_count == 0 && ups_path_exists(r.cache)) status = ups_prune_find(r.cache, &how, &list, error);
    if (status == UPS_OK && r.status != UPS_OK) {
        *error = r.error;
        status = r.status;
    }
    if (status == UPS_OK) status = work(&list, wanted->yes, result, &freed, error);
    if (status == UPS_OK && result) {
        json_t *document = json_pack("{s:O, s:I, s:I}", "items", result, "removable_bytes", (json_int_t)list.bytes,
                                     "freed_bytes", (json_int_t)freed);
        ups_print_json(document, JSON_INDENT(2));
        json_decref(document);
    } else if (status == UPS_OK) {
        print_sum(&list, wanted->yes, freed);
    }
    json_decref(result);
    ups_prune_list_free(&list);
    if (wanted->config) ups_session_close(&r.session);
    free(r.cache);
    return status;
}

int ups_cmd_cache_prune(int argc, char **argv) {
    ups_arguments arguments;
    ups_arguments_begin(&arguments, &usage, argc, argv);
    request wanted = {.older = 7 * 86400.0};
    bool dry = false;
    for (int option; (option = ups_arguments_next(&arguments)) >= 0;) {
        if (option == YES) wanted.yes = true;
        if (option == DRY) dry = true;
        if (option == CONFIG) wanted.config = arguments.value;
        if (option == SET) ups_arguments_override(&arguments);
        if (option == OLDER) ups_arguments_duration(&arguments, "d", 0, &wanted.older);
    }
    if (arguments.stop) return ups_arguments_end(&arguments);
    if (dry && wanted.yes) return ups_command_usage_error(&arguments, "--dry-run and --yes exclude each other");
    if (arguments.override_count > 0 && !wanted.config)
        return ups_command_usage_error(&arguments, "--set is of a configuration: --config was expected with it");
    if (arguments.operand_count == 0 && !wanted.config)
        return ups_command_usage_error(&arguments, "a directory was expected, or --config CONFIG");
    ups_error error;
    if (prune(&wanted, &arguments, &error) == UPS_OK) return UPS_EXIT_OK;
    return wanted.config ? ups_command_fail_on_config_at(&arguments, wanted.config, UPS_PATHS_READ, &error)
                         : ups_command_fail(&arguments, &error);
}

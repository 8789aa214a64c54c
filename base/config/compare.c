/* Two structs of a schema, key by key: what differs, in the words that printing would use. */
#include "base/config/config.h"

#include "base/config/key.h"

#include <string.h>

static const char absent[] = "absent";

typedef struct comparison {
    ups_arena *arena;
    ups_config_visit_difference visit;
    void *context;
} comparison;

static void compare_keys(const comparison *c, const char *path, const ups_config_key *keys, const char *first,
                         const char *second);

static void tell(const comparison *c, const char *path, const ups_config_key *key, const char *first,
                 const char *second) {
    if (strcmp(first, second) == 0) return;
    c->visit(c->context, &(ups_config_difference){path, first, second, key});
}

/* A list in a struct. */
typedef struct items {
    const char *at;
    unsigned count;
} items;

static items items_of(const ups_config_key *key, const char *base) {
    items list;
    memcpy(&list.at, base + key->offset, sizeof list.at);
    memcpy(&list.count, base + key->list.count_offset, sizeof list.count);
    return list;
}

static const char *list_text(const comparison *c, const ups_config_key *key, items list) {
    const char *text = "";
    for (unsigned i = 0; i < list.count; i++) {
        const char *item = ups_config_scalar_text(c->arena, key, list.at + i * key->list.item_size);
        text = ups_arena_printf(c->arena, "%s%s%s", text, i > 0 ? ", " : "", item);
    }
    return ups_arena_printf(c->arena, "[%s]", text);
}

/* What names a section of a list: its first key. */
static const char *section_text(const comparison *c, const ups_config_key *key, items list, unsigned i) {
    if (i >= list.count) return absent;
    const ups_config_key *name = key->keys;
    const char *place = list.at + i * key->list.item_size + name->offset;
    return ups_arena_printf(c->arena, "%s: %s", name->name, ups_config_scalar_text(c->arena, name, place));
}

static void compare_lists(const comparison *c, const char *path, const ups_config_key *key, items first, items second) {
    if (key->type != UPS_CONFIG_SECTION) {
        tell(c, path, key, list_text(c, key, first), list_text(c, key, second));
        return;
    }
    unsigned most = first.count > second.count ? first.count : second.count;
    for (unsigned i = 0; i < most; i++) {
        const char *item = ups_arena_printf(c->arena, "%s[%u]", path, i);
        size_t offset = i * key->list.item_size;
        if (i < first.count && i < second.count)
            compare_keys(c, item, key->keys, first.at + offset, second.at + offset);
        else
            tell(c, item, key, section_text(c, key, first, i), section_text(c, key, second, i));
    }
}

static void compare_keys(const comparison *c, const char *path, const ups_config_key *keys, const char *first,
                         const char *second) {
    for (const ups_config_key *key = keys; key->name; key++) {
        if (key->type == UPS_CONFIG_REMOVED) continue;
        const char *own = ups_config_join(c->arena, path, key->name);
        const char *left = first + key->offset, *right = second + key->offset;
        if (ups_config_is_list(key))
            compare_lists(c, own, key, items_of(key, first), items_of(key, second));
        else if (key->type == UPS_CONFIG_SECTION)
            compare_keys(c, own, key->keys, left, right);
        else
            tell(c, own, key, ups_config_scalar_text(c->arena, key, left),
                 ups_config_scalar_text(c->arena, key, right));
    }
}

ups_status ups_config_compare(const ups_config_schema *schema, const void *first, const void *second,
                              ups_config_visit_difference visit, void *context, ups_error *error) {
    comparison c = {.arena = ups_arena_create(0), .visit = visit, .context = context};
    if (!c.arena) return ups_fail(error, UPS_ERR_MEMORY, "no memory to compare configurations");
    compare_keys(&c, "", schema->keys, first, second);
    ups_arena_destroy(c.arena);
    return UPS_OK;
}

#include "base/config/mistakes.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

ups_config_mistakes *ups_config_mistakes_create(const char *path) {
    ups_arena *arena = ups_arena_create(0);
    if (!arena) return NULL;
    ups_config_mistakes *mistakes = UPS_ARENA_NEW(arena, ups_config_mistakes);
    mistakes->arena = arena;
    mistakes->path = ups_arena_strdup(arena, path);
    mistakes->list = UPS_ARENA_ARRAY(arena, ups_config_mistake, UPS_CONFIG_MOST_MISTAKES);
    return mistakes;
}

void ups_config_mistakes_destroy(ups_config_mistakes *mistakes) {
    if (mistakes) ups_arena_destroy(mistakes->arena);
}

/* Of "c.yaml:12"; an override has none. */
static size_t line_of(const ups_config_mistakes *mistakes, const char *where) {
    size_t length = strlen(mistakes->path);
    if (strncmp(where, mistakes->path, length) != 0 || where[length] != ':') return 0;
    return strtoul(where + length + 1, NULL, 10);
}

void ups_config_mistakes_add(ups_config_mistakes *mistakes, const char *where, const char *key, const char *meant,
                             const char *sentence) {
    if (mistakes->muted > 0 || mistakes->count == UPS_CONFIG_MOST_MISTAKES) return;
    mistakes->list[mistakes->count++] =
        (ups_config_mistake){ups_arena_strdup(mistakes->arena, sentence), ups_arena_strdup(mistakes->arena, key), meant,
                             line_of(mistakes, where)};
}

/* Whether one key is the other, or stands within it. */
static bool within(const char *a, const char *b) {
    size_t shorter = strlen(a), longer = strlen(b);
    if (shorter > longer) return within(b, a);
    return strncmp(a, b, shorter) == 0 && (shorter == 0 || strchr(".[", b[shorter]));
}

bool ups_config_mistakes_know(const ups_config_mistakes *mistakes, const char *key) {
    for (size_t i = 0; i < mistakes->count; i++) {
        const ups_config_mistake *mistake = &mistakes->list[i];
        if (within(mistake->key, key) || (mistake->meant && within(mistake->meant, key))) return true;
    }
    return false;
}

/* The deepest node on the way to `key`; *whole: it is that of the key itself. */
static const ups_yaml *deepest(const ups_config_mistakes *mistakes, const char *key, bool *whole) {
    const ups_yaml *node = mistakes->root;
    *whole = false;
    while (node && *key) {
        const ups_yaml *child = NULL;
        if (*key == '[') {
            size_t index = strtoul(key + 1, NULL, 10);
            child = node->kind == UPS_YAML_LIST ? node->first : NULL;
            while (child && index--) child = child->next;
            key += strcspn(key, "]") + 1;
        } else {
            int length = (int)strcspn(key, ".[");
            child = ups_yaml_child(node, ups_arena_printf(mistakes->arena, "%.*s", length, key));
            key += length;
        }
        if (!child) return node;
        node = child;
        if (*key == '.') key++;
    }
    *whole = node != NULL;
    return node;
}

const ups_yaml *ups_config_mistakes_find(const ups_config_mistakes *mistakes, const char *key) {
    bool whole;
    const ups_yaml *node = deepest(mistakes, key, &whole);
    return whole ? node : NULL;
}

void ups_config_mistakes_disagree(ups_config_mistakes *mistakes, const char *key, const char *const *with,
                                  const char *format, ...) {
    bool whole;
    const ups_yaml *place = deepest(mistakes, key, &whole);
    if (ups_config_mistakes_know(mistakes, key)) return;
    for (; with && *with; with++) {
        if (ups_config_mistakes_know(mistakes, *with)) return;
        const ups_yaml *other = ups_config_mistakes_find(mistakes, *with);
        bool nearer = other && (!whole || (ups_yaml_is_override(other) && !ups_yaml_is_override(place)));
        if (!nearer) continue;
        place = other;
        whole = true;
    }
    char problem[1000];
    va_list args;
    va_start(args, format);
    vsnprintf(problem, sizeof problem, format, args);
    va_end(args);
    const char *where = place && place != mistakes->root ? place->where : mistakes->path;
    ups_config_mistakes_add(mistakes, where, key, NULL,
                            ups_arena_printf(mistakes->arena, "%s: %s: %s", where, key, problem));
}

void ups_config_mistakes_sort(ups_config_mistakes *mistakes) {
    for (size_t i = 1; i < mistakes->count; i++) { /* by insertion: few, and those of a line keep their order */
        ups_config_mistake moved = mistakes->list[i];
        size_t at = i;
        for (; at > 0 && mistakes->list[at - 1].line - 1 > moved.line - 1; at--) {
            mistakes->list[at] = mistakes->list[at - 1];
        }
        mistakes->list[at] = moved;
    }
}

#include "base/config/annotate.h"

#include "base/config/key.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WIDTH = 118, STEP = 2 }; /* columns of a comment's line; spaces a level */

/* `text` as comment lines, broken between words. */
static void write_comment(FILE *file, int indent, const char *text) {
    int column = 0;
    while (*text) {
        int length = (int)strcspn(text, " ");
        if (column > 0 && column + 1 + length > WIDTH) {
            fputc('\n', file);
            column = 0;
        }
        column +=
            column > 0 ? fprintf(file, " %.*s", length, text) : fprintf(file, "%*s# %.*s", indent, "", length, text);
        text += length;
        text += strspn(text, " ");
    }
    fputc('\n', file);
}

static void write_help(FILE *file, int indent, ups_arena *arena, const ups_config_key *key) {
    if (!key || !key->help) return;
    const char *expected = ups_config_expected(arena, key, false), *preset = key->default_value;
    const char *text = preset ? ups_arena_printf(arena, "%s (%s; default %s)", key->help, expected, preset)
                              : ups_arena_printf(arena, "%s (%s)", key->help, expected);
    write_comment(file, indent, text);
}

/* In quotes where the node says so: YAML's double quotes, in which a backslash escapes. */
static void write_scalar(FILE *file, const ups_yaml *node) {
    if (!node->quoted) {
        fputs(node->text, file);
        return;
    }
    fputc('"', file);
    for (const char *at = node->text; *at; at++) {
        unsigned char byte = (unsigned char)*at;
        if (byte < ' ' || byte == 0x7f) {
            fprintf(file, "\\x%02x", byte);
            continue;
        }
        if (byte == '"' || byte == '\\') fputc('\\', file);
        fputc(byte, file);
    }
    fputc('"', file);
}

static void write_flow(FILE *file, const ups_yaml *list) {
    fputc('[', file);
    for (const ups_yaml *item = list->first; item; item = item->next) {
        write_scalar(file, item);
        if (item->next) fputs(", ", file);
    }
    fputs("]\n", file);
}

static void write_mapping(FILE *file, int indent, ups_arena *arena, const ups_config_key *keys, const ups_yaml *mapping,
                          bool item, bool commented);

static void write_value(FILE *file, int indent, ups_arena *arena, const ups_config_key *key, const ups_yaml *node,
                        bool commented) {
    const ups_config_key *below = key ? key->keys : NULL;
    if (node->kind == UPS_YAML_SCALAR) {
        fputc(' ', file);
        write_scalar(file, node);
        fputc('\n', file);
    } else if (node->kind == UPS_YAML_MAPPING) {
        fputc('\n', file);
        write_mapping(file, indent + STEP, arena, below, node, false, commented);
    } else if (!node->first || node->first->kind == UPS_YAML_SCALAR) {
        fputc(' ', file);
        write_flow(file, node);
    } else {
        fputc('\n', file);
        for (const ups_yaml *item = node->first; item; item = item->next) {
            write_mapping(file, indent + STEP, arena, below, item, true, commented && item == node->first);
        }
    }
}

/* An item's first line begins with "- "; its comments come before. */
static void write_mapping(FILE *file, int indent, ups_arena *arena, const ups_config_key *keys, const ups_yaml *mapping,
                          bool item, bool commented) {
    int inside = item ? indent + STEP : indent;
    for (const ups_yaml *child = mapping->first; child; child = child->next) {
        const ups_config_key *key = keys ? ups_config_find_key(keys, child->key) : NULL;
        bool first = child == mapping->first, dash = item && first;
        if (indent == 0 && child->kind != UPS_YAML_SCALAR) fputc('\n', file);
        if (commented) write_help(file, dash ? indent : inside, arena, key);
        fprintf(file, "%*s%s%s:", dash ? indent : inside, "", dash ? "- " : "", child->key);
        write_value(file, inside, arena, key, child, commented);
    }
}

ups_status ups_config_annotate(const ups_config_schema *schema, const ups_yaml *root, const char *heading, char **text,
                               ups_error *error) {
    size_t length = 0;
    *text = NULL;
    ups_arena *arena = ups_arena_create(0);
    FILE *file = arena ? open_memstream(text, &length) : NULL;
    bool written = false;
    if (file) {
        while (*heading) {
            int line = (int)strcspn(heading, "\n");
            fprintf(file, "#%s%.*s\n", line > 0 ? " " : "", line, heading);
            heading += line;
            heading += *heading == '\n';
        }
        fputc('\n', file);
        write_mapping(file, 0, arena, schema->keys, root, false, true);
        written = !ferror(file);
        written = fclose(file) == 0 && written;
    }
    ups_arena_destroy(arena);
    if (written) return UPS_OK;
    free(*text);
    *text = NULL;
    return ups_fail(error, UPS_ERR_MEMORY, "no memory to write a configuration");
}

#include "base/config/document.h"

#include <stdlib.h>
#include <string.h>
#include <yaml.h>

/* Aliases are copied out, so that a small document may describe a huge tree, or one without end ("&a [*a]"). */
enum { NODE_LIMIT = 100000, DEPTH_LIMIT = 64 };

ups_yaml *ups_yaml_scalar(ups_arena *arena, const char *text, bool quoted) {
    ups_yaml *node = UPS_ARENA_NEW(arena, ups_yaml);
    node->kind = UPS_YAML_SCALAR;
    node->where = "";
    node->text = text;
    node->quoted = quoted;
    return node;
}

ups_yaml *ups_yaml_collection(ups_arena *arena, ups_yaml_kind kind, const char *where) {
    ups_yaml *node = UPS_ARENA_NEW(arena, ups_yaml);
    node->kind = kind;
    node->where = where;
    return node;
}

void ups_yaml_append(ups_yaml *parent, ups_yaml *child, const char *key) {
    child->key = key;
    child->next = NULL;
    if (parent->last)
        parent->last->next = child;
    else
        parent->first = child;
    parent->last = child;
}

ups_yaml *ups_yaml_child(const ups_yaml *mapping, const char *key) {
    if (mapping->kind != UPS_YAML_MAPPING) return NULL;
    for (ups_yaml *child = mapping->first; child; child = child->next) {
        if (strcmp(child->key, key) == 0) return child;
    }
    return NULL;
}

bool ups_yaml_is_override(const ups_yaml *node) {
    return strncmp(node->where, "--set ", 6) == 0;
}

bool ups_yaml_is_null(const ups_yaml *node) {
    static const char *const spellings[] = {"", "~", "null", "Null", "NULL"};
    if (node->kind != UPS_YAML_SCALAR || node->quoted) return false;
    for (size_t i = 0; i < sizeof spellings / sizeof *spellings; i++) {
        if (strcmp(node->text, spellings[i]) == 0) return true;
    }
    return false;
}

/* Copies a libyaml document into a tree. */
typedef struct copier {
    ups_arena *arena;
    yaml_document_t *document;
    const char *name;
    bool numbered;
    int nodes;
    ups_error *error;
} copier;

static const char *place(const copier *c, yaml_mark_t mark) {
    return c->numbered ? ups_arena_printf(c->arena, "%s:%zu", c->name, mark.line + 1) : c->name;
}

static ups_status copy(copier *c, int id, int depth, ups_yaml **out);

/* "<<: *base" and "<<: [*a, *b]": what the mapping does not have itself comes from there, the first that has it. */
static ups_status merge(copier *c, ups_yaml *into, const ups_yaml *from) {
    const char *rule = "'<<' takes a mapping or a list of mappings";
    if (from->kind == UPS_YAML_SCALAR) return ups_fail(c->error, UPS_ERR_CONFIG, "%s: %s", from->where, rule);
    for (ups_yaml *child = from->first, *next; child; child = next) {
        next = child->next;
        if (from->kind == UPS_YAML_MAPPING) {
            if (!ups_yaml_child(into, child->key)) ups_yaml_append(into, child, child->key);
        } else if (child->kind == UPS_YAML_MAPPING) {
            UPS_TRY(merge(c, into, child));
        } else {
            return ups_fail(c->error, UPS_ERR_CONFIG, "%s: %s", child->where, rule);
        }
    }
    return UPS_OK;
}

static ups_status copy_mapping(copier *c, const yaml_node_t *from, int depth, ups_yaml *node) {
    ups_yaml *merged = ups_yaml_collection(c->arena, UPS_YAML_LIST, node->where);
    const yaml_node_pair_t *pair = from->data.mapping.pairs.start;
    for (; pair < from->data.mapping.pairs.top; pair++) {
        const yaml_node_t *key_node = yaml_document_get_node(c->document, pair->key);
        const char *where = place(c, key_node->start_mark);
        ups_yaml *key = NULL, *child = NULL;
        UPS_TRY(copy(c, pair->key, depth + 1, &key));
        if (key->kind != UPS_YAML_SCALAR) {
            return ups_fail(c->error, UPS_ERR_CONFIG,
                            "%s: a list or mapping stands where the name of a key was expected", where);
        }
        UPS_TRY(copy(c, pair->value, depth + 1, &child));
        child->where = where;
        bool is_merge = !key->quoted && strcmp(key->text, "<<") == 0;
        ups_yaml_append(is_merge ? merged : node, child, is_merge ? NULL : key->text);
    }
    for (ups_yaml *base = merged->first; base; base = base->next) UPS_TRY(merge(c, node, base));
    return UPS_OK;
}

static ups_status copy(copier *c, int id, int depth, ups_yaml **out) {
    const yaml_node_t *from = yaml_document_get_node(c->document, id);
    const char *where = place(c, from->start_mark);
    if (depth > DEPTH_LIMIT || ++c->nodes > NODE_LIMIT) {
        return ups_fail(c->error, UPS_ERR_CONFIG,
                        "%s: nested more than %d deep, or more than %d values once aliases are written out", where,
                        DEPTH_LIMIT, NODE_LIMIT);
    }
    switch (from->type) {
    case YAML_SCALAR_NODE: {
        const char *text = (const char *)from->data.scalar.value;
        if (strlen(text) != from->data.scalar.length) {
            return ups_fail(c->error, UPS_ERR_CONFIG, "%s: a NUL character stands inside a text", where);
        }
        *out = ups_yaml_scalar(c->arena, ups_arena_strdup(c->arena, text),
                               from->data.scalar.style != YAML_PLAIN_SCALAR_STYLE);
        (*out)->where = where;
        return UPS_OK;
    }
    case YAML_SEQUENCE_NODE:
        *out = ups_yaml_collection(c->arena, UPS_YAML_LIST, where);
        for (const yaml_node_item_t *item = from->data.sequence.items.start; item < from->data.sequence.items.top;
             item++) {
            ups_yaml *child = NULL;
            UPS_TRY(copy(c, *item, depth + 1, &child));
            ups_yaml_append(*out, child, NULL);
        }
        return UPS_OK;
    case YAML_MAPPING_NODE:
        *out = ups_yaml_collection(c->arena, UPS_YAML_MAPPING, where);
        return copy_mapping(c, from, depth, *out);
    case YAML_NO_NODE:
        break;
    }
    return ups_fail(c->error, UPS_ERR_CONFIG, "%s: unknown kind of YAML node", where);
}

bool ups_yaml_is_shallow(const char *text, size_t length, size_t *line) {
    yaml_parser_t parser;
    if (!yaml_parser_initialize(&parser)) return true;
    yaml_parser_set_input_string(&parser, (const unsigned char *)text, length);
    int depth = 0;
    for (bool more = true; more && depth <= DEPTH_LIMIT;) {
        yaml_token_t token;
        if (!yaml_parser_scan(&parser, &token)) break; /* said by whoever parses it */
        switch (token.type) {
        case YAML_BLOCK_SEQUENCE_START_TOKEN:
        case YAML_BLOCK_MAPPING_START_TOKEN:
        case YAML_FLOW_SEQUENCE_START_TOKEN:
        case YAML_FLOW_MAPPING_START_TOKEN:
            depth++;
            break;
        case YAML_BLOCK_END_TOKEN:
        case YAML_FLOW_SEQUENCE_END_TOKEN:
        case YAML_FLOW_MAPPING_END_TOKEN:
            depth--;
            break;
        default:
            more = token.type != YAML_STREAM_END_TOKEN;
        }
        *line = token.start_mark.line + 1;
        yaml_token_delete(&token);
    }
    yaml_parser_delete(&parser);
    return depth <= DEPTH_LIMIT;
}

static ups_status syntax_error(const copier *c, const yaml_parser_t *parser, const char *text, size_t length) {
    size_t index = parser->problem_mark.index;
    size_t line = parser->problem_mark.line;
    if (parser->error == YAML_MEMORY_ERROR)
        return ups_fail(c->error, UPS_ERR_MEMORY, "%s: no memory to read it", c->name);
    if (parser->error == YAML_READER_ERROR) { /* bytes that are no UTF-8: the parser knows the place in bytes only */
        index = parser->problem_offset;
        line = 0;
        for (size_t i = 0; i < index && i < length; i++) line += text[i] == '\n';
    }
    const char *hint = c->numbered ? "" : " (put the value in quotes if it is meant as text)";
    if (index < length && text[index] == '\t') hint = " (YAML does not allow tabs for indentation: use spaces)";
    const char *where = place(c, (yaml_mark_t){.line = line});
    const char *context = parser->context ? parser->context : "", *comma = parser->context ? ", " : "";
    return ups_fail(c->error, UPS_ERR_CONFIG, "%s: not valid YAML: %s%s%s%s", where, context, comma,
                    parser->problem ? parser->problem : "unreadable", hint);
}

ups_status ups_yaml_parse(ups_arena *arena, const char *name, bool numbered, const char *text, size_t length,
                          ups_yaml **root, ups_error *error) {
    *root = NULL;
    yaml_parser_t parser;
    yaml_document_t document, second;
    copier c = {.arena = arena, .document = &document, .name = name, .numbered = numbered, .error = error};
    size_t line;
    if (!ups_yaml_is_shallow(text, length, &line))
        return ups_fail(error, UPS_ERR_CONFIG, "%s: nested more than %d deep",
                        place(&c, (yaml_mark_t){.line = line - 1}), DEPTH_LIMIT);
    if (!yaml_parser_initialize(&parser)) return ups_fail(error, UPS_ERR_MEMORY, "%s: no memory to read it", name);
    yaml_parser_set_input_string(&parser, (const unsigned char *)text, length);
    if (!yaml_parser_load(&parser, &document)) {
        ups_status failed = syntax_error(&c, &parser, text, length);
        yaml_parser_delete(&parser);
        return failed;
    }
    ups_status status = UPS_OK;
    if (yaml_document_get_root_node(&document)) {
        status = copy(&c, 1, 0, root);
        if (status == UPS_OK && !yaml_parser_load(&parser, &second)) {
            status = syntax_error(&c, &parser, text, length);
        } else if (status == UPS_OK) {
            const yaml_node_t *more = yaml_document_get_root_node(&second);
            if (more) {
                status = ups_fail(error, UPS_ERR_CONFIG, "%s: a second YAML document begins here; one was expected",
                                  place(&c, more->start_mark));
            }
            yaml_document_delete(&second);
        }
    }
    yaml_document_delete(&document);
    yaml_parser_delete(&parser);
    return status;
}

static void replace(ups_yaml *old, const ups_yaml *new_node) {
    ups_yaml *next = old->next;
    const char *key = old->key;
    *old = *new_node;
    old->next = next;
    old->key = key;
}

/* The item [index] of `list`; created when it is the next one. NULL with the error recorded otherwise. */
static ups_yaml *item_at(ups_arena *arena, ups_yaml *list, long index, const char *where, const char *path,
                         ups_error *error) {
    long count = 0;
    for (ups_yaml *item = list->first; item; item = item->next, count++) {
        if (count == index) return item;
    }
    if (index == count) {
        ups_yaml *made = ups_yaml_scalar(arena, "", false);
        made->where = where;
        ups_yaml_append(list, made, NULL);
        return made;
    }
    ups_fail(error, UPS_ERR_CONFIG, "%s: '%s' has %ld item%s, counted from 0; there is no item %ld", where, path, count,
             count == 1 ? "" : "s", index);
    return NULL;
}

ups_status ups_yaml_set(ups_arena *arena, ups_yaml *root, const char *assignment, ups_error *error) {
    const char *where = ups_arena_printf(arena, "--set %s", assignment);
    const char *equals = strchr(assignment, '=');
    if (!equals || equals == assignment) {
        return ups_fail(error, UPS_ERR_CONFIG, "%s: KEY=VALUE was expected, as in --set operator.steps=4000", where);
    }
    ups_yaml *value = NULL;
    UPS_TRY(ups_yaml_parse(arena, where, false, equals + 1, strlen(equals + 1), &value, error));
    if (!value) {
        value = ups_yaml_scalar(arena, "", false);
        value->where = where;
    }

    ups_yaml *node = root;
    int depth = 0;
    for (const char *at = assignment; at < equals; depth++) {
        if (depth == DEPTH_LIMIT)
            return ups_fail(error, UPS_ERR_CONFIG, "--set %.40s…: more than %d keys, one below the other", assignment,
                            DEPTH_LIMIT);
        char *walked = ups_arena_printf(arena, "%.*s", (int)(at - assignment), assignment); /* for messages */
        size_t walked_length = strlen(walked);
        if (walked_length > 0 && walked[walked_length - 1] == '.') walked[walked_length - 1] = '\0';
        if (*at == '[') {
            char *end;
            long index = strtol(at + 1, &end, 10);
            if (end == at + 1 || *end != ']' || index < 0 || (end[1] != '.' && end[1] != '[' && end[1] != '=')) {
                return ups_fail(error, UPS_ERR_CONFIG, "%s: '%.*s' is no item of a list; [0], [1], … was expected",
                                where, (int)(equals - at), at);
            }
            if (ups_yaml_is_null(node)) replace(node, ups_yaml_collection(arena, UPS_YAML_LIST, where));
            if (node->kind != UPS_YAML_LIST)
                return ups_fail(error, UPS_ERR_CONFIG, "%s: '%s' is not a list", where, walked);
            node = item_at(arena, node, index, where, walked, error);
            if (!node) return UPS_ERR_CONFIG;
            at = end + 1;
        } else {
            size_t length = strcspn(at, ".[=");
            if (length == 0)
                return ups_fail(error, UPS_ERR_CONFIG, "%s: the name of a key is missing before '%c'", where, *at);
            const char *key = ups_arena_printf(arena, "%.*s", (int)length, at);
            if (ups_yaml_is_null(node)) replace(node, ups_yaml_collection(arena, UPS_YAML_MAPPING, where));
            if (node->kind != UPS_YAML_MAPPING) {
                return ups_fail(error, UPS_ERR_CONFIG, "%s: '%s' is not a mapping, it has no keys%s", where, walked,
                                node->kind == UPS_YAML_LIST ? "; it is a list: name an item, as in [0]" : "");
            }
            ups_yaml *child = ups_yaml_child(node, key);
            if (!child) {
                child = ups_yaml_scalar(arena, "", false);
                child->where = where;
                ups_yaml_append(node, child, key);
            }
            node = child;
            at += length;
        }
        if (*at == '.' && at + 1 == equals) {
            return ups_fail(error, UPS_ERR_CONFIG, "%s: the name of a key is missing after '.'", where);
        }
        if (*at == '.') at++;
    }
    replace(node, value);
    return UPS_OK;
}

/* Text that grows as the emitter writes. */
typedef struct growing {
    char *text;
    size_t length, capacity;
} growing;

static int append_bytes(void *context, unsigned char *bytes, size_t count) {
    growing *g = context;
    if (g->length + count + 1 > g->capacity) {
        size_t capacity = 2 * (g->length + count + 1);
        char *larger = realloc(g->text, capacity);
        if (!larger) return 0;
        g->text = larger;
        g->capacity = capacity;
    }
    memcpy(g->text + g->length, bytes, count);
    g->length += count;
    g->text[g->length] = '\0';
    return 1;
}

static bool emit_scalar(yaml_emitter_t *emitter, const char *text, bool quoted) {
    yaml_event_t event;
    yaml_scalar_style_t style = quoted ? YAML_DOUBLE_QUOTED_SCALAR_STYLE : YAML_PLAIN_SCALAR_STYLE;
    return yaml_scalar_event_initialize(&event, NULL, NULL, (const yaml_char_t *)text, (int)strlen(text), 1, 1,
                                        style) &&
           yaml_emitter_emit(emitter, &event);
}

static bool only_scalars(const ups_yaml *list) {
    for (const ups_yaml *item = list->first; item; item = item->next) {
        if (item->kind != UPS_YAML_SCALAR) return false;
    }
    return true;
}

static bool emit_node(yaml_emitter_t *emitter, const ups_yaml *node) {
    yaml_event_t event;
    if (ups_yaml_is_null(node)) return emit_scalar(emitter, "null", false); /* an empty text would come back as one */
    if (node->kind == UPS_YAML_SCALAR) return emit_scalar(emitter, node->text, node->quoted);
    if (node->kind == UPS_YAML_LIST) {
        yaml_sequence_style_t style = only_scalars(node) ? YAML_FLOW_SEQUENCE_STYLE : YAML_BLOCK_SEQUENCE_STYLE;
        if (!yaml_sequence_start_event_initialize(&event, NULL, NULL, 1, style)) return false;
    } else if (!yaml_mapping_start_event_initialize(&event, NULL, NULL, 1, YAML_BLOCK_MAPPING_STYLE)) {
        return false;
    }
    if (!yaml_emitter_emit(emitter, &event)) return false;
    for (const ups_yaml *child = node->first; child; child = child->next) {
        if (node->kind == UPS_YAML_MAPPING && !emit_scalar(emitter, child->key, strcmp(child->key, "<<") == 0))
            return false;
        if (!emit_node(emitter, child)) return false;
    }
    int made = node->kind == UPS_YAML_LIST ? yaml_sequence_end_event_initialize(&event)
                                           : yaml_mapping_end_event_initialize(&event);
    return made && yaml_emitter_emit(emitter, &event);
}

ups_status ups_yaml_emit(const ups_yaml *root, char **text, size_t *length, ups_error *error) {
    growing g = {0};
    yaml_emitter_t emitter;
    yaml_event_t event;
    *text = NULL;
    if (!yaml_emitter_initialize(&emitter)) return ups_fail(error, UPS_ERR_MEMORY, "no memory to write YAML");
    yaml_emitter_set_output(&emitter, append_bytes, &g);
    yaml_emitter_set_unicode(&emitter, 1);
    yaml_emitter_set_width(&emitter, -1); /* lines are not folded */
    bool done = yaml_stream_start_event_initialize(&event, YAML_UTF8_ENCODING) && yaml_emitter_emit(&emitter, &event) &&
                yaml_document_start_event_initialize(&event, NULL, NULL, NULL, 1) &&
                yaml_emitter_emit(&emitter, &event) && emit_node(&emitter, root) &&
                yaml_document_end_event_initialize(&event, 1) && yaml_emitter_emit(&emitter, &event) &&
                yaml_stream_end_event_initialize(&event) && yaml_emitter_emit(&emitter, &event);
    ups_status status = UPS_OK;
    if (!done) {
        status = ups_fail(error, emitter.error == YAML_EMITTER_ERROR ? UPS_ERR_CONFIG : UPS_ERR_MEMORY,
                          "YAML cannot be written: %s", emitter.problem ? emitter.problem : "no memory");
        free(g.text);
    } else {
        *text = g.text;
        *length = g.length;
    }
    yaml_emitter_delete(&emitter);
    return status;
}

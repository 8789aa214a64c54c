/* What a table says of one key: shared by loading (config.c) and printing (print.c). */
#ifndef UPS_BASE_CONFIG_KEY_H
#define UPS_BASE_CONFIG_KEY_H

#include "base/arena.h"
#include "base/config/table.h"

const ups_config_key *ups_config_find_key(const ups_config_key *keys, const char *name); /* NULL: none */

/* "a.b" and "c" to "a.b.c"; the root's path is "". */
const char *ups_config_join(ups_arena *arena, const char *path, const char *name);

bool ups_config_is_list(const ups_config_key *key);
bool ups_config_takes_single(const ups_config_key *key); /* a scalar stands for a list of one */
/* What the key must be, for messages: "a whole number between 1 and 64, or auto"; `item`: what a list's item must be.
 */
const char *ups_config_expected(ups_arena *arena, const ups_config_key *key, bool item);

size_t ups_config_size(ups_config_type type); /* bytes of a scalar in the struct */
/* The word that the scalar at `place` stands for ("auto", of a number that is 0); NULL where it is a value. */
const char *ups_config_word_at(const ups_config_key *key, const void *place);
bool ups_config_is_real(ups_config_type type);
bool ups_config_has_range(const ups_config_key *key);
bool ups_config_in_range(const ups_config_key *key, double number);

/* Strictly decimal text to a number of that type at `place`, with its value in *number; false when it is none or out of
 * the type's reach (*too_large says which). */
bool ups_config_parse_number(const char *text, ups_config_type type, void *place, double *number, bool *too_large);
/* A scalar in a struct as text, the fewest digits that read back as the same value. */
const char *ups_config_scalar_text(ups_arena *arena, const ups_config_key *key, const void *place);
bool ups_config_parse_bool(const char *text, bool *value);

#endif

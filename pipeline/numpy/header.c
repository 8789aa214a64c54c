#include "pipeline/numpy/header.h"

#include <stdlib.h>
#include <string.h>

/* ---- the dictionary -----------------------------------------------------------------------------------------------
 */

typedef struct scanner {
    const char *at; /* ends with a NUL */
    ups_error *error;
} scanner;

static ups_status damaged(const scanner *s, const char *expected) {
    return ups_fail(s->error, UPS_ERR_FORMAT, "its NPY header is damaged: %s was expected at '%.20s'", expected, s->at);
}

static void skip_blanks(scanner *s) {
    while (*s->at == ' ' || *s->at == '\n' || *s->at == '\t') s->at++;
}

static bool take(scanner *s, char c) {
    skip_blanks(s);
    if (*s->at != c) return false;
    s->at++;
    return true;
}

static bool take_word(scanner *s, const char *word) {
    skip_blanks(s);
    if (strncmp(s->at, word, strlen(word)) != 0) return false;
    s->at += strlen(word);
    return true;
}

/* 'text' or "text", cut to what there is room for. */
static ups_status take_text(scanner *s, char *text, size_t room) {
    skip_blanks(s);
    const char quote = *s->at;
    if (quote != '\'' && quote != '"') return damaged(s, "a text");
    const char *end = strchr(++s->at, quote);
    if (!end) return damaged(s, "the end of a text");
    size_t length = (size_t)(end - s->at);
    if (length >= room) length = room - 1;
    memcpy(text, s->at, length);
    text[length] = '\0';
    s->at = end + 1;
    return UPS_OK;
}

/* A list of fields is passed over: brackets and texts in it. */
static ups_status take_type(scanner *s, ups_npy_header *header) {
    skip_blanks(s);
    if (*s->at != '[') return take_text(s, header->type, sizeof header->type);
    strcpy(header->type, "structured");
    int depth = 0;
    do {
        char text[2];
        if (*s->at == '\'' || *s->at == '"') {
            UPS_TRY(take_text(s, text, sizeof text));
            continue;
        }
        depth += *s->at == '[' || *s->at == '(';
        depth -= *s->at == ']' || *s->at == ')';
        if (!*s->at) return damaged(s, "the end of a list of fields");
        s->at++;
    } while (depth > 0);
    return UPS_OK;
}

static ups_status take_shape(scanner *s, ups_npy_header *header) {
    if (!take(s, '(')) return damaged(s, "a tuple");
    header->elements = 1;
    while (!take(s, ')')) {
        skip_blanks(s);
        if (*s->at < '0' || *s->at > '9') return damaged(s, "a length");
        char *end;
        unsigned long long length = strtoull(s->at, &end, 10);
        s->at = *end == 'L' ? end + 1 : end; /* as Python 2 wrote it */
        if (header->rank == UPS_ARRAY_MAX_RANK)
            return ups_fail(s->error, UPS_ERR_UNSUPPORTED, "it has more than %d axes", UPS_ARRAY_MAX_RANK);
        /* times eight bytes it must fit a file's size */
        if (length > INT64_MAX / 8 || __builtin_mul_overflow(header->elements, length, &header->elements) ||
            header->elements > INT64_MAX / 8)
            return ups_fail(s->error, UPS_ERR_FORMAT, "its NPY header claims more elements than memory has addresses");
        header->shape[header->rank++] = (int64_t)length;
        if (!take(s, ',') && *s->at != ')') return damaged(s, "',' or ')'");
    }
    return UPS_OK;
}

static ups_status take_entry(scanner *s, ups_npy_header *header, int *found) {
    char key[24];
    UPS_TRY(take_text(s, key, sizeof key));
    if (!take(s, ':')) return damaged(s, "':'");
    if (strcmp(key, "descr") == 0) {
        *found |= 1;
        return take_type(s, header);
    }
    if (strcmp(key, "shape") == 0) {
        if (*found & 2) return damaged(s, "one shape");
        *found |= 2;
        return take_shape(s, header);
    }
    if (strcmp(key, "fortran_order") != 0) return damaged(s, "'descr', 'fortran_order' or 'shape'");
    *found |= 4;
    header->fortran = take_word(s, "True");
    return header->fortran || take_word(s, "False") ? UPS_OK : damaged(s, "True or False");
}

static ups_status parse_dictionary(char *text, ups_npy_header *header, ups_error *error) {
    scanner s = {text, error};
    int found = 0;
    if (!take(&s, '{')) return damaged(&s, "'{'");
    while (!take(&s, '}')) {
        UPS_TRY(take_entry(&s, header, &found));
        if (!take(&s, ',') && *s.at != '}') return damaged(&s, "',' or '}'");
    }
    if (found != 7) return damaged(&s, "'descr', 'fortran_order' and 'shape'");
    header->numeric = ups_number_of_numpy(header->type, &header->number, &header->swapped);
    return UPS_OK;
}

ups_status ups_npy_header_parse(const uint8_t *bytes, size_t length, ups_npy_header *header, size_t *wanted,
                                ups_error *error) {
    enum { MAGIC = 6, VERSION_1_PREFIX = 10, LATER_PREFIX = 12 };
    *header = (ups_npy_header){0};
    *wanted = length < LATER_PREFIX ? LATER_PREFIX : 0;
    if (*wanted) return ups_fail(error, UPS_ERR_FORMAT, "it ends within its NPY header");
    if (memcmp(bytes, "\x93NUMPY", MAGIC) != 0)
        return ups_fail(error, UPS_ERR_FORMAT, "it does not begin as NPY files do");
    const int major = bytes[6];
    if (major < 1 || major > 3)
        return ups_fail(error, UPS_ERR_UNSUPPORTED, "its NPY version is %d; 1 to 3 are known", major);
    const size_t prefix = major == 1 ? VERSION_1_PREFIX : LATER_PREFIX;
    size_t text_length = (size_t)bytes[8] | (size_t)bytes[9] << 8;
    if (major > 1) text_length |= (size_t)bytes[10] << 16 | (size_t)bytes[11] << 24;
    if (text_length > UPS_NPY_LONGEST_HEADER)
        return ups_fail(error, UPS_ERR_FORMAT, "its NPY header claims %zu bytes; it is damaged", text_length);
    header->data = prefix + text_length;
    if (header->data > length) {
        *wanted = header->data;
        return ups_fail(error, UPS_ERR_FORMAT, "it ends within its NPY header");
    }
    char *text = malloc(text_length + 1);
    if (!text) return ups_fail(error, UPS_ERR_MEMORY, "no memory for its NPY header");
    memcpy(text, bytes + prefix, text_length);
    text[text_length] = '\0';
    ups_status status = parse_dictionary(text, header, error);
    free(text);
    return status;
}

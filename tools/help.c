#include "tools/help.h"

#include "base/system/terminal.h"
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { NARROWEST = 80, WIDEST = 120 };

/* 0: lines stay as they are. */
static int page_width(void) {
    if (!isatty(STDOUT_FILENO)) return 0;
    const char *text = getenv("COLUMNS");
    int columns = text ? atoi(text) : 0;
    if (columns <= 0) columns = ups_terminal_columns(STDOUT_FILENO);
    return columns <= 0 || columns < NARROWEST ? NARROWEST : columns > WIDEST ? WIDEST : columns;
}

/* Where printing is, and how lines go on. */
typedef struct page {
    int width, column, hang;
} page;

static int columns_of(const char *text, size_t length) {
    int columns = 0;
    for (size_t i = 0; i < length; i++) columns += ((unsigned char)text[i] & 0xC0) != 0x80;
    return columns;
}

static void print_words(page *p, const char *text, size_t length) {
    for (size_t at = 0; at < length;) {
        size_t word = 0;
        while (at + word < length && text[at + word] != ' ') word++;
        const int columns = columns_of(text + at, word);
        if (word > 0 && p->column > p->hang && p->column + 1 + columns > p->width) {
            printf("\n%*s", p->hang, "");
            p->column = p->hang;
        } else if (word > 0 && p->column > p->hang) {
            putchar(' ');
            p->column++;
        }
        printf("%.*s", (int)word, text + at);
        p->column += columns;
        at += word + (at + word < length);
    }
}

void ups_help_print_entry(const char *term, const char *meaning, int column) {
    page p = {.width = page_width(), .column = column, .hang = column};
    if (2 + columns_of(term, strlen(term)) < column)
        printf("  %-*s", column - 2, term);
    else
        printf("  %s\n%*s", term, column, "");
    if (p.width > 0)
        print_words(&p, meaning, strlen(meaning));
    else
        fputs(meaning, stdout);
    putchar('\n');
}

/* Where the last column of a line begins: behind its last gap of several spaces; its length where it has none. */
static size_t last_column(const char *line, size_t length, size_t indent) {
    size_t begin = length;
    for (size_t i = indent + 2; i < length; i++) {
        if (line[i] != ' ' && line[i - 1] == ' ' && line[i - 2] == ' ') begin = i;
    }
    return begin;
}

void ups_help_print(const char *text) {
    page p = {.width = page_width()};
    bool open = false; /* the next line may go on with this one */
    while (*text) {
        const size_t length = strcspn(text, "\n"), indent = strspn(text, " ");
        const size_t begin = indent == 0 ? 0 : last_column(text, length, indent);
        const bool fills = p.width > 0 && length > indent && begin < length;
        const bool goes_on = open && length > indent && (int)indent == p.hang;
        if (open && !goes_on) putchar('\n');
        if (goes_on) {
            print_words(&p, text + indent, length - indent);
        } else {
            printf("%.*s", (int)(fills ? begin : length), text);
            p.hang = columns_of(text, begin);
            p.column = p.hang;
            if (fills) print_words(&p, text + begin, length - begin);
        }
        const bool ends = p.hang == 0 && length > 0 && strchr(".:", text[length - 1]);
        open = (fills || goes_on) && !ends;
        if (!open) putchar('\n');
        text += length + (text[length] == '\n');
    }
    if (open) putchar('\n');
}

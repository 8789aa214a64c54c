/* Text of --help. On a terminal it is as wide as that is (or COLUMNS says), within 80 and 120 columns; elsewhere lines
 * are as they were written. */
#ifndef UPS_TOOLS_HELP_H
#define UPS_TOOLS_HELP_H

/* `term` with `meaning` beside it, from `column` on; below it where the term is longer. */
void ups_help_print_entry(const char *term, const char *meaning, int column);

/* Paragraphs and tables. Lines that begin at the margin are filled again, up to one that ends in a full stop or colon;
 * so is the last column of lines "  term   meaning", to which lines indented as far belong. Other indented lines
 * (commands, equations) stay. */
void ups_help_print(const char *text);

#endif

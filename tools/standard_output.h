/* Standard output as the commands have it: text of others can do nothing to a terminal (base/printable.h), and what
 * could not be written is found out. */
#ifndef UPS_TOOLS_STANDARD_OUTPUT_H
#define UPS_TOOLS_STANDARD_OUTPUT_H

/* Before anything is printed. */
void ups_standard_output_begin(void);

/* After all was printed: the exit code, which becomes that of a failure where some of it could not be written. A pipe
 * whose reader has gone is no failure. */
int ups_standard_output_end(int exit_code);

#endif

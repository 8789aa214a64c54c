#ifndef UPS_TOOLS_OPENMP_WAIT_H
#define UPS_TOOLS_OPENMP_WAIT_H

/* First thing in main: starts the program anew with libgomp told to spin briefly, unless the user has told it
 * something. */
void ups_openmp_wait_briefly(char **argv);

#endif

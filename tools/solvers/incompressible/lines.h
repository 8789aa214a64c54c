/* Tridiagonal systems along lines of a grid, diagonal · x_j - r (x_{j-1} + x_{j+1}) = given, for many lines at once.
 *
 * Along the slow axis the loops run over the fast one; along the fast axis eight lines go in step, so that none waits
 * for its own last result. */
#ifndef UPS_TOOLS_SOLVERS_INCOMPRESSIBLE_LINES_H
#define UPS_TOOLS_SOLVERS_INCOMPRESSIBLE_LINES_H

#include <stdint.h>

/* What holds at both ends, beyond which the neighbour is: */
typedef enum ups_line_ends {
    UPS_LINE_PERIODIC, /* the other end's */
    UPS_LINE_ODD,      /* the negative: zero on the wall between the two */
    UPS_LINE_EVEN,     /* equal: no flux through the wall */
    UPS_LINE_NODE,     /* zero: the values lie on nodes, the first of them, number 0, on the wall, and is 0 */
} ups_line_ends;

/* Doubles of one line's table. */
enum { UPS_LINE_TABLE = 2 };
/* Fills `table` (UPS_LINE_TABLE · n doubles) for lines of n values. `diagonal` ≥ 2r; equality, where the system is
 * singular, is allowed for UPS_LINE_PERIODIC and UPS_LINE_EVEN: the solution with one value 0 is found then, of a right
 * side that sums to 0. */
void ups_line_factorize(ups_line_ends ends, int64_t n, double diagonal, double r, double *table);

/* Solves in place along the slow axis: x has n rows, `pitch` apart, of `width` systems. */
void ups_lines_solve_slow(ups_line_ends ends, int64_t n, int64_t width, int64_t pitch, double r, const double *table,
                          double *x);
/* Solves in place along the fast axis: `lines` rows, `pitch` apart, of n values; the table of a line lies `table_pitch`
 * from that of the line before: 0 where all are alike. */
void ups_lines_solve_fast(ups_line_ends ends, int64_t n, int64_t lines, int64_t pitch, double r, const double *table,
                          int64_t table_pitch, double *x);

#endif

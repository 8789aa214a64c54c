/* Limited slopes, for linear reconstruction within cells. */
#ifndef UPS_SOLVERS_LIMITER_H
#define UPS_SOLVERS_LIMITER_H

#include "tools/solvers/every_width.h"

#include <math.h>

/* Not fmax and fmin: those must honour NaN, which keeps loops from being vectorized. */
UPS_ALWAYS_INLINE double ups_larger(double a, double b) {
    return a > b ? a : b;
}

UPS_ALWAYS_INLINE double ups_smaller(double a, double b) {
    return a < b ? a : b;
}

/* Half the change within a cell: of the central difference, limited to the smaller one-sided one; zero at extrema. So
 * the ends of a cell never leave the range of its neighbours, and stay positive where they are. */
UPS_ALWAYS_INLINE double ups_half_slope(double below, double here, double above) {
    const double left = here - below, right = above - here;
    const double steepest = ups_smaller(fabs(left), fabs(right));
    const double limited = ups_larger(-steepest, ups_smaller(steepest, 0.25 * (left + right)));
    return left * right > 0.0 ? limited : 0.0;
}

#endif

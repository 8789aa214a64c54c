/* Matrices with a number for each pair of points that share a cell, and their linear systems. One pattern serves many
 * matrices: a matrix is an array of `entries` numbers in the order of the pattern. Rows and columns are points. */
#ifndef UPS_TOOLS_SOLVERS_MESH_SPARSE_H
#define UPS_TOOLS_SOLVERS_MESH_SPARSE_H

#include "tools/solvers/mesh/mesh.h"

typedef struct ups_sparse {
    int64_t rows, entries;
    int64_t *begin;    /* (rows + 1): of a row's entries */
    int32_t *column;   /* (entries): ascending within a row */
    int64_t *diagonal; /* (rows): place of the diagonal */
    int64_t *place;    /* (cell, 3, 3): place of (corner, corner), to add up a matrix by cells */
} ups_sparse;

/* The pattern of a mesh; freed with ups_sparse_destroy. */
ups_status ups_sparse_create(const ups_mesh *mesh, ups_sparse **pattern, ups_error *error);
void ups_sparse_destroy(ups_sparse *pattern); /* NULL is fine */

/* out = A x. */
void ups_sparse_times(const ups_sparse *pattern, const double *matrix, const double *x, double *out);
/* Row `row` becomes that of the unit matrix: the unknown has the value of the right side. */
void ups_sparse_fix(const ups_sparse *pattern, double *matrix, int64_t row);

/* Incomplete factors L U ≈ A with A's own pattern, L with a unit diagonal (Saad, "Iterative methods for sparse linear
 * systems", 2003, section 10.3), into `factors`. */
void ups_sparse_factorize(const ups_sparse *pattern, const double *matrix, double *factors);

/* Doubles of working memory of a solution. */
size_t ups_sparse_scratch(const ups_sparse *pattern);
/* Solves A x = b from the guess in `x` to a residual of `tolerance` relative to b: the method of conjugate gradients,
 * bi-orthogonal and stabilised (van der Vorst, SIAM J. Sci. Stat. Comput. 13, 1992), with these factors.
 * UPS_ERR_NUMERIC when it does not get there; UPS_ERR_CANCELLED after Ctrl-C. */
ups_status ups_sparse_solve(const ups_sparse *pattern, const double *matrix, const double *factors, const double *b,
                            double tolerance, double *x, double *scratch, ups_error *error);

#endif

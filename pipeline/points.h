/* Points that lie anywhere: the nodes of a mesh, particles, stations. Fields on them are
 * samples with one grid axis, along which points stand in the order of a balanced tree: 2^k points in a row, from a
 * multiple of 2^k on, lie close together. So what works on patches of a grid, or pairs up neighbours of a grid of
 * patches, works on them: runs of points are leaves of the tree, and a tree of runs its upper levels (Erwin, Zhdanov et
 * al., arXiv 2502.17019).
 *
 * The tree halves n places at the largest power of two below n, by one coordinate; which one depends on n alone, so
 * that the j-th point of a full leaf lies at about the same place in each: what is learnt of one leaf holds for the
 * others.
 *
 * Points that move keep the order of the first frame.
 *
 * Where samples differ in their number of points, all have as many places as the largest: each half of the tree gets
 * points in proportion to its places, and at the end some points have several places, spread evenly. A network sees
 * such a point as often; what counts points, counts each once. */
#ifndef UPS_PIPELINE_POINTS_H
#define UPS_PIPELINE_POINTS_H

#include "base/arena.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define UPS_MAX_POINT_DIMS 3

typedef struct ups_points {
    int dims;
    int64_t count;                         /* places: grid points of a frame */
    int64_t distinct;                      /* points; where they are fewer, some have several places */
    bool own;                              /* of one sample: others of its file have other ones */
    bool moving;                           /* and they move: all of this is of its first frame, and fields named as the
                                              coordinates tell where they are in others */
    const double *coordinates;             /* (count, dims), in the order of the tree */
    const int32_t *stored;                 /* (count): number in the file of each; NULL: frames are as stored */
    double low[UPS_MAX_POINT_DIMS];        /* of the box that holds them */
    double extent;                         /* the longest side of it; 1 where all lie on one spot */
    const char *names[UPS_MAX_POINT_DIMS]; /* of the coordinates: x, y, z */
    int corners;                           /* of a cell: 3 of triangles, 4 of tetrahedra; 0: no cells are known */
    int64_t cell_count;
    const int32_t *cells; /* (cell_count, corners), points counted in the order of the tree */
} ups_points;

/* In `arena`, of finite coordinates (distinct, dims) in the order of the file, with `count` places: 1 <= distinct <=
 * count < 2^31, dims 1 to 3. */
ups_points *ups_points_create(ups_arena *arena, int dims, int64_t distinct, int64_t count, const double *coordinates);

/* The same without a tree, in the file's order; where there are more places than points, the last has the others. */
ups_points *ups_points_as_stored(ups_arena *arena, int dims, int64_t distinct, int64_t count,
                                 const double *coordinates);

/* The same points with more places: `count` of them, with a tree or `as_stored`. Cells are left behind. */
ups_points *ups_points_with_places(ups_arena *arena, const ups_points *points, int64_t count, bool as_stored);

/* Whether a place is the first of its point's, which stand side by side. */
static inline bool ups_points_is_first(const ups_points *points, int64_t place) {
    return !points->stored || place == 0 || points->stored[place] != points->stored[place - 1];
}

/* Whether both are the same points, in the same order. */
bool ups_points_equal(const ups_points *a, const ups_points *b);

/* Gives them cells, whose points are counted in the order of the file; each must be below the count. */
void ups_points_set_cells(ups_arena *arena, ups_points *points, int corners, int64_t cells, const int32_t *corner);

/* Elements of `size` bytes, `width` of them for each point: out (count, width) in the order of the tree from in
 * (distinct, width) in that of the file; and back, of each point what stands at its first place. Where there are more
 * places than points, out is (count, width) there too, and what is behind the last point repeats it. */
void ups_points_sort(const ups_points *points, int64_t width, size_t size, const void *in, void *out);
void ups_points_unsort(const ups_points *points, int64_t width, size_t size, const void *in, void *out);

#endif

#include "tools/solvers/mesh/flow.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double tolerance = 1e-12;

/* ---- the potential ---- */

static void assemble(const ups_mesh *mesh, const ups_sparse *pattern, double *matrix) {
    memset(matrix, 0, sizeof *matrix * (size_t)pattern->entries);
    for (int64_t cell = 0; cell < mesh->cell_count; cell++) {
        double gradients[3][2];
        const double area = ups_mesh_gradients(mesh, cell, gradients);
        const int64_t *place = pattern->place + 9 * cell;
        for (int i = 0; i < 3; i++) {
            for (int j = 0; j < 3; j++)
                matrix[place[3 * i + j]] +=
                    area * (gradients[i][0] * gradients[j][0] + gradients[i][1] * gradients[j][1]);
        }
    }
}

ups_status ups_flow_potential(const ups_mesh *mesh, const ups_sparse *pattern, int given, double *phi,
                              ups_error *error) {
    const size_t rows = (size_t)pattern->rows, entries = (size_t)pattern->entries;
    double *memory = malloc(sizeof(double) * (2 * entries + rows + ups_sparse_scratch(pattern)));
    if (!memory) return ups_fail(error, UPS_ERR_MEMORY, "no memory for the flow through %zu points", rows);
    double *matrix = memory, *factors = matrix + entries, *right = factors + entries, *scratch = right + rows;
    assemble(mesh, pattern, matrix);
    for (int64_t row = 0; row < pattern->rows; row++) {
        const int on = mesh->border[row] < UPS_ON_OBSTACLE ? mesh->border[row] & given : 0;
        right[row] = on ? phi[row] : 0.0;
        if (on)
            ups_sparse_fix(pattern, matrix, row);
        else
            phi[row] = 0.0;
    }
    ups_sparse_factorize(pattern, matrix, factors);
    ups_status status = ups_sparse_solve(pattern, matrix, factors, right, tolerance, phi, scratch, error);
    free(memory);
    return status;
}

/* ---- the velocity ---- */

/* Takes away what flows through the border that the point is on. */
static void close_border(const ups_mesh *mesh, int64_t point, int closed, double *vx, double *vy) {
    const uint8_t on = mesh->border[point];
    if (on >= UPS_ON_OBSTACLE) {
        const ups_obstacle *circle = &mesh->obstacles.each[on - UPS_ON_OBSTACLE];
        const double x = mesh->points[2 * point] - circle->x, y = mesh->points[2 * point + 1] - circle->y;
        const double outward = (*vx * x + *vy * y) / (x * x + y * y);
        *vx -= outward * x;
        *vy -= outward * y;
        return;
    }
    if (on & closed & (UPS_ON_LEFT | UPS_ON_RIGHT)) *vx = 0.0;
    if (on & closed & (UPS_ON_BOTTOM | UPS_ON_TOP)) *vy = 0.0;
}

void ups_flow_velocity(const ups_mesh *mesh, const double *phi, int closed, double *vx, double *vy, double *scratch) {
    double *area_around = scratch;
    const size_t bytes = sizeof(double) * (size_t)mesh->point_count;
    memset(vx, 0, bytes);
    memset(vy, 0, bytes);
    memset(area_around, 0, bytes);
    for (int64_t cell = 0; cell < mesh->cell_count; cell++) {
        const int32_t *corner = mesh->cells + 3 * cell;
        double gradients[3][2], x = 0.0, y = 0.0;
        const double area = ups_mesh_gradients(mesh, cell, gradients);
        for (int i = 0; i < 3; i++) {
            x += gradients[i][0] * phi[corner[i]];
            y += gradients[i][1] * phi[corner[i]];
        }
        for (int i = 0; i < 3; i++) {
            vx[corner[i]] += area * x;
            vy[corner[i]] += area * y;
            area_around[corner[i]] += area;
        }
    }
    for (int64_t i = 0; i < mesh->point_count; i++) {
        vx[i] /= area_around[i];
        vy[i] /= area_around[i];
        close_border(mesh, i, closed, &vx[i], &vy[i]);
    }
}

/* ---- from left to right ---- */

/* The mean over the area, where the speed is linear in each cell. */
static double mean_speed(const ups_mesh *mesh, const double *vx, const double *vy) {
    double sum = 0.0, total = 0.0;
    for (int64_t cell = 0; cell < mesh->cell_count; cell++) {
        const int32_t *corner = mesh->cells + 3 * cell;
        double gradients[3][2], speeds = 0.0;
        const double area = ups_mesh_gradients(mesh, cell, gradients);
        for (int i = 0; i < 3; i++) {
            const double x = vx[corner[i]], y = vy[corner[i]];
            speeds += sqrt(x * x + y * y);
        }
        sum += area * speeds / 3.0;
        total += area;
    }
    return sum / total;
}

/* phi is the speed's potential where nothing stands in the way, and 0 and 1 at the ends: along them nothing flows. */
ups_status ups_flow_through(const ups_mesh *mesh, const ups_sparse *pattern, double *vx, double *vy, ups_error *error) {
    const size_t rows = (size_t)mesh->point_count;
    double *phi = malloc(sizeof(double) * 2 * rows);
    if (!phi) return ups_fail(error, UPS_ERR_MEMORY, "no memory for the flow through %zu points", rows);
    for (size_t i = 0; i < rows; i++) phi[i] = mesh->points[2 * i];
    ups_status status = ups_flow_potential(mesh, pattern, UPS_ON_LEFT | UPS_ON_RIGHT, phi, error);
    if (status == UPS_OK) {
        ups_flow_velocity(mesh, phi, UPS_ON_BOTTOM | UPS_ON_TOP, vx, vy, phi + rows);
        for (size_t i = 0; i < rows; i++) {
            if (mesh->border[i] < UPS_ON_OBSTACLE && (mesh->border[i] & (UPS_ON_LEFT | UPS_ON_RIGHT))) vy[i] = 0.0;
        }
        const double mean = mean_speed(mesh, vx, vy);
        for (size_t i = 0; i < rows; i++) {
            vx[i] /= mean;
            vy[i] /= mean;
        }
    }
    free(phi);
    return status;
}

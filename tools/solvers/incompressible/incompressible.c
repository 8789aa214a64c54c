/* Fields have two ghost layers. Of velocities, the wall's own values (number 0 and number `cells` along the component's
 * axis) are zeros; number `cells` is a ghost. */
#include "tools/solvers/incompressible/incompressible.h"
#include "base/system/cancel.h"
#include "tools/solvers/incompressible/fourier.h"
#include "tools/solvers/incompressible/lines.h"
#include "tools/solvers/incompressible/rows.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Largest Δt (max|u| + max|v|)/h. */
static const double courant = 0.5;
/* Largest ν Δt/h²: beyond, Crank & Nicolson's scheme would let the finest waves ring. */
static const double diffusive = 4.0;

enum { GHOSTS = 2, LEAD = 8 };

struct ups_incompressible_plan {
    ups_incompressible_problem problem;
    int64_t pitch; /* from row to row */
    int64_t field; /* doubles of a field */
    ups_columns *columns;
    double *pressure_tables; /* of Poisson's lines along y, one a wavenumber */
};

typedef enum field_kind { ALONG_X, ALONG_Y, CENTRED } field_kind;

struct ups_incompressible {
    const ups_incompressible_plan *plan;
    double *u, *v, *s, *p;                   /* the flow */
    double *u1, *v1, *s1;                    /* a stage */
    double *fx, *fy;                         /* force */
    double *rate_u, *rate_v, *rate_s;        /* of the first stage */
    double *change;                          /* of one field; also Poisson's right side and solution */
    double *normal_table, *tangential_table; /* viscosity: across walls that hold nodes, and those between nodes */
    double *scalar_table;
    double *scratch;  /* of transforms */
    double tables_dt; /* what the tables are for; 0: none */
};

/* ---- the plan ---- */

static int64_t padded(int64_t count) {
    return (count + 7) / 8 * 8;
}

ups_status ups_incompressible_plan_create(const ups_incompressible_problem *problem, ups_incompressible_plan **out,
                                          ups_error *error) {
    const int64_t n = problem->cells;
    ups_incompressible_plan *plan = calloc(1, sizeof *plan);
    if (!plan) return ups_fail(error, UPS_ERR_MEMORY, "no memory for the tables of a flow");
    plan->problem = *problem;
    plan->pitch = LEAD + padded(n + GHOSTS);
    plan->field = plan->pitch * (n + 2 * GHOSTS);
    plan->columns = ups_columns_create(n, !problem->periodic);
    plan->pressure_tables = malloc(sizeof(double) * UPS_LINE_TABLE * (size_t)(n * n));
    if (!plan->columns || !plan->pressure_tables) {
        ups_incompressible_plan_destroy(plan);
        return ups_fail(error, UPS_ERR_MEMORY, "no memory for the tables of a flow of %lld x %lld cells", (long long)n,
                        (long long)n);
    }
    const ups_line_ends ends = problem->periodic ? UPS_LINE_PERIODIC : UPS_LINE_EVEN;
    for (int64_t k = 0; k < n; k++) {
        const double half_angle = M_PI * (double)k / (double)n * (problem->periodic ? 1.0 : 0.5);
        const double wave = 4.0 * sin(half_angle) * sin(half_angle); /* minus the second difference's eigenvalue */
        ups_line_factorize(ends, n, 2.0 + (k == 0 ? 0.0 : wave), 1.0, plan->pressure_tables + UPS_LINE_TABLE * n * k);
    }
    *out = plan;
    return UPS_OK;
}

void ups_incompressible_plan_destroy(ups_incompressible_plan *plan) {
    if (!plan) return;
    ups_columns_destroy(plan->columns);
    free(plan->pressure_tables);
    free(plan);
}

/* ---- memory ---- */

enum { FIELDS = 13, LINE_TABLES = 3 };

static size_t header_bytes(void) {
    return (sizeof(ups_incompressible) + 63) / 64 * 64;
}

size_t ups_incompressible_bytes(const ups_incompressible_plan *plan) {
    const size_t table = (size_t)padded(UPS_LINE_TABLE * plan->problem.cells);
    return header_bytes() +
           sizeof(double) * (FIELDS * (size_t)plan->field + LINE_TABLES * table + ups_columns_scratch(plan->columns));
}

ups_incompressible *ups_incompressible_place(const ups_incompressible_plan *plan, void *memory) {
    memset(memory, 0, ups_incompressible_bytes(plan));
    ups_incompressible *flow = memory;
    flow->plan = plan;
    double *next = (double *)((char *)memory + header_bytes());
    double **const fields[FIELDS] = {&flow->u,      &flow->v,      &flow->s,     &flow->p,  &flow->u1,
                                     &flow->v1,     &flow->s1,     &flow->fx,    &flow->fy, &flow->rate_u,
                                     &flow->rate_v, &flow->rate_s, &flow->change};
    for (int f = 0; f < FIELDS; f++, next += plan->field) *fields[f] = next;
    double **const tables[LINE_TABLES] = {&flow->normal_table, &flow->tangential_table, &flow->scalar_table};
    for (int t = 0; t < LINE_TABLES; t++, next += padded(UPS_LINE_TABLE * plan->problem.cells)) *tables[t] = next;
    flow->scratch = next;
    return flow;
}

/* Row i's first cell. */
static int64_t row_at(const ups_incompressible_plan *plan, int64_t i) {
    return (i + GHOSTS) * plan->pitch + LEAD;
}

/* First row, and first value in a row, of a component that are not on a wall. */
static int64_t first_row(const ups_incompressible_plan *plan, field_kind kind) {
    return kind == ALONG_X && !plan->problem.periodic ? 1 : 0;
}

static int64_t first_value(const ups_incompressible_plan *plan, field_kind kind) {
    return kind == ALONG_Y && !plan->problem.periodic ? 1 : 0;
}

/* ---- ghosts ---- */

/* Where ghost -g, and ghost n - 1 + g, of an axis come from, and with which sign. */
typedef struct reflection {
    int64_t low[GHOSTS + 1], high[GHOSTS + 1];
    double low_sign[GHOSTS + 1], high_sign[GHOSTS + 1];
} reflection;

static reflection reflection_of(const ups_incompressible_plan *plan, bool on_nodes, bool even) {
    const int64_t n = plan->problem.cells;
    reflection r;
    for (int64_t g = 1; g <= GHOSTS; g++) {
        if (plan->problem.periodic) {
            r.low[g] = n - g;
            r.high[g] = g - 1;
            r.low_sign[g] = r.high_sign[g] = 1.0;
        } else if (on_nodes) { /* number n is the wall's own, then n + 1 mirrors n - 1 */
            r.low[g] = g;
            r.high[g] = g == 1 ? 0 : n + 1 - g;
            r.low_sign[g] = r.high_sign[g] = -1.0;
        } else {
            r.low[g] = g - 1;
            r.high[g] = n - g;
            r.low_sign[g] = r.high_sign[g] = even ? 1.0 : -1.0;
        }
    }
    return r;
}

static void fill_ghosts(const ups_incompressible_plan *plan, field_kind kind, double *field) {
    const int64_t n = plan->problem.cells;
    const reflection x = reflection_of(plan, kind == ALONG_X, kind == CENTRED);
    const reflection y = reflection_of(plan, kind == ALONG_Y, kind == CENTRED);
    for (int64_t i = 0; i < n; i++) {
        double *row = field + row_at(plan, i);
        for (int64_t g = 1; g <= GHOSTS; g++) {
            row[-g] = y.low_sign[g] * row[y.low[g]];
            row[n - 1 + g] = y.high_sign[g] * row[y.high[g]];
        }
    }
    for (int64_t g = 1; g <= GHOSTS; g++) {
        const double *low = field + row_at(plan, x.low[g]), *high = field + row_at(plan, x.high[g]);
        double *below = field + row_at(plan, -g), *above = field + row_at(plan, n - 1 + g);
        for (int64_t j = -GHOSTS; j < n + GHOSTS; j++) {
            below[j] = x.low_sign[g] * low[j];
            above[j] = x.high_sign[g] * high[j];
        }
    }
}

/* ---- filling and reading ---- */

static void set_field(const ups_incompressible_plan *plan, field_kind kind, const double *values, double *field) {
    const int64_t n = plan->problem.cells;
    for (int64_t i = 0; i < n; i++) {
        double *row = field + row_at(plan, i);
        for (int64_t j = 0; j < n; j++) {
            const bool on_wall = i < first_row(plan, kind) || j < first_value(plan, kind);
            row[j] = on_wall ? 0.0 : values[i * n + j];
        }
    }
    fill_ghosts(plan, kind, field);
}

void ups_incompressible_set_velocity(ups_incompressible *flow, const double *u, const double *v) {
    set_field(flow->plan, ALONG_X, u, flow->u);
    set_field(flow->plan, ALONG_Y, v, flow->v);
}

void ups_incompressible_set_force(ups_incompressible *flow, const double *fx, const double *fy) {
    set_field(flow->plan, ALONG_X, fx, flow->fx);
    set_field(flow->plan, ALONG_Y, fy, flow->fy);
}

void ups_incompressible_set_scalar(ups_incompressible *flow, const double *s) {
    set_field(flow->plan, CENTRED, s, flow->s);
}

/* Means of each value and its neighbour `ahead`; `ahead` 0 copies. */
static void get_field(const ups_incompressible_plan *plan, const double *field, int64_t ahead, double *values) {
    const int64_t n = plan->problem.cells;
    for (int64_t i = 0; i < n; i++) {
        const double *row = field + row_at(plan, i);
        for (int64_t j = 0; j < n; j++) values[i * n + j] = 0.5 * (row[j] + row[j + ahead]);
    }
}

void ups_incompressible_velocity(const ups_incompressible *flow, double *u, double *v) {
    get_field(flow->plan, flow->u, flow->plan->pitch, u);
    get_field(flow->plan, flow->v, 1, v);
}

void ups_incompressible_force(const ups_incompressible *flow, double *fx, double *fy) {
    get_field(flow->plan, flow->fx, flow->plan->pitch, fx);
    get_field(flow->plan, flow->fy, 1, fy);
}

void ups_incompressible_scalar(const ups_incompressible *flow, double *s) {
    get_field(flow->plan, flow->s, 0, s);
}

void ups_incompressible_faces(const ups_incompressible *flow, double *u, double *v) {
    get_field(flow->plan, flow->u, 0, u);
    get_field(flow->plan, flow->v, 0, v);
}

double ups_incompressible_divergence(const ups_incompressible *flow) {
    const ups_incompressible_plan *plan = flow->plan;
    const int64_t n = plan->problem.cells;
    double largest = 0.0;
    for (int64_t i = 0; i < n; i++) {
        const double *u = flow->u + row_at(plan, i), *v = flow->v + row_at(plan, i);
        for (int64_t j = 0; j < n; j++) {
            const double net = fabs(u[j + plan->pitch] - u[j] + v[j + 1] - v[j]) * (double)n;
            largest = net > largest ? net : largest;
        }
    }
    return largest;
}

/* ---- projection ---- */

/* Finds φ with h ∇·(v - factor ∇φ) = 0, φ into `change`, and takes the gradient off: v -= factor ∇φ. */
static void project(ups_incompressible *flow, double factor, double *u, double *v) {
    const ups_incompressible_plan *plan = flow->plan;
    const int64_t n = plan->problem.cells, pitch = plan->pitch;
    const double h = 1.0 / (double)n;
    double *phi = flow->change, *cells = phi + row_at(plan, 0);
    /* -(second differences of φ) = -h/factor (net outflow) */
    for (int64_t i = 0; i < n; i++) {
        const int64_t at = row_at(plan, i);
        ups_net_outflow(n, pitch, -h / factor, u + at, v + at, phi + at);
    }
    const ups_line_ends ends = plan->problem.periodic ? UPS_LINE_PERIODIC : UPS_LINE_EVEN;
    ups_columns_forward(plan->columns, n, pitch, cells, flow->scratch);
    ups_lines_solve_fast(ends, n, n, pitch, 1.0, plan->pressure_tables, UPS_LINE_TABLE * n, cells);
    ups_columns_inverse(plan->columns, n, pitch, cells, flow->scratch);
    fill_ghosts(plan, CENTRED, phi);
    for (int64_t i = 0; i < n; i++) {
        const int64_t at = row_at(plan, i);
        if (i >= first_row(plan, ALONG_X)) ups_add_gradient(n, pitch, -factor / h, phi + at, u + at);
        const int64_t j = first_value(plan, ALONG_Y);
        ups_add_gradient(n - j, 1, -factor / h, phi + at + j, v + at + j);
    }
    fill_ghosts(plan, ALONG_X, u);
    fill_ghosts(plan, ALONG_Y, v);
}

/* ---- rates of change ---- */

/* R of one field: transport, diffusion and force, without pressure. */
static void make_rate(const ups_incompressible *flow, field_kind kind, const double *u, const double *v,
                      const double *s, double *rate) {
    const ups_incompressible_plan *plan = flow->plan;
    const ups_incompressible_problem *problem = &plan->problem;
    const int64_t n = problem->cells, pitch = plan->pitch, j = first_value(plan, kind);
    const double inverse_h = (double)n;
    for (int64_t i = first_row(plan, kind); i < n; i++) {
        const int64_t at = row_at(plan, i) + j;
        if (kind == CENTRED) {
            ups_scalar_rate(n, pitch, inverse_h, problem->diffusivity, s + at, u + at, v + at, rate + at);
            continue;
        }
        const bool x = kind == ALONG_X;
        const int64_t along = x ? pitch : 1, across = x ? 1 : pitch;
        ups_momentum_rate(n - j, along, across, inverse_h, problem->viscosity, (x ? u : v) + at, (x ? v : u) + at,
                          rate + at);
        ups_add_force(n - j, along, problem->carried_force ? s + at : NULL, (x ? flow->fx : flow->fy) + at, rate + at);
    }
}

/* ---- time ---- */

static void make_tables(ups_incompressible *flow, double dt) {
    if (flow->tables_dt == dt) return;
    const ups_incompressible_problem *problem = &flow->plan->problem;
    const int64_t n = problem->cells;
    const double r = 0.5 * problem->viscosity * dt * (double)n * (double)n;
    const double q = 0.5 * problem->diffusivity * dt * (double)n * (double)n;
    const bool periodic = problem->periodic;
    ups_line_factorize(periodic ? UPS_LINE_PERIODIC : UPS_LINE_NODE, n, 1.0 + 2.0 * r, r, flow->normal_table);
    ups_line_factorize(periodic ? UPS_LINE_PERIODIC : UPS_LINE_ODD, n, 1.0 + 2.0 * r, r, flow->tangential_table);
    ups_line_factorize(periodic ? UPS_LINE_PERIODIC : UPS_LINE_EVEN, n, 1.0 + 2.0 * q, q, flow->scalar_table);
    flow->tables_dt = dt;
}

/* new = old + (1 - r δ_xx)⁻¹ (1 - r δ_yy)⁻¹ (Δt · rate), rate in `change`; ghosts of `new` included. */
static void spread_and_add(ups_incompressible *flow, field_kind kind, double dt, const double *old, double *new) {
    const ups_incompressible_plan *plan = flow->plan;
    const int64_t n = plan->problem.cells, pitch = plan->pitch;
    const double coefficient = kind == CENTRED ? plan->problem.diffusivity : plan->problem.viscosity;
    const bool periodic = plan->problem.periodic;
    double *cells = flow->change + row_at(plan, 0);
    for (int64_t i = 0; i < first_row(plan, kind); i++) memset(cells + i * pitch, 0, sizeof(double) * (size_t)n);
    for (int64_t i = 0; i < n && first_value(plan, kind) > 0; i++) cells[i * pitch] = 0.0;
    if (coefficient > 0.0) {
        const double r = 0.5 * coefficient * dt * (double)n * (double)n;
        const ups_line_ends between = periodic ? UPS_LINE_PERIODIC : kind == CENTRED ? UPS_LINE_EVEN : UPS_LINE_ODD;
        const ups_line_ends on_nodes = periodic ? UPS_LINE_PERIODIC : UPS_LINE_NODE;
        const double *plain = kind == CENTRED ? flow->scalar_table : flow->tangential_table;
        ups_lines_solve_slow(kind == ALONG_X ? on_nodes : between, n, n, pitch, r,
                             kind == ALONG_X ? flow->normal_table : plain, cells);
        ups_lines_solve_fast(kind == ALONG_Y ? on_nodes : between, n, n, pitch, r,
                             kind == ALONG_Y ? flow->normal_table : plain, 0, cells);
    }
    for (int64_t i = 0; i < n; i++) {
        const int64_t at = row_at(plan, i);
        ups_weigh(n, 1.0, old + at, dt, flow->change + at, new + at);
    }
    fill_ghosts(plan, kind, new);
}

/* change -= ∇p of one component. */
static void take_pressure(ups_incompressible *flow, field_kind kind) {
    const ups_incompressible_plan *plan = flow->plan;
    const int64_t n = plan->problem.cells, j = first_value(plan, kind);
    for (int64_t i = first_row(plan, kind); i < n; i++) {
        const int64_t at = row_at(plan, i) + j;
        ups_add_gradient(n - j, kind == ALONG_X ? plan->pitch : 1, -(double)n, flow->p + at, flow->change + at);
    }
}

/* p += φ - ½ ν h⁻¹ (net outflow before projection); with -(second differences of φ) = -h/Δt (net outflow) the latter is
 * ½ ν Δt Δφ. φ is in `change`. */
static void update_pressure(ups_incompressible *flow, double dt) {
    const ups_incompressible_plan *plan = flow->plan;
    const int64_t n = plan->problem.cells, pitch = plan->pitch;
    const double factor = 0.5 * plan->problem.viscosity * dt * (double)n * (double)n;
    for (int64_t i = 0; i < n; i++) {
        double *p = flow->p + row_at(plan, i);
        const double *phi = flow->change + row_at(plan, i);
        for (int64_t j = 0; j < n; j++) {
            const double curved = phi[j + pitch] + phi[j - pitch] + phi[j + 1] + phi[j - 1] - 4.0 * phi[j];
            p[j] += phi[j] - factor * curved;
        }
    }
    fill_ghosts(plan, CENTRED, flow->p);
}

/* Stage one of a field: first = old + spread Δt (R - ∇p); R is kept in `rate`. */
static void first_stage(ups_incompressible *flow, field_kind kind, double dt, const double *old, double *rate,
                        double *first) {
    const ups_incompressible_plan *plan = flow->plan;
    make_rate(flow, kind, flow->u, flow->v, flow->s, rate);
    for (int64_t i = 0; i < plan->problem.cells; i++) {
        const int64_t at = row_at(plan, i);
        memcpy(flow->change + at, rate + at, sizeof(double) * (size_t)plan->problem.cells);
    }
    if (kind != CENTRED) take_pressure(flow, kind);
    spread_and_add(flow, kind, dt, old, first);
}

/* Stage two: new = first + spread Δt ((old - first)/Δt + ½ (R + R of stage one) - ∇p), in place of the old. With the
 * diffusion that R holds this is Crank & Nicolson's scheme for `new`. */
static void second_stage(ups_incompressible *flow, field_kind kind, double dt, double *old, const double *rate,
                         const double *first) {
    const ups_incompressible_plan *plan = flow->plan;
    const int64_t n = plan->problem.cells;
    make_rate(flow, kind, flow->u1, flow->v1, flow->s1, flow->change);
    for (int64_t i = 0; i < n; i++) {
        const int64_t at = row_at(plan, i);
        double *change = flow->change + at;
        ups_weigh(n, 0.5, change, 0.5, rate + at, change);
        ups_weigh(n, 1.0, change, 1.0 / dt, old + at, change);
        ups_weigh(n, 1.0, change, -1.0 / dt, first + at, change);
    }
    if (kind != CENTRED) take_pressure(flow, kind);
    spread_and_add(flow, kind, dt, first, old);
}

static void one_step(ups_incompressible *flow, double dt) {
    make_tables(flow, dt);
    first_stage(flow, ALONG_X, dt, flow->u, flow->rate_u, flow->u1);
    first_stage(flow, ALONG_Y, dt, flow->v, flow->rate_v, flow->v1);
    first_stage(flow, CENTRED, dt, flow->s, flow->rate_s, flow->s1);
    project(flow, dt, flow->u1, flow->v1);
    second_stage(flow, ALONG_X, dt, flow->u, flow->rate_u, flow->u1);
    second_stage(flow, ALONG_Y, dt, flow->v, flow->rate_v, flow->v1);
    second_stage(flow, CENTRED, dt, flow->s, flow->rate_s, flow->s1);
    project(flow, dt, flow->u, flow->v);
    update_pressure(flow, dt);
}

void ups_incompressible_begin(ups_incompressible *flow) {
    const ups_incompressible_plan *plan = flow->plan;
    project(flow, 1.0, flow->u, flow->v);
    make_rate(flow, ALONG_X, flow->u, flow->v, flow->s, flow->rate_u);
    make_rate(flow, ALONG_Y, flow->u, flow->v, flow->s, flow->rate_v);
    fill_ghosts(plan, ALONG_X, flow->rate_u);
    fill_ghosts(plan, ALONG_Y, flow->rate_v);
    project(flow, 1.0, flow->rate_u, flow->rate_v);
    memcpy(flow->p, flow->change, sizeof(double) * (size_t)plan->field);
}

/* Largest |value| of a field; infinite when one is not finite. */
static double fastest(const ups_incompressible_plan *plan, const double *field) {
    const int64_t n = plan->problem.cells;
    double found = 0.0;
    for (int64_t i = 0; i < n; i++) {
        const double *row = field + row_at(plan, i);
        for (int64_t j = 0; j < n; j++) {
            const double size = fabs(row[j]);
            if (!(size <= found)) found = size < HUGE_VAL ? size : HUGE_VAL;
        }
    }
    return found;
}

ups_status ups_incompressible_advance(ups_incompressible *flow, double interval, int64_t *steps, ups_error *error) {
    const ups_incompressible_plan *plan = flow->plan;
    const double n = (double)plan->problem.cells, viscosity = plan->problem.viscosity;
    double remaining = interval;
    while (remaining > 0.0) {
        if (ups_cancel_requested()) return ups_fail(error, UPS_ERR_CANCELLED, "cancelled");
        const double speed = fastest(plan, flow->u) + fastest(plan, flow->v);
        if (!(speed < HUGE_VAL)) return ups_fail(error, UPS_ERR_NUMERIC, "the flow is no longer finite");
        const double by_courant = remaining * speed * n / courant;
        const double by_diffusion = remaining * viscosity * n * n / diffusive;
        const double pieces = ceil(by_courant > by_diffusion ? by_courant : by_diffusion);
        const double dt = pieces > 1.0 ? remaining / pieces : remaining;
        one_step(flow, dt);
        remaining = pieces > 1.0 ? remaining - dt : 0.0;
        if (steps) ++*steps;
    }
    return UPS_OK;
}

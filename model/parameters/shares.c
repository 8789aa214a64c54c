#include "model/parameters/shares.h"

#include <stdlib.h>

/* What is dealt out as a whole. */
typedef struct job {
    int64_t offset, count;
    double cost;
} job;

/* What a share has by now. */
typedef struct load {
    double cost;      /* of matrices in the set */
    int64_t elements; /* in the set, without matrices */
    int64_t in_all;   /* elements of all sets */
} load;

typedef struct dealing {
    const ups_parameters *parameters;
    bool whole_matrices;
    ups_shares *shares;
    int32_t capacity; /* of its pieces */
    load *loads;
    job *jobs; /* matrices of the set */
} dealing;

double ups_share_matrix_cost(int64_t rows, int64_t columns) {
    const double shorter = (double)(rows < columns ? rows : columns),
                 longer = (double)(rows < columns ? columns : rows);
    return shorter * shorter * (2 * longer + shorter); /* a square of the shorter side, its own square, and a product */
}

static bool is_whole(const dealing *d, const ups_parameter *parameter) {
    return d->whole_matrices && parameter->init.matrices > 0;
}

static ups_status add_piece(dealing *d, int64_t offset, int64_t count, int32_t share, ups_error *error) {
    ups_shares *shares = d->shares;
    if (shares->piece_count == d->capacity) {
        const int32_t capacity = d->capacity ? 2 * d->capacity : 64;
        ups_share_piece *grown = realloc(shares->pieces, (size_t)capacity * sizeof *grown);
        if (!grown) return ups_fail(error, UPS_ERR_MEMORY, "no memory for the table of shares");
        shares->pieces = grown;
        d->capacity = capacity;
    }
    shares->pieces[shares->piece_count++] = (ups_share_piece){offset, count, share};
    d->loads[share].in_all += count;
    return UPS_OK;
}

/* ---- matrices ---------------------------------------------------------------------------------------------------- */

static int dearest_first(const void *left, const void *right) {
    const job *a = left, *b = right;
    if (a->cost != b->cost) return a->cost < b->cost ? 1 : -1;
    return a->offset < b->offset ? -1 : a->offset > b->offset;
}

/* Matrices of a parameter that begin at no multiple of the alignment stay together. The last has the padding. */
static int64_t list_matrices(const ups_parameter *parameter, job *jobs) {
    const int64_t columns = parameter->size[parameter->rank - 1], each = parameter->elements / parameter->init.matrices;
    const bool apart = each % UPS_SHARE_ALIGNMENT == 0;
    const int64_t count = apart ? parameter->init.matrices : 1, together = parameter->init.matrices / count;
    for (int64_t i = 0; i < count; i++)
        jobs[i] = (job){.offset = parameter->offset + i * each,
                        .count = apart ? each : ups_parameter_extent(parameter),
                        .cost = (double)together * ups_share_matrix_cost(each / columns, columns)};
    return count;
}

static int32_t find_cheapest(const dealing *d) {
    int32_t found = 0;
    for (int32_t s = 1; s < d->shares->count; s++) {
        const load *a = &d->loads[s], *b = &d->loads[found];
        if (a->cost < b->cost || (a->cost == b->cost && a->in_all < b->in_all)) found = s;
    }
    return found;
}

static ups_status deal_matrices(dealing *d, int32_t set, ups_error *error) {
    int64_t count = 0;
    for (int32_t i = 0; i < ups_parameters_count(d->parameters); i++) {
        const ups_parameter *parameter = ups_parameters_get(d->parameters, i);
        if (parameter->set == set && is_whole(d, parameter)) count += list_matrices(parameter, d->jobs + count);
    }
    qsort(d->jobs, (size_t)count, sizeof *d->jobs, dearest_first);
    for (int64_t k = 0; k < count; k++) {
        const int32_t share = find_cheapest(d);
        d->loads[share].cost += d->jobs[k].cost;
        UPS_TRY(add_piece(d, d->jobs[k].offset, d->jobs[k].count, share, error));
    }
    return UPS_OK;
}

/* ---- what lies between ------------------------------------------------------------------------------------------- */

static int32_t find_smallest(const dealing *d) {
    int32_t found = 0;
    for (int32_t s = 1; s < d->shares->count; s++) {
        const load *a = &d->loads[s], *b = &d->loads[found];
        if (a->elements < b->elements || (a->elements == b->elements && a->in_all < b->in_all)) found = s;
    }
    return found;
}

/* The longer parts first, each to the share that has the least. */
static ups_status cut_run(dealing *d, int64_t offset, int64_t count, ups_error *error) {
    const int64_t units = count / UPS_SHARE_ALIGNMENT, most = count / UPS_SHARE_PART;
    const int64_t parts = most < 1 ? 1 : most < d->shares->count ? most : d->shares->count;
    for (int64_t part = 0; part < parts; part++) {
        const int64_t length = (units / parts + (part < units % parts)) * UPS_SHARE_ALIGNMENT;
        const int32_t share = find_smallest(d);
        d->loads[share].elements += length;
        UPS_TRY(add_piece(d, offset, length, share, error));
        offset += length;
    }
    return UPS_OK;
}

static ups_status cut_stretch(dealing *d, int64_t offset, int64_t end, ups_error *error) {
    for (int64_t at = offset; at < end; at += UPS_SHARE_RUN)
        UPS_TRY(cut_run(d, at, end - at < UPS_SHARE_RUN ? end - at : UPS_SHARE_RUN, error));
    return UPS_OK;
}

static ups_status deal_rest(dealing *d, int32_t set, ups_error *error) {
    int64_t begin = 0, end = 0; /* of the stretch so far */
    for (int32_t k = 0; k < ups_parameters_count(d->parameters); k++) {
        const ups_parameter *parameter = ups_parameters_get(d->parameters, ups_parameters_placed(d->parameters, k));
        if (parameter->set != set || is_whole(d, parameter)) continue;
        if (parameter->offset != end) {
            UPS_TRY(cut_stretch(d, begin, end, error));
            begin = parameter->offset;
        }
        end = parameter->offset + ups_parameter_extent(parameter);
    }
    return cut_stretch(d, begin, end, error);
}

/* ---- all --------------------------------------------------------------------------------------------------------- */

static int by_offset(const void *left, const void *right) {
    const ups_share_piece *a = left, *b = right;
    return a->offset < b->offset ? -1 : a->offset > b->offset;
}

static void join_neighbours(ups_shares *shares) {
    int32_t count = 0;
    qsort(shares->pieces, (size_t)shares->piece_count, sizeof *shares->pieces, by_offset);
    for (int32_t i = 0; i < shares->piece_count; i++) {
        const ups_share_piece piece = shares->pieces[i];
        if (count > 0 && shares->pieces[count - 1].share == piece.share)
            shares->pieces[count - 1].count += piece.count;
        else
            shares->pieces[count++] = piece;
    }
    shares->piece_count = count;
}

static ups_status deal(dealing *d, ups_error *error) {
    for (int32_t set = 0; set < ups_parameters_sets(d->parameters); set++) {
        for (int32_t s = 0; s < d->shares->count; s++) d->loads[s] = (load){.in_all = d->loads[s].in_all};
        UPS_TRY(deal_matrices(d, set, error));
        UPS_TRY(deal_rest(d, set, error));
    }
    return UPS_OK;
}

ups_status ups_shares_find(const ups_parameters *parameters, int32_t count, bool whole_matrices, ups_shares *shares,
                           ups_error *error) {
    dealing d = {.parameters = parameters, .whole_matrices = whole_matrices, .shares = shares};
    int64_t matrices = 0;
    for (int32_t i = 0; i < ups_parameters_count(parameters); i++)
        matrices += ups_parameters_get(parameters, i)->init.matrices;
    *shares = (ups_shares){.count = count};
    d.loads = calloc((size_t)count, sizeof *d.loads);
    d.jobs = calloc((size_t)matrices + 1, sizeof *d.jobs);
    ups_status status =
        d.loads && d.jobs ? deal(&d, error) : ups_fail(error, UPS_ERR_MEMORY, "no memory for the table of shares");
    free(d.loads);
    free(d.jobs);
    if (status == UPS_OK && shares->piece_count > 0) join_neighbours(shares);
    return status;
}

void ups_shares_free(ups_shares *shares) {
    free(shares->pieces);
    *shares = (ups_shares){0};
}

int32_t ups_shares_piece_at(const ups_shares *shares, int64_t element) {
    int32_t low = 0, high = shares->piece_count;
    while (low < high) {
        const int32_t middle = low + (high - low) / 2;
        if (shares->pieces[middle].offset + shares->pieces[middle].count > element)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

ups_share_piece ups_share_piece_within(ups_share_piece piece, int64_t begin, int64_t end) {
    const int64_t from = piece.offset > begin ? piece.offset : begin, to = piece.offset + piece.count;
    return (ups_share_piece){from, (to < end ? to : end) - from, piece.share};
}

int64_t ups_shares_most_within(const ups_shares *shares, int64_t run) {
    int64_t most = 0;
    for (int32_t s = 0; s < shares->count; s++) {
        int64_t sum = 0, of = 0; /* the run that the sum is of */
        for (int32_t p = 0; p < shares->piece_count; p++) {
            const ups_share_piece *piece = &shares->pieces[p];
            for (int64_t at = piece->offset, end = at + piece->count, next; piece->share == s && at < end; at = next) {
                if (at / run != of) sum = 0;
                of = at / run;
                next = (of + 1) * run < end ? (of + 1) * run : end;
                sum += next - at;
                if (sum > most) most = sum;
            }
        }
    }
    return most;
}

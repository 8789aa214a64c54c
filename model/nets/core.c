#include "model/nets/core.h"

#include <string.h>

const ups_core_class *const ups_cores[] = {&ups_core_stack, &ups_core_spectral, &ups_core_unet, NULL};

const ups_core_class *ups_core_find(const char *name) {
    if (!name) return ups_cores[0];
    for (int i = 0; ups_cores[i]; i++) {
        if (strcmp(name, ups_cores[i]->name) == 0) return ups_cores[i];
    }
    return NULL;
}

int ups_core_block_count(const ups_operator_options *options) {
    const ups_core_class *core = ups_core_find(options->core);
    return core->block_count ? core->block_count(options) : options->depth;
}

ups_mixing ups_core_told_mixing(const ups_operator_options *options, int block) {
    if (options->mixing_count > 0) return options->mixing[block % options->mixing_count];
    return ups_core_find(options->core)->mixing;
}

static int64_t count_tokens(const ups_token_grid *grid) {
    int64_t tokens = 1;
    for (int axis = 0; axis < grid->dims; axis++) tokens *= grid->cells[axis];
    return tokens;
}

bool ups_core_merges(const ups_operator_options *options, const ups_token_grid *grid) {
    return count_tokens(grid) > options->merge_above;
}

/* Tokens that the block works on. */
static int64_t tokens_at(const ups_operator_options *options, int block) {
    const ups_core_class *core = ups_core_find(options->core);
    ups_token_grid grid = options->grid;
    for (int level = core->level ? core->level(options, block) : 0; level > 0; level--) {
        if (!ups_core_merges(options, &grid)) break;
        for (int axis = 0; axis < grid.dims; axis++) grid.cells[axis] = (grid.cells[axis] + 1) / 2;
    }
    return count_tokens(&grid);
}

ups_mixing ups_core_mixing(const ups_operator_options *options, int block) {
    const ups_mixing told = ups_core_told_mixing(options, block);
    if (told != UPS_MIXING_AUTO) return told;
    const bool regular = options->grid.task && !options->grid.scattered;
    return regular && tokens_at(options, block) > options->attended_tokens ? UPS_MIXING_SPECTRAL : UPS_MIXING_ATTENTION;
}

bool ups_core_may_attend(const ups_operator_options *options) {
    for (int i = 0; i < ups_core_block_count(options); i++) {
        if (ups_core_told_mixing(options, i) != UPS_MIXING_SPECTRAL) return true;
    }
    return false;
}

bool ups_core_mixes_by(const ups_operator_options *options, ups_mixing mixing) {
    for (int i = 0; i < ups_core_block_count(options); i++) {
        if (ups_core_mixing(options, i) == mixing) return true;
    }
    return false;
}

bool ups_core_may_choose(const ups_operator_options *options) {
    for (int i = 0; i < ups_core_block_count(options); i++) {
        if (ups_core_told_mixing(options, i) == UPS_MIXING_AUTO) return true;
    }
    return false;
}

static ups_status check_attention(const ups_operator_options *o, ups_error *error) {
    if (o->hidden % o->heads != 0) {
        return ups_fail(error, UPS_ERR_CONFIG, "operator: hidden (%lld) must be a multiple of heads (%d)",
                        (long long)o->hidden, o->heads);
    }
    const int64_t groups = o->hidden / UPS_GROUP_WIDTH;
    if (o->attention == UPS_ATTENTION_CHANNEL_SEPARATED &&
        (o->hidden % UPS_GROUP_WIDTH != 0 || o->heads % groups != 0)) {
        return ups_fail(
            error, UPS_ERR_CONFIG,
            "operator: attention: channel_separated works on groups of %d features; hidden (%lld) must be a "
            "multiple of %d, and heads (%d) a multiple of the number of groups",
            UPS_GROUP_WIDTH, (long long)o->hidden, UPS_GROUP_WIDTH, o->heads);
    }
    if (o->positions == UPS_POSITIONS_ROTARY && o->hidden / o->heads % 2 != 0) {
        return ups_fail(
            error, UPS_ERR_CONFIG,
            "operator: positions: rotary turns pairs of a head's features; hidden (%lld) over heads (%d) must "
            "be even; or set model.operator.positions: borders",
            (long long)o->hidden, o->heads);
    }
    const int place_dims = o->grid.scattered ? o->grid.place_dims : o->grid.dims;
    if (o->positions == UPS_POSITIONS_ROTARY && o->grid.task && o->hidden / o->heads < 2 * place_dims) {
        return ups_fail(error, UPS_ERR_CONFIG,
                        "operator: positions: rotary turns a pair of a head's features for each axis; task %s has %d "
                        "axes, and hidden (%lld) over heads (%d) leaves %lld features; set fewer heads, or "
                        "model.operator.positions: borders",
                        o->grid.task, place_dims, (long long)o->hidden, o->heads, (long long)(o->hidden / o->heads));
    }
    return UPS_OK;
}

/* What needs cells in rows and columns. */
static ups_status check_scattered(const ups_operator_options *o, ups_error *error) {
    const bool spectral = ups_core_mixes_by(o, UPS_MIXING_SPECTRAL);
    if (!spectral && o->convolution == 0) return UPS_OK;
    return ups_fail(error, UPS_ERR_CONFIG,
                    "operator: %s works on a regular grid, and the points of task %s lie anywhere; the cores stack and "
                    "unet with attention, without convolution, work on them",
                    spectral ? "spectral mixing" : "convolution", o->grid.task);
}

static ups_status check_grid(const ups_operator_options *o, const ups_core_class *core, ups_error *error) {
    if (o->grid.task && o->grid.scattered) return check_scattered(o, error);
    if (o->grid.task) return UPS_OK;
    if (ups_core_mixes_by(o, UPS_MIXING_SPECTRAL)) {
        if (o->mixing_count == 0) {
            return ups_fail(error, UPS_ERR_CONFIG,
                            "operator: the core %s works on a grid of tokens; set model.tokens: grid, or "
                            "model.operator.core: stack",
                            core->name);
        }
        return ups_fail(error, UPS_ERR_CONFIG,
                        "operator: mixing by spectral works on a grid of tokens; set model.tokens: grid, or "
                        "model.operator.mixing: [attention]");
    }
    if (o->attention == UPS_ATTENTION_WINDOW) {
        return ups_fail(error, UPS_ERR_CONFIG,
                        "operator: attention: window works on a grid of tokens; set model.tokens: grid, or "
                        "model.operator.attention: standard");
    }
    if (o->positions != UPS_POSITIONS_BORDERS) {
        return ups_fail(error, UPS_ERR_CONFIG,
                        "operator: positions are those of a grid of tokens; set model.tokens: grid, or leave "
                        "model.operator.positions out");
    }
    if (o->task_specific[UPS_HALF_MIXING] || o->task_specific[UPS_HALF_MLP]) {
        return ups_fail(error, UPS_ERR_CONFIG,
                        "operator: task_specific works on a grid of tokens; set model.tokens: grid, or "
                        "model.operator.task_specific: []");
    }
    if (o->convolution > 0) {
        return ups_fail(error, UPS_ERR_CONFIG,
                        "operator: convolution works on a grid of tokens; set model.tokens: grid, or "
                        "model.operator.convolution: 0");
    }
    return UPS_OK;
}

/* As many numbers as sizes multiply to; -1: more than `most`. */
static int64_t product(const int64_t *sizes, int count, int64_t most) {
    int64_t numbers = 1;
    for (int i = 0; i < count; i++) {
        if (sizes[i] > most / numbers) return -1;
        numbers *= sizes[i];
    }
    return numbers;
}

/* Graphs hold what they know of a grid as constants, which lie in no file: whoever asks for so much of it mistook a
 * size.
 */
enum { MOST_NUMBERS = 1 << 28 /* of a table, a GiB */, MOST_OFFSETS = 1 << 20 /* of two tokens of a window */ };

static ups_status check_modes(const ups_operator_options *o, ups_error *error) {
    const int64_t most_weights = (int64_t)1 << 40;
    const int dims = o->grid.dims;
    const int64_t modes = o->modes[dims - 1];
    const bool each = o->factorized; /* axis has matrices of its own */
    const int64_t weights[] = {modes,
                               dims > 1 && !each ? modes : 1,
                               dims > 2 && !each ? modes : 1,
                               each ? 2 * dims : (int64_t)1 << dims,
                               o->hidden,
                               o->hidden};
    if (product(weights, 6, most_weights) < 0) {
        return ups_fail(error, UPS_ERR_CONFIG,
                        "operator: modes (%lld along each of %d axes) with hidden (%lld) are more weights than a model "
                        "can have",
                        (long long)modes, dims, (long long)o->hidden);
    }
    for (int axis = 0; axis < dims; axis++) {
        const int64_t cells = o->grid.cells[axis], there = cells + 1 < modes ? cells + 1 : modes;
        if (product((const int64_t[]){2, there, cells}, 3, MOST_NUMBERS) >= 0) continue;
        return ups_fail(error, UPS_ERR_CONFIG,
                        "operator: modes: a table of %lld modes of %lld cells is larger than a GiB; take larger "
                        "patches, or fewer modes",
                        (long long)there, (long long)cells);
    }
    return UPS_OK;
}

static ups_status check_places(const ups_operator_options *o, ups_error *error) {
    const int dims = o->grid.dims;
    const int64_t *cells = o->grid.cells, window = o->window[dims - 1], side = 2 * window - 1;
    const int64_t offsets[] = {side, dims > 1 ? side : 1, dims > 2 ? side : 1};
    if (o->attention == UPS_ATTENTION_WINDOW && product(offsets, 3, MOST_OFFSETS) < 0) {
        return ups_fail(error, UPS_ERR_CONFIG, "operator: window: %lld cells along each of %d axes are too many",
                        (long long)window, dims);
    }
    const int64_t turns[] = {cells[0], dims > 1 ? cells[1] : 1, dims > 2 ? cells[2] : 1, o->hidden / o->heads};
    if (o->positions == UPS_POSITIONS_ROTARY && product(turns, 4, MOST_NUMBERS) < 0) {
        return ups_fail(error, UPS_ERR_CONFIG,
                        "operator: positions: rotary takes more than a GiB for task %s; take larger patches, or more "
                        "heads",
                        o->grid.task);
    }
    return UPS_OK;
}

ups_status ups_core_check(const ups_operator_options *o, ups_error *error) {
    const ups_core_class *core = ups_core_find(o->core);
    if (!core) return ups_fail(error, UPS_ERR_CONFIG, "operator: there is no core '%s'", o->core);
    if (o->mixing_count < 0 || o->mixing_count > UPS_MAX_TURNS) {
        return ups_fail(error, UPS_ERR_CONFIG, "operator: mixing has %d entries; at most %d were expected",
                        o->mixing_count, UPS_MAX_TURNS);
    }
    if (o->convolution != 0 && o->convolution != 3 && o->convolution != 5 && o->convolution != 7) {
        return ups_fail(error, UPS_ERR_CONFIG, "operator: convolution is %d; 0, 3, 5 or 7 was expected",
                        o->convolution);
    }
    if (o->window[0] < 2 || o->window[1] < 2 || o->window[2] < 2) {
        return ups_fail(error, UPS_ERR_CONFIG, "operator: window must be at least 2 cells along every axis");
    }
    UPS_TRY(check_grid(o, core, error));
    if (ups_core_mixes_by(o, UPS_MIXING_ATTENTION)) {
        UPS_TRY(check_attention(o, error));
    } else if (!ups_core_may_attend(o) &&
               (o->positions == UPS_POSITIONS_ROTARY || o->attention != UPS_ATTENTION_STANDARD)) {
        return ups_fail(error, UPS_ERR_CONFIG,
                        "operator: %s needs blocks that attend; set model.operator.mixing to [attention], or to "
                        "[spectral, attention]",
                        o->positions == UPS_POSITIONS_ROTARY ? "positions: rotary" : "a kind of attention");
    }
    if (!(o->mlp_ratio * (float)o->hidden >= 1)) {
        return ups_fail(error, UPS_ERR_CONFIG, "operator: mlp_ratio %g leaves the MLP without width", o->mlp_ratio);
    }
    if (o->grid.task && ups_core_mixes_by(o, UPS_MIXING_SPECTRAL)) UPS_TRY(check_modes(o, error));
    if (o->grid.task && ups_core_mixes_by(o, UPS_MIXING_ATTENTION)) UPS_TRY(check_places(o, error));
    return core->check ? core->check(o, error) : UPS_OK;
}

#include "pipeline/layouts/guess.h"

#include "pipeline/layouts/names.h"
#include <string.h>
#include <strings.h>

enum { MOST_CHANNELS = 8 }; /* of an axis that is taken for channels without being called so */

const char *ups_guess_last_part(const char *name) {
    const char *slash = strrchr(name, '/');
    return slash ? slash + 1 : name;
}

/* ---- which arrays --------------------------------------------------------------------------------------------------
 */

static int64_t elements_of(const ups_array_outline *outline) {
    int64_t elements = 1;
    for (int axis = 0; axis < outline->rank; axis++) {
        if (__builtin_mul_overflow(elements, outline->shape[axis], &elements)) return INT64_MAX;
    }
    return elements;
}

/* An array that is called as positions are, and has room for points of two or three coordinates. */
static const ups_array_outline *find_places(const ups_array_outline *outlines, int64_t count) {
    static const char *const names[] = {"points",   "point",     "pos",         "position",       "positions",
                                        "coords",   "coord",     "coordinates", "node_positions", "mesh_pos",
                                        "node_pos", "world_pos", "nodes",       "vertices",       "xyz"};
    enum { LEAST_POINTS = 4 };
    for (size_t n = 0; n < sizeof names / sizeof *names; n++) {
        for (int64_t i = 0; i < count; i++) {
            const ups_array_outline *one = &outlines[i];
            if (!one->numeric || one->integer || one->rank < 2 || one->rank > 4 || elements_of(one) == 0) continue;
            const int64_t dims = one->shape[one->rank - 1];
            if (dims >= 2 && dims <= UPS_MAX_POINT_DIMS && one->shape[one->rank - 2] >= LEAST_POINTS &&
                strcasecmp(ups_guess_last_part(one->name), names[n]) == 0)
                return one;
        }
    }
    return NULL;
}

/* The axis that is as long as there are points, the last of those or the one before channels; −1: none. */
static int point_axis(const ups_array_outline *one, const ups_array_outline *places) {
    const int64_t points = places->shape[places->rank - 2];
    for (int back = 1; back <= 2 && back <= one->rank; back++) {
        const int axis = one->rank - back;
        if (one->shape[axis] == points && (back == 1 || one->shape[axis + 1] <= MOST_CHANNELS)) return axis;
    }
    return -1;
}

/* The array of most axes, and among those the largest; where there are points, of those that have values at them. Whole
 * numbers only where there is nothing else: they are often masks and labels. */
static const ups_array_outline *find_main(const ups_array_outline *outlines, int64_t count,
                                          const ups_array_outline *places) {
    const ups_array_outline *best = NULL;
    for (int integers = 0; integers < 2 && !best; integers++) {
        for (int64_t i = 0; i < count; i++) {
            const ups_array_outline *one = &outlines[i];
            if (!one->numeric || one->rank < 2 || elements_of(one) == 0 || (one->integer && !integers)) continue;
            if (places && (one == places || point_axis(one, places) < 1)) continue;
            if (!best || one->rank > best->rank || (one->rank == best->rank && elements_of(one) > elements_of(best)))
                best = one;
        }
    }
    return best;
}

/* ---- names ---------------------------------------------------------------------------------------------------------
 */

static void call(ups_guess *guess, int axis, const char *name, const char *reason) {
    guess->axes[axis] = name;
    guess->reasons[axis] = reason;
    if (strcmp(name, "channel") == 0) guess->channel_axis = axis;
}

static bool is_used(const ups_guess *guess, const char *name) {
    for (int axis = 0; axis < guess->rank; axis++) {
        if (guess->axes[axis] && strcmp(guess->axes[axis], name) == 0) return true;
    }
    return false;
}

static void name_by_dimensions(ups_arena *arena, ups_guess *guess) {
    static const char reason[] = "by the dimension's name";
    for (int axis = 0; axis < guess->rank; axis++) {
        const char *name = guess->main->dimensions[axis];
        if (guess->axes[axis] || !name || strncmp(name, "phony_dim", 9) == 0) continue;
        const char *role = ups_name_is_time(name)          ? "time"
                           : ups_name_is_sample(name)      ? "sample"
                           : ups_name_is_channel(name)     ? "channel"
                           : guess->main->shape[axis] == 1 ? "_"
                                                           : ups_arena_strdup(arena, name);
        if (strcmp(role, "_") == 0 || !is_used(guess, role)) call(guess, axis, role, reason);
    }
}

/* "x" of "x", "x-coordinate", "grid/x", "X"; NULL of what is no coordinate's name. */
static const char *coordinate_name(ups_arena *arena, const char *array) {
    static const char *const names[] = {"x", "y", "z", "lat", "lon", "latitude", "longitude", "r", "theta", "phi"};
    const char *part = ups_guess_last_part(array);
    size_t length = strcspn(part, "-_");
    const char *tail = part + length;
    if (*tail && strcasecmp(tail, "-coordinate") != 0 && strcasecmp(tail, "_coordinate") != 0 &&
        strcasecmp(tail, "_coord") != 0 && strcasecmp(tail, "_grid") != 0)
        return NULL;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strlen(names[i]) == length && strncasecmp(part, names[i], length) == 0)
            return ups_arena_strdup(arena, names[i]);
    }
    return NULL;
}

static bool is_time_array(const ups_array_outline *one) {
    const char *part = ups_guess_last_part(one->name);
    return one->numeric && one->rank >= 1 && one->rank <= 2 &&
           (ups_name_is_time(part) || strcasecmp(part, "t-coordinate") == 0 || strcasecmp(part, "t_coordinate") == 0);
}

/* The first axis without a name that is as long; −1: none. */
static int free_axis(const ups_guess *guess, int64_t length, int64_t spare) {
    for (int axis = 0; axis < guess->rank; axis++) {
        int64_t more = length - guess->main->shape[axis];
        if (!guess->axes[axis] && more >= 0 && more <= spare && guess->main->shape[axis] > 1) return axis;
    }
    return -1;
}

static int axis_called(const ups_guess *guess, const char *name) {
    for (int axis = 0; axis < guess->rank; axis++) {
        if (guess->axes[axis] && strcmp(guess->axes[axis], name) == 0) return axis;
    }
    return -1;
}

static void name_by_coordinates(ups_arena *arena, ups_guess *guess) {
    for (int64_t i = 0; i < guess->outline_count; i++) {
        const ups_array_outline *one = &guess->outlines[i];
        if (!is_time_array(one) || guess->time) continue;
        int64_t length = one->shape[one->rank - 1];
        int axis = axis_called(guess, "time");
        if (axis < 0 && (axis = free_axis(guess, length, 0)) < 0) axis = free_axis(guess, length, 1);
        if (axis < 0) continue;
        int64_t more = length - guess->main->shape[axis];
        if (more < 0 || more > 1) continue;
        guess->time = one;
        if (!guess->axes[axis]) call(guess, axis, "time", ups_arena_printf(arena, "as long as '%s'", one->name));
    }
    for (int64_t i = 0; i < guess->outline_count; i++) {
        const ups_array_outline *one = &guess->outlines[i];
        if (!one->numeric || one->rank != 1) continue;
        const char *name = coordinate_name(arena, one->name);
        int axis = axis_called(guess, ups_guess_last_part(one->name));
        if (axis < 0 && name) axis = axis_called(guess, name);
        if (axis < 0 && name) axis = free_axis(guess, one->shape[0], 0);
        if (axis < 0 || guess->main->shape[axis] != one->shape[0] || one == guess->time || guess->coordinates[axis])
            continue;
        if (guess->axes[axis] && (strcmp(guess->axes[axis], "time") == 0 || strcmp(guess->axes[axis], "sample") == 0))
            continue;
        guess->coordinates[axis] = one;
        if (!guess->axes[axis]) call(guess, axis, name, ups_arena_printf(arena, "as long as '%s'", one->name));
    }
}

/* Two arrays that differ in one axis alone, which is short: their channels. */
static void name_channels_by_difference(ups_guess *guess) {
    if (guess->channel_axis >= 0) return;
    for (int64_t i = 0; i < guess->outline_count; i++) {
        const ups_array_outline *one = &guess->outlines[i];
        int differing = -1, count = 0;
        if (!one->numeric || one->rank != guess->rank) continue;
        for (int axis = 0; axis < guess->rank; axis++) {
            if (one->shape[axis] == guess->main->shape[axis]) continue;
            differing = axis;
            count++;
        }
        if (count != 1 || guess->axes[differing] || guess->main->shape[differing] > MOST_CHANNELS ||
            one->shape[differing] > MOST_CHANNELS)
            continue;
        call(guess, differing, "channel", "arrays differ along it alone");
        return;
    }
}

/* ---- positions -----------------------------------------------------------------------------------------------------
 */

static int count_free(const ups_guess *guess) {
    int count = 0;
    for (int axis = 0; axis < guess->rank; axis++) count += !guess->axes[axis];
    return count;
}

/* A short axis, last or before the grid, beside others that are enough. The second axis is often time, and has to be
 * very short. */
static void name_channels_by_length(ups_guess *guess) {
    enum { VERY_SHORT = 4 };
    const bool wanted = guess->rank >= 3 && guess->channel_axis < 0;
    int shortest = -1;
    for (int axis = 1; wanted && axis < guess->rank; axis++) {
        const int64_t length = guess->main->shape[axis];
        const int64_t most = axis == 1 && guess->rank > 2 ? VERY_SHORT : MOST_CHANNELS;
        if (guess->axes[axis] || length > most || length < 2) continue;
        bool shorter = true;
        for (int other = 0; other < guess->rank; other++)
            shorter &= other == axis || length < guess->main->shape[other];
        if (shorter) shortest = axis;
    }
    const int needed = (axis_called(guess, "time") < 0) + 2; /* time, a grid axis, and the channels themselves */
    if (shortest >= 0 && count_free(guess) >= needed) call(guess, shortest, "channel", "it is short");
}

/* What is left: trailing axes of one length are a grid, before them time, before that samples. */
static void name_by_position(ups_guess *guess) {
    static const char *const grid_names[] = {"x", "y", "z"};
    static const char reason[] = "by its place";
    int left[UPS_ARRAY_MAX_RANK], count = 0, grid = 0, known_grid = 0;
    for (int axis = 0; axis < guess->rank; axis++) {
        const char *name = guess->axes[axis];
        if (!name && guess->main->shape[axis] == 1)
            call(guess, axis, "_", "it has one entry");
        else if (!name)
            left[count++] = axis;
        else
            known_grid +=
                strcmp(name, "sample") && strcmp(name, "time") && strcmp(name, "channel") && strcmp(name, "_");
    }
    const bool needs_time = axis_called(guess, "time") < 0, needs_sample = axis_called(guess, "sample") < 0;
    while (grid < count && grid + known_grid < UPS_MAX_GRID_DIMS &&
           guess->main->shape[left[count - 1 - grid]] == guess->main->shape[left[count - 1]])
        grid++;
    while (count - grid > needs_time + needs_sample && grid + known_grid < UPS_MAX_GRID_DIMS) grid++;
    /* before time, or before a grid that is known, there are samples */
    const int time = axis_called(guess, "time");
    const bool leads = count > 0 && needs_sample && (left[0] < time || (left[0] == 0 && known_grid > 0));
    const int least = needs_time + leads;
    while (grid > 0 && count - grid < least && grid + known_grid > 1) grid--;
    int next = 0, leading = count - grid;
    if (needs_sample && leading > needs_time) call(guess, left[next++], "sample", reason);
    if (needs_time && next < leading) call(guess, left[next++], "time", reason);
    for (int name = 0; next < count && name < 3; name++) {
        if (!is_used(guess, grid_names[name])) call(guess, left[next++], grid_names[name], reason);
    }
    for (; next < count; next++) call(guess, left[next], "_", "no meaning was found");
}

static bool has_own_name(const ups_array_outline *one, int axis) {
    return one->dimensions[axis] && strncmp(one->dimensions[axis], "phony_dim", 9) != 0;
}

/* Whether an axis may be samples or time: by its name, where the file gives it one. */
static bool may_lead(const ups_array_outline *main, int axis) {
    const char *name = main->dimensions[axis];
    return !has_own_name(main, axis) || ups_name_is_time(name) || ups_name_is_sample(name) || main->shape[axis] == 1;
}

/* Whether an array has values at the points, and not on a grid of which an axis happens to be as long. In doubt it is a
 * grid: points are rarer. */
static bool is_at_points(const ups_array_outline *main, const ups_array_outline *places) {
    enum { MOST_LEADING = 2 }; /* sample, time */
    const int axis = point_axis(main, places), of_places = places->rank - 2;
    if (axis < 1 || axis > MOST_LEADING) return false;
    if (has_own_name(main, axis) && has_own_name(places, of_places) &&
        strcmp(main->dimensions[axis], places->dimensions[of_places]) != 0)
        return false;
    for (int before = 0; before < axis; before++)
        if (!may_lead(main, before)) return false;
    if (axis < MOST_LEADING) return true;
    if (main->shape[axis - 1] == main->shape[axis]) return false;          /* a square */
    return places->rank != 3 || main->shape[axis - 1] != places->shape[0]; /* (x, y, 2) of a grid */
}

/* Whether there is nothing but positions, which then move. */
static bool are_alone(const ups_array_outline *outlines, int64_t count, const ups_array_outline *places) {
    for (int64_t i = 0; i < count; i++) {
        const ups_array_outline *one = &outlines[i];
        if (one != places && one->numeric && !one->integer && one->rank >= 2 && one->rank >= places->rank - 1 &&
            !is_time_array(one))
            return false;
    }
    return places->rank > 2;
}

/* The main array of data at points, or NULL: these are none. */
static const ups_array_outline *find_main_at_points(const ups_array_outline *outlines, int64_t count,
                                                    const ups_array_outline *places) {
    const ups_array_outline *main = find_main(outlines, count, places);
    if (!main || point_axis(main, places) + 1 < places->rank - 1) /* less than positions have: nothing that changes */
        return are_alone(outlines, count, places) ? places : NULL;
    const ups_array_outline *any = find_main(outlines, count, NULL);
    const bool more = any != places && point_axis(any, places) < 0 && any->rank > main->rank;
    return more || !is_at_points(main, places) ? NULL : main;
}

/* Points by the array of positions, and behind them channels. */
static void name_points(ups_arena *arena, ups_guess *guess) {
    const int axis = point_axis(guess->main, guess->places);
    guess->coordinates[axis] = guess->places;
    call(guess, axis, "point", ups_arena_printf(arena, "as long as '%s'", guess->places->name));
    if (axis + 1 < guess->rank) call(guess, axis + 1, "channel", "behind the points");
}

static void name_axes(ups_arena *arena, ups_guess *guess) {
    guess->rank = guess->main->rank;
    guess->channel_axis = -1;
    if (guess->places) name_points(arena, guess);
    name_by_dimensions(arena, guess);
    name_by_coordinates(arena, guess);
    name_channels_by_difference(guess);
    name_channels_by_length(guess);
    name_by_position(guess);
}

/* Whether samples and time of positions are those of the main array. */
static bool places_agree(const ups_guess *guess) {
    for (int axis = 0; axis < guess->places->rank - 2; axis++) {
        const int of = ups_guess_axis_of_places(guess, axis);
        if (of < 0 || (strcmp(guess->axes[of], "sample") != 0 && strcmp(guess->axes[of], "time") != 0)) return false;
    }
    return true;
}

void ups_guess_axes(ups_arena *arena, const ups_array_outline *outlines, int64_t count, ups_guess *guess) {
    *guess = (ups_guess){.outlines = outlines, .outline_count = count, .places = find_places(outlines, count)};
    if (guess->places) guess->main = find_main_at_points(outlines, count, guess->places);
    if (guess->main) {
        name_axes(arena, guess);
        if (places_agree(guess)) return;
    }
    *guess = (ups_guess){.outlines = outlines, .outline_count = count, .main = find_main(outlines, count, NULL)};
    if (guess->main) name_axes(arena, guess);
}

/* ---- other arrays --------------------------------------------------------------------------------------------------
 */

bool ups_guess_is_field(const ups_guess *guess, const ups_array_outline *outline, int *without) {
    *without = -1;
    if (outline->rank == guess->rank - 1)
        *without = guess->channel_axis >= 0 ? guess->channel_axis : axis_called(guess, "time");
    if (!outline->numeric || outline == guess->time || outline == guess->places) return false;
    if (outline->rank != guess->rank && *without < 0) return false;
    if (outline->integer && !guess->main->integer) return false;
    for (int axis = 0, own = 0; axis < guess->rank; axis++) {
        if (axis == *without) continue;
        if (outline->shape[own++] == guess->main->shape[axis] || axis == guess->channel_axis) continue;
        return false;
    }
    return outline->rank >= 2;
}

int ups_guess_axis_of_places(const ups_guess *guess, int axis) {
    int from = 0;
    for (int before = 0; before <= axis; before++) {
        while (from < guess->rank &&
               (guess->main->shape[from] != guess->places->shape[before] || strcmp(guess->axes[from], "point") == 0))
            from++;
        if (before < axis) from++;
    }
    return from < guess->rank ? from : -1;
}

bool ups_guess_is_table(const ups_guess *guess, const ups_array_outline *outline) {
    enum { MOST_COLUMNS = 16 };
    const int sample = axis_called(guess, "sample");
    return outline->numeric && outline != guess->time && outline != guess->places && outline->rank == 2 &&
           guess->rank > 2 && sample >= 0 && outline->shape[0] == guess->main->shape[sample] &&
           outline->shape[1] >= 1 && outline->shape[1] <= MOST_COLUMNS;
}

bool ups_guess_is_parameter(const ups_guess *guess, const ups_array_outline *outline) {
    const int sample = axis_called(guess, "sample");
    if (!outline->numeric || outline == guess->time || outline == guess->places) return false;
    for (int axis = 0; axis < guess->rank; axis++) {
        if (guess->coordinates[axis] == outline) return false;
    }
    if (outline->rank == 0 || (outline->rank == 1 && outline->shape[0] == 1)) return true;
    return outline->rank == 1 && sample >= 0 && outline->shape[0] == guess->main->shape[sample];
}

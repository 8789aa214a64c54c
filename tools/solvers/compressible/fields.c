#include "tools/solvers/compressible/fields.h"
#include "base/random.h"

#include <math.h>
#include <string.h>

/* Fields of a sample are drawn from seeds this far apart. */
static const uint64_t field_seed = UINT64_C(0x9E3779B97F4A7C15);

/* Where in a sample's random stream each number lies; waves take five each from DRAW_PHASES on. */
enum {
    DRAW_DENSITY,
    DRAW_TEMPERATURE,
    DRAW_DENSITY_WAVES,
    DRAW_PRESSURE_WAVES,
    DRAW_WINDOW,
    DRAW_RATIO,
    DRAW_WAVENUMBER,
    DRAW_EDGES = 8,
    DRAW_PLACES = 16,
    DRAW_PHASES = 64,
    PHASES_A_WAVE = 5,
};

static ups_random stream_of(uint64_t seed, int64_t sample) {
    return ups_random_stream(seed, UPS_RANDOM_DATAGEN, (uint32_t)sample);
}

static double between(ups_random stream, uint64_t index, double low, double high) {
    return low + (high - low) * ups_random_uniform(stream, index);
}

static double log_between(ups_random stream, uint64_t index, double low, double high) {
    return exp(between(stream, index, log(low), log(high)));
}

static double centre(int64_t i, int64_t cells) {
    return ((double)i + 0.5) / (double)cells;
}

/* ---- one dimension ---- */

/* Scales the field to [b, b + m]; a uniform one becomes b. */
static void scale_to(int64_t cells, double b, double m, double *field) {
    double low = field[0], high = field[0];
    for (int64_t i = 1; i < cells; i++) {
        low = field[i] < low ? field[i] : low;
        high = field[i] > high ? field[i] : high;
    }
    const double span = high > low ? high - low : 1.0;
    for (int64_t i = 0; i < cells; i++) field[i] = b + m * (field[i] - low) / span;
}

void ups_gas_random_line(ups_wave_law law, int64_t cells, uint64_t seed, int64_t sample, double *const fields[3]) {
    const ups_wave_family family = {.law = law, .waves = 2, .k_max = 3, .p_absolute = 0.1, .p_window = 0.5};
    static const double lowest[3] = {1.0, 0.0, 10.0}, highest[3] = {10.0, 0.0, 100.0};
    for (int v = 0; v < 3; v++) {
        const uint64_t own_seed = seed + (uint64_t)v * field_seed;
        ups_wave_profile profile;
        ups_wave_profile_draw(&family, own_seed, sample, &profile);
        if (law == UPS_WAVES_PDEBENCH) { /* a window of [-1, 1], which is twice the unit interval */
            profile.window_left = 0.5 + 0.5 * profile.window_left;
            profile.window_right = 0.5 + 0.5 * profile.window_right;
            profile.window_sharpness *= 2.0;
        }
        for (int64_t i = 0; i < cells; i++) fields[v][i] = ups_wave_profile_at(&profile, centre(i, cells));
        if (v == 1) continue;
        const ups_random stream = stream_of(own_seed, sample);
        const double m = log_between(stream, DRAW_PHASES, lowest[v], highest[v]);
        const double b = log_between(stream, DRAW_PHASES + 1, lowest[v], highest[v]);
        scale_to(cells, b, m, fields[v]);
    }
}

void ups_gas_random_shock(ups_wave_law law, int64_t cells, uint64_t seed, int64_t sample, double *const fields[3]) {
    const ups_random stream = stream_of(seed, sample);
    const bool as_pdebench = law == UPS_WAVES_PDEBENCH;
    for (int v = 0; v < 3; v++) {
        const uint64_t at = DRAW_PLACES + 4 * (uint64_t)v;
        double side[2];
        for (int s = 0; s < 2; s++) {
            const uint64_t own = at + 1 + (uint64_t)s;
            const double velocity = between(stream, own, -0.5, 0.5);
            side[s] = v == 0        ? log_between(stream, own, 1.0, 10.0)
                      : v == 2      ? log_between(stream, own, 10.0, 100.0)
                      : as_pdebench ? exp(velocity)
                                    : velocity;
        }
        const double place = between(stream, as_pdebench ? at + 2 : at, 0.25, 0.75);
        for (int64_t i = 0; i < cells; i++) fields[v][i] = centre(i, cells) < place ? side[0] : side[1];
    }
}

void ups_gas_shock_tube(int64_t cells, int test, double *const fields[3]) {
    static const struct {
        double place, left[3], right[3]; /* density, velocity, pressure */
    } tubes[7] = {
        {0.3, {1.0, 0.75, 1.0}, {0.125, 0.0, 0.1}},
        {0.5, {1.0, -2.0, 0.4}, {1.0, 2.0, 0.4}},
        {0.5, {1.0, 0.0, 1000.0}, {1.0, 0.0, 0.01}},
        {0.4, {5.99924, 19.5975, 460.894}, {5.99242, -6.19633, 46.095}},
        {0.8, {1.0, -19.59745, 1000.0}, {1.0, -19.59745, 0.01}},
        {0.5, {1.4, 0.0, 1.0}, {1.0, 0.0, 1.0}},
        {0.5, {1.4, 0.1, 1.0}, {1.0, 0.1, 1.0}},
    };
    for (int v = 0; v < 3; v++) {
        for (int64_t i = 0; i < cells; i++) {
            fields[v][i] =
                centre(i, cells) < tubes[test - 1].place ? tubes[test - 1].left[v] : tubes[test - 1].right[v];
        }
    }
}

/* ---- waves in two and three dimensions ---- */

/* As the flow solver has it: three slots, the middle one unused in two dimensions. */
typedef struct wave_grid {
    int modes[3];     /* 2 k_max + 1, or 1 */
    int64_t cells[3]; /* or 1 */
    int axis[3];      /* -1 where unused */
} wave_grid;

static wave_grid grid_of(const ups_gas_waves *waves) {
    const int modes = 2 * waves->k_max + 1;
    if (waves->axes == 3) {
        return (wave_grid){{modes, modes, modes}, {waves->cells, waves->cells, waves->cells}, {0, 1, 2}};
    }
    return (wave_grid){{modes, 1, modes}, {waves->cells, 1, waves->cells}, {0, -1, 1}};
}

size_t ups_gas_waves_scratch(const ups_gas_waves *waves) {
    const size_t modes = 2 * (size_t)waves->k_max + 1;
    /* amplitudes; partial sums over the first one and two axes; cosines and sines along an axis. Complex each. */
    return 2 * (modes * modes * modes + modes * modes + modes + modes * (size_t)waves->cells);
}

/* Complex amplitudes, of Σ Im(a exp(2πi k·x)), of field `field`: velocities first, then pressure and density. */
static void amplitudes(const ups_gas_waves *waves, const wave_grid *grid, ups_random stream, int field, int solenoidal,
                       double *real, double *imaginary) {
    int64_t mode = 0;
    for (int i = 0; i < grid->modes[0]; i++) {
        for (int j = 0; j < grid->modes[1]; j++) {
            for (int l = 0; l < grid->modes[2]; l++, mode++) {
                const int index[3] = {i, j, l};
                double k[3] = {0.0}, square = 0.0;
                int still = 0; /* a wave that does not vary along some axis */
                for (int s = 0; s < 3; s++) {
                    if (grid->axis[s] < 0) continue;
                    k[grid->axis[s]] = 2.0 * M_PI * (index[s] - waves->k_max);
                    square += k[grid->axis[s]] * k[grid->axis[s]];
                    still |= index[s] == waves->k_max;
                }
                real[mode] = imaginary[mode] = 0.0;
                if (still) continue;
                const double size = waves->axes == 2 ? 1.0 / sqrt(sqrt(square)) : 1.0 / sqrt(square);
                double re[3], im[3], along_re = 0.0, along_im = 0.0;
                for (int c = 0; c < waves->axes; c++) {
                    const uint64_t at = DRAW_PHASES + (uint64_t)mode * PHASES_A_WAVE + (uint64_t)c;
                    const double phase = 2.0 * M_PI * ups_random_uniform(stream, at);
                    re[c] = size * cos(phase);
                    im[c] = size * sin(phase);
                    along_re += k[c] * re[c] / square;
                    along_im += k[c] * im[c] / square;
                }
                if (field < waves->axes) {
                    real[mode] = re[field] - (solenoidal ? k[field] * along_re : 0.0);
                    imaginary[mode] = im[field] - (solenoidal ? k[field] * along_im : 0.0);
                } else {
                    const uint64_t at = DRAW_PHASES + (uint64_t)mode * PHASES_A_WAVE + (uint64_t)field;
                    const double phase = 2.0 * M_PI * ups_random_uniform(stream, at);
                    real[mode] = size * cos(phase);
                    imaginary[mode] = size * sin(phase);
                }
            }
        }
    }
}

/* Multiplies `count` amplitudes by exp(2πi k x), k = (row number) - k_max, and adds up over the rows: sum over one axis
 * at place x. */
static void sum_axis(int rows, int k_max, double x, int64_t count, const double *real, const double *imaginary,
                     double *sum_real, double *sum_imaginary) {
    memset(sum_real, 0, sizeof(double) * (size_t)count);
    memset(sum_imaginary, 0, sizeof(double) * (size_t)count);
    for (int r = 0; r < rows; r++) {
        const double angle = rows == 1 ? 0.0 : 2.0 * M_PI * (r - k_max) * x, c = cos(angle), s = sin(angle);
        for (int64_t m = 0; m < count; m++) {
            const double re = real[r * count + m], im = imaginary[r * count + m];
            sum_real[m] += c * re - s * im;
            sum_imaginary[m] += c * im + s * re;
        }
    }
}

static void evaluate(const ups_gas_waves *waves, ups_random stream, int field, int solenoidal, double *values,
                     double *scratch) {
    const wave_grid grid = grid_of(waves);
    const int64_t last = grid.modes[2], plane = grid.modes[1] * last, all = grid.modes[0] * plane;
    const int64_t cells = waves->cells;
    double *real = scratch, *imaginary = real + all;
    double *plane_real = imaginary + all, *plane_imaginary = plane_real + plane;
    double *line_real = plane_imaginary + plane, *line_imaginary = line_real + last;
    double *cosine = line_imaginary + last, *sine = cosine + last * cells;
    amplitudes(waves, &grid, stream, field, solenoidal, real, imaginary);
    for (int64_t m = 0; m < last; m++) {
        for (int64_t i = 0; i < cells; i++) {
            const double angle = 2.0 * M_PI * (double)(m - waves->k_max) * centre(i, cells);
            cosine[m * cells + i] = cos(angle);
            sine[m * cells + i] = sin(angle);
        }
    }
    for (int64_t i = 0; i < grid.cells[0]; i++) {
        sum_axis(grid.modes[0], waves->k_max, centre(i, grid.cells[0]), plane, real, imaginary, plane_real,
                 plane_imaginary);
        for (int64_t j = 0; j < grid.cells[1]; j++) {
            sum_axis(grid.modes[1], waves->k_max, centre(j, grid.cells[1]), last, plane_real, plane_imaginary,
                     line_real, line_imaginary);
            double *row = values + (i * grid.cells[1] + j) * cells;
            memset(row, 0, sizeof(double) * (size_t)cells);
            for (int64_t m = 0; m < last; m++) {
                const double re = line_real[m], im = line_imaginary[m];
                const double *c = cosine + m * cells, *s = sine + m * cells;
                for (int64_t k = 0; k < cells; k++) row[k] += re * s[k] + im * c[k];
            }
        }
    }
}

static int64_t all_cells(const ups_gas_waves *waves) {
    return waves->axes == 3 ? waves->cells * waves->cells * waves->cells : waves->cells * waves->cells;
}

/* Velocities of mean speed `speed`. */
static void draw_velocities(const ups_gas_waves *waves, ups_random stream, int solenoidal, double speed,
                            double *const *fields, double *scratch) {
    const int64_t all = all_cells(waves);
    for (int a = 0; a < waves->axes; a++) evaluate(waves, stream, a, solenoidal, fields[1 + a], scratch);
    double mean = 0.0;
    for (int64_t c = 0; c < all; c++) {
        double square = 0.0;
        for (int a = 1; a <= waves->axes; a++) square += fields[a][c] * fields[a][c];
        mean += sqrt(square);
    }
    const double scale = speed * (double)all / mean;
    for (int a = 1; a <= waves->axes; a++) {
        for (int64_t c = 0; c < all; c++) fields[a][c] *= scale;
    }
}

/* mean · (1 + waves), the waves' mean size being `part`, or less where they would take more than 95 %. */
static void draw_perturbed(const ups_gas_waves *waves, ups_random stream, int field, double mean, double part,
                           double *values, double *scratch) {
    const int64_t all = all_cells(waves);
    evaluate(waves, stream, field, 0, values, scratch);
    double sum = 0.0, deepest = 0.0;
    for (int64_t c = 0; c < all; c++) {
        sum += fabs(values[c]);
        deepest = -values[c] > deepest ? -values[c] : deepest;
    }
    double scale = part * (double)all / sum;
    if (scale * deepest > 0.95) scale = 0.95 / deepest;
    for (int64_t c = 0; c < all; c++) values[c] = mean * (1.0 + scale * values[c]);
}

static double window(double x, double left, double right) {
    const double sharpness = 100.0;
    return 0.5 * (tanh((x - left) * sharpness) - tanh((x - right) * sharpness));
}

/* Outside the window gas at rest, of mean density and pressure. */
static void apply_window(const ups_gas_waves *waves, ups_random stream, double density, double pressure,
                         double *const *fields, double *scratch) {
    const wave_grid grid = grid_of(waves);
    const int64_t cells = waves->cells;
    double *along = scratch;
    for (int s = 0; s < 3; s++) {
        if (grid.axis[s] < 0) {
            along[s * cells] = 1.0;
            continue;
        }
        const uint64_t at = DRAW_EDGES + 2 * (uint64_t)grid.axis[s];
        double left = ups_random_uniform(stream, at), right = ups_random_uniform(stream, at + 1);
        if (waves->law == UPS_WAVES_PDEBENCH) /* along x what decides whether there is a window */
            left = right = ups_random_uniform(stream, grid.axis[s] == 0 ? DRAW_WINDOW : at);
        left = 0.1 + 0.35 * left;
        right = 0.55 + 0.35 * right;
        for (int64_t i = 0; i < cells; i++) along[s * cells + i] = window(centre(i, cells), left, right);
    }
    int64_t cell = 0;
    for (int64_t i = 0; i < grid.cells[0]; i++) {
        for (int64_t j = 0; j < grid.cells[1]; j++) {
            for (int64_t k = 0; k < cells; k++, cell++) {
                const double inside = along[i] * along[cells + j] * along[2 * cells + k];
                fields[0][cell] = inside * fields[0][cell] + (1.0 - inside) * density;
                for (int a = 1; a <= waves->axes; a++) fields[a][cell] *= inside;
                fields[1 + waves->axes][cell] = inside * fields[1 + waves->axes][cell] + (1.0 - inside) * pressure;
            }
        }
    }
}

void ups_gas_random_waves(const ups_gas_waves *waves, uint64_t seed, int64_t sample, double *const *fields,
                          double *scratch) {
    const ups_random stream = stream_of(seed, sample);
    const double density = between(stream, DRAW_DENSITY, 0.1, 10.0);
    const double temperature = between(stream, DRAW_TEMPERATURE, 0.1, 10.0);
    const int pressure = waves->axes + 1;
    draw_velocities(waves, stream, 0, waves->mach * sqrt(waves->gamma * temperature), fields, scratch);
    draw_perturbed(waves, stream, waves->axes, density * temperature, between(stream, DRAW_PRESSURE_WAVES, 0.01, 0.2),
                   fields[pressure], scratch);
    draw_perturbed(waves, stream, waves->axes + 1, density, between(stream, DRAW_DENSITY_WAVES, 0.01, 0.2), fields[0],
                   scratch);
    if (ups_random_uniform(stream, DRAW_WINDOW) < 0.5) {
        apply_window(waves, stream, density, density * temperature, fields, scratch);
    }
}

void ups_gas_turbulence(const ups_gas_waves *waves, uint64_t seed, int64_t sample, double *const *fields,
                        double *scratch) {
    const int64_t all = all_cells(waves);
    const double pressure = 1.0 / (waves->gamma * waves->mach * waves->mach);
    draw_velocities(waves, stream_of(seed, sample), 1, 1.0, fields, scratch);
    for (int64_t c = 0; c < all; c++) {
        fields[0][c] = 1.0;
        fields[waves->axes + 1][c] = pressure;
    }
}

/* ---- flows of a given form in two dimensions ---- */

void ups_gas_kelvin_helmholtz(int64_t cells, double mach, double ratio_max, double gamma, uint64_t seed, int64_t sample,
                              double *const fields[4]) {
    const ups_random stream = stream_of(seed, sample);
    const double ratio = between(stream, DRAW_RATIO, 1.0 / ratio_max, ratio_max);
    const double above = 2.0 / (ratio + 1.0), below = ratio * above;
    const double wavenumber = 1.0 + (double)ups_random_below(stream, DRAW_WAVENUMBER, 3);
    for (int64_t i = 0; i < cells; i++) {
        const double interface = 0.5 + 0.005 * sin(2.0 * M_PI * wavenumber * centre(i, cells));
        for (int64_t j = 0; j < cells; j++) {
            const double under = interface * (double)cells - (double)j; /* what of the cell lies below */
            const double part = under <= 0.0 ? 0.0 : under >= 1.0 ? 1.0 : under;
            const double density = part * below + (1.0 - part) * above;
            fields[0][i * cells + j] = density;
            fields[1][i * cells + j] = ((1.0 - part) * above - part * below) / density;
            fields[2][i * cells + j] = 0.0;
            fields[3][i * cells + j] = 1.0 / (gamma * mach * mach);
        }
    }
}

void ups_gas_orszag_tang(int64_t cells, double gamma, double *const fields[4]) {
    for (int64_t i = 0; i < cells; i++) {
        for (int64_t j = 0; j < cells; j++) {
            fields[0][i * cells + j] = gamma * gamma;
            fields[1][i * cells + j] = -sin(2.0 * M_PI * centre(j, cells));
            fields[2][i * cells + j] = sin(2.0 * M_PI * centre(i, cells));
            fields[3][i * cells + j] = gamma;
        }
    }
}

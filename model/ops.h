/* The ops: each exists once, here, with its shapes, what it computes, and its gradient. Devices implement the list
 * (op.h); the test `tests/model/test_ops` runs all of it on every device against a float64 reference: that is how a new
 * kernel is trusted.
 *
 * A constructor checks shapes, decides dtypes, and appends a node. Notation: B batch, T tokens, D features, N the rows
 * of all leading axes together, H heads. "compute" is the graph's compute dtype. An input marked ? may be UPS_NO_VALUE.
 * Unless said otherwise backward gives gradients to all float inputs that need them. */
#ifndef UPS_MODEL_OPS_H
#define UPS_MODEL_OPS_H

#include "model/graph.h"

/* y (…, M) = x (…, K) Wᵀ + b?; W (M, K), b (M). y: compute, or float32 when attributes.output_f32. x is cast to compute
 * when it is not. With a constant W in float32, or a fixed parameter, the product is one of float32, whatever
 * compute is */
ups_value ups_linear(ups_graph *g, ups_value x, ups_value weight, ups_value bias, bool output_f32);
/* The same in a bfloat16 graph; in training a device that multiplies FP8 rounds x and W to E4M3 and dy to E5M2, where
 * all sizes are multiples of UPS_FP8_MULTIPLE. `state` (UPS_FP8_OPERANDS, UPS_FP8_NUMBERS): a fixed parameter that
 * begins as zeros, the layer's own, which kernels write. */
ups_value ups_linear_fp8(ups_graph *g, ups_value x, ups_value weight, ups_value bias, ups_value state, bool output_f32);
/* linear_gelu has no constructor: fuse.h makes it of linear and gelu. y = GELU(x Wᵀ + b?); saves x Wᵀ + b. */
/* y = (x − mean) / √(var + ε) · gain? + bias? over the last axis; saves mean and 1/√ (N, 2). y: compute, or as
 * output_f32 says */
ups_value ups_layer_norm(ups_graph *g, ups_value x, ups_value gain, ups_value bias, bool output_f32);
/* y = x / √(mean(x²) + ε) · gain over the last axis; saves 1/√ (N) */
ups_value ups_rms_norm(ups_graph *g, ups_value x, ups_value gain);
/* y (B,T,D) = x · (1 + scale) + shift; scale, shift (B, D): AdaLN */
ups_value ups_modulate(ups_graph *g, ups_value x, ups_value scale, ups_value shift);
/* y (B,T,D) = x + keep_b · σ(gate + 2)? · f; gate? (B, D); keep_b: drop-path, 0 or 1/(1−p) a sample, Philox (seed,
 * step, layer). y: dtype of x */
ups_value ups_residual(ups_graph *g, ups_value x, ups_value branch, ups_value gate, float drop_path, uint32_t layer);
/* y = x + z; z has x's shape, or (D), or (T, D) repeated over the batch, or (B, 1, D) repeated over tokens. y: dtype of
 * x */
ups_value ups_add(ups_graph *g, ups_value x, ups_value z);
/* y (B, T, D) = x (T, D) for every sample of attributes.batch */
ups_value ups_broadcast(ups_graph *g, ups_value x, int64_t batch);
/* exact: x Φ(x) */
ups_value ups_gelu(ups_graph *g, ups_value x);
/* x σ(x) */
ups_value ups_silu(ups_graph *g, ups_value x);
/* y = b asinh(x / b), or the inverse, b sinh(x / b): near 0 x itself, far beyond b its logarithm. float32 */
ups_value ups_bound(ups_graph *g, ups_value x, float b, bool inverse);
/* y = x rounded to float16, as float32; dx = dy, as if it were not. float32 */
ups_value ups_round(ups_graph *g, ups_value x);
/* y (…, D) = factor · x · gain?; gain (D), which gets no gradient */
ups_value ups_scale(ups_graph *g, ups_value x, float factor, ups_value gain);
/* softmax(q kᵀ / √d) v by head. Inputs: q, kv?, gain_q?, gain_k?. Self: q is packed (B, T, 3·D) = [q | k | v], kv
 * absent. Cross: q (B, Tq, D), kv (B, Tk, 2·D) = [k | v]. With gains (D/H): q and k are RMS-normalised a head first. y
 * (B, Tq, D). d = D/H. Saves what backward wants (log-sum-exp (B, H, Tq), and 1/rms of q and k) */
ups_value ups_attention(ups_graph *g, ups_value q, ups_value kv, ups_value gain_q, ups_value gain_k, int heads);
/* Self-attention with more to it than heads. `groups` > 1: features are packed group by group, each [q | k | v] of its
 * heads. `rotary` (T, d) float32, or (B, T, d), cosines and then sines of d/2 angles: pairs (i, d/2 + i) of q and k
 * are turned by those of their token, after the norm. With `dims` > 0 tokens are the cells of a grid, and attention
 * stays within windows: every axis is cut `shift` cells behind its beginning, and every `window` cells from there on; a
 * periodic axis goes on at its beginning, any other begins and ends with a shorter window, and an axis no longer than a
 * window is not cut. `bias` (Π (2 window − 1), H) float32 is added to scores, by the offset of the query's cell from
 * the key's, from −(window − 1) up along each axis, slowest first. */
typedef struct ups_attention_options {
    int heads, groups;
    ups_value gain_q, gain_k, rotary, bias; /* UPS_NO_VALUE where there are none */
    int dims;
    int64_t cells[3], window[3], shift[3];
    bool periodic;
} ups_attention_options;
ups_value ups_self_attention(ups_graph *g, ups_value qkv, const ups_attention_options *options);
/* y (…, length) = x (…, offset : offset + length) */
ups_value ups_slice(ups_graph *g, ups_value x, int64_t offset, int64_t length);
/* y (B, …) = x (B, W, …) [:, frame] */
ups_value ups_select_frame(ups_graph *g, ups_value x, int64_t frame);
/* y (B, N, P·C): patches of a field x (B, points·C) in channel order `channels_first` or last, P points a patch; each
 * value (v − mean_c) · inverse_std_c with statistics? (C, 2). The grid is padded at the end of each axis by repeating
 * the last point when the patch does not divide it. With patches of one point, and channels first, the axes of
 * (B, C, N) change places. y: compute */
ups_value ups_patchify(ups_graph *g, ups_value field, ups_value statistics, int dims, const int64_t *grid,
                       const int64_t *patch, int64_t channels, bool channels_first);
/* y (B, N, taps·C): each cell of a grid of cells beside its 3^dims neighbours (taps in row-major order, zero or
 * periodic border): a 3×3 convolution is this + linear */
ups_value ups_neighborhood(ups_graph *g, ups_value x, int dims, const int64_t *cells, bool periodic);
/* y (B, N, D): every feature convolved with a kernel of its own over a grid of cells; weight (size^dims, D) float32,
 * taps in row-major order. `size` is 3, 5 or 7; beyond the border are zeros, or what lies on the other side */
ups_value ups_depthwise(ups_graph *g, ups_value x, ups_value weight, int dims, const int64_t *cells, int size,
                        bool periodic);
/* y (B, Π ⌈n/2⌉, D): means of the pairs of cells (2 i, 2 i + 1) along each axis of a grid of `cells`; where n is odd
 * the last cell counts twice */
ups_value ups_coarsen(ups_graph *g, ups_value x, int dims, const int64_t *cells);
/* y (B, Π n, D) on a grid of `cells` n, from x (B, Π ⌈n/2⌉, D) on one that coarsen makes of it, by linear interpolation
 * between the middles of pairs; beyond the border lies what is there on the other side, or the last cell */
ups_value ups_refine(ups_graph *g, ups_value x, int dims, const int64_t *cells, bool periodic);
/* y (B, T, D): adaptive average over the token axis of x (B, N, D): token t averages [⌊tN/T⌋, ⌈(t+1)N/T⌉) */
ups_value ups_pool_tokens(ups_graph *g, ups_value x, int64_t tokens);
/* y (B, Q, C) = normalised field x (B, points·C) at index (Q) int32 grid points; statistics? (C, 2). float32. No
 * gradient to index and statistics */
ups_value ups_gather_points(ups_graph *g, ups_value field, ups_value index, ups_value statistics, int64_t channels,
                            bool channels_first);
/* y (B, Q, C) = the field that patches x (B, N, P·C) make up, as patchify cuts them, at coordinates c (Q, d) float32 in
 * [0, 1]: grid point i of n lies at (i + ½) / n; between grid points by cubic convolution (Keys 1981), which goes
 * through them. Beyond its border the field is periodic, or its last value. x and y: float32; no gradient to c */
ups_value ups_read_patches(ups_graph *g, ups_value x, ups_value coordinates, int dims, const int64_t *grid,
                           const int64_t *patch, int64_t channels, bool periodic);
/* y (B, Q, C) = Σ_o x (B, Q·O, C) · w (Q·O, C): of every O rows in a row, each with weights of its own, which all
 * samples share. All float32 */
ups_value ups_weigh_points(ups_graph *g, ups_value x, ups_value weights, int64_t rows);
/* y (Q, d·(1 + 2F)) = [c, sin 2πfc, cos 2πfc …] of coordinates c (Q, d) float32; no gradient. y: compute */
ups_value ups_fourier(ups_graph *g, ups_value coordinates, const float *frequencies, int count);
/* y (…, W) float32 = cosines, then sines, of W/2 angles a place c (…, d) float32: πk c for k from 1 up to ⌊W/2/d⌋ of
 * each coordinate, one after the other, then 0. What attention takes as `rotary`; no gradient */
ups_value ups_angles(ups_graph *g, ups_value places, int64_t width);
/* y (B, N, D) = Tᵀ mix(T x): tokens x on a grid of `dims` axes become modes, features of each mode are mixed by
 * matrices of its own, and modes become tokens again. T is the tensor product of tables[axis] (2 K, cells of the axis)
 * float32, slowest axis first, whose rows 2 k and 2 k + 1 are the two parts of mode k, a cosine and a sine
 * (`table` in nets/mix_spectral.c). Of its P = 2^dims parts, mixed as complex numbers are, mode (k, l, …) gets
 * y_p = Σ_q ± x_(p xor q) W_q: what commutes with shifts of a periodic grid. weight (modes of all axes, P · D, D)
 * float32 holds the W_q of mode (k, l, …) below each other; it may have more modes along an axis, `modes`, than the
 * table. Saves T x (B, modes, D). Gradients to x and the weight */
ups_value ups_spectral(ups_graph *g, ups_value x, ups_value weight, const ups_value *tables, int dims,
                       const int64_t *modes);
/* The same along one axis of a grid, line by line: x (B, outer · cells · inner, D), where `inner` tokens lie between
 * two of a line, as of a row-major grid the cells of all later axes. table (2 K, cells), weight (modes, 2 D, D). Saves
 * T x (B, outer · 2 K · inner, D) */
ups_value ups_spectral_lines(ups_graph *g, ups_value x, ups_value weight, ups_value table, int64_t inner,
                             int64_t modes);
/* y (B, C·Π n) = fields x (B, C·Π n), channels first and the fastest grid axis last, by orthonormal modes along each of
 * `dims` axes of n points. Periodic: row 0 √(1/n), rows 2 k − 1 and 2 k √(2/n) times the cosine and the sine of
 * 2 π k i / n at point i, and of an even n last √(1/n) (−1)^i. Otherwise DCT-II: row r √(2/n) times the cosine of
 * π r (2 i + 1) / (2 n), row 0 √(1/n). Two lines of a sample may share a transform, and so the rounding of the larger.
 * Both float32 */
ups_value ups_field_modes(ups_graph *g, ups_value x, int dims, const int64_t *grid, bool periodic);
/* y (B) = mean over a sample of (prediction − target)²; float32; gradient to the prediction, and to the target if it
 * needs one */
ups_value ups_loss_mse(ups_graph *g, ups_value prediction, ups_value target);
/* y (B) = ‖prediction − target‖ / (‖target‖ + ε) of a sample: nRMSE; gradient to the prediction */
ups_value ups_loss_relative(ups_graph *g, ups_value prediction, ups_value target);
/* y (B) = Σ_g w_g ‖prediction − target‖_g / max(‖target + o_g‖_g, least): the relative error by groups of a sample's
 * numbers, such as channels or bands of wavenumbers, each norm over the numbers of group g. group (numbers of a sample)
 * int32: of each number; table (groups, 2) float32: [w_g, o_g]. float32; gradient to the prediction */
ups_value ups_loss_grouped(ups_graph *g, ups_value prediction, ups_value target, ups_value group, ups_value table,
                           float least);
/* y (B) = mean over a sample of min(x, 0)² */
ups_value ups_loss_negative(ups_graph *g, ups_value x);
/* y (B), the same for every sample: with C (D, D) the covariance of features of x (B, T, D) over all rows, diagonal:
 * mean_d (C_dd − 1)²; else mean_{d ≠ e} C_de² (Bardes et al., VICReg, arXiv 2105.04906, equations 1 and 3, of variances
 * in the place of deviations). Saves C and the means (D + 1, D) */
ups_value ups_loss_covariance(ups_graph *g, ups_value x, bool diagonal);
/* y = x + deviation · gain? · n in training, else x; n: a standard normal number for each element, Philox (seed, item,
 * layer) (model/random/augment.h). gain (D), which gets no gradient. y: dtype of x */
ups_value ups_noise(ups_graph *g, ups_value x, float deviation, ups_value gain, uint32_t layer);
/* y (B, …, D) = x in training moved by whole cells along each axis of a periodic grid, which the axes of x before the
 * last one end in: x (B, …, cells of all axes, D). How far is drawn for each sample, Philox (seed, item)
 * (model/random/augment.h). y: dtype of x */
ups_value ups_shift(ups_graph *g, ups_value x, int dims, const int64_t *cells);
/* Symmetries of a grid: reflections along each axis, 2^dims of them, and where axes are alike those after each of their
 * exchanges: 8 of a square, 48 of a cube. */
int64_t ups_symmetry_count(int dims, bool exchanges);
/* y (B, …, cells of all axes, D) = x in training reflected, and with axes exchanged: element e of the symmetries of a
 * grid, drawn for each sample, Philox (seed, item) (model/random/augment.h). Number d of a cell is factor · the number
 * source[e, d] of the cell that comes to lie there, + offset. source (E, D) int32; table (E, D, 2) float32: [factor,
 * offset]; E: ups_symmetry_count. All float32, and without a gradient */
ups_value ups_symmetry(ups_graph *g, ups_value x, int dims, const int64_t *cells, ups_value source, ups_value table);
/* y (1) = Σ_k weight_k · mean(x_k), x_k (B): the total loss */
ups_value ups_weighted_sum(ups_graph *g, const ups_value *losses, const float *weights, int count);
/* y = x in attributes.dtype */
ups_value ups_cast(ups_graph *g, ups_value x, ups_dtype dtype);

#endif

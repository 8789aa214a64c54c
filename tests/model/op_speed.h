/* How long ops take at the reference operator's shapes. */
#ifndef UPS_TESTS_MODEL_OP_SPEED_H
#define UPS_TESTS_MODEL_OP_SPEED_H

#include <stdint.h>

/* Prints those whose name holds `only`, all for NULL, on the device that is open (op_fixture.h). */
void measure_ops(const char *only);

/* A step of Muon over `count` matrices of one shape, of runs in float32 and bf16. FLOP are those of five Newton-Schulz
 * steps one after the other. */
void measure_muon(int64_t count, int64_t rows, int64_t columns);

/* Linear, and linear with GELU, in float32 and bf16, with a bias. */
void measure_linear(int64_t rows, int64_t features, int64_t made);

/* Attention, in float32 and bf16, over packed queries, keys and values of `batch` sequences, queries and keys
 * normalised. */
void measure_attention(int64_t batch, int64_t heads, int64_t tokens, int64_t head_size);

#endif

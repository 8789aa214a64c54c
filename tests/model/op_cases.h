/* What test_ops runs: ops, shapes, and which operands have the dtype under test. */
#ifndef UPS_TESTS_MODEL_OP_CASES_H
#define UPS_TESTS_MODEL_OP_CASES_H

#include "model/ops.h"

/* What an operand holds: COMPUTE has the dtype under test, STREAM and VECTOR are float32 always (residual stream;
 * gains, biases, statistics), INDEX is int32 below `bound`, STATE is a kernel's own, and begins as zeros. */
typedef enum operand_kind { ABSENT, COMPUTE, STREAM, VECTOR, INDEX, HALF, STATE } operand_kind;

typedef struct operand {
    operand_kind kind;
    ups_shape shape;
    int32_t bound;
    float spread; /* standard deviation; 0: 1 */
} operand;

typedef struct op_case {
    const char *name;
    ups_op_kind kind;
    ups_op_attributes attributes;
    int input_count;
    operand inputs[UPS_MAX_INPUTS];
    operand output;
    ups_shape saved[UPS_MAX_SAVED];
    bool training;
    float looser; /* factor on the tolerance; 0: 1 */
} op_case;

extern const op_case op_cases[];
extern const int op_case_count;
extern const op_case op_perf_cases[];
extern const int op_perf_case_count;

#endif

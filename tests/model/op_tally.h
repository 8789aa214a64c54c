/* What test_ops has compared, op by op: how many results, and how near the worst of them came to what is allowed. */
#ifndef UPS_TESTS_MODEL_OP_TALLY_H
#define UPS_TESTS_MODEL_OP_TALLY_H

#include "model/op.h"

#include <stdbool.h>

extern bool compared; /* whether results are; not by `test_ops kernels`, which only runs kernels */
void skip_where_nothing_is_compared(void);

/* One result more, whose error is this part of what is allowed; NaN is worse than any. */
void tally_result(ups_op_kind kind, double part);
int tally_results(ups_op_kind kind); /* how many there were */
void tally_print(void);              /* a line an op, of those that were compared */
/* The same for scripts, one object: {"device": …, "failed": claims that do not hold, "ops": [{"op", "results",
 * "worst"}]}. `worst` is null where it is no finite number. */
void tally_print_json(const char *device, int failed);

#endif

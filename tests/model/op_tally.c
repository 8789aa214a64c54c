#include "tests/model/op_tally.h"

#include "base/json.h"
#include "tests/model/claims.h"
#include <math.h>
#include <stdio.h>

bool compared = true;

static struct {
    int results;
    double worst;
} tallies[UPS_OP_COUNT];

void skip_where_nothing_is_compared(void) {
    if (!compared) skip_because("kernels are only run here; another run compares them");
}

void tally_result(ups_op_kind kind, double part) {
    tallies[kind].results++;
    if (!(part <= tallies[kind].worst) && !isnan(tallies[kind].worst)) tallies[kind].worst = part;
}

int tally_results(ups_op_kind kind) {
    return tallies[kind].results;
}

void tally_print(void) {
    printf("\n%-18s %7s   worst error, as part of what is allowed\n", "op", "results");
    for (int kind = 0; kind < UPS_OP_COUNT; kind++) {
        if (tallies[kind].results > 0)
            printf("%-18s %7d   %.2g\n", ups_op_name((ups_op_kind)kind), tallies[kind].results, tallies[kind].worst);
    }
}

void tally_print_json(const char *device, int failed) {
    json_t *ops = json_array();
    for (int kind = 0; kind < UPS_OP_COUNT; kind++) {
        if (tallies[kind].results == 0) continue;
        const double worst = tallies[kind].worst;
        json_array_append_new(ops, json_pack("{s:s, s:i, s:o}", "op", ups_op_name((ups_op_kind)kind), "results",
                                             tallies[kind].results, "worst",
                                             isfinite(worst) ? json_real(worst) : json_null()));
    }
    json_t *document = json_pack("{s:s, s:i, s:o}", "device", device, "failed", failed, "ops", ops);
    json_dumpf(document, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(3));
    putchar('\n');
    json_decref(document);
}

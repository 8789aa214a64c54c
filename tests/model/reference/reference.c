#include "tests/model/reference/parts.h"

typedef void op(const ups_reference *r, bool backward);

static op *const ops[UPS_OP_COUNT] = {
#define UPS_OP_REFERENCE(KIND, name) [UPS_OP_##KIND] = ups_reference_##name,
    UPS_OPS(UPS_OP_REFERENCE)
#undef UPS_OP_REFERENCE
};

void ups_reference_forward(const ups_reference *r) {
    ops[r->kind](r, false);
}

void ups_reference_backward(const ups_reference *r) {
    ops[r->kind](r, true);
}

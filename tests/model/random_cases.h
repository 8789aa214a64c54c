/* Cases of test_ops whose shapes are drawn: what a fixed list forgets. */
#ifndef UPS_TESTS_MODEL_RANDOM_CASES_H
#define UPS_TESTS_MODEL_RANDOM_CASES_H

#include "tests/model/op_cases.h"

enum { RANDOM_CASES = 24 };

typedef struct random_case {
    op_case c;
    char name[160]; /* of it, with its shapes and the seed */
} random_case;

/* Case `number` of a seed; its name points into itself. */
void random_case_draw(uint64_t seed, int number, random_case *drawn);

#endif

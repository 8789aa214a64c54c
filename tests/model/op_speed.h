/* How long ops take at the reference operator's shapes. */
#ifndef UPS_TESTS_MODEL_OP_SPEED_H
#define UPS_TESTS_MODEL_OP_SPEED_H

/* Prints those whose name holds `only`, all for NULL, on the device that is open (op_fixture.h). */
void measure_ops(const char *only);

#endif

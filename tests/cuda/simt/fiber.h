/* Fibers: stacks that take turns on one host thread. */
#ifndef UPS_TESTS_CUDA_SIMT_FIBER_H
#define UPS_TESTS_CUDA_SIMT_FIBER_H

#include <stddef.h>
#include <stdint.h>

typedef struct simt_fiber {
    void *stack_pointer;
    void *stack; /* lowest address; NULL of the host thread's own fiber before it was left once */
    size_t stack_bytes;
    uint32_t shift;   /* from the end of its stack to where it begins */
    void *fake_stack; /* the address sanitizer's */
} simt_fiber;

/* Makes `fiber` begin with `begin`, which never returns, when it is switched to. Its stack is made once and kept. */
void simt_fiber_begin(simt_fiber *fiber, void (*begin)(void));
/* What `begin` calls first. */
void simt_fiber_begun(simt_fiber *from);
/* `from` goes on when someone switches back to it; `ends`: it never will. */
void simt_fiber_switch(simt_fiber *from, simt_fiber *to, int ends);

#endif

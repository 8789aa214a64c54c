/* Switching saves what a function must preserve by the System V ABI for x86-64, section 3.2.1, and changes the stack.
 * Rounding modes are the same in all fibers. The address sanitizer is told, as its interface for fibers asks. */
#include "tests/cuda/simt/fiber.h"
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#define START_SWITCH(save, fiber) __sanitizer_start_switch_fiber(save, (fiber)->stack, (fiber)->stack_bytes)
#define FINISH_SWITCH(fake, bottom, bytes) __sanitizer_finish_switch_fiber(fake, bottom, bytes)
enum { STACK_BYTES = 2 << 20 /* of which an instrumented thread of a large kernel takes more than 256 KB */ };
#else
#define START_SWITCH(save, fiber) ((void)(save))
#define FINISH_SWITCH(fake, bottom, bytes) ((void)(fake))
enum { STACK_BYTES = 256 << 10 };
#endif

enum { GUARD_BYTES = 4096, SAVED_REGISTERS = 6 };

/* Stacks lie whole pages apart. If they began at one place in a page, what threads of a block have at hand would share
 * a few sets of the cache. */
enum { SHIFT_BYTES = 5 * 64, SHIFTS_BELOW = 4096 };

void simt_fiber_jump(void **save, void *to);
__asm__(".text\n"
        ".type simt_fiber_jump, @function\n"
        "simt_fiber_jump:\n"
        "pushq %rbp\n"
        "pushq %rbx\n"
        "pushq %r12\n"
        "pushq %r13\n"
        "pushq %r14\n"
        "pushq %r15\n"
        "movq %rsp, (%rdi)\n"
        "movq %rsi, %rsp\n"
        "popq %r15\n"
        "popq %r14\n"
        "popq %r13\n"
        "popq %r12\n"
        "popq %rbx\n"
        "popq %rbp\n"
        "ret\n"
        ".size simt_fiber_jump, . - simt_fiber_jump\n");

void simt_fiber_begin(simt_fiber *fiber, void (*begin)(void)) {
    if (!fiber->stack) {
        char *memory = mmap(NULL, STACK_BYTES + GUARD_BYTES, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (memory == MAP_FAILED || mprotect(memory, GUARD_BYTES, PROT_NONE) != 0) {
            fprintf(stderr, "simt: no memory for the stack of a thread\n");
            abort();
        }
        fiber->stack = memory + GUARD_BYTES;
        fiber->stack_bytes = STACK_BYTES;
        static uint32_t made;
        fiber->shift = made++ * SHIFT_BYTES % SHIFTS_BELOW;
    }
    uint64_t *top = (uint64_t *)((char *)fiber->stack + fiber->stack_bytes - fiber->shift);
    *--top = 0; /* where `begin` would return to; leaves the stack aligned as a call does */
    *--top = (uint64_t)(uintptr_t)begin;
    fiber->stack_pointer = top - SAVED_REGISTERS;
    fiber->fake_stack = NULL;
}

void simt_fiber_begun(simt_fiber *from) {
    const void *bottom = NULL;
    size_t bytes = 0;
    FINISH_SWITCH(NULL, &bottom, &bytes);
    if (!from->stack && bottom) { /* the host thread's, which nobody else tells of */
        from->stack = (void *)(uintptr_t)bottom;
        from->stack_bytes = bytes;
    }
}

void simt_fiber_switch(simt_fiber *from, simt_fiber *to, int ends) {
    START_SWITCH(ends ? NULL : &from->fake_stack, to);
    simt_fiber_jump(&from->stack_pointer, to->stack_pointer);
    FINISH_SWITCH(from->fake_stack, NULL, NULL);
}

/* Work, and the order that is between pieces of it: a directed graph over all that was ever issued.
 *
 * The race checker asks whether an earlier piece is before the one that runs: whether it is among its ancestors, or the
 * host had waited for it when this one was issued. */
#include "tests/cuda/runtime/runtime.h"
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static emulated_list all; /* by id, from 1 */
static emulated_work *running;
static uint32_t collections;

/* ---- lists --------------------------------------------------------------------------------------------------------
 */

static void *grown(void *items, uint32_t room, size_t item) {
    items = realloc(items, room * item);
    if (!items) simt_fail(NULL, "no memory for a list of the emulator");
    return items;
}

void emulated_list_add(emulated_list *list, emulated_work *work) {
    if (!work) return;
    if (list->count == list->room) {
        list->room = list->room ? 2 * list->room : 8;
        list->items = grown(list->items, list->room, sizeof *list->items);
    }
    list->items[list->count++] = work;
}

void emulated_indices_add(emulated_indices *to, uint32_t index) {
    for (uint32_t i = 0; i < to->count; i++) {
        if (to->items[i] == index) return;
    }
    if (to->count == to->room) {
        to->room = to->room ? 2 * to->room : 4;
        to->items = grown(to->items, to->room, sizeof *to->items);
    }
    to->items[to->count++] = index;
}

void emulated_indices_copy(emulated_indices *to, const emulated_indices *from) {
    to->count = 0;
    for (uint32_t i = 0; i < from->count; i++) emulated_indices_add(to, from->items[i]);
}

/* ---- bodies -------------------------------------------------------------------------------------------------------
 */

emulated_body *emulated_body_create(emulated_kind kind) {
    emulated_body *body = calloc(1, sizeof *body);
    if (!body) simt_fail(NULL, "no memory for a piece of work");
    body->kind = kind;
    body->references = 1;
    emulated_caller_take(&body->caller);
    return body;
}

void emulated_body_release(emulated_body *body) {
    if (--body->references > 0) return;
    free(body->owned);
    free(body);
}

static const char *describe(uint32_t id) {
    static char text[1400];
    const emulated_body *body = all.items[id - 1]->body;
    const char *what = body->kind == EMULATED_KERNEL ? body->kernel->name
                       : body->kind == EMULATED_COPY ? "the copy"
                       : body->kind == EMULATED_FILL ? "the fill"
                                                     : body->name;
    snprintf(text, sizeof text, "%s issued in %s", what, emulated_caller_describe(&body->caller));
    return text;
}

/* ---- order --------------------------------------------------------------------------------------------------------
 */

static bool is_waited(const emulated_work *w, uint32_t id) {
    return w->waited && w->waited <= id;
}

static bool is_ordered(uint32_t earlier) {
    if (!running || earlier == 0) return true;
    const emulated_work *w = all.items[earlier - 1];
    return w->mark == running->id || is_waited(w, running->id);
}

/* Marks what is before `w`, as far as the host had not waited for it. */
static void mark_ancestors(emulated_work *w) {
    emulated_list stack = {0};
    emulated_list_add(&stack, w);
    while (stack.count) {
        emulated_work *next = stack.items[--stack.count];
        for (uint32_t i = 0; i < next->before_count; i++) {
            emulated_work *b = next->before[i];
            if (b->mark == w->id || is_waited(b, w->id)) continue;
            b->mark = w->id;
            emulated_list_add(&stack, b);
        }
    }
    free(stack.items);
}

/* ---- running ------------------------------------------------------------------------------------------------------
 */

emulated_work *emulated_work_add(emulated_body *body, const emulated_list *before) {
    emulated_work *w = calloc(1, sizeof *w);
    if (!w) simt_fail(NULL, "no memory for a piece of work");
    emulated_list_add(&all, w);
    w->id = all.count;
    w->body = body;
    w->before = grown(NULL, before->count + 1, sizeof *w->before);
    if (before->count) memcpy(w->before, before->items, before->count * sizeof *w->before);
    w->before_count = before->count;
    if (body->kind == EMULATED_COPY) emulated_copy_begin(body);
    return w;
}

static void run(emulated_work *w) {
    emulated_body *body = w->body;
    running = w;
    simt_is_ordered = is_ordered;
    simt_describe_work = describe;
    mark_ancestors(w);
    switch (body->kind) {
    case EMULATED_NOTHING:
        break;
    case EMULATED_END:
        emulated_graphs_left--;
        break;
    case EMULATED_KERNEL:
        simt_launch(w->id, body->kernel, body->grid, body->block, body->dynamic_shared, body->owned);
        break;
    case EMULATED_COPY:
        emulated_copy_run(w->id, body);
        break;
    case EMULATED_FILL:
        emulated_fill_run(w->id, body);
        break;
    case EMULATED_CALL:
        body->call(w->id, body->owned);
        break;
    }
    w->done = true;
    w->clock = emulated_clock;
    running = NULL;
    if (body->references == 1) { /* no graph needs it again */
        free(body->owned);
        body->owned = NULL;
    }
}

/* What is left to do until `w` is done. */
static emulated_list collect(emulated_work *w) {
    emulated_list list = {0};
    collections++;
    if (!w->done) {
        w->collected = collections;
        emulated_list_add(&list, w);
    }
    for (uint32_t i = 0; i < list.count; i++) {
        for (uint32_t j = 0; j < list.items[i]->before_count; j++) {
            emulated_work *b = list.items[i]->before[j];
            if (b->done || b->collected == collections) continue;
            b->collected = collections;
            emulated_list_add(&list, b);
        }
    }
    return list;
}

static bool is_ready(const emulated_work *w) {
    for (uint32_t i = 0; i < w->before_count; i++) {
        if (!w->before[i]->done) return false;
    }
    return true;
}

/* Of what can run now, in the order of issuing, one that is chosen. */
static void run_one(emulated_list *left) {
    static emulated_list ready;
    ready.count = 0;
    for (uint32_t i = left->count; i-- > 0;) {
        if (is_ready(left->items[i])) emulated_list_add(&ready, left->items[i]);
    }
    emulated_work *chosen = ready.items[simt_choose(ready.count)];
    run(chosen);
    for (uint32_t i = 0; i < left->count; i++) {
        if (left->items[i] == chosen) left->items[i] = left->items[--left->count];
    }
}

static void mark_waited(emulated_work *w) {
    emulated_list stack = {0};
    uint32_t next_id = all.count + 1;
    if (!w->waited) emulated_list_add(&stack, w);
    while (stack.count) {
        emulated_work *next = stack.items[--stack.count];
        if (next->waited) continue;
        next->waited = next_id;
        for (uint32_t i = 0; i < next->before_count; i++) {
            if (!next->before[i]->waited) emulated_list_add(&stack, next->before[i]);
        }
    }
    free(stack.items);
}

void emulated_work_wait(emulated_work *work) {
    if (!work) return;
    emulated_list left = collect(work);
    while (left.count) run_one(&left);
    free(left.items);
    mark_waited(work);
}

bool emulated_work_try(emulated_work *work) {
    if (!work) return true;
    emulated_list left = collect(work);
    if (left.count) run_one(&left);
    free(left.items);
    if (work->done) mark_waited(work);
    return work->done;
}

/* ---- calls --------------------------------------------------------------------------------------------------------
 */

static pthread_mutex_t lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static _Thread_local cudaError_t last_error;

void emulated_lock(void) {
    pthread_mutex_lock(&lock);
}

void emulated_unlock(const int *unused) {
    pthread_mutex_unlock(&lock);
}

cudaError_t emulated_refuse(cudaError_t code, const char *format, ...) {
    emulated_caller caller;
    va_list arguments;
    emulated_caller_take(&caller);
    last_error = code;
    fprintf(stderr, "%s: ", emulated_caller_describe(&caller));
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fprintf(stderr, " (%s)\n", cudaGetErrorName(code));
    return code;
}

cudaError_t cudaGetLastError(void) {
    EMULATED_CALL_BEGINS();
    cudaError_t code = last_error;
    last_error = cudaSuccess;
    return code;
}

cudaError_t cudaPeekAtLastError(void) {
    return last_error;
}

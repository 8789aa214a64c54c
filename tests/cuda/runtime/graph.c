/* Captures and graphs. A graph keeps the edges that streams and events made, and nothing of the order of issuing: its
 * launch runs in any order that the edges allow. */
#include "tests/cuda/runtime/runtime.h"
#include <stdio.h>
#include <stdlib.h>

struct CUgraphExec_st {
    struct CUgraph_st graph;
    emulated_work *last; /* of its last launch: a graph does not run beside itself */
};

static emulated_capture *captures; /* all, since events remember them */

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode) {
    EMULATED_CALL_BEGINS();
    if ((uintptr_t)stream <= 2)
        return emulated_refuse(cudaErrorStreamCaptureUnsupported, "the default stream is to be captured");
    if (stream->capture) return emulated_refuse(cudaErrorIllegalState, "the stream is captured already");
    emulated_capture *capture = calloc(1, sizeof *capture);
    struct CUgraph_st *graph = calloc(1, sizeof *graph);
    if (!capture || !graph) return cudaErrorMemoryAllocation;
    *capture = (emulated_capture){
        .before = captures, .graph = graph, .origin = stream, .relaxed = mode == cudaStreamCaptureModeRelaxed};
    captures = capture;
    emulated_counted.captures++;
    stream->capture = capture;
    stream->frontier.count = 0;
    return cudaSuccess;
}

/* A node that does not come before the end of the stream that the capture began on; the graph's count: none. */
static uint32_t find_unjoined(const struct CUgraph_st *graph, const emulated_indices *end) {
    bool *joined = calloc(graph->count + 1, sizeof *joined);
    uint32_t found = graph->count;
    for (uint32_t i = 0; i < end->count; i++) joined[end->items[i]] = true;
    for (uint32_t i = graph->count; i-- > 0;) { /* edges point to earlier nodes */
        if (!joined[i]) {
            found = i;
            continue;
        }
        for (uint32_t j = 0; j < graph->nodes[i].before.count; j++) joined[graph->nodes[i].before.items[j]] = true;
    }
    free(joined);
    return found;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph) {
    EMULATED_CALL_BEGINS();
    emulated_capture *capture = stream->capture;
    *graph = NULL;
    if (!capture) return emulated_refuse(cudaErrorIllegalState, "the stream is not captured");
    if (capture->origin != stream)
        return emulated_refuse(cudaErrorStreamCaptureUnmatched, "the capture began on another stream");
    uint32_t unjoined = find_unjoined(capture->graph, &stream->frontier);
    for (struct CUstream_st *s = emulated_streams(); s; s = s->next) {
        if (s->capture != capture) continue;
        s->capture = NULL;
        if (s == stream) continue;
        s->frontier.count = 0;
    }
    stream->frontier.count = 0;
    capture->ended = true;
    if (capture->invalid) {
        cudaGraphDestroy(capture->graph);
        return emulated_refuse(cudaErrorStreamCaptureInvalidated, "a call before made the capture invalid");
    }
    if (unjoined < capture->graph->count) {
        char place[1000];
        const emulated_body *body = capture->graph->nodes[unjoined].body;
        snprintf(place, sizeof place, "%s", emulated_caller_describe(&body->caller));
        const char *what = body->kernel ? body->kernel->name : "work";
        cudaError_t code = emulated_refuse(cudaErrorStreamCaptureUnjoined,
                                           "%s: %s was captured on another stream, and the stream that the capture "
                                           "began on does not wait for it",
                                           place, what);
        cudaGraphDestroy(capture->graph);
        return code;
    }
    *graph = capture->graph;
    return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
    EMULATED_CALL_BEGINS();
    for (uint32_t i = 0; i < graph->count; i++) {
        emulated_body_release(graph->nodes[i].body);
        free(graph->nodes[i].before.items);
    }
    free(graph->nodes);
    free(graph);
    return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long flags) {
    EMULATED_CALL_BEGINS();
    *exec = calloc(1, sizeof **exec);
    if (!*exec) return cudaErrorMemoryAllocation;
    struct CUgraph_st *copy = &(*exec)->graph;
    copy->nodes = calloc(graph->count + 1, sizeof *copy->nodes);
    if (!copy->nodes) return cudaErrorMemoryAllocation;
    copy->count = graph->count;
    for (uint32_t i = 0; i < graph->count; i++) {
        copy->nodes[i].body = graph->nodes[i].body;
        copy->nodes[i].body->references++;
        emulated_indices_copy(&copy->nodes[i].before, &graph->nodes[i].before);
    }
    return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
    EMULATED_CALL_BEGINS();
    emulated_work_wait(exec->last);
    for (uint32_t i = 0; i < exec->graph.count; i++) {
        emulated_body_release(exec->graph.nodes[i].body);
        free(exec->graph.nodes[i].before.items);
    }
    free(exec->graph.nodes);
    free(exec);
    return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
    EMULATED_CALL_BEGINS();
    if ((uintptr_t)stream <= 2)
        return emulated_refuse(cudaErrorInvalidResourceHandle, "a graph is launched on the default stream");
    if (stream->capture)
        return emulated_refuse(cudaErrorStreamCaptureUnsupported, "a graph is launched on a stream that is captured");
    const struct CUgraph_st *graph = &exec->graph;
    emulated_work **works = calloc(graph->count + 1, sizeof *works), *begin;
    if (!works) return cudaErrorMemoryAllocation;
    emulated_list_add(&stream->waits, exec->last);
    emulated_issue(stream, emulated_body_create(EMULATED_NOTHING), &begin);
    emulated_list before = {0}, end = {0};
    emulated_list_add(&end, begin);
    for (uint32_t i = 0; i < graph->count; i++) {
        const emulated_node *node = &graph->nodes[i];
        before.count = 0;
        emulated_list_add(&before, begin);
        for (uint32_t j = 0; j < node->before.count; j++) emulated_list_add(&before, works[node->before.items[j]]);
        node->body->references++;
        works[i] = emulated_work_add(node->body, &before);
        emulated_list_add(&end, works[i]);
    }
    exec->last = stream->last = emulated_work_add(emulated_body_create(EMULATED_END), &end);
    emulated_counted.graphs++;
    emulated_graphs_left++;
    free(before.items);
    free(end.items);
    free(works);
    return cudaSuccess;
}

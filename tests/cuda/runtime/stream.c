/* Streams and events. */
#include "tests/cuda/runtime/runtime.h"
#include <stdlib.h>

static struct CUstream_st *streams;

struct CUstream_st *emulated_streams(void) {
    return streams;
}

/* Whether there was nothing to wait for. */
static bool wait_for_stream(struct CUstream_st *s) {
    bool was_done = !s->last || s->last->done;
    emulated_work_wait(s->last);
    for (uint32_t i = 0; i < s->waits.count; i++) {
        was_done = was_done && s->waits.items[i]->done;
        emulated_work_wait(s->waits.items[i]);
    }
    return was_done;
}

void emulated_wait_for_all(void) {
    bool were_done = true;
    for (struct CUstream_st *s = streams; s; s = s->next) were_done = wait_for_stream(s) && were_done;
    emulated_count_wait(were_done);
}

bool emulated_is_capturing(void) {
    for (struct CUstream_st *s = streams; s; s = s->next) {
        if (s->capture && !s->capture->relaxed) return true;
    }
    return false;
}

/* The legacy default stream and the others with special handles (1, 2) are not there. */
static bool is_stream(cudaStream_t stream) {
    return (uintptr_t)stream > 2;
}

static uint32_t add_node(struct CUgraph_st *graph, emulated_body *body, const emulated_indices *before) {
    if (graph->count == graph->room) {
        graph->room = graph->room ? 2 * graph->room : 64;
        graph->nodes = realloc(graph->nodes, graph->room * sizeof *graph->nodes);
        if (!graph->nodes) simt_fail(NULL, "no memory for a graph");
    }
    emulated_node *node = &graph->nodes[graph->count];
    *node = (emulated_node){.body = body};
    emulated_indices_copy(&node->before, before);
    return graph->count++;
}

cudaError_t emulated_issue(cudaStream_t s, emulated_body *body, emulated_work **work) {
    if (!is_stream(s)) {
        emulated_body_release(body);
        return emulated_refuse(cudaErrorInvalidResourceHandle,
                               "the default stream waits for all others; a stream that was made is expected here");
    }
    if (work) *work = NULL;
    if (s->capture) {
        uint32_t node = add_node(s->capture->graph, body, &s->frontier);
        s->frontier.count = 0;
        emulated_indices_add(&s->frontier, node);
        return cudaSuccess;
    }
    emulated_count_issued(body);
    emulated_list_add(&s->waits, s->last);
    s->last = emulated_work_add(body, &s->waits);
    s->waits.count = 0;
    if (work) *work = s->last;
    return cudaSuccess;
}

/* ---- streams ------------------------------------------------------------------------------------------------------
 */

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned int flags) {
    EMULATED_CALL_BEGINS();
    if (flags != cudaStreamNonBlocking) {
        return emulated_refuse(cudaErrorInvalidValue, "a stream that waits for the default stream; "
                                                      "cudaStreamNonBlocking is expected here");
    }
    *stream = calloc(1, sizeof **stream);
    if (!*stream) return cudaErrorMemoryAllocation;
    (*stream)->next = streams;
    streams = *stream;
    return cudaSuccess;
}

/* Any order that streams allow is an order that priorities allow. */
cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned int flags, int priority) {
    return cudaStreamCreateWithFlags(stream, flags);
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
    *least = 0;
    *greatest = -5;
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    EMULATED_CALL_BEGINS();
    struct CUstream_st **at = &streams;
    while (*at && *at != stream) at = &(*at)->next;
    if (!*at) return emulated_refuse(cudaErrorInvalidResourceHandle, "a stream that is not there is destroyed");
    emulated_work_wait(stream->last);
    *at = stream->next;
    free(stream->waits.items);
    free(stream->frontier.items);
    free(stream);
    return cudaSuccess;
}

/* What the host may not do while a capture is under way ends it. */
static cudaError_t refuse_in_capture(const char *what) {
    for (struct CUstream_st *s = streams; s; s = s->next) {
        if (s->capture) s->capture->invalid = true;
    }
    return emulated_refuse(cudaErrorStreamCaptureUnsupported, "%s while a stream is captured", what);
}

bool emulated_broken;

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    EMULATED_CALL_BEGINS();
    if (!is_stream(stream)) return emulated_refuse(cudaErrorInvalidResourceHandle, "the default stream is waited for");
    if (stream->capture) return refuse_in_capture("the host waits for a stream");
    emulated_count_wait(wait_for_stream(stream));
    return emulated_broken ? cudaErrorLaunchFailure : cudaSuccess;
}

cudaError_t cudaDeviceSynchronize(void) {
    EMULATED_CALL_BEGINS();
    if (emulated_is_capturing()) return refuse_in_capture("the host waits for the device");
    emulated_wait_for_all();
    return cudaSuccess;
}

/* ---- events -------------------------------------------------------------------------------------------------------
 */

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned int flags) {
    EMULATED_CALL_BEGINS();
    *event = calloc(1, sizeof **event);
    if (!*event) return cudaErrorMemoryAllocation;
    (*event)->timed = !(flags & cudaEventDisableTiming);
    return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
    EMULATED_CALL_BEGINS();
    free(event->nodes.items);
    free(event);
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    EMULATED_CALL_BEGINS();
    if (!is_stream(stream))
        return emulated_refuse(cudaErrorInvalidResourceHandle, "an event is recorded on the default stream");
    event->capture = stream->capture;
    event->work = NULL;
    if (stream->capture) {
        emulated_indices_copy(&event->nodes, &stream->frontier);
        return cudaSuccess;
    }
    return emulated_issue(stream, emulated_body_create(EMULATED_NOTHING), &event->work);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    EMULATED_CALL_BEGINS();
    if (event->capture) {
        event->capture->invalid = true;
        return emulated_refuse(cudaErrorCapturedEvent, "the host waits for an event that was recorded in a capture");
    }
    const bool was_done = !event->work || event->work->done;
    emulated_work_wait(event->work);
    emulated_count_wait(was_done);
    return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
    EMULATED_CALL_BEGINS();
    if (event->capture)
        return emulated_refuse(cudaErrorCapturedEvent, "the host asks for an event that was recorded in a capture");
    return emulated_work_try(event->work) ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t start, cudaEvent_t end) {
    EMULATED_CALL_BEGINS();
    if (!start->timed || !end->timed)
        return emulated_refuse(cudaErrorInvalidResourceHandle, "the time between events that take none");
    if (start->capture || end->capture || !start->work || !end->work)
        return emulated_refuse(cudaErrorInvalidResourceHandle, "the time between events that were not recorded");
    if (!start->work->done || !end->work->done) return cudaErrorNotReady;
    *milliseconds = (float)(end->work->clock - start->work->clock);
    return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int flags) {
    EMULATED_CALL_BEGINS();
    if (!is_stream(stream))
        return emulated_refuse(cudaErrorInvalidResourceHandle, "the default stream is to wait for an event");
    if (!event->capture) {
        if (stream->capture && event->work) {
            stream->capture->invalid = true;
            return emulated_refuse(cudaErrorStreamCaptureIsolation,
                                   "a captured stream is to wait for an event from before the capture");
        }
        emulated_list_add(&stream->waits, event->work);
        return cudaSuccess;
    }
    if (event->capture->ended)
        return emulated_refuse(cudaErrorCapturedEvent, "a stream is to wait for an event of a capture that has ended");
    if (stream->capture && stream->capture != event->capture)
        return emulated_refuse(cudaErrorStreamCaptureMerge, "two captures would become one");
    stream->capture = event->capture; /* it joins */
    for (uint32_t i = 0; i < event->nodes.count; i++) emulated_indices_add(&stream->frontier, event->nodes.items[i]);
    return cudaSuccess;
}

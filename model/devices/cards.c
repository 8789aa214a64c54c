#include "model/devices/cards.h"

#include <string.h>

/* NVIDIA's data sheets: dense, without sparsity; SXM modules, whose clocks and memory other cards do not have. */
static const ups_card cards[] = {
    {"a100", "A100 SXM 80 GB", "A100-SXM4-80GB", 0, 312e12, 156e12, 19.5e12, 2.039e12},
    {"h100", "H100 SXM 80 GB", "H100 80GB HBM3", 1978.9e12, 989.4e12, 494.7e12, 66.9e12, 3.35e12},
    {"h200", "H200 SXM 141 GB", "H200", 1978.9e12, 989.4e12, 494.7e12, 66.9e12, 4.8e12},
};
const char *const ups_card_names[] = {"a100", "h100", "h200", NULL};

const ups_card *ups_card_at(int index) {
    return &cards[index];
}

const ups_card *ups_card_of_driver(const char *name) {
    for (size_t i = 0; name && i < sizeof cards / sizeof *cards; i++) {
        const size_t length = strlen(name), end = strlen(cards[i].driver);
        if (length >= end && strcmp(name + length - end, cards[i].driver) == 0) return &cards[i];
    }
    return NULL;
}

double ups_card_peak(const ups_card *card, const ups_graph *graph, const ups_node *node, const ups_work *work) {
    if (work->fp8 && card->fp8 > 0.0) return card->fp8;
    if (graph->compute != UPS_F32) return card->half;
    return node->attributes && node->attributes->tf32 ? card->tf32 : card->single;
}

ups_arithmetic ups_arithmetic_of(const ups_graph *graph, const ups_plan *plan, const ups_card *card) {
    const ups_schedule *schedule = ups_plan_schedule(plan);
    ups_arithmetic sum = {0};
    for (int32_t at = 0; at < schedule->count; at++) {
        if (schedule->entries[at].action == UPS_RECOMPUTE) continue;
        const ups_node *node = &graph->nodes[schedule->entries[at].node];
        const ups_work work = ups_work_of(graph, plan, at);
        const double products = work.product_flops - work.again;
        sum.flops += products + work.other_flops;
        if (card) sum.at_peak += products / ups_card_peak(card, graph, node, &work) + work.other_flops / card->single;
    }
    return sum;
}
